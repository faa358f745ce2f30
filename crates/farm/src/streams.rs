//! Logs of running builds: sent to the door in parts while they are being written.
//!
//! A benchmark uses it for builds that only wait, so that it measures what workers do.

use crate::client::Client;
use kilnyard_model::attempt::Attempt;
use std::collections::HashMap;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often logs are checked for new text.
const STEP: Duration = Duration::from_millis(500);
/// New text is sent when it is this old, or a full part.
const AGE_MAX: Duration = Duration::from_secs(2);
/// The size of a full part, in bytes.
const PART_BYTES: u64 = 256 << 10;

/// The builds whose logs are sent.
#[derive(Debug)]
pub struct Streams {
    client: Arc<Client>,
    builds: Mutex<HashMap<Attempt, Building>>,
}

/// The logs of a build.
#[derive(Debug)]
struct Building {
    folder: PathBuf,
    /// The beginning of their file names.
    prefix: String,
    logs: HashMap<String, Sent>,
}

/// What the door has of a log.
#[derive(Clone, Copy, Debug)]
struct Sent {
    bytes: u64,
    at: Instant,
}

/// A part of a log that is due.
#[derive(Debug, PartialEq)]
struct Due {
    attempt: Attempt,
    name: String,
    offset: u64,
    text: Vec<u8>,
}

impl Streams {
    /// Starts a thread that sends logs until the process ends.
    pub fn start(client: Arc<Client>) -> Arc<Streams> {
        let streams = Arc::new(Streams { client, builds: Mutex::default() });
        let sending = streams.clone();
        std::thread::spawn(move || {
            while !sending.client.is_closed() {
                std::thread::sleep(STEP);
                // A log that grows fast has several full parts.
                while sending.send() {}
            }
        });
        streams
    }

    fn builds(&self) -> MutexGuard<'_, HashMap<Attempt, Building>> {
        self.builds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the logs of a build from now on: those in a folder whose names begin with this.
    pub fn begin(&self, attempt: Attempt, folder: PathBuf, prefix: String) {
        self.builds().insert(attempt, Building { folder, prefix, logs: HashMap::new() });
    }

    /// Sends nothing more of a build.
    pub fn end(&self, attempt: Attempt) {
        self.builds().remove(&attempt);
    }

    /// Sends the parts that are due. Returns whether a full one arrived, which more text may follow.
    fn send(&self) -> bool {
        let now = Instant::now();
        let due: Vec<Due> =
            self.builds().iter_mut().flat_map(|(attempt, building)| building.due(*attempt, now)).collect();
        let mut has_more = false;
        for Due { attempt, name, offset, text } in due {
            // The whole log follows at the end of the build, whatever happens to its parts.
            let sent = self.client.store_part(&attempt.to_string(), &name, offset, &text);
            let mut builds = self.builds();
            let Some(building) = builds.get_mut(&attempt) else { continue };
            let bytes = match sent {
                Ok(true) => {
                    has_more |= text.len() as u64 == PART_BYTES;
                    offset + text.len() as u64
                }
                // Another run's logs are elsewhere.
                Ok(false) => 0,
                Err(_) => offset,
            };
            building.logs.insert(name, Sent { bytes, at: Instant::now() });
        }
        has_more
    }
}

impl Building {
    /// The parts of all logs that are due.
    fn due(&mut self, attempt: Attempt, now: Instant) -> Vec<Due> {
        // A build begins before its folder exists.
        let Ok(entries) = fs_err::read_dir(&self.folder) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let open = names.filter_map(|file| {
            let name = file.strip_prefix(&self.prefix)?.strip_suffix(".log")?;
            Some((name.to_owned(), self.folder.join(&file)))
        });
        let open: Vec<(String, PathBuf)> = open.collect();
        let mut due = Vec::new();
        for (name, path) in open {
            let sent = *self.logs.entry(name.clone()).or_insert(Sent { bytes: 0, at: now });
            // A log that is compressed meanwhile is gone.
            let Ok(text) = part(&path, sent.bytes) else { continue };
            let is_full = text.len() as u64 == PART_BYTES;
            if is_full || !text.is_empty() && now.duration_since(sent.at) >= AGE_MAX {
                due.push(Due { attempt, name, offset: sent.bytes, text });
            }
        }
        due
    }
}

/// Reads a part of a file.
fn part(path: &Path, offset: u64) -> io::Result<Vec<u8>> {
    let mut file = fs_err::File::open(path)?;
    file.seek(io::SeekFrom::Start(offset))?;
    let mut text = Vec::new();
    file.take(PART_BYTES).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_due_when_it_is_full_or_old() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, bytes: usize| fs_err::write(folder.path().join(name), vec![b'x'; bytes]).unwrap();
        write("7-build.log", 10);
        write("7-unpack.log.zst", 10);
        write("8-build.log", 10);
        let (attempt, start) = (Attempt::parse(&"a".repeat(32)).unwrap(), Instant::now());
        let mut building =
            Building { folder: folder.path().to_owned(), prefix: "7-".to_owned(), logs: HashMap::new() };
        assert_eq!(building.due(attempt, start), []);
        let due = building.due(attempt, start + AGE_MAX);
        let [due] = &due[..] else { panic!("{due:?}") };
        assert_eq!((&*due.name, due.offset, due.text.len()), ("build", 0, 10));
        building.logs.insert("build".to_owned(), Sent { bytes: 10, at: start + AGE_MAX });
        assert_eq!(building.due(attempt, start + 9 * AGE_MAX), []);
        write("7-build.log", 10 + PART_BYTES as usize + 5);
        let due = building.due(attempt, start + AGE_MAX);
        assert_eq!((due.len(), due[0].offset, due[0].text.len() as u64), (1, 10, PART_BYTES));
    }
}
