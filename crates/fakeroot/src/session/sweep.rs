//! Removes what sessions of killed launchers leave behind.

use super::files::{GATE_ENDING, LIBRARY, PREFIX, SOCKET, lock};
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Removes from a folder the files of sessions whose launchers are dead. Files that cannot be removed belong to
/// other users, and stay.
pub fn sweep(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let is_left_over = match name.to_str().and_then(part_of) {
            Some(Part::Locked) => is_dead(&path),
            Some(Part::Companion) => is_old(&path) && !path.with_extension(LIBRARY).exists(),
            None => false,
        };
        if is_left_over {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The part of a session that a file name identifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The session file, or the library. The launcher holds a lock on it.
    Locked,
    /// The socket or the gate, which goes with the locked file of the same name.
    Companion,
}

fn part_of(name: &str) -> Option<Part> {
    let (random, ending) = name.strip_prefix(PREFIX)?.split_once('.')?;
    match ending {
        _ if random.len() != 16 || !random.bytes().all(|byte| byte.is_ascii_hexdigit()) => None,
        LIBRARY => Some(Part::Locked),
        SOCKET | GATE_ENDING => Some(Part::Companion),
        _ => None,
    }
}

/// Whether no process holds the lock of a file. Returns `false` for anything but a regular file, such as a pipe, and
/// does not block on it.
fn is_dead(path: &Path) -> bool {
    let mut options = File::options();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path);
    file.is_ok_and(|file| {
        file.metadata().is_ok_and(|facts| facts.is_file())
            && lock(&file, libc::LOCK_EX | libc::LOCK_NB).is_ok()
    }) && is_old(path)
}

/// Whether a file is so old that a living launcher would have locked it: a launcher locks its files a moment after it
/// creates them.
fn is_old(path: &Path) -> bool {
    const MOMENT_SECONDS: u64 = 10;
    let facts = std::fs::symlink_metadata(path);
    let age = facts.and_then(|facts| facts.modified()).map(|time| time.elapsed());
    matches!(age, Ok(Ok(age)) if age.as_secs() >= MOMENT_SECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_identify_the_files_of_a_session() {
        let random = "0123456789abcdef";
        let name = |begin: &str, end: &str| format!("{begin}{random}{end}");
        assert_eq!(part_of(&name(PREFIX, ".so")), Some(Part::Locked));
        for end in [".socket", ".gate"] {
            assert_eq!(part_of(&name(PREFIX, end)), Some(Part::Companion), "{end}");
        }
        for other in [name(PREFIX, ""), name(PREFIX, ".so.1"), name("x", ".so"), format!("{PREFIX}12.socket")]
        {
            assert_eq!(part_of(&other), None, "{other}");
        }
    }
}
