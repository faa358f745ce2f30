//! The folder and the user of a session under test.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// An ordinary user and group: not the owner of unknown files. No account is needed.
pub const USER: u32 = 23_456;

/// A copy of this program that every user can reach.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if !is_root() {
            return std::env::current_exe().unwrap();
        }
        let folder = tempfile::Builder::new().prefix("kilnyard-calls-").tempdir().unwrap().keep();
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
        let copy = folder.join("calls");
        // Another process copies it: a child forked meanwhile would keep the file open for writing, and the program
        // could not be started.
        let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&copy).status();
        assert!(copied.unwrap().success());
        REMOVED.get_or_init(|| folder);
        // SAFETY: the function does not unwind, and runs when nothing else does.
        unsafe { libc::atexit(remove_copy) };
        copy
    })
}

static REMOVED: OnceLock<PathBuf> = OnceLock::new();

extern "C" fn remove_copy() {
    if let Some(folder) = REMOVED.get() {
        let _ = std::fs::remove_dir_all(folder);
    }
}

/// The command line of our fakeroot.
pub fn ours() -> Vec<OsString> {
    vec![program().into(), "as-fakeroot".into()]
}

/// The command line of Debian's fakeroot. If it is not installed, prints so and returns `None`.
pub fn installed() -> Option<Vec<OsString>> {
    static THERE: OnceLock<bool> = OnceLock::new();
    let there = THERE.get_or_init(|| {
        let there = Command::new("fakeroot").arg("-v").output().is_ok_and(|output| output.status.success());
        if !there {
            let _ = writeln!(std::io::stderr(), "skipped: installed: fakeroot is not installed");
        }
        there
    });
    there.then(|| vec!["fakeroot".into()])
}

pub fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions.
    unsafe { libc::geteuid() == 0 }
}

/// An empty folder that belongs to the user of the sessions.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Folder {
        let folder = tempfile::Builder::new().prefix("kilnyard-call-").tempdir().unwrap();
        if is_root() {
            chown(folder.path(), Some(USER), Some(USER)).unwrap();
        }
        Folder(folder)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Prepares a command in this folder, as an ordinary user.
    pub fn command(&self, words: &[OsString]) -> Command {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(self.path()).env("LC_ALL", "C");
        // Root's PATH may lead to folders that the user may not enter.
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        for name in ["FAKEROOTKEY", "LD_PRELOAD", "FAKEROOTDONTTRYCHOWN", "TMPDIR"] {
            command.env_remove(name);
        }
        if is_root() {
            command.uid(USER).gid(USER);
        }
        command
    }

    /// Runs a shell script in a session of ours with these options; returns its output.
    pub fn shell(&self, options: &[&str], script: &str) -> String {
        let mut words = ours();
        words.extend(options.iter().map(OsString::from));
        words.extend(["--", "sh", "-ec", script].map(OsString::from));
        let output = self.command(&words).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}: {}\n{errors}", output.status);
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }
}
