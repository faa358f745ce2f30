//! `kilnyard fakeroot`; this program also behaves like this when it is started under the name `fakeroot`.

use kilnyard_fakeroot::launch::{self, LaunchEnvironment, Options, Request};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// The exit code for failures of fakeroot itself, as its callers expect it.
const FAILED: u8 = 1;

/// The arguments for fakeroot, if this program was started under that name or its first argument is the command. The
/// rest of this program's setup is then skipped, so that the process passes on everything it inherited.
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

/// Whether the arguments ask for help, which is printed like that of the other commands.
fn asks_for_help(words: &[OsString]) -> bool {
    matches!(words, [word] if word == "--help" || word == "-h")
}

/// Runs a command in a session.
pub fn run(words: Vec<OsString>) -> ExitCode {
    let options = match Options::parse(words) {
        Ok(Request::Run(options)) => options,
        Ok(Request::Help) => {
            say!("{}", launch::USAGE.trim_end());
            return ExitCode::from(FAILED);
        }
        Ok(Request::Version) => {
            let version = format!("fakeroot version {} (kilnyard)\n", env!("CARGO_PKG_VERSION"));
            return super::print(&version).unwrap_or(ExitCode::FAILURE);
        }
        Err(error) => {
            say!("fakeroot: {error}\n{}", launch::USAGE.trim_end());
            return ExitCode::from(FAILED);
        }
    };
    #[expect(clippy::disallowed_methods, reason = "they are passed on, and need not be UTF-8")]
    let variable = |name| std::env::var_os(name);
    let around = LaunchEnvironment {
        temporary: variable("TMPDIR").map(Into::into),
        shell: variable("SHELL"),
        preload: variable("LD_PRELOAD"),
        key: variable("FAKEROOTKEY"),
        path: variable("PATH"),
    };
    match launch::run(&options, &around, |warning| say!("fakeroot: {warning}")) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            say!("fakeroot: failed to {error}");
            let mut cause = std::error::Error::source(&error);
            while let Some(because) = cause {
                say!("  because: {because}");
                cause = because.source();
            }
            ExitCode::from(error.code())
        }
    }
}
