//! The tables `[package.NAME]`: each key changes the build of its package, and of no other.

use crate::fixtures::{Fixture, Packages, Shared, Trial, good, slow};
use crate::support::Yard;
use crate::support::server::Server;
use std::collections::BTreeMap;
use std::fs;

pub const CASES: &[Trial] = &[
    ("options_of_one_package_change_its_build_and_no_other", options_of_one_package),
    ("checks_of_one_package_change_its_dependencies", checks_of_one_package),
    ("a_build_has_the_network_only_if_its_table_says_so", network_of_one_package),
    ("limits_of_one_package_end_its_build_alone", limits_of_one_package),
    ("an_expected_failure_does_not_fail_the_run", an_expected_failure),
    ("an_unexpected_success_is_reported_and_published", an_unexpected_success),
    ("retries_of_one_package_differ_from_those_of_the_yard", retries_of_one_package),
    ("priorities_decide_before_the_longest_path", priorities),
    ("tables_that_match_nothing_or_are_wrong_are_reported", wrong_tables),
];

/// Adds tables to the configuration, in place of those that an earlier call added.
fn set(yard: &Yard, tables: &str) {
    const BEGIN: &str = "\n# tables of this trial\n";
    let config = yard.read("kilnyard.toml");
    let before = config.split(BEGIN).next().unwrap();
    fs::write(yard.path("kilnyard.toml"), format!("{before}{BEGIN}{tables}")).unwrap();
}

/// The reasons for which the plan builds packages, by name.
fn reasons(yard: &Yard) -> BTreeMap<String, String> {
    let plan = yard.json(&["plan", "--json"]);
    let rows = plan["packages"].as_array().unwrap().iter().filter(|row| row["state"] != "up-to-date");
    rows.map(|row| (row["name"].as_str().unwrap().to_owned(), row["reason"].as_str().unwrap().to_owned()))
        .collect()
}

fn log(yard: &Yard, package: &str) -> String {
    yard.run(&["log", package, "build", "--all"]).exits(0).stdout
}

fn report(yard: &Yard) -> serde_json::Value {
    serde_json::from_str(&yard.read("report/latest/report.json")).unwrap()
}

fn in_report(yard: &Yard, package: &str) -> serde_json::Value {
    let report = report(yard);
    let packages = report["packages"].as_array().unwrap();
    packages.iter().find(|one| one["name"] == package).unwrap().clone()
}

/// What a build sees of its options.
const SAYS: &str = "echo says=$${GREETING:-nothing} options=$$DEB_BUILD_OPTIONS profiles=$$DEB_BUILD_PROFILES \
                    count=$${COUNT:-none}";

fn options_of_one_package(shared: &Shared) {
    let yard = shared.yard("own-options", &[slow("one", SAYS), slow("two", SAYS)]);
    yard.build().exits(0);
    let usual = log(&yard, "one");
    assert!(usual.contains("says=nothing options=parallel="), "{usual}");
    assert!(usual.contains(" nocheck profiles=nocheck count=none\n"), "{usual}");
    set(
        &yard,
        "[package.\"o*\"]\nenvironment = { GREETING = \"good morning\", COUNT = \"%{jobs}\" }\n\
         options = [\"nostrip\"]\nprofiles = [\"nodoc\"]\njobs = 1\n",
    );
    let expected = "option environment.COUNT was set to %{jobs}; option environment.GREETING was set to good morning; \
                    option options was set to nostrip; option profiles changed from nocheck to nodoc,nocheck";
    let reasons_now = reasons(&yard);
    assert_eq!(reasons_now, [("one".to_owned(), expected.to_owned())].into());
    yard.build().exits(0);
    let own = log(&yard, "one");
    assert!(
        own.contains("says=good morning options=parallel=1 nocheck nostrip profiles=nodoc nocheck"),
        "{own}"
    );
    assert!(own.contains("count=1\n"), "{own}");
    // Settings that do not affect the outputs cause no build.
    set(
        &yard,
        "[package.\"o*\"]\nenvironment = { GREETING = \"good morning\", COUNT = \"%{jobs}\" }\n\
         options = [\"nostrip\"]\nprofiles = [\"nodoc\"]\njobs = 2\npriority = 9\nmemory = \"2G\"\n\
         wall-minutes-max = 5\nretries = { memory = 0 }\nnote = \"fragile\"\nexpected = \"failure\"\n",
    );
    assert_eq!(reasons(&yard), BTreeMap::new());
    yard.run(&["why", "one"]).exits(0).says(&[
        "  expected to fail\n",
        "  priority: 9\n",
        "  note: fragile\n",
    ]);
    let why = yard.json(&["why", "one", "--json"]);
    assert_eq!(
        (&why["note"], &why["expected"], &why["priority"]),
        (&"fragile".into(), &"failure".into(), &9.into())
    );
    // Without the table, the package is as before.
    set(&yard, "");
    let back = reasons(&yard);
    assert!(back["one"].contains("option environment.GREETING was unset; it was good morning"), "{back:?}");
    yard.build().exits(0);
    let said = |text: &str| text.lines().find(|line| line.starts_with("says=")).unwrap().to_owned();
    assert_eq!(said(&log(&yard, "one")), said(&usual));
    assert_eq!(yard.json(&["history", "two", "--json"]).as_array().unwrap().len(), 1, "it was built once");
}

fn checks_of_one_package(shared: &Shared) {
    let says =
        "case \" $$DEB_BUILD_OPTIONS \" in *nocheck*) echo unchecked;; *) cat /usr/share/library/data;; esac";
    let with = |name| Fixture { needs: "library <!nocheck>", ..slow(name, says) };
    let yard = shared.yard("own-checks", &[good("library", ""), with("tested"), with("other")]);
    let dependencies = |package: &str| yard.json(&["why", package, "--json"])["dependencies"].to_string();
    set(&yard, "[package.tested]\nchecks = true\n");
    yard.build().exits(0);
    assert_eq!(
        (dependencies("tested"), dependencies("other")),
        ("[\"library\"]".to_owned(), "[]".to_owned())
    );
    assert!(log(&yard, "tested").contains("\nlibrary\n"), "{}", log(&yard, "tested"));
    assert!(log(&yard, "other").contains("\nunchecked\n"), "{}", log(&yard, "other"));
    // The other way round.
    let config = yard.read("kilnyard.toml").replace("# checks = false", "checks = true #");
    fs::write(yard.path("kilnyard.toml"), config).unwrap();
    set(&yard, "[package.library]\nchecks = false\n[package.tested]\nchecks = false\n");
    let changed = reasons(&yard);
    assert!(changed["tested"].contains("option checks changed from true to false"), "{changed:?}");
    assert!(changed["other"].contains("option checks changed from false to true"), "{changed:?}");
    yard.build().exits(0);
    assert!(log(&yard, "other").contains("\nlibrary\n") && log(&yard, "tested").contains("\nunchecked\n"));
}

fn network_of_one_package(shared: &Shared) {
    let server = Server::start([("/answer".to_owned(), b"an answer\n".to_vec())].into());
    let port = server.url().rsplit(':').next().unwrap().to_owned();
    let ask = format!(
        "bash -euc 'exec 3<>/dev/tcp/127.0.0.1/{port}; printf \"GET /answer HTTP/1.0\\r\\n\\r\\n\" >&3; cat <&3'\n\
         cat /etc/resolv.conf"
    );
    let ask: &'static str = ask.leak();
    let yard = shared.yard("own-network", &[slow("asks", ask), slow("asks-too", ask)]);
    yard.build().exits(1);
    assert_eq!(yard.states(&["asks", "asks-too"]), ["failed", "failed"], "there is no network");
    assert_eq!(server.answers("/answer"), [0u16; 0]);
    set(&yard, "[package.asks]\nnetwork = true\n");
    let note = "built with network access, as set in kilnyard.toml: asks";
    let plan = yard.run(&["plan"]).exits(0).says(&[note]).stdout;
    assert!(plan.contains(&format!("{note}\n")), "{plan}");
    yard.build().exits(1).says(&[note]);
    assert_eq!(yard.states(&["asks", "asks-too"]), ["built", "failed"]);
    let built = log(&yard, "asks");
    assert!(built.contains("kilnyard: this stage has network access"), "{built}");
    assert!(built.contains("\nan answer\n"), "{built}");
    let resolver = fs::read_to_string("/etc/resolv.conf").unwrap();
    assert!(resolver.lines().all(|line| built.contains(line)), "{built}");
    assert!(!log(&yard, "asks-too").contains("this stage has network access"));
    yard.run(&["why", "asks"]).exits(0).says(&["its build has network access"]);
    assert_eq!(in_report(&yard, "asks")["has_network"], true);
    assert_eq!(in_report(&yard, "asks-too")["has_network"], false);
    assert!(yard.read("report/latest/index.html").contains("built with network access"));
    // The permission is part of what was built.
    set(&yard, "[package.asks]\nnetwork = false\n");
    let gone = reasons(&yard);
    assert_eq!(gone["asks"], "option network was unset; it was true");
    yard.build().exits(1);
    assert_eq!(yard.state("asks"), "failed");
    assert!(yard.is_clean());
}

fn limits_of_one_package(shared: &Shared) {
    let writes = "head -c 200M /dev/zero > big; sleep 9; rm big";
    let names = ["slow-limited", "disk-limited", "unlimited"];
    let yard = shared.yard("own-limits", &names.map(|name| slow(name, writes)));
    // The former table of limits counts, too.
    set(
        &yard,
        "[package.\"slow-*\"]\nwall-minutes-max = 0.1\n[limits.packages.disk-limited]\ndisk = \"32M\"\n",
    );
    yard.build().exits(1);
    assert_eq!(yard.states(&names), ["failed", "failed", "built"]);
    let failure = |package: &str| yard.json(&["why", package, "--json"])["build"]["failure"].clone();
    let (time, disk) = (failure("slow-limited"), failure("disk-limited"));
    assert_eq!((&time["kind"], &disk["kind"]), (&"wall-limit".into(), &"disk-limit".into()), "{time} {disk}");
    assert!(time["message"].as_str().unwrap().contains("did not finish within 6.0 s"), "{time}");
    set(&yard, "[package.\"*-limited\"]\nwall-minutes-max = 1\ndisk = \"1G\"\n");
    yard.build().exits(0);
}

const NOTE: &str = "since <gcc> 14 & later";

fn an_expected_failure(shared: &Shared) {
    let fixtures =
        [slow("broken", "false"), good("after", "broken"), good("fine", ""), slow("worse", "false")];
    let yard = shared.yard("expected", &fixtures);
    let tables = format!(
        "[package.broken]\nexpected = \"failure\"\nbecause = \"{NOTE}\"\n\
         [package.\"f*\"]\nnote = \"<b>bold</b> & 'quoted'\"\n"
    );
    set(&yard, &tables);
    // Another failure is one.
    let ended = yard.build().exits(1);
    ended.says(&[&format!("failed as expected ({NOTE}): broken: "), "failed: worse: "]);
    assert_eq!(yard.states(&["broken", "after", "fine", "worse"]), ["failed", "blocked", "built", "failed"]);
    set(&yard, &format!("{tables}[package.worse]\nexpected = \"failure\"\n"));
    let ended = yard.build().exits(0);
    assert!(!ended.stderr.contains("  failed: "), "{}", ended.stderr);
    ended.says(&["failed as expected: worse: ", "2 failed", "1 blocked"]);
    let counts = &report(&yard)["counts"];
    assert_eq!((&counts["failed"], &counts["failed_as_expected"]), (&2.into(), &2.into()), "{counts}");
    let broken = in_report(&yard, "broken");
    assert_eq!((&broken["is_expected_to_fail"], &broken["because"]), (&true.into(), &NOTE.into()));
    assert_eq!(broken["blocks"][0], "after");
    assert_eq!(in_report(&yard, "fine")["note"], "<b>bold</b> & 'quoted'");
    let page = yard.read("report/latest/index.html");
    for text in ["Expected failures", "since &lt;gcc&gt; 14 &amp; later", "&lt;b&gt;bold&lt;/b&gt; &amp;"] {
        assert!(page.contains(text), "{text}");
    }
    assert!(!page.contains("<section id=\"failures\"") && !page.contains("<b>bold"), "{page}");
    yard.run(&["why", "broken"]).exits(0).says(&[&format!("  expected to fail: {NOTE}\n")]);
    let status = yard.run(&["status"]).exits(0).says(&["failed as expected: broken: "]).stdout;
    assert!(!status.contains("\nfailed: "), "{status}");
    // Programs get the same.
    let events = yard.run(&["build", "--no-scan", "--json"]).exits(0).stdout;
    let last: serde_json::Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    assert_eq!(last["expected_failures"], serde_json::json!(["broken", "worse"]), "{last}");
    assert_eq!(last["unexpected_successes"], serde_json::json!([]), "{last}");
    // A package that cannot be built at all counts as one that fails.
    set(
        &yard,
        &format!(
            "{tables}[package.worse]\nexpected = \"failure\"\n[package.missing]\nexpected = \"failure\"\n"
        ),
    );
    let config = yard.read("kilnyard.toml").replace("packages = [\n", "packages = [\n  \"missing\",\n");
    fs::write(yard.path("kilnyard.toml"), config).unwrap();
    yard.build().exits(0).says(&["left out, as expected: missing: "]);
}

fn an_unexpected_success(shared: &Shared) {
    let broken = slow("broken", "false");
    let yard = shared.yard("unexpected", &[broken.clone(), good("after", "broken")]);
    set(&yard, "[package.broken]\nexpected = \"failure\"\nbecause = \"it does not build\"\n");
    yard.build().exits(0).says(&["failed as expected (it does not build): broken"]);
    assert!(yard.published().is_empty(), "{:?}", yard.published());
    broken.change(&yard, "1.1", |fixture| Fixture { build: "true", ..fixture });
    let note = "broken was expected to fail but was built: its table in kilnyard.toml is out of date";
    yard.build().exits(0).says(&[&format!("NOT expected: {note}")]);
    assert_eq!(yard.states(&["broken", "after"]), ["built", "built"]);
    assert!(yard.published().contains(&"Version: 1.1+bk1".to_owned()), "{:?}", yard.published());
    assert_eq!(report(&yard)["notes"], serde_json::json!([note]));
    let page = yard.read("report/latest/index.html");
    assert!(page.contains(note) && page.contains("expected to fail</span>"), "{page}");
    // Once it is up to date, there is nothing to report.
    let ended = yard.build().exits(0).says(&["nothing to do"]);
    assert!(!ended.stderr.contains("NOT expected"), "{}", ended.stderr);
}

fn retries_of_one_package(shared: &Shared) {
    let yard = shared.yard(
        "own-retries",
        &[slow("flaky", "false"), slow("steady", "false"), slow("killed", "bash -c 'kill -9 -1'")],
    );
    set(&yard, "[package.flaky]\nretries = { command = 1 }\n[package.killed]\nretries = { signal = 0 }\n");
    yard.build().exits(1);
    let tries = |package: &str| yard.json(&["why", package, "--json"])["attempts"].as_array().unwrap().len();
    assert_eq!(["flaky", "steady", "killed"].map(tries), [2, 1, 1]);
    let why = yard.json(&["why", "killed", "--json"]);
    assert_eq!(why["build"]["failure"]["kind"], "signal", "it would be tried again otherwise: {why}");
}

fn priorities(shared: &Shared) {
    let names = ["aa", "bb", "late", "base", "on-base", "zz"];
    let fixtures = names.map(|name| if name == "on-base" { good(name, "base") } else { good(name, "") });
    let yard = shared.yard("priorities", &fixtures);
    set(
        &yard,
        "[package.late]\npriority = -5\n[package.on-base]\npriority = 7\n[package.\"z?\"]\npriority = 20\n",
    );
    let plan = yard.run(&["plan"]).exits(0).stdout;
    let lines: Vec<&str> = plan.lines().take(names.len()).collect();
    let place =
        |name: &str| lines.iter().position(|line| line.split_whitespace().nth(1) == Some(name)).unwrap();
    assert_eq!([place("zz"), place("late")], [0, 5], "{plan}");
    assert!(lines[0].ends_with("; priority 20") && lines[5].ends_with("; priority -5"), "{plan}");
    assert!(lines[place("base")].ends_with("; priority 7"), "{plan}");
    yard.run(&["build", "--no-scan", "--slots", "1"]).exits(0);
    let number = |name: &str| yard.json(&["why", name, "--json"])["build"]["build"].as_u64().unwrap();
    let mut order = names;
    order.sort_by_key(|name| number(name));
    assert_eq!((order[0], order[1], order[2], order[5]), ("zz", "base", "on-base", "late"), "{order:?}");
    // `first` comes before any priority.
    let first = ["build", "--no-scan", "--slots", "1", "--first", "late", "--force"];
    yard.run(&[&first[..], &names].concat()).exits(0);
    order.sort_by_key(|name| number(name));
    assert_eq!((order[0], order[1]), ("late", "zz"), "{order:?}");
}

fn wrong_tables(shared: &Shared) {
    let yard = shared.yard("wrong-tables", &[good("one", "")]);
    set(
        &yard,
        "[package.onne]\njobs = 1\n[package.\"python3-*\"]\nnetwork = true\n[package.one]\nnote = \"x\"\n",
    );
    let notes =
        ["[package.onne] in kilnyard.toml matches no package", "[package.\"python3-*\"] in kilnyard.toml"];
    let planned = yard.run(&["plan"]).exits(0).says(&notes).stdout;
    assert!(!planned.contains("[package.one]") && !planned.contains("network"), "{planned}");
    yard.build().exits(0).says(&notes);
    for (tables, words) in [
        ("[package.one]\nnettwork = true\n", ["nettwork", "expected one of"]),
        ("[package.one]\nenvironment = { LD_PRELOAD = \"/x.so\" }\n", ["LD_PRELOAD", "cannot be set"]),
        ("[package.one]\nnote = \"a\\u001b[2J\"\n", ["a note must be one line", "line "]),
        ("[package.one]\nmk-conf = \"X=1\"\n", ["[package.one]: mk-conf is for packages of a tree", "line "]),
    ] {
        set(&yard, tables);
        for command in [&["plan"][..], &["build", "--no-scan"], &["why", "one"]] {
            let ended = yard.run(command).exits(2).says(&words);
            assert!(!ended.stderr.contains('\u{1b}'), "{ended:?}");
        }
    }
    assert_eq!(yard.published().len(), 3, "{:?}", yard.published());
}
