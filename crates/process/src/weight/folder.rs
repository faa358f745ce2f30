//! Folders and files of control groups.

use super::name;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Groups in groups are removed to this depth: Kilnyard makes two, and a build could make more in its own where
/// that belongs to the user who builds.
const DEPTH_MAX: u32 = 16;

/// Writes one value, at once, as the kernel takes it.
pub(super) fn write(file: &Path, value: impl ToString) -> io::Result<()> {
    let mut file = fs_err::OpenOptions::new().write(true).open(file)?;
    file.write_all(value.to_string().as_bytes())
}

/// Removes a group and all in it. It stays, with an error, as long as a process is in one of them.
pub(super) fn remove(folder: &Path) -> io::Result<()> {
    remove_below(folder, DEPTH_MAX)
}

fn remove_below(folder: &Path, depth: u32) -> io::Result<()> {
    if depth > 0 {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                // What stays makes removing this one fail as well, which is told.
                let _ = remove_below(&entry.path(), depth - 1);
            }
        }
    }
    match fs_err::remove_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes what those groups left that are of this owner and of a process that lives no more. Returns those that
/// still have processes.
pub(super) fn sweep(base: &Path, owner: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(base).into_iter().flatten().flatten();
    let names =
        entries.filter(|entry| entry.file_name().to_str().is_some_and(|name| name::is_left(name, owner)));
    names.map(|entry| entry.path()).filter(|left| remove(left).is_err()).collect()
}

/// The processes of a group; a process of another namespace, which has no number here, is 0.
pub(super) fn processes(folder: &Path) -> io::Result<Vec<u32>> {
    let text = fs_err::read_to_string(folder.join("cgroup.procs"))?;
    Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
}
