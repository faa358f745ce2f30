//! This machine's own package manager, which installs missing programs. It belongs to no package family:
//! packages of every family are built with this machine's programs.

use crate::error::{Context, Error, Kind, Result};
use std::process::{Command, ExitStatus, Stdio};

/// The package manager's command.
pub const MANAGER: &str = "apt-get";

/// Returns the command line that installs these packages.
pub fn installing(packages: &[&str]) -> String {
    format!("{MANAGER} install {}", packages.join(" "))
}

/// Returns the same command line as advice: it needs root.
pub fn remedy(packages: &[&str]) -> String {
    format!("as root: {}", installing(packages))
}

/// Installs these packages. Requires root.
pub fn install(packages: &[&str]) -> Result<()> {
    let mut arguments = vec!["install", "--yes", "--no-install-recommends", "-qq"];
    arguments.extend(packages);
    if run(&arguments)?.success() {
        return Ok(());
    }
    // The package lists may be old or absent.
    run(&["update", "-qq"])?;
    match run(&arguments)?.success() {
        true => Ok(()),
        false => Err(Error::new(Kind::Machine, format!("{MANAGER} could not install the missing packages"))
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
