//! Options of `keys`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `keys`.
#[derive(Debug, Args)]
pub struct Keys {
    /// The folder of the signer. Default: that of the yard, state/signer.
    #[arg(long, value_name = "FOLDER", global = true)]
    pub signer: Option<PathBuf>,
    /// Print JSON.
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub action: Option<KeysAction>,
}

/// What to do with keys.
#[derive(Debug, Subcommand)]
pub enum KeysAction {
    /// List the keys that sign the repository, and what waits for an approval. The default.
    List,
    /// Make a key. It signs nothing before `rotate`.
    Make {
        /// The name of the key in the policy.
        #[arg(value_name = "NAME")]
        name: String,
        /// The user id of the key.
        #[arg(long, value_name = "TEXT", default_value = "Kilnyard repository <kilnyard@localhost>")]
        user_id: String,
        /// After how many days the key expires. Default: never.
        #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36500))]
        days: Option<u32>,
    },
    /// Import a private key: one that a repository already has (of aptly, reprepro or pkgsrc: `gpg --export-secret-keys`), or,
    /// without a file, the one that an earlier version of Kilnyard left in state/key.asc.
    Import {
        /// The file with the key. It stays where it is, except for state/key.asc.
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        /// The name of the key in the policy.
        #[arg(long, value_name = "NAME", default_value = "main")]
        name: String,
        /// The name of the credential with its passphrase.
        #[arg(long, value_name = "CREDENTIAL")]
        credential: Option<String>,
    },
    /// Sign with a further key, too, so that readers can learn it; or, with --finish, with that key alone.
    Rotate {
        /// The name of the key in the policy.
        #[arg(value_name = "NAME")]
        name: String,
        /// Leave out all other keys.
        #[arg(long)]
        finish: bool,
    },
    /// Revoke a key: it signs nothing more, and the next publication tells readers.
    Revoke {
        /// The name of the key in the policy.
        #[arg(value_name = "NAME")]
        name: String,
        /// The reason, which the certificate states.
        #[arg(long, value_name = "TEXT", default_value = "")]
        reason: String,
    },
    /// Check the account of the signer, the store and the repository against each other.
    Audit,
    /// Approve what the signer refused, by the ids that `keys list` shows.
    Approve {
        /// The ids.
        #[arg(value_name = "ID", required_unless_present = "signed")]
        ids: Vec<String>,
        /// A file with lines `approve ID`, signed (`gpg --clearsign`) by a person whom the policy names.
        #[arg(long, value_name = "FILE", conflicts_with = "ids")]
        signed: Option<PathBuf>,
    },
    /// Sign a .dsc or .changes file: print its signed form.
    Sign {
        /// The file.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}
