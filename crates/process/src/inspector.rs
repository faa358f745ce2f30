//! Inspects the processes of a sandbox, from a separate process.
//!
//! The kernel reads the command line and the memory map of a process under that process's memory lock. If that process
//! is stuck waiting for a device, the read may never return, and the thread that has to end the process must not get
//! stuck too. Each inspection therefore runs in a new process of this program, which takes a few milliseconds to start
//! and is abandoned after [`INSPECTION_MAX`].
//!
//! A separate process can also enter a namespace that permits the inspection. The kernel shows what a process waits
//! for, its open files and its memory only to a process with the same ids, or to one that may trace it in its user
//! namespace (proc(5), ptrace(2)). An ordinary user with a range of subordinate ids builds under another one of these
//! ids, and sees no more of such a process than `ps` does. But the creator of a user namespace may enter it, if it
//! has a single thread, and has the rights of root there (user_namespaces(7)). Process numbers remain those of the
//! machine.

use crate::{Snapshot, tree};
use kilnyard_root::{IdMap, Mapper, sandbox, usage};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The hidden argument that starts this program as an inspector.
const ARGUMENT: &str = "kilnyard-inspector-process";

/// The longest time for an inspection. A tree of thousands of processes takes a fraction of a second.
const INSPECTION_MAX: Duration = Duration::from_secs(10);
/// The longest time for a walk over files: enough for some millions of files on a disk.
const WALK_MAX: Duration = Duration::from_secs(120);

/// What to inspect: everything below the outer process of a sandbox.
#[derive(Serialize, Deserialize)]
enum Question {
    /// What the processes are doing. The answer is a [`Snapshot`] without output.
    Snapshot { outer: u32, log: Option<String> },
    /// The memory of the processes. The answer is a number of bytes.
    Memory { outer: u32 },
    /// What is charged for the files below these folders and for deleted files that the processes have open. The
    /// answer is a number of bytes. Counting stops as soon as it exceeds `enough_bytes`.
    Written { outer: u32, folders: Vec<PathBuf>, enough_bytes: u64 },
}

/// Inspects the processes of one sandbox.
#[derive(Clone, Debug)]
pub(crate) struct Inspector {
    /// Whether those processes run under ids that this user does not have.
    is_stranger: bool,
    /// Process 1 of the sandbox, once it has started.
    process_1: Option<u32>,
}

impl Inspector {
    pub(crate) fn of(ids: &IdMap) -> Inspector {
        // Root may inspect everything, including kernel stacks, which are shown to root alone. With a single id, the
        // processes are the user's own.
        Inspector { is_stranger: ids.mapper == Mapper::Helper, process_1: None }
    }

    /// Records the number of process 1 of the sandbox.
    pub(crate) fn set_process_1(&mut self, process_1: u32) {
        self.process_1 = Some(process_1);
    }

    /// What the processes below `outer` are doing; see [`Snapshot::take`]. If that cannot be inspected, which
    /// processes exist.
    pub(crate) fn snapshot(&self, outer: u32, log: Option<&str>, output: &[u8]) -> Snapshot {
        let question = Question::Snapshot { outer, log: log.map(str::to_owned) };
        self.ask(&question, INSPECTION_MAX).unwrap_or_else(|| Snapshot::outline(outer)).with_output(output)
    }

    /// The memory of the processes below `outer`; see [`tree::memory_bytes`]. Absent if it cannot be read.
    pub(crate) fn memory_bytes(&self, outer: u32) -> Option<u64> {
        self.ask(&Question::Memory { outer }, INSPECTION_MAX)
    }

    /// Bytes written by the command. Absent if they could not be counted in time.
    pub(crate) fn written_bytes(&self, outer: u32, folders: &[PathBuf], enough_bytes: u64) -> Option<u64> {
        let question = Question::Written { outer, folders: folders.to_vec(), enough_bytes };
        self.ask(&question, WALK_MAX)
    }

    fn ask<Answer: DeserializeOwned>(&self, question: &Question, within: Duration) -> Option<Answer> {
        let process_1 = self.process_1.filter(|_| self.is_stranger).unwrap_or(0);
        // The link still leads to this very program if its file has been replaced.
        let mut child = Command::new("/proc/self/exe")
            .args([ARGUMENT, &std::process::id().to_string(), &process_1.to_string()])
            .arg(serde_json::to_string(question).ok()?)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let answer = child.stdout.take().and_then(|answers| read(answers, Instant::now() + within));
        if answer.is_none() {
            let _ = child.kill();
        }
        // An inspector that is stuck in the kernel ends when it can.
        std::thread::spawn(move || child.wait());
        serde_json::from_slice(&answer?).ok()
    }
}

/// Reads to the end of the answer; `None` if the time runs out first.
fn read(mut answers: ChildStdout, until: Instant) -> Option<Vec<u8>> {
    let (mut bytes, mut chunk) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&answers, PollFlags::IN)], Some(&left)) {
            Ok(0) => return None,
            Err(Errno::INTR) => continue,
            _ => {}
        }
        match answers.read(&mut chunk) {
            Ok(0) => return Some(bytes),
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

/// Inspects, prints the answer and exits, if this program was started for that. Call it at the beginning of `main`,
/// while there is only one thread.
#[expect(clippy::disallowed_methods, reason = "this separate process ends here")]
pub fn become_inspector_if_asked() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some(ARGUMENT) {
        return;
    }
    if sandbox::close_descriptors().is_err() {
        std::process::exit(1);
    }
    let mut number = || arguments.next().and_then(|number| number.parse().ok()).unwrap_or(0);
    let (parent, process_1) = (number(), number());
    let question = arguments.next().unwrap_or_default();
    let entered = if process_1 == 0 { Ok(()) } else { sandbox::enter_users(process_1, parent as i32) };
    // A partial view from here is better than none.
    let answered = entered.or(Ok(())).and_then(|()| answer(&question));
    std::process::exit(i32::from(answered.is_err()))
}

fn answer(question: &str) -> io::Result<()> {
    let out = io::stdout();
    match serde_json::from_str(question)? {
        Question::Snapshot { outer, log } => {
            serde_json::to_writer(out, &Snapshot::take(outer, log.as_deref()))?;
        }
        Question::Memory { outer } => serde_json::to_writer(out, &tree::memory_bytes(outer))?,
        Question::Written { outer, folders, enough_bytes } => {
            let below = |folder: &PathBuf| usage(folder, enough_bytes).charged_bytes();
            let named: u64 = folders.iter().map(below).sum();
            serde_json::to_writer(out, &(named + tree::deleted_bytes(outer)))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer_of(script: &str, within: Duration) -> Option<Vec<u8>> {
        let mut child = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let answer = read(child.stdout.take().unwrap(), Instant::now() + within);
        child.kill().unwrap();
        child.wait().unwrap();
        answer
    }

    #[test]
    fn an_inspector_that_does_not_answer_is_abandoned() {
        assert_eq!(answer_of("echo a; sleep 0.2; echo b", INSPECTION_MAX).as_deref(), Some(&b"a\nb\n"[..]));
        assert_eq!(answer_of("echo a; exec sleep 616201", Duration::from_millis(300)), None);
    }

    #[test]
    fn an_outline_does_not_read_process_memory() {
        let mut child = Command::new("sh").args(["-c", "tail -f /dev/null; :"]).spawn().unwrap();
        let own = std::process::id();
        let named = || {
            let outline = Snapshot::outline(own);
            let found = outline.processes.iter().find(|process| process.line == "tail").cloned();
            found.filter(|process| process.state == "waits")
        };
        let waiter = (0..500).find_map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            named()
        });
        let waiter = waiter.expect("the waiting process was not seen");
        assert!(waiter.waits.is_none() && !waiter.is_parent, "{waiter:?}");
        let pid = rustix::process::Pid::from_raw(waiter.number).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        child.wait().unwrap();
    }
}
