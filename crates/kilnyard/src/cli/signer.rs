//! Options of `signer`.

use clap::Args;
use std::path::PathBuf;

/// `signer`.
#[derive(Debug, Args)]
pub struct Signer {
    /// Join the yard that `kilnyard serve` serves at this address, such as `https://build.example:7878`. Once joined, neither
    /// this nor the token is needed again.
    #[arg(long, value_name = "URL")]
    pub join: Option<String>,
    /// The file with the token that `kilnyard serve` or `kilnyard workers token` printed.
    #[arg(long, value_name = "FILE", requires = "join")]
    pub token_file: Option<PathBuf>,
    /// The name of this signer, unique among the workers of its farm: `name` in `[signer]` of the yard's kilnyard.toml. Default: the
    /// name of the machine.
    #[arg(long, value_name = "NAME", requires = "join")]
    pub name: Option<String>,
    /// The folder of the signer: its keys, policy and account are in FOLDER/signer. Made if missing, with a new key.
    #[arg(long, value_name = "FOLDER", default_value = "kilnyard-signer")]
    pub folder: PathBuf,
}
