//! libc's calls by name, as the dynamic linker resolves them for a program.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// A path as an argument.
pub fn path(text: &str) -> CString {
    CString::new(text).unwrap()
}

/// The function with a name; null if there is none.
pub fn find(name: &CStr) -> *mut c_void {
    // SAFETY: the name is NUL-terminated.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Calls a function by name with arguments of these types; the result is an int.
macro_rules! call {
    ($name:expr $(, $value:expr => $kind:ty)* $(,)?) => {{
        let address = $crate::client::find($name);
        assert!(!address.is_null(), "there is no {:?}", $name);
        // SAFETY: the function has this type, by libc's headers.
        unsafe {
            let function: unsafe extern "C" fn($($kind),*) -> std::ffi::c_int = std::mem::transmute(address);
            function($($value),*)
        }
    }};
}
pub(crate) use call;

/// The error number of the last failed call.
pub fn error() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

/// User, group and mode of a file, as one call reports them.
pub type Look = (u32, u32, u32);

fn of(stat: &libc::stat) -> Look {
    (stat.st_uid, stat.st_gid, stat.st_mode & 0o7777)
}

/// The look of a file according to a call that takes a path.
pub fn by_path(name: &CStr, file: &str) -> Look {
    let (file, mut stat) = (path(file), empty());
    let function = find(name);
    // SAFETY: by libc's headers.
    let result = unsafe {
        let function: unsafe extern "C" fn(*const c_char, *mut libc::stat) -> c_int =
            std::mem::transmute(function);
        function(file.as_ptr(), &raw mut stat)
    };
    assert_eq!(result, 0, "{name:?} {file:?}: {}", std::io::Error::last_os_error());
    of(&stat)
}

/// A zeroed `stat`.
pub fn empty() -> libc::stat {
    // SAFETY: plain numbers.
    unsafe { std::mem::zeroed() }
}

/// The look of a file, which must be the same in every call that reports it. The file must not be a link.
pub fn look(file: &str) -> Look {
    let first = by_path(c"stat", file);
    for name in [c"lstat", c"stat64", c"lstat64"] {
        assert_eq!(by_path(name, file), first, "{name:?}");
    }
    let name = path(file);
    let mut stat = empty();
    let to = &raw mut stat;
    let (at, name) = (libc::AT_FDCWD, name.as_ptr());
    for versioned in [c"__xstat", c"__xstat64", c"__lxstat", c"__lxstat64"] {
        let version = 1;
        assert_eq!(call!(versioned, version => c_int, name => *const c_char, to => *mut libc::stat), 0);
        assert_eq!(of(&stat), first, "{versioned:?}");
    }
    for folder in [c"fstatat", c"fstatat64"] {
        let flags = libc::AT_SYMLINK_NOFOLLOW;
        let result = call!(folder, at => c_int, name => *const c_char, to => *mut libc::stat, flags => c_int);
        assert_eq!((result, of(&stat)), (0, first), "{folder:?}");
    }
    for folder in [c"__fxstatat", c"__fxstatat64"] {
        let (version, flags) = (1, 0);
        let result = call!(folder, version => c_int, at => c_int, name => *const c_char, to => *mut libc::stat,
            flags => c_int);
        assert_eq!((result, of(&stat)), (0, first), "{folder:?}");
    }
    // SAFETY: a path, and a descriptor that is closed below.
    let descriptor = unsafe { libc::open(name, libc::O_PATH) };
    for open in [c"fstat", c"fstat64"] {
        assert_eq!(call!(open, descriptor => c_int, to => *mut libc::stat), 0);
        assert_eq!(of(&stat), first, "{open:?}");
    }
    for open in [c"__fxstat", c"__fxstat64"] {
        let version = 1;
        assert_eq!(call!(open, version => c_int, descriptor => c_int, to => *mut libc::stat), 0);
        assert_eq!(of(&stat), first, "{open:?}");
    }
    // SAFETY: the path, and buffers of ours; the descriptor is ours.
    unsafe {
        let mut statx: libc::statx = std::mem::zeroed();
        assert_eq!(libc::statx(at, name, 0, libc::STATX_MODE, &raw mut statx), 0);
        assert_eq!((statx.stx_uid, statx.stx_gid, u32::from(statx.stx_mode) & 0o7777), first, "statx");
        let empty = c"".as_ptr();
        assert_eq!(libc::statx(descriptor, empty, libc::AT_EMPTY_PATH, libc::STATX_UID, &raw mut statx), 0);
        assert_eq!((statx.stx_uid, statx.stx_gid), (first.0, first.1), "statx of a descriptor");
        libc::close(descriptor);
    }
    first
}

/// The real owner and mode of a file, from a system call without libc.
pub fn really(file: &str) -> Look {
    let (file, mut stat) = (path(file), empty());
    // SAFETY: a path and a buffer.
    let result = unsafe { raw_stat(file.as_ptr(), &raw mut stat) };
    assert_eq!(result, 0);
    of(&stat)
}

#[cfg(target_arch = "x86_64")]
unsafe fn raw_stat(file: *const c_char, to: *mut libc::stat) -> i64 {
    let result: i64;
    // SAFETY: newfstatat with the caller's path and buffer.
    unsafe {
        std::arch::asm!("syscall", inlateout("rax") libc::SYS_newfstatat => result, in("rdi") libc::AT_FDCWD as i64,
            in("rsi") file, in("rdx") to, in("r10") 0, lateout("rcx") _, lateout("r11") _);
    }
    result
}

#[cfg(target_arch = "aarch64")]
unsafe fn raw_stat(file: *const c_char, to: *mut libc::stat) -> i64 {
    let result: i64;
    // SAFETY: newfstatat with the caller's path and buffer.
    unsafe {
        std::arch::asm!("svc 0", in("x8") libc::SYS_newfstatat, inlateout("x0") libc::AT_FDCWD as i64 => result,
            in("x1") file, in("x2") to, in("x3") 0);
    }
    result
}
