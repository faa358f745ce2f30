//! `kilnyard worker --lease`: performs one build from its lease and a folder of artifacts, without a yard.

use super::inputs::Needed;
use crate::error::{Context, Error, Kind, Result};
use crate::yard::Yard;
use crate::{environment_of_process, signals, worker};
use kilnyard_artifacts::{Artifacts, Folder, Storage, copy};
use kilnyard_mirror::FileStore;
use kilnyard_model::artifact::{Artifact, Checked};
use kilnyard_model::order::{Stage, TestOrder};
use kilnyard_model::sha256::Sha256Hex;
use kilnyard_process::weight::Weights;
use kilnyard_protocol::{Answer, BuildResult, Built, Lease, Progress, decode, encode};
use kilnyard_worker::{Link, Share, Unprovided, Worker};
use kilnyard_yard::remedy::Remedy;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

/// Performs the lease in this file, with the artifacts in a folder.
pub fn run(lease: &Path, artifacts: &Path, folder: &Path) -> Result<ExitCode> {
    signals::install();
    let failed = format!("read the lease {}", lease.display());
    let bytes = fs_err::read(lease).context(Kind::Usage, &failed)?;
    let lease: Lease = decode(&bytes).context(Kind::Usage, &failed)?;
    let artifacts = Folder::open(artifacts).context(Kind::Usage, "open the folder of artifacts")?;
    let folder = std::path::absolute(folder).context(Kind::Usage, "find the worker's folder")?;
    Yard::make_folders(&folder)?;
    let environment = environment_of_process();
    let failed = format!("prepare {}", folder.display());
    let distfiles = super::files(&folder, &environment)?;
    let folders = fetched_folders(&folder, &lease)?;
    let settings = worker::settings_without_yard(&folder, folders, &environment);
    let worker = Worker::new(settings, distfiles.clone());
    for left in worker.sweep().context(Kind::Machine, &failed)? {
        say!("note: {left}");
    }
    if lease.order.terms.has_network {
        say!("note: this build has network access: its lease grants it");
    }
    let needed = Needed::by(&lease.order.root, &[]);
    let fetched = needed.fetch(worker.trees(), &distfiles, &artifacts, signals::cancel());
    fetched.map_err(|failed| failed.error)?;
    if let Some(fetch) = lease.order.fetch.as_ref().filter(|fetch| !worker.has_fetched(fetch)) {
        let fetched = worker.fetch(&lease.order, fetch, "fetch", signals::cancel());
        if let Some(failure) = fetched.failure {
            let mut error = Error::new(Kind::Packages, "failed to fetch the distfiles");
            error.causes.push(failure.message);
            return Err(error);
        }
    }
    let reporter = Reporter { logs: Mutex::default() };
    let mut weights = Weights::find_among("worker", &[]);
    let share = Share { membership: weights.begin(lease.build), jobserver: None };
    let result = worker.perform(&lease, &share, signals::cancel(), &reporter);
    // If this fails, layers are made again.
    let _ = worker.keep_layers();
    let logs = reporter.logs.into_inner().unwrap_or_else(PoisonError::into_inner);
    keep(&folder, &distfiles, &artifacts, &lease, &result, &logs)?;
    match &result.outcome {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(failure) => {
            let mut error =
                Error::new(Kind::Packages, format!("{} failed in {}", lease.order.package, failure.stage));
            error.causes.push(failure.message.clone());
            error.causes.extend(failure.lines.iter().cloned());
            Err(error)
        }
    }
}

/// The worker's own folders for fetched files, replacing those that the order names without content.
fn fetched_folders(folder: &Path, lease: &Lease) -> Result<BTreeMap<String, PathBuf>> {
    let order = &lease.order;
    let lacking = order.root.folders.iter().filter(|shown| shown.content.is_none());
    let mut folders = BTreeMap::new();
    for shown in lacking {
        if order.fetch.as_ref().is_none_or(|fetch| fetch.folder.name != shown.name) {
            return Err(Error::usage(format!(
                "the lease does not specify the content of the folder `{}`",
                shown.name
            ))
            .hint(Remedy::command("lease PACKAGE --to FOLDER").then(", which writes one that does")));
        }
        let path = folder.join("distfiles/fetched");
        fs_err::create_dir_all(&path).context(Kind::Machine, "create a folder for fetched files")?;
        folders.insert(shown.name.clone(), path);
    }
    Ok(folders)
}

/// Stores outputs, logs and the result as artifacts, and prints their digests.
fn keep(
    folder: &Path,
    distfiles: &FileStore,
    to: &Folder,
    lease: &Lease,
    result: &BuildResult,
    logs: &[(Stage, String)],
) -> Result<()> {
    let failed = "store the outputs of the build";
    for (stage, log) in logs {
        // The log is compressed after it is closed.
        let path = folder.join(format!("{log}.zst"));
        let mut file = fs_err::File::open(&path).context(Kind::Machine, failed)?;
        let (sha256, _) = to.insert(&mut file, Storage::Plain).context(Kind::Machine, failed)?;
        crate::commands::print(&format!("log {stage} {sha256}\n"))?;
    }
    for output in result.outcome.iter().flatten() {
        let sha256 = output.sha256.parse().or_internal(failed)?;
        let artifact =
            Artifact { sha256, size_bytes: output.size_bytes, media: kilnyard_model::artifact::Media::Bytes };
        copy(&artifact, distfiles.artifacts(), to, Storage::Plain).context(Kind::Machine, failed)?;
        crate::commands::print(&format!("output {} {} {}\n", output.file, output.sha256, output.content))?;
    }
    let path = to.folder().join(format!("result-{}.json", lease.attempt));
    fs_err::write(&path, encode(result).or_internal(failed)?).context(Kind::Machine, failed)?;
    crate::commands::print(&format!("result {}\n", path.display())).map(drop)
}

/// Prints the stages, and accepts all outputs, since none are published.
struct Reporter {
    logs: Mutex<Vec<(Stage, String)>>,
}

impl Link for Reporter {
    fn report(&self, progress: Progress) {
        match progress {
            Progress::StageBegan(stage) => say!("{stage}"),
            Progress::StageEnded(result) => {
                if let Some(log) = result.log {
                    self.logs.lock().unwrap_or_else(PoisonError::into_inner).push((result.stage, log));
                }
            }
            Progress::Sample { .. } | Progress::Wants(_) => {}
        }
    }

    fn built(&self, built: &Built, _: &Path) -> std::result::Result<Answer, String> {
        Ok(Answer::keep(built.outputs.clone()))
    }

    fn provide_test(&self, _: &TestOrder) -> std::result::Result<(), Unprovided> {
        Ok(())
    }

    fn check(&self, _: &Sha256Hex) -> std::result::Result<Checked, String> {
        Err("a lease from a file has no store of artifacts".to_owned())
    }
}
