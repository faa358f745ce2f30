//! This machine's copy of a git repository, and queries of it.
//!
//! A foreign repository is only fetched from: its configuration, hooks and attributes are never read. The copy is
//! bare, without hooks, and this program writes its configuration. Git's options and environment exclude the rest:
//! transports other than the one that the address names, submodules, monitors of the file system, lazy fetches,
//! filters (of LFS for instance) and all attributes that change contents.

use super::commit::is_own;
use kilnyard_ecosystem::git::{GitAddress, Repository, is_folder};
use kilnyard_mirror::{Sha256Hex, without_password};
use kilnyard_model::text;
use kilnyard_yard::host;
use kilnyard_yard::yard::Yard;
use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
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
/// The number of folders that one command looks into.
const FOLDERS_ASKED: usize = 500;
/// The number of packs from which they are joined.
const PACKS_MAX: usize = 40;
/// The reference of the repository's own `HEAD` in the copy.
const HEAD: &str = "refs/kilnyard/head";
/// Overrides every attribute of a tree that changes what is exported (gitattributes(5)).
const ATTRIBUTES: &str =
    "* -text -eol -crlf -ident -filter -working-tree-encoding -export-subst -export-ignore -diff -merge\n";

/// The copy of a repository. No other process fetches into it as long as this exists.
pub struct Copy<'a> {
    /// The bare repository.
    folder: PathBuf,
    cancel: &'a AtomicBool,
    _lock: Option<File>,
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
fn address(yard: &Path, rule: &GitAddress) -> String {
    match &rule.repository {
        Repository::Folder(path) => yard.join(path).display().to_string(),
        Repository::Https(address) | Repository::Ssh(address) => address.clone(),
    }
}

/// The name of git's transport for a repository.
fn transport(rule: &GitAddress) -> &'static str {
    match rule.repository {
        Repository::Folder(_) => "file",
        Repository::Https(_) => "https",
        Repository::Ssh(_) => "ssh",
    }
}

/// A name for the files of a repository.
pub fn name_of(yard: &Path, rule: &GitAddress) -> String {
    Sha256Hex::of(address(yard, rule).as_bytes()).as_str()[..16].to_owned()
}

/// An address as messages show it, without a password.
pub fn shown(address: &GitAddress) -> String {
    without_password(&address.to_string())
}

/// The folder of copies: the yard's own, or one that yards of this machine share.
pub fn copies(yard: &Yard) -> PathBuf {
    match &yard.config.git.copies {
        Some(folder) => yard.home.join(folder),
        None => yard.home.join("index/git"),
    }
}

impl<'a> Copy<'a> {
    /// The folder of a repository's copy.
    pub fn folder(yard: &Yard, rule: &GitAddress) -> PathBuf {
        copies(yard).join(format!("{}.git", name_of(&yard.home, rule)))
    }

    /// Opens the copy of a repository, or makes it. Waits for another process that uses it.
    pub fn open(yard: &Yard, rule: &GitAddress, cancel: &'a AtomicBool) -> Result<Copy<'a>> {
        let folder = Copy::folder(yard, rule);
        let failed = |error: std::io::Error| Failed::Reason(format!("failed to make a copy: {error}"));
        fs_err::create_dir_all(&folder).map_err(failed)?;
        if !is_own(&folder) {
            return Err(format!("its copy {} belongs to another user", folder.display()).into());
        }
        let copy = Copy { _lock: Some(lock(&folder.join("kilnyard.lock"), cancel)?), folder, cancel };
        if !copy.folder.join("HEAD").exists() {
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
        Copy { folder, cancel, _lock: None }
    }

    /// The content of an object of this kind (`commit`, `tree` or `blob`); absent if there is none.
    pub fn object(&self, kind: &str, name: &str) -> Option<Vec<u8>> {
        let mut command = self.asking();
        command.args(["cat-file", kind, name]);
        self.perform(&mut command, "read").ok()
    }

    /// The id of the tree of a folder in a commit; absent if there is none.
    pub fn tree(&self, commit: &str, folder: &str) -> Option<String> {
        let id = self.id(&format!("{commit}:{folder}"))?;
        self.id(&format!("{id}^{{tree}}"))
    }

    /// The id of the object that an expression names (gitrevisions(7)); absent if there is none.
    fn id(&self, expression: &str) -> Option<String> {
        let mut command = self.asking();
        command.args(["rev-parse", "--quiet", "--verify", "--end-of-options", expression]);
        id_of(&self.perform(&mut command, "ask").ok()?)
    }

    /// The last commit, from this one back, that changed a folder.
    pub fn last_change(&self, commit: &str, folder: &str) -> Result<String> {
        let mut command = self.asking();
        command.env("GIT_LITERAL_PATHSPECS", "1");
        command.args(["log", "-1", "--format=%H", "--end-of-options", commit, "--", folder]);
        let answer = self.perform(&mut command, "read the history")?;
        id_of(&answer).ok_or_else(|| format!("no commit changed {folder}").into())
    }

    /// The folders in a folder of a commit that have this file, each as its whole path and the id of its tree.
    pub fn folders_with(&self, commit: &str, above: &str, file: &str) -> Result<Vec<(String, String)>> {
        let mut command = self.asking();
        command.args(["ls-tree", "-z", "--end-of-options", &format!("{commit}:{above}")]);
        let answer = self.perform(&mut command, "list its folders")?;
        let mut folders = Vec::new();
        for entry in answer.split(|byte| *byte == 0).filter_map(|entry| std::str::from_utf8(entry).ok()) {
            let Some((facts, name)) = entry.split_once('\t') else { continue };
            let folder = if above.is_empty() { name.to_owned() } else { format!("{above}/{name}") };
            // What a rule could not name is left out.
            if let ([_, "tree", id], true) = (&facts.split(' ').collect::<Vec<_>>()[..], is_folder(&folder)) {
                folders.push((folder, (*id).to_owned()));
            }
        }
        // Many in one command: each costs a process.
        let mut with_file = BTreeSet::new();
        for some in folders.chunks(FOLDERS_ASKED) {
            let mut command = self.asking();
            command.args(["ls-tree", "-z", "--name-only", "--full-tree", "--end-of-options", commit, "--"]);
            command.args(some.iter().map(|(folder, _)| format!("{folder}/{file}")));
            let answer = self.perform(&mut command, "look into its folders")?;
            let paths = answer.split(|byte| *byte == 0).filter_map(|path| std::str::from_utf8(path).ok());
            with_file.extend(paths.map(str::to_owned));
        }
        folders.retain(|(folder, _)| with_file.contains(&format!("{folder}/{file}")));
        Ok(folders)
    }

    /// Fetches all branches and tags, and `HEAD` if no reference is named. Only what is new crosses the network.
    pub fn fetch(&self, yard: &Path, rule: &GitAddress) -> Result<()> {
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
        self.perform(&mut command, "fetch")?;
        self.join_packs()
    }

    /// Joins packs once fetches have left many: each makes queries slower.
    fn join_packs(&self) -> Result<()> {
        let entries = fs_err::read_dir(self.folder.join("objects/pack")).into_iter().flatten().flatten();
        let packs = entries.filter(|entry| entry.path().extension().is_some_and(|end| end == "pack"));
        if packs.count() < PACKS_MAX {
            return Ok(());
        }
        let mut command = self.asking();
        command.args(["repack", "-d", "-q", "--geometric=2"]);
        self.perform(&mut command, "join packs").map(drop)
    }

    /// The full id of the commit that a rule names.
    pub fn resolve(&self, rule: &GitAddress) -> Result<String> {
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
        self.id(&format!("{reference}^{{commit}}"))
    }

    /// A file of a commit, as text; absent if there is none.
    pub fn file(&self, commit: &str, path: &str) -> Option<String> {
        let mut command = self.asking();
        command.args(["cat-file", "blob", &format!("{commit}:{path}")]);
        self.perform(&mut command, "read").ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Writes the tree of a commit, or a folder of it with its path, as an archive, whose bytes follow from the commit alone.
    /// `prefix` is the name of a folder for all of it, or empty.
    pub fn export(&self, commit: &str, folder: Option<&str>, prefix: &str, target: &Path) -> Result<()> {
        let failed = |error: std::io::Error| Failed::Reason(format!("failed to export: {error}"));
        let file = fs_err::File::create(target).map_err(failed)?;
        let mut command = self.asking();
        command.args(["-c", "tar.umask=0022", "archive", "--format=tar"]);
        if !prefix.is_empty() {
            command.arg(format!("--prefix={prefix}/"));
        }
        command.args(["--end-of-options", commit]).args(folder);
        command.env("GIT_LITERAL_PATHSPECS", "1").stdout(file.into_parts().0);
        self.perform_until(&mut command, "export", &mut || {
            std::fs::metadata(target).is_ok_and(|metadata| metadata.len() > TREE_BYTES_MAX)
        })
        .map(drop)
    }

    /// git for queries of the copy, without any transport.
    pub(super) fn asking(&self) -> Command {
        let mut command = Command::new("git");
        restricted(&mut command);
        alone(&mut command);
        command.args(["-c", "protocol.allow=never", "--git-dir"]).arg(&self.folder);
        command
    }

    pub(super) fn perform(&self, command: &mut Command, what: &str) -> Result<Vec<u8>> {
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
            std::io::ErrorKind::NotFound => format!("git is not installed ({})", host::installing(&["git"])),
            _ => format!("failed to run git: {error}"),
        };
        let mut child = command.spawn().map_err(failed)?;
        let answer = child.stdout.take().map(|out| read_apart(out, ANSWER_BYTES_MAX + 1));
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
            // A part of an answer would say something else.
            return match answer.len() as u64 > ANSWER_BYTES_MAX {
                true => {
                    Err(format!("git has more than {ANSWER_BYTES_MAX} bytes to say: failed to {what}").into())
                }
                false => Ok(answer),
            };
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

/// The id in an answer: of a commit, a tree or a file.
fn id_of(answer: &[u8]) -> Option<String> {
    let id = std::str::from_utf8(answer).ok()?.trim();
    let is_whole = id.len() >= 40 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_whole.then(|| id.to_owned())
}

/// Waits until no other process has this lock. It ends with the file.
fn lock(path: &Path, cancel: &AtomicBool) -> Result<File> {
    let failed =
        |error: std::io::Error| Failed::Reason(format!("failed to lock {}: {error}", path.display()));
    let file = File::options().write(true).create(true).truncate(false).open(path).map_err(failed)?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if cancel.load(Ordering::Relaxed) => return Err(Failed::Cancelled),
            Err(TryLockError::WouldBlock) => std::thread::sleep(TICK),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
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
