//! pkgsrc: NetBSD's portable package tree, as `pkg_add` and pbulk understand it.
//!
//! [`tree`] scans a tree's directories, and [`kept`] finds those that need not be scanned again; [`version`] and
//! [`pattern`] are the rules of versions and dependencies; [`scan_file`] is the result of a scan. [`resolve`] turns
//! patterns into exact dependencies, with a reason for every package that is left out. [`Workshop`] decides for
//! each package of a set which packages are installed, which commands run in each stage ([`stages`]), and which key
//! the build has. [`distinfo`] lists the files to fetch, [`package_file`] reads the output of a build,
//! [`description`] is the part of it that a yard keeps; [`summary`] is the index of a repository. [`pbulk_conf`]
//! and [`bob_config`] read the configuration of other builders, for users who migrate from them ([`import`]);
//! [`report`] writes reports in pbulk's format; [`pbulk_check`] determines which packages pbulk would consider up
//! to date.

pub mod awaited;
pub mod bob_config;
pub mod description;
pub mod distinfo;
pub mod import;
pub mod kept;
mod own_settings;
pub mod package_file;
pub mod pattern;
pub mod pbulk_check;
pub mod pbulk_conf;
pub mod recipe_files;
pub mod report;
pub mod resolve;
mod rules;
pub mod scan_file;
mod settings;
pub mod signed;
pub mod stages;
pub mod summary;
pub mod tree;
pub mod version;
mod workshop;

pub use own_settings::ScanSettings;
pub use rules::{FAMILY, Rules};
pub use settings::Settings;
pub use stages::source_pattern;
pub use workshop::{DISTFILES_FOLDER, LeftOutStanza, Scan, TREE_FOLDER, Workshop, shown};
