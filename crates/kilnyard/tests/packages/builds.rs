//! Builds of ordinary and misbehaving packages, and their results.

use crate::fixtures::{Fixture, Packages, Shared, Trial, good, processes, slow};
use crate::support::{Yard, until};
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

pub const CASES: &[Trial] = &[
    ("one_bad_recipe_does_not_stop_the_rest", one_bad_recipe_does_not_stop_the_rest),
    ("misbehavior_is_reported_and_contained", misbehavior_is_reported_and_contained),
    ("a_failed_package_is_retried_and_its_last_good_version_stays", retried),
    ("only_changes_are_built_again", only_changes_are_built_again),
    ("a_part_of_the_set_is_planned_and_built_alone", a_part_of_the_set),
    ("unknown_packages_are_listed_at_the_end", unknown_packages_are_listed),
    ("a_source_changed_under_its_version_is_built_and_published_again", changed_under_its_version),
    ("all_parts_of_a_source_go_together", all_parts_go_together),
    ("a_restrictive_umask_does_not_matter", a_restrictive_umask),
    ("bad_sources_are_rejected_before_anything_is_built", bad_sources_are_rejected),
    ("a_source_that_unpacks_outside_its_folder_fails", unpacks_outside),
    ("a_live_run_takes_requests", a_live_run_takes_requests),
    ("a_run_is_followed_from_another_terminal", a_run_is_followed),
    ("a_retry_rereads_a_source_fixed_during_the_run", a_source_fixed_during_the_run),
    ("a_request_before_a_run_comes_before_its_first_decision", a_request_before_a_run),
    ("clean_removes_unreferenced_files", clean_removes_unreferenced_files),
    ("layers_match_an_installation_by_apt", layers_match_apt),
    ("more_packages_than_an_overlay_supports_are_merged", more_packages_than_an_overlay_supports),
    ("dependencies_of_outputs_are_layers_below_their_test", outputs_tried_on_layers),
    ("a_package_that_its_source_does_not_declare_is_rejected", undeclared_is_rejected),
    ("udebs_are_published_in_the_index_of_the_installer", udebs),
    ("a_rebuild_of_a_native_package_with_another_number_is_unchanged", native_rebuilds),
    ("a_lost_store_is_reported_and_versions_never_fall", lost_store),
    ("a_binary_that_two_sources_claim_is_reported_and_has_one_owner", one_owner_of_a_name),
];

/// Lines that pack one more package, with these fields in its control file.
fn forged(fields: &str) -> &'static str {
    let text = format!(
        "mkdir -p debian/forged/DEBIAN\nprintf '{fields}Maintainer: A <a@b.c>\\nDescription: forged\\n' \
         > debian/forged/DEBIAN/control\ndpkg-deb --root-owner-group --build debian/forged .."
    );
    // A trial is short, and the texts of a fixture are static.
    text.leak()
}

fn undeclared_is_rejected(shared: &Shared) {
    let of_bash = "Package: bash\\nSource: evil (1.0)\\nVersion: 99\\nArchitecture: amd64\\n";
    let of_other = "Package: victim\\nSource: thief (1.0)\\nVersion: 9+bk1\\nArchitecture: amd64\\n";
    let fixtures = [
        Fixture { binary: forged(of_bash), ..good("evil", "") },
        Fixture { binary: forged(of_other), ..good("thief", "victim") },
        good("victim", ""),
    ];
    let yard = shared.yard("undeclared", &fixtures);
    yard.build().exits(1).says(&["evil does not declare", "thief does not declare"]);
    assert_eq!(yard.states(&["evil", "thief", "victim"]), ["failed", "failed", "built"]);
    let why = yard.json(&["why", "evil", "--json"]);
    assert_eq!(why["build"]["failure"]["stage"], "collect", "{why}");
    yard.run(&["log", "evil", "collect"]).exits(0).says(&["the package bash", "declares evil"]);
    let published = yard.published();
    assert!(published.contains(&"Package: victim".to_owned()), "{published:?}");
    assert!(!published.iter().any(|line| line.contains("bash") || line.contains("9+bk1")), "{published:?}");
}

fn one_owner_of_a_name(shared: &Shared) {
    let first = Fixture { parts: 1, ..good("first", "") };
    let yard = shared.yard("owner", std::slice::from_ref(&first));
    yard.build().exits(0);
    // Another source also declares the part, and makes it.
    let part = "Package: first-part-1\\nSource: second\\nVersion: 1.0+bk1\\nArchitecture: amd64\\n";
    let second = Fixture {
        binary: forged(part),
        control: "\nPackage: first-part-1\nArchitecture: any\nDescription: a part\n It is one.\n",
        ..good("second", "")
    };
    let dsc = second.write(&yard.folder);
    let config =
        yard.read("kilnyard.toml").replace("packages = [\n", &format!("packages = [\n  \"{dsc}\",\n"));
    fs::write(yard.path("kilnyard.toml"), &config).unwrap();
    let line = "takeover.\"second\" = [\"first-part-1\"]";
    yard.run(&["plan"]).exits(0).says(&[
        "note: first-part-1 belongs to first",
        "second also declares it",
        line,
    ]);
    assert!(yard.json(&["plan", "--json"])["remarks"][0].as_str().unwrap().contains("first-part-1"));
    yard.build().exits(1).says(&["belongs to the source first", line]);
    assert_eq!(yard.states(&["first", "second"]), ["up-to-date", "failed"]);
    let part_of = |source: &str| {
        let index = yard.read("repository/dists/bookworm/main/binary-amd64/Packages");
        let mut stanzas = index.split("\n\n").filter(|text| text.starts_with("Package: first-part-1\n"));
        let stanza = stanzas.next().unwrap();
        assert!(stanzas.next().is_none(), "{index}");
        stanza.contains(&format!("Source: {source}\n"))
    };
    assert!(part_of("first"));
    // The configuration assigns the name to `second`. Its version must be above the published one, but both are
    // 1.0+bk1.
    let given = config.replace("[debian]\n", &format!("[debian]\n{line}\n"));
    fs::write(yard.path("kilnyard.toml"), given).unwrap();
    yard.run(&["retry", "second"]).exits(0);
    yard.build().exits(1).says(&["is not above the published version 1.0+bk1"]);
    second.change(&yard, "1.1", |fixture| Fixture {
        binary: forged("Package: first-part-1\\nSource: second\\nVersion: 1.1+bk1\\nArchitecture: amd64\\n"),
        ..fixture
    });
    // The signer knows the old owner, whatever the configuration says, and wants to hear it from a person.
    yard.build()
        .exits(1)
        .says(&["the signer refuses first-part-1 1.1+bk1 (amd64)", "belongs to the source first"]);
    assert!(part_of("first"));
    yard.approve_all();
    yard.run(&["publish"]).exits(0);
    assert!(part_of("second"));
    // The old owner still makes the package, but no longer publishes it.
    yard.run(&["build", "--no-scan", "--force", "first"]).exits(0);
    assert!(part_of("second"));
    yard.run(&["log", "first", "collect"]).exits(0).says(&["first-part-1 is not kept", "gives it to second"]);
}

fn one_bad_recipe_does_not_stop_the_rest(shared: &Shared) {
    let broken = slow("broken", "echo 'int main( {' > x.c\ncc -c x.c");
    let yard = shared.yard("rest", &[good("one", ""), broken, good("after", "broken"), good("two", "one")]);
    yard.build().exits(1);
    assert_eq!(yard.states(&["one", "broken", "after", "two"]), ["built", "failed", "blocked", "built"]);
    let why = yard.json(&["why", "broken", "--json"]);
    let message = why["build"]["failure"]["message"].as_str().unwrap();
    assert!(message.starts_with("x.c:1:") && message.contains("error:"), "{message}");
    assert_eq!(yard.json(&["why", "after", "--json"])["chain"][0]["package"], "broken");
    yard.run(&["log", "broken"]).exits(0).says(&["x.c:1:"]);
    yard.run(&["shell", "broken", "--", "cat", "/build/broken-1.0/x.c"]).says(&["int main( {"]);
    // The shell starts in the folder of the source.
    yard.run(&["shell", "broken", "--", "cat", "x.c"]).exits(0).says(&["int main( {"]);
    let report: serde_json::Value = serde_json::from_str(&yard.read("report/latest/report.json")).unwrap();
    let counts = &report["counts"];
    assert_eq!((&counts["built"], &counts["failed"], &counts["blocked"]), (&2.into(), &1.into(), &1.into()));
    assert!(yard.read("report/latest/index.html").contains("x.c:1:"));
    assert!(yard.is_clean());
}

fn misbehavior_is_reported_and_contained(shared: &Shared) {
    let fixtures = [
        slow("daemon", "setsid sleep 6161 > /dev/null 2>&1 & sleep 0.5"),
        slow("network", "exec 3<>/dev/tcp/192.0.2.1/80"),
        slow("writes-outside", "touch /usr/bin/kilnyard-was-here"),
        slow("flood", "head -c 60000000 /dev/zero | tr '\\0' x; echo; echo the end"),
        slow("bad-utf8", "printf '\\377\\376 not text\\n'; false"),
        slow("terminal", "printf 'x.c:1: error: \\033]0;owned\\007\\033[2Jgone\\n'; false"),
        Fixture { binary: "exit 0; rm -rf debian/tmp", ..good("nothing", "") },
        Fixture {
            binary: "printf '#!/bin/sh\\nexit 1\\n' > debian/tmp/DEBIAN/postinst; chmod 755 debian/tmp/DEBIAN/postinst",
            ..good("bad-postinst", "")
        },
        good("itself", "itself"),
    ];
    let yard = shared.yard("bad", &fixtures);
    let ended = yard.build().exits(1);
    for (name, expected) in [
        ("daemon", "built"),
        ("network", "failed"),
        ("writes-outside", "failed"),
        ("flood", "built"),
        ("bad-utf8", "failed"),
        ("terminal", "failed"),
        ("nothing", "built"),
        ("bad-postinst", "failed"),
        ("itself", "left-out"),
    ] {
        assert_eq!(yard.state(name), expected, "{name}: {ended:?}");
    }
    let history = yard.json(&["history", "daemon", "--json"]);
    assert!(history.to_string().contains("sleep 6161"), "the daemon is not named: {history}");
    assert!(!Path::new("/usr/bin/kilnyard-was-here").exists());
    let log = yard.run(&["log", "flood", "build"]).says(&["the end"]).stdout;
    assert!(log.len() < 4 << 20, "{} bytes", log.len());
    assert_eq!(yard.json(&["why", "bad-postinst", "--json"])["build"]["failure"]["kind"], "test");
    let explained = yard.json(&["why", "itself", "--json"])["reason"].to_string();
    assert!(explained.contains("itself"), "{explained}");
    // Terminal escape sequences appear only in the log file.
    let shown = [
        ended.says(&["error: gone"]),
        yard.run(&["why", "terminal"]).says(&["error: gone"]),
        yard.run(&["log", "terminal"]).says(&["error: gone"]),
        yard.run(&["log", "terminal", "--all"]).says(&["error: gone"]),
    ];
    assert!(shown.iter().all(|shown| !shown.stdout.contains('\u{1b}') && !shown.stderr.contains('\u{1b}')));
    assert!(!processes().iter().any(|(_, line)| line.ends_with("6161")), "a daemon outlived its build");
    assert!(yard.is_clean());
}

fn retried(shared: &Shared) {
    let one = good("one", "");
    let yard = shared.yard("retry", &[one.clone(), good("two", "one")]);
    yard.build().exits(0);
    let before = yard.published();
    assert_eq!(before.len(), 6, "{before:?}");
    one.change(&yard, "1.1", |fixture| Fixture { build: "false", ..fixture });
    yard.build().exits(1);
    assert_eq!(yard.states(&["one", "two"]), ["failed", "blocked"]);
    assert_eq!(yard.published(), before, "the last good version is gone");
    Fixture { version: Some("1.1"), ..one }.write(&yard.folder);
    yard.run(&["retry", "one"]).exits(0).says(&["the next run"]);
    yard.build().exits(0);
    assert!(yard.published().contains(&"Version: 1.1+bk1".to_owned()), "{:?}", yard.published());
    yard.run(&["diff"]).exits(0).says(&["newly fixed: one"]);
}

fn only_changes_are_built_again(shared: &Shared) {
    let one = good("one", "");
    let yard = shared.yard("again", &[one.clone(), good("two", "one"), good("three", "")]);
    yard.build().exits(0);
    yard.build().exits(0).says(&["nothing to do: 3 up-to-date"]);
    // The same content with a new number: no other package is built, and the published package stays.
    let before = yard.published();
    yard.run(&["build", "--no-scan", "--force", "--check-reproducible", "one"])
        .exits(0)
        .says(&["built twice with the same bytes"]);
    assert_eq!(yard.state("one"), "unchanged");
    assert_eq!(yard.published(), before);
    yard.build().exits(0).says(&["nothing to do"]);
    // A new content: only its dependent is built.
    one.change(&yard, "1.1", |fixture| Fixture { content: "new", ..fixture });
    let plan = yard.json(&["plan", "--json"]);
    let packages = plan["packages"].as_array().unwrap();
    let state = |name: &str| packages.iter().find(|p| p["name"] == name).unwrap()["state"].clone();
    assert_eq!(
        (state("one"), state("two"), state("three")),
        ("ready".into(), "waiting".into(), "up-to-date".into())
    );
    yard.build().exits(0);
    // `two` contains nothing from `one`, so its content is unchanged.
    assert_eq!(yard.states(&["one", "two", "three"]), ["built", "unchanged", "up-to-date"]);
    assert!(yard.json(&["history", "two", "--json"])[0]["outcome"] == "unchanged");
}

fn a_part_of_the_set(shared: &Shared) {
    let yard =
        shared.yard("part", &[good("one", ""), good("two", "one"), good("three", ""), good("four", "")]);
    yard.run(&["build", "--no-scan", "--dry-run"]).exits(0).says(&["4 packages to build"]);
    let part = yard.run(&["build", "--no-scan", "--dry-run", "two"]).exits(0).says(&["2 packages to build"]);
    assert!(!part.stdout.contains("three"), "{}", part.stdout);
    yard.run(&["build", "--no-scan", "five"])
        .exits(2)
        .says(&["this yard has no package five", " plan lists them"]);
    let whole_seconds = yard.json(&["plan", "--json"])["expected_seconds"].as_f64().unwrap();
    yard.run(&["build", "--no-scan", "three"]).exits(0).says(&["1 package, ", "1 built"]);
    // The longest path of the whole set has two packages.
    let part_seconds = yard.json(&["status", "--json"])["expected_seconds"].as_f64().unwrap();
    assert!(0.0 < part_seconds && part_seconds < whole_seconds, "{part_seconds} {whole_seconds}");
    yard.run(&["build", "--no-scan", "two"]).exits(0).says(&["2 packages, ", "2 built"]);
    assert_eq!(yard.json(&["status", "--json"])["counts"]["built"], 2);
    yard.build().exits(0).says(&["3 up-to-date"]);
}

fn unknown_packages_are_listed(shared: &Shared) {
    let yard = shared.yard("unknown", &[good("one", "")]);
    let config = yard.read("kilnyard.toml").replace("packages = [\n", "packages = [\n  \"hallo\",\n");
    fs::write(yard.path("kilnyard.toml"), config).unwrap();
    let words = ["left out: hallo: source package hallo not found", "1 left-out"];
    yard.build().exits(1).says(&words).says(&["1 built"]);
    yard.build().exits(1).says(&words).says(&["nothing to do"]);
    let events = yard.run(&["build", "--no-scan", "--json"]).exits(1).stdout;
    let last: serde_json::Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    assert_eq!((&last["event"], &last["left_out"][0]["package"]), (&"ended".into(), &"hallo".into()));
    assert_eq!(last["repository"]["packages"], 1);
}

fn changed_under_its_version(shared: &Shared) {
    let one = good("one", "");
    let yard = shared.yard("changed", std::slice::from_ref(&one));
    yard.build().exits(0);
    Fixture { content: "other", ..one }.write(&yard.folder);
    yard.build().exits(0).says(&["1 built", "repository (published"]);
    assert!(yard.published().contains(&"Version: 1.0+bk2".to_owned()), "{:?}", yard.published());
    let sources = yard.read("repository/dists/bookworm/main/source/Sources");
    let folder = sources.lines().find_map(|line| line.strip_prefix("Directory: ")).unwrap();
    let published = fs::read(yard.path(&format!("repository/{folder}/one_1.0.dsc"))).unwrap();
    assert_eq!(published, fs::read(yard.path("sources/one_1.0.dsc")).unwrap());
    // The published file is not a hard link to the user's file.
    fs::write(yard.path("sources/one_1.0.dsc"), "changed in place").unwrap();
    assert_eq!(fs::read(yard.path(&format!("repository/{folder}/one_1.0.dsc"))).unwrap(), published);
}

fn all_parts_go_together(shared: &Shared) {
    let yard = shared.yard("parts", &[Fixture { has_common: true, ..good("whole", "") }]);
    // Without the other half, whose version does not exist elsewhere, the outputs cannot be installed.
    yard.build().exits(1);
    let why = yard.json(&["why", "whole", "--json"]);
    assert_eq!(why["build"]["failure"]["stage"], "test", "{why}");
    let config = yard.read("kilnyard.toml").replace("# parts = \"dependent\"", "parts = \"all\"");
    fs::write(yard.path("kilnyard.toml"), config).unwrap();
    yard.build().exits(0);
    let published = yard.published();
    assert!(published.contains(&"Package: whole-common".to_owned()), "{published:?}");
    assert_eq!(published.iter().filter(|line| *line == "Version: 1.0+bk1").count(), 2, "{published:?}");
}

fn a_restrictive_umask(shared: &Shared) {
    let yard = shared.yard("umask", &[slow("one", "test \"$$(umask)\" = 0022")]);
    let mut command = Command::new("sh");
    command.args(["-c", "umask 077; exec \"$@\"", "sh"]).arg(crate::support::program());
    command.arg("--yard").arg(&yard.folder).args(["build", "--no-scan"]);
    crate::support::quiet(&mut command);
    crate::support::Ended::from(command.output().unwrap()).exits(0).says(&["1 built"]);
}

fn bad_sources_are_rejected(shared: &Shared) {
    let yard = shared.yard("refused", &[good("one", "")]);
    yard.build().exits(0);
    let dsc = yard.path("sources/one_1.0.dsc");
    let bytes = fs::read(&dsc).unwrap();
    let spoilt = |spoil: &dyn Fn(String) -> Vec<u8>| {
        fs::write(&dsc, spoil(String::from_utf8(bytes.clone()).unwrap())).unwrap();
        yard.run(&["plan"]).exits(0).says(&["0 packages to build", "1 left out"])
    };
    spoilt(&|text| [text.as_bytes(), b"X-Note: \xff\xfe\n"].concat()).says(&["is not UTF-8 in line"]);
    spoilt(&|text| text.replace(" one_1.0.tar.xz", " ../one_1.0.tar.xz").into_bytes())
        .says(&["outside its folder"]);
    spoilt(&|text| text.replace("Source: one\n", "").into_bytes()).says(&["Source"]);
    fs::write(&dsc, &bytes).unwrap();
    fs::write(yard.path("sources/one_1.0.tar.xz"), "not what it was").unwrap();
    yard.run(&["plan"]).exits(0).says(&["one_1.0.tar.xz does not match", "1 left out"]);
    // Its earlier build stays published.
    yard.build().exits(1).says(&["one_1.0.tar.xz does not match", "(unchanged, 1 package)"]);
}

fn unpacks_outside(shared: &Shared) {
    let yard = shared.yard("outside", &[good("escapes", ""), good("other", "")]);
    let (tar, dsc) = (yard.path("sources/escapes_1.0.tar.xz"), yard.path("sources/escapes_1.0.dsc"));
    let before = fs::read(&tar).unwrap();
    // Adds a member whose name points outside the source's folder and the folder of all builds.
    let script = "cd \"$1\" && mkdir x && cd x && tar -xf \"$2\" && echo out > escaped && \
                  tar -cJf \"$2\" --transform 's,^escaped$,escapes-1.0/../../../usr/bin/escaped,' -P escapes-1.0 escaped";
    let mut pack = Command::new("sh");
    pack.args(["-c", script, "sh"]).arg(&yard.folder).arg(&tar);
    crate::support::Ended::from(pack.output().unwrap()).exits(0);
    let after = fs::read(&tar).unwrap();
    let size = |bytes: &[u8]| format!(" {} escapes_1.0.tar.xz", bytes.len());
    let hash = crate::support::archive::hex_of;
    let text = fs::read_to_string(&dsc).unwrap();
    fs::write(&dsc, text.replace(&size(&before), &size(&after)).replace(&hash(&before), &hash(&after)))
        .unwrap();
    yard.build().exits(1);
    assert_eq!(yard.states(&["escapes", "other"]), ["failed", "built"]);
    let why = yard.json(&["why", "escapes", "--json"]);
    assert_eq!(why["build"]["failure"]["stage"], "unpack", "{why}");
    assert!(why.to_string().contains("'..'"), "{why}");
    assert!(!Path::new("/usr/bin/escaped").exists());
}

fn a_live_run_takes_requests(shared: &Shared) {
    let fixtures = ["a", "b", "c", "d"].map(|name| slow(name, "sleep 4"));
    let mut fixtures = fixtures.to_vec();
    fixtures.push(good("needs-d", "d"));
    let yard = shared.yard("live", &fixtures);
    let child = yard.begin(&["--slots", "1"]);
    // The path through `d` is the longest, so `d` is built first.
    until("d is being built", || yard.building() == ["d"]);
    let owner = format!("process {}", child.id());
    yard.build().exits(2).says(&[&owner]);
    yard.run(&["bump", "c"]).exits(0);
    yard.run(&["skip", "d"]).exits(0);
    yard.run(&["bump", "nonsense"]).exits(2).says(&["not a package of this yard"]);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(yard.states(&["d", "needs-d"]), ["skipped", "blocked"]);
    let started =
        |name: &str| yard.json(&["history", name, "--json"])[0]["started_seconds"].as_f64().unwrap();
    assert!(started("c") < started("b") && started("c") < started("a"), "c was not bumped");
}

fn a_run_is_followed(shared: &Shared) {
    let yard = shared.yard("followed", &[slow("a", "sleep 3"), slow("b", "sleep 3"), good("needs-a", "a")]);
    let spawn =
        |words: &[&str]| yard.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut run = yard.begin(&["--slots", "1"]);
    until("one is being built", || !yard.building().is_empty());
    let mut killed = spawn(&["status", "--follow"]);
    // It immediately prints which run it follows.
    killed.stdout.as_mut().unwrap().read_exact(&mut [0; 3]).unwrap();
    run.kill().unwrap();
    run.wait().unwrap();
    let killed = killed.wait_with_output().unwrap();
    assert_eq!(killed.status.code(), Some(1));
    let said = String::from_utf8(killed.stderr).unwrap();
    assert!(said.contains("run 1 was killed") && said.contains(" build, which resumes it"), "{said}");
    let run = yard.begin(&["--slots", "1"]);
    until("one is being built", || !yard.building().is_empty());
    let followers = [&["status", "-f"][..], &["status", "--follow", "--json"]].map(spawn);
    assert_eq!(run.wait_with_output().unwrap().status.code(), Some(0));
    let texts = followers.map(|follower| {
        let output = follower.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    });
    for package in ["a", "b", "needs-a"] {
        assert!(texts[0].contains(&format!("built {package} 1.0+bk1 in ")), "{}", texts[0]);
    }
    let events: Vec<serde_json::Value> =
        texts[1].lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.last().unwrap()["event"], "run-ended");
    assert!(events.is_sorted_by_key(|event| event["seq"].as_u64().unwrap()));
    // A finished run cannot be followed.
    yard.run(&["status", "--follow"]).exits(0).says(&["run 1 finished"]);
}

fn a_source_fixed_during_the_run(shared: &Shared) {
    let broken = slow("broken", "echo 'x.c:1: error: no' >&2; exit 1");
    // It keeps the run open.
    let open = slow("open", "sleep 600");
    let yard = shared.yard("mended", &[broken.clone(), good("needs-broken", "broken"), open]);
    let child = yard.begin(&[]);
    let is = |states: [&str; 2]| yard.states(&["broken", "needs-broken"]) == states;
    let builds = |name: &str| yard.json(&["history", name, "--json"]).as_array().map_or(0, Vec::len);
    until("the open one is being built", || yard.building().contains(&"open".to_owned()));
    until("it has failed", || builds("broken") == 1 && is(["failed", "blocked"]));
    // A source that cannot be read is not built.
    fs::write(yard.path("sources/broken_1.0.dsc"), "cut").unwrap();
    yard.run(&["retry", "broken"]).exits(0).says(&["the current run"]);
    until("it is explained", || {
        yard.json(&["why", "broken", "--json"]).to_string().contains("has no usable field Source")
    });
    assert_eq!(builds("broken"), 1);
    Fixture { build: "", ..broken }.write(&yard.folder);
    yard.run(&["retry", "broken"]).exits(0);
    until("both are built", || is(["built", "built"]));
    yard.run(&["skip", "open"]).exits(0);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!((builds("broken"), builds("needs-broken")), (2, 1));
    let published = yard.published();
    assert!(published.contains(&"Package: needs-broken".to_owned()), "{published:?}");
    // The next run computes the same key.
    let plan = yard.json(&["plan", "--json"]);
    let left = plan["packages"].as_array().unwrap().iter().filter(|row| row["state"] != "up-to-date");
    assert_eq!(left.map(|row| row["name"].as_str().unwrap()).collect::<Vec<_>>(), ["open"]);
}

fn a_request_before_a_run(shared: &Shared) {
    let yard = shared.yard("early", &[good("a", ""), good("b", ""), good("c", "")]);
    yard.run(&["plan"]).exits(0);
    yard.run(&["bump", "c"]).exits(0).says(&["the next run"]);
    yard.run(&["skip", "b"]).exits(2).says(&["no run is in progress, so there is nothing to skip"]);
    yard.run(&["build", "--no-scan", "--slots", "1"]).exits(0).says(&["c moved to the front"]);
    let started =
        |name: &str| yard.json(&["history", name, "--json"])[0]["started_seconds"].as_f64().unwrap();
    assert!(started("c") < started("a") && started("c") < started("b"), "c was not the first");
    yard.run(&["retry", "a"]).exits(2).says(&["a is built, so there is nothing to retry", "build --force a"]);
}

fn clean_removes_unreferenced_files(shared: &Shared) {
    let mut one = good("one", "");
    let yard = shared.yard("clean", std::slice::from_ref(&one));
    yard.build().exits(0);
    // Readers of the last two generations still find their files.
    for version in ["1.1", "1.2", "1.3", "1.4"] {
        one = one.change(&yard, version, |fixture| Fixture { content: version, ..fixture });
        yard.build().exits(0);
    }
    let pool = || yard.names("repository/pool/main/o/one");
    let (before, published) = (pool(), yard.published());
    yard.run(&["clean", "--dry-run"])
        .exits(0)
        .says(&["one_1.0+bk1_amd64.deb (not in any index", "files removable, "]);
    assert_eq!(pool(), before);
    // Files named by hashes are only counted, unless --list is given.
    let hash = |line: &&str| line.contains("/distfiles/") && line.contains("can be fetched again");
    let listed = |arguments: &[&str]| yard.run(arguments).exits(0).stdout.lines().filter(hash).count();
    assert_eq!(listed(&["clean", "-n"]), 0);
    assert!(listed(&["clean", "-n", "--list"]) > 0);
    yard.run(&["clean"]).exits(0).says(&["files removed, "]);
    assert!(
        pool().len() < before.len() && !pool().contains(&"one_1.0+bk1_amd64.deb".to_owned()),
        "{:?}",
        pool()
    );
    assert!(pool().contains(&"one_1.4+bk1_amd64.deb".to_owned()), "{:?}", pool());
    assert_eq!(yard.published(), published);
}

/// Lists everything in a root: type, permissions, owner and path of each file, the content if it is readable,
/// capabilities, and dpkg's status. Left out are records of times, logs, caches, backups of tools, and a random
/// number.
const LISTING: &str = "\
{ find / -xdev '(' -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /build -o -path /kilnyard \
-o -path /var/log -o -path /var/cache/apt -o -path /var/lib/apt -o -path /var/lib/dpkg -o -path /var/cache/ldconfig \
-o -path /var/cache/debconf ')' -prune -o -printf '%y %m %U %G %p %l\\n'; \
find / -xdev '(' -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /build -o -path /kilnyard \
-o -path /var/log -o -path /var/lib/dbus/machine-id -o -path /var/cache -o -path /var/lib/apt -o -path /var/lib/dpkg ')' -prune \
-o -type f -readable -exec sha256sum {} +; \
dpkg-query -W -f '$${Package} $${Version} $${Architecture} $${Status} $${Conffiles}\\n'; \
cd /var/lib/dpkg; sha256sum alternatives/* info/*; sort -u triggers/File; tail -n +1 triggers/[a-z]*; sort diversions; \
/sbin/getcap -r /usr 2>/dev/null; } | LC_ALL=C sort > $(CURDIR)/listing
! dpkg --audit | grep .";

fn layers_match_apt(shared: &Shared) {
    // Alternatives, triggers, configuration files, scripts before unpacking, capabilities, and users made by scripts.
    let needs = "debhelper, ca-certificates, bison, iputils-ping, dbus, fontconfig, libcap2-bin";
    let looks = Fixture {
        needs,
        build: LISTING,
        binary: "cp listing debian/tmp/usr/share/looks",
        ..good("looks", "")
    };
    // Left to apt: a preinst script that does something, and another version of a package of the base.
    let before = Fixture {
        binary: "printf '#!/bin/sh\\ntouch /etc/made-before\\n' > debian/tmp/DEBIAN/preinst; \
                 chmod 755 debian/tmp/DEBIAN/preinst",
        ..good("before", "")
    };
    // A package without a list of checksums.
    let plain = good("plain", "");
    let upgraded = Fixture { version: Some("99"), ..good("hostname", "") };
    let more = Fixture {
        name: "more",
        needs: "debhelper, ca-certificates, bison, iputils-ping, dbus, fontconfig, libcap2-bin, ninja-build, \
                before, plain, hostname (>= 99)",
        ..looks.clone()
    };
    let more = Fixture { binary: "cp listing debian/tmp/usr/share/more", ..more };
    let listing = |yard: &Yard, package: &str| {
        let deb = yard
            .path(&format!("repository/pool/main/{}/{package}/{package}_1.0+bk1_amd64.deb", &package[..1]));
        let script = r#"dpkg-deb --fsys-tarfile "$1" | tar -xO "./usr/share/$2/listing""#;
        let read = Command::new("sh").args(["-c", script, "sh"]).arg(&deb).arg(package).output().unwrap();
        String::from_utf8(read.stdout).unwrap()
    };
    let by_apt =
        shared.yard("apt", &[looks.clone(), more.clone(), before.clone(), plain.clone(), upgraded.clone()]);
    let config = by_apt.read("kilnyard.toml").replace("# layers = \"20G\"", "layers = \"0\"    #");
    fs::write(by_apt.path("kilnyard.toml"), config).unwrap();
    by_apt.build().exits(0);
    assert!(by_apt.names("layers/dependencies/sets").is_empty());
    let by_layers = shared.yard("layers", &[looks, more, before, plain, upgraded]);
    by_layers.run(&["build", "--no-scan", "looks"]).exits(0);
    by_layers.run(&["log", "looks", "depends"]).says(&["0 of ", " stacked and configured"]);
    by_layers.build().exits(0);
    by_layers.run(&["log", "more", "depends"]).says(&[
        " unpacked into layers",
        "before is left to the package manager: its preinst script has the line `touch /etc/made-before`",
        "hostname is left to the package manager: another version of it",
        "2 installed by the package manager",
        " stacked and configured",
    ]);
    for package in ["looks", "more"] {
        let (theirs, ours) = (listing(&by_apt, package), listing(&by_layers, package));
        assert!(theirs.lines().count() > 10_000, "{theirs}");
        let differences: Vec<String> = differences_of(&theirs, &ours);
        assert!(
            differences.is_empty(),
            "{package}: {} lines, such as {:#?}",
            differences.len(),
            &differences[..differences.len().min(60)]
        );
    }
    // Layers that were already configured are used unchanged.
    by_layers.run(&["build", "--no-scan", "--force", "looks"]).exits(0);
    let log = by_layers.run(&["log", "looks", "depends"]).stdout;
    assert!(!log.contains("stacked") && log.contains(" were installed together before"), "{log}");
    assert!(by_layers.is_clean());
}

fn more_packages_than_an_overlay_supports(shared: &Shared) {
    const PARTS: u32 = 510;
    let many = Fixture { parts: PARTS, ..good("many", "") };
    let needs: Vec<String> = (1..=PARTS).map(|part| format!("many-part-{part}")).collect();
    let needs: &'static str = needs.join(", ").leak();
    let build = "test $$(cat /usr/share/many/part-* | wc -l) = 510\ntest -z \"$$(dpkg --audit)\"";
    let first = Fixture { needs, build, ..good("first", "") };
    let second = Fixture { name: "second", ..first.clone() };
    let yard = shared.yard("merged", &[many, first, second]);
    let config = yard.read("kilnyard.toml").replace("# test = true", "test = false #");
    fs::write(yard.path("kilnyard.toml"), config).unwrap();
    yard.run(&["build", "--no-scan", "--slots", "1"]).exits(0);
    let logs = ["first", "second"].map(|package| yard.run(&["log", package, "depends"]).stdout);
    let (anew, again): (Vec<&String>, Vec<&String>) = logs.iter().partition(|log| log.contains("merged"));
    assert_eq!((anew.len(), again.len()), (1, 1), "{logs:?}");
    for line in ["510 unpacked into layers", "510 layers merged into one", "510 stacked and configured"] {
        assert!(anew[0].contains(line), "{}", anew[0]);
    }
    assert!(again[0].contains("510 of 510 dependencies were installed together before"), "{}", again[0]);
    assert!(yard.is_clean());
}

fn outputs_tried_on_layers(shared: &Shared) {
    let library = good("library", "");
    let needs_it = "sed -i '/^Package: tool$$/a Depends: library' debian/control";
    let tool = Fixture { binary: needs_it, ..good("tool", "library") };
    let yard = shared.yard("tried", &[library, tool]);
    yard.build().exits(0);
    let tested = yard.run(&["log", "tool", "test"]).exits(0).stdout;
    assert!(tested.contains(" 1 newly installed"), "{tested}");
    // The build installed the same set before.
    let script = "zstdcat -f logs/*/tool/*-depends-test.log*";
    let depends = Command::new("sh").args(["-c", script]).current_dir(&yard.folder).output().unwrap();
    let depends = (String::from_utf8_lossy(&depends.stdout), String::from_utf8_lossy(&depends.stderr));
    assert_eq!(depends.0, "1 of 1 dependencies were installed together before\n", "{}", depends.1);
    // Without layers, the test installs everything.
    let config = yard.read("kilnyard.toml").replace("# layers = \"20G\"", "layers = \"0\"    #");
    fs::write(yard.path("kilnyard.toml"), config).unwrap();
    yard.run(&["build", "--no-scan", "--force", "tool"]).exits(0);
    yard.run(&["log", "tool", "test"]).exits(0).says(&[" 2 newly installed"]);
    assert!(yard.is_clean());
}

/// The lines that only one of two sorted texts has.
fn differences_of(one: &str, other: &str) -> Vec<String> {
    let (left, right): (BTreeSet<&str>, BTreeSet<&str>) = (one.lines().collect(), other.lines().collect());
    let only = |mark: &str, lines: Vec<&&str>| {
        lines.into_iter().map(|line| format!("{mark} {line}")).collect::<Vec<_>>()
    };
    [only("apt:", left.difference(&right).collect()), only("layers:", right.difference(&left).collect())]
        .concat()
}

fn lost_store(shared: &Shared) {
    let one = good("one", "");
    let yard = shared.yard("lost", &[one.clone(), good("two", "one")]);
    yard.build().exits(0);
    Fixture { content: "other", ..one.clone() }.write(&yard.folder);
    yard.build().exits(0);
    let published = yard.published();
    assert!(published.contains(&"Version: 1.0+bk2".to_owned()), "{published:?}");
    let backups = || -> Vec<String> {
        let names = yard.names("state").into_iter();
        names.filter(|name| name.starts_with("kilnyard-20") && name.ends_with(".db")).collect()
    };
    assert_eq!(backups().len(), 1, "{:?}", yard.names("state"));
    yard.run(&["restore"]).exits(2).says(&["is intact"]);
    let spoil = |bytes: &[u8]| {
        for ending in ["-wal", "-shm"] {
            let _ = fs::remove_file(yard.path(&format!("state/kilnyard.db{ending}")));
        }
        fs::write(yard.path("state/kilnyard.db"), bytes).unwrap();
        yard.run(&["status"]).exits(3).says(&[" restore, which"]);
        yard.build().exits(3).says(&[" restore, which"]);
        assert_eq!(yard.published(), published);
    };
    // The last good store is restored, and nothing is built again.
    spoil(b"");
    yard.run(&["restore"]).exits(0).says(&["restored from", &backups()[0]]);
    yard.build().exits(0).says(&["nothing to do"]);
    // Without a backup, the outputs are recovered from the repository: the same content keeps its version.
    spoil(b"this is not a database, but it is long enough to look like one");
    yard.run(&["restore", "--without-backup"]).exits(0).says(&["are lost", "2 packages taken"]);
    yard.build().exits(0);
    assert_eq!(yard.states(&["one", "two"]), ["unchanged", "unchanged"]);
    assert_eq!(yard.published(), published);
    // A new content gets a higher number, even if the store is empty.
    Fixture { content: "third", ..one }.write(&yard.folder);
    spoil(b"");
    yard.run(&["restore", "--without-backup"]).exits(0);
    yard.build().exits(0);
    assert!(yard.published().contains(&"Version: 1.0+bk3".to_owned()), "{:?}", yard.published());
}

fn udebs(shared: &Shared) {
    let fixture = Fixture {
        binary: "mkdir -p debian/installer/DEBIAN debian/installer/usr/share/kept\n\
                 dpkg-gencontrol -pkept-udeb -Pdebian/installer -nkept-udeb_$$(dpkg-parsechangelog -S Version)_amd64.udeb\n\
                 dpkg-deb --root-owner-group --build debian/installer ../kept-udeb_$$(dpkg-parsechangelog -S Version)_amd64.udeb",
        control: "\nPackage: kept-udeb\nPackage-Type: udeb\nSection: debian-installer\nArchitecture: any\n\
                  Description: a part of the installer\n It is one.\n",
        ..good("kept", "")
    };
    let yard = shared.yard("udebs", &[fixture]);
    yard.build().exits(0).says(&["2 packages"]);
    let index = "repository/dists/bookworm/main/debian-installer/binary-amd64/Packages";
    let listed = yard.read(index);
    assert!(listed.contains("Package: kept-udeb\n") && listed.contains("_amd64.udeb\n"), "{listed}");
    assert!(!yard.published().iter().any(|line| line.contains("udeb")), "{:?}", yard.published());
    let release = yard.read("repository/dists/bookworm/Release");
    assert!(release.contains(" main/debian-installer/binary-amd64/Packages\n"), "{release}");
    yard.build().exits(0).says(&["nothing to do"]);
    // Machines are not offered the udeb, but its file exists.
    let path = listed.lines().find_map(|line| line.strip_prefix("Filename: ")).unwrap();
    assert!(yard.path(&format!("repository/{path}")).is_file());
}

fn native_rebuilds(shared: &Shared) {
    // Files in which debhelper and the Python tools write the version of a native package.
    let binary = "version=$$(dpkg-parsechangelog -S Version); documents=debian/tmp/usr/share/doc/native; \\\n\
        modules=debian/tmp/usr/lib/python3/dist-packages; mkdir -p $$documents $$modules/native-$$version.egg-info; \\\n\
        head -n 6 debian/changelog | gzip -9n > $$documents/changelog.amd64.gz; \\\n\
        gzip -9n < debian/changelog > $$documents/changelog.gz; \\\n\
        echo \"Version: $$version\" > $$modules/native-$$version.egg-info/PKG-INFO";
    let native = Fixture { binary, ..good("native", "") };
    let yard = shared.yard("native", &[native, good("user", "native")]);
    yard.build().exits(0);
    let published = yard.published();
    yard.run(&["build", "--no-scan", "--force", "native"]).exits(0);
    assert_eq!(yard.json(&["history", "native", "--json"])[0]["version"], "1.0+bk2");
    assert_eq!(yard.state("native"), "unchanged");
    yard.build().exits(0).says(&["nothing to do"]);
    assert_eq!(yard.published(), published);
}
