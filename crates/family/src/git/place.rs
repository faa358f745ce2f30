//! A folder of sources that a configuration names: one of this machine, or `git:` and the address of its repository.

use super::{Failed, TreeCommit, WorkTree, commits_between, time_of};
use kilnyard_ecosystem::git::{GitAddress, PREFIX, Repository};
use kilnyard_store::RunCommit;
use kilnyard_yard::commits::Change;
use kilnyard_yard::error::{Error, Kind, Result};
use kilnyard_yard::init::path_text;
use kilnyard_yard::interrupt;
use kilnyard_yard::yard::Yard;
use std::path::Path;

/// The forms of an address, for errors.
pub const FORMS: &str = "git:PATH, git:https://HOST/PATH, git:ssh://HOST/PATH or git:USER@HOST:PATH, with #BRANCH or #BRANCH:FOLDER";

/// The repository that a place names, if it names one.
pub fn address(place: &Path) -> Option<std::result::Result<GitAddress, &'static str>> {
    let address = GitAddress::parse(place.to_str()?.strip_prefix(PREFIX)?);
    Some(match address {
        Ok(address) if address.folders_in().is_some() => Err("a tree is one folder"),
        other => other,
    })
}

/// The absolute path of a file or folder, or the address of a repository, whose path becomes absolute. `option` is the one that
/// names it.
pub fn place_text(option: &str, place: &Path) -> Result<String> {
    match address(place) {
        Some(Ok(mut address)) => {
            if let Repository::Folder(path) = &mut address.repository {
                *path = path_text(Path::new(path))?;
            }
            Ok(address.to_string())
        }
        Some(Err(reason)) => Err(Error::usage(format!("{option} is not a repository of git: {reason}"))),
        None => path_text(place),
    }
}

/// The commit that a folder is at, if it is one of git; `address` is where a scan takes it from.
pub fn commit(yard: &Yard, address: Option<&GitAddress>, folder: &Path) -> Option<TreeCommit> {
    match address {
        Some(address) => WorkTree { yard, address }.commit(),
        None => TreeCommit::of_folder(folder, interrupt::cancel()),
    }
}

/// The commit of a run; `source` is what messages name the folder.
pub fn of_run(source: String, place: TreeCommit) -> RunCommit {
    RunCommit { source, date_seconds: time_of(&place.git, &place.commit), commit: place.commit }
}

/// What people wrote about the commits between two runs. `paths` are those that are asked about: all without any.
///
/// # Errors
/// The user interrupted it, or the repository has no such commit any more.
pub fn changes(
    source: &str,
    place: TreeCommit,
    (earlier, later): (&[RunCommit], &[RunCommit]),
    paths: &[String],
) -> Result<Vec<Change>> {
    let of = |commits: &[RunCommit]| {
        commits.iter().find(|commit| commit.source == source).map(|commit| commit.commit.clone())
    };
    let (Some(from), Some(commit)) = (of(earlier), of(later)) else { return Ok(Vec::new()) };
    if from == commit {
        return Ok(Vec::new());
    }
    let place = TreeCommit { commit, ..place };
    commits_between(&place, source, &from, paths).map_err(|failed| match failed {
        Failed::Cancelled => Error::new(Kind::Interrupted, "interrupted"),
        Failed::Reason(reason) => Error::usage(reason),
    })
}
