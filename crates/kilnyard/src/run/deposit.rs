//! Stores the outputs of builds where the machines of a farm share them, before they are recorded: what is recorded is
//! there, whichever machine is lost.
//!
//! While that store cannot be written, results wait, and so do their workers.

use super::Message;
use kilnyard_artifacts::{ArtifactError, Depot};
use kilnyard_coordinator::Event;
use kilnyard_mirror::{FileStore, Sha256Hex};
use kilnyard_yard::yard::fresh_since_seconds;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::preparer::refused;

/// How many results are stored at the same time.
const THREADS: usize = 4;
/// The pause before another attempt.
const PAUSE: Duration = Duration::from_secs(2);
/// How often a pause ends early if the run is over.
const STEP: Duration = Duration::from_millis(100);

/// A result whose outputs are stored before its answer is sent.
struct Deposit {
    files: Vec<(PathBuf, Sha256Hex)>,
    answered: Event,
}

/// See the module documentation.
pub struct Depositor {
    deposits: Sender<Deposit>,
    is_over: Arc<AtomicBool>,
}

/// What the threads share.
struct Shared {
    depot: Arc<dyn Depot>,
    deposits: Mutex<Receiver<Deposit>>,
    owner: Sender<Message>,
    is_over: Arc<AtomicBool>,
    /// Whether the last attempt of any thread failed.
    is_away: AtomicBool,
}

impl Depositor {
    /// Starts the threads; none without a store that machines share. They end when this is dropped.
    pub fn start(distfiles: &FileStore, owner: &Sender<Message>) -> Option<Depositor> {
        let depot = distfiles.depot()?.clone();
        let (deposits, received) = mpsc::channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let shared = Arc::new(Shared {
            depot,
            deposits: Mutex::new(received),
            owner: owner.clone(),
            is_over: is_over.clone(),
            is_away: AtomicBool::new(false),
        });
        for _ in 0..THREADS {
            let shared = shared.clone();
            std::thread::spawn(move || shared.store_all());
        }
        Some(Depositor { deposits, is_over })
    }

    /// Stores these outputs, which `distfiles` has, and then sends the answer to the owner of the run.
    pub fn store(&self, distfiles: &FileStore, outputs: Vec<Sha256Hex>, answered: Event) {
        let files = outputs.into_iter().map(|sha256| (distfiles.path(&sha256), sha256)).collect();
        // The threads receive as long as this exists.
        let _ = self.deposits.send(Deposit { files, answered });
    }
}

impl Drop for Depositor {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn store_all(&self) {
        loop {
            let received = self.deposits.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(Deposit { files, mut answered }) = received else { return };
            for (path, sha256) in &files {
                match self.store(path, sha256) {
                    Some(Ok(())) => {}
                    Some(Err(error)) => {
                        if let Event::Answered { answer, .. } = &mut answered {
                            **answer = refused(format!("an output is lost: {error}"));
                        }
                        break;
                    }
                    None => return,
                }
            }
            // Without an owner the run is over.
            let _ = self.owner.send(Message::Event(Box::new(answered)));
        }
    }

    /// Stores a file, and tries again while its store is away. None if the run is over.
    fn store(&self, path: &std::path::Path, sha256: &Sha256Hex) -> Option<Result<(), ArtifactError>> {
        loop {
            if self.is_over.load(Ordering::Relaxed) {
                return None;
            }
            match self.depot.deposit(path, sha256, fresh_since_seconds()) {
                Ok(()) => {
                    if self.is_away.swap(false, Ordering::Relaxed) {
                        say!("outputs are stored in {} again", self.depot.name());
                    }
                    return Some(Ok(()));
                }
                // It will not be another one.
                Err(error) if !path.exists() || matches!(error, ArtifactError::Differs { .. }) => {
                    return Some(Err(error));
                }
                Err(error) => {
                    if !self.is_away.swap(true, Ordering::Relaxed) {
                        say!(
                            "warning: results wait until outputs can be stored in {}: {error}",
                            self.depot.name()
                        );
                    }
                    for _ in 0..PAUSE.as_millis() / STEP.as_millis() {
                        if self.is_over.load(Ordering::Relaxed) {
                            return None;
                        }
                        std::thread::sleep(STEP);
                    }
                }
            }
        }
    }
}
