//! pkgsrc: a tree asked in a root, its bootstrap kit, sets of its directories, a repository for `pkg_add`.

pub mod asking;
pub mod kit;
pub mod pbulk;
pub mod publish;
pub mod reports;
mod root_make;
pub mod scan;
pub mod set;
