//! `kilnyard fakeroot`, which is also what this program does when it is called as `fakeroot`.

use kilnyard_fakeroot::launch::{self, Options, Request, Surroundings};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// What callers of fakeroot get for its own failures.
const FAILED: u8 = 1;

/// The arguments for a fakeroot, if this program is to be one: it is called by that name, or its first argument is
/// the command. Nothing else of this program then happens to the process, which hands on all that it was given.
pub fn arguments() -> Option<Vec<OsString>> {
    let mut words = std::env::args_os();
    let name = words.next()?;
    if Path::new(&name).file_name().is_some_and(|name| name == "fakeroot") {
        return Some(words.collect());
    }
    let is_command = words.next()? == "fakeroot";
    let words: Vec<OsString> = words.collect();
    (is_command && !asks_for_help(&words)).then_some(words)
}

/// The help of this command is that of the other commands.
fn asks_for_help(words: &[OsString]) -> bool {
    matches!(words, [word] if word == "--help" || word == "-h")
}

/// Runs a command in a session.
pub fn run(words: Vec<OsString>) -> ExitCode {
    let options = match Options::parse(words) {
        Ok(Request::Run(options)) => options,
        Ok(Request::Help) => {
            tell!("{}", launch::USAGE.trim_end());
            return ExitCode::from(FAILED);
        }
        Ok(Request::Version) => {
            let version = format!("fakeroot version {} (kilnyard)\n", env!("CARGO_PKG_VERSION"));
            return super::print(&version).unwrap_or(ExitCode::FAILURE);
        }
        Err(error) => {
            tell!("fakeroot: {error}\n{}", launch::USAGE.trim_end());
            return ExitCode::from(FAILED);
        }
    };
    #[expect(clippy::disallowed_methods, reason = "they are handed on, and need not be text")]
    let variable = |name| std::env::var_os(name);
    let around = Surroundings {
        temporary: variable("TMPDIR").map(Into::into),
        shell: variable("SHELL"),
        preload: variable("LD_PRELOAD"),
        key: variable("FAKEROOTKEY"),
        path: variable("PATH"),
    };
    match launch::run(&options, &around, |warning| tell!("fakeroot: {warning}")) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            tell!("fakeroot: failed to {error}");
            let mut cause = std::error::Error::source(&error);
            while let Some(because) = cause {
                tell!("  because: {because}");
                cause = because.source();
            }
            ExitCode::from(error.code())
        }
    }
}
