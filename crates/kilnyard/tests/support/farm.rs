//! `kilnyard serve`, and workers in a mount namespace without the yard, which have only its address.

use super::{Ended, Yard, until};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Hides the folders before `--` under empty ones, then executes the rest.
const HIDDEN: &str = r#"while [ "$1" != -- ]; do mount -t tmpfs none "$1"; test -z "$(ls "$1")"; shift; done; shift; exec "$@""#;

/// `kilnyard serve` of a yard.
pub struct Served {
    process: Child,
    pub url: String,
}

impl Served {
    pub fn start(yard: &Yard) -> Served {
        Served::start_at(yard, "127.0.0.1:0")
    }

    pub fn start_at(yard: &Yard, address: &str) -> Served {
        Served::start_with(yard, address, &[])
    }

    pub fn start_with(yard: &Yard, address: &str, options: &[&str]) -> Served {
        let log = log_of(yard);
        let mut command = yard.command(&[&["serve", "--listen", address], options].concat());
        command.stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap());
        let process = command.spawn().unwrap();
        let said = || fs::read_to_string(&log).unwrap();
        until("the door is open", || said().contains("Ctrl-C"));
        let said = said();
        let address = said.split("connect to ").nth(1).and_then(|rest| rest.lines().next()).unwrap();
        Served { url: format!("https://{address}"), process }
    }
}

/// What `kilnyard serve` of a yard says. It is not in the yard, whose folder may have to be empty.
fn log_of(yard: &Yard) -> PathBuf {
    yard.folder.with_extension("serve-log")
}

/// What `kilnyard serve` of a yard has said.
pub fn served(yard: &Yard) -> String {
    fs::read_to_string(log_of(yard)).unwrap_or_default()
}

impl Served {
    pub fn signal(&mut self, signal: i32) {
        // SAFETY: the child was not waited for, so the number is its own.
        unsafe { libc::kill(self.process.id() as i32, signal) };
        self.process.wait().unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended.
        if self.process.try_wait().unwrap().is_none() {
            self.signal(libc::SIGINT);
        }
    }
}

/// A worker in a folder of its own.
pub struct Far {
    pub folder: PathBuf,
    hidden: Vec<PathBuf>,
    child: Option<Child>,
}

impl Far {
    /// Joins a yard.
    pub fn join(folder: &Path, yard: &Yard, served: &Served, name: &str) -> Far {
        Far::join_with(folder, yard, served, name, &[])
    }

    /// Joins; these folders are hidden too.
    pub fn join_without(folder: &Path, yard: &Yard, served: &Served, name: &str, hidden: &[&Path]) -> Far {
        Far::join_of(folder, yard, served, (name, hidden), &[])
    }

    /// Joins with a token that these options of `workers token` decide.
    pub fn join_with(folder: &Path, yard: &Yard, served: &Served, name: &str, options: &[&str]) -> Far {
        Far::join_of(folder, yard, served, (name, &[]), options)
    }

    fn join_of(
        folder: &Path,
        yard: &Yard,
        served: &Served,
        (name, hidden): (&str, &[&Path]),
        options: &[&str],
    ) -> Far {
        let folder = folder.join(format!("{name}-of-{}", yard.folder.file_name().unwrap().display()));
        fs::create_dir_all(&folder).unwrap();
        let token = folder.join("token");
        fs::write(&token, yard.run(&[&["workers", "token"], options].concat()).exits(0).stdout).unwrap();
        let hidden = hidden.iter().map(|folder| (*folder).to_owned()).collect();
        let mut far = Far { folder, hidden, child: None };
        let token = token.display().to_string();
        far.start(yard, &["--join", &served.url, "--token-file", &token, "--name", name]);
        until("the worker is connected", || connected(yard).contains(name));
        far
    }

    /// Starts the worker, or starts it again.
    pub fn start(&mut self, yard: &Yard, arguments: &[&str]) {
        let program = super::command();
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "--", "/bin/sh", "-euc", HIDDEN, "sh"]);
        command.arg(&yard.folder).args(&self.hidden).arg("--");
        command.arg(program.get_program()).args(["worker", "--cores", "1", "--folder"]);
        command.arg(self.folder.join("worker")).args(arguments).current_dir("/");
        super::quiet(&mut command);
        let log = fs::File::create(self.folder.join("log")).unwrap();
        self.child = Some(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
    }

    pub fn signal(&mut self, signal: i32) -> Ended {
        let child = self.child.take().unwrap();
        // SAFETY: the child was not waited for, so the number is its own.
        unsafe { libc::kill(child.id() as i32, signal) };
        child.wait_with_output().unwrap().into()
    }

    pub fn said(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.signal(libc::SIGINT);
        }
        // Layers and roots belong to the ids of roots, so Kilnyard removes them.
        Yard { folder: self.folder.join("worker") }.run(&["clean", "--base"]);
    }
}

/// The names of the connected workers.
pub fn connected(yard: &Yard) -> BTreeSet<String> {
    let status = yard.run(&["workers", "--json"]).exits(0).json();
    let workers = status["workers"].as_array().unwrap().iter();
    let seen = workers.filter(|worker| worker["silent_seconds"].as_f64().is_some());
    seen.map(|worker| worker["name"].as_str().unwrap().to_owned()).collect()
}
