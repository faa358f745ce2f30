//! The same tree built with every backend of roots.

use crate::fixtures::{Packages, Shared, Trial};
use crate::support::Yard;
use crate::support::tree::MiniTree;

pub const CASES: &[Trial] = &[
    ("roots_in_memory_build_a_tree", in_memory),
    ("roots_copied_to_memory_build_a_tree", copied_to_memory),
    ("copied_roots_build_a_tree", copied),
    ("roots_on_block_devices_build_a_tree", on_block_devices),
    ("flushes_can_be_kept", kept_flushes),
    ("packages_installed_together_are_kept", kept_sets),
    ("the_system_is_shown_without_an_overlay", sealed),
];

/// Prints the file system of its root, and leaves a file for later inspection.
const LOOKS: &str = "do-build:\n\t@stat -f -c 'the root is on %T' /\n\t@touch /var/tmp/left";
/// Writes more than the memory given to a package that was never built.
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
    // The failed root is kept on the disk, unchanged, for inspection.
    let printed = yard.run(&["shell", "some/fails", "--", "cat", "/var/tmp/kept"]).exits(0);
    assert_eq!(printed.stdout, "kept\n");
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
    // It ran out of room, and was built again on an overlay.
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
    // erofs is read-only, so writes go to an overlay; dependencies are layers above any image.
    for (file_system, server, shown) in [("xfs", "kilnyard", "xfs"), ("erofs", "nbdkit", "overlayfs")] {
        let of = format!("file-system = \"{file_system}\"\nserver = \"{server}\"");
        let (_tree, yard) = built(shared, file_system, &["backend = \"block\"", &of, "room = \"1G\""]);
        for (package, shown) in [("some/looks", shown), ("some/large", "overlayfs"), ("some/fails", shown)] {
            is_on(&yard, package, shown);
        }
        assert_eq!(yard.names("layers/dependencies/images").len(), 1);
    }
}

/// Flushes a pipe, which cannot be flushed.
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

/// Two packages that need the same two others, at build time or at run time; one of these needs the other.
const CHAIN: [(&str, &str); 4] = [
    ("chain/base", ""),
    ("chain/lib", "DEPENDS= base-[0-9]*:../../chain/base"),
    ("chain/one", "DEPENDS= lib-[0-9]*:../../chain/lib\ndo-build:\n\t@pkg_info -qe lib && pkg_info -qe base"),
    (
        "chain/two",
        "BUILD_DEPENDS= lib-[0-9]*:../../chain/lib\ndo-build:\n\t@pkg_info -qe lib && pkg_info -qe base",
    ),
];

fn kept_sets(shared: &Shared) {
    let tree = MiniTree::new(&CHAIN);
    let yard = shared.yard("sets", &tree, &[]);
    yard.run(&["build", "--slots", "1"]).exits(0).says(&["4 built"]);
    // The build of `lib` makes the set that its test needs; the set of `one` and `two` begins with it.
    let depends = |package: &str| yard.run(&["log", package, "depends"]).exits(0).stdout;
    let of_lib = depends("chain/lib");
    assert!(of_lib.contains("0 of 1 dependencies were installed together before"), "{of_lib}");
    assert!(of_lib.contains("the rest is left to the package manager: pkg_add writes"), "{of_lib}");
    assert!(of_lib.contains("1 installed by the package manager"), "{of_lib}");
    let mut of_both = [depends("chain/one"), depends("chain/two")];
    of_both.sort();
    assert!(of_both[0].starts_with("1 of 2 dependencies were installed together before\n"), "{of_both:?}");
    assert!(of_both[0].contains("1 installed by the package manager"), "{of_both:?}");
    assert_eq!(of_both[1], "2 of 2 dependencies were installed together before\n");
    // For the test, an output's dependencies are a layer below it; only the output itself is installed.
    let sets = yard.names("layers/dependencies/sets").len();
    assert_eq!(sets, 2);
    let tested = yard.run(&["log", "chain/one", "test"]).exits(0).stdout;
    assert_eq!(tested.lines().filter(|line| line.starts_with("+ pkg_add")).count(), 1, "{tested}");
    yard.is_clean();
    // Without layers, the package manager installs everything.
    yard.change("# layers = \"20G\"", "layers = \"0\"    #");
    yard.run(&["build", "--force", "chain/one"]).exits(0);
    let by_manager = depends("chain/one");
    assert!(by_manager.starts_with("+ pkg_add") && by_manager.contains("lib-1.0.tgz"), "{by_manager}");
}

/// Prints the file system of the system's folders, and what root may write there.
const SYSTEM: &str = "USE_DESTDIR= destdir\ndo-build:\n\
    \t@stat -f -c '/ is on %T' /\n\
    \t@grep -c ' /usr/bin ro' /proc/self/mountinfo\n\
    do-install:\n\t@touch /usr/share/new 2>&1 || touch /var/new && echo /var is written";

fn sealed(shared: &Shared) {
    let tree = MiniTree::new(&[("some/system", SYSTEM)]);
    let yard = shared.yard("system", &tree, &[]);
    yard.build().exits(0);
    yard.run(&["log", "some/system", "build"]).says(&["/ is on overlayfs\n1\n"]);
    yard.run(&["log", "some/system", "install"]).says(&["Read-only file system\n/var is written\n"]);
}
