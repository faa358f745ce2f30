//! Split locks: atomic operations on memory across two cache lines, which lock the bus of all cores. Kernels of x86 trap them
//! where the processor can, slow the process down (`kernel.split_lock_mitigate`), and say so in their log, once for each process.

/// A trapped process, from the kernel's log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SplitLock {
    /// The name of the program, of at most 15 bytes.
    pub program: String,
    /// Its process id on the machine.
    pub process: u32,
    /// When, in microseconds since the machine started.
    pub at_microseconds: u64,
}

/// What the kernel prints before and after the process (arch/x86/kernel/cpu/bus_lock.c).
const PREFIX: &str = "x86/split lock detection: #";
const ENDS: [&str; 2] = [" took a split_lock trap at address", " took a bus_lock trap at address"];
/// The most characters of a program's name that are kept.
const NAME_CHARACTERS_MAX: usize = 15;

/// Reads a record of `/dev/kmsg` (Documentation/ABI/testing/dev-kmsg): level, number, time and flags before a semicolon, then the
/// message. Absent if it is of something else.
pub fn of_record(record: &str) -> Option<SplitLock> {
    let (head, message) = record.split_once(';')?;
    let at_microseconds = head.split(',').nth(2)?.parse().ok()?;
    // The kind of the trap: AC or DB.
    let (_, rest) = message.lines().next()?.strip_prefix(PREFIX)?.split_once(": ")?;
    let process = ENDS.iter().find_map(|end| Some(rest.split_once(end)?.0))?;
    // A program's name may have slashes.
    let (program, process) = process.rsplit_once('/')?;
    let shown = program.chars().filter(|c| !c.is_control()).take(NAME_CHARACTERS_MAX).collect();
    Some(SplitLock { program: shown, process: process.parse().ok()?, at_microseconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_messages_are_understood() {
        let record = "4,1234,5678901,-;x86/split lock detection: #AC: cc1plus/4711 took a split_lock trap at address: 0x401136\n SUBSYSTEM=x\n";
        let expected = SplitLock { program: "cc1plus".into(), process: 4711, at_microseconds: 5_678_901 };
        assert_eq!(of_record(record), Some(expected));
        let bus = "4,1,7,-;x86/split lock detection: #DB: a/b/12 took a bus_lock trap at address: 0x1";
        assert_eq!(of_record(bus).map(|lock| (lock.program, lock.process)), Some(("a/b".into(), 12)));
        for other in [
            "",
            "6,1,7,-;usb 1-1: new device",
            "4,1,x,-;x86/split lock detection: #AC: a/1 took a split_lock trap at address: 0x1",
            "6,1,7,-;x86/split lock detection: #AC: crashing the kernel on kernel split_locks and warning on user-space split_locks",
            // What a program writes to the log has another form.
            "12,1,7,-;say: x86/split lock detection: #AC: a/1 took a split_lock trap at address: 0x1",
        ] {
            assert_eq!(of_record(other), None, "{other}");
        }
    }
}
