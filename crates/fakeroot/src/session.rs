//! Session files: made, found dead, removed.
//!
//! A session is a file `kilnyard-fakeroot-RANDOM` in the first folder of a list that takes it, and a library
//! `libfakeroot-kilnyard-RANDOM.so` in the first one that programs may be mapped from. Where programs without the
//! library are answered, there are a socket beside the file and the gate beside the library, with the endings
//! `.socket` and `.gate`. The launcher holds a lock on the session file, which the kernel gives up when it dies, so
//! that the next one knows whose are left over.
//!
//! For programs in a build root all of it is in one folder, which is bound into the root and seen there at another
//! path. The session lasts as long as its [`Session`], over as many commands as are started meanwhile.

use crate::shared::kernel;
use crate::shared::layout::{self, WORD_BYTES};
use crate::shared::mapping::Mapping;
use crate::shared::memory::Memory;
use crate::shared::ownership::Unknown;
use crate::shared::table::Table;
use crate::supervisor::Supervisor;
use crate::{GATE, PRELOAD, state};
use rand::RngCore;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What session files begin with.
const SESSION: &str = "kilnyard-fakeroot-";
/// What libraries begin with. Programs look for this word in LD_PRELOAD.
const LIBRARY: &str = "libfakeroot-kilnyard-";

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// No folder takes the file.
    #[error("make a file of the session in {}", .0.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(" or "))]
    NoFolder(Vec<PathBuf>, #[source] io::Error),
    /// The file cannot be mapped.
    #[error("map the session {0}")]
    Map(PathBuf, #[source] io::Error),
    /// A file of a state cannot be read or written.
    #[error("{0} the state {1}")]
    File(&'static str, PathBuf, #[source] io::Error),
    /// A state is none.
    #[error("load the state {0}")]
    State(PathBuf, #[source] state::StateError),
    /// A state has no room.
    #[error("load the state {0}: there is no memory for it")]
    Full(PathBuf),
}

/// A session of this process, which removes it when dropped.
#[derive(Debug)]
pub struct Session {
    path: PathBuf,
    library: PathBuf,
    /// Where programs see the folder of all files, if that is another place.
    seen_at: Option<PathBuf>,
    table: Arc<Table<Mapping>>,
    /// Answers programs without the library. It goes before the files do.
    supervisor: Option<Supervisor>,
    /// Holds the lock.
    _file: File,
}

impl Session {
    /// Makes a session: the table in the first of the folders that takes it, the library in the first that lets it
    /// be mapped as a program. What killed launchers left there is removed.
    pub fn make(
        table_folders: &[PathBuf],
        library_folders: &[PathBuf],
        unknown: Unknown,
    ) -> Result<Session, SessionError> {
        for folder in table_folders.iter().chain(library_folders) {
            sweep(folder);
        }
        let name = format!("{:016x}", rand::rngs::OsRng.next_u64());
        let (path, file) = first(table_folders, |folder| make_table(folder, &name, unknown))?;
        let library = first(library_folders, |folder| make_library(folder, &name));
        let library = library.inspect_err(|_| drop(fs_err::remove_file(&path)))?;
        let table = open(&path).map_err(|error| SessionError::Map(path.clone(), error))?;
        table.memory().store(layout::HEADER_UNKNOWN, u64::from(unknown == Unknown::Real), Ordering::Release);
        let table = Arc::new(table);
        Ok(Session { path, library, seen_at: None, table, supervisor: None, _file: file })
    }

    /// Makes a session for programs in a build root: all files are made in one folder, from which programs may be
    /// mapped, and which whoever makes the root binds into it, to be read and written, at `seen_at`.
    pub fn make_for_root(folder: &Path, seen_at: &Path, unknown: Unknown) -> Result<Session, SessionError> {
        let folders = [folder.to_path_buf()];
        let mut session = Session::make(&folders, &folders, unknown)?;
        session.seen_at = Some(seen_at.to_path_buf());
        Ok(session)
    }

    /// The session's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What programs of the session have in their environments; `preload` is what they would have in LD_PRELOAD
    /// without it.
    pub fn environment(&self, preload: Option<&OsStr>) -> Vec<(&'static str, OsString)> {
        let mut libraries = self.seen(&self.library).into_os_string();
        if let Some(others) = preload.filter(|others| !others.is_empty()) {
            libraries.push(":");
            libraries.push(others);
        }
        let mode = match self.table.unknown() {
            Unknown::Real => "unknown-is-real",
            Unknown::Root => "unknown-is-root",
        };
        vec![
            ("FAKEROOTKEY", self.seen(&self.path).into_os_string()),
            ("LD_PRELOAD", libraries),
            ("FAKED_MODE", mode.into()),
        ]
    }

    /// Where programs see one of the files.
    fn seen(&self, path: &Path) -> PathBuf {
        match (&self.seen_at, path.file_name()) {
            (Some(folder), Some(name)) => folder.join(name),
            _ => path.to_path_buf(),
        }
    }

    /// Adds what was saved in a file.
    pub fn load(&self, path: &Path) -> Result<(), SessionError> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| SessionError::File("load", path.to_owned(), error))?;
        let state = state::parse(&text).map_err(|error| SessionError::State(path.to_owned(), error))?;
        state::restore(&state, &self.table).map_err(|_| SessionError::Full(path.to_owned()))
    }

    /// Saves what is known into a file.
    pub fn save(&self, path: &Path) -> Result<(), SessionError> {
        let text = state::format(&state::of(&self.table));
        std::fs::write(path, text).map_err(|error| SessionError::File("save", path.to_owned(), error))
    }

    /// The table.
    pub fn table(&self) -> &Table<Mapping> {
        &self.table
    }

    /// Answers programs without the library from now on, as long as this lives. What people should know of such a
    /// program is told, once for each. What they ask for is done with this process's rights, so root does it for nobody in
    /// a build root.
    pub fn answer(&mut self, tell: fn(&str)) -> io::Result<()> {
        if self.seen_at.is_some() && kernel::real_effective_user() == 0 {
            return Err(io::Error::other("for programs of a build root nothing is done with root's rights"));
        }
        let seen = self.seen(&self.gate());
        let text = seen.as_os_str().as_bytes();
        if text.len() >= layout::GATE_BYTES_MAX {
            return Err(io::Error::other("the path of the gate is too long"));
        }
        make_program(&self.gate(), GATE)?;
        self.supervisor = Some(Supervisor::start(&self.socket(), self.table.clone(), tell)?);
        for (at, bytes) in text.chunks(WORD_BYTES).enumerate() {
            let mut word = [0; WORD_BYTES];
            word[..bytes.len()].copy_from_slice(bytes);
            self.table.memory().store(layout::HEADER_GATE + at, u64::from_ne_bytes(word), Ordering::Relaxed);
        }
        self.table.memory().store(layout::HEADER_ANSWERED, 1, Ordering::Release);
        Ok(())
    }

    /// The program by which programs without the library are started, and where it knocks, as programs see them;
    /// none if they are not answered.
    pub fn way_in(&self) -> Option<(PathBuf, PathBuf)> {
        self.supervisor.is_some().then(|| (self.seen(&self.gate()), self.seen(&self.socket())))
    }

    fn gate(&self) -> PathBuf {
        self.library.with_extension("gate")
    }

    fn socket(&self) -> PathBuf {
        self.path.with_extension("socket")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.supervisor = None;
        // Whoever swept it before has done the same; the session file goes last, as it tells of the others.
        for path in [self.socket(), self.gate(), self.library.clone(), self.path.clone()] {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Opens the table of a session. Its path stays in memory for good, as the table may need it at any time.
pub fn open(path: &Path) -> io::Result<Table<Mapping>> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mapping = Mapping::closed();
    mapping.open(Box::leak(path.into_boxed_c_str())).map_err(io::Error::from_raw_os_error)?;
    Ok(Table::new(mapping))
}

/// The first folder in which something can be made.
fn first<T>(folders: &[PathBuf], make: impl Fn(&Path) -> io::Result<T>) -> Result<T, SessionError> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for folder in folders {
        match make(folder) {
            Ok(made) => return Ok(made),
            Err(error) => last = error,
        }
    }
    Err(SessionError::NoFolder(folders.to_vec(), last))
}

fn make_table(folder: &Path, name: &str, unknown: Unknown) -> io::Result<(PathBuf, File)> {
    let path = std::path::absolute(folder.join(format!("{SESSION}{name}")))?;
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    let made = (|| {
        lock(&file, libc::LOCK_EX)?;
        let bytes = layout::WINDOW_WORDS * WORD_BYTES;
        // SAFETY: a descriptor of ours. Memory is given now, so that no process is killed for its lack later.
        check(unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes as i64) })?;
        let mut header = [0u64; 8];
        header[layout::HEADER_MAGIC] = layout::MAGIC;
        header[layout::HEADER_NODES_READY] = layout::NODES_NEAR as u64;
        header[layout::HEADER_UNKNOWN] = u64::from(unknown == Unknown::Real);
        (&file).write_all(&header.map(u64::to_ne_bytes).concat())
    })();
    match made {
        Ok(()) => Ok((path, file)),
        Err(error) => {
            let _ = fs_err::remove_file(&path);
            Err(error)
        }
    }
}

fn make_library(folder: &Path, name: &str) -> io::Result<PathBuf> {
    let path = std::path::absolute(folder.join(format!("{LIBRARY}{name}.so")))?;
    let text = path.as_os_str().as_bytes();
    if text.iter().any(|byte| matches!(byte, b' ' | b':')) {
        return Err(io::Error::other("LD_PRELOAD takes no path with a space or a colon"));
    }
    if is_without_programs(folder)? {
        return Err(io::Error::other("its file system is mounted with noexec"));
    }
    make_program(&path, PRELOAD)?;
    Ok(path)
}

/// What is written of a program at once, or left out.
const PIECE_BYTES: usize = 32 << 10;

fn make_program(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = File::options().write(true).create_new(true).mode(0o500).open(path)?;
    // The library's room is zeros, which a hole of the file is as well.
    let pieces = (0..).step_by(PIECE_BYTES).zip(bytes.chunks(PIECE_BYTES));
    let mut written = pieces.filter(|(_, piece)| piece.iter().any(|byte| *byte != 0));
    let written = written.try_for_each(|(at, piece)| file.write_all_at(piece, at as u64));
    let written = written.and_then(|()| file.set_len(bytes.len() as u64));
    written.inspect_err(|_| drop(fs_err::remove_file(path)))?;
    // Programs of the session that believe to be somebody else are still this user.
    file.set_permissions(PermissionsExt::from_mode(0o555))
}

fn is_without_programs(folder: &Path) -> io::Result<bool> {
    let path = CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: plain numbers, for which zeros are valid.
    let mut facts: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a string and a place of ours.
    check(unsafe { libc::statvfs(path.as_ptr(), &raw mut facts) })?;
    Ok(facts.f_flag & libc::ST_NOEXEC != 0)
}

/// Removes what sessions whose launchers are dead have left in a folder. What cannot be removed belongs to somebody
/// else.
fn sweep(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let is_left_over = match part_of(name) {
            Some(Part::Session) => is_dead(&entry.path()),
            Some(Part::Other(random)) => is_old(&entry.path()) && !has_session(folder, random),
            None => false,
        };
        if is_left_over {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// What a file's name says that it is of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part<'a> {
    /// The file itself.
    Session,
    /// Something else of the session of this name.
    Other(&'a str),
}

fn part_of(name: &str) -> Option<Part<'_>> {
    let of_session = |rest: &'_ str| rest.len() == 16 && rest.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (rest, is_library) = match name.strip_prefix(LIBRARY) {
        Some(rest) => (rest, true),
        None => (name.strip_prefix(SESSION)?, false),
    };
    let (random, ending) = rest.split_once('.').unwrap_or((rest, ""));
    match (is_library, ending) {
        _ if !of_session(random) => None,
        (false, "") => Some(Part::Session),
        (false, "socket") | (true, "so" | "gate") => Some(Part::Other(random)),
        _ => None,
    }
}

/// Whether nobody holds the lock of a session file.
fn is_dead(path: &Path) -> bool {
    let file = File::options().read(true).write(true).open(path);
    file.is_ok_and(|file| lock(&file, libc::LOCK_EX | libc::LOCK_NB).is_ok()) && is_old(path)
}

/// Whether the session of a library, a gate or a socket is there.
fn has_session(folder: &Path, random: &str) -> bool {
    let mut folders = table_folders(Some(folder)).into_iter();
    folders.any(|folder| folder.join(format!("{SESSION}{random}")).exists())
}

/// Between making a file and locking it there is a moment.
fn is_old(path: &Path) -> bool {
    const MOMENT_SECONDS: u64 = 10;
    let facts = std::fs::symlink_metadata(path);
    let age = facts.and_then(|facts| facts.modified()).map(|time| time.elapsed());
    matches!(age, Ok(Ok(age)) if age.as_secs() >= MOMENT_SECONDS)
}

/// Where sessions are made: in memory if there is such a place, else among temporary files.
pub fn table_folders(temporary: Option<&Path>) -> Vec<PathBuf> {
    let memory = [Path::new("/dev/shm")].into_iter();
    let disk = [Path::new("/tmp"), Path::new("/var/tmp")];
    memory.chain(temporary).chain(disk).map(Path::to_path_buf).collect()
}

/// Where libraries are put: among temporary files, else in memory.
pub fn library_folders(temporary: Option<&Path>) -> Vec<PathBuf> {
    let others = ["/tmp", "/var/tmp", "/dev/shm"].map(Path::new);
    temporary.into_iter().chain(others).map(Path::to_path_buf).collect()
}

fn lock(file: &File, how: libc::c_int) -> io::Result<()> {
    // SAFETY: a descriptor of ours.
    check(unsafe { libc::flock(file.as_raw_fd(), how) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_is_of_a_session() {
        let random = "0123456789abcdef";
        let name = |begin: &str, end: &str| format!("{begin}{random}{end}");
        assert_eq!(part_of(&name(SESSION, "")), Some(Part::Session));
        for (begin, end) in [(SESSION, ".socket"), (LIBRARY, ".so"), (LIBRARY, ".gate")] {
            assert_eq!(part_of(&name(begin, end)), Some(Part::Other(random)), "{begin}{end}");
        }
        for other in
            [name(SESSION, ".so"), name(LIBRARY, ""), name("x", ".so"), format!("{SESSION}12.socket")]
        {
            assert_eq!(part_of(&other), None, "{other}");
        }
    }
}
