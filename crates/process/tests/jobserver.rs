//! The core broker with real builds: GNU make, recursive make, ninja and cargo.

use kilnyard_process::jobserver::{Broker, Style};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a test waits for something that should happen immediately, before it counts as a deadlock.
const PATIENCE: Duration = Duration::from_secs(120);

/// Whether GNU make is installed; prints a line if not.
fn has_make(test: &str) -> bool {
    let output = Command::new("make").arg("--version").output();
    let is_there = output.is_ok_and(|output| output.stdout.starts_with(b"GNU Make"));
    if !is_there {
        let _ = writeln!(std::io::stderr(), "skipped: {test}: GNU make is not installed");
    }
    is_there
}

/// A job that records its start, runs as long as the file `hold` exists, and records its end.
const JOB: &str = "@echo begin $@ >> events; while [ -e hold ]; do sleep 0.02; done; echo end $@ >> events";

/// A folder with a makefile of this many independent jobs.
fn build_of(jobs: u32) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..jobs).map(|job| format!("job{job}")).collect();
    let names = names.join(" ");
    std::fs::write(folder.path().join("Makefile"), format!("all: {names}\n{names}:\n\t{JOB}\n")).unwrap();
    std::fs::write(folder.path().join("hold"), "").unwrap();
    std::fs::write(folder.path().join("events"), "").unwrap();
    folder
}

fn make(broker: &Broker, build: u64, folder: &Path, words: &[&str]) -> Child {
    let mut command = Command::new("make");
    command.args(words).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null());
    broker.hand_to(build, &mut command);
    command.spawn().unwrap()
}

/// The number of jobs started, and the number still running.
fn jobs(folder: &Path) -> (usize, usize) {
    let events = std::fs::read_to_string(folder.join("events")).unwrap();
    let begun = events.lines().filter(|line| line.starts_with("begin")).count();
    (begun, begun - events.lines().filter(|line| line.starts_with("end")).count())
}

/// The largest number of jobs that ran at once, in the order recorded.
fn jobs_max(folder: &Path) -> usize {
    let events = std::fs::read_to_string(folder.join("events")).unwrap();
    let mut now = 0;
    let counts = events.lines().map(|line| {
        now = if line.starts_with("begin") { now + 1 } else { now - 1 };
        now
    });
    counts.max().unwrap_or(0)
}

/// Waits without calling the broker, which would take back its offers.
fn wait_for(is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn wait_until(broker: &mut Broker, what: &str, mut is_so: impl FnMut(&mut Broker) -> bool) {
    let begun = Instant::now();
    while !is_so(broker) {
        assert!(begun.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
        broker.settle().unwrap();
    }
}

/// Lets the jobs of a build end, and waits for the build.
fn finish(broker: &mut Broker, folder: &Path, mut child: Child) {
    let _ = std::fs::remove_file(folder.join("hold"));
    let mut status = None;
    wait_until(broker, "the build ends", |_| {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
}

#[test]
fn an_offered_token_is_taken_if_useful_and_comes_back_otherwise() {
    if !has_make("an_offered_token_is_taken_if_useful_and_comes_back_otherwise") {
        return;
    }
    let folder = build_of(3);
    let mut broker = Broker::new(1);
    broker.begin(1, Style::Inherited).unwrap();
    broker.begin(2, Style::Inherited).unwrap();
    broker.allot(&[(1, 1), (2, 1)]).unwrap();
    let mut child = make(&broker, 1, folder.path(), &[]);
    wait_for(|| jobs(folder.path()).1 == 1);
    // Nothing reads from the second build's pipe.
    broker.probe(2).unwrap();
    assert_eq!((broker.tokens(2), broker.held(2).unwrap()), (1, 0));
    broker.settle().unwrap();
    assert_eq!(broker.tokens(2), 0);
    // make has been waiting for a token since it started its first job.
    broker.probe(1).unwrap();
    wait_for(|| jobs(folder.path()).1 == 2);
    assert_eq!((broker.tokens(1), broker.held(1).unwrap()), (1, 1));
    broker.settle().unwrap();
    assert_eq!(broker.tokens(1), 1, "it is owed until its job ends");
    std::fs::remove_file(folder.path().join("hold")).unwrap();
    assert!(child.wait().unwrap().success());
    broker.settle().unwrap();
    assert_eq!(broker.tokens(1), 0);
    assert!(jobs_max(folder.path()) <= 2);
}

#[test]
fn a_build_runs_as_many_jobs_as_it_has_cores_and_more_when_it_is_given_more() {
    if !has_make("a_build_runs_as_many_jobs_as_it_has_cores") {
        return;
    }
    let folder = build_of(12);
    let mut broker = Broker::new(6);
    broker.begin(1, Style::Inherited).unwrap();
    broker.allot(&[(1, 3)]).unwrap();
    let child = make(&broker, 1, folder.path(), &[]);
    wait_until(&mut broker, "three jobs run", |_| jobs(folder.path()).1 == 3);
    assert_eq!((broker.cores_of(1), broker.held(1).unwrap()), (3, 2));
    broker.allot(&[(1, 6)]).unwrap();
    wait_until(&mut broker, "six jobs run", |_| jobs(folder.path()).1 == 6);
    // An allotment beyond the broker's cores gives no more than there are.
    broker.allot(&[(1, 60)]).unwrap();
    assert_eq!(broker.cores_out(), 6);
    finish(&mut broker, folder.path(), child);
    assert_eq!((jobs(folder.path()), jobs_max(folder.path())), ((12, 0), 6));
    assert_eq!((broker.cores_out(), broker.held(1).unwrap()), (6, 0));
    broker.end(1).unwrap();
    assert_eq!(broker.cores_out(), 0);
}

#[test]
fn tokens_are_taken_back_as_jobs_end_and_go_to_the_higher_rank() {
    if !has_make("tokens_are_taken_back_as_jobs_end") {
        return;
    }
    let (low, high) = (build_of(40), build_of(8));
    let mut broker = Broker::new(6);
    broker.begin(1, Style::Inherited).unwrap();
    broker.allot(&[(1, 5)]).unwrap();
    let low_child = make(&broker, 1, low.path(), &[]);
    wait_until(&mut broker, "five jobs run", |_| jobs(low.path()).1 == 5);
    broker.begin(2, Style::Inherited).unwrap();
    let high_child = make(&broker, 2, high.path(), &[]);
    broker.allot(&[(2, 5), (1, 1)]).unwrap();
    // Running jobs hold all tokens, and no tokens are invented.
    assert_eq!((broker.cores_of(1), broker.cores_of(2), broker.cores_out()), (5, 1, 6));
    std::fs::remove_file(low.path().join("hold")).unwrap();
    wait_until(&mut broker, "the higher rank has its cores", |broker| {
        assert!(broker.cores_out() <= 6);
        broker.cores_of(2) == 5
    });
    assert_eq!(broker.cores_of(1), 1);
    wait_until(&mut broker, "its jobs run", |_| jobs(high.path()).1 == 5);
    finish(&mut broker, low.path(), low_child);
    finish(&mut broker, high.path(), high_child);
    assert!(jobs_max(high.path()) <= 5 && jobs(low.path()) == (40, 0) && jobs(high.path()) == (8, 0));
}

#[test]
fn a_killed_client_costs_only_its_own_build_and_only_until_that_ends() {
    if !has_make("a_killed_client_costs_only_its_own_build") {
        return;
    }
    let (killed, other) = (build_of(9), build_of(9));
    let mut broker = Broker::new(6);
    broker.begin(1, Style::Inherited).unwrap();
    broker.begin(2, Style::Inherited).unwrap();
    broker.allot(&[(1, 4), (2, 2)]).unwrap();
    let mut killed_child = make(&broker, 1, killed.path(), &[]);
    let other_child = make(&broker, 2, other.path(), &[]);
    wait_until(&mut broker, "six jobs run", |_| jobs(killed.path()).1 == 4 && jobs(other.path()).1 == 2);
    // After kill -9, nothing writes its tokens back.
    killed_child.kill().unwrap();
    killed_child.wait().unwrap();
    std::fs::remove_file(killed.path().join("hold")).unwrap();
    broker.allot(&[(2, 5), (1, 1)]).unwrap();
    assert_eq!((broker.cores_of(1), broker.cores_of(2)), (4, 2));
    // The other build continues with its cores, and gets all of them once the killed one has ended.
    broker.end(1).unwrap();
    assert_eq!((broker.cores_of(2), broker.cores_out()), (5, 5));
    wait_until(&mut broker, "five jobs run", |_| jobs(other.path()).1 == 5);
    finish(&mut broker, other.path(), other_child);
    assert_eq!((jobs(other.path()), broker.held(2).unwrap()), ((9, 0), 0));
}

#[test]
fn a_build_keeps_its_cores_when_the_broker_is_gone() {
    if !has_make("a_build_keeps_its_cores_when_the_broker_is_gone") {
        return;
    }
    let folder = build_of(12);
    let mut broker = Broker::new(4);
    broker.begin(1, Style::Inherited).unwrap();
    broker.allot(&[(1, 4)]).unwrap();
    let child = make(&broker, 1, folder.path(), &[]);
    wait_until(&mut broker, "four jobs run", |_| jobs(folder.path()).1 == 4);
    // As after a kill -9 of the broker's process.
    drop(broker);
    finish(&mut Broker::new(1), folder.path(), child);
    assert_eq!((jobs(folder.path()), jobs_max(folder.path())), ((12, 0), 4));
}

#[test]
fn make_under_make_shares_the_cores_of_its_build() {
    if !has_make("make_under_make_shares_the_cores_of_its_build") {
        return;
    }
    let folder = build_of(6);
    std::fs::write(
        folder.path().join("Top.mk"),
        "all: one two\none:\n\t+$(MAKE) job0 job1 job2\ntwo:\n\t+$(MAKE) job3 job4 job5\n",
    )
    .unwrap();
    let mut broker = Broker::new(4);
    broker.begin(7, Style::Inherited).unwrap();
    broker.allot(&[(7, 4)]).unwrap();
    let child = make(&broker, 7, folder.path(), &["-f", "Top.mk"]);
    wait_until(&mut broker, "four jobs run", |_| jobs(folder.path()).1 == 4);
    finish(&mut broker, folder.path(), child);
    assert_eq!((jobs(folder.path()), jobs_max(folder.path())), ((6, 0), 4));
    assert_eq!(broker.held(7).unwrap(), 0);
}

#[test]
fn ninja_is_a_client_since_1_13() {
    let version = Command::new("ninja").arg("--version").output();
    let version =
        version.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    if (numbers.next(), numbers.next()) < (Some(1), Some(13)) {
        let reason = format!("needs ninja 1.13 or later, found {version:?}");
        let _ = writeln!(std::io::stderr(), "skipped: ninja_is_a_client_since_1_13: {reason}");
        return;
    }
    let folder = build_of(0);
    let job = JOB.trim_start_matches('@').replace('$', "").replace("@ ", "job ");
    let mut text = format!("rule job\n  command = {job}\n");
    for number in 0..9 {
        text.push_str(&format!("build job{number}: job\n"));
    }
    std::fs::write(folder.path().join("build.ninja"), text).unwrap();
    let pipe = folder.path().join("pipe");
    let mut broker = Broker::new(5);
    broker.begin(1, Style::Named(pipe.clone())).unwrap();
    broker.allot(&[(1, 3)]).unwrap();
    let mut command = Command::new("ninja");
    command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
    broker.hand_to(1, &mut command);
    let child = command.spawn().unwrap();
    wait_until(&mut broker, "three jobs run", |_| jobs(folder.path()).1 == 3);
    // It asks for more only when one of its jobs ends.
    broker.allot(&[(1, 5)]).unwrap();
    finish(&mut broker, folder.path(), child);
    assert_eq!(jobs(folder.path()), (9, 0));
    assert!((3..=5).contains(&jobs_max(folder.path())));
    assert_eq!(broker.held(1).unwrap(), 0);
    assert!(pipe.exists());
    broker.end(1).unwrap();
    assert!(!pipe.exists());
}

#[test]
fn cargo_is_a_client_too() {
    const CRATES: u32 = 5;
    const SCRIPT: &str = r#"
use std::io::Write;
fn say(what: &str) {
    let mut events = std::fs::File::options().append(true).open("../events").unwrap();
    events.write_all(format!("{what} script\n").as_bytes()).unwrap();
}
fn main() {
    say("begin");
    while std::path::Path::new("../hold").exists() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    say("end");
}
"#;
    let folder = build_of(0);
    std::fs::write(
        folder.path().join("Cargo.toml"),
        "[workspace]\nresolver = \"2\"\nmembers = [\"part*\"]\n",
    )
    .unwrap();
    for number in 0..CRATES {
        let part = folder.path().join(format!("part{number}"));
        std::fs::create_dir_all(part.join("src")).unwrap();
        let manifest =
            format!("[package]\nname = \"part{number}\"\nversion = \"1.0.0\"\nedition = \"2021\"\n");
        std::fs::write(part.join("Cargo.toml"), manifest).unwrap();
        std::fs::write(part.join("build.rs"), SCRIPT).unwrap();
        std::fs::write(part.join("src/lib.rs"), "").unwrap();
    }
    let mut broker = Broker::new(3);
    broker.begin(1, Style::Inherited).unwrap();
    broker.allot(&[(1, 2)]).unwrap();
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--offline", "--quiet"]).current_dir(folder.path()).stdin(Stdio::null());
    command.env("CARGO_TARGET_DIR", folder.path().join("target"));
    broker.hand_to(1, &mut command);
    let child = command.spawn().unwrap();
    wait_until(&mut broker, "two scripts run", |_| jobs(folder.path()).1 == 2);
    assert_eq!(broker.held(1).unwrap(), 1);
    broker.allot(&[(1, 3)]).unwrap();
    wait_until(&mut broker, "three scripts run", |_| jobs(folder.path()).1 == 3);
    finish(&mut broker, folder.path(), child);
    assert_eq!((jobs(folder.path()), jobs_max(folder.path())), ((CRATES as usize, 0), 3));
    assert_eq!(broker.held(1).unwrap(), 0);
}

#[test]
fn a_command_that_was_handed_nothing_sees_no_pipe() {
    let mut broker = Broker::new(4);
    broker.begin(1, Style::Inherited).unwrap();
    broker.allot(&[(1, 4)]).unwrap();
    let pipes = |handed: bool| {
        let mut command = Command::new("sh");
        command.args(["-c", "ls -l /proc/self/fd; echo flags: $MAKEFLAGS"]).env_remove("MAKEFLAGS");
        if handed {
            broker.hand_to(1, &mut command);
        }
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        (text.matches("pipe:").count(), text.contains("--jobserver-auth="))
    };
    let (with, without) = (pipes(true), pipes(false));
    assert_eq!((with.0 - without.0, with.1, without.1), (2, true, false));
}
