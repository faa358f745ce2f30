//! The yard's signer: a process of its own with the keys, which this process never reads.
//!
//! It is this program, started again, in a sandbox that has the folder of the signer and nothing else. It lives as long as
//! the publication that needs it. If the yard's `[signer]` names one on another machine, that machine starts it, and the
//! conversation passes through the door of `kilnyard serve`, to which that machine dials out.

pub mod delayed;
pub mod process;

use crate::config::signer::SignerTable;
use crate::error::{Context, Error, Kind, Result};
use crate::remedy::Remedy;
use crate::words::{self, now_seconds};
use crate::yard::Yard;
use kilnyard_farm::relay::{self, First};
use kilnyard_farm::shell::{self, FromShell, PART_BYTES_MAX, ToShell};
use kilnyard_publish::{Signatures, Signer, SignerError, ToSign};
use kilnyard_signer::client::{Builds, Client, ClientError, Sources};
use kilnyard_signer::keys::with_cause;
use kilnyard_signer::memory::Name;
use kilnyard_signer::message::{BuildTexts, KeyState, Refusal, VERSION};
use kilnyard_signer::policy::POLICY;
use serde::{Deserialize, Serialize};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The folder of the signer, below the yard's.
pub const SIGNER: &str = "state/signer";
/// Where earlier versions kept the key, below the yard's folder.
pub const OLD_KEY: &str = "state/key.asc";
/// The name of the yard's repository in the policy of its own signer.
pub const OWN_REPOSITORY: &str = "yard";

/// A key that ends within this time is warned of, in seconds.
pub const ENDS_SOON: i64 = 30 * 86_400;
/// The folder of the farm, below the yard's.
const FARM: &str = "state/farm";
/// How long a signer on another machine may take to answer: a person may have to enter a PIN there.
const ANSWER_MAX: Duration = Duration::from_secs(300);

/// A conversation with the yard's signer.
#[derive(Debug)]
pub struct Signing {
    client: Mutex<Client>,
    /// Absent if the signer is on another machine.
    child: Option<Mutex<Child>>,
    public: String,
    keys: Vec<KeyState>,
    /// The certificates of the X.509 key that signs packages.
    packages: Option<String>,
}

/// What an attempt to reach a signer leads to.
#[derive(Debug)]
pub enum Reached {
    /// It answers.
    Here(Signing),
    /// It is on another machine and away, for this reason.
    Away(String),
}

impl Signing {
    /// Reaches the signer of a yard.
    ///
    /// # Errors
    /// There is none, it cannot start, or a key of the repository cannot be used.
    pub fn reach(yard: &Yard) -> Result<Reached> {
        match &yard.config.signer {
            Some(signer) => remote(yard, signer),
            None => Signing::own(yard).map(Reached::Here),
        }
    }

    /// Reaches the signer of a yard, which must not be away.
    ///
    /// # Errors
    /// As [`Signing::reach`], or it is away.
    pub fn open(yard: &Yard) -> Result<Signing> {
        match Signing::reach(yard)? {
            Reached::Here(signing) => Ok(signing),
            Reached::Away(reason) => {
                let name = yard.config.signer.as_ref().map_or("", |signer| signer.name.as_str());
                let mut error = Error::new(Kind::Machine, format!("the signer {name} is away"));
                error.causes.push(reason);
                Err(error.hint(Remedy::command("workers").then(", which shows whether it is connected")))
            }
        }
    }

    /// Starts the yard's own signer.
    fn own(yard: &Yard) -> Result<Signing> {
        let folder = yard.home.join(SIGNER);
        if !folder.join(POLICY).exists() {
            return Err(missing(yard));
        }
        Signing::open_folder(&folder, OWN_REPOSITORY)
    }

    /// Starts the signer in a folder, for a repository of its policy.
    ///
    /// # Errors
    /// It cannot start, or a key of the repository cannot be used.
    pub fn open_folder(folder: &Path, repository: &str) -> Result<Signing> {
        let (mut client, child) = converse(folder, repository)?;
        match client.keys() {
            Ok((public, keys, packages)) => Ok(Signing {
                client: Mutex::new(client),
                child: Some(Mutex::new(child)),
                public,
                keys,
                packages,
            }),
            Err(error) => Err(not_started(child, &error)),
        }
    }

    /// The keys of a repository of the signer in a folder, whether they can sign or not.
    ///
    /// # Errors
    /// The signer cannot start.
    pub fn states(folder: &Path, repository: &str) -> Result<Vec<KeyState>> {
        let (mut client, mut child) = converse(folder, repository)?;
        match client.states() {
            Ok(keys) => {
                let _ = child.kill();
                let _ = child.wait();
                Ok(keys)
            }
            Err(error) => Err(not_started(child, &error)),
        }
    }

    /// The public keys, which readers of the repository need.
    pub fn public_armored(&self) -> &str {
        &self.public
    }

    /// What verifies the signatures of packages that are signed one by one: public keys, or the certificates of an X.509 key.
    pub fn public_of_packages(&self) -> &str {
        self.packages.as_deref().unwrap_or(&self.public)
    }

    /// The fingerprint of the first key, in hexadecimal.
    pub fn fingerprint(&self) -> String {
        self.keys.first().map(|key| key.fingerprint.clone()).unwrap_or_default()
    }

    /// What people must do about keys soon, one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let now = now_seconds() as i64;
        self.keys.iter().filter_map(|key| warning(key, now)).collect()
    }

    /// The keys of the repository.
    pub fn keys(&self) -> &[KeyState] {
        &self.keys
    }

    /// Signs a `.dsc` or `.changes` file: its cleartext-signed form.
    ///
    /// # Errors
    /// The signer refuses, or cannot sign.
    pub fn sign_document(&self, text: &str) -> std::result::Result<String, ClientError> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).sign_document(text)
    }

    /// Signs packages of a pkgsrc tree: see [`Client::sign_packages`].
    ///
    /// # Errors
    /// The signer refuses all of them, or cannot sign.
    pub fn sign_packages(
        &self,
        builds: Vec<BuildTexts>,
    ) -> std::result::Result<(Vec<Option<String>>, Vec<Refusal>), ClientError> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).sign_packages(builds)
    }

    /// Signs packages of RPM: see [`Client::sign_headers`].
    ///
    /// # Errors
    /// The signer refuses all of them, or cannot sign.
    pub fn sign_headers(
        &self,
        builds: Vec<BuildTexts>,
    ) -> std::result::Result<(Vec<Option<String>>, Vec<Refusal>), ClientError> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).sign_headers(builds)
    }

    /// Shows the signer what vouches for the sources of packages: see [`Client::show_sources`].
    ///
    /// # Errors
    /// The signer is away, or something cannot be read.
    pub fn show_sources(
        &self,
        packages: &[Name],
        sources: &impl Sources,
    ) -> std::result::Result<(), SignerError> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).show_sources(packages, sources)
    }

    /// Signs generations whose builds are found like this.
    pub fn with<'a>(&'a self, builds: &'a dyn Builds) -> WithBuilds<'a> {
        WithBuilds { signing: self, builds }
    }
}

impl Drop for Signing {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let child = child.get_mut().unwrap_or_else(PoisonError::into_inner);
            // Everything that it answered is on disk.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts the signer in a folder, and begins a conversation about a repository of its policy.
fn converse(folder: &Path, repository: &str) -> Result<(Client, Child)> {
    let mut child = spawn(folder).context(Kind::Machine, "start the signer")?;
    let (Some(from), Some(to)) = (child.stdout.take(), child.stdin.take()) else {
        return Err(Error::new(Kind::Internal, "failed to start the signer: it has no streams"));
    };
    Ok((Client::new(BufReader::new(from), BufWriter::new(to), repository), child))
}

/// What people must do about a key soon.
fn warning(key: &KeyState, now: i64) -> Option<String> {
    let remedy = match key.kind.starts_with("x509") {
        true => {
            format!("have its certificate renewed, then {}", words::command("keys import FILE --x509 FILE"))
        }
        false => words::command("keys make NAME"),
    };
    let when = ends(key.expires?, now)?;
    Some(format!("the key {} of the repository {when}: {remedy}, and rotate", key.name))
}

/// When a key ends that ends soon, as the end of a sentence; none if it does not.
pub fn ends(expires: i64, now: i64) -> Option<String> {
    let left = expires - now;
    if left <= 0 {
        return Some("has expired".to_owned());
    }
    let days = (left as u64).div_ceil(86_400);
    (left < ENDS_SOON).then(|| format!("expires within {}", words::count(days, "day")))
}

/// A signer that knows where new packages are from.
#[derive(Clone, Copy)]
pub struct WithBuilds<'a> {
    signing: &'a Signing,
    builds: &'a dyn Builds,
}

impl Signer for WithBuilds<'_> {
    fn sign(&self, to_sign: &ToSign<'_>) -> std::result::Result<Signatures, SignerError> {
        let mut client = self.signing.client.lock().unwrap_or_else(PoisonError::into_inner);
        client.sign(to_sign, self.builds)
    }
    fn public_armored(&self) -> std::result::Result<String, SignerError> {
        Ok(self.signing.public.clone())
    }
}

fn missing(yard: &Yard) -> Error {
    if yard.home.join(OLD_KEY).exists() {
        let message = format!("the yard's key is still in {OLD_KEY}, from an earlier version of Kilnyard");
        return Error::usage(message).hint(
            Remedy::command("keys import")
                .then(", which moves it to the signer; the repository stays the same"),
        );
    }
    let message = format!("the yard has no signer: {SIGNER}/{POLICY} is missing");
    Error::new(Kind::Machine, message).hint(
        Remedy::from(format!("restoring a copy of {SIGNER}; without one: ").as_str())
            .then_command("keys import FILE")
            .then(" with a copy of the key"),
    )
}

fn not_started(mut child: Child, error: &ClientError) -> Error {
    let mut said = String::new();
    if matches!(error, ClientError::Away(_))
        && let Some(mut errors) = child.stderr.take()
    {
        // It has ended, or is ended now.
        let _ = child.kill();
        let _ = errors.read_to_string(&mut said);
    }
    let _ = child.kill();
    let _ = child.wait();
    let said = said.trim();
    let cause = if said.is_empty() { with_cause(error) } else { said.to_owned() };
    let mut error = Error::new(Kind::Machine, "failed to start the signer");
    error.causes.push(cause);
    error.hint(Remedy::command("keys list"))
}

/// What the yard's end asks of another machine: a conversation with its signer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToSigner {
    /// The version of the messages.
    pub signer: u32,
}

/// Begins a conversation with a signer on another machine.
fn remote(yard: &Yard, signer: &SignerTable) -> Result<Reached> {
    let begin = || -> io::Result<Client> {
        let through =
            |error| io::Error::other(format!("kilnyard serve, through which it is reached: {error}"));
        let stream = relay::connect(&yard.home.join(FARM)).map_err(through)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        let order = serde_json::to_value(ToSigner { signer: VERSION })?;
        relay::write(&mut &stream, &First::Shell { worker: signer.name.clone(), order }, b"")?;
        let from = Output { stream: stream.try_clone()?, part: io::Cursor::new(Vec::new()) };
        Ok(Client::new(from, Input(stream), &signer.repository))
    };
    let begun = begin().map_err(ClientError::Away).and_then(|mut client| Ok((client.keys()?, client)));
    match begun {
        Ok(((public, keys, packages), client)) => {
            let client = Mutex::new(client);
            Ok(Reached::Here(Signing { client, child: None, public, keys, packages }))
        }
        Err(ClientError::Away(error)) => Ok(Reached::Away(error.to_string())),
        Err(error) => Err(Error::new(Kind::Machine, format!("the signer {}: {error}", signer.name))),
    }
}

/// What a signer on another machine prints, as its frames arrive.
struct Output {
    stream: UnixStream,
    part: io::Cursor<Vec<u8>>,
}

impl Read for Output {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.part.read(into)?;
            if count > 0 || into.is_empty() {
                return Ok(count);
            }
            match shell::read::<FromShell>(&mut self.stream)? {
                Some((FromShell::Output, part)) => self.part = io::Cursor::new(part),
                // What it says when it cannot start.
                Some((FromShell::Errors, part)) => {
                    let said = String::from_utf8_lossy(&part).trim().to_owned();
                    return Err(io::Error::other(said));
                }
                Some((FromShell::Failed { reason }, _)) => return Err(io::Error::other(reason)),
                Some((FromShell::Exited { .. }, _)) | None => return Ok(0),
            }
        }
    }
}

/// What is sent to a signer on another machine, as frames.
struct Input(UnixStream);

impl Write for Input {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let part = &bytes[..bytes.len().min(PART_BYTES_MAX)];
        relay::write(&mut self.0, &ToShell::Input, part)?;
        Ok(part.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn spawn(folder: &Path) -> io::Result<Child> {
    process::command(folder)?.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}
