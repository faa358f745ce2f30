//! The recommendation of the last measurement, stored in the yard's state.

use crate::error::{Context, Kind, Result};
use crate::files;
use crate::yard::Yard;
use kilnyard_root::Roots;
use serde::{Deserialize, Serialize};

/// Where it is stored. An unreadable file counts as missing: the measurement is repeated.
const FILE: &str = "state/bench-roots.json";

/// A stored recommendation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredAdvice {
    /// The recommended way to make roots.
    pub roots: Roots,
    /// Why it is recommended: a clause without a full stop.
    pub reason: String,
    /// The package that was built to measure it.
    pub package: String,
    /// The number of cells to divide the machine into: workers with processors of their own. One is the machine as it is.
    #[serde(default = "one")]
    pub cells: usize,
    /// The cores of the virtual machine that each build gets; absent if builds have none.
    #[serde(default)]
    pub machine_cores: Option<u32>,
    /// Always true. Files of earlier versions, whose recommendations did not have to exceed noise, lack this field and
    /// are ignored.
    pub is_beyond_noise: bool,
}

fn one() -> usize {
    1
}

/// Removes the stored recommendation.
pub fn forget(yard: &Yard) -> Result<()> {
    match fs_err::remove_file(yard.path(FILE)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).context(Kind::Machine, "remove the stored recommendation")
        }
        _ => Ok(()),
    }
}

/// The stored recommendation, if any.
pub fn kept(yard: &Yard) -> Option<StoredAdvice> {
    let text = fs_err::read_to_string(yard.path(FILE)).ok()?;
    serde_json::from_str(&text).ok()
}

impl StoredAdvice {
    /// Stores it in the yard.
    pub fn keep(&self, yard: &Yard) -> Result<()> {
        let text = serde_json::to_vec_pretty(self).or_internal("store the recommendation")?;
        files::write_whole(&yard.path(FILE), &text)
    }
}
