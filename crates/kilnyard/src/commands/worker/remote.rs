//! The files of a farm's builds: from the door before a build, and to it afterwards.

use super::inputs::{Cause, Failed, Needed, repeated};
use crate::{signals, words};
use kilnyard_farm::client::Client;
use kilnyard_farm::proof::WorkerKey;
use kilnyard_farm::streams::Streams;
use kilnyard_mirror::{FileStore, Sha256Hex};
use kilnyard_model::artifact::Checked;
use kilnyard_model::attempt::Attempt;
use kilnyard_model::order::{Output, Stage, TestOrder};
use kilnyard_model::provenance::{Account, Signed};
use kilnyard_model::result::{Failure, FailureKind};
use kilnyard_protocol::{Built, Hello, Lease};
use kilnyard_worker::{Supply, Unprovided, Worker};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Pauses between attempts to reach the door: five minutes altogether, for a door that is started again. Outputs are
/// kept for longer.
const PAUSES_SECONDS: [u64; 8] = [1, 2, 5, 12, 30, 60, 60, 120];
/// The pause after these, for outputs.
const LAST_PAUSE_SECONDS: u64 = 60;
/// The pauses between attempts to check an artifact: the yard's machine can read it too.
const CHECK_PAUSES_SECONDS: [u64; 2] = [1, 5];
/// How often it is checked whether a pause ends early.
const STEP: Duration = Duration::from_millis(200);

/// See the module documentation.
pub struct Remote<'a> {
    pub client: &'a Client,
    pub worker: &'a Worker,
    pub distfiles: &'a FileStore,
    /// The worker's folder, to which the names of logs are relative.
    pub folder: &'a Path,
    /// The worker's name.
    pub name: &'a str,
    /// Signs results.
    pub key: &'a WorkerKey,
    /// Sends logs while they are being written.
    pub streams: &'a Streams,
    /// What the folder may keep, in bytes.
    pub keep_bytes: u64,
}

impl Remote<'_> {
    /// Gets what is needed, and says why that takes long or fails. `of` says for whom.
    fn fetch(&self, of: &str, needed: &Needed, cancel: &AtomicBool) -> Result<(), Failed> {
        self.client.announce(&needed.missing(self.worker.trees(), self.distfiles));
        let fetch = || {
            let fetched = needed.fetch(self.worker.trees(), self.distfiles, self.client, cancel);
            fetched.inspect_err(|_| self.client.doubt_mirror())
        };
        let fetched = self.repeated(of, cancel, PAUSES_SECONDS.iter(), fetch).inspect_err(|failed| {
            if failed.cause != Cause::Cancelled {
                say!("{of}: {}", failed.error.one_line());
            }
        });
        fetched.inspect(|()| needed.touch(self.worker))
    }

    /// Repeats a request while that may help, with these pauses, and says why.
    fn repeated<'a>(
        &self,
        of: &str,
        cancel: &AtomicBool,
        pauses: impl Iterator<Item = &'a u64>,
        request: impl FnMut() -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        let say = |reason: &str| say!("{of}: {reason}; the worker tries again");
        repeated(cancel, pauses, |seconds| self.pause(seconds, cancel), say, request)
    }

    /// Waits, but not when another server has taken over the run.
    fn pause(&self, seconds: u64, cancel: &AtomicBool) {
        let (run, steps) = (self.client.run(), Duration::from_secs(seconds).as_millis() / STEP.as_millis());
        for _ in 0..steps {
            let now = self.client.run();
            if cancel.load(Ordering::Relaxed) || (now.is_some() && now != run) {
                return;
            }
            std::thread::sleep(STEP);
        }
    }
}

fn needed_by(lease: &Lease) -> Needed {
    match &lease.to_test {
        Some(to_test) => Needed::by(&to_test.order.root, &to_test.order.inputs),
        None => Needed::by(&lease.order.root, &[]),
    }
}

fn failure(kind: FailureKind, message: String) -> Failure {
    Failure { stage: Stage::Fetch, kind, message, line_number: None, lines: Vec::new() }
}

/// Fails a build that alone needs more than the folder may keep: another worker may have more room.
fn fits(needed: &Needed, keep_bytes: u64) -> Result<(), Failure> {
    let bytes = needed.bytes();
    if bytes <= keep_bytes {
        return Ok(());
    }
    let (needed, keep) = (words::size(bytes), words::size(keep_bytes));
    let message = format!(
        "this build needs {needed} of base roots, sources and dependencies, but its worker keeps at most {keep}: \
         start that with a larger --keep"
    );
    say!("warning: {message}");
    Err(failure(FailureKind::Machine, message))
}

impl Supply for Remote<'_> {
    fn provide(&self, lease: &Lease, cancel: &AtomicBool) -> Result<(), Failure> {
        let logs = self.folder.join(format!("logs/{}/{}", lease.run, lease.order.package));
        self.streams.begin(lease.attempt, logs, format!("{}-", lease.build));
        let needed = needed_by(lease);
        fits(&needed, self.keep_bytes)?;
        self.fetch(&lease.order.package, &needed, cancel).map_err(|failed| {
            let kind = match cancel.load(Ordering::Relaxed) {
                true => FailureKind::Cancelled,
                false => failed.cause.kind(),
            };
            failure(kind, failed.error.one_line())
        })
    }

    fn prepare(&self, lease: &Lease, cancel: &AtomicBool) -> bool {
        let needed = needed_by(lease);
        // If the build begins, it says what it lacks.
        needed.bytes() <= self.keep_bytes && self.fetch(&lease.order.package, &needed, cancel).is_ok()
    }

    fn provide_test(&self, test: &TestOrder, cancel: &AtomicBool) -> Result<(), Unprovided> {
        let fetched = self.fetch("a test", &Needed::by(&test.root, &test.inputs), cancel);
        fetched.map_err(|failed| match failed.cause {
            Cause::Refused => Unprovided::Refused(failed.error.one_line()),
            _ => Unprovided::Failed(failed.error.one_line()),
        })
    }

    /// Layers first, which are the largest.
    fn warm(&self) -> Vec<String> {
        let names = |folder: &Path| -> Vec<String> {
            let entries = fs_err::read_dir(folder).into_iter().flatten().flatten();
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
        };
        let layers = names(&self.folder.join("layers")).into_iter();
        let layers = layers.map(|name| name.trim_end_matches("-alone").to_owned());
        let files = self.folder.join("distfiles");
        let files = names(&files).into_iter().flat_map(|part| names(&files.join(part)));
        let valid = layers.chain(files).filter(|name| Sha256Hex::parse(name).is_ok());
        valid.take(Hello::WARM_MAX).collect()
    }

    fn deliver(
        &self,
        attempt: Attempt,
        built: &Built,
        folder: &Path,
        cancel: &AtomicBool,
    ) -> Result<(), String> {
        let mut files = Vec::new();
        for output in &built.outputs {
            let sha256 = Sha256Hex::parse(&output.sha256).map_err(|error| error.to_string())?;
            files.push((sha256, folder.join(&output.file)));
        }
        let store = || {
            let stored = self.client.store_all(&attempt.to_string(), &files);
            stored.map_err(|error| Failed::to("store the outputs", error))
        };
        // Until the build is cancelled: without a run, another one may take it over at any time.
        let pauses = PAUSES_SECONDS.iter().chain(std::iter::repeat(&LAST_PAUSE_SECONDS));
        let of = built.outputs.first().map_or("a build", |output| &output.name);
        self.repeated(of, cancel, pauses, store).map_err(|failed| failed.error.one_line())
    }

    fn check(&self, sha256: &Sha256Hex, cancel: &AtomicBool) -> Result<Checked, String> {
        let mut checked = None;
        let mut check = || {
            checked = Some(self.client.check(sha256, cancel).map_err(|error| Failed::to("check it", error))?);
            Ok(())
        };
        self.repeated(sha256.as_str(), cancel, CHECK_PAUSES_SECONDS.iter(), &mut check)
            .map_err(|failed| failed.error.one_line())?;
        checked.ok_or_else(|| "it was not read".to_owned())
    }

    fn sign(&self, lease: &Lease, outputs: &[Output]) -> Option<Signed> {
        let statement = Account::of(&lease.order, lease.attempt, self.name).statement(outputs);
        // The coordinator derives the statement itself.
        Some(Signed { statement: String::new(), ..self.key.sign(&statement) })
    }

    fn end(&self, lease: &Lease, logs: &[String]) {
        self.streams.end(lease.attempt);
        let attempt = lease.attempt.to_string();
        for log in logs {
            let Some(name) = name_of_log(log, lease.build) else { continue };
            let path = self.folder.join(format!("{log}.zst"));
            let store = || {
                let stored = self.client.store_log(&attempt, name, &path);
                stored.map_err(|error| Failed::to("send it", error))
            };
            if let Err(failed) = self.repeated(log, signals::cancel(), PAUSES_SECONDS.iter(), store) {
                say!("warning: the log {log} stays here only: {}", failed.error.one_line());
            }
        }
    }
}

/// The part of a log's path that says which one of a build's logs it is: `BUILD-STAGE.log`.
fn name_of_log(log: &str, build: u64) -> Option<&str> {
    let file = log.rsplit('/').next()?.strip_suffix(".log")?;
    file.strip_prefix(&format!("{build}-"))
}
