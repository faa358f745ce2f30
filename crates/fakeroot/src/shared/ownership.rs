//! How calls change files, as seen in a session. Pure: facts in, entries out.
//!
//! The rules are the kernel's for a process with all capabilities (chown(2), chmod(2), inode(7)), with one
//! exception: a file that was never changed belongs to root, or to its real owner if the session says so.

use super::table::{Entry, FileId};

/// The file type bits of a mode.
pub const TYPE: u32 = 0o170_000;
/// A folder.
pub const FOLDER: u32 = 0o040_000;
/// A regular file.
pub const REGULAR: u32 = 0o100_000;
/// A symbolic link.
pub const LINK: u32 = 0o120_000;
/// A character device.
pub const CHARACTER: u32 = 0o020_000;
/// A block device.
pub const BLOCK: u32 = 0o060_000;
const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;
const PERMISSIONS: u32 = 0o7777;

/// Leaves a user or a group unchanged, as -1 does for chown(2).
pub const UNCHANGED: u32 = u32::MAX;

/// A file as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The inode, with its device.
    pub key: FileId,
    /// The mode, including the file type.
    pub mode: u32,
    /// The real user id.
    pub user: u32,
    /// The real group id.
    pub group: u32,
    /// The number of hard links.
    pub links: u64,
    /// The device number, packed.
    pub number: u32,
    /// Birth time, in nanoseconds since 1970; 0 if unknown.
    pub birth: u64,
    /// The time of the inode's last change, as [`Change::of`] folds it.
    pub change: Change,
}

/// The time of an inode's last change, folded into 32 bits; 0 if unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Change(pub u32);

impl Change {
    /// The age of a change after which no other file can have been changed at the same time by the clock that
    /// file timestamps use, which advances in steps of a few milliseconds.
    pub const SETTLED_NANOSECONDS: i64 = 100_000_000;

    /// Folds a change time.
    pub fn of(seconds: i64, nanoseconds: i64) -> Change {
        // Times that differ only in seconds, or only in nanoseconds, differ here as well.
        let folded = (seconds as u32).wrapping_mul(0x9e37_79b9) ^ nanoseconds as u32;
        Change(folded.max(1))
    }
}

impl Facts {
    /// These facts, without the time of the last change unless that is settled.
    #[must_use]
    pub fn settled(self, is_settled: bool) -> Facts {
        Facts { change: if is_settled && self.birth != 0 { self.change } else { Change::default() }, ..self }
    }
}

/// The owner of files without an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// Root owns them.
    Root,
    /// They keep their real owners.
    Real,
}

/// A file as programs of the session see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// The user id.
    pub user: u32,
    /// The group id.
    pub group: u32,
    /// The mode, including the file type.
    pub mode: u32,
    /// The device number, packed.
    pub number: u32,
}

impl Unknown {
    /// How a file without an entry appears.
    pub fn view(self, facts: &Facts) -> View {
        let (user, group) = match self {
            Unknown::Root => (0, 0),
            Unknown::Real => (facts.user, facts.group),
        };
        View { user, group, mode: facts.mode, number: facts.number }
    }
}

/// Whether an entry is about this file, and not about an earlier one with the same inode. A device is a regular
/// file on the disk.
pub fn is_of(entry: &Entry, facts: &Facts) -> bool {
    if entry.birth != 0 && facts.birth != 0 && entry.birth != facts.birth {
        return false;
    }
    is_of_kind(entry, facts.mode)
}

fn is_of_kind(entry: &Entry, mode: u32) -> bool {
    let kind = entry.mode & TYPE;
    kind == mode & TYPE || (is_device(kind) && mode & TYPE == REGULAR)
}

/// Whether an entry is certainly about this file, without comparing birth times: its inode is unchanged since the
/// entry was written, which was long after the last change. Another file would have a later change, if only its
/// creation.
pub fn is_certainly_of(entry: &Entry, facts: &Facts) -> bool {
    is_certainly_about(entry, facts.mode, facts.change) && is_of(entry, facts)
}

/// Like [`is_certainly_of`], for a file whose birth time is not known.
pub fn is_certainly_about(entry: &Entry, mode: u32, change: Change) -> bool {
    entry.change != Change::default() && entry.change == change && is_of_kind(entry, mode)
}

/// Whether a mode is that of a character or block device.
pub fn is_device(mode: u32) -> bool {
    matches!(mode & TYPE, CHARACTER | BLOCK)
}

/// How a file with this entry appears.
pub fn view(entry: &Entry) -> View {
    View { user: entry.user, group: entry.group, mode: entry.mode, number: entry.number }
}

/// Whether a file appears this way without an entry, and will continue to. On a write, the kernel clears the set-id
/// bits of a file unless root writes.
pub fn needs_no_entry(facts: &Facts, look: View, unknown: Unknown) -> bool {
    let sets_ids = look.mode & TYPE != FOLDER && look.mode & (SET_USER | SET_GROUP) != 0;
    look == unknown.view(facts) && !sets_ids
}

/// The entry that makes a file appear this way; `None` if it does without one.
pub fn entry_for(facts: &Facts, look: View, attributes: u64, unknown: Unknown) -> Option<Entry> {
    if attributes == 0 && needs_no_entry(facts, look, unknown) {
        return None;
    }
    Some(Entry {
        user: look.user,
        group: look.group,
        mode: look.mode,
        number: look.number,
        birth: facts.birth,
        links: facts.links,
        attributes,
        change: facts.change,
    })
}

/// The look after `chown`. A file loses its set-user-id bit, and its set-group-id bit if that means execution; a
/// folder keeps both.
pub fn after_chown(look: View, user: u32, group: u32) -> View {
    let mut mode = look.mode;
    if mode & TYPE != FOLDER {
        mode &= !SET_USER;
        if mode & GROUP_EXECUTE != 0 {
            mode &= !SET_GROUP;
        }
    }
    let or = |new, old| if new == UNCHANGED { old } else { new };
    View { user: or(user, look.user), group: or(group, look.group), mode, ..look }
}

/// The look after `chmod`.
pub fn after_chmod(look: View, mode: u32) -> View {
    View { mode: look.mode & !PERMISSIONS | mode & PERMISSIONS, ..look }
}

/// The look of a new folder or node that a process has made as this user and group, which may not be root's.
pub fn view_of_new(unknown: View, made_as: (u32, u32), mode: u32, number: u32) -> View {
    let (user, group) = if made_as == (0, 0) { (unknown.user, unknown.group) } else { made_as };
    View { user, group, mode, number }
}

/// The mode to show for a new folder that has mode `on_disk`: the mode asked for, less the mask.
pub fn mode_of_new_folder(on_disk: u32, asked: u32, mask: u32) -> u32 {
    const KEPT: u32 = 0o1777;
    on_disk & !KEPT | asked & KEPT & !mask
}

/// The mode that is really given to `chmod` and `mkdir`, so that the build's own user can still work with the file.
pub fn mode_on_disk(mode: u32, is_folder: bool) -> u32 {
    mode | if is_folder { 0o700 } else { 0o600 }
}

/// Whether removing one name successfully removed the file itself.
pub fn was_last_name(facts: &Facts) -> bool {
    facts.mode & TYPE == FOLDER || facts.links <= 1
}

/// A device number in 32 bits, as the kernel packs it.
pub fn pack_number(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | major << 8 | (minor & !0xff) << 12
}

/// The major and minor number of a packed device number.
pub fn unpack_number(number: u32) -> (u32, u32) {
    ((number >> 8) & 0xfff, (number & 0xff) | (number >> 12) & 0xf_ff00)
}

/// A device number as `stat` reports it: libc's packing in 64 bits.
pub fn wide_number(major: u32, minor: u32) -> u64 {
    let (major, minor) = (u64::from(major), u64::from(minor));
    (major & 0xfff) << 8 | (major & !0xfff) << 32 | minor & 0xff | (minor & !0xff) << 12
}

/// The major and minor number of a device number that `stat` reported.
pub fn narrow_number(wide: u64) -> (u32, u32) {
    let major = (wide >> 8) & 0xfff | (wide >> 32) & 0xffff_f000;
    let minor = wide & 0xff | (wide >> 12) & 0xffff_ff00;
    (major as u32, minor as u32)
}
