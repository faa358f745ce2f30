//! Benchmarks that measure Kilnyard on this machine.
//!
//! Contenders are measured in pairs, in turn and in one run, so that other load affects both. Reports give the
//! median, the minimum and the maximum; ratios are computed pair by pair. CPU time is user and system time of all
//! processes that were waited for; other load changes it far less than wall time. Every measurement runs in its own
//! folder, which is removed afterwards. In a yard, missing prerequisites of a build (the base, distfiles) are fetched
//! or made, and nothing else is changed.
//!
//! A benchmark prints nothing and reads no environment: the program passes a [`Trial`] and gets a
//! [`figures::Report`]. The program also provides the code that runs builds, so that benchmarks measure what
//! users run.
//!
//! Known downside: benchmarks of whole builds need a yard whose mirror responds.

mod block;
mod child;
mod debian;
mod demo;
pub mod fakeroot;
mod farm;
pub mod figures;
mod link;
mod mirrors;
mod monitor;
mod overhead;
mod pkgsrc;
mod queries;
pub mod roots;
mod rpm;
mod schedule;
mod scratch;
mod serve;
mod store;
mod subject;

pub use farm::processors;

// Packages that are never built, and an empty yard, must be of some family; which one makes no difference.
use debian::{empty_yard, sham, synthetic};

// Re-exported under the names that the yard crate uses.
use clap::{Args, ValueEnum};
use kilnyard_mirror::FileStore;
use kilnyard_store::{RunState, Store};
use kilnyard_yard::{
    config, environment, error, family, files, init, interrupt, mirror, plan, report, shape, unpack, words,
    worker, yard,
};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The arguments of `kilnyard bench`.
#[derive(Debug, Args)]
pub struct BenchOptions {
    /// The benchmark to run.
    pub name: BenchName,
    /// Source package to build.
    #[arg(long, default_value = "libmd")]
    pub package: String,
    /// Scan of a pkgsrc tree, for `tree`; it may be compressed.
    #[arg(long, value_name = "FILE", required_if_eq("name", "tree"))]
    pub scan: Option<PathBuf>,
    /// Tarball of the release for sbuild in "unshare" mode; makes `overhead` and `demo` measure sbuild as well.
    #[arg(long, value_name = "FILE")]
    pub sbuild_chroot: Option<PathBuf>,
    /// Write a bar chart to this SVG file, for `roots` and `cells`.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Measure virtual machines even if their instructions are emulated, for `cells`.
    #[arg(long)]
    pub emulated: bool,
    /// Family of the yard's packages, for `roots`, which fails if the yard has another one.
    #[arg(long, value_name = "NAME")]
    pub family: Option<String>,
    /// Unpacked source with a `configure` script, for `fakeroot` to build.
    #[arg(long, value_name = "DIR")]
    pub source: Option<PathBuf>,
    /// The workers of one process of `farm`, which starts it.
    #[arg(long, value_name = "FILE", hide = true)]
    pub workers_of: Option<PathBuf>,
    /// Number of workers, for `farm-logs`, or of readers, for `serve`.
    #[arg(long, default_value_t = 300, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub workers: u32,
    /// Time to measure, for `farm-logs`, `serve` and `serve-replay`.
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: u32,
    /// Number of packages, for `signing`.
    #[arg(long, default_value_t = 2000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub packages: u32,
    /// The size of a package in KiB, for `signing`.
    #[arg(long, default_value_t = 1024, value_name = "KIB", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub kib: u32,
    /// The folder of a signer whose keys sign, for `signing`: with keys in a token, for instance. Default: a new one.
    #[arg(long, value_name = "FOLDER")]
    pub signer: Option<PathBuf>,
    /// URL of a PostgreSQL database for `store`, which makes a schema of its own there and removes it. Default: a file.
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// A file with the password for the database.
    #[arg(long, value_name = "FILE", requires = "url")]
    pub password_file: Option<PathBuf>,
    /// A file with the certificates of which one signed the server's.
    #[arg(long, value_name = "FILE", requires = "url")]
    pub certificates: Option<PathBuf>,
    /// How many pairs of measurements to make. Default: 3, and 7 for `farm-cost`.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub pairs: Option<u32>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl BenchOptions {
    /// How many pairs of measurements to make.
    pub fn pairs(&self) -> u32 {
        self.pairs.unwrap_or(match self.name {
            // A few percent of builds that vary by as much.
            BenchName::FarmCost => 7,
            _ => 3,
        })
    }
}

/// The benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BenchName {
    /// Kilnyard's own cost for a package of any family, compared with only its build commands in the same root.
    Overhead,
    /// Building, testing and publishing the yard's set in an otherwise empty yard; `kilnyard demo` creates a set.
    Demo,
    /// `kilnyard check` for the whole release.
    Check,
    /// A run of 2,000 packages by 300 workers, whose builds only wait: what the leader needs, and how long it takes.
    Farm,
    /// The logs of 300 workers, 10 MB/s together: what the leader needs, and how late `log --follow` prints lines.
    FarmLogs,
    /// The yard's set built by `serve` and a worker process on this machine, compared with `build` alone.
    FarmCost,
    /// The yard's set built by two workers of one core each, compared with one of two cores and with `simulate`.
    FarmSplit,
    /// The yard's set built by this machine as one, two and four cells, workers with processors of their own, with roots on the
    /// disk, in memory and on block devices, and in virtual machines where KVM works.
    Cells,
    /// The mirror of a site and what a farm sends: a herd, the cost of hits, changes of a tree, links with a delay, which only root
    /// can make.
    Mirror,
    /// Publishing 2,000 packages after one has changed.
    Publish,
    /// Kilnyard's fakeroot compared with plain calls and with other installed fakeroots.
    Fakeroot,
    /// The cost of monitoring a build.
    Monitor,
    /// Kilnyard's block devices compared with nbdkit's, over NBD and below ext4. It needs fio, and root for file systems.
    Block,
    /// Building a real package with every root backend that works on this machine, and with dependencies as layers;
    /// ends with a recommendation.
    Roots,
    /// status, why, log and plan in a yard with 30,000 packages and 20 runs.
    Queries,
    /// The pages and the feed of a run of 30,000 packages, with many readers.
    Serve,
    /// The same through all events of a run of 30,000 packages, replayed within `--seconds`: the memory of the server.
    ServeReplay,
    /// The store of a run of 29,000 packages: its begin, the start of a new leader, decisions and events in a second.
    Store,
    /// The lists of an RPM repository of 2,000 packages after one has changed, compared with createrepo_c.
    Metadata,
    /// Signing 2,000 packages of 1 MiB one by one, as `pkg_add` verifies them, compared with hashing them.
    Signing,
    /// Real builds whose cores follow rank, compared with a fixed number of jobs per build.
    Schedule,
    /// The scan of a pkgsrc tree: resolving it (compared with bob), the time to the first build, a rescan, a look-up.
    Tree,
}

/// What the program provides to a benchmark.
#[derive(Clone, Copy)]
pub struct Trial<'a> {
    /// Number of pairs to measure.
    pub pairs: u32,
    /// The machine's folder for temporary files.
    pub temporary: &'a Path,
    /// The environment variables that a yard may use.
    pub environment: &'a environment::Environment,
    /// Receives progress messages.
    pub progress: &'a dyn Fn(&str),
    /// Runs plans.
    pub runner: &'a dyn Runner,
}

impl Trial<'_> {
    fn say(&self, what: impl Display) {
        (self.progress)(&what.to_string());
    }
}

/// Fails if a yard has packages of another family than this.
fn check_family(yard: &yard::Yard, family: &str) -> error::Result<()> {
    let own = yard.config.family.title();
    if own.eq_ignore_ascii_case(family) {
        return Ok(());
    }
    let error = error::Error::usage(format!("the packages of this yard are {own}'s, not {family}'s"));
    Err(error.hint("--yard, with one that init made for that family"))
}

/// Runs the selected benchmark. `yard` opens the yard that the command line names.
pub fn measure(
    options: &BenchOptions,
    yard: impl FnOnce() -> error::Result<yard::Yard>,
    trial: &Trial<'_>,
    machine: &figures::Machine,
) -> error::Result<figures::Report> {
    let sbuild = options.sbuild_chroot.as_deref().map(debian::sbuild::Sbuild);
    let peer = sbuild.as_ref().map(|sbuild| sbuild as &dyn overhead::Peer);
    match options.name {
        BenchName::Overhead => overhead::measure(&yard()?, &options.package, trial, peer),
        BenchName::Demo => demo::measure(&yard()?, trial, peer),
        BenchName::Block => block::measure(trial),
        BenchName::Check => debian::check::measure(&yard()?, trial),
        BenchName::Farm => farm::measure(&yard()?, trial),
        BenchName::FarmLogs => {
            let amount = farm::logs::Amount { workers: options.workers as usize, seconds: options.seconds };
            farm::logs::measure(&yard()?, amount, trial)
        }
        BenchName::FarmCost => farm::cost::measure(&yard()?, trial),
        BenchName::FarmSplit => farm::split::measure(&yard()?, trial),
        BenchName::Cells => {
            farm::cells::measure(&yard()?, trial, machine, options.svg.as_deref(), options.emulated)
        }
        BenchName::Publish => debian::publish::measure(trial),
        BenchName::Fakeroot => fakeroot::measure(trial, options.source.as_deref()),
        BenchName::Metadata => rpm::measure(trial),
        BenchName::Mirror => mirrors::measure(trial),
        BenchName::Monitor => monitor::measure(trial),
        BenchName::Roots => {
            let yard = yard()?;
            if let Some(family) = &options.family {
                check_family(&yard, family)?;
            }
            let found = roots::measure(&yard, &options.package, trial, machine, options.svg.as_deref())?;
            Ok(if options.json { found.full } else { found.short })
        }
        BenchName::Schedule => schedule::measure(trial),
        BenchName::Queries => queries::measure(trial),
        BenchName::Serve => serve::measure(options, trial),
        BenchName::ServeReplay => serve::replay::measure(options, trial),
        BenchName::Signing => pkgsrc::signing::measure(options, trial),
        BenchName::Store => store::measure(options, trial),
        BenchName::Tree => match &options.scan {
            Some(scan) => pkgsrc::tree::measure(scan, trial),
            None => Err(error::Error::usage("no scan file given").hint("--scan FILE, a scan file of pkgsrc")),
        },
    }
}

/// Runs the workers of one process of the benchmark `farm`, until it is killed.
pub fn work(path: &Path) -> error::Result<()> {
    farm::worker::run(path)
}

/// Runs plans like `kilnyard build`.
pub trait Runner {
    /// Runs this plan. `until` is called with the name of each package whose build begins. The run ends early
    /// once it returns true.
    fn run(
        &self,
        yard: &yard::Yard,
        store: &mut dyn Store,
        planned: plan::Planned,
        distfiles: Arc<FileStore>,
        until: &mut dyn FnMut(&str) -> bool,
    ) -> error::Result<RunState>;
}

/// Fails if a signal has interrupted the benchmark.
fn check_interrupt() -> error::Result<()> {
    match interrupt::count() {
        0 => Ok(()),
        _ => Err(error::Error::new(error::Kind::Interrupted, "interrupted; all temporary files are removed")),
    }
}
