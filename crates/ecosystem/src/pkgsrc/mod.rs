//! pkgsrc: NetBSD's portable package tree, as `pkg_add` and pbulk understand it.
//!
//! [`tree`] asks a tree's directories, [`kept`] knows which need not be asked again; [`version`] and [`pattern`] are
//! the rules of versions and dependencies; [`scan_file`] is what a scan leaves. [`resolve`] turns patterns into exact
//! dependencies, with a reason for every package that is left out; [`Workshop`] says for one package of a set what is
//! installed, which commands run in which stage ([`stages`]), and what keys it. [`distinfo`] says what is fetched,
//! [`package_file`] what a build made, [`description`] what is kept of that; [`summary`] is the index of a repository.
//! [`pbulk_conf`] and [`bob_config`] read what other builders are configured by, for people who move over
//! ([`moving`]); [`report`] writes the reports that pbulk writes, for their readers; [`pbulk_check`]
//! says what pbulk would take for up to date.

pub mod bob_config;
pub mod description;
pub mod distinfo;
pub mod kept;
pub mod moving;
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
pub mod stages;
pub mod summary;
pub mod tree;
pub mod version;
mod workshop;

pub use rules::{FAMILY, Rules};
pub use settings::Settings;
pub use stages::source_pattern;
pub use workshop::{DISTFILES_FOLDER, LeftOutStanza, Scan, TREE_FOLDER, Workshop, shown};
