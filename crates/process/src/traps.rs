//! Traps of instructions that the kernel emulates, counted for all processes of a command.
//!
//! The kernel counts them as software events (perf_event_open(2)), also where the processor counts nothing; which instructions
//! they were, its tracepoint `emulation:instruction_emulation` says, where this process may read it. Children inherit
//! the counters, which costs each fork a little, so that they are used only where the kernel emulates instructions at all:
//! on ARM, where it lists them in `/proc/sys/abi`.

use serde::{Deserialize, Serialize};
use std::ffi::CStr;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;

/// `PERF_TYPE_SOFTWARE`, `PERF_TYPE_TRACEPOINT` (linux/perf_event.h).
const SOFTWARE: u32 = 1;
const TRACEPOINT: u32 = 2;
/// `PERF_COUNT_SW_ALIGNMENT_FAULTS`, `PERF_COUNT_SW_EMULATION_FAULTS`.
const ALIGNMENT: u64 = 7;
const EMULATION: u64 = 8;
/// The bits `inherit` and `exclude_kernel` of the flags.
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOEXEC: libc::c_ulong = 8;
/// `PERF_EVENT_IOC_SET_FILTER`: `_IOW('$', 6, char *)`, on processors with 64 bits.
const SET_FILTER: libc::Ioctl = 0x4008_2406;
/// The folders of tracepoints, and that of emulated instructions.
const TRACEPOINTS: &str = "/sys/kernel/tracing/events";
const INSTRUCTIONS: &str = "emulation/instruction_emulation";
/// What the tracepoint's field `instr` begins with (Linux's `arch/arm64/kernel/armv8_deprecated.c`), as in [`Instructions`].
const FILTERS: [&CStr; 3] = [c"instr ~ \"mcr*\"", c"instr ~ \"setend*\"", c"instr ~ \"swp*\""];
/// What the kernel emulates, by instruction.
const EMULATED: [&str; 3] = ["/proc/sys/abi/cp15_barrier", "/proc/sys/abi/setend", "/proc/sys/abi/swp"];

/// How many traps there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traps {
    /// Instructions that the kernel emulated.
    pub emulated: u64,
    /// Accesses to memory that the kernel repeated, as they were not aligned.
    pub unaligned: u64,
    /// Which instructions they were; all zero where that is unknown.
    #[serde(default)]
    pub instructions: Instructions,
}

/// How often the kernel emulated an instruction that ARMv8 deprecates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instructions {
    /// CP15 barriers.
    pub barriers: u64,
    /// SETEND.
    pub setends: u64,
    /// SWP and SWPB.
    pub swaps: u64,
}

impl fmt::Display for Instructions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [("CP15 barrier", self.barriers), ("SETEND", self.setends), ("SWP", self.swaps)];
        let known = all.into_iter().filter(|(_, count)| *count > 0);
        let known: Vec<String> = known.map(|(name, count)| format!("{name} {count}")).collect();
        f.write_str(&known.join(", "))
    }
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
    /// In the order of [`FILTERS`].
    instructions: Option<[File; 3]>,
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
            emulated: counter(process, (SOFTWARE, EMULATION)).ok()?,
            unaligned: counter(process, (SOFTWARE, ALIGNMENT)).ok()?,
            instructions: filtered(process, Path::new(TRACEPOINTS), INSTRUCTIONS, FILTERS).ok(),
        })
    }

    pub(crate) fn read(&self) -> Traps {
        let instructions = self.instructions.as_ref().map(|counters| counters.each_ref().map(count));
        let [barriers, setends, swaps] = instructions.unwrap_or_default();
        Traps {
            emulated: count(&self.emulated),
            unaligned: count(&self.unaligned),
            instructions: Instructions { barriers, setends, swaps },
        }
    }
}

/// Counters of what passes each of these filters of a tracepoint.
fn filtered<const N: usize>(
    process: u32,
    tracepoints: &Path,
    name: &str,
    filters: [&CStr; N],
) -> io::Result<[File; N]> {
    let id = fs_err::read_to_string(tracepoints.join(name).join("id"))?;
    let id = id.trim().parse().map_err(io::Error::other)?;
    let counters = filters.map(|filter| {
        let counter = counter(process, (TRACEPOINT, id))?;
        // SAFETY: the descriptor is open, and the filter a string that the kernel copies.
        match unsafe { libc::ioctl(counter.as_raw_fd(), SET_FILTER, filter.as_ptr()) } {
            0 => Ok(counter),
            _ => Err(io::Error::last_os_error()),
        }
    });
    let counters: Vec<File> = counters.into_iter().collect::<io::Result<_>>()?;
    counters.try_into().map_err(|_| io::Error::other("a counter is missing"))
}

fn counter(process: u32, (kind, event): (u32, u64)) -> io::Result<File> {
    let attributes = Attributes {
        kind,
        size: size_of::<Attributes>() as u32,
        config: event,
        // Ordinary users may only count what happens in programs, as these events do (`perf_event_paranoid` of 2).
        flags: if kind == SOFTWARE { INHERIT | EXCLUDE_KERNEL } else { INHERIT },
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
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
    use std::process::{Child, Command, Stdio};

    /// `PERF_COUNT_SW_PAGE_FAULTS`: every processor has them, unlike emulated instructions.
    const PAGE_FAULTS: u64 = 2;

    /// Starts five programs when a line arrives.
    fn child() -> Child {
        Command::new("/bin/sh")
            .args(["-c", "read go; for i in 1 2 3 4 5; do /bin/true; done"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn skip(mut child: Child, reason: impl fmt::Display) {
        eprintln!("skipped: {reason}");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn events_of_a_process_and_its_children_are_counted() {
        let mut child = child();
        let counter = match counter(child.id(), (SOFTWARE, PAGE_FAULTS)) {
            Ok(counter) => counter,
            Err(error) => return skip(child, format!("this process may count no events: {error}")),
        };
        let before = count(&counter);
        drop(child.stdin.take());
        child.wait().unwrap();
        // Each of five programs touches dozens of pages.
        assert!(count(&counter) > before + 100, "{} {before}", count(&counter));
    }

    /// No processor here has its instructions emulated by the kernel, so that another tracepoint stands for theirs.
    #[test]
    fn events_of_a_tracepoint_are_counted_by_what_they_name() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = child();
        if let Err(error) = mount("tracing", folder.path(), "tracefs", MountFlags::empty(), None) {
            return skip(child, format!("this process may not mount tracefs: {error}"));
        }
        let filters = [c"filename ~ \"*/true\"", c"filename ~ \"mcr*\"", c"filename ~ \"/*\""];
        let events = folder.path().join("events");
        let counters = filtered(child.id(), &events, "sched/sched_process_exec", filters);
        let absent = filtered(child.id(), &events, INSTRUCTIONS, FILTERS);
        unmount(folder.path(), UnmountFlags::empty()).unwrap();
        let counters = counters.unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(counters.each_ref().map(count), [5, 0, 5]);
        assert_eq!(absent.is_ok(), cfg!(target_arch = "aarch64"));
    }

    #[test]
    fn instructions_are_named_if_they_are_known() {
        assert_eq!(Instructions::default().to_string(), "");
        let some = Instructions { barriers: 7, setends: 0, swaps: 2 };
        assert_eq!(some.to_string(), "CP15 barrier 7, SWP 2");
    }
}
