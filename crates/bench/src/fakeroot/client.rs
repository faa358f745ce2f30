//! The client that runs in the measured sessions: this program again, which repeats a call.

use super::super::child;
use super::sides;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Hidden argument that makes this program a client.
pub const ARGUMENT: &str = "kilnyard-fakeroot-client";

/// Number of calls timed together: long enough for the clock, short enough that some batches are undisturbed.
const BATCH: u32 = 32;
/// Duration of a turn. It has at least one batch.
const CALLS_SECONDS: f64 = 1.5e-3;
/// How long many processes make calls at the same time.
const MANY_SECONDS: f64 = 0.4;
/// Number of programs started in one turn.
pub const EXECS: usize = 8;

/// The ways to start programs: as compilers and make do, and as shells do.
pub const START_METHODS: [&str; 2] = ["spawn", FORK];
const FORK: &str = "fork";

/// Argument that pins each of many processes to a core.
pub const PINNED: &str = "pinned";

/// The file that the calls refer to, in the current folder.
const FILE: &CStr = c"unknown";

/// If the arguments say so, acts as a client: makes calls and prints the seconds of each.
pub fn become_client_if_asked() -> Option<ExitCode> {
    let mut words = std::env::args().skip(1);
    if words.next()? != ARGUMENT {
        return None;
    }
    let done = match (words.next().as_deref(), words.next()) {
        (Some("call"), Some(name)) => calls(&name),
        (Some("many"), Some(count)) => {
            let is_pinned = words.next().as_deref() == Some(PINNED);
            count.parse().ok().and_then(|count| many(count, is_pinned)).and_then(say)
        }
        (Some("exec"), Some(way)) => in_turns(|| (0..EXECS).map(|_| exec(way == FORK)).collect()),
        _ => None,
    };
    Some(if done.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn say(what: impl std::fmt::Display) -> Option<()> {
    writeln!(std::io::stdout(), "{what}").ok()
}

fn stat(file: &CStr) {
    // SAFETY: the path is NUL-terminated, the buffer lives for the call, and an all-zero stat is valid.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        libc::stat(file.as_ptr(), &mut stat);
        std::hint::black_box(&stat);
    }
}

/// Takes a turn for each line of standard input and prints how many seconds each of its parts took.
fn in_turns(turn: impl Fn() -> Option<Vec<f64>>) -> Option<()> {
    std::io::stdin().lines().try_for_each(|line| {
        line.ok()?;
        say(turn()?.iter().map(f64::to_string).collect::<Vec<_>>().join(" "))
    })
}

fn calls(name: &str) -> Option<()> {
    let file = File::create(FILE.to_str().ok()?).ok()?;
    // SAFETY: as in `stat`; the descriptor is open.
    let call = || unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        match name {
            "stat" => libc::stat(FILE.as_ptr(), &mut stat),
            "lstat" => libc::lstat(FILE.as_ptr(), &mut stat),
            "fstat" => libc::fstat(file.as_raw_fd(), &mut stat),
            _ => {
                let mut statx: libc::statx = std::mem::zeroed();
                libc::statx(libc::AT_FDCWD, FILE.as_ptr(), 0, libc::STATX_BASIC_STATS, &mut statx)
            }
        }
    };
    in_turns(|| {
        let mut seconds = Vec::new();
        let begun = Instant::now();
        loop {
            let started = Instant::now();
            for _ in 0..BATCH {
                std::hint::black_box(call());
            }
            seconds.push(started.elapsed().as_secs_f64() / f64::from(BATCH));
            if begun.elapsed().as_secs_f64() >= CALLS_SECONDS {
                return Some(seconds);
            }
        }
    })
}

/// The cost of a call in wall and CPU time while this many processes make calls.
fn many(processes: usize, is_pinned: bool) -> Option<String> {
    File::create(FILE.to_str().ok()?).ok()?;
    let cores = sides::cores();
    let (reader, writer) = std::io::pipe().ok()?;
    let started = Instant::now();
    let until = Duration::from_secs_f64(MANY_SECONDS);
    let mut children = Vec::new();
    for number in 0..processes {
        // SAFETY: this process has a single thread, so the child may run any code; it ends without returning.
        let child = unsafe { libc::fork() };
        if child == 0 {
            if is_pinned {
                sides::pin_this_process(cores[number % cores.len()]);
            }
            let (mut calls, before) = (0u64, child::own_cpu_seconds());
            while started.elapsed() < until {
                (0..BATCH).for_each(|_| stat(FILE));
                calls += u64::from(BATCH);
            }
            let cpu_seconds = child::own_cpu_seconds() - before;
            let figures = [calls.to_ne_bytes(), cpu_seconds.to_ne_bytes()];
            let is_written = (&writer).write_all(figures.as_flattened()).is_ok();
            // SAFETY: `_exit` has no preconditions.
            unsafe { libc::_exit(i32::from(!is_written)) };
        }
        if child < 0 {
            // The children that were started end by themselves.
            return None;
        }
        children.push(child);
    }
    drop(writer);
    let (mut calls, mut cpu_seconds) = (0u64, 0.0);
    let mut one = [[0; 8]; 2];
    while std::io::Read::read_exact(&mut &reader, one.as_flattened_mut()).is_ok() {
        calls += u64::from_ne_bytes(one[0]);
        cpu_seconds += f64::from_ne_bytes(one[1]);
    }
    let wall = started.elapsed().as_secs_f64();
    for child in children {
        // SAFETY: the process is our own child, and a null status pointer is allowed.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    }
    (calls > 0).then(|| format!("{} {}", wall / calls as f64, cpu_seconds / calls as f64))
}

/// The time to start a program and to wait for its end, in seconds.
fn exec(is_forked: bool) -> Option<f64> {
    unsafe extern "C" {
        static environ: *const *mut libc::c_char;
    }
    let program = CString::new("/bin/true").ok()?;
    let arguments = [program.as_ptr().cast_mut(), std::ptr::null_mut()];
    let list = arguments.as_ptr();
    let started = Instant::now();
    // SAFETY: the lists are NULL-terminated; the child is waited for and only does what is allowed after fork.
    unsafe {
        let mut child = 0;
        if is_forked {
            child = libc::fork();
            if child == 0 {
                libc::execve(program.as_ptr(), list.cast(), environ.cast());
                libc::_exit(1);
            }
        } else {
            let (none, no) = (std::ptr::null(), std::ptr::null());
            if libc::posix_spawn(&mut child, program.as_ptr(), none, no, list, environ) != 0 {
                return None;
            }
        }
        if child < 0 {
            return None;
        }
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    Some(started.elapsed().as_secs_f64())
}
