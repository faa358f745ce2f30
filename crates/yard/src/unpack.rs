//! Files that may be compressed: plain, gzip or zstd, recognised by their first bytes.

use std::io::{self, Read, Seek};
use std::path::Path;

/// The largest file that is read, unpacked: some twenty times the scan of the whole of pkgsrc.
const UNPACKED_BYTES_MAX: u64 = 4 << 30;
/// What advice on memory must begin at a multiple of.
const PAGE_BYTES: usize = 4096;

/// Reads a file.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = fs_err::File::open(path)?;
    let mut beginning = [0; 4];
    let count = file.read(&mut beginning)?;
    file.rewind()?;
    match packing(&beginning[..count]) {
        // Straight into place: a scan has a hundred megabytes and more.
        Packing::None => {
            let mut text = room(file.metadata()?.len().min(UNPACKED_BYTES_MAX));
            within(file.file().take(UNPACKED_BYTES_MAX).read_to_end(&mut text)?)?;
            Ok(text)
        }
        _ => unpack(file),
    }
}

/// An empty buffer with this capacity in bytes, in large pages where the kernel has them: taking the small ones of a
/// scan one by one takes a sixth of all the time that resolving it does.
fn room(bytes: u64) -> Vec<u8> {
    let mut room: Vec<u8> = Vec::new();
    // Where there is no room now, it grows as it is read, as far as it can.
    if room.try_reserve_exact(bytes as usize).is_ok() {
        let skipped = room.as_ptr().align_offset(PAGE_BYTES);
        if let Some(length) = room.capacity().checked_sub(skipped) {
            // SAFETY: the range is within what the buffer holds, and this advice changes nothing of what memory
            // contains. Where it is not taken, nothing is lost.
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

/// Reads to the end of what is no file.
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
        true => Err(io::Error::other(format!("it has more than {UNPACKED_BYTES_MAX} bytes"))),
        false => Ok(()),
    }
}
