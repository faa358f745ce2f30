//! The program as a replacement of fakeroot: called by that name, as a link and as a copy, with the options and
//! variables that dpkg-buildpackage, makepkg, abuild, buildroot and OpenWrt use.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_kilnyard");

/// A folder with a link to the program, named `fakeroot`.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(PROGRAM, folder.path().join("fakeroot")).unwrap();
    folder
}

fn run(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(folder.join("fakeroot"));
    command.args(arguments).current_dir(folder).env("LC_ALL", "C");
    for name in ["FAKEROOTKEY", "LD_PRELOAD", "FAKEROOTDONTTRYCHOWN"] {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied()).output().unwrap()
}

/// The output of a command that must succeed.
fn printed(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let output = run(folder, arguments, variables);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {}\n{errors}", output.status);
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

#[test]
fn a_link_and_a_copy_are_fakeroot() {
    let link = folder();
    assert_eq!(printed(link.path(), &["id", "-u"], &[]), "0");
    let copy = tempfile::tempdir().unwrap();
    // Another process copies it: a child that another test forks meanwhile would keep the file open for writing.
    assert!(Command::new("cp").arg(PROGRAM).arg(copy.path().join("fakeroot")).status().unwrap().success());
    assert_eq!(printed(copy.path(), &["--", "id", "-u"], &[]), "0");
    let output =
        Command::new(PROGRAM).args(["fakeroot", "--", "id", "-un"]).env_remove("FAKEROOTKEY").output();
    assert_eq!(output.unwrap().stdout, b"root\n");
}

#[test]
fn every_option_is_taken() {
    let folder = folder();
    let folder = folder.path();
    // The calls of dpkg-buildpackage, makepkg and buildroot, and options that they never use.
    let words = ["-l", "library", "-f", "faked", "-b", "17", "--", "sh", "-c", "echo $FAKED_MODE"];
    assert_eq!(printed(folder, &words, &[]), "unknown-is-root");
    let words =
        ["--lib", "library", "--faked=faked", "--fd-base", "17", "-u", "sh", "-c", "echo $FAKED_MODE"];
    assert_eq!(printed(folder, &words, &[]), "unknown-is-real");
    assert_eq!(printed(folder, &["--unknown-is-real", "--static=off", "echo", "-1", "-2"], &[]), "-1 -2");
    let script = "touch file; chown 5:6 file; mknod null c 1 3; exit 3";
    assert_eq!(run(folder, &["-s", "state", "sh", "-c", script], &[]).status.code(), Some(3));
    let look = ["-i", "state", "-s", "state", "stat", "-c", "%u %g %t %T", "file", "null"];
    assert_eq!(printed(folder, &look, &[]), "5 6 0 0\n0 0 1 3");
    assert_eq!(printed(folder, &look, &[]), "5 6 0 0\n0 0 1 3");
    assert!(printed(folder, &["-v"], &[]).starts_with("fakeroot version "));
    assert!(printed(folder, &["--version"], &[]).starts_with("fakeroot version "));
    for words in [&["-h"][..], &["--help"], &["--no-such-option"], &["-s"]] {
        let output = run(folder, words, &[]);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("usage: fakeroot"), "{words:?}");
    }
}

#[test]
fn every_variable_is_taken() {
    let folder = folder();
    let folder = folder.path();
    // Callers check the key and stop without it; borg searches for the name in LD_PRELOAD.
    let shown = printed(folder, &["sh", "-c", "echo \"${FAKEROOTKEY:?} $LD_PRELOAD\""], &[]);
    assert!(shown.split(' ').nth(1).unwrap().contains("fakeroot"), "{shown}");
    let nested = printed(folder, &["sh", "-c", "./fakeroot true 2>&1 || echo $?"], &[]);
    assert!(nested.contains("cannot be nested") && nested.ends_with('1'), "{nested}");
    let users = [("FAKEROOTUID", "1"), ("FAKEROOTEUID", "2"), ("FAKEROOTSUID", "3"), ("FAKEROOTFUID", "4")];
    let groups = [("FAKEROOTGID", "5"), ("FAKEROOTEGID", "6"), ("FAKEROOTSGID", "7"), ("FAKEROOTFGID", "8")];
    let variables = [users, groups].concat();
    let script = "import os; print(os.getresuid(), os.getresgid()); os.mkdir('theirs'); \
        found = os.stat('theirs'); print(found.st_uid, found.st_gid)";
    let shown = printed(folder, &["python3", "-c", script], &variables);
    assert_eq!(shown, "(1, 2, 3) (5, 6, 7)\n4 8");
    // A real chown is tried as root, unless FAKEROOTDONTTRYCHOWN is set.
    let owner = |variables: &[(&str, &str)]| {
        printed(
            folder,
            &["sh", "-c", "rm -f file; touch file; chown 5:6 file; stat -c '%u %g' file"],
            variables,
        );
        let facts = std::fs::metadata(folder.join("file")).unwrap();
        (facts.uid(), facts.gid())
    };
    let mine = std::fs::metadata(folder).unwrap();
    assert_eq!(owner(&[("FAKEROOTDONTTRYCHOWN", "1")]), (mine.uid(), mine.gid()));
    if mine.uid() == 0 {
        assert_eq!(owner(&[]), (5, 6));
    }
}

/// Installs the filter that roots have for flushes, then executes the command: fsync (74 on x86_64) returns success.
const BEHIND_A_FILTER: &str = "import ctypes, os, struct, sys
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 74), (6, 0, 0, 0x50000), (6, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', len(steps), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()
assert libc.fsync(-1) == 0
os.execvp(sys.argv[1], sys.argv[1:])";

#[test]
fn it_works_where_flushes_are_discarded() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let folder = folder();
    // For a program without a dynamic linker, another filter is installed above that one.
    for shell in [&["busybox", "sh"][..], &["sh"]] {
        let script = "touch file; chown 5:6 file; sync file; stat -c %u:%g file; rm file";
        let output = Command::new("python3")
            .args(["-c", BEHIND_A_FILTER])
            .arg(folder.path().join("fakeroot"))
            .args(shell)
            .args(["-c", script])
            .current_dir(folder.path())
            .env_remove("FAKEROOTKEY")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert_eq!(said, "5:6\n", "{shell:?}");
    }
}
