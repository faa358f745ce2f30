//! Several targets in one yard: each has a plan, an index, a lock and a store of its own, and none harms another.

use crate::support::archive::{Archive, DAY, now_seconds};
use crate::support::server::{Manner, Server};
use crate::support::tiny::Tiny;
use crate::support::{Ended, Yard, until};
use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::Path;

pub const CASES: &[(&str, fn())] = &[
    ("every_target_is_planned_by_itself", planned_by_itself),
    ("a_target_is_chosen_by_name_release_or_architecture", chosen),
    ("commands_for_one_target_ask_which", ask_which),
    ("json_names_the_target", json_names_the_target),
    ("folders_of_targets_that_are_links_are_refused", links),
    ("a_target_that_this_machine_cannot_run_is_planned_alone", cannot_run),
    ("a_target_without_its_mirror_does_not_stop_the_others", without_its_mirror),
    ("an_error_of_one_target_does_not_hide_the_others", errors_are_apart),
    ("every_target_has_a_lock", locks),
    ("targets_share_a_repository_and_its_key", share_a_repository),
];

/// Programs of this architecture run under no Linux, and under no emulation.
const FOREIGN: &str = "hurd-i386";

/// A yard with a release for two architectures, and another release on another mirror.
struct Several {
    tiny: Tiny,
    other: Server,
}

impl Several {
    fn new(name: &str) -> Several {
        let mut tiny = Tiny::new(name);
        tiny.archive.more_architectures = vec!["i386", FOREIGN];
        tiny.server.serve(tiny.archive.files());
        let archive = Archive {
            codename: "other".to_owned(),
            sources: tiny.archive.sources.replace("Version: 1.0-1", "Version: 2.0-1"),
            date_seconds: now_seconds() - DAY,
            ..Archive::default()
        };
        let files = archive.files().into_iter();
        let moved = |path: String| path.replace("/dists/tiny/", "/dists/other/");
        let other = Server::start(files.map(|(path, bytes)| (moved(path), bytes)).collect());
        let several = Several { tiny, other };
        let mirror = several.other.url();
        several.configure(&format!(
            "[[target]]\n[[target]]\narchitecture = \"i386\"\n\
             [[target]]\nname = \"next\"\nrelease = \"other\"\nmirror = \"{mirror}\"\n\
             packages = [\"goodsource\", \"round-a\"]\n"
        ));
        several
    }

    /// Adds these tables to the common configuration.
    fn configure(&self, tables: &str) {
        self.tiny.configure("\"goodsource\"", "");
        let text = self.tiny.yard.read("kilnyard.toml");
        self.tiny.yard.configure(&format!("{text}{tables}"));
    }

    fn yard(&self) -> &Yard {
        &self.tiny.yard
    }
}

/// The JSON documents of a command's output.
#[track_caller]
fn documents(ended: &Ended) -> Vec<serde_json::Value> {
    let documents = serde_json::Deserializer::from_str(&ended.stdout).into_iter();
    documents.collect::<Result<_, _>>().unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

/// Name and version of the planned packages of each target.
#[track_caller]
fn plans(yard: &Yard, arguments: &[&str]) -> BTreeMap<String, Vec<String>> {
    let ended = yard.run(&[&["plan", "--json"], arguments].concat()).exits(0);
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let packages = |plan: &serde_json::Value| {
        let rows = plan["packages"].as_array().unwrap().iter();
        rows.map(|row| format!("{} {}", text(&row["name"]), text(&row["version"]))).collect()
    };
    documents(&ended).iter().map(|plan| (text(&plan["target"]), packages(plan))).collect()
}

fn planned_by_itself() {
    let several = Several::new("targets");
    let plans = plans(several.yard(), &[]);
    assert_eq!(plans["tiny-amd64"], ["goodsource 1.0-1"]);
    assert_eq!(plans["tiny-i386"], ["goodsource 1.0-1"]);
    assert_eq!(plans["next"], ["goodsource 2.0-1", "round-a 1-1"]);
    several.yard().run(&["plan"]).exits(0).says(&[
        "target tiny-amd64:",
        "target tiny-i386:",
        "target next:",
        "goodsource",
        "2 packages to build",
    ]);
    // Nothing of a target is in the common folder, and all of it is in its own.
    assert_eq!(several.yard().names("targets"), ["next", "tiny-amd64", "tiny-i386"]);
    assert!(several.yard().path("targets/next/state/kilnyard.db").exists());
    for name in ["state/kilnyard.db", "index", "roots", "layers", "logs"] {
        assert!(!several.yard().path(name).exists(), "{name}");
    }
    // Each has packages of its own architecture in its index.
    let kept = |target: &str| several.yard().names(&format!("targets/{target}/index"));
    assert_eq!(kept("tiny-amd64").len(), 4, "{:?}", kept("tiny-amd64"));
    assert_ne!(kept("tiny-amd64"), kept("tiny-i386"));
}

fn chosen() {
    let several = Several::new("target-chosen");
    let named = |word: &str| plans(several.yard(), &["--target", word]).into_keys().collect::<Vec<_>>();
    assert_eq!(named("next"), ["next"]);
    assert_eq!(named("other"), ["next"]);
    assert_eq!(named("i386"), ["tiny-i386"]);
    assert_eq!(named("tiny"), ["tiny-amd64", "tiny-i386"]);
    assert_eq!(named("amd64"), ["next", "tiny-amd64"]);
    for word in ["nowhere", "", "NEXT", "../next", "tiny-arm64"] {
        let ended = several.yard().run(&["plan", "--target", word]).exits(2);
        let lack = format!("this yard has no target {word}; it has tiny-amd64, tiny-i386, next");
        ended.says(&[&lack]);
    }
    let ended = several.yard().run(&["plan", "--target", "\u{1b}[2Jnext"]).exits(2);
    assert!(!ended.stderr.contains('\u{1b}'), "{ended:?}");
    // A name precedes a release and an architecture of the same name.
    let mirror = several.other.url();
    several.configure(&format!(
        "[[target]]\nname = \"other\"\n[[target]]\nrelease = \"other\"\nmirror = \"{mirror}\"\n"
    ));
    assert_eq!(named("other"), ["other"]);
    assert_eq!(named("other-amd64"), ["other-amd64"]);
    let single = Tiny::new("target-single");
    single.yard.run(&["plan", "--target", "tiny"]).exits(2).says(&["this yard has no [[target]]"]);
    assert!(!single.yard.path("targets").exists());
}

fn ask_which() {
    let several = Several::new("target-which");
    several.yard().run(&["scan"]).exits(0);
    for arguments in [
        &["why", "goodsource"][..],
        &["log", "goodsource"],
        &["deps", "goodsource"],
        &["rdeps", "goodsource"],
        &["impact", "goodsource"],
        &["history"],
        &["retry", "goodsource"],
        &["check"],
        &["why", "goodsource", "--target", "tiny"],
    ] {
        let ended = several.yard().run(arguments).exits(2);
        ended.says(&["this yard has several targets: ", "tiny-amd64, tiny-i386", "--target NAME"]);
    }
    several.yard().run(&["why", "goodsource", "--target", "next"]).exits(0).says(&["goodsource 2.0-1 is "]);
    several.yard().run(&["why", "goodsource", "--target", "i386"]).exits(0).says(&["goodsource 1.0-1 is "]);
    several.yard().run(&["check", "--target", "next"]).exits(0).says(&["6 sources checked"]);
    several
        .yard()
        .run(&["log", "goodsource", "--target", "next"])
        .exits(2)
        .says(&["goodsource has not been built yet"]);
    // Commands suggested by a message are for the same target.
    let ended = several.yard().run(&["log", "goodsource", "--target", "other"]).exits(2);
    ended.says(&["--target next why goodsource"]);
    let ended = several.yard().run(&["status"]).exits(2);
    ended.says(&["--target tiny-i386 build", "--target next build"]);
}

fn json_names_the_target() {
    let several = Several::new("target-json");
    several.yard().run(&["scan"]).exits(0);
    let of_status = |yard: &Yard, arguments: &[&str]| {
        let ended = yard.run(&[&["status", "--json"], arguments].concat());
        (ended.code == Some(0)).then(|| ended.json())
    };
    assert_eq!(of_status(several.yard(), &["--target", "next"]), None, "nothing was built");
    several.other.behave("/dists/other/InRelease", Some(Manner::Drip));
    let _building = several.yard().start(&["build", "--target", "next"]);
    let mut status = None;
    until("the build of one target shows in its status", || {
        status = of_status(several.yard(), &["--target", "next"]);
        status.is_some()
    });
    let status = status.unwrap();
    assert_eq!((&status["target"], &status["state"]), (&"next".into(), &"preparing".into()));
    // Another target is not locked by it.
    several.yard().run(&["scan", "--target", "i386"]).exits(0);
    several.yard().run(&["scan", "--target", "next"]).exits(2).says(&["another Kilnyard (process "]);
    let single = Tiny::new("target-json-single");
    single.scan().exits(0);
    let plan = single.yard.run(&["plan", "--json"]).exits(0).json();
    assert_eq!(plan.get("target"), Some(&serde_json::Value::Null));
    single.server.behave(Archive::RELEASE_PATH, Some(Manner::Drip));
    let _building = single.yard.start(&["build"]);
    let mut status = None;
    until("the build shows in the status", || {
        status = of_status(&single.yard, &[]);
        status.is_some()
    });
    assert_eq!(status.unwrap().get("target"), Some(&serde_json::Value::Null));
}

fn links() {
    let several = Several::new("target-links");
    let (yard, elsewhere) = (several.yard(), several.yard().folder.parent().unwrap().join("elsewhere"));
    std::fs::create_dir(&elsewhere).unwrap();
    let is_untouched = || std::fs::read_dir(&elsewhere).unwrap().next().is_none();
    let every = [&["plan"][..], &["scan"], &["build"], &["lock"], &["clean"], &["publish"], &["status"]];
    let refused = |arguments: &[&str], words: &[&str]| {
        yard.run(arguments).exits(3).says(words);
        assert!(is_untouched(), "{arguments:?}");
    };
    let targets = yard.path("targets");
    for to in [elsewhere.as_path(), Path::new("/nonexistent/folder")] {
        symlink(to, &targets).unwrap();
        every.iter().for_each(|arguments| refused(arguments, &["targets is not a folder; remove it"]));
        refused(&["why", "goodsource", "--target", "next"], &["targets is not a folder; remove it"]);
        std::fs::remove_file(&targets).unwrap();
    }
    std::fs::write(&targets, "a file").unwrap();
    every.iter().for_each(|arguments| refused(arguments, &["targets is not a folder; remove it"]));
    assert_eq!(yard.read("targets"), "a file");
    std::fs::remove_file(&targets).unwrap();
    std::fs::create_dir(&targets).unwrap();
    symlink(&elsewhere, yard.path("targets/next")).unwrap();
    for arguments in every {
        refused(&[arguments, &["--target", "next"]].concat(), &["targets/next is not a folder; remove it"]);
    }
    std::fs::remove_file(yard.path("targets/next")).unwrap();
    std::fs::write(yard.path("targets/next"), "a file").unwrap();
    refused(&["plan", "--target", "next"], &["targets/next is not a folder; remove it"]);
    std::fs::remove_file(yard.path("targets/next")).unwrap();
    // A folder inside a target is opened without following links, too.
    for name in ["state", "index", "distfiles", "layers", "roots", "logs", "report"] {
        std::fs::create_dir_all(yard.path("targets/next")).unwrap();
        symlink(&elsewhere, yard.path(&format!("targets/next/{name}"))).unwrap();
        refused(&["plan", "--target", "next"], &["make the folders of the yard"]);
        std::fs::remove_dir_all(yard.path("targets/next")).unwrap();
    }
    yard.run(&["plan"]).exits(0);
}

fn cannot_run() {
    let several = Several::new("target-foreign");
    several.configure(&format!("[[target]]\n[[target]]\narchitecture = \"{FOREIGN}\"\n"));
    let yard = several.yard();
    let name = format!("tiny-{FOREIGN}");
    assert_eq!(plans(yard, &["--target", FOREIGN])[&name], ["goodsource 1.0-1"]);
    let waits = format!("debian/linux/tiny/{FOREIGN} is planned, but not built: ");
    let lack = format!("no emulation of {FOREIGN} is registered");
    for _ in 0..2 {
        let ended = yard.run(&["build", "--target", FOREIGN]).exits(3);
        let ended = ended.says(&[&waits, &lack, "try: ", "for user emulation", "cross = true"]);
        assert!(!ended.stderr.contains("error"), "{ended:?}");
        for folder in ["roots", "layers", "logs"] {
            assert!(yard.names(&format!("targets/{name}/{folder}")).is_empty(), "{folder}");
        }
    }
    yard.run(&["build", "--dry-run"]).exits(0).says(&["target tiny-amd64:", "1 package to build"]);
    // Without [[target]], it is an error.
    several.tiny.configure("\"goodsource\"", "");
    let text = yard.read("kilnyard.toml").replace("\"amd64\"", &format!("\"{FOREIGN}\""));
    yard.configure(&text);
    yard.run(&["plan"]).exits(0).says(&["1 package to build"]);
    yard.run(&["build"]).exits(3).says(&["error: ", &waits, &lack, "try: ", "cross = true"]);
    assert!(yard.names("roots").is_empty());
}

fn without_its_mirror() {
    let several = Several::new("target-mirror");
    let mirror = several.other.url();
    several.configure(&format!(
        "[[target]]\nmirror = \"http://127.0.0.1:1\"\n[[target]]\narchitecture = \"i386\"\n\
         [[target]]\nrelease = \"other\"\nmirror = \"{mirror}\"\n"
    ));
    let ended = several.yard().run(&["scan"]).exits(3);
    ended.says(&["127.0.0.1:1", "tiny: a new index", "other: a new index", "failed for tiny-amd64"]);
    let plan = several.yard().run(&["plan", "--json"]).exits(3);
    let targets: Vec<serde_json::Value> =
        documents(&plan).into_iter().map(|plan| plan["target"].clone()).collect();
    assert_eq!(targets, ["tiny-i386", "other-amd64"]);
    several.yard().run(&["lock"]).exits(3).says(&["failed for tiny-amd64"]);
    assert!(several.yard().path("targets/other-amd64/kilnyard.lock").exists());
    assert!(!several.yard().path("targets/tiny-amd64/kilnyard.lock").exists());
}

fn errors_are_apart() {
    let several = Several::new("target-errors");
    let yard = several.yard();
    yard.run(&["scan"]).exits(0);
    // Only the last target has this package.
    let ended = yard.run(&["build", "--dry-run", "--no-scan", "round-a"]).exits(2);
    ended.says(&[
        "this yard has no package round-a",
        "1 package to build",
        "failed for tiny-amd64, tiny-i386",
    ]);
    let ended = yard.run(&["status"]).exits(2);
    assert_eq!(ended.stderr.matches("nothing has been built").count(), 3, "{ended:?}");
    // The highest exit code counts, whichever target has it.
    several.tiny.configure("\"goodsource\"", "");
    let common = yard.read("kilnyard.toml");
    for targets in [
        ["mirror = \"http://127.0.0.1:1\"", "architecture = \"i386\"\npackages-file = \"absent.txt\""],
        ["packages-file = \"absent.txt\"", "architecture = \"i386\"\nmirror = \"http://127.0.0.1:1\""],
    ] {
        let tables = targets.map(|keys| format!("[[target]]\n{keys}\n")).concat();
        yard.configure(&format!("{common}{tables}"));
        yard.run(&["clean", "--index"]).exits(0);
        let ended = yard.run(&["lock"]).exits(3);
        ended.says(&["absent.txt", "127.0.0.1:1", "failed for tiny-amd64, tiny-i386"]);
    }
}

fn locks() {
    let several = Several::new("target-lock");
    let yard = several.yard();
    yard.run(&["lock"]).exits(0).says(&["target next:", "1 source, 1 index", "2 sources, 1 index"]);
    for (target, version) in [("tiny-amd64", "1.0-1"), ("tiny-i386", "1.0-1"), ("next", "2.0-1")] {
        let lock = yard.read(&format!("targets/{target}/kilnyard.lock"));
        assert!(lock.contains(&format!("version = \"{version}\"")), "{target}: {lock}");
    }
    assert!(!yard.path("kilnyard.lock").exists());
    yard.run(&["build", "--locked", "--dry-run"]).exits(0);
    yard.run(&["lock"]).exits(0).says(&["kilnyard.lock is up to date"]);
    // A new lock of one target does not change those of the others.
    let mut archive = several.tiny.archive.clone();
    archive.date_seconds += 60;
    archive.sources = archive.sources.replace("Version: 1.0-1", "Version: 3.0-1");
    several.tiny.server.serve(archive.files());
    yard.run(&["lock", "--update", "--target", "i386"]).exits(0).says(&["1.0-1 (tiny) -> 3.0-1 (tiny)"]);
    assert_eq!(plans(yard, &["--target", "i386"])["tiny-i386"], ["goodsource 3.0-1"]);
    yard.run(&["scan"]).exits(0);
    assert_eq!(plans(yard, &["--target", "tiny-amd64"])["tiny-amd64"], ["goodsource 1.0-1"]);
    std::fs::remove_file(yard.path("targets/next/kilnyard.lock")).unwrap();
    let ended = yard.run(&["build", "--locked", "--dry-run"]).exits(2);
    ended.says(&["--locked needs kilnyard.lock", "failed for next"]);
}

fn share_a_repository() {
    let several = Several::new("target-publish");
    let yard = several.yard();
    yard.make_signer();
    yard.run(&["scan"]).exits(0);
    // The first target publishes an empty index for the second, which has no store yet.
    yard.run(&["publish", "--target", "tiny-amd64"]).exits(0);
    assert_eq!(yard.read("repository/dists/tiny/main/binary-i386/Packages"), "");
    yard.run(&["publish"]).exits(0).says(&["target next:"]);
    let release = yard.read("repository/dists/tiny/Release");
    assert!(release.contains("Architectures: amd64 i386\n"), "{release}");
    assert!(yard.read("repository/dists/other/Release").contains("Architectures: amd64\n"));
    for target in yard.names("targets") {
        assert!(yard.names(&format!("targets/{target}/repository")).is_empty(), "{target}");
        assert!(!yard.path(&format!("targets/{target}/state/signer")).exists(), "{target}");
    }
    yard.run(&["publish"]).exits(0).says(&["unchanged: 0 packages"]);
    yard.run(&["clean"]).exits(0);
    // A target that has published packages and lost its store is not taken for a new one.
    let lost = |target: &str| std::fs::remove_dir_all(yard.path(&format!("targets/{target}/state"))).unwrap();
    let index = yard.path("repository/dists/tiny/main/binary-i386/Packages");
    let stanza = "Package: some\nVersion: 1\nArchitecture: all\nFilename: pool/x.deb\n\n";
    std::fs::write(&index, stanza).unwrap();
    lost("tiny-i386");
    yard.run(&["plan", "--target", "tiny-i386"]).exits(0);
    std::fs::write(&index, stanza.replace(": all", ": i386")).unwrap();
    lost("tiny-i386");
    let ended = yard.run(&["plan", "--target", "tiny-i386"]).exits(3);
    ended.says(&["missing or empty, but the repository has packages", "restore"]);
    std::fs::write(&index, "").unwrap();
    // The repository's lock is not a link either.
    let outside = yard.folder.parent().unwrap().join("outside");
    std::fs::write(&outside, "text").unwrap();
    std::fs::remove_file(yard.path("state/lock")).unwrap();
    symlink(&outside, yard.path("state/lock")).unwrap();
    for command in ["publish", "clean"] {
        yard.run(&[command])
            .exits(3)
            .says(&["lock the repository of the targets", "symbolic link; remove it"]);
    }
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "text");
}
