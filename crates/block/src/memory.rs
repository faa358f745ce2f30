//! Anonymous memory of the size of a device, of which only the blocks in use take space.

use rustix::io::Errno;
use std::io;
use std::ptr::NonNull;

/// `MADV_DONTNEED_LOCKED` (linux/mman.h), from Linux 5.18 on.
const DROP_LOCKED: i32 = 24;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Memory {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone, and nothing in it depends on a thread.
unsafe impl Send for Memory {}
// SAFETY: access to the bytes goes through `slice`, whose caller ensures that it is exclusive.
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) fn new(bytes: usize) -> io::Result<Memory> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at a place that the kernel chooses.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A huge page for each random write of 4 KiB would cost milliseconds, and 512 times the memory. An old kernel
        // without huge pages refuses the advice.
        // SAFETY: the range is the mapping.
        unsafe { libc::madvise(at, bytes, libc::MADV_NOHUGEPAGE) };
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Memory { at, bytes })
    }

    /// Where the memory begins, for the kernel.
    pub(crate) fn address(&self) -> u64 {
        self.at.as_ptr() as u64
    }

    /// The bytes from `from` on.
    ///
    /// # Safety
    /// Nothing else may use these bytes while the slice lives.
    #[expect(clippy::mut_from_ref, reason = "the caller ensures that it is exclusive")]
    pub(crate) unsafe fn slice(&self, from: usize, bytes: usize) -> &mut [u8] {
        assert!(from <= self.bytes && bytes <= self.bytes - from);
        // SAFETY: the range is in the mapping, which is initialised to zero, and the caller ensures that it is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr().add(from), bytes) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

/// Gives whole pages back; they are zero from then on. Also for memory that is locked.
pub(crate) fn release(pages: &mut [u8]) -> io::Result<()> {
    let (at, bytes) = (pages.as_mut_ptr().cast::<libc::c_void>(), pages.len());
    // SAFETY (all calls below): the range is a slice that belongs to the caller, and zero is a valid byte.
    let check = |result: i32| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: as above.
    match check(unsafe { libc::madvise(at, bytes, DROP_LOCKED) }) {
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {}
        done => return done,
    }
    // An older kernel: locked pages have to be unlocked first. Memory that is touched later is locked again only if
    // `mlockall` says so for new pages, which the next line does for these.
    // SAFETY: as above.
    check(unsafe { libc::munlock(at, bytes) })?;
    // SAFETY: as above.
    check(unsafe { libc::madvise(at, bytes, libc::MADV_DONTNEED) })?;
    // SAFETY: as above. Without the right to lock, the memory was not locked before either.
    let _ = unsafe { libc::mlock2(at, bytes, libc::MLOCK_ONFAULT) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_pages_are_zero() {
        let memory = Memory::new(1 << 20).unwrap();
        // SAFETY: the only slice.
        let pages = unsafe { memory.slice(8192, 8192) };
        pages.fill(7);
        release(&mut pages[4096..]).unwrap();
        assert!(pages[..4096].iter().all(|byte| *byte == 7));
        assert!(pages[4096..].iter().all(|byte| *byte == 0));
    }
}
