//! A build without its yard: the process has only the lease and a folder of artifacts.

use super::{Ended, Yard, command, folder, is_root};
use kilnyard_store::Store;
use kilnyard_store_sqlite::Sqlite;
use std::path::Path;
use std::process::Command;

/// Hides folders under empty ones, then executes the program.
const HIDDEN: &str = r#"while [ "$1" != -- ]; do mount -t tmpfs none "$1"; test -z "$(ls "$1")"; shift; done; shift; exec "$@""#;

/// An output that a worker without the yard made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Made {
    pub file: String,
    pub sha256: String,
    pub content: String,
}

/// Performs the lease of a package in a process that sees neither these folders nor a network. Returns its outputs.
pub fn perform(yard: &Yard, package: &str, hidden: &[&Path]) -> Vec<Made> {
    let scratch = folder("elsewhere");
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let (artifacts, lease) = (path("artifacts"), path("artifacts/lease.json"));
    yard.run(&["lease", package, "--to", &artifacts]).exits(0);
    let worker = ["worker", "--lease", &lease, "--artifacts", &artifacts, "--folder", &path("worker")];
    let program = command();
    let mut elsewhere = Command::new("unshare");
    elsewhere.args(["--mount", "--net", "--propagation", "private", "--", "/bin/sh", "-euc", HIDDEN, "sh"]);
    elsewhere.args(hidden).arg("--").arg(program.get_program()).args(worker).current_dir("/");
    super::quiet(&mut elsewhere);
    assert!(is_root(), "only root can hide folders");
    let ended: Ended = Ended::from(elsewhere.output().unwrap()).exits(0);
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let outputs = ended.stdout.lines().map(words).filter(|words| words[0] == "output");
    let mut made: Vec<Made> = outputs
        .map(|words| Made { file: words[1].clone(), sha256: words[2].clone(), content: words[3].clone() })
        .collect();
    made.sort();
    // The outputs are stored as artifacts, named by their hashes, and so are the logs.
    for hash in made.iter().map(|made| &made.sha256) {
        assert!(scratch.path().join("artifacts").join(&hash[..2]).join(hash).is_file(), "{hash}");
    }
    assert!(ended.stdout.lines().any(|line| line.starts_with("log build ")), "{ended:?}");
    // Layers and roots belong to the ids of roots, so Kilnyard removes them.
    let folder = scratch.path().join("worker");
    Yard { folder }.run(&["clean", "--base"]);
    made
}

/// The outputs of a package in the yard's store.
pub fn kept(yard: &Yard, target: &str, package: &str) -> Vec<Made> {
    let target = &target.parse().unwrap();
    let store = Sqlite::open_to_read(&yard.path("state/kilnyard.db"), target).unwrap();
    let outputs = store.current(package).unwrap().unwrap().outputs.into_iter();
    let mut kept: Vec<Made> = outputs
        .map(|output| Made { file: output.file, sha256: output.sha256, content: output.content })
        .collect();
    kept.sort();
    kept
}
