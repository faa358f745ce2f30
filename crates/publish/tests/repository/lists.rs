//! Tests repositories of packages with lists: what a generation has, and the state after an interruption.

use std::fs;
use std::path::{Path, PathBuf};

use kilnyard_publish::{KEYRING_FILE, ListFiles, ListedFile, Publication, PublishError, Result, plan_lists};
use sha2::{Digest, Sha256};

use crate::support::{PLAIN_KEY, PlainSigner, write};

/// The folder of packages that a key has signed.
const POOL: &str = "Packages/0123456789abcdef";

fn digest(content: &str) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn file(folder: &Path, name: &str) -> ListedFile {
    let file = folder.join("files").join(digest(name));
    write(&file, name.as_bytes());
    ListedFile {
        folder: POOL.to_owned(),
        name: name.to_owned(),
        file,
        sha256: digest(name),
        size_bytes: name.len() as u64,
    }
}

/// The file for clients.
const CLIENT: (&str, &str) = ("kilnyard.repo", "it is at the top\n");

/// Plans a repository of files with these names, and a list of them.
fn plan(folder: &Path, names: &[&str]) -> Result<Publication> {
    let files: Vec<ListedFile> = names.iter().map(|name| file(folder, name)).collect();
    let list = names.join("\n");
    let name = format!("{}-list", digest(&list));
    let text = format!("the list is {name}\n");
    let lists = ListFiles {
        folder: "repodata",
        lists: vec![(name, list.into_bytes())],
        text: ("top.xml", text),
        client: (CLIENT.0, CLIENT.1.to_owned()),
    };
    plan_lists(&folder.join("repository"), &files, lists, PLAIN_KEY)
}

fn publish(folder: &Path, names: &[&str]) -> bool {
    plan(folder, names).unwrap().execute(&PlainSigner).unwrap().is_new
}

fn listed(at: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(at)
        .map(|entries| {
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
        })
        .unwrap_or_default();
    names.sort();
    names
}

/// The generation that readers see is complete; returns the names of its packages.
fn check(folder: &Path) -> Vec<String> {
    let at: PathBuf = folder.join("repository/packages");
    let text = fs::read_to_string(at.join("repodata/top.xml")).unwrap();
    let name = text.trim_end().strip_prefix("the list is ").unwrap();
    let list = fs::read_to_string(at.join("repodata").join(name)).unwrap();
    assert_eq!(fs::read_to_string(folder.join("repository").join(CLIENT.0)).unwrap(), CLIENT.1);
    assert!(at.join("repodata/top.xml.asc").exists() && at.join(KEYRING_FILE).exists());
    for name in list.lines() {
        assert_eq!(fs::read_to_string(at.join(POOL).join(name)).unwrap(), name);
    }
    list.lines().map(str::to_owned).collect()
}

#[test]
fn files_stay_for_one_more_generation() {
    let scratch = tempfile::tempdir().unwrap();
    let at = scratch.path();
    assert!(publish(at, &["a-1.rpm", "b-1~rc1^git.rpm"]));
    assert_eq!(check(at), ["a-1.rpm", "b-1~rc1^git.rpm"]);
    assert!(!publish(at, &["a-1.rpm", "b-1~rc1^git.rpm"]));
    assert!(publish(at, &["a-2.rpm", "b-1~rc1^git.rpm"]));
    let packages = at.join("repository/packages").join(POOL);
    // A reader of the text before still finds what it names.
    assert_eq!(listed(&packages), ["a-1.rpm", "a-2.rpm", "b-1~rc1^git.rpm"]);
    assert_eq!(listed(&at.join("repository/packages/repodata")).len(), 4);
    assert!(publish(at, &["a-3.rpm"]));
    assert_eq!(listed(&packages), ["a-2.rpm", "a-3.rpm", "b-1~rc1^git.rpm"]);
    assert_eq!(check(at), ["a-3.rpm"]);
}

#[test]
fn a_lost_or_changed_file_makes_a_new_generation() {
    let scratch = tempfile::tempdir().unwrap();
    let at = scratch.path();
    let current = at.join("repository/packages");
    let package = format!("{POOL}/a-1.rpm");
    for lost in [&package, "repodata/top.xml.asc", "repodata/top.xml", KEYRING_FILE] {
        publish(at, &["a-1.rpm"]);
        fs::remove_file(current.join(lost)).unwrap();
        assert!(publish(at, &["a-1.rpm"]), "{lost}");
        check(at);
    }
    fs::remove_file(current.join(&package)).unwrap();
    fs::write(current.join(&package), "another size").unwrap();
    assert!(publish(at, &["a-1.rpm"]));
    check(at);
}

#[test]
fn hostile_names_are_rejected() {
    let scratch = tempfile::tempdir().unwrap();
    for name in ["../a.rpm", "/a.rpm", ".a.rpm", "a b.rpm", "a\n.rpm", "", &"a".repeat(300)] {
        let planned = plan(scratch.path(), &[name]);
        assert!(matches!(planned, Err(PublishError::Input { .. })), "{name:?}");
    }
    assert!(matches!(plan(scratch.path(), &["a.rpm", "a.rpm"]), Err(PublishError::Input { .. })));
    // A list of the last generation that was changed leads nowhere.
    publish(scratch.path(), &["a.rpm"]);
    let current = scratch.path().join("repository/packages");
    fs::write(current.join(".listed"), "../../secret\n/etc/passwd\nPackages/../../x\n").unwrap();
    assert!(publish(scratch.path(), &["b.rpm"]));
    assert_eq!(listed(&current.join(POOL)), ["b.rpm"]);
    assert_eq!(listed(&current.join("Packages")).len(), 1);
}

#[test]
fn an_end_after_any_step_leaves_a_complete_generation() {
    let (old, new) = (["a-1.rpm", "b-1.rpm"], ["a-2.rpm", "b-1.rpm"]);
    let steps = {
        let scratch = tempfile::tempdir().unwrap();
        publish(scratch.path(), &old);
        plan(scratch.path(), &new).unwrap().operations().len()
    };
    for step in 0..steps {
        let scratch = tempfile::tempdir().unwrap();
        let at = scratch.path();
        publish(at, &old);
        let planned = plan(at, &new).unwrap();
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            planned.execute_observed(&PlainSigner, &mut |number, _| assert!(number != step, "the end"))
        }));
        assert!(ended.is_err());
        let seen = check(at);
        assert!(seen == old || seen == new, "after step {step}: {seen:?}");
        publish(at, &new);
        assert_eq!(check(at), new);
    }
}
