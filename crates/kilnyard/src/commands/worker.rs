//! `kilnyard worker`: performs builds without a yard, those of a farm or a single lease.

mod join;
mod lease;
mod remote;
mod shells;

use crate::cli;
use crate::environment::Environment;
use crate::error::{Context, Error, Kind, Result};
use crate::{lease as export, mirror};
use kilnyard_artifacts::{Artifacts, Storage, copy};
use kilnyard_mirror::{FileStore, Limits, Wanted};
use kilnyard_model::artifact::Artifact;
use kilnyard_model::order::{FolderContent, Input, RootOrder};
use kilnyard_worker::Worker;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// Everything that orders name by hash: layers and inputs.
struct Needed {
    trees: Vec<Artifact>,
    files: Vec<Artifact>,
    inputs: Vec<Input>,
}

impl Needed {
    /// What a root needs, and further inputs.
    fn by(root: &RootOrder, inputs: &[Input]) -> Needed {
        let mut needed = Needed {
            trees: root.layers.clone(),
            files: Vec::new(),
            inputs: root.inputs.iter().chain(inputs).cloned().collect(),
        };
        for content in root.folders.iter().filter_map(|folder| folder.content.as_ref()) {
            match content {
                FolderContent::Tree(tree) => needed.trees.push(tree.clone()),
                FolderContent::Files(listed) => {
                    needed.files.extend(listed.iter().map(|file| file.artifact.clone()));
                }
            }
        }
        needed
    }

    /// Copies it to the worker's folder, verified by hash. What the store does not have is fetched from its addresses.
    fn fetch(
        &self,
        worker: &Worker,
        distfiles: &FileStore,
        from: &dyn Artifacts,
        cancel: &AtomicBool,
    ) -> Result<()> {
        let failed = "get the inputs of the build";
        worker.trees().fetch(&self.trees, from).context(Kind::Machine, failed)?;
        for file in &self.files {
            copy(file, from, distfiles.artifacts(), Storage::Plain).context(Kind::Machine, failed)?;
        }
        for input in &self.inputs {
            if cancel.load(Ordering::Relaxed) {
                return Err(Error::new(Kind::Interrupted, "it was cancelled"));
            }
            let artifact = export::of_input(input)?;
            let failed = format!("get {}", input.name);
            match from.contains(&artifact.sha256).context(Kind::Machine, &failed)? || input.urls.is_empty() {
                true => copy(&artifact, from, distfiles.artifacts(), Storage::Plain)
                    .context(Kind::Machine, failed)?,
                false => {
                    let Artifact { sha256, size_bytes, .. } = artifact;
                    let wanted =
                        Wanted { urls: input.urls.clone(), sha256, size_bytes, name: input.name.clone() };
                    distfiles.ensure(&wanted, &|_| {}, cancel).context(Kind::Machine, failed)?;
                }
            }
        }
        Ok(())
    }
}
