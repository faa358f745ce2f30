//! Who runs below a process, as it is seen from outside of a sandbox.

use kilnyard_root::ProcessStat;
use std::collections::HashMap;

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
