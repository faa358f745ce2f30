//! What runs on this machine, as `/proc` tells it.

use std::path::Path;

/// Numbers and command lines of all processes of this machine.
pub fn all() -> Vec<(i32, String)> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            Some((number, String::from_utf8_lossy(&line).replace('\0', " ")))
        })
        .collect()
}

/// The parent of a process.
fn parent(number: i32) -> Option<i32> {
    let stat = std::fs::read(format!("/proc/{number}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat).into_owned();
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// All processes below one.
pub fn below(ancestor: i32) -> Vec<(i32, String)> {
    let is_below = |number: i32| {
        let mut at = number;
        while let Some(next) = parent(at).filter(|next| *next > 0) {
            if next == ancestor {
                return true;
            }
            at = next;
        }
        false
    };
    all().into_iter().filter(|(number, _)| is_below(*number)).collect()
}

/// Processes whose root or folder is in this one, or whose command line has this word.
pub fn of_yard(folder: &Path, word: &str) -> Vec<(i32, String)> {
    let is_in = |number: i32, link: &str| {
        std::fs::read_link(format!("/proc/{number}/{link}")).is_ok_and(|path| path.starts_with(folder))
    };
    let own = std::process::id() as i32;
    let found = all().into_iter().filter(|(number, line)| {
        *number != own && (is_in(*number, "cwd") || is_in(*number, "root") || line.contains(word))
    });
    found.collect()
}

/// Mounts of this machine's own namespace that name the folder.
pub fn mounts(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let folder = folder.display().to_string();
    text.lines().filter(|line| line.contains(&folder)).map(str::to_owned).collect()
}

/// Sends a signal to a process that may be gone.
pub fn kill(number: i32, signal: i32) {
    // SAFETY: no memory is touched.
    unsafe { libc::kill(number, signal) };
}
