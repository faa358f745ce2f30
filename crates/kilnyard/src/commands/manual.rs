//! `kilnyard completions` and `kilnyard man`.

use crate::cli;
use crate::error::{Context, Kind, Result};
use std::path::Path;
use std::process::ExitCode;

pub fn completions(shell: clap_complete::Shell) -> Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut cli::command(), "kilnyard", &mut text);
    super::print(&String::from_utf8_lossy(&text))
}

/// Writes `kilnyard.1`, `kilnyard-build.1` and so on.
pub fn pages(folder: &Path) -> Result<ExitCode> {
    fs_err::create_dir_all(folder).context(Kind::Machine, "create the folder")?;
    let failed = "write the manual";
    let command = cli::command();
    clap_mangen::generate_to(command, folder).context(Kind::Machine, failed)?;
    say!("wrote the manual pages to {}", folder.display());
    Ok(ExitCode::SUCCESS)
}
