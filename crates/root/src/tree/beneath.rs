use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// Opens a folder, never through a link.
pub(super) const FOLDER: OFlags =
    OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::RDONLY);

/// Opens a folder below `base`. Fails if a component of `below` is a link or leads upwards. Links in `base` are
/// followed.
pub fn open_beneath(base: &Path, below: &Path) -> io::Result<OwnedFd> {
    let base_folder = openat(CWD, base, FOLDER.difference(OFlags::NOFOLLOW), Mode::empty());
    let base_folder = base_folder.map_err(|error| at(base, error))?;
    beneath(base_folder, below).map_err(|error| match error.kind() {
        io::ErrorKind::NotADirectory => {
            let text = format!(
                "{} is not a folder, or a part of its path is a link; links are not followed here",
                base.join(below).display()
            );
            io::Error::new(error.kind(), text)
        }
        kind => io::Error::new(kind, format!("{}: {error}", base.join(below).display())),
    })
}

/// Opens a folder below an open one, as [`open_beneath`] does.
pub fn beneath(base: OwnedFd, below: &Path) -> io::Result<OwnedFd> {
    below.components().filter(|part| *part != Component::CurDir).try_fold(base, |folder, part| {
        let Component::Normal(name) = part else { return Err(io::Error::from(io::ErrorKind::InvalidInput)) };
        Ok(openat(&folder, name, FOLDER, Mode::empty())?)
    })
}

/// The names and file types in a folder below `base`, sorted by name. Links are not followed.
pub fn entries_beneath(base: &Path, below: &Path) -> io::Result<Vec<(OsString, FileType)>> {
    let folder = open_beneath(base, below)?;
    let mut entries = Vec::new();
    for entry in Dir::new(folder.try_clone()?)? {
        let entry = entry?;
        let name = entry.file_name();
        if [c".", c".."].contains(&name) {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => {
                FileType::from_raw_mode(statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode)
            }
            known => known,
        };
        entries.push((OsStr::from_bytes(name.to_bytes()).to_owned(), kind));
    }
    entries.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(entries)
}

/// Opens the parent of a path below `base`; returns it with the path's last component.
pub(super) fn parent_beneath<'a>(base: &Path, below: &'a Path) -> io::Result<(OwnedFd, &'a OsStr)> {
    let name = below.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    Ok((open_beneath(base, below.parent().unwrap_or(Path::new("")))?, name))
}

pub(super) fn open_child(folder: impl AsFd, name: &std::ffi::CStr) -> rustix::io::Result<OwnedFd> {
    openat(folder, name, FOLDER, Mode::empty())
}

pub(super) fn at(path: &Path, error: Errno) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_link_below_the_base_is_followed_and_nothing_leads_out_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let (base, other) = (folder.path().join("base"), folder.path().join("other/inside"));
        std::fs::create_dir_all(base.join("a/b")).unwrap();
        std::fs::create_dir_all(&other).unwrap();
        std::os::unix::fs::symlink(other.parent().unwrap(), base.join("a/link")).unwrap();
        std::os::unix::fs::symlink(&base, folder.path().join("to-base")).unwrap();
        for good in ["", ".", "a", "a/b"] {
            open_beneath(&folder.path().join("to-base"), Path::new(good)).unwrap();
        }
        for bad in ["a/link", "a/link/inside", "../other", "a/../../other", "/etc"] {
            open_beneath(&base, Path::new(bad)).unwrap_err();
        }
        let error = open_beneath(&base, Path::new("a/link")).unwrap_err().to_string();
        assert!(error.contains("base/a/link") && error.contains("links are not followed"), "{error}");
    }
}
