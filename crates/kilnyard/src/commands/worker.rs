//! `kilnyard worker`: performs builds without a yard, those of a farm or a single lease.

mod inputs;
pub mod join;
mod lease;
mod member;
mod others;
mod remote;
pub mod shells;
mod tidy;

use crate::cli;
use crate::environment::Environment;
use crate::error::{Context, Kind, Result};
use crate::mirror;
use kilnyard_mirror::{FileStore, Limits};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

pub fn run(options: &cli::Worker) -> Result<ExitCode> {
    match (&options.lease, &options.artifacts) {
        (Some(lease), Some(artifacts)) => lease::run(lease, artifacts, &options.folder),
        _ => join::run(options),
    }
}

/// The files of a worker in this folder.
fn files(folder: &Path, environment: &Environment) -> Result<Arc<FileStore>> {
    let client = mirror::client_of(&[], Limits::default(), environment);
    let files = FileStore::open_with(&folder.join("distfiles"), client);
    files.map(Arc::new).context(Kind::Machine, format!("prepare {}", folder.display()))
}
