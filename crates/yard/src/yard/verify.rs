//! Whether the artifacts that outputs name are intact. They are read by this machine, and by workers that are near the place
//! where the machines share them.

use super::Yard;
use crate::error::{Context, Error, Kind, Result};
use crate::helpers::Helpers;
use crate::yard::store_error;
use kilnyard_artifacts::{ArtifactError, Artifacts, Depot, Folder, hash_of};
use kilnyard_mirror::Sha256Hex;
use kilnyard_model::artifact::Checked;
use kilnyard_model::role::Role;
use kilnyard_store::Store;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// Completes "failed to".
const READING: &str = "read the outputs of the yard";
/// The most artifacts that a worker checks for one task, and their size in bytes: a lost task repeats this much.
const BATCH_MAX: usize = 64;
const BATCH_BYTES_MAX: u64 = 256 << 20;
/// How many tasks each reader gets at least: with a few, the slowest one ends much later than others.
const BATCHES_MIN: usize = 4;
/// How many artifacts this machine reads at once: more wait for the same disk or link.
const READ_HERE: usize = 4;
/// The most tasks that other machines have at once: each is a thread here.
const ELSEWHERE_MAX: u32 = 256;

/// How often it is checked whether it is cancelled.
const STEP: Duration = Duration::from_millis(100);

/// The result of reading all artifacts that outputs name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// How many are intact.
    pub intact: u64,
    /// How many of these other machines have read.
    pub elsewhere: u64,
    /// The files that are missing, here and where machines share them.
    pub missing: Vec<String>,
    /// The files whose content was not that of their name. They were removed, so that the next build makes them again.
    pub damaged: Vec<String>,
}

/// The files to read, and who reads them.
struct Reading<'a> {
    from: &'a dyn Artifacts,
    helpers: &'a dyn Helpers,
    cancel: &'a AtomicBool,
    /// Set when it is cancelled, and when it has failed: other machines are not waited for then.
    is_over: AtomicBool,
    batches: Batches,
}

/// What is left to read, in tasks.
type Batches = Mutex<VecDeque<Vec<Sha256Hex>>>;

/// What is known of an artifact: whether another machine has read it, and the result.
type Found = (Sha256Hex, bool, Result<Checked>);

/// Reads every current output, from where the machines share them if there is such a place, and compares its hash. `step` is
/// called with the number of outputs and of those read.
///
/// Other machines are believed only if they find an artifact intact: this machine repeats all else before it removes anything.
///
/// # Errors
/// A store cannot be read, or it is cancelled.
pub fn verify(
    yard: &Yard,
    store: &dyn Store,
    helpers: &dyn Helpers,
    cancel: &AtomicBool,
    step: &mut dyn FnMut(usize, usize),
) -> Result<Verified> {
    let here = Folder::at(&yard.path("distfiles"));
    let depot = yard.depot()?;
    let from: &dyn Artifacts = match &depot {
        Some(depot) => &**depot,
        None => &here,
    };
    let mut outputs = BTreeMap::new();
    for row in store.outputs().map_err(store_error)? {
        let sha256 = Sha256Hex::parse(&row.output.sha256).context(Kind::Machine, READING)?;
        outputs.insert(sha256, (row.output.file, row.output.size_bytes));
    }
    let sizes = outputs.iter().map(|(sha256, (_, size_bytes))| (sha256, *size_bytes));
    // Without such a place, files would only pass through this machine.
    let slots = if depot.is_some() { helpers.slots(Role::Check).min(ELSEWHERE_MAX) } else { 0 };
    let readers = slots as usize + READ_HERE;
    let batches = batches(sizes, (outputs.len() / (readers * BATCHES_MIN)).clamp(1, BATCH_MAX));
    let reading =
        Reading { from, helpers, cancel, is_over: AtomicBool::new(false), batches: Mutex::new(batches) };
    let (mut verified, mut done) = (Verified::default(), 0);
    let mut damaged = Vec::new();
    reading.all(slots, &mut |(sha256, is_elsewhere, result)| {
        done += 1;
        step(outputs.len(), done);
        let file = || outputs.get(&sha256).map(|(file, _)| file.clone()).unwrap_or_default();
        match result? {
            Checked::Intact => {
                verified.intact += 1;
                verified.elsewhere += u64::from(is_elsewhere);
            }
            Checked::Missing => verified.missing.push(file()),
            Checked::Damaged => {
                verified.damaged.push(file());
                damaged.push(sha256);
            }
        }
        Ok(())
    })?;
    for sha256 in damaged {
        remove(&here, depot.as_ref(), &sha256)?;
    }
    verified.missing.sort();
    verified.damaged.sort();
    Ok(verified)
}

fn remove(here: &Folder, depot: Option<&Arc<dyn Depot>>, sha256: &Sha256Hex) -> Result<()> {
    here.remove(sha256).context(Kind::Machine, READING)?;
    match depot {
        Some(depot) => depot.remove_before(sha256, f64::INFINITY).map(drop).context(Kind::Machine, READING),
        None => Ok(()),
    }
}

/// Tasks of at most this many artifacts, for artifacts and their sizes.
fn batches<'a>(
    artifacts: impl Iterator<Item = (&'a Sha256Hex, u64)>,
    count_max: usize,
) -> VecDeque<Vec<Sha256Hex>> {
    let (mut batches, mut bytes) = (VecDeque::<Vec<Sha256Hex>>::new(), 0);
    for (sha256, size_bytes) in artifacts {
        match batches
            .back_mut()
            .filter(|last| last.len() < count_max && bytes + size_bytes <= BATCH_BYTES_MAX)
        {
            Some(last) => {
                bytes += size_bytes;
                last.push(sha256.clone());
            }
            None => {
                bytes = size_bytes;
                batches.push_back(vec![sha256.clone()]);
            }
        }
    }
    batches
}

impl Reading<'_> {
    /// Reads all, and passes on the result of each.
    fn all(&self, slots: u32, each: &mut dyn FnMut(Found) -> Result<()>) -> Result<()> {
        let doubtful = Mutex::new(VecDeque::new());
        self.in_threads(slots, &self.batches, &doubtful, each)?;
        self.in_threads(0, &doubtful, &Mutex::default(), each)?;
        match self.cancel.load(Ordering::Relaxed) {
            true => Err(Error::new(Kind::Interrupted, "interrupted; nothing was removed")),
            false => Ok(()),
        }
    }

    /// Reads these batches in threads of this machine, and of others in as many slots. What others do not find intact is
    /// left over.
    fn in_threads(
        &self,
        slots: u32,
        batches: &Batches,
        doubtful: &Batches,
        each: &mut dyn FnMut(Found) -> Result<()>,
    ) -> Result<()> {
        let (sender, found) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..slots {
                let sender = sender.clone();
                scope.spawn(move || self.elsewhere(&sender, doubtful));
            }
            for _ in 0..READ_HERE {
                let sender = sender.clone();
                scope.spawn(move || self.here(batches, &sender));
            }
            drop(sender);
            loop {
                let result = match found.recv_timeout(STEP) {
                    Ok(found) => each(found),
                    Err(mpsc::RecvTimeoutError::Timeout) => Ok(()),
                    Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(()),
                };
                if result.is_err() || self.cancel.load(Ordering::Relaxed) {
                    self.is_over.store(true, Ordering::Relaxed);
                }
                result?;
            }
        })
    }

    /// Has another machine read one batch after another.
    fn elsewhere(&self, found: &mpsc::Sender<Found>, doubtful: &Batches) {
        while let Some(batch) = self.next(&self.batches) {
            let Ok(checked) = self.helpers.check(batch.clone(), &self.is_over) else {
                // It cannot read the store, or it is gone.
                push(doubtful, batch);
                return;
            };
            let is_intact = |sha256: &Sha256Hex| checked.get(sha256) == Some(&Checked::Intact);
            let (intact, rest): (Vec<_>, Vec<_>) = batch.into_iter().partition(is_intact);
            if !rest.is_empty() {
                push(doubtful, rest);
            }
            for sha256 in intact {
                if found.send((sha256, true, Ok(Checked::Intact))).is_err() {
                    return;
                }
            }
        }
    }

    /// Reads one artifact after another on this machine.
    fn here(&self, batches: &Batches, found: &mpsc::Sender<Found>) {
        while let Some(batch) = self.next(batches) {
            for sha256 in batch {
                if self.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let result = self.read(&sha256).context(Kind::Machine, READING);
                if found.send((sha256, false, result)).is_err() {
                    return;
                }
            }
        }
    }

    fn next(&self, batches: &Batches) -> Option<Vec<Sha256Hex>> {
        let next = || batches.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        (!self.is_over.load(Ordering::Relaxed)).then(next).flatten()
    }

    fn read(&self, sha256: &Sha256Hex) -> std::result::Result<Checked, ArtifactError> {
        match self.from.open(sha256) {
            Err(ArtifactError::Missing(_)) => Ok(Checked::Missing),
            Err(error) => Err(error),
            Ok(mut content) => {
                let failed = |error| ArtifactError::io(format!("read {sha256}"), error);
                let (found, _) = hash_of(&mut content).map_err(failed)?;
                Ok(if found == *sha256 { Checked::Intact } else { Checked::Damaged })
            }
        }
    }
}

fn push(batches: &Batches, batch: Vec<Sha256Hex>) {
    batches.lock().unwrap_or_else(PoisonError::into_inner).push_front(batch);
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilnyard_artifacts::Storage;
    use kilnyard_model::order::BuildOrder;
    use kilnyard_process::Captured;
    use std::collections::HashMap;
    use std::io;

    /// Gives the same answer about every artifact, or none.
    struct Says(Option<Checked>);

    impl Helpers for Says {
        fn slots(&self, _: Role) -> u32 {
            2
        }

        fn run(&self, _: BuildOrder, _: &AtomicBool) -> io::Result<Captured> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn check(&self, asked: Vec<Sha256Hex>, _: &AtomicBool) -> io::Result<HashMap<Sha256Hex, Checked>> {
            let answer = self.0.ok_or(io::ErrorKind::NotConnected)?;
            // One artifact is left out.
            Ok(asked.into_iter().skip(1).map(|sha256| (sha256, answer)).collect())
        }
    }

    #[test]
    fn what_workers_find_damaged_or_missing_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = Folder::open(folder.path()).unwrap();
        let mut all: Vec<Sha256Hex> = (0..40)
            .map(|n| store.insert(&mut format!("file {n}").as_bytes(), Storage::Plain).unwrap().0)
            .collect();
        all.push(Sha256Hex::parse(&"0".repeat(64)).unwrap());
        for said in [Some(Checked::Damaged), Some(Checked::Missing), None] {
            let sizes = all.iter().map(|sha256| (sha256, 10));
            let batches = Mutex::new(batches(sizes, 3));
            let helpers = Says(said);
            let (cancel, is_over) = (&AtomicBool::new(false), AtomicBool::new(false));
            let reading = Reading { from: &store, helpers: &helpers, cancel, is_over, batches };
            let mut found = BTreeMap::new();
            let each = &mut |(sha256, is_elsewhere, checked): Found| {
                assert!(!is_elsewhere);
                assert!(found.insert(sha256, checked.unwrap()).is_none(), "it was read twice");
                Ok(())
            };
            reading.all(2, each).unwrap();
            assert_eq!(found.len(), all.len());
            assert_eq!(found.remove(&all[40]), Some(Checked::Missing));
            assert!(found.values().all(|checked| *checked == Checked::Intact), "{said:?}");
        }
    }

    /// Answers only when it is cancelled.
    struct Hangs;

    impl Helpers for Hangs {
        fn slots(&self, _: Role) -> u32 {
            1
        }

        fn run(&self, _: BuildOrder, _: &AtomicBool) -> io::Result<Captured> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn check(&self, _: Vec<Sha256Hex>, cancel: &AtomicBool) -> io::Result<HashMap<Sha256Hex, Checked>> {
            while !cancel.load(Ordering::Relaxed) {
                std::thread::sleep(STEP);
            }
            Err(io::ErrorKind::Interrupted.into())
        }
    }

    #[test]
    fn workers_that_hang_are_not_waited_for_after_a_failure_or_an_interruption() {
        let folder = tempfile::tempdir().unwrap();
        let store = Folder::open(folder.path()).unwrap();
        let all: Vec<Sha256Hex> = (0..10).map(|n| Sha256Hex::parse(&format!("{n:064x}")).unwrap()).collect();
        for is_cancelled in [false, true] {
            let batches = Mutex::new(batches(all.iter().map(|sha256| (sha256, 10)), 1));
            let (cancel, is_over) = (&AtomicBool::new(is_cancelled), AtomicBool::new(false));
            let reading = Reading { from: &store, helpers: &Hangs, cancel, is_over, batches };
            let failed = || Error::new(Kind::Machine, "the store cannot be read");
            let mut each = |_| if is_cancelled { Ok(()) } else { Err(failed()) };
            let ended = reading.all(1, &mut each).unwrap_err();
            assert_eq!(ended.kind, if is_cancelled { Kind::Interrupted } else { Kind::Machine });
        }
    }

    #[test]
    fn batches_are_bounded_by_number_and_size() {
        let all: Vec<Sha256Hex> = (0..10).map(|n| Sha256Hex::parse(&format!("{n:064x}")).unwrap()).collect();
        let of = |size_bytes: u64, count_max| {
            let batches = batches(all.iter().map(|sha256| (sha256, size_bytes)), count_max);
            batches.iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(of(1, 4), [4, 4, 2]);
        assert_eq!(of(BATCH_BYTES_MAX / 2, 4), [2; 5]);
        assert_eq!(of(BATCH_BYTES_MAX * 2, 4), [1; 10]);
    }
}
