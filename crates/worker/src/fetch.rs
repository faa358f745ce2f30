//! Runs a package's own fetch commands: with network access, in a separate root, ahead of the build.
//!
//! The commands write to a folder of the root. When all of them have succeeded, the expected files, and no others,
//! are copied from there; each gets its final name in one step, so that nothing ever reads a partial file. A file is
//! fetched only once at a time: a fetcher claims its files first, and does other work if it cannot get all of them.

use crate::Worker;
use crate::build::{hung_process_lines, machine, shown};
use crate::local::{is_inside, named};
use crate::roots::without_links;
use crate::runner::{PlainRoot, Root, Running, Shown};
use crate::verdict::{self, Shortages};
use kilnyard_ecosystem::{RESOLV_CONF, find_excerpt};
use kilnyard_model::order::{BuildOrder, BuildTerms, FetchFile, FetchOrder, InputText, Stage};
use kilnyard_model::result::{Failure, FailureKind};
use kilnyard_model::text;
use kilnyard_process::End;
use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};

/// How much output of the commands is kept.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Chunk size for comparing files.
const CHUNK_BYTES: usize = 64 << 10;

/// The result of fetching.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fetched {
    /// Output of the commands, cut at 1 MiB.
    pub output: String,
    /// CPU time of the commands.
    pub cpu_seconds: f64,
    /// Absent if all commands succeeded and the files were stored.
    pub failure: Option<Failure>,
}

impl Worker {
    /// The exclusive right to fetch an order's files; `None` while one of them is being fetched.
    pub fn claim(&self, fetch: &FetchOrder) -> Option<Claim> {
        Names::claim(&self.fetching, &fetch.files)
    }

    /// Whether all files of an order exist with the expected sizes. The build checks their contents.
    pub fn has_fetched(&self, fetch: &FetchOrder) -> bool {
        self.folder_of(fetch).is_ok_and(|kept| fetch.files.iter().all(|file| is_there(kept, file)))
    }

    /// This machine's `resolv.conf` for the root.
    pub(crate) fn resolv_conf(&self) -> InputText {
        InputText { name: RESOLV_CONF.to_owned(), text: self.settings.network.resolv_conf.clone() }
    }

    /// Where a file that an order fetches is stored; none if its name leads elsewhere.
    pub fn path_of(&self, fetch: &FetchOrder, name: &str) -> Option<PathBuf> {
        self.folder_of(fetch).ok().filter(|_| is_inside(name)).map(|kept| kept.join(name))
    }

    /// The folder where an order's fetched files are stored.
    fn folder_of(&self, fetch: &FetchOrder) -> io::Result<&Path> {
        named(&self.settings.folders, &fetch.folder)
    }

    /// Fetches an order's files, which the caller must have claimed. `name` distinguishes its root from others.
    pub fn fetch(&self, order: &BuildOrder, fetch: &FetchOrder, name: &str, cancel: &AtomicBool) -> Fetched {
        let failed = |error: &dyn ToString| Fetched {
            failure: Some(machine(Stage::Fetch, error.to_string())),
            ..Fetched::default()
        };
        let local = match self.local(&order.root) {
            Ok(local) => local,
            Err(error) => return failed(&error),
        };
        let kept = match self.folder_of(fetch) {
            Ok(kept) => kept,
            Err(error) => return failed(&error),
        };
        let shown = Shown::Order(&order.root, &local);
        let inside = fetch.folder.inside.as_str();
        let wanted = PlainRoot { name, layers: &local.layers, shown, added: Some(inside), machine: None };
        let root = match self.runner.plain_root(&wanted) {
            Ok(root) => root,
            Err(error) => return failed(&error),
        };
        let provided = root
            .provide(&order.root.inputs, &order.root.texts)
            .and_then(|()| root.provide(&[], &[self.resolv_conf()]))
            .and_then(|()| offer(fetch, kept, &*root));
        let mut fetched = match provided {
            Ok(()) => self.perform_fetch(fetch, &order.terms, &*root, cancel),
            Err(error) => failed(&error),
        };
        if fetched.failure.is_none()
            && let Err(error) = root.bring_out(inside).and_then(|added| take_over(fetch, kept, &added))
        {
            fetched.failure =
                Some(machine(Stage::Fetch, format!("failed to keep the fetched files: {error}")));
        }
        root.remove();
        fetched
    }

    fn perform_fetch(
        &self,
        fetch: &FetchOrder,
        terms: &BuildTerms,
        root: &dyn Root,
        cancel: &AtomicBool,
    ) -> Fetched {
        let mut output = Head::default();
        let mut fetched = Fetched::default();
        for command in &fetch.stage.commands {
            let mut command = command.with_jobs(self.settings.jobs_of(terms));
            command.environment.extend(self.settings.network.environment.iter().cloned());
            let command = &command;
            output.add(format!("+ {}\n", shown(&command.arguments)).as_bytes());
            let limits = self.settings.limits_of(terms).limits(None);
            let running = Running {
                command,
                sees_jobserver: false,
                has_network: true,
                limits,
                cancel,
                membership: None,
            };
            let outcome = root.run(&running, &mut output, &mut |_| {});
            fetched.cpu_seconds += outcome.cpu_seconds;
            fetched.failure = match outcome.end {
                End::Exit(0) => continue,
                End::Exit(code) => Some(of_exit(&output.bytes, code)),
                End::Limit(passed, snapshot) => {
                    let running = snapshot.summary(passed);
                    let message =
                        text::lines(&format!("{}; running at that time: {running}", passed.words(&limits)));
                    Some(Failure {
                        lines: hung_process_lines(&snapshot),
                        ..failure(verdict::of_limit(passed), &message)
                    })
                }
                End::Cancelled => Some(failure(FailureKind::Cancelled, "it was cancelled")),
                End::LogFailed(error) | End::SandboxFailed(error) => Some(machine(Stage::Fetch, error)),
            };
            break;
        }
        fetched.output = String::from_utf8_lossy(&output.bytes).into_owned();
        fetched
    }
}

fn failure(kind: FailureKind, message: &str) -> Failure {
    Failure { stage: Stage::Fetch, kind, message: message.to_owned(), line_number: None, lines: Vec::new() }
}

/// The failure of a command, with the line of its output that explains it.
fn of_exit(output: &[u8], code: i32) -> Failure {
    let mut failure = failure(FailureKind::Fetch, &format!("the command exited with status {code}"));
    let output = String::from_utf8_lossy(output);
    let excerpt = find_excerpt(&output);
    let cause = excerpt.as_ref().map(|excerpt| excerpt.lines[excerpt.index].trim());
    failure.kind = verdict::of_exit(Stage::Fetch, code, cause, &output, Shortages::default());
    if let Some(excerpt) = excerpt {
        failure.message = text::lines(excerpt.lines[excerpt.index].trim());
        failure.lines = excerpt.lines;
    }
    failure
}

/// Whether a file exists and has the expected size.
fn is_there(kept: &Path, file: &FetchFile) -> bool {
    let metadata = std::fs::metadata(kept.join(&file.name));
    metadata
        .is_ok_and(|metadata| metadata.is_file() && file.size_bytes.is_none_or(|size| size == metadata.len()))
}

/// Copies existing files to the folder that the commands search. A file of another size is fetched again.
fn offer(fetch: &FetchOrder, kept: &Path, root: &dyn Root) -> io::Result<()> {
    for file in fetch.files.iter().filter(|file| is_inside(&file.name) && is_there(kept, file)) {
        root.bring_in(&file.name, &kept.join(&file.name))?;
    }
    Ok(())
}

/// Copies the files that are new or changed, each atomically.
fn take_over(fetch: &FetchOrder, kept: &Path, added: &Path) -> io::Result<()> {
    for file in fetch.files.iter().map(|file| &file.name).filter(|file| is_inside(file)) {
        let to = kept.join(file);
        // The build reports a missing file, if it needs it. A link is skipped, since it could point outside the root.
        let Ok(from) = without_links(added, Path::new(file)) else { continue };
        if !from.is_file() || is_same(&from, &to) {
            continue;
        }
        let folder = to.parent().unwrap_or(kept);
        fs_err::create_dir_all(folder)?;
        // Other yards may use the same folder of distfiles, so the name includes the process id.
        let name = to.file_name().unwrap_or_default().to_string_lossy();
        let part = folder.join(format!(".{name}.{}.part", std::process::id()));
        let copied = fs_err::File::open(&from)?;
        let mut target = fs_err::File::create(&part)?;
        io::copy(&mut copied.into_file(), target.file_mut())?;
        target.sync_all()?;
        fs_err::rename(&part, &to)?;
    }
    Ok(())
}

/// Whether two files have the same content; `false` if one cannot be read.
fn is_same(one: &Path, other: &Path) -> bool {
    let compare = || -> io::Result<bool> {
        let (mut one, mut other) = (fs_err::File::open(one)?, fs_err::File::open(other)?);
        if one.metadata()?.len() != other.metadata()?.len() {
            return Ok(false);
        }
        let (mut bytes, mut others) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
        loop {
            let count = one.read(&mut bytes)?;
            if count == 0 {
                return Ok(true);
            }
            other.read_exact(&mut others[..count])?;
            if bytes[..count] != others[..count] {
                return Ok(false);
            }
        }
    };
    compare().unwrap_or(false)
}

/// Keeps the first bytes of an output.
#[derive(Default)]
struct Head {
    bytes: Vec<u8>,
}

impl Head {
    fn add(&mut self, bytes: &[u8]) {
        let room = OUTPUT_BYTES_MAX.saturating_sub(self.bytes.len());
        self.bytes.extend(&bytes[..bytes.len().min(room)]);
    }
}

impl Write for Head {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.add(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Names of files being fetched.
#[derive(Debug, Default)]
pub(crate) struct Names {
    taken: Mutex<HashSet<String>>,
}

/// The exclusive right to fetch some files. Dropping it gives it back.
#[derive(Debug)]
pub struct Claim {
    names: Arc<Names>,
    files: Vec<String>,
}

impl Names {
    /// Claims all files or none, so that two fetchers cannot each hold a part of what both need.
    fn claim(names: &Arc<Names>, files: &[FetchFile]) -> Option<Claim> {
        let mut taken = names.taken();
        if files.iter().any(|file| taken.contains(&file.name)) {
            return None;
        }
        let files: Vec<String> = files.iter().map(|file| file.name.clone()).collect();
        taken.extend(files.iter().cloned());
        Some(Claim { names: names.clone(), files })
    }

    fn taken(&self) -> MutexGuard<'_, HashSet<String>> {
        self.taken.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut taken = self.names.taken();
        for file in &self.files {
            taken.remove(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(names: &[&str]) -> Vec<FetchFile> {
        names.iter().map(|name| FetchFile { name: (*name).to_owned(), size_bytes: None }).collect()
    }

    #[test]
    fn links_are_not_followed_when_files_are_copied() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["added", "kept", "secret"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        std::fs::write(path("secret/a"), "secret").unwrap();
        std::os::unix::fs::symlink(path("secret/a"), path("added/link")).unwrap();
        std::os::unix::fs::symlink(path("secret"), path("added/sub")).unwrap();
        std::fs::write(path("added/good"), "good").unwrap();
        std::fs::write(path("added/unasked"), "more").unwrap();
        std::fs::write(path("added/other"), "right").unwrap();
        std::fs::write(path("kept/other"), "wrong").unwrap();
        let fetch = FetchOrder {
            stage: kilnyard_model::order::StageOrder { stage: Stage::Fetch, commands: Vec::new() },
            folder: kilnyard_model::order::SharedFolder {
                name: "kept".to_owned(),
                inside: "/x".to_owned(),
                names: None,
                content: None,
            },
            files: files(&["link", "sub/a", "good", "absent", "other"]),
        };
        take_over(&fetch, &path("kept"), &path("added")).unwrap();
        let mut kept: Vec<_> =
            std::fs::read_dir(path("kept")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        kept.sort();
        assert_eq!(kept, ["good", "other"]);
        assert_eq!(std::fs::read_to_string(path("kept/other")).unwrap(), "right");
    }

    #[test]
    fn a_claim_of_several_files_gets_all_or_none() {
        let names = Arc::new(Names::default());
        let (first, second) = (files(&["a", "b"]), files(&["b", "c"]));
        let claim = Names::claim(&names, &first).unwrap();
        assert!(Names::claim(&names, &second).is_none());
        assert!(Names::claim(&names, &second[1..]).is_some(), "a failed claim holds nothing");
        drop(claim);
        let _claim = Names::claim(&names, &second).unwrap();
        assert!(Names::claim(&names, &first).is_none());
    }
}
