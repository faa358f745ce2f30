//! A session: creating, loading, saving, answering and removing it.
//!
//! A session is a file `kilnyard-libfakeroot-RANDOM.so` in the first folder of a list that accepts it: the preload
//! library followed by the table. If programs may not be mapped from there, or such a mapping does not show what
//! other processes write, the library is a file of the same name in another folder. If programs without the library
//! are answered, there is also a socket next to the session file and the gate next to the library, with the
//! extensions `.socket` and `.gate`. The launcher holds a lock on the files, which the kernel releases when the
//! launcher dies, so that the next launcher can recognize leftovers.
//!
//! For programs in a build root all files are in one folder, which is bound into the root and appears there at another
//! path. The session lasts as long as its [`Session`], across all commands that are started in the meantime.

mod files;
mod sweep;

use crate::shared::kernel;
use crate::shared::layout::{self, WORD_BYTES};
use crate::shared::mapping::Mapping;
use crate::shared::memory::Memory;
use crate::shared::ownership::Unknown;
use crate::shared::table::Table;
use crate::supervisor::Supervisor;
use crate::{GATE, state};
use files::{
    GATE_ENDING, LIBRARY, PREFIX, SOCKET, View, first, is_for_preload, make_library, make_program,
    make_table, replace,
};
pub use files::{library_folders, table_folders};
use rand::RngCore;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sweep::sweep;

/// Why a session cannot be created, loaded or saved; each reads after "failed to".
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// None of the folders accepts the file.
    #[error("create a session file in {}", .0.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(" or "))]
    NoFolder(Vec<PathBuf>, #[source] io::Error),
    /// The session file cannot be opened or mapped.
    #[error("map the session {0}")]
    Map(PathBuf, #[source] io::Error),
    /// A file with a state cannot be read or written; the text is the verb.
    #[error("{0} the state {1}")]
    File(&'static str, PathBuf, #[source] io::Error),
    /// A file does not contain a valid state.
    #[error("load the state {0}")]
    State(PathBuf, #[source] state::StateError),
    /// The session has no room for a state.
    #[error("load the state {0}: it is too large for the session")]
    Full(PathBuf),
}

/// A session of this process, removed on drop.
#[derive(Debug)]
pub struct Session {
    path: PathBuf,
    library: PathBuf,
    /// Where programs see the folder of the files, if at another path.
    seen_at: Option<PathBuf>,
    table: Arc<Table<Mapping>>,
    /// Answers programs without the library. It is dropped before the files are removed.
    supervisor: Option<Supervisor>,
    /// The open files hold the locks.
    files: Vec<File>,
}

impl Session {
    /// Creates a session: the table in the first of the folders that accepts it, and the library in the same file,
    /// or else in the first folder that allows mapping it as a program. Leftovers of killed launchers there are
    /// removed.
    pub fn make(
        table_folders: &[PathBuf],
        library_folders: &[PathBuf],
        unknown: Unknown,
    ) -> Result<Session, SessionError> {
        Session::make_seen_at(table_folders, library_folders, None, unknown)
    }

    /// Creates a session for programs in a build root. All files are created in `folder`, from which programs must
    /// be mappable, and which the caller binds into the root at `seen_at`, readable and writable.
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
        // From here on, dropping the session on an error removes the file.
        let mut session =
            Session { library: path.clone(), path, seen_at, table, supervisor: None, files: vec![file] };
        // No other user may read the file: the table contains owners and attributes of files in private folders.
        // Programs of the session that assume another user id only appear to, and can still load the library.
        if session.serves_as_library() {
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

    /// Whether programs can load the library from the session's file, and see there what other processes write.
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

    /// Writes text, padded with zeros, into words that programs have not seen yet.
    fn write_text(&self, first: usize, text: &[u8]) {
        for (at, bytes) in text.chunks(WORD_BYTES).enumerate() {
            let mut word = [0; WORD_BYTES];
            word[..bytes.len()].copy_from_slice(bytes);
            self.table.memory().store(first + at, u64::from_ne_bytes(word), Ordering::Relaxed);
        }
    }

    /// The path of the session's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The environment variables of the session's programs; `preload` is the value that LD_PRELOAD would have
    /// without the session.
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

    /// Adds a saved state from a file.
    pub fn load(&self, path: &Path) -> Result<(), SessionError> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| SessionError::File("load", path.to_owned(), error))?;
        let state = state::parse(&text).map_err(|error| SessionError::State(path.to_owned(), error))?;
        state::restore(&state, &self.table).map_err(|_| SessionError::Full(path.to_owned()))
    }

    /// Saves the state to a file. On failure, the previous state stays.
    pub fn save(&self, path: &Path) -> Result<(), SessionError> {
        let text = state::format(&state::of(&self.table));
        replace(path, &text).map_err(|error| SessionError::File("save", path.to_owned(), error))
    }

    /// The table of the session.
    pub fn table(&self) -> &Table<Mapping> {
        &self.table
    }

    /// Answers programs without the library from now on, until this is dropped. Warnings about such a program are
    /// passed to `report`, each once. The calls are made with this process's privileges, so root does not answer
    /// programs of a build root.
    pub fn answer(&mut self, report: fn(&str)) -> io::Result<()> {
        if self.seen_at.is_some() && kernel::real_effective_user() == 0 {
            return Err(io::Error::other("root does not make system calls for programs of a build root"));
        }
        let seen = self.seen(&self.gate());
        let text = seen.as_os_str().as_bytes();
        if text.len() >= layout::GATE_BYTES_MAX {
            return Err(io::Error::other("the path of the gate is too long"));
        }
        make_program(&self.gate(), GATE)?;
        self.supervisor = Some(Supervisor::start(&self.socket(), self.table.clone(), report)?);
        self.write_text(layout::HEADER_GATE, text);
        self.table.memory().store(layout::HEADER_ANSWERED, 1, Ordering::Release);
        Ok(())
    }

    /// The gate, which starts programs without the library, and the socket it connects to, as programs see them;
    /// `None` if such programs are not answered.
    pub fn gate_and_socket(&self) -> Option<(PathBuf, PathBuf)> {
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
        // Another launcher may have swept the files already. The session file goes last, because it shows that the
        // others are leftovers.
        for path in [self.socket(), self.gate(), self.library.clone(), self.path.clone()] {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Opens the table of a session. Its path stays allocated permanently, because the table may need it at any time.
pub fn open(path: &Path) -> io::Result<Table<Mapping>> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mapping = Mapping::closed();
    mapping.open(Box::leak(path.into_boxed_c_str())).map_err(io::Error::from_raw_os_error)?;
    Ok(Table::new(mapping))
}
