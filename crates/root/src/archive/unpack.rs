//! Unpacks an archive into a tree.

use super::{ATTRIBUTE_PREFIX, at, is_kept};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use tar::{Archive, Entry, EntryType};

/// Unpacks an archive into an existing empty folder. With `has_one_id` there is only one id, which owns all files.
pub(crate) fn unpack(from: impl Read, target: &Path, has_one_id: bool) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, target, flags, Mode::empty())?;
    let mut unpacker = Unpacker { root, has_one_id, folders: Vec::new() };
    let mut archive = Archive::new(from);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        unpacker.entry(&mut entry, &path).map_err(|error| at(&path, error))?;
    }
    unpacker.finish()
}

struct Unpacker {
    root: OwnedFd,
    has_one_id: bool,
    /// Path, mode and time to set at the end: writing into a folder changes its time, and the mode may deny its owner
    /// access.
    folders: Vec<(PathBuf, u32, u64)>,
}

/// The location of an entry: its folder, and its name there.
struct Location {
    folder: OwnedFd,
    name: CString,
}

impl Unpacker {
    fn entry(&mut self, entry: &mut Entry<impl Read>, path: &Path) -> io::Result<()> {
        let header = entry.header();
        let (kind, mode) = (header.entry_type(), header.mode()? & 0o7777);
        let (user, group, seconds) = (header.uid()?, header.gid()?, header.mtime()?);
        let owner = (id_of(user)?, id_of(group)?);
        let records = attributes_of(entry)?;
        if kind == EntryType::Directory {
            return self.folder(path, mode, owner, seconds, &records);
        }
        let place = self.place(path)?;
        let name = &place.name;
        match kind {
            EntryType::Regular => {
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = rustix::fs::openat(&place.folder, name, flags, Mode::from_raw_mode(0o600))?;
                let mut file = File::from(file);
                let written = io::copy(entry, &mut file)?;
                if written != entry.header().size()? {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
                }
            }
            EntryType::Symlink => {
                let link = entry.link_name_bytes().ok_or_else(malformed)?.into_owned();
                rustix::fs::symlinkat(OsStr::from_bytes(&link), &place.folder, name)?;
            }
            EntryType::Link => {
                let first = entry.link_name()?.ok_or_else(malformed)?.into_owned();
                let first = self.place(&first)?;
                // A hard link to a symbolic link refers to the link itself: nothing is followed.
                return Ok(rustix::fs::linkat(
                    &first.folder,
                    &first.name,
                    &place.folder,
                    name,
                    AtFlags::empty(),
                )?);
            }
            EntryType::Fifo => make_node(&place, FileType::Fifo)?,
            EntryType::Char if matches!((header_device(entry)?.0, header_device(entry)?.1), (0, 0)) => {
                // The owner and times of a whiteout have no meaning.
                return make_node(&place, FileType::CharacterDevice);
            }
            other => {
                return Err(io::Error::other(format!("entry type {other:?} is not allowed in a layer")));
            }
        }
        self.describe(&place, kind != EntryType::Symlink, mode, owner, &records)?;
        set_time(&place.folder, name, seconds)
    }

    fn folder(
        &mut self,
        path: &Path,
        mode: u32,
        owner: (u32, u32),
        seconds: u64,
        records: &[(CString, Vec<u8>)],
    ) -> io::Result<()> {
        if is_top(path) {
            let place = Location { folder: self.root.try_clone()?, name: CString::from(c".") };
            self.describe(&place, false, mode, owner, records)?;
            self.folders.push((PathBuf::new(), mode, seconds));
            return Ok(());
        }
        let place = self.place(path)?;
        rustix::fs::mkdirat(&place.folder, &place.name, Mode::from_raw_mode(0o700))?;
        self.describe(&place, false, mode, owner, records)?;
        self.folders.push((path.to_owned(), mode, seconds));
        Ok(())
    }

    /// The parent folder of an entry, reached without following a link, and the entry's name.
    fn place(&self, path: &Path) -> io::Result<Location> {
        let mut parts = Vec::new();
        for part in path.components() {
            match part {
                Component::Normal(part) => parts.push(part),
                Component::CurDir => {}
                _ => return Err(io::Error::other("the entry's name points outside the archive")),
            }
        }
        let name = parts.pop().ok_or_else(malformed)?;
        let above: PathBuf = parts.iter().collect();
        let folder = match parts.is_empty() {
            true => self.root.try_clone()?,
            false => self.open(&above)?,
        };
        Ok(Location { folder, name: CString::new(name.as_bytes()).map_err(io::Error::other)? })
    }

    fn open(&self, folder: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        Ok(rustix::fs::openat2(&self.root, folder, flags, Mode::empty(), beneath)?)
    }

    /// Sets owner, mode and attributes, in an order in which no step resets an earlier one.
    fn describe(
        &self,
        place: &Location,
        has_mode: bool,
        mode: u32,
        (user, group): (u32, u32),
        records: &[(CString, Vec<u8>)],
    ) -> io::Result<()> {
        let name = &place.name;
        if !self.has_one_id {
            // SAFETY: both are below u32::MAX, the only value that would mean "unchanged".
            let (user, group) = (rustix::fs::Uid::from_raw(user), rustix::fs::Gid::from_raw(group));
            rustix::fs::chownat(&place.folder, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        if has_mode {
            rustix::fs::chmodat(&place.folder, name, Mode::from_raw_mode(mode), AtFlags::empty())?;
        }
        if records.is_empty() {
            return Ok(());
        }
        // Linux has no call that sets attributes by folder and name before 6.13.
        let path = PathBuf::from(format!("/proc/self/fd/{}", place.folder.as_fd().as_raw_fd()));
        let path = path.join(OsStr::from_bytes(name.to_bytes()));
        for (attribute, value) in records {
            match rustix::fs::lsetxattr(&path, attribute, value, XattrFlags::empty()) {
                // tmpfs has no user attributes before Linux 6.6.
                Err(Errno::OPNOTSUPP) if attribute.to_bytes().starts_with(b"user.") => {}
                set => set?,
            }
        }
        Ok(())
    }

    /// Sets modes and times of the folders, innermost first.
    fn finish(self) -> io::Result<()> {
        for (path, mode, seconds) in self.folders.iter().rev() {
            let finish = || {
                let (folder, name) = match is_top(path) {
                    true => (self.root.try_clone()?, CString::from(c".")),
                    false => {
                        let place = self.place(path)?;
                        (place.folder, place.name)
                    }
                };
                rustix::fs::chmodat(&folder, &name, Mode::from_raw_mode(*mode), AtFlags::empty())?;
                set_time(&folder, &name, *seconds)
            };
            finish().map_err(|error| at(path, error))?;
        }
        Ok(())
    }
}

fn is_top(path: &Path) -> bool {
    path.components().all(|part| part == Component::CurDir)
}

fn malformed() -> io::Error {
    io::Error::other("malformed entry")
}

/// A valid owner id; u32::MAX is not one.
fn id_of(number: u64) -> io::Result<u32> {
    u32::try_from(number).ok().filter(|id| *id != u32::MAX).ok_or_else(malformed)
}

fn header_device(entry: &Entry<impl Read>) -> io::Result<(u32, u32)> {
    let header = entry.header();
    Ok((header.device_major()?.unwrap_or(0), header.device_minor()?.unwrap_or(0)))
}

fn make_node(place: &Location, kind: FileType) -> io::Result<()> {
    Ok(rustix::fs::mknodat(&place.folder, &place.name, kind, Mode::from_raw_mode(0o600), 0)?)
}

fn set_time(folder: &OwnedFd, name: &CString, seconds: u64) -> io::Result<()> {
    let seconds = i64::try_from(seconds).map_err(io::Error::other)?;
    let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    Ok(rustix::fs::utimensat(folder, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// The extended attributes of an entry's pax records.
fn attributes_of(entry: &mut Entry<impl Read>) -> io::Result<Vec<(CString, Vec<u8>)>> {
    let mut attributes = Vec::new();
    if let Some(records) = entry.pax_extensions()? {
        for record in records {
            let record = record?;
            let Some(name) = record.key().ok().and_then(|key| key.strip_prefix(ATTRIBUTE_PREFIX)) else {
                continue;
            };
            if !is_kept(name.as_bytes()) {
                return Err(io::Error::other(format!("attribute {name} is not allowed in a layer")));
            }
            let value = STANDARD_NO_PAD.decode(record.value_bytes()).map_err(io::Error::other)?;
            attributes.push((CString::new(name).map_err(io::Error::other)?, value));
        }
    }
    Ok(attributes)
}
