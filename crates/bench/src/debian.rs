//! Benchmarks of Debian's rules and repositories, and sbuild for comparison.

pub mod check;
mod convert;
pub mod publish;
pub mod sbuild;
pub mod sham;
pub mod synthetic;

use crate::Trial;
use crate::error::Result;
use crate::scratch::Scratch;
use crate::yard::Yard;
use kilnyard_family::debian::template;

/// Turns a scratch folder into an empty yard.
pub fn empty_yard(scratch: &Scratch, trial: &Trial<'_>) -> Result<Yard> {
    scratch.yard(&empty_configuration(), trial)
}

/// Its configuration.
pub fn empty_configuration() -> String {
    template("bookworm", "http://mirror.invalid/debian", &[])
}
