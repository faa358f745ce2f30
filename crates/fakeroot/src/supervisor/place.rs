//! A file as another process names it, in terms of this one.

use super::call::Named;
use super::tracee::{Tracee, last_error};
use crate::shared::abi::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, STATX_BASIC, STATX_BIRTH, Statx};
use crate::shared::kernel;
use crate::shared::mapping::Mapping;
use crate::shared::ownership::{Facts, UNCHANGED};
use crate::shared::table::{Key, Table};
use std::ffi::{CString, c_int};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A folder of ours and a path in it.
pub struct Place {
    folder: Option<OwnedFd>,
    path: CString,
    flags: c_int,
}

impl Place {
    /// Finds where a process means.
    pub fn of(tracee: &Tracee, named: Named) -> Result<Place, i32> {
        const FOLLOW: c_int = 0;
        let path = match named.path {
            Some(at) => tracee.read_path(at)?,
            None => CString::default(),
        };
        let flags = named.flags & AT_SYMLINK_NOFOLLOW;
        if path.is_empty() {
            if named.flags & AT_EMPTY_PATH == 0 {
                return Err(libc::ENOENT);
            }
            return Ok(Place { folder: None, path: text(&base(tracee, named.folder))?, flags: FOLLOW });
        }
        let bytes = path.to_bytes();
        if let Some(own) = own_view(tracee, bytes) {
            return Ok(Place { folder: None, path: CString::new(own).map_err(|_| libc::EINVAL)?, flags });
        }
        let (base, relative) = match bytes.iter().position(|byte| *byte != b'/') {
            None => (tracee.path("root"), &b"."[..]),
            Some(0) => (base(tracee, named.folder), bytes),
            Some(begin) => (tracee.path("root"), &bytes[begin..]),
        };
        let folder = open(&text(&base)?, libc::O_PATH).map_err(|error| match error {
            // The descriptor is not there.
            libc::ENOENT => libc::EBADF,
            error => error,
        })?;
        Ok(Place { folder: Some(folder), path: CString::new(relative).map_err(|_| libc::EINVAL)?, flags })
    }

    /// The folder, for calls.
    pub fn folder(&self) -> c_int {
        self.folder.as_ref().map_or(AT_FDCWD, AsRawFd::as_raw_fd)
    }

    /// The path, for calls.
    pub fn path(&self) -> *const libc::c_char {
        self.path.as_ptr()
    }

    /// What `statx` says, with more flags and what is asked for.
    pub fn statx(&self, flags: c_int, mask: u32) -> Result<Statx, i32> {
        let mut statx = Statx::default();
        let mask = mask | STATX_BASIC | STATX_BIRTH;
        // SAFETY: a path, and a place of the right layout, as tests/layout.rs shows.
        let result = unsafe {
            libc::statx(self.folder(), self.path(), self.flags | flags, mask, (&raw mut statx).cast())
        };
        if result == 0 { Ok(statx) } else { Err(self.error()) }
    }

    /// What the table has to know.
    pub fn facts(&self) -> Result<Facts, i32> {
        self.statx(libc::AT_NO_AUTOMOUNT, 0).map(|statx| statx.facts().settled(false))
    }

    /// The same for an entry that will be written: what will not change while the file stays.
    pub fn facts_to_keep(&self, table: &Table<Mapping>) -> Result<Facts, i32> {
        let facts = self.facts()?;
        let is_known = || table.find(facts.key).is_some_and(|entry| entry.birth == facts.birth);
        if !self.is_layered(table, facts.key) || is_known() {
            return Ok(facts);
        }
        // A change of nothing brings a file of a lower layer to the upper one, where its birth stays.
        // SAFETY: a path of ours.
        let result = unsafe { libc::fchownat(self.folder(), self.path(), UNCHANGED, UNCHANGED, self.flags) };
        Ok(match self.facts() {
            Ok(after) if result == 0 => Facts { key: after.key, birth: after.birth, ..facts },
            // The file is known by its number alone.
            _ => Facts { birth: 0, ..facts },
        })
    }

    /// Whether it is in an overlay of layers.
    pub fn is_layered(&self, table: &Table<Mapping>, key: Key) -> bool {
        table.is_layered(key.device, || kernel::file_system(self.folder(), self.path(), self.flags))
    }

    /// The file itself, as it is now, without opening it.
    pub fn open(&self) -> Result<Found, i32> {
        let follow = if self.flags & AT_SYMLINK_NOFOLLOW != 0 { libc::O_NOFOLLOW } else { 0 };
        // SAFETY: a path of ours.
        let file =
            unsafe { libc::openat(self.folder(), self.path(), libc::O_PATH | libc::O_CLOEXEC | follow) };
        if file < 0 {
            return Err(self.error());
        }
        // SAFETY: just opened.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        let path = text(&format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        Ok(Found { _file: file, place: Place { folder: None, path, flags: 0 } })
    }

    fn error(&self) -> i32 {
        match last_error() {
            libc::ENOENT if self.folder.is_none() && self.path.to_bytes().starts_with(b"/proc/") => {
                // A descriptor of the process that it has not.
                if self.path.to_string_lossy().contains("/fd/") { libc::EBADF } else { libc::ENOENT }
            }
            error => error,
        }
    }
}

/// A file that is held, and a path by which calls reach it and nothing else.
pub struct Found {
    _file: OwnedFd,
    pub place: Place,
}

fn text(path: &str) -> Result<CString, i32> {
    CString::new(path).map_err(|_| libc::EINVAL)
}

fn open(path: &CString, flags: c_int) -> Result<OwnedFd, i32> {
    // SAFETY: a path of ours.
    let file = unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) };
    // SAFETY: just opened.
    if file < 0 { Err(last_error()) } else { Ok(unsafe { OwnedFd::from_raw_fd(file) }) }
}

/// The folder that a path is relative to, or the file of a descriptor.
fn base(tracee: &Tracee, folder: c_int) -> String {
    if folder == AT_FDCWD { tracee.path("cwd") } else { tracee.path(&format!("fd/{folder}")) }
}

/// Paths that mean the process that uses them.
fn own_view(tracee: &Tracee, path: &[u8]) -> Option<Vec<u8>> {
    let views = [
        (&b"/proc/self"[..], String::new()),
        (b"/proc/thread-self", String::new()),
        (b"/dev/fd", "/fd".to_owned()),
        (b"/dev/stdin", "/fd/0".to_owned()),
        (b"/dev/stdout", "/fd/1".to_owned()),
        (b"/dev/stderr", "/fd/2".to_owned()),
    ];
    views.iter().find_map(|(view, own)| {
        let rest = path.strip_prefix(*view)?;
        let is_whole = rest.first().is_none_or(|byte| *byte == b'/');
        // The link itself is the same for all.
        (is_whole && !(rest.is_empty() && own.is_empty()))
            .then(|| [format!("/proc/{}{own}", tracee.thread).as_bytes(), rest].concat())
    })
}
