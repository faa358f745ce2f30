//! What runs in the sessions that are measured: this program again, which makes one call many times.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The hidden argument by which this program knows that it is to be a client.
pub const ARGUMENT: &str = "kilnyard-fakeroot-client";

/// Calls that are timed together: long enough for the clock, short enough to be left alone at times.
const BATCH: u32 = 32;
const BATCHES_MAX: u32 = 3000;
/// A turn takes no more time than this.
const CALLS_SECONDS_MAX: f64 = 0.2;
/// How long many processes call at once.
const MANY_SECONDS: f64 = 0.4;
/// Programs that are started in one turn.
pub const EXECS: usize = 8;

/// How programs are started: as compilers and make do, and as shells do.
pub const WAYS: [&str; 2] = ["spawn", FORK];
const FORK: &str = "fork";

/// The file that is looked at, in the current folder.
const FILE: &CStr = c"unknown";

/// Makes the calls that the arguments ask for, and prints the seconds of one.
pub fn become_client_if_asked() -> Option<ExitCode> {
    let mut words = std::env::args().skip(1);
    if words.next()? != ARGUMENT {
        return None;
    }
    let done = match (words.next().as_deref(), words.next()) {
        (Some("call"), Some(name)) => best_call(&name).and_then(say),
        (Some("many"), Some(count)) => count.parse().ok().and_then(many).and_then(say),
        (Some("exec"), Some(way)) => execs(way == FORK),
        _ => None,
    };
    Some(if done.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn say(what: impl std::fmt::Display) -> Option<()> {
    writeln!(std::io::stdout(), "{what}").ok()
}

fn stat(file: &CStr) {
    // SAFETY: a path, and a place that lives for the call; zeros are a valid stat.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        libc::stat(file.as_ptr(), &mut stat);
        std::hint::black_box(&stat);
    }
}

fn best_call(name: &str) -> Option<f64> {
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
    let mut best = f64::INFINITY;
    let begun = Instant::now();
    for _ in 0..BATCHES_MAX {
        if begun.elapsed().as_secs_f64() > CALLS_SECONDS_MAX {
            break;
        }
        let started = Instant::now();
        for _ in 0..BATCH {
            std::hint::black_box(call());
        }
        best = best.min(started.elapsed().as_secs_f64() / f64::from(BATCH));
    }
    Some(best)
}

/// What the machine needs for a call while so many processes make calls.
fn many(processes: u32) -> Option<f64> {
    File::create(FILE.to_str().ok()?).ok()?;
    let (reader, writer) = std::io::pipe().ok()?;
    let started = Instant::now();
    let until = Duration::from_secs_f64(MANY_SECONDS);
    let mut children = Vec::new();
    for _ in 0..processes {
        // SAFETY: this process has one thread, so the child may do what it wants; it ends without returning.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut calls = 0u64;
            while started.elapsed() < until {
                (0..BATCH).for_each(|_| stat(FILE));
                calls += u64::from(BATCH);
            }
            let is_written = (&writer).write_all(&calls.to_ne_bytes()).is_ok();
            // SAFETY: it has no conditions.
            unsafe { libc::_exit(i32::from(!is_written)) };
        }
        children.push(child);
    }
    drop(writer);
    let mut calls = 0u64;
    let mut one = [0; 8];
    while std::io::Read::read_exact(&mut &reader, &mut one).is_ok() {
        calls += u64::from_ne_bytes(one);
    }
    let wall = started.elapsed().as_secs_f64();
    for child in children {
        // SAFETY: our own children.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    }
    (calls > 0).then(|| wall / calls as f64)
}

/// Starts some programs for each line of standard input, and says how long each of them took.
fn execs(is_forked: bool) -> Option<()> {
    std::io::stdin().lines().try_for_each(|line| {
        line.ok()?;
        let times: Option<Vec<String>> =
            (0..EXECS).map(|_| exec(is_forked).map(|seconds| seconds.to_string())).collect();
        say(times?.join(" "))
    })
}

/// How long it takes to start a program and to wait for its end.
fn exec(is_forked: bool) -> Option<f64> {
    unsafe extern "C" {
        static environ: *const *mut libc::c_char;
    }
    let program = CString::new("/bin/true").ok()?;
    let arguments = [program.as_ptr().cast_mut(), std::ptr::null_mut()];
    let list = arguments.as_ptr();
    let started = Instant::now();
    // SAFETY: lists with a null at their ends; the child is waited for, and does nothing but what a child of fork may.
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
