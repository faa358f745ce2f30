//! A work tree of one commit, for a tree whose files are read by path: by make, by scans, and in roots.
//!
//! A scan brings it to the commit that its address names now. Git writes the files that differ, and no others, so that
//! what compares times of files sees what has changed. The yard's lock keeps scans away from a run, which therefore sees one commit.

use super::commit::is_own;
use super::repository::{Copy, Failed, shown};
use kilnyard_ecosystem::git::GitAddress;
use kilnyard_yard::error::{Context, Error, Kind, Result};
use kilnyard_yard::files::write_whole;
use kilnyard_yard::yard::Yard;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

/// The work tree, in the folder of a yard.
pub const WORK_TREE: &str = "tree";
/// What git knows of the files of the work tree.
const INDEX: &str = "state/tree.index";
/// What the work tree was made from.
const RECORD: &str = "index/tree.json";

/// The work tree of a yard.
pub struct WorkTree<'a> {
    /// The yard.
    pub yard: &'a Yard,
    /// Where its commit is from.
    pub address: &'a GitAddress,
}

/// The commit that a tree is at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeCommit {
    /// The repository: a bare one, or the folder `.git` of another one.
    pub git: PathBuf,
    /// The id of the commit.
    pub commit: String,
    /// The folder of the tree in the commit; empty for the root.
    pub folder: String,
}

/// The content of [`RECORD`].
#[derive(Serialize, Deserialize)]
struct Record {
    /// The address, without a password.
    from: String,
    commit: String,
}

impl TreeCommit {
    /// The commit that a folder of the user is at: that of its repository, or of one that it is in. Absent if there is none, or if it belongs
    /// to another user, whose settings git would use.
    pub fn of_folder(tree: &Path, cancel: &AtomicBool) -> Option<TreeCommit> {
        let tree = fs_err::canonicalize(tree).ok()?;
        let root = tree.ancestors().find(|folder| folder.join(".git").is_dir())?;
        let git = root.join(".git");
        // Before git reads its settings.
        let commit = is_own(&git).then(|| Copy::at(git.clone(), cancel).commit("HEAD")).flatten()?;
        let folder = tree.strip_prefix(root).ok()?.to_str()?.to_owned();
        Some(TreeCommit { git, commit, folder })
    }
}

impl WorkTree<'_> {
    /// The commit of the last [`WorkTree::update`]; absent before it.
    pub fn commit(&self) -> Option<TreeCommit> {
        let record: Record = serde_json::from_slice(&fs_err::read(self.yard.path(RECORD)).ok()?).ok()?;
        let git = Copy::folder(self.yard, self.address);
        let folder = self.address.folder.clone().unwrap_or_default();
        (record.from == shown(self.address)).then_some(TreeCommit { git, commit: record.commit, folder })
    }

    /// Fetches what is new, and makes the files those of the commit that the address names: changes by others are undone. If the
    /// repository cannot be reached, they are those of the last commit.
    ///
    /// # Errors
    /// The user interrupted it; the repository cannot be fetched the first time, or has no such commit or folder; the files
    /// cannot be written.
    pub fn update(&self, cancel: &AtomicBool, say: &dyn Fn(&str)) -> Result<()> {
        let failed = |failed: Failed| match failed {
            Failed::Cancelled => Error::new(Kind::Interrupted, "interrupted while fetching the tree"),
            Failed::Reason(reason) => Error::new(Kind::Machine, format!("{}: {reason}", shown(self.address))),
        };
        let copy = Copy::open(self.yard, self.address, cancel).map_err(failed)?;
        let before = self.commit().map(|tree| tree.commit).filter(|commit| copy.has(commit));
        if before.is_none() {
            say(&format!("fetching {}", shown(self.address)));
        }
        let commit = match (copy.fetch(&self.yard.home, self.address), &before) {
            (Ok(()), _) => copy.resolve(self.address).map_err(failed)?,
            (Err(Failed::Reason(reason)), Some(before)) => {
                say(&format!("warning: {}: {reason}; using its last commit", shown(self.address)));
                before.clone()
            }
            (Err(error), _) => return Err(failed(error)),
        };
        let folder = self.address.folder.as_deref().unwrap_or_default();
        if copy.tree(&commit, folder).is_none() {
            return Err(failed(Failed::Reason(format!("commit {commit} has no folder {folder}"))));
        }
        self.check_out(&copy, &format!("{commit}:{folder}")).map_err(failed)?;
        if before.as_deref() != Some(&*commit) {
            say(&format!("the tree is at commit {commit}"));
        }
        let record = Record { from: shown(self.address), commit };
        write_whole(
            &self.yard.path(RECORD),
            &serde_json::to_vec_pretty(&record).or_internal("write the commit")?,
        )
    }

    fn check_out(&self, copy: &Copy<'_>, tree: &str) -> std::result::Result<(), Failed> {
        let failed = |error: std::io::Error| Failed::Reason(format!("failed to write the tree: {error}"));
        let (files, index) = (self.yard.path(WORK_TREE), self.yard.path(INDEX));
        fs_err::create_dir_all(&files).map_err(failed)?;
        for folder in ["index", "state"] {
            fs_err::create_dir_all(self.yard.path(folder)).map_err(failed)?;
        }
        // A killed one left it; the yard's lock means that no other one runs.
        let _ = fs_err::remove_file(self.yard.path(&format!("{INDEX}.lock")));
        let mut read = self.git(copy, &files, &index);
        read.args(["read-tree", "--reset", "-u", "--no-recurse-submodules", tree]);
        copy.perform(&mut read, "write the tree")?;
        let mut clean = self.git(copy, &files, &index);
        clean.args(["clean", "-ffdxq"]);
        copy.perform(&mut clean, "remove other files").map(drop)
    }

    /// git with this work tree, whose files users of roots can read, whatever the umask is.
    fn git(&self, copy: &Copy<'_>, files: &Path, index: &Path) -> Command {
        let asking = copy.asking();
        let mut command = Command::new("sh");
        command.args(["-c", "umask 022; exec git \"$@\"", "git"]).args(asking.get_args());
        for (name, value) in asking.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.arg("--work-tree").arg(files).env("GIT_INDEX_FILE", index).current_dir(files);
        command
    }
}
