//! Git repositories of packages and trees: a copy of each, which all that reads it shares, and a work tree of one commit.
//!
//! Git itself fetches, and only what is new. Nothing of a repository is run, and nothing of it is a setting.

mod commit;
mod history;
pub mod place;
mod repository;
mod work_tree;

pub use commit::{CommitFolder, time_of};
pub use history::{Commits, commits_between, files_between};
pub use repository::{Copy, Failed, copies, name_of, shown};
pub use work_tree::{TreeCommit, WORK_TREE, WorkTree};
