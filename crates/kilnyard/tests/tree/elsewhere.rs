//! A lease of a package from a tree, performed without the tree and the yard.

use crate::fixtures::{Packages, Shared, Trial, serve};
use crate::support::elsewhere::{Made, kept, perform};
use crate::support::tree::{MiniTree, source};

pub const CASES: &[Trial] = &[("a_lease_and_artifacts_are_enough_for_a_package_of_a_tree", of_a_tree)];

fn of_a_tree(shared: &Shared) {
    let tree = MiniTree::new(&[("a/base", ""), ("a/top", "DEPENDS= base>=1:../../a/base")]);
    tree.distfile("a/top", "top-1.0.tar.gz", &source("top-1.0", "a source\n"));
    let server = serve(&tree);
    let yard = shared.yard("elsewhere", &tree, &[]);
    yard.build().exits(0);
    drop(server);
    // The tree and its distfiles are hidden, and there is no network.
    let made = perform(&yard, "a/top", &[&yard.folder, &tree.path()]);
    let kept = kept(&yard, "pkgsrc/linux/bookworm/amd64", "a/top");
    let contents =
        |of: &[Made]| of.iter().map(|made| (made.file.clone(), made.content.clone())).collect::<Vec<_>>();
    assert_eq!(contents(&made), contents(&kept));
    assert_eq!(made.len(), 1);
    yard.is_clean();
}
