//! A store of artifacts in a folder: `AB/ABCD…` uncompressed, `AB/ABCD….zst` compressed.

use crate::{ArtifactError, Artifacts, Depot, Finding, Listed, Outcome, Storage, insert_checked};
use kilnyard_model::artifact::{Artifact, Media};
use kilnyard_model::sha256::Sha256Hex;
use sha2::{Digest, Sha256};
use std::fs::{self, File, FileTimes, Metadata, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Extension of compressed files.
const COMPRESSED: &str = "zst";
/// The zstd level: this compresses a base root of 300 MB to a third in two seconds.
const LEVEL: i32 = 3;
/// Size of the read buffer.
const CHUNK_BYTES: usize = 128 << 10;

/// See the module documentation.
#[derive(Debug)]
pub struct Folder {
    folder: PathBuf,
}

impl Folder {
    /// Opens a folder, which is created if it is missing.
    pub fn open(folder: &Path) -> io::Result<Folder> {
        fs::create_dir_all(folder)?;
        Ok(Folder::at(folder))
    }

    /// Names a folder, which is created when it gets its first artifact.
    pub fn at(folder: &Path) -> Folder {
        Folder { folder: folder.to_owned() }
    }

    /// The path of the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path of an uncompressed artifact, whether it exists or not.
    pub fn path(&self, sha256: &Sha256Hex) -> PathBuf {
        self.folder.join(&sha256.as_str()[..2]).join(sha256.as_str())
    }

    /// The path of a compressed artifact, whether it exists or not.
    pub fn compressed_path(&self, sha256: &Sha256Hex) -> PathBuf {
        self.path(sha256).with_extension(COMPRESSED)
    }

    /// The file of an artifact, compressed or not, if it exists.
    pub fn find(&self, sha256: &Sha256Hex) -> Option<PathBuf> {
        let is_file = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file());
        [self.path(sha256), self.compressed_path(sha256)].into_iter().find(is_file)
    }

    /// Takes a file into the store, uncompressed, if its content has this hash. The file is gone afterwards: moved, or
    /// copied from another file system. Nothing may write to it meanwhile.
    ///
    /// # Errors
    /// The content differs, and the file is still there, or a file cannot be read or written.
    pub fn adopt(&self, path: &Path, sha256: &Sha256Hex) -> Result<(), ArtifactError> {
        let failed = |source| ArtifactError::io(format!("keep {}", path.display()), source);
        let mut file = File::open(path).map_err(failed)?;
        let (found, _) = hash_of(&mut file).map_err(failed)?;
        if found != *sha256 {
            return Err(ArtifactError::Differs { expected: sha256.clone(), found });
        }
        file.set_permissions(Permissions::from_mode(0o444)).and_then(|()| file.sync_all()).map_err(failed)?;
        let target = self.path(sha256);
        let folder = target.parent().unwrap_or(&self.folder);
        fs::create_dir_all(folder).map_err(failed)?;
        match fs::rename(path, &target) {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                self.insert(&mut File::open(path).map_err(failed)?, Storage::Plain)?;
                fs::remove_file(path).map_err(failed)
            }
            renamed => renamed.and_then(|()| File::open(folder)?.sync_all()).map_err(failed),
        }
    }

    /// Stores small files in memory, uncompressed, each under its hash. They are flushed several at a time, so that small ones wait
    /// for the disk little longer than one.
    ///
    /// # Errors
    /// The content of one differs from its hash, and none is stored; or a file cannot be written.
    pub fn insert_each(&self, files: &[(Sha256Hex, &[u8])]) -> Result<(), ArtifactError> {
        for (expected, content) in files {
            let found = Sha256Hex::of(content);
            if found != *expected {
                return Err(ArtifactError::Differs { expected: expected.clone(), found });
            }
        }
        let share = files.len().div_ceil(FLUSHES_AT_ONCE).max(1);
        let insert = |files: &[(Sha256Hex, &[u8])]| {
            files.iter().try_for_each(|(_, content)| self.insert(&mut &content[..], Storage::Plain).map(drop))
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                files.chunks(share).map(|files| scope.spawn(move || insert(files))).collect();
            let stopped = |_| Err(ArtifactError::io("store files", io::Error::other("a thread panicked")));
            threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(stopped))
        })
    }

    /// Removes an artifact, if it exists.
    pub fn remove(&self, sha256: &Sha256Hex) -> io::Result<()> {
        for path in [self.path(sha256), self.compressed_path(sha256)] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Artifacts for Folder {
    fn contains(&self, sha256: &Sha256Hex) -> Result<bool, ArtifactError> {
        Ok(self.find(sha256).is_some())
    }

    fn open(&self, sha256: &Sha256Hex) -> Result<Box<dyn Read + Send + '_>, ArtifactError> {
        let path = self.find(sha256).ok_or_else(|| ArtifactError::Missing(sha256.clone()))?;
        let failed = |source| ArtifactError::io(format!("open {}", path.display()), source);
        let file = File::open(&path).map_err(failed)?;
        match path.extension().is_some_and(|ending| ending == COMPRESSED) {
            true => Ok(Box::new(zstd::Decoder::new(file).map_err(failed)?)),
            false => Ok(Box::new(file)),
        }
    }

    fn insert(&self, from: &mut dyn Read, storage: Storage) -> Result<(Sha256Hex, u64), ArtifactError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let part = self.folder.join(format!("insert-{}-{count}.part", std::process::id()));
        let failed = |source| ArtifactError::io(format!("write {}", part.display()), source);
        fs::create_dir_all(&self.folder).map_err(failed)?;
        // An earlier process with the same id may have left this file.
        let _ = fs::remove_file(&part);
        let file = File::create_new(&part).map_err(failed)?;
        let _remove = RemoveLater(&part);
        let (sha256, size_bytes) = write(from, &file, storage).map_err(failed)?;
        // Read-only for everyone: the file must not be changed through hard links to it.
        file.set_permissions(Permissions::from_mode(0o444)).and_then(|()| file.sync_all()).map_err(failed)?;
        let target = match storage {
            Storage::Plain => self.path(&sha256),
            Storage::Compressed => self.compressed_path(&sha256),
        };
        let failed = |source| ArtifactError::io(format!("keep {}", target.display()), source);
        let folder = target.parent().unwrap_or(&self.folder);
        fs::create_dir_all(folder).map_err(failed)?;
        fs::rename(&part, &target).and_then(|()| File::open(folder)?.sync_all()).map_err(failed)?;
        Ok((sha256, size_bytes))
    }
}

impl Depot for Folder {
    fn name(&self) -> String {
        format!("file://{}", self.folder.display())
    }

    fn deposit(&self, path: &Path, sha256: &Sha256Hex, fresh_seconds: f64) -> Result<(), ArtifactError> {
        if let Some(file) = self.find(sha256) {
            let failed = |source| ArtifactError::io(format!("renew {}", file.display()), source);
            return match modified_seconds(&fs::metadata(&file).map_err(failed)?) < fresh_seconds {
                true => {
                    let now = FileTimes::new().set_modified(time_of_files());
                    File::open(&file).and_then(|file| file.set_times(now)).map_err(failed)
                }
                false => Ok(()),
            };
        }
        let failed = |source| ArtifactError::io(format!("read {}", path.display()), source);
        let size_bytes = fs::metadata(path).map_err(failed)?.len();
        let artifact = Artifact { sha256: sha256.clone(), size_bytes, media: Media::Bytes };
        let content = Box::new(File::open(path).map_err(failed)?);
        insert_checked(content, &artifact, self, Storage::Plain)
    }

    fn each(&self, each: &mut dyn FnMut(Listed) -> bool) -> Result<(), ArtifactError> {
        let failed = |source| ArtifactError::io(format!("list {}", self.folder.display()), source);
        for part in fs::read_dir(&self.folder).map_err(failed)? {
            let part = part.map_err(failed)?;
            if !part.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            for file in fs::read_dir(part.path()).map_err(failed)? {
                let file = file.map_err(failed)?;
                let name = file.file_name();
                let Some(name) = name.to_str().map(|name| name.trim_end_matches(".zst")) else { continue };
                let (Ok(sha256), Ok(metadata)) = (Sha256Hex::parse(name), file.metadata()) else { continue };
                let modified_seconds = modified_seconds(&metadata);
                if !each(Listed { sha256, size_bytes: metadata.len(), modified_seconds }) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn remove_before(&self, sha256: &Sha256Hex, seconds: f64) -> Result<bool, ArtifactError> {
        let Some(file) = self.find(sha256) else { return Ok(false) };
        let failed = |source| ArtifactError::io(format!("remove artifact {sha256}"), source);
        if modified_seconds(&fs::metadata(&file).map_err(failed)?) >= seconds {
            return Ok(false);
        }
        self.remove(sha256).map_err(failed)?;
        Ok(true)
    }

    fn sweep(&self, _: f64) -> Result<u64, ArtifactError> {
        Ok(0)
    }

    fn examine(&self) -> Vec<Finding> {
        let outcome = match self.try_out() {
            Ok(()) => Outcome::Works,
            Err(error) => Outcome::Refuse(error.to_string()),
        };
        vec![Finding { what: "writing, reading and removing", outcome }]
    }
}

/// The time that a file gets which is written now.
fn time_of_files() -> SystemTime {
    #[expect(clippy::disallowed_methods, reason = "the times of files are the system's")]
    SystemTime::now()
}

/// When a file was last modified, in seconds since 1970.
fn modified_seconds(metadata: &Metadata) -> f64 {
    let since = metadata.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    since.unwrap_or_default().as_secs_f64()
}

/// The content of a trial.
const TRIAL: &[u8] = b"a trial of this store of artifacts";

impl Folder {
    /// Stores, reads and removes an artifact.
    fn try_out(&self) -> Result<(), ArtifactError> {
        let (sha256, _) = self.insert(&mut &*TRIAL, Storage::Plain)?;
        let mut bytes = Vec::new();
        let read = self.open(&sha256)?.read_to_end(&mut bytes);
        read.map_err(|source| ArtifactError::io("read an artifact", source))?;
        self.remove(&sha256).map_err(|source| ArtifactError::io("remove an artifact", source))?;
        match bytes == TRIAL {
            true => Ok(()),
            false => Err(ArtifactError::Differs { expected: sha256, found: Sha256Hex::of(&bytes) }),
        }
    }
}

fn write(from: &mut dyn Read, file: &File, storage: Storage) -> io::Result<(Sha256Hex, u64)> {
    match storage {
        Storage::Plain => copy_hashed(from, &mut &*file),
        Storage::Compressed => {
            let mut encoder = zstd::Encoder::new(file, LEVEL)?;
            encoder.include_checksum(true)?;
            let copied = copy_hashed(from, &mut encoder)?;
            encoder.finish()?;
            Ok(copied)
        }
    }
}

/// The hash and the size of the rest of `from`.
///
/// # Errors
/// `from` cannot be read.
pub fn hash_of(from: &mut dyn Read) -> io::Result<(Sha256Hex, u64)> {
    copy_hashed(from, &mut io::sink())
}

/// Copies and hashes all of `from`.
fn copy_hashed(from: &mut dyn Read, to: &mut dyn Write) -> io::Result<(Sha256Hex, u64)> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut size_bytes = 0;
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok((Sha256Hex::finish(hasher), size_bytes)),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hasher.update(&buffer[..count]);
        to.write_all(&buffer[..count])?;
        size_bytes += count as u64;
    }
}

/// How many files are flushed at once. The disk joins them.
const FLUSHES_AT_ONCE: usize = 16;

struct RemoveLater<'a>(&'a Path);

impl Drop for RemoveLater<'_> {
    fn drop(&mut self) {
        // The file was renamed, or is useless.
        let _ = fs::remove_file(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite;

    #[test]
    fn a_folder_passes_the_suite() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        suite::run(&Folder::open(one.path()).unwrap(), &Folder::open(other.path()).unwrap());
        let parts = |folder: &Path| {
            let entries = fs::read_dir(folder).unwrap().flatten();
            entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(".part")).count()
        };
        assert_eq!((parts(one.path()), parts(other.path())), (0, 0));
    }

    #[test]
    fn damaged_artifacts_are_not_copied() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (from, to) = (Folder::open(one.path()).unwrap(), Folder::open(other.path()).unwrap());
        for storage in [Storage::Plain, Storage::Compressed] {
            let text = format!("{storage:?}");
            let (sha256, size_bytes) = from.insert(&mut text.as_bytes(), storage).unwrap();
            let path = from.find(&sha256).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o444);
            fs::remove_file(&path).unwrap();
            let other = text.to_uppercase();
            match storage {
                Storage::Plain => fs::write(&path, &other).unwrap(),
                Storage::Compressed => {
                    fs::write(&path, zstd::encode_all(other.as_bytes(), 1).unwrap()).unwrap()
                }
            }
            let artifact = Artifact { sha256: sha256.clone(), size_bytes, media: Media::Bytes };
            let error = crate::copy(&artifact, &from, &to, Storage::Plain).unwrap_err();
            assert!(
                matches!(&error, ArtifactError::Differs { expected, .. } if *expected == sha256),
                "{error}"
            );
            assert!(!to.contains(&sha256).unwrap());
            from.remove(&sha256).unwrap();
            from.remove(&sha256).unwrap();
            let error = crate::copy(&artifact, &from, &to, Storage::Plain).unwrap_err();
            assert!(matches!(error, ArtifactError::Missing(_)), "{error}");
        }
    }

    #[test]
    fn a_file_is_adopted_only_under_the_hash_of_its_content() {
        let folder = tempfile::tempdir().unwrap();
        let (store, path) = (Folder::at(&folder.path().join("store")), folder.path().join("file"));
        let sha256 =
            Folder::at(&folder.path().join("other")).insert(&mut &b"text"[..], Storage::Plain).unwrap().0;
        fs::write(&path, "lie").unwrap();
        let adopted = store.adopt(&path, &sha256);
        assert!(matches!(adopted, Err(ArtifactError::Differs { .. })), "{adopted:?}");
        assert!(path.exists() && !store.contains(&sha256).unwrap());
        // The second one takes the place of the first.
        for _ in 0..2 {
            fs::write(&path, "text").unwrap();
            store.adopt(&path, &sha256).unwrap();
            assert!(!path.exists());
        }
        assert_eq!(fs::read(store.path(&sha256)).unwrap(), b"text");
        assert_eq!(fs::metadata(store.path(&sha256)).unwrap().permissions().mode() & 0o777, 0o444);
        // Another file system, where there is one.
        if let Ok(elsewhere) = tempfile::tempdir_in("/dev/shm") {
            let path = elsewhere.path().join("file");
            fs::write(&path, "text").unwrap();
            store.adopt(&path, &sha256).unwrap();
            assert!(!path.exists() && store.contains(&sha256).unwrap());
        }
    }

    #[test]
    fn a_deposited_file_stays_where_it_is_and_is_checked() {
        let folder = tempfile::tempdir().unwrap();
        let (store, path) = (Folder::at(&folder.path().join("store")), folder.path().join("file"));
        fs::write(&path, "text").unwrap();
        let sha256 = Sha256Hex::of(b"text");
        for _ in 0..2 {
            store.deposit(&path, &sha256, 0.0).unwrap();
            assert!(path.exists());
        }
        let other = Sha256Hex::of(b"other");
        let refused = store.deposit(&path, &other, 0.0).unwrap_err();
        assert!(matches!(&refused, ArtifactError::Differs { expected, .. } if *expected == other));
        assert_eq!(store.contains_each(&[other, sha256]).unwrap(), [false, true]);
        assert!(store.deposit(&folder.path().join("absent"), &Sha256Hex::of(b"x"), 0.0).is_err());
        // What is stored again is not old.
        let sha256 = Sha256Hex::of(b"text");
        let file = File::options().write(true).open(store.path(&sha256));
        let file = file.or_else(|_| File::open(store.path(&sha256))).unwrap();
        file.set_times(FileTimes::new().set_modified(UNIX_EPOCH)).unwrap();
        let listed = || {
            let mut found = Vec::new();
            store
                .each(&mut |listed| {
                    found.push((listed.sha256, listed.modified_seconds));
                    true
                })
                .unwrap();
            found
        };
        assert_eq!(listed(), [(sha256.clone(), 0.0)]);
        store.deposit(&path, &sha256, 1000.0).unwrap();
        assert!(listed()[0].1 > 1000.0);
        assert!(!store.remove_before(&sha256, 1000.0).unwrap());
        assert!(store.remove_before(&sha256, 1e12).unwrap() && !store.contains(&sha256).unwrap());
        assert!(!store.remove_before(&sha256, 1e12).unwrap());
    }

    #[test]
    fn a_symbolic_link_is_not_an_artifact() {
        let folder = tempfile::tempdir().unwrap();
        let store = Folder::open(folder.path()).unwrap();
        let sha256 = Sha256Hex::of(b"secret");
        fs::write(folder.path().join("secret"), "secret").unwrap();
        fs::create_dir(store.path(&sha256).parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(folder.path().join("secret"), store.path(&sha256)).unwrap();
        assert!(!store.contains(&sha256).unwrap());
        assert!(store.open(&sha256).is_err());
    }
}
