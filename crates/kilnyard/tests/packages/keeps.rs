//! Kept work: a package that make builds incrementally, with sources whose times say nothing.

use crate::fixtures::{Fixture, Packages, Shared, Trial, run, slow, unpacked};
use crate::support::farm::{Far, Served, connected};
use crate::support::{Yard, until};
use std::fs;
use std::os::unix::fs::MetadataExt;

pub const CASES: &[Trial] = &[
    ("kept_work_builds_what_has_changed_whatever_its_time", incremental),
    ("kept_work_is_not_used_where_a_build_starts_from_scratch", from_scratch),
    ("kept_work_of_a_hostile_build_stays_in_its_archive", hostile),
    ("workers_on_other_machines_keep_work_too", elsewhere),
    ("a_killed_build_leaves_a_whole_archive_or_none", killed),
];

/// Two objects, and a program of both.
const MAKEFILE: &str = "obj/app: obj/one.o obj/two.o\n\tcat $^ > $@\n\
                        obj/%.o: %.c\n\t@mkdir -p obj; echo compiled $<\n\t! grep broken $<\n\tcp $< $@\n";

type Files = &'static [(&'static str, &'static str)];

const FIRST: Files = &[("one.c", "1"), ("two.c", "2"), ("app.mk", MAKEFILE)];
/// Of the same size as before, and of the same time.
const ONE_CHANGED: Files = &[("one.c", "3"), ("two.c", "2"), ("app.mk", MAKEFILE)];
const BROKEN: Files = &[("one.c", "3"), ("two.c", "broken"), ("app.mk", MAKEFILE)];
const FIXED: Files = &[("one.c", "3"), ("two.c", "4"), ("app.mk", MAKEFILE)];

fn app() -> Fixture {
    Fixture {
        files: FIRST,
        binary: "cp obj/app debian/tmp/usr/share/app/",
        ..slow("app", "$(MAKE) -f app.mk obj/app")
    }
}

/// A yard whose packages keep this folder.
fn yard(shared: &Shared, name: &str, fixtures: &[Fixture]) -> Yard {
    let yard = shared.yard(name, fixtures);
    let config = yard.read("kilnyard.toml");
    let config = config.replace("# kept = \"20G\"", "kept = \"8M\" #");
    assert!(config.contains("kept = \"8M\""), "{config}");
    fs::write(yard.path("kilnyard.toml"), config + "\n[package.\"*\"]\nkeep = [\"obj\"]\n").unwrap();
    yard
}

/// The sources that the last build compiled.
fn compiled(yard: &Yard) -> Vec<String> {
    let log = yard.run(&["log", "app", "build", "--all"]).exits(0).stdout;
    log.lines().filter_map(|line| line.strip_prefix("compiled ")).map(str::to_owned).collect()
}

fn archives(yard: &Yard) -> Vec<String> {
    yard.names("kept")
}

fn incremental(shared: &Shared) {
    let yard = yard(shared, "kept", &[app()]);
    yard.build().exits(0);
    assert_eq!(compiled(&yard), ["one.c", "two.c"]);
    yard.run(&["log", "app", "collect"]).exits(0).says(&["work kept for the next build: "]);
    assert_eq!(archives(&yard).len(), 1);
    let changed = app().change(&yard, "1.1", |fixture| Fixture { files: ONE_CHANGED, ..fixture });
    yard.build().exits(0);
    assert_eq!(compiled(&yard), ["one.c"]);
    assert_eq!(unpacked(shared, &yard, "app", "usr/share/app/app"), "32");
    yard.run(&["log", "app", "build", "--all"]).exits(0).says(&["kept work of build 1 was put back"]);
    let said = "began with kept work of build 1; files of the source that had changed: 1";
    yard.run(&["why", "app"]).exits(0).says(&[said]);
    let why = yard.json(&["why", "app", "--json"]);
    assert_eq!(why["build"]["kept"], serde_json::json!({ "build": 1, "changed_files": 1 }), "{why}");
    yard.run(&["history", "app", "--stages"]).exits(0).says(&["kept work of build 1"]);
    // The objects that were not built again count, too.
    let fixed = changed.change(&yard, "1.2", |fixture| Fixture { files: FIXED, ..fixture });
    yard.build().exits(0);
    assert_eq!(compiled(&yard), ["two.c"]);
    assert_eq!(unpacked(shared, &yard, "app", "usr/share/app/app"), "34");
    // A file that is gone.
    let without: Files = &[("one.c", "3"), ("app.mk", "obj/app:\n\tmkdir -p obj; cp one.c $@\n")];
    fixed.change(&yard, "1.3", |fixture| Fixture { files: without, ..fixture });
    yard.build().exits(0);
    assert_eq!(unpacked(shared, &yard, "app", "usr/share/app/app"), "3");
    yard.run(&["log", "app", "build", "--all"]).exits(0).says(&["1 files of the source are gone"]);
    // Another option.
    let config = yard.read("kilnyard.toml") + "options = [\"nostrip\"]\n";
    fs::write(yard.path("kilnyard.toml"), config).unwrap();
    yard.build().exits(0);
    assert!(!yard.run(&["log", "app", "build", "--all"]).exits(0).stdout.contains("kept work"));
    assert_eq!(archives(&yard).len(), 1);
    yard.run(&["clean", "--kept"]).exits(0).says(&["kept work of a package"]);
    assert_eq!(archives(&yard).len(), 0);
    assert!(yard.is_clean());
}

fn from_scratch(shared: &Shared) {
    let yard = yard(shared, "kept-not", &[app()]);
    yard.build().exits(0);
    yard.run(&["build", "--no-scan", "--force", "app"]).exits(0);
    assert_eq!(compiled(&yard), ["one.c", "two.c"], "it was forced");
    let before = archives(&yard);
    assert_eq!(before.len(), 1);
    // A comparison neither uses nor leaves any.
    yard.run(&["build", "--no-scan", "--check-reproducible", "app"]).exits(0);
    assert_eq!(compiled(&yard), ["one.c", "two.c"], "it is compared");
    assert_eq!(archives(&yard), before);
    // A failure with kept work is repeated without, and drops it.
    let broken = app().change(&yard, "1.1", |fixture| Fixture { files: BROKEN, ..fixture });
    yard.build().exits(1);
    assert_eq!(compiled(&yard), ["one.c", "two.c"], "it was repeated");
    assert!(archives(&yard).is_empty());
    assert!(yard.names("roots").iter().any(|name| name.starts_with("failed-")), "{:?}", yard.names("roots"));
    broken.change(&yard, "1.2", |fixture| Fixture { files: FIXED, ..fixture });
    yard.build().exits(0);
    assert_eq!(compiled(&yard), ["one.c", "two.c"], "nothing was kept");
    assert_eq!(archives(&yard).len(), 1);
    // With recipes that build on what a failed build left, nothing is lost.
    assert!(yard.is_clean());
}

/// Everything that an archive could use to get out, and more than may be kept.
const HOSTILE: &str = "mkdir -p obj; ls -l obj > listing\n\
    ln -sf /etc/passwd obj/passwd; ln -sfn ../../../../.. obj/up; ln -sf $$PWD/debian obj/debian\n\
    [ -e obj/fifo ] || mkfifo obj/fifo\n\
    cp /bin/true obj/true; chmod 6755 obj/true; touch obj/linked; ln -f obj/linked obj/hard\n\
    touch \"$$(printf 'obj/two\\nlines')\" obj/-rf\n\
    perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); bind(S, sockaddr_un(\"obj/socket\"))'";

fn hostile(shared: &Shared) {
    let outside = || (fs::read("/etc/passwd").unwrap(), fs::symlink_metadata("/etc/passwd").unwrap().ino());
    let before = outside();
    let large = slow("large", "mkdir obj; head -c 9M /dev/zero > obj/zeros");
    let linked = slow("linked", "ln -s /etc obj");
    let unreadable = slow("unreadable", "mkdir obj; touch obj/one; chmod 0 obj/one");
    let first = slow("hostile", HOSTILE);
    let yard = yard(shared, "kept-hostile", &[first.clone(), large, linked, unreadable]);
    yard.build().exits(0);
    let log = |package: &str, stage: &str| yard.run(&["log", package, stage, "--all"]).exits(0);
    log("large", "collect").says(&["no work is kept: it has more than 8388608 bytes"]);
    log("linked", "collect").says(&["no work is kept: the build left none of the folders"]);
    log("unreadable", "collect").says(&["no work is kept: packing it failed with status 2"]);
    let kept = archives(&yard);
    let [archive] = &kept[..] else { panic!("{kept:?}") };
    let facts = fs::symlink_metadata(yard.path("kept").join(archive)).unwrap();
    assert!(facts.is_file() && facts.mode() & 0o7022 == 0, "{facts:?}");
    // The next build gets it, in a root.
    first.change(&yard, "1.1", |fixture| Fixture { content: "other", ..fixture });
    yard.build().exits(0);
    log("hostile", "build").says(&["kept work of build "]);
    assert_eq!(outside(), before);
    let names = run(&yard.path("kept"), "find", &[".", "-mindepth", "1", "!", "-type", "f"]).stdout;
    assert_eq!(names, "", "only archives");
    // Rubbish in place of the archive.
    let kept = archives(&yard);
    fs::write(yard.path("kept").join(&kept[0]), "rubbish").unwrap();
    first.change(&yard, "1.1", |fixture| fixture);
    let config = yard.read("kilnyard.toml").replace("hostile_1.1.dsc", "hostile_1.2.dsc");
    Fixture { version: Some("1.2"), ..first }.write(&yard.folder);
    fs::write(yard.path("kilnyard.toml"), config).unwrap();
    yard.build().exits(0);
    log("hostile", "build").says(&["is not used: it cannot be unpacked"]);
    assert!(yard.is_clean());
}

fn killed(shared: &Shared) {
    // Packing takes a while.
    let build = "mkdir -p obj; head -c 7M /dev/urandom > obj/data; seq 5000 | split -l 1 -a 5 - obj/part-";
    let first = slow("app", build);
    let yard = yard(shared, "kept-killed", &[first]);
    let mut builds = yard.begin(&[]);
    until("it packs", || !archives(&yard).is_empty());
    builds.kill().unwrap();
    builds.wait().unwrap();
    let left = archives(&yard);
    yard.build().exits(0);
    let now = archives(&yard);
    assert!(now.iter().all(|name| name.ends_with(".tar")) && now.len() <= 1, "{left:?} {now:?}");
    assert!(yard.is_clean());
}

fn elsewhere(shared: &Shared) {
    let yard = yard(shared, "kept-far", &[app()]);
    let served = Served::start(&yard);
    let mut far = Far::join(&shared.path("workers"), &yard, &served, "far");
    yard.run(&["build", "--no-scan", "--elsewhere"]).exits(0);
    let kept = fs::read_dir(far.folder.join("worker/kept")).unwrap().count();
    assert_eq!((kept, archives(&yard).len()), (1, 0), "{}", far.said());
    // It survives its worker.
    far.signal(libc::SIGKILL);
    far.start(&yard, &[]);
    app().change(&yard, "1.1", |fixture| Fixture { files: ONE_CHANGED, ..fixture });
    // The yard's own machine waits until it is there, and leaves it the package.
    until("the worker is connected", || connected(&yard).contains("far"));
    yard.run(&["build", "--no-scan"]).exits(0);
    assert_eq!(compiled(&yard), ["one.c"]);
    yard.run(&["why", "app"]).exits(0).says(&["it began with kept work of build 1; "]);
    drop(served);
}
