//! Trials of typical first mistakes: each error names the problem and the remedy, and appears immediately.

mod support;

use support::archive::Archive;
use support::tiny::Tiny;
use support::trials::{case, run};
use support::{Ended, Yard, folder};

fn an_unknown_release_is_reported_with_a_working_hint() {
    let tiny = Tiny::new("misspelled");
    let good = tiny.yard.read("kilnyard.toml");
    let wrong = good.replace("release = \"tiny\"", "release = \"tyni\"");
    tiny.yard.configure(&wrong);
    let ended = tiny.scan().exits(3).says(&["status 404", "the mirror has no tyni", "codename"]);
    assert!(!ended.stderr.contains("--no-scan"), "{}", ended.stderr);
    tiny.yard.configure(&good);
    tiny.scan().exits(0);
    tiny.yard.configure(&wrong);
    tiny.scan().exits(3).says(&["the mirror has no tyni", "build --no-scan"]);
    // One file of the release is missing.
    let newer = Archive { date_seconds: tiny.archive.date_seconds + 60, ..tiny.archive.clone() };
    let mut files = newer.files_with(support::archive::key(), b"Package: other\nVersion: 1\n", true);
    files.remove(Archive::PACKAGES_PATH);
    tiny.server.serve(files);
    tiny.yard.configure(&good);
    tiny.scan().exits(3).says(&["status 404", "being updated"]);
}

fn init_rejects_names_that_cannot_be_built() {
    let tiny = Tiny::new("init-checks");
    let folder = folder("init-checks");
    let yard = Yard { folder: folder.path().join("yard") };
    let mirror = tiny.server.url();
    let init = |release: &str, packages: &[&str]| -> Ended {
        let mut words = vec!["init", "debian", "--release", release, "--mirror", &mirror];
        words.extend(packages);
        yard.run(&words)
    };
    init("tyni", &["goodsource"]).exits(2).says(&["has no release tyni", "codename"]);
    init("tiny", &["absent.dsc"]).exits(2).says(&["absent.dsc does not exist"]);
    init("tiny", &[]).exits(2).says(&["PACKAGE"]);
    init("tiny", &["Good Source"]).exits(2).says(&["`Good Source` is neither", "depends-on:"]);
    init("tiny", &["colour:red"]).exits(2).says(&["`colour:red` is neither"]);
    assert!(!yard.folder.exists());
    init("tiny", &["all"]).exits(0).says(&["made the yard"]);
    assert!(yard.read("kilnyard.toml").contains("\npackages = \"all\"\n"));
    let keyring = tiny.yard.folder.parent().unwrap().join("keyring.gpg");
    let config = yard.read("kilnyard.toml");
    let keyring = format!("[debian]\narchitecture = \"amd64\"\nkeyring = \"{}\"", keyring.display());
    yard.configure(&config.replace("[debian]", &keyring));
    yard.run(&["plan"]).exits(0).says(&["goodsource", "3 left out"]);
}

fn init_of_a_tree_checks_the_mirror_for_the_release_of_its_roots() {
    let tiny = Tiny::new("init-tree");
    let folder = folder("init-tree");
    std::fs::create_dir_all(folder.path().join("tree/mk")).unwrap();
    let tree = folder.path().join("tree").display().to_string();
    let yard = Yard { folder: folder.path().join("yard") };
    let init = |release: &str, mirror: &str| {
        yard.run(&["init", "pkgsrc", "--tree", &tree, "--release", release, "--mirror", mirror])
    };
    let url = tiny.server.url();
    init("tyni", &url).exits(2).says(&[
        &format!("the mirror {url} has no release tyni"),
        "--release with a codename, such as bookworm",
    ]);
    // Mistakes that need no mirror to detect are reported first.
    init("a b", &url).exits(2).says(&["a b"]);
    assert!(!yard.folder.exists(), "a rejected init left something behind");
    let made = init("tiny", &url).exits(0).says(&["made the yard"]);
    assert!(!made.stderr.contains("could not check"), "{}", made.stderr);
    let text = yard.read("kilnyard.toml");
    assert!(text.contains("\nrelease = \"tiny\"\n") && text.contains(&url), "{text}");
    // A yard can be made without a network.
    std::fs::remove_dir_all(&yard.folder).unwrap();
    let nowhere = "http://127.0.0.1:1/debian";
    init("tyni", nowhere)
        .exits(0)
        .says(&[&format!("note: could not check whether {nowhere} has tyni"), "made the yard"]);
    assert!(yard.read("kilnyard.toml").contains("\nrelease = \"tyni\"\n"));
}

fn all_and_no_packages_are_valid_sets() {
    let tiny = Tiny::new("all");
    tiny.scan().exits(0);
    let good = tiny.yard.read("kilnyard.toml");
    let with = |packages: &str| {
        tiny.yard.configure(&good.replace("packages = [\"goodsource\"]", packages));
        tiny.yard.run(&["plan"])
    };
    std::fs::write(tiny.yard.path("names"), "all\n").unwrap();
    with("packages = [\"all\"]").exits(0).says(&["goodsource", "3 left out"]);
    with("packages-file = \"names\"").exits(0).says(&["goodsource", "3 left out"]);
    with("packages = \"all\"\npackages-file = \"names\"").exits(2).says(&["remove one of them"]);
    with("packages = []").exits(0).says(&["names no packages", "0 packages to build"]);
    with("packages = \"all\"").exits(0).says(&["goodsource", "3 left out"]);
}

fn a_missing_source_does_not_affect_the_others() {
    let tiny = Tiny::new("absent-dsc");
    tiny.configure("\"absent.dsc\", \"goodsource\"", "");
    let plan = tiny.yard.run(&["plan"]).exits(0);
    plan.says(&["left-out   absent ", "absent.dsc", "No such file", "1 package to build", "1 left out"]);
    tiny.yard.run(&["why", "absent"]).exits(0).says(&["left-out", "No such file"]);
}

fn a_query_on_a_new_yard_scans_it() {
    for question in [&["plan"][..], &["plan", "--json"], &["check"], &["why", "goodsource"]] {
        let tiny = Tiny::new("unscanned");
        tiny.yard.run(question).exits(0).says(&["fetching main/source/Sources"]);
        assert_eq!(tiny.index().0.len(), 4, "{:?}", tiny.index().0);
    }
}

fn an_unknown_package_is_rejected_before_the_base_root_is_made() {
    let tiny = Tiny::new("helo");
    for name in ["helo", "needs-missing"] {
        let ended = tiny.yard.run(&["build", name]).exits(2).says(&[name]);
        assert!(!ended.stderr.contains("base root"), "{}", ended.stderr);
    }
    assert!(!tiny.yard.path("logs/base.log").exists());
}

fn check_prints_the_profiles_that_it_uses() {
    let tiny = Tiny::new("profiles");
    let mut archive = tiny.archive.clone();
    let hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    archive.sources.push_str(&format!(
        "\nPackage: tested\nVersion: 1-1\nArchitecture: any\nBuild-Depends: nowhere-test <!nocheck>\n\
         Directory: pool\nChecksums-Sha256:\n {hash} 0 tested_1-1.dsc\n"
    ));
    tiny.server.serve(archive.files());
    let bad = |arguments: &[&str]| {
        let json = tiny.yard.run(arguments).exits(0).json();
        (json["unbuildable"].as_array().unwrap().len(), json["profiles"].clone())
    };
    assert_eq!(bad(&["check", "--json"]), (3, serde_json::json!(["nocheck"])));
    assert_eq!(bad(&["check", "--json", "--checks"]), (4, serde_json::json!([])));
    tiny.yard.run(&["check"]).exits(0).says(&[
        "3 sources cannot be built",
        "build profiles nocheck",
        "--checks",
    ]);
    let ended = tiny.yard.run(&["check", "--checks"]).exits(0);
    ended.says(&["4 sources cannot be built", "nowhere-test", "without build profiles"]);
    tiny.configure_for("\"goodsource\"", &tiny.server.url(), "");
    let config = tiny.yard.read("kilnyard.toml");
    tiny.yard.configure(&config.replace("[debian]", "[debian]\nprofiles = [\"nodoc\", \"nocheck\"]"));
    assert_eq!(bad(&["check", "--json", "--checks"]), (4, serde_json::json!(["nodoc"])));
}

fn main() {
    macro_rules! cases {
        ($($name:ident),* $(,)?) => { vec![$(case(stringify!($name), $name)),*] };
    }
    let cases = cases![
        an_unknown_release_is_reported_with_a_working_hint,
        init_rejects_names_that_cannot_be_built,
        init_of_a_tree_checks_the_mirror_for_the_release_of_its_roots,
        all_and_no_packages_are_valid_sets,
        a_missing_source_does_not_affect_the_others,
        a_query_on_a_new_yard_scans_it,
        an_unknown_package_is_rejected_before_the_base_root_is_made,
        check_prints_the_profiles_that_it_uses,
    ];
    run(cases, 4, || {});
}
