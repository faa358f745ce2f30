//! Reads files that may be compressed: plain, gzip or zstd, detected by their first bytes.

use std::io::{self, Read, Seek};
use std::path::Path;

/// Limit on a file's unpacked size: about twenty times a scan of all of pkgsrc.
const UNPACKED_BYTES_MAX: u64 = 4 << 30;
/// `madvise` needs an address that is a multiple of this.
const PAGE_BYTES: usize = 4096;

/// Reads a file and unpacks it if it is compressed. A file of 4 GiB or more is an error.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = fs_err::File::open(path)?;
    let mut beginning = [0; 4];
    let count = file.read(&mut beginning)?;
    file.rewind()?;
    match packing(&beginning[..count]) {
        // Read into one buffer of the right size: a scan has 100 MB and more.
        Packing::None => {
            let mut text = room(file.metadata()?.len().min(UNPACKED_BYTES_MAX));
            within(file.file().take(UNPACKED_BYTES_MAX).read_to_end(&mut text)?)?;
            Ok(text)
        }
        _ => unpack(file),
    }
}

/// Allocates an empty buffer with this capacity in bytes, backed by huge pages where the kernel has them.
/// Faulting in a scan in small pages takes a sixth of the time that resolving it takes.
fn room(bytes: u64) -> Vec<u8> {
    let mut room: Vec<u8> = Vec::new();
    // If the allocation fails now, the buffer grows while the file is read, as far as memory allows.
    if room.try_reserve_exact(bytes as usize).is_ok() {
        let skipped = room.as_ptr().align_offset(PAGE_BYTES);
        if let Some(length) = room.capacity().checked_sub(skipped) {
            // SAFETY: the range is within the buffer's capacity, and this advice does not change the contents of
            // memory. If the kernel ignores it, nothing is lost.
            unsafe { libc::madvise(room.as_mut_ptr().add(skipped).cast(), length, libc::MADV_HUGEPAGE) };
        }
    }
    room
}

enum Packing {
    None,
    Gzip,
    Zstd,
}

fn packing(beginning: &[u8]) -> Packing {
    match beginning {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Packing::Zstd,
        [0x1f, 0x8b, ..] => Packing::Gzip,
        _ => Packing::None,
    }
}

/// Reads a stream, such as a pipe, to its end and unpacks it if it is compressed. The limit of [`read`]
/// applies.
pub fn unpack(mut from: impl Read) -> io::Result<Vec<u8>> {
    let mut beginning = Vec::new();
    from.by_ref().take(4).read_to_end(&mut beginning)?;
    let packing = packing(&beginning);
    let packed = io::Cursor::new(beginning).chain(from);
    let mut text = Vec::new();
    within(match packing {
        Packing::None => packed.take(UNPACKED_BYTES_MAX).read_to_end(&mut text)?,
        Packing::Gzip => {
            flate2::read::MultiGzDecoder::new(packed).take(UNPACKED_BYTES_MAX).read_to_end(&mut text)?
        }
        Packing::Zstd => zstd::Decoder::new(packed)?.take(UNPACKED_BYTES_MAX).read_to_end(&mut text)?,
    })?;
    Ok(text)
}

fn within(count: usize) -> io::Result<()> {
    match count as u64 == UNPACKED_BYTES_MAX {
        true => Err(io::Error::other(format!("larger than {UNPACKED_BYTES_MAX} bytes"))),
        false => Ok(()),
    }
}
