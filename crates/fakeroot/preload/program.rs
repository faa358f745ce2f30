//! The calls that start programs. A program that makes its own system calls, with or without a dynamic linker, is
//! started by the gate if the launcher answers such programs; otherwise a warning is printed once. A program of another
//! word size is rejected.
//!
//! `execl` and its variants are in `list.rs`, `system` and `popen` in `shell.rs`.

use crate::environment;
use crate::gate;
use crate::next::{ENOSYS, Next, errno, fail, name, next, set_errno};
use crate::session;
use crate::shared::abi::{AT_EMPTY_PATH, AT_FDCWD};
use crate::shared::kernel::complain;
use crate::shared::layout::{HEADER_ANSWERED, HEADER_WARNED};
use crate::shared::memory::Memory;
use crate::shared::program::{self, Program};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::Ordering;

/// "Accessing a corrupted shared library": the closest error for a library that does not fit a program.
const ELIBBAD: c_int = 80;
/// Maximum length of a path with its NUL (PATH_MAX).
const PATH_BYTES_MAX: usize = 4096;

/// Number of hash values of program paths: 64, so that one word records for which of them a warning was printed.
const WARNED_BITS: u64 = 64;

static EXECVE: Next = Next::new();
static EXECVP: Next = Next::new();

/// Before a fork, looks up the functions by which children start programs. Otherwise each child would repeat the
/// lookup and load pages that it needs for nothing else: half of the extra cost of starting a program this way.
#[unsafe(no_mangle)]
unsafe extern "C" fn fork() -> c_int {
    if session::table().is_some() {
        EXECVE.get(name!(execve));
        EXECVP.get(name!(execvp));
    }
    next!(fork())
}

/// How a program is started.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// Directly.
    AsItIs,
    /// By the gate.
    ByGate,
    /// The program is rejected.
    Refused,
}

/// Whether a program that this process starts needs the gate.
pub fn needs_gate(path: &CStr) -> bool {
    how(path.as_ptr(), own()) == Start::ByGate
}

/// How a program with this environment is started. Prints the warnings about it.
fn how(path: *const c_char, environment: List) -> Start {
    let Some(table) = session::table() else { return Start::AsItIs };
    // Without the library, the program is meant to see the real owners.
    // SAFETY: the caller's list.
    if path.is_null() || unsafe { environment::get_from(environment.cast(), b"LD_PRELOAD") }.is_none() {
        return Start::AsItIs;
    }
    // SAFETY: the caller's path.
    let path = unsafe { CStr::from_ptr(path) };
    match program::kind(path, table.memory()) {
        Program::Static | Program::Direct if !may_start(path.as_ptr()) => Start::AsItIs,
        Program::Static | Program::Direct if table.memory().load(HEADER_ANSWERED, Ordering::Acquire) != 0 => {
            Start::ByGate
        }
        Program::Static => {
            warn_once(path, b" is a program without a dynamic linker: it sees real owners\n");
            Start::AsItIs
        }
        Program::Direct => {
            warn_once(path, b" makes its own system calls, so it sees real owners\n");
            Start::AsItIs
        }
        Program::Dynamic => Start::AsItIs,
        Program::Foreign => {
            warn(path, b" is a program for another machine or word size, which this session cannot serve\n");
            Start::Refused
        }
    }
}

/// Whether this process may execute a file. If it may not, the gate must not start it either.
fn may_start(path: *const c_char) -> bool {
    let executable = 1;
    let before = errno();
    let may = next!(access(path => *const c_char, executable => c_int)) == 0;
    set_errno(before);
    may
}

fn warn_once(path: &CStr, what: &[u8]) {
    let Some(table) = session::table() else { return };
    let hash = path.to_bytes().iter();
    let hash = hash.fold(0u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    let bit = 1 << (hash % WARNED_BITS);
    if table.memory().load(HEADER_WARNED, Ordering::Relaxed) & bit == 0 {
        table.memory().set_bits(HEADER_WARNED, bit, Ordering::Relaxed);
        warn(path, what);
    }
}

/// Prints a warning about a program, in one write.
fn warn(path: &CStr, what: &[u8]) {
    let mut line = [0; 1024];
    let mut end = 0;
    for part in [b"fakeroot: ", path.to_bytes(), what] {
        let length = part.len().min(line.len() - end);
        line[end..end + length].copy_from_slice(&part[..length]);
        end += length;
    }
    complain(&line[..end]);
}

/// The path of the first executable file of this name in PATH, written into `room`; null if there is none. A name
/// with a slash is returned unchanged.
fn found(name: *const c_char, room: &mut [u8; PATH_BYTES_MAX]) -> *const c_char {
    if session::table().is_none() || name.is_null() {
        return name;
    }
    // SAFETY: the caller's name.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    if bytes.contains(&b'/') || bytes.is_empty() {
        return name;
    }
    let list = environment::get(b"PATH").map_or(&b"/bin:/usr/bin"[..], CStr::to_bytes);
    for folder in list.split(|byte| *byte == b':') {
        // An empty entry is the current directory.
        let folder = if folder.is_empty() { &b"."[..] } else { folder };
        let length = folder.len() + 1 + bytes.len();
        if length >= PATH_BYTES_MAX {
            continue;
        }
        room[..folder.len()].copy_from_slice(folder);
        room[folder.len()] = b'/';
        room[folder.len() + 1..length].copy_from_slice(bytes);
        room[length] = 0;
        if may_start(room.as_ptr().cast()) {
            return room.as_ptr().cast();
        }
    }
    core::ptr::null()
}

/// A null-terminated list of strings.
pub type List = *const *mut c_char;

unsafe extern "C" {
    #[link_name = "environ"]
    static ENVIRON: List;
}

/// The process's own environment.
fn own() -> List {
    // SAFETY: libc's list; a program that changes it while other threads read it violates libc's own rules.
    unsafe { ENVIRON }
}

/// Executes a program: `path` is checked, and `real` makes the caller's call.
fn start(path: *const c_char, arguments: List, environment: List, real: impl FnOnce() -> c_int) -> c_int {
    match how(path, environment) {
        Start::AsItIs => real(),
        Start::Refused => fail(ELIBBAD),
        Start::ByGate => gate::with(
            path,
            arguments,
            |gate, arguments| next!(by EXECVE, execve(gate => *const c_char, arguments => List, environment => List)),
        ),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(path: *const c_char, arguments: List, environment: List) -> c_int {
    start(
        path,
        arguments,
        environment,
        || next!(by EXECVE, execve(path => *const c_char, arguments => List, environment => List)),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, arguments: List) -> c_int {
    start(path, arguments, own(), || next!(execv(path => *const c_char, arguments => List)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(name: *const c_char, arguments: List) -> c_int {
    let mut room = [0; PATH_BYTES_MAX];
    let path = found(name, &mut room);
    start(path, arguments, own(), || next!(by EXECVP, execvp(name => *const c_char, arguments => List)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvpe(name: *const c_char, arguments: List, environment: List) -> c_int {
    let mut room = [0; PATH_BYTES_MAX];
    let path = found(name, &mut room);
    start(
        path,
        arguments,
        environment,
        || next!(execvpe(name => *const c_char, arguments => List, environment => List)),
    )
}

/// Executes a file that a descriptor names. After `exec` the descriptor may be closed or refer to another file, so the
/// gate receives a copy that stays open; the program inherits it.
fn start_open(
    folder: c_int,
    path: *const c_char,
    arguments: List,
    environment: List,
    real: impl FnOnce() -> c_int,
) -> c_int {
    const PREFIX: &[u8] = b"/proc/self/fd/";
    let Some(_) = session::table().filter(|_| folder >= 0 && !path.is_null()) else { return real() };
    // SAFETY: the caller's path.
    let name = unsafe { CStr::from_ptr(path) }.to_bytes();
    let mut room = [0; PATH_BYTES_MAX];
    let mut named = |descriptor: c_int| {
        let mut digits = environment::Digits::default();
        let digits = environment::digits(descriptor as u32, &mut digits).to_bytes();
        let parts = [PREFIX, digits, if name.is_empty() { b"" } else { b"/" }, name];
        let mut end = 0;
        for part in parts {
            room.get_mut(end..end + part.len())?.copy_from_slice(part);
            end += part.len();
        }
        *room.get_mut(end)? = 0;
        Some(room.as_ptr().cast::<c_char>())
    };
    match named(folder).map(|path| how(path, environment)) {
        None | Some(Start::AsItIs) => real(),
        Some(Start::Refused) => fail(ELIBBAD),
        Some(Start::ByGate) => {
            let copy = next!(dup(folder => c_int));
            let Some(path) = named(copy).filter(|_| copy >= 0) else { return real() };
            let result = gate::with(
                path,
                arguments,
                |gate, arguments| next!(by EXECVE, execve(gate => *const c_char, arguments => List, environment => List)),
            );
            next!(close(copy => c_int));
            result
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fexecve(descriptor: c_int, arguments: List, environment: List) -> c_int {
    start_open(
        descriptor,
        c"".as_ptr(),
        arguments,
        environment,
        || next!(fexecve(descriptor => c_int, arguments => List, environment => List)),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execveat(
    folder: c_int,
    path: *const c_char,
    arguments: List,
    environment: List,
    flags: c_int,
) -> c_int {
    let real = || {
        next!(execveat(folder => c_int, path => *const c_char, arguments => List, environment => List,
            flags => c_int))
    };
    // SAFETY: the caller's path.
    let first = if path.is_null() { 0 } else { (unsafe { *path }) as u8 };
    match (first, flags) {
        (0, AT_EMPTY_PATH) => start_open(folder, path, arguments, environment, real),
        (0, _) => real(),
        (b'/', 0) => start(path, arguments, environment, real),
        (_, 0) if folder == AT_FDCWD => start(path, arguments, environment, real),
        (_, 0) => start_open(folder, path, arguments, environment, real),
        _ => real(),
    }
}

macro_rules! spawns {
    ($($name:ident $found:expr;)*) => {$(
        /// `process` receives the process id, or a descriptor of the process.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            process: *mut c_int,
            name: *const c_char,
            actions: *const c_void,
            attributes: *const c_void,
            arguments: List,
            environment: List,
        ) -> c_int {
            let find: fn(*const c_char, &mut [u8; PATH_BYTES_MAX]) -> *const c_char = $found;
            let mut room = [0; PATH_BYTES_MAX];
            let started = |program: *const c_char, arguments: List| {
                next!($name(process => *mut c_int, program => *const c_char, actions => *const c_void,
                    attributes => *const c_void, arguments => List, environment => List) -> c_int, or ENOSYS)
            };
            let path = find(name, &mut room);
            match how(path, environment) {
                Start::AsItIs => started(name, arguments),
                Start::Refused => ELIBBAD,
                Start::ByGate => gate::with(path, arguments, started),
            }
        }
    )*};
}
spawns! {
    posix_spawn |path, _| path;
    posix_spawnp found;
    pidfd_spawn |path, _| path;
    pidfd_spawnp found;
}
