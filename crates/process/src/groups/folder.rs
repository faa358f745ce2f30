//! Operations on the folders and files of control groups.

use super::name;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// How deep nested groups are removed. Kilnyard creates three levels, and a build could create more in its own group
/// if the building user owns that.
const DEPTH_MAX: u32 = 16;

/// Writes one value in a single write, as the kernel requires.
pub(crate) fn write(file: &Path, value: impl ToString) -> io::Result<()> {
    let mut file = fs_err::OpenOptions::new().write(true).open(file)?;
    file.write_all(value.to_string().as_bytes())
}

/// Moves a process into a group.
pub(crate) fn enter(folder: &Path, process: u32) -> io::Result<()> {
    write(&folder.join("cgroup.procs"), process)
}

/// Kills all processes of a cgroup v2 and of its descendants together (`cgroup.kill`, since Linux 5.14).
pub(crate) fn kill(folder: &Path) -> io::Result<()> {
    write(&folder.join("cgroup.kill"), 1)
}

/// Reads a number from a file with lines such as `usage_usec 123`.
pub(crate) fn count(file: &Path, name: &str) -> Option<u64> {
    parse_count(&std::fs::read_to_string(file).ok()?, name)
}

fn parse_count(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?.trim().parse().ok()
}

/// Removes a group with all its descendants. Fails, and leaves the group, while one of them has a process.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    remove_below(folder, DEPTH_MAX)
}

fn remove_below(folder: &Path, depth: u32) -> io::Result<()> {
    if depth > 0 {
        for group in groups_in(folder) {
            // If a descendant stays, removing this group fails too, and that error is returned.
            let _ = remove_below(&group, depth - 1);
        }
    }
    match fs_err::remove_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn groups_in(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}

/// Removes the groups of this owner whose creator is gone, and first kills the processes of builds in them where the
/// kernel supports that. Returns the groups that still have processes.
pub(crate) fn sweep(base: &Path, owner: &str) -> Vec<PathBuf> {
    let is_stale = |folder: &PathBuf| {
        folder.file_name().and_then(|name| name.to_str()).is_some_and(|name| name::is_stale(name, owner))
    };
    let end = |left: &PathBuf| {
        end_builds(left);
        remove(left).is_err()
    };
    groups_in(base).filter(is_stale).filter(end).collect()
}

/// Kills the builds in an abandoned group. Kilnyard's own subgroup is spared: it may contain processes that Kilnyard
/// started for the user, such as a pager.
fn end_builds(left: &Path) {
    let supervisor = left.join(name::SUPERVISOR);
    if !supervisor.is_dir() {
        let _ = kill(left);
        return;
    }
    sweep(&supervisor, name::COMMANDS);
    for group in groups_in(left).filter(|group| *group != supervisor) {
        let _ = kill(&group);
    }
}

/// The processes of a group. A process of another pid namespace, which has no id here, appears as 0.
pub(crate) fn processes(folder: &Path) -> io::Result<Vec<u32>> {
    let text = fs_err::read_to_string(folder.join("cgroup.procs"))?;
    Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_count_is_found_by_its_whole_name() {
        assert_eq!(parse_count("oom_kill_x 3\noom_kill 7\n", "oom_kill"), Some(7));
        assert_eq!(parse_count("populated 1\nfrozen 0\n", "frozen"), Some(0));
        for text in ["", "oom_kill\n", "oom_kill x", "oom_kill -1", "x oom_kill 1"] {
            assert_eq!(parse_count(text, "oom_kill"), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_has_a_count_or_none(text in "([a-z_]{0,9} ?[0-9]{0,21}\n?){0,4}|\\PC{0,40}", count: u64) {
            let _ = parse_count(&text, "oom_kill");
            prop_assert_eq!(parse_count(&format!("oom 1\noom_kill {count}\n"), "oom_kill"), Some(count));
        }
    }
}
