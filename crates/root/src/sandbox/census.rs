//! Who is in the sandbox: its processes, counted again and again, as cheaply as can be.
//!
//! A process is looked at through a file that stays open as long as it lives, so that nothing is looked up twice; its
//! command line is read once it has been there for two looks. Of those that ended the latest are remembered, so that it
//! can be said who started a process whose parents are gone. Every look is timed, and the next one is as much later as keeps
//! all looks together below [`SHARE_OF_CORE_MAX`]: a sandbox with thousands of processes is looked at less often. The
//! cheaper one of two looks counts, since a host that takes its core away makes a single one seem dear.
//!
//! Known downside: who lives for less than a look was never seen. A process of that kind between a daemon and who started
//! it hides that one, unless somebody outside heard of all forks.

use super::{Leftover, Report};
use crate::ProcessStat;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// How often processes are counted: a peak of memory shorter than this can be missed.
const INTERVAL: Duration = Duration::from_millis(200);
/// The longest between two looks.
const INTERVAL_MAX: Duration = Duration::from_secs(4);
/// The share of one core that all looks together take at the most.
const SHARE_OF_CORE_MAX: f64 = 0.002;
/// How many bytes of a command line are told.
const COMMAND_LINE_BYTES_MAX: usize = 200;
/// How many processes left behind are named.
const NAMED_MAX: usize = 20;
/// How many parents of one are named.
const PARENTS_MAX: usize = 12;
/// How many of those that ended are remembered.
const ENDED_MAX: usize = 4096;
/// How many of these are told when somebody is left behind.
const ENDED_TOLD_MAX: usize = 256;
/// Of how many files open at once it is the owner at the most; other processes are opened at each look.
const FILES_MAX: usize = 512;
/// A line of `/proc/PID/stat` is much shorter.
const STAT_BYTES_MAX: usize = 1024;
/// How many things left in shared memory are named.
const THINGS_MAX: usize = 20;

/// A process as it was seen last.
struct Known {
    /// Its `stat`, if there was room for one more open file.
    file: Option<File>,
    started_ticks: u64,
    /// Who was its parent when it was first seen: an orphan gets another one.
    parent: i32,
    name: String,
    line: Option<String>,
    /// The look in which it was seen last.
    look: u64,
}

/// What is remembered of one that ended.
struct Ended {
    parent: i32,
    name: String,
    line: Option<String>,
}

/// See the module.
pub(super) struct Census {
    known: HashMap<i32, Known>,
    ended: HashMap<i32, Ended>,
    /// In the order in which they ended.
    forgotten_next: VecDeque<i32>,
    looks: u64,
    /// `/proc/loadavg`: its last number is the one that was given last in this pid namespace.
    last_given: Option<File>,
    /// What that number was, and how many were given besides that of this process.
    given: (u64, u64),
    page_bytes: u64,
    ticks_per_second: f64,
    /// The CPU time of the last look.
    took: Duration,
    interval: Duration,
}

impl Census {
    pub(super) fn new() -> Census {
        // SAFETY: no preconditions.
        let (page, ticks) = unsafe { (libc::sysconf(libc::_SC_PAGESIZE), libc::sysconf(libc::_SC_CLK_TCK)) };
        Census {
            known: HashMap::new(),
            ended: HashMap::new(),
            forgotten_next: VecDeque::new(),
            looks: 0,
            last_given: File::open("/proc/loadavg").ok(),
            // Its own number was the first.
            given: (1, 0),
            page_bytes: page.max(1) as u64,
            ticks_per_second: ticks.max(1) as f64,
            took: Duration::ZERO,
            interval: INTERVAL,
        }
    }

    /// When the next look is due after one.
    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// How many processes and threads were begun in this pid namespace besides this one.
    pub(super) fn created(&mut self) -> u64 {
        let mut text = [0; 128];
        let last = self.last_given.as_ref().and_then(|file| {
            let count = file.read_at(&mut text, 0).ok()?;
            std::str::from_utf8(&text[..count]).ok()?.split_ascii_whitespace().next_back()?.parse().ok()
        });
        if let Some(last) = last {
            let (before, given) = self.given;
            // Numbers begin again at a small one when the largest was given.
            let more = if last >= before { last - before } else { last };
            self.given = (last, given + more);
        }
        self.given.1
    }

    /// Looks at all of them.
    pub(super) fn look(&mut self) -> Report {
        let began = thread_time();
        self.looks += 1;
        let (mut processes, mut threads, mut runnable, mut pages, mut ticks) = (0, 0, 0, 0, 0);
        for number in numbers() {
            let Some(stat) = self.see(number) else { continue };
            processes += 1;
            threads += stat.threads;
            runnable += u32::from(stat.is_runnable());
            pages += stat.resident_pages;
            ticks += stat.user_ticks + stat.system_ticks + stat.children_ticks;
        }
        self.bury();
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

    /// Looks at one; none if it has gone.
    fn see(&mut self, number: i32) -> Option<ProcessStat> {
        let has_room = self.known.len() < FILES_MAX;
        let mut text = [0; STAT_BYTES_MAX];
        let look = self.looks;
        if let Some(known) = self.known.get_mut(&number) {
            let read = match &known.file {
                Some(file) => file.read_at(&mut text, 0).ok(),
                None => open_stat(number).and_then(|file| file.read_at(&mut text, 0).ok()),
            };
            let stat = read.and_then(|count| ProcessStat::parse(&text[..count]));
            // The same number may be another process now.
            if let Some(stat) = stat.filter(|stat| stat.started_ticks == known.started_ticks) {
                known.look = look;
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
            look,
        };
        self.known.insert(number, known);
        Some(stat)
    }

    /// Those who were not seen in this look have ended.
    fn bury(&mut self) {
        let gone: Vec<i32> = self
            .known
            .iter()
            .filter(|(_, known)| known.look != self.looks)
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

    /// Those who are still there, the first few, each with who started it.
    pub(super) fn leftovers(&mut self) -> Vec<Leftover> {
        self.look();
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

    /// Of those that ended the latest of which more than the name is known.
    pub(super) fn ended_lines(&self) -> Vec<(i32, String)> {
        let latest = self.forgotten_next.iter().rev();
        let known = latest.filter_map(|number| Some((*number, self.ended.get(number)?.line.clone()?)));
        known.take(ENDED_TOLD_MAX).collect()
    }

    /// Who started a process, the nearest first, as far as it was seen.
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

/// The processes of the sandbox besides this one: `/proc` shows no others.
fn numbers() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|number| *number != 1)
}

fn open_stat(number: i32) -> Option<File> {
    File::open(format!("/proc/{number}/stat")).ok()
}

/// Its command line; in the moment in which it becomes another program it has none, and its name stands for it.
fn command_line(number: i32, name: &str) -> String {
    let mut bytes = [0; COMMAND_LINE_BYTES_MAX];
    let file = File::open(format!("/proc/{number}/cmdline"));
    let count = file.and_then(|file| file.read_at(&mut bytes, 0)).unwrap_or(0);
    let line = String::from_utf8_lossy(&bytes[..count]).replace('\0', " ").trim().to_owned();
    if line.is_empty() { name.to_owned() } else { line }
}

/// User and system time of all that this process has waited for, with what they have waited for.
fn waited_for_seconds() -> f64 {
    seconds_of(libc::RUSAGE_CHILDREN)
}

/// User and system time of this process.
pub(super) fn own_seconds() -> f64 {
    seconds_of(libc::RUSAGE_SELF)
}

fn seconds_of(whose: libc::c_int) -> f64 {
    // SAFETY: an all-zero rusage is a valid one, and lives to the end of the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(whose, &mut usage);
        usage
    };
    super::system::cpu_seconds(&usage)
}

fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time lives to the end of the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.clamp(0, 999_999_999) as u32)
}

/// What this process and all that it has waited for read from disks and wrote to them: the kernel adds the numbers of a
/// process to those of its parent when that one waits for it. A kernel without task I/O accounting has no such file.
pub(super) fn bytes_read_and_written() -> (Option<u64>, Option<u64>) {
    read_and_written(&std::fs::read_to_string("/proc/self/io").unwrap_or_default())
}

/// The two counters of the text of `/proc/PID/io`.
fn read_and_written(text: &str) -> (Option<u64>, Option<u64>) {
    let field = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.and_then(|value| value.trim().parse().ok())
    };
    (field("read_bytes"), field("write_bytes"))
}

/// What the command left in memory that processes share: files of `/dev/shm`, and what System V calls its own. It is
/// this sandbox's alone and goes with it; a program that counts on finding it later does not know that.
pub(super) fn things_left() -> Vec<String> {
    let mut things = Vec::new();
    for entry in std::fs::read_dir("/dev/shm").into_iter().flatten().flatten().take(THINGS_MAX) {
        let bytes = entry.metadata().map_or(0, |metadata| metadata.len());
        things.push(format!("/dev/shm/{} of {bytes} bytes", entry.file_name().to_string_lossy()));
    }
    for (file, name) in
        [("shm", "shared memory segment"), ("sem", "set of semaphores"), ("msg", "message queue")]
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
