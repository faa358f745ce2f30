//! What the processes of a command are doing at one moment, to show what hangs and on what.
//!
//! Everything is read from `/proc`, outside the sandbox, so numbers are those of the machine. Any process may vanish
//! or become another program between two reads; what cannot be read is left out. What is visible depends on the
//! reader's ids ([`crate::inspector`]); only root sees the kernel stack.

use crate::tree::{self, Member};
use crate::{Passed, calls};
use kilnyard_root::ProcessStat;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// How many processes are shown.
const PROCESSES_MAX: usize = 40;
/// How many processes a sentence names.
const NAMED_MAX: usize = 3;
/// How much of a command line is shown.
const LINE_CHARS_MAX: usize = 200;
/// How many open files of a process are shown, and how many are inspected.
const FILES_MAX: usize = 8;
const FILES_INSPECTED_MAX: usize = 1024;
/// How many frames of the kernel stack are shown.
const STACK_MAX: usize = 6;
/// How much of a file of `/proc` is read. A command line may take megabytes.
const READ_BYTES_MAX: u64 = 64 << 10;
/// How many of the last lines of output are shown.
const OUTPUT_LINES_MAX: usize = 10;

/// The state of a process that has ended, but has not been waited for.
const HAS_ENDED: &str = "is a zombie";
/// The number of children from which a parent is named for them.
const MANY: usize = 8;
/// The minimum age of a process that keeps starting others, as a share of the oldest process's age.
const SHARE_OF_AGE_MIN: f64 = 0.2;

/// See the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The processes shown, parents before children.
    pub processes: Vec<ObservedProcess>,
    /// How many processes are not shown.
    pub processes_more: usize,
    /// The last lines of output.
    pub output: Vec<String>,
}

/// One process of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ObservedProcess {
    /// Its number on this machine.
    pub number: i32,
    /// Its depth below the command.
    pub depth: usize,
    /// Its command line, or its name if it has none.
    pub line: String,
    /// Its scheduler state, in words.
    pub state: String,
    /// Whether it has a living child among the processes shown.
    pub is_parent: bool,
    /// The number of its children, including those not shown.
    pub children: usize,
    /// How many of its children are zombies.
    pub children_ended: usize,
    /// The process id of its parent on this machine.
    pub parent: i32,
    /// Time since its start.
    pub age_seconds: f64,
    /// Its user and system time.
    pub cpu_seconds: f64,
    /// The number of its threads, main thread included.
    pub threads: u32,
    /// The system call that it waits in, and the subject of the call.
    pub waits: Option<String>,
    /// The kernel function that it waits in (`wchan`).
    pub channel: Option<String>,
    /// The kernel stack, innermost frame first; empty unless read as root.
    pub stack: Vec<String>,
    /// Informative open files: pipes, sockets, terminals, and the file that it waits for.
    pub files: Vec<String>,
}

impl Snapshot {
    /// All processes below a sandbox's outer process, without output. `log` is the pipe of the output, as links in
    /// `/proc` name it.
    pub(crate) fn take(outer: u32, log: Option<&str>) -> Snapshot {
        let members = tree::below(outer);
        let shown = &shown(&members)[..];
        let files: Vec<Vec<(i32, String)>> =
            shown.iter().map(|member| descriptors(member.stat.number)).collect();
        let mut holders: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
        for (member, files) in shown.iter().zip(&files) {
            for (_, target) in files {
                let holders = holders.entry(target).or_default();
                if holders.last() != Some(&member.stat.number) {
                    holders.push(member.stat.number);
                }
            }
        }
        let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
        let around = Around { members: shown, holders, log, locks: &locks, uptime_seconds: uptime_seconds() };
        let processes = shown.iter().zip(&files).map(|(member, files)| around.sight(member, files));
        Snapshot {
            processes: with_children(processes.collect(), &members),
            processes_more: members.len() - shown.len(),
            output: Vec::new(),
        }
    }

    /// The processes alone, without reading their memory: with names instead of command lines.
    pub(crate) fn outline(outer: u32) -> Snapshot {
        let members = tree::below(outer);
        let shown = &shown(&members)[..];
        let uptime_seconds = uptime_seconds();
        let processes = shown.iter().map(|member| outline(member, shown, uptime_seconds));
        Snapshot {
            processes: with_children(processes.collect(), &members),
            processes_more: members.len() - shown.len(),
            output: Vec::new(),
        }
    }

    /// Adds the last lines of `output`.
    pub(crate) fn with_output(self, output: &[u8]) -> Snapshot {
        Snapshot { output: last_lines(output), ..self }
    }

    /// One sentence: the process responsible for the exceeded limit, and what the others do. Zombies are left out,
    /// and so are processes that only wait for their children.
    pub fn summary(&self, passed: Passed) -> String {
        let first = match passed {
            Passed::Processes => self.parent_of_most(),
            Passed::Silent => self.parent_of_youngest(),
            _ => None,
        };
        let is_first = |process: &ObservedProcess| first.is_some_and(|first| first.number == process.number);
        let last =
            |process: &&ObservedProcess| !process.is_parent && !process.has_ended() && !is_first(process);
        let others = self.processes.iter().filter(last);
        let count = others.clone().count() + usize::from(first.is_some());
        let named: Vec<String> =
            first.into_iter().chain(others).take(NAMED_MAX).map(ObservedProcess::summary).collect();
        let more = count - named.len() + self.processes_more;
        match (named.is_empty(), more) {
            (true, 0) => "no process was left".to_owned(),
            (true, more) => format!("{more} processes"),
            (false, 0) => named.join("; "),
            (false, more) => format!("{}; and {more} more", named.join("; ")),
        }
    }

    /// The process with the most children, if it has many.
    fn parent_of_most(&self) -> Option<&ObservedProcess> {
        self.processes
            .iter()
            .filter(|process| process.children >= MANY)
            .max_by_key(|process| process.children)
    }

    /// The parent of the youngest process, or the nearest ancestor that has existed for some time: the process that
    /// keeps starting others.
    fn parent_of_youngest(&self) -> Option<&ObservedProcess> {
        let age = |process: &&ObservedProcess| process.age_seconds;
        let oldest_seconds = self.processes.iter().map(|process| age(&process)).fold(0.0, f64::max);
        let youngest = self.processes.iter().rev().min_by(|one, other| age(one).total_cmp(&age(other)))?;
        let mut process = youngest;
        // A process that was just started may itself have started others. A virtual machine may say that they are in a cycle.
        for _ in 0..self.processes.len() {
            if process.age_seconds >= oldest_seconds * SHARE_OF_AGE_MIN {
                break;
            }
            process = self.processes.iter().find(|other| other.number == process.parent)?;
        }
        (process.number != youngest.number).then_some(process)
    }

    /// The full picture, as lines for a log.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for process in &self.processes {
            process.write(&mut lines);
        }
        if self.processes_more > 0 {
            lines.push(format!("and {} more processes", self.processes_more));
        }
        if !self.output.is_empty() {
            lines.push("last output:".to_owned());
            lines.extend(self.output.iter().map(|line| format!("  {line}")));
        }
        lines
    }
}

impl ObservedProcess {
    fn has_ended(&self) -> bool {
        self.state == HAS_ENDED
    }

    fn summary(&self) -> String {
        let mut what = match &self.waits {
            Some(waits) => format!("{}: {waits}", self.state),
            None => self.state.clone(),
        };
        if self.children >= MANY || self.children_ended > 0 {
            let _ = write!(what, "; has {} children", self.children);
        }
        if self.children_ended > 0 {
            let _ = write!(what, ", {} of them zombies", self.children_ended);
        }
        format!("{} ({}) [{what}]", self.line, self.number)
    }

    fn write(&self, lines: &mut Vec<String>) {
        let indent = "  ".repeat(self.depth);
        let mut line = format!("{indent}{} ({}) {}", self.line, self.number, self.state);
        let _ = write!(line, ", {:.0} s old, {:.2} s of CPU time", self.age_seconds, self.cpu_seconds);
        if self.threads > 1 {
            let _ = write!(line, ", {} threads", self.threads);
        }
        lines.push(line);
        let mut more = |text: String| lines.push(format!("{indent}  | {text}"));
        if let Some(waits) = &self.waits {
            more(format!("in {waits}"));
        }
        match (&self.channel, self.stack.is_empty()) {
            (_, false) => more(format!("in the kernel: {}", self.stack.join(" < "))),
            (Some(channel), true) => more(format!("in the kernel: {channel}")),
            (None, true) => {}
        }
        for file in &self.files {
            more(format!("has {file}"));
        }
    }
}

/// The context in which a process is described.
struct Around<'a> {
    members: &'a [Member],
    /// The processes that have a file open, by the target of its links.
    holders: BTreeMap<&'a str, Vec<i32>>,
    log: Option<&'a str>,
    locks: &'a str,
    uptime_seconds: f64,
}

impl Around<'_> {
    fn sight(&self, member: &Member, files: &[(i32, String)]) -> ObservedProcess {
        let ProcessStat { number, .. } = member.stat;
        let read = |name: &str| read(Path::new(&format!("/proc/{number}/{name}")));
        let call = calls::parse(&read("syscall"));
        let awaited = call.as_ref().and_then(|call| call.descriptor);
        let stack = read("stack");
        let stack =
            stack.lines().filter_map(|line| line.split(' ').nth(1)?.split('+').next()).take(STACK_MAX);
        let waits = call.map(|call| {
            let mut waits = call.name.clone();
            if let Some(target) = call.descriptor.and_then(|wanted| target_of(files, wanted)) {
                let _ = write!(waits, " of {}", self.describe(number, target));
            }
            if let Some(child) = call.process {
                // This number is the one inside the sandbox; outside it is different.
                let _ = write!(waits, " for child {child}");
            }
            if let Some(holder) = self.holder_of_lock(number) {
                let _ = write!(waits, ", for a lock held by {holder}");
            }
            waits
        });
        let informative = files.iter().filter(|(descriptor, target)| {
            let is_of_note =
                ["pipe:", "socket:", "/dev/tty", "/dev/pts/"].iter().any(|kind| target.starts_with(kind));
            awaited == Some(*descriptor) || (is_of_note && Some(target.as_str()) != self.log)
        });
        let described =
            |(descriptor, target): &(i32, String)| format!("{descriptor}: {}", self.describe(number, target));
        ObservedProcess {
            line: line_of(&member.stat),
            waits,
            channel: Some(read("wchan")).filter(|channel| !matches!(&channel[..], "" | "0")),
            stack: stack.map(str::to_owned).collect(),
            files: informative.take(FILES_MAX).map(described).collect(),
            ..outline(member, self.members, self.uptime_seconds)
        }
    }

    /// A file, and the other processes that have it open.
    fn describe(&self, number: i32, target: &str) -> String {
        if Some(target) == self.log {
            return "the log".to_owned();
        }
        let others = self.holders.get(target).into_iter().flatten().filter(|other| **other != number);
        let others: Vec<String> = others.take(NAMED_MAX).map(i32::to_string).collect();
        let shared = target.starts_with("pipe:") && !others.is_empty();
        let own = target.starts_with("pipe:") && others.is_empty();
        match (shared, own) {
            (true, _) => format!("{target}, also open in {}", others.join(", ")),
            (_, true) => format!("{target}, not open in any other process"),
            _ => target.to_owned(),
        }
    }

    /// The process that holds the lock that `number` waits for.
    fn holder_of_lock(&self, number: i32) -> Option<String> {
        let holder = holder_of_lock(self.locks, number)?;
        let known = self.members.iter().find(|member| member.stat.number == holder);
        Some(
            known.map_or_else(
                || format!("({holder})"),
                |member| format!("{} ({holder})", line_of(&member.stat)),
            ),
        )
    }
}

/// The processes to show: the first ones, with only as many zombies as there is room for.
fn shown(members: &[Member]) -> Vec<Member> {
    let living = members.iter().filter(|member| !member.stat.has_ended()).count();
    let mut room_for_ended = PROCESSES_MAX.saturating_sub(living).min(NAMED_MAX);
    let mut is_shown = |member: &&Member| {
        let has_room = !member.stat.has_ended() || room_for_ended > 0;
        room_for_ended -= usize::from(has_room && member.stat.has_ended());
        has_room
    };
    members.iter().filter(|member| is_shown(member)).take(PROCESSES_MAX).cloned().collect()
}

/// Adds the number of children of each process, counting those not shown.
fn with_children(mut processes: Vec<ObservedProcess>, members: &[Member]) -> Vec<ObservedProcess> {
    let mut children: HashMap<i32, (usize, usize)> = HashMap::new();
    for member in members {
        let (all, ended) = children.entry(member.stat.parent).or_default();
        *all += 1;
        *ended += usize::from(member.stat.has_ended());
    }
    for process in &mut processes {
        (process.children, process.children_ended) =
            children.get(&process.number).copied().unwrap_or_default();
    }
    processes
}

/// The facts from `/proc/PID/stat`.
fn outline(member: &Member, members: &[Member], uptime_seconds: f64) -> ObservedProcess {
    let (stat, ticks) = (&member.stat, ticks_per_second());
    ObservedProcess {
        number: stat.number,
        depth: member.depth,
        line: stat.name.clone(),
        state: words_of(stat.state).to_owned(),
        is_parent: members.iter().any(|other| other.stat.parent == stat.number && !other.stat.has_ended()),
        parent: stat.parent,
        age_seconds: (uptime_seconds - stat.started_ticks as f64 / ticks).max(0.0),
        cpu_seconds: (stat.user_ticks + stat.system_ticks) as f64 / ticks,
        threads: stat.threads,
        ..ObservedProcess::default()
    }
}

/// Parses the text of `/proc/locks` (proc_locks(5)): one line per lock, followed by the processes that wait for it,
/// marked by an arrow.
fn holder_of_lock(locks: &str, waiting: i32) -> Option<i32> {
    let number_in = |line: &str, at: usize| line.split_ascii_whitespace().nth(at)?.parse::<i32>().ok();
    let mut holder = None;
    for line in locks.lines() {
        if line.split_ascii_whitespace().nth(1) == Some("->") {
            if number_in(line, 5) == Some(waiting) {
                return holder;
            }
        } else {
            holder = number_in(line, 4);
        }
    }
    None
}

fn target_of(files: &[(i32, String)], wanted: i32) -> Option<&str> {
    files.iter().find(|(descriptor, _)| *descriptor == wanted).map(|(_, target)| target.as_str())
}

/// The descriptors of a process in order, with the targets of their links.
fn descriptors(number: i32) -> Vec<(i32, String)> {
    let entries = fs::read_dir(format!("/proc/{number}/fd")).into_iter().flatten().flatten();
    let mut found: Vec<(i32, String)> = entries
        .take(FILES_INSPECTED_MAX)
        .filter_map(|entry| {
            let descriptor = entry.file_name().to_str()?.parse().ok()?;
            let target = fs::read_link(entry.path()).ok()?;
            Some((descriptor, shortened(&target.to_string_lossy())))
        })
        .collect();
    found.sort();
    found
}

/// The command line of a living process.
pub(crate) fn line(number: u32) -> Option<String> {
    let stat = ProcessStat::parse(&fs::read(format!("/proc/{number}/stat")).ok()?)?;
    Some(line_of(&stat))
}

fn line_of(stat: &ProcessStat) -> String {
    let line = read(Path::new(&format!("/proc/{}/cmdline", stat.number))).replace('\0', " ");
    let line = shortened(line.trim());
    if line.is_empty() { stat.name.clone() } else { line }
}

/// The beginning of a text, without control characters: a single line that is safe on a terminal.
fn shortened(text: &str) -> String {
    let plain = |character: char| if character.is_control() { ' ' } else { character };
    text.chars().map(plain).take(LINE_CHARS_MAX).collect()
}

/// The beginning of a file; empty if it cannot be read. Invalid UTF-8 is replaced.
fn read(path: &Path) -> String {
    use std::io::Read;
    let mut bytes = Vec::new();
    if let Ok(file) = fs::File::open(path) {
        // After an error, the bytes read so far count.
        let _ = file.take(READ_BYTES_MAX).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn last_lines(output: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(output);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(OUTPUT_LINES_MAX)..].iter().map(|line| shortened(line)).collect()
}

fn uptime_seconds() -> f64 {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    text.split_ascii_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

fn ticks_per_second() -> f64 {
    // SAFETY: no preconditions.
    unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64
}

/// Describes a state letter (proc_pid_stat(5)).
fn words_of(state: u8) -> &'static str {
    match state {
        b'R' => "runs",
        b'S' => "waits",
        b'D' => "waits for a device",
        b'T' | b't' => "is stopped",
        b'Z' => HAS_ENDED,
        b'I' => "is idle",
        _ => "is in an unknown state",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKS: &str = "\
1: POSIX  ADVISORY  WRITE 100 08:01:11 0 EOF
1: -> POSIX  ADVISORY  WRITE 101 08:01:11 0 EOF
2: FLOCK  ADVISORY  WRITE 200 08:01:12 0 EOF
2: -> FLOCK  ADVISORY  WRITE 201 08:01:12 0 EOF
2: -> FLOCK  ADVISORY  READ  202 08:01:12 0 EOF
3: OFDLCK ADVISORY  READ -1 00:06:1027 0 EOF
";

    #[test]
    fn a_lock_holder_precedes_its_waiters() {
        let holder = |waiting| holder_of_lock(LOCKS, waiting);
        assert_eq!((holder(101), holder(201), holder(202)), (Some(100), Some(200), Some(200)));
        assert_eq!((holder(100), holder(0)), (None, None));
        for text in ["", "1: -> ", "->", "x\ny -> z", "1: -> FLOCK ADVISORY WRITE 5"] {
            assert_eq!(holder_of_lock(text, 5), None, "{text}");
        }
    }

    #[test]
    fn text_from_a_process_becomes_one_short_line() {
        let long = format!("a\n\u{1b}[2J{}", "b".repeat(1000));
        let short = shortened(&long);
        assert!(short.starts_with("a  [2Jbb") && short.chars().count() == LINE_CHARS_MAX, "{short}");
        let lines = last_lines(b"1\n2\n\xff3\n");
        assert_eq!(lines, ["1", "2", "\u{fffd}3"]);
        let many = (0..99).map(|n| format!("{n}\n")).collect::<String>();
        assert_eq!(last_lines(many.as_bytes()).len(), OUTPUT_LINES_MAX);
    }

    #[test]
    fn a_sentence_names_processes_without_children() {
        let process = |number, line: &str, is_parent| ObservedProcess {
            number,
            line: line.into(),
            state: "waits".into(),
            is_parent,
            waits: (!is_parent).then(|| "read of pipe:[7], not open in any other process".into()),
            ..ObservedProcess::default()
        };
        let mut snapshot = Snapshot { processes: vec![process(1, "make", true)], ..Snapshot::default() };
        assert_eq!(snapshot.summary(Passed::Hung), "no process was left");
        snapshot.processes.push(process(2, "cat", false));
        assert_eq!(
            snapshot.summary(Passed::Hung),
            "cat (2) [waits: read of pipe:[7], not open in any other process]"
        );
        snapshot.processes.extend((3..9).map(|number| process(number, "cat", false)));
        snapshot.processes_more = 10;
        assert!(
            snapshot.summary(Passed::Hung).ends_with("; and 14 more"),
            "{}",
            snapshot.summary(Passed::Hung)
        );
    }

    #[test]
    fn a_sentence_names_the_parent_and_not_its_zombies() {
        let process = |number, parent, line: &str, state, age_seconds| ObservedProcess {
            number,
            parent,
            line: line.into(),
            state: words_of(state).into(),
            age_seconds,
            ..ObservedProcess::default()
        };
        // A storm: the parent never waits for its children.
        let storm =
            ObservedProcess { children: 900, children_ended: 850, ..process(2, 1, "storm", b'R', 9.0) };
        let processes = vec![storm, process(3, 2, "child", b'Z', 1.0), process(4, 2, "child", b'S', 1.0)];
        let snapshot = Snapshot { processes, processes_more: 897, ..Snapshot::default() };
        for passed in [Passed::Processes, Passed::Hung] {
            let summary = snapshot.summary(passed);
            let named = "storm (2) [runs; has 900 children, 850 of them zombies]; child (4)";
            assert!(summary.starts_with(named) && !summary.contains("(3)"), "{summary}");
        }
        // A process that keeps starting others, next to one that sleeps.
        let mut forker = process(2, 1, "make rolling", b'S', 60.0);
        forker.is_parent = true;
        let mut step = process(4, 2, "sh step", b'S', 0.2);
        step.is_parent = true;
        let processes =
            vec![forker, process(3, 1, "sleep 1000", b'S', 61.0), step, process(5, 4, "true", b'R', 0.1)];
        let snapshot = Snapshot { processes, ..Snapshot::default() };
        let summary = snapshot.summary(Passed::Silent);
        assert!(summary.starts_with("make rolling (2) [waits]; sleep 1000 (3)"), "{summary}");
        assert!(snapshot.summary(Passed::Hung).starts_with("sleep 1000 (3)"));
    }

    proptest::proptest! {
        #[test]
        fn any_text_has_a_holder_or_none(text in "([0-9]: (-> )?[A-Z ]{0,20}[0-9]{0,3} x\n?){0,4}|\\PC{0,60}") {
            for waiting in [0, 5, 100] {
                holder_of_lock(&text, waiting);
            }
            proptest::prop_assert!(last_lines(text.as_bytes()).len() <= OUTPUT_LINES_MAX);
        }
    }
}
