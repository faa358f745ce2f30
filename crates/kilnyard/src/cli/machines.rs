//! The arguments of commands about roots and the machines that packages run on.

use clap::{Args, Subcommand, ValueEnum};
use kilnyard_hazard::Hazard;
use std::path::PathBuf;

/// `root`.
#[derive(Debug, Subcommand)]
pub enum Root {
    /// Show how the root of a package's next build would be made and removed.
    Plan(RootPlan),
    /// Show what a package's last build did to its block device: hot ranges, what was written again, what never reached the
    /// disk, what discarding flushes saved.
    Requests(RootRequests),
}

/// `hazards`.
#[derive(Debug, Args)]
pub struct Hazards {
    /// ELF files, packages (.deb, tar archives) or folders. Default: the layers of the yard, each of which is searched once.
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Show only these.
    #[arg(long, value_name = "KIND")]
    pub only: Option<OnlyHazards>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Kinds of hazards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnlyHazards {
    /// What kernels for ARMv8 emulate, with a trap: CP15 barriers, SETEND, SWP.
    Emulated,
    /// What needs x86-64-v2 or more.
    #[value(name = "x86-64-v2")]
    X86V2,
    /// What needs x86-64-v3 or more.
    #[value(name = "x86-64-v3")]
    X86V3,
    /// What needs x86-64-v4.
    #[value(name = "x86-64-v4")]
    X86V4,
}

impl OnlyHazards {
    /// Whether a hazard is of these kinds.
    pub fn includes(self, hazard: Hazard) -> bool {
        let levels = [Hazard::X86V2, Hazard::X86V3, Hazard::X86V4];
        match self {
            OnlyHazards::Emulated => hazard.is_emulated(),
            OnlyHazards::X86V2 => levels.contains(&hazard),
            OnlyHazards::X86V3 => levels[1..].contains(&hazard),
            OnlyHazards::X86V4 => levels[2..].contains(&hazard),
        }
    }
}

/// `root requests`.
#[derive(Debug, Args)]
pub struct RootRequests {
    /// A package that was built with `backend = "block"`.
    pub package: Option<String>,
    /// Read this log instead: one that `requests = "log"` under `[root]` made.
    #[arg(long, value_name = "FILE", conflicts_with = "package")]
    pub file: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `root plan`.
#[derive(Debug, Args)]
pub struct RootPlan {
    /// A package of the yard, by the name that `kilnyard plan --all` shows.
    pub package: String,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
