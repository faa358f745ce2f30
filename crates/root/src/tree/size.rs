use super::beneath::{FOLDER, open_child};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, SeekFrom, Stat, fstat, openat, seek, statat};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The maximum depth that is counted. Each level takes 24 bytes, which bounds the memory used.
const LEVELS_MAX: usize = 1 << 20;
/// Buffer for reading a folder. After each subfolder, reading resumes at the saved position.
const BUFFER_BYTES: usize = 4096;

/// A level above the current one.
struct Above {
    device: u64,
    number: u64,
    /// Position in the folder from which reading resumes.
    next: u64,
}

/// An entry of a tree.
pub(super) struct TreeEntry<'a> {
    pub(super) name: &'a CStr,
    /// 0 directly below the top.
    pub(super) depth: usize,
    pub(super) facts: &'a Stat,
}

impl TreeEntry<'_> {
    /// Disk usage. `st_blocks` counts units of 512 bytes, whatever the block size of the file system (stat(2)).
    pub(super) fn bytes(&self) -> u64 {
        u64::try_from(self.facts.st_blocks).unwrap_or(0) * 512
    }
}

/// Disk usage of the files below a folder. Entries that cannot be read count as 0.
pub fn used_bytes(folder: &Path) -> u64 {
    let mut bytes = 0;
    walk_below(folder, &mut |seen| bytes += seen.bytes());
    bytes
}

/// Visits everything below a folder that can be read.
pub(super) fn walk_below(folder: &Path, see: &mut dyn FnMut(&TreeEntry)) {
    // Only the path given by the caller may be a link.
    if let Ok(folder) = openat(CWD, folder, FOLDER.difference(OFlags::NOFOLLOW), Mode::empty()) {
        let _ = walk(folder, see);
    }
}

/// Walks a tree with one descriptor. It returns by `..`, which must be the folder that it came from.
fn walk(mut folder: OwnedFd, see: &mut dyn FnMut(&TreeEntry)) -> rustix::io::Result<()> {
    let mut above: Vec<Above> = Vec::new();
    let mut buffer = [const { MaybeUninit::uninit() }; BUFFER_BYTES];
    loop {
        if let Some((child, next)) = next_folder(&folder, &mut buffer, above.len(), see)? {
            let facts = fstat(&folder)?;
            above.push(Above { device: facts.st_dev, number: facts.st_ino, next });
            folder = child;
            continue;
        }
        let Some(last) = above.pop() else { return Ok(()) };
        folder = openat(&folder, "..", FOLDER, Mode::empty())?;
        let facts = fstat(&folder)?;
        if (facts.st_dev, facts.st_ino) != (last.device, last.number) {
            return Ok(());
        }
        seek(&folder, SeekFrom::Start(last.next))?;
    }
}

/// Continues to read a folder at this depth. Returns the next subfolder, and the position from which to resume after
/// it.
fn next_folder(
    folder: &OwnedFd,
    buffer: &mut [MaybeUninit<u8>],
    depth: usize,
    see: &mut dyn FnMut(&TreeEntry),
) -> rustix::io::Result<Option<(OwnedFd, u64)>> {
    let mut entries = RawDir::new(folder, buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let (name, next) = (entry.file_name(), entry.next_entry_cookie());
        if [c".", c".."].contains(&name) {
            continue;
        }
        let Ok(facts) = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        see(&TreeEntry { name, depth, facts: &facts });
        if depth < LEVELS_MAX
            && FileType::from_raw_mode(facts.st_mode) == FileType::Directory
            && let Ok(child) = open_child(folder, name)
            // There is no way back from a folder that is readable but not searchable.
            && openat(&child, "..", FOLDER, Mode::empty()).is_ok()
        {
            return Ok(Some((child, next)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::mkdirat;

    #[test]
    fn written_files_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("a")).unwrap();
        let before = used_bytes(folder.path());
        std::fs::write(folder.path().join("a/b"), vec![1; 100_000]).unwrap();
        std::os::unix::fs::symlink("/usr", folder.path().join("a/link")).unwrap();
        let used = used_bytes(folder.path()) - before;
        assert!((100_000..200_000).contains(&used), "{used}");
    }

    #[test]
    fn the_deepest_file_and_those_after_it_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let mut deepest = openat(CWD, folder.path(), FOLDER, Mode::empty()).unwrap();
        let long = "n".repeat(200);
        for _ in 0..3000 {
            mkdirat(&deepest, &*long, Mode::from_raw_mode(0o755)).unwrap();
            deepest = openat(&deepest, &*long, FOLDER, Mode::empty()).unwrap();
        }
        for number in 0..300 {
            std::fs::create_dir(folder.path().join(number.to_string())).unwrap();
            std::fs::write(folder.path().join(format!("{number}/file")), [1; 5000]).unwrap();
        }
        let before = used_bytes(folder.path());
        assert!(before >= 300 * 5000, "{before}");
        let flags = OFlags::WRONLY | OFlags::CREATE;
        let file = openat(&deepest, "file", flags, Mode::from_raw_mode(0o600)).unwrap();
        let mut file = std::fs::File::from(file);
        std::io::Write::write_all(&mut file, &[1; 100_000]).unwrap();
        file.sync_all().unwrap();
        assert!(used_bytes(folder.path()) >= before + 100_000);
        super::super::remove_tree(&folder.keep()).unwrap();
    }
}
