//! Writes a file of `/proc` as the root of a build's user namespace.
//!
//! The creator of a user namespace has all capabilities in it, but must enter it to use them on files of the
//! namespace's users. Only a single-threaded process may enter, so a process is forked for this alone.

use std::ffi::CString;
use std::io;
use std::os::fd::AsRawFd;

/// Writes `text` to `file` as root of the user namespace of `process`. Fails if this process may not enter it.
pub(super) fn write_inside(process: u32, file: &str, text: &str) -> io::Result<()> {
    let namespace = std::fs::File::open(format!("/proc/{process}/ns/user"))?;
    let file = CString::new(file)?;
    // SAFETY: the child only makes system calls, on memory allocated before the fork, and leaves by _exit. It needs
    // none of the threads that the fork did not copy, and none of the locks that they held.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: see above; the descriptor is open, the string is NUL-terminated, and the text is as long as passed.
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
    // SAFETY: this function started the child, and `status` is valid for writing.
    while unsafe { libc::waitpid(child, &mut status, 0) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
        (true, 0) => Ok(()),
        (true, number) => Err(io::Error::from_raw_os_error(number)),
        (false, _) => Err(io::Error::other("the process that was to write the file was killed")),
    }
}

/// The last error number. All of Linux's error numbers fit into an exit code.
///
/// # Safety
/// Has no requirements. It is called between fork and exit, where allocating is not allowed.
unsafe fn errno() -> i32 {
    // SAFETY: the pointer is valid, and belongs to the calling thread.
    unsafe { *libc::__errno_location() }
}
