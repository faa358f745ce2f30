//! Traps of instructions that the kernel emulates, counted for all processes of a command.
//!
//! The kernel counts them as software events (perf_event_open(2)), also where the processor counts nothing. Children inherit
//! the counters, which costs each fork a little, so that they are used only where the kernel emulates instructions at all:
//! on ARM, where it lists them in `/proc/sys/abi`.

use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;
use std::path::Path;

/// `PERF_TYPE_SOFTWARE` (linux/perf_event.h).
const SOFTWARE: u32 = 1;
/// `PERF_COUNT_SW_ALIGNMENT_FAULTS`, `PERF_COUNT_SW_EMULATION_FAULTS`.
const ALIGNMENT: u64 = 7;
const EMULATION: u64 = 8;
/// The bit `inherit` of the flags.
const INHERIT: u64 = 1 << 1;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOEXEC: libc::c_ulong = 8;
/// What the kernel emulates, by instruction.
const EMULATED: [&str; 3] = ["/proc/sys/abi/cp15_barrier", "/proc/sys/abi/setend", "/proc/sys/abi/swp"];

/// How many traps there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traps {
    /// Instructions that the kernel emulated.
    pub emulated: u64,
    /// Accesses to memory that the kernel repeated, as they were not aligned.
    pub unaligned: u64,
}

/// Version 0 of `perf_event_attr`, of 64 bytes.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    period: u64,
    sampled: u64,
    format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint_kind: u32,
    breakpoint: u64,
}

/// Counters that are running.
#[derive(Debug)]
pub(crate) struct Counters {
    emulated: File,
    unaligned: File,
}

impl Counters {
    /// Counts for a process and all that it starts from now on. `None` where the kernel emulates nothing, or does not let
    /// this process count.
    pub(crate) fn of(process: u32) -> Option<Counters> {
        let is_emulating = EMULATED.iter().any(|path| Path::new(path).exists());
        if !is_emulating {
            return None;
        }
        Some(Counters {
            emulated: counter(process, EMULATION).ok()?,
            unaligned: counter(process, ALIGNMENT).ok()?,
        })
    }

    pub(crate) fn read(&self) -> Traps {
        Traps { emulated: count(&self.emulated), unaligned: count(&self.unaligned) }
    }
}

fn counter(process: u32, event: u64) -> io::Result<File> {
    let attributes = Attributes {
        kind: SOFTWARE,
        size: size_of::<Attributes>() as u32,
        config: event,
        flags: INHERIT,
        ..Attributes::default()
    };
    // SAFETY: the attributes live until the end of the call; the other arguments are numbers: any processor, no group.
    let number = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &attributes, process as libc::pid_t, -1, -1, CLOEXEC)
    };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened, and nothing else owns it.
    Ok(unsafe { File::from_raw_fd(number as i32) })
}

fn count(mut counter: &File) -> u64 {
    let mut bytes = [0; 8];
    // The kernel always has a whole number.
    let read = counter.read_exact(&mut bytes);
    read.map_or(0, |()| u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// `PERF_COUNT_SW_PAGE_FAULTS`: every processor has them, unlike emulated instructions.
    const PAGE_FAULTS: u64 = 2;

    #[test]
    fn events_of_a_process_and_its_children_are_counted() {
        let mut child = Command::new("/bin/sh")
            .args(["-c", "read go; for i in 1 2 3 4 5; do /bin/true; done"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let counter = match counter(child.id(), PAGE_FAULTS) {
            Ok(counter) => counter,
            Err(error) => {
                eprintln!("skipped: this process may count no events: {error}");
                child.kill().unwrap();
                child.wait().unwrap();
                return;
            }
        };
        let before = count(&counter);
        drop(child.stdin.take());
        child.wait().unwrap();
        // Each of five programs touches dozens of pages.
        assert!(count(&counter) > before + 100, "{} {before}", count(&counter));
    }
}
