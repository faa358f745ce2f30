//! A session: made, loaded and saved, answered, removed.
//!
//! A session is a file `kilnyard-libfakeroot-RANDOM.so` in the first folder of a list that takes it: the preload library with
//! the table behind it. Where programs may not be mapped from there, or do not see there what others write, the
//! library is a file of the same name in another folder. Where programs without the library are answered, there are a
//! socket beside the one and the gate beside the other, with the endings `.socket` and `.gate`. The launcher holds a
//! lock on the files, which the kernel gives up when it dies, so that the next one knows whose are left over.
//!
//! For programs in a build root all of it is in one folder, which is bound into the root and seen there at another
//! path. The session lasts as long as its [`Session`], over as many commands as are started meanwhile.

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
        // No other user may read it: the table has owners and attributes of files in closed folders. Programs of the session that
        // become other users do so for themselves alone, and can still load the library.
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

    /// Saves what is known into a file. A state that was there stays if that fails.
    pub fn save(&self, path: &Path) -> Result<(), SessionError> {
        let text = state::format(&state::of(&self.table));
        replace(path, &text).map_err(|error| SessionError::File("save", path.to_owned(), error))
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
