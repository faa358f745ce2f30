//! Looks at the processes of a sandbox with the eyes of its root.
//!
//! What a process waits for, its open files and its memory are shown by the kernel to who has its ids, or may trace it in
//! its user namespace (proc(5), ptrace(2)). An ordinary user who has a range of ids builds as another one of them, so that
//! Kilnyard sees of its own builds no more than `ps` does. But who made a user namespace may enter it, and has there what
//! its root has (user_namespaces(7)). A program of several threads cannot, so that this one is started once more for
//! each look, which takes some milliseconds: it enters that namespace alone, and sees the numbers of the machine.

use crate::{Portrait, tree};
use kilnyard_root::{IdMap, Mapper, sandbox};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io;
use std::process::{Command, Stdio};

/// The hidden argument by which this program knows that it is to look.
const ARGUMENT: &str = "kilnyard-onlooker-process";

/// What is to be looked at: all below the outer process of a sandbox.
#[derive(Serialize, Deserialize)]
enum Question {
    /// What the processes are doing; a [`Portrait`] without output answers it.
    Portrait { outer: u32, log: Option<String> },
    /// Their memory; a number of bytes answers it.
    Memory { outer: u32 },
}

/// Who looks at the processes of one sandbox.
#[derive(Debug)]
pub(crate) struct Onlooker {
    /// Whether those processes have ids that this user has not.
    is_needed: bool,
    /// Process 1 of the sandbox, as soon as it is known.
    process_1: Option<u32>,
}

impl Onlooker {
    /// For a sandbox with these ids.
    pub(crate) fn of(ids: &IdMap) -> Onlooker {
        // Root sees all, the kernel's stacks too, which are for nobody else; and who has one id sees its own.
        Onlooker { is_needed: ids.mapper == Mapper::Helper, process_1: None }
    }

    /// Process 1 of the sandbox has this number.
    pub(crate) fn knows(&mut self, process_1: u32) {
        self.process_1 = Some(process_1);
    }

    /// What the processes below `outer` are doing; see [`Portrait::take`].
    pub(crate) fn portrait(&self, outer: u32, log: Option<&str>, output: &[u8]) -> Portrait {
        let question = Question::Portrait { outer, log: log.map(str::to_owned) };
        // What can be seen from here is better than nothing.
        let seen = self.ask(&question).unwrap_or_else(|| Portrait::take(outer, log));
        seen.with_output(output)
    }

    /// The memory of the processes below `outer`; see [`tree::memory_bytes`].
    pub(crate) fn memory_bytes(&self, outer: u32) -> u64 {
        self.ask(&Question::Memory { outer }).unwrap_or_else(|| tree::memory_bytes(outer))
    }

    /// What one who is root there says; nothing where nobody of that kind is needed, or it does not get there.
    fn ask<Answer: DeserializeOwned>(&self, question: &Question) -> Option<Answer> {
        let process_1 = self.process_1.filter(|_| self.is_needed)?;
        // The link still leads to this very program when its file was replaced meanwhile.
        let output = Command::new("/proc/self/exe")
            .args([ARGUMENT, &std::process::id().to_string(), &process_1.to_string()])
            .arg(serde_json::to_string(question).ok()?)
            .env_clear()
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output();
        serde_json::from_slice(&output.ok()?.stdout).ok()
    }
}

/// Looks, prints the answer and ends if this program was started for that. To be called at the beginning of `main`, while
/// there is one thread.
pub fn become_onlooker_if_asked() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some(ARGUMENT) {
        return;
    }
    let mut number = || arguments.next().and_then(|number| number.parse().ok()).unwrap_or(0);
    let (parent, process_1) = (number(), number());
    let question = arguments.next().unwrap_or_default();
    let answered = sandbox::enter_users(process_1, parent as i32).and_then(|()| answer(&question));
    std::process::exit(i32::from(answered.is_err()))
}

fn answer(question: &str) -> io::Result<()> {
    let out = io::stdout();
    match serde_json::from_str(question)? {
        Question::Portrait { outer, log } => {
            serde_json::to_writer(out, &Portrait::take(outer, log.as_deref()))?;
        }
        Question::Memory { outer } => serde_json::to_writer(out, &tree::memory_bytes(outer))?,
    }
    Ok(())
}
