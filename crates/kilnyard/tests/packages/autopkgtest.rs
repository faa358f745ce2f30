//! The tests of installed packages that sources declare.

use crate::fixtures::{Fixture, Packages, Shared, Trial, good};
use crate::support::Yard;

pub const CASES: &[Trial] = &[("declared_tests_are_packages_of_their_own", declared)];

const CONTROL: &str = "\
Tests: smoke, loud, breaks
Depends: @, app

Tests: quiet
Restrictions: allow-stderr

Tests: skips
Restrictions: skippable

Tests: shaky
Restrictions: flaky

Tests: root
Restrictions: needs-root

Tests: built
Restrictions: build-needed

Tests: machine
Restrictions: isolation-machine

Test-Command: test \"$(cat /usr/share/one/data)\" = one && test -d \"$AUTOPKGTEST_TMP\"
Features: test-name=command
";

const FILES: &[(&str, &str)] = &[
    ("debian/tests/control", CONTROL),
    // It is run in the source, with the packages of this set, and without the right to change them.
    (
        "debian/tests/smoke",
        "#!/bin/sh -e\ntest -f debian/rules && test -f /usr/share/app/data && ! touch /usr/share/one/data 2>/dev/null\n\
         dpkg-query -W -f '${Version}\\n' one app | grep -c '+bk' | grep -qx 2\n",
    ),
    ("debian/tests/loud", "#!/bin/sh\necho 'something is odd' >&2\n"),
    ("debian/tests/breaks", "#!/bin/sh\necho 'x.c:7: error: it is broken'; exit 3\n"),
    ("debian/tests/quiet", "#!/bin/sh\necho 'nothing is odd' >&2\ntouch /build/fake_1_all.deb\n"),
    ("debian/tests/skips", "#!/bin/sh\nexit 77\n"),
    ("debian/tests/shaky", "#!/bin/sh\nexit 1\n"),
    ("debian/tests/root", "#!/bin/sh -e\ntest \"$(id -u)\" = 0\n"),
    ("debian/tests/built", "#!/bin/sh -e\ntest -f of-the-build\n"),
    ("debian/tests/machine", "#!/bin/sh\nexit 1\n"),
];

fn states(yard: &Yard) -> Vec<String> {
    yard.states(&["one~smoke", "one~quiet", "one~skips", "one~shaky", "one~root", "one~built", "one~command"])
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn declared(shared: &Shared) {
    let one = Fixture { files: FILES, build: "touch of-the-build", ..good("one", "") };
    let yard = shared.yard("autopkgtest", &[one.clone(), good("app", "one")]);
    // Outputs are tested as jobs of their own, too.
    let config = yard.read("kilnyard.toml").replace("# test = true", "test = \"apart\" #");
    yard.configure(&config);
    yard.build().exits(0).says(&["2 built"]);
    let history = yard.json(&["history", "app", "--json"]);
    let stages = history[0]["stages"].as_array().unwrap();
    assert_eq!(stages.last().unwrap()["stage"], "test", "{history}");
    yard.configure(&format!("{config}\n[package.one]\nautopkgtest = true\n"));
    // The packages stay up to date: tests change nothing of them.
    yard.build().exits(1).says(&["one~loud", "one~breaks", "isolation-machine"]);
    assert_eq!(yard.states(&["one", "app"]), ["up-to-date", "up-to-date"]);
    assert_eq!(states(&yard), ["built"; 7]);
    assert_eq!(yard.states(&["one~loud", "one~breaks"]), ["failed", "failed"]);
    yard.run(&["log", "one~breaks"]).exits(0).says(&["x.c:7: error: it is broken", "exited with status 3"]);
    yard.run(&["log", "one~loud"]).exits(0).says(&["something is odd", "standard error"]);
    yard.run(&["log", "one~skips", "--all"]).exits(0).says(&["the test skipped itself"]);
    yard.run(&["log", "one~shaky", "--all"]).exits(0).says(&["its failure does not count"]);
    // What a test leaves is no output, and no source is published under its name.
    let published = yard.published();
    assert!(published.contains(&"Package: one".to_owned()) && published.contains(&"Package: app".to_owned()));
    assert!(!published.iter().any(|line| line.contains('~') || line.contains("fake")), "{published:?}");
    let sources = yard.read("repository/dists/bookworm/main/source/Sources");
    assert!(sources.contains("Package: one\n") && !sources.contains('~'), "{sources}");

    // They run again when what they test has changed, and no sooner.
    let arguments = ["one~smoke", "one~command"];
    yard.run(&[&["build"][..], &arguments].concat()).exits(0).says(&["nothing to do"]);
    one.change(&yard, "1.0", |fixture| Fixture { content: "other", ..fixture });
    yard.run(&["build", "one"]).exits(1);
    assert_eq!(yard.states(&["one", "one~smoke", "one~command"]), ["built", "unchanged", "failed"]);
    let builds = |name: &str| yard.json(&["history", name, "--json"]).as_array().unwrap().len();
    assert_eq!((builds("one~smoke"), builds("one~quiet"), builds("app")), (2, 2, 2));
    yard.run(&["why", "one~command"]).exits(0).says(&["one"]);
    assert!(yard.is_clean());
}
