//! Writes a file of `/proc` as the root of a build's user namespace.
//!
//! Who made a user namespace has all privileges in it, but has to be in it to use those over files that belong to
//! its users. Only a process with one thread may enter: so one is made for it, which does nothing else.

use std::ffi::CString;
use std::io;
use std::os::fd::AsRawFd;

/// Writes `text` to `file` as root of the user namespace of this process. Fails where this process may not enter it.
pub(super) fn write_inside(process: u32, file: &str, text: &str) -> io::Result<()> {
    let namespace = std::fs::File::open(format!("/proc/{process}/ns/user"))?;
    let file = CString::new(file)?;
    // SAFETY: the child of this fork makes system calls alone, with what was allocated before, and leaves by _exit; so
    // it does not matter that other threads were not copied and what locks they held.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: see above; the descriptor is open, the string ends with a zero, and the text's length is its own.
        unsafe {
            let code = if libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWUSER) != 0 {
                errno()
            } else {
                let target = libc::open(file.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
                if target < 0 || libc::write(target, text.as_ptr().cast(), text.len()) < 0 {
                    errno()
                } else {
                    0
                }
            };
            libc::_exit(code);
        }
    }
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut status = 0;
    // SAFETY: the child is this function's own, and the status has room.
    while unsafe { libc::waitpid(child, &mut status, 0) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
        (true, 0) => Ok(()),
        (true, number) => Err(io::Error::from_raw_os_error(number)),
        (false, _) => Err(io::Error::other("a process that was to write it was killed")),
    }
}

/// The number of the last error: all that Linux has fit into an exit code.
///
/// # Safety
/// None needed; it is called between fork and exit, where nothing may allocate.
unsafe fn errno() -> i32 {
    // SAFETY: the pointer is the calling thread's own.
    unsafe { *libc::__errno_location() }
}
