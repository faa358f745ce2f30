//! The functions of the next library, looked up at their first use.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

/// "The next one after this library", as dlfcn.h has it.
const RTLD_NEXT: *mut c_void = -1isize as *mut c_void;

/// Not permitted.
pub const EPERM: c_int = 1;
/// Not permitted, by the file's mode or a limit.
pub const EACCES: c_int = 13;
/// There already.
pub const EEXIST: c_int = 17;
/// Not a valid argument.
pub const EINVAL: c_int = 22;
/// No space.
pub const ENOSPC: c_int = 28;
/// Too long for the buffer.
pub const ERANGE: c_int = 34;
/// There is no such function.
pub const ENOSYS: c_int = 38;
/// No such attribute.
pub const ENODATA: c_int = 61;
/// Not supported.
pub const ENOTSUP: c_int = 95;
/// Too large.
pub const E2BIG: c_int = 7;
/// No memory.
pub const ENOMEM: c_int = 12;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn __errno_location() -> *mut c_int;
}

/// A function of the next library.
pub struct Next(AtomicPtr<c_void>);

impl Next {
    /// One that was not looked up.
    pub const fn new() -> Next {
        Next(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// Its address, or null if there is none.
    #[inline]
    pub fn get(&self, name: &CStr) -> *mut c_void {
        let known = self.0.load(Ordering::Relaxed);
        if known.is_null() { self.look_up(name) } else { known }
    }

    #[cold]
    fn look_up(&self, name: &CStr) -> *mut c_void {
        let before = errno();
        // SAFETY: the name ends with a zero. The address is stored afterwards, so this is no tail call, and the
        // linker sees that this library asks.
        let found = unsafe { dlsym(RTLD_NEXT, name.as_ptr()) };
        self.0.store(found, Ordering::Relaxed);
        set_errno(before);
        found
    }
}

/// The name of a function, as it is looked up.
macro_rules! name {
    ($name:ident) => {
        match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("a name has no zero inside"),
        }
    };
}
pub(crate) use name;

/// Calls a function of the next library by its name; where there is none, the result is -1 and the error
/// ENOSYS, in the type that is given. With `by` what was looked up is kept there, for other callers too.
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
            // SAFETY: the function of this name has this type, by libc's headers; the arguments are the caller's.
            unsafe {
                let function: unsafe extern "C" fn($($kind),*) -> $result = core::mem::transmute(address);
                function($($value),*)
            }
        }
    }};
}
pub(crate) use next;

/// The number of the last error.
pub fn errno() -> c_int {
    // SAFETY: libc's pointer to this thread's number.
    unsafe { *__errno_location() }
}

/// Sets the number of the last error.
pub fn set_errno(number: c_int) {
    // SAFETY: as above.
    unsafe { *__errno_location() = number };
}

/// Fails with an error.
pub fn fail(number: c_int) -> c_int {
    set_errno(number);
    -1
}

/// A result of the table as one of libc.
pub fn result(result: Result<(), crate::shared::memory::Full>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(crate::shared::memory::Full) => fail(ENOSPC),
    }
}
