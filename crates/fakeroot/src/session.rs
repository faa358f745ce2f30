//! Session files: made, found dead, removed.
//!
//! A session is a file `kilnyard-fakeroot-RANDOM` in the first folder of a list that takes it, and a library
//! `libfakeroot-kilnyard-RANDOM.so` in the first one that programs may be mapped from. The launcher holds a lock
//! on the session file, which the kernel gives up when it dies, so that the next one knows whose are left over.

use crate::PRELOAD;
use crate::shared::layout::{self, WORD_BYTES};
use crate::shared::mapping::Mapping;
use crate::shared::memory::Memory;
use crate::shared::ownership::Unknown;
use crate::shared::table::Table;
use rand::RngCore;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
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
}

/// A session of this process, which removes it when dropped.
#[derive(Debug)]
pub struct Session {
    path: PathBuf,
    library: PathBuf,
    table: Table<Mapping>,
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
        Ok(Session { path, library, table, _file: file })
    }

    /// The session's file: what FAKEROOTKEY says.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The library that programs of the session load.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// The table.
    pub fn table(&self) -> &Table<Mapping> {
        &self.table
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Whoever swept it before has done the same.
        let _ = fs_err::remove_file(&self.path);
        let _ = fs_err::remove_file(&self.library);
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
    let mut file = File::options().write(true).create_new(true).mode(0o500).open(&path)?;
    file.write_all(PRELOAD).inspect_err(|_| drop(fs_err::remove_file(&path)))?;
    // Programs of the session that believe to be somebody else are still this user.
    file.set_permissions(PermissionsExt::from_mode(0o555))?;
    Ok(path)
}

fn is_without_programs(folder: &Path) -> io::Result<bool> {
    let path = CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: plain numbers, for which zeros are valid.
    let mut facts: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a string and a place of ours.
    check(unsafe { libc::statvfs(path.as_ptr(), &raw mut facts) })?;
    Ok(facts.f_flag & libc::ST_NOEXEC != 0)
}

/// Removes the sessions in a folder whose launchers are dead, with their libraries. What cannot be removed belongs to
/// somebody else.
fn sweep(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let path = entry.path();
        if name.starts_with(SESSION) {
            if let Ok(file) = File::options().read(true).write(true).open(&path)
                && lock(&file, libc::LOCK_EX | libc::LOCK_NB).is_ok()
                && is_old(&file)
            {
                let _ = std::fs::remove_file(&path);
            }
        } else if name.starts_with(LIBRARY)
            && let Some(random) = name.strip_prefix(LIBRARY).and_then(|name| name.strip_suffix(".so"))
            && let Ok(file) = File::open(&path)
            && is_old(&file)
            && !session_folders(folder).any(|folder| folder.join(format!("{SESSION}{random}")).exists())
        {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// Where a library's session may be.
fn session_folders(folder: &Path) -> impl Iterator<Item = PathBuf> {
    table_folders(Some(folder)).into_iter()
}

/// Between making a file and locking it there is a moment.
fn is_old(file: &File) -> bool {
    const MOMENT_SECONDS: u64 = 10;
    let age = file.metadata().and_then(|facts| facts.modified()).map(|time| time.elapsed());
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
