//! Reads the process tree from `/proc`: parents, children and start times.

use std::collections::HashMap;

/// One process, from its `stat` file (proc_pid_stat(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) parent: u32,
    /// Start time in clock ticks since boot. Together with the number, it identifies a process until the machine
    /// reboots.
    pub(crate) started: u64,
    /// A zombie: it has ended and has not been waited for.
    pub(crate) is_dead: bool,
}

impl Process {
    /// Reads a process by number; absent if there is none.
    pub(crate) fn of(number: u32) -> Option<Process> {
        let stat = std::fs::read(format!("/proc/{number}/stat")).ok()?;
        Process::from(&String::from_utf8_lossy(&stat))
    }

    fn from(stat: &str) -> Option<Process> {
        // The name may contain anything, brackets and blanks too; only numbers and the state follow it.
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        let started = fields.nth(17)?.parse().ok()?;
        Some(Process { parent, started, is_dead: matches!(state, "Z" | "X" | "x") })
    }
}

/// All living processes, approximately: processes come and go while `/proc` is read.
pub(crate) struct Processes {
    children: HashMap<u32, Vec<u32>>,
    started: HashMap<u32, u64>,
}

impl Processes {
    pub(crate) fn read() -> Processes {
        let mut seen = Processes { children: HashMap::new(), started: HashMap::new() };
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let number = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
            let Some((number, process)) = number.and_then(|number| Some((number, Process::of(number)?)))
            else {
                continue;
            };
            if !process.is_dead {
                seen.children.entry(process.parent).or_default().push(number);
                seen.started.insert(number, process.started);
            }
        }
        seen
    }

    /// Whether this process still exists; the start time excludes a reused number.
    pub(crate) fn has(&self, number: u32, started: u64) -> bool {
        self.started.get(&number) == Some(&started)
    }

    /// A process and all its descendants.
    pub(crate) fn tree(&self, top: u32) -> Vec<u32> {
        let mut found = vec![top];
        let mut next = 0;
        while let Some(parent) = found.get(next) {
            let children = self.children.get(parent).cloned().unwrap_or_default();
            // Numbers reused while `/proc` was read must not form a cycle.
            let fresh: Vec<u32> = children.into_iter().filter(|child| !found.contains(child)).collect();
            found.extend(fresh);
            next += 1;
        }
        found
    }
}

/// The threads of a process, each of which has its own nice level (sched(7)).
pub(crate) fn threads(process: u32) -> Vec<u32> {
    let entries = std::fs::read_dir(format!("/proc/{process}/task"));
    let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_of_stat_is_read_whatever_the_name_holds() {
        let rest = "S 7 5 5 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 1 0 987654 8192 100";
        let process = Process { parent: 7, started: 987_654, is_dead: false };
        for name in ["sh", "a) S 1", "((", ""] {
            assert_eq!(Process::from(&format!("42 ({name}) {rest}\n")), Some(process), "{name}");
        }
        assert!(Process::from("42 (sh) Z 1 5 5 0 -1 4 1 0 0 0 1 2 0 0 20 0 1 0 9").unwrap().is_dead);
        assert_eq!(Process::from("42 (sh) S 7 5"), None);
        assert_eq!(Process::from("42 (sh) S -7 5 5 0 -1 4 1 0 0 0 1 2 0 0 20 0 1 0 9"), None);
        assert_eq!(Process::from(""), None);
    }

    #[test]
    fn this_process_is_below_its_parent() {
        let (own, parent) = (std::process::id(), std::os::unix::process::parent_id());
        let seen = Processes::read();
        let process = Process::of(own).unwrap();
        assert_eq!(process.parent, parent);
        assert!(seen.has(own, process.started) && !seen.has(own, process.started + 1));
        assert!(seen.tree(parent).contains(&own));
        assert!(threads(own).contains(&own));
    }

    #[test]
    fn a_cycle_ends() {
        let children = HashMap::from([(1, vec![2]), (2, vec![3, 1])]);
        assert_eq!(Processes { children, started: HashMap::new() }.tree(1), [1, 2, 3]);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "[0-9]{0,3} ?\\(?[()a ]{0,5}\\)?[ A-Z0-9-]{0,60}|\\PC{0,40}") {
            let _ = Process::from(&text);
        }
    }
}
