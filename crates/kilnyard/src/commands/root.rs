//! `kilnyard root`: inspects the roots of builds.

mod plan;
mod requests;

pub use plan::plan;
pub use requests::requests;

use super::{print, print_json, unknown, unknown_package};
