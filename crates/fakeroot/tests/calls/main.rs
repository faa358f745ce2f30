//! The suite of calls: every wrapped call, in real processes, run in our fakeroot and in the installed one.
//!
//! A case is a function that makes calls and checks their results. The harness starts this program again in a
//! session and in an empty folder of its own, as an ordinary user even if root runs the tests, and runs the case
//! there. If the installed fakeroot passes a case too, that shows the case to be correct; a case that it fails
//! shows a defect of it, which this one must not have.

mod answered;
mod cases;
mod client;
mod mapped;
mod packages;
mod roots;
mod sessions;
mod started;
mod system;

use kilnyard_fakeroot::launch::{self, LaunchEnvironment, Options, Request};
use libtest_mimic::{Arguments, Failed, Trial};
use std::ffi::OsString;
use std::process::ExitCode;

/// Whether the installed fakeroot is expected to pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// It passes, which shows that the case is correct.
    Passes,
    /// It fails: a defect, or a call that it does not wrap.
    Fails,
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next().as_ref().and_then(|word| word.to_str()) {
        Some("as-fakeroot") => be_fakeroot(arguments),
        Some("as-client") => be_client(arguments.next()),
        Some("as-worker") => roots::be_worker(&arguments.next().unwrap_or_default().to_string_lossy()),
        _ => {
            let trials = trials();
            libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
        }
    }
}

/// The command `kilnyard fakeroot`, without the rest of the program.
fn be_fakeroot(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let Ok(Request::Run(options)) = Options::parse(arguments) else { return ExitCode::from(99) };
    let variable = |name| std::env::var_os(name);
    let around = LaunchEnvironment {
        temporary: variable("TMPDIR").map(Into::into),
        shell: variable("SHELL"),
        preload: variable("LD_PRELOAD"),
        key: variable("FAKEROOTKEY"),
        path: variable("PATH"),
    };
    match launch::run(&options, &around, |warning| eprintln!("fakeroot: {warning}")) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let cause = std::error::Error::source(&error).map_or(String::new(), |cause| format!(": {cause}"));
            eprintln!("fakeroot: failed to {error}{cause}");
            ExitCode::from(error.code())
        }
    }
}

fn be_client(name: Option<OsString>) -> ExitCode {
    let name = name.unwrap_or_default();
    let case = cases::ALL.iter().find(|(case, ..)| name == *case).unwrap();
    case.2();
    ExitCode::SUCCESS
}

fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (name, installed, _) in cases::ALL {
        trials.push(Trial::test(format!("ours::{name}"), || {
            // This program makes its own system calls, so the launcher would answer it.
            let program = sessions::words(&system::ours(), &["--static=off"]);
            run(&program, &[], name)
        }));
        if !cases::ONLY_WITH_THE_LIBRARY.contains(name) {
            trials.push(Trial::test(format!("answered::{name}"), || run_behind_a_filter(name)));
        }
        if *installed == Installed::Passes {
            trials.push(Trial::test(format!("installed::{name}"), || match system::installed() {
                Some(program) => run(&program, &[], name),
                None => Ok(()),
            }));
        }
    }
    for (name, check) in sessions::ALL {
        trials.push(Trial::test(format!("sessions::{name}"), move || {
            check();
            Ok(())
        }));
    }
    trials
}

/// Runs a case in a process that a static program has started, so that the launcher answers its calls.
fn run_behind_a_filter(name: &str) -> Result<(), Failed> {
    let folder = system::Folder::new();
    run(&system::ours(), &[answered::starter(&folder).into()], name)
}

/// Runs a case in a session in an empty folder, through the program `by` if there is one.
fn run(fakeroot: &[OsString], by: &[OsString], name: &str) -> Result<(), Failed> {
    let folder = system::Folder::new();
    let mut words = fakeroot.to_vec();
    words.push("--".into());
    words.extend(by.iter().cloned());
    words.extend([system::program().into(), "as-client".into(), name.into()]);
    let output = folder.command(&words).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}\n{}", output.status, String::from_utf8_lossy(&output.stderr)).into())
}
