//! Archives of trees in one canonical form: the same tree gives the same bytes on every machine.
//!
//! The form is GNU tar, with these rules:
//!
//! - Each folder's entries are sorted by the bytes of their names.
//! - Ids are numbers, without names. Permissions include the set-id and sticky bits.
//! - Times are whole seconds. A time after the start of the making of the tree is replaced by the latest time before
//!   it.
//! - The second and every further name of a file is a hard link to its first.
//! - Extended attributes that belong to the file are pax records, named `LIBARCHIVE.xattr.` with values in base64, as
//!   bsdtar writes them. (GNU tar's records are ambiguous if a value contains a line feed.)
//! - Sockets and devices are left out, except for the device 0/0, which marks a deleted file in an overlay.
//!
//! Packing and unpacking run in a sandbox with the ids of a root: an archive has the ids inside, and the kernel
//! translates them. An archive is hostile input: nothing is written outside the target, and no link in it is followed.
//!
//! Known downside: holes in sparse files are written out as zeros.

mod changes;
mod pack;
mod unpack;

pub use changes::{Changes, Stamp, Stamps};
pub(crate) use pack::pack;
pub use pack::{pack_changes, pack_shared};

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// Prefix of extended attributes in the pax records of bsdtar.
const ATTRIBUTE_PREFIX: &str = "LIBARCHIVE.xattr.";
/// The attribute that makes a folder of an overlay hide what is below it (overlayfs, `userxattr`).
const OPAQUE: &[u8] = b"user.overlay.opaque";

/// First bytes of a zstd-compressed archive (RFC 8878, 3.1.1).
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The maximum zstd window, as a power of two: 128 MiB, which is zstd's own default limit.
const WINDOW_LOG_MAX: u32 = 27;

/// Unpacks an archive, compressed or not, into an existing empty folder. With `has_one_id` there is only one id, which
/// owns all files.
pub(crate) fn unpack_file(archive: &Path, target: &Path, has_one_id: bool) -> io::Result<()> {
    let mut file = BufReader::new(File::open(archive)?);
    let mut magic = [0; ZSTD_MAGIC.len()];
    let count = (&mut file).take(magic.len() as u64).read(&mut magic)?;
    file.seek_relative(-(count as i64))?;
    if magic != ZSTD_MAGIC {
        return unpack::unpack(file, target, has_one_id);
    }
    let mut decoder = zstd::Decoder::with_buffer(file)?;
    decoder.window_log_max(WINDOW_LOG_MAX)?;
    unpack::unpack(decoder, target, has_one_id)
}

/// Whether an extended attribute belongs to the file: capabilities, ACLs, user attributes, and the mark of an opaque
/// folder in an overlay. Security labels belong to the machine.
fn is_kept(name: &[u8]) -> bool {
    let is_own = [&b"user."[..], b"system.posix_acl_", b"security.capability"];
    name == OPAQUE || is_own.iter().any(|own| name.starts_with(own)) && !name.starts_with(b"user.overlay.")
}

/// Adds the path to an error, unless it already has one: the innermost path is reported.
fn at(path: &Path, error: io::Error) -> io::Error {
    if error.get_ref().is_some_and(|inner| inner.is::<Named>()) {
        return error;
    }
    io::Error::new(error.kind(), Named(format!("{}: {error}", path.to_string_lossy())))
}

/// An error text that includes its path.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Named(String);

#[cfg(test)]
mod tests;
