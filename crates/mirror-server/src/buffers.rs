//! Buffers for the content of files, which are used again: a new one of this size costs more in page faults than reading into it.

use hyper::body::Bytes;
use rustix::io::{ReadWriteFlags, preadv2};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

/// The size of a buffer, in bytes.
pub const BUFFER_BYTES: usize = 256 << 10;
/// The most that are kept.
const KEPT_MAX: usize = 64;
/// A smaller content has memory of its own.
const OWN_BYTES_MAX: u64 = 64 << 10;

static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// A buffer that comes back when it has been sent.
struct Buffer {
    bytes: Vec<u8>,
    used: usize,
}

impl Buffer {
    fn take() -> Buffer {
        let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Buffer { bytes: kept.unwrap_or_else(|| vec![0; BUFFER_BYTES]), used: 0 }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT_MAX {
            kept.push(std::mem::take(&mut self.bytes));
        }
    }
}

/// Reads a part of a file, of at most [`BUFFER_BYTES`]. It may wait for the disk.
///
/// # Errors
/// The file cannot be read, or ends before.
pub fn read_at(file: &File, at: u64, count: u64) -> io::Result<Bytes> {
    let size = usize::try_from(count).map_err(io::Error::other)?;
    if count <= OWN_BYTES_MAX {
        let mut bytes = vec![0; size];
        file.read_exact_at(&mut bytes, at)?;
        return Ok(Bytes::from(bytes));
    }
    let mut buffer = Buffer::take();
    let part = buffer.bytes.get_mut(..size).ok_or(io::ErrorKind::InvalidInput)?;
    file.read_exact_at(part, at)?;
    buffer.used = size;
    Ok(Bytes::from_owner(buffer))
}

/// Reads what is in memory of a part of a file; none if the disk would be waited for.
pub fn read_cached(file: &File, at: u64, count: u64) -> Option<Bytes> {
    let size = usize::try_from(count).ok()?;
    let mut buffer = Buffer::take();
    let part = buffer.bytes.get_mut(..size)?;
    let read = preadv2(file, &mut [IoSliceMut::new(part)], at, ReadWriteFlags::NOWAIT).ok()?;
    buffer.used = read;
    (read > 0).then(|| Bytes::from_owner(buffer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_file_are_read_and_buffers_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        fs_err::write(folder.path().join("f"), &content).unwrap();
        let (file, _) = fs_err::File::open(folder.path().join("f")).unwrap().into_parts();
        for (at, count) in [(0, 10), (100, 65_536), (7, BUFFER_BYTES), (BUFFER_BYTES + 1, BUFFER_BYTES)] {
            let expected = &content[at..at + count];
            assert_eq!(read_at(&file, at as u64, count as u64).unwrap(), expected);
            // It was read just now, and more of it may be in memory than is asked for, but not less than something.
            let cached = read_cached(&file, at as u64, count as u64).unwrap();
            assert!(!cached.is_empty() && expected.starts_with(&cached));
        }
        assert!(read_at(&file, content.len() as u64 - 1, 2).is_err());
        assert!(read_at(&file, 0, BUFFER_BYTES as u64 + 1).is_err());
        assert!(read_cached(&file, content.len() as u64, 1).is_none());
        assert!(KEPT.lock().unwrap().iter().all(|buffer| buffer.len() == BUFFER_BYTES));
    }
}
