//! The processes below a given one, seen from outside the sandbox.

use kilnyard_root::ProcessStat;
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;

/// One process below the sandbox's own processes.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) stat: ProcessStat,
    /// Its depth below the sandbox's own processes, whose children are at 0.
    pub(crate) depth: usize,
}

/// The processes below this one except the sandbox's own, parents before children.
pub(crate) fn below(outer: u32) -> Vec<Member> {
    let mut children: HashMap<i32, Vec<ProcessStat>> = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let text = number.and_then(|number| std::fs::read(format!("/proc/{number}/stat")).ok());
        if let Some(stat) = text.and_then(|text| ProcessStat::parse(&text)) {
            children.entry(stat.parent).or_default().push(stat);
        }
    }
    let mut found = Vec::new();
    let mut open = vec![(outer as i32, 0)];
    while let Some((parent, depth)) = open.pop() {
        // Siblings are listed in the order in which they started.
        let mut own = children.remove(&parent).unwrap_or_default();
        own.sort_by_key(|stat| (stat.started_ticks, stat.number));
        if let Some(at) = found.iter().rposition(|member: &Member| member.stat.number == parent) {
            let members = own.iter().map(|stat| Member { stat: stat.clone(), depth: depth - 1 });
            found.splice(at + 1..at + 1, members);
        } else if depth > 0 {
            // The first process below the outer one is process 1 of the sandbox.
            found.extend(own.iter().map(|stat| Member { stat: stat.clone(), depth: 0 }));
        }
        open.extend(own.iter().map(|stat| (stat.number, depth + 1)));
    }
    found
}

/// The memory of the processes below this one, where shared pages are divided among their users (`Pss` of
/// proc_pid_smaps(5)). For a process that cannot be inspected, all its resident memory counts.
pub(crate) fn memory_bytes(outer: u32) -> u64 {
    let own = |number: i32| {
        let text = std::fs::read_to_string(format!("/proc/{number}/smaps_rollup")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
    };
    // SAFETY: no preconditions.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(0) as u64;
    let resident = |stat: &ProcessStat| stat.resident_pages * page_bytes;
    let bytes = |member: &Member| own(member.stat.number).unwrap_or_else(|| resident(&member.stat));
    below(outer).iter().map(bytes).sum()
}

/// Magic numbers of file systems that keep files in memory (statfs(2)).
const TMPFS_MAGIC: u64 = 0x0102_1994;
const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;

/// The size of deleted files on disks that processes below this one still have open.
pub(crate) fn deleted_bytes(outer: u32) -> u64 {
    let mut seen = HashSet::new();
    let mut bytes = 0;
    for member in below(outer) {
        let folder = format!("/proc/{}/fd", member.stat.number);
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            // Follows the link to the open file itself. Pipes and devices have no blocks.
            let Ok(facts) = std::fs::metadata(entry.path()) else { continue };
            if !facts.is_file() || facts.nlink() > 0 || !seen.insert((facts.dev(), facts.ino())) {
                continue;
            }
            let kind = rustix::fs::statfs(entry.path()).map_or(0, |facts| facts.f_type as u64);
            if !matches!(kind, TMPFS_MAGIC | HUGETLBFS_MAGIC) {
                bytes += facts.blocks() * 512;
            }
        }
    }
    bytes
}
