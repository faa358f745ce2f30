//! Builds of proposed changes.

use clap::Args;

/// `try`.
#[derive(Debug, Args)]
pub struct Try {
    /// Sources as .dsc files, git:PATH#REF or other versions (hello=2.10-3); patches of a pkgsrc tree.
    #[arg(value_name = "CHANGE", required_unless_present_any = ["list", "remove"])]
    pub changes: Vec<String>,
    /// The name of the try: small letters, digits and dashes. By default, a number.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Who wants it, for the list and the bound. By default, the user.
    #[arg(long, value_name = "NAME")]
    pub author: Option<String>,
    /// Build on other machines alone. This is the default if `kilnyard serve` runs.
    #[arg(long)]
    pub elsewhere: bool,
    /// List the tries.
    #[arg(long, conflicts_with_all = ["changes", "remove"])]
    pub list: bool,
    /// Remove a try.
    #[arg(long, value_name = "NAME", conflicts_with = "changes")]
    pub remove: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
