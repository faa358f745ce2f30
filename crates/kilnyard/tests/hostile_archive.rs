//! Trials against an archive that is correctly signed but hostile, or that withholds updates.

mod support;

use kilnyard_sign::YardKey;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use support::archive::{Archive, DAY, key, now_seconds};
use support::server::Server;
use support::tiny::Tiny;
use support::trials::{case, run};
use support::{Ended, Yard, folder, kilnyard};

/// Runs the program with a limit on its address space.
fn within(mebibytes: u64, tiny: &Tiny, arguments: &[&str]) -> Ended {
    let mut command = std::process::Command::new("prlimit");
    command.arg(format!("--as={}", mebibytes << 20)).arg(support::program()).arg("--yard");
    support::quiet(command.arg(&tiny.yard.folder).args(arguments));
    command.output().unwrap().into()
}

fn an_index_that_is_not_text_needs_no_more_memory_than_its_size() {
    const BYTES: usize = 200 << 20;
    let tiny = Tiny::new("bytes");
    let mut packages = tiny.archive.packages.clone().into_bytes();
    packages.extend(b"\nPackage: odd\nVersion: 1\nMaintainer: ");
    packages.resize(packages.len() + BYTES, 0xff);
    tiny.server.serve(tiny.archive.files_with(key(), &packages, true));
    within(300, &tiny, &["scan"]).exits(0).says(&["a new index"]);
    within(1000, &tiny, &["plan"]).exits(0).says(&["goodsource", "1 package to build"]);
}

fn an_index_that_unpacks_beyond_the_limit_is_rejected() {
    let tiny = Tiny::new("bomb");
    tiny.scan().exits(0);
    let before = tiny.index();
    let archive = Archive { date_seconds: tiny.archive.date_seconds + 60, ..tiny.archive.clone() };
    let packages = vec![b'\n'; (256 << 20) + 1];
    for (lists_plain, words) in
        [(true, "the limit is 268435456"), (false, "more than the limit of 268435456")]
    {
        tiny.server.serve(archive.files_with(key(), &packages, lists_plain));
        within(300, &tiny, &["scan"]).exits(3).says(&[words, "main/binary-amd64/Packages"]);
        assert_eq!(tiny.index().1, before.1);
        tiny.yard.run(&["plan"]).exits(0).says(&["goodsource"]);
    }
}

fn an_index_with_too_many_names_is_rejected() {
    let tiny = Tiny::new("names");
    let names: Vec<String> = (0..5_000_000).map(|number| format!("{number:x}a")).collect();
    let packages = format!("Package: aa\nVersion: 1\nProvides: {}\n", names.join(","));
    tiny.server.serve(tiny.archive.files_with(key(), packages.as_bytes(), true));
    tiny.scan().exits(0);
    within(2000, &tiny, &["plan"]).exits(3).says(&["more than 4194304 packages", "fewer suites"]);
}

fn a_frozen_mirror_is_rejected_after_it_expires() {
    let tiny = Tiny::new("frozen");
    let archive = Archive { valid_until_seconds: Some(now_seconds() + 4), ..tiny.archive.clone() };
    tiny.server.serve(archive.files());
    tiny.scan().exits(0).says(&["a new index"]);
    while now_seconds() <= archive.valid_until_seconds.unwrap() {
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    // The mirror says that nothing has changed.
    tiny.scan().exits(3).says(&["was valid until", "check-valid-until = false", "date -u"]);
    assert_eq!(tiny.server.answers(Archive::RELEASE_PATH).last(), Some(&304));
    // The mirror sends the same file again.
    let index = tiny.yard.read("index/index.json");
    let mut value: serde_json::Value = serde_json::from_str(&index).unwrap();
    value["suites"][0]["etag"] = serde_json::Value::Null;
    value["suites"][0]["last_modified"] = serde_json::Value::Null;
    std::fs::write(tiny.yard.path("index/index.json"), value.to_string()).unwrap();
    tiny.scan().exits(3).says(&["was valid until"]);
    assert_eq!(tiny.server.answers(Archive::RELEASE_PATH).last(), Some(&200));
    tiny.yard.run(&["plan"]).exits(0).says(&["goodsource"]);
    // A snapshot is meant to be old.
    let config = tiny.yard.read("kilnyard.toml");
    tiny.yard.configure(&config.replace("[debian]", "[debian]\ncheck-valid-until = false"));
    tiny.scan().exits(0).says(&["warning: ", "was valid until", "nothing new"]);
}

fn a_rollback_is_detected_whatever_else_has_changed() {
    let tiny = Tiny::new("rollback-mirror");
    tiny.scan().exits(0);
    let older = Archive { date_seconds: tiny.archive.date_seconds - 7 * DAY, ..tiny.archive.clone() };
    let other = Server::start(older.files());
    tiny.configure_for("\"goodsource\"", &other.url(), "");
    let before = tiny.index();
    tiny.scan().exits(3).says(&["was seen before", "clean --index"]);
    assert_eq!(tiny.index(), before);
    // The rollback is also detected after another suite was scanned in between.
    let elsewhere = Archive { codename: "other".to_owned(), ..tiny.archive.clone() };
    let mut files = elsewhere.files();
    files = files.into_iter().map(|(path, bytes)| (path.replace("/tiny/", "/other/"), bytes)).collect();
    tiny.server.serve(files);
    tiny.configure("\"goodsource\"", "");
    let config = tiny.yard.read("kilnyard.toml");
    tiny.yard.configure(&config.replace("release = \"tiny\"", "release = \"other\""));
    tiny.scan().exits(0).says(&["other: a new index"]);
    tiny.configure_for("\"goodsource\"", &other.url(), "");
    tiny.scan().exits(3).says(&["was seen before"]);
    tiny.yard.run(&["clean", "--index"]).exits(0);
    tiny.scan().exits(0).says(&["a new index"]);
}

fn invalid_and_future_dates_are_rejected() {
    let tiny = Tiny::new("dates");
    let dated = |text: &str| Archive { date_text: Some(text.to_owned()), ..tiny.archive.clone() };
    let ahead = Archive { date_seconds: now_seconds() + 300 * DAY, ..tiny.archive.clone() };
    for (archive, words) in
        [(dated("some day"), "not a date: `some day`"), (dated(""), "not a date"), (ahead, "in the future")]
    {
        tiny.server.serve(archive.files());
        tiny.scan().exits(3).says(&[words, "the Release file of tiny"]);
    }
    tiny.server.serve(tiny.archive.files());
    tiny.scan().exits(0).says(&["a new index"]);
}

/// Asserts that the output has no characters that control a terminal.
#[track_caller]
fn is_harmless(ended: &Ended) {
    for text in [&ended.stdout, &ended.stderr] {
        let bad = |c: char| (c.is_control() && c != '\n' && c != '\t') || c == '\u{202e}';
        assert!(!text.contains(bad), "{text:?}");
    }
}

fn an_archive_cannot_control_the_terminal() {
    let tiny = Tiny::new("escapes");
    let escape = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{202e}\0";
    let mut archive = tiny.archive.clone();
    archive.sources.push_str(&format!(
        "\nPackage: odd\nVersion: 1{escape}\nArchitecture: any\nBuild-Depends: tool\n\n\
         Package: hostile\nVersion: 1-1\nArchitecture: any\nBuild-Depends: tool {escape}\n\
         Directory: pool/{escape}\nChecksums-Sha256:\n {} 0 x.dsc\n",
        "e".repeat(64)
    ));
    tiny.server.serve(archive.files());
    tiny.configure("\"goodsource\", \"hostile\", \"odd\"", "");
    tiny.scan().exits(0);
    for arguments in [
        &["plan"][..],
        &["plan", "--all"],
        &["why", "hostile"],
        &["why", "hostile", "--json"],
        &["check"],
        &["check", "--json"],
        &["build", "--dry-run"],
    ] {
        let ended = tiny.yard.run(arguments).exits(0).says(&["hostile"]);
        is_harmless(&ended);
    }
    let ended = tiny.yard.run(&["why", "hostile"]).exits(0).says(&["\\u{1b}[2J"]);
    is_harmless(&ended);
    let named = Archive { codename: format!("other{escape}"), ..tiny.archive.clone() };
    tiny.server.serve(named.files());
    let ended = tiny.scan().exits(3).says(&["the mirror sent other"]);
    is_harmless(&ended);
}

/// Collects the files below a folder that other users of the machine can read.
fn readable_files(folder: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let metadata = entry.metadata().unwrap();
        let mode = metadata.permissions().mode();
        if metadata.is_dir() && mode & 0o001 != 0 {
            readable_files(&entry.path(), files);
        } else if metadata.is_file() && mode & 0o004 != 0 {
            files.push(entry.path());
        }
    }
}

fn the_password_of_a_mirror_is_never_shown() {
    const PASSWORD: &str = "s3cr3t-word";
    let tiny = Tiny::new("password");
    let mirror = tiny.server.url().replace("http://", &format!("http://me:{PASSWORD}@"));
    tiny.configure_for("\"goodsource\"", &mirror, "");
    let silent = |ended: Ended| {
        assert!(!ended.stdout.contains(PASSWORD) && !ended.stderr.contains(PASSWORD), "{ended:?}");
        ended
    };
    silent(tiny.scan()).exits(0);
    silent(tiny.yard.run(&["plan", "--json"])).exits(0);
    silent(tiny.yard.run(&["doctor"]));
    let stranger = YardKey::generate("Stranger <stranger@example.org>").unwrap();
    let newer = Archive { date_seconds: tiny.archive.date_seconds + 60, ..tiny.archive.clone() };
    tiny.server.serve(newer.files_signed_by(&stranger));
    silent(tiny.scan()).exits(3).says(&["verify the Release file of tiny from http://***@127.0.0.1"]);
    tiny.server.serve(std::collections::BTreeMap::new());
    silent(tiny.scan()).exits(3).says(&["status 404"]);
    // If the host cannot be parsed, it is unknown which part of the URL is a password.
    for bad in [format!("gopher://me:{PASSWORD}@h/x"), format!("http://me:a/{PASSWORD}@h/x")] {
        tiny.configure_for("\"goodsource\"", &bad, "");
        silent(tiny.scan()).exits(2).says(&["mirror"]);
    }
    let nowhere = format!("http://me:{PASSWORD}@127.0.0.1:1/debian");
    tiny.configure_for("\"goodsource\"", &nowhere, "");
    silent(tiny.scan()).exits(3);
    let mut files = Vec::new();
    readable_files(&tiny.yard.folder, &mut files);
    files.retain(|path| !path.ends_with("kilnyard.toml"));
    assert!(files.iter().any(|path| path.ends_with("index/index.json")), "{files:?}");
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        let is_in = bytes.windows(PASSWORD.len()).any(|window| window == PASSWORD.as_bytes());
        assert!(!is_in, "{}", file.display());
    }
    let folder = folder("password-init");
    let yard = Yard { folder: folder.path().join("yard") };
    let made = yard.run(&["init", "debian", "--release", "tiny", "--mirror", &nowhere, "goodsource"]);
    silent(made).exits(0).says(&["made the yard"]);
    let mode = std::fs::metadata(yard.path("kilnyard.toml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0);
    silent(kilnyard(&["--yard", yard.folder.to_str().unwrap(), "scan"])).exits(3);
}

fn main() {
    macro_rules! cases {
        ($($name:ident),* $(,)?) => { vec![$(case(stringify!($name), $name)),*] };
    }
    let cases = cases![
        an_index_that_is_not_text_needs_no_more_memory_than_its_size,
        an_index_that_unpacks_beyond_the_limit_is_rejected,
        an_index_with_too_many_names_is_rejected,
        a_frozen_mirror_is_rejected_after_it_expires,
        a_rollback_is_detected_whatever_else_has_changed,
        invalid_and_future_dates_are_rejected,
        an_archive_cannot_control_the_terminal,
        the_password_of_a_mirror_is_never_shown,
    ];
    run(cases, 2, || {});
}
