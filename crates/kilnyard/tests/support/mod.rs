//! Shared by the trials of the whole program: a yard in a folder, the program, an archive and its server, source
//! packages, and trials that skip with a reason.
//!
//! Each test program uses only a part of this.
#![allow(dead_code)]

pub mod archive;
pub mod committer;
pub mod elsewhere;
pub mod farm;
pub mod git;
pub mod ordinary;
pub mod server;
pub mod site;
pub mod tiny;
pub mod tree;
pub mod trials;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long to wait for an expected event: far longer than it takes, so that only a hang fails.
const PATIENCE: Duration = Duration::from_secs(120);

/// Exit code and output of the program.
#[derive(Clone, Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// Asserts the exit code; a failure shows all output.
    #[track_caller]
    pub fn exits(self, code: i32) -> Ended {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// Asserts that standard output or error contains each of these.
    #[track_caller]
    pub fn says(self, words: &[&str]) -> Ended {
        for word in words {
            let found = self.stdout.contains(word) || self.stderr.contains(word);
            assert!(found, "`{word}` is not in\nstdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        }
        self
    }

    /// Asserts that neither standard output nor error contains any of these.
    #[track_caller]
    pub fn lacks(self, words: &[&str]) -> Ended {
        for word in words {
            let found = self.stdout.contains(word) || self.stderr.contains(word);
            assert!(!found, "`{word}` is in\nstdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        }
        self
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| {
            panic!("not JSON: {error}\nstdout:\n{}\nstderr:\n{}", self.stdout, self.stderr)
        })
    }
}

impl From<std::process::Output> for Ended {
    fn from(output: std::process::Output) -> Ended {
        Ended {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// The program under test.
pub fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_kilnyard"))
}

/// The program, without variables of the environment that would change it.
pub fn command() -> Command {
    let mut command = Command::new(program());
    quiet(&mut command);
    command
}

/// Removes variables of the user's environment that would change the program.
pub fn quiet(command: &mut Command) {
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "KILNYARD_YARD", "PAGER"] {
        command.env_remove(name);
    }
    command.env("NO_COLOR", "1").env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
}

/// Runs the program without a yard.
pub fn kilnyard(arguments: &[&str]) -> Ended {
    command().args(arguments).output().unwrap().into()
}

/// A folder with a configuration.
#[derive(Debug)]
pub struct Yard {
    pub folder: PathBuf,
}

impl Yard {
    pub fn path(&self, relative: &str) -> PathBuf {
        self.folder.join(relative)
    }

    pub fn configure(&self, text: &str) {
        std::fs::create_dir_all(&self.folder).unwrap();
        std::fs::write(self.path("kilnyard.toml"), text).unwrap();
    }

    /// Gives the yard a signer with a new key, as `init` does.
    pub fn make_signer(&self) {
        std::fs::create_dir_all(self.path("state")).unwrap();
        kilnyard_yard::init::make_key(&self.folder).unwrap();
    }

    /// Approves everything that the signer refused.
    pub fn approve_all(&self) {
        let listed = self.run(&["keys", "--json"]).exits(0).json();
        let ids = listed["pending"].as_array().unwrap().iter().map(|refusal| refusal["id"].as_str().unwrap());
        let arguments: Vec<&str> = ["keys", "approve"].into_iter().chain(ids).collect();
        self.run(&arguments).exits(0);
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command();
        command.arg("--yard").arg(&self.folder).args(arguments);
        command
    }

    /// Runs the program in this yard.
    pub fn run(&self, arguments: &[&str]) -> Ended {
        self.command(arguments).output().unwrap().into()
    }

    /// Starts the program in this yard. Its output goes to files, so it never waits for a reader.
    pub fn start(&self, arguments: &[&str]) -> Started {
        let (out, err) = (self.path("test-stdout"), self.path("test-stderr"));
        let child = self
            .command(arguments)
            .stdout(std::fs::File::create(&out).unwrap())
            .stderr(std::fs::File::create(&err).unwrap())
            .spawn()
            .unwrap();
        Started { child, out, err }
    }

    pub fn read(&self, relative: &str) -> String {
        let path = self.path(relative);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub fn names(&self, relative: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.path(relative)) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

/// The program while it runs.
pub struct Started {
    pub child: std::process::Child,
    out: PathBuf,
    err: PathBuf,
}

impl Started {
    pub fn signal(&self, signal: i32) {
        // SAFETY: no memory is touched, and the child was not waited for, so the number is its own.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    pub fn stderr(&self) -> String {
        std::fs::read_to_string(&self.err).unwrap_or_default()
    }

    /// Waits for the end; the code is `None` after a signal.
    pub fn end(&mut self) -> Ended {
        let mut status = None;
        until("the program ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let stdout = std::fs::read_to_string(&self.out).unwrap_or_default();
        Ended { code: status.and_then(|s| s.code()), stdout, stderr: self.stderr() }
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // A failed trial leaves no process running.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a condition holds; `what` describes it.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A temporary folder for a trial, which other users may enter.
pub fn folder(name: &str) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::Permissions::from_mode(0o755);
    tempfile::Builder::new().prefix(&format!("kilnyard-{name}-")).permissions(mode).tempdir().unwrap()
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Copies a folder with `cp`; its files may belong to subordinate ids of this user.
pub fn copy(how: &str, from: &Path, to: &Path) {
    const MAPPED: [&str; 3] = ["unshare", "--map-root-user", "--map-auto"];
    let has_range =
        || Command::new(MAPPED[0]).args(&MAPPED[1..]).arg("true").output().unwrap().status.success();
    let mut words = vec!["cp", how];
    if !is_root() && has_range() {
        words.splice(0..0, MAPPED);
    }
    assert!(Command::new(words[0]).args(&words[1..]).arg(from).arg(to).status().unwrap().success());
}

/// Whether a program is in `PATH`.
pub fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
