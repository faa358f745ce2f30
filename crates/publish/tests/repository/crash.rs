//! Kills the publisher after every step. The result must work, and the next publication must end in the same
//! state.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use kilnyard_publish::{BinaryEntry, Operation, Publication, Signer, SourceEntry, plan};

use crate::support::{
    APT_TOOLS, Client, GnupgSigner, Yard, build_deb, build_source, facts, lacks, run, snapshot,
    unsigned_snapshot,
};

/// Environment variable with the child's work: the yard's directory, the repository, and the step to die after.
const CHILD: &str = "KILNYARD_PUBLISH_TEST_CHILD";

const OLD: u32 = 4;
const NEW: u32 = 5;

fn entries(files: &Path, version: u32) -> (Vec<BinaryEntry>, Vec<SourceEntry>) {
    let binaries = vec![
        build_deb(files, "alpha", &format!("1.0-{version}"), "amd64"),
        build_deb(files, "beta", "2.0-1", "all"),
    ];
    (binaries, vec![build_source(files, "gamma", &format!("3.{version}"))])
}

fn plan_of(yard: &Path, repository: &Path, version: u32, signer: &GnupgSigner) -> Publication {
    let (binaries, sources) = entries(&yard.join("files"), version);
    plan(repository, &facts(), &binaries, &sources, &signer.public_armored().unwrap()).unwrap()
}

/// Not a test by itself: this is the process that is killed.
#[test]
fn child_publishes_and_dies() {
    let Ok(work) = std::env::var(CHILD) else {
        return;
    };
    let [yard, repository, last_step] = work.split('\n').collect::<Vec<_>>()[..] else {
        panic!("{work:?}");
    };
    let last_step: usize = last_step.parse().unwrap();
    // The agent belongs to the parent process.
    let signer = std::mem::ManuallyDrop::new(GnupgSigner { home: Path::new(yard).join("gnupg") });
    let publication = plan_of(Path::new(yard), Path::new(repository), NEW, &signer);
    println!("planned");
    publication
        .execute_observed(&*signer, &mut |step, _| {
            if step == last_step {
                let _ =
                    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            }
        })
        .unwrap();
}

fn child(yard: &Yard, repository: &Path, last_step: usize) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let work = format!("{}\n{}\n{last_step}", yard.directory.path().display(), repository.display());
    command.args(["--exact", "crash::child_publishes_and_dies", "--nocapture"]).env(CHILD, work);
    command
}

/// A repository with the maximum number of generations, so that the next publication also removes one.
fn prepare(yard: &Yard) -> PathBuf {
    for version in 1..=OLD {
        let (binaries, sources) = entries(&yard.path("files"), version);
        yard.publish(&binaries, &sources);
    }
    // Build these once, before copying the repository.
    entries(&yard.path("files"), NEW);
    yard.repository()
}

fn copy(from: &Path, to: &Path) {
    run(Command::new("cp").arg("--archive").arg(from).arg(to));
}

/// Checks what must hold after a kill. Returns the version that readers see.
fn check_survivor(repository: &Path) -> String {
    let client = Client::of_directory(repository);
    client.update();
    let candidate = client.candidate("alpha").unwrap();
    for package in ["alpha", "beta"] {
        assert!(client.get(&["download", package]).status.success(), "{package}");
    }
    assert!(client.get(&["source", "--download-only", "gamma"]).status.success());
    candidate
}

fn check_convergence(yard: &Yard, repository: &Path, expected: &Path) {
    plan_of(yard.directory.path(), repository, NEW, &yard.signer).execute(&yard.signer).unwrap();
    assert_eq!(unsigned_snapshot(repository), unsigned_snapshot(expected));
    assert!(plan_of(yard.directory.path(), repository, NEW, &yard.signer).is_empty());
    assert_eq!(check_survivor(repository), format!("1.0-{NEW}"));
}

#[test]
fn a_kill_after_any_step_leaves_a_complete_generation() {
    let test = "a_kill_after_any_step_leaves_a_complete_generation";
    if lacks(test, &APT_TOOLS) || lacks(test, &["dpkg-source"]) {
        return;
    }
    let yard = Yard::new();
    let base = prepare(&yard);
    let expected = yard.path("expected");
    copy(&base, &expected);
    let publication = plan_of(yard.directory.path(), &expected, NEW, &yard.signer);
    let operations = publication.operations().to_vec();
    let switch =
        operations.iter().position(|operation| matches!(operation, Operation::Switch { .. })).unwrap();
    assert!(matches!(operations.last(), Some(Operation::RemoveTree { .. })), "{publication}");
    publication.execute(&yard.signer).unwrap();

    for (step, operation) in operations.iter().enumerate() {
        let repository = yard.path("crashed");
        copy(&base, &repository);
        let status = child(&yard, &repository, step).stdout(Stdio::null()).status().unwrap();
        assert_eq!(status.signal(), Some(9), "step {step}: {:?}", operation);
        let is_new = step >= switch;
        let link = fs::read_link(repository.join("dists/kiln")).unwrap();
        assert_eq!(link, Path::new("../.generations/kiln").join(if is_new { NEW } else { OLD }.to_string()));
        let version = if is_new { NEW } else { OLD };
        assert_eq!(check_survivor(&repository), format!("1.0-{version}"), "step {step}: {:?}", operation);
        check_convergence(&yard, &repository, &expected);
        fs::remove_dir_all(&repository).unwrap();
    }
}

#[test]
fn a_kill_at_any_moment_leaves_a_complete_generation() {
    let test = "a_kill_at_any_moment_leaves_a_complete_generation";
    if lacks(test, &APT_TOOLS) || lacks(test, &["dpkg-source"]) {
        return;
    }
    let yard = Yard::new();
    let base = prepare(&yard);
    let expected = yard.path("expected");
    copy(&base, &expected);
    plan_of(yard.directory.path(), &expected, NEW, &yard.signer).execute(&yard.signer).unwrap();

    // The delays are fixed, but scheduling makes each run different. Every outcome must be valid.
    let mut random: u64 = 0x9e37_79b9_7f4a_7c15;
    for round in 0..12 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let repository = yard.path("crashed");
        copy(&base, &repository);
        let mut process = child(&yard, &repository, usize::MAX).stdout(Stdio::piped()).spawn().unwrap();
        wait_until_planned(&mut process);
        std::thread::sleep(Duration::from_micros((random >> 33) % 120_000));
        process.kill().unwrap();
        let status: ExitStatus = process.wait().unwrap();
        assert!(status.success() || status.signal() == Some(9), "round {round}: {status}");
        let candidate = check_survivor(&repository);
        assert!(
            candidate == format!("1.0-{OLD}") || candidate == format!("1.0-{NEW}"),
            "round {round}: {candidate}"
        );
        check_convergence(&yard, &repository, &expected);
        fs::remove_dir_all(&repository).unwrap();
    }
}

fn wait_until_planned(process: &mut std::process::Child) {
    use std::io::{BufRead, BufReader};
    let output = BufReader::new(process.stdout.as_mut().unwrap());
    assert!(output.lines().map_while(Result::ok).any(|line| line.contains("planned")));
}

#[test]
fn a_killed_first_publication_does_not_prevent_the_next() {
    if lacks("a_killed_first_publication_does_not_prevent_the_next", &["dpkg-deb", "dpkg-source", "gpg"]) {
        return;
    }
    let yard = Yard::new();
    let expected = yard.path("expected");
    let publication = plan_of(yard.directory.path(), &expected, NEW, &yard.signer);
    let operations = publication.operations().len();
    publication.execute(&yard.signer).unwrap();
    for step in 0..operations {
        let repository = yard.path("crashed");
        let status = child(&yard, &repository, step).stdout(Stdio::null()).status().unwrap();
        assert_eq!(status.signal(), Some(9), "step {step}");
        plan_of(yard.directory.path(), &repository, NEW, &yard.signer).execute(&yard.signer).unwrap();
        assert_eq!(unsigned_snapshot(&repository), unsigned_snapshot(&expected), "step {step}");
        assert!(snapshot(&repository.join(".staging")).is_empty());
        fs::remove_dir_all(&repository).unwrap();
    }
}
