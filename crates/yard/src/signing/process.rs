//! The process with the keys: this program, started again, which gives up everything but the signer's folder.

use kilnyard_root::{Confinement, confine};
use kilnyard_signer::keys::{Credentials, with_cause};
use kilnyard_signer::policy::{POLICY, Policy};
use kilnyard_signer::service::Service;
use std::io::{self, BufWriter, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The hidden argument that starts this program as a signer.
const ARGUMENT: &str = "kilnyard-signer-process";
/// The user that a signer becomes where root starts it and there is such a user.
const USER: &str = "kilnyard-signer";
/// The exit code of a signer that cannot start. Its standard error says why.
const CANNOT_START: i32 = 125;
/// Where the process with the keys finds what a person was asked for.
const ASKED_AT: &str = "KILNYARD_SIGNER_CREDENTIALS";
/// The folder with credentials of a systemd service (systemd.exec(5)).
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

/// The command that becomes the signer in a folder. It talks by its standard input and output.
///
/// # Errors
/// The folder cannot be found.
#[expect(clippy::disallowed_methods, reason = "a service's credentials are found by this variable")]
pub fn command(folder: &Path) -> io::Result<Command> {
    let mut command = Command::new("/proc/self/exe");
    command.arg(ARGUMENT).arg(std::path::absolute(folder)?);
    command.env_clear();
    // Ctrl-C in a terminal ends what waits for a signature; the signer ends with its conversation.
    command.process_group(0);
    // Modules of tokens are configured by variables. A policy that cannot be read is the signer's to report.
    let policy = fs_err::read_to_string(folder.join(POLICY)).ok().and_then(|text| Policy::parse(&text).ok());
    command.envs(policy.iter().flat_map(Policy::environment));
    if let Some(credentials) = std::env::var_os(CREDENTIALS) {
        command.env(CREDENTIALS, credentials);
    }
    let asked = policy.as_ref().map(asked).unwrap_or_default();
    if !asked.is_empty() {
        let text = serde_json::to_vec(&asked)?;
        let path = kilnyard_process::hand_over(&mut command, &text)?;
        command.env(ASKED_AT, path);
    }
    Ok(command)
}

/// Asks a person for a passphrase or PIN, by the name of the credential; none if it is not given.
pub type Ask = fn(&str) -> Option<String>;

static ASK: OnceLock<Ask> = OnceLock::new();
/// What was asked for, for as long as this process lives.
static ASKED: Mutex<Credentials> = Mutex::new(Credentials::new());

/// Has this process ask a person for credentials that are missing: once for each.
pub fn ask_with(ask: Ask) {
    let _ = ASK.set(ask);
}

/// The credentials of a policy, with those that a person is asked for.
///
/// # Errors
/// One cannot be read.
pub fn credentials_or_asked(policy: &Policy) -> Result<Credentials, String> {
    let mut all = credentials(policy)?;
    all.extend(asked(policy));
    Ok(all)
}

/// The credentials of a policy that a person gave.
fn asked(policy: &Policy) -> Credentials {
    let Some(ask) = ASK.get() else { return Credentials::new() };
    let known = credentials(policy).unwrap_or_default();
    let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    for name in policy.credentials().filter(|name| !known.contains_key(*name)) {
        if !asked.contains_key(name)
            && let Some(secret) = ask(name)
        {
            asked.insert(name.to_owned(), secret);
        }
    }
    asked.clone()
}

/// The credentials that the process which started this one was given, if there are any.
#[expect(clippy::disallowed_methods, reason = "the parent process names the place by this variable")]
fn handed_over() -> Credentials {
    let bytes = std::env::var_os(ASKED_AT).and_then(|path| fs_err::read(PathBuf::from(path)).ok());
    bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

/// Becomes a signer if this program was started as one; in that case it does not return. Call it first in `main`, while the
/// process has one thread.
#[expect(clippy::disallowed_methods, reason = "the signer's process exits here")]
pub fn become_signer_if_asked() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|argument| argument != ARGUMENT) {
        return;
    }
    let folder = PathBuf::from(arguments.next().unwrap_or_default());
    let code = match serve(&folder) {
        Ok(()) => 0,
        Err(reason) => {
            let _ = writeln!(io::stderr(), "{reason}");
            CANNOT_START
        }
    };
    std::process::exit(code);
}

/// Confines this process to the folder, and answers questions on standard input.
fn serve(folder: &Path) -> Result<(), String> {
    let asked = handed_over();
    kilnyard_root::sandbox::close_descriptors()
        .map_err(|error| format!("failed to close descriptors: {error}"))?;
    let text = fs_err::read_to_string(folder.join(POLICY)).map_err(|error| format!("failed to {error}"))?;
    let policy =
        Policy::parse(&text).map_err(|reason| format!("{}: {reason}", folder.join(POLICY).display()))?;
    let mut credentials = credentials(&policy)?;
    credentials.extend(asked);
    let confinement = Confinement {
        folder: folder.to_owned(),
        readable: policy.readable(),
        writable: policy.writable(),
        user: user(),
        has_network: policy.has_network(),
    };
    confine(&confinement).map_err(|error| format!("failed to enter the signer's sandbox: {error}"))?;
    let mut service =
        Service::open(folder, &credentials).map_err(|error| format!("failed to {}", with_cause(&error)))?;
    let now = || kilnyard_process::time_of_day_seconds() as i64;
    // An end of the conversation is the end of the signer.
    let _ = service.serve(&mut io::stdin().lock(), &mut BufWriter::new(io::stdout().lock()), &now);
    Ok(())
}

/// The credentials that the policy names, as far as they are there.
///
/// # Errors
/// One cannot be read.
#[expect(clippy::disallowed_methods, reason = "a service's credentials are found by this variable")]
fn credentials(policy: &Policy) -> Result<Credentials, String> {
    let Some(folder) = std::env::var_os(CREDENTIALS).map(PathBuf::from) else {
        return Ok(Credentials::new());
    };
    let mut credentials = Credentials::new();
    for name in policy.credentials() {
        match fs_err::read_to_string(folder.join(name)) {
            Ok(text) => drop(credentials.insert(name.to_owned(), text.trim_end_matches('\n').to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("failed to {error}")),
        }
    }
    Ok(credentials)
}

/// The ids of the signer's own user, if the machine has one.
fn user() -> Option<(u32, u32)> {
    let passwd = fs_err::read_to_string("/etc/passwd").ok()?;
    let line = passwd.lines().find(|line| line.split(':').next() == Some(USER))?;
    let mut ids = line.split(':').skip(2).map(str::parse);
    match (ids.next(), ids.next()) {
        (Some(Ok(user)), Some(Ok(group))) => Some((user, group)),
        _ => None,
    }
}
