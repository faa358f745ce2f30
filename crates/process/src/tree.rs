//! Who runs below a process, as it is seen from outside of a sandbox.

use kilnyard_root::ProcessStat;
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;

/// A process of a tree.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) stat: ProcessStat,
    /// How far below the sandbox's own processes it is: their children are at 0.
    pub(crate) depth: usize,
}

/// The processes below this one, but for the sandbox's own, parents before children.
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
        // Numbers are given in order, so that those who began later come later.
        let mut own = children.remove(&parent).unwrap_or_default();
        own.sort_by_key(|stat| (stat.started_ticks, stat.number));
        if let Some(at) = found.iter().rposition(|member: &Member| member.stat.number == parent) {
            let members = own.iter().map(|stat| Member { stat: stat.clone(), depth: depth - 1 });
            found.splice(at + 1..at + 1, members);
        } else if depth > 0 {
            // The first below the outer process is process 1 of the sandbox.
            found.extend(own.iter().map(|stat| Member { stat: stat.clone(), depth: 0 }));
        }
        open.extend(own.iter().map(|stat| (stat.number, depth + 1)));
    }
    found
}

/// The memory of the processes below this one, each page counted once (`Pss` of proc_pid_smaps(5)). Of one that cannot be
/// looked at all that is resident counts.
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

/// File systems whose files are memory (statfs(2)).
const TMPFS_MAGIC: u64 = 0x0102_1994;
const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;

/// The bytes of files on disks that have no name any more, and that processes below this one have open.
pub(crate) fn deleted_bytes(outer: u32) -> u64 {
    let mut seen = HashSet::new();
    let mut bytes = 0;
    for member in below(outer) {
        let folder = format!("/proc/{}/fd", member.stat.number);
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            // What the link leads to, as the process has it open; a pipe or a device has no blocks.
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
