//! Performs builds: makes a root, runs the stages in it, takes over the outputs, tries them, cleans up.
//!
//! [`Worker::perform`] does one lease from beginning to end and returns its result; whoever owns the slots
//! calls it, each slot from a thread of its own. It reports how it goes through a [`Link`], which renews the lease, asks there
//! which outputs are kept and how they are tried, and looks at a flag that cancels it. It knows no set: what it needs is in
//! the lease. Outputs go into the store of distfiles by their content before the result says
//! that they exist.
//!
//! The root of a failed build is kept, the latest of each package, for a person to look into. Everything
//! else that a build leaves is removed beside the builds that follow, or by [`Worker::sweep`] at the next
//! start.

mod apart;
mod build;
mod client;
mod cores;
mod damage;
mod depends;
mod fakeroot;
mod fetch;
mod host;
mod layers;
mod leftovers;
mod link;
mod local;
mod memory;
mod remover;
mod roots;
mod runner;
mod sandboxed;
mod tools;
mod trees;
mod verdict;

pub use client::{Client, ClientError, Inbox, Incomings, Transport};
pub use cores::{Cores, Share};
pub use damage::find_damage;
pub use depends::Stacked;
pub use fetch::{Claim, Fetched};
pub use host::host;
pub use layers::{DEPENDENCIES, Image, SETS};
pub use leftovers::{LEFT_OVER, LeftOver, remove_or_set_aside, set_aside_before, sweep as sweep_roots};
pub use link::{Link, Silent};
pub use local::{Local, ShownFolder};
pub use roots::{BaseFolders, BaseSandbox, BuildFacts, RootFolder, run_in_base};
pub use runner::{Entering, RunnerError};
pub use tools::{JobserverStyle, jobserver_path};
pub use trees::{ARCHIVES, TreeError, Trees};
pub use verdict::of_fetch as kind_of_fetch_failure;

use kilnyard_ecosystem::OutputBounds;
use kilnyard_mirror::DistfileStore;
use kilnyard_process::{LimitRules, LogLimits};
use kilnyard_root::{IdMap, Roots};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// The user and group of the root that builds.
pub const BUILDER_ID: u32 = 1000;

/// The folder of every base root that belongs to the builder.
pub const BUILDER_FOLDER: &str = "/build";

/// What a worker is told once.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The yard's folder.
    pub yard: PathBuf,
    /// The ids of its roots.
    pub ids: IdMap,
    /// Folders of this machine that orders may show, by their names.
    pub folders: BTreeMap<String, PathBuf>,
    /// From what the limits of each stage follow.
    pub limits: LimitRules,
    /// The same of packages that have their own.
    pub package_limits: BTreeMap<String, LimitRules>,
    /// What outputs may unpack to.
    pub output_bounds: OutputBounds,
    /// How much of each log is kept.
    pub log_limits: LogLimits,
    /// How roots are made.
    pub roots: Roots,
    /// Whether work folders may be in memory.
    pub works_in_memory: bool,
    /// How much layers of dependencies may take on the disk; with 0, the package manager installs all of them in each root.
    pub layers_bytes_max: u64,
    /// How many roots of failed builds are kept.
    pub failed_roots_max: usize,
    /// Packages whose builds may make namespaces of their own.
    pub nesting: BTreeSet<String>,
    /// How builds find their jobserver.
    pub jobserver: JobserverStyle,
    /// How many processes of a build may run at once.
    pub jobs: u32,
    /// How commands that fetch reach others.
    pub network: Network,
}

/// What commands that fetch need to know of the machine's network. No part of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// How names are resolved: the text of `resolv.conf` (resolv.conf(5)).
    pub resolv_conf: String,
    /// Variables, such as those of a proxy.
    pub environment: Vec<(String, String)>,
}

impl Settings {
    /// From what the limits of a package's stages follow.
    fn limits_of(&self, package: &str) -> LimitRules {
        self.package_limits.get(package).copied().unwrap_or(self.limits)
    }
}

/// See the module.
#[derive(Clone)]
pub struct Worker {
    settings: Arc<Settings>,
    distfiles: Arc<DistfileStore>,
    /// Makes roots, and runs what is run in them.
    runner: Arc<dyn runner::Runner>,
    /// Files that somebody fetches just now.
    fetching: Arc<fetch::Names>,
    layers: Arc<layers::Layers>,
    damage: Arc<damage::Damage>,
    trees: Arc<Trees>,
}

impl Worker {
    /// A worker of this yard.
    pub fn new(settings: Settings, distfiles: Arc<DistfileStore>) -> Worker {
        let settings = Arc::new(settings);
        let layers = layers::Layers::new(&settings.yard, &settings.ids, settings.layers_bytes_max);
        let layers = Arc::new(layers);
        let runner = sandboxed::Sandboxed::new(settings.clone(), distfiles.clone(), layers.clone());
        let (fetching, damage) = Default::default();
        let trees = Arc::new(Trees::new(&settings.yard, &settings.ids));
        Worker { settings, distfiles, runner: Arc::new(runner), fetching, layers, damage, trees }
    }

    /// Removes what builds left that did not end, and writes what roots are given: to be called once, before the first
    /// build. What was set aside since it could not be removed.
    pub fn sweep(&self) -> std::io::Result<Vec<LeftOver>> {
        tools::prepare(&self.settings.yard)?;
        let mut left = leftovers::sweep(&self.settings.yard, &self.settings.ids)?;
        left.extend(self.layers.sweep()?);
        Ok(left)
    }

    /// Its settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The trees that roots begin with.
    pub fn trees(&self) -> &Trees {
        &self.trees
    }

    /// Whether the root of the last failed build of a package is kept.
    pub fn has_failed_root(&self, package: &str) -> bool {
        self.runner.has_failed_root(package)
    }

    /// Enters that root with the terminal of this process; the exit code of the command.
    pub fn enter_failed_root(&self, entering: &Entering<'_>) -> Result<i32, RunnerError> {
        self.runner.enter_failed_root(entering)
    }

    /// Makes sure that layers of dependencies outlive a machine that goes down: to be called once, after the last build.
    pub fn keep_layers(&self) -> std::io::Result<()> {
        self.layers.synchronize()
    }
}
