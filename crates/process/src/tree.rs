//! Who runs below a process: to name what hangs.

use std::collections::HashMap;

/// How many processes are named.
const NAMED_MAX: usize = 20;
/// How much of a command line is told.
const COMMAND_LINE_CHARS_MAX: usize = 200;

/// The processes below this one, but for the sandbox's own: state and command line of each.
pub(crate) fn below(outer: u32) -> Vec<String> {
    let all = descendants(outer);
    let named = all.iter().take(NAMED_MAX);
    named.map(|(number, state)| format!("{} [{}]", command_line(*number), words_of(state))).collect()
}

/// The memory of the processes below this one, each page counted once (`Pss` of proc_pid_smaps(5)). What cannot be
/// looked at counts nothing.
pub(crate) fn memory_bytes(outer: u32) -> u64 {
    let of = |number: u32| {
        let text = std::fs::read_to_string(format!("/proc/{number}/smaps_rollup")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    descendants(outer).iter().filter_map(|(number, _)| of(*number)).map(|kibibytes| kibibytes * 1024).sum()
}

/// Number and state of the processes below this one, but for the sandbox's own.
fn descendants(outer: u32) -> Vec<(u32, String)> {
    let mut children: HashMap<u32, Vec<(u32, String)>> = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let stat = std::fs::read(entry.path().join("stat")).unwrap_or_default();
        let stat = String::from_utf8_lossy(&stat).into_owned();
        let Some((_, rest)) = stat.rsplit_once(')') else { continue };
        let mut fields = rest.split_whitespace();
        let (Some(state), Some(parent)) = (fields.next(), fields.next().and_then(|p| p.parse().ok())) else {
            continue;
        };
        children.entry(parent).or_default().push((number, state.to_owned()));
    }
    let mut found = Vec::new();
    let mut open = vec![(outer, 0)];
    while let Some((parent, depth)) = open.pop() {
        for (number, state) in children.get(&parent).into_iter().flatten() {
            open.push((*number, depth + 1));
            // The first below the outer process is process 1 of the sandbox.
            if depth > 0 {
                found.push((*number, state.clone()));
            }
        }
    }
    found
}

fn command_line(number: u32) -> String {
    let line = std::fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line).replace('\0', " ");
    line.trim().chars().take(COMMAND_LINE_CHARS_MAX).collect()
}

/// The letter of a state in words (proc_pid_stat(5)).
fn words_of(state: &str) -> &'static str {
    match state {
        "R" => "running",
        "S" => "waiting",
        "D" => "waiting for a device",
        "T" | "t" => "stopped",
        "Z" => "ended, not waited for",
        _ => "in an unknown state",
    }
}
