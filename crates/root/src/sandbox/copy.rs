//! Copies layers into one folder, as an overlay would show them: for machines without overlays, for roots whose files
//! must all be in one place, and for layers that merge several others.
//!
//! Files are cloned if the file system supports that, which shares their blocks until one copy is written. Hard links
//! are used only if the result is itself a layer: a build that wrote to a hard link would write into the source
//! layer. No other process changes the folder during the copy, so names are trusted from one call to the next.

use crate::Content;
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::CStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The maximum size of a list of attribute names and of a value (`XATTR_LIST_MAX` and `XATTR_SIZE_MAX`,
/// linux/limits.h).
const ATTRIBUTE_BYTES_MAX: usize = 65_536;
/// Prefix of user attributes.
const USER_ATTRIBUTES: &[u8] = b"user.";
/// Prefix of the attributes by which an overlay in a user namespace marks files.
const OVERLAY_ATTRIBUTES: &[u8] = b"user.overlay.";

/// Copies layers, uppermost first, into a folder.
pub(super) fn copy_layers(layers: &[PathBuf], target: &Path, content: Content) -> io::Result<()> {
    for layer in layers.iter().rev() {
        let mut copier = Copier { content, seen: HashMap::new(), buffer: vec![0; ATTRIBUTE_BYTES_MAX] };
        copier.folder(layer, target, &fs::symlink_metadata(layer)?)?;
    }
    Ok(())
}

struct Copier {
    content: Content,
    /// Files with several names, by device and inode number.
    seen: HashMap<(u64, u64), PathBuf>,
    buffer: Vec<u8>,
}

impl Copier {
    fn folder(&mut self, source: &Path, target: &Path, metadata: &Metadata) -> io::Result<()> {
        let is_opaque = self.attribute(source, c"user.overlay.opaque")?.is_some_and(|value| value == b"y");
        match fs::symlink_metadata(target) {
            Ok(found) if found.is_dir() && is_opaque => crate::tree::empty_folder(target)?,
            Ok(found) if found.is_dir() => {}
            Ok(_) => {
                fs::remove_file(target)?;
                fs::create_dir(target)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => fs::create_dir(target)?,
            Err(error) => return Err(error),
        }
        // Read all entries first, so that no descriptor stays open while deeper levels are copied. The length of a
        // path, 4096 bytes, bounds the depth.
        let entries = fs::read_dir(source)?.collect::<io::Result<Vec<_>>>()?;
        for entry in entries {
            let (from, to) = (entry.path(), target.join(entry.file_name()));
            let below = fs::symlink_metadata(&from)?;
            let copied = match below.is_dir() {
                true => self.folder(&from, &to, &below),
                false => self.file(&from, &to, &below),
            };
            copied.map_err(|error| at(&from, error))?;
        }
        self.describe(source, target, metadata)
    }

    fn file(&mut self, source: &Path, target: &Path, metadata: &Metadata) -> io::Result<()> {
        remove(target)?;
        if self.is_whiteout(source, metadata)? {
            return Ok(());
        }
        let number = (metadata.dev(), metadata.ino());
        if let Some(first) = self.seen.get(&number) {
            return fs::hard_link(first, target);
        }
        let kind = metadata.file_type();
        if self.content == Content::Shared && !kind.is_char_device() && !kind.is_block_device() {
            match fs::hard_link(source, target) {
                // The file has too many links, or is on another file system: copy its content.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::TooManyLinks | io::ErrorKind::CrossesDevices
                    ) => {}
                linked => return linked,
            }
        }
        if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(source)?, target)?;
        } else if kind.is_file() {
            copy_content(source, target)?;
        } else if kind.is_fifo() || kind.is_socket() {
            let kind = if kind.is_fifo() { FileType::Fifo } else { FileType::Socket };
            rustix::fs::mknodat(CWD, target, kind, Mode::from_raw_mode(0o600), 0)?;
        } else {
            // Devices belong to the machine; a root has its own `/dev`.
            return Ok(());
        }
        if metadata.nlink() > 1 {
            self.seen.insert(number, target.to_owned());
        }
        self.describe(source, target, metadata)
    }

    /// Whether it is a whiteout, which hides a file of a lower layer: a device 0/0, or an empty file with a mark.
    fn is_whiteout(&mut self, source: &Path, metadata: &Metadata) -> io::Result<bool> {
        let is_device = metadata.file_type().is_char_device() && metadata.rdev() == 0;
        let may_be_marked = metadata.is_file() && metadata.len() == 0;
        Ok(is_device || may_be_marked && self.attribute(source, c"user.overlay.whiteout")?.is_some())
    }

    /// Sets owner, mode, attributes and times, in an order in which no step resets an earlier one.
    fn describe(&mut self, source: &Path, target: &Path, metadata: &Metadata) -> io::Result<()> {
        std::os::unix::fs::lchown(target, Some(metadata.uid()), Some(metadata.gid()))?;
        if !metadata.is_symlink() {
            fs::set_permissions(target, fs::Permissions::from_mode(metadata.mode() & 0o7777))?;
        }
        self.attributes(source, target)?;
        let time = |seconds, nanoseconds| Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
        let times = Timestamps {
            last_access: time(metadata.atime(), metadata.atime_nsec() as _),
            last_modification: time(metadata.mtime(), metadata.mtime_nsec() as _),
        };
        Ok(rustix::fs::utimensat(CWD, target, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn attributes(&mut self, source: &Path, target: &Path) -> io::Result<()> {
        let length = match rustix::fs::llistxattr(source, &mut self.buffer[..]) {
            Err(Errno::OPNOTSUPP) => 0,
            other => other?,
        };
        if length == 0 {
            return Ok(());
        }
        let names = self.buffer[..length].to_vec();
        for name in names.split_inclusive(|byte| *byte == 0) {
            let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
            if is_copied(name.to_bytes())
                && let Some(value) = self.attribute(source, name)?
            {
                match rustix::fs::lsetxattr(target, name, &value, rustix::fs::XattrFlags::empty()) {
                    // tmpfs has no user attributes before Linux 6.6.
                    Err(Errno::OPNOTSUPP) if name.to_bytes().starts_with(USER_ATTRIBUTES) => {}
                    set => set?,
                }
            }
        }
        Ok(())
    }

    fn attribute(&mut self, path: &Path, name: &CStr) -> io::Result<Option<Vec<u8>>> {
        match rustix::fs::lgetxattr(path, name, &mut self.buffer[..]) {
            Ok(length) => Ok(Some(self.buffer[..length].to_vec())),
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether an attribute belongs to the file: capabilities, ACLs and user attributes. Security labels belong to the
/// machine.
fn is_copied(name: &[u8]) -> bool {
    let is_own = [USER_ATTRIBUTES, b"system.posix_acl_", b"security.capability"];
    is_own.iter().any(|own| name.starts_with(own)) && !name.starts_with(OVERLAY_ATTRIBUTES)
}

fn copy_content(source: &Path, target: &Path) -> io::Result<()> {
    let (mut from, mut to) = (File::open(source)?, File::create_new(target)?);
    if rustix::fs::ioctl_ficlone(&to, &from).is_err() {
        // Within the kernel if it supports that.
        io::copy(&mut from, &mut to)?;
    }
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => crate::tree::remove_tree(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Adds the path to an error, unless it already has one: the innermost path is reported.
fn at(path: &Path, error: io::Error) -> io::Error {
    if error.get_ref().is_some() {
        return error;
    }
    io::Error::new(error.kind(), format!("{}: {error}", path.to_string_lossy()))
}
