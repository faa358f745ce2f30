//! Stores the outputs of builds where the machines of a farm share them, before they are recorded: what is recorded is
//! there, whichever machine is lost.
//!
//! While that store cannot be written, results wait, and their workers build what can be built without them.

use super::Message;
use kilnyard_artifacts::{ArtifactError, Depot};
use kilnyard_coordinator::{Event, NotStored};
use kilnyard_mirror::{FileStore, Sha256Hex};
use kilnyard_store::Number;
use kilnyard_yard::yard::fresh_since_seconds;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How many results are stored at the same time.
const THREADS: usize = 4;
/// The pause before another attempt.
const PAUSE: Duration = Duration::from_secs(2);
/// How often a pause ends early if the run is over.
const STEP: Duration = Duration::from_millis(100);

/// Outputs to store.
struct Deposit {
    build: Number,
    number: u64,
    files: Vec<(PathBuf, Sha256Hex)>,
}

/// See the module documentation.
pub struct Depositor {
    deposits: Sender<Deposit>,
    ends: Arc<Ends>,
    /// Counts deposits.
    count: AtomicU64,
}

/// How far the end of the run is.
#[derive(Default)]
struct Ends {
    /// Nothing is tried again.
    is_stopping: AtomicBool,
    is_over: AtomicBool,
}

/// What the threads share.
struct Shared {
    depot: Arc<dyn Depot>,
    deposits: Mutex<Receiver<Deposit>>,
    owner: Sender<Message>,
    ends: Arc<Ends>,
    /// Whether the last attempt of any thread failed.
    is_away: AtomicBool,
}

impl Depositor {
    /// Starts the threads; none without a store that machines share. They end when this is dropped.
    pub fn start(distfiles: &FileStore, owner: &Sender<Message>) -> Option<Depositor> {
        let depot = distfiles.depot()?.clone();
        let (deposits, received) = mpsc::channel();
        let ends = Arc::new(Ends::default());
        let shared = Arc::new(Shared {
            depot,
            deposits: Mutex::new(received),
            owner: owner.clone(),
            ends: ends.clone(),
            is_away: AtomicBool::new(false),
        });
        for _ in 0..THREADS {
            let shared = shared.clone();
            std::thread::spawn(move || shared.store_all());
        }
        Some(Depositor { deposits, ends, count: AtomicU64::new(0) })
    }

    /// The number of the next deposit.
    pub fn next(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }

    /// Stores the outputs of a build, which `distfiles` has, as the deposit of this number. The owner of the run hears of it.
    pub fn store(&self, distfiles: &FileStore, (build, number): (Number, u64), outputs: Vec<Sha256Hex>) {
        let files = outputs.into_iter().map(|sha256| (distfiles.path(&sha256), sha256)).collect();
        // The threads receive as long as this exists.
        let _ = self.deposits.send(Deposit { build, number, files });
    }

    /// The run is interrupted: what cannot be stored now is not waited for.
    pub fn stop(&self) {
        self.ends.is_stopping.store(true, Ordering::Relaxed);
    }
}

impl Drop for Depositor {
    fn drop(&mut self) {
        self.ends.is_over.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn store_all(&self) {
        loop {
            let received = self.deposits.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(Deposit { build, number, files }) = received else { return };
            let outcome = files.iter().try_for_each(|(path, sha256)| self.store(path, sha256));
            let deposited = Event::Deposited { build, deposit: number, outcome };
            // Without an owner the run is over.
            let _ = self.owner.send(Message::Event(Box::new(deposited)));
        }
    }

    /// Stores a file, and tries again while its store is away.
    fn store(&self, path: &Path, sha256: &Sha256Hex) -> Result<(), NotStored> {
        loop {
            // An interrupted run tries each once more, unless the store is known to be away.
            let is_stopping = self.ends.is_stopping.load(Ordering::Relaxed);
            if self.ends.is_over.load(Ordering::Relaxed)
                || is_stopping && self.is_away.load(Ordering::Relaxed)
            {
                return Err(NotStored::Stopped);
            }
            match self.depot.deposit(path, sha256, fresh_since_seconds()) {
                Ok(()) => {
                    if self.is_away.swap(false, Ordering::Relaxed) {
                        say!("outputs are stored in {} again", self.depot.name());
                    }
                    return Ok(());
                }
                // It will not be another one.
                Err(error) if !path.exists() || matches!(error, ArtifactError::Differs { .. }) => {
                    return Err(NotStored::Lost(format!("an output is lost: {error}")));
                }
                Err(error) => {
                    if !self.is_away.swap(true, Ordering::Relaxed) {
                        say!(
                            "warning: results wait until outputs can be stored in {}: {error}",
                            self.depot.name()
                        );
                    }
                    for _ in 0..PAUSE.as_millis() / STEP.as_millis() {
                        if self.ends.is_stopping.load(Ordering::Relaxed) {
                            return Err(NotStored::Stopped);
                        }
                        std::thread::sleep(STEP);
                    }
                }
            }
        }
    }
}
