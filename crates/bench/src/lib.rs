//! Benchmarks: Kilnyard measured on this machine.
//!
//! What is compared is measured in pairs, in turn and in one run, so that what else the machine does falls
//! on both; the median, the smallest and the largest value are reported, and ratios pair by pair. CPU time is
//! user and system time of all processes that were waited for, which other load changes far less than wall
//! time. Every measurement happens in a folder of its own that is removed afterwards; of a yard, what is missing
//! for a build (the base, distfiles) is brought, and nothing else is changed.
//!
//! A benchmark prints nothing and reads no environment: the program gives it a [`Trial`] and gets a
//! [`figures::Report`]. Runs are the program's too, so that what is measured is what people use.
//!
//! Known downside: a benchmark of whole builds needs a yard with a mirror that answers.

mod child;
mod debian;
mod demo;
pub mod fakeroot;
pub mod figures;
mod monitor;
mod overhead;
mod pkgsrc;
mod queries;
pub mod roots;
mod schedule;
mod scratch;
mod subject;

// Made-up packages and an empty yard are of some family, and which one makes no difference.
use debian::{empty_yard, synthetic};

// What a benchmark measures is the yard's, by the yard's names.
use clap::{Args, ValueEnum};
use kilnyard_mirror::DistfileStore;
use kilnyard_store::{RunState, Store};
use kilnyard_yard::{
    config, environment, error, family, files, interrupt, key, mirror, plan, report, shape, unpack, words,
    worker, yard,
};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The arguments of `kilnyard bench`.
#[derive(Debug, Args)]
pub struct BenchOptions {
    /// What to measure.
    pub name: BenchName,
    /// A source package to build.
    #[arg(long, default_value = "libmd")]
    pub package: String,
    /// The scan of a pkgsrc tree, for `tree`; it may be packed.
    #[arg(long, value_name = "FILE", required_if_eq("name", "tree"))]
    pub scan: Option<PathBuf>,
    /// A tarball of the release for sbuild in its mode "unshare": `overhead` and `demo` then measure sbuild as well.
    #[arg(long, value_name = "FILE")]
    pub sbuild_chroot: Option<PathBuf>,
    /// A file for a bar chart, for `roots`; SVG.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// An unpacked source with a `configure`, for `fakeroot` to build.
    #[arg(long, value_name = "DIR")]
    pub source: Option<PathBuf>,
    /// How many pairs are measured.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub pairs: u32,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BenchName {
    /// Kilnyard's own cost for a package, beside a bare dpkg-buildpackage in the same root.
    Overhead,
    /// The set of the yard from its first build to its repository; `kilnyard demo` makes such a yard.
    Demo,
    /// Checking the whole release.
    Check,
    /// Publishing 2,000 packages after one changed.
    Publish,
    /// The fakeroot beside plain calls, and beside other fakeroots that are installed.
    Fakeroot,
    /// What watching a build costs.
    Monitor,
    /// Every way to make roots that works here, and dependencies as layers, with a real package; ends in a recommendation.
    Roots,
    /// status, why, log and plan on a yard of 30,000 packages and 20 runs.
    Queries,
    /// Real builds whose cores follow rank, beside a fixed number of jobs for each.
    Schedule,
    /// Resolving the scan of a pkgsrc tree, beside bob; the time to its first build; what a rescan asks; a look-up.
    Tree,
}

/// What a benchmark is given by the program.
#[derive(Clone, Copy)]
pub struct Trial<'a> {
    /// How many pairs are measured.
    pub pairs: u32,
    /// Where this machine keeps temporary files.
    pub temporary: &'a Path,
    /// The variables of the environment that a yard may use.
    pub environment: &'a environment::Environment,
    /// Takes a line on what has been measured.
    pub progress: &'a dyn Fn(&str),
    /// What runs a plan.
    pub runner: &'a dyn Runner,
}

impl Trial<'_> {
    /// Reports what has been measured.
    fn say(&self, what: impl Display) {
        (self.progress)(&what.to_string());
    }
}

/// Measures what is asked for; `yard` opens the yard of the command line.
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
        BenchName::Check => debian::check::measure(&yard()?, trial),
        BenchName::Publish => debian::publish::measure(trial),
        BenchName::Fakeroot => fakeroot::measure(trial, options.source.as_deref()),
        BenchName::Monitor => monitor::measure(trial),
        BenchName::Roots => {
            let found = roots::measure(&yard()?, &options.package, trial, machine, options.svg.as_deref())?;
            Ok(if options.json { found.full } else { found.short })
        }
        BenchName::Schedule => schedule::measure(trial),
        BenchName::Queries => queries::measure(trial),
        BenchName::Tree => match &options.scan {
            Some(scan) => pkgsrc::tree::measure(scan, trial),
            None => Err(error::Error::usage("which scan?").hint("--scan with a scan file of pkgsrc")),
        },
    }
}

/// Runs plans as `kilnyard build` does.
pub trait Runner {
    /// Runs this plan, and ends as soon as a build has begun where `until` wants no more: it gets the name of each package
    /// whose build begins, and is true when that is enough.
    fn run(
        &self,
        yard: &yard::Yard,
        store: &mut dyn Store,
        planned: plan::Planned,
        distfiles: Arc<DistfileStore>,
        until: &mut dyn FnMut(&str) -> bool,
    ) -> error::Result<RunState>;
}

/// An error if a signal asked for the end.
fn go_on() -> error::Result<()> {
    match interrupt::count() {
        0 => Ok(()),
        _ => Err(error::Error::new(error::Kind::Interrupted, "interrupted; nothing is left")),
    }
}
