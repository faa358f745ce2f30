//! The files of a session: their names, their folders, and how they are created.

use super::SessionError;
use crate::PRELOAD;
use crate::shared::layout::{self, WINDOW_BYTES};
use crate::shared::ownership::Unknown;
use rand::RngCore;
use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The prefix of all files of a session. Some programs search LD_PRELOAD for "libfakeroot".
pub const PREFIX: &str = "kilnyard-libfakeroot-";
/// The extension of a session file and of a library.
pub const LIBRARY: &str = "so";
/// The extension of the gate.
pub const GATE_ENDING: &str = "gate";
/// The extension of the socket.
pub const SOCKET: &str = "socket";

/// The folders to try for a session file: in memory first, then those for temporary files.
pub fn table_folders(temporary: Option<&Path>) -> Vec<PathBuf> {
    let memory = [Path::new("/dev/shm")].into_iter();
    let disk = [Path::new("/tmp"), Path::new("/var/tmp")];
    memory.chain(temporary).chain(disk).map(Path::to_path_buf).collect()
}

/// The folders to try for a library: those for temporary files first, then in memory.
pub fn library_folders(temporary: Option<&Path>) -> Vec<PathBuf> {
    let others = ["/tmp", "/var/tmp", "/dev/shm"].map(Path::new);
    temporary.into_iter().chain(others).map(Path::to_path_buf).collect()
}

/// Tries `make` in each folder until it succeeds.
pub fn first<T>(folders: &[PathBuf], make: impl Fn(&Path) -> io::Result<T>) -> Result<T, SessionError> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for folder in folders {
        match make(folder) {
            Ok(made) => return Ok(made),
            Err(error) => last = error,
        }
    }
    Err(SessionError::NoFolder(folders.to_vec(), last))
}

/// Creates a session's file: the library, followed by the table.
pub fn make_table(path: PathBuf, unknown: Unknown) -> io::Result<(PathBuf, File)> {
    make_file(path, |file| {
        write_library(file)?;
        let nearer = lengthen(file)?;
        // SAFETY: a descriptor of ours. Memory is allocated now, so that no process is killed for lack of it later.
        check(unsafe { libc::fallocate(file.as_raw_fd(), 0, layout::FILE_AT as i64, WINDOW_BYTES as i64) })?;
        let mut header = [0u64; layout::HEADER_NEARER + 1];
        header[layout::HEADER_MAGIC] = layout::MAGIC;
        header[layout::HEADER_NODES_READY] = layout::NODES_NEAR as u64;
        header[layout::HEADER_UNKNOWN] = u64::from(unknown == Unknown::Real);
        header[layout::HEADER_NEARER] = u64::from(nearer);
        file.write_all_at(&header.map(u64::to_ne_bytes).concat(), layout::FILE_AT as u64)
    })
}

/// Extends a session's file to its full length: the largest that the file size limit (`ulimit -f`) and the file
/// system allow. Returns `nearer`, the number of bits by which its places are closer together.
fn lengthen(file: &File) -> io::Result<u32> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit outlives the call.
    check(unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) })?;
    let bytes_max = if limit.rlim_cur == libc::RLIM_INFINITY { u64::MAX } else { limit.rlim_cur };
    let mut last = io::Error::other(format!(
        "the file size limit (ulimit -f) is {bytes_max} bytes, but a session needs {}",
        layout::file_bytes(layout::NEARER_MAX)
    ));
    for nearer in 0..=layout::NEARER_MAX {
        let bytes = layout::file_bytes(nearer) as u64;
        // The kernel kills a process that exceeds its limit.
        if bytes > bytes_max {
            continue;
        }
        match file.set_len(bytes) {
            Ok(()) => return Ok(nearer),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Creates a library without a table, for the session of this path.
pub fn make_library(path: PathBuf, session: &Path) -> io::Result<(PathBuf, File)> {
    if !is_for_preload(&path) {
        return Err(io::Error::other("LD_PRELOAD cannot contain a path with a space or a colon"));
    }
    if path == session {
        return Err(io::Error::other("programs cannot be mapped from this folder"));
    }
    make_file(path, |file| {
        write_library(file)?;
        file.set_len((layout::FILE_AT + WINDOW_BYTES) as u64)?;
        View::of(file)?;
        file.set_permissions(PermissionsExt::from_mode(0o644))
    })
}

/// Creates a file that only this user can access, and locks it.
fn make_file(path: PathBuf, fill: impl FnOnce(&File) -> io::Result<()>) -> io::Result<(PathBuf, File)> {
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    match lock(&file, libc::LOCK_EX).and_then(|()| fill(&file)) {
        Ok(()) => Ok((path, file)),
        Err(error) => {
            let _ = fs_err::remove_file(&path);
            Err(error)
        }
    }
}

/// Writes the library to the start of a file, without the unused space before the table.
fn write_library(file: &File) -> io::Result<()> {
    let used = &PRELOAD[..layout::FILE_AT];
    let length = used.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    file.write_all_at(&used[..length], 0)
}

/// Replaces the content of a file atomically: the old content stays until the new text is completely written to a
/// file next to it, even if the disk is full or this process is killed, which leaves a file `.part`. Nothing is
/// flushed, because states are saved often.
///
/// Some files are written in place instead. Either they have nothing to lose, or other processes refer to them by
/// more than their name: an empty file (such as a temporary file that a process has open), a file that is not
/// regular (a pipe), and one with several links. Others cannot be replaced, because of their folder's permissions
/// or because they are mounted.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let before = match std::fs::symlink_metadata(&path) {
        Ok(facts) if facts.is_file() && facts.len() > 0 && facts.nlink() == 1 => {
            // Without permission to write to the file, do not replace it either.
            File::options().write(true).open(&path)?;
            Some(facts)
        }
        Ok(_) => return std::fs::write(&path, text),
        Err(_) => None,
    };
    match replace_by_another(&path, before.as_ref(), text) {
        Err(error) if takes_no_other(&error) => std::fs::write(&path, text),
        replaced => replaced,
    }
}

fn replace_by_another(path: &Path, before: Option<&Metadata>, text: &str) -> io::Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".{:016x}.part", rand::rngs::OsRng.next_u64()));
    let part = PathBuf::from(part);
    // While the new file is written, no user without access to the old one may read it.
    let mode = before.map_or(0o666, |before| before.mode() & 0o600);
    let file = File::options().write(true).create_new(true).mode(mode).open(&part)?;
    let filled = (&file).write_all(text.as_bytes()).and_then(|()| {
        if let Some(before) = before {
            // A file keeps its owner even if root saves it.
            let _ = std::os::unix::fs::fchown(&file, Some(before.uid()), Some(before.gid()));
            file.set_permissions(before.permissions())?;
        }
        std::fs::rename(&part, path)
    });
    filled.inspect_err(|_| drop(std::fs::remove_file(&part)))
}

/// Whether an error means that a file can be written to but not replaced. A full disk does not mean that.
fn takes_no_other(error: &io::Error) -> bool {
    use io::ErrorKind::{
        CrossesDevices, InvalidFilename, PermissionDenied, ReadOnlyFilesystem, ResourceBusy,
    };
    matches!(
        error.kind(),
        CrossesDevices | InvalidFilename | PermissionDenied | ReadOnlyFilesystem | ResourceBusy
    )
}

/// Whether LD_PRELOAD can contain this path.
pub fn is_for_preload(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':'))
}

/// Creates a program that every user may run.
pub fn make_program(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).mode(0o500).open(path)?;
    file.write_all(bytes).inspect_err(|_| drop(fs_err::remove_file(path)))?;
    // Programs of the session that appear to run as another user are still this user.
    file.set_permissions(PermissionsExt::from_mode(0o555))
}

/// The table's first window, mapped as the dynamic linker maps it.
pub struct View(*mut libc::c_void);

impl View {
    /// Maps the window. Fails if programs cannot be mapped from the file.
    pub fn of(file: &File) -> io::Result<View> {
        let (how, offset) = (libc::PROT_READ | libc::PROT_EXEC, layout::FILE_AT as i64);
        // SAFETY: a new mapping, to which no other pointer exists.
        let address = unsafe {
            libc::mmap(std::ptr::null_mut(), WINDOW_BYTES, how, libc::MAP_PRIVATE, file.as_raw_fd(), offset)
        };
        if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(View(address)) }
    }

    /// The current value of a word.
    pub fn word(&self, word: usize) -> u64 {
        assert!(word < layout::WINDOW_WORDS);
        // SAFETY: the word is in the mapping; other processes may write to it at the same time.
        unsafe { self.0.cast::<u64>().add(word).read_volatile() }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: our own mapping.
        unsafe { libc::munmap(self.0, WINDOW_BYTES) };
    }
}

/// Locks a file; the kernel releases the lock when this process dies.
pub fn lock(file: &File, how: libc::c_int) -> io::Result<()> {
    // SAFETY: a descriptor of ours.
    check(unsafe { libc::flock(file.as_raw_fd(), how) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The linker script repeats a number of the layout.
    #[test]
    fn the_library_has_room_for_the_window_and_nothing_behind_it() {
        let number = |at: usize| u64::from_le_bytes(PRELOAD[at..at + 8].try_into().unwrap());
        let count = usize::from(PRELOAD[56]);
        // Program headers behind the ELF header: type, offset, address, bytes in the file, bytes in memory.
        let headers = (0..count).map(|header| 64 + 56 * header);
        let loaded: Vec<usize> = headers.filter(|at| PRELOAD[*at] == 1).collect();
        let last = loaded[loaded.len() - 1];
        let [offset, address, in_file, in_memory] = [8, 16, 32, 40].map(|field| number(last + field));
        assert_eq!((address, in_memory), (offset, in_file));
        assert_eq!(offset + in_file, (layout::FILE_AT + WINDOW_BYTES) as u64);
        let room = &PRELOAD[layout::FILE_AT..layout::FILE_AT + WINDOW_BYTES];
        assert!(room.iter().all(|byte| *byte == 0));
    }
}
