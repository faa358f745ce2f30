//! The tar layer: assembles entries with their long names and extended headers.
//!
//! The `tar` crate can do this itself, but then reads extended headers of any length into memory, and a few compressed
//! bytes can make one many gigabytes long. This module therefore uses the crate's raw entries and reads the extensions
//! itself, within limits.

use std::io::{self, Read};

use sha2::{Digest, Sha256};
use tar::EntryType;

use super::ArchiveProblem;
use super::numbers::Numbers;

/// A tar archive is a sequence of blocks of this size.
const BLOCK_BYTES: u64 = 512;

/// The kernel's `PATH_MAX`: a longer name cannot be unpacked.
const NAME_BYTES_MAX: u64 = 4096;

/// Extended headers hold a path, a link target and attributes of at most 64 KiB.
const PAX_BYTES_MAX: u64 = 128 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    HardLink,
    SymbolicLink,
    CharacterDevice,
    BlockDevice,
    Directory,
    Fifo,
}

/// Everything about an entry except its bytes.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Without leading `./` and trailing `/`; empty for the root itself.
    pub(crate) path: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) owner: (u64, Vec<u8>),
    pub(crate) group: (u64, Vec<u8>),
    pub(crate) link_target: Vec<u8>,
    pub(crate) device: (u32, u32),
    /// Extended attributes and any other PAX records except times, sorted by key.
    pub(crate) extended: Vec<(String, Vec<u8>)>,
    pub(crate) size_bytes: u64,
}

/// What followed the last entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The end marker, two blocks of zeros, followed by nothing but zeros.
    Marked,
    /// An incomplete end marker: the program that wrote the archive did not finish.
    Unmarked,
    /// Bytes other than zeros.
    Followed {
        /// Number of bytes after the marker.
        count_bytes: u64,
    },
}

/// Calls `each` with every entry of the archive and a reader of its bytes, then reads `source` to its end.
pub(crate) fn for_each_entry<E: From<ArchiveProblem>>(
    source: &mut dyn Read,
    member: &'static str,
    mut each: impl FnMut(Entry, &mut dyn Read) -> Result<(), E>,
) -> Result<End, E> {
    let damaged = |source| ArchiveProblem::Content { member, source };
    let mut archive = tar::Archive::new(Counting { inner: source, count_bytes: 0 });
    let mut pending = Extensions::default();
    let mut entries_end_bytes = 0;
    for raw in archive.entries().map_err(damaged)?.raw(true) {
        let mut raw = raw.map_err(damaged)?;
        let kind = match raw.header().entry_type() {
            EntryType::GNULongName => {
                pending.path = Some(read_name(&mut raw, member)?);
                continue;
            }
            EntryType::GNULongLink => {
                pending.link_target = Some(read_name(&mut raw, member)?);
                continue;
            }
            EntryType::XHeader => {
                pending.read_pax(&mut raw, member)?;
                continue;
            }
            EntryType::Regular | EntryType::Continuous => Some(Kind::File),
            EntryType::Link => Some(Kind::HardLink),
            EntryType::Symlink => Some(Kind::SymbolicLink),
            EntryType::Char => Some(Kind::CharacterDevice),
            EntryType::Block => Some(Kind::BlockDevice),
            EntryType::Directory => Some(Kind::Directory),
            EntryType::Fifo => Some(Kind::Fifo),
            _ => None,
        };
        let entry = std::mem::take(&mut pending).complete(&raw, kind, member)?;
        entries_end_bytes = raw
            .raw_file_position()
            .saturating_add(entry.size_bytes.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES));
        each(entry, &mut raw)?;
    }
    if pending.is_any() {
        return Err(ArchiveProblem::Entry {
            member,
            path: String::new(),
            reason: "a long name is not followed by an entry",
        }
        .into());
    }
    // The padding after the last entry belongs to the compressed stream, whose own checksum comes after it.
    let source = archive.into_inner();
    let mark_bytes = source.count_bytes.saturating_sub(entries_end_bytes);
    let rest = count_rest(source.inner).map_err(damaged)?;
    Ok(match rest {
        Rest { has_others: true, count_bytes } => End::Followed { count_bytes },
        Rest { count_bytes, .. } if mark_bytes + count_bytes >= 2 * BLOCK_BYTES => End::Marked,
        _ => End::Unmarked,
    })
}

struct Counting<'a> {
    inner: &'a mut dyn Read,
    count_bytes: u64,
}

impl Read for Counting<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.count_bytes += count as u64;
        Ok(count)
    }
}

struct Rest {
    count_bytes: u64,
    has_others: bool,
}

/// Reads to the end; returns the number of bytes, and whether any of them was not zero.
fn count_rest(source: &mut dyn Read) -> io::Result<Rest> {
    let mut rest = Rest { count_bytes: 0, has_others: false };
    for_each_piece(source, |piece| {
        rest.count_bytes += piece.len() as u64;
        rest.has_others |= piece.iter().any(|byte| *byte != 0);
    })?;
    Ok(rest)
}

/// Reads to the end, piece by piece.
fn for_each_piece(source: &mut dyn Read, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match source.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => each(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads an entry's bytes into memory. `limit_bytes` is checked before anything is read.
pub(crate) fn read_bytes(
    entry: &Entry,
    bytes: &mut dyn Read,
    member: &'static str,
    what: &'static str,
    limit_bytes: u64,
) -> Result<Vec<u8>, ArchiveProblem> {
    if entry.size_bytes > limit_bytes {
        return Err(ArchiveProblem::TooLarge { what, limit: limit_bytes });
    }
    let mut content = Vec::new();
    bytes.read_to_end(&mut content).map_err(|source| ArchiveProblem::Content { member, source })?;
    check_length(entry, content.len() as u64, member)?;
    Ok(content)
}

/// SHA-256 of an entry's bytes.
pub(crate) fn hash_bytes(
    entry: &Entry,
    bytes: &mut dyn Read,
    member: &'static str,
    numbers: &Numbers,
) -> Result<[u8; 32], ArchiveProblem> {
    let mut hash = Sha256::new();
    let mut total = 0;
    let mut filter = numbers.filter();
    for_each_piece(bytes, |piece| {
        filter.push(piece, &mut |kept| hash.update(kept));
        total += piece.len() as u64;
    })
    .map_err(|source| ArchiveProblem::Content { member, source })?;
    filter.finish(&mut |kept| hash.update(kept));
    check_length(entry, total, member)?;
    Ok(hash.finalize().into())
}

fn check_length(entry: &Entry, count: u64, member: &'static str) -> Result<(), ArchiveProblem> {
    if count == entry.size_bytes {
        return Ok(());
    }
    Err(refused(member, &entry.path, "it is truncated"))
}

pub(crate) fn refused(member: &'static str, path: &[u8], reason: &'static str) -> ArchiveProblem {
    ArchiveProblem::Entry { member, path: String::from_utf8_lossy(path).into_owned(), reason }
}

/// Values from extension entries, which apply to the entry that follows them.
#[derive(Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    link_target: Option<Vec<u8>>,
    owner: Option<u64>,
    group: Option<u64>,
    owner_name: Option<Vec<u8>>,
    group_name: Option<Vec<u8>>,
    size: Option<u64>,
    others: Vec<(String, Vec<u8>)>,
}

impl Extensions {
    fn is_any(&self) -> bool {
        self.path.is_some() || self.link_target.is_some() || self.size.is_some() || !self.others.is_empty()
    }

    fn read_pax<R: Read>(
        &mut self,
        raw: &mut tar::Entry<'_, R>,
        member: &'static str,
    ) -> Result<(), ArchiveProblem> {
        let content = read_extension(raw, member, PAX_BYTES_MAX)?;
        for extension in tar::PaxExtensions::new(&content) {
            let extension = extension.map_err(|source| ArchiveProblem::Content { member, source })?;
            let key = extension.key().map_err(|_| refused(member, b"", "an extended header is not UTF-8"))?;
            let value = extension.value_bytes();
            let number = || {
                std::str::from_utf8(value)
                    .ok()
                    .and_then(|text| text.parse().ok())
                    .ok_or_else(|| refused(member, value, "an extended header has an invalid number"))
            };
            match key {
                "path" => self.path = Some(value.to_owned()),
                "linkpath" => self.link_target = Some(value.to_owned()),
                "uid" => self.owner = Some(number()?),
                "gid" => self.group = Some(number()?),
                "uname" => self.owner_name = Some(value.to_owned()),
                "gname" => self.group_name = Some(value.to_owned()),
                "size" => self.size = Some(number()?),
                // Times say when a file was made, not what it is.
                "mtime" | "atime" | "ctime" => {}
                _ => self.others.push((key.to_owned(), value.to_owned())),
            }
        }
        self.others.sort();
        Ok(())
    }

    fn complete<R: Read>(
        self,
        raw: &tar::Entry<'_, R>,
        kind: Option<Kind>,
        member: &'static str,
    ) -> Result<Entry, ArchiveProblem> {
        let damaged = |source| ArchiveProblem::Content { member, source };
        let header = raw.header();
        let path = self.path.unwrap_or_else(|| header.path_bytes().into_owned());
        let kind = kind.ok_or_else(|| refused(member, &path, "its type is not supported"))?;
        let link_target = self
            .link_target
            .unwrap_or_else(|| header.link_name_bytes().map(|name| name.into_owned()).unwrap_or_default());
        if path.len() as u64 > NAME_BYTES_MAX || link_target.len() as u64 > NAME_BYTES_MAX {
            return Err(ArchiveProblem::TooLarge { what: "longest path", limit: NAME_BYTES_MAX });
        }
        let size_bytes = header.entry_size().map_err(damaged)?;
        // With two sizes for one entry, two readers could see two different archives.
        if self.size.is_some_and(|size| size != size_bytes) {
            return Err(refused(member, &path, "its extended header gives a different size"));
        }
        let path = trimmed(&path);
        if path.split(|byte| *byte == b'/').any(|part| part == b"..") {
            return Err(refused(member, path, "its path contains `..`"));
        }
        let is_device = matches!(kind, Kind::CharacterDevice | Kind::BlockDevice);
        let device = if is_device {
            let major = header.device_major().map_err(damaged)?.unwrap_or(0);
            (major, header.device_minor().map_err(damaged)?.unwrap_or(0))
        } else {
            (0, 0)
        };
        let has_target = matches!(kind, Kind::HardLink | Kind::SymbolicLink);
        Ok(Entry {
            path: path.to_owned(),
            kind,
            mode: header.mode().map_err(damaged)?,
            owner: (
                self.owner.map_or_else(|| header.uid(), Ok).map_err(damaged)?,
                self.owner_name.unwrap_or_else(|| header.username_bytes().unwrap_or_default().to_owned()),
            ),
            group: (
                self.group.map_or_else(|| header.gid(), Ok).map_err(damaged)?,
                self.group_name.unwrap_or_else(|| header.groupname_bytes().unwrap_or_default().to_owned()),
            ),
            link_target: if has_target { link_target } else { Vec::new() },
            device,
            extended: self.others,
            size_bytes,
        })
    }
}

/// A path without the `./` that packages put in front and the trailing `/` of directories.
pub(crate) fn trimmed(path: &[u8]) -> &[u8] {
    let mut path = path;
    while let Some(rest) = path.strip_prefix(b"./") {
        path = rest;
    }
    while let Some(rest) = path.strip_suffix(b"/") {
        path = rest;
    }
    if path == b"." { b"" } else { path }
}

fn read_name<R: Read>(raw: &mut tar::Entry<'_, R>, member: &'static str) -> Result<Vec<u8>, ArchiveProblem> {
    // The name is NUL-terminated.
    let mut name = read_extension(raw, member, NAME_BYTES_MAX + 1)?;
    if let Some(end) = name.iter().position(|byte| *byte == 0) {
        name.truncate(end);
    }
    Ok(name)
}

fn read_extension<R: Read>(
    raw: &mut tar::Entry<'_, R>,
    member: &'static str,
    limit_bytes: u64,
) -> Result<Vec<u8>, ArchiveProblem> {
    let damaged = |source| ArchiveProblem::Content { member, source };
    let size_bytes = raw.header().entry_size().map_err(damaged)?;
    if size_bytes > limit_bytes {
        return Err(ArchiveProblem::TooLarge { what: "longest extended tar header", limit: limit_bytes });
    }
    let mut content = Vec::new();
    raw.read_to_end(&mut content).map_err(damaged)?;
    if content.len() as u64 != size_bytes {
        return Err(refused(member, b"", "an extended header is truncated"));
    }
    Ok(content)
}
