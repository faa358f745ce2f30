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

/// A key in a token with PKCS#11.
#[derive(Debug, Args)]
#[command(next_help_heading = "A key in a token (PKCS#11)")]
pub struct InToken {
    /// The module of the token, a shared library: the key is made in the token, and never leaves it.
    #[arg(long, value_name = "MODULE", requires_all = ["token", "label", "pin_file", "pin"])]
    pub pkcs11: Option<PathBuf>,
    /// The label of the token.
    #[arg(long, value_name = "LABEL", requires = "pkcs11")]
    pub token: Option<String>,
    /// The label of the key in the token. A key that is there already is used.
    #[arg(long, value_name = "LABEL", requires = "pkcs11")]
    pub label: Option<String>,
    /// The kind of key: ed25519, p256 or rsa3072.
    #[arg(long, value_name = "KIND", default_value = "ed25519", requires = "pkcs11")]
    pub kind: String,
    /// The file with the PIN of the token, for this command.
    #[arg(long, value_name = "FILE", requires = "pkcs11")]
    pub pin_file: Option<PathBuf>,
    /// The name of the credential with the PIN, for the signer.
    #[arg(long, value_name = "CREDENTIAL", requires = "pkcs11")]
    pub pin: Option<String>,
    /// A file, folder or socket that the module uses: its configuration, /run/pcscd. Repeatable.
    #[arg(long = "module-path", value_name = "PATH", requires = "pkcs11")]
    pub paths: Vec<PathBuf>,
    /// An environment variable of the module, as NAME=VALUE. Repeatable.
    #[arg(long = "module-variable", value_name = "NAME=VALUE", requires = "pkcs11")]
    pub variables: Vec<String>,
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
        #[command(flatten)]
        token: InToken,
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
        /// The file has the certificate of a key behind the gpg-agent with this socket, such as /run/user/1000/gnupg/S.gpg-agent
        /// (`gpgconf --list-dirs agent-socket`).
        #[arg(long, value_name = "SOCKET", requires = "file", conflicts_with = "credential")]
        gpg_agent: Option<PathBuf>,
        /// The file has an X.509 key in PEM, for signatures of the packages of a pkgsrc tree, and this one its certificate, with
        /// those of authorities that readers need.
        #[arg(long, value_name = "CERTIFICATE", requires = "file", conflicts_with = "gpg_agent")]
        x509: Option<PathBuf>,
        /// The file with the passphrase of the X.509 key, for this command alone: to check it.
        #[arg(long, value_name = "FILE", requires = "x509")]
        passphrase_file: Option<PathBuf>,
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
    /// Replace the certificate of a key in a token or behind gpg-agent: one that was revoked or extended elsewhere.
    Update {
        /// The name of the key in the policy.
        #[arg(value_name = "NAME")]
        name: String,
        /// The file with the new certificate, armored.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Check the account of the signer, the store and the repository against each other.
    Audit {
        /// Read the files of all packages, too. By default, their sizes are compared, and all indexes are read.
        #[arg(long)]
        files: bool,
    },
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
