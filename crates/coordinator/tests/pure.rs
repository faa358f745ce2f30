//! The coordinator does not depend on a database, not even indirectly.

use std::process::Command;

#[test]
fn the_coordinator_does_not_depend_on_a_database() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--edges", "normal", "--prefix", "none", "--package"])
        .arg("kilnyard-coordinator")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let tree = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(tree.lines().any(|line| line.starts_with("kilnyard-store v")), "{tree}");
    for database in ["rusqlite", "libsqlite3-sys", "kilnyard-store-sqlite"] {
        assert!(!tree.lines().any(|line| line.starts_with(database)), "it depends on {database}:\n{tree}");
    }
}
