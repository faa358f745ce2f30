//! The same tree with every way to make roots.

use crate::fixtures::{Packages, Shared, Trial};
use crate::support::Yard;
use crate::support::tree::MiniTree;

pub const CASES: &[Trial] = &[
    ("roots_in_memory_build_a_tree", in_memory),
    ("roots_copied_to_memory_build_a_tree", copied_to_memory),
    ("copied_roots_build_a_tree", copied),
    ("roots_on_block_devices_build_a_tree", on_block_devices),
    ("flushes_are_kept_where_that_is_wanted", kept_flushes),
];

/// Says what its root lies on, and leaves something for a person to find.
const LOOKS: &str = "do-build:\n\t@stat -f -c 'the root is on %T' /\n\t@touch /var/tmp/left";
/// Writes more than anybody is promised who was never built.
const LARGE: &str = "do-build:\n\t@stat -f -c 'the root is on %T' /\n\
    \t@dd if=/dev/zero of=/var/tmp/large bs=1048576 count=100 2>/dev/null";

fn built(shared: &Shared, name: &str, lines: &[&str]) -> (MiniTree, Yard) {
    let looks_and_fails = format!("{LOOKS}\n\t@echo kept > /var/tmp/kept; false");
    let needs_it = format!("BUILD_DEPENDS= looks-[0-9]*:../../some/looks\n{LARGE}");
    let packages: &[(&str, &str)] =
        &[("some/looks", LOOKS), ("some/large", &needs_it), ("some/fails", &looks_and_fails)];
    let tree = MiniTree::new(packages);
    let yard = shared.yard(name, &tree, &[]);
    yard.change("[root]", &format!("[root]\n{}", lines.join("\n")));
    yard.build().exits(1).says(&["2 built", "failed: some/fails"]);
    // The failed root is on the disk, as it was, until somebody has looked.
    let looked = yard.run(&["shell", "some/fails", "--", "cat", "/var/tmp/kept"]).exits(0);
    assert_eq!(looked.stdout, "kept\n");
    yard.is_clean();
    (tree, yard)
}

fn is_on(yard: &Yard, package: &str, kind: &str) {
    yard.run(&["log", package, "build"]).exits(0).says(&[&format!("the root is on {kind}")]);
}

fn in_memory(shared: &Shared) {
    let (_tree, yard) = built(shared, "in-memory", &["scratch = \"memory\""]);
    for package in ["some/looks", "some/large", "some/fails"] {
        is_on(&yard, package, "overlayfs");
    }
    let plan = yard.run(&["root", "plan", "some/looks"]).exits(0).stdout;
    let lines: Vec<&str> = plan.lines().map(str::trim).collect();
    assert!(lines[0].ends_with("by overlay, scratch in memory"), "{plan}");
    let at = |text: &str| {
        lines.iter().position(|line| line.contains(text)).unwrap_or_else(|| panic!("{text}: {plan}"))
    };
    assert!(at("tmpfs of at most") < at("memory/upper over layers/"), "{plan}");
    assert!(at("pivot to") < at("unmount roots/"), "{plan}");
    assert!(lines.last().unwrap().starts_with("remove roots/"), "{plan}");
    let json = yard.run(&["root", "plan", "some/looks", "--json"]).exits(0).json();
    assert_eq!(json["roots"]["scratch"], "memory");
    assert!(json["held"].as_array().is_some_and(|held| held.len() == 3), "{json}");
    yard.run(&["root", "plan", "some/nothing"])
        .exits(2)
        .says(&["some/nothing is not a package of this yard"]);
}

fn copied_to_memory(shared: &Shared) {
    let (_tree, yard) = built(shared, "copied-to-memory", &["backend = \"tmpfs\""]);
    is_on(&yard, "some/looks", "tmpfs");
    is_on(&yard, "some/fails", "tmpfs");
    // It found no room, and was built again where there is.
    is_on(&yard, "some/large", "overlayfs");
}

fn copied(shared: &Shared) {
    let (_tree, yard) = built(shared, "copied", &["backend = \"copy\""]);
    let text = yard.run(&["log", "some/looks", "build"]).exits(0).stdout;
    assert!(
        text.contains("the root is on ") && !text.contains("overlayfs") && !text.contains("tmpfs"),
        "{text}"
    );
}

fn on_block_devices(shared: &Shared) {
    // What is written over erofs lies beside it.
    for (file_system, shown) in [("xfs", "xfs"), ("erofs", "overlayfs")] {
        let of = format!("file-system = \"{file_system}\"");
        let (_tree, yard) = built(shared, file_system, &["backend = \"block\"", &of, "room = \"1G\""]);
        for package in ["some/looks", "some/large", "some/fails"] {
            is_on(&yard, package, shown);
        }
        assert_eq!(yard.names("layers/dependencies/images").len(), 1);
    }
}

/// Asks for a flush of what cannot be flushed.
const FLUSHES: &str =
    "do-build:\n\t@perl -e 'use IO::Handle; pipe(R, W); print W->sync ? qq(discarded\\n) : qq(kept\\n)'";

fn kept_flushes(shared: &Shared) {
    let tree = MiniTree::new(&[("some/flushes", FLUSHES)]);
    let yard = shared.yard("flushes", &tree, &[]);
    let says = |text: &str| {
        yard.run(&["build", "--force", "some/flushes"]).exits(0);
        yard.run(&["log", "some/flushes", "build"]).exits(0).says(&[text]);
    };
    says("\ndiscarded\n");
    yard.change("# flushes = \"discard\"", "flushes = \"keep\"");
    says("\nkept\n");
}
