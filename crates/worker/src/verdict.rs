//! Classifies a failure by the exit code of the command, its output, and the resources that the machine ran out of.
//!
//! Output counts only if the machine confirms it, or if it is the line that explains the failure: programs print the
//! same words in their own tests, too.

use crate::machines::REPLACED;
use kilnyard_mirror::FetchError;
use kilnyard_model::order::Stage;
use kilnyard_model::result::FailureKind;
use kilnyard_process::Passed;

/// Resources that were exhausted or missing while a command ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shortages {
    /// The kernel killed some process for lack of memory; it does not say whose.
    pub(crate) memory: bool,
    /// The disk that builds write to is almost full.
    pub(crate) disk: bool,
    /// The build wrote more than its limit, and the kernel refuses further writes.
    pub(crate) quota: bool,
    /// Whether the command could have used the network.
    pub(crate) network: Network,
}

/// A command's access to the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Network {
    /// It had no network, and no process tried to use one, or that is unknown.
    #[default]
    Unused,
    /// It had no network, and a process tried to use one.
    Refused,
    /// It had the machine's network.
    Available,
}

/// How many of the last lines are searched for messages of a full disk: programs may run for a moment after it.
const LAST_LINES_MAX: usize = 200;
/// Messages of a full disk (errno(3): ENOSPC, EDQUOT).
const DISK: [&str; 2] = ["No space left on device", "Disk quota exceeded"];
/// dash prints this after any failed write, so it means a full disk only if the disk is full.
const WRITE_FAILED: &str = ": I/O error";
/// Messages of compilers after the kernel killed one of their programs, or refused them more memory (ENOMEM).
const MEMORY: [&str; 5] = [
    "Killed (program ",
    "Killed signal terminated program ",
    "virtual memory exhausted",
    "Cannot allocate memory",
    "memory allocation of ",
];
/// Messages of shells, make and interpreters that may not start another process (EAGAIN).
const PROCESSES: [&str; 4] = [
    "fork: Resource temporarily unavailable",
    "fork: retry:",
    "Cannot fork",
    "cannot create thread: Resource temporarily unavailable",
];
/// Message of programs that may not open another file (EMFILE).
const OPEN_FILES: &str = "Too many open files";
/// Messages of programs without a network: unresolved names and unreachable networks (ENETUNREACH).
const NETWORK: [&str; 6] = [
    "Temporary failure in name resolution",
    "Could not resolve host",
    "Name or service not known",
    "Network is unreachable",
    "network unreachable",
    "unable to resolve host address",
];
/// Signals that are more often external than a bug of the program: it was killed, its terminal or machine went away,
/// or a page of a file could not be read.
const SIGNALS: [i32; 5] = [libc::SIGHUP, libc::SIGINT, libc::SIGKILL, libc::SIGBUS, libc::SIGTERM];

/// Classifies a failed command by its exit code; `cause` is the line of its log that explains the failure, if there
/// is one.
pub(crate) fn of_exit(
    stage: Stage,
    code: i32,
    cause: Option<&str>,
    log: &str,
    shortages: Shortages,
) -> FailureKind {
    let says = |texts: &[&str], line: &str| texts.iter().any(|text| line.contains(text));
    let is_cause = |texts: &[&str]| cause.is_some_and(|cause| says(texts, cause));
    if shortages.quota {
        return FailureKind::DiskLimit;
    }
    let last = || log.lines().rev().take(LAST_LINES_MAX);
    let is_of_full_disk = |line: &str| says(&DISK, line) || line.ends_with(WRITE_FAILED);
    if is_cause(&DISK) || (shortages.disk && last().any(is_of_full_disk)) {
        return FailureKind::Disk;
    }
    // The kernel does not report whose process it killed: any build that failed in the meantime may be the one.
    if shortages.memory || is_cause(&MEMORY) {
        return FailureKind::Memory;
    }
    if is_cause(&PROCESSES) {
        return FailureKind::Processes;
    }
    if is_cause(&[OPEN_FILES]) {
        return FailureKind::OpenFiles;
    }
    match shortages.network {
        Network::Refused if stage != Stage::Fetch && is_cause(&NETWORK) => return FailureKind::NoNetwork,
        Network::Available if is_cause(&NETWORK) => return FailureKind::Network,
        Network::Refused | Network::Available | Network::Unused => {}
    }
    if SIGNALS.iter().any(|signal| code == 128 + signal) {
        return FailureKind::Signal;
    }
    match stage {
        Stage::Test => FailureKind::Test,
        Stage::Fetch if is_cause(&NETWORK) => FailureKind::Network,
        Stage::Fetch => FailureKind::Fetch,
        _ => FailureKind::Command,
    }
}

/// Classifies a failure of Kilnyard's own work for a build by its message, which contains the kernel's error.
pub(crate) fn of_machine(message: &str) -> FailureKind {
    if message.starts_with(REPLACED) {
        // Only the build could do that.
        return FailureKind::Outputs;
    }
    let is_full = DISK.iter().any(|text| message.contains(text));
    if is_full { FailureKind::Disk } else { FailureKind::Machine }
}

/// Classifies a failure to fetch a file from mirrors.
pub fn of_fetch(error: &FetchError) -> FailureKind {
    if error.is_disk_full() {
        FailureKind::Disk
    } else if error.is_transient() {
        FailureKind::Network
    } else {
        FailureKind::Fetch
    }
}

/// Precedes the line that explains a failure, where that line alone does not explain it.
pub(crate) fn preface(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Disk => "the disk was full: ",
        FailureKind::Memory => "the machine ran out of memory: ",
        FailureKind::Processes => "too many processes (`processes-max` of [build] or [package]): ",
        FailureKind::OpenFiles => "a process opened too many files (`open-files` of [limits] or [package]): ",
        FailureKind::NoNetwork => "it tried to use the network, which builds do not have: ",
        _ => "",
    }
}

/// Names the signal that ended a command with this exit code, as a clause.
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

/// Classifies a passed limit.
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

    fn kind(code: i32, cause: &str) -> FailureKind {
        of_exit(
            Stage::Build,
            code,
            Some(cause),
            cause,
            Shortages { network: Network::Refused, ..Shortages::default() },
        )
    }

    #[test]
    fn the_line_that_explains_a_failure_is_believed() {
        for (cause, expected) in [
            ("x.c:1: error: no", FailureKind::Command),
            ("cc1: No space left on device", FailureKind::Disk),
            ("c++: fatal error: Killed signal terminated program cc1plus", FailureKind::Memory),
            ("sh: fork: Resource temporarily unavailable", FailureKind::Processes),
            ("bash: fork: retry: Resource temporarily unavailable", FailureKind::Processes),
            ("sort: open failed: /tmp/x: Too many open files", FailureKind::OpenFiles),
            ("curl: (6) Could not resolve host: example.org", FailureKind::NoNetwork),
            ("bash: connect: Network is unreachable", FailureKind::NoNetwork),
        ] {
            assert_eq!(kind(2, cause), expected, "{cause}");
        }
        let fetch = |cause| of_exit(Stage::Fetch, 1, Some(cause), cause, Shortages::default());
        assert_eq!(fetch("wget: unable to resolve host address 'a'"), FailureKind::Network);
        assert_eq!(fetch("ERROR: Checksum mismatch"), FailureKind::Fetch);
    }

    #[test]
    fn other_lines_are_believed_if_the_machine_confirms_them() {
        let log = "tar: x: Cannot write: No space left on device\ntar: giving up\nx.c:1: error: no\n";
        let of = |shortages| of_exit(Stage::Build, 2, Some("x.c:1: error: no"), log, shortages);
        assert_eq!(of(Shortages::default()), FailureKind::Command);
        assert_eq!(of(Shortages { disk: true, ..Shortages::default() }), FailureKind::Disk);
        assert_eq!(of(Shortages { memory: true, ..Shortages::default() }), FailureKind::Memory);
    }

    #[test]
    fn a_failed_write_of_the_shell_counts_if_the_disk_is_full() {
        let cause = "/bin/sh: 1: echo: echo: I/O error";
        let of = |shortages| of_exit(Stage::Build, 2, Some(cause), cause, shortages);
        assert_eq!(of(Shortages::default()), FailureKind::Command);
        assert_eq!(of(Shortages { disk: true, ..Shortages::default() }), FailureKind::Disk);
    }

    #[test]
    fn a_full_disk_is_not_a_fault_of_the_machine() {
        let full = "failed to write to file `/yard/roots/4/layers`: No space left on device (os error 28)";
        assert_eq!(of_machine(full), FailureKind::Disk);
        assert_eq!(of_machine("Input/output error (os error 5)"), FailureKind::Machine);
        assert_eq!(of_machine(""), FailureKind::Machine);
    }

    #[test]
    fn output_about_a_network_that_no_process_used_is_not_believed() {
        let cause = "test 3: Network is unreachable";
        assert_eq!(
            of_exit(Stage::Build, 1, Some(cause), cause, Shortages::default()),
            FailureKind::Command,
            "no process used the network"
        );
        assert_eq!(kind(1, cause), FailureKind::NoNetwork);
        let available = Shortages { network: Network::Available, ..Shortages::default() };
        assert_eq!(of_exit(Stage::Build, 1, Some(cause), cause, available), FailureKind::Network);
        assert_eq!(of_exit(Stage::Build, 1, Some("error: no"), "", available), FailureKind::Command);
    }

    #[test]
    fn a_signal_is_named() {
        assert_eq!(signal_words(137).as_deref(), Some("SIGKILL (signal 9) ended the command"));
        assert_eq!((signal_words(2), signal_words(128), signal_words(300)), (None, None, None));
    }

    #[test]
    fn an_external_signal_is_distinguished_from_a_crash() {
        assert_eq!(kind(128 + libc::SIGKILL, "compiling"), FailureKind::Signal);
        assert_eq!(kind(128 + libc::SIGSEGV, "compiling"), FailureKind::Command);
        assert_eq!(of_exit(Stage::Test, 1, None, "", Shortages::default()), FailureKind::Test);
        assert_eq!(of_exit(Stage::Test, 137, None, "", Shortages::default()), FailureKind::Signal);
    }
}
