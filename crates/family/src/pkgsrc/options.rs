//! Arguments of pkgsrc's own commands, and the options that it adds to others.

use clap::{Args, Subcommand, ValueEnum};
use kilnyard_ecosystem::pkgsrc::tree::MINUTES_MAX;
use kilnyard_yard::config::check_minutes;
use std::path::PathBuf;

/// Options that pkgsrc adds to `scan`.
#[derive(Debug, Args)]
pub struct ScanOptions {
    /// Scan a tree of this family, without a yard.
    #[arg(long, value_enum, requires = "tree")]
    pub ecosystem: Option<ScanFamily>,
    /// Folder of the tree.
    #[arg(long, value_name = "DIR", requires = "ecosystem")]
    pub tree: Option<PathBuf>,
    /// Scan only these directories, such as mail/mutt, or categories, such as mail, and their dependencies; all by
    /// default.
    #[arg(requires = "tree", value_name = "LOCATION")]
    pub locations: Vec<String>,
    /// The make program.
    #[arg(long, default_value = "bmake", value_name = "PROGRAM")]
    pub make: PathBuf,
    /// Run the tree's makefiles as the root user. With --tree they run directly on this machine; a yard scans inside a
    /// root.
    #[arg(long, requires = "tree")]
    pub trust_tree: bool,
    /// Number of directories to scan at once; the number of cores by default.
    #[arg(long, short = 'j', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// With --tree, the time limit for make in one directory, in minutes; in a yard, set scan-minutes-max in
    /// kilnyard.toml.
    #[arg(long, requires = "tree", default_value_t = MINUTES_MAX, value_name = "MINUTES", value_parser = scan_minutes)]
    pub scan_minutes_max: f64,
    /// File that keeps the results, so that the next scan repeats only directories that changed.
    #[arg(long, default_value = "kilnyard-scan", value_name = "FILE")]
    pub keep: PathBuf,
    /// Import a scan file of pbulk or bob as the index of a pkgsrc yard, without scanning. The file may be plain,
    /// gzip or zstd; `-` is standard input. Then build with kilnyard build --no-scan.
    #[arg(long, value_name = "FILE", conflicts_with = "tree")]
    pub import: Option<PathBuf>,
    /// Write the scan file, in the format of pbulk and bob. With --tree, the default is standard output.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub export: Option<PathBuf>,
}

fn scan_minutes(text: &str) -> Result<f64, String> {
    let minutes = text.parse().map_err(|_| "not a number of minutes".to_owned())?;
    check_minutes("it", minutes).map(|()| minutes)
}

/// Arguments of `resolve`.
#[derive(Debug, Args)]
pub struct Resolve {
    /// The package family.
    #[arg(long, value_enum)]
    pub ecosystem: ScanFamily,
    /// Scan file, as written by `make pbulk-index`, pbulk or bob: plain, gzip or zstd; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    pub import: PathBuf,
    /// Write the scan with a DEPENDS line for each package to this file; standard output by default.
    #[arg(long, value_name = "FILE")]
    pub export: Option<PathBuf>,
    /// Follow pbulk's rules exactly, to compare results.
    #[arg(long)]
    pub pbulk_rules: bool,
    /// Report every package that is left out, with the dependency chain to the cause, and every dependency that is
    /// found in a directory other than the one it names.
    #[arg(long, short = 'v')]
    pub verbose: bool,
}

/// Subcommands of `index`.
#[derive(Debug, Subcommand)]
pub enum Index {
    /// Make a look-up file from a pkg_summary: plain, gzip or zstd.
    Make {
        /// The pkg_summary; `-` is standard input.
        summary: PathBuf,
        /// The look-up file to write.
        file: PathBuf,
    },
    /// Print a package's entry in a look-up file.
    LookUp {
        /// The look-up file.
        file: PathBuf,
        /// Name of the package, with its version.
        package: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Families with scan files.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ScanFamily {
    /// NetBSD's package tree.
    Pkgsrc,
}

/// Options that pkgsrc adds to `plan`.
#[derive(Debug, Args)]
pub struct PlanOptions {
    /// In a pkgsrc yard, list the packages whose up-to-date status differs under pbulk's rules.
    #[arg(long)]
    pub pbulk_rules: bool,
}

/// Options that pkgsrc adds to `history`.
#[derive(Debug, Args)]
pub struct HistoryOptions {
    /// Import build times from bob's history.db; they are used for packages that were never built here.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["package", "json"])]
    pub import_bob: Option<PathBuf>,
}
