//! What a failure was, decided from how the command ended, from what it printed, and from what the machine lacked
//! meanwhile.
//!
//! A text is believed where the machine bears it out, or where it is what the failure is told by: programs print such words
//! in tests of their own, too.

use kilnyard_mirror::FetchError;
use kilnyard_model::order::Stage;
use kilnyard_model::result::FailureKind;
use kilnyard_process::Passed;

/// What the machine lacked while a command ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lacked {
    /// The kernel killed some process for want of memory; it does not say whose.
    pub(crate) memory: bool,
    /// There is hardly any room left where builds write.
    pub(crate) disk: bool,
    /// What it wrote passed the limit, and the kernel lets it write no more.
    pub(crate) quota: bool,
    /// A process asked for the network, which was not there.
    pub(crate) network: bool,
}

/// How many of the last lines may tell of a disk that is full: who ran out of room goes on for a moment.
const LAST_LINES_MAX: usize = 200;
/// What programs say of a full disk (errno(3): ENOSPC, EDQUOT).
const DISK: [&str; 2] = ["No space left on device", "Disk quota exceeded"];
/// What dash prints of any write that failed. Only a disk without room makes it a sign of that.
const WRITE_FAILED: &str = ": I/O error";
/// What compilers say when the kernel killed one of their programs, or gave them no more memory (ENOMEM).
const MEMORY: [&str; 5] = [
    "Killed (program ",
    "Killed signal terminated program ",
    "virtual memory exhausted",
    "Cannot allocate memory",
    "memory allocation of ",
];
/// What shells, make and interpreters say when they may begin no process (EAGAIN).
const PROCESSES: [&str; 4] = [
    "fork: Resource temporarily unavailable",
    "fork: retry:",
    "Cannot fork",
    "cannot create thread: Resource temporarily unavailable",
];
/// What programs say when they may open no more files (EMFILE).
const OPEN_FILES: &str = "Too many open files";
/// What programs say without a network: of names that nobody knows, and of ways that lead nowhere (ENETUNREACH).
const NETWORK: [&str; 6] = [
    "Temporary failure in name resolution",
    "Could not resolve host",
    "Name or service not known",
    "Network is unreachable",
    "network unreachable",
    "unable to resolve host address",
];
/// Signals that come from elsewhere more often than from a mistake of the program: somebody killed it, its terminal or
/// machine went away, or a page of a file could not be read.
const SIGNALS: [i32; 5] = [libc::SIGHUP, libc::SIGINT, libc::SIGKILL, libc::SIGBUS, libc::SIGTERM];

/// The kind of a command's failure that ended with this code; `told` is the line that tells why, if there is one.
pub(crate) fn of_exit(stage: Stage, code: i32, told: Option<&str>, log: &str, lacked: Lacked) -> FailureKind {
    let says = |texts: &[&str], line: &str| texts.iter().any(|text| line.contains(text));
    let is_told = |texts: &[&str]| told.is_some_and(|told| says(texts, told));
    if lacked.quota {
        return FailureKind::DiskLimit;
    }
    let last = || log.lines().rev().take(LAST_LINES_MAX);
    let is_of_full_disk = |line: &str| says(&DISK, line) || line.ends_with(WRITE_FAILED);
    if is_told(&DISK) || (lacked.disk && last().any(is_of_full_disk)) {
        return FailureKind::Disk;
    }
    // The kernel does not say whose process it killed: whoever failed meanwhile may be meant.
    if lacked.memory || is_told(&MEMORY) {
        return FailureKind::Memory;
    }
    if is_told(&PROCESSES) {
        return FailureKind::Processes;
    }
    if is_told(&[OPEN_FILES]) {
        return FailureKind::OpenFiles;
    }
    if stage != Stage::Fetch && lacked.network && is_told(&NETWORK) {
        return FailureKind::NoNetwork;
    }
    if SIGNALS.iter().any(|signal| code == 128 + signal) {
        return FailureKind::Signal;
    }
    match stage {
        Stage::Test => FailureKind::Test,
        Stage::Fetch if is_told(&NETWORK) => FailureKind::Network,
        Stage::Fetch => FailureKind::Fetch,
        _ => FailureKind::Command,
    }
}

/// The kind of a failure of Kilnyard's own work for a build, which says what the kernel said.
pub(crate) fn of_machine(message: &str) -> FailureKind {
    let is_full = DISK.iter().any(|text| message.contains(text));
    if is_full { FailureKind::Disk } else { FailureKind::Machine }
}

/// The kind of a failure to fetch a file from mirrors.
pub fn of_fetch(error: &FetchError) -> FailureKind {
    if error.is_disk_full() {
        FailureKind::Disk
    } else if error.is_passing() {
        FailureKind::Network
    } else {
        FailureKind::Fetch
    }
}

/// What comes before the telling line, where the kind alone does not say it.
pub(crate) fn preface(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Disk => "the disk was full: ",
        FailureKind::Memory => "the machine ran out of memory: ",
        FailureKind::Processes => "it had too many processes (`processes-max` of [build]): ",
        FailureKind::OpenFiles => "a process opened more files than it may (`open-files` of [limits]): ",
        FailureKind::NoNetwork => "it asked for the network, which builds do not have: ",
        _ => "",
    }
}

/// Which signal ended a command, by its exit code, as a clause.
pub(crate) fn signal_words(code: i32) -> Option<String> {
    let name = match code - 128 {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGKILL => "SIGKILL",
        libc::SIGBUS => "SIGBUS",
        libc::SIGTERM => "SIGTERM",
        _ => return None,
    };
    Some(format!("{name} (signal {}) ended the command", code - 128))
}

/// The kind of a failure by a limit.
pub(crate) fn of_limit(passed: Passed) -> FailureKind {
    match passed {
        Passed::Wall => FailureKind::WallLimit,
        Passed::Cpu => FailureKind::CpuLimit,
        Passed::Hung => FailureKind::Hung,
        Passed::Spinning => FailureKind::Spinning,
        Passed::Silent => FailureKind::Silent,
        Passed::Memory => FailureKind::Memory,
        Passed::Processes => FailureKind::Processes,
        Passed::Written { .. } => FailureKind::DiskLimit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: i32, told: &str) -> FailureKind {
        of_exit(Stage::Build, code, Some(told), told, Lacked { network: true, ..Lacked::default() })
    }

    #[test]
    fn what_the_telling_line_says_is_believed() {
        for (told, expected) in [
            ("x.c:1: error: no", FailureKind::Command),
            ("cc1: No space left on device", FailureKind::Disk),
            ("c++: fatal error: Killed signal terminated program cc1plus", FailureKind::Memory),
            ("sh: fork: Resource temporarily unavailable", FailureKind::Processes),
            ("bash: fork: retry: Resource temporarily unavailable", FailureKind::Processes),
            ("sort: open failed: /tmp/x: Too many open files", FailureKind::OpenFiles),
            ("curl: (6) Could not resolve host: example.org", FailureKind::NoNetwork),
            ("bash: connect: Network is unreachable", FailureKind::NoNetwork),
        ] {
            assert_eq!(kind(2, told), expected, "{told}");
        }
        let fetch = |told| of_exit(Stage::Fetch, 1, Some(told), told, Lacked::default());
        assert_eq!(fetch("wget: unable to resolve host address 'a'"), FailureKind::Network);
        assert_eq!(fetch("ERROR: Checksum mismatch"), FailureKind::Fetch);
    }

    #[test]
    fn other_words_are_believed_where_the_machine_bears_them_out() {
        let log = "tar: x: Cannot write: No space left on device\ntar: giving up\nx.c:1: error: no\n";
        let of = |lacked| of_exit(Stage::Build, 2, Some("x.c:1: error: no"), log, lacked);
        assert_eq!(of(Lacked::default()), FailureKind::Command);
        assert_eq!(of(Lacked { disk: true, ..Lacked::default() }), FailureKind::Disk);
        assert_eq!(of(Lacked { memory: true, ..Lacked::default() }), FailureKind::Memory);
    }

    #[test]
    fn a_failed_write_of_the_shell_counts_where_the_disk_is_full() {
        let told = "/bin/sh: 1: echo: echo: I/O error";
        let of = |lacked| of_exit(Stage::Build, 2, Some(told), told, lacked);
        assert_eq!(of(Lacked::default()), FailureKind::Command);
        assert_eq!(of(Lacked { disk: true, ..Lacked::default() }), FailureKind::Disk);
    }

    #[test]
    fn work_of_ones_own_that_a_full_disk_ended_is_not_the_fault_of_the_machine() {
        let full = "failed to write to file `/yard/roots/4/layers`: No space left on device (os error 28)";
        assert_eq!(of_machine(full), FailureKind::Disk);
        assert_eq!(of_machine("Input/output error (os error 5)"), FailureKind::Machine);
        assert_eq!(of_machine(""), FailureKind::Machine);
    }

    #[test]
    fn what_is_only_printed_of_a_network_is_not_believed() {
        let told = "test 3: Network is unreachable";
        assert_eq!(
            of_exit(Stage::Build, 1, Some(told), told, Lacked::default()),
            FailureKind::Command,
            "nothing asked for the network"
        );
        assert_eq!(kind(1, told), FailureKind::NoNetwork);
    }

    #[test]
    fn a_signal_is_named() {
        assert_eq!(signal_words(137).as_deref(), Some("SIGKILL (signal 9) ended the command"));
        assert_eq!((signal_words(2), signal_words(128), signal_words(300)), (None, None, None));
    }

    #[test]
    fn a_signal_from_elsewhere_is_told_from_a_crash() {
        assert_eq!(kind(128 + libc::SIGKILL, "compiling"), FailureKind::Signal);
        assert_eq!(kind(128 + libc::SIGSEGV, "compiling"), FailureKind::Command);
        assert_eq!(of_exit(Stage::Test, 1, None, "", Lacked::default()), FailureKind::Test);
        assert_eq!(of_exit(Stage::Test, 137, None, "", Lacked::default()), FailureKind::Signal);
    }
}
