//! What a commit of git shows of a source, for the signer: the commit, and the trees and files that lead to what the source
//! declares.

use super::repository::Copy;
use kilnyard_signer::message::SourceCommit;
use kilnyard_signer::sources::commit_key;
use kilnyard_yard::interrupt;
use std::path::{Path, PathBuf};

/// A folder with a source, in a commit.
#[derive(Clone, Debug)]
pub struct CommitFolder {
    /// The repository: a bare one, or the folder `.git` of another one.
    pub git: PathBuf,
    /// The id of the commit.
    pub commit: String,
    /// The folder, below the root of the tree: empty for the root.
    pub path: String,
    /// The files in it that declare what is made of it.
    pub declared_in: &'static [&'static str],
}

/// Whether a repository belongs to this user, or to root: git follows the settings of those it is asked about.
pub fn is_own(git: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let owners = [0, rustix::process::geteuid().as_raw()];
    fs_err::metadata(git).is_ok_and(|metadata| owners.contains(&metadata.uid()))
}

impl CommitFolder {
    /// What a signer asks for it by.
    pub fn key(&self) -> String {
        commit_key(&self.commit, &self.path)
    }

    /// The commit and its objects; none if it is not signed, or has no such folder.
    pub fn shown(&self) -> Option<SourceCommit> {
        let copy = Copy::at(self.git.clone(), interrupt::cancel());
        let commit = String::from_utf8(copy.object("commit", &self.commit)?).ok()?;
        if !commit.contains("\ngpgsig") {
            return None;
        }
        let at = |path: &str| format!("{}:{path}", self.commit);
        let mut objects = vec![copy.object("tree", &at(""))?];
        let mut folder = String::new();
        for part in self.path.split('/').filter(|part| !part.is_empty()) {
            folder.push_str(part);
            objects.push(copy.object("tree", &at(&folder))?);
            folder.push('/');
        }
        let mut above = "";
        for file in self.declared_in {
            if let Some((inner, _)) = file.split_once('/').filter(|(inner, _)| *inner != above) {
                objects.push(copy.object("tree", &at(&format!("{folder}{inner}")))?);
                above = inner;
            }
            objects.push(copy.object("blob", &at(&format!("{folder}{file}")))?);
        }
        let objects = objects.iter().map(|bytes| hexadecimal(bytes)).collect();
        Some(SourceCommit { commit, path: self.path.clone(), objects })
    }
}

/// When this was committed in a repository, in seconds since 1970; absent if git cannot say.
pub fn time_of(git: &Path, commit: &str) -> Option<i64> {
    let copy = Copy::at(git.to_owned(), interrupt::cancel());
    committed_seconds(&String::from_utf8_lossy(&copy.object("commit", commit)?))
}

/// The time in the header of a commit: `committer NAME <ADDRESS> SECONDS ZONE` (git-commit-tree(1)). Names cannot contain `>`.
fn committed_seconds(commit: &str) -> Option<i64> {
    let header = commit.split("\n\n").next()?;
    let line = header.lines().find_map(|line| line.strip_prefix("committer "))?;
    line.rsplit_once("> ")?.1.split(' ').next()?.parse().ok()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_commit_is_in_its_header() {
        let commit = "tree 1\nauthor A <a@b> 7 +0000\ncommitter A > <a@b> 1700000000 +0100\n\ncommitter B <b> 9 +0000\n";
        assert_eq!(committed_seconds(commit), Some(1_700_000_000));
        assert_eq!(committed_seconds("tree 1\n\ncommitter B <b> 9 +0000\n"), None);
        assert_eq!(committed_seconds("committer A <a> soon +0000\n"), None);
    }
}
