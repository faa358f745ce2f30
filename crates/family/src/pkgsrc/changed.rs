//! What commits of the tree change: packages, and what people wrote about it.

use super::set;
use crate::debian::base;
use crate::git::{Failed, TreeCommit, files_between, place};
use crate::pkgsrc::Pkgsrc;
use kilnyard_store::RunCommit;
use kilnyard_yard::commits::Change;
use kilnyard_yard::error::{Error, Kind, Result};
use kilnyard_yard::yard::Yard;
use std::collections::BTreeSet;

/// The commit that the tree is at, if it is one of git.
pub fn tree_commit(yard: &Yard, pkgsrc: &Pkgsrc) -> Option<TreeCommit> {
    place::commit(yard, pkgsrc.git.as_ref(), &pkgsrc.tree)
}

/// The packages that a commit, or a range such as `A..B`, changes: by a file of their own directory, or by any other
/// file that make read for them.
pub fn changed_packages(yard: &Yard, pkgsrc: &Pkgsrc, commit: &str) -> Result<Vec<String>> {
    let place = tree_commit(yard, pkgsrc).ok_or_else(|| {
        Error::usage(format!(
            "{} is in no repository of git that belongs to this user",
            pkgsrc.tree.display()
        ))
    })?;
    let files = changed_files(&place, commit)?;
    let base = base::find(yard, &pkgsrc.root).unwrap_or_default();
    Ok(set::resolve(yard, pkgsrc, &base)?.concerned(&files))
}

/// The files that differ, relative to the tree, which may be a folder of a larger repository.
fn changed_files(place: &TreeCommit, commit: &str) -> Result<BTreeSet<String>> {
    if commit.is_empty() || commit.starts_with('-') {
        return Err(Error::usage(format!("`{commit}` is not a valid commit")));
    }
    // The tree's own commit, which is not the HEAD of a copy.
    let revision = |text: &str| match text.strip_prefix("HEAD") {
        Some(rest) if rest.is_empty() || rest.starts_with(['~', '^', '@']) => {
            format!("{}{rest}", place.commit)
        }
        _ => text.to_owned(),
    };
    let revisions = match commit.split_once("..") {
        Some((from, "")) => vec![revision(from), place.commit.clone()],
        Some((from, to)) => vec![revision(from), revision(to)],
        None => vec![revision(commit)],
    };
    let revisions: Vec<&str> = revisions.iter().map(String::as_str).collect();
    files_between(place, &revisions).map_err(|failed| match failed {
        Failed::Cancelled => Error::new(Kind::Interrupted, "interrupted"),
        Failed::Reason(reason) => {
            let mut error = Error::usage(format!("commit {commit} not found"));
            error.causes.push(reason);
            error
        }
    })
}

/// See [`kilnyard_yard::family::Family::changes`].
pub fn changes(
    yard: &Yard,
    pkgsrc: &Pkgsrc,
    earlier: &[RunCommit],
    later: &[RunCommit],
    package: Option<&str>,
) -> Result<Vec<Change>> {
    let Some(place) = tree_commit(yard, pkgsrc) else { return Ok(Vec::new()) };
    let mut paths = Vec::new();
    if let Some(package) = package {
        let base = base::find(yard, &pkgsrc.root).unwrap_or_default();
        let set = set::resolve(yard, pkgsrc, &base)?;
        let Some(id) = kilnyard_ecosystem::Ecosystem::graph(&set).find(package) else {
            return Ok(Vec::new());
        };
        paths = set.places(id);
    }
    place::changes(&pkgsrc.shown(), place, (earlier, later), &paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::commits_between;
    use kilnyard_yard::interrupt;
    use std::path::Path;
    use std::process::Command;

    fn place(tree: &Path) -> TreeCommit {
        TreeCommit::of_folder(tree, interrupt::cancel()).unwrap()
    }

    fn git(folder: &Path, arguments: &[&str]) -> bool {
        let settings =
            ["-c", "user.name=Test", "-c", "user.email=test@localhost", "-c", "init.defaultBranch=main"];
        let output = Command::new("git").arg("-C").arg(folder).args(settings).args(arguments).output();
        output.is_ok_and(|output| output.status.success())
    }

    #[test]
    fn a_repository_cannot_run_commands() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path();
        if !git(tree, &["init", "-q"]) {
            println!("skipped: a_repository_cannot_run_commands: there is no git");
            return;
        }
        std::fs::create_dir(tree.join("a")).unwrap();
        std::fs::write(tree.join("a/file"), "1").unwrap();
        assert!(git(tree, &["add", "-A"]) && git(tree, &["commit", "-qm", "first"]));
        let attack = tree.join("attack");
        let command = format!("touch {}; false", attack.display());
        for (key, value) in [
            ("core.repositoryformatversion", "1"),
            ("extensions.partialClone", "origin"),
            ("remote.origin.promisor", "true"),
            ("remote.origin.url", tree.to_str().unwrap()),
            ("remote.origin.uploadpack", &command),
            ("diff.external", &command),
            ("core.fsmonitor", &command),
            ("core.pager", &command),
            ("log.showSignature", "true"),
            ("gpg.program", &command),
            ("alias.diff-tree", &format!("!{command}")),
        ] {
            assert!(git(tree, &["config", key, value]), "{key}");
        }
        // The commit's trees are gone, as in a partial clone that has fetched commits alone.
        let output =
            Command::new("git").arg("-C").arg(tree).args(["rev-parse", "HEAD^{tree}"]).output().unwrap();
        let name = String::from_utf8(output.stdout).unwrap();
        let (first, rest) = name.trim().split_at(2);
        std::fs::remove_file(tree.join(".git/objects").join(first).join(rest)).unwrap();
        assert!(!attack.exists());
        // Git alone runs the command.
        Command::new("git").arg("-C").arg(tree).args(["diff-tree", "-r", "--root", "HEAD"]).output().unwrap();
        let is_dangerous = attack.exists();
        let _ = std::fs::remove_file(&attack);
        let place = place(tree);
        assert!(changed_files(&place, "HEAD").is_err());
        assert!(commits_between(&place, "tree", "HEAD~0", &[]).is_ok());
        assert!(is_dangerous && !attack.exists(), "{is_dangerous}");
    }

    #[test]
    fn a_repository_of_another_user_is_not_asked() {
        let folder = tempfile::tempdir().unwrap();
        if !git(folder.path(), &["init", "-q"]) || !rustix::process::geteuid().is_root() {
            println!(
                "skipped: a_repository_of_another_user_is_not_asked: there is no git, or this is not root"
            );
            return;
        }
        assert!(git(folder.path(), &["commit", "-q", "--allow-empty", "-m", "first"]));
        assert!(TreeCommit::of_folder(folder.path(), interrupt::cancel()).is_some());
        std::os::unix::fs::chown(folder.path().join(".git"), Some(65534), None).unwrap();
        assert_eq!(TreeCommit::of_folder(folder.path(), interrupt::cancel()), None);
    }

    #[test]
    fn files_of_a_commit_and_of_a_range_are_found() {
        let folder = tempfile::tempdir().unwrap();
        if !git(folder.path(), &["init", "-q"]) {
            println!("skipped: files_of_a_commit_and_of_a_range_are_found: there is no git");
            return;
        }
        let tree = folder.path().join("pkgsrc");
        let write = |name: &str, text: &str| {
            let path = tree.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let commit = || {
            assert!(git(folder.path(), &["add", "-A"]));
            assert!(git(folder.path(), &["commit", "-qm", "change"]));
        };
        let changed = |commit: &str| {
            changed_files(&place(&tree), commit).map(|files| files.into_iter().collect::<Vec<_>>())
        };
        write("a/one/Makefile", "1");
        std::fs::write(folder.path().join("other"), "1").unwrap();
        commit();
        assert_eq!(changed("HEAD").unwrap(), ["a/one/Makefile"]);
        write("a/one/patches/patch-a b", "1");
        commit();
        write("mk/bsd.pkg.mk", "1");
        commit();
        assert_eq!(changed("HEAD").unwrap(), ["mk/bsd.pkg.mk"]);
        let both = ["a/one/patches/patch-a b", "mk/bsd.pkg.mk"];
        assert_eq!(changed("HEAD~2..HEAD").unwrap(), both);
        assert_eq!(changed("HEAD~2..").unwrap(), both);
        for bad in ["", "--output=x", "no-such-commit", "HEAD..-x"] {
            let error = changed(bad).unwrap_err();
            assert_eq!(error.kind, Kind::Usage, "{bad}: {error:?}");
        }
        assert!(!tree.join("x").exists());
    }
}
