//! The packages of a set that a commit of the tree changes.

use super::set;
use crate::debian::base;
use crate::pkgsrc::Pkgsrc;
use kilnyard_yard::error::{Context, Error, Kind, Result};
use kilnyard_yard::yard::Yard;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The packages that a commit, or a range such as `A..B`, changes: by a file of their own directory, or by any other
/// file that make read for them.
pub fn changed_packages(yard: &Yard, pkgsrc: &Pkgsrc, commit: &str) -> Result<Vec<String>> {
    let files = changed_files(&pkgsrc.tree, commit)?;
    let base = base::find(yard, &pkgsrc.root).unwrap_or_default();
    Ok(set::resolve(yard, pkgsrc, &base)?.concerned(&files))
}

/// The files that differ, relative to the tree, which may be a folder of a larger repository.
fn changed_files(tree: &Path, commit: &str) -> Result<BTreeSet<String>> {
    if commit.is_empty() || commit.starts_with('-') {
        return Err(Error::usage(format!("`{commit}` is not a valid commit")));
    }
    let revisions: Vec<&str> = match commit.split_once("..") {
        Some((from, to)) => vec![from, if to.is_empty() { "HEAD" } else { to }],
        None => vec![commit],
    };
    let failed = "ask git what changed";
    let output = Command::new("git")
        // The repository is that of the tree, whatever the caller works in.
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .env_remove("GIT_INDEX_FILE")
        // The repository's own configuration may name a command that reads the state of its files, and one that fetches
        // objects that a partial clone lacks.
        .env("GIT_NO_LAZY_FETCH", "1")
        .args(["-c", "core.fsmonitor=false", "-c", "protocol.allow=never"])
        .arg("-C")
        .arg(tree)
        .args(["diff-tree", "-r", "-z", "-m", "--first-parent", "--root", "--no-commit-id", "--name-only"])
        .args(["--no-renames", "--no-ext-diff", "--no-textconv", "--relative", "--end-of-options"])
        .args(revisions)
        .output()
        .context(Kind::Machine, failed)
        .map_err(|error| error.hint("apt-get install git"))?;
    if !output.status.success() {
        let mut error = Error::usage(format!("commit {commit} not found in {}", tree.display()));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        error.causes.extend(said.lines().take(3).map(str::to_owned));
        return Err(error);
    }
    let names = output.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(changed_files(tree, "HEAD").is_err());
        assert!(is_dangerous && !attack.exists(), "{is_dangerous}");
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
        let changed =
            |commit: &str| changed_files(&tree, commit).map(|files| files.into_iter().collect::<Vec<_>>());
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
