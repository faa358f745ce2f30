//! `kilnyard shell` in roots that workers on other machines keep.

use crate::fixtures::{Packages, Shared, Trial, good, slow};
use crate::support::farm::{Far, Served};
use crate::support::{Ended, Yard, until};
use std::fs;
use std::io::Write;
use std::process::Stdio;

pub const CASES: &[Trial] = &[("shells_enter_roots_that_other_machines_keep", shells)];

/// Whether a process of this machine sleeps for this time.
fn sleeps(seconds: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.any(|line| line == format!("sleep\0{seconds}\0").into_bytes())
}

/// Runs a script in the root of `broken`, with this standard input.
fn script(yard: &Yard, script: &str, input: &[u8]) -> Ended {
    let mut command = yard.command(&["shell", "broken", "--", "sh", "-c", script]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writing = std::thread::spawn(move || stdin.write_all(&input));
    let ended = child.wait_with_output().unwrap().into();
    // The command may not read all of it.
    let _ = writing.join().unwrap();
    ended
}

fn shells(shared: &Shared) {
    let broken = slow("broken", "echo 'int main( {' > x.c\ncc -c x.c");
    let yard = shared.yard("farm-shells", &[broken, good("fine", "")]);
    let mut served = Served::start(&yard);
    let mut far = Far::join(&shared.path("workers"), &yard, &served, "far");
    yard.run(&["build", "--no-scan", "--elsewhere"]).exits(1).says(&["1 built", "1 failed"]);
    yard.run(&["why", "broken"]).exits(0).says(&["shell broken"]);
    let printed = yard.run(&["shell", "broken", "--", "cat", "x.c"]).exits(0);
    assert_eq!(printed.stdout, "int main( {\n", "{}", far.said());
    // Standard input, output and errors are those of the caller, in any size, and so is the exit code.
    let mebibyte = vec![b'x'; 1 << 20];
    let ended = script(&yard, "tee copy | wc -c; echo an error >&2; exit 7", &mebibyte);
    assert_eq!((ended.code, ended.stdout.trim(), ended.stderr.trim()), (Some(7), "1048576", "an error"));
    let ended = script(&yard, "cat copy", b"");
    assert_eq!((ended.code, ended.stdout.len()), (Some(0), mebibyte.len()), "{}", ended.stderr);
    // A command that does not read its input, or whose output is cut off, ends all the same.
    assert_eq!(script(&yard, "exec <&-; exit 3", &mebibyte).code, Some(3));
    // Changes stay, those of root too, and the root is no other one than that of the build.
    yard.run(&["shell", "--root", "broken", "--", "sh", "-c", "id -u > /etc/changed"]).exits(0);
    assert_eq!(script(&yard, "cat /etc/changed; touch /etc/not", b"").stdout, "0\n");
    assert_eq!(script(&yard, "ls /etc/not", b"").code, Some(2));
    assert_eq!(
        script(&yard, "ip -brief link | grep -vc '^lo '", b"").stdout.trim(),
        "0",
        "it has no network"
    );
    // A missing command, worker or root.
    assert_eq!(yard.run(&["shell", "broken", "--", "absent"]).code, Some(127));
    yard.run(&["shell", "broken", "--worker", "absent"]).exits(2).says(&["no worker absent"]);
    yard.run(&["shell", "fine", "--worker", "far"])
        .exits(2)
        .says(&["far keeps no root of a failed build of fine"]);
    yard.run(&["shell", "fine"]).exits(2).says(&["no kept root", "why fine"]);
    yard.run(&["shell", "../broken", "--worker", "far"]).exits(2);
    // A killed user ends the command, and so does a user who interrupts it.
    let start = |seconds: &'static str| {
        let started = yard.start(&["shell", "broken", "--", "sleep", seconds]);
        until("the command runs", || sleeps(seconds));
        started
    };
    for (signal, seconds) in [(libc::SIGKILL, "6171.25"), (libc::SIGINT, "6172.25")] {
        let mut shell = start(seconds);
        shell.signal(signal);
        shell.end();
        until("the command has ended", || !sleeps(seconds));
    }
    // So does a command that does not read what is typed.
    let mut command = yard.command(&["shell", "broken", "--", "sleep", "6174.25"]);
    let mut unread =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdin = unread.stdin.take().unwrap();
    let writing = std::thread::spawn(move || stdin.write_all(&vec![b'x'; 8 << 20]));
    until("the command runs", || sleeps("6174.25"));
    std::thread::sleep(std::time::Duration::from_secs(1));
    // SAFETY: the child was not waited for, so the number is its own.
    unsafe { libc::kill(unread.id() as i32, libc::SIGINT) };
    assert_eq!(unread.wait().unwrap().code(), Some(130));
    writing.join().unwrap().unwrap_err();
    until("the command has ended", || !sleeps("6174.25"));
    // A worker that is killed, or a door, says so.
    let mut shell = start("6173.25");
    served.signal(libc::SIGKILL);
    shell.end().exits(2).says(&["failed to enter the root of broken on far", "ended the connection"]);
    yard.run(&["shell", "broken"]).exits(2).says(&["kilnyard serve is not running", " serve"]);
    let served = Served::start_at(&yard, served.url.strip_prefix("https://").unwrap());
    until("the command of a lost door has ended", || !sleeps("6173.25"));
    until("the worker is back", || script(&yard, "exit 5", b"").code == Some(5));
    far.signal(libc::SIGKILL);
    far.start(&yard, &[]);
    until("the worker is back", || script(&yard, "exit 5", b"").code == Some(5));
    // The next failure replaces the root.
    yard.run(&["build", "--no-scan", "--elsewhere", "--force", "broken"]).exits(1);
    assert_eq!(script(&yard, "ls copy", b"").code, Some(2));
    drop(served);
    assert!(yard.is_clean());
}
