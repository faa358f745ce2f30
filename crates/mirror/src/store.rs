//! A folder of files named by their hash, shared by the threads of a process.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use kilnyard_artifacts::{ArtifactError, Artifacts, Depot, Folder, Storage};
use kilnyard_model::artifact::{Artifact, Media};

use crate::Sha256Hex;
use crate::attempts::{POLL, check};
use crate::error::FetchError;
use crate::fetch::{Client, Progress, Wanted};
use crate::limits::Limits;

/// Files named by their SHA-256, in `<folder>/<first two digits>/<hash>`.
#[derive(Debug)]
pub struct FileStore {
    artifacts: Folder,
    client: Client,
    /// Has copies of files, for other machines.
    depot: Option<Arc<dyn Depot>>,
    // A lock rather than an owner with messages: it is held only for a look-up, never during a fetch.
    flights: Mutex<HashMap<Sha256Hex, Arc<Flight>>>,
}

/// A file being fetched, for the threads that wait for it.
#[derive(Debug, Default)]
struct Flight {
    outcome: Mutex<Option<FlightEnd>>,
    landed: Condvar,
}

#[derive(Debug, Clone)]
enum FlightEnd {
    Stored,
    Failed(Arc<FetchError>),
    /// The fetch was cancelled; another thread may start it again.
    Abandoned,
}

impl FileStore {
    /// Opens a store, and creates its folder if missing.
    pub fn open(folder: &Path, limits: Limits) -> Result<FileStore, FetchError> {
        FileStore::open_with(folder, Client::new(limits))
    }

    /// Opens a store that fetches with the given client.
    pub fn open_with(folder: &Path, client: Client) -> Result<FileStore, FetchError> {
        let artifacts = Folder::open(folder)
            .map_err(|source| FetchError::disk("the store", "create the folder", folder, 0, source))?;
        Ok(FileStore { artifacts, client, depot: None, flights: Mutex::default() })
    }

    /// The same store, which first looks for missing files in one that the machines share.
    pub fn with_depot(self, depot: Arc<dyn Depot>) -> FileStore {
        FileStore { depot: Some(depot), ..self }
    }

    /// The store that the machines share, if there is one.
    pub fn depot(&self) -> Option<&Arc<dyn Depot>> {
        self.depot.as_ref()
    }

    /// The hashes of those files that neither this store has with this size, nor the one that the machines share.
    ///
    /// # Errors
    /// The shared store cannot be read.
    pub fn missing(
        &self,
        wanted: impl IntoIterator<Item = (Sha256Hex, u64)>,
    ) -> Result<HashSet<Sha256Hex>, ArtifactError> {
        let is_here = |sha256: &Sha256Hex, size_bytes| self.size_bytes(sha256) == Some(size_bytes);
        let absent = wanted.into_iter().filter(|(sha256, size_bytes)| !is_here(sha256, *size_bytes));
        let absent: HashSet<Sha256Hex> = absent.map(|(sha256, _)| sha256).collect();
        let Some(depot) = self.depot.as_ref().filter(|_| !absent.is_empty()) else { return Ok(absent) };
        let absent: Vec<Sha256Hex> = absent.into_iter().collect();
        let is_there = depot.contains_each(&absent)?;
        Ok(absent.into_iter().zip(is_there).filter(|(_, is_there)| !is_there).map(|(hash, _)| hash).collect())
    }

    /// The client used for fetching.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Where a file is, or would be.
    pub fn path(&self, sha256: &Sha256Hex) -> PathBuf {
        self.artifacts.path(sha256)
    }

    /// The size of a file, or none if the store lacks it. The hash was checked when the file was stored, and is not
    /// checked again.
    pub fn size_bytes(&self, sha256: &Sha256Hex) -> Option<u64> {
        let metadata = fs::symlink_metadata(self.path(sha256)).ok()?;
        metadata.is_file().then_some(metadata.len())
    }

    /// Whether the store has a file.
    pub fn contains(&self, sha256: &Sha256Hex) -> bool {
        self.size_bytes(sha256).is_some()
    }

    /// The path of a file, which is fetched if the store lacks it. If several threads ask for the same file, the
    /// first one fetches it and gets the progress, and the others wait. If it fails, all get the same error; if it is
    /// cancelled, one of the others continues.
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
                    // Another thread may have stored it between the check and `join`.
                    let result = if self.has(wanted) {
                        Ok(())
                    } else {
                        match self.take_from_depot(wanted) {
                            Ok(true) => Ok(()),
                            // The mirrors may have it.
                            Err(error) if wanted.urls.is_empty() => Err(error),
                            Ok(false) | Err(_) => self.client.fetch_checked(wanted, &path, progress, cancel),
                        }
                    };
                    let outcome = match result {
                        Ok(()) => FlightEnd::Stored,
                        Err(error) if error.is_cancelled() => return Err(error),
                        Err(error) => FlightEnd::Failed(Arc::new(error)),
                    };
                    landing.with(outcome.clone());
                    outcome
                }
                Role::Waits(flight) => flight.wait(&wanted.name, cancel)?,
            };
            match outcome {
                FlightEnd::Stored => return Ok(path),
                FlightEnd::Failed(error) => return Err(FetchError::Shared(error)),
                FlightEnd::Abandoned => {}
            }
        }
    }

    /// Copies a file from the store that the machines share. Returns false if that does not have it.
    fn take_from_depot(&self, wanted: &Wanted) -> Result<bool, FetchError> {
        let Some(depot) = &self.depot else { return Ok(false) };
        let Wanted { sha256, size_bytes, name, .. } = wanted;
        let artifact = Artifact { sha256: sha256.clone(), size_bytes: *size_bytes, media: Media::Bytes };
        // One that is here has another size, and is damaged.
        match kilnyard_artifacts::replace(&artifact, &**depot, &self.artifacts, Storage::Plain) {
            Ok(()) => Ok(true),
            Err(ArtifactError::Missing(_)) => Ok(false),
            Err(source) => Err(FetchError::Depot { name: name.clone(), depot: depot.name(), source }),
        }
    }

    /// Copies a local file into the store, readable by all and writable by none. It is not a link, because later
    /// changes of the file must not change what the store has under its hash.
    pub fn insert(&self, file: &Path) -> Result<(Sha256Hex, u64), FetchError> {
        let name = file.display().to_string();
        let fail = |action, source| {
            let needed_bytes = fs::metadata(file).map_or(0, |metadata| metadata.len());
            FetchError::disk(&name, action, file, needed_bytes, source)
        };
        let mut from = File::open(file).map_err(|source| fail("open", source))?;
        if !from.metadata().is_ok_and(|metadata| metadata.is_file()) {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file");
            return Err(fail("insert", source));
        }
        self.artifacts.insert(&mut from, Storage::Plain).map_err(|error| match error {
            ArtifactError::Io { source, .. } => fail("copy", source),
            error => fail("copy", io::Error::other(error)),
        })
    }

    /// The files as artifacts, for content other than distfiles.
    pub fn artifacts(&self) -> &Folder {
        &self.artifacts
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

/// Held by the thread that fetches. However that thread ends, waiting threads are woken.
struct Landing<'a> {
    store: &'a FileStore,
    sha256: Sha256Hex,
    flight: Arc<Flight>,
}

impl Landing<'_> {
    fn with(self, outcome: FlightEnd) {
        *lock(&self.flight.outcome) = Some(outcome);
    }
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        lock(&self.store.flights).remove(&self.sha256);
        lock(&self.flight.outcome).get_or_insert(FlightEnd::Abandoned);
        self.flight.landed.notify_all();
    }
}

impl Flight {
    fn wait(&self, name: &str, cancel: &AtomicBool) -> Result<FlightEnd, FetchError> {
        let mut outcome = lock(&self.outcome);
        loop {
            if let Some(outcome) = &*outcome {
                return Ok(outcome.clone());
            }
            check(name, cancel)?;
            // In steps, because setting the flag does not notify the condition variable.
            outcome = match self.landed.wait_timeout(outcome, POLL) {
                Ok((outcome, _)) => outcome,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }
}

/// Ignores poisoning: a panic while one of these locks is held leaves nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
