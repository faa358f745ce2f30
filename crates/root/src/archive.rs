//! Trees of files as archives in one canonical form, so that the same tree is the same bytes on every machine.
//!
//! The form: GNU tar; entries in the order of a walk that takes the names of each folder by their bytes; ids as numbers,
//! without names; permissions with set-id and sticky bits; times in whole seconds, those since the making of the
//! tree began as the latest one before; the second and each further name of a file as a hard link to its first; extended attributes that
//! belong to the file as records of pax, named `LIBARCHIVE.xattr.` with values in base64, as bsdtar writes them (the records that GNU tar
//! writes cannot be told apart where a value has a line feed). Sockets and devices are left out, apart from the device 0/0 that says
//! in an overlay that something is gone.
//!
//! Both ways run in a sandbox with the ids of a root: ids of the archive are those inside, and are shifted by the kernel.
//! An archive is hostile input: nothing is written outside of the target, and no link in it is followed.
//!
//! Known downside: holes of files are written out.

mod pack;
mod unpack;

pub(crate) use pack::pack;
pub use pack::pack_shared;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// How records of pax that bsdtar writes name extended attributes.
const ATTRIBUTE_PREFIX: &str = "LIBARCHIVE.xattr.";
/// The attribute that makes a folder of an overlay hide what lies below it (overlayfs, `userxattr`).
const OPAQUE: &[u8] = b"user.overlay.opaque";

/// How an archive begins that zstd compressed (RFC 8878, 3.1.1).
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The largest window of zstd's that is kept in memory, as a power of two: 128 MiB, as zstd itself takes without being asked.
const WINDOW_LOG_MAX: u32 = 27;

/// Writes what an archive holds, compressed or not, into a folder that is there and empty. With `is_alone` there is one id, which
/// all of it gets.
pub(crate) fn unpack_file(archive: &Path, target: &Path, is_alone: bool) -> io::Result<()> {
    let mut file = BufReader::new(File::open(archive)?);
    let mut magic = [0; ZSTD_MAGIC.len()];
    let count = (&mut file).take(magic.len() as u64).read(&mut magic)?;
    file.seek_relative(-(count as i64))?;
    if magic != ZSTD_MAGIC {
        return unpack::unpack(file, target, is_alone);
    }
    let mut decoder = zstd::Decoder::with_buffer(file)?;
    decoder.window_log_max(WINDOW_LOG_MAX)?;
    unpack::unpack(decoder, target, is_alone)
}

/// Whether an extended attribute belongs to the file: capabilities, lists of access, what users gave it, and what an overlay
/// needs to know of a layer. Labels are the machine's.
fn is_kept(name: &[u8]) -> bool {
    let is_own = [&b"user."[..], b"system.posix_acl_", b"security.capability"];
    name == OPAQUE || is_own.iter().any(|own| name.starts_with(own)) && !name.starts_with(b"user.overlay.")
}

/// The innermost path is named, once.
fn at(path: &Path, error: io::Error) -> io::Error {
    if error.get_ref().is_some_and(|inner| inner.is::<Named>()) {
        return error;
    }
    io::Error::new(error.kind(), Named(format!("{}: {error}", path.to_string_lossy())))
}

/// An error that has its path.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Named(String);

#[cfg(test)]
mod tests;
