//! Disasters during a build: killed processes, a clock that moves, a full disk, a power cut.

use crate::fixtures::{Fixture, Packages, Shared, Trial, good, processes, slow};
use crate::support::{self, Yard, until};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

pub const CASES: &[Trial] = &[
    ("a_killed_run_resumes_with_the_same_result", a_killed_run_resumes),
    ("a_killed_bootstrap_leaves_nothing_mounted", a_killed_bootstrap),
    ("a_killed_sandbox_is_not_the_fault_of_the_package", a_killed_sandbox),
    ("a_killed_child_of_a_build_fails_that_build_alone", a_killed_child),
    ("an_interrupted_run_says_so_and_resumes", an_interrupted_run_resumes),
    ("a_clock_that_moves_back_during_a_build_harms_nothing", a_clock_that_moves_back),
    ("a_full_disk_fails_one_build_and_more_space_helps", a_full_disk),
    ("a_run_that_waits_for_disk_space_prints_one_line", a_wait_for_disk_space),
    ("the_disk_is_consistent_after_a_power_cut", a_power_cut),
];

/// Four packages; three of them form a chain.
fn chain() -> [Fixture; 4] {
    [good("one", ""), good("two", "one"), good("three", "two"), good("four", "")]
}

fn a_killed_run_resumes(shared: &Shared) {
    let whole = shared.yard("whole", &chain());
    whole.build().exits(0);
    let yard = shared.yard("killed", &chain());
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    eprintln!("seed of the kills: {seed}");
    let mut killed = Vec::new();
    for round in 1..=5u64 {
        let mut child = yard.begin(&[]);
        std::thread::sleep(Duration::from_millis(300 + seed.wrapping_mul(round * 7919) % 2500));
        child.kill().unwrap();
        child.wait().unwrap();
        killed.push(child.id());
    }
    yard.build().exits(0);
    assert_eq!(yard.published(), whole.published());
    assert!(yard.is_clean());
    let left = control_groups_of(&killed);
    assert!(left.is_empty(), "{left:?}");
}

/// The control groups that these processes made and that still exist.
fn control_groups_of(makers: &[u32]) -> Vec<PathBuf> {
    let is_theirs = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut numbers = name.strip_prefix("kilnyard-")?.rsplit('-').skip(2);
        Some(makers.contains(&numbers.next()?.parse().ok()?))
    };
    let mut open = vec![PathBuf::from("/sys/fs/cgroup")];
    let mut found = Vec::new();
    while let Some(folder) = open.pop() {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        open.extend(folders.map(|entry| entry.path()));
        if is_theirs(&folder) == Some(true) {
            found.push(folder);
        }
    }
    found
}

fn a_killed_bootstrap(shared: &Shared) {
    let yard = shared.yard("bootstrap", &[]);
    let tree = || {
        let made: serde_json::Value =
            serde_json::from_slice(&fs::read(yard.path("layers/base.json")).unwrap()).unwrap();
        assert!(made["tree"]["sha256"].is_string(), "{made}");
        made["tree"].clone()
    };
    let before = tree();
    fs::remove_file(yard.path("layers/base.json")).unwrap();
    let mut child = yard.begin(&[]);
    let path = yard.folder.display().to_string();
    let is_unpacking = || {
        let folders = yard.names("roots/base");
        folders.iter().any(|name| yard.path(&format!("roots/base/{name}/usr")).exists())
    };
    until("the base root is being unpacked", is_unpacking);
    child.kill().unwrap();
    child.wait().unwrap();
    until("no process is left", || !processes().iter().any(|(_, line)| line.contains(&path)));
    assert!(!fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&path));
    yard.build().exits(0);
    // The same packages make the same artifact at another time.
    assert_eq!(tree(), before);
    assert!(yard.is_clean());
}

/// The children of a process.
fn children(of: u32) -> Vec<u32> {
    let parent = |number: u32| {
        let status = fs::read_to_string(format!("/proc/{number}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse::<u32>().ok())
    };
    processes().into_iter().map(|(number, _)| number).filter(|number| parent(*number) == Some(of)).collect()
}

fn signal(number: u32, signal: i32) {
    // SAFETY: no memory is touched.
    unsafe { libc::kill(number as i32, signal) };
}

fn kill(number: u32) {
    signal(number, libc::SIGKILL);
}

fn a_killed_sandbox(shared: &Shared) {
    let yard = shared.yard("sandbox", &[slow("victim", "sleep 5")]);
    let child = yard.begin(&[]);
    // The outer process first, then process 1 of the next attempt.
    let mut killed = Vec::new();
    for depth in [1, 2] {
        until("the command of the build stage runs", || {
            let sleeping = processes().into_iter().find(|(_, line)| line == "sleep 5");
            sleeping.is_some() && {
                let outer = children(child.id()).into_iter().find(|outer| !killed.contains(outer));
                let target = outer.and_then(|outer| match depth {
                    1 => Some(outer),
                    _ => children(outer).into_iter().next(),
                });
                killed.extend(outer);
                target.map(kill).is_some()
            }
        });
        until("the killed build is gone", || !processes().iter().any(|(_, line)| line == "sleep 5"));
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(yard.state("victim"), "built");
    let history = yard.json(&["history", "victim", "--json"]);
    let builds = history.as_array().unwrap();
    assert_eq!(builds.len(), 3, "{history}");
    for build in &builds[1..] {
        assert_eq!(build["failure"]["kind"], "machine", "{history}");
    }
    assert!(yard.is_clean());
}

fn a_killed_child(shared: &Shared) {
    let yard = shared.yard("child", &[slow("victim", "sleep 1717"), good("other", "")]);
    let child = yard.begin(&[]);
    let mut sleeping = None;
    until("the command of the build stage runs", || {
        sleeping = processes().into_iter().find(|(_, line)| line == "sleep 1717");
        sleeping.is_some()
    });
    kill(sleeping.unwrap().0);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(yard.states(&["victim", "other"]), ["failed", "built"]);
    let why = yard.json(&["why", "victim", "--json"]);
    assert!(why["build"]["failure"]["message"].as_str().unwrap().contains("Killed"), "{why}");
    assert!(yard.is_clean());
}

fn an_interrupted_run_resumes(shared: &Shared) {
    let victim = Fixture { needs: "one", ..slow("victim", "sleep 10") };
    let yard = shared.yard("interrupted", &[good("one", ""), victim]);
    for signal in ["-INT", "-TERM", "-HUP"] {
        let child = yard.begin(&[]);
        until("the slow one is being built", || yard.building() == ["victim"]);
        Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{signal}: {said}");
        assert!(yard.is_clean(), "{signal}");
    }
    yard.build().exits(0);
    assert_eq!(yard.states(&["one", "victim"]), ["built", "built"]);
    assert_eq!(yard.json(&["history", "--json"]).as_array().map(Vec::len), Some(1), "it is one run");
}

fn a_clock_that_moves_back(shared: &Shared) {
    let yard = shared.yard("clock", &[slow("slow", "sleep 3"), good("after", "slow")]);
    let clock = yard.path("clock-of-the-test");
    fs::write(&clock, "+0").unwrap();
    let mut command = Command::new("faketime");
    command.args(["-f", "+0"]).arg(support::program()).arg("--yard").arg(&yard.folder);
    command.args(["build", "--no-scan"]).stdout(Stdio::null()).stderr(Stdio::piped());
    support::quiet(&mut command);
    // Only the wall clock jumps, as when a clock is set: the monotonic clock continues.
    command.env("FAKETIME_TIMESTAMP_FILE", &clock).env("FAKETIME_NO_CACHE", "1");
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env_remove("FAKETIME");
    let child = command.spawn().unwrap();
    until("the first is being built", || processes().iter().any(|(_, line)| line == "sleep 3"));
    fs::write(&clock, "-40d").unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(yard.states(&["slow", "after"]), ["built", "built"]);
    let history = yard.json(&["history", "slow", "--json"]);
    for stage in history[0]["stages"].as_array().unwrap() {
        let wall = stage["wall_seconds"].as_f64().unwrap();
        assert!((0.0..600.0).contains(&wall), "{stage}");
    }
    let build = &history[0];
    let (began, ended) =
        (build["started_seconds"].as_f64().unwrap(), build["ended_seconds"].as_f64().unwrap());
    assert!(ended >= began, "{build}");
    yard.run(&["status"]).exits(0);
    yard.run(&["plan"]).exits(0);
    yard.build().exits(0).says(&["nothing to do"]);
}

/// A file system of its own, mounted for a trial.
struct Disk {
    at: PathBuf,
}

impl Disk {
    fn mount(arguments: &[&str], what: &str, at: &Path) -> Disk {
        fs::create_dir_all(at).unwrap();
        let mounted = Command::new("mount").args(arguments).arg(what).arg(at).output().unwrap();
        support::Ended::from(mounted).exits(0);
        Disk { at: at.to_owned() }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.at).status();
    }
}

fn megabytes(of: &Path) -> u64 {
    let output = Command::new("du").args(["-sm"]).arg(of).output().unwrap();
    String::from_utf8_lossy(&output.stdout).split_whitespace().next().unwrap().parse().unwrap()
}

fn a_full_disk(shared: &Shared) {
    let size = megabytes(&shared.path("base")) + 60;
    let disk = Disk::mount(&["-t", "tmpfs", "-o", &format!("size={size}m")], "none", &shared.path("disk"));
    let greedy = slow("greedy", "head -c 100000000 /dev/zero > big");
    let yard = shared.yard_at(&disk.at, &[greedy, good("one", ""), good("two", "one")]);
    yard.run(&["build", "--no-scan", "--slots", "1"]).exits(1).says(&["No space left on device"]);
    assert_eq!(yard.states(&["greedy", "one", "two"]), ["failed", "built", "built"]);
    let why = yard.json(&["why", "greedy", "--json"]);
    let failure = &why["build"]["failure"];
    assert_eq!(failure["kind"], "disk", "{why}");
    assert!(failure["message"].as_str().unwrap().starts_with("the disk was full: "), "{why}");
    // The package filled the disk itself: it is tried once more, alone.
    assert_eq!(yard.json(&["history", "greedy", "--json"]).as_array().map(Vec::len), Some(2));
    let more = format!("remount,size={}m", size + 200);
    assert!(Command::new("mount").args(["-o", &more]).arg(&disk.at).status().unwrap().success());
    yard.run(&["retry", "greedy"]).exits(0);
    yard.build().exits(0);
    assert_eq!(yard.state("greedy"), "built");
    assert!(yard.is_clean());
    yard.run(&["clean", "--base"]).exits(0);
}

/// Several packages end while the disk is full, and the run reports only once that it waits.
fn a_wait_for_disk_space(shared: &Shared) {
    let size = megabytes(&shared.path("base")) + 60;
    let disk = Disk::mount(&["-t", "tmpfs", "-o", &format!("size={size}m")], "none", &shared.path("waits"));
    // There is room again after some attempts to write the decisions.
    let greedy = "head -c 200000000 /dev/zero > big; sleep 8; rm big";
    let others = ["one", "two", "three"].map(|name| slow(name, "sleep 3"));
    let yard = shared.yard_at(&disk.at, &[&[slow("greedy", greedy)], &others[..]].concat());
    let ended = yard.run(&["build", "--no-scan", "--slots", "4"]);
    let lines = ended.stdout.lines().chain(ended.stderr.lines());
    let waits = lines.filter(|line| line.contains("waiting for free space")).count();
    assert_eq!(waits, 1, "{ended:?}");
    assert_eq!(yard.states(&["greedy", "one", "two", "three"]), ["built"; 4], "{ended:?}");
    assert!(yard.is_clean(), "{:?} {ended:?}", yard.names("roots"));
    yard.run(&["clean", "--base"]).exits(0);
}

/// How many copies of a disk are checked.
const CUTS_MAX: usize = 5;

/// A power cut: at some moments the disk image is copied, with all that the file system has written to it so far.
/// Each copy lacks the data that was still in memory.
fn a_power_cut(shared: &Shared) {
    // The image is in memory, so that copying it takes no time.
    let memory = Disk::mount(&["-t", "tmpfs"], "none", &shared.path("memory"));
    let image = memory.at.join("disk.img");
    let size = megabytes(&shared.path("base")) + 200;
    let script = format!("truncate --size {size}M \"$1\" && mkfs.ext4 -q \"$1\"");
    let made = Command::new("sh").args(["-c", &script, "sh"]).arg(&image).output().unwrap();
    support::Ended::from(made).exits(0);
    let disk = Disk::mount(&["-o", "loop"], image.to_str().unwrap(), &shared.path("powered"));
    let fixtures = chain().map(|fixture| Fixture { build: "sleep 2", ..fixture });
    let yard = shared.yard_at(&disk.at, &fixtures);
    assert!(Command::new("sync").arg("-f").arg(&disk.at).status().unwrap().success());
    let mut child = yard.begin(&["--slots", "1"]);
    let mut cuts: Vec<PathBuf> = Vec::new();
    let mut is_over = false;
    while !is_over && cuts.len() < CUTS_MAX {
        std::thread::sleep(Duration::from_millis(1500));
        is_over = child.try_wait().unwrap().is_some();
        signal(child.id(), libc::SIGSTOP);
        let cut = memory.at.join(format!("cut-{}.img", cuts.len()));
        // The copy must show a single moment: it does if the disk is unchanged when the copy is complete.
        until("the disk is quiet for a copy", || {
            let copied = Command::new("cp").arg("--sparse=always").arg(&image).arg(&cut).status().unwrap();
            copied.success()
                && Command::new("cmp").arg("-s").arg(&cut).arg(&image).status().unwrap().success()
        });
        signal(child.id(), libc::SIGCONT);
        cuts.push(cut);
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let expected = yard.published();
    yard.run(&["clean", "--base"]).exits(0);
    drop(disk);
    assert!(cuts.len() >= 3, "the run was over after {} copies", cuts.len());
    for cut in &cuts {
        let disk = Disk::mount(&["-o", "loop"], cut.to_str().unwrap(), &shared.path("after"));
        let yard = Yard { folder: disk.at.clone() };
        repository_is_whole(&yard);
        yard.build().exits(0);
        assert_eq!(yard.published(), expected, "{}", cut.display());
        assert!(yard.is_clean());
        drop(disk);
        fs::remove_file(cut).unwrap();
    }
}

/// Asserts that the repository, if there is one, is signed, and that every file in the index exists with its hash.
fn repository_is_whole(yard: &Yard) {
    let release = yard.path("repository/dists/bookworm/InRelease");
    if !release.exists() {
        return;
    }
    let key = yard.path("repository/dists/bookworm").join("keyring.gpg");
    let script = "gpg --dearmor < \"$1/repository/kilnyard-archive-keyring.asc\" > \"$2\" && gpgv --quiet --keyring \"$2\" \"$3\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(&yard.folder).arg(&key).arg(&release);
    support::Ended::from(command.output().unwrap()).exits(0);
    fs::remove_file(&key).unwrap();
    let index = yard.read("repository/dists/bookworm/main/binary-amd64/Packages");
    let field = |name: &str| -> Vec<String> {
        index.lines().filter_map(|line| line.strip_prefix(name)).map(str::to_owned).collect()
    };
    for (file, hash) in field("Filename: ").iter().zip(field("SHA256: ")) {
        let bytes = fs::read(yard.path("repository").join(file)).unwrap();
        assert_eq!(support::archive::hex_of(&bytes), hash, "{file}");
    }
}
