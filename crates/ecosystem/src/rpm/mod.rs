//! RPM: packages of repositories, by name, version and relations.
//!
//! [`metadata`] reads what a repository says of itself; [`universe`] has its packages for the solver; [`check`] finds what
//! cannot be installed or built; [`mock_cfg`] reads the configuration of mock. A [`Recipe`] is a source, [`Workshop`] a
//! resolved set of them; [`package_file`] reads what a build made, [`entry`] is how a repository lists it, and
//! [`signature`] adds a signature to it.

pub mod check;
pub mod entry;
mod generated;
pub mod header;
mod layers;
pub mod metadata;
pub mod mock_cfg;
mod normal;
pub mod package_file;
pub mod recipe;
pub mod relation;
pub mod repository;
mod rules;
mod set;
mod settings;
pub mod signature;
pub mod stages;
pub mod universe;
pub mod version;
mod workshop;
mod xml;

pub use entry::Entry;
pub use package_file::PackageFile;
pub use recipe::Recipe;
pub use repository::Lists;
pub use rules::{FAMILY, POOL, Rules, SOURCE, output_of, triggers_of};
pub use settings::{Base, Settings};
pub use workshop::{Workshop, described, input_of, listed_name};
