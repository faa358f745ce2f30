//! The table `git`: what is set for all repositories of git.

use serde::Deserialize;
use std::path::PathBuf;

/// The table `git`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct GitTable {
    /// The folder with the copies of repositories, relative to the yard, which yards of one user may share. Default: a folder of the yard.
    pub copies: Option<PathBuf>,
}
