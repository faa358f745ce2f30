//! One build from beginning to end.

use crate::depends::{Purpose, Stacked};
use crate::keep;
use crate::runner::{BuildRoot, PlainRoot, Root, RunnerError, Running, Shown};
use crate::verdict::{self, Network, Shortages};
use crate::{Link, Local, Share, Unprovided, Worker};
use kilnyard_artifacts::hash_of;
use kilnyard_ecosystem::{LogExcerpt, Rules, find_excerpt};
use kilnyard_mirror::{Sha256Hex, Wanted};
use kilnyard_model::order::{BuildOrder, Input, MachineTerms, Output, Stage, StageOrder, TestOrder};
use kilnyard_model::result::{Failure, FailureKind, Measures, STALLING_TRAPS_PER_SECOND, StageResult};
use kilnyard_model::text;
use kilnyard_process::{
    CommandOutcome, End, Limits, Log, LogLimits, Sample, Snapshot, StagePeaks, now_seconds, own_cpu_seconds,
    pressure, read_log, written_words,
};
use kilnyard_protocol::{Answer, BuildResult, Built, Lease, Progress, Test};
use kilnyard_schedule::Files;
use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Prefix of logs about installing the dependencies of tested outputs.
const DEPENDS: &str = "depends-";
/// How often the coordinator is asked about outputs whose test it does not know: with two in a row, it is replaced again
/// meanwhile.
const ANSWERS_MAX: u32 = 3;

/// A build in progress.
pub(crate) struct Performance<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) lease: &'a Lease,
    pub(crate) rules: Box<dyn Rules>,
    pub(crate) share: &'a Share,
    pub(crate) cancel: &'a AtomicBool,
    pub(crate) link: &'a dyn Link,
    /// Kept work of the build in progress.
    pub(crate) work: keep::Work,
    /// Whether a failed root of this lease is already kept.
    is_kept: Cell<bool>,
}

/// The place of a stage's log.
pub(crate) struct LogPlace {
    /// Relative to the yard, as in results.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

impl Worker {
    /// Performs a lease from beginning to end, with its share of the cores. Setting `cancel` ends it.
    pub fn perform(&self, lease: &Lease, share: &Share, cancel: &AtomicBool, link: &dyn Link) -> BuildResult {
        let mut is_reproducible = None;
        let outcome = match lease.to_check.is_empty() {
            false => crate::capture::check(self, lease, cancel, link),
            true => Performance::new(self, lease, share, cancel, link).and_then(|performance| {
                if lease.is_captured {
                    return performance.capture(&lease.order);
                }
                if let Some(to_test) = &lease.to_test {
                    return performance.test(&to_test.order).map(|()| to_test.outputs.clone());
                }
                let outputs = performance.build(&lease.order, "")?;
                if lease.checks_reproducible {
                    let second = performance.build(&lease.order, "again-")?;
                    is_reproducible = Some(hashes(&outputs) == hashes(&second));
                }
                Ok(outputs)
            }),
        };
        // Messages contain names of files and packages, which the build controls.
        let outcome =
            outcome.map_err(|failure| Failure { message: text::lines(&failure.message), ..failure });
        BuildResult { build: lease.build, outcome, is_reproducible, provenance: None }
    }

    /// The file of an input in the file store, whether it exists or not.
    pub(crate) fn file_of(&self, input: &Input) -> PathBuf {
        // An invalid hash gives an empty path, and linking that fails.
        Sha256Hex::parse(&input.sha256).map_or_else(|_| PathBuf::new(), |hash| self.distfiles.path(&hash))
    }
}

fn hashes(outputs: &[Output]) -> Vec<(&str, &str)> {
    outputs.iter().map(|output| (output.file.as_str(), output.sha256.as_str())).collect()
}

pub(crate) fn cancelled(stage: Stage) -> Failure {
    Failure { kind: FailureKind::Cancelled, ..machine(stage, "it was cancelled") }
}

/// The failure of a build whose root cannot be made or measured.
pub(crate) fn unmade(stage: Stage, error: RunnerError) -> Failure {
    match error {
        RunnerError::Cancelled => cancelled(stage),
        RunnerError::Machine(error) => machine(stage, error),
    }
}

/// A failure of Kilnyard's own work for a build: a fault of the machine, or a full disk.
pub(crate) fn machine(stage: Stage, message: impl ToString) -> Failure {
    let message = message.to_string();
    let kind = verdict::of_machine(&message);
    let message = format!("{}{message}", verdict::preface(kind));
    Failure { stage, kind, message, line_number: None, lines: Vec::new() }
}

impl<'a> Performance<'a> {
    pub(crate) fn new(
        worker: &'a Worker,
        lease: &'a Lease,
        share: &'a Share,
        cancel: &'a AtomicBool,
        link: &'a dyn Link,
    ) -> Result<Performance<'a>, Failure> {
        let rules = kilnyard_ecosystem::rules(&lease.order.family);
        let rules = rules.map_err(|error| machine(Stage::Unpack, error))?;
        let (work, is_kept) = Default::default();
        Ok(Performance { worker, lease, rules, share, cancel, link, work, is_kept })
    }

    /// The same, whose roots are removed even if they fail.
    pub(crate) fn without_failed_roots(self) -> Performance<'a> {
        self.is_kept.set(true);
        self
    }

    /// `prefix` distinguishes the logs and the root of the second build from those of the first.
    fn build(&self, order: &BuildOrder, prefix: &str) -> Result<Vec<Output>, Failure> {
        let name = format!("{prefix}{}", self.lease.build);
        let began = Instant::now();
        let examined = |layers: &[String], failure| self.worker.with_damage(layers, began, failure);
        let local = self.worker.local(&order.root).map_err(|error| machine(Stage::Unpack, error))?;
        let base = &local.layers;
        let stacked = self.depends(&order.root, base, Purpose { stage: Stage::Depends, prefix, name: &name });
        let Some(stacked) = stacked.map_err(|failure| examined(base, failure))? else {
            let outcome = self.build_on(order, &local, order.root.depends.is_empty(), prefix, &name);
            return outcome.map_err(|failure| examined(base, failure));
        };
        // `stacked` keeps the layers until the build ends.
        let outcome = self.build_on(order, &local.on(stacked.layers()), true, prefix, &name);
        outcome.map_err(|failure| examined(stacked.layers(), failure))
    }

    /// `is_installed`: the layers contain the dependencies.
    fn build_on(
        &self,
        order: &BuildOrder,
        local: &Local,
        is_installed: bool,
        prefix: &str,
        name: &str,
    ) -> Result<Vec<Output>, Failure> {
        self.choose_kept(order, prefix);
        let outcome = self.build_once(order, local, is_installed, prefix, name);
        match &outcome {
            Err(failure) if self.give_up_kept(order, failure, prefix) => {
                self.build_once(order, local, is_installed, prefix, &format!("{name}-afresh"))
            }
            _ => outcome,
        }
    }

    /// Builds in memory if it has room, or else on the disk.
    fn build_once(
        &self,
        order: &BuildOrder,
        local: &Local,
        is_installed: bool,
        prefix: &str,
        name: &str,
    ) -> Result<Vec<Output>, Failure> {
        let written_bytes = self.lease.written_bytes;
        let jobserver = self.share.jobserver.as_deref();
        let wanted = BuildRoot { name, order, local, files: self.lease.files, written_bytes, jobserver };
        let (outcome, is_exhausted) = self.build_in(&wanted, is_installed, prefix);
        if !is_exhausted {
            return outcome;
        }
        let name = format!("{name}-disk");
        self.build_in(&BuildRoot { name: &name, files: Files::Disk, ..wanted }, is_installed, prefix).0
    }

    /// The outcome, and whether the build may have failed for lack of memory for its files.
    fn build_in(
        &self,
        wanted: &BuildRoot<'_>,
        is_installed: bool,
        prefix: &str,
    ) -> (Result<Vec<Output>, Failure>, bool) {
        let order = wanted.order;
        let root = match self.worker.runner.build_root(wanted, self.cancel) {
            Ok(root) => root,
            Err(error) => return (Err(unmade(Stage::Unpack, error)), false),
        };
        let resolv_conf = order.terms.has_network.then(|| self.worker.resolv_conf());
        let provided = root
            .provide(&order.root.inputs, &order.root.texts)
            .and_then(|()| root.provide(&[], resolv_conf.as_slice()))
            .and_then(|()| self.offer_kept(&*root));
        if let Err(error) = provided {
            // On a full disk, the remains would make the next attempt fail too.
            root.remove();
            return (Err(machine(Stage::Unpack, error)), false);
        }
        let installed = if is_installed { Ok(()) } else { self.install(&order.root, &*root, prefix) };
        let outcome = installed.and_then(|()| self.stages(order, &*root, prefix));
        let is_cancelled = self.cancel.load(Ordering::Relaxed);
        let is_exhausted = outcome.is_err() && !is_cancelled && root.is_exhausted();
        match is_exhausted {
            true => root.remove(),
            false => self.done_with(root, outcome.as_ref().err()),
        }
        (outcome, is_exhausted)
    }

    /// Keeps a failed root for inspection, and removes any other.
    pub(crate) fn done_with(&self, root: Box<dyn Root>, failure: Option<&Failure>) {
        let log = self.log_place(Stage::Build, "").path;
        root.keep_requests(log.parent().unwrap_or(&log));
        let is_of_package = failure.is_some_and(|failure| {
            // What requires more is built again in another root.
            let others = [FailureKind::Machine, FailureKind::Cancelled, FailureKind::Requirements];
            !others.contains(&failure.kind)
        });
        let is_of_package =
            is_of_package && !failure.is_some_and(|failure| self.is_repeated_without_kept(failure));
        if is_of_package && !self.is_kept.get() && root.has_room_for_others() {
            self.is_kept.set(root.keep_as_failed(&self.lease.order.package, &self.lease.order.root));
        } else {
            root.remove();
        }
    }

    fn stages(&self, order: &BuildOrder, root: &dyn Root, prefix: &str) -> Result<Vec<Output>, Failure> {
        for stage in &order.stages {
            self.stage_with(stage, root, prefix, order.terms.has_network)?;
        }
        let answer = self.collect(order, root, prefix)?;
        match answer.test {
            Test::Skip => {}
            Test::Run(order) => self.test(&order)?,
            Test::Impossible(explanation) => {
                let message = format!("the outputs cannot be installed: {explanation}");
                return Err(Failure { kind: FailureKind::Test, ..machine(Stage::Test, message) });
            }
        }
        self.keep_packed(order);
        Ok(answer.outputs)
    }

    pub(crate) fn report_ended(&self, mut result: StageResult) {
        let path = result.log.as_ref().map(|log| self.worker.settings.yard.join(format!("{log}.zst")));
        // Without its hash, a log stays on the machine of the run.
        let hash = path.and_then(|path| hash_of(&mut fs_err::File::open(path).ok()?).ok());
        result.log_sha256 = hash.map(|(hash, _)| hash);
        self.link.report(Progress::StageEnded(Box::new(result)));
    }

    pub(crate) fn begin(&self, stage: Stage) -> StageResult {
        self.link.report(Progress::StageBegan(stage));
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
            log_sha256: None,
            left_behind: Vec::new(),
            measures: Measures::default(),
        }
    }

    /// Runs a stage without a network.
    pub(crate) fn stage(&self, order: &StageOrder, root: &dyn Root, prefix: &str) -> Result<(), Failure> {
        self.stage_with(order, root, prefix, false)
    }

    fn stage_with(
        &self,
        order: &StageOrder,
        root: &dyn Root,
        prefix: &str,
        has_network: bool,
    ) -> Result<(), Failure> {
        let settings = &self.worker.settings;
        let jobs = settings.jobs_of(&self.lease.order.terms);
        let mut result = self.begin(order.stage);
        let started = Instant::now();
        let LogPlace { name, path } = self.log_place(order.stage, prefix);
        let mut log = Log::create(&path, settings.log_limits).map_err(|error| machine(order.stage, error))?;
        result.log = Some(name);
        if has_network {
            log.write(format!("{REMARK}{HAS_NETWORK}\n").as_bytes())
                .map_err(|error| machine(order.stage, error))?;
        }
        let (mut end, mut unreachable, mut is_of_guest) = (End::Exit(0), 0, false);
        let killed_before = pressure::killed_for_memory();
        let limits = self.limits(order.stage);
        let sees_jobserver = matches!(order.stage, Stage::Build | Stage::Install);
        for command in &order.commands {
            let mut command = command.with_jobs(jobs);
            if has_network {
                command.environment.extend(settings.network.environment.iter().cloned());
            }
            let command = &command;
            let line = format!("+ {}\n", shown(&command.arguments));
            if let Err(error) = log.write(line.as_bytes()) {
                end = End::LogFailed(error.to_string());
                break;
            }
            let mut observe = |sample: Sample| {
                let Sample { processes, runnable, memory_bytes } = sample;
                self.link.report(Progress::Sample { processes, runnable, memory_bytes });
            };
            let running = Running {
                command,
                sees_jobserver,
                has_network,
                limits,
                cancel: self.cancel,
                membership: Some(&self.share.membership),
            };
            let outcome = root.run(&running, &mut log, &mut observe);
            add(&mut result, &outcome);
            unreachable += outcome.unreachable;
            let remarks = remarks(&outcome, &limits);
            end = outcome.end;
            if let Err(error) = log.write(remarks.as_bytes())
                && end == End::Exit(0)
            {
                end = End::LogFailed(error.to_string());
            }
            is_of_guest = outcome.is_in_machine;
            if end != End::Exit(0) {
                break;
            }
        }
        result.wall_seconds = started.elapsed().as_secs_f64();
        let is_ok = end == End::Exit(0);
        result.is_ok = is_ok;
        if !is_ok {
            // The next attempt at this build needs at least as much.
            result.work_bytes = self.work_bytes(root);
        }
        if order.stage == Stage::Build {
            result.measures.kept = self.note_kept(&self.lease.order, root);
        }
        let finished = log.finish();
        self.report_ended(result);
        let is_exit = matches!(end, End::Exit(_));
        let written = root.bounded_bytes().zip(limits.written_bytes_max);
        let written = written.filter(|(bytes, bytes_max)| is_exit && bytes > bytes_max);
        let shortages = Shortages {
            quota: written.is_some(),
            memory: pressure::killed_for_memory() > killed_before,
            disk: !is_ok && !root.has_room_for_others(),
            network: match has_network {
                // The counters are then those of the whole machine.
                true => Network::Available,
                false if unreachable > 0 => Network::Refused,
                false => Network::Unused,
            },
        };
        let is_lost = is_of_guest && matches!(end, End::SandboxFailed(_));
        if let Some(mut failure) = failure(order.stage, end, &limits, &path, shortages) {
            if is_lost {
                // A build can end its own virtual machine, and makes the words about it: they blame no worker.
                failure.kind = FailureKind::Signal;
            }
            if let Some((bytes, bytes_max)) = written {
                failure.message = format!("{}: {}", written_words(bytes, bytes_max), failure.message);
            }
            return Err(failure);
        }
        finished.map(|_| ()).map_err(|error| machine(order.stage, error))
    }

    /// The virtual machine for commands that are not the package's own, such as those of its dependencies: only one that was asked
    /// for keeps them away from this machine.
    pub(crate) fn virtual_machine(&self) -> Option<MachineTerms> {
        self.lease.order.terms.machine.filter(|machine| !machine.is_optional)
    }

    /// The current size of the work folder, if the package has one.
    fn work_bytes(&self, root: &dyn Root) -> Option<u64> {
        root.work_bytes(&self.lease.order.work.as_ref()?.inside)
    }

    pub(crate) fn log_place(&self, stage: Stage, prefix: &str) -> LogPlace {
        let (run, package, build) = (self.lease.run, &self.lease.order.package, self.lease.build);
        let name = format!("logs/{run}/{package}/{build}-{prefix}{stage}.log");
        let path = self.worker.settings.yard.join(&name);
        LogPlace { name, path }
    }

    /// The resources that this stage of the package used before; absent if unknown.
    fn seen(&self, stage: Stage) -> Option<StagePeaks> {
        let seen = self.lease.seen.iter().find(|seen| seen.stage == stage)?;
        Some(StagePeaks {
            cpu_seconds: seen.cpu_seconds,
            still_seconds: seen.still_seconds,
            silent_seconds: seen.silent_seconds,
            memory_bytes: seen.memory_bytes,
            // All stages write to one root, which is measured at the end.
            written_bytes: self.lease.seen.iter().map(|seen| seen.written_bytes).max().unwrap_or(0),
        })
    }

    /// The limits of a stage's commands.
    fn limits(&self, stage: Stage) -> Limits {
        self.worker.settings.limits_of(&self.lease.order.terms).limits(self.seen(stage))
    }

    /// Reads the outputs, and stores those that the coordinator keeps. Returns its answer.
    fn collect(&self, order: &BuildOrder, root: &dyn Root, prefix: &str) -> Result<Answer, Failure> {
        let settings = &self.worker.settings;
        let mut result = self.begin(Stage::Collect);
        let (started, cpu_seconds_before) = (Instant::now(), own_cpu_seconds());
        let measured = self.measured(root);
        let kept = measured.is_ok().then(|| self.pack_kept(order, root, prefix)).flatten();
        let outcome = measured.and_then(|()| self.taken_over(order, root, prefix));
        let LogPlace { name, path } = self.log_place(Stage::Collect, "");
        let outcome = write_collected(&path, settings.log_limits, &outcome, kept.as_deref())
            .map_err(|error| machine(Stage::Collect, error))
            .and(outcome);
        result.log = Some(name);
        result.wall_seconds = started.elapsed().as_secs_f64();
        result.cpu_seconds = own_cpu_seconds() - cpu_seconds_before;
        result.is_ok = outcome.is_ok();
        result.work_bytes = self.work_bytes(root);
        result.disk_bytes = Some(root.rest_bytes(result.work_bytes));
        self.link.report(Progress::StageEnded(Box::new(result)));
        outcome
    }

    /// Fails if the build wrote too much: the last command may have ended between two samples.
    fn measured(&self, root: &dyn Root) -> Result<(), Failure> {
        let bytes = root.charged_bytes().map_err(|error| unmade(Stage::Collect, error))?;
        let bytes_max = self.limits(Stage::Collect).written_bytes_max.unwrap_or(u64::MAX);
        match bytes <= bytes_max {
            true => Ok(()),
            false => Err(Failure {
                kind: FailureKind::DiskLimit,
                ..machine(Stage::Collect, written_words(bytes, bytes_max))
            }),
        }
    }

    fn taken_over(&self, order: &BuildOrder, root: &dyn Root, prefix: &str) -> Result<Answer, Failure> {
        let refused =
            |message: String| Failure { kind: FailureKind::Outputs, ..machine(Stage::Collect, message) };
        let folder = root
            .bring_out(&order.output_folder)
            .map_err(|error| refused(format!("no output folder: {error}")))?;
        let bounds = self.worker.settings.output_bounds;
        let outputs = match order.output_folder.is_empty() {
            true => Vec::new(),
            false => self.rules.read_outputs(&folder, bounds).map_err(|error| refused(error.to_string()))?,
        };
        let built = Built { build: self.lease.build, outputs, is_repeated: !prefix.is_empty() };
        let mut answers = 1;
        loop {
            let answer = self.answered(&built, &folder)?;
            let Test::Run(test) = &answer.test else { return Ok(answer) };
            match self.link.provide_test(test) {
                Ok(()) => return Ok(answer),
                // The answer of a coordinator that has just taken over lets this build read it.
                Err(Unprovided::Refused(_)) if answers < ANSWERS_MAX => answers += 1,
                Err(Unprovided::Refused(error) | Unprovided::Failed(error)) => {
                    return Err(machine(Stage::Collect, error));
                }
            }
        }
    }

    /// Reports the outputs, which are in this folder, and keeps those that the answer names.
    fn answered(&self, built: &Built, folder: &Path) -> Result<Answer, Failure> {
        let answer = self.link.built(built, folder).map_err(|error| machine(Stage::Collect, error))?;
        if let Some(reason) = &answer.refused {
            let kind = match answer.requires {
                Some(_) => FailureKind::Requirements,
                None => FailureKind::Outputs,
            };
            return Err(Failure { kind, ..machine(Stage::Collect, reason.clone()) });
        }
        for output in &answer.outputs {
            // An answer may name only outputs that were read here, never another file of this machine.
            let is_same = |read: &Output| (&read.file, &read.sha256) == (&output.file, &output.sha256);
            if !built.outputs.iter().any(is_same) {
                return Err(machine(
                    Stage::Collect,
                    format!("the answer keeps {}, which is not an output", output.file),
                ));
            }
            let kept = self.worker.distfiles.insert(&folder.join(&output.file));
            let (sha256, _) = kept.map_err(|error| machine(Stage::Collect, error))?;
            if sha256.as_str() != output.sha256 {
                return Err(machine(Stage::Collect, format!("{} changed while it was read", output.file)));
            }
        }
        Ok(answer)
    }

    fn test(&self, order: &TestOrder) -> Result<(), Failure> {
        for input in order.root.inputs.iter().chain(&order.inputs).filter(|input| !input.urls.is_empty()) {
            self.fetch(input)?;
        }
        let name = format!("test-{}", self.lease.build);
        // Without layers, the commands of the test install the dependencies of the outputs.
        let local = self.worker.local(&order.root).map_err(|error| machine(Stage::Test, error))?;
        let stacked = self.depends(
            &order.root,
            &local.layers,
            Purpose { stage: Stage::Test, prefix: DEPENDS, name: &name },
        )?;
        let layers = stacked.as_ref().map_or(&local.layers[..], Stacked::layers);
        let shown = Shown::Order(&order.root, &local);
        let wanted = PlainRoot { name: &name, layers, shown, added: None, machine: self.virtual_machine() };
        let root = self.worker.runner.plain_root(&wanted).map_err(|error| unmade(Stage::Test, error))?;
        let outcome = root
            .provide(&order.root.inputs, &order.root.texts)
            .and_then(|()| root.provide(&order.inputs, &order.texts))
            .map_err(|error| machine(Stage::Test, error))
            .and_then(|()| self.stage(&order.stage, &*root, ""));
        self.done_with(root, outcome.as_ref().err());
        outcome
    }

    /// Fetches an input of a test. The worker does this, since the inputs depend on the outputs.
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
            Err(error) => Err(failed(verdict::of_fetch(&error), format!("failed to {error}"))),
        }
    }
}

/// Logs the outputs that were stored, or the reason that they were not.
fn write_collected(
    path: &Path,
    limits: LogLimits,
    outcome: &Result<Answer, Failure>,
    kept: Option<&str>,
) -> io::Result<()> {
    let text: String = match outcome {
        Ok(answer) => {
            let outputs = answer.outputs.iter();
            let outputs =
                outputs.map(|o| format!("{} {} bytes, SHA-256 {}\n", o.file, o.size_bytes, o.sha256));
            let notes = answer.notes.iter().map(|note| format!("{note}\n"));
            outputs.chain(notes).chain(kept.map(str::to_owned)).collect()
        }
        Err(failure) => format!("E: {}\n", failure.message),
    };
    write_log(path, limits, &text)
}

/// Writes a log of Kilnyard's own.
pub(crate) fn write_log(path: &Path, limits: LogLimits, text: &str) -> io::Result<()> {
    let mut log = Log::create(path, limits)?;
    log.write(text.as_bytes())?;
    log.finish().map(|_| ())
}

/// How many lines about hung processes a failure contains, in addition to the log.
const HUNG_LINES_MAX: usize = 60;
/// Prefix of the lines that Kilnyard writes into a build's log.
const REMARK: &str = "kilnyard: ";
/// The first line of the log of a stage that may use the network.
const HAS_NETWORK: &str = "this stage has network access (`network` of [package])";

/// Why a stage failed, if it did.
fn failure(stage: Stage, end: End, limits: &Limits, log: &Path, shortages: Shortages) -> Option<Failure> {
    let mut failure = machine(stage, "");
    match end {
        End::Exit(0) => return None,
        End::Exit(code) => {
            let text = read_log(log).unwrap_or_default();
            let excerpt = find_excerpt(&text);
            let cause = excerpt.as_ref().map(LogExcerpt::cause);
            failure.kind = verdict::of_exit(stage, code, cause.as_deref(), &text, shortages);
            // Output printed before a signal does not explain the signal.
            let signal = verdict::signal_words(code).filter(|_| failure.kind == FailureKind::Signal);
            let last = || text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
            let what = match (signal, cause) {
                (Some(signal), _) => format!("{signal}; last line before it: {}", last()),
                (None, Some(cause)) => cause,
                (None, None) => format!("the command exited with status {code}"),
            };
            failure.message = format!("{}{what}", verdict::preface(failure.kind));
            if let Some(excerpt) = excerpt {
                failure.line_number = Some(excerpt.line_number);
                failure.lines = excerpt.lines;
            }
        }
        End::Limit(passed, snapshot) => {
            failure.kind = verdict::of_limit(passed);
            let what = passed.words(limits);
            failure.message = format!("{what}; running at that time: {}", snapshot.summary(passed));
            let remark = format!("{REMARK}{what}");
            let text = read_log(log).unwrap_or_default();
            failure.line_number = text
                .lines()
                .enumerate()
                .filter(|(_, line)| *line == remark)
                .last()
                .map(|(at, _)| at as u64 + 1);
            failure.lines = hung_process_lines(&snapshot);
        }
        End::Cancelled => {
            failure.kind = FailureKind::Cancelled;
            failure.message = "it was cancelled".to_owned();
        }
        End::LogFailed(error) => {
            failure.kind = if shortages.disk { FailureKind::Disk } else { FailureKind::Machine };
            failure.message = format!("failed to write the log: {error}");
        }
        End::SandboxFailed(error) => failure = machine(stage, error),
    }
    Some(failure)
}

/// The lines about hung processes, bounded and without control characters.
pub(crate) fn hung_process_lines(snapshot: &Snapshot) -> Vec<String> {
    snapshot.lines().iter().take(HUNG_LINES_MAX).map(|line| text::line(line)).collect()
}

/// Remarks for the log about the end of a command.
fn remarks(outcome: &CommandOutcome, limits: &Limits) -> String {
    let mut lines = Vec::new();
    if let End::Limit(passed, snapshot) = &outcome.end {
        lines.push(passed.words(limits));
        lines.extend(snapshot.lines());
    }
    lines.extend(outcome.left_behind.iter().map(|process| format!("left behind and killed: {process}")));
    lines.extend(outcome.left_in_memory.iter().map(|thing| format!("left in shared memory: {thing}")));
    if !outcome.refused_calls.is_empty() {
        let calls = outcome.refused_calls.iter().map(|(name, count)| format!("{name} ({count})"));
        lines.push(format!("system calls refused: {}", calls.collect::<Vec<_>>().join(", ")));
    }
    lines.extend(trapped(outcome));
    // The last line of the command's output may lack a newline.
    let first = if lines.is_empty() { "" } else { "\n" };
    lines.iter().fold(first.to_owned(), |all, line| format!("{all}{REMARK}{}\n", text::line(line)))
}

/// A remark about a command that stalled other cores.
fn trapped(outcome: &CommandOutcome) -> Option<String> {
    let traps = outcome.traps;
    let rate = traps.emulated.saturating_add(traps.unaligned) as f64 / outcome.wall_seconds.max(0.1);
    (rate >= STALLING_TRAPS_PER_SECOND).then(|| {
        let known = traps.instructions.to_string();
        let known = if known.is_empty() { known } else { format!(" ({known})") };
        format!(
            "{} instructions were emulated{known} and {} accesses repeated by the kernel, {rate:.0} a second, each of which stalls \
             other cores: kilnyard doctor says which setting of the kernel ends it; else the next build keeps to one core",
            traps.emulated, traps.unaligned
        )
    })
}

/// Adds the usage of a command to that of its stage.
fn add(result: &mut StageResult, outcome: &CommandOutcome) {
    result.cpu_seconds += outcome.cpu_seconds;
    result.memory_peak_bytes = result.memory_peak_bytes.max(outcome.memory_peak_bytes);
    let left = outcome.left_behind.iter().chain(&outcome.left_in_memory);
    result.left_behind.extend(left.map(|process| text::line(process)));
    let sum = |one: Option<f64>, other: Option<f64>| Some(one.unwrap_or(0.0) + other?);
    // One command without counters does not discard the counts of the stage's other commands.
    let bytes = |one: Option<u64>, other: Option<u64>| {
        one.or(other).map(|_| one.unwrap_or(0).saturating_add(other.unwrap_or(0)))
    };
    let (measures, stalls) = (result.measures, outcome.stalls);
    result.measures = Measures {
        user_seconds: measures.user_seconds + outcome.user_seconds,
        system_seconds: measures.system_seconds + outcome.system_seconds,
        read_bytes: bytes(measures.read_bytes, outcome.read_bytes),
        written_bytes: bytes(measures.written_bytes, outcome.written_bytes),
        processes: measures.processes.saturating_add(outcome.created),
        cpu_stalled_seconds: sum(measures.cpu_stalled_seconds, stalls.cpu_seconds),
        memory_stalled_seconds: sum(measures.memory_stalled_seconds, stalls.memory_seconds),
        io_stalled_seconds: sum(measures.io_stalled_seconds, stalls.io_seconds),
        is_stalled_of_machine: stalls.is_of_machine,
        still_seconds_max: measures.still_seconds_max.max(outcome.still_seconds_max),
        silent_seconds_max: measures.silent_seconds_max.max(outcome.silent_seconds_max),
        traps: measures.traps.saturating_add(outcome.traps.emulated).saturating_add(outcome.traps.unaligned),
        is_in_machine: measures.is_in_machine || outcome.is_in_machine,
        kept: measures.kept,
    };
}

/// A command for display: long arguments, such as scripts, are cut.
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
