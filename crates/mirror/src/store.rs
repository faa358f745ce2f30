//! A folder of files by their hash, shared by the threads of a process.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};

use crate::attempts::{POLL, check};
use crate::error::FetchError;
use crate::fetch::{Client, Progress, Wanted};
use crate::limits::Limits;
use crate::part::sync_folder;
use crate::sha256::Sha256Hex;

/// Files by their SHA-256, in `<folder>/<first two digits>/<hash>`.
#[derive(Debug)]
pub struct DistfileStore {
    folder: PathBuf,
    client: Client,
    // A lock, and no owner with messages: it is held for a look-up only, never while something is fetched.
    flights: Mutex<HashMap<Sha256Hex, Arc<Flight>>>,
}

/// A file on its way, for those who wait for it.
#[derive(Debug, Default)]
struct Flight {
    outcome: Mutex<Option<Outcome>>,
    landed: Condvar,
}

#[derive(Debug, Clone)]
enum Outcome {
    Stored,
    Failed(Arc<FetchError>),
    /// Whoever fetched it was cancelled; somebody else may begin.
    Abandoned,
}

impl DistfileStore {
    /// Open a store, with a folder that is made if it is missing.
    pub fn open(folder: &Path, limits: Limits) -> Result<DistfileStore, FetchError> {
        DistfileStore::open_with(folder, Client::new(limits))
    }

    /// Open a store that fetches with a given client.
    pub fn open_with(folder: &Path, client: Client) -> Result<DistfileStore, FetchError> {
        fs::create_dir_all(folder)
            .map_err(|source| FetchError::disk("the store", "make the folder", folder, 0, source))?;
        Ok(DistfileStore { folder: folder.to_owned(), client, flights: Mutex::default() })
    }

    /// The client it fetches with.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Where a file is, or will be.
    pub fn path(&self, sha256: &Sha256Hex) -> PathBuf {
        self.folder.join(&sha256.as_str()[..2]).join(sha256.as_str())
    }

    /// The size of a file of the store, if it is there. Its hash was checked when it was put there, and is
    /// not checked again.
    pub fn size_bytes(&self, sha256: &Sha256Hex) -> Option<u64> {
        let metadata = fs::symlink_metadata(self.path(sha256)).ok()?;
        metadata.is_file().then_some(metadata.len())
    }

    /// Is a file there?
    pub fn contains(&self, sha256: &Sha256Hex) -> bool {
        self.size_bytes(sha256).is_some()
    }

    /// The path of a file, fetched if the store lacks it. When many threads ask for one file, the first
    /// fetches it and the others wait for it; progress is told to the first only. If it fails, all fail with
    /// the same error; if it is cancelled, one of the others goes on.
    pub fn ensure(
        &self,
        wanted: &Wanted,
        progress: &dyn Fn(Progress<'_>),
        cancel: &AtomicBool,
    ) -> Result<PathBuf, FetchError> {
        let path = self.path(&wanted.sha256);
        loop {
            if self.has(wanted) {
                return Ok(path);
            }
            check(&wanted.name, cancel)?;
            let outcome = match self.join(&wanted.sha256) {
                Role::Fetches(landing) => {
                    // It may have landed between the look and the joining.
                    let result = if self.has(wanted) {
                        Ok(())
                    } else {
                        self.client.fetch_checked(wanted, &path, progress, cancel)
                    };
                    let outcome = match result {
                        Ok(()) => Outcome::Stored,
                        Err(error) if error.is_cancelled() => return Err(error),
                        Err(error) => Outcome::Failed(Arc::new(error)),
                    };
                    landing.with(outcome.clone());
                    outcome
                }
                Role::Waits(flight) => flight.wait(&wanted.name, cancel)?,
            };
            match outcome {
                Outcome::Stored => return Ok(path),
                Outcome::Failed(error) => return Err(FetchError::Shared(error)),
                Outcome::Abandoned => {}
            }
        }
    }

    /// Put a copy of a local file into the store, readable by all and written by nobody. It is a copy, not a
    /// link: whoever changes the file later must not change what the store has under its hash.
    pub fn insert(&self, file: &Path) -> Result<(Sha256Hex, u64), FetchError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);

        let name = file.display().to_string();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let part = self.folder.join(format!("insert-{}-{count}.part", std::process::id()));
        let fail = |action, path: &Path, source| {
            let needed_bytes = fs::metadata(file).map_or(0, |metadata| metadata.len());
            FetchError::disk(&name, action, path, needed_bytes, source)
        };
        let mut from = File::open(file).map_err(|source| fail("open", file, source))?;
        if !from.metadata().is_ok_and(|metadata| metadata.is_file()) {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file");
            return Err(fail("insert", file, source));
        }
        // Left by an earlier process of the same number.
        let _ = fs::remove_file(&part);
        let _remove = RemoveLater(&part);
        let file_to = File::create_new(&part).map_err(|source| fail("make", &part, source))?;
        let mut to = Hashing { file: file_to, hasher: Sha256::new() };
        let size_bytes = io::copy(&mut from, &mut to).map_err(|source| fail("copy", &part, source))?;
        let (sha256, kept) = to.finish();
        kept.map_err(|source| fail("write", &part, source))?;

        let target = self.path(&sha256);
        let named = target
            .parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::rename(&part, &target))
            .and_then(|()| sync_folder(&target));
        named.map_err(|source| fail("store", &target, source))?;
        Ok((sha256, size_bytes))
    }

    fn has(&self, wanted: &Wanted) -> bool {
        self.size_bytes(&wanted.sha256) == Some(wanted.size_bytes)
    }

    fn join(&self, sha256: &Sha256Hex) -> Role<'_> {
        let mut flights = lock(&self.flights);
        match flights.get(sha256) {
            Some(flight) => Role::Waits(Arc::clone(flight)),
            None => {
                let flight = Arc::new(Flight::default());
                flights.insert(sha256.clone(), Arc::clone(&flight));
                Role::Fetches(Landing { store: self, sha256: sha256.clone(), flight })
            }
        }
    }
}

enum Role<'a> {
    Fetches(Landing<'a>),
    Waits(Arc<Flight>),
}

/// Held by the thread that fetches. However that thread ends, those who wait are told.
struct Landing<'a> {
    store: &'a DistfileStore,
    sha256: Sha256Hex,
    flight: Arc<Flight>,
}

impl Landing<'_> {
    fn with(self, outcome: Outcome) {
        *lock(&self.flight.outcome) = Some(outcome);
    }
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        lock(&self.store.flights).remove(&self.sha256);
        lock(&self.flight.outcome).get_or_insert(Outcome::Abandoned);
        self.flight.landed.notify_all();
    }
}

impl Flight {
    fn wait(&self, name: &str, cancel: &AtomicBool) -> Result<Outcome, FetchError> {
        let mut outcome = lock(&self.outcome);
        loop {
            if let Some(outcome) = &*outcome {
                return Ok(outcome.clone());
            }
            check(name, cancel)?;
            // In steps, because the flag is raised without a word to the condition.
            outcome = match self.landed.wait_timeout(outcome, POLL) {
                Ok((outcome, _)) => outcome,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }
}

/// A panic of another thread leaves nothing half done behind these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a file and hashes what it is given.
struct Hashing {
    file: File,
    hasher: Sha256,
}

impl Hashing {
    /// The hash, and whether the file is on the disk for good.
    fn finish(self) -> (Sha256Hex, io::Result<()>) {
        let readable = fs::Permissions::from_mode(0o444);
        let kept = self.file.set_permissions(readable).and_then(|()| self.file.sync_all());
        (Sha256Hex::finish(self.hasher), kept)
    }
}

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.hasher.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

struct RemoveLater<'a>(&'a Path);

impl Drop for RemoveLater<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0);
    }
}
