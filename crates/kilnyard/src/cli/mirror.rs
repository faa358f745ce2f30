//! Options of `mirror`.

use clap::{Args, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;

/// `mirror`.
#[derive(Debug, Args)]
pub struct Mirror {
    /// The configuration (docs/mirror.md). Its folder has the files, too.
    #[arg(long, value_name = "FILE", default_value = "mirror.toml", global = true)]
    pub config: PathBuf,
    #[command(subcommand)]
    pub action: MirrorAction,
}

/// What to do with a mirror.
#[derive(Debug, Subcommand)]
pub enum MirrorAction {
    /// Serve what builds fetch, over HTTP: archives, distfiles, and files by digest.
    Serve {
        /// The address and port to listen at, instead of the configuration's.
        #[arg(long, value_name = "ADDRESS:PORT")]
        listen: Option<SocketAddr>,
    },
    /// List the files.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Fetch files ahead of a run, unless they are there.
    Fetch {
        /// Packages of the trees of checksums (`CATEGORY/PACKAGE`), or paths of the mirror (`/debian/…`).
        #[arg(value_name = "PACKAGE|/PATH", required_unless_present_any = ["all", "manifests"])]
        what: Vec<String>,
        /// All files of all checksums.
        #[arg(long)]
        all: bool,
        /// All files of all manifests.
        #[arg(long)]
        manifests: bool,
        /// Keep them whatever their age, under this name, until `mirror unpin`; in place of those that it had.
        #[arg(long, value_name = "NAME")]
        pin: Option<String>,
    },
    /// No longer keep what was fetched with `--pin`.
    Unpin {
        /// The name.
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Add distfiles that a person has to get, under their names, or files of a manifest.
    Add {
        /// The files.
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
        /// The folder below `distfiles` (`DIST_SUBDIR`).
        #[arg(long, value_name = "FOLDER", default_value = "")]
        below: String,
        /// Add files that no list of checksums names, too.
        #[arg(long)]
        unlisted: bool,
    },
    /// Read all files, and name those that are damaged.
    Verify {
        /// Remove them: they are fetched again when they are asked for.
        #[arg(long)]
        remove: bool,
    },
    /// Remove the least recently used files beyond `keep-bytes`, and what an interrupted mirror left.
    Gc,
}
