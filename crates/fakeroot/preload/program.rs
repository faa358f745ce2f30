//! Starting programs: what a program without a dynamic linker, or of another word length, would see is not what
//! the session says, so the first is said, once, and the second is refused.

use crate::environment;
use crate::next::{errno, fail, next, set_errno};
use crate::session;
use crate::shared::kernel::complain;
use crate::shared::layout::HEADER_WARNED;
use crate::shared::memory::Memory;
use crate::shared::program::{self, Program};
use core::ffi::{CStr, c_char, c_int, c_void};

/// "Accessing a corrupted shared library": what there is for a library that does not fit a program.
const ELIBBAD: c_int = 80;
/// Bytes of a path at most (PATH_MAX).
const PATH_BYTES_MAX: usize = 4096;

/// Programs are told apart by this many bits of their path's hash: of 64, so that a word remembers which were told.
const TOLD_BITS: u64 = 64;

/// Whether a program may be started. What is to be known of it is said.
fn may_start(path: *const c_char) -> bool {
    let Some(table) = session::table() else { return true };
    // Without the library the program is meant to see what is real.
    if path.is_null() || environment::get(b"LD_PRELOAD").is_none() {
        return true;
    }
    let before = errno();
    // SAFETY: the caller's path.
    let path = unsafe { CStr::from_ptr(path) };
    let kind = program::kind(path);
    set_errno(before);
    match kind {
        Program::Dynamic => true,
        Program::Static => {
            let hash = path
                .to_bytes()
                .iter()
                .fold(0u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(*byte)));
            let bit = 1 << (hash % TOLD_BITS);
            if table.memory().load(HEADER_WARNED, core::sync::atomic::Ordering::Relaxed) & bit == 0 {
                table.memory().set_bits(HEADER_WARNED, bit, core::sync::atomic::Ordering::Relaxed);
                tell(path, b" is a static program: it sees real owners and cannot change them\n");
            }
            true
        }
        Program::Foreign => {
            tell(path, b" is a program of another machine or word length, which this session cannot serve\n");
            false
        }
    }
}

/// Says something of a program, in one piece.
fn tell(path: &CStr, what: &[u8]) {
    let mut line = [0; 1024];
    let mut end = 0;
    for part in [b"fakeroot: ", path.to_bytes(), what] {
        let length = part.len().min(line.len() - end);
        line[end..end + length].copy_from_slice(&part[..length]);
        end += length;
    }
    complain(&line[..end]);
}

/// The same for a name that is looked for in PATH: the first file of this name that can be looked at.
fn may_start_found(name: *const c_char) -> bool {
    if session::table().is_none() || name.is_null() {
        return true;
    }
    // SAFETY: the caller's name.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    if bytes.contains(&b'/') {
        return may_start(name);
    }
    let list = environment::get(b"PATH").map_or(&b"/bin:/usr/bin"[..], CStr::to_bytes);
    for folder in list.split(|byte| *byte == b':') {
        let mut path = [0; PATH_BYTES_MAX];
        let length = folder.len() + 1 + bytes.len();
        if length >= PATH_BYTES_MAX {
            continue;
        }
        path[..folder.len()].copy_from_slice(folder);
        path[folder.len()] = b'/';
        path[folder.len() + 1..length].copy_from_slice(bytes);
        let executable = 1;
        let before = errno();
        let is_there = next!(access(path.as_ptr().cast() => *const c_char, executable => c_int)) == 0;
        set_errno(before);
        if is_there {
            return may_start(path.as_ptr().cast());
        }
    }
    true
}

type List = *const *mut c_char;

#[unsafe(no_mangle)]
unsafe extern "C" fn execve(path: *const c_char, arguments: List, environment: List) -> c_int {
    if !may_start(path) {
        return fail(ELIBBAD);
    }
    next!(execve(path => *const c_char, arguments => List, environment => List))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execv(path: *const c_char, arguments: List) -> c_int {
    if !may_start(path) {
        return fail(ELIBBAD);
    }
    next!(execv(path => *const c_char, arguments => List))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvp(name: *const c_char, arguments: List) -> c_int {
    if !may_start_found(name) {
        return fail(ELIBBAD);
    }
    next!(execvp(name => *const c_char, arguments => List))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvpe(name: *const c_char, arguments: List, environment: List) -> c_int {
    if !may_start_found(name) {
        return fail(ELIBBAD);
    }
    next!(execvpe(name => *const c_char, arguments => List, environment => List))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn(
    process: *mut c_int,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: List,
    environment: List,
) -> c_int {
    if !may_start(path) {
        return ELIBBAD;
    }
    next!(posix_spawn(process => *mut c_int, path => *const c_char, actions => *const c_void,
        attributes => *const c_void, arguments => List, environment => List) -> c_int, or crate::next::ENOSYS)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawnp(
    process: *mut c_int,
    name: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: List,
    environment: List,
) -> c_int {
    if !may_start_found(name) {
        return ELIBBAD;
    }
    next!(posix_spawnp(process => *mut c_int, name => *const c_char, actions => *const c_void,
        attributes => *const c_void, arguments => List, environment => List) -> c_int, or crate::next::ENOSYS)
}
