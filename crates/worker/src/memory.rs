//! Work folders in memory: what most builds write is small, read once, and thrown away.
//!
//! They lie in the machine's own file system in memory, each with a name that tells its yard, so that the next start
//! finds what a killed one left. A build gets one if twice what it is expected to write fits into half of the memory
//! that was there at the start, less what other builds were promised. What grows beyond that is built again on the disk.

use kilnyard_root::sandbox::Task;
use kilnyard_root::{IdMap, Sandbox, User, View, probe};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Where Linux has a file system in memory that everybody may write in.
const SHARED_MEMORY: &str = "/dev/shm";
/// A build is promised so many times of what it is expected to write: guesses are rough.
const MARGIN: u64 = 2;
/// Less than this is promised to nobody, since even a small package unpacks sources.
const PROMISED_BYTES_MIN: u64 = 64 << 20;
/// A part of the machine's memory, as a divisor.
const PART_OF_MEMORY: u64 = 2;
/// What should be free at the least in the file system in memory.
const FREE_BYTES_MIN: u64 = 64 << 20;

/// See the module.
#[derive(Debug)]
pub(crate) struct Memory {
    /// What the names of this yard's folders begin with; none where there is no such file system.
    prefix: Option<String>,
    ids: IdMap,
    room_bytes: Mutex<u64>,
}

/// A folder in memory, and what its build was promised. Dropping it gives the promise back: it has to be removed
/// before.
#[derive(Debug)]
pub(crate) struct WorkFolder {
    memory: Arc<Memory>,
    /// Where it is. The folder above it is closed to all but the root's own root, so that no other user of the machine
    /// reaches it.
    pub(crate) path: PathBuf,
    promised_bytes: u64,
}

impl Memory {
    pub(crate) fn new(yard: &Path, ids: &IdMap, is_wanted: bool) -> Memory {
        let has_place = is_wanted && is_usable(Path::new(SHARED_MEMORY));
        Memory {
            prefix: has_place.then(|| prefix_of(yard)),
            ids: ids.clone(),
            room_bytes: Mutex::new(available_bytes() / PART_OF_MEMORY),
        }
    }

    /// A folder for a build that is expected to write so much; none where there is no room.
    pub(crate) fn take(self: &Arc<Self>, expected_bytes: u64, name: &str) -> Option<WorkFolder> {
        let prefix = self.prefix.as_ref()?;
        let promised_bytes = (expected_bytes.saturating_mul(MARGIN)).max(PROMISED_BYTES_MIN);
        {
            let mut room = self.room_bytes.lock().ok()?;
            *room = room.checked_sub(promised_bytes)?;
        }
        let closed = Path::new(SHARED_MEMORY).join(format!("{prefix}{name}"));
        let folder = WorkFolder { memory: self.clone(), path: closed.join("build"), promised_bytes };
        // Where it cannot be made, the disk serves.
        let made = make(&closed, 0o700, &self.ids).and_then(|()| make(&folder.path, 0o1777, &self.ids));
        if made.is_err() {
            let _ = folder.remove();
        }
        made.is_ok().then_some(folder)
    }
}

fn make(path: &Path, mode: u32, ids: &IdMap) -> io::Result<()> {
    fs_err::create_dir(path)?;
    fs_err::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    probe::give_to_root(path, ids)
}

impl WorkFolder {
    /// Removes the folder with all that is in it.
    pub(crate) fn remove(&self) -> io::Result<()> {
        self.path.parent().map_or(Ok(()), |closed| remove(closed, &self.memory.ids))
    }

    /// Whether the build wrote more than was promised, or there is no room any more.
    pub(crate) fn is_exhausted(&self) -> bool {
        let is_full = rustix::fs::statvfs(SHARED_MEMORY)
            .is_ok_and(|facts| facts.f_bavail * facts.f_frsize < FREE_BYTES_MIN);
        is_full || used_bytes(&self.path) > self.promised_bytes
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        if let Ok(mut room) = self.memory.room_bytes.lock() {
            *room += self.promised_bytes;
        }
    }
}

/// What the files below a folder take.
pub(crate) fn used_bytes(folder: &Path) -> u64 {
    let mut bytes = 0;
    let mut open = vec![folder.to_owned()];
    while let Some(path) = open.pop() {
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            // Blocks of 512 bytes, whatever the file system's own are (stat(2)).
            bytes += metadata.blocks() * 512;
            if metadata.is_dir() {
                open.push(entry.path());
            }
        }
    }
    bytes
}

/// Removes a folder in memory whose files may belong to users of a root.
fn remove(path: &Path, ids: &IdMap) -> io::Result<()> {
    // What is no folder, or somebody else's, is nothing that a build left, whatever its name.
    let is_own = |metadata: &std::fs::Metadata| metadata.is_dir() && metadata.uid() == outside_root(ids);
    if !fs_err::symlink_metadata(path).is_ok_and(|metadata| is_own(&metadata)) {
        return Ok(());
    }
    if ids.by_helper {
        let relative = path.strip_prefix(SHARED_MEMORY).map_err(io::Error::other)?;
        let task = Task::Remove(vec![relative.to_owned()]);
        machine_sandbox(Path::new(SHARED_MEMORY), ids, task).run().map_err(io::Error::other)?;
    }
    fs_err::remove_dir_all(path)
}

/// Who the root's own root is outside.
fn outside_root(ids: &IdMap) -> u32 {
    ids.users.iter().find(|(inside, ..)| *inside == 0).map_or(u32::MAX, |(_, outside, _)| *outside)
}

/// Copies what a folder in memory holds to the disk, with its owners.
pub(crate) fn copy(from: &Path, yard: &Path, to: &Path, ids: &IdMap) -> io::Result<()> {
    let arguments = ["cp", "--archive", "--no-target-directory"].map(str::to_owned).into_iter();
    let arguments = arguments.chain([from, to].map(|path| path.display().to_string()));
    machine_sandbox(yard, ids, Task::Program(arguments.collect())).run().map(|_| ()).map_err(io::Error::other)
}

/// Folders in memory that builds of this yard have, or a killed Kilnyard left.
pub fn work_folders_in_memory(yard: &Path) -> Vec<PathBuf> {
    let prefix = prefix_of(yard);
    let entries = std::fs::read_dir(SHARED_MEMORY).into_iter().flatten().flatten();
    let is_own = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with(&prefix);
    entries.filter(is_own).map(|entry| entry.path()).collect()
}

/// Removes what a killed Kilnyard left of this yard in memory. Nobody else may build in the yard meanwhile.
pub fn sweep_memory(yard: &Path, ids: &IdMap) -> io::Result<()> {
    work_folders_in_memory(yard).iter().try_for_each(|path| remove(path, ids))
}

fn machine_sandbox(folder: &Path, ids: &IdMap, task: Task) -> Sandbox {
    Sandbox {
        folder: folder.to_owned(),
        ids: ids.clone(),
        view: View::Machine,
        user: User::Root,
        task,
        directory: ".".into(),
        environment: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
        is_interactive: false,
        has_network: false,
    }
}

/// The folders of a yard are known by a hash of where it is.
fn prefix_of(yard: &Path) -> String {
    let hash = kilnyard_mirror::Sha256Hex::of(yard.as_os_str().as_bytes());
    format!("kilnyard-{}-", &hash.as_str()[..16])
}

/// Whether a folder is in memory, and builds could run programs there.
fn is_usable(folder: &Path) -> bool {
    let is_in_memory = rustix::fs::statfs(folder).is_ok_and(|facts| facts.f_type == libc::TMPFS_MAGIC);
    let runs_programs = rustix::fs::statvfs(folder)
        .is_ok_and(|facts| !facts.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC));
    is_in_memory && runs_programs
}

fn available_bytes() -> u64 {
    let text = fs_err::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_promised_than_there_is() {
        let own = rustix::process::geteuid().as_raw();
        let ids = IdMap { users: vec![(0, own, 1)], groups: vec![(0, own, 1)], by_helper: true };
        let prefix = Some(format!("kilnyard-test-{}-", std::process::id()));
        let memory = Arc::new(Memory { prefix, ids, room_bytes: Mutex::new(3 * PROMISED_BYTES_MIN) });
        let first = memory.take(1, "first").unwrap();
        assert!(memory.take(2 * PROMISED_BYTES_MIN, "large").is_none());
        let second = memory.take(PROMISED_BYTES_MIN, "second").unwrap();
        assert!(memory.take(1, "third").is_none());
        assert!(!first.is_exhausted());
        std::fs::remove_dir_all(second.path.parent().unwrap()).unwrap();
        drop(second);
        let fourth = memory.take(PROMISED_BYTES_MIN, "fourth").unwrap();
        for folder in [first, fourth] {
            let closed = folder.path.parent().unwrap();
            assert_eq!(std::fs::metadata(closed).unwrap().permissions().mode() & 0o777, 0o700);
            std::fs::remove_dir_all(closed).unwrap();
        }
    }

    #[test]
    fn what_somebody_else_made_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (own, secret, link) =
            (folder.path().join("own"), folder.path().join("secret"), folder.path().join("link"));
        std::fs::create_dir(&own).unwrap();
        std::fs::create_dir(&secret).unwrap();
        std::os::unix::fs::symlink(&secret, &link).unwrap();
        let user = rustix::process::geteuid().as_raw();
        let ids = |outside| IdMap { users: vec![(0, outside, 1)], groups: Vec::new(), by_helper: false };
        remove(&link, &ids(user)).unwrap();
        remove(&own, &ids(user + 1)).unwrap();
        assert!(secret.exists() && link.is_symlink() && own.exists());
        remove(&own, &ids(user)).unwrap();
        assert!(!own.exists());
    }

    #[test]
    fn what_was_written_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("a")).unwrap();
        let before = used_bytes(folder.path());
        std::fs::write(folder.path().join("a/b"), vec![1; 100_000]).unwrap();
        std::os::unix::fs::symlink("/usr", folder.path().join("a/link")).unwrap();
        let used = used_bytes(folder.path()) - before;
        assert!((100_000..200_000).contains(&used), "{used}");
    }
}
