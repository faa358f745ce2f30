//! Files that arrive in parts: what an interrupted upload has left, until the worker continues it.
//!
//! Each worker has one upload per hash, with a file of its own in a folder of the door. One request at a time writes to
//! it: a later one ends the earlier, which may be what remains of a broken connection, and waits until it has stopped.
//! An upload belongs to the attempt that continued it last, and is removed when that ends.
//!
//! Nothing of this is on record: a door that is started again removes all of it, and workers begin anew.

use kilnyard_model::sha256::Sha256Hex;
use std::collections::{BTreeSet, HashMap};
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;

/// The folder of uploads in that of the door.
const FOLDER: &str = "uploads";
/// The most uploads of one worker: more than it sends at once. The one that has rested longest makes room.
const UPLOADS_MAX: usize = 64;
/// The most bytes of the uploads of one worker: two of the largest files. They count with the size of the whole file.
const BYTES_MAX: u64 = 128 << 30;

/// See the module documentation.
#[derive(Debug)]
pub struct Uploads {
    folder: PathBuf,
    known: Mutex<Known>,
}

/// The uploads of each worker.
#[derive(Debug, Default)]
struct Known {
    workers: HashMap<String, HashMap<Sha256Hex, Upload>>,
    /// Counts requests: numbers files, and says which upload has rested longest.
    count: u64,
}

#[derive(Debug)]
struct Upload {
    attempt: String,
    /// No other upload ever has this path, so that it can be removed at any time.
    path: PathBuf,
    size_bytes: u64,
    /// The requests that write to it, or wait for that.
    requests: usize,
    /// The number of its last request.
    last: u64,
    /// Ends its last request.
    end: CancellationToken,
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Upload {
    /// Ends what writes to an upload that is no longer known, and removes the file.
    fn discard(self) {
        self.end.cancel();
        // It may never have been written. An error leaves a file that the next start removes.
        let _ = fs_err::remove_file(self.path);
    }
}

/// A request that continues an upload.
#[derive(Debug)]
pub struct Request {
    uploads: Arc<Uploads>,
    worker: String,
    sha256: Sha256Hex,
    path: PathBuf,
    /// Cancelled when another request takes over, or the upload is removed.
    pub end: CancellationToken,
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Uploads {
    /// The uploads of the door in this folder. Those of an earlier process are removed.
    ///
    /// # Errors
    /// They cannot be removed.
    pub fn open(folder: &Path) -> io::Result<Uploads> {
        let folder = folder.join(FOLDER);
        match fs_err::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(Uploads { folder, known: Mutex::default() }),
        }
    }

    /// It is never locked across a wait, or while a file is read or written.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of bytes that have arrived of a file.
    pub fn arrived_bytes(&self, worker: &str, sha256: &Sha256Hex) -> u64 {
        let path =
            self.known().workers.get(worker).and_then(|uploads| Some(uploads.get(sha256)?.path.clone()));
        path.and_then(|path| Some(fs_err::metadata(path).ok()?.len())).unwrap_or(0)
    }

    /// Begins or continues the upload of a file that is to have `size_bytes` bytes, in place of an earlier request.
    /// Returns none if the worker uploads too much at once. The name of a worker is safe as that of a file.
    pub fn begin(
        self: &Arc<Uploads>,
        worker: &str,
        attempt: &str,
        sha256: &Sha256Hex,
        size_bytes: u64,
    ) -> Option<Request> {
        let mut known = self.known();
        known.count += 1;
        let count = known.count;
        let uploads = known.workers.entry(worker.to_owned()).or_default();
        let in_the_way = make_room(uploads, sha256, size_bytes)?;
        let upload = uploads.entry(sha256.clone()).or_insert_with(|| Upload {
            attempt: String::new(),
            path: self.folder.join(worker).join(format!("{sha256}.{count}")),
            size_bytes,
            requests: 0,
            last: 0,
            end: CancellationToken::new(),
            turn: Arc::default(),
        });
        upload.end.cancel();
        upload.end = CancellationToken::new();
        attempt.clone_into(&mut upload.attempt);
        (upload.size_bytes, upload.last) = (size_bytes, count);
        upload.requests += 1;
        let (path, end, turn) = (upload.path.clone(), upload.end.clone(), upload.turn.clone());
        drop(known);
        in_the_way.into_iter().for_each(Upload::discard);
        let (uploads, worker, sha256) = (self.clone(), worker.to_owned(), sha256.clone());
        Some(Request { uploads, worker, sha256, path, end, turn })
    }

    /// Removes the uploads of a worker for an attempt that has ended.
    pub fn end(&self, worker: &str, attempt: &str) {
        self.remove(|of, upload| of == worker && upload.attempt == attempt);
    }

    /// Removes all uploads of a worker.
    pub fn end_all(&self, worker: &str) {
        self.remove(|of, _| of == worker);
    }

    /// Removes all uploads, except for those of these workers and attempts.
    pub fn keep(&self, attempts: &BTreeSet<(String, String)>) {
        self.remove(|of, upload| !attempts.contains(&(of.to_owned(), upload.attempt.clone())));
    }

    fn remove(&self, is_over: impl Fn(&str, &Upload) -> bool) {
        let mut over = Vec::new();
        self.known().workers.retain(|worker, uploads| {
            over.extend(uploads.extract_if(|_, upload| is_over(worker, upload)).map(|(_, upload)| upload));
            !uploads.is_empty()
        });
        over.into_iter().for_each(Upload::discard);
    }
}

/// Takes out those uploads of a worker that must go for another one, the one that has rested longest first. Returns none
/// if those that arrive leave no room.
fn make_room(
    uploads: &mut HashMap<Sha256Hex, Upload>,
    sha256: &Sha256Hex,
    size_bytes: u64,
) -> Option<Vec<Upload>> {
    let has_room = |others: &mut dyn Iterator<Item = &Upload>| {
        let (count, bytes) = others.fold((0, size_bytes), |(count, bytes), upload| {
            (count + 1, bytes.saturating_add(upload.size_bytes))
        });
        count < UPLOADS_MAX && bytes <= BYTES_MAX
    };
    if !has_room(&mut others(uploads, sha256).map(|(_, upload)| upload).filter(|upload| upload.requests > 0))
    {
        return None;
    }
    let mut removed = Vec::new();
    while !has_room(&mut others(uploads, sha256).map(|(_, upload)| upload)) {
        let resting = others(uploads, sha256).filter(|(_, upload)| upload.requests == 0);
        let oldest = resting.min_by_key(|(_, upload)| upload.last)?.0.clone();
        removed.extend(uploads.remove(&oldest));
    }
    Some(removed)
}

fn others<'a>(
    uploads: &'a HashMap<Sha256Hex, Upload>,
    sha256: &'a Sha256Hex,
) -> impl Iterator<Item = (&'a Sha256Hex, &'a Upload)> {
    uploads.iter().filter(move |(other, _)| *other != sha256)
}

impl Request {
    /// Waits until earlier requests of this upload have stopped. Returns none if it is no longer this one's turn.
    pub async fn turn(&self) -> Option<OwnedMutexGuard<()>> {
        let turn = self.turn.clone().lock_owned().await;
        (!self.end.is_cancelled()).then_some(turn)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the rest of the file from this offset on: `rest_bytes` bytes, over what has arrived of them before. Returns
    /// the number of bytes that have arrived, if it is less than the offset, and writes nothing then.
    ///
    /// # Errors
    /// The rest broke off, or the file cannot be written. What has arrived stays.
    pub fn write(&self, offset: u64, rest_bytes: u64, from: &mut impl Read) -> io::Result<Option<u64>> {
        if let Some(folder) = self.path.parent() {
            fs_err::create_dir_all(folder)?;
        }
        let mut options = fs_err::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(false).open(&self.path)?;
        let arrived = file.metadata()?.len();
        if arrived < offset {
            return Ok(Some(arrived));
        }
        file.seek(io::SeekFrom::Start(offset))?;
        if io::copy(&mut from.take(rest_bytes), &mut file)? < rest_bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // An earlier request may have sent more.
        file.set_len(offset + rest_bytes)?;
        Ok(None)
    }

    /// Ends the upload: the file is in the store, or useless.
    pub fn forget(&self) {
        self.uploads.remove(|worker, upload| worker == self.worker && upload.path == self.path);
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let mut known = self.uploads.known();
        let upload = known.workers.get_mut(&self.worker).and_then(|uploads| uploads.get_mut(&self.sha256));
        // Another one may have taken its place.
        if let Some(upload) = upload.filter(|upload| upload.path == self.path) {
            upload.requests -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sha(number: usize) -> Sha256Hex {
        Sha256Hex::parse(&format!("{number:064x}")).unwrap()
    }

    fn uploads() -> (tempfile::TempDir, Arc<Uploads>) {
        let folder = tempfile::tempdir().unwrap();
        let uploads = Arc::new(Uploads::open(folder.path()).unwrap());
        (folder, uploads)
    }

    fn files(folder: &tempfile::TempDir, worker: &str) -> usize {
        std::fs::read_dir(folder.path().join(FOLDER).join(worker)).map_or(0, Iterator::count)
    }

    #[test]
    fn parts_follow_or_overlap_each_other_and_gaps_are_refused() {
        let (folder, uploads) = uploads();
        let request = uploads.begin("w", "a", &sha(1), 10).unwrap();
        let text = || std::fs::read_to_string(request.path()).unwrap();
        assert!(request.write(0, 10, &mut &b"0123"[..]).is_err(), "it broke off");
        assert_eq!(uploads.arrived_bytes("w", &sha(1)), 4);
        assert_eq!(request.write(5, 5, &mut &b"56789"[..]).unwrap(), Some(4));
        assert_eq!(text(), "0123");
        assert!(request.write(2, 8, &mut &b"2345"[..]).is_err());
        assert_eq!(text(), "012345");
        // A repeated part that breaks off loses nothing of what was there.
        assert!(request.write(0, 10, &mut &b"01"[..]).is_err());
        assert_eq!(text(), "012345");
        assert_eq!(request.write(6, 4, &mut &b"6789 and more"[..]).unwrap(), None);
        assert_eq!(text(), "0123456789");
        // A shorter file.
        assert_eq!(request.write(3, 1, &mut &b"3"[..]).unwrap(), None);
        assert_eq!(text(), "0123");
        assert_eq!((uploads.arrived_bytes("v", &sha(1)), uploads.arrived_bytes("w", &sha(2))), (0, 0));
        request.forget();
        assert_eq!((uploads.arrived_bytes("w", &sha(1)), files(&folder, "w")), (0, 0));
    }

    #[test]
    fn what_an_attempt_left_is_removed_with_it() {
        let (folder, uploads) = uploads();
        let left = |worker: &str, attempt: &str, number: usize| {
            let request = uploads.begin(worker, attempt, &sha(number), 9).unwrap();
            request.write(0, 9, &mut &b"part"[..]).unwrap_err();
        };
        left("w", "a", 1);
        left("w", "b", 2);
        left("v", "a", 1);
        uploads.end("w", "a");
        assert_eq!((files(&folder, "w"), files(&folder, "v")), (1, 1));
        // The next attempt continues what the last one left, and owns it.
        left("w", "c", 2);
        uploads.end("w", "b");
        assert_eq!(uploads.arrived_bytes("w", &sha(2)), 4);
        uploads.keep(&[("w".to_owned(), "c".to_owned())].into());
        assert_eq!((files(&folder, "w"), files(&folder, "v")), (1, 0));
        uploads.end_all("w");
        assert_eq!(files(&folder, "w"), 0);
        left("w", "a", 1);
        let again = Uploads::open(folder.path()).unwrap();
        assert_eq!((again.arrived_bytes("w", &sha(1)), files(&folder, "w")), (0, 0));
    }

    #[test]
    fn uploads_of_a_worker_are_bounded_in_number_and_size() {
        let (folder, uploads) = uploads();
        for number in 0..UPLOADS_MAX + 5 {
            let request = uploads.begin("w", "a", &sha(number), 9).unwrap();
            request.write(0, 9, &mut &b"part"[..]).unwrap_err();
        }
        assert_eq!(files(&folder, "w"), UPLOADS_MAX);
        assert_eq!(uploads.arrived_bytes("w", &sha(4)), 0, "the oldest made room");
        // A large file takes the place of all that rest, but not of one that arrives.
        let arriving = uploads.begin("w", "a", &sha(1000), BYTES_MAX / 2).unwrap();
        arriving.write(0, 9, &mut &b"part"[..]).unwrap_err();
        let large = uploads.begin("w", "a", &sha(1001), BYTES_MAX / 2).unwrap();
        assert!(uploads.begin("w", "a", &sha(1002), 1).is_none());
        assert!(uploads.begin("v", "a", &sha(1002), u64::MAX).is_none());
        assert!(uploads.begin("v", "a", &sha(1002), 1).is_some(), "another worker is not concerned");
        assert_eq!((files(&folder, "w"), uploads.arrived_bytes("w", &sha(1000))), (1, 4));
        drop(large);
        assert!(uploads.begin("w", "a", &sha(1002), 1).is_some());
    }

    #[tokio::test]
    async fn a_later_request_takes_over() {
        let (_folder, uploads) = uploads();
        let first = uploads.begin("w", "a", &sha(1), 9).unwrap();
        let turn = first.turn().await.unwrap();
        let second = uploads.begin("w", "a", &sha(1), 9).unwrap();
        assert!(first.end.is_cancelled() && !second.end.is_cancelled());
        let third = uploads.begin("w", "a", &sha(1), 9).unwrap();
        drop(turn);
        assert!(second.turn().await.is_none());
        assert!(third.turn().await.is_some());
        third.forget();
        assert!(third.turn().await.is_none());
    }
}
