//! pkgsrc: NetBSD's portable package tree, as `pkg_add` and pbulk understand it.
//!
//! [`tree`] asks a tree's directories, [`kept`] knows which need not be asked again; [`version`] and [`pattern`] are the rules of versions and dependencies; [`scan_file`] is what a scan leaves;
//! [`resolve`] turns patterns into exact dependencies, with a reason for every package that is left out;
//! [`distinfo`] says what is fetched, [`package_file`] what a build made; [`summary`] is the index of a repository.

pub mod distinfo;
pub mod kept;
pub mod package_file;
pub mod pattern;
pub mod resolve;
pub mod scan_file;
pub mod summary;
pub mod tree;
pub mod version;
