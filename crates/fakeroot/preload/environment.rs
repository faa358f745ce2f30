//! The environment, read without libc's `getenv`: shells define their own, which only knows their variables.

use core::ffi::{CStr, c_char, c_int};

unsafe extern "C" {
    static environ: *const *const c_char;
    fn setenv(name: *const c_char, value: *const c_char, overwrite: c_int) -> c_int;
}

/// The value of a variable, valid until the environment changes.
pub fn get(name: &[u8]) -> Option<&'static CStr> {
    // SAFETY: libc's list; a program that changes it while other threads read it violates libc's own rules.
    unsafe { get_from(environ, name) }
}

/// The value of a variable in another environment.
///
/// # Safety
/// The list is null, or a null-terminated list of strings.
pub unsafe fn get_from<'a>(list: *const *const c_char, name: &[u8]) -> Option<&'a CStr> {
    let mut at = list;
    // SAFETY: the caller's list; nothing is read after its end.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            let text = *at;
            let is_it = name.iter().enumerate().all(|(place, byte)| *text.add(place) as u8 == *byte);
            if is_it && *text.add(name.len()) as u8 == b'=' {
                return Some(CStr::from_ptr(text.add(name.len() + 1)));
            }
            at = at.add(1);
        }
    }
    None
}

/// The value of a variable as a number; `None` if it is unset or not a number.
pub fn number(name: &[u8]) -> Option<u32> {
    core::str::from_utf8(get(name)?.to_bytes()).ok()?.parse().ok()
}

/// Sets a variable, for programs that are started later.
pub fn set(name: &CStr, value: &CStr) {
    // SAFETY: both are NUL-terminated strings.
    unsafe { setenv(name.as_ptr(), value.as_ptr(), 1) };
}

/// Room for the decimal digits of a number and a NUL.
pub type Digits = [u8; 11];

/// Formats a number as a string.
pub fn digits(mut number: u32, room: &mut Digits) -> &CStr {
    let mut at = room.len() - 1;
    room[at] = 0;
    loop {
        at -= 1;
        room[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    CStr::from_bytes_with_nul(&room[at..]).unwrap_or(c"")
}
