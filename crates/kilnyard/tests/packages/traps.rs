//! Traps that sources, packages and other users of the machine lay for later builds.

use crate::fixtures::{Fixture, Packages, Shared, Trial, good, slow};
use crate::support::{Ended, Yard};
use std::fs;
use std::path::Path;
use std::process::Command;

pub const CASES: &[Trial] = &[
    ("deep_folders_stop_no_later_build", deep_folders),
    ("what_cannot_be_removed_is_set_aside_and_reported", what_cannot_be_removed),
];

/// More than there are descriptors by default.
const DIG: &str = "perl -e 'for (1..3000) { mkdir \"d\"; chdir \"d\" }'";

fn deep_folders(shared: &Shared) {
    let fixtures = [
        slow("deep-build", DIG),
        // The path of a file in a package has some 4096 bytes at most.
        Fixture {
            binary: "cd debian/tmp/usr/share/deep-files && perl -e 'for (1..1500) { mkdir \"d\"; chdir \"d\" }'",
            ..good("deep-files", "")
        },
        good("on-deep-files", "deep-files"),
        Fixture {
            binary: "printf '#!/bin/sh\\nmkdir /var/lib/trap\\ncd /var/lib/trap\\nperl -e \"for (1..3000) \
                     { mkdir q(d); chdir q(d) }\"\\n' > debian/tmp/DEBIAN/postinst; chmod 755 debian/tmp/DEBIAN/postinst",
            ..good("deep-postinst", "")
        },
        slow("deep-failed", "perl -e 'for (1..3000) { mkdir \"d\"; chdir \"d\" }'; false"),
    ];
    let yard = shared.yard("deep", &fixtures);
    yard.build().exits(1);
    let names = ["deep-build", "deep-files", "on-deep-files", "deep-postinst", "deep-failed"];
    assert_eq!(yard.states(&names), ["built", "built", "built", "built", "failed"]);
    assert!(yard.is_clean(), "{:?}", yard.names("roots"));
    // The root that failed is kept, and goes when there is a later one.
    yard.run(&["build", "--no-scan", "--force"]).exits(1);
    assert!(yard.is_clean(), "{:?}", yard.names("roots"));
    yard.run(&["clean", "--base"]).exits(0);
    assert_eq!(yard.names("roots"), [""; 0]);
    assert_eq!(yard.names("layers"), [""; 0]);
}

fn immutable(path: &Path, value: &str) -> bool {
    let changed: Option<Ended> = Command::new("chattr").arg(value).arg(path).output().ok().map(Ended::from);
    changed.is_some_and(|ended| ended.code == Some(0))
}

fn what_cannot_be_removed(shared: &Shared) {
    let yard: Yard = shared.yard("aside", &[good("one", "")]);
    let layer = "layers/dependencies/sets/half.0.part";
    for place in ["roots/77", "roots/left-over", layer] {
        fs::create_dir_all(yard.path(place)).unwrap();
    }
    let pinned = [yard.path("roots/77/pinned"), yard.path(&format!("{layer}/pinned"))];
    for file in &pinned {
        fs::write(file, "").unwrap();
    }
    if !pinned.iter().all(|file| immutable(file, "+i")) {
        eprintln!("skipped: nothing can be made immutable here");
        return;
    }
    let built = yard.build();
    let again = yard.build();
    let stuck = yard.run(&["clean"]);
    for place in ["roots/left-over/77.1/pinned", "roots/left-over/half.0.part.1/pinned"] {
        assert!(immutable(&yard.path(place), "-i"), "{place} is not there");
    }
    built.exits(0).says(&["roots/left-over/77.1 could not be removed and was set aside", "not permitted"]);
    again
        .exits(0)
        .says(&["roots/left-over has 2 folders that could not be removed (77.1, half.0.part.1); try: "]);
    stuck.exits(3).says(&["left-over/77.1", "not permitted"]);
    yard.run(&["clean"]).exits(0);
    assert!(yard.names("roots/left-over").is_empty());
}
