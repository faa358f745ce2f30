//! The command `store`.

use super::Json;
use clap::{Args, Subcommand};

/// `store`.
#[derive(Debug, Subcommand)]
pub enum Store {
    /// Check the store, and show where it is and what it has.
    Check(Check),
    /// Use the store that the database of the configuration has, from this yard too.
    Adopt,
}

/// `store check`.
#[derive(Clone, Copy, Debug, Args)]
pub struct Check {
    #[command(flatten)]
    pub json: Json,
}
