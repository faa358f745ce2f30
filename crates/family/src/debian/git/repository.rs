//! The yard's own copy of a git repository, and queries of it.
//!
//! A foreign repository is only fetched from: its configuration, hooks and attributes are never read. The copy is
//! bare, without hooks, and this program writes its configuration. Git's options and environment exclude the rest:
//! transports other than the one that the address names, submodules, monitors of the file system, lazy fetches,
//! filters (of LFS for instance) and all attributes that change contents.

use kilnyard_ecosystem::debian::packaging::{GitRule, Repository};
use kilnyard_mirror::{Sha256Hex, without_password};
use kilnyard_model::text;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long one command of git may take: the largest repositories of packages have a few gigabytes.
const PATIENCE: Duration = Duration::from_secs(3600);
/// How often a command is checked for its end.
const TICK: Duration = Duration::from_millis(20);
/// The largest answer to a query: the longest `debian/changelog` has 3 MB.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// How much of git's messages is kept.
const MESSAGE_BYTES_MAX: u64 = 16 << 10;
/// Lines of git's messages that a reason shows.
const LINES_SHOWN: usize = 3;
/// The largest exported tree: twice that of Chromium, the largest source of Debian.
const TREE_BYTES_MAX: u64 = 16 << 30;
/// The reference of the repository's own `HEAD` in the copy.
const HEAD: &str = "refs/kilnyard/head";
/// Overrides every attribute of a tree that changes what is exported (gitattributes(5)).
const ATTRIBUTES: &str =
    "* -text -eol -crlf -ident -filter -working-tree-encoding -export-subst -export-ignore -diff -merge\n";

/// The copy of a repository.
pub struct Copy<'a> {
    /// The bare repository.
    folder: PathBuf,
    cancel: &'a AtomicBool,
}

/// Why a git command failed, as text for people, or that the user interrupted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The reason.
    Reason(String),
    /// The user interrupted the command.
    Cancelled,
}

impl From<String> for Failed {
    fn from(reason: String) -> Failed {
        Failed::Reason(reason)
    }
}

type Result<T> = std::result::Result<T, Failed>;

/// The address for git. A path is absolute, so that it cannot be taken for anything else.
fn address(yard: &Path, rule: &GitRule) -> String {
    match &rule.repository {
        Repository::Folder(path) => yard.join(path).display().to_string(),
        Repository::Https(address) | Repository::Ssh(address) => address.clone(),
    }
}

/// The name of git's transport for a repository.
fn transport(rule: &GitRule) -> &'static str {
    match rule.repository {
        Repository::Folder(_) => "file",
        Repository::Https(_) => "https",
        Repository::Ssh(_) => "ssh",
    }
}

/// A name for the files of a repository.
pub fn name_of(yard: &Path, rule: &GitRule) -> String {
    Sha256Hex::of(address(yard, rule).as_bytes()).as_str()[..16].to_owned()
}

impl<'a> Copy<'a> {
    /// Opens the copy of a repository in this folder of the yard, or makes it.
    pub fn open(folder: PathBuf, cancel: &'a AtomicBool) -> Result<Copy<'a>> {
        let copy = Copy { folder, cancel };
        let failed = |error: std::io::Error| Failed::Reason(format!("failed to make a copy: {error}"));
        if !copy.folder.join("HEAD").exists() {
            fs_err::create_dir_all(&copy.folder).map_err(failed)?;
            let mut command = Command::new("git");
            alone(&mut command);
            command
                .args(["init", "--quiet", "--bare", "--template=", "--initial-branch=none"])
                .arg(&copy.folder);
            copy.perform(&mut command, "make a copy")?;
        }
        fs_err::create_dir_all(copy.folder.join("info")).map_err(failed)?;
        fs_err::write(copy.folder.join("info/attributes"), ATTRIBUTES).map_err(failed)?;
        Ok(copy)
    }

    /// A repository for queries, as it is.
    pub fn at(folder: PathBuf, cancel: &'a AtomicBool) -> Copy<'a> {
        Copy { folder, cancel }
    }

    /// The content of an object of this kind (`commit`, `tree` or `blob`); absent if there is none.
    pub fn object(&self, kind: &str, name: &str) -> Option<Vec<u8>> {
        let mut command = self.asking();
        command.args(["cat-file", kind, name]);
        self.perform(&mut command, "read").ok()
    }

    /// Fetches all branches and tags, and `HEAD` if no reference is named.
    pub fn fetch(&self, yard: &Path, rule: &GitRule) -> Result<()> {
        let mut command = Command::new("git");
        // For an address, the user's own configuration applies, since it has the helpers for passwords; the user is
        // trusted.
        restricted(&mut command);
        if matches!(rule.repository, Repository::Folder(_)) {
            alone(&mut command);
        }
        command
            .args(["-c", "protocol.allow=never", "-c", &format!("protocol.{}.allow=always", transport(rule))])
            .args(["-c", "fetch.recurseSubmodules=false", "-c", "fetch.fsckObjects=true"])
            .args(["-c", "maintenance.auto=false", "-c", "gc.auto=0"])
            .arg("--git-dir")
            .arg(&self.folder)
            .args(["fetch", "--quiet", "--force", "--prune", "--no-tags", "--no-recurse-submodules"])
            .args(["--no-write-fetch-head", "--upload-pack=git-upload-pack", "--end-of-options"])
            .arg(address(yard, rule))
            .args(["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]);
        if rule.reference.is_none() {
            command.arg(format!("+HEAD:{HEAD}"));
        }
        self.perform(&mut command, "fetch").map(drop)
    }

    /// The full id of the commit that a rule names.
    pub fn resolve(&self, rule: &GitRule) -> Result<String> {
        let Some(reference) = &rule.reference else {
            return self.commit(HEAD).ok_or("it has no HEAD".to_owned().into());
        };
        let is_commit = reference.len() >= 7 && reference.bytes().all(|byte| byte.is_ascii_hexdigit());
        self.commit(&format!("refs/heads/{reference}"))
            .or_else(|| self.commit(&format!("refs/tags/{reference}")))
            .or_else(|| is_commit.then(|| self.commit(reference)).flatten())
            .ok_or_else(|| format!("it has no branch, tag or commit {reference}").into())
    }

    /// Whether the copy has a commit.
    pub fn has(&self, commit: &str) -> bool {
        self.commit(commit).is_some()
    }

    /// The commit of a full reference; absent if there is none.
    pub fn commit(&self, reference: &str) -> Option<String> {
        let mut command = self.asking();
        command.args(["rev-parse", "--quiet", "--verify", "--end-of-options"]);
        command.arg(format!("{reference}^{{commit}}"));
        let answer = self.perform(&mut command, "ask").ok()?;
        let commit = String::from_utf8(answer).ok()?.trim().to_owned();
        let is_whole = commit.len() >= 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_whole.then_some(commit)
    }

    /// A file of a commit, as text; absent if there is none.
    pub fn file(&self, commit: &str, path: &str) -> Option<String> {
        let mut command = self.asking();
        command.args(["cat-file", "blob", &format!("{commit}:{path}")]);
        self.perform(&mut command, "read").ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Writes the tree of a commit as an archive, whose bytes follow from the commit alone. `prefix` is the name of its
    /// folder, or empty.
    pub fn export(&self, commit: &str, prefix: &str, target: &Path) -> Result<()> {
        let failed = |error: std::io::Error| Failed::Reason(format!("failed to export: {error}"));
        let file = fs_err::File::create(target).map_err(failed)?;
        let mut command = self.asking();
        command.args(["-c", "tar.umask=0022", "archive", "--format=tar"]);
        if !prefix.is_empty() {
            command.arg(format!("--prefix={prefix}/"));
        }
        command.args(["--end-of-options", commit]).stdout(file.into_parts().0);
        self.perform_until(&mut command, "export", &mut || {
            std::fs::metadata(target).is_ok_and(|metadata| metadata.len() > TREE_BYTES_MAX)
        })
        .map(drop)
    }

    /// git for queries of the copy, without any transport.
    fn asking(&self) -> Command {
        let mut command = Command::new("git");
        restricted(&mut command);
        alone(&mut command);
        command.args(["-c", "protocol.allow=never", "--git-dir"]).arg(&self.folder);
        command
    }

    fn perform(&self, command: &mut Command, what: &str) -> Result<Vec<u8>> {
        command.stdout(Stdio::piped());
        self.perform_until(command, what, &mut || false)
    }

    /// Runs git, and returns its standard output if that is a pipe. Git is killed once `is_too_much` returns true.
    fn perform_until(
        &self,
        command: &mut Command,
        what: &str,
        is_too_much: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<u8>> {
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => "git is not installed (apt-get install git)".to_owned(),
            _ => format!("failed to run git: {error}"),
        };
        let mut child = command.spawn().map_err(failed)?;
        let answer = child.stdout.take().map(|out| read_apart(out, ANSWER_BYTES_MAX));
        let said = child.stderr.take().map(|err| read_apart(err, MESSAGE_BYTES_MAX));
        let status = self.wait(&mut child, what, is_too_much);
        if status.is_err() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let join = |reader: Option<std::thread::JoinHandle<Vec<u8>>>| {
            reader.and_then(|reader| reader.join().ok()).unwrap_or_default()
        };
        let (answer, said) = (join(answer), join(said));
        if status? {
            return Ok(answer);
        }
        let said = String::from_utf8_lossy(&said);
        let lines = said.lines().filter(|line| !line.trim().is_empty()).take(LINES_SHOWN);
        let lines: Vec<String> = lines.map(|line| text::line(&without_password(line))).collect();
        Err(format!("git failed to {what}: {}", lines.join("; ")).into())
    }

    fn wait(&self, child: &mut Child, what: &str, is_too_much: &mut dyn FnMut() -> bool) -> Result<bool> {
        let started = Instant::now();
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return Ok(status.success()),
                Ok(None) => std::thread::sleep(TICK),
                Err(error) => return Err(format!("failed to wait for git: {error}").into()),
            }
            if self.cancel.load(Ordering::Relaxed) {
                return Err(Failed::Cancelled);
            }
            if started.elapsed() > PATIENCE {
                return Err(
                    format!("git took more than {} minutes to {what}", PATIENCE.as_secs() / 60).into()
                );
            }
            if is_too_much() {
                return Err(format!("more than {TREE_BYTES_MAX} bytes to {what}").into());
            }
        }
    }
}

/// Reads a pipe to its end and keeps its beginning.
fn read_apart(mut pipe: impl Read + Send + 'static, bytes_max: u64) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        let _ = (&mut pipe).take(bytes_max).read_to_end(&mut kept);
        let _ = std::io::copy(&mut pipe, &mut std::io::sink());
        kept
    })
}

/// The options and environment of every git command.
fn restricted(command: &mut Command) {
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_EXTERNAL_DIFF"] {
        command.env_remove(name);
    }
    for name in
        ["GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_TEMPLATE_DIR", "GIT_ALLOW_PROTOCOL", "GIT_CONFIG_COUNT"]
    {
        command.env_remove(name);
    }
    command
        .env("GIT_NO_LAZY_FETCH", "1")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_OPTIONAL_LOCKS", "0")
        .env("GIT_NO_REPLACE_OBJECTS", "1")
        .env("LC_ALL", "C.UTF-8")
        .args([
            "-c",
            "core.fsmonitor=false",
            "-c",
            "core.hooksPath=/dev/null",
            "-c",
            "core.attributesFile=/dev/null",
        ])
        .args(["-c", "core.sshCommand=ssh -oBatchMode=yes", "-c", "submodule.recurse=false", "--no-pager"]);
}

/// Excludes the configuration of the user and of the machine, with its filters and helpers.
fn alone(command: &mut Command) {
    command
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .env("GIT_ATTR_NOSYSTEM", "1");
}
