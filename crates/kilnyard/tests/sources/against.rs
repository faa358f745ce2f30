//! What packages are built against, and which packages of a set come from the archive.

use crate::git;
use crate::support::archive::hex_of;
use crate::support::tiny::Tiny;
use crate::support::{Yard, has};
use std::collections::BTreeMap;

pub const CASES: &[(&str, fn())] = &[
    ("dependencies_follow_what_packages_are_built_against", dependencies),
    ("own_sources_and_their_dependents_are_built", own_sources),
    ("a_choice_for_one_run_replaces_the_configuration", choices),
    ("without_own_sources_the_named_ones_count_if_asked_for", named),
    ("a_rule_for_own_sources_that_matches_nothing_rebuilds_nothing", no_own_sources),
    ("unmet_pins_do_not_change_what_is_reused", unmet_pins),
    ("a_reused_package_is_explained_by_every_command", explained),
    ("a_package_that_is_left_out_is_explained_by_questions", left_out),
];

/// Sources in a chain. `app` needs the library through `helper`, a package of the archive that nothing makes; `near`
/// needs it directly; `far` needs what `app` makes.
const CHAIN: [(&str, &str); 4] =
    [("libsource", "tool"), ("app", "helper"), ("near", "libsource-bin"), ("far", "app-bin")];

const HASH: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// A yard of the test archive with the chain; `packages` is the set.
fn tiny(name: &str, packages: &str, build: &str) -> Tiny {
    let mut tiny = Tiny::new(name);
    tiny.archive
        .packages
        .push_str("\nPackage: helper\nVersion: 1\nArchitecture: amd64\nDepends: libsource-bin\n");
    for (name, needs) in CHAIN {
        tiny.archive
            .packages
            .push_str(&format!("\nPackage: {name}-bin\nSource: {name}\nVersion: 1-1\nArchitecture: amd64\n"));
        tiny.archive.sources.push_str(&format!(
            "\nPackage: {name}\nBinary: {name}-bin\nVersion: 1-1\nArchitecture: any\nBuild-Depends: {needs}\n\
             Directory: pool/{name}\nChecksums-Sha256:\n {HASH} 0 {name}_1-1.dsc\n"
        ));
    }
    tiny.server.serve(tiny.archive.files());
    tiny.configure(packages, build);
    tiny
}

/// Writes a source of this machine below `own`.
fn own_source(yard: &Yard, name: &str, version: &str) {
    let folder = yard.path("own");
    std::fs::create_dir_all(&folder).unwrap();
    let (file, text) = (format!("{name}_{version}.tar.xz"), "an archive");
    std::fs::write(folder.join(&file), text).unwrap();
    let dsc = format!(
        "Format: 3.0 (native)\nSource: {name}\nBinary: {name}-bin\nArchitecture: any\nVersion: {version}\n\
         Build-Depends: tool\nChecksums-Sha256:\n {} {} {file}\n",
        hex_of(text.as_bytes()),
        text.len()
    );
    std::fs::write(folder.join(format!("{name}_{version}.dsc")), dsc).unwrap();
}

/// What a plan has: the dependencies of each package to build, the packages left out, and the remarks.
struct Planned {
    packages: BTreeMap<String, Vec<String>>,
    left_out: Vec<String>,
    remarks: Vec<String>,
}

impl Planned {
    #[track_caller]
    fn of(yard: &Yard, arguments: &[&str]) -> Planned {
        let plan = yard.run(&[&["plan", "--json"], arguments].concat()).exits(0).json();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let texts =
            |value: &serde_json::Value| value.as_array().unwrap().iter().map(text).collect::<Vec<_>>();
        let mut planned =
            Planned { packages: BTreeMap::new(), left_out: Vec::new(), remarks: texts(&plan["remarks"]) };
        for row in plan["packages"].as_array().unwrap() {
            match row["state"] == "left-out" {
                true => planned.left_out.push(text(&row["name"])),
                false => drop(planned.packages.insert(text(&row["name"]), texts(&row["dependencies"]))),
            }
        }
        planned
    }

    fn names(&self) -> Vec<&str> {
        self.packages.keys().map(String::as_str).collect()
    }

    /// The remark on the numbers of built and reused sources.
    #[track_caller]
    fn remark(&self) -> &str {
        let found = self.remarks.iter().find(|remark| remark.contains("sources are built"));
        found.unwrap_or_else(|| panic!("no remark: {:?}", self.remarks))
    }
}

/// All sources of the test archive that can be built, with the chain.
const ALL: [&str; 7] = ["app", "far", "goodsource", "libsource", "near", "round-a", "round-b"];

fn dependencies() {
    let set = "\"libsource\", \"app\", \"near\", \"far\"";
    let tiny = tiny("against", set, "");
    let deps = |against: &str, name: &str, more: &[&str]| {
        tiny.configure(set, &format!("against = \"{against}\""));
        let ended = tiny.yard.run(&[&["deps", name], more].concat()).exits(0);
        ended.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    tiny.scan().exits(0);
    // Through a package that the set does not make, only "set" leads to the library.
    assert_eq!(deps("set", "app", &[]), ["libsource"]);
    assert_eq!(deps("set", "near", &[]), ["libsource"]);
    assert!(deps("set", "far", &[]).contains(&"app".to_owned()));
    assert_eq!(deps("set", "far", &["--all"]), ["app", "libsource"]);
    assert_eq!(deps("ancestors", "app", &[]), [""; 0]);
    assert_eq!(deps("ancestors", "near", &[]), ["libsource"]);
    assert_eq!(deps("ancestors", "far", &["--all"]), ["app"]);
    for (name, _) in CHAIN {
        assert_eq!(deps("archive", name, &[]), [""; 0], "{name}");
    }
    assert!(Planned::of(&tiny.yard, &[]).packages.values().all(Vec::is_empty));
    let ended = tiny.yard.run(&["impact", "libsource"]).exits(0);
    ended.says(&["at most 1 package of 4 to build"]);
    tiny.configure(set, "");
    tiny.yard.run(&["impact", "libsource"]).exits(0).says(&["at most 4 packages of 4 to build"]);
    // Packages in a cycle are all built at once, without any cut.
    tiny.configure("\"round-a\", \"round-b\"", "");
    tiny.yard.run(&["plan"]).exits(0).says(&["cycle cut: round-"]);
    let ended = tiny.yard.run(&["plan", "--against", "archive"]).exits(0).says(&["2 packages to build"]);
    assert!(!ended.stdout.contains("cycle cut") && !ended.stdout.contains("wait"), "{ended:?}");
    for (build, words) in [
        ("against = \"everything\"", &["everything", "`set`", "`ancestors`", "`archive`"][..]),
        ("against = 1", &["against"]),
        ("reuse = \"all\"", &["`archive`", "`never`"]),
    ] {
        tiny.configure(set, build);
        tiny.yard.run(&["plan"]).exits(2).says(words);
    }
}

fn choices() {
    let tiny = tiny("against-choices", "\"all\", \"own/*.dsc\"", "");
    own_source(&tiny.yard, "libsource", "9-1");
    let of = |arguments: &[&str]| Planned::of(&tiny.yard, arguments);
    assert_eq!(of(&[]).packages["app"], ["libsource"]);
    assert_eq!(of(&["--against", "archive"]).packages["app"], [""; 0]);
    assert_eq!(of(&["--against", "ancestors"]).packages["app"], [""; 0]);
    assert_eq!(of(&["--reuse", "never"]).names(), ALL);
    // The next command follows the configuration again.
    assert_eq!(of(&[]).names(), ["app", "far", "libsource", "near"]);
    assert_eq!(of(&[]).packages["app"], ["libsource"]);
    tiny.configure("\"all\", \"own/*.dsc\"", "reuse = \"never\"\nagainst = \"archive\"");
    assert_eq!(of(&[]).names(), ALL);
    assert_eq!(of(&["--reuse", "archive"]).names(), ["app", "far", "libsource", "near"]);
    assert_eq!(of(&["--against", "set"]).packages["near"], ["libsource"]);
    let built = |arguments: &[&str]| {
        let ended = tiny.yard.run(&[&["build", "--dry-run", "--no-scan"], arguments].concat()).exits(0);
        ended.stdout.lines().filter(|line| line.starts_with("build ")).count()
    };
    assert_eq!((built(&[]), built(&["--reuse", "archive"])), (ALL.len(), 4));
    for arguments in [&["--against", "nothing"][..], &["--reuse", "always"], &["--against"], &["--reuse", ""]]
    {
        tiny.yard.run(&[&["plan"], arguments].concat()).exits(2).says(&["possible values"]);
    }
    tiny.yard.configure(
        "packages = [\"mail/mutt\"]\n[pkgsrc]\ntree = \"tree\"\n[pkgsrc.root]\nrelease = \"bookworm\"\n\
         mirror = \"http://127.0.0.1:1\"\n",
    );
    let ended = tiny.yard.run(&["plan", "--against", "archive"]).exits(2);
    ended.says(&["a pkgsrc package is always built against the packages of the set"]);
}

fn own_sources() {
    let tiny = tiny("reuse-own", "\"all\", \"own/*.dsc\"", "");
    own_source(&tiny.yard, "libsource", "9-1");
    let planned = Planned::of(&tiny.yard, &[]);
    assert_eq!(planned.names(), ["app", "far", "libsource", "near"]);
    assert!(planned.left_out.is_empty(), "{:?}", planned.left_out);
    let remark = "4 of 10 sources are built: 1 own, 0 named, 3 that depend on them; the archive's packages of the other 6 \
                  are used as they are (reuse = \"never\" builds all)";
    assert_eq!(planned.remark(), remark);
    tiny.yard.run(&["plan"]).exits(0).says(&[&format!("note: {remark}"), "4 packages to build"]);
    // An exclusion of a dependent leaves the others.
    tiny.configure("\"all\", \"own/*.dsc\", \"-app\"", "");
    assert_eq!(Planned::of(&tiny.yard, &[]).names(), ["libsource", "near"]);
    // A source that is named is built, and what depends on it.
    tiny.configure("\"all\", \"own/*.dsc\", \"goodsource\", \"round-a\"", "");
    let planned = Planned::of(&tiny.yard, &[]);
    assert_eq!(planned.names(), ALL);
    assert!(
        planned.remark().starts_with("7 of 10 sources are built: 1 own, 2 named, 4 that depend on them;")
    );
    // A new source of the user's own that nothing needs.
    own_source(&tiny.yard, "newcomer", "1-1");
    std::fs::remove_file(tiny.yard.path("own/libsource_9-1.dsc")).unwrap();
    tiny.configure("\"all\", \"own/*.dsc\"", "");
    let planned = Planned::of(&tiny.yard, &[]);
    assert_eq!(planned.names(), ["newcomer"]);
    assert!(
        planned.remark().starts_with("1 of 11 sources are built: 1 own, 0 named, 0 that depend on them;")
    );
    // Without a wide rule there is nothing to reuse.
    tiny.configure("\"own/*.dsc\", \"goodsource\"", "");
    let planned = Planned::of(&tiny.yard, &[]);
    assert_eq!(planned.names(), ["goodsource", "newcomer"]);
    assert!(planned.remarks.iter().all(|remark| !remark.contains("sources are built")));
    if has("git") && has("dpkg-source") && has("xz") {
        git::repository(&tiny, "goodsource", "9.0", "3.0 (native)");
        tiny.configure("\"all\", \"git:../goodsource\"", "");
        tiny.scan().exits(0);
        let planned = Planned::of(&tiny.yard, &[]);
        assert_eq!(planned.names(), ["goodsource"]);
        assert!(planned.remark().starts_with("1 of 10 sources are built: 1 own,"), "{}", planned.remark());
    }
}

fn named() {
    let tiny = tiny("reuse-named", "\"all\", \"libsource\"", "");
    // Without own sources, everything is built.
    let planned = Planned::of(&tiny.yard, &[]);
    assert_eq!(planned.names(), ALL);
    assert_eq!(planned.left_out, ["needs-both", "needs-missing", "needs-newer"]);
    let planned = Planned::of(&tiny.yard, &["--reuse", "archive"]);
    assert_eq!(planned.names(), ["app", "far", "libsource", "near"]);
    assert!(
        planned.remark().starts_with("4 of 10 sources are built: 0 own, 1 named, 3 that depend on them;")
    );
    tiny.configure("\"all\", \"libsource/tiny\"", "reuse = \"archive\"");
    assert_eq!(Planned::of(&tiny.yard, &[]).names(), ["app", "far", "libsource", "near"]);
    tiny.configure("\"all\"", "reuse = \"archive\"");
    let planned = Planned::of(&tiny.yard, &[]);
    assert!(planned.names().is_empty());
    assert!(
        planned.remark().starts_with("0 of 10 sources are built: 0 own, 0 named, 0 that depend on them;")
    );
}

fn no_own_sources() {
    let tiny = tiny("reuse-none", "\"all\", \"own/*.dsc\"", "");
    for rule in ["own/*.dsc", "own/libsource_9-1.dsc", "./own/x?.dsc", "/nonexistent/*/*.dsc"] {
        tiny.configure(&format!("\"all\", \"{rule}\""), "");
        let planned = Planned::of(&tiny.yard, &[]);
        assert!(planned.names().is_empty(), "{rule}: {:?}", planned.names());
        assert_eq!(planned.left_out.len(), 1, "{rule}: {:?}", planned.left_out);
        assert!(planned.remark().starts_with("0 of 10 sources are built: 0 own,"), "{rule}");
    }
    // One that cannot be read is left out, and does not count as an own source.
    own_source(&tiny.yard, "libsource", "9-1");
    std::fs::write(tiny.yard.path("own/libsource_9-1.tar.xz"), "another archive").unwrap();
    tiny.configure("\"all\", \"own/*.dsc\"", "");
    let planned = Planned::of(&tiny.yard, &[]);
    assert!(planned.names().is_empty(), "{:?}", planned.names());
    assert_eq!(planned.left_out, ["libsource"]);
}

fn unmet_pins() {
    let set = "\"round-*\", \"own/*.dsc\", \"goodsource/nowhere\", \"app=7\"";
    let tiny = tiny("reuse-pins", set, "");
    own_source(&tiny.yard, "newcomer", "1-1");
    let planned = Planned::of(&tiny.yard, &[]);
    assert_eq!(planned.names(), ["newcomer"]);
    assert_eq!(planned.left_out, ["app", "goodsource"]);
    assert!(planned.remark().starts_with("1 of 3 sources are built: 1 own,"), "{}", planned.remark());
}

fn explained() {
    let tiny = tiny("reuse-explained", "\"all\", \"own/*.dsc\"", "");
    own_source(&tiny.yard, "libsource", "9-1");
    tiny.scan().exits(0);
    let sentence = "goodsource is not built: it depends on none of your own or named sources";
    for arguments in [
        &["why"][..],
        &["why", "--json"],
        &["deps"],
        &["deps", "--json"],
        &["rdeps"],
        &["impact"],
        &["impact", "libsource"],
        &["log"],
        &["history"],
        &["retry"],
        &["bump"],
        &["build", "--dry-run"],
        &["build", "--no-scan"],
        &["build", "--force"],
    ] {
        let ended = tiny.yard.run(&[arguments, &["goodsource"]].concat()).exits(2);
        let ended = ended.says(&[
            sentence,
            "archive's packages are used",
            "goodsource in packages",
            "reuse = \"never\"",
        ]);
        assert!(!ended.stderr.contains("not a package"), "{arguments:?}: {ended:?}");
    }
    assert!(tiny.yard.names("roots").is_empty());
    // A name that is in no archive is still unknown, and one of the set is answered.
    for command in ["why", "deps", "impact", "log"] {
        tiny.yard.run(&[command, "goodsourc"]).exits(2).says(&["goodsourc is not a package of this yard"]);
    }
    tiny.yard.run(&["why", "app"]).exits(0).says(&["app 1-1 is "]);
    tiny.yard.run(&["impact", "--own"]).exits(0).says(&["libsource  changed", "at most 4 packages of 4"]);
    let ended = tiny.yard.run(&["build", "--dry-run", "--reuse", "never", "goodsource"]).exits(0);
    ended.says(&["1 package to build"]);
    // A plan for one run does not apply to the next one.
    tiny.yard.run(&["plan", "--reuse", "never"]).exits(0).says(&["7 packages to build"]);
    tiny.yard.run(&["why", "goodsource"]).exits(2).says(&[sentence]);
}

fn left_out() {
    let tiny = tiny("questions-left-out", "\"all\"", "");
    tiny.scan().exits(0);
    for command in ["deps", "rdeps", "impact"] {
        let ended = tiny.yard.run(&[command, "needs-missing"]).exits(2);
        ended.says(&["needs-missing is left out", " why needs-missing"]);
    }
}
