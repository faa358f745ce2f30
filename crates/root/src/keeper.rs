//! What holds the mounts of one root between its commands.
//!
//! Each command of a build runs in a sandbox of its own, whose mounts end with it. A file system in memory, or on a
//! device, has to stay from one command to the next, and so has an overlay whose files a fakeroot knows by the number that
//! it was mounted with: it is mounted in the namespace of a process that does nothing else,
//! and every sandbox of the root begins with a copy of that namespace. So a mount is still nobody's but the root's, and
//! the kernel takes it away whoever is killed, at whatever moment.
//!
//! The process ends when its standard input does, by [`Keeper::end`] or because Kilnyard is gone; before it leaves it
//! takes back what it did, the last operation first.

use crate::sandbox::{RunError, Task, last_word};
use crate::{IdMap, Operation, Report, Sandbox};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Mutex;

/// See the module.
#[derive(Debug)]
pub struct Keeper {
    process: u32,
    folder: PathBuf,
    child: Mutex<Option<Child>>,
}

impl Keeper {
    /// Starts a keeper that performs these operations; paths are relative to `folder`.
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
                _ if line.is_empty() => return Err(last_word(&text).err().unwrap_or(RunError::Vanished)),
                _ => text.push_str(&line),
            }
        }
        if let Ok(Some(child)) = keeper.child.get_mut().map(Option::as_mut) {
            child.stderr = Some(errors.into_inner());
        }
        Ok(keeper)
    }

    /// The process, whose namespaces sandboxes of the root begin with.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// A path of the root's folder as the keeper sees it, for this process to open.
    pub fn seen_from_outside(&self, path: &Path) -> PathBuf {
        let absolute = self.folder.join(path);
        let below = absolute.strip_prefix("/").unwrap_or(&absolute);
        Path::new("/proc").join(self.process.to_string()).join("root").join(below)
    }

    /// Takes everything back and waits until it is gone.
    pub fn end(&self) -> Result<(), RunError> {
        let child = self.child.lock().ok().and_then(|mut child| child.take());
        let Some(mut child) = child else { return Ok(()) };
        drop(child.stdin.take());
        let mut text = String::new();
        if let Some(mut errors) = child.stderr.take() {
            let _ = errors.read_to_string(&mut text);
        }
        child.wait().map_err(RunError::Spawn)?;
        last_word(&text).map(|_| ())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Ok(child) = self.child.get_mut()
            && let Some(mut child) = child.take()
        {
            // All below it dies with it, and what it mounted goes with the last of them.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
