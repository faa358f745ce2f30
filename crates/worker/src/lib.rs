//! Performs builds: makes a root, runs the stages in it, collects and tests the outputs, cleans up.
//!
//! [`Worker::perform`] performs one lease from beginning to end and returns its result. The owner of the slots calls
//! it, each slot from its own thread. It reports progress through a [`Link`], which renews the lease, asks the
//! coordinator which outputs to keep and how to test them, and checks a flag that cancels the build. It does not know
//! the set: the lease contains all that it needs. Outputs are added to the file store, by content, before the
//! result claims that they exist.
//!
//! The root of a package's latest failed build is kept for inspection. Everything else that a build leaves is removed
//! while later builds run, or by [`Worker::sweep`] at the next start, except for the work of packages whose orders keep
//! some.

mod apart;
mod bound;
mod build;
mod capture;
mod client;
mod conditions;
mod cores;
mod damage;
mod depends;
mod fakeroot;
mod fetch;
mod host;
mod keep;
mod kept;
mod layers;
mod leftovers;
mod link;
mod local;
mod machines;
mod memory;
mod remover;
mod roots;
mod runner;
mod sandboxed;
mod supply;
mod tenants;
mod tools;
mod trees;
mod verdict;

pub use bound::{InUse, Tidied};
pub use capture::{CAPTURED, OUT_OF_TIME, TOO_LONG};
pub use client::{Client, ClientError, Inbox, Incomings, Transport};
pub use conditions::conditions;
pub use cores::{Cores, Share};
pub use damage::find_damage;
pub use depends::Stacked;
pub use fetch::{Claim, Fetched};
pub use host::host;
pub use kept::{KEPT_WORK, forget_kept_work};
pub use kilnyard_vm::Accelerator;
pub use layers::{DEPENDENCIES, Image, SETS};
pub use leftovers::{LEFT_OVER, LeftOver, remove_or_set_aside, set_aside_before, sweep as sweep_roots};
pub use link::{Link, Silent, Unprovided};
pub use local::{Local, ShownFolder};
pub use machines::{InMachine, KERNELS, accelerator_of, missing_machine};
pub use roots::{BaseFolders, BaseSandbox, BuildFacts, RootFolder, run_in_base};
pub use runner::{Entering, RunnerError};
pub use supply::{SharedFolder, Supply, unsigned};
pub use tenants::{SharedMachine, Sharer, Tenant};
pub use tools::{JobserverStyle, jobserver_path};
pub use trees::{ARCHIVES, TreeError, Trees, YARDS};
pub use verdict::of_fetch as kind_of_fetch_failure;

use kilnyard_ecosystem::OutputBounds;
use kilnyard_mirror::FileStore;
use kilnyard_model::order::{BuildTerms, RootOrder};
use kilnyard_process::{LimitRules, LogLimits};
use kilnyard_root::{IdMap, Roots};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// The user and group of the root that builds.
pub const BUILDER_ID: u32 = 1000;

/// The folder of every base root that belongs to the builder.
pub const BUILDER_FOLDER: &str = "/build";

/// The configuration of a worker, fixed for its lifetime.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The yard's folder; all relative paths start here.
    pub yard: PathBuf,
    /// The folder of the worker, if several yards share it: see [`Trees::of_site`].
    pub site: Option<PathBuf>,
    /// User and group ids inside roots, and the ids on this machine that they map to.
    pub ids: IdMap,
    /// Folders of this machine that orders may mount, by name.
    pub folders: BTreeMap<String, PathBuf>,
    /// Rules from which the limits of each stage are derived.
    pub limits: LimitRules,
    /// Limits on what outputs may unpack to.
    pub output_bounds: OutputBounds,
    /// How much of each log to keep.
    pub log_limits: LogLimits,
    /// How roots are made.
    pub roots: Roots,
    /// Whether work folders may be in memory.
    pub works_in_memory: bool,
    /// Disk space for dependency layers; with 0, the package manager installs all dependencies in each root.
    pub layers_bytes_max: u64,
    /// Disk space for kept work; with 0, nothing is kept.
    pub kept_bytes_max: u64,
    /// How many roots of failed builds to keep.
    pub failed_roots_max: usize,
    /// Packages whose builds may make namespaces of their own.
    pub nesting: BTreeSet<String>,
    /// How the jobserver is passed to make.
    pub jobserver: JobserverStyle,
    /// The number of parallel jobs of a build.
    pub jobs: u32,
    /// Network access of commands that fetch.
    pub network: Network,
}

/// The machine's network settings for commands that fetch. Not part of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// The contents of `resolv.conf` (resolv.conf(5)).
    pub resolv_conf: String,
    /// Environment variables, such as proxy settings.
    pub environment: Vec<(String, String)>,
}

impl Settings {
    /// The rules of a build with these terms.
    fn limits_of(&self, terms: &BuildTerms) -> LimitRules {
        let own = self.limits;
        let seconds =
            |configured: Option<u64>, usual: f64| configured.map_or(usual, |seconds| seconds as f64);
        LimitRules {
            wall_seconds_max: seconds(terms.wall_seconds_max, own.wall_seconds_max),
            cpu_seconds_min: seconds(terms.cpu_seconds_min, own.cpu_seconds_min),
            cpu_seconds_unknown_max: match terms.cpu_seconds_min {
                Some(seconds) => Some(seconds as f64),
                None => own.cpu_seconds_unknown_max,
            },
            hung_seconds_min: seconds(terms.hung_seconds_min, own.hung_seconds_min),
            silent_seconds_min: seconds(terms.silent_seconds_min, own.silent_seconds_min),
            processes_max: terms.processes_max.unwrap_or(own.processes_max),
            memory_bytes_min: terms.memory_bytes_min.unwrap_or(own.memory_bytes_min),
            // The machine's, which no package may exceed.
            memory_bytes_max: own.memory_bytes_max,
            written_bytes_min: terms.written_bytes_min.unwrap_or(own.written_bytes_min),
            open_files_max: terms.open_files_max.unwrap_or(own.open_files_max),
        }
    }

    /// The number of parallel jobs of a build with these terms.
    fn jobs_of(&self, terms: &BuildTerms) -> u32 {
        terms.jobs_max.map_or(self.jobs, |jobs| jobs.clamp(1, self.jobs.max(1)))
    }
}

/// See the module documentation.
#[derive(Clone)]
pub struct Worker {
    settings: Arc<Settings>,
    distfiles: Arc<FileStore>,
    /// Makes roots, and runs commands in them.
    runner: Arc<dyn runner::Runner>,
    /// Files being fetched.
    fetching: Arc<fetch::Names>,
    layers: Arc<layers::Layers>,
    damage: Arc<damage::Damage>,
    trees: Arc<Trees>,
    /// What running builds use of the folder.
    uses: Arc<bound::Uses>,
    kept: Arc<kept::Kept>,
}

impl Worker {
    /// Creates a worker. Call [`Worker::sweep`] before the first build.
    pub fn new(settings: Settings, distfiles: Arc<FileStore>) -> Worker {
        let settings = Arc::new(settings);
        let layers = layers::Layers::new(&settings.yard, &settings.ids, settings.layers_bytes_max);
        let layers = Arc::new(layers);
        let runner = sandboxed::Sandboxed::new(settings.clone(), distfiles.clone(), layers.clone());
        let (fetching, damage, uses) = Default::default();
        let trees = Arc::new(Trees::new(&settings.yard, &settings.ids).of_site(settings.site.as_deref()));
        let kept = Arc::new(kept::Kept::new(&settings.yard, settings.kept_bytes_max));
        Worker { settings, distfiles, runner: Arc::new(runner), fetching, layers, damage, trees, uses, kept }
    }

    /// Removes the remains of interrupted builds, and writes the programs that roots use. Call it once, before the
    /// first build. Returns the folders that could not be removed and were set aside.
    pub fn sweep(&self) -> std::io::Result<Vec<LeftOver>> {
        tools::prepare(&self.settings.yard)?;
        let mut left = leftovers::sweep(&self.settings.yard, &self.settings.ids)?;
        left.extend(self.layers.sweep()?);
        self.kept.sweep()?;
        Ok(left)
    }

    /// The settings that [`Worker::new`] received.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The trees that roots are made of.
    pub fn trees(&self) -> &Trees {
        &self.trees
    }

    /// The layers and folders of the root of the package's last failed build; absent if no such root is kept.
    ///
    /// # Errors
    /// They cannot be read: an earlier version of Kilnyard, which did not record them, kept the root.
    pub fn failed_root(&self, package: &str) -> std::io::Result<Option<RootOrder>> {
        self.runner.failed_root(package)
    }

    /// Runs a command in that root: `run` starts it, with standard input and output of its choice, and waits for it.
    /// Returns the exit code that `run` returns.
    pub fn enter_failed_root(
        &self,
        entering: &Entering<'_>,
        run: &mut dyn FnMut(std::process::Command) -> std::io::Result<i32>,
    ) -> Result<i32, RunnerError> {
        self.runner.enter_failed_root(entering, run)
    }

    /// Removes the kept work of a build that succeeded and does not count.
    pub(crate) fn forget_kept(&self, build: u64) {
        self.kept.forget_build(build);
    }

    /// The keys of the kept work on this machine.
    pub fn kept_keys(&self) -> Vec<String> {
        self.kept.keys()
    }

    /// Syncs dependency layers to the disk, so that they survive a crash of the machine. Call it once, after the last
    /// build.
    pub fn keep_layers(&self) -> std::io::Result<()> {
        self.layers.synchronize()
    }
}
