//! Runs one command from its start to the end of its last process.
//!
//! One thread waits for output, for reports of the sandbox, and for the time of the next check of limits. To end a
//! command, it asks process 1 of the sandbox, since only that process can still report what the command used. If
//! process 1 does not respond in time, the whole control group is killed, and the outer process too, with which the
//! kernel kills everything below it.

use crate::births::{self, Followed};
use crate::inspector::Inspector;
use crate::leaf::Leaf;
use crate::memory::MemoryBound;
use crate::progress::Progress;
use crate::stalls::Stalling;
use crate::weight::Membership;
use crate::written::{Writing, Written};
use crate::{CommandOutcome, End, Limits, Passed, Sample, Snapshot, leftovers, traps};
use kilnyard_root::sandbox::{Bounds, GRACE, Order};
use kilnyard_root::{Report, Sandbox};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::OnceCell;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often limits and the cancel flag are checked.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// How much output is read at once.
const CHUNK_BYTES: usize = 64 << 10;
/// A command that prints less than this within [`COLLECTING`] drips. Its output is left to collect in the pipe, which
/// holds 64 KiB, for that long.
const DRIP_BYTES: usize = 16 << 10;
/// How long dripping output is left to collect.
const COLLECTING: Duration = Duration::from_millis(50);
/// How much of the last output is kept, to show what was printed before a command hung.
const TAIL_BYTES: usize = 4 << 10;
/// How long the sandbox may take, beyond the grace period, to end all its processes before it is killed with them.
const ENDING_MAX: Duration = Duration::from_secs(8);
/// How long to wait for killed processes to disappear.
const KILLED_MAX: Duration = Duration::from_secs(20);
/// Reports take a few kilobytes; anything longer is not a report.
const REPORT_BYTES_MAX: usize = 1 << 20;
/// How often shared memory is added up, which is expensive.
const SHARED_MEMORY_INTERVAL: Duration = Duration::from_secs(1);

/// The limits of a command, and how it is watched.
#[derive(Clone, Copy, Debug)]
pub struct Watched<'a> {
    /// Exceeding one ends the command.
    pub limits: Limits,
    /// Where it writes, and how much it may write.
    pub writing: &'a Writing,
    /// Ends the command when set.
    pub cancel: &'a AtomicBool,
    /// The build that all its processes join.
    pub membership: Option<&'a Membership>,
}

/// Runs the sandbox to its end and writes its output to `output`. With a membership, all its processes join that
/// build. `observe` receives the samples.
pub fn run(
    sandbox: &Sandbox,
    output: &mut (dyn Write + Send),
    limits: Limits,
    cancel: &AtomicBool,
    membership: Option<&Membership>,
    observe: &mut dyn FnMut(Sample),
) -> CommandOutcome {
    let watched = Watched { limits, writing: &Writing::default(), cancel, membership };
    run_watched(sandbox, output, watched, observe)
}

/// Like [`run`], but also watches what the command writes.
pub fn run_watched(
    sandbox: &Sandbox,
    output: &mut (dyn Write + Send),
    watched: Watched<'_>,
    observe: &mut dyn FnMut(Sample),
) -> CommandOutcome {
    let Watched { limits, writing, cancel, membership } = watched;
    let started = Instant::now();
    let bounds = Bounds { processes_max: limits.processes_max, open_files_max: limits.open_files_max };
    let leaf = Leaf::begin(membership);
    let mut groups = membership.map(Membership::groups).unwrap_or_default();
    if let Some(leaf) = &leaf {
        // The leaf is inside the build's group, so its processes are in both.
        groups.version_2 = Some(leaf.folder().to_owned());
    }
    let folder = leaf.as_ref().map(Leaf::folder);
    let memory =
        limits.memory_bytes_max.and_then(|bytes| MemoryBound::set(folder, bytes, writing.memory_bytes_max));
    groups.version_1.extend(memory.as_ref().and_then(MemoryBound::group).cloned());
    let (begun, traps) = (OnceCell::new(), OnceCell::new());
    let follow = |outer| {
        let _ = begun.set(births::follow(outer));
        let _ = traps.set(traps::Counters::of(outer));
        if let Some(membership) = membership {
            // Without its weight, the build still works.
            let _ = membership.level(outer);
        }
    };
    let mut outcome = match sandbox.spawn_within(bounds, &groups, &follow) {
        Ok(child) => {
            let births = begun.into_inner().unwrap_or_else(|| births::follow(child.id()));
            let inspector = Inspector::of(&sandbox.ids);
            let begun = Begun { child, births, leaf, memory, inspector, writing };
            Watch::new(begun, output, limits, cancel, observe).run()
        }
        Err(error) => CommandOutcome::of(End::SandboxFailed(format!("failed to start a sandbox: {error}"))),
    };
    outcome.traps = traps.into_inner().flatten().map_or_else(Default::default, |counters| counters.read());
    outcome.wall_seconds = started.elapsed().as_secs_f64();
    outcome
}

/// A started sandbox, with its trackers.
struct Begun<'a> {
    child: Child,
    births: Followed,
    leaf: Option<Leaf>,
    memory: Option<MemoryBound>,
    inspector: Inspector,
    writing: &'a Writing,
}

struct Watch<'a> {
    child: Child,
    births: Followed,
    leaf: Option<Leaf>,
    memory: Option<MemoryBound>,
    inspector: Inspector,
    writing: &'a Writing,
    written: Option<Written>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    orders: Option<ChildStdin>,
    log: &'a mut (dyn Write + Send),
    log_error: Option<io::Error>,
    /// The output pipe, as links in `/proc` name it.
    log_name: Option<String>,
    limits: Limits,
    cancel: &'a AtomicBool,
    observe: &'a mut dyn FnMut(Sample),
    started: Instant,
    progress: Progress,
    stalling: Stalling,
    /// When output is read next.
    output_due: Instant,
    drip: Drip,
    tail: Vec<u8>,
    report: Vec<u8>,
    outcome: CommandOutcome,
    end: Option<End>,
    failure: Option<String>,
    /// When everything was asked to end, and whether it has been killed since.
    ordered: Option<(Instant, bool)>,
    shared_memory_checked: Option<Instant>,
}

impl<'a> Watch<'a> {
    fn new(
        begun: Begun<'a>,
        log: &'a mut (dyn Write + Send),
        limits: Limits,
        cancel: &'a AtomicBool,
        observe: &'a mut dyn FnMut(Sample),
    ) -> Watch<'a> {
        let Begun { mut child, births, leaf, memory, inspector, writing } = begun;
        let stdout = child.stdout.take();
        let inode = stdout.as_ref().and_then(|stdout| rustix::fs::fstat(stdout).ok());
        Watch {
            stalling: Stalling::of(leaf.as_ref().map(Leaf::folder)),
            stderr: child.stderr.take(),
            orders: child.stdin.take(),
            log_name: inode.map(|facts| format!("pipe:[{}]", facts.st_ino)),
            child,
            births,
            leaf,
            memory,
            inspector,
            writing,
            written: None,
            stdout,
            log,
            log_error: None,
            limits,
            cancel,
            observe,
            started: Instant::now(),
            progress: Progress::new(),
            output_due: Instant::now(),
            drip: Drip { since: Instant::now(), bytes: 0, bytes_before: 0 },
            tail: Vec::new(),
            report: Vec::new(),
            outcome: CommandOutcome::of(End::Cancelled),
            end: None,
            failure: None,
            ordered: None,
            shared_memory_checked: None,
        }
    }

    fn run(mut self) -> CommandOutcome {
        let mut chunk = vec![0; CHUNK_BYTES];
        while self.stdout.is_some() || self.stderr.is_some() {
            let (has_output, has_reports) = self.wait();
            if has_output {
                self.take_output(&mut chunk);
            }
            if has_reports {
                self.take_reports(&mut chunk);
            }
            if self.check().is_err() {
                break;
            }
        }
        let _ = self.child.wait();
        self.finish()
    }

    fn now(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Waits until there is something to read, or until the next check is due. Dripping output is left to collect for
    /// a moment, except after the sandbox has closed its reports at the end.
    fn wait(&self) -> (bool, bool) {
        let pause = self.output_due.saturating_duration_since(Instant::now());
        let takes_output = pause.is_zero() || self.stderr.is_none();
        let patience = if takes_output { SAMPLE_INTERVAL } else { pause.min(SAMPLE_INTERVAL) };
        let patience = Timespec { tv_sec: 0, tv_nsec: patience.subsec_nanos().into() };
        let stdout = self.stdout.as_ref().filter(|_| takes_output).map(AsFd::as_fd);
        let stderr = self.stderr.as_ref().map(AsFd::as_fd);
        let polled = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        // An interrupting signal only makes the next check come a little earlier.
        let is_ready = |polled: &PollFd<'_>| !polled.revents().is_empty();
        match (stdout, stderr) {
            (Some(stdout), Some(stderr)) => {
                let mut both = [polled(stdout), polled(stderr)];
                let _ = poll(&mut both, Some(&patience));
                (is_ready(&both[0]), is_ready(&both[1]))
            }
            (Some(stdout), None) => {
                let mut one = [polled(stdout)];
                let _ = poll(&mut one, Some(&patience));
                (is_ready(&one[0]), false)
            }
            (None, Some(stderr)) => {
                let mut one = [polled(stderr)];
                let _ = poll(&mut one, Some(&patience));
                (false, is_ready(&one[0]))
            }
            (None, None) => (false, false),
        }
    }

    /// Copies output to the log. After an error it keeps reading, so that the command does not block.
    fn take_output(&mut self, chunk: &mut [u8]) {
        let Some(stdout) = &mut self.stdout else { return };
        match stdout.read(chunk) {
            Ok(0) => self.stdout = None,
            Ok(count) => {
                self.progress.print(self.started.elapsed().as_secs_f64());
                self.output_due = self.drip.next(Instant::now(), count);
                let bytes = &chunk[..count];
                self.tail.extend(&bytes[count.saturating_sub(TAIL_BYTES)..]);
                self.tail.drain(..self.tail.len().saturating_sub(TAIL_BYTES));
                if self.log_error.is_none() {
                    self.log_error = self.log.write_all(bytes).err();
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                self.log_error.get_or_insert(error);
                self.stdout = None;
            }
        }
    }

    fn take_reports(&mut self, chunk: &mut [u8]) {
        let Some(stderr) = &mut self.stderr else { return };
        match stderr.read(chunk) {
            Ok(0) => self.stderr = None,
            Ok(count) => self.report.extend(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => self.stderr = None,
        }
        while let Some(end) = self.report.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.report.drain(..=end).collect();
            match serde_json::from_slice(&line) {
                Ok(report) => self.receive(report),
                Err(_) => {
                    let line = String::from_utf8_lossy(&line).trim().to_owned();
                    self.failure.get_or_insert(line);
                }
            }
        }
        if self.report.len() > REPORT_BYTES_MAX {
            self.report.clear();
        }
    }

    fn receive(&mut self, report: Report) {
        match report {
            Report::Process1 { number } => {
                self.inspector.set_process_1(number);
                let bytes_max = self.limits.written_bytes_max.filter(|_| !self.writing.folders.is_empty());
                self.written = bytes_max.map(|bytes_max| {
                    Written::watch(self.writing, bytes_max, self.child.id(), self.inspector.clone())
                });
            }
            Report::Started => {}
            Report::NoGroup { .. } => {
                self.leaf = None;
                self.stalling = Stalling::of(None);
            }
            Report::Sample { processes, threads, runnable, memory_bytes, cpu_seconds, created } => {
                self.progress.sample(self.now(), cpu_seconds, created, runnable);
                self.outcome.memory_peak_bytes = self.outcome.memory_peak_bytes.max(memory_bytes);
                (self.observe)(Sample { processes, runnable, memory_bytes });
                if self.end.is_some() {
                    return;
                }
                // The limit that the kernel enforces also counts the sandbox's own processes, so the command is
                // stopped a little below it.
                if self
                    .limits
                    .processes_max
                    .is_some_and(|max| threads.saturating_add(PROCESSES_MARGIN) >= max)
                {
                    self.pass(Passed::Processes);
                } else if self.limits.memory_bytes_max.is_some_and(|max| memory_bytes > max) {
                    self.check_shared_memory();
                }
            }
            Report::LeftBehind { processes, ended } => {
                self.outcome.left_behind =
                    leftovers::describe(self.child.id(), &processes, &ended, &self.births);
                self.order(Order::Inspected);
            }
            Report::LeftInMemory { things } => self.outcome.left_in_memory = things,
            Report::Refused { calls } => self.outcome.refused_calls = calls,
            Report::Used { read_bytes, written_bytes, created, unreachable, own_seconds } => {
                self.outcome.unreachable = unreachable;
                self.outcome.keeper_seconds = own_seconds;
                self.outcome.read_bytes = read_bytes;
                self.outcome.written_bytes = written_bytes;
                self.outcome.created = created;
            }
            Report::Ended { code, user_seconds, system_seconds, largest_bytes } => {
                self.outcome.user_seconds = user_seconds;
                self.outcome.system_seconds = system_seconds;
                // A peak between two samples shows at least in the figure of the largest process.
                self.outcome.memory_peak_bytes = self.outcome.memory_peak_bytes.max(largest_bytes);
                self.end.get_or_insert(End::Exit(code));
            }
            Report::Failed { step, error, .. } => {
                self.failure.get_or_insert(format!("failed to {step}: {error}"));
            }
        }
    }

    /// Samples count shared pages once per process, so the total is computed again with these pages divided up.
    fn check_shared_memory(&mut self) {
        if self.shared_memory_checked.is_some_and(|checked| checked.elapsed() < SHARED_MEMORY_INTERVAL) {
            return;
        }
        self.shared_memory_checked = Some(Instant::now());
        let bytes = self.inspector.memory_bytes(self.child.id()).unwrap_or(u64::MAX);
        if self.limits.memory_bytes_max.is_some_and(|max| bytes > max) {
            self.pass(Passed::Memory);
        }
    }

    /// Checks the limits; fails if killed processes do not disappear.
    fn check(&mut self) -> Result<(), ()> {
        if self.end.is_none() {
            if self.cancel.load(Ordering::Relaxed) {
                self.end = Some(End::Cancelled);
                self.order(Order::End);
            } else if let Some(passed) = self.progress.passed(self.now(), &self.limits) {
                self.pass(passed);
            } else if self.memory.as_ref().is_some_and(MemoryBound::has_killed) {
                self.pass(Passed::Memory);
            } else if let Some(bytes) = self.written.as_ref().map(Written::bytes)
                && self.limits.written_bytes_max.is_some_and(|max| bytes > max)
            {
                self.pass(Passed::Written { bytes });
            }
        }
        match self.ordered {
            Some((at, false)) if at.elapsed() > GRACE + ENDING_MAX => {
                // The kernel kills the whole group together, or else everything below the outer process. The loop
                // continues until the last report is read.
                if let Some(leaf) = &self.leaf {
                    leaf.kill();
                }
                let _ = self.child.kill();
                self.ordered = Some((Instant::now(), true));
                Ok(())
            }
            Some((at, true)) if at.elapsed() > KILLED_MAX => Err(()),
            _ => Ok(()),
        }
    }

    fn pass(&mut self, passed: Passed) {
        let snapshot = self.inspector.snapshot(self.child.id(), self.log_name.as_deref(), &self.tail);
        self.end = Some(End::Limit(passed, Box::new(snapshot)));
        // If the machine runs short of a resource, processes get no time to finish.
        let is_urgent = matches!(passed, Passed::Memory | Passed::Processes | Passed::Written { .. });
        self.order(if is_urgent { Order::Kill } else { Order::End });
    }

    fn order(&mut self, order: Order) {
        if order != Order::Inspected {
            self.ordered.get_or_insert((Instant::now(), false));
        }
        if let Some(orders) = &mut self.orders
            && orders.write_all(&[order.byte()]).is_err()
        {
            // It has ended by itself.
            self.orders = None;
        }
    }

    fn finish(mut self) -> CommandOutcome {
        let now = self.now();
        let mut outcome = self.outcome;
        outcome.stalls = self.stalling.since();
        if let Some(leaf) = &self.leaf {
            // The group's figures include processes that were never waited for.
            if let Some((user_seconds, system_seconds)) = leaf.cpu_seconds() {
                (outcome.user_seconds, outcome.system_seconds) = (user_seconds, system_seconds);
            }
            // Shared pages count once per process, but only once in the group.
            let charged_bytes = leaf.memory_peak_bytes().unwrap_or(u64::MAX);
            outcome.memory_peak_bytes = outcome.memory_peak_bytes.min(charged_bytes);
            outcome.left_behind.extend(leaf.end());
        }
        // Without a final report, because the sandbox had to be killed, the last sample counts.
        outcome.cpu_seconds = self.progress.cpu_seconds().max(outcome.user_seconds + outcome.system_seconds);
        (outcome.still_seconds_max, outcome.silent_seconds_max) = self.progress.longest(now);
        // The kernel may have killed for memory after the last check.
        let is_killed = matches!(self.end, None | Some(End::Exit(1..)))
            && self.memory.as_ref().is_some_and(MemoryBound::has_killed);
        if is_killed {
            self.end =
                Some(End::Limit(Passed::Memory, Box::new(Snapshot::default().with_output(&self.tail))));
        }
        outcome.end = match (self.log_error.take(), self.end, self.failure) {
            (Some(error), ..) => End::LogFailed(error.to_string()),
            (_, Some(end @ (End::Limit(..) | End::Cancelled)), _) => end,
            (.., Some(failure)) => End::SandboxFailed(failure),
            (_, Some(end), None) => end,
            (_, None, None) => End::SandboxFailed("the sandbox was killed from outside".to_owned()),
        };
        outcome
    }
}

/// The recent amount of output.
struct Drip {
    since: Instant,
    bytes: usize,
    bytes_before: usize,
}

impl Drip {
    /// When to read output again, after `count` bytes of it. A flood is not delayed.
    fn next(&mut self, now: Instant, count: usize) -> Instant {
        if now.duration_since(self.since) >= COLLECTING {
            *self = Drip { since: now, bytes: 0, bytes_before: self.bytes };
        }
        self.bytes += count;
        if self.bytes.max(self.bytes_before) < DRIP_BYTES { now + COLLECTING } else { now }
    }
}

/// Counts of processes may rise a little between two samples.
const PROCESSES_MARGIN: u32 = 8;
