//! What of a machine can make the same build end otherwise: settings of the kernel, limits, and the file system of roots.
//!
//! `kilnyard workers` compares them. None of them is part of a key: most builds do not depend on them, and a build that
//! does is easier to explain if the difference is known. A limit beyond what builds use is shown as "at least", so that
//! a machine with more memory, whose kernel raises its limits, does not count as different.
//!
//! The time zone is not among them: roots have none, so builds run in UTC. The clock is compared by the door.

use kilnyard_model::text;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;

/// Processes and threads beyond this make no difference: eight builds that use all they may.
const PROCESSES_ENOUGH: u64 = 32_768;
/// The default of `open-files`, which limits each process of a build.
const OPEN_FILES_ENOUGH: u64 = 16_384;
/// Open files of all processes beyond this make no difference.
const OPEN_FILES_OF_ALL_ENOUGH: u64 = 262_144;
/// The longest value, in bytes.
const VALUE_BYTES_MAX: usize = 128;
/// The type of the page size in the auxiliary vector (getauxval(3)).
const AT_PAGESZ: usize = 6;

/// Settings of the kernel that are compared as they are (sysctl(8)).
const SYSCTLS: &[&str] = &[
    // Programs that dump and restore their memory, such as Emacs and some Lisps, need fixed addresses.
    "kernel.randomize_va_space",
    // With 2, reservations of address space fail: sanitizers, Go, Haskell.
    "vm.overcommit_memory",
    // Test suites that map many files, and databases.
    "vm.max_map_count",
    // Test suites of debuggers and tracers; the leak sanitizer.
    "kernel.yama.ptrace_scope",
    // Test suites that crash programs, and check what is left of them.
    "kernel.core_pattern",
    // Test suites of file watchers. All builds of a user share them.
    "fs.inotify.max_user_instances",
];

/// The conditions of this machine by name, for builds in `folder`. Unknown ones are absent.
pub fn conditions(folder: &Path) -> BTreeMap<String, String> {
    let sysctls = SYSCTLS.iter().map(|name| (*name, sysctl(name)));
    let others = [
        ("processes", at_least(processes(), PROCESSES_ENOUGH)),
        ("open files of a process", at_least(open_files(), OPEN_FILES_ENOUGH)),
        ("open files of all processes", at_least(number("fs.file-max"), OPEN_FILES_OF_ALL_ENOUGH)),
        ("user namespaces of ordinary users", user_namespaces()),
        ("loopback", Some(loopback())),
        ("page size", page_bytes().map(|bytes| format!("{} KiB", bytes >> 10))),
        ("CPU level", cpu_level().map(str::to_owned)),
        ("transparent huge pages", huge_pages()),
        ("control groups", control_groups().map(str::to_owned)),
        ("file system", file_system(folder)),
    ];
    let known = sysctls.chain(others).filter_map(|(name, value)| Some((name.to_owned(), bounded(&value?)?)));
    known.collect()
}

fn bounded(value: &str) -> Option<String> {
    let mut value = text::line(value).trim().to_owned();
    while value.len() > VALUE_BYTES_MAX {
        value.pop();
    }
    (!value.is_empty()).then_some(value)
}

fn sysctl(name: &str) -> Option<String> {
    fs_err::read_to_string(Path::new("/proc/sys").join(name.replace('.', "/"))).ok()
}

fn number(name: &str) -> Option<u64> {
    sysctl(name)?.trim().parse().ok()
}

/// A limit, of which only the part matters that builds can reach.
fn at_least(limit: Option<u64>, enough: u64) -> Option<String> {
    limit.map(|limit| if limit >= enough { format!("at least {enough}") } else { limit.to_string() })
}

/// The most processes and threads of the builder at once: the lowest of the limits.
fn processes() -> Option<u64> {
    let own = rustix::process::getrlimit(rustix::process::Resource::Nproc).maximum;
    [number("kernel.pid_max"), number("kernel.threads-max"), own].into_iter().flatten().min()
}

/// The most files that a process may open: its limit, which only root may raise.
fn open_files() -> Option<u64> {
    let own = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    [number("fs.nr_open"), own].into_iter().flatten().min()
}

/// For builds that make namespaces of their own. Debian and Ubuntu each have a further switch.
fn user_namespaces() -> Option<String> {
    let count = number("user.max_user_namespaces")?;
    let is_closed = number("kernel.unprivileged_userns_clone") == Some(0)
        || number("kernel.apparmor_restrict_unprivileged_userns") == Some(1);
    Some(if count > 0 && !is_closed { "allowed" } else { "forbidden" }.to_owned())
}

/// The addresses of the loopback interface: some test suites need `::1`.
fn loopback() -> String {
    let has = |address: &str| TcpListener::bind((address, 0)).is_ok();
    match (has("127.0.0.1"), has("::1")) {
        (true, true) => "IPv4 and IPv6",
        (true, false) => "IPv4 alone",
        (false, true) => "IPv6 alone",
        (false, false) => "neither IPv4 nor IPv6",
    }
    .to_owned()
}

fn page_bytes() -> Option<u64> {
    page_bytes_of(&fs_err::read("/proc/self/auxv").ok()?)
}

/// The page size in an auxiliary vector of pairs of words.
fn page_bytes_of(vector: &[u8]) -> Option<u64> {
    const WORD: usize = size_of::<usize>();
    let word = |bytes: &[u8]| Some(usize::from_ne_bytes(bytes.try_into().ok()?));
    let mut pairs = vector.chunks_exact(2 * WORD);
    let found = pairs.find(|pair| word(&pair[..WORD]) == Some(AT_PAGESZ))?;
    word(&found[WORD..]).map(|bytes| bytes as u64)
}

/// The level of x86-64 (psABI), which decides what `-march=native` and libraries with several variants do.
#[cfg(target_arch = "x86_64")]
fn cpu_level() -> Option<&'static str> {
    macro_rules! has {
        ($($feature:tt),*) => { $(std::arch::is_x86_feature_detected!($feature))&&* };
    }
    let is_2 = has!("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cmpxchg16b");
    let is_3 = is_2 && has!("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave");
    let is_4 = is_3 && has!("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl");
    Some(match (is_4, is_3, is_2) {
        (true, ..) => "x86-64-v4",
        (_, true, _) => "x86-64-v3",
        (_, _, true) => "x86-64-v2",
        _ => "x86-64-v1",
    })
}

/// Other architectures have no such levels.
#[cfg(not(target_arch = "x86_64"))]
fn cpu_level() -> Option<&'static str> {
    None
}

/// They change how much memory builds take.
fn huge_pages() -> Option<String> {
    chosen(&fs_err::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok()?)
}

/// The word in brackets: `always [madvise] never`.
fn chosen(list: &str) -> Option<String> {
    list.split_whitespace().find_map(|word| Some(word.strip_prefix('[')?.strip_suffix(']')?.to_owned()))
}

/// The version of control groups: runtimes read their limits there.
fn control_groups() -> Option<&'static str> {
    let has = |name: &str| Path::new("/sys/fs/cgroup").join(name).exists();
    match (has("cgroup.controllers"), has("memory") || has("cpu")) {
        (true, _) => Some("version 2"),
        (false, true) => Some("version 1"),
        (false, false) => None,
    }
}

/// File systems differ in times, sparse files, attributes and the order of directories.
fn file_system(folder: &Path) -> Option<String> {
    rustix::fs::statfs(folder).ok().map(|facts| file_system_of(facts.f_type as u64))
}

/// The name of a file system's type (statfs(2)).
fn file_system_of(kind: u64) -> String {
    // Some architectures have 32 bits, and extend the sign.
    match kind & 0xffff_ffff {
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x0102_1994 => "tmpfs",
        0x794c_7630 => "overlayfs",
        0x2fc1_2fc1 => "zfs",
        0xf2f5_2010 => "f2fs",
        0xca45_1a4e => "bcachefs",
        0x6969 => "nfs",
        0x6573_5546 => "fuse",
        other => return format!("type {other:#x}"),
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_like_itself_and_its_conditions_are_short_lines() {
        let folder = tempfile::tempdir().unwrap();
        let known = conditions(folder.path());
        assert_eq!(known, conditions(folder.path()));
        for name in ["processes", "open files of a process", "loopback", "page size", "file system"] {
            assert!(known.contains_key(name), "{name}: {known:?}");
        }
        assert!(known.values().all(|value| value.len() <= VALUE_BYTES_MAX && !value.contains('\n')));
    }

    #[test]
    fn limits_beyond_what_builds_use_are_alike() {
        assert_eq!(at_least(Some(1 << 40), 100), at_least(Some(100), 100));
        assert_eq!(at_least(Some(99), 100).as_deref(), Some("99"));
        assert_eq!(at_least(None, 100), None);
    }

    #[test]
    fn settings_are_read_from_the_kernels_formats() {
        assert_eq!(chosen("always [madvise] never\n").as_deref(), Some("madvise"));
        assert_eq!(chosen("always\n"), None);
        let words = [3usize, 64, AT_PAGESZ, 16 << 10, 0, 0];
        let vector: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(page_bytes_of(&vector), Some(16 << 10));
        assert_eq!(page_bytes_of(&vector[..20]), None);
        assert_eq!((file_system_of(0xef53), file_system_of(7)), ("ext4".to_owned(), "type 0x7".to_owned()));
        // 32 bits with a sign.
        assert_eq!(file_system_of(0x9123_683e_u32 as i32 as u64), "btrfs");
        assert!(!bounded(" a\u{7}b\n").unwrap().chars().any(char::is_control));
        assert_eq!(bounded("\n"), None);
    }
}
