//! A yard: a folder with a configuration, and everything that Kilnyard keeps for it.

use crate::config::{self, Config};
use crate::error::{Context, Error, Kind, Result};
use kilnyard_model::order::Stage;
use kilnyard_root::{Form, IdMap, block};
use kilnyard_store::{BuildRow, Sqlite, StoreError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

/// The configuration's name.
pub const CONFIG: &str = "kilnyard.toml";

/// Whoever asks whether the yard is locked holds the lock for an instant, so that one refusal is not believed.
const LOCK_TRIES: u32 = 10;
const LOCK_PAUSE: std::time::Duration = std::time::Duration::from_millis(20);

/// How much of the lock's file is read.
const HOLDER_BYTES_MAX: u64 = 1024;

/// An opened yard.
#[derive(Debug)]
pub struct Yard {
    /// Where it is; absolute.
    pub folder: PathBuf,
    /// What its owner said.
    pub config: Config,
}

/// The right to change a yard; one process has it at a time.
#[derive(Debug)]
pub struct Lock {
    file: std::fs::File,
}

impl Lock {
    /// Says for other processes what this one does, before there is a run that shows it: see [`Yard::holder`].
    pub fn note(&self, phase: &str) -> std::io::Result<()> {
        let mut file = &self.file;
        file.rewind()?;
        file.set_len(0)?;
        file.write_all(format!("{}\n{phase}\n", std::process::id()).as_bytes())
    }
}

/// The process that is at work on a yard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its number.
    pub process: String,
    /// What it does, if it said so.
    pub phase: String,
}

impl Yard {
    /// Opens the yard in this folder.
    pub fn open(folder: &Path) -> Result<Yard> {
        let path = folder.join(CONFIG);
        let text = fs_err::read_to_string(&path).map_err(|error| {
            let mut missing = Error::usage(format!("there is no yard in {}", folder.display()));
            missing.causes.push(error.to_string());
            missing.hint("kilnyard init debian --release bookworm PACKAGE..., which makes one")
        })?;
        let mut config = Config::parse(&text, &path)?;
        let folder = fs_err::canonicalize(folder).or_internal("find the yard")?;
        // What the configuration names is found from any folder.
        match &mut config.family {
            config::Family::Debian(debian) => debian.keyring = folder.join(&debian.keyring),
            config::Family::Pkgsrc(pkgsrc) => pkgsrc.locate(&folder),
        }
        Ok(Yard { folder, config })
    }

    /// A path of the yard.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.folder.join(relative)
    }

    /// The log of a stage that goes on, relative to the yard: one that no result names. That of a part of the stage has the part's
    /// name between the build's number and the stage's.
    pub fn open_log(&self, build: &BuildRow, stage: Stage) -> Option<String> {
        let folder = format!("logs/{}/{}", build.run, build.package);
        let (begin, end) = (format!("{}-", build.number), format!("{stage}.log"));
        let entries = fs_err::read_dir(self.path(&folder)).ok()?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let of_stage = names.filter(|name| {
            name.strip_prefix(&begin)
                .and_then(|rest| rest.strip_suffix(&end))
                .is_some_and(|part| part.is_empty() || part.ends_with('-'))
        });
        let mut open = of_stage
            .map(|name| format!("{folder}/{name}"))
            .filter(|path| build.stages.iter().all(|result| result.log.as_ref() != Some(path)));
        open.next()
    }

    /// Makes the folders that a yard has. They can be entered by the users of its roots, but for the state.
    pub fn make_folders(folder: &Path) -> Result<()> {
        use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
        let failed = format!("make the folders of the yard {}", folder.display());
        for name in ["", "index", "distfiles", "layers", "roots", "logs", "report", "repository"] {
            let path = folder.join(name);
            if path.is_dir() {
                continue;
            }
            fs_err::create_dir_all(&path).context(Kind::Machine, &failed)?;
            let permissions = std::fs::Permissions::from_mode(0o755);
            fs_err::set_permissions(&path, permissions).context(Kind::Machine, &failed)?;
        }
        let mut private = std::fs::DirBuilder::new();
        private.recursive(true).mode(0o700);
        private.create(folder.join("state")).context(Kind::Machine, &failed)
    }

    /// Takes the right to change the yard.
    pub fn lock(&self) -> Result<Lock> {
        Self::make_folders(&self.folder)?;
        let path = self.path("state/lock");
        let mut options = std::fs::File::options();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .context(Kind::Machine, format!("open {}", path.display()))?;
        let mut locked = file.try_lock();
        for _ in 0..LOCK_TRIES {
            if !matches!(locked, Err(std::fs::TryLockError::WouldBlock)) {
                break;
            }
            std::thread::sleep(LOCK_PAUSE);
            locked = file.try_lock();
        }
        match locked {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                let holder = holder.lines().next().unwrap_or_default();
                let message =
                    format!("another Kilnyard (process {holder}) is at work on {}", self.folder.display());
                return Err(Error::usage(message)
                    .hint("kilnyard status, which shows what it does; retry, skip and bump reach it"));
            }
            Err(std::fs::TryLockError::Error(error)) => {
                return Err(error).context(Kind::Machine, format!("lock {}", path.display()));
            }
        }
        let lock = Lock { file };
        lock.note("").context(Kind::Machine, format!("write {}", path.display()))?;
        Ok(lock)
    }

    /// Whether some process holds the lock.
    pub fn is_locked(&self) -> bool {
        std::fs::File::open(self.path("state/lock"))
            .is_ok_and(|file| matches!(file.try_lock_shared(), Err(std::fs::TryLockError::WouldBlock)))
    }

    /// Who has the right to change the yard now; none where no process has it.
    pub fn holder(&self) -> Option<Holder> {
        if !self.is_locked() {
            return None;
        }
        // It has two short lines; another user's yard may have anything there.
        let mut text = String::new();
        let file = std::fs::File::open(self.path("state/lock")).ok()?;
        file.take(HOLDER_BYTES_MAX).read_to_string(&mut text).ok()?;
        let mut lines = text.lines().map(str::to_owned);
        Some(Holder { process: lines.next().unwrap_or_default(), phase: lines.next().unwrap_or_default() })
    }

    /// Opens the store.
    pub fn store(&self) -> Result<Sqlite> {
        let path = self.path("state/kilnyard.db");
        Self::make_folders(&self.folder)?;
        Sqlite::open(&path).map_err(store_error)
    }

    /// The ids of roots, for the user who runs this.
    pub fn ids(&self) -> IdMap {
        own_ids()
    }

    /// Whether this machine has what roots need that are made as the configuration says, as far as it is seen without trying.
    pub fn check_roots(&self) -> Result<()> {
        let Form::Image(device) = self.config.roots.of_build().form else { return Ok(()) };
        let Some(lack) = block::lack(device.file_system) else { return Ok(()) };
        let mut error = Error::new(Kind::Machine, "roots on a block device cannot be made here");
        error.causes.push(lack.to_string());
        Err(error.hint(lack.help()))
    }
}

/// The ids of roots, for the user who runs this.
pub fn own_ids() -> IdMap {
    IdMap::of_this_user(&user_name()).0
}

/// The name of the user who runs this, or the number where there is none.
pub fn user_name() -> String {
    let number = rustix::process::geteuid().as_raw().to_string();
    let passwd = fs_err::read_to_string("/etc/passwd").unwrap_or_default();
    let line = passwd.lines().find(|line| line.split(':').nth(2) == Some(&number));
    line.and_then(|line| line.split(':').next()).map_or(number.clone(), str::to_owned)
}

/// An error of the store, for people.
pub fn store_error(error: StoreError) -> Error {
    let kind = match error {
        StoreError::TooNew { .. } => Kind::Usage,
        _ => Kind::Machine,
    };
    Err::<(), _>(error).context(kind, "use the yard's store").unwrap_err()
}
