//! Packs a tree into an archive.

use super::changes::Changes;
use super::{ATTRIBUTE_PREFIX, at, is_kept};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{CStr, OsStr};
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use tar::{Builder, EntryType, Header};

/// Administrative folders of version control systems.
const VERSION_CONTROL: [&str; 3] = [".git", ".hg", "CVS"];

/// Whether a shared tree is packed without this.
pub(super) fn is_administrative(name: &OsStr) -> bool {
    VERSION_CONTROL.iter().any(|other| name == *other)
}

/// The maximum size of a list of attribute names and of a value (`XATTR_LIST_MAX` and `XATTR_SIZE_MAX`,
/// linux/limits.h).
const ATTRIBUTE_BYTES_MAX: usize = 65_536;

/// Packs the tree in a folder. A time of at least `made_since_seconds` (since the epoch) is replaced by the latest time
/// before that.
pub(crate) fn pack(folder: &Path, made_since_seconds: Option<u64>, to: impl Write) -> io::Result<()> {
    let newest_seconds = made_since_seconds.map(|since| latest_before(folder, since)).transpose()?;
    let packer = Packer { newest_seconds: newest_seconds.unwrap_or(u64::MAX), ..Packer::new(to) };
    packer.all(folder)
}

/// Packs a tree of this machine that roots see read-only, such as a recipe tree: root owns all files, they are
/// readable, and they have no extended attributes. Administrative folders of version control are left out.
pub fn pack_shared(folder: &Path, to: impl Write) -> io::Result<()> {
    Packer { is_shared: true, ..Packer::new(to) }.all(folder)
}

/// Packs what has changed in such a tree, as a layer above the earlier one: files with the folders that lead to them, and
/// whiteouts of what is gone.
pub fn pack_changes(folder: &Path, changes: &Changes, to: impl Write) -> io::Result<()> {
    let mut packer = Packer { is_shared: true, ..Packer::new(to) };
    let (mut folders, mut paths) = (BTreeSet::from([PathBuf::new()]), BTreeMap::new());
    paths.extend(changes.changed.iter().map(|path| (path, true)));
    paths.extend(changes.removed.iter().map(|path| (path, false)));
    packer.folder_alone(folder, Path::new(""))?;
    for (path, is_there) in paths {
        let above: Vec<&Path> = path.ancestors().skip(1).collect();
        for parent in above.into_iter().rev().filter(|parent| !parent.as_os_str().is_empty()) {
            if folders.insert(parent.to_owned()) {
                packer.folder_alone(&folder.join(parent), parent)?;
            }
        }
        let full = folder.join(path);
        match is_there.then(|| fs::symlink_metadata(&full)).transpose().map_err(|error| at(&full, error))? {
            None => packer.whiteout(path)?,
            Some(metadata) if metadata.is_dir() => {
                if folders.insert(path.clone()) {
                    packer.folder_alone(&full, path)?;
                }
            }
            Some(metadata) => packer.file(&full, path, &metadata).map_err(|error| at(&full, error))?,
        }
    }
    packer.builder.into_inner()?.flush()
}

/// The latest modification time below a folder that is before the given one; 0 if there is none.
fn latest_before(folder: &Path, before_seconds: u64) -> io::Result<u64> {
    let mut latest = 0;
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).map_err(|error| at(&folder, error))? {
            let path = entry?.path();
            let metadata = fs::symlink_metadata(&path).map_err(|error| at(&path, error))?;
            let seconds = seconds_of(&metadata);
            if seconds < before_seconds {
                latest = latest.max(seconds);
            }
            if metadata.is_dir() {
                open.push(path);
            }
        }
    }
    Ok(latest)
}

/// Modification time; a time before the epoch counts as 0.
fn seconds_of(metadata: &Metadata) -> u64 {
    u64::try_from(metadata.mtime()).unwrap_or(0)
}

struct Packer<Target: Write> {
    builder: Builder<Target>,
    newest_seconds: u64,
    /// Whether the tree belongs to users of this machine rather than to a root.
    is_shared: bool,
    /// The first name of each file with several names, by device and inode number.
    first_names: HashMap<(u64, u64), PathBuf>,
    buffer: Vec<u8>,
}

impl<Target: Write> Packer<Target> {
    fn new(to: Target) -> Packer<Target> {
        Packer {
            builder: Builder::new(to),
            newest_seconds: u64::MAX,
            is_shared: false,
            first_names: HashMap::new(),
            buffer: vec![0; ATTRIBUTE_BYTES_MAX],
        }
    }

    fn all(mut self, folder: &Path) -> io::Result<()> {
        let metadata = fs::metadata(folder)?;
        self.folder(folder, Path::new(""), &metadata)?;
        self.builder.into_inner()?.flush()
    }

    /// A folder without what is in it.
    fn folder_alone(&mut self, folder: &Path, inside: &Path) -> io::Result<()> {
        let metadata = fs::metadata(folder).map_err(|error| at(folder, error))?;
        let shown = if inside.as_os_str().is_empty() { Path::new(".") } else { inside };
        let mut header = self.header(&metadata, EntryType::Directory);
        self.builder.append_data(&mut header, shown, io::empty())
    }

    /// Hides what lower layers have at this path.
    fn whiteout(&mut self, inside: &Path) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Char);
        header.set_mode(0);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(0);
        header.set_device_major(0)?;
        header.set_device_minor(0)?;
        self.builder.append_data(&mut header, inside, io::empty())
    }

    /// `inside` is the folder's path in the archive. PATH_MAX bounds the depth of the recursion.
    fn folder(&mut self, folder: &Path, inside: &Path, metadata: &Metadata) -> io::Result<()> {
        let shown = if inside.as_os_str().is_empty() { Path::new(".") } else { inside };
        self.attributes(folder)?;
        let mut header = self.header(metadata, EntryType::Directory);
        self.builder.append_data(&mut header, shown, io::empty())?;
        let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by(|one, other| one.file_name().as_bytes().cmp(other.file_name().as_bytes()));
        for entry in entries {
            if self.is_shared && is_administrative(&entry.file_name()) {
                continue;
            }
            let (path, inside) = (entry.path(), inside.join(entry.file_name()));
            let metadata = fs::symlink_metadata(&path).map_err(|error| at(&path, error))?;
            let packed = match metadata.is_dir() {
                true => self.folder(&path, &inside, &metadata),
                false => self.file(&path, &inside, &metadata),
            };
            packed.map_err(|error| at(&path, error))?;
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, inside: &Path, metadata: &Metadata) -> io::Result<()> {
        let kind = metadata.file_type();
        let is_whiteout = kind.is_char_device() && metadata.rdev() == 0;
        if !(kind.is_file() || kind.is_symlink() || kind.is_fifo() || is_whiteout) {
            return Ok(());
        }
        let number = (metadata.dev(), metadata.ino());
        if metadata.nlink() > 1 && !is_whiteout {
            if let Some(first) = self.first_names.get(&number) {
                let mut header = self.header(metadata, EntryType::Link);
                return self.builder.append_link(&mut header, inside, first);
            }
            self.first_names.insert(number, inside.to_owned());
        }
        self.attributes(path)?;
        if kind.is_symlink() {
            let mut header = self.header(metadata, EntryType::Symlink);
            return self.builder.append_link(&mut header, inside, fs::read_link(path)?);
        }
        if !kind.is_file() {
            let mut header =
                self.header(metadata, if kind.is_fifo() { EntryType::Fifo } else { EntryType::Char });
            header.set_device_major(0)?;
            header.set_device_minor(0)?;
            return self.builder.append_data(&mut header, inside, io::empty());
        }
        let mut header = self.header(metadata, EntryType::Regular);
        header.set_size(metadata.len());
        // A file that grows or shrinks while it is read would make the archive unreadable.
        let mut content = Exactly { file: File::open(path)?.take(metadata.len()), missing: metadata.len() };
        self.builder.append_data(&mut header, inside, &mut content)?;
        match content.missing {
            0 => Ok(()),
            _ => Err(io::Error::other("the file changed while it was packed")),
        }
    }

    fn header(&self, metadata: &Metadata, kind: EntryType) -> Header {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        // The mode of a link has no effect and differs between systems.
        let mode = match (metadata.is_symlink(), self.is_shared) {
            (true, _) => 0o777,
            (false, true) => (metadata.mode() & 0o755) | 0o444 | if metadata.is_dir() { 0o111 } else { 0 },
            (false, false) => metadata.mode() & 0o7777,
        };
        let (user, group) = if self.is_shared { (0, 0) } else { (metadata.uid(), metadata.gid()) };
        header.set_mode(mode);
        header.set_uid(user.into());
        header.set_gid(group.into());
        header.set_mtime(seconds_of(metadata).min(self.newest_seconds));
        header.set_size(0);
        header
    }

    /// Writes the extended attributes as pax records, if there are any.
    fn attributes(&mut self, path: &Path) -> io::Result<()> {
        if self.is_shared {
            return Ok(());
        }
        let length = match rustix::fs::llistxattr(path, &mut self.buffer[..]) {
            Err(Errno::OPNOTSUPP) => 0,
            other => other?,
        };
        let names = self.buffer[..length].to_vec();
        let mut names: Vec<&CStr> = names
            .split_inclusive(|byte| *byte == 0)
            .filter_map(|name| CStr::from_bytes_with_nul(name).ok())
            .filter(|name| is_kept(name.to_bytes()))
            .collect();
        names.sort_unstable();
        let mut records = Vec::new();
        for name in names {
            // A record cannot hold a name that is not UTF-8.
            let Ok(text) = name.to_str() else { continue };
            match rustix::fs::lgetxattr(path, name, &mut self.buffer[..]) {
                Ok(length) => records.push((
                    format!("{ATTRIBUTE_PREFIX}{text}"),
                    STANDARD_NO_PAD.encode(&self.buffer[..length]),
                )),
                Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match records.is_empty() {
            true => Ok(()),
            false => self
                .builder
                .append_pax_extensions(records.iter().map(|(name, value)| (name.as_str(), value.as_bytes()))),
        }
    }
}

/// A reader that counts the bytes missing from the size in the header.
struct Exactly {
    file: io::Take<File>,
    missing: u64,
}

impl Read for Exactly {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(bytes)?;
        self.missing -= count as u64;
        Ok(count)
    }
}
