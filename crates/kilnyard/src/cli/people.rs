//! Options of `people`.

use clap::{Args, Subcommand};
use kilnyard_model::scope::Scope;

/// `people`.
#[derive(Debug, Args)]
pub struct People {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    #[command(subcommand)]
    pub action: Option<PeopleAction>,
}

/// What to do with the tokens of people.
#[derive(Debug, Subcommand)]
pub enum PeopleAction {
    /// Print a new token for a person or a program, which is the author of all requests with it. It is shown once.
    Token {
        /// The name of the person.
        #[arg(value_name = "NAME")]
        name: String,
        /// What the token allows: read; or request, which includes read.
        #[arg(long, value_name = "SCOPE", value_delimiter = ',', default_value = "read")]
        scopes: Vec<Scope>,
        /// Allow it in these yards alone: names in [farm.yards] of kilnyard.toml, or `.` for this one. Default: in all.
        #[arg(long, value_name = "YARD", value_delimiter = ',')]
        only: Vec<String>,
        /// After how many days the token expires.
        #[arg(long, value_name = "DAYS", default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=3650))]
        days: u32,
    },
    /// Remove a token by its id, or all tokens of a person. They count no more from the next request on.
    Remove {
        /// The id of the token, or the name of the person.
        #[arg(value_name = "ID|NAME")]
        word: String,
    },
}
