//! Several archives, each with its own key, and pins.

use crate::support::archive::{Archive, DAY, key, now_seconds};
use crate::support::server::{Manner, Server};
use crate::support::tiny::Tiny;
use crate::support::{Ended, Yard};
use kilnyard_sign::YardKey;
use std::collections::BTreeMap;

pub const CASES: &[(&str, fn())] = &[
    ("a_second_archive_is_scanned_with_its_own_key", a_second_archive),
    ("the_key_of_one_archive_does_not_vouch_for_another", keys_stay_apart),
    ("a_new_key_verifies_an_archive_again", a_new_key),
    ("dates_of_archives_are_kept_apart", dates_stay_apart),
    ("pins_decide_which_version_is_built", pins_decide),
    ("unmet_pins_are_left_out_with_the_versions_that_exist", unmet_pins),
    ("an_archive_that_left_the_configuration_is_not_used", an_archive_that_left),
    ("mistakes_in_archive_tables_are_reported", mistakes),
    ("init_checks_what_it_is_given", init_checks),
];

const HASH: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn source(name: &str, version: &str, more: &str) -> String {
    format!(
        "\nPackage: {name}\nBinary: {name}-bin\nVersion: {version}\nArchitecture: any\n{more}Directory: pool/{name}\n\
         Checksums-Sha256:\n {HASH} 0 {name}_{version}.dsc\n"
    )
}

fn binary(name: &str, version: &str) -> String {
    format!(
        "\nPackage: {name}\nVersion: {version}\nArchitecture: amd64\nFilename: pool/{name}.deb\nSize: 0\nSHA256: {HASH}\n"
    )
}

/// A second archive on its own server, with a suite of any name and a key of its own.
struct Second {
    server: Server,
    key: YardKey,
    archive: Archive,
    suite: &'static str,
}

impl Second {
    fn new(tiny: &Tiny, suite: &'static str, packages: &str, sources: &str) -> Second {
        let key = YardKey::generate("Vendor <vendor@example.org>").unwrap();
        let archive = Archive {
            codename: suite.to_owned(),
            packages: packages.to_owned(),
            sources: sources.to_owned(),
            ..Archive::default()
        };
        let second = Second { server: Server::start(BTreeMap::new()), key, archive, suite };
        second.serve(&second.archive, &second.key);
        std::fs::create_dir_all(&tiny.yard.folder).unwrap();
        std::fs::write(tiny.yard.path("vendor.gpg"), second.key.public_binary().unwrap()).unwrap();
        second
    }

    fn serve(&self, archive: &Archive, key: &YardKey) {
        let files = archive.files_signed_by(key).into_iter();
        let moved = |path: String| path.replace("/dists/tiny/", &format!("/dists/{}/", self.suite));
        self.server.serve(files.map(|(path, bytes)| (moved(path), bytes)).collect());
    }

    /// Adds the table of this archive to the yard's configuration.
    fn configure(&self, tiny: &Tiny, packages: &str, debian: &str, more: &str) {
        tiny.configure(packages, "");
        let text = tiny.yard.read("kilnyard.toml").replace("[debian]", &format!("[debian]\n{debian}"));
        let (url, suite) = (self.server.url(), self.suite);
        tiny.yard.configure(&format!(
            "{text}\n[[archive]]\nmirror = \"{url}\"\nsuite = \"{suite}\"\nkey = \"vendor.gpg\"\n{more}\n"
        ));
    }
}

/// Name and version of each planned package, and the reason for those left out.
fn planned(tiny: &Tiny) -> BTreeMap<String, String> {
    let plan = tiny.yard.run(&["plan", "--json"]).exits(0).json();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let rows = plan["packages"].as_array().unwrap().iter();
    rows.map(|row| match text(&row["state"]) == "left-out" {
        true => (text(&row["name"]), text(&row["reason"])),
        false => (text(&row["name"]), text(&row["version"])),
    })
    .collect()
}

#[track_caller]
fn shows(tiny: &Tiny, name: &str, version: &str) {
    let planned = planned(tiny);
    assert_eq!(planned.get(name).map(String::as_str), Some(version), "{planned:?}");
}

fn a_second_archive() {
    let tiny = Tiny::new("second");
    let sources = source("vendorsource", "3-1", "Build-Depends: tool (>= 2), vendor-dev\n");
    let packages = [binary("tool", "2.0-1"), binary("vendor-dev", "1")].concat();
    let second = Second::new(&tiny, "vendor", &packages, &sources);
    second.configure(&tiny, "\"goodsource\", \"vendorsource\"", "", "");
    tiny.scan().exits(0).says(&["tiny: a new index", "vendor: a new index", "of vendor"]);
    shows(&tiny, "vendorsource", "3-1");
    shows(&tiny, "goodsource", "1.0-1");
    tiny.scan().exits(0).says(&["tiny: nothing new", "vendor: nothing new"]);
    // The same works with the table below [debian].
    let text = tiny.yard.read("kilnyard.toml").replace("[[archive]]", "[[debian.archive]]");
    tiny.yard.configure(&text);
    tiny.scan().exits(0).says(&["vendor: nothing new"]);
    shows(&tiny, "vendorsource", "3-1");
    tiny.yard.run(&["check"]).exits(0).says(&["7 sources checked"]);
}

#[track_caller]
fn is_rejected(ended: Ended, suite: &str) {
    ended.exits(3).says(&[&format!("verify the Release file of {suite}")]);
}

fn keys_stay_apart() {
    let tiny = Tiny::new("keys");
    let second = Second::new(&tiny, "vendor", "", &source("goodsource", "9-1", ""));
    second.configure(&tiny, "\"goodsource\"", "", "pin = 900");
    // The main archive's key is trusted, but not for this archive.
    second.serve(&second.archive, key());
    is_rejected(tiny.scan(), "vendor");
    // Nor is the other archive's key for the main one, which would otherwise be worth most.
    second.serve(&second.archive, &second.key);
    tiny.server.serve(tiny.archive.files_signed_by(&second.key));
    is_rejected(tiny.scan(), "tiny");
    // A mirror of the second archive that sends the main archive's files, signature and all.
    let files = tiny.archive.files().into_iter();
    second.server.serve(files.map(|(path, bytes)| (path.replace("/tiny/", "/vendor/"), bytes)).collect());
    tiny.server.serve(tiny.archive.files());
    is_rejected(tiny.scan(), "vendor");
    assert!(!tiny.yard.path("index/index.json").exists());
    second.serve(&second.archive, &second.key);
    tiny.scan().exits(0);
    shows(&tiny, "goodsource", "9-1");
}

fn a_new_key() {
    let tiny = Tiny::new("new-key");
    let second = Second::new(&tiny, "vendor", "", &source("vendorsource", "1-1", ""));
    second.configure(&tiny, "\"vendorsource\"", "", "");
    tiny.scan().exits(0);
    // Files verified with the old key are verified again, even if the mirror reports no change.
    let other = YardKey::generate("Other <other@example.org>").unwrap();
    std::fs::write(tiny.yard.path("vendor.gpg"), other.public_binary().unwrap()).unwrap();
    is_rejected(tiny.scan(), "vendor");
    second.serve(&second.archive, &other);
    tiny.scan().exits(0).says(&["vendor: a new index"]);
}

fn dates_stay_apart() {
    let tiny = Tiny::new("archive-dates");
    // The suite has the same name as the main archive's.
    let mut second = Second::new(&tiny, "tiny", "", &source("vendorsource", "1-1", ""));
    second.archive.date_seconds = now_seconds() - 30 * DAY;
    second.serve(&second.archive, &second.key);
    second.configure(&tiny, "\"vendorsource\"", "", "name = \"vendor\"");
    tiny.scan().exits(0).says(&["tiny: a new index", "tiny (archive vendor): a new index"]);
    let older = Archive { date_seconds: now_seconds() - 40 * DAY, ..second.archive.clone() };
    second.serve(&older, &second.key);
    tiny.scan().exits(3).says(&["was seen before", "clean --index"]);
    let expired = Archive { valid_until_seconds: Some(now_seconds() - DAY), ..second.archive.clone() };
    second.serve(&expired, &second.key);
    tiny.scan().exits(3).says(&["was valid until"]);
    second.configure(&tiny, "\"vendorsource\"", "", "name = \"vendor\"\ncheck-valid-until = false");
    tiny.scan().exits(0).says(&["warning: ", "was valid until"]);
    shows(&tiny, "vendorsource", "1-1");
}

fn pins_decide() {
    let tiny = Tiny::new("pins");
    let sources = [source("goodsource", "2.0-1", ""), source("round-a", "0.1-1", "")].concat();
    let second = Second::new(&tiny, "vendor", &binary("tool", "9.0-1"), &sources);
    let version = |packages: &str, debian: &str, more: &str, name: &str| {
        second.configure(&tiny, packages, debian, more);
        planned(&tiny).remove(name).unwrap()
    };
    second.configure(&tiny, "\"goodsource\"", "", "");
    tiny.scan().exits(0);
    // Equal pins: the later version; a higher pin wins over a higher version.
    assert_eq!(version("\"goodsource\"", "", "", "goodsource"), "2.0-1");
    assert_eq!(version("\"round-a\"", "", "", "round-a"), "1-1");
    assert_eq!(version("\"round-a\"", "", "pin = 900", "round-a"), "0.1-1");
    assert_eq!(version("\"goodsource\"", "", "pin = 100", "goodsource"), "1.0-1");
    assert_eq!(version("\"goodsource\"", "", "pin = -1", "goodsource"), "1.0-1");
    // A pin of one package precedes both, and the last rule decides.
    assert_eq!(version("\"goodsource/vendor\"", "", "pin = -1", "goodsource"), "2.0-1");
    assert_eq!(version("\"all\"", "pins = [\"goodsource/vendor\"]", "pin = 1", "goodsource"), "2.0-1");
    assert_eq!(version("\"goodsource=1.0-1\"", "", "pin = 900", "goodsource"), "1.0-1");
    let both = "\"goodsource=1.0-1\"";
    assert_eq!(version(both, "pins = [\"goodsource=2.0-1\"]", "pin = 1", "goodsource"), "1.0-1");
    // Binary packages that builds use: a version with a low pin is used only if there is no other.
    assert_eq!(version("\"needs-newer\"", "", "pin = 1", "needs-newer"), "1-1");
    let reason = version("\"needs-newer\"", "", "pin = -1", "needs-newer");
    assert!(reason.contains("needs tool (>= 9)"), "{reason}");
    assert_eq!(version("\"needs-newer\"", "pins = [\"tool/vendor\"]", "pin = -1", "needs-newer"), "1-1");
    let reason = version("\"needs-newer\"", "pins = [\"tool=1.5-1\"]", "pin = 900", "needs-newer");
    assert!(reason.contains("needs tool (>= 9)"), "{reason}");
    // An archive that asks not to be used automatically has a low pin.
    let release = second.archive.clone();
    let text = Archive {
        codename: format!("vendor\nNotAutomatic: yes\nButAutomaticUpgrades: yes\nLabel: {}", "x"),
        ..release
    };
    let text = Archive { date_seconds: text.date_seconds + 60, ..text };
    second.serve(&text, &second.key);
    second.configure(&tiny, "\"goodsource\"", "", "");
    tiny.scan().exits(0).says(&["vendor: a new index"]);
    shows(&tiny, "goodsource", "1.0-1");
    assert_eq!(version("\"goodsource\"", "", "pin = 500", "goodsource"), "2.0-1");
}

fn unmet_pins() {
    let tiny = Tiny::new("unmet");
    let second = Second::new(&tiny, "vendor", "", &source("goodsource", "2.0-1", ""));
    let packages = "\"goodsource=7\", \"round-a/nowhere\", \"round-b/vendor\", \"needs-missing\"";
    second.configure(&tiny, packages, "pins = [\"absent=1\"]", "");
    tiny.scan().exits(0);
    let planned = planned(&tiny);
    assert_eq!(
        planned["goodsource"],
        "no archive has version 7 of goodsource; available: 2.0-1 (vendor), 1.0-1 (tiny)"
    );
    let reason = &planned["round-a"];
    assert!(reason.contains("named nowhere, only tiny, vendor"), "{reason}");
    assert_eq!(planned["round-b"], "vendor has no round-b; available: 1-1 (tiny)");
    assert!(planned["absent"].contains("no archive has version 1 of absent"), "{planned:?}");
    tiny.yard.run(&["why", "goodsource"]).exits(0).says(&["left-out", "2.0-1 (vendor), 1.0-1 (tiny)"]);
    for (packages, debian, words) in [
        ("\"-goodsource=1.0-1\"", "", "excludes one version"),
        ("\"goodsource=\"", "", "neither the name of a source package nor a rule"),
        ("\"goodsource\"", "pins = [\"goodsource\"]", "write NAME=VERSION or NAME/SUITE"),
        ("\"goodsource\"", "pins = [\"../../x/y\"]", "is not a pin"),
    ] {
        second.configure(&tiny, packages, debian, "");
        tiny.yard.run(&["plan"]).exits(2).says(&[words]);
    }
}

fn an_archive_that_left() {
    let tiny = Tiny::new("left");
    let second = Second::new(&tiny, "vendor", "", &source("goodsource", "2.0-1", ""));
    second.configure(&tiny, "\"goodsource\"", "", "");
    tiny.scan().exits(0);
    shows(&tiny, "goodsource", "2.0-1");
    tiny.configure("\"goodsource\"", "");
    shows(&tiny, "goodsource", "1.0-1");
    tiny.scan().exits(0);
    assert!(!tiny.yard.names("index").iter().any(|name| name.contains("vendor")));
}

fn mistakes() {
    let tiny = Tiny::new("tables");
    let second = Second::new(&tiny, "vendor", "", "");
    let rejected = |more: &str, words: &[&str]| {
        second.configure(&tiny, "\"goodsource\"", "", more);
        tiny.yard.run(&["scan"]).exits(2).says(words);
        assert!(!tiny.yard.path("index/index.json").exists());
    };
    rejected("pin = 0", &["[[archive]] 1", "pin is 0"]);
    rejected("pin = 99999", &["from -32767 to 32767"]);
    rejected("name = \"../x\"", &["`../x` is not a valid name"]);
    rejected("name = \"tiny\"", &["tiny is also a suite of [debian]"]);
    rejected("suites = [\"vendor\"]", &["has a suite twice"]);
    rejected("colour = 1", &["unknown field `colour`", "line"]);
    rejected("components = []", &["components is empty"]);
    let again = "[[archive]]\nmirror = \"http://127.0.0.1:1\"\nsuite = \"vendor\"\nkey = \"vendor.gpg\"";
    rejected(again, &["[[archive]] 2", "another archive is also named vendor"]);
    let good = tiny.yard.read("kilnyard.toml").replace(again, "");
    for (from, to, words) in [
        ("key = \"vendor.gpg\"", "", "missing field `key`"),
        ("vendor.gpg", "absent.gpg", "absent.gpg"),
        ("vendor.gpg", "kilnyard.toml", "key in the table [[archive]]"),
        ("suite = \"vendor\"", "", "suite is missing"),
        ("suite = \"vendor\"", "suite = \"../up\"", "not a valid suite"),
    ] {
        tiny.yard.configure(&good.replacen(from, to, 1));
        tiny.yard.run(&["scan"]).exits(2).says(&[words]);
    }
    let other = good.replace("[debian]", "[pkgsrc]");
    tiny.yard.configure(&other);
    tiny.yard
        .run(&["scan"])
        .exits(2)
        .says(&["[[archive]] belongs to [debian], but this is a yard of [pkgsrc]"]);
}

fn init_checks() {
    let tiny = Tiny::new("given");
    let parent = tiny.yard.folder.parent().unwrap();
    let yard = Yard { folder: parent.join("new") };
    let url = tiny.server.url();
    let init = |packages: &[&str]| {
        let arguments = [&["init", "debian", "--release", "tiny", "--mirror", &url], packages].concat();
        let mut command = yard.command(&arguments);
        command.current_dir(parent).output().unwrap().into()
    };
    let write = |name: &str, text: &str| std::fs::write(parent.join(name), text).unwrap();
    write("odd.dsc", "nonsense");
    let listed = format!("Source: x\nVersion: 1\nChecksums-Sha256:\n {HASH} 0 x_1.tar.xz\n");
    write("alone.dsc", &listed);
    write("up.dsc", &listed.replace("x_1.tar.xz", "../x"));
    for (package, words) in [
        ("absent.dsc", "absent.dsc does not exist"),
        ("odd.dsc", "odd.dsc has no usable field Source"),
        ("alone.dsc", "lists x_1.tar.xz, which is not next to it"),
        ("up.dsc", "outside its folder"),
        ("git:absent", "absent is not a git repository"),
        ("git:ext::sh", "remote helpers"),
        ("@absent.txt", "absent.txt, a file of rules, does not exist"),
        ("colour:red", "neither the name of a source package nor a rule"),
        ("-goodsource=1", "excludes one version"),
    ] {
        let ended: Ended = init(&["goodsource", "--", package]);
        ended.exits(2).says(&[words]);
        assert!(!yard.folder.exists(), "{package}: something was written");
    }
    let ended: Ended =
        init(&["goodsource", "godsource", "goodsource=7", "goodsource=1.0-1", "linux/vendor", "lib*"]);
    let ended = ended.exits(0).says(&[
        "note: tiny has no source package godsource: godsource will be left out",
        "note: tiny has goodsource in version 1.0-1 only: goodsource=7 will be left out",
        "made the yard",
    ]);
    assert_eq!(ended.stderr.matches("will be left out").count(), 2, "{}", ended.stderr);
    // A mirror that stalls does not hold init up.
    std::fs::remove_dir_all(&yard.folder).unwrap();
    tiny.server.behave(Archive::SOURCES_PATH, Some(Manner::Drip));
    let ended: Ended = init(&["godsource"]);
    ended.exits(0).says(&["made the yard"]);
    // Paths are those of the folder in which init was run.
    std::fs::remove_dir_all(&yard.folder).unwrap();
    write("x_1.tar.xz", "");
    write("names.txt", "goodsource\n");
    std::fs::create_dir_all(parent.join("repository/.git")).unwrap();
    let ended: Ended = init(&["alone.dsc", "@names.txt", "git:repository#main"]);
    ended.exits(0);
    let config = yard.read("kilnyard.toml");
    for name in ["alone.dsc", "@names.txt", "git:repository#main"] {
        let (kind, path) = name.split_at(name.find([':', '@']).map_or(0, |at| at + 1));
        let absolute = format!("\"{kind}{}\"", parent.join(path).display());
        assert!(config.contains(&absolute), "{absolute}: {config}");
    }
}
