//! Runs one command of a stage in its sandbox, and knows what became of it.
//!
//! [`run`] pumps the output into a bounded [`Log`], reads the sandbox's reports, and ends the whole tree
//! when a limit is passed or when it is told to. It returns a [`Outcome`] that names things: the exit
//! code, the limit, the processes that hung or were left behind. Decisions (is the command failed, is it
//! tried again) are the caller's.
//!
//! Known downside: memory is sampled, five times a second, as the sum of resident memory; what several
//! processes share counts in each.

mod capture;
mod clock;
mod groups;
pub mod jobserver;
mod log;
pub mod pressure;
mod tree;
pub mod weight;

pub use capture::{CaptureEnd, CaptureLimits, Captured, capture};
pub use clock::{now_seconds, own_cpu_seconds};
pub use log::{Log, LogFacts, LogLimits, read_log};

use kilnyard_root::{Report, Sandbox};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Limits of one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest it may run.
    pub wall_seconds_max: u64,
    /// The longest it may be silent.
    pub idle_seconds_max: u64,
    /// The most memory that its processes may hold; not bounded where it is absent.
    pub memory_bytes_max: Option<u64>,
}

/// What the processes of a command are doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// How many there are.
    pub processes: u32,
    /// How many of them run, or could run if they had a core.
    pub runnable: u32,
    /// The sum of their resident memory; shared pages count in each.
    pub memory_bytes: u64,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself, with this exit code (128 and the signal, where one killed it).
    Exit(i32),
    /// It ran longer than its limit; the processes that were running then.
    WallLimit(Vec<String>),
    /// It printed nothing for longer than its limit; the processes that were running then.
    IdleLimit(Vec<String>),
    /// Its processes held more memory than its limit; those that were running then.
    MemoryLimit(Vec<String>),
    /// The caller cancelled it.
    Cancelled,
    /// The log could not be written: this is no fault of the build.
    LogFailed(String),
    /// The sandbox could not be made or was killed from outside: this is no fault of the build.
    SandboxFailed(String),
}

/// What a command did and used.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// From start to end.
    pub wall_seconds: f64,
    /// User and system time of all its processes.
    pub cpu_seconds: f64,
    /// The largest sum of resident memory that was sampled.
    pub memory_peak_bytes: u64,
    /// Processes that it left running; they were ended.
    pub left_behind: Vec<String>,
}

/// How often limits and the cancel flag are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// How much output is taken at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Runs the sandbox to its end; what it prints goes into `output`. `enter` is called with the number of the sandbox's
/// outer process before that one starts any other; `observe` is told what its processes are doing.
pub fn run(
    sandbox: &Sandbox,
    output: &mut (dyn Write + Send),
    limits: Limits,
    cancel: &AtomicBool,
    enter: &dyn Fn(u32),
    observe: &mut dyn FnMut(Sample),
) -> Outcome {
    let started = Instant::now();
    let mut outcome = Outcome {
        end: End::Cancelled,
        wall_seconds: 0.0,
        cpu_seconds: 0.0,
        memory_peak_bytes: 0,
        left_behind: Vec::new(),
    };
    match sandbox.spawn_after(enter) {
        Ok(mut child) => outcome.end = watch(&mut child, output, limits, cancel, observe, &mut outcome),
        Err(error) => outcome.end = End::SandboxFailed(format!("failed to start a sandbox: {error}")),
    }
    outcome.wall_seconds = started.elapsed().as_secs_f64();
    outcome
}

fn watch(
    child: &mut Child,
    log: &mut (dyn Write + Send),
    limits: Limits,
    cancel: &AtomicBool,
    observe: &mut dyn FnMut(Sample),
    outcome: &mut Outcome,
) -> End {
    let (Some(output), Some(errors)) = (child.stdout.take(), child.stderr.take()) else {
        return End::SandboxFailed("the sandbox has no output".to_owned());
    };
    let started = Instant::now();
    let last_output_millis = AtomicU64::new(0);
    let (sender, reports) = mpsc::channel();
    let outer = child.id();
    std::thread::scope(|scope| {
        let pump = scope.spawn(|| pump(output, log, started, &last_output_millis));
        scope.spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                let report = serde_json::from_str::<Report>(&line).map_err(|_| line);
                if sender.send(report).is_err() {
                    break;
                }
            }
        });
        let mut end = None;
        let mut failure = None;
        loop {
            match reports.recv_timeout(LOOK_INTERVAL) {
                Ok(Ok(Report::Ended { code, cpu_seconds, .. })) => {
                    outcome.cpu_seconds = cpu_seconds;
                    end.get_or_insert(End::Exit(code));
                }
                Ok(Ok(Report::Sample { processes, runnable, memory_bytes, cpu_seconds })) => {
                    // The last word of a command that is ended before it can be waited for.
                    outcome.cpu_seconds = outcome.cpu_seconds.max(cpu_seconds);
                    outcome.memory_peak_bytes = outcome.memory_peak_bytes.max(memory_bytes);
                    observe(Sample { processes, runnable, memory_bytes });
                    let is_over = |bytes| limits.memory_bytes_max.is_some_and(|max| bytes > max);
                    // What processes share counts in each of them, so that the sum is looked at again.
                    if end.is_none() && is_over(memory_bytes) && is_over(tree::memory_bytes(outer)) {
                        end = Some(End::MemoryLimit(tree::below(outer)));
                        let _ = child.kill();
                    }
                }
                Ok(Ok(Report::LeftBehind { processes })) => {
                    outcome.left_behind =
                        processes.into_iter().map(|(number, line)| format!("{line} ({number})")).collect();
                }
                Ok(Ok(Report::Failed { step, error, .. })) => {
                    failure.get_or_insert(format!("failed to {step}: {error}"));
                }
                Ok(Ok(Report::Started)) => {}
                Ok(Err(line)) => {
                    failure.get_or_insert(line);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if end.is_none() {
                end = limit_passed(limits, started, &last_output_millis, cancel, outer);
                if end.is_some() {
                    // The kernel ends everything below; the loop goes on until the last report is read.
                    let _ = child.kill();
                }
            }
        }
        let _ = child.wait();
        if let Ok(Err(error)) = pump.join() {
            return End::LogFailed(error.to_string());
        }
        match (end, failure) {
            (
                Some(end @ (End::WallLimit(_) | End::IdleLimit(_) | End::MemoryLimit(_) | End::Cancelled)),
                _,
            ) => end,
            (_, Some(failure)) => End::SandboxFailed(failure),
            (Some(end), None) => end,
            (None, None) => End::SandboxFailed("the sandbox was killed from outside".to_owned()),
        }
    })
}

fn limit_passed(
    limits: Limits,
    started: Instant,
    last_output_millis: &AtomicU64,
    cancel: &AtomicBool,
    outer: u32,
) -> Option<End> {
    if cancel.load(Ordering::Relaxed) {
        return Some(End::Cancelled);
    }
    let elapsed = started.elapsed();
    if elapsed.as_secs() >= limits.wall_seconds_max {
        return Some(End::WallLimit(tree::below(outer)));
    }
    let silent = elapsed.saturating_sub(Duration::from_millis(last_output_millis.load(Ordering::Relaxed)));
    (silent.as_secs() >= limits.idle_seconds_max).then(|| End::IdleLimit(tree::below(outer)))
}

/// Moves output into the log. After an error it goes on reading, so that the command does not block.
fn pump(
    mut output: ChildStdout,
    log: &mut (dyn Write + Send),
    started: Instant,
    last_output_millis: &AtomicU64,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut outcome = Ok(());
    loop {
        match output.read(&mut chunk) {
            Ok(0) => return outcome,
            Ok(count) => {
                last_output_millis.store(started.elapsed().as_millis() as u64, Ordering::Relaxed);
                if outcome.is_ok() {
                    outcome = log.write_all(&chunk[..count]);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
