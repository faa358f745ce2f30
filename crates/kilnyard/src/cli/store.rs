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
