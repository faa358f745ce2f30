//! One build from beginning to end.

use crate::memory::{Promise, used_bytes};
use crate::{RootFolder, Share, Worker, tools};
use kilnyard_ecosystem::telling_lines;
use kilnyard_mirror::{Sha256Hex, Wanted};
use kilnyard_model::graph::PackageId;
use kilnyard_model::order::{BuildOrder, Input, Output, Stage, StageOrder};
use kilnyard_model::result::{Failure, FailureKind, StageResult};
use kilnyard_model::text;
use kilnyard_process::{
    End, Log, LogLimits, Outcome, Sample, now_seconds, own_cpu_seconds, pressure, read_log,
};
use kilnyard_protocol::{BuildResult, Lease, Progress};
use kilnyard_schedule::Files;
use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A build while it is performed.
struct Performance<'a> {
    worker: &'a Worker,
    lease: &'a Lease,
    package: PackageId,
    share: &'a Share,
    cancel: &'a AtomicBool,
    tell: &'a dyn Fn(Progress),
    /// Whether the root that failed is kept already.
    is_kept: Cell<bool>,
}

impl Worker {
    /// Performs a build, with its share of the cores. `tell` is called from this thread alone.
    pub fn perform(
        &self,
        lease: &Lease,
        package: PackageId,
        share: &Share,
        cancel: &AtomicBool,
        tell: &dyn Fn(Progress),
    ) -> BuildResult {
        let performance =
            Performance { worker: self, lease, package, share, cancel, tell, is_kept: Cell::new(false) };
        let mut is_reproducible = None;
        let outcome = performance.build(&lease.order, "").and_then(|outputs| {
            if lease.checks_reproducible {
                let second = performance.build(&lease.order, "again-")?;
                is_reproducible = Some(hashes(&outputs) == hashes(&second));
            }
            Ok(outputs)
        });
        // Names of files and packages in a message come from the build.
        let outcome =
            outcome.map_err(|failure| Failure { message: text::lines(&failure.message), ..failure });
        BuildResult { build: lease.build, outcome, is_reproducible }
    }

    /// Where the file of an input is.
    pub(crate) fn file_of(&self, input: &Input) -> PathBuf {
        // A hash that is none names no file, and linking says so.
        Sha256Hex::parse(&input.sha256).map_or_else(|_| PathBuf::new(), |hash| self.distfiles.path(&hash))
    }
}

fn hashes(outputs: &[Output]) -> Vec<(&str, &str)> {
    outputs.iter().map(|output| (output.file.as_str(), output.sha256.as_str())).collect()
}

pub(crate) fn machine(stage: Stage, message: impl ToString) -> Failure {
    let message = message.to_string();
    Failure { stage, kind: FailureKind::Machine, message, line_number: None, lines: Vec::new() }
}

impl Performance<'_> {
    /// `prefix` tells the logs and the root of a second build from those of the first.
    fn build(&self, order: &BuildOrder, prefix: &str) -> Result<Vec<Output>, Failure> {
        let name = format!("{prefix}{}", self.lease.build);
        let promise = match self.lease.files {
            Files::Memory => self.worker.promise(self.lease),
            Files::Disk => None,
        };
        let (outcome, is_exhausted) = self.build_in(order, prefix, &name, promise);
        if is_exhausted { self.build_in(order, prefix, &format!("{name}-disk"), None).0 } else { outcome }
    }

    /// The outcome, and whether it failed in want of memory for its files.
    fn build_in(
        &self,
        order: &BuildOrder,
        prefix: &str,
        name: &str,
        promise: Option<Promise>,
    ) -> (Result<Vec<Output>, Failure>, bool) {
        let settings = &self.worker.settings;
        let root = self
            .worker
            .build_root(name, order, promise)
            .map(|root| match &self.share.jobserver {
                Some(path) => root.with_jobserver(path, &order.clients),
                None => root,
            })
            .and_then(|root| {
                tools::provide(&settings.yard, settings.jobserver, &order.clients)?;
                root.provide(&order.inputs, &order.texts, &|input| self.worker.file_of(input))?;
                Ok(root)
            });
        let root = match root {
            Ok(root) => root,
            Err(error) => return (Err(machine(Stage::Unpack, error)), false),
        };
        let outcome = self.stages(order, &root, prefix);
        let is_cancelled = self.cancel.load(Ordering::Relaxed);
        let is_exhausted = outcome.is_err() && !is_cancelled && root.is_exhausted();
        match is_exhausted {
            true => self.worker.remover.remove(root),
            false => self.done_with(root, outcome.as_ref().err()),
        }
        (outcome, is_exhausted)
    }

    /// Keeps the root that failed for a person to look into; removes any other.
    fn done_with(&self, root: RootFolder, failure: Option<&Failure>) {
        let settings = &self.worker.settings;
        let is_looked_into = failure
            .is_some_and(|failure| !matches!(failure.kind, FailureKind::Machine | FailureKind::Cancelled));
        if is_looked_into && !self.is_kept.get() && root.has_room_beside_it() {
            // The failure matters more than a root that could not be kept; the next start sweeps it away.
            let kept = root.keep_as_failed(&self.lease.order.package, settings.failed_roots_max);
            self.is_kept.set(kept.is_ok());
            if kept.is_err() {
                // What is left of it goes.
                self.worker.remover.remove(root);
            }
        } else {
            self.worker.remover.remove(root);
        }
    }

    fn stages(&self, order: &BuildOrder, root: &RootFolder, prefix: &str) -> Result<Vec<Output>, Failure> {
        for stage in &order.stages {
            self.stage(stage, root, prefix)?;
        }
        let outputs = self.collect(order, root)?;
        if self.worker.settings.tests_outputs && prefix.is_empty() {
            self.test(&outputs)?;
        }
        Ok(outputs)
    }

    fn begin(&self, stage: Stage) -> StageResult {
        (self.tell)(Progress::StageBegan(stage));
        StageResult {
            stage,
            started_seconds: now_seconds(),
            wall_seconds: 0.0,
            cpu_seconds: 0.0,
            memory_peak_bytes: 0,
            work_bytes: None,
            disk_bytes: None,
            parallel_seconds: None,
            is_ok: false,
            log: None,
            left_behind: Vec::new(),
        }
    }

    fn stage(&self, order: &StageOrder, root: &RootFolder, prefix: &str) -> Result<(), Failure> {
        let settings = &self.worker.settings;
        let mut result = self.begin(order.stage);
        let started = Instant::now();
        let (relative, path) = self.log_path(order.stage, prefix);
        let mut log = Log::create(&path, settings.log_limits).map_err(|error| machine(order.stage, error))?;
        result.log = Some(relative);
        let mut end = End::Exit(0);
        let killed_before = pressure::killed_for_memory();
        let enter = |process| {
            // Without its weight it builds all the same.
            let _ = self.share.membership.enter(process);
        };
        for command in &order.commands {
            let line = format!("+ {}\n", shown(&command.arguments));
            if let Err(error) = log.write(line.as_bytes()) {
                end = End::LogFailed(error.to_string());
                break;
            }
            let mut observe = |sample: Sample| {
                let Sample { processes, runnable, memory_bytes } = sample;
                (self.tell)(Progress::Sample { processes, runnable, memory_bytes });
            };
            let sandbox = match order.stage {
                Stage::Build | Stage::Install => root.building_sandbox(command),
                _ => root.sandbox(command),
            };
            let limits = settings.limits;
            let outcome =
                kilnyard_process::run(&sandbox, &mut log, limits, self.cancel, &enter, &mut observe);
            add(&mut result, &outcome);
            end = outcome.end;
            if end != End::Exit(0) {
                break;
            }
        }
        result.wall_seconds = started.elapsed().as_secs_f64();
        result.is_ok = end == End::Exit(0);
        if !result.is_ok {
            // A build that failed is tried again, and needs as much at the least.
            result.work_bytes = self.work_bytes(root);
        }
        let finished = log.finish();
        (self.tell)(Progress::StageEnded(result));
        if let Some(mut failure) = self.failure(order.stage, end, &path) {
            // The kernel does not say whose process it killed: whoever failed meanwhile is tried again.
            if failure.kind == FailureKind::Command && pressure::killed_for_memory() > killed_before {
                failure.kind = FailureKind::Memory;
                failure.message = format!("the machine ran out of memory: {}", failure.message);
            }
            return Err(failure);
        }
        finished.map(|_| ()).map_err(|error| machine(order.stage, error))
    }

    /// What the work folder holds now, if the package has one.
    fn work_bytes(&self, root: &RootFolder) -> Option<u64> {
        let work = self.lease.order.work.as_ref()?;
        root.written_without_links(&work.inside).ok().map(|folder| used_bytes(&folder))
    }

    /// Where the log of a stage is: seen from the yard, and from here.
    fn log_path(&self, stage: Stage, prefix: &str) -> (String, PathBuf) {
        let (run, package, build) = (self.lease.run, &self.lease.order.package, self.lease.build);
        let relative = format!("logs/{run}/{package}/{build}-{prefix}{stage}.log");
        let path = self.worker.settings.yard.join(&relative);
        (relative, path)
    }

    fn failure(&self, stage: Stage, end: End, log: &Path) -> Option<Failure> {
        let hung = |what: &str, processes: Vec<String>| match &processes[..] {
            [] => what.to_owned(),
            _ => format!("{what}; running then: {}", processes.join(", ")),
        };
        let limits = self.worker.settings.limits;
        let (kind, message) = match end {
            End::Exit(0) => return None,
            End::Exit(code) => (FailureKind::Command, format!("the command ended with {code}")),
            End::WallLimit(processes) => {
                let what = format!("it was not done after {} s", limits.wall_seconds_max);
                (FailureKind::WallLimit, hung(&what, processes))
            }
            End::IdleLimit(processes) => {
                let what = format!("it printed nothing for {} s", limits.idle_seconds_max);
                (FailureKind::IdleLimit, hung(&what, processes))
            }
            End::MemoryLimit(processes) => {
                let mebibytes = limits.memory_bytes_max.unwrap_or(0) >> 20;
                let what = format!("its processes held more than {mebibytes} MiB");
                (FailureKind::Memory, hung(&what, processes))
            }
            End::Cancelled => (FailureKind::Cancelled, "it was cancelled".to_owned()),
            End::LogFailed(error) => (FailureKind::Machine, format!("its log could not be written: {error}")),
            End::SandboxFailed(error) => (FailureKind::Machine, error),
        };
        let mut failure = Failure { stage, kind, message, line_number: None, lines: Vec::new() };
        let telling = read_log(log).ok().and_then(|text| telling_lines(&text));
        if let (Some(telling), false) = (telling, kind == FailureKind::Machine) {
            if kind == FailureKind::Command {
                failure.message = telling.lines[telling.index].trim().to_owned();
                if stage == Stage::Test {
                    failure.kind = FailureKind::Test;
                }
            }
            failure.line_number = Some(telling.line_number);
            failure.lines = telling.lines;
        }
        Some(failure)
    }

    fn collect(&self, order: &BuildOrder, root: &RootFolder) -> Result<Vec<Output>, Failure> {
        let mut result = self.begin(Stage::Collect);
        let (started, cpu_seconds_before) = (Instant::now(), own_cpu_seconds());
        let refused = |message: String| Failure {
            stage: Stage::Collect,
            kind: FailureKind::Outputs,
            message,
            line_number: None,
            lines: Vec::new(),
        };
        let outcome = root.written_without_links(&order.output_folder);
        let outcome = outcome.map_err(|error| refused(format!("there is no folder of outputs: {error}")));
        let outcome = outcome.and_then(|folder| {
            let outputs = self.worker.ecosystem.collect(self.package, &folder);
            outputs.map(|outputs| (folder, outputs)).map_err(|error| refused(error.to_string()))
        });
        let outcome = outcome.and_then(|(folder, outputs)| {
            for output in &outputs {
                let kept = self.worker.distfiles.insert(&folder.join(&output.file));
                let (sha256, _) = kept.map_err(|error| machine(Stage::Collect, error))?;
                if sha256.as_str() != output.sha256 {
                    return Err(machine(
                        Stage::Collect,
                        format!("{} changed while it was read", output.file),
                    ));
                }
            }
            Ok(outputs)
        });
        let (relative, path) = self.log_path(Stage::Collect, "");
        let outcome = write_collected(&path, self.worker.settings.log_limits, &outcome)
            .map_err(|error| machine(Stage::Collect, error))
            .and(outcome);
        result.log = Some(relative);
        result.wall_seconds = started.elapsed().as_secs_f64();
        result.cpu_seconds = own_cpu_seconds() - cpu_seconds_before;
        result.is_ok = outcome.is_ok();
        result.work_bytes = self.work_bytes(root);
        // A work folder on the disk is a part of the root.
        let is_work_apart = root.is_work_apart();
        let work_bytes = result.work_bytes.filter(|_| !is_work_apart).unwrap_or(0);
        result.disk_bytes = Some(root.written_bytes().saturating_sub(work_bytes));
        (self.tell)(Progress::StageEnded(result));
        outcome
    }

    fn test(&self, outputs: &[Output]) -> Result<(), Failure> {
        let order = self.worker.ecosystem.test(self.package, outputs).map_err(|impossible| Failure {
            stage: Stage::Test,
            kind: FailureKind::Test,
            message: format!("the outputs cannot be installed: {}", impossible.explanation),
            line_number: None,
            lines: Vec::new(),
        })?;
        for input in order.inputs.iter().filter(|input| !input.urls.is_empty()) {
            self.fetch(input)?;
        }
        let name = format!("test-{}", self.lease.build);
        let root = self.worker.disk_root(&name, &order.layers);
        let root = root.map_err(|error| machine(Stage::Test, error))?.showing(&order.folders);
        let outcome = root
            .provide(&order.inputs, &order.texts, &|input| self.worker.file_of(input))
            .map_err(|error| machine(Stage::Test, error))
            .and_then(|()| self.stage(&order.stage, &root, ""));
        self.done_with(root, outcome.as_ref().err());
        outcome
    }

    /// What a test needs is known only when the outputs are, so it is fetched here.
    fn fetch(&self, input: &Input) -> Result<(), Failure> {
        let failed = |kind, message: String| Failure {
            stage: Stage::Test,
            kind,
            message,
            line_number: None,
            lines: Vec::new(),
        };
        let sha256 =
            Sha256Hex::parse(&input.sha256).map_err(|e| failed(FailureKind::Fetch, e.to_string()))?;
        let wanted = Wanted {
            urls: input.urls.clone(),
            sha256,
            size_bytes: input.size_bytes,
            name: input.name.clone(),
        };
        match self.worker.distfiles.ensure(&wanted, &|_| {}, self.cancel) {
            Ok(_) => Ok(()),
            Err(error) if error.is_cancelled() => {
                Err(failed(FailureKind::Cancelled, "it was cancelled".to_owned()))
            }
            Err(error) => Err(failed(FailureKind::Fetch, format!("failed to {error}"))),
        }
    }
}

/// Writes what was taken over, or why it was not.
fn write_collected(path: &Path, limits: LogLimits, outcome: &Result<Vec<Output>, Failure>) -> io::Result<()> {
    let mut log = Log::create(path, limits)?;
    let text = match outcome {
        Ok(outputs) => outputs
            .iter()
            .map(|o| format!("{} {} bytes, SHA-256 {}\n", o.file, o.size_bytes, o.sha256))
            .collect(),
        Err(failure) => format!("E: {}\n", failure.message),
    };
    log.write(text.as_bytes())?;
    log.finish().map(|_| ())
}

/// Adds what a command used to what its stage used.
fn add(result: &mut StageResult, outcome: &Outcome) {
    result.cpu_seconds += outcome.cpu_seconds;
    result.memory_peak_bytes = result.memory_peak_bytes.max(outcome.memory_peak_bytes);
    result.left_behind.extend(outcome.left_behind.iter().map(|process| text::line(process)));
}

/// A command as a person would read it: scripts and long lists are cut.
pub(crate) fn shown(arguments: &[String]) -> String {
    const ARGUMENT_CHARS_MAX: usize = 60;
    let cut = |argument: &String| {
        let line = argument.split_whitespace().collect::<Vec<_>>().join(" ");
        match line.char_indices().nth(ARGUMENT_CHARS_MAX) {
            Some((end, _)) => format!("{}...", &line[..end]),
            None => line,
        }
    };
    arguments.iter().map(cut).collect::<Vec<_>>().join(" ")
}
