//! The store of a yard: a file in it, with its backups, or a database.

use super::{Yard, folders};
use crate::config::store::StoreTable;
use crate::error::{Context, Error, Kind, Result, room, writable};
use crate::remedy::Remedy;
use crate::words::now_seconds;
use kilnyard_model::identity::FarmId;
use kilnyard_model::sha256::Sha256Hex;
use kilnyard_store::copy::{Digested, Rows, digest};
use kilnyard_store::{Holder, Store, StoreError};
use kilnyard_store_postgres::{Address, Documents, Postgres, SCHEMA};
use kilnyard_store_sqlite::Sqlite;
use std::path::{Path, PathBuf};

/// The file with the id of this machine.
const MACHINE_ID: &str = "/etc/machine-id";
/// The store's file, unless the store is in a database.
pub const STORE: &str = "state/kilnyard.db";
/// The file with the id of the store in a database that is this yard's.
pub(crate) const OWN_STORE: &str = "state/store-id";
/// Backups are named after their day, between this prefix and suffix.
const BACKUP_BEGIN: &str = "kilnyard-";
const BACKUP_END: &str = ".db";
/// Number of days for which the last good store is kept: after a week of builds, damage has been noticed.
const BACKUPS_KEPT: usize = 7;
/// Remedy for a store written by a newer version.
const NEWER_HINT: &str = "the version of Kilnyard that wrote the store, or a newer one";
/// Remedy for a store that stayed locked, or out of reach.
const BUSY_HINT: &str = "the same command again, once the process that writes the store has finished";
const UNREACHABLE_HINT: &str = "the same command again, once the database can be reached";

/// Remedy for a store that another process leads.
const LED_HINT: &str = "the same command again after that process has exited; 10 s later if it was killed";

/// A store that was copied.
#[derive(Clone, Debug)]
pub struct Moved {
    /// Where it was: a path, or an address without its password.
    pub from: String,
    /// Where it is now.
    pub to: String,
    /// The tables with rows.
    pub tables: Vec<Digested>,
}

impl Yard {
    /// Opens the store, and creates it in a new yard.
    pub fn store(&self) -> Result<Box<dyn Store>> {
        Self::make_folders(&self.folder)?;
        match self.database()? {
            Some(address) => Ok(Box::new(self.store_in(&address)?)),
            None => Ok(Box::new(self.store_file()?)),
        }
    }

    /// A process of this yard, for the store: the machine and the folder.
    pub fn as_holder(&self) -> Result<Holder> {
        let folder = fs_err::canonicalize(&self.home).context(Kind::Machine, "find the yard")?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        // Machines may have the same name. Without a file, the name has to do.
        let machine = std::fs::read_to_string(MACHINE_ID).unwrap_or_default();
        let name = format!("{host}:{}", folder.display());
        let id = Sha256Hex::of(format!("{}\0{name}", machine.trim()).as_bytes()).to_string();
        Ok(Holder { id, name })
    }

    /// The database that the configuration chooses; none if the store is a file of the yard.
    pub fn database(&self) -> Result<Option<Address>> {
        self.address(&self.config.store)
    }

    /// The documents that coordinators on several machines have in common; none if the store is a file of the yard.
    pub fn documents(&self) -> Result<Option<Documents>> {
        // All targets share them.
        let whole = Yard { target_name: None, ..self.clone() };
        let address = whole.database()?;
        address.map(|address| Documents::open(&address).map_err(store_error)).transpose()
    }

    /// The database of a table `store`.
    fn address(&self, table: &StoreTable) -> Result<Option<Address>> {
        address_of(table, &self.home, self.target_name.as_deref())
    }

    /// Opens the store in a database, if it is this yard's, or of no yard yet.
    fn store_in(&self, address: &Address) -> Result<Postgres> {
        let store = Postgres::open(address, &self.target()?).map_err(store_error)?;
        let known = self.known_store()?;
        if known == Some(store.scope().farm) {
            return Ok(store);
        }
        let is_unused = store.last_run().map_err(store_error)?.is_none()
            && store.outputs().map_err(store_error)?.is_empty();
        if is_unused && self.config.family.is_published(self) {
            return Err(self.would_withdraw(address));
        }
        if is_unused && known.is_none() {
            self.note_store(store.scope().farm)?;
            return Ok(store);
        }
        let message = match known {
            Some(_) => format!("the database {address} has the store of another yard, or a new one"),
            None => {
                format!("the database {address} already has a store, which this yard has not used before")
            }
        };
        let adopting = Remedy::command("store adopt").then(", if this store is the yard's");
        Err(Error::new(Kind::Usage, message).hint(adopting))
    }

    /// The id of the store in a database that this yard uses; absent before the first use.
    fn known_store(&self) -> Result<Option<FarmId>> {
        match fs_err::read_to_string(self.path(OWN_STORE)) {
            Ok(text) => {
                let id =
                    FarmId::parse(text.trim()).context(Kind::Machine, "read the id of the yard's store")?;
                Ok(Some(id))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).context(Kind::Machine, "read the id of the yard's store"),
        }
    }

    /// Makes the store in the database of the configuration this yard's. Returns its address.
    ///
    /// # Errors
    /// There is no such store, or it lacks what the repository has.
    pub fn adopt_store(&self) -> Result<String> {
        let Some(address) = self.database()? else {
            return Err(Error::usage(
                "the store is a file of this yard: there is no url in the table [store]",
            ));
        };
        let store = Postgres::open(&address, &self.target()?).map_err(store_error)?;
        let is_empty = store.outputs().map_err(store_error)?.is_empty();
        if is_empty && self.config.family.is_published(self) {
            return Err(self.would_withdraw(&address));
        }
        self.note_store(store.scope().farm)?;
        Ok(address.to_string())
    }

    /// Removes the store in the database of the configuration, with all records: for what makes one for a while.
    pub fn remove_database(&self) -> Result<()> {
        match self.database()? {
            Some(address) => Postgres::remove(&address).map_err(store_error),
            None => Ok(()),
        }
    }

    /// An empty store does not know which versions are published, and would withdraw packages.
    fn would_withdraw(&self, address: &Address) -> Error {
        let message = format!("the database {address} has no records, but the repository has packages");
        let hint =
            "restore the database from a backup; or choose the store that has the records of this repository";
        Error::new(Kind::Machine, message).hint(Remedy::from(hint))
    }

    /// Notes the id of this yard's store.
    fn note_store(&self, id: FarmId) -> Result<()> {
        note_store(&self.folder, id)
    }

    /// Copies the store to the database of this table, or to a file, which must not have runs or outputs, and compares all rows.
    /// The configuration stays.
    ///
    /// # Errors
    /// Nothing was copied: the other store has something, or either cannot be used.
    pub fn move_store(&self, to: &StoreTable) -> Result<Moved> {
        let (own, other) = (self.address(&self.config.store)?, self.address(to)?);
        let file = self.path(STORE).display().to_string();
        let name =
            |address: &Option<Address>| address.as_ref().map_or_else(|| file.clone(), Address::to_string);
        let (from, to) = (name(&own), name(&other));
        if from == to {
            return Err(Error::usage(format!("the store is {from} already")));
        }
        let target = self.target()?;
        let source: Box<dyn Rows> = match &own {
            Some(address) => Box::new(self.store_in(address)?),
            None => Box::new(self.store_file()?),
        };
        let open = || -> Result<Box<dyn Rows>> {
            Ok(match &other {
                Some(address) => Box::new(Postgres::open(address, &target).map_err(store_error)?),
                None => Box::new(Sqlite::open(&self.path(STORE), &target).map_err(store_error)?),
            })
        };
        open()?.fill(&*source).map_err(store_error)?;
        let moved = compared(&*source, &*open()?, (&from, &to))?;
        if other.is_some() {
            self.note_store(source.head().map_err(store_error)?.scope.farm)?;
        }
        Ok(moved)
    }

    /// Copies all records to a new file, and compares all rows. A run may be in progress: the copy has the records of one moment.
    ///
    /// # Errors
    /// The file exists, or the store cannot be read.
    pub fn back_up_to(&self, path: &Path) -> Result<Moved> {
        if path.exists() {
            return Err(Error::usage(format!("{} exists", path.display())));
        }
        let (target, source) = (self.target()?, self.rows()?);
        let making = path.with_extension("making");
        let _ = fs_err::remove_file(&making);
        let names = (self.store_name()?, path.display().to_string());
        let copied = Sqlite::open(&making, &target).map_err(store_error).and_then(|mut copy| {
            let mut moved = None;
            let mut copy_all = |source: &dyn Rows| -> std::result::Result<(), StoreError> {
                copy.fill(source)?;
                moved = Some(compared(source, &copy, (&names.0, &names.1)));
                Ok(())
            };
            source.rows_at_once(&mut copy_all).map_err(store_error)?;
            moved.unwrap_or_else(|| Err(Error::new(Kind::Internal, "the store provided no snapshot")))
        });
        // With its last connection, SQLite has removed its other files.
        match &copied {
            Ok(_) => fs_err::rename(&making, path).context(Kind::Machine, "write the backup")?,
            Err(_) => drop(fs_err::remove_file(&making)),
        }
        copied
    }

    /// Fills the store, which must be new, from a backup, and begins a generation of its own: what used the store after the
    /// backup is refused.
    ///
    /// # Errors
    /// The store has something, or either cannot be used.
    pub fn restore_from(&self, path: &Path) -> Result<Moved> {
        if !path.is_file() {
            return Err(Error::usage(format!("there is no backup {}", path.display())));
        }
        let target = self.target()?;
        let source = Sqlite::open_to_read(path, &target).map_err(store_error)?;
        let mut rows: Box<dyn Rows> = match self.database()? {
            Some(address) => Box::new(Postgres::open(&address, &target).map_err(store_error)?),
            None => Box::new(Sqlite::open(&self.path(STORE), &target).map_err(store_error)?),
        };
        rows.fill(&source).map_err(store_error)?;
        let names = (path.display().to_string(), self.store_name()?);
        let restored = compared(&source, &*rows, (&names.0, &names.1))?;
        rows.begin_generation((now_seconds() / 60.0) as u64).map_err(store_error)?;
        if self.config.store.url.is_some() {
            self.note_store(source.scope().farm)?;
        }
        Ok(restored)
    }

    /// The store, for a copy of all rows.
    fn rows(&self) -> Result<Box<dyn Rows>> {
        Ok(match self.database()? {
            Some(address) => Box::new(self.store_in(&address)?),
            None => Box::new(self.store_file()?),
        })
    }

    /// Where the store is, without a password.
    pub fn store_name(&self) -> Result<String> {
        Ok(match self.database()? {
            Some(address) => address.to_string(),
            None => self.path(STORE).display().to_string(),
        })
    }

    /// Opens the store in a file of the yard.
    fn store_file(&self) -> Result<Sqlite> {
        let path = self.path(STORE);
        folders::check_no_link(&self.folder, "kilnyard.db")
            .context(Kind::Machine, "open the yard's store")?;
        // An empty store would not know which versions are published, and would withdraw packages.
        let is_empty = fs_err::metadata(&path).map_or(true, |metadata| metadata.len() == 0);
        if is_empty && self.config.family.is_published(self) {
            let message =
                format!("the store {} is missing or empty, but the repository has packages", path.display());
            return Err(Error::new(Kind::Machine, message).hint(restoring()));
        }
        let target = self.target()?;
        match Sqlite::open(&path, &target) {
            // Queries also work on a read-only file system. Writes fail when they happen.
            Err(error) if error.is_read_only() && path.exists() => Sqlite::open_to_read(&path, &target)
                .map_err(|reading| match reading {
                    StoreError::TooOld { .. } | StoreError::TooNew { .. } => store_error(reading),
                    _ => store_error(error),
                }),
            other => other.map_err(store_error),
        }
    }

    /// Lists the backups of the store's file, latest first.
    pub fn backups(&self) -> Vec<PathBuf> {
        let names = fs_err::read_dir(self.path("state")).into_iter().flatten();
        let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let is_backup = |name: &String| {
            let day = name.strip_prefix(BACKUP_BEGIN).and_then(|rest| rest.strip_suffix(BACKUP_END));
            day.is_some_and(|day| day.parse::<jiff::civil::Date>().is_ok())
        };
        let mut names: Vec<String> = names.filter(is_backup).collect();
        names.sort_unstable_by(|one, other| other.cmp(one));
        names.into_iter().map(|name| self.path("state").join(name)).collect()
    }

    /// Copies the store's file to a backup in `state`, which replaces an earlier one of the same day. Keeps only the last
    /// few days. A damaged store does not replace a backup. A database has backups of its own.
    pub fn back_up(&self) -> Result<()> {
        if self.config.store.url.is_some() {
            return Ok(());
        }
        let now = jiff::Timestamp::from_second(now_seconds() as i64).or_internal("read the clock")?;
        let day = now.strftime("%Y-%m-%d");
        let path = self.path("state").join(format!("{BACKUP_BEGIN}{day}{BACKUP_END}"));
        self.store_file()?.back_up(&path).map_err(store_error)?;
        for old in self.backups().into_iter().skip(BACKUPS_KEPT) {
            fs_err::remove_file(old).context(Kind::Machine, "remove an old backup of the store")?;
        }
        Ok(())
    }
}

/// Compares all rows of two stores.
fn compared(source: &dyn Rows, copy: &dyn Rows, (from, to): (&str, &str)) -> Result<Moved> {
    let (mut rows, copied) = (digest(source).map_err(store_error)?, digest(copy).map_err(store_error)?);
    if let Some((row, _)) = rows.iter().zip(&copied).find(|(row, copied)| row != copied) {
        let message = format!("the rows of the table {} in {to} are not those of {from}", row.table);
        return Err(Error::new(Kind::Internal, message));
    }
    rows.retain(|table| table.rows > 0);
    Ok(Moved { from: from.to_owned(), to: to.to_owned(), tables: rows })
}

/// The database of a table `store`, for the yard in this folder and one of its targets.
pub(crate) fn address_of(table: &StoreTable, home: &Path, target: Option<&str>) -> Result<Option<Address>> {
    let Some(url) = &table.url else { return Ok(None) };
    let password = match &table.password_file {
        Some(file) => {
            let text = fs_err::read_to_string(home.join(file))
                .context(Kind::Usage, "read the password of the store's database")?;
            Some(text.trim_end_matches(['\r', '\n']).to_owned())
        }
        None => None,
    };
    let certificates = table.certificates.as_ref().map(|file| home.join(file));
    let address = Address::parse(url, password.as_deref(), certificates.as_deref())
        .context(Kind::Usage, "use the yard's store")?;
    // Each target of a yard has runs of its own.
    let schema = table.schema.as_deref().unwrap_or(SCHEMA);
    Ok(Some(match target {
        Some(target) => address.with_schema(&format!("{schema}/{target}")),
        None => address.with_schema(schema),
    }))
}

/// Notes the id of the store in a database that the yard in this folder uses.
pub(crate) fn note_store(folder: &Path, id: FarmId) -> Result<()> {
    let failed = "note the id of the yard's store";
    let path = folder.join(OWN_STORE);
    let making = path.with_extension("new");
    fs_err::write(&making, format!("{id}\n")).context(Kind::Machine, failed)?;
    fs_err::rename(making, path).context(Kind::Machine, failed)
}

/// Remedy after another process has taken over a run.
fn fenced() -> Remedy {
    Remedy::command("status").then(", which shows the run and the process that has it now")
}

/// Remedy for a store that is lost or damaged.
fn restoring() -> Remedy {
    Remedy::command("restore")
        .then(", which uses the last good backup, and the repository for newer packages")
}

/// Converts an error of the store to one with a kind and a hint.
pub fn store_error(error: StoreError) -> Error {
    let (kind, hint) = match &error {
        StoreError::TooNew { .. } => (Kind::Usage, Some(Remedy::from(NEWER_HINT))),
        StoreError::Full { .. } => (Kind::Machine, Some(room())),
        StoreError::ReadOnly { .. } | StoreError::TooOld { .. } => (Kind::Machine, Some(writable())),
        StoreError::Busy { store, .. } => {
            let hint = if store.starts_with("postgres://") { UNREACHABLE_HINT } else { BUSY_HINT };
            (Kind::Machine, Some(Remedy::from(hint)))
        }
        StoreError::Damaged { .. } | StoreError::Unreadable { .. } => (Kind::Machine, Some(restoring())),
        StoreError::Fenced { .. } => (Kind::Machine, Some(fenced())),
        StoreError::Led { .. } => (Kind::Machine, Some(Remedy::from(LED_HINT))),
        StoreError::Used { .. } | StoreError::Replaced { .. } | StoreError::Other { .. } => {
            (Kind::Machine, None)
        }
    };
    let mut error = Err::<(), _>(error).context(kind, "use the yard's store").unwrap_err();
    if let Some(hint) = hint.filter(|hint| !error.hints.contains(hint)) {
        error.hints.push(hint);
    }
    error
}
