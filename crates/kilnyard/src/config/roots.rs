//! The table `root`: how roots are made.

use kilnyard_root::{Backend, Flushes, Roots, Scratch};
use serde::Deserialize;

/// What a person says of roots.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Root {
    backend: Backend,
    scratch: Scratch,
    flushes: Flushes,
}

impl Root {
    /// The same for whoever makes them.
    pub fn roots(self) -> Roots {
        Roots { backend: self.backend, scratch: self.scratch, flushes: self.flushes }
    }
}
