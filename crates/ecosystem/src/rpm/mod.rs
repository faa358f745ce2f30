//! RPM: packages of repositories, by name, version and relations.
//!
//! [`metadata`] reads what a repository says of itself; [`universe`] has its packages for the solver; [`check`] finds what
//! cannot be installed or built; [`mock_cfg`] reads the configuration of mock.
//!
//! Out of scope so far: recipes, builds and publication.

pub mod check;
pub mod metadata;
pub mod mock_cfg;
mod normal;
pub mod relation;
pub mod universe;
pub mod version;
mod xml;

/// The family's name.
pub const FAMILY: &str = "rpm";
