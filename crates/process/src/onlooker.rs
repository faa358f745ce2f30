//! Looks at the processes of a sandbox, in a process of its own.
//!
//! The command line and the memory of a process are read through that memory, and a look at one whose memory waits for a
//! device may never return. Who has to end it must not wait with it. So this program is started once more for each
//! look, which takes some milliseconds, and is given up after [`LOOK_MAX`].
//!
//! And it can go where one may look. What a process waits for, its open files and its memory are shown by the kernel to
//! who has its ids, or may trace it in its user namespace (proc(5), ptrace(2)). An ordinary user who has a range of ids
//! builds as another one of them, and sees no more of that than `ps` does. But who made a user namespace may enter it, if
//! with one thread alone, and has there what its root has (user_namespaces(7)); numbers stay those of the machine.

use crate::{Portrait, tree};
use kilnyard_root::{IdMap, Mapper, sandbox, usage};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The hidden argument by which this program knows that it is to look.
const ARGUMENT: &str = "kilnyard-onlooker-process";

/// How long a look may take. A tree of thousands of processes takes a part of a second.
const LOOK_MAX: Duration = Duration::from_secs(10);
/// How long a walk over files may take: some millions, from a disk.
const WALK_MAX: Duration = Duration::from_secs(120);

/// What is to be looked at: all below the outer process of a sandbox.
#[derive(Serialize, Deserialize)]
enum Question {
    /// What the processes are doing; a [`Portrait`] without output answers it.
    Portrait { outer: u32, log: Option<String> },
    /// Their memory; a number of bytes answers it.
    Memory { outer: u32 },
    /// What is charged for the files below these folders, and for deleted files that the processes have open; a number of
    /// bytes answers it. Counting stops where it is more than enough.
    Written { outer: u32, folders: Vec<PathBuf>, enough_bytes: u64 },
}

/// Who looks at the processes of one sandbox.
#[derive(Clone, Debug)]
pub(crate) struct Onlooker {
    /// Whether those processes have ids that this user has not.
    is_stranger: bool,
    /// Process 1 of the sandbox, as soon as it is known.
    process_1: Option<u32>,
}

impl Onlooker {
    /// For a sandbox with these ids.
    pub(crate) fn of(ids: &IdMap) -> Onlooker {
        // Root sees all, the kernel's stacks too, which are for nobody else; and who has one id sees its own.
        Onlooker { is_stranger: ids.mapper == Mapper::Helper, process_1: None }
    }

    /// Process 1 of the sandbox has this number.
    pub(crate) fn knows(&mut self, process_1: u32) {
        self.process_1 = Some(process_1);
    }

    /// What the processes below `outer` are doing; see [`Portrait::take`]. Where that cannot be seen, who there is.
    pub(crate) fn portrait(&self, outer: u32, log: Option<&str>, output: &[u8]) -> Portrait {
        let question = Question::Portrait { outer, log: log.map(str::to_owned) };
        self.ask(&question, LOOK_MAX).unwrap_or_else(|| Portrait::outline(outer)).with_output(output)
    }

    /// The memory of the processes below `outer`; see [`tree::memory_bytes`]. None where it cannot be seen.
    pub(crate) fn memory_bytes(&self, outer: u32) -> Option<u64> {
        self.ask(&Question::Memory { outer }, LOOK_MAX)
    }

    /// What the command has written. None where it cannot be seen in time.
    pub(crate) fn written_bytes(&self, outer: u32, folders: &[PathBuf], enough_bytes: u64) -> Option<u64> {
        let question = Question::Written { outer, folders: folders.to_vec(), enough_bytes };
        self.ask(&question, WALK_MAX)
    }

    fn ask<Answer: DeserializeOwned>(&self, question: &Question, within: Duration) -> Option<Answer> {
        let process_1 = self.process_1.filter(|_| self.is_stranger).unwrap_or(0);
        // The link still leads to this very program when its file was replaced meanwhile.
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
        // One that is stuck in the kernel ends when it can.
        std::thread::spawn(move || child.wait());
        serde_json::from_slice(&answer?).ok()
    }
}

/// All that is said until a moment; nothing if there may be more.
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

/// Looks, prints the answer and ends if this program was started for that. To be called at the beginning of `main`, while
/// there is one thread.
#[expect(clippy::disallowed_methods, reason = "a process of its own ends here")]
pub fn become_onlooker_if_asked() {
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
    let there = if process_1 == 0 { Ok(()) } else { sandbox::enter_users(process_1, parent as i32) };
    // What can be seen from here is better than nothing.
    let answered = there.or(Ok(())).and_then(|()| answer(&question));
    std::process::exit(i32::from(answered.is_err()))
}

fn answer(question: &str) -> io::Result<()> {
    let out = io::stdout();
    match serde_json::from_str(question)? {
        Question::Portrait { outer, log } => {
            serde_json::to_writer(out, &Portrait::take(outer, log.as_deref()))?;
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

    fn said_by(script: &str, within: Duration) -> Option<Vec<u8>> {
        let mut child = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let said = read(child.stdout.take().unwrap(), Instant::now() + within);
        child.kill().unwrap();
        child.wait().unwrap();
        said
    }

    #[test]
    fn who_does_not_come_back_is_given_up() {
        assert_eq!(said_by("echo a; sleep 0.2; echo b", LOOK_MAX).as_deref(), Some(&b"a\nb\n"[..]));
        assert_eq!(said_by("echo a; exec sleep 616201", Duration::from_millis(300)), None);
    }

    #[test]
    fn who_there_is_needs_no_look_at_memory() {
        let mut child = Command::new("sh").args(["-c", "tail -f /dev/null; :"]).spawn().unwrap();
        let own = std::process::id();
        let named = || {
            let outline = Portrait::outline(own);
            let found = outline.processes.iter().find(|process| process.line == "tail").cloned();
            found.filter(|process| process.state == "waits")
        };
        let waiter = (0..500).find_map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            named()
        });
        let waiter = waiter.expect("it is not seen");
        assert!(waiter.waits.is_none() && !waiter.is_parent, "{waiter:?}");
        let pid = rustix::process::Pid::from_raw(waiter.number).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        child.wait().unwrap();
    }
}
