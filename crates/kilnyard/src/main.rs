//! Kilnyard: rebuilds whole trees of packages.
//!
//! This program is the top floor: it reads the command line, the configuration and the environment,
//! prints messages, and drives the crates below, which do none of that.

#[macro_use]
mod talk;

mod cli;
mod commands;
mod input;
mod run;
mod servers;
mod signals;

// Modules of the yard, available to commands under the same names.
use kilnyard_yard::{
    causes, config, due, environment, error, estimates, expectations, family, files, init, layers, lease,
    mirror, plan, report, shape, trees, words, worker, yard,
};
use std::process::ExitCode;

fn main() -> ExitCode {
    // In a virtual machine, it is process 1.
    kilnyard_vm::become_guest_if_started_as_process_1();
    // To enter a build's root, this program starts itself again.
    kilnyard_root::sandbox::become_sandbox_if_asked();
    kilnyard_vm::become_console_if_asked();
    kilnyard_block::become_server_if_asked();
    kilnyard_process::become_inspector_if_asked();
    // So do keys, in a sandbox of their own.
    kilnyard_yard::signing::process::become_signer_if_asked();
    if let Some(code) = kilnyard_bench::fakeroot::become_client_if_asked() {
        return code;
    }
    if let Some(arguments) = commands::fakeroot::arguments() {
        return commands::fakeroot::run(arguments);
    }
    // Children run other people's code: package managers, servers, builds. They must not inherit the caller's
    // descriptors.
    if let Err(error) = kilnyard_root::sandbox::close_descriptors() {
        return failed(error::Error::new(
            error::Kind::Machine,
            format!("failed to close inherited descriptors: {error}"),
        ));
    }
    // The users of roots must be able to read the yard's files, whatever the shell's umask; private files get an
    // explicit mode.
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
    say!("{error}");
    ExitCode::from(error.kind as u8)
}

/// The environment variables that are valid UTF-8.
#[expect(clippy::disallowed_methods, reason = "the one door to the environment")]
fn environment_of_process() -> environment::Environment {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    environment::Environment::new(std::env::vars_os().filter_map(text))
}
