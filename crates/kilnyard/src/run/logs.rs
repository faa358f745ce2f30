//! Stores the logs of ended builds where the machines of a farm share their files, so that they are not lost with the machine
//! of the run.
//!
//! No result waits for that. What cannot be stored by the end of the run, or a little later, stays on this machine alone.

use crate::signals;
use kilnyard_artifacts::{ArtifactError, Depot};
use kilnyard_mirror::Sha256Hex;
use kilnyard_store::{Number, Record};
use kilnyard_yard::yard::fresh_since_seconds;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How many logs wait at most. Without the store of the machines, later ones stay here.
const WAITING_MAX: usize = 10_000;
/// The pause before another attempt.
const PAUSE: Duration = Duration::from_secs(2);
/// How long the end of a run waits for the rest, and how often it checks.
const LAST_MAX: Duration = Duration::from_secs(20);
const STEP: Duration = Duration::from_millis(50);

/// A compressed log.
type LogFile = (PathBuf, Sha256Hex);

/// See the module documentation.
pub struct LogKeeper {
    yard: PathBuf,
    /// The logs of builds that have not ended, as their workers named them.
    open: HashMap<Number, Vec<LogFile>>,
    storing: Option<Storing>,
}

/// The thread that stores logs.
struct Storing {
    logs: Sender<LogFile>,
    thread: JoinHandle<()>,
}

impl LogKeeper {
    /// Starts the thread, which ends when this is dropped. Without a store that machines share, nothing is kept.
    pub fn start(yard: &Path, depot: Option<&Arc<dyn Depot>>) -> LogKeeper {
        let storing = depot.cloned().map(|depot| {
            let (sender, received) = mpsc::channel();
            Storing { logs: sender, thread: std::thread::spawn(move || store(&*depot, &received)) }
        });
        LogKeeper { yard: yard.to_owned(), open: HashMap::new(), storing }
    }

    /// Stores the logs of builds that have ended by these records: the files are there by then.
    pub fn note(&mut self, records: &[Record]) {
        let Some(Storing { logs, .. }) = &self.storing else { return };
        for record in records {
            match record {
                Record::StageEnded { build, stage, .. } => {
                    if let (Some(log), Some(sha256)) = (&stage.log, &stage.log_sha256) {
                        let path = self.yard.join(format!("{log}.zst"));
                        self.open.entry(*build).or_default().push((path, sha256.clone()));
                    }
                }
                Record::BuildEnded { build, .. } => {
                    for log in self.open.remove(build).unwrap_or_default() {
                        // The thread receives as long as this exists.
                        let _ = logs.send(log);
                    }
                }
                _ => {}
            }
        }
    }
}

impl Drop for LogKeeper {
    fn drop(&mut self) {
        let Some(Storing { logs, thread }) = self.storing.take() else { return };
        drop(logs);
        // A store that does not answer may hold the thread for longer, and a user who ends the run waits for nothing.
        let began = Instant::now();
        while !thread.is_finished() && began.elapsed() < LAST_MAX && signals::count() == 0 {
            std::thread::sleep(STEP);
        }
        if !thread.is_finished() {
            say!("note: some logs stay on this machine only: the store of artifacts does not take them");
        }
    }
}

/// Stores what it receives, and tries again while the store is away. After the run, for a little longer.
fn store(depot: &dyn Depot, received: &Receiver<LogFile>) {
    let mut waiting: Vec<LogFile> = Vec::new();
    let (mut last, mut is_away) = (None::<Instant>, false);
    loop {
        let pause = if waiting.is_empty() { Duration::from_secs(60) } else { PAUSE };
        match last {
            None => match received.recv_timeout(pause) {
                Ok(log) if waiting.len() < WAITING_MAX => waiting.push(log),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => last = Some(Instant::now()),
            },
            Some(_) if waiting.is_empty() => return,
            // The run has not waited for longer.
            Some(at) if at.elapsed() > LAST_MAX => return,
            Some(_) if is_away => std::thread::sleep(PAUSE),
            Some(_) => {}
        }
        is_away = false;
        waiting.retain(|(path, sha256)| {
            if is_away {
                return true;
            }
            match depot.deposit(path, sha256, fresh_since_seconds()) {
                Ok(()) => false,
                // A worker named another file, or the log did not arrive.
                Err(ArtifactError::Differs { .. }) => false,
                Err(_) if !path.exists() => false,
                Err(_) => {
                    is_away = true;
                    true
                }
            }
        });
    }
}
