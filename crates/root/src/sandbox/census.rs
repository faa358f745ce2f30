//! The census: samples the processes of the sandbox repeatedly, at low cost.
//!
//! A process is sampled through a file that stays open as long as the process lives, so that no path is resolved
//! twice. Its command line is read when it is sampled for the second time. The processes that ended last are
//! remembered, so that a process can be attributed to ancestors that are gone. Every sample is timed, and the next
//! one is delayed so that all samples together stay below [`SHARE_OF_CORE_MAX`]: a sandbox with thousands of
//! processes is sampled less often. The cheaper of the last two samples counts, since a host that takes the core away
//! makes a single sample appear expensive.
//!
//! Known downside: a process that lives for less than the sampling interval may never be seen. If such a process is
//! between a daemon and its starter, the starter stays unknown, unless all forks are traced from outside.

use super::{Leftover, Report};
use crate::ProcessStat;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Interval between samples; a shorter memory peak can be missed.
const INTERVAL: Duration = Duration::from_millis(200);
/// The longest interval between samples.
const INTERVAL_MAX: Duration = Duration::from_secs(4);
/// The maximum share of one core that all samples together use.
const SHARE_OF_CORE_MAX: f64 = 0.002;
/// The maximum number of bytes reported of a command line.
const COMMAND_LINE_BYTES_MAX: usize = 200;
/// The maximum number of leftover processes reported.
const NAMED_MAX: usize = 20;
/// The maximum number of ancestors reported for one process.
const PARENTS_MAX: usize = 12;
/// The maximum number of ended processes remembered.
const ENDED_MAX: usize = 4096;
/// The maximum number of ended processes reported with leftover ones.
const ENDED_REPORTED_MAX: usize = 256;
/// The maximum number of `stat` files kept open; those of further processes are opened for each sample.
const FILES_MAX: usize = 512;
/// A line of `/proc/PID/stat` is much shorter.
const STAT_BYTES_MAX: usize = 1024;
/// The maximum number of objects in shared memory reported.
const THINGS_MAX: usize = 20;

/// A process as last sampled.
struct Known {
    /// Its `stat`, unless [`FILES_MAX`] files were open.
    file: Option<File>,
    started_ticks: u64,
    /// Its first observed parent: an orphan gets another one.
    parent: i32,
    name: String,
    line: Option<String>,
    /// The number of the sample that last saw it.
    sample: u64,
}

/// A process that has ended.
struct Ended {
    parent: i32,
    name: String,
    line: Option<String>,
}

/// The processes of a sandbox, from the latest sample.
pub(super) struct Census {
    known: HashMap<i32, Known>,
    ended: HashMap<i32, Ended>,
    /// The ended processes, in the order in which they ended.
    forgotten_next: VecDeque<i32>,
    samples: u64,
    /// `/proc/loadavg`: its last field is the process id assigned last in this pid namespace.
    last_given: Option<File>,
    /// The last process id read from there, and the number of ids assigned after that of this process.
    given: (u64, u64),
    page_bytes: u64,
    ticks_per_second: f64,
    /// The CPU time of the last sample.
    took: Duration,
    interval: Duration,
}

impl Census {
    pub(super) fn new() -> Census {
        // SAFETY: the calls have no preconditions.
        let (page, ticks) = unsafe { (libc::sysconf(libc::_SC_PAGESIZE), libc::sysconf(libc::_SC_CLK_TCK)) };
        Census {
            known: HashMap::new(),
            ended: HashMap::new(),
            forgotten_next: VecDeque::new(),
            samples: 0,
            last_given: File::open("/proc/loadavg").ok(),
            // This process has the first id.
            given: (1, 0),
            page_bytes: page.max(1) as u64,
            ticks_per_second: ticks.max(1) as f64,
            took: Duration::ZERO,
            interval: INTERVAL,
        }
    }

    /// The time from one sample to the next.
    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// The number of processes and threads created in this pid namespace, without this one.
    pub(super) fn created(&mut self) -> u64 {
        let mut text = [0; 128];
        let last = self.last_given.as_ref().and_then(|file| {
            let count = file.read_at(&mut text, 0).ok()?;
            std::str::from_utf8(&text[..count]).ok()?.split_ascii_whitespace().next_back()?.parse().ok()
        });
        if let Some(last) = last {
            let (before, given) = self.given;
            // Ids wrap around to a small one after the largest.
            let more = if last >= before { last - before } else { last };
            self.given = (last, given + more);
        }
        self.given.1
    }

    /// Samples all processes.
    pub(super) fn sample(&mut self) -> Report {
        let began = thread_time();
        self.samples += 1;
        let (mut processes, mut threads, mut runnable, mut pages, mut ticks) = (0, 0, 0, 0, 0);
        for number in numbers() {
            let Some(stat) = self.see(number) else { continue };
            processes += 1;
            threads += stat.threads;
            runnable += u32::from(stat.is_runnable());
            pages += stat.resident_pages;
            ticks += stat.user_ticks + stat.system_ticks + stat.children_ticks;
        }
        self.remove_ended();
        let report = Report::Sample {
            processes,
            threads,
            runnable,
            memory_bytes: pages * self.page_bytes,
            cpu_seconds: ticks as f64 / self.ticks_per_second + waited_for_seconds(),
            created: self.created(),
        };
        let took = thread_time().saturating_sub(began);
        self.interval = took.min(self.took).div_f64(SHARE_OF_CORE_MAX).clamp(INTERVAL, INTERVAL_MAX);
        self.took = took;
        report
    }

    /// Samples one process; `None` if it is gone.
    fn see(&mut self, number: i32) -> Option<ProcessStat> {
        let has_room = self.known.len() < FILES_MAX;
        let mut text = [0; STAT_BYTES_MAX];
        let sample = self.samples;
        if let Some(known) = self.known.get_mut(&number) {
            let read = match &known.file {
                Some(file) => file.read_at(&mut text, 0).ok(),
                None => open_stat(number).and_then(|file| file.read_at(&mut text, 0).ok()),
            };
            let stat = read.and_then(|count| ProcessStat::parse(&text[..count]));
            // Another process may have the same id by now.
            if let Some(stat) = stat.filter(|stat| stat.started_ticks == known.started_ticks) {
                known.sample = sample;
                if known.name != stat.name {
                    known.name.clone_from(&stat.name);
                    known.line = None;
                } else if known.line.is_none() {
                    known.line = Some(command_line(number, &stat.name));
                }
                return Some(stat);
            }
            self.end(number);
        }
        let file = open_stat(number)?;
        let count = file.read_at(&mut text, 0).ok()?;
        let stat = ProcessStat::parse(&text[..count])?;
        let known = Known {
            file: has_room.then_some(file),
            started_ticks: stat.started_ticks,
            parent: stat.parent,
            name: stat.name.clone(),
            line: None,
            sample,
        };
        self.known.insert(number, known);
        Some(stat)
    }

    /// Moves the processes that the latest sample did not see to the ended ones.
    fn remove_ended(&mut self) {
        let gone: Vec<i32> = self
            .known
            .iter()
            .filter(|(_, known)| known.sample != self.samples)
            .map(|(number, _)| *number)
            .collect();
        for number in gone {
            self.end(number);
        }
    }

    fn end(&mut self, number: i32) {
        let Some(known) = self.known.remove(&number) else { return };
        let ended = Ended { parent: known.parent, name: known.name, line: known.line };
        if self.ended.insert(number, ended).is_none() {
            self.forgotten_next.push_back(number);
        }
        while self.forgotten_next.len() > ENDED_MAX {
            if let Some(oldest) = self.forgotten_next.pop_front() {
                self.ended.remove(&oldest);
            }
        }
    }

    /// The first few processes that are still alive, with their ancestors.
    pub(super) fn leftovers(&mut self) -> Vec<Leftover> {
        self.sample();
        let mut left = Vec::new();
        for number in numbers() {
            let Some(stat) = self.see(number) else { continue };
            if stat.has_ended() || left.len() == NAMED_MAX {
                continue;
            }
            let directory = std::fs::read_link(format!("/proc/{number}/cwd")).ok();
            left.push(Leftover {
                number,
                line: command_line(number, &stat.name),
                directory: directory.map(|path| path.to_string_lossy().into_owned()),
                started_by: self.parents(number),
            });
        }
        left
    }

    /// The processes with a recorded command line that ended last.
    pub(super) fn ended_lines(&self) -> Vec<(i32, String)> {
        let latest = self.forgotten_next.iter().rev();
        let known = latest.filter_map(|number| Some((*number, self.ended.get(number)?.line.clone()?)));
        known.take(ENDED_REPORTED_MAX).collect()
    }

    /// The observed ancestors of a process, nearest first.
    fn parents(&self, number: i32) -> Vec<String> {
        let mut parents = Vec::new();
        let mut next = self.known.get(&number).map_or(1, |known| known.parent);
        while next > 1 && parents.len() < PARENTS_MAX {
            if let Some(known) = self.known.get(&next) {
                let line = known.line.clone().unwrap_or_else(|| command_line(next, &known.name));
                parents.push(format!("{line} ({next})"));
                next = known.parent;
            } else if let Some(ended) = self.ended.get(&next) {
                parents.push(format!("{} ({next}, ended)", ended.line.as_ref().unwrap_or(&ended.name)));
                next = ended.parent;
            } else {
                parents.push(format!("({next}, ended)"));
                break;
            }
        }
        parents
    }
}

/// The other processes of the sandbox: `/proc` shows only these.
fn numbers() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|number| *number != 1)
}

fn open_stat(number: i32) -> Option<File> {
    File::open(format!("/proc/{number}/stat")).ok()
}

/// The command line of a process, or its name: during execve(2) the command line is empty.
fn command_line(number: i32, name: &str) -> String {
    let mut bytes = [0; COMMAND_LINE_BYTES_MAX];
    let file = File::open(format!("/proc/{number}/cmdline"));
    let count = file.and_then(|file| file.read_at(&mut bytes, 0)).unwrap_or(0);
    let line = String::from_utf8_lossy(&bytes[..count]).replace('\0', " ").trim().to_owned();
    if line.is_empty() { name.to_owned() } else { line }
}

/// User and system time of all children that this process has waited for, including their waited-for children.
fn waited_for_seconds() -> f64 {
    seconds_of(libc::RUSAGE_CHILDREN)
}

/// User and system time of this process.
pub(super) fn own_seconds() -> f64 {
    seconds_of(libc::RUSAGE_SELF)
}

fn seconds_of(whose: libc::c_int) -> f64 {
    // SAFETY: an all-zero rusage is valid and outlives the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(whose, &mut usage);
        usage
    };
    super::system::cpu_seconds(&usage)
}

fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.clamp(0, 999_999_999) as u32)
}

/// Bytes that this process and all its waited-for children read from disks and wrote to them: the kernel adds the
/// counters of a process to those of its parent when the parent waits for it. A kernel without task I/O accounting does
/// not have the file.
///
/// Call it only after all other processes have ended: a process that changed its user cannot read its own file
/// (proc(5)) until it makes itself dumpable, and then others can read it too.
pub(super) fn bytes_read_and_written() -> (Option<u64>, Option<u64>) {
    // SAFETY: the call takes only integers.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
    read_and_written(&std::fs::read_to_string("/proc/self/io").unwrap_or_default())
}

/// Parses the two counters in the text of `/proc/PID/io`.
fn read_and_written(text: &str) -> (Option<u64>, Option<u64>) {
    let field = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.and_then(|value| value.trim().parse().ok())
    };
    (field("read_bytes"), field("write_bytes"))
}

/// Objects that the command left in shared memory: files in `/dev/shm`, and System V IPC objects. They exist only in
/// this sandbox and go with it, which a program that expects to find them later does not know.
pub(super) fn shared_memory_left() -> Vec<String> {
    let mut things = Vec::new();
    for entry in std::fs::read_dir("/dev/shm").into_iter().flatten().flatten().take(THINGS_MAX) {
        let bytes = entry.metadata().map_or(0, |metadata| metadata.len());
        things.push(format!("/dev/shm/{} of {bytes} bytes", entry.file_name().to_string_lossy()));
    }
    for (file, name) in [("shm", "shared memory segment"), ("sem", "semaphore set"), ("msg", "message queue")]
    {
        let text = std::fs::read_to_string(format!("/proc/sysvipc/{file}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let mut fields = line.split_ascii_whitespace();
            if let (Some(key), Some(number)) = (fields.next(), fields.next()) {
                things.push(format!("System V {name} {number} with key {key}"));
            }
        }
    }
    things.truncate(THINGS_MAX);
    things
}
