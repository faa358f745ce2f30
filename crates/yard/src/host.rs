//! This machine's own package manager: how what is missing here is installed. No family's: packages of any family are built
//! on this machine by its own programs.

use crate::error::{Context, Error, Kind, Result};
use std::process::{Command, ExitStatus, Stdio};

/// The package manager.
pub const MANAGER: &str = "apt-get";

/// The command that installs these packages.
pub fn installing(packages: &[&str]) -> String {
    format!("{MANAGER} install {}", packages.join(" "))
}

/// The same as a remedy for a person.
pub fn remedy(packages: &[&str]) -> String {
    format!("as root: {}", installing(packages))
}

/// Installs these packages, which only root can.
pub fn install(packages: &[&str]) -> Result<()> {
    let mut arguments = vec!["install", "--yes", "--no-install-recommends", "-qq"];
    arguments.extend(packages);
    if run(&arguments)?.success() {
        return Ok(());
    }
    // The lists may be old or absent.
    run(&["update", "-qq"])?;
    match run(&arguments)?.success() {
        true => Ok(()),
        false => Err(Error::new(Kind::Machine, format!("{MANAGER} could not install what is missing"))
            .hint(installing(packages))),
    }
}

fn run(arguments: &[&str]) -> Result<ExitStatus> {
    let mut command = Command::new(MANAGER);
    command
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command.status().context(Kind::Machine, format!("run {MANAGER}"))
}
