//! The command `store`.

use super::Json;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `store`.
#[derive(Debug, Subcommand)]
pub enum Store {
    /// Check the store, and show where it is and what it has.
    Check(Check),
    /// Copy all records to a database, or to a file of the yard, and compare every row.
    Move(Move),
    /// Use the store that the database of the configuration has, from this yard too.
    Adopt,
    /// Copy all records to a new file, and compare every row.
    Backup {
        /// The file, which must not exist.
        #[arg(value_hint = clap::ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Fill a new store from a file of `store backup`, and read every artifact that it names.
    Restore {
        /// The file.
        #[arg(value_hint = clap::ValueHint::FilePath)]
        file: PathBuf,
    },
}

/// `artifacts`.
#[derive(Debug, Subcommand)]
pub enum Artifacts {
    /// Read all current outputs, and compare their hashes. What is damaged is removed, and built again.
    Check(CheckArtifacts),
    /// Remove artifacts that nothing names, from where machines share them.
    Clean {
        /// Show what would be removed, without removing it.
        #[arg(long, short = 'n')]
        dry_run: bool,
        #[command(flatten)]
        json: Json,
    },
}

/// `artifacts check`.
#[derive(Clone, Copy, Debug, Args)]
pub struct CheckArtifacts {
    /// Read all of them on this machine. By default, workers with the role check help, if there are any.
    #[arg(long)]
    pub here: bool,
    #[command(flatten)]
    pub json: Json,
}

/// `store check`.
#[derive(Clone, Copy, Debug, Args)]
pub struct Check {
    #[command(flatten)]
    pub json: Json,
}

/// `store move`.
#[derive(Debug, Args)]
pub struct Move {
    /// The URL of a PostgreSQL database, or `file`.
    #[arg(long, value_name = "URL|file")]
    pub to: String,
    /// A file with the password for the database, relative to the yard.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub password_file: Option<PathBuf>,
    /// A file with the certificates of which one signed the server's, relative to the yard.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub certificates: Option<PathBuf>,
    /// The schema of the tables, for several yards in one database.
    #[arg(long, value_name = "NAME")]
    pub schema: Option<String>,
}
