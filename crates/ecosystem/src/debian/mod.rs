//! Debian: source packages of a release, built with `dpkg-buildpackage`, published for apt.
//!
//! [`universe`] and [`source`] read the archive's indexes; `set` resolves the sources of a yard into a graph;
//! [`Workshop`] decides for each package which packages are installed, which commands run, and which key the build
//! has; [`check`] finds the sources of a whole release that cannot be built.

mod admission;
pub mod architecture;
pub mod autopkgtest;
pub mod check;
pub mod deb822;
pub mod deb_file;
pub mod dependents;
mod explain;
mod keep;
mod layers;
mod ownership;
pub mod packaging;
mod prior;
mod published;
pub mod relation;
mod rules;
mod set;
mod settings;
pub mod source;
pub mod stages;
pub mod suites;
pub mod universe;
pub mod version;
mod workshop;

pub use keep::is_reserved_folder;
pub use layers::Layers;
pub use ownership::Takeovers;
pub use published::{Published, PublishedBinary};
pub use rules::{FAMILY, Rules};
pub use settings::{Base, Cycles, ROOT_PACKAGES, Settings};
pub use workshop::Workshop;

/// Prefix of the dpkg error line that names the failing package; the next line gives the cause.
pub const ERROR_IN_TWO_LINES: &str = "dpkg: error processing ";
