//! Scans the directories of a tree for their packages, several in parallel. Only directories whose answer may have
//! changed since the last scan are scanned.

use kilnyard_ecosystem::pkgsrc::kept::{Journal, depended_on};
use kilnyard_ecosystem::pkgsrc::scan_file::is_category;
use kilnyard_ecosystem::pkgsrc::tree::{Tree, TreeError};
use kilnyard_model::role::Role;
use kilnyard_yard::error::{Context, Error, Kind, Result};
use kilnyard_yard::helpers::Helpers;
use kilnyard_yard::{interrupt, words};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often progress is printed.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// The current time as a file modification time: a file that changes after it is newer than the answers of this scan.
#[expect(clippy::disallowed_methods, reason = "compared only with file times")]
pub fn began_nanoseconds() -> i128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i128)
}

/// The result of scanning a tree.
#[derive(Default)]
pub struct ScanResult {
    /// Stanzas by location.
    pub stanzas: HashMap<String, Vec<u8>>,
    /// Directories that could not be scanned, and why.
    pub failed: Vec<(String, TreeError)>,
    /// Number of directories that were not scanned because nothing changed.
    pub reused: u64,
    /// Number of directories that other machines scanned.
    pub elsewhere: u64,
}

/// Lists all directories of the tree, `jobs` categories at once.
pub fn locations(tree: &Tree, jobs: u32) -> Result<Vec<String>> {
    tree.locations(jobs, interrupt::cancel()).map_err(not_listed)
}

/// Lists the directories of each category in `names`, `jobs` categories at once. `names` may also contain directories.
pub fn locations_of_categories(
    tree: &Tree,
    names: &[String],
    jobs: u32,
) -> Result<BTreeMap<String, Vec<String>>> {
    let categories: Vec<String> = names.iter().filter(|name| is_category(name)).cloned().collect();
    let listed = tree.locations_of(&categories, jobs, interrupt::cancel()).map_err(not_listed)?;
    Ok(categories.into_iter().zip(listed).collect())
}

fn not_listed(error: TreeError) -> Error {
    match error {
        TreeError::Cancelled => Error::new(Kind::Interrupted, "interrupted"),
        error => Err::<(), _>(error).context(Kind::Usage, "list the categories of the tree").unwrap_err(),
    }
}

/// Checks that the tree has every category in `names`. `names` may also contain directories, which are not checked.
pub fn check_categories(tree: &Path, names: &[String]) -> Result<()> {
    let is_absent = |name: &&String| is_category(name) && !tree.join(name).join("Makefile").is_file();
    match names.iter().find(is_absent) {
        Some(name) => Err(Error::usage(format!(
            "{name} is not a category of {}: there is no {name}/Makefile",
            tree.display()
        ))
        .hint("a category such as mail, or a directory such as mail/mutt")),
        None => Ok(()),
    }
}

/// Replaces each category in `names` by its directories.
pub fn expand(names: &[String], categories: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let locations = |name: &String| match is_category(name) {
        true => categories.get(name).cloned().unwrap_or_default(),
        false => vec![name.clone()],
    };
    names.iter().flat_map(locations).collect()
}

/// Directories for each core of this machine below which other machines are not asked: it would take them longer to get
/// the tree.
const HELPED_MIN: usize = 20;
/// The most commands that other machines run at once.
const HELPED_MAX: u32 = 1024;

/// Where make ran.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Here,
    Elsewhere,
    /// Nowhere: another machine could not run it.
    Unable,
}

/// A tree whose make runs on other machines.
#[derive(Clone, Copy)]
pub struct Helped<'a> {
    /// Runs make there.
    pub tree: Tree<'a>,
    /// The other machines.
    pub helpers: &'a dyn Helpers,
}

/// A running scan.
pub struct Work<'a> {
    /// Runs make in the tree's directories.
    pub tree: Tree<'a>,
    /// The tree's folder.
    pub folder: &'a Path,
    /// Answers of the last scan that are still valid.
    pub kept: HashMap<String, Vec<u8>>,
    /// Whether to add directories as others depend on them.
    pub is_partial: bool,
    /// The result so far.
    pub found: ScanResult,
    known: HashSet<String>,
    helped: Option<Helped<'a>>,
}

impl<'a> Work<'a> {
    /// Prepares a scan; nothing is scanned yet.
    pub fn new(
        tree: Tree<'a>,
        folder: &'a Path,
        kept: HashMap<String, Vec<u8>>,
        is_partial: bool,
    ) -> Work<'a> {
        Work {
            tree,
            folder,
            kept,
            is_partial,
            found: ScanResult::default(),
            known: HashSet::new(),
            helped: None,
        }
    }

    /// Scans on other machines too, if that is worth it.
    pub fn helped_by(self, helped: Helped<'a>) -> Work<'a> {
        Work { helped: Some(helped), ..self }
    }

    /// Scans these locations and, in a partial scan, their dependencies. Returns all of them in the order in which
    /// they were found.
    pub fn scan(
        &mut self,
        first: Vec<String>,
        jobs: u32,
        journal: &mut Journal,
        failed: &str,
        say: &dyn Fn(&str),
    ) -> Result<Vec<String>> {
        let (to_workers, work) = mpsc::channel::<String>();
        let work = Mutex::new(work);
        let (answers, answered) = mpsc::channel();
        let is_over = AtomicBool::new(false);
        let (work, is_over) = (&work, &is_over);
        let new_ones = first.iter().filter(|location| !self.kept.contains_key(*location)).count();
        let helped = self.helped.filter(|_| new_ones >= HELPED_MIN * jobs as usize);
        let slots = helped.map_or(0, |helped| helped.helpers.slots(Role::Scan).min(HELPED_MAX));
        if slots > 0 {
            say(&format!("other machines scan too, {slots} directories at once"));
        }
        let here = std::iter::repeat_n((self.tree, false), jobs as usize);
        let elsewhere =
            helped.into_iter().flat_map(|helped| std::iter::repeat_n((helped.tree, true), slots as usize));
        std::thread::scope(|scope| {
            for (tree, is_elsewhere) in here.chain(elsewhere) {
                let answers = answers.clone();
                scope.spawn(move || {
                    loop {
                        let next = work.lock().ok().and_then(|work| work.recv().ok());
                        let Some(location) = next else { return };
                        if is_over.load(Ordering::Relaxed) || interrupt::cancel().load(Ordering::Relaxed) {
                            return;
                        }
                        let answer = tree.index(&location, interrupt::cancel());
                        // A machine that cannot run make at all leaves the rest to others.
                        let place = match (is_elsewhere, &answer) {
                            (false, _) => Place::Here,
                            (true, Err(TreeError::Start { .. })) => Place::Unable,
                            (true, _) => Place::Elsewhere,
                        };
                        if answers.send((location, answer, place)).is_err() || place == Place::Unable {
                            return;
                        }
                    }
                });
            }
            // Both are dropped however this ends, so that the threads stop and scan nothing more.
            let to_workers = to_workers;
            let _over = Over(is_over);
            let (started, mut printed) = (Instant::now(), Instant::now());
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
                if interrupt::cancel().load(Ordering::Relaxed) {
                    return Err(Error::new(Kind::Interrupted, "interrupted; the same command resumes it"));
                }
                if open == 0 {
                    return Ok(order);
                }
                if let Ok((location, answer, place)) = answered.recv_timeout(Duration::from_millis(100)) {
                    if place == Place::Unable {
                        let _ = to_workers.send(location);
                        continue;
                    }
                    open -= 1;
                    asked += 1;
                    self.found.elsewhere += u64::from(place == Place::Elsewhere);
                    match answer {
                        Ok(stanzas) => {
                            journal.add(&location, &stanzas).context(Kind::Machine, failed)?;
                            self.take(location, stanzas, &mut new);
                        }
                        Err(TreeError::Cancelled) => {}
                        Err(error) => self.found.failed.push((location, error)),
                    }
                }
                if printed.elapsed() >= PROGRESS_INTERVAL && asked > 0 {
                    printed = Instant::now();
                    let left = started.elapsed().as_secs_f64() / asked as f64 * open as f64;
                    say(&format!(
                        "scanned {asked} of {} directories, {} left",
                        asked + open,
                        words::duration(left)
                    ));
                }
            }
        })
    }

    fn take(&mut self, location: String, stanzas: Vec<u8>, new: &mut VecDeque<String>) {
        if self.is_partial {
            // The resolver reports dependencies that are not directories of the tree, with their dependents.
            let is_there = |location: &String| self.folder.join(location).is_dir();
            new.extend(depended_on(&stanzas).into_iter().filter(is_there));
        }
        self.found.stanzas.insert(location, stanzas);
    }
}

/// Stops the worker threads when dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
