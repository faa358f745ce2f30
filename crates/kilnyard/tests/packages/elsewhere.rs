//! Leases performed without their yard.

use crate::fixtures::{Packages, Shared, Trial, good};
use crate::support::Yard;
use crate::support::elsewhere::{Made, kept, perform};
use std::fs;

const TARGET: &str = "debian/linux/bookworm/amd64";

pub const CASES: &[Trial] =
    &[("a_lease_and_artifacts_are_enough_for_libmd", libmd), ("a_lease_reports_what_is_missing", lacking)];

/// Performs leases of a real source, and of a package that depends on another package of the set.
fn libmd(shared: &Shared) {
    let yard = shared.yard("elsewhere", &[good("one", ""), good("two", "one")]);
    let config = yard.read("kilnyard.toml").replace("packages = [\n", "packages = [\n  \"libmd\",\n");
    fs::write(yard.path("kilnyard.toml"), config).unwrap();
    // The lease is performed first, so that the local build has the same revision: the first.
    let hidden = [yard.folder.as_path()];
    let of_libmd = perform(&yard, "libmd", &hidden);
    yard.run(&["lease", "two", "--to", &shared.path("two").display().to_string()])
        .exits(2)
        .says(&["two needs one, which is not built", "build two"]);
    yard.build().exits(0);
    assert_eq!(of_libmd, kept(&yard, TARGET, "libmd"));
    assert!(of_libmd.len() >= 2, "{of_libmd:?}");
    // Its dependency is an output of the yard, which is also an artifact, named by its hash.
    let again = perform(&yard, "two", &hidden);
    let contents = |made: &[Made]| made.iter().map(|made| made.content.clone()).collect::<Vec<_>>();
    assert_eq!(contents(&again), contents(&kept(&yard, TARGET, "two")));
    assert_eq!(again[0].file, "two_1.0+bk2_amd64.deb");
}

fn lacking(shared: &Shared) {
    let yard = shared.yard("lacking", &[good("one", "")]);
    let folder = |name: &str| shared.path(name).display().to_string();
    let (artifacts, lease, worker) = (folder("artifacts"), folder("artifacts/lease.json"), folder("its-own"));
    yard.run(&["lease", "no-such", "--to", &artifacts]).exits(2).says(&["no-such"]);
    yard.run(&["lease", "one", "--to", &artifacts]).exits(0).says(&["kilnyard worker --lease"]);
    let perform = ["worker", "--lease", &lease, "--artifacts", &artifacts, "--folder", &worker];
    let right = fs::read_to_string(&lease).unwrap();
    // A wrong version, a truncated message, wrong content.
    fs::write(&lease, right.replacen("\"version\":", "\"version\":9", 1)).unwrap();
    yard.run(&perform).exits(2).says(&["lease", "version"]);
    fs::write(&lease, &right[..right.len() / 2]).unwrap();
    yard.run(&perform).exits(2).says(&["failed to read the lease"]);
    fs::write(&lease, &right).unwrap();
    let value: serde_json::Value = serde_json::from_str(&right).unwrap();
    let root = &value["body"]["order"]["root"];
    let path = |sha256: &str| shared.path("artifacts").join(&sha256[..2]).join(sha256);
    let layer = root["layers"][0]["sha256"].as_str().unwrap();
    let (tree, aside) = (path(layer).with_extension("zst"), shared.path("aside"));
    fs::rename(&tree, &aside).unwrap();
    yard.run(&perform).exits(3).says(&[layer, "not found"]);
    fs::rename(&aside, &tree).unwrap();
    let input = path(root["inputs"][0]["sha256"].as_str().unwrap());
    let content = fs::read(&input).unwrap();
    fs::remove_file(&input).unwrap();
    fs::write(&input, vec![b'x'; content.len()]).unwrap();
    yard.run(&perform).exits(3).says(&["has different content"]);
    fs::write(&input, &content).unwrap();
    yard.run(&perform).exits(0);
    Yard { folder: worker.into() }.run(&["clean", "--base"]);
}
