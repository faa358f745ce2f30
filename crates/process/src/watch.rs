//! One command from its start to the end of its last process.
//!
//! One thread waits for output, for reports of the sandbox, and for the time of the next look at limits. What has to end
//! is ended by process 1 of the sandbox, which is asked to, since it alone can tell then what was used. Where it does not
//! answer in time all of the control group is killed, and the outer process, with which the kernel ends all below it.

use crate::births::{self, Followed};
use crate::leaf::Leaf;
use crate::memory::MemoryBound;
use crate::onlooker::Onlooker;
use crate::progress::Progress;
use crate::stalls::Stalling;
use crate::weight::Membership;
use crate::written::{Writing, Written};
use crate::{End, Limits, Outcome, Passed, Portrait, Sample, leftovers};
use kilnyard_root::sandbox::{Bounds, GRACE, Order};
use kilnyard_root::{Report, Sandbox};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::OnceCell;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often limits and the cancel flag are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// How much output is taken at once.
const CHUNK_BYTES: usize = 64 << 10;
/// Who prints less within [`COLLECTING`] drips, and what drips is left to collect for that long: a pipe takes 64 KiB.
const DRIP_BYTES: usize = 16 << 10;
/// See there.
const COLLECTING: Duration = Duration::from_millis(50);
/// How much of the last output is kept for who wants to know what was printed before something hung.
const TAIL_BYTES: usize = 4 << 10;
/// How long the sandbox may take to end all its processes, beyond their grace, before all are killed with it.
const ENDING_MAX: Duration = Duration::from_secs(8);
/// How long it is waited for the kernel to end what was killed.
const KILLED_MAX: Duration = Duration::from_secs(20);
/// Reports are a few kilobytes; what is longer is none.
const REPORT_BYTES_MAX: usize = 1 << 20;
/// How often it is added up which memory processes share, which is much work.
const SHARED_MEMORY_INTERVAL: Duration = Duration::from_secs(1);

/// What bounds a command, and what is watched of it.
#[derive(Clone, Copy, Debug)]
pub struct Watched<'a> {
    /// Passing one ends the command.
    pub limits: Limits,
    /// Where it writes.
    pub writing: &'a Writing,
    /// Ends the command when it is set.
    pub cancel: &'a AtomicBool,
    /// The build that all its processes belong to.
    pub membership: Option<&'a Membership>,
}

/// Runs the sandbox to its end; what it prints goes into `output`. With a membership all its processes belong to that
/// build; `observe` is told what they are doing.
pub fn run(
    sandbox: &Sandbox,
    output: &mut (dyn Write + Send),
    limits: Limits,
    cancel: &AtomicBool,
    membership: Option<&Membership>,
    observe: &mut dyn FnMut(Sample),
) -> Outcome {
    let watched = Watched { limits, writing: &Writing::default(), cancel, membership };
    run_watched(sandbox, output, watched, observe)
}

/// The same of a command whose writing is watched too.
pub fn run_watched(
    sandbox: &Sandbox,
    output: &mut (dyn Write + Send),
    watched: Watched<'_>,
    observe: &mut dyn FnMut(Sample),
) -> Outcome {
    let Watched { limits, writing, cancel, membership } = watched;
    let started = Instant::now();
    let bounds = Bounds { processes_max: limits.processes_max, open_files_max: limits.open_files_max };
    let leaf = Leaf::begin(membership);
    let mut groups = membership.map(Membership::groups).unwrap_or_default();
    if let Some(leaf) = &leaf {
        // Who is in the leaf of a build's group is in that one.
        groups.version_2 = Some(leaf.folder().to_owned());
    }
    let folder = leaf.as_ref().map(Leaf::folder);
    let memory =
        limits.memory_bytes_max.and_then(|bytes| MemoryBound::set(folder, bytes, writing.memory_bytes_max));
    groups.version_1.extend(memory.as_ref().and_then(MemoryBound::group).cloned());
    let begun = OnceCell::new();
    let follow = |outer| {
        let _ = begun.set(births::follow(outer));
        if let Some(membership) = membership {
            // Without its weight it builds all the same.
            let _ = membership.level(outer);
        }
    };
    let mut outcome = match sandbox.spawn_within(bounds, &groups, &follow) {
        Ok(child) => {
            let births = begun.into_inner().unwrap_or_else(|| births::follow(child.id()));
            let onlooker = Onlooker::of(&sandbox.ids);
            let begun = Begun { child, births, leaf, memory, onlooker, writing };
            Watch::new(begun, output, limits, cancel, observe).run()
        }
        Err(error) => Outcome::of(End::SandboxFailed(format!("failed to start a sandbox: {error}"))),
    };
    outcome.wall_seconds = started.elapsed().as_secs_f64();
    outcome
}

/// A sandbox that was begun, and who follows it.
struct Begun<'a> {
    child: Child,
    births: Followed,
    leaf: Option<Leaf>,
    memory: Option<MemoryBound>,
    onlooker: Onlooker,
    writing: &'a Writing,
}

struct Watch<'a> {
    child: Child,
    births: Followed,
    leaf: Option<Leaf>,
    memory: Option<MemoryBound>,
    onlooker: Onlooker,
    writing: &'a Writing,
    written: Option<Written>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    orders: Option<ChildStdin>,
    log: &'a mut (dyn Write + Send),
    log_error: Option<io::Error>,
    /// The pipe that output goes through, as links to it are called.
    log_name: Option<String>,
    limits: Limits,
    cancel: &'a AtomicBool,
    observe: &'a mut dyn FnMut(Sample),
    started: Instant,
    progress: Progress,
    stalling: Stalling,
    /// When output is taken next.
    output_due: Instant,
    drip: Drip,
    tail: Vec<u8>,
    report: Vec<u8>,
    outcome: Outcome,
    end: Option<End>,
    failure: Option<String>,
    /// When all was told to end, and whether it was killed since.
    ordered: Option<(Instant, bool)>,
    shared_memory_looked: Option<Instant>,
}

impl<'a> Watch<'a> {
    fn new(
        begun: Begun<'a>,
        log: &'a mut (dyn Write + Send),
        limits: Limits,
        cancel: &'a AtomicBool,
        observe: &'a mut dyn FnMut(Sample),
    ) -> Watch<'a> {
        let Begun { mut child, births, leaf, memory, onlooker, writing } = begun;
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
            onlooker,
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
            outcome: Outcome::of(End::Cancelled),
            end: None,
            failure: None,
            ordered: None,
            shared_memory_looked: None,
        }
    }

    fn run(mut self) -> Outcome {
        let mut chunk = vec![0; CHUNK_BYTES];
        while self.stdout.is_some() || self.stderr.is_some() {
            let (has_output, has_reports) = self.wait();
            if has_output {
                self.take_output(&mut chunk);
            }
            if has_reports {
                self.take_reports(&mut chunk);
            }
            if self.look().is_err() {
                break;
            }
        }
        let _ = self.child.wait();
        self.finish()
    }

    fn now(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Waits until there is something to take, or the time of the next look has come. Output that drips in is left to
    /// collect for a moment, but not when the sandbox has something to say, as at the end.
    fn wait(&self) -> (bool, bool) {
        let pause = self.output_due.saturating_duration_since(Instant::now());
        let takes_output = pause.is_zero() || self.stderr.is_none();
        let patience = if takes_output { LOOK_INTERVAL } else { pause.min(LOOK_INTERVAL) };
        let patience = Timespec { tv_sec: 0, tv_nsec: patience.subsec_nanos().into() };
        let stdout = self.stdout.as_ref().filter(|_| takes_output).map(AsFd::as_fd);
        let stderr = self.stderr.as_ref().map(AsFd::as_fd);
        let polled = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        // A signal that came in between makes it look a little earlier.
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

    /// Moves output into the log. After an error it goes on reading, so that the command does not block.
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
                Ok(report) => self.heard(report),
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

    fn heard(&mut self, report: Report) {
        match report {
            Report::Process1 { number } => {
                self.onlooker.knows(number);
                let bytes_max = self.limits.written_bytes_max.filter(|_| !self.writing.folders.is_empty());
                self.written = bytes_max.map(|bytes_max| {
                    Written::watch(self.writing, bytes_max, self.child.id(), self.onlooker.clone())
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
                // The command's own are fewer than what the kernel stops it at: there are the sandbox's own.
                if self
                    .limits
                    .processes_max
                    .is_some_and(|max| threads.saturating_add(PROCESSES_MARGIN) >= max)
                {
                    self.pass(Passed::Processes);
                } else if self.limits.memory_bytes_max.is_some_and(|max| memory_bytes > max) {
                    self.look_at_shared_memory();
                }
            }
            Report::LeftBehind { processes, ended } => {
                self.outcome.left_behind =
                    leftovers::describe(self.child.id(), &processes, &ended, &self.births);
                self.order(Order::Looked);
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
                // A peak between two samples is seen of a single process at least.
                self.outcome.memory_peak_bytes = self.outcome.memory_peak_bytes.max(largest_bytes);
                self.end.get_or_insert(End::Exit(code));
            }
            Report::Failed { step, error, .. } => {
                self.failure.get_or_insert(format!("failed to {step}: {error}"));
            }
        }
    }

    /// What processes share counts in each of them, so that the sum is looked at again.
    fn look_at_shared_memory(&mut self) {
        if self.shared_memory_looked.is_some_and(|looked| looked.elapsed() < SHARED_MEMORY_INTERVAL) {
            return;
        }
        self.shared_memory_looked = Some(Instant::now());
        let bytes = self.onlooker.memory_bytes(self.child.id()).unwrap_or(u64::MAX);
        if self.limits.memory_bytes_max.is_some_and(|max| bytes > max) {
            self.pass(Passed::Memory);
        }
    }

    /// Looks at limits; an error where what was killed does not end.
    fn look(&mut self) -> Result<(), ()> {
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
                // The kernel ends everything at once, or else everything below the outer process; the loop goes on until
                // the last report is read.
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
        let portrait = self.onlooker.portrait(self.child.id(), self.log_name.as_deref(), &self.tail);
        self.end = Some(End::Limit(passed, Box::new(portrait)));
        // Where the machine is short of something nobody gets time to finish.
        let is_urgent = matches!(passed, Passed::Memory | Passed::Processes | Passed::Written { .. });
        self.order(if is_urgent { Order::Kill } else { Order::End });
    }

    fn order(&mut self, order: Order) {
        if order != Order::Looked {
            self.ordered.get_or_insert((Instant::now(), false));
        }
        if let Some(orders) = &mut self.orders
            && orders.write_all(&[order.byte()]).is_err()
        {
            // It has ended by itself.
            self.orders = None;
        }
    }

    fn finish(mut self) -> Outcome {
        let now = self.now();
        let mut outcome = self.outcome;
        outcome.stalls = self.stalling.since();
        if let Some(leaf) = &self.leaf {
            // These know of all, whether somebody waited for them or not.
            if let Some((user_seconds, system_seconds)) = leaf.cpu_seconds() {
                (outcome.user_seconds, outcome.system_seconds) = (user_seconds, system_seconds);
            }
            // What processes share counts in each of them, and in their group once.
            let charged_bytes = leaf.memory_peak_bytes().unwrap_or(u64::MAX);
            outcome.memory_peak_bytes = outcome.memory_peak_bytes.min(charged_bytes);
            outcome.left_behind.extend(leaf.end());
        }
        // The last word of a command whose sandbox had to be killed.
        outcome.cpu_seconds = self.progress.cpu_seconds().max(outcome.user_seconds + outcome.system_seconds);
        (outcome.still_seconds_max, outcome.silent_seconds_max) = self.progress.longest(now);
        // The kernel may have killed for memory after the last look.
        let is_killed = matches!(self.end, None | Some(End::Exit(1..)))
            && self.memory.as_ref().is_some_and(MemoryBound::has_killed);
        if is_killed {
            self.end =
                Some(End::Limit(Passed::Memory, Box::new(Portrait::default().with_output(&self.tail))));
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

/// How much output there was of late.
struct Drip {
    since: Instant,
    bytes: usize,
    bytes_before: usize,
}

impl Drip {
    /// When output is to be taken after so much of it: who floods is not held up.
    fn next(&mut self, now: Instant, count: usize) -> Instant {
        if now.duration_since(self.since) >= COLLECTING {
            *self = Drip { since: now, bytes: 0, bytes_before: self.bytes };
        }
        self.bytes += count;
        if self.bytes.max(self.bytes_before) < DRIP_BYTES { now + COLLECTING } else { now }
    }
}

/// A count of processes is one of a moment between two others.
const PROCESSES_MARGIN: u32 = 8;
