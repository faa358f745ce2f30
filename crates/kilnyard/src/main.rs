//! Kilnyard: rebuilds whole trees of packages.
//!
//! This program is the top floor: it reads the command line, the configuration and the environment,
//! talks to people, and drives the crates below, which do none of that.

#[macro_use]
mod talk;

mod cli;
mod commands;
mod input;
mod run;
mod signals;

// The rooms of a yard are the commands' too, by the same names.
use kilnyard_yard::{
    causes, config, due, environment, error, estimates, family, files, init, layers, lease, mirror, plan,
    report, shape, words, worker, yard,
};
use std::process::ExitCode;

fn main() -> ExitCode {
    // A build's root is entered by this program itself, started again.
    kilnyard_root::sandbox::become_sandbox_if_asked();
    kilnyard_process::become_onlooker_if_asked();
    if let Some(code) = kilnyard_bench::fakeroot::become_client_if_asked() {
        return code;
    }
    if let Some(arguments) = commands::fakeroot::arguments() {
        return commands::fakeroot::run(arguments);
    }
    // What this program starts is other people's code: package managers, servers, builds. It must not get the caller's files.
    if let Err(error) = kilnyard_root::sandbox::close_descriptors() {
        return failed(error::Error::new(
            error::Kind::Machine,
            format!("failed to close inherited descriptors: {error}"),
        ));
    }
    // What the users of roots read must be readable by others, whatever the shell's mask says; what must not
    // be, gets its mode by name.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    if let Some(ended) = commands::answer_at_once() {
        return ended.unwrap_or_else(failed);
    }
    let given = cli::Given::read();
    let yard = given.yard_to_name();
    if let Some(yard) = yard {
        words::name_yard(yard);
    }
    commands::run(given).unwrap_or_else(failed)
}

fn failed(error: error::Error) -> ExitCode {
    tell!("{error}");
    ExitCode::from(error.kind as u8)
}

/// The variables of the environment that are text.
#[expect(clippy::disallowed_methods, reason = "the one door to the environment")]
fn environment_of_process() -> environment::Environment {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    environment::Environment::new(std::env::vars_os().filter_map(text))
}
