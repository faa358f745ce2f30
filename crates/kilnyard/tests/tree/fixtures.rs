//! Yards of miniature trees, with a shared base root.

use crate::support::server::Server;
use crate::support::tree::MiniTree;
use crate::support::{self, Ended, Started, Yard};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A trial's name and function.
pub type Trial = (&'static str, fn(&Shared));

/// A yard with a base root and a kit, from which the trials' yards are made.
pub struct Shared {
    folder: tempfile::TempDir,
    /// The kit's archive is in the folder of this tree.
    tree: MiniTree,
    kit: PathBuf,
    odd: OnceLock<Odd>,
}

/// All odd packages, after one run.
pub struct Odd {
    pub tree: MiniTree,
    pub server: Server,
    pub yard: Yard,
    pub ended: Ended,
}

/// The folder of the repository's packages.
pub const ALL: &str = "repository/packages/All";

impl Shared {
    pub fn prepare() -> Result<Shared, String> {
        for tool in ["bmake", "mmdebstrap", "sha512sum", "zstd"] {
            if !support::has(tool) {
                return Err(format!("{tool} is not installed"));
            }
        }
        let tree = MiniTree::new(&[("a/one", "")]);
        let kit = tree.kit();
        let shared = Shared { folder: support::folder("trees"), tree, kit, odd: OnceLock::new() };
        let base = Yard { folder: shared.path("base") };
        let step = |what: &str, ended: Ended| match ended.code {
            Some(0) => Ok(()),
            _ => Err(format!("{what}: {}", said(&ended))),
        };
        step("init", shared.init(&base, &shared.tree, &[]))?;
        step("this machine does not meet a requirement", base.run(&["doctor"]))?;
        step("no base root", base.run(&["scan"]))?;
        Ok(shared)
    }

    /// A path in the folder that contains the yards.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs `init` for a yard, and adapts the configuration to the tests.
    pub fn init(&self, yard: &Yard, tree: &MiniTree, arguments: &[&str]) -> Ended {
        let mut command = yard.command(&["init", "pkgsrc", "--make", "/usr/bin/bmake", "--tree"]);
        command.arg(tree.path()).arg("--bootstrap-kit").arg(&self.kit).args(arguments);
        let ended: Ended = command.output().unwrap().into();
        if ended.code == Some(0) {
            yard.change("# packages = [\"zlib1g-dev\"]", "packages = [\"bmake\", \"make\"]");
            yard.change("# slots = 2", "slots = 2");
            yard.change("# jobs = 2", "jobs = 2");
            yard.change("# log-mebibytes-max = 32", "log-mebibytes-max = 1");
        }
        ended
    }

    /// A new yard of these directories of a tree, or of all; its base root and kit consist of hard links.
    pub fn yard(&self, name: &str, tree: &MiniTree, locations: &[&str]) -> Yard {
        let yard = Yard { folder: self.path(name) };
        self.init(&yard, tree, locations).exits(0);
        self.give_layers(&yard);
        yard
    }

    fn give_layers(&self, yard: &Yard) {
        fs::remove_dir(yard.path("layers")).unwrap();
        support::copy("-al", &self.path("base/layers"), &yard.folder);
        fs::copy(self.path("base/state/range"), yard.path("state/range")).unwrap();
    }

    /// The yard of all odd packages, built once.
    pub fn odd(&self) -> &Odd {
        self.odd.get_or_init(|| {
            let tree = MiniTree::odd();
            let server = serve(&tree);
            let yard = self.yard("odd", &tree, &[]);
            let ended = yard.run(&["build"]);
            Odd { tree, server, yard, ended }
        })
    }

    pub fn remove(&self) {
        // Some files belong to the ids of roots; Kilnyard made them for this user, and can remove them.
        for entry in fs::read_dir(self.folder.path()).into_iter().flatten().flatten() {
            Yard { folder: entry.path() }.run(&["clean", "--base"]);
            let _ = fs::remove_dir_all(entry.path());
        }
        let _ = fs::remove_dir(self.folder.path());
    }
}

/// Serves the distfiles of a tree, and makes the tree fetch from there.
pub fn serve(tree: &MiniTree) -> Server {
    let entries = fs::read_dir(tree.sites()).into_iter().flatten().flatten();
    let file = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        (format!("/{name}"), fs::read(entry.path()).unwrap())
    };
    let server = Server::start(entries.map(file).collect::<BTreeMap<_, _>>());
    tree.fetches_from(&format!("{}/", server.url()));
    settle();
    server
}

/// Waits, because files written at the moment of a scan would make it repeat their directories.
pub fn settle() {
    std::thread::sleep(std::time::Duration::from_millis(20));
}

/// Standard output and error.
pub fn said(ended: &Ended) -> String {
    format!("{}{}", ended.stdout, ended.stderr)
}

/// Queries and commands for a yard of a tree.
pub trait Packages {
    fn build(&self) -> Ended;
    fn state(&self, package: &str) -> String;
    fn states(&self, packages: &[&str]) -> Vec<String>;
    /// The output of `why --json` for a package.
    fn why(&self, package: &str) -> serde_json::Value;
    /// Name, state and reason of every package in the plan that is not up to date.
    fn planned(&self) -> Vec<(String, String, String)>;
    /// Names of the packages that a command would build.
    fn to_build(&self) -> Vec<String>;
    /// Number of builds of a package.
    fn builds(&self, package: &str) -> usize;
    /// Names of the packages being built now.
    fn building(&self) -> Vec<String>;
    /// Names of the published packages.
    fn published(&self) -> Vec<String>;
    /// The summary of the repository, without the fields that depend on the time of a build.
    fn summary(&self) -> String;
    /// Replaces text in the configuration.
    fn change(&self, from: &str, to: &str);
    /// Asserts that the yard has no mounts, no processes and no roots left over.
    #[track_caller]
    fn is_clean(&self);
}

impl Packages for Yard {
    fn build(&self) -> Ended {
        self.run(&["build"])
    }

    fn state(&self, package: &str) -> String {
        self.why(package)["state"].as_str().unwrap_or("?").to_owned()
    }

    fn states(&self, packages: &[&str]) -> Vec<String> {
        packages.iter().map(|package| self.state(package)).collect()
    }

    fn why(&self, package: &str) -> serde_json::Value {
        self.run(&["why", package, "--json"]).exits(0).json()
    }

    fn planned(&self) -> Vec<(String, String, String)> {
        let plan = self.run(&["plan", "--json"]).exits(0).json();
        let text = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap().to_owned();
        let rows = plan["packages"].as_array().unwrap().iter();
        let rows = rows.map(|row| (text(row, "name"), text(row, "state"), text(row, "reason")));
        rows.filter(|(_, state, _)| state != "up-to-date").collect()
    }

    fn to_build(&self) -> Vec<String> {
        let planned = self.planned().into_iter();
        planned.filter(|(_, state, _)| state != "left-out").map(|(name, _, _)| name).collect()
    }

    fn builds(&self, package: &str) -> usize {
        self.run(&["history", package, "--json"]).exits(0).json().as_array().unwrap().len()
    }

    fn building(&self) -> Vec<String> {
        let ended = self.run(&["status", "--json"]);
        // Before the first run there is no status.
        let Ok(status) = serde_json::from_str::<serde_json::Value>(&ended.stdout) else { return Vec::new() };
        let building = status["building"].as_array().cloned().unwrap_or_default();
        building.iter().filter_map(|build| build["package"].as_str().map(str::to_owned)).collect()
    }

    fn published(&self) -> Vec<String> {
        let summary = self.summary();
        summary.lines().filter_map(|line| line.strip_prefix("PKGNAME=")).map(str::to_owned).collect()
    }

    fn summary(&self) -> String {
        let Ok(packed) = fs::read(self.path(ALL).join("pkg_summary.zst")) else { return String::new() };
        let text = String::from_utf8(zstd::decode_all(&packed[..]).unwrap()).unwrap();
        // The packed size changes with the time.
        let of_time = ["BUILD_DATE=", "FILE_SIZE="];
        let lines = text.lines().filter(|line| !of_time.iter().any(|field| line.starts_with(field)));
        lines.map(|line| format!("{line}\n")).collect()
    }

    fn change(&self, from: &str, to: &str) {
        let before = self.read("kilnyard.toml");
        assert!(before.contains(from), "{from} is not in:\n{before}");
        fs::write(self.path("kilnyard.toml"), before.replacen(from, to, 1)).unwrap();
    }

    fn is_clean(&self) {
        let path = self.folder.display().to_string();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(&format!("{path}/roots")), "{mounts}");
        let roots: Vec<String> =
            self.names("roots").into_iter().filter(|name| !name.starts_with("failed-")).collect();
        assert_eq!(roots, [""; 0]);
        let left: Vec<String> = processes().into_iter().filter(|line| line.contains(&path)).collect();
        assert_eq!(left, [""; 0]);
    }
}

/// Starts a build whose output goes to files.
pub fn begin(yard: &Yard, arguments: &[&str]) -> Started {
    yard.start(&[&["build"], arguments].concat())
}

/// Command lines of the processes on this machine.
pub fn processes() -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " ").trim().to_owned()).collect()
}

/// Adds a line to a file of a tree.
pub fn add_line(tree: &MiniTree, path: &str, line: &str) {
    let text = fs::read_to_string(tree.path().join(path)).unwrap_or_default();
    tree.write(path, &format!("{text}{line}\n"));
    settle();
}

/// Lists everything in a folder: paths, sizes and times.
pub fn listing(folder: &Path) -> String {
    let found = Command::new("find").arg(folder).args(["-printf", "%p %y %s %T@\n"]).output().unwrap();
    assert!(found.status.success());
    let mut lines: Vec<String> =
        String::from_utf8(found.stdout).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    lines.join("\n")
}
