//! System calls, without libc: the preload library must not set its callers' `errno` by accident, must not be
//! misled by other preloaded libraries while it accesses its own file, and each symbol that it imports from libc
//! would cost time at every exec.

use core::arch::asm;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Numbers of system calls, as the kernel's headers give them for each architecture.
#[cfg(target_arch = "x86_64")]
#[allow(missing_docs)]
pub mod number {
    pub const CLOSE: usize = 3;
    pub const MMAP: usize = 9;
    pub const MUNMAP: usize = 11;
    pub const PREAD: usize = 17;
    pub const WRITE: usize = 1;
    pub const SIGPROCMASK: usize = 14;
    pub const GETTID: usize = 186;
    pub const FUTEX: usize = 202;
    pub const GETEUID: usize = 107;
    pub const OPENAT: usize = 257;
    pub const GET_ROBUST_LIST: usize = 274;
    pub const SET_ROBUST_LIST: usize = 273;
    pub const FALLOCATE: usize = 285;
    pub const SOCKET: usize = 41;
    pub const CONNECT: usize = 42;
    pub const SENDMSG: usize = 46;
    pub const READ: usize = 0;
    pub const EXECVE: usize = 59;
    pub const EXIT: usize = 231;
    pub const PRCTL: usize = 157;
    pub const SECCOMP: usize = 317;
    pub const GETRESUID: usize = 118;
    pub const FSTAT: usize = 5;
    pub const FSTATAT: usize = 262;
    pub const FSTATFS: usize = 138;
}

/// Numbers of system calls, as the kernel's headers give them for each architecture.
#[cfg(target_arch = "aarch64")]
#[allow(missing_docs)]
pub mod number {
    pub const CLOSE: usize = 57;
    pub const MMAP: usize = 222;
    pub const MUNMAP: usize = 215;
    pub const PREAD: usize = 67;
    pub const WRITE: usize = 64;
    pub const SIGPROCMASK: usize = 135;
    pub const GETTID: usize = 178;
    pub const FUTEX: usize = 98;
    pub const GETEUID: usize = 175;
    pub const OPENAT: usize = 56;
    pub const GET_ROBUST_LIST: usize = 100;
    pub const SET_ROBUST_LIST: usize = 99;
    pub const FALLOCATE: usize = 47;
    pub const SOCKET: usize = 198;
    pub const CONNECT: usize = 203;
    pub const SENDMSG: usize = 211;
    pub const READ: usize = 63;
    pub const EXECVE: usize = 221;
    pub const EXIT: usize = 94;
    pub const PRCTL: usize = 167;
    pub const SECCOMP: usize = 277;
    pub const GETRESUID: usize = 148;
    pub const FSTAT: usize = 80;
    pub const FSTATAT: usize = 79;
    pub const FSTATFS: usize = 44;
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("fakeroot supports x86_64 and aarch64 only");

/// Makes a system call. A result from -4095 to -1 is a negated error number.
///
/// # Safety
/// The requirements of the call itself apply: its pointers must be valid for it.
#[inline]
pub unsafe fn call(number: usize, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: the caller guarantees the arguments; the kernel changes nothing except the registers named here.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
        #[cfg(target_arch = "aarch64")]
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack)
        );
    }
    result
}

/// The result of a system call, or its error number.
pub fn check(result: isize) -> Result<usize, i32> {
    if (-4095..0).contains(&result) { Err(-result as i32) } else { Ok(result as usize) }
}

/// Makes a call whose arguments are not pointers.
#[inline]
fn plain(number: usize, arguments: [usize; 6]) -> isize {
    // SAFETY: no argument is an address.
    unsafe { call(number, arguments) }
}

/// Relative to the current directory.
const AT_FDCWD: usize = -100isize as usize;
const O_RDONLY: usize = 0;
const O_RDWR: usize = 2;
const O_CLOEXEC: usize = 0o2_000_000;
const READ_AND_WRITE: usize = 3;
const MAP_SHARED: usize = 1;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// For reading.
    Read,
    /// For reading and writing.
    Change,
}

/// An open file, closed on drop.
#[derive(Debug)]
pub struct File(usize);

impl File {
    /// Opens an existing file, with close-on-exec.
    pub fn open(path: &core::ffi::CStr, how: Open) -> Result<File, i32> {
        let flags = O_CLOEXEC | if how == Open::Read { O_RDONLY } else { O_RDWR };
        // SAFETY: the path is NUL-terminated.
        let result = unsafe { call(number::OPENAT, [AT_FDCWD, path.as_ptr() as usize, flags, 0, 0, 0]) };
        check(result).map(File)
    }

    /// Maps part of the file for reading and writing, shared with other processes; returns the address.
    pub fn map(&self, offset_bytes: usize, bytes: usize) -> Result<usize, i32> {
        check(plain(number::MMAP, [0, bytes, READ_AND_WRITE, MAP_SHARED, self.0, offset_bytes]))
    }

    /// Maps part of the file over the mapping at this address.
    ///
    /// # Safety
    /// The memory there belongs to the caller, and every user of it can use the file's bytes instead.
    pub unsafe fn map_over(&self, address: usize, offset_bytes: usize, bytes: usize) -> Result<usize, i32> {
        const MAP_FIXED: usize = 16;
        let arguments = [address, bytes, READ_AND_WRITE, MAP_SHARED | MAP_FIXED, self.0, offset_bytes];
        // SAFETY: the caller's guarantee.
        check(unsafe { call(number::MMAP, arguments) })
    }

    /// Allocates memory for part of the file.
    pub fn allocate(&self, offset_bytes: usize, bytes: usize) -> Result<(), i32> {
        check(plain(number::FALLOCATE, [self.0, 0, offset_bytes, bytes, 0, 0])).map(drop)
    }

    /// Releases the memory of part of the file, which then reads as zeros.
    pub fn punch(&self, offset_bytes: usize, bytes: usize) {
        const KEEP_SIZE_AND_PUNCH_HOLE: usize = 3;
        plain(number::FALLOCATE, [self.0, KEEP_SIZE_AND_PUNCH_HOLE, offset_bytes, bytes, 0, 0]);
    }

    /// The file's `stat`; `None` on error.
    pub fn stat(&self) -> Option<super::abi::Stat> {
        let mut stat = super::abi::Stat::default();
        // SAFETY: the kernel's structure is libc's on these machines.
        let result = unsafe { call(number::FSTAT, [self.0, &raw mut stat as usize, 0, 0, 0, 0]) };
        check(result).ok().map(|_| stat)
    }

    /// Reads at an offset; returns the number of bytes read.
    pub fn read_at(&self, buffer: &mut [u8], offset_bytes: usize) -> Result<usize, i32> {
        let to = [self.0, buffer.as_mut_ptr() as usize, buffer.len(), offset_bytes, 0, 0];
        // SAFETY: the pointer and the length are those of the buffer.
        check(unsafe { call(number::PREAD, to) })
    }
}

/// Ends this process immediately, with all its threads and without exit handlers.
pub fn exit(code: usize) -> ! {
    loop {
        plain(number::EXIT, [code, 0, 0, 0, 0, 0]);
    }
}

/// The `stat` of the file at a path; `None` on error.
pub fn stat(path: &core::ffi::CStr) -> Option<super::abi::Stat> {
    let mut stat = super::abi::Stat::default();
    let to = [AT_FDCWD, path.as_ptr() as usize, &raw mut stat as usize, 0, 0, 0];
    // SAFETY: the path is NUL-terminated; the kernel's structure is libc's on these machines.
    check(unsafe { call(number::FSTATAT, to) }).ok().map(|_| stat)
}

impl Drop for File {
    fn drop(&mut self) {
        plain(number::CLOSE, [self.0, 0, 0, 0, 0, 0]);
    }
}

/// The type of the file system that a file is on, as statfs(2) numbers them. The arguments are those of an `*at`
/// call; `None` on error.
pub fn file_system(folder: i32, path: *const core::ffi::c_char, flags: i32) -> Option<u64> {
    use super::abi::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW};
    const O_PATH: usize = 0o10_000_000;
    const O_NOFOLLOW: usize = if cfg!(target_arch = "x86_64") { 0o400_000 } else { 0o100_000 };
    // `struct statfs`: the type is its first word.
    let mut facts = [0u64; 16];
    let mut ask = |file: usize| {
        // SAFETY: the structure has 120 bytes on these machines.
        check(unsafe { call(number::FSTATFS, [file, facts.as_mut_ptr() as usize, 0, 0, 0, 0]) }).ok()
    };
    if flags & AT_EMPTY_PATH != 0 {
        ask(folder as usize)?;
    } else {
        let follow = if flags & AT_SYMLINK_NOFOLLOW != 0 { O_NOFOLLOW } else { 0 };
        let how = [folder as isize as usize, path as usize, O_PATH | O_CLOEXEC | follow, 0, 0, 0];
        // SAFETY: the caller's path, which the kernel checks.
        let file = File(check(unsafe { call(number::OPENAT, how) }).ok()?);
        ask(file.0)?;
    }
    Some(facts[0])
}

/// Maps fresh private memory; returns the address.
pub fn map_memory(bytes: usize) -> Result<usize, i32> {
    const PRIVATE_AND_ANONYMOUS: usize = 0x22;
    check(plain(number::MMAP, [0, bytes, READ_AND_WRITE, PRIVATE_AND_ANONYMOUS, usize::MAX, 0]))
}

/// Removes a mapping that is no longer used.
pub fn unmap(address: usize, bytes: usize) {
    plain(number::MUNMAP, [address, bytes, 0, 0, 0, 0]);
}

/// Writes to standard error, for messages that cannot be returned to a caller.
pub fn complain(text: &[u8]) {
    // SAFETY: the pointer and the length are those of the text.
    unsafe { call(number::WRITE, [2, text.as_ptr() as usize, text.len(), 0, 0, 0]) };
}

/// The calling thread's id.
pub fn thread() -> u32 {
    plain(number::GETTID, [0; 6]) as u32
}

/// The real system's effective user id, which a session may hide.
pub fn real_effective_user() -> u32 {
    plain(number::GETEUID, [0; 6]) as u32
}

/// Whether the launcher answers this process's system calls, as it does for programs without the library and
/// everything they start.
pub fn is_answered() -> bool {
    use super::watched::{ANSWER, QUESTION};
    // SAFETY: nothing is mapped at such low addresses; the kernel refuses them, and a launcher does not write
    // to them.
    unsafe { call(number::GETRESUID, [QUESTION, QUESTION, QUESTION, 0, 0, 0]) == ANSWER }
}

/// Sleeps while a word has this value, until woken.
pub fn wait(word: &core::sync::atomic::AtomicU32, value: u32) {
    const FUTEX_WAIT: usize = 0;
    // SAFETY: the word outlives the call.
    unsafe { call(number::FUTEX, [word.as_ptr() as usize, FUTEX_WAIT, value as usize, 0, 0, 0]) };
}

/// Wakes one thread that sleeps on a word.
pub fn wake(word: &core::sync::atomic::AtomicU32) {
    const FUTEX_WAKE: usize = 1;
    // SAFETY: the word outlives the call.
    unsafe { call(number::FUTEX, [word.as_ptr() as usize, FUTEX_WAKE, 1, 0, 0, 0]) };
}

/// Whether this process has signal handlers, which may make calls that change a session.
static HAS_HANDLERS: AtomicBool = AtomicBool::new(false);

/// Records that this process has signal handlers. It writes only once: after fork, a write gives the child a copy
/// of the page.
pub fn expect_handlers() {
    if !HAS_HANDLERS.load(Relaxed) {
        HAS_HANDLERS.store(true, Relaxed);
    }
}

/// Runs `work` without interruption by signal handlers of this thread. Most programs have none, which saves the
/// calls.
pub fn without_signals<R>(work: impl FnOnce() -> R) -> R {
    if !HAS_HANDLERS.load(Relaxed) {
        return work();
    }
    const SET: usize = 2;
    let set = |new: &u64, old: *mut u64| {
        // SAFETY: both outlive the call; the kernel's set has 8 bytes.
        unsafe { call(number::SIGPROCMASK, [SET, core::ptr::from_ref(new) as usize, old as usize, 8, 0, 0]) };
    };
    let mut before = 0;
    set(&u64::MAX, &raw mut before);
    let result = work();
    set(&before, core::ptr::null_mut());
    result
}
