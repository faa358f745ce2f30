//! Open files inherited from the caller: every process that the program starts would inherit them, too.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A descriptor that neither shells nor the files of a test have: a copy onto itself would be closed at exec.
const NUMBER: i32 = 99;

/// Starts the program so that it waits for a pipe without a writer, with an inherited descriptor of a folder, as in
/// `( flock -n 99; kilnyard build ) 99>lock`.
fn start(folder: &Path, words: &[&str]) -> Child {
    let pipe = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let open = File::open("/etc").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kilnyard"));
    command.args(words).arg(&pipe).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let number = open.as_raw_fd();
    // SAFETY: dup2 may be called between fork and exec; the copy is not closed at exec.
    unsafe {
        command.pre_exec(move || match libc::dup2(number, NUMBER) {
            NUMBER => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    command.spawn().unwrap()
}

fn has(child: &Child, folder: &str) -> bool {
    let all = std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
    all.flatten().any(|entry| std::fs::read_link(entry.path()).is_ok_and(|path| path == Path::new(folder)))
}

#[test]
fn open_files_of_the_caller_are_closed_before_anything_is_started() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(folder.path(), &["resolve", "--ecosystem", "pkgsrc", "--import"]);
    let until = Instant::now() + Duration::from_secs(30);
    while has(&child, "/etc") && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    // The program still runs, so the program itself closed the descriptor.
    assert!(child.try_wait().unwrap().is_none());
    let kept = has(&child, "/etc");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!kept);
}

/// make passes its jobserver to `fakeroot debian/rules` this way.
#[test]
fn fakeroot_passes_on_the_open_files_of_its_caller() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(folder.path(), &["fakeroot", "--", "cat"]);
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none());
    let kept = has(&child, "/etc");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(kept);
}
