use super::beneath::{FOLDER, at, open_child, parent_beneath};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, openat, renameat, statat, unlinkat};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The maximum number of folders open at once. A deeper folder is moved up to the top of the tree and removed from
/// there, so depth costs neither descriptors nor memory. Trees of real packages rarely have this many levels.
const OPEN_MAX: usize = 32;

/// Removes a file, a link, or a folder with its content. Fails if the path does not exist.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    remove_at(CWD, path.as_os_str().as_encoded_bytes()).map_err(|error| below(path, error))
}

/// Removes a path below `base`, as [`remove_tree`] does. Links in the path are not followed.
pub fn remove_beneath(base: &Path, path: &Path) -> io::Result<()> {
    let (parent, name) = parent_beneath(base, path)?;
    remove_at(parent.as_fd(), name.as_encoded_bytes()).map_err(|error| below(&base.join(path), error))
}

/// Removes the content of a folder, and keeps the folder.
pub fn empty_folder(path: &Path) -> io::Result<()> {
    let folder = openat(CWD, path, FOLDER, Mode::empty()).map_err(|error| at(path, error))?;
    empty(&folder).map_err(|error| below(path, error))
}

fn remove_at(parent: BorrowedFd, name: &[u8]) -> io::Result<()> {
    let name = CString::new(name)?;
    if FileType::from_raw_mode(statat(parent, &name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode)
        != FileType::Directory
    {
        return Ok(unlinkat(parent, &name, AtFlags::empty())?);
    }
    empty(&open_child(parent, &name)?)?;
    Ok(unlinkat(parent, &name, AtFlags::REMOVEDIR)?)
}

fn below(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Removes everything below `top` that can be removed; the error names the first entry that cannot.
fn empty(top: &OwnedFd) -> io::Result<()> {
    let mut lifted = 0;
    loop {
        let mut pass = Pass { top, lifted: &mut lifted, changes: 0, failure: None };
        pass.run()?;
        match (pass.changes, pass.failure) {
            (0, None) => return Ok(()),
            (0, Some((name, error))) => {
                let name = name.to_string_lossy();
                let error = io::Error::from(error);
                return Err(io::Error::new(
                    error.kind(),
                    format!("failed to remove `{name}` below it: {error}"),
                ));
            }
            // A folder that changes while it is read may not show all names: only a pass that finds nothing is the
            // last.
            _ => {}
        }
    }
}

struct Pass<'a> {
    top: &'a OwnedFd,
    /// Counts the folders that were moved up.
    lifted: &'a mut u64,
    changes: u64,
    failure: Option<(CString, Errno)>,
}

struct Level {
    entries: Dir,
    /// Its name in the level above.
    name: CString,
}

impl Pass<'_> {
    fn run(&mut self) -> io::Result<()> {
        let mut levels = vec![Level { entries: Dir::read_from(self.top)?, name: CString::default() }];
        while let Some(level) = levels.last_mut() {
            match level.entries.read() {
                Some(Ok(entry)) if [c".", c".."].contains(&entry.file_name()) => {}
                Some(Ok(entry)) => {
                    let (name, kind) = (entry.file_name().to_owned(), entry.file_type());
                    let is_full = levels.len() >= OPEN_MAX;
                    let folder = levels[levels.len() - 1].entries.fd()?;
                    match self.remove(folder, &name, kind, is_full) {
                        Ok(None) => {}
                        Ok(Some(entries)) => levels.push(Level { entries, name }),
                        Err(error) => self.fail(name, error),
                    }
                }
                end => {
                    let name = levels.pop().map(|level| level.name).unwrap_or_default();
                    if let Some(Err(error)) = end {
                        self.fail(name.clone(), error);
                    }
                    if let Some(above) = levels.last() {
                        match unlinkat(above.entries.fd()?, &name, AtFlags::REMOVEDIR) {
                            Ok(()) => self.changes += 1,
                            // An entry that could not be removed is recorded already, or the next pass finds it.
                            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOENT) => {}
                            Err(error) => self.fail(name, error),
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Removes one entry. A folder with content is returned open, or moved to the top if `is_full`.
    fn remove(
        &mut self,
        folder: BorrowedFd,
        name: &CStr,
        kind: FileType,
        is_full: bool,
    ) -> rustix::io::Result<Option<Dir>> {
        let kind = match kind {
            FileType::Unknown => {
                FileType::from_raw_mode(statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode)
            }
            known => known,
        };
        let flags = if kind == FileType::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match unlinkat(folder, name, flags) {
            Ok(()) => self.changes += 1,
            Err(Errno::NOENT) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) if is_full => {
                self.lift(folder, name)?;
                self.changes += 1;
            }
            Err(Errno::NOTEMPTY | Errno::EXIST) => return Dir::new(open_child(folder, name)?).map(Some),
            Err(error) => return Err(error),
        }
        Ok(None)
    }

    fn lift(&mut self, folder: BorrowedFd, name: &CStr) -> rustix::io::Result<()> {
        loop {
            *self.lifted += 1;
            match renameat(folder, name, self.top, format!(".lifted-{}", self.lifted)) {
                // The tree may contain such names itself.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                other => return other,
            }
        }
    }

    fn fail(&mut self, name: CString, error: Errno) {
        self.failure.get_or_insert((name, error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::mkdirat;
    use rustix::process::{Resource, getrlimit, setrlimit};
    use std::fs;

    /// A chain of folders, each with a link and the next folder.
    fn chain(top: &Path, levels: usize) {
        fs::create_dir(top).unwrap();
        let mut folder = openat(CWD, top, FOLDER, Mode::empty()).unwrap();
        for _ in 0..levels {
            rustix::fs::symlinkat("/", &folder, "link").unwrap();
            mkdirat(&folder, "folder", Mode::from_raw_mode(0o755)).unwrap();
            folder = open_child(&folder, c"folder").unwrap();
        }
    }

    #[test]
    fn a_tree_of_any_depth_is_removed_with_few_descriptors() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().join("top");
        chain(&top, 5_000);
        // Names that a hostile tree may contain, knowing how it will be removed.
        fs::create_dir_all(top.join(".lifted-1/full")).unwrap();
        fs::write(top.join(".lifted-2"), "").unwrap();
        // Enough for the other tests in this process.
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, rustix::process::Rlimit { current: Some(200), ..before }).unwrap();
        let removed = std::thread::Builder::new().stack_size(128 << 10).spawn(move || remove_tree(&top));
        let removed = removed.unwrap().join().unwrap();
        setrlimit(Resource::Nofile, before).unwrap();
        removed.unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn links_are_removed_and_their_targets_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (top, kept) = (folder.path().join("top"), folder.path().join("kept"));
        fs::create_dir_all(top.join("a")).unwrap();
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "text").unwrap();
        std::os::unix::fs::symlink(&kept, top.join("a/link")).unwrap();
        empty_folder(&top).unwrap();
        assert_eq!(fs::read_dir(&top).unwrap().count(), 0);
        std::os::unix::fs::symlink(&kept, top.join("link")).unwrap();
        remove_beneath(folder.path(), Path::new("top/link/file")).unwrap_err();
        empty_folder(&top.join("link")).unwrap_err();
        remove_beneath(folder.path(), Path::new("top/link")).unwrap();
        assert_eq!(fs::read_to_string(kept.join("file")).unwrap(), "text");
    }

    #[test]
    fn an_entry_that_cannot_be_removed_is_named_and_the_rest_goes() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().join("top");
        fs::create_dir_all(top.join("a/b/c")).unwrap();
        fs::create_dir_all(top.join("d/e")).unwrap();
        let pinned = top.join("a/b/pinned");
        fs::write(&pinned, "").unwrap();
        let pin = |value: &str| std::process::Command::new("chattr").arg(value).arg(&pinned).status();
        if !pin("+i").is_ok_and(|status| status.success()) {
            eprintln!("skipped: nothing here can be made immutable");
            return;
        }
        let error = remove_tree(&top).unwrap_err().to_string();
        let left = [top.join("a/b/c").exists(), top.join("d").exists(), pinned.exists()];
        pin("-i").unwrap();
        assert!(error.contains("pinned") && error.contains("not permitted"), "{error}");
        assert_eq!(left, [false, false, true]);
        remove_tree(&top).unwrap();
    }
}
