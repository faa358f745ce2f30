//! Removes finished roots in a separate thread: a file system may take seconds for that, and slots should not wait.

use crate::RootFolder;
use std::sync::Mutex;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

/// How many roots may wait for removal before slots have to wait too: they take space on the disk.
const WAITING_MAX: usize = 8;

/// See the module documentation. Dropping it waits until everything is removed.
#[derive(Debug)]
pub(crate) struct Remover {
    sender: Mutex<Option<SyncSender<RootFolder>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Default for Remover {
    fn default() -> Self {
        let (sender, receiver) = sync_channel::<RootFolder>(WAITING_MAX);
        let thread = std::thread::spawn(move || {
            for root in receiver {
                // The run ends with a list of everything that was set aside.
                let _ = root.remove_or_set_aside();
            }
        });
        Remover { sender: Mutex::new(Some(sender)), thread: Mutex::new(Some(thread)) }
    }
}

impl Remover {
    /// Removes a root soon.
    pub(crate) fn remove(&self, root: RootFolder) {
        let sender = self.sender.lock().ok().and_then(|sender| sender.clone());
        if let Some(sender) = sender {
            // The thread receives until the sender is dropped.
            let _ = sender.send(root);
        }
    }
}

impl Drop for Remover {
    fn drop(&mut self) {
        if let Ok(mut sender) = self.sender.lock() {
            sender.take();
        }
        if let Some(thread) = self.thread.lock().ok().and_then(|mut thread| thread.take()) {
            let _ = thread.join();
        }
    }
}
