//! What the last measurement of a yard recommended, kept in its state.

use crate::error::{Context, Kind, Result};
use crate::files;
use crate::yard::Yard;
use kilnyard_root::Roots;
use serde::{Deserialize, Serialize};

/// The file. One that cannot be read is as good as none: it is measured again.
const FILE: &str = "state/bench-roots.json";

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// The way to make them.
    pub roots: Roots,
    /// Why it is recommended, a sentence without its end.
    pub reason: String,
    /// The package that was built.
    pub package: String,
    /// Only written since recommendations are made beyond noise: what an earlier version kept is measured again.
    pub is_beyond_noise: bool,
}

/// Forgets what was kept.
pub fn forget(yard: &Yard) -> Result<()> {
    match fs_err::remove_file(yard.path(FILE)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).context(Kind::Machine, "forget what was measured before")
        }
        _ => Ok(()),
    }
}

/// What was kept last; none where nothing was measured.
pub fn kept(yard: &Yard) -> Option<Kept> {
    let text = fs_err::read_to_string(yard.path(FILE)).ok()?;
    serde_json::from_str(&text).ok()
}

impl Kept {
    /// Writes it into the yard; an error of the file system.
    pub fn keep(&self, yard: &Yard) -> Result<()> {
        let text = serde_json::to_vec_pretty(self).or_internal("keep what was measured")?;
        files::write_whole(&yard.path(FILE), &text)
    }
}
