//! The keeper: the process that holds the mounts of one root between its commands.
//!
//! Each command of a build runs in its own sandbox, whose mounts end with it. Some mounts must outlive a command: a
//! file system in memory or on a device, and an overlay whose files a fakeroot knows by its device number. They are
//! mounted in the namespace of a process that does nothing else, and every sandbox of the root begins with a copy of
//! that namespace. The mounts still belong to this root alone, and the kernel removes them no matter which process is
//! killed, or when.
//!
//! The process ends at the end of its standard input: by [`Keeper::end`], or because Kilnyard is gone. Before it exits,
//! it undoes its operations, last one first.

use crate::sandbox::{RunError, Task, final_report};
use crate::{IdMap, Operation, Report, Sandbox};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Mutex;

/// A running keeper. Dropping it kills the process without undoing its operations one by one.
#[derive(Debug)]
pub struct Keeper {
    process: u32,
    folder: PathBuf,
    child: Mutex<Option<Child>>,
}

impl Keeper {
    /// Starts a keeper and waits until it has performed these operations; paths are relative to `folder`.
    pub fn start(folder: &Path, ids: &IdMap, operations: Vec<Operation>) -> Result<Keeper, RunError> {
        let mut child =
            Sandbox::of_machine(folder, ids, Task::Keep(operations)).spawn().map_err(RunError::Spawn)?;
        let Some(errors) = child.stderr.take() else { return Err(RunError::Vanished) };
        let mut keeper = Keeper { process: 0, folder: folder.to_owned(), child: Mutex::new(Some(child)) };
        let mut errors = BufReader::new(errors);
        let mut text = String::new();
        loop {
            let mut line = String::new();
            let _ = errors.read_line(&mut line);
            match serde_json::from_str(&line) {
                Ok(Report::Process1 { number }) => keeper.process = number,
                Ok(Report::Started) => break,
                _ if line.is_empty() => return Err(final_report(&text).err().unwrap_or(RunError::Vanished)),
                _ => text.push_str(&line),
            }
        }
        if let Ok(Some(child)) = keeper.child.get_mut().map(Option::as_mut) {
            child.stderr = Some(errors.into_inner());
        }
        Ok(keeper)
    }

    /// The id of the process whose namespaces the root's sandboxes enter first.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// The path under `/proc` by which this process can open a path as the keeper sees it.
    pub fn seen_from_outside(&self, path: &Path) -> PathBuf {
        let absolute = self.folder.join(path);
        let below = absolute.strip_prefix("/").unwrap_or(&absolute);
        Path::new("/proc").join(self.process.to_string()).join("root").join(below)
    }

    /// Undoes all operations and waits for the keeper to exit.
    pub fn end(&self) -> Result<(), RunError> {
        let child = self.child.lock().ok().and_then(|mut child| child.take());
        let Some(mut child) = child else { return Ok(()) };
        drop(child.stdin.take());
        let mut text = String::new();
        if let Some(mut errors) = child.stderr.take() {
            let _ = errors.read_to_string(&mut text);
        }
        child.wait().map_err(RunError::Spawn)?;
        final_report(&text).map(|_| ())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Ok(child) = self.child.get_mut()
            && let Some(mut child) = child.take()
        {
            // All its descendants die with it, and its mounts go with the last of them.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
