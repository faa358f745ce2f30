//! A file as another process names it, resolved for this process.
//!
//! Invariant: a path is resolved from the other process's root and stays within it, whatever links exist and
//! whichever process moves them at the same time, because the calls are made with this process's privileges.

use super::call::Named;
use super::tracee::{Tracee, last_error};
use crate::shared::abi::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, STATX_BASIC, STATX_BIRTH, Statx};
use crate::shared::kernel;
use crate::shared::mapping::Mapping;
use crate::shared::ownership::{FOLDER, Facts, LINK, TYPE, UNCHANGED};
use crate::shared::table::{FileId, Table};
use std::ffi::{CString, c_int};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// A folder that this process has open, and a path in it.
pub struct OpenPath {
    folder: Option<OwnedFd>,
    path: CString,
    flags: c_int,
}

impl OpenPath {
    /// Resolves the file that a process names.
    pub fn of(tracee: &Tracee, named: Named) -> Result<OpenPath, i32> {
        let path = match named.path {
            Some(at) => tracee.read_path(at)?,
            None => CString::default(),
        };
        let flags = named.flags & AT_SYMLINK_NOFOLLOW;
        if path.is_empty() {
            if named.flags & AT_EMPTY_PATH == 0 {
                return Err(libc::ENOENT);
            }
            return OpenPath::link(&base(tracee, named.folder), 0);
        }
        let bytes = path.to_bytes();
        match own_view(tracee, bytes) {
            Some(OwnView::Link(link)) => OpenPath::link(&link, flags),
            Some(OwnView::Below(link, rest)) => OpenPath::below(tracee, &link, rest, flags),
            None if bytes[0] == b'/' => {
                let root = open_folder(&tracee.path("root"))?;
                OpenPath::resolve(&root, bytes, flags, libc::RESOLVE_IN_ROOT)
            }
            None => OpenPath::below(tracee, &base(tracee, named.folder), bytes, flags),
        }
    }

    /// A link in /proc that leads to a file of the process itself.
    fn link(link: &str, flags: c_int) -> Result<OpenPath, i32> {
        Ok(OpenPath { folder: None, path: text(link)?, flags })
    }

    /// A path relative to a folder that such a link names.
    fn below(tracee: &Tracee, link: &str, path: &[u8], flags: c_int) -> Result<OpenPath, i32> {
        let folder = open_folder(link).map_err(|error| match error {
            // The process does not have this descriptor.
            libc::ENOENT => libc::EBADF,
            error => error,
        })?;
        match OpenPath::resolve(&folder, path, flags, libc::RESOLVE_BENEATH) {
            // The path leaves the folder: resolve it from the process's root, where the folder has a path.
            Err(libc::EXDEV) => {
                let root = std::fs::read_link(tracee.path("root")).map_err(error_of)?;
                let base = std::fs::read_link(link).map_err(error_of)?;
                let base = base.strip_prefix(root).map_err(|_| libc::ENOENT)?;
                let whole = [base.as_os_str().as_bytes(), path].join(&b'/');
                OpenPath::resolve(&open_folder(&tracee.path("root"))?, &whole, flags, libc::RESOLVE_IN_ROOT)
            }
            other => other,
        }
    }

    /// Resolves a path as the process would, in the kernel, which is asked to stay within the process's root. The
    /// result is never followed again, so that no link leads to a file of this machine.
    fn resolve(folder: &OwnedFd, path: &[u8], flags: c_int, how: u64) -> Result<OpenPath, i32> {
        let trimmed = &path[..path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1)];
        let (parent, name) = match trimmed.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (&trimmed[..=slash], &trimmed[slash + 1..]),
            None => (&b"."[..], trimmed),
        };
        let whole = || {
            let file = open_within(folder, path, libc::O_PATH, how)?;
            let path = text(&format!("/proc/self/fd/{}", file.as_raw_fd()))?;
            Ok(OpenPath { folder: Some(file), path, flags: 0 })
        };
        if flags & AT_SYMLINK_NOFOLLOW == 0 || matches!(name, b"" | b"." | b"..") {
            return whole();
        }
        let parent = open_within(folder, parent, libc::O_PATH | libc::O_DIRECTORY, how)?;
        let place =
            OpenPath { folder: Some(parent), path: CString::new(name).map_err(|_| libc::EINVAL)?, flags };
        // A trailing slash requires a folder, or a link to one.
        if trimmed.len() < path.len() {
            match place.facts().map(|facts| facts.mode & TYPE) {
                Ok(LINK) => return whole(),
                Ok(FOLDER) | Err(_) => {}
                Ok(_) => return Err(libc::ENOTDIR),
            }
        }
        Ok(place)
    }

    /// The folder, as an argument of `*at` calls.
    pub fn folder(&self) -> c_int {
        self.folder.as_ref().map_or(AT_FDCWD, AsRawFd::as_raw_fd)
    }

    /// The path, as an argument of `*at` calls.
    pub fn path(&self) -> *const libc::c_char {
        self.path.as_ptr()
    }

    /// The result of `statx`, with additional flags and fields.
    pub fn statx(&self, flags: c_int, mask: u32) -> Result<Statx, i32> {
        let mut statx = Statx::default();
        let mask = mask | STATX_BASIC | STATX_BIRTH;
        // SAFETY: a path, and a structure of the correct layout, as tests/layout.rs verifies.
        let result = unsafe {
            libc::statx(self.folder(), self.path(), self.flags | flags, mask, (&raw mut statx).cast())
        };
        if result == 0 { Ok(statx) } else { Err(self.error()) }
    }

    /// The facts that the table needs.
    pub fn facts(&self) -> Result<Facts, i32> {
        self.statx(libc::AT_NO_AUTOMOUNT, 0).map(|statx| statx.facts().settled(false))
    }

    /// The facts for an entry that will be written: they stay the same as long as the file exists.
    pub fn facts_to_keep(&self, table: &Table<Mapping>) -> Result<Facts, i32> {
        let facts = self.facts()?;
        let is_known = || table.find(facts.key).is_some_and(|entry| entry.birth == facts.birth);
        if !self.is_layered(table, facts.key) || is_known() {
            return Ok(facts);
        }
        // A chown that changes nothing copies a file of a lower layer to the upper one, where its birth time stays.
        // SAFETY: a path of ours.
        let result = unsafe { libc::fchownat(self.folder(), self.path(), UNCHANGED, UNCHANGED, self.flags) };
        Ok(match self.facts() {
            Ok(after) if result == 0 => Facts { key: after.key, birth: after.birth, ..facts },
            // The file is identified by its inode number alone.
            _ => Facts { birth: 0, ..facts },
        })
    }

    /// Whether the file is in an overlayfs.
    pub fn is_layered(&self, table: &Table<Mapping>, key: FileId) -> bool {
        table.is_layered(key.device, || kernel::file_system(self.folder(), self.path(), self.flags))
    }

    /// The file itself, pinned with O_PATH, which does not open it for reading or writing.
    pub fn open(&self) -> Result<HeldFile, i32> {
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
        Ok(HeldFile { _file: file, place: OpenPath { folder: None, path, flags: 0 } })
    }

    fn error(&self) -> i32 {
        match last_error() {
            libc::ENOENT if self.folder.is_none() && self.path.to_bytes().starts_with(b"/proc/") => {
                // A descriptor that the process does not have.
                if self.path.to_string_lossy().contains("/fd/") { libc::EBADF } else { libc::ENOENT }
            }
            error => error,
        }
    }
}

/// A file that is held open, and a path by which calls reach this file and no other.
pub struct HeldFile {
    _file: OwnedFd,
    pub place: OpenPath,
}

fn text(path: &str) -> Result<CString, i32> {
    CString::new(path).map_err(|_| libc::EINVAL)
}

fn error_of(error: std::io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// Opens a folder of /proc, or the target of a link there.
fn open_folder(path: &str) -> Result<OwnedFd, i32> {
    let path = text(path)?;
    // SAFETY: a path of ours.
    let file = unsafe { libc::open(path.as_ptr(), libc::O_PATH | libc::O_CLOEXEC) };
    // SAFETY: just opened.
    if file < 0 { Err(last_error()) } else { Ok(unsafe { OwnedFd::from_raw_fd(file) }) }
}

/// Opens a path that stays below a folder, or that is resolved with the folder as root.
fn open_within(folder: &OwnedFd, path: &[u8], flags: c_int, how: u64) -> Result<OwnedFd, i32> {
    /// How often the kernel may report that a folder was renamed in the meantime.
    const TRIES_MAX: u32 = 64;
    let path = CString::new(path).map_err(|_| libc::EINVAL)?;
    // SAFETY: plain numbers, for which zeros are valid.
    let mut open: libc::open_how = unsafe { std::mem::zeroed() };
    open.flags = (flags | libc::O_CLOEXEC) as u64;
    open.resolve = how | libc::RESOLVE_NO_MAGICLINKS;
    for _ in 0..TRIES_MAX {
        let bytes = size_of_val(&open);
        // SAFETY: a path of ours and a structure of this length.
        let file = unsafe {
            libc::syscall(libc::SYS_openat2, folder.as_raw_fd(), path.as_ptr(), &raw const open, bytes)
        };
        if file >= 0 {
            // SAFETY: just opened.
            return Ok(unsafe { OwnedFd::from_raw_fd(file as c_int) });
        }
        match last_error() {
            libc::EAGAIN => {}
            error => return Err(error),
        }
    }
    Err(libc::EAGAIN)
}

/// Whether this kernel can resolve paths within a root, which takes Linux 5.6.
pub fn can_follow() -> Result<(), i32> {
    open_within(&open_folder("/")?, b"/", libc::O_PATH, libc::RESOLVE_IN_ROOT).map(drop)
}

/// The folder that a path is relative to, or the file of a descriptor.
fn base(tracee: &Tracee, folder: c_int) -> String {
    if folder == AT_FDCWD { tracee.path("cwd") } else { tracee.path(&format!("fd/{folder}")) }
}

/// A path whose meaning depends on the process that uses it.
#[derive(Debug, PartialEq, Eq)]
enum OwnView<'a> {
    /// A link or a file in /proc.
    Link(String),
    /// A path below a folder of /proc, or below the target of a link there.
    Below(String, &'a [u8]),
}

fn own_view<'a>(tracee: &Tracee, path: &'a [u8]) -> Option<OwnView<'a>> {
    own_view_of(tracee.thread, path)
}

fn own_view_of(thread: u32, path: &[u8]) -> Option<OwnView<'_>> {
    const VIEWS: [(&[u8], &str); 6] = [
        (b"/proc/self", ""),
        (b"/proc/thread-self", ""),
        (b"/dev/fd", "/fd"),
        (b"/dev/stdin", "/fd/0"),
        (b"/dev/stdout", "/fd/1"),
        (b"/dev/stderr", "/fd/2"),
    ];
    VIEWS.iter().find_map(|(view, own)| {
        let rest = path.strip_prefix(*view)?;
        let is_whole = rest.first().is_none_or(|byte| *byte == b'/');
        // The link itself is the same for all processes.
        if !is_whole || (rest.is_empty() && own.is_empty()) {
            return None;
        }
        let mut link = format!("/proc/{thread}{own}");
        let mut rest = trim(rest);
        // After a number below `fd`, or one of the links, the rest is below the link's target.
        let is_numbered = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
        loop {
            let (first, behind) = match rest.iter().position(|byte| *byte == b'/') {
                Some(slash) => (&rest[..slash], trim(&rest[slash..])),
                None => (rest, &b""[..]),
            };
            let is_link =
                link.ends_with("/fd") && is_numbered(first) || matches!(first, b"cwd" | b"root" | b"exe");
            if first == b"fd" || is_link {
                link.push('/');
                link.push_str(std::str::from_utf8(first).ok()?);
                rest = behind;
            }
            if first != b"fd" || rest.is_empty() {
                break;
            }
        }
        Some(if rest.is_empty() { OwnView::Link(link) } else { OwnView::Below(link, rest) })
    })
}

fn trim(path: &[u8]) -> &[u8] {
    &path[path.iter().position(|byte| *byte != b'/').unwrap_or(path.len())..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_views_end_at_their_links() {
        let view = |path: &'static str| own_view_of(7, path.as_bytes());
        let link = |text: &str| Some(OwnView::Link(text.to_owned()));
        let below = |text: &str, rest: &'static str| Some(OwnView::Below(text.to_owned(), rest.as_bytes()));
        assert_eq!(view("/proc/self/exe"), link("/proc/7/exe"));
        assert_eq!(view("/dev/stdin"), link("/proc/7/fd/0"));
        assert_eq!(view("/dev/fd/12"), link("/proc/7/fd/12"));
        assert_eq!(view("/dev/fd"), link("/proc/7/fd"));
        assert_eq!(view("/proc/self/fd//3"), link("/proc/7/fd/3"));
        assert_eq!(view("/proc/self/root/etc/x"), below("/proc/7/root", "etc/x"));
        assert_eq!(view("/proc/self/fd/3/x/y"), below("/proc/7/fd/3", "x/y"));
        assert_eq!(view("/proc/thread-self/status"), below("/proc/7", "status"));
        assert_eq!(view("/proc/self/fd/../root/x"), below("/proc/7/fd", "../root/x"));
        for other in ["/proc/self", "/proc/selfish", "/dev/fdx", "/etc"] {
            assert_eq!(view(other), None, "{other}");
        }
    }
}
