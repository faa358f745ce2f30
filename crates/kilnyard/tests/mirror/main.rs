//! Trials against a mirror: scans, plans and explanations, without a root and without privileges.
//!
//! Each trial asserts the exit code, that the message names the problem, and that the same command works afterwards
//! with all earlier data.

#[path = "../support/mod.rs"]
mod support;

mod site;

use kilnyard_sign::YardKey;
use support::archive::{Archive, DAY, now_seconds};
use support::server::{Manner, Server};
use support::tiny::Tiny;
use support::trials::{Case, case, run};
use support::{Ended, Yard, folder, has, is_root, kilnyard, until};

fn an_honest_mirror_is_scanned_and_then_has_nothing_new() {
    let tiny = Tiny::new("honest");
    tiny.scan().exits(0).says(&["tiny: a new index"]);
    let before = tiny.index();
    tiny.scan().exits(0).says(&["tiny: nothing new"]);
    assert_eq!(tiny.index(), before);
    assert_eq!(tiny.server.answers(Archive::RELEASE_PATH), [200, 304]);
    assert_eq!(tiny.server.answers(Archive::PACKAGES_PATH), [200]);
    let json = tiny.yard.run(&["scan", "--json"]).exits(0).json();
    assert_eq!(json["unchanged"], serde_json::json!(["tiny"]));
    let mut newer = tiny.archive.clone();
    newer.packages.push_str("\nPackage: newcomer\nVersion: 1\nArchitecture: amd64\n");
    newer.date_seconds += 60;
    tiny.server.serve(newer.files());
    tiny.scan().exits(0).says(&["tiny: a new index"]);
    assert_eq!(tiny.server.answers(Archive::SOURCES_PATH), [200]);
}

fn an_unreachable_mirror_is_reported() {
    let tiny = Tiny::new("unreachable");
    // No process listens on a port that was just released.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let nowhere = format!("http://127.0.0.1:{port}");
    let spoil = |tiny: &Tiny| tiny.configure_for("\"goodsource\"", &nowhere, "");
    // The mirror differs from that of the index: the plan still uses the existing index.
    tiny.survives(spoil, &[&nowhere, " doctor"]);
}

fn a_signature_by_an_unknown_key_is_rejected() {
    let tiny = Tiny::new("stranger");
    let stranger = YardKey::generate("Stranger <stranger@example.org>").unwrap();
    let mut archive = tiny.archive.clone();
    archive.date_seconds += 60;
    let spoil = |tiny: &Tiny| tiny.server.serve(archive.files_signed_by(&stranger));
    tiny.survives(spoil, &["verify the Release file of tiny", &tiny.server.url()]);
}

fn a_changed_release_file_is_rejected() {
    let tiny = Tiny::new("tampered");
    let spoil = |tiny: &Tiny| {
        tiny.server.change(Archive::RELEASE_PATH, |bytes| {
            let text = String::from_utf8(std::mem::take(bytes)).unwrap();
            *bytes = text.replace("Origin: Tiny", "Origin: Tidy").into_bytes();
        });
    };
    tiny.survives(spoil, &["verify the Release file of tiny"]);
}

/// A newer archive, so that its index is fetched.
fn newer(tiny: &Tiny) -> Archive {
    let mut archive = tiny.archive.clone();
    archive.date_seconds += 60;
    archive.packages.push_str("\nPackage: later\nVersion: 1\nArchitecture: amd64\n");
    archive
}

fn an_index_with_another_hash_is_rejected() {
    let tiny = Tiny::new("hash");
    let spoil = |tiny: &Tiny| {
        tiny.server.serve(newer(tiny).files());
        tiny.server.change(Archive::PACKAGES_PATH, |bytes| *bytes.last_mut().unwrap() ^= 1);
    };
    tiny.survives(spoil, &["main/binary-amd64/Packages.xz"]);
}

fn a_truncated_index_is_rejected() {
    let tiny = Tiny::new("truncated");
    let spoil = |tiny: &Tiny| {
        tiny.server.serve(newer(tiny).files());
        tiny.server.behave(Archive::PACKAGES_PATH, Some(Manner::Truncate(100)));
    };
    tiny.survives(spoil, &["main/binary-amd64/Packages.xz", "100 bytes"]);
}

fn a_mirror_that_stalls_gives_way_to_the_next() {
    let tiny = Tiny::new("stalls");
    let stalled = Server::start(tiny.archive.files());
    stalled.behave(Archive::PACKAGES_PATH, Some(Manner::Drip));
    tiny.configure("\"goodsource\"", "mirror-bytes-per-second-min = 100000");
    let both = format!("mirror = [\"{}\", \"{}\"]", stalled.url(), tiny.server.url());
    let one = format!("mirror = \"{}\"", tiny.server.url());
    tiny.yard.configure(&tiny.yard.read("kilnyard.toml").replace(&one, &both));
    tiny.scan().exits(0).says(&["tiny: a new index"]);
    assert_eq!(stalled.answers(Archive::PACKAGES_PATH), [200]);
    assert_eq!(tiny.server.answers(Archive::PACKAGES_PATH).len(), 1);
    tiny.yard.run(&["plan"]).exits(0).says(&["goodsource"]);
}

fn another_suite_is_rejected() {
    let tiny = Tiny::new("suite");
    let spoil = |tiny: &Tiny| {
        let archive = Archive { codename: "other".to_owned(), ..newer(tiny) };
        tiny.server.serve(archive.files());
    };
    tiny.survives(spoil, &["the mirror sent other", "instead of tiny"]);
}

fn an_expired_release_file_is_rejected() {
    let tiny = Tiny::new("expired");
    let spoil = |tiny: &Tiny| {
        let archive = Archive { valid_until_seconds: Some(now_seconds() - DAY / 2), ..newer(tiny) };
        tiny.server.serve(archive.files());
    };
    tiny.survives(spoil, &["was valid until", "clock"]);
}

fn an_older_state_is_rejected() {
    let tiny = Tiny::new("rollback");
    let spoil = |tiny: &Tiny| {
        let archive = Archive { date_seconds: tiny.archive.date_seconds - 7 * DAY, ..newer(tiny) };
        tiny.server.serve(archive.files());
    };
    tiny.survives(spoil, &["was seen before", "clean --index"]);
}

fn a_set_follows_from_rules() {
    let tiny = Tiny::new("rules");
    let names = |rules: &str| {
        tiny.configure(rules, "");
        let plan = tiny.yard.run(&["plan", "--json"]).exits(0).json();
        let rows = plan["packages"].as_array().unwrap().iter();
        let mut names: Vec<String> = rows.map(|row| row["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names.join(" ")
    };
    tiny.scan().exits(0);
    let all = names("\"all\"");
    assert_eq!(all, names("\"needs-*\", \"[gr]*\""));
    assert_eq!(names("\"all\", \"-needs-*\", \"-round-?\""), "goodsource");
    assert_eq!(names("\"all\", \"-all\", \"round-b\""), "round-b");
    // Directly, and through the archive's packages.
    assert_eq!(names("\"build-depends:round-a-bin\""), "round-b");
    assert_eq!(names("\"depends-on:round-a\""), "round-b");
    std::fs::write(tiny.yard.path("machine.list"), "ii  round-a-bin 1-1 amd64 a\nii  elsewhere 1 amd64 b\n")
        .unwrap();
    assert_eq!(names("\"installed:*.list\""), "round-a");
    std::fs::write(tiny.yard.path("names.txt"), "goodsource # a comment\n-round-a\n").unwrap();
    assert_eq!(names("\"round-*\", \"@names.txt\""), "goodsource round-b");
    // The list is an input of the plan.
    std::fs::write(tiny.yard.path("machine.list"), "goodsource-bin\n").unwrap();
    names("\"round-b\", \"installed:*.list\"");
    // A rule that selects nothing is left out with its reason, and takes nothing with it.
    tiny.configure("\"round-b\", \"own/*.dsc\", \"lib*\", \"section:nowhere\", \"absent.dsc\"", "");
    let plan = tiny.yard.run(&["plan"]).exits(0);
    plan.says(&["no file has a name like this", "no source is in this section", "absent.dsc", "4 left out"]);
    tiny.configure("\"colour:red\"", "");
    tiny.yard.run(&["plan"]).exits(2).says(&["`colour:red` is neither", "depends-on:"]);
    tiny.configure("\"@/dev/zero\"", "");
    tiny.yard.run(&["plan"]).exits(2).says(&["not a regular file"]);
}

fn left_out(tiny: &Tiny, package: &str) -> String {
    let plan = tiny.yard.run(&["plan", "--json"]).exits(0).json();
    let rows = plan["packages"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == package).expect("it is in the plan");
    assert_eq!(row["state"], "left-out", "{row}");
    let why = tiny.yard.run(&["why", package]).exits(0).says(&["left-out"]);
    let reason = row["reason"].as_str().unwrap().to_owned();
    for line in reason.lines() {
        assert!(why.stdout.contains(line.trim()), "{}", why.stdout);
    }
    reason
}

fn a_similar_name_is_suggested() {
    let tiny = Tiny::new("near");
    tiny.configure("\"goodsorce\", \"goodsource\"", "");
    tiny.scan().exits(0);
    let reason = left_out(&tiny, "goodsorce");
    assert!(reason.contains("did you mean goodsource?"), "{reason}");
    tiny.yard.run(&["plan"]).exits(0).says(&["did you mean goodsource?", "1 package to build", "1 left out"]);
    tiny.yard.run(&["why", "godsource"]).exits(2).says(&["godsource is not a package", "goodsource"]);
}

fn an_impossible_build_dependency_is_explained() {
    let tiny = Tiny::new("impossible");
    tiny.configure("\"needs-missing\", \"needs-newer\", \"needs-both\", \"goodsource\"", "");
    tiny.scan().exits(0);
    let reason = left_out(&tiny, "needs-missing");
    assert!(reason.contains("needs-missing (source) needs nowhere-dev"), "{reason}");
    let reason = left_out(&tiny, "needs-newer");
    assert!(reason.contains("needs tool (>= 9)") && reason.contains("1.5-1"), "{reason}");
    let reason = left_out(&tiny, "needs-both");
    assert!(
        reason.contains("left") && reason.contains("right") && reason.contains("conflicts with"),
        "{reason}"
    );
    tiny.yard.run(&["plan"]).exits(0).says(&["1 package to build", "3 left out"]);
}

fn check_finds_unbuildable_sources_in_the_whole_release() {
    let tiny = Tiny::new("check");
    tiny.scan().exits(0);
    let json = tiny.yard.run(&["check", "--json"]).exits(0).json();
    assert_eq!(json["checked"], 6);
    let bad = json["unbuildable"].as_array().unwrap();
    let mut names: Vec<&str> = bad.iter().map(|one| one["package"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["needs-both", "needs-missing", "needs-newer"]);
    tiny.yard.run(&["check"]).exits(0).says(&["needs nowhere-dev", "3 sources cannot be built"]);
}

fn a_cycle_is_reported_and_cut() {
    let tiny = Tiny::new("cycle");
    tiny.configure("\"round-a\", \"round-b\"", "");
    tiny.scan().exits(0);
    tiny.yard.run(&["plan"]).exits(0).says(&["cycle cut: round-", "2 packages to build"]);
    let json = tiny.yard.run(&["plan", "--json"]).exits(0).json();
    let cuts = json["cycles_cut"].as_array().unwrap();
    assert_eq!(cuts.len(), 1);
    let text = cuts[0].as_str().unwrap();
    assert!(text.contains("round-a") && text.contains("round-b"), "{text}");
}

fn mistakes_in_the_configuration_are_reported() {
    let tiny = Tiny::new("configuration");
    tiny.scan().exits(0);
    let good = tiny.yard.read("kilnyard.toml");
    let with = |from: &str, to: &str| {
        let text = good.replacen(from, to, 1);
        assert_ne!(text, good);
        tiny.yard.configure(&text);
        tiny.yard.run(&["plan"]).exits(2).says(&["kilnyard.toml"])
    };
    let line = good.lines().position(|line| line.starts_with("release")).unwrap() + 1;
    with("release", "releese").says(&["releese", &format!("line {line}")]);
    with("[build]", "[build]\nslots = 0").says(&["slots"]);
    with("[build]", "[build]\njobs = -1").says(&["jobs"]);
    with("[build]", "[build]\nhung-minutes-min = 0").says(&["hung-minutes-min", "one second"]);
    with("[build]", "[build]\nidle-minutes-max = 90").says(&["write silent-minutes-min = 90"]);
    with("[build]", "[build]\nlog-mebibytes-max = \"many\"").says(&["log-mebibytes-max"]);
    with("[build]", "[biuld]").says(&["biuld"]);
    with("[debian]", "[debian]\nversion-suffix = \"-1\"").says(&["version-suffix"]);
    with("http://", "gopher://").says(&["gopher://"]);
    with("\"tiny\"", "\"../tiny\"").says(&["../tiny"]);
    with("[debian]", "[debian").says(&["line"]);
    tiny.yard.configure(&good.replace("\"goodsource\"", "\"Good Source\""));
    tiny.yard.run(&["plan"]).exits(2).says(&["Good Source"]);
    tiny.yard.configure(&good);
    tiny.scan().exits(0).says(&["nothing new"]);
    tiny.yard.run(&["plan"]).exits(0).says(&["goodsource"]);
}

fn values_beyond_the_limits_are_rejected() {
    let tiny = Tiny::new("bounds");
    let good = tiny.yard.read("kilnyard.toml");
    for (key, value) in [
        ("wall-minutes-max", "9223372036854775807"),
        ("silent-minutes-min", "9223372036854775807"),
        ("hung-minutes-min", "nan"),
        ("processes-max", "9"),
        ("log-mebibytes-max", "9223372036854775807"),
        ("slots", "4000000000"),
        ("jobs", "4000000000"),
    ] {
        tiny.yard.configure(&good.replace("[build]", &format!("[build]\n{key} = {value}")));
        tiny.yard.run(&["plan"]).exits(2).says(&["kilnyard.toml", key]);
    }
}

fn a_missing_yard_is_reported() {
    let folder = folder("absent");
    let yard = Yard { folder: folder.path().join("nothing") };
    for command in ["scan", "plan", "build", "status", "check", "clean", "publish", "history"] {
        yard.run(&[command]).exits(2).says(&["nothing", " init"]);
        assert!(!yard.folder.exists(), "{command} made something");
    }
    let tiny = Tiny::new("unscanned");
    tiny.yard.run(&["build", "--no-scan", "--dry-run"]).exits(2).says(&[" scan"]);
    tiny.yard.run(&["status"]).exits(2).says(&[" build"]);
    tiny.scan().exits(0);
}

/// Starts a scan that runs until it is interrupted.
fn slow_scan(tiny: &Tiny) -> support::Started {
    tiny.server.behave(Archive::PACKAGES_PATH, Some(Manner::Drip));
    let started = tiny.yard.start(&["scan"]);
    until("the index is asked for", || !tiny.server.answers(Archive::PACKAGES_PATH).is_empty());
    started
}

fn a_second_process_on_a_yard_is_rejected() {
    let tiny = Tiny::new("lock");
    let mut first = slow_scan(&tiny);
    let number = format!("process {}", first.child.id());
    tiny.scan().exits(2).says(&[&number, "working on"]);
    tiny.yard.run(&["clean"]).exits(2).says(&[&number]);
    assert!(first.is_running());
    first.signal(libc::SIGINT);
    first.end().exits(130);
    tiny.server.behave(Archive::PACKAGES_PATH, None);
    tiny.scan().exits(0).says(&["a new index"]);
}

fn an_interrupted_scan_resumes() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGKILL] {
        let tiny = Tiny::new("signal");
        tiny.scan().exits(0);
        let before = tiny.index();
        tiny.server.serve(newer(&tiny).files());
        tiny.server.behave(Archive::PACKAGES_PATH, Some(Manner::Drip));
        let mut slow = tiny.yard.start(&["scan"]);
        until("the index is asked for", || tiny.server.answers(Archive::PACKAGES_PATH).len() > 1);
        slow.signal(signal);
        let ended = slow.end();
        match signal {
            libc::SIGKILL => assert_eq!(ended.code, None),
            _ => drop(ended.exits(130).says(&["interrupted"])),
        }
        assert_eq!(tiny.index().1, before.1);
        tiny.yard.run(&["plan"]).exits(0).says(&["goodsource"]);
        tiny.server.behave(Archive::PACKAGES_PATH, None);
        tiny.scan().exits(0).says(&["a new index"]);
        assert_eq!(tiny.index().0.len(), 4, "{:?}", tiny.index().0);
    }
}

/// Runs a script in a mount namespace of its own, with the yard and the program as `$1` and `$2`.
fn with_mounts(tiny: &Tiny, script: &str) -> Ended {
    let mut command = std::process::Command::new("unshare");
    command.args(if is_root() { ["--mount"].iter() } else { ["--map-root-user", "--mount"].iter() });
    command.args(["--propagation", "private", "sh", "-c", script, "sh"]);
    command.arg(&tiny.yard.folder).arg(support::program());
    support::quiet(&mut command);
    command.output().unwrap().into()
}

fn can_mount() -> bool {
    let mut command = std::process::Command::new("unshare");
    command.args(if is_root() { ["--mount"].iter() } else { ["--map-root-user", "--mount"].iter() });
    command.args(["sh", "-c", "mount -t tmpfs none /mnt"]);
    command.stderr(std::process::Stdio::null()).status().is_ok_and(|status| status.success())
}

fn a_read_only_yard_is_reported() {
    let tiny = Tiny::new("readonly");
    tiny.scan().exits(0);
    let script = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\" && \"$2\" --yard \"$1\" scan";
    with_mounts(&tiny, script).exits(3).says(&["Read-only file system", "--yard"]);
    tiny.scan().exits(0).says(&["nothing new"]);
}

fn a_read_only_yard_can_be_queried() {
    let tiny = Tiny::new("ask-readonly");
    tiny.scan().exits(0);
    tiny.yard.run(&["plan"]).exits(0);
    let ask = |tiny: &Tiny, question: &str| {
        let script = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\" && \"$2\" --yard \"$1\"";
        with_mounts(tiny, &format!("{script} {question}"))
    };
    ask(&tiny, "check").exits(0).says(&["cannot be built"]);
    for question in ["plan", "plan --json", "why goodsource"] {
        ask(&tiny, question).exits(0).says(&["goodsource"]);
    }
    // The store exists, but has no run.
    ask(&tiny, "status").exits(2).says(&["nothing has been built"]);
    tiny.configure("\"goodsource\", \"needs-newer\"", "");
    ask(&tiny, "plan").exits(0).says(&["needs-newer", "1 left out"]);
    ask(&tiny, "plan --json").exits(3).says(&["cannot be written here"]);
    tiny.yard.run(&["plan", "--json"]).exits(0).says(&["needs-newer"]);
}

fn a_full_disk_is_reported_and_more_space_helps() {
    let tiny = Tiny::new("full");
    // The data does not compress, so that the disk is full before the index is complete.
    let mut noise = String::new();
    let mut state: u64 = 1;
    for number in 0..40_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        noise.push_str(&format!("\nPackage: noise{number}\nVersion: {state}\nArchitecture: amd64\n"));
    }
    let mut archive = tiny.archive.clone();
    archive.packages.push_str(&noise);
    tiny.server.serve(archive.files());
    let script = "cp \"$1/kilnyard.toml\" \"$1/../kept\" && mount -t tmpfs -o size=256k none \"$1\" && \
                  cp \"$1/../kept\" \"$1/kilnyard.toml\"; \"$2\" --yard \"$1\" scan; echo \"full: $?\"; \
                  mount --options-source disable -o remount,size=64m \"$1\"; \"$2\" --yard \"$1\" scan; echo \"room: $?\"; \
                  \"$2\" --yard \"$1\" plan";
    let ended = with_mounts(&tiny, script).exits(0);
    ended.says(&["full: 3", "full, and", " clean --dry-run", "room: 0", "a new index", "goodsource"]);
}

fn a_clock_that_was_set_back_harms_nothing() {
    let tiny = Tiny::new("clock");
    tiny.scan().exits(0);
    tiny.yard.run(&["plan"]).exits(0);
    tiny.server.serve(newer(&tiny).files());
    let back = |arguments: &[&str]| -> Ended {
        let mut command = std::process::Command::new("faketime");
        command.args(["-f", "-400d"]).arg(support::program()).arg("--yard").arg(&tiny.yard.folder);
        support::quiet(command.args(arguments));
        command.output().unwrap().into()
    };
    // The archive's signature is in the future: it may be accepted or rejected with a message, but must not crash.
    let ended = back(&["scan"]);
    match ended.code {
        Some(0) => {}
        _ => drop(ended.exits(3).says(&["tiny"])),
    }
    back(&["plan"]).exits(0).says(&["goodsource"]);
    tiny.scan().exits(0);
    tiny.yard.run(&["plan"]).exits(0).says(&["goodsource"]);
}

fn dsc(files: &str) -> String {
    format!(
        "Format: 3.0 (native)\nSource: local\nBinary: local\nArchitecture: any\nVersion: 1\n\
         Maintainer: A <a@example.org>\nChecksums-Sha256:\n{files}"
    )
}

fn a_local_source_is_checked() {
    let tiny = Tiny::new("dsc");
    tiny.configure("\"local.dsc\", \"goodsource\"", "");
    tiny.scan().exits(0);
    let write = |bytes: &[u8]| std::fs::write(tiny.yard.path("local.dsc"), bytes).unwrap();
    // An error in one source does not affect the other.
    let left_out = |words: &[&str]| {
        let plan =
            tiny.yard.run(&["plan"]).exits(0).says(&["1 package to build", "1 left out", "goodsource"]);
        plan.says(&["left-out   local "]).says(words);
    };
    left_out(&["No such file"]);
    write(b"Format: 3.0 (native)\nSource: local\nMaintainer: \xff\xfe\n");
    left_out(&["not UTF-8 in line 3"]);
    let hash = support::archive::hex_of(b"secret");
    std::fs::write(tiny.yard.folder.parent().unwrap().join("x"), b"secret").unwrap();
    write(dsc(&format!(" {hash} 6 ../x\n")).as_bytes());
    left_out(&["../x", "outside its folder"]);
    write(dsc(&format!(" {hash} 6 absent.tar.xz\n")).as_bytes());
    left_out(&["absent.tar.xz"]);
    std::fs::write(tiny.yard.path("local_1.tar.xz"), b"changed").unwrap();
    write(dsc(&format!(" {hash} 6 local_1.tar.xz\n")).as_bytes());
    left_out(&["local_1.tar.xz", "SHA-256"]);
    std::fs::write(tiny.yard.path("local_1.tar.xz"), b"secret").unwrap();
    tiny.yard.run(&["plan"]).exits(0).says(&["local", "goodsource", "2 packages to build"]);
    for text in ["", "Source\n", "Source: \nChecksums-Sha256:\n", "\n\n\n", "Source: ../../x\n"] {
        write(text.as_bytes());
        left_out(&["local.dsc"]);
    }
    write(dsc(&format!(" {hash} 6 local_1.tar.xz\n")).replace("Source: local", "Source: ../up").as_bytes());
    left_out(&["../up"]);
    write(
        dsc(&format!(" {hash} 6 local_1.tar.xz\n")).replace("Version: 1", "Version: 1\u{1b}[2J").as_bytes(),
    );
    left_out(&["no usable field Version"]);
}

fn json_output_parses() {
    let tiny = Tiny::new("json");
    tiny.yard.run(&["scan", "--json"]).exits(0).json();
    tiny.yard.run(&["plan", "--json", "--all"]).exits(0).json();
    tiny.yard.run(&["check", "--json"]).exits(0).json();
    tiny.yard.run(&["history", "--json"]).exits(0).json();
    tiny.yard.run(&["why", "goodsource", "--json"]).exits(0).json();
    let doctor = tiny.yard.run(&["doctor", "--json"]);
    assert!(matches!(doctor.code, Some(0 | 3)), "{doctor:?}");
    doctor.json();
}

const COMMANDS: [&str; 20] = [
    "demo",
    "init",
    "doctor",
    "scan",
    "plan",
    "check",
    "build",
    "status",
    "log",
    "why",
    "history",
    "diff",
    "retry",
    "skip",
    "bump",
    "shell",
    "publish",
    "clean",
    "completions",
    "man",
];

fn every_command_has_help_a_manual_and_completions() {
    let help = kilnyard(&["--help"]).exits(0).says(&["Exit codes"]);
    for command in COMMANDS {
        assert!(help.stdout.contains(command), "{command} is not in the help");
        kilnyard(&[command, "--help"]).exits(0).says(&["Usage: kilnyard", command]);
    }
    kilnyard(&["init", "debian", "--help"]).exits(0).says(&["--release"]);
    kilnyard(&["--version"]).exits(0).says(&[env!("CARGO_PKG_VERSION")]);
    for shell in ["bash", "zsh", "fish"] {
        kilnyard(&["completions", shell]).exits(0).says(&["kilnyard", "check-reproducible"]);
    }
    let folder = folder("man");
    kilnyard(&["man", folder.path().to_str().unwrap()]).exits(0);
    for page in COMMANDS.map(|command| format!("kilnyard-{command}.1")) {
        let text = std::fs::read_to_string(folder.path().join(&page)).unwrap();
        assert!(text.contains(".TH"), "{page}");
    }
    for wrong in [&["bild"][..], &[], &["build", "--slots", "0"], &["why"], &["build", "--force"]] {
        kilnyard(wrong).exits(2);
    }
}

fn init_makes_a_yard_once() {
    let folder = folder("init");
    let yard = Yard { folder: folder.path().join("deep/yard") };
    let init = ["init", "debian", "--release", "tiny", "--mirror", "http://127.0.0.1:1/debian", "goodsource"];
    yard.run(&init).exits(0).says(&["made the yard", "next: kilnyard"]);
    let text = yard.read("kilnyard.toml");
    assert!(text.contains("goodsource") && text.contains("http://127.0.0.1:1/debian"), "{text}");
    let key = yard.read("state/signer/keys/main.asc");
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(yard.path("state/signer/keys/main.asc")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0);
    yard.run(&init).exits(2).says(&["there is already a yard"]);
    assert_eq!((yard.read("kilnyard.toml"), yard.read("state/signer/keys/main.asc")), (text, key));
    let other = Yard { folder: folder.path().join("other") };
    other.run(&["init", "debian", "--release", "a b", "goodsource"]).exits(2).says(&["a b"]);
    assert!(!other.folder.exists());
}

fn a_broken_store_or_index_is_reported() {
    let tiny = Tiny::new("broken");
    tiny.scan().exits(0);
    tiny.yard.run(&["plan"]).exits(0);
    let packages = tiny.yard.names("index").into_iter().find(|name| name.contains("Packages")).unwrap();
    std::fs::write(tiny.yard.path(&format!("index/{packages}")), b"no zstd").unwrap();
    tiny.yard.run(&["check"]).exits(3).says(&[&packages, " clean --index"]);
    tiny.yard.run(&["clean", "--index"]).exits(0);
    tiny.scan().exits(0).says(&["a new index"]);
    std::fs::write(tiny.yard.path("index/index.json"), b"{").unwrap();
    tiny.yard.run(&["build", "--no-scan", "--dry-run"]).exits(2).says(&[" scan"]);
    tiny.yard.run(&["check"]).exits(0).says(&["cannot be built"]);
    for name in tiny.yard.names("state").into_iter().filter(|name| name.starts_with("kilnyard.db")) {
        std::fs::write(tiny.yard.path(&format!("state/{name}")), b"this is not a database at all").unwrap();
    }
    tiny.yard.run(&["plan"]).exits(3).says(&["store"]);
}

fn main() {
    let can_mount = can_mount();
    let mounts = |case: Case| case.needs(can_mount, "no file system can be mounted here");
    macro_rules! cases {
        ($($name:ident),* $(,)?) => { vec![$(case(stringify!($name), $name)),*] };
    }
    let mut cases = cases![
        a_mirror_that_stalls_gives_way_to_the_next,
        an_honest_mirror_is_scanned_and_then_has_nothing_new,
        an_unreachable_mirror_is_reported,
        a_signature_by_an_unknown_key_is_rejected,
        a_changed_release_file_is_rejected,
        an_index_with_another_hash_is_rejected,
        a_truncated_index_is_rejected,
        another_suite_is_rejected,
        an_expired_release_file_is_rejected,
        an_older_state_is_rejected,
        a_similar_name_is_suggested,
        a_set_follows_from_rules,
        an_impossible_build_dependency_is_explained,
        check_finds_unbuildable_sources_in_the_whole_release,
        a_cycle_is_reported_and_cut,
        mistakes_in_the_configuration_are_reported,
        values_beyond_the_limits_are_rejected,
        a_missing_yard_is_reported,
        a_second_process_on_a_yard_is_rejected,
        an_interrupted_scan_resumes,
        a_local_source_is_checked,
        json_output_parses,
        every_command_has_help_a_manual_and_completions,
        init_makes_a_yard_once,
        a_broken_store_or_index_is_reported,
    ];
    let (name, run_it) = site::IN_A_BUCKET;
    cases.push(case(name, run_it).unless(&site::lacks_objects()));
    cases.extend(site::CASES.iter().map(|(name, run)| case(name, run)));
    for (name, run) in [
        site::ON_A_FULL_DISK,
        ("a_read_only_yard_is_reported", a_read_only_yard_is_reported),
        ("a_read_only_yard_can_be_queried", a_read_only_yard_can_be_queried),
        ("a_full_disk_is_reported_and_more_space_helps", a_full_disk_is_reported_and_more_space_helps),
    ] {
        cases.push(mounts(case(name, run)));
    }
    let clock = case("a_clock_that_was_set_back_harms_nothing", a_clock_that_was_set_back_harms_nothing);
    cases.push(clock.needs(has("faketime"), "faketime is not installed"));
    run(cases, 4, || {});
}
