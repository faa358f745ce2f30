//! The options of `simulate`.

use crate::config::Size;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `simulate`.
#[derive(Debug, Args)]
#[command(after_help = SIMULATE)]
pub struct Simulate {
    /// The dependencies: lines `A -> B` (B depends on A), or a scan of a tree; plain or zstd. By default all
    /// packages of the yard, as if none were up to date.
    #[arg(long, value_name = "FILE", requires = "history")]
    pub graph: Option<PathBuf>,
    /// The build times: a CSV file as written by bob, plain or zstd. By default the times in the yard's store.
    #[arg(long, value_name = "FILE", requires = "graph")]
    pub history: Option<PathBuf>,
    /// Number of cores; this machine's by default.
    #[arg(long, value_name = "N", conflicts_with = "machines")]
    pub cores: Option<u32>,
    /// The machines: count, cores, and speed if it is not 1, as in 4x16,2x64@1.5. 1x16+600 joins after 600 s, and 1x16-600 is
    /// lost then.
    #[arg(long, value_name = "NxCORES,...", value_delimiter = ',')]
    pub machines: Vec<String>,
    /// A farm: a file with its machines, pools and yards, as docs/scheduling.md describes it.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = [
            "graph", "cores", "machines", "transfer", "rate", "kept", "hazard", "blind", "policy", "workers", "seeds", "svg",
        ]
    )]
    pub farm: Option<PathBuf>,
    /// The time that a message takes between the coordinator and a machine, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    pub delay: f64,
    /// The time in which the inputs of each build reach its machine, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    pub transfer: f64,
    /// The speed at which inputs reach each machine, per second, as in 100M. A machine keeps what reaches it. By default,
    /// inputs take no time.
    #[arg(long, value_name = "SIZE")]
    pub rate: Option<Size>,
    /// With --rate, the size of the base root.
    #[arg(long, value_name = "SIZE", default_value = "300M", requires = "rate")]
    pub base: Size,
    /// With --rate, the size of what each package makes.
    #[arg(long, value_name = "SIZE", default_value = "2M", requires = "rate")]
    pub output: Size,
    /// With --rate, machines begin with what they have after such a run.
    #[arg(long, requires = "rate")]
    pub warm: bool,
    /// Simulate a second run with kept work: a package takes this share of its time on the machine that built it in the
    /// first run.
    #[arg(long, value_name = "SHARE")]
    pub kept: Option<f64>,
    /// Packages whose builds stall their machines, by a pattern and their traps a second, as in chromium*=1e6. The run is
    /// simulated with and without virtual machines of one core for them. May be repeated.
    #[arg(long, value_name = "PATTERN=TRAPS")]
    pub hazard: Vec<String>,
    /// With --rate or --kept, the scheduler does not know what machines have.
    #[arg(long)]
    pub blind: bool,
    /// The scheduling policy.
    #[arg(long, value_name = "NAME", default_value = "rank")]
    pub policy: PolicyName,
    /// Parallel builds on each machine. By default, rank runs as many as keep the cores busy, and other policies
    /// are shown with the best of several numbers.
    #[arg(long, value_name = "N")]
    pub workers: Option<u32>,
    /// Multiply build times by a random factor whose logarithm has this standard deviation.
    #[arg(long, value_name = "SIGMA", default_value_t = 0.0)]
    pub noise: f64,
    /// With --noise, simulate with the seeds 1 to N, and show the means.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub seeds: u32,
    /// The memory of each machine, as in 64G; unlimited by default.
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Size>,
    /// Build time of packages without history, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub unknown: f64,
    /// Write a line for each start and end: time_seconds start|end package cores. With several seeds, only the first.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Draw the builds and the cores in use over time. With several seeds, only the first.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

const SIMULATE: &str = "The bound is the time that no schedule can beat: the longest path with each package alone on the \
best machine, or all the work spread over all cores, in all but the beginning and the end of the run. The simulation assumes that parallel parts use all cores they get; \
jobs beyond the number of cores share them equally.";

/// A scheduling policy of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyName {
    /// Kilnyard: the longest remaining path first, with cores following it.
    Rank,
    /// Like most builders: most dependents first, an equal share of the cores for each build.
    Dependents,
    /// bob 1.0: the same order, with jobs set by the CPU time of earlier builds.
    Bob,
    /// One job per build, as many builds as cores, most dependents first.
    OneJob,
    /// The longest remaining path first, with one jobserver shared equally by all builds.
    EqualJobserver,
}

impl PolicyName {
    /// The name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            PolicyName::Rank => "rank",
            PolicyName::Dependents => "dependents",
            PolicyName::Bob => "bob",
            PolicyName::OneJob => "one-job",
            PolicyName::EqualJobserver => "equal-jobserver",
        }
    }
}
