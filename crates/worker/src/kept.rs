//! Kept work on this machine: an archive for each package and target, made and read by commands in roots alone.
//!
//! The worker only copies bytes between a command's output and a file, so whatever a build puts into its archive, only
//! a root of the same package sees it. An archive is written to a temporary file, and gets its name, which has its key,
//! when it is on the disk: after a kill or a crash there is a whole archive or none. It replaces the former one of the
//! same package and target. When the archives exceed their bound, the least recently used are removed.
//!
//! Known downside: an archive is written and read as a whole, however little has changed.

use kilnyard_model::attempt::Attempt;
use kilnyard_model::keep::KeepOrder;
use kilnyard_model::sha256::Sha256Hex;
use kilnyard_protocol::Hello;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The folder of kept work, relative to the yard.
pub const KEPT_WORK: &str = "kept";
/// The maximum number of archives, which a hello can name.
const ARCHIVES_MAX: usize = Hello::KEPT_MAX;
/// The free space that an archive leaves to others, in bytes.
const FREE_BYTES_MIN: u64 = 2 << 30;
/// The suffix of complete archives.
const COMPLETE: &str = ".tar";
/// The suffix of archives that are being written.
const PART: &str = ".part";

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Kept {
    folder: PathBuf,
    bytes_max: u64,
}

/// A complete archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptArchive {
    pub(crate) path: PathBuf,
    owner: String,
    key: String,
    /// The build that made it.
    pub(crate) build: u64,
}

/// An archive that is being written. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Part {
    file: File,
    path: PathBuf,
    bytes: u64,
    bytes_max: u64,
}

impl KeptArchive {
    fn name(owner: &str, key: &str, build: u64) -> String {
        format!("{owner}-{key}-{build}{COMPLETE}")
    }

    fn at(path: PathBuf) -> Option<KeptArchive> {
        let name = path.file_name()?.to_str()?.strip_suffix(COMPLETE)?;
        let mut parts = name.split('-').map(str::to_owned);
        let (owner, key, build) = (parts.next()?, parts.next()?, parts.next()?.parse().ok()?);
        let is_hash = |text: &str| Sha256Hex::parse(text).is_ok();
        (is_hash(&owner) && is_hash(&key) && parts.next().is_none()).then_some(KeptArchive {
            path,
            owner,
            key,
            build,
        })
    }
}

/// Removes all kept work below the folder of a worker that does not run.
pub fn forget_kept_work(yard: &Path) -> io::Result<()> {
    match fs_err::remove_dir_all(yard.join(KEPT_WORK)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Kept {
    pub(crate) fn new(yard: &Path, bytes_max: u64) -> Kept {
        Kept { folder: yard.join(KEPT_WORK), bytes_max }
    }

    /// Removes archives that are incomplete or exceed the bound. Call it once, before the first build.
    pub(crate) fn sweep(&self) -> io::Result<()> {
        fs_err::create_dir_all(&self.folder)?;
        for entry in fs_err::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|kind| kind == &PART[1..]) {
                fs_err::remove_file(path)?;
            }
        }
        self.prune()
    }

    /// The keys of all archives.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.archives().into_iter().map(|archive| archive.key).collect()
    }

    /// The archive that a build can begin with.
    pub(crate) fn find(&self, order: &KeepOrder) -> Option<KeptArchive> {
        if self.bytes_max == 0 {
            return None;
        }
        let mut archives = self.archives().into_iter();
        let found = archives.find(|archive| (&archive.owner, &archive.key) == (&order.owner, &order.key))?;
        // The time of the last use. Without it, the archive is only removed earlier.
        let _ =
            File::options().append(true).open(&found.path).map(|file| file.set_modified(crate::bound::now()));
        Some(found)
    }

    /// Removes the archive of a package and its target.
    pub(crate) fn forget(&self, order: &KeepOrder) {
        for archive in self.archives().iter().filter(|archive| archive.owner == order.owner) {
            // What cannot be removed can be used, and the next build says so.
            let _ = fs_err::remove_file(&archive.path);
        }
    }

    /// Removes what a build left, which succeeded on this machine and does not count.
    pub(crate) fn forget_build(&self, build: u64) {
        for archive in self.archives().iter().filter(|archive| archive.build == build) {
            let _ = fs_err::remove_file(&archive.path);
        }
    }

    /// Begins an archive; `None` if nothing is kept on this machine.
    pub(crate) fn begin(&self, attempt: Attempt) -> io::Result<Option<Part>> {
        if self.bytes_max == 0 {
            return Ok(None);
        }
        // Builds of several stores may have the same number.
        let path = self.folder.join(format!("{attempt}{PART}"));
        let (file, path) = fs_err::File::create(path)?.into_parts();
        let free = rustix::fs::fstatvfs(&file)?;
        let free_bytes = free.f_bavail.saturating_mul(free.f_frsize).saturating_sub(FREE_BYTES_MIN);
        Ok(Some(Part { file, path, bytes: 0, bytes_max: self.bytes_max.min(free_bytes) }))
    }

    /// Completes an archive, in place of the former one of the package and its target.
    pub(crate) fn complete(&self, part: &Part, order: &KeepOrder, build: u64) -> io::Result<()> {
        part.file.sync_all()?;
        let name = KeptArchive::name(&order.owner, &order.key, build);
        let former: Vec<KeptArchive> =
            self.archives().into_iter().filter(|one| one.owner == order.owner).collect();
        fs_err::rename(&part.path, self.folder.join(&name))?;
        fs_err::File::open(&self.folder)?.sync_all()?;
        for archive in former.iter().filter(|archive| !archive.path.ends_with(&name)) {
            if let Some(former) = archive.path.file_name().and_then(|name| name.to_str()) {
                self.remove(former)?;
            }
        }
        self.prune()
    }

    fn archives(&self) -> Vec<KeptArchive> {
        let entries = fs_err::read_dir(&self.folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| KeptArchive::at(entry.path())).collect()
    }

    /// The time of the last use, the size in bytes and the file name of each archive.
    pub(crate) fn dated(&self) -> Vec<(SystemTime, u64, String)> {
        let dated = self.archives().into_iter().filter_map(|archive| {
            // Another build may just have replaced it.
            let facts = fs_err::symlink_metadata(&archive.path).ok()?;
            Some((facts.modified().ok()?, facts.len(), archive.path.file_name()?.to_str()?.to_owned()))
        });
        dated.collect()
    }

    /// Removes an archive, if it is still there.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match fs_err::remove_file(self.folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes the least recently used archives that exceed the bounds.
    fn prune(&self) -> io::Result<()> {
        let mut archives = self.dated();
        archives.sort_by(|one, other| other.cmp(one));
        let mut bytes = 0_u64;
        for (at, (_, size, name)) in archives.into_iter().enumerate() {
            bytes = bytes.saturating_add(size);
            if bytes > self.bytes_max || at >= ARCHIVES_MAX {
                self.remove(&name)?;
            }
        }
        Ok(())
    }
}

impl Part {
    /// Its size so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Write for Part {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.bytes_max - self.bytes {
            let message =
                format!("it has more than {} bytes (`kept` of [build], and the free space)", self.bytes_max);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
        }
        let count = self.file.write(bytes)?;
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // A complete archive has another name already.
        let _ = fs_err::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilnyard_model::order::{Account, CommandOrder, Key};
    use std::time::Duration;

    fn attempt(build: u64) -> Attempt {
        Attempt::from_bytes([build as u8; 16])
    }

    fn order(package: &str, compiler: &str) -> KeepOrder {
        let command = CommandOrder {
            arguments: Vec::new(),
            account: Account::Builder,
            directory: "/".to_owned(),
            environment: Vec::new(),
        };
        let key = Key { digest: String::new(), lines: vec![format!("depends gcc {compiler}")] };
        KeepOrder::new(package, &key, command.clone(), command)
    }

    fn keep(kept: &Kept, order: &KeepOrder, build: u64, size: usize) {
        let mut part = kept.begin(attempt(build)).unwrap().unwrap();
        part.write_all(&vec![0; size]).unwrap();
        kept.complete(&part, order, build).unwrap();
    }

    #[test]
    fn the_latest_work_of_a_package_is_kept_within_the_bound() {
        let yard = tempfile::tempdir().unwrap();
        let kept = Kept::new(yard.path(), 100);
        kept.sweep().unwrap();
        let (one, newer, two) = (order("one", "1"), order("one", "2"), order("two", "1"));
        keep(&kept, &one, 1, 40);
        assert_eq!(kept.find(&one).unwrap().build, 1);
        assert_eq!((kept.find(&newer), kept.find(&two)), (None, None));
        // With another compiler, and then again with the same one.
        keep(&kept, &newer, 2, 40);
        assert_eq!((kept.find(&one), kept.find(&newer).unwrap().build), (None, 2));
        keep(&kept, &newer, 3, 40);
        assert_eq!((kept.find(&newer).unwrap().build, kept.keys()), (3, vec![newer.key.clone()]));
        // The least recently used is removed.
        let path = kept.find(&newer).unwrap().path;
        let past = SystemTime::now() - Duration::from_secs(60);
        File::options().append(true).open(path).unwrap().set_modified(past).unwrap();
        keep(&kept, &two, 4, 70);
        assert_eq!((kept.find(&newer), kept.find(&two).unwrap().build), (None, 4));
        kept.forget_build(2);
        assert!(kept.find(&two).is_some());
        kept.forget_build(4);
        assert_eq!(kept.find(&two), None);
        keep(&kept, &two, 5, 70);
        kept.forget(&two);
        assert_eq!(kept.keys(), Vec::<String>::new());
    }

    #[test]
    fn an_archive_that_is_too_large_or_incomplete_is_not_used() {
        let yard = tempfile::tempdir().unwrap();
        let kept = Kept::new(yard.path(), 100);
        kept.sweep().unwrap();
        let mut part = kept.begin(attempt(1)).unwrap().unwrap();
        part.write_all(&[0; 100]).unwrap();
        assert_eq!(part.write_all(&[0]).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        drop(part);
        assert_eq!(fs_err::read_dir(yard.path().join(KEPT_WORK)).unwrap().count(), 0);
        // As after a kill.
        std::mem::forget(kept.begin(attempt(2)).unwrap());
        let folder = yard.path().join(KEPT_WORK);
        fs_err::write(folder.join("foreign-name.tar"), "").unwrap();
        assert_eq!(kept.keys(), Vec::<String>::new());
        kept.sweep().unwrap();
        let names: Vec<_> =
            fs_err::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["foreign-name.tar"]);
        let none = Kept::new(yard.path(), 0);
        assert!(none.begin(attempt(3)).unwrap().is_none() && none.find(&order("one", "1")).is_none());
    }
}
