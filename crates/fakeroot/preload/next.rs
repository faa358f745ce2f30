//! The functions of the next library, looked up at first use.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

/// The next library after this one, as dlfcn.h defines it.
const RTLD_NEXT: *mut c_void = -1isize as *mut c_void;

/// Operation not permitted.
pub const EPERM: c_int = 1;
/// Permission denied.
pub const EACCES: c_int = 13;
/// File exists.
pub const EEXIST: c_int = 17;
/// Invalid argument.
pub const EINVAL: c_int = 22;
/// No space left.
pub const ENOSPC: c_int = 28;
/// Result too large for the buffer.
pub const ERANGE: c_int = 34;
/// Function not implemented.
pub const ENOSYS: c_int = 38;
/// No data: the attribute does not exist.
pub const ENODATA: c_int = 61;
/// Operation not supported.
pub const ENOTSUP: c_int = 95;
/// Argument too large.
pub const E2BIG: c_int = 7;
/// Out of memory.
pub const ENOMEM: c_int = 12;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn __errno_location() -> *mut c_int;
}

/// A function of the next library.
pub struct Next(AtomicPtr<c_void>);

impl Next {
    /// A function that is not looked up yet.
    pub const fn new() -> Next {
        Next(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// The address of the function; null if no library has it.
    #[inline]
    pub fn get(&self, name: &CStr) -> *mut c_void {
        let known = self.0.load(Ordering::Relaxed);
        if known.is_null() { self.look_up(name) } else { known }
    }

    #[cold]
    fn look_up(&self, name: &CStr) -> *mut c_void {
        let before = errno();
        // SAFETY: the name is NUL-terminated. The address is stored afterwards, so this is not a tail call, and
        // dlsym sees that this library is the caller.
        let found = unsafe { dlsym(RTLD_NEXT, name.as_ptr()) };
        self.0.store(found, Ordering::Relaxed);
        set_errno(before);
        found
    }
}

/// The name of a function as a C string.
macro_rules! name {
    ($name:ident) => {
        match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("a function name contains no NUL"),
        }
    };
}
pub(crate) use name;

/// Calls a function of the next library by name. If no library has it, sets `errno` to ENOSYS and returns -1, or
/// the value given with the result type. With `by`, the address is kept in the given static, for other callers too.
macro_rules! next {
    ($name:ident ( $($value:expr => $kind:ty),* $(,)? ) -> $result:ty, or $none:expr) => {{
        static NEXT: $crate::next::Next = $crate::next::Next::new();
        next!(by NEXT, $name($($value => $kind),*) -> $result, or $none)
    }};
    ($name:ident ( $($value:expr => $kind:ty),* $(,)? )) => {
        next!($name($($value => $kind),*) -> core::ffi::c_int, or -1)
    };
    (by $next:ident, $name:ident ( $($value:expr => $kind:ty),* $(,)? )) => {
        next!(by $next, $name($($value => $kind),*) -> core::ffi::c_int, or -1)
    };
    (by $next:ident, $name:ident ( $($value:expr => $kind:ty),* $(,)? ) -> $result:ty, or $none:expr) => {{
        const NAME: &core::ffi::CStr = $crate::next::name!($name);
        let address = $next.get(NAME);
        if address.is_null() {
            $crate::next::set_errno($crate::next::ENOSYS);
            $none
        } else {
            // SAFETY: by libc's headers, the function of this name has this type; the arguments are the caller's.
            unsafe {
                let function: unsafe extern "C" fn($($kind),*) -> $result = core::mem::transmute(address);
                function($($value),*)
            }
        }
    }};
}
pub(crate) use next;

/// The error number of this thread.
pub fn errno() -> c_int {
    // SAFETY: libc's pointer to this thread's error number.
    unsafe { *__errno_location() }
}

/// Sets the error number of this thread.
pub fn set_errno(number: c_int) {
    // SAFETY: as above.
    unsafe { *__errno_location() = number };
}

/// Sets `errno` and returns -1.
pub fn fail(number: c_int) -> c_int {
    set_errno(number);
    -1
}

/// Converts a result of the table to one of libc.
pub fn result(result: Result<(), crate::shared::memory::Full>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(crate::shared::memory::Full) => fail(ENOSPC),
    }
}
