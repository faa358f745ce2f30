//! The process that waits for an answer: access to its memory and its entries in /proc.

use super::listener::Listener;
use std::ffi::CString;

/// Maximum length of a path, including the NUL (PATH_MAX).
const PATH_BYTES_MAX: usize = 4096;
const PAGE_BYTES: u64 = 4096;

/// A thread whose call was handed over.
pub struct Tracee<'a> {
    pub listener: &'a Listener,
    /// The id of the call.
    pub id: u64,
    /// The thread id.
    pub thread: u32,
}

/// Reads another process's memory; returns how many bytes could be read.
pub fn read_memory(thread: u32, at: u64, to: &mut [u8]) -> Result<usize, i32> {
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let remote = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: to.len() };
    // SAFETY: the buffer has this length; the other address is in the other process.
    let result =
        unsafe { libc::process_vm_readv(thread as i32, &raw const local, 1, &raw const remote, 1, 0) };
    if result < 0 { Err(last_error()) } else { Ok(result as usize) }
}

/// The error number of the last failed call.
pub fn last_error() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

impl Tracee<'_> {
    /// Checks that the process still waits, which proves that memory was read from it and not from a successor.
    fn check(&self) -> Result<(), i32> {
        if self.listener.is_waiting(self.id) { Ok(()) } else { Err(libc::EINTR) }
    }

    /// Reads exactly this number of bytes.
    pub fn read(&self, at: u64, bytes: usize) -> Result<Vec<u8>, i32> {
        let mut buffer = vec![0; bytes];
        let length = if bytes == 0 { 0 } else { read_memory(self.thread, at, &mut buffer)? };
        self.check()?;
        if length == bytes { Ok(buffer) } else { Err(libc::EFAULT) }
    }

    /// Reads a NUL-terminated string of at most `bytes_max` bytes; `too_long` is the error for a longer one.
    pub fn read_text(&self, at: u64, bytes_max: usize, too_long: i32) -> Result<CString, i32> {
        let mut text = Vec::new();
        let mut piece = [0; 256];
        while text.len() < bytes_max {
            let from = at.wrapping_add(text.len() as u64);
            // The next page may not be mapped.
            let length = (piece.len() as u64).min(PAGE_BYTES - from % PAGE_BYTES) as usize;
            let length = read_memory(self.thread, from, &mut piece[..length])?;
            if let Some(end) = piece[..length].iter().position(|byte| *byte == 0) {
                text.extend_from_slice(&piece[..end]);
                self.check()?;
                return CString::new(text).map_err(|_| libc::EINVAL);
            }
            text.extend_from_slice(&piece[..length]);
        }
        Err(too_long)
    }

    /// Reads a path; ENAMETOOLONG if it exceeds PATH_MAX.
    pub fn read_path(&self, at: u64) -> Result<CString, i32> {
        self.read_text(at, PATH_BYTES_MAX, libc::ENAMETOOLONG)
    }

    /// Writes bytes, after checking that the process still waits.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), i32> {
        self.check()?;
        let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let remote = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: bytes.len() };
        // SAFETY: our bytes are only read; the other address is in the other process.
        let result = unsafe {
            libc::process_vm_writev(self.thread as i32, &raw const local, 1, &raw const remote, 1, 0)
        };
        if result == bytes.len() as isize { Ok(()) } else { Err(libc::EFAULT) }
    }

    /// Writes numbers in native byte order.
    pub fn write_numbers(&self, at: u64, numbers: &[u32]) -> Result<(), i32> {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        self.write(at, &bytes)
    }

    /// A path below the thread's folder in /proc.
    pub fn path(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.thread)
    }

    /// A numeric field of the thread's status in /proc.
    pub fn status(&self, field: &str, radix: u32) -> Option<u32> {
        status(self.thread, field, radix)
    }
}

/// A numeric field of a process's status in /proc; `None` if absent or the process is gone.
pub fn status(process: u32, field: &str, radix: u32) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    u32::from_str_radix(line.trim(), radix).ok()
}

/// When a process was started, in clock ticks since boot: together with its id, this identifies it permanently.
pub fn started(process: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // After the name, which may contain any character, the next field is the third one, the state.
    text.rsplit_once(") ")?.1.split(' ').nth(22 - 3)?.parse().ok()
}
