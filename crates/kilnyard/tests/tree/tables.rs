//! The tables `[package.NAME]` in a yard of a tree: settings of make for one directory, checks, environment, network.

use crate::fixtures::{Packages, Shared, Trial, settle};
use crate::support::Yard;
use crate::support::tree::MiniTree;
use std::fs;
use std::io::Write;
use std::net::TcpListener;

pub const CASES: &[Trial] = &[
    ("settings_of_one_directory_reach_its_scan_and_its_builds_alone", settings_of_one_directory),
    ("settings_in_a_file_are_followed_and_harm_no_other_directory", settings_in_a_file),
    ("checks_of_one_directory_add_its_test_dependencies", checks_of_one_directory),
    ("a_package_of_a_tree_has_the_network_only_if_its_table_says_so", network_of_one_package),
];

/// Adds tables to the configuration, in place of those that an earlier call added.
fn set(yard: &Yard, tables: &str) {
    const BEGIN: &str = "\n# tables of this trial\n";
    let config = yard.read("kilnyard.toml");
    let before = config.split(BEGIN).next().unwrap();
    fs::write(yard.path("kilnyard.toml"), format!("{before}{BEGIN}{tables}")).unwrap();
}

fn log(yard: &Yard, package: &str) -> String {
    yard.run(&["log", package, "build", "--all"]).exits(0).stdout
}

/// Two packages that need a third one if their settings say so.
fn tree() -> MiniTree {
    let lines = "BASE= base-[0-9]*:../../lang/base\nDEPENDS= ${WITH_BASE:D${BASE}}\n\
                 do-build:\n\t@echo flavor=${FLAVOR:Uplain} greeting=$${GREETING:-none} jobs=${MAKE_JOBS}";
    MiniTree::new(&[("lang/base", ""), ("mail/mutt", lines), ("mail/pine", lines)])
}

fn settings_of_one_directory(shared: &Shared) {
    let tree = tree();
    let yard = shared.yard("own-settings", &tree, &[]);
    yard.build().exits(0).says(&["3 directories: 3 scanned", "3 built"]);
    assert!(log(&yard, "mail/mutt").contains("flavor=plain greeting=none jobs=2\n"));
    set(
        &yard,
        "[package.\"mail/mutt\"]\nenvironment = { GREETING = \"hello\" }\njobs = 1\nmk-conf = \"\"\"\n\
         WITH_BASE= yes\nFLAVOR= spicy\n\"\"\"\n",
    );
    yard.run(&["scan"]).exits(0).says(&["3 directories: 1 scanned, 2 unchanged, 0 failed"]);
    let planned = yard.planned();
    let [(name, _, reason)] = &planned[..] else { panic!("{planned:?}") };
    assert_eq!(name, "mail/mutt");
    for word in
        ["option environment.GREETING was set to hello", "option mk-conf was set to ", "dependency base-1.0"]
    {
        assert!(reason.contains(word), "{word}: {reason}");
    }
    yard.build().exits(0).says(&["3 directories: 0 scanned"]);
    let built = log(&yard, "mail/mutt");
    assert!(built.contains("flavor=spicy greeting=hello jobs=1\n"), "{built}");
    assert_eq!(yard.why("mail/mutt")["dependencies"], serde_json::json!(["lang/base"]));
    assert_eq!(["lang/base", "mail/mutt", "mail/pine"].map(|package| yard.builds(package)), [1, 2, 1]);
    assert!(yard.summary().contains("DEPENDS=base-[0-9]*\n"), "{}", yard.summary());
    // Of several tables, the last one counts; a pattern reaches every directory that it matches.
    set(
        &yard,
        "[package.\"mail/*\"]\nmk-conf = \"FLAVOR= mild\"\n[package.\"mail/[!p]*\"]\nmk-conf = \"FLAVOR= hot\"\n",
    );
    yard.build().exits(0).says(&["3 directories: 2 scanned, 1 unchanged"]);
    assert!(log(&yard, "mail/mutt").contains("flavor=hot greeting=none"), "{}", log(&yard, "mail/mutt"));
    assert!(log(&yard, "mail/pine").contains("flavor=mild greeting=none"), "{}", log(&yard, "mail/pine"));
    assert_eq!(yard.builds("lang/base"), 1);
    // Without tables, nothing changes.
    set(&yard, "");
    yard.build().exits(0).says(&["3 directories: 2 scanned, 1 unchanged"]);
    assert!(log(&yard, "mail/mutt").contains("flavor=plain greeting=none jobs=2\n"));
    assert!(!yard.summary().contains("DEPENDS="), "{}", yard.summary());
    yard.is_clean();
}

fn settings_in_a_file(shared: &Shared) {
    let tree = tree();
    let yard = shared.yard("own-file", &tree, &[]);
    set(&yard, "[package.\"mail/m*\"]\nmk-conf-file = \"fragments/mutt.mk\"\n");
    yard.build().exits(2).says(&["mk-conf-file of [package.\"mail/m*\"]", "fragments/mutt.mk"]);
    fs::create_dir(yard.path("fragments")).unwrap();
    let write = |text: &str| {
        fs::write(yard.path("fragments/mutt.mk"), text).unwrap();
        settle();
    };
    // Not terminated by a newline.
    write("FLAVOR= sour");
    yard.build().exits(0).says(&["3 built"]);
    assert!(log(&yard, "mail/mutt").contains("flavor=sour "));
    write("FLAVOR= sweet\n");
    let planned = yard.planned();
    assert_eq!(planned.len(), 1, "{planned:?}");
    assert!(planned[0].2.contains("option mk-conf changed from"), "{planned:?}");
    yard.build().exits(0).says(&["3 directories: 1 scanned, 2 unchanged"]);
    assert!(log(&yard, "mail/mutt").contains("flavor=sweet "));
    // A conditional that leaves its file, and an error, are errors of this directory alone.
    for (text, words) in [
        (".endif\nFLAVOR= bitter\n.if 1\n", "package-1.mk"),
        (".error no flavor\n", "no flavor"),
        (".if 1\nFLAVOR= bitter\n", "package-1.mk"),
    ] {
        write(text);
        yard.build()
            .exits(1)
            .says(&["3 directories: 1 scanned, 2 unchanged, 1 failed", "left out: mail/mutt"]);
        yard.run(&["why", "mail/mutt"]).exits(0).says(&[words]);
        assert_eq!(yard.states(&["lang/base", "mail/pine"]), ["up-to-date", "up-to-date"], "{text}");
    }
    assert_eq!(yard.builds("mail/pine"), 1);
    yard.is_clean();
}

fn checks_of_one_directory(shared: &Shared) {
    let lines =
        "TEST_DEPENDS= base-[0-9]*:../../lang/base\ndo-test:\n\t@echo tested with $$(/usr/pkg/bin/base)";
    let tree = MiniTree::new(&[("lang/base", ""), ("mail/mutt", lines), ("mail/pine", lines)]);
    let yard = shared.yard("own-checks", &tree, &[]);
    set(&yard, "[package.\"mail/*\"]\nchecks = true\n[package.\"mail/pine\"]\nchecks = false\n");
    yard.build().exits(0);
    let dependencies = |package: &str| yard.why(package)["dependencies"].clone();
    assert_eq!(dependencies("mail/mutt"), serde_json::json!(["lang/base"]));
    assert_eq!(dependencies("mail/pine"), serde_json::json!([]));
    assert!(log(&yard, "mail/mutt").contains("tested with base-1.0\n"), "{}", log(&yard, "mail/mutt"));
    assert!(!log(&yard, "mail/pine").contains("tested"), "{}", log(&yard, "mail/pine"));
    set(&yard, "[package.\"mail/pine\"]\nchecks = false\n");
    // Other tables match both directories now.
    yard.run(&["scan"]).exits(0).says(&["3 directories: 2 scanned, 1 unchanged"]);
    let planned = yard.planned();
    assert_eq!(planned.len(), 1, "{planned:?}");
    assert!(planned[0].2.contains("option checks was unset; it was true"), "{planned:?}");
}

fn network_of_one_package(shared: &Shared) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    // It ends with the process.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = writeln!(&stream, "an answer");
        }
    });
    let lines = format!(
        "do-build:\n\t@bash -euc 'exec 3<>/dev/tcp/127.0.0.1/{port}; head -n 1 <&3'; cat /etc/resolv.conf"
    );
    let tree = MiniTree::new(&[("net/one", &lines), ("net/two", &lines)]);
    let yard = shared.yard("own-network", &tree, &[]);
    yard.build().exits(1).says(&["2 failed"]);
    set(
        &yard,
        "[package.\"net/one\"]\nnetwork = true\nnote = \"it fetches while it builds\"\n\
         [package.\"net/two\"]\nexpected = \"failure\"\nbecause = \"there is no network\"\n",
    );
    let note = "built with network access, as set in kilnyard.toml: net/one";
    yard.run(&["plan"]).exits(0).says(&[note]);
    let ended = yard.build().exits(0);
    ended.says(&[note, "0 scanned", "failed as expected (there is no network): net/two"]);
    assert_eq!(yard.states(&["net/one", "net/two"]), ["built", "failed"]);
    let built = log(&yard, "net/one");
    assert!(built.contains("\nan answer\n") && built.contains("this stage has network access"), "{built}");
    let resolver = fs::read_to_string("/etc/resolv.conf").unwrap();
    assert!(resolver.lines().all(|line| built.contains(line)), "{built}");
    assert!(!log(&yard, "net/two").contains("an answer"));
    let page = yard.read("report/latest/index.html");
    assert!(page.contains("it fetches while it builds") && page.contains("Expected failures"));
    yard.is_clean();
}
