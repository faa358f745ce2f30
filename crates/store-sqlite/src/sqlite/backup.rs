//! Checks, backs up and restores a store.

use super::open::check_format;
use super::{Sqlite, database};
use kilnyard_store::StoreError;
use rusqlite::{Connection, OpenFlags};
use std::io;
use std::path::{Path, PathBuf};

/// Suffix of a copy until it is complete.
const UNFINISHED: &str = ".new";

/// A copy of the store could not be made.
#[derive(Debug, thiserror::Error)]
#[error("failed to write the copy {path}: {source}")]
struct CopyError {
    path: String,
    source: io::Error,
}

fn copy_error(path: &Path, source: io::Error) -> StoreError {
    let (store, kind) = (path.display().to_string(), source.kind());
    let source = Box::new(CopyError { path: store.clone(), source });
    match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full { store, source },
        io::ErrorKind::ReadOnlyFilesystem => StoreError::ReadOnly { store, source },
        _ => StoreError::Other { store, source },
    }
}

impl Sqlite {
    /// Fails if the database is damaged. This reads every page, so it takes as long as reading the file.
    pub(super) fn check_pages(&self) -> Result<(), StoreError> {
        check(&self.connection, &self.path)
    }

    /// Writes a complete, compact and durable copy, replacing an earlier one with this name. If the store is damaged,
    /// this fails and the earlier copy stays.
    pub fn back_up(&self, to: &Path) -> Result<(), StoreError> {
        self.check_pages()?;
        let unfinished = beside(to, UNFINISHED);
        let failed = |error| copy_error(to, error);
        match std::fs::remove_file(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let name = unfinished.to_str().ok_or_else(|| failed(io::ErrorKind::InvalidFilename.into()))?;
        self.connection.execute("VACUUM INTO ?1", [name]).map_err(|error| self.wrap(error))?;
        place(&unfinished, to).map_err(failed)
    }

    /// Restores a store from a complete copy. No files of another store may be next to it: SQLite would apply that
    /// store's write-ahead log to this one.
    pub fn restore(from: &Path, to: &Path) -> Result<(), StoreError> {
        check_file(from)?;
        let unfinished = beside(to, UNFINISHED);
        let copied = std::fs::copy(from, &unfinished).and_then(|_| place(&unfinished, to));
        copied.map_err(|error| copy_error(to, error))
    }
}

/// Fails if a file is not a complete store of a supported format.
pub fn check_file(path: &Path) -> Result<(), StoreError> {
    let wrap = |error| database(path, error);
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(wrap)?;
    match check_format(&connection, path)? {
        0 => Err(StoreError::Damaged { store: path.display().to_string(), reason: "it is empty".to_owned() }),
        _ => check(&connection, path),
    }
}

/// The files of a store, in the order to remove or move them: SQLite's auxiliary files first, since they must never
/// be next to another store.
pub fn files(path: &Path) -> [PathBuf; 3] {
    [beside(path, "-wal"), beside(path, "-shm"), path.to_owned()]
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn check(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let said: String = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(|error| database(path, error))?;
    match said.as_str() {
        "ok" => Ok(()),
        _ => Err(StoreError::Damaged { store: path.display().to_string(), reason: said }),
    }
}

/// Gives a complete file its final name, so that a power failure leaves either the old file or this one.
fn place(unfinished: &Path, to: &Path) -> io::Result<()> {
    std::fs::File::open(unfinished)?.sync_all()?;
    std::fs::rename(unfinished, to)?;
    match to.parent() {
        Some(folder) => std::fs::File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilnyard_store::Store;

    fn target() -> kilnyard_model::target::Target {
        "any/linux/one/amd64".parse().unwrap()
    }

    fn store_in(folder: &Path) -> (Sqlite, PathBuf) {
        let path = folder.join("kilnyard.db");
        let mut store = Sqlite::open(&path, &target()).unwrap();
        // More than one page, so that there is something to damage.
        let durations: Vec<_> = (0..2000).map(|number| (format!("package-{number}"), 1.0, 2.0)).collect();
        store.import_durations(&durations).unwrap();
        (store, path)
    }

    #[test]
    fn a_backup_replaces_a_damaged_store() {
        let folder = tempfile::tempdir().unwrap();
        let (store, path) = store_in(folder.path());
        let copy = folder.path().join("copy.db");
        store.back_up(&copy).unwrap();
        store.back_up(&copy).unwrap();
        drop(store);
        for spoil in [b"".as_slice(), b"this is not a database, but it is long enough to look like one"] {
            std::fs::write(&path, spoil).unwrap();
            check_file(&path).unwrap_err();
        }
        files(&path).iter().for_each(|file| drop(std::fs::remove_file(file)));
        Sqlite::restore(&copy, &path).unwrap();
        assert_eq!(Sqlite::open(&path, &target()).unwrap().durations().unwrap().len(), 2000);
    }

    #[test]
    fn a_damaged_store_replaces_no_backup() {
        let folder = tempfile::tempdir().unwrap();
        let (store, path) = store_in(folder.path());
        let copy = folder.path().join("copy.db");
        store.back_up(&copy).unwrap();
        drop(store);
        let good = std::fs::read(&copy).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        // Damages rows, which opening does not read.
        let place = bytes.len() / 4 * 3;
        bytes[place..place + 4096].fill(0x5a);
        std::fs::write(&path, bytes).unwrap();
        let store = Sqlite::open(&path, &target()).unwrap();
        let error = store.back_up(&copy).unwrap_err();
        assert!(error.is_damaged(), "{error}");
        assert_eq!(std::fs::read(&copy).unwrap(), good);
    }
}
