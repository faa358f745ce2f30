//! A yard: a folder with a configuration and all of Kilnyard's files for it.

pub(crate) mod artifacts;
mod folders;
pub(crate) mod store;
mod verify;

pub use artifacts::{
    Unneeded, bring, bring_log, depot_of, fresh_since_seconds, needed, share_outputs, unneeded,
};
pub use kilnyard_store_postgres::Documents;
pub use store::{STORE, store_error};
pub use verify::{Verified, verify};

use crate::config::Config;
use crate::config::targets::TargetConfig;
use crate::environment::Environment;
use crate::error::{Context, Error, Kind, Result};
use crate::family::FamilyEntry;
use crate::remedy::Remedy;
use kilnyard_model::order::Stage;
use kilnyard_model::target::Target;
use kilnyard_root::{Form, IdMap, block};
use kilnyard_store::BuildRow;
use kilnyard_worker::{Network, Trees};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

/// File name of the configuration.
pub const CONFIG: &str = "kilnyard.toml";

/// Other processes hold the lock for an instant to check it, so taking it is retried.
const LOCK_TRIES: u32 = 10;
const TAKE_AGAIN_TRIES: u32 = 500;
const LOCK_PAUSE: std::time::Duration = std::time::Duration::from_millis(20);

/// Environment variables passed to commands that fetch.
const FETCH_VARIABLES: [&str; 8] = [
    "http_proxy",
    "https_proxy",
    "ftp_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "FTP_PROXY",
    "NO_PROXY",
];

/// The folder of the targets, in a yard with several.
pub(crate) const TARGETS: &str = "targets";

/// Limit on what is read of the lock file.
const HOLDER_BYTES_MAX: u64 = 1024;

/// An opened yard.
#[derive(Clone, Debug)]
pub struct Yard {
    /// The absolute path of the folder with the state, index, layers, roots, logs and report.
    pub folder: PathBuf,
    /// The absolute path of the folder with the configuration, the signing key, own sources and the repository. It
    /// differs from `folder` in a target of a yard with several.
    pub home: PathBuf,
    /// The name of the target, in a yard with several.
    pub target_name: Option<String>,
    /// The configuration in `kilnyard.toml`.
    pub config: Config,
    /// The variables that the user has set, as far as a yard may use them.
    pub environment: Environment,
}

/// The lock that permits changing a yard. One process holds it at a time.
#[derive(Debug)]
pub struct Lock {
    file: std::fs::File,
}

impl Lock {
    /// Writes to the lock file what this process is doing, for others to see before there is a run: see
    /// [`Yard::holder`].
    pub fn note(&self, phase: &str) -> std::io::Result<()> {
        let mut file = &self.file;
        file.rewind()?;
        file.set_len(0)?;
        file.write_all(format!("{}\n{phase}\n", std::process::id()).as_bytes())
    }

    /// Lets other processes work on the yard until [`Lock::take_again`].
    ///
    /// # Errors
    /// The system refuses it.
    pub fn release(&self) -> std::io::Result<()> {
        self.file.unlock()
    }

    /// Takes a released lock again. Waits a few seconds for other processes.
    ///
    /// # Errors
    /// Another process keeps it, or the system refuses it.
    pub fn take_again(&self) -> std::io::Result<()> {
        for _ in 0..TAKE_AGAIN_TRIES {
            match self.file.try_lock() {
                Err(std::fs::TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
                Err(std::fs::TryLockError::Error(error)) => return Err(error),
                Ok(()) => return self.note(""),
            }
        }
        Err(std::io::Error::other("another Kilnyard is working on the yard"))
    }
}

/// The process that works on a yard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its process id.
    pub process: String,
    /// What it is doing; empty if it wrote nothing.
    pub phase: String,
}

impl Yard {
    /// Opens the yard in this folder. Fails if it belongs to another user.
    pub fn open(
        folder: &Path,
        families: &[&'static dyn FamilyEntry],
        environment: &Environment,
    ) -> Result<Yard> {
        folders::check_owner(folder)?;
        Yard::open_of_anyone(folder, families, environment)
    }

    /// Opens the yard in this folder, whichever user owns it.
    pub fn open_of_anyone(
        folder: &Path,
        families: &[&'static dyn FamilyEntry],
        environment: &Environment,
    ) -> Result<Yard> {
        let path = folder.join(CONFIG);
        let text = fs_err::read_to_string(&path).map_err(|error| {
            if error.kind() == std::io::ErrorKind::PermissionDenied {
                let failed = Err::<(), _>(error).context(Kind::Machine, "read the yard's configuration");
                return failed.unwrap_err();
            }
            let mut missing = Error::usage(format!("no yard in {}", folder.display()));
            missing.causes.push(error.to_string());
            missing
                .hint(families.first().map_or_else(|| Remedy::command("init"), |family| family.init_remedy()))
        })?;
        let mut config = Config::parse(&text, &path, families)?;
        let folder = fs_err::canonicalize(folder).or_internal("find the yard")?;
        // Paths in the configuration are relative to the yard, not to the current folder.
        config.family = config.family.located(&folder, &folder);
        for target in &mut config.targets {
            let own = folder.join(TARGETS).join(&target.name);
            target.config.family = target.config.family.located(&folder, &own);
        }
        Ok(Yard::of_parts(folder, config, environment))
    }

    /// A yard with a single target from its parts. Paths in the configuration are absolute.
    pub fn of_parts(folder: PathBuf, config: Config, environment: &Environment) -> Yard {
        Yard { home: folder.clone(), folder, target_name: None, config, environment: environment.clone() }
    }

    /// The targets of the yard, each as a yard in its own folder. A yard without `[[target]]` is its only target.
    pub fn targets(&self) -> Result<Vec<Yard>> {
        if self.config.targets.is_empty() {
            return Ok(vec![self.clone()]);
        }
        let of = |target: &TargetConfig| {
            let folder = self.home.join(TARGETS).join(&target.name);
            for path in [self.home.join(TARGETS), folder.clone()] {
                if fs_err::symlink_metadata(&path).is_ok_and(|facts| !facts.is_dir()) {
                    let message = format!("{} is not a folder; remove it", path.display());
                    return Err(Error::new(Kind::Machine, message));
                }
            }
            Ok(Yard {
                folder,
                config: target.config.clone(),
                target_name: Some(target.name.clone()),
                ..self.clone()
            })
        };
        self.config.targets.iter().map(of).collect()
    }

    /// The targets that a word names: the one of this name, or else all of this release or architecture.
    ///
    /// # Errors
    /// It names none.
    pub fn targets_named(&self, word: &str) -> Result<Vec<Yard>> {
        let all = &self.config.targets;
        let is_a_name = all.iter().any(|target| target.name == word);
        let is_named = |target: &TargetConfig| match is_a_name {
            true => target.name == word,
            false => target.is_meant(word),
        };
        // `targets` has them in the same order.
        let yards = self.targets()?.into_iter().zip(all);
        let named: Vec<Yard> = yards.filter(|(_, target)| is_named(target)).map(|(yard, _)| yard).collect();
        if named.is_empty() {
            let all: Vec<&str> = self.config.targets.iter().map(|target| target.name.as_str()).collect();
            return Err(Error::usage(match all[..] {
                [] => "this yard has no [[target]] in kilnyard.toml".to_owned(),
                _ => format!("this yard has no target {}; it has {}", word.escape_debug(), all.join(", ")),
            }));
        }
        Ok(named)
    }

    /// The folder of the repository, which all targets share.
    pub fn repository(&self) -> PathBuf {
        self.home.join("repository")
    }

    /// Resolves a path relative to the yard.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.folder.join(relative)
    }

    /// Finds the log of a running stage: one that no result refers to yet. Returns its path relative to the
    /// yard. If a stage has several parts, the part's name stands between the build number and the stage.
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

    /// Creates the folders of a yard.
    pub fn make_folders(folder: &Path) -> Result<()> {
        folders::make(folder, None)
    }

    /// The same for a yard whose roots have the ids of another one's, so that both can share files of layers.
    pub fn make_folders_like(folder: &Path, like: &Path) -> Result<()> {
        folders::make(folder, Some(like))
    }

    /// Takes the lock that permits changing the yard.
    pub fn lock(&self) -> Result<Lock> {
        Self::make_folders(&self.folder)?;
        let path = self.path("state/lock");
        let mut file = folders::lock_file(&self.folder, true)
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
                    format!("another Kilnyard (process {holder}) is working on {}", self.folder.display());
                return Err(Error::usage(message).hint(
                    Remedy::command("status")
                        .then(", which shows what it is doing; retry, skip and bump affect that run"),
                ));
            }
            Err(std::fs::TryLockError::Error(error)) => {
                return Err(error).context(Kind::Machine, format!("lock {}", path.display()));
            }
        }
        let lock = Lock { file };
        lock.note("").context(Kind::Machine, format!("write {}", path.display()))?;
        Ok(lock)
    }

    /// Takes the lock of a repository that several targets share, and waits for it. The yard's own lock protects that
    /// of a single one.
    pub fn lock_repository(&self) -> Result<Option<std::fs::File>> {
        if self.target_name.is_none() {
            return Ok(None);
        }
        let failed = "lock the repository of the targets";
        let file = folders::lock_file(&self.home, true).context(Kind::Machine, failed)?;
        file.lock().context(Kind::Machine, failed)?;
        Ok(Some(file))
    }

    /// Whether a process holds the lock.
    pub fn is_locked(&self) -> bool {
        folders::lock_file(&self.folder, false)
            .is_ok_and(|file| matches!(file.try_lock_shared(), Err(std::fs::TryLockError::WouldBlock)))
    }

    /// The process that holds the lock, if any.
    pub fn holder(&self) -> Option<Holder> {
        if !self.is_locked() {
            return None;
        }
        // The file has two short lines, but another user's yard may contain anything.
        let mut text = String::new();
        let file = folders::lock_file(&self.folder, false).ok()?;
        file.take(HOLDER_BYTES_MAX).read_to_string(&mut text).ok()?;
        let mut lines = text.lines().map(str::to_owned);
        Some(Holder { process: lines.next().unwrap_or_default(), phase: lines.next().unwrap_or_default() })
    }

    /// The target that the yard builds for.
    pub fn target(&self) -> Result<Target> {
        self.config
            .family
            .target()
            .map_err(|error| Error::usage(format!("invalid target in the configuration: {error}")))
    }

    /// The ids of the yard's roots when this user runs it.
    pub fn ids(&self) -> IdMap {
        folders::ids(&self.folder)
    }

    /// The trees that the yard's roots start from.
    pub fn trees(&self) -> Trees {
        Trees::new(&self.folder, &self.ids())
    }

    /// Network settings for commands that fetch.
    pub fn network(&self) -> Network {
        let mut network = network(&self.environment);
        let distfiles = crate::mirror::site(self).and_then(|site| site.distfiles());
        let of_mirror = distfiles.map(|url| self.config.family.fetch_environment(&url)).unwrap_or_default();
        network.environment.extend(of_mirror);
        network
    }

    /// The ids of roots in a folder, a yard or a worker's own, when this user runs it.
    pub fn ids_of(folder: &Path) -> IdMap {
        folders::ids(folder)
    }

    /// Checks the requirements of the configured roots that can be checked without making one.
    pub fn check_roots(&self) -> Result<()> {
        let Form::Image(device) = self.config.roots.of_build().form else { return Ok(()) };
        let Some(lack) = block::missing_requirement(device.server, device.file_system) else { return Ok(()) };
        let mut error = Error::new(Kind::Machine, "this machine cannot make roots on a block device");
        error.causes.push(lack.to_string());
        Err(error.hint(remedy_for(&lack)))
    }
}

/// Remedy for a machine that cannot make roots on devices.
pub fn remedy_for(lack: &block::MissingRequirement) -> Remedy {
    let packages: Vec<&'static str> = lack.package().into_iter().collect();
    lack.help().map_or_else(|| Remedy::packages(&packages), Remedy::from)
}

/// The ids of roots outside any yard, when this user runs Kilnyard.
pub fn own_ids() -> IdMap {
    IdMap::of_this_user(&user_name(), 0).0
}

/// The name of the current user, or the number if it has no name.
pub fn user_name() -> String {
    user_of(rustix::process::geteuid().as_raw())
}

/// The name of a user, or the number if it has no name.
fn user_of(number: u32) -> String {
    let number = number.to_string();
    let passwd = fs_err::read_to_string("/etc/passwd").unwrap_or_default();
    let line = passwd.lines().find(|line| line.split(':').nth(2) == Some(&number));
    line.and_then(|line| line.split(':').next()).map_or(number.clone(), str::to_owned)
}

/// Network settings for commands that fetch.
pub(crate) fn network(environment: &Environment) -> Network {
    let variable = |name: &&str| Some(((*name).to_owned(), environment.get(name)?.to_owned()));
    Network {
        resolv_conf: fs_err::read_to_string("/etc/resolv.conf").unwrap_or_default(),
        environment: FETCH_VARIABLES.iter().filter_map(variable).collect(),
    }
}
