//! `kilnyard scan --ecosystem pkgsrc --tree DIR`: asks the directories of a tree for their packages, several at
//! once, and only those that could say something else than the last time.

use super::{print_json, printed};
use crate::cli::{Scan, ScanFamily};
use crate::error::{Context, Error, Kind, Result};
use crate::{signals, words};
use kilnyard_ecosystem::pkgsrc::kept::{Journal, Kept, depended_on};
use kilnyard_ecosystem::pkgsrc::scan_file::is_location;
use kilnyard_ecosystem::pkgsrc::tree::{Tree, TreeError};
use kilnyard_mirror::Sha256Hex;
use serde_json::json;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The longest that one directory may take: the slowest of the tree of 2014 takes 30 s of CPU.
const DIRECTORY_SECONDS_MAX: u64 = 900;
/// How often a line says how far it is.
const TELL_INTERVAL: Duration = Duration::from_secs(5);

/// What came of a tree.
#[derive(Default)]
struct Found {
    /// Stanzas by location.
    stanzas: HashMap<String, Vec<u8>>,
    /// Directories that could not be scanned, and why.
    failed: Vec<(String, TreeError)>,
    /// How many were not asked, since nothing changed.
    reused: u64,
}

pub fn run(tree: &Path, options: &Scan) -> Result<ExitCode> {
    signals::install();
    let Some(ScanFamily::Pkgsrc) = options.ecosystem else { return Err(Error::usage("which ecosystem?")) };
    let folder = fs_err::canonicalize(tree).context(Kind::Usage, "find the tree")?;
    if !folder.join("mk").is_dir() {
        return Err(Error::usage(format!("{} is no pkgsrc tree: it has no mk", folder.display()))
            .hint("--tree with the folder that mk and the categories are in"));
    }
    for location in &options.locations {
        if !is_location(location) || !folder.join(location).is_dir() {
            return Err(Error::usage(format!("{location} is no directory of {}", folder.display())));
        }
    }
    let cache = tempfile::Builder::new().prefix("kilnyard-options-").tempdir();
    let cache = cache.context(Kind::Machine, "make a folder for make's option cache")?;
    let tree = Tree {
        folder,
        make: program(&options.make)?,
        option_cache: cache.path().to_owned(),
        wall_seconds_max: DIRECTORY_SECONDS_MAX,
    };
    let began = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i128);
    let facts = facts(&tree)?;
    let failed = format!("read {}", options.keep.display());
    let kept = Kept::read(&options.keep, &facts).context(Kind::Machine, failed)?.current(&tree.folder);
    let failed = format!("write {}", options.keep.display());
    let mut journal =
        Journal::begin(&options.keep, &tree.folder, &facts, &kept, began).context(Kind::Machine, &failed)?;
    let (order, is_partial) = match options.locations.is_empty() {
        true => (locations(&tree)?, false),
        false => (options.locations.clone(), true),
    };
    let jobs =
        options.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get() as u32));
    let mut work = Work { tree: &tree, kept, is_partial, known: HashSet::new(), found: Found::default() };
    let mut order = work.scan(order, jobs, &mut journal, &failed)?;
    let found = work.found;
    if is_partial {
        order.sort_unstable();
    }
    if !options.json {
        export(&order, &found, options)?;
    }
    told(&order, &found, options)
}

fn told(order: &[String], found: &Found, options: &Scan) -> Result<ExitCode> {
    let asked = order.len() as u64 - found.reused;
    if options.json {
        let failed = found
            .failed
            .iter()
            .map(|(location, error)| json!({ "location": location, "reason": error.to_string() }));
        print_json(&json!({
            "directories": order.len(),
            "asked": asked,
            "reused": found.reused,
            "failed": failed.collect::<Vec<_>>(),
        }))?;
    }
    for (location, error) in &found.failed {
        tell!("failed: {location}: {error}");
    }
    let count = order.len();
    let directories = if count == 1 { "directory" } else { "directories" };
    tell!("{count} {directories}: {asked} asked, {} as before, {} failed", found.reused, found.failed.len());
    Ok(if found.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(Kind::Packages as u8) })
}

fn locations(tree: &Tree) -> Result<Vec<String>> {
    tell!("listing the categories of {}", tree.folder.display());
    tree.locations(signals::cancel()).map_err(|error| match error {
        TreeError::Cancelled => Error::new(Kind::Interrupted, "interrupted"),
        error => Err::<(), _>(error).context(Kind::Usage, "list the categories of the tree").unwrap_err(),
    })
}

/// Where a program is.
fn program(name: &Path) -> Result<std::path::PathBuf> {
    if name.components().count() > 1 {
        return fs_err::canonicalize(name).context(Kind::Machine, "find the make program");
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| {
        Error::new(Kind::Machine, format!("there is no program {}", name.display()))
            .hint("as root: apt-get install bmake; or --make with the bmake of a pkgsrc bootstrap")
    })
}

/// A hash of everything besides the tree that answers depend on: the program, its environment, the system, and
/// what is installed, since a tree looks for libraries of the system.
fn facts(tree: &Tree) -> Result<String> {
    let make = fs_err::read(&tree.make).context(Kind::Machine, "read the make program")?;
    let mut text = format!("{} {}\n", tree.make.display(), Sha256Hex::of(&make).as_str());
    for (name, value) in tree.environment() {
        // The cache is a new folder each time, and has no part in what is answered.
        if name != "PBULK_CACHE_DIRECTORY" {
            text.push_str(&format!("{name}={value}\n"));
        }
    }
    for path in ["/etc/os-release", "/proc/sys/kernel/ostype", "/var/lib/dpkg/status"] {
        let bytes = fs_err::read(path).unwrap_or_default();
        text.push_str(&format!("{path} {}\n", Sha256Hex::of(&bytes).as_str()));
    }
    for folder in ["/usr/pkg/pkgdb", "/var/db/pkg"] {
        let entries = fs_err::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        names.sort();
        text.push_str(&format!("{folder} {names:?}\n"));
    }
    Ok(Sha256Hex::of(text.as_bytes()).as_str().to_owned())
}

struct Work<'a> {
    tree: &'a Tree,
    kept: HashMap<String, Vec<u8>>,
    /// Whether directories are added as others depend on them.
    is_partial: bool,
    known: HashSet<String>,
    found: Found,
}

impl Work<'_> {
    /// Scans these locations and what they lead to; all of them, in the order in which they were met.
    fn scan(
        &mut self,
        first: Vec<String>,
        jobs: u32,
        journal: &mut Journal,
        failed: &str,
    ) -> Result<Vec<String>> {
        let (to_workers, work) = mpsc::channel::<String>();
        let work = Mutex::new(work);
        let (answers, answered) = mpsc::channel();
        let (tree, work) = (self.tree, &work);
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                let answers = answers.clone();
                scope.spawn(move || {
                    loop {
                        let next = work.lock().ok().and_then(|work| work.recv().ok());
                        let Some(location) = next else { return };
                        let answer = tree.index(&location, signals::cancel());
                        if answers.send((location, answer)).is_err() {
                            return;
                        }
                    }
                });
            }
            // Dropped however this ends, so that the threads end.
            let to_workers = to_workers;
            let (started, mut told) = (Instant::now(), Instant::now());
            let mut order = Vec::new();
            let mut new: VecDeque<String> = first.into();
            let (mut asked, mut open) = (0_u64, 0_u64);
            loop {
                while let Some(location) = new.pop_front() {
                    if !self.known.insert(location.clone()) {
                        continue;
                    }
                    order.push(location.clone());
                    match self.kept.remove(&location) {
                        Some(stanzas) => {
                            self.found.reused += 1;
                            self.take(location, stanzas, &mut new);
                        }
                        None => {
                            open += 1;
                            // The threads wait for work until the sender is gone.
                            let _ = to_workers.send(location);
                        }
                    }
                }
                if signals::cancel().load(Ordering::Relaxed) {
                    return Err(Error::new(
                        Kind::Interrupted,
                        "interrupted; the same command goes on where it ended",
                    ));
                }
                if open == 0 {
                    return Ok(order);
                }
                if let Ok((location, answer)) = answered.recv_timeout(Duration::from_millis(100)) {
                    open -= 1;
                    asked += 1;
                    match answer {
                        Ok(stanzas) => {
                            journal.add(&location, &stanzas).context(Kind::Machine, failed)?;
                            self.take(location, stanzas, &mut new);
                        }
                        Err(TreeError::Cancelled) => {}
                        Err(error) => self.found.failed.push((location, error)),
                    }
                }
                if told.elapsed() >= TELL_INTERVAL && asked > 0 {
                    told = Instant::now();
                    let left = started.elapsed().as_secs_f64() / asked as f64 * open as f64;
                    tell!("asked {asked} of {} directories, {} left", asked + open, words::duration(left));
                }
            }
        })
    }

    fn take(&mut self, location: String, stanzas: Vec<u8>, new: &mut VecDeque<String>) {
        if self.is_partial {
            // What is no directory of the tree is told by the resolver, with who depends on it.
            let is_there = |location: &String| self.tree.folder.join(location).is_dir();
            new.extend(depended_on(&stanzas).into_iter().filter(is_there));
        }
        self.found.stanzas.insert(location, stanzas);
    }
}

fn export(order: &[String], found: &Found, options: &Scan) -> Result<()> {
    let stanzas = || order.iter().filter_map(|location| found.stanzas.get(location));
    match &options.export {
        Some(path) if path.as_os_str() != "-" => {
            let bytes: Vec<u8> = stanzas().flatten().copied().collect();
            crate::scan::write_whole(path, &bytes)
        }
        _ => {
            let mut out = std::io::stdout().lock();
            let written = stanzas().try_for_each(|stanzas| out.write_all(stanzas)).and_then(|()| out.flush());
            printed(written).map(|_| ())
        }
    }
}
