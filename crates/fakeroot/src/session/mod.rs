//! Session files: made, found dead, removed.
//!
//! A session is a file `kilnyard-libfakeroot-RANDOM.so` in the first folder of a list that takes it: the preload library with
//! the table behind it. Where programs may not be mapped from there, or do not see there what others write, the
//! library is a file of the same name in another folder. Where programs without the library are answered, there are a
//! socket beside the one and the gate beside the other, with the endings `.socket` and `.gate`. The launcher holds a
//! lock on the files, which the kernel gives up when it dies, so that the next one knows whose are left over.
//!
//! For programs in a build root all of it is in one folder, which is bound into the root and seen there at another
//! path. The session lasts as long as its [`Session`], over as many commands as are started meanwhile.

use crate::shared::kernel;
use crate::shared::layout::{self, WINDOW_BYTES, WORD_BYTES};
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

/// What all files of a session begin with. Programs look for "libfakeroot" in LD_PRELOAD.
const PREFIX: &str = "kilnyard-libfakeroot-";
/// How a session file and a library end.
const LIBRARY: &str = "so";
/// How the gate ends.
const GATE_ENDING: &str = "gate";
/// How the socket ends.
const SOCKET: &str = "socket";

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
    /// They hold the locks.
    files: Vec<File>,
}

impl Session {
    /// Makes a session: the table in the first of the folders that takes it, the library in the first that lets it
    /// be mapped as a program, if not in the same file. What killed launchers left there is removed.
    pub fn make(
        table_folders: &[PathBuf],
        library_folders: &[PathBuf],
        unknown: Unknown,
    ) -> Result<Session, SessionError> {
        Session::make_seen_at(table_folders, library_folders, None, unknown)
    }

    /// Makes a session for programs in a build root: all files are made in one folder, from which programs may be
    /// mapped, and which whoever makes the root binds into it, to be read and written, at `seen_at`.
    pub fn make_for_root(folder: &Path, seen_at: &Path, unknown: Unknown) -> Result<Session, SessionError> {
        let folders = [folder.to_path_buf()];
        Session::make_seen_at(&folders, &folders, Some(seen_at.to_path_buf()), unknown)
    }

    fn make_seen_at(
        table_folders: &[PathBuf],
        library_folders: &[PathBuf],
        seen_at: Option<PathBuf>,
        unknown: Unknown,
    ) -> Result<Session, SessionError> {
        for folder in table_folders.iter().chain(library_folders) {
            sweep(folder);
        }
        let name = format!("{PREFIX}{:016x}.{LIBRARY}", rand::rngs::OsRng.next_u64());
        let place = |folder: &Path| std::path::absolute(folder.join(&name));
        let (path, file) = first(table_folders, |folder| make_table(place(folder)?, unknown))?;
        let made = open(&path).map_err(|error| SessionError::Map(path.clone(), error));
        let table = Arc::new(made.inspect_err(|_| drop(fs_err::remove_file(&path)))?);
        // From here on what fails removes it.
        let mut session =
            Session { library: path.clone(), path, seen_at, table, supervisor: None, files: vec![file] };
        if session.serves_as_library() {
            // Programs of the session that are somebody else are not to be told at each start that they cannot load it.
            let open = session.files[0].set_permissions(PermissionsExt::from_mode(0o644));
            open.map_err(|error| SessionError::Map(session.path.clone(), error))?;
            let seen = session.seen(&session.path);
            session.write_text(layout::HEADER_PATH, seen.as_os_str().as_bytes());
        } else {
            let (library, file) =
                first(library_folders, |folder| make_library(place(folder)?, &session.path))?;
            session.library = library;
            session.files.push(file);
        }
        Ok(session)
    }

    /// Whether programs can load the library from the session's file, and see there what others write.
    fn serves_as_library(&self) -> bool {
        let seen = self.seen(&self.path);
        seen.as_os_str().len() < layout::PATH_BYTES_MAX
            && is_for_preload(&seen)
            && View::of(&self.files[0]).is_ok_and(|view| {
                [1, 0].into_iter().all(|value| {
                    self.table.memory().store(layout::HEADER_ANSWERED, value, Ordering::SeqCst);
                    view.word(layout::HEADER_ANSWERED) == value
                })
            })
    }

    /// Writes text into words that programs have not seen yet, with zeros behind it.
    fn write_text(&self, first: usize, text: &[u8]) {
        for (at, bytes) in text.chunks(WORD_BYTES).enumerate() {
            let mut word = [0; WORD_BYTES];
            word[..bytes.len()].copy_from_slice(bytes);
            self.table.memory().store(first + at, u64::from_ne_bytes(word), Ordering::Relaxed);
        }
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
        self.write_text(layout::HEADER_GATE, text);
        self.table.memory().store(layout::HEADER_ANSWERED, 1, Ordering::Release);
        Ok(())
    }

    /// The program by which programs without the library are started, and where it knocks, as programs see them;
    /// none if they are not answered.
    pub fn way_in(&self) -> Option<(PathBuf, PathBuf)> {
        self.supervisor.is_some().then(|| (self.seen(&self.gate()), self.seen(&self.socket())))
    }

    fn gate(&self) -> PathBuf {
        self.library.with_extension(GATE_ENDING)
    }

    fn socket(&self) -> PathBuf {
        self.path.with_extension(SOCKET)
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

/// A session's file: the library, and behind it the table.
fn make_table(path: PathBuf, unknown: Unknown) -> io::Result<(PathBuf, File)> {
    make_file(path, |file| {
        write_library(file)?;
        // SAFETY: a descriptor of ours. Memory is given now, so that no process is killed for its lack later.
        check(unsafe { libc::fallocate(file.as_raw_fd(), 0, layout::FILE_AT as i64, WINDOW_BYTES as i64) })?;
        let mut header = [0u64; 8];
        header[layout::HEADER_MAGIC] = layout::MAGIC;
        header[layout::HEADER_NODES_READY] = layout::NODES_NEAR as u64;
        header[layout::HEADER_UNKNOWN] = u64::from(unknown == Unknown::Real);
        file.write_all_at(&header.map(u64::to_ne_bytes).concat(), layout::FILE_AT as u64)
    })
}

/// The library alone, for the session of this path.
fn make_library(path: PathBuf, session: &Path) -> io::Result<(PathBuf, File)> {
    if !is_for_preload(&path) {
        return Err(io::Error::other("LD_PRELOAD takes no path with a space or a colon"));
    }
    if path == session {
        return Err(io::Error::other("programs cannot be mapped from there"));
    }
    make_file(path, |file| {
        write_library(file)?;
        file.set_len((layout::FILE_AT + WINDOW_BYTES) as u64)?;
        View::of(file)?;
        file.set_permissions(PermissionsExt::from_mode(0o644))
    })
}

/// A new file of this user alone, locked.
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

/// Writes the library to a file's beginning. Behind it is what no program needs, up to where the table stands.
fn write_library(file: &File) -> io::Result<()> {
    let used = &PRELOAD[..layout::FILE_AT];
    let length = used.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    file.write_all_at(&used[..length], 0)
}

/// Whether LD_PRELOAD can have this path.
fn is_for_preload(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':'))
}

fn make_program(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).mode(0o500).open(path)?;
    file.write_all(bytes).inspect_err(|_| drop(fs_err::remove_file(path)))?;
    // Programs of the session that believe to be somebody else are still this user.
    file.set_permissions(PermissionsExt::from_mode(0o555))
}

/// The table's first window as the dynamic linker maps it.
struct View(*mut libc::c_void);

impl View {
    /// Maps it; an error where programs may not be mapped from the file.
    fn of(file: &File) -> io::Result<View> {
        let (how, offset) = (libc::PROT_READ | libc::PROT_EXEC, layout::FILE_AT as i64);
        // SAFETY: a new mapping, of which nobody else knows.
        let address = unsafe {
            libc::mmap(std::ptr::null_mut(), WINDOW_BYTES, how, libc::MAP_PRIVATE, file.as_raw_fd(), offset)
        };
        if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(View(address)) }
    }

    fn word(&self, word: usize) -> u64 {
        assert!(word < layout::WINDOW_WORDS);
        // SAFETY: it lies in the mapping; others may write to it meanwhile.
        unsafe { self.0.cast::<u64>().add(word).read_volatile() }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: our own mapping.
        unsafe { libc::munmap(self.0, WINDOW_BYTES) };
    }
}

/// Removes what sessions whose launchers are dead have left in a folder. What cannot be removed belongs to somebody
/// else.
fn sweep(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let is_left_over = match name.to_str().and_then(part_of) {
            Some(Part::Locked) => is_dead(&path),
            Some(Part::Beside) => is_old(&path) && !path.with_extension(LIBRARY).exists(),
            None => false,
        };
        if is_left_over {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// What a file's name says that it is of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The file itself, or the library.
    Locked,
    /// What goes with the one beside it.
    Beside,
}

fn part_of(name: &str) -> Option<Part> {
    let (random, ending) = name.strip_prefix(PREFIX)?.split_once('.')?;
    match ending {
        _ if random.len() != 16 || !random.bytes().all(|byte| byte.is_ascii_hexdigit()) => None,
        LIBRARY => Some(Part::Locked),
        SOCKET | GATE_ENDING => Some(Part::Beside),
        _ => None,
    }
}

/// Whether nobody holds the lock of a file. Of what is called like one and is something else, such as a pipe, nothing is
/// known, and nobody waits for it.
fn is_dead(path: &Path) -> bool {
    let mut options = File::options();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path);
    file.is_ok_and(|file| {
        file.metadata().is_ok_and(|facts| facts.is_file())
            && lock(&file, libc::LOCK_EX | libc::LOCK_NB).is_ok()
    }) && is_old(path)
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
        assert_eq!(part_of(&name(PREFIX, ".so")), Some(Part::Locked));
        for end in [".socket", ".gate"] {
            assert_eq!(part_of(&name(PREFIX, end)), Some(Part::Beside), "{end}");
        }
        for other in [name(PREFIX, ""), name(PREFIX, ".so.1"), name("x", ".so"), format!("{PREFIX}12.socket")]
        {
            assert_eq!(part_of(&other), None, "{other}");
        }
    }

    /// The linker's script has a number of its own.
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
