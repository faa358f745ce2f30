//! The arguments of commands that are pkgsrc's own.

use clap::{Args, Subcommand, ValueEnum};
use kilnyard_ecosystem::pkgsrc::tree::MINUTES_MAX;
use kilnyard_yard::config::check_minutes;
use std::path::PathBuf;

/// What `scan` can do besides.
#[derive(Debug, Args)]
pub struct ScanBeside {
    /// Scan a tree of this family, without a yard.
    #[arg(long, value_enum, requires = "tree")]
    pub ecosystem: Option<ScanFamily>,
    /// The folder of the tree.
    #[arg(long, value_name = "DIR", requires = "ecosystem")]
    pub tree: Option<PathBuf>,
    /// Only these directories, such as mail/mutt, those of these categories, such as mail, and those that they depend on;
    /// all by default.
    #[arg(requires = "tree", value_name = "LOCATION")]
    pub locations: Vec<String>,
    /// The make program.
    #[arg(long, default_value = "bmake", value_name = "PROGRAM")]
    pub make: PathBuf,
    /// Run the tree's makefiles as root. With --tree they run on this machine itself, without a root; a yard scans in one.
    #[arg(long, requires = "tree")]
    pub trust_tree: bool,
    /// Directories at once; as many as there are cores by default.
    #[arg(long, short = 'j', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// With --tree, the longest that make may take for one directory, in minutes; a yard has the key of this name.
    #[arg(long, requires = "tree", default_value_t = MINUTES_MAX, value_name = "MINUTES", value_parser = scan_minutes)]
    pub scan_minutes_max: f64,
    /// Where what was found is kept, so that the next scan asks only what changed.
    #[arg(long, default_value = "kilnyard-scan", value_name = "FILE")]
    pub keep: PathBuf,
    /// Take a scan file of pbulk or bob as the index of a yard of pkgsrc, and ask nothing: plain, gzip or zstd; `-` is
    /// standard input. kilnyard build --no-scan builds from it.
    #[arg(long, value_name = "FILE", conflicts_with = "tree")]
    pub import: Option<PathBuf>,
    /// Where the scan file goes, as pbulk and bob read it. With --tree standard output by default.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub export: Option<PathBuf>,
}

fn scan_minutes(text: &str) -> Result<f64, String> {
    let minutes = text.parse().map_err(|_| "it is no number of minutes".to_owned())?;
    check_minutes("it", minutes).map(|()| minutes)
}

/// `resolve`.
#[derive(Debug, Args)]
pub struct Resolve {
    /// The package family.
    #[arg(long, value_enum)]
    pub ecosystem: ScanFamily,
    /// The scan file, as `make pbulk-index`, pbulk or bob write it: plain, gzip or zstd; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    pub import: PathBuf,
    /// Where the scan goes with a DEPENDS line for each package; standard output by default.
    #[arg(long, value_name = "FILE")]
    pub export: Option<PathBuf>,
    /// Follow pbulk's rules to the letter, to compare with it.
    #[arg(long)]
    pub pbulk_rules: bool,
    /// Tell of every package that is left out, with the way to its cause, and of every dependency that is met
    /// elsewhere than it says.
    #[arg(long, short = 'v')]
    pub verbose: bool,
}

/// `index`.
#[derive(Debug, Subcommand)]
pub enum Index {
    /// Make a look-up file of a pkg_summary, plain, gzip or zstd.
    Make {
        /// The pkg_summary; `-` is standard input.
        summary: PathBuf,
        /// The look-up file.
        file: PathBuf,
    },
    /// Print what a look-up file says of a package.
    LookUp {
        /// The look-up file.
        file: PathBuf,
        /// The package's name with its version.
        package: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Families whose scans are files.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ScanFamily {
    /// NetBSD's package tree.
    Pkgsrc,
}

/// What `plan` can say besides.
#[derive(Debug, Args)]
pub struct PlanBeside {
    /// Of a yard of pkgsrc, say beside our own verdict what pbulk's rules take for up to date.
    #[arg(long)]
    pub pbulk_rules: bool,
}

/// What `history` can do besides.
#[derive(Debug, Args)]
pub struct HistoryOfOthers {
    /// Import the times of bob's builds from its history.db; they stand in for packages that were never built here.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["package", "json"])]
    pub import_bob: Option<PathBuf>,
}
