//! The sources of a yard: spec files in folders, source packages, and those of the repositories.
//!
//! A spec file is a program of macros, so it is asked by the root's own rpmspec, in a sandbox, for what it says of itself.
//! The answers are kept in `index/recipes.json`, by what they depend on: the spec file and the files next to it, the macros, and
//! the root.

use super::Rpm;
use super::sources::{self, Downloads, Lack};
use crate::captured::Captured;
use fs_err::os::unix::fs::OpenOptionsExt;
use kilnyard_ecosystem::rpm::recipe::{ANSWER_BYTES_MAX, SourceFile, is_name};
use kilnyard_ecosystem::rpm::universe::Package;
use kilnyard_ecosystem::rpm::{Base, Recipe, Settings, input_of, stages};
use kilnyard_ecosystem::{LeftOut, hash_of};
use kilnyard_mirror::{FileStore, Sha256Hex};
use kilnyard_process::{End, Limits, Passed, Watched, Writing};
use kilnyard_root::IdMap;
use kilnyard_worker::{BUILDER_ID, RootFolder, ShownFolder};
use kilnyard_yard::error::{Context, Error, Kind, Result};
use kilnyard_yard::files::{closed_folder, write_whole};
use kilnyard_yard::mirror;
use kilnyard_yard::yard::Yard;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::num::NonZero;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The record of all answers.
const RECORD: &str = "index/recipes.json";
/// Where a root shows the folder of a spec file, and where it has inputs.
const SHOWN: &str = "/kilnyard/recipe";
const INPUTS: &str = "/kilnyard/inputs";
/// The name of the root in which they are asked.
const ROOT: &str = "scan-recipes";
/// What the error about such a root begins with.
const ROOT_FAILED: &str = "make the root in which spec files are read";
/// The most spec files that are asked at once.
const ASKED_AT_ONCE_MAX: usize = 16;
/// How long rpmspec may take for one spec file, which takes milliseconds for most, and a second for the largest.
const ASKED_SECONDS_MAX: f64 = 120.0;
const ASKED_CPU_SECONDS_MAX: f64 = 20.0;
/// The most memory and files that it may use.
const ASKED_BYTES_MAX: u64 = 1 << 30;
/// How much more a source package unpacks to. Most of what it has is packed already.
const UNPACKED_FACTOR: u64 = 8;
/// How often progress is shown.
const SHOWN_EACH: Duration = Duration::from_secs(10);
/// The most missing files of a source that are named.
const MISSING_SHOWN_MAX: usize = 8;
/// The ending of source packages.
const PACKED: &str = ".src.rpm";
/// The files of a spec file's folder that are no sources: dist-git's list of files, and what git has.
const NO_SOURCES: [&str; 3] = [sources::LIST, ".git", ".gitignore"];

/// The answers of the last scan.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Recipes {
    /// By the path of the spec file or source package.
    found: BTreeMap<PathBuf, Kept>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Kept {
    /// What the answer depends on, as a hash.
    inputs: String,
    /// The error, if there is no answer.
    recipe: std::result::Result<Recipe, String>,
}

/// A spec file or a source package of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// The folder that has it and its files.
    folder: PathBuf,
    name: String,
}

impl Place {
    fn of(path: &Path) -> Option<Place> {
        let name = path.file_name()?.to_str()?.to_owned();
        Some(Place { folder: path.parent()?.to_owned(), name })
    }

    fn path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    /// The name of the package, as the file is named.
    fn presumed(&self) -> String {
        let stem = self.name.strip_suffix(PACKED).map(|stem| stem.rsplitn(3, '-').last().unwrap_or(stem));
        stem.or_else(|| self.name.strip_suffix(".spec")).unwrap_or(&self.name).to_owned()
    }

    fn is_packed(&self) -> bool {
        self.name.ends_with(PACKED)
    }

    /// The files beside a spec file, which it may include and build.
    fn files(&self, rpm: &Rpm) -> Vec<PathBuf> {
        if self.is_packed() {
            return vec![self.path()];
        }
        let entries = fs_err::read_dir(&self.folder).into_iter().flatten().flatten();
        let files = entries.filter(|entry| {
            let name = entry.file_name();
            // Of a link, the file that it leads to.
            fs_err::metadata(entry.path()).is_ok_and(|facts| facts.is_file())
                && NO_SOURCES.iter().all(|other| name != *other)
                && self.strays(rpm, &name.to_string_lossy()).is_none()
        });
        let mut files: Vec<PathBuf> = files.map(|entry| entry.path()).collect();
        files.sort();
        files
    }

    /// Why a file of it is not read: a link leads out of the folder of spec files, to what those who may write there might not read
    /// themselves, or to what git keeps of a repository.
    fn strays(&self, rpm: &Rpm, name: &str) -> Option<String> {
        let specs = rpm.specs.as_deref().filter(|_| !self.is_packed())?;
        // What is not there is not read.
        let (specs, path) = (fs_err::canonicalize(specs).ok()?, self.folder.join(name).canonicalize().ok()?);
        let is_within = path.strip_prefix(&specs).is_ok_and(|path| path.iter().all(|part| part != ".git"));
        (!is_within)
            .then(|| format!("{name} is not read: a link leads out of {}, or into .git", specs.display()))
    }

    /// Whether the users of roots can read its files where they are. A link leads nowhere in a root.
    fn is_open(&self, rpm: &Rpm) -> bool {
        let folder = fs_err::canonicalize(&self.folder).unwrap_or_else(|_| self.folder.clone());
        let may = |path: &Path, mode: u32| {
            fs_err::metadata(path).is_ok_and(|facts| facts.permissions().mode() & mode == mode)
        };
        closed_folder(&folder).is_none()
            && may(&folder, 0o004)
            && self.files(rpm).iter().all(|path| may(path, 0o004) && !path.is_symlink())
    }

    /// Copies its files to a folder for the user who reads them in a root, and for no other user of this machine: the folder that they are
    /// from is closed.
    fn copy_to(&self, rpm: &Rpm, folder: &Path, ids: &IdMap) -> io::Result<()> {
        let (user, group) = (ids.user_outside(BUILDER_ID), ids.group_outside(BUILDER_ID));
        for path in self.files(rpm) {
            let copy = folder.join(path.file_name().unwrap_or_default());
            let mut file = fs_err::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&copy)?;
            io::copy(&mut fs_err::File::open(&path)?, &mut file)?;
            chown(&copy, user, group)?;
        }
        Ok(())
    }

    /// What an answer depends on: the content of the spec file, and the sizes and times of the others.
    fn inputs(&self, rpm: &Rpm, settings: &Settings, base: &Base) -> String {
        let macros = stages::macros(settings, &settings.mark()).text;
        let mut text = format!("{macros} {} {:?}\n", base.digest, rpm.lookaside);
        // Their digests decide what is downloaded.
        text.push_str(&sources::list_text(&self.folder).unwrap_or_default());
        text.push_str(&String::from_utf8_lossy(&fs_err::read(self.path()).unwrap_or_default()));
        for path in self.files(rpm) {
            let facts = fs_err::metadata(&path);
            let facts = facts.map(|facts| (facts.len(), facts.modified().ok()));
            text.push_str(&format!("{} {facts:?}\n", path.display()));
        }
        hash_of(&text)
    }
}

/// The folders of repositories of git in a folder, and in the folders in it.
fn repositories_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs_err::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.map(|entry| entry.path()).filter(|path| path.is_dir() && !path.is_symlink());
    let all = folders.chain([folder.to_owned()]).map(|folder| folder.join(".git"));
    all.filter(|path| path.is_dir() && !path.is_symlink()).collect()
}

/// Spec files, and what cannot be read.
#[derive(Default)]
struct Places {
    all: Vec<Place>,
    /// Folders, with the reasons.
    unread: Vec<(PathBuf, String)>,
}

/// The spec files of a folder: its own, and those in each folder of it.
fn places_of(folder: &Path) -> Result<Places> {
    let specs = |folder: &Path| -> Result<Vec<Place>> {
        let entries = fs_err::read_dir(folder).context(Kind::Usage, "read the folder of spec files")?;
        let paths = entries.flatten().map(|entry| entry.path());
        let specs = paths.filter(|path| path.extension().is_some_and(|end| end == "spec") && path.is_file());
        let mut specs: Vec<Place> = specs.filter_map(|path| Place::of(&path)).collect();
        specs.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(specs)
    };
    let mut all = specs(folder)?;
    let entries = fs_err::read_dir(folder).context(Kind::Usage, "read the folder of spec files")?;
    let mut folders: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    let mut unread = Vec::new();
    for below in folders {
        match specs(&below) {
            Ok(specs) => all.extend(specs),
            Err(error) => unread.push((below, error.one_line())),
        }
    }
    Ok(Places { all, unread })
}

/// The source packages and spec files of this machine that the set may have.
fn places(yard: &Yard, rpm: &Rpm) -> Result<Places> {
    let Places { mut all, unread } = match &rpm.specs {
        Some(folder) => places_of(folder)?,
        None => Places::default(),
    };
    for name in yard.config.package_names(&yard.home)?.unwrap_or_default() {
        if name.ends_with(PACKED) {
            let pattern = yard.home.join(&name);
            let paths =
                glob::glob(&pattern.to_string_lossy()).map_err(|error| Error::usage(error.to_string()))?;
            let mut found: Vec<Place> = paths.flatten().filter_map(|path| Place::of(&path)).collect();
            found.sort_by(|one, other| one.name.cmp(&other.name));
            all.extend(found);
        }
    }
    Ok(Places { all, unread })
}

/// Whether there are sources of this machine, which need a base root to be read. If there are none, those of the last scan are
/// forgotten.
pub fn has_own(yard: &Yard, rpm: &Rpm) -> Result<bool> {
    let has_own = !places(yard, rpm)?.all.is_empty();
    if !has_own && yard.path(RECORD).exists() {
        keep(yard, &Recipes::default())?;
    }
    Ok(has_own)
}

/// Asks what has changed; returns the names of the sources that did, and of those that did not.
pub fn scan(
    yard: &Yard,
    rpm: &Rpm,
    settings: &Settings,
    base: &Base,
    ids: &IdMap,
    cancel: &AtomicBool,
    say: &dyn Fn(&str),
) -> Result<(Vec<String>, Vec<String>)> {
    let before = Recipes::read(yard);
    let mut now = Recipes::default();
    let (mut changed, mut unchanged, mut open) = (Vec::new(), Vec::new(), Vec::new());
    let Places { all, unread } = places(yard, rpm)?;
    for (folder, why) in unread {
        changed.push(folder.file_name().unwrap_or_default().to_string_lossy().into_owned());
        now.found.insert(folder, Kept { inputs: String::new(), recipe: Err(why) });
    }
    for place in all {
        if let Some(why) = place.strays(rpm, &place.name) {
            changed.push(place.presumed());
            now.found.insert(place.path(), Kept { inputs: String::new(), recipe: Err(why) });
            continue;
        }
        let inputs = place.inputs(rpm, settings, base);
        match before.found.get(&place.path()).filter(|kept| kept.inputs == inputs) {
            Some(kept) => {
                unchanged.push(place.presumed());
                now.found.insert(place.path(), kept.clone());
            }
            None => open.push((place, inputs)),
        }
    }
    if !open.is_empty() {
        say(&format!("asking {} about themselves", kilnyard_yard::words::count(open.len() as u64, "source")));
        let trees: Vec<_> = base.tree.iter().cloned().collect();
        let layers = yard.trees().ensure(&trees).context(Kind::Machine, ROOT_FAILED)?;
        let asking = Asking { yard, rpm, settings, layers: &layers, ids, cancel };
        let (distfiles, client) = (mirror::open_files(yard)?, mirror::client(yard));
        let downloads = Downloads { yard, rpm, distfiles: &distfiles, client: &client, cancel, say };
        downloads.tidy().context(Kind::Machine, "remove what is left of downloads")?;
        let mut answered = 0;
        let mut shown = Instant::now();
        let outcome = asking.all(&open, &mut |place, inputs, answer| {
            let (recipe, is_final) = recipe_of(place, answer, &downloads)?;
            // A network may be back at the next scan.
            let inputs = if is_final { inputs.clone() } else { String::new() };
            let kept = Kept { inputs, recipe };
            changed.push(place.presumed());
            now.found.insert(place.path(), kept);
            answered += 1;
            if shown.elapsed() >= SHOWN_EACH {
                say(&format!("{answered} of {} sources asked", open.len()));
                shown = Instant::now();
            }
            Ok(())
        });
        if let Err(error) = outcome {
            // The next scan asks the others.
            keep(yard, &now)?;
            return Err(error);
        }
    }
    keep(yard, &now)?;
    changed.sort();
    Ok((changed, unchanged))
}

fn keep(yard: &Yard, recipes: &Recipes) -> Result<()> {
    let text = serde_json::to_vec_pretty(recipes).or_internal("write the recipes")?;
    write_whole(&yard.path(RECORD), &text)
}

/// What rpmspec prints, or why it fails.
type Answer = std::result::Result<String, String>;

struct Asking<'a> {
    yard: &'a Yard,
    rpm: &'a Rpm,
    settings: &'a Settings,
    /// The base root.
    layers: &'a [String],
    ids: &'a IdMap,
    cancel: &'a AtomicBool,
}

/// The recipe of an answer, with its files, or why there is none; and whether the next scan need not try again.
fn recipe_of(
    place: &Place,
    answer: Answer,
    downloads: &Downloads<'_>,
) -> Result<(std::result::Result<Recipe, String>, bool)> {
    let answer = match answer {
        Ok(answer) => answer,
        Err(why) => return Ok((Err(why), true)),
    };
    let mut recipe = match Recipe::read(&answer) {
        Ok(recipe) => recipe,
        Err(error) => return Ok((Err(error.to_string()), true)),
    };
    let (mut files, mut downloaded, mut missing, mut is_final) = (Vec::new(), Vec::new(), Vec::new(), true);
    if place.is_packed() {
        files.push(place.path());
    } else {
        recipe.spec.clone_from(&place.name);
        files.push(place.path());
        let of_bootstrap = recipe.bootstrap.iter().flat_map(|other| &other.listed);
        let more = of_bootstrap.filter(|name| !recipe.listed.contains(name));
        for name in recipe.listed.iter().chain(more) {
            let path = place.folder.join(name);
            if let Some(why) = place.strays(downloads.rpm, name) {
                missing.push(why);
                continue;
            }
            if path.is_file() {
                files.push(path);
                continue;
            }
            match downloads.get(&recipe, &place.folder, name)? {
                Ok(file) => downloaded.push(file),
                Err(Lack::Lasting(why)) => missing.push(why),
                Err(Lack::Network(why)) => {
                    missing.push(why);
                    is_final = false;
                }
            }
        }
    }
    if !missing.is_empty() {
        let more = missing.len().saturating_sub(MISSING_SHOWN_MAX);
        missing.truncate(MISSING_SHOWN_MAX);
        if more > 0 {
            missing.push(format!("and {more} more files are missing"));
        }
        return Ok((Err(missing.join("; ")), is_final));
    }
    for path in files {
        let (sha256, size_bytes) = match sources::hash_file::<sha2::Sha256>(&path) {
            Ok(found) => found,
            Err(error) => return Ok((Err(format!("it cannot be read: {error}")), false)),
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        recipe.files.push(SourceFile { name, sha256, size_bytes, urls: Vec::new() });
    }
    recipe.files.extend(downloaded);
    recipe.files.dedup_by(|one, other| one.name == other.name);
    if let Some(other) = &mut recipe.bootstrap {
        (other.spec, other.files) = (recipe.spec.clone(), recipe.files.clone());
    }
    Ok((Ok(recipe), true))
}

impl Asking<'_> {
    /// Asks several at once, and takes the answers one by one, in any order. An error ends it.
    fn all(
        &self,
        open: &[(Place, String)],
        take: &mut dyn FnMut(&Place, &String, Answer) -> Result<()>,
    ) -> Result<()> {
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(ASKED_AT_ONCE_MAX);
        let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
        // Downloads may take longer than answers, which may be long.
        let (sender, answers) = mpsc::sync_channel(threads);
        std::thread::scope(|scope| {
            for number in 0..threads.min(open.len()) {
                let (sender, next, is_over) = (sender.clone(), &next, &is_over);
                scope.spawn(move || {
                    while let Some((place, inputs)) = open.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let answer = self.answer(place, &format!("{ROOT}-{number}"));
                        if is_over.load(Ordering::Relaxed) || sender.send((place, inputs, answer)).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(sender);
            let taken = answers.iter().try_for_each(|(place, inputs, answer)| take(place, inputs, answer?));
            is_over.store(true, Ordering::Relaxed);
            // Those who wait to send see that nothing is taken any more.
            drop(answers);
            taken
        })
    }

    /// What rpmspec prints, or why it fails. Each source has a root of its own: its macros may leave anything behind.
    fn answer(&self, place: &Place, root: &str) -> Result<Answer> {
        let Asking { yard, rpm, settings, layers, ids, cancel } = *self;
        let failed = ROOT_FAILED;
        RootFolder::at(&yard.folder, root, ids, &[]).remove_or_set_aside();
        let root = RootFolder::create(&yard.folder, root, ids, layers, &yard.config.roots.on_disk());
        let root = root.context(Kind::Machine, failed)?;
        let texts = [stages::macros(settings, &settings.mark())];
        root.provide(&[], &texts, &|_| PathBuf::new()).context(Kind::Machine, failed)?;
        // An ordinary user's own id is one of the root's, which enters the folder.
        let (root, folder) = match place.is_open(rpm) || !rustix::process::geteuid().is_root() {
            true => {
                // The configuration of a repository may have passwords.
                let nothing = root.path().join("nothing");
                fs_err::create_dir(&nothing).context(Kind::Machine, failed)?;
                let hidden = repositories_below(&place.folder).into_iter().filter_map(|path| {
                    let below = path.strip_prefix(&place.folder).ok()?.to_str()?.to_owned();
                    Some(ShownFolder { source: nothing.clone(), inside: format!("{SHOWN}/{below}") })
                });
                let shown = ShownFolder { source: place.folder.clone(), inside: SHOWN.to_owned() };
                let shown: Vec<ShownFolder> = std::iter::once(shown).chain(hidden).collect();
                (root.showing(&shown), SHOWN)
            }
            false => {
                let inputs = root.path().join("inputs");
                place.copy_to(rpm, &inputs, ids).context(Kind::Machine, "copy a source")?;
                (root, INPUTS)
            }
        };
        let command = stages::query(folder, &place.name);
        let mut output = Captured::new(ANSWER_BYTES_MAX);
        let sandbox = root.sandbox(&command);
        let packed = place.is_packed().then(|| fs_err::metadata(place.path()).ok()).flatten();
        let packed_bytes = packed.map_or(0, |file| file.len());
        let limits = Limits {
            cpu_seconds_max: Some(ASKED_CPU_SECONDS_MAX),
            memory_bytes_max: Some(ASKED_BYTES_MAX),
            written_bytes_max: Some(ASKED_BYTES_MAX + UNPACKED_FACTOR * packed_bytes),
            ..Limits::of_wall(ASKED_SECONDS_MAX)
        };
        let writing = Writing { folders: root.written_outside(), ..Writing::default() };
        let watched = Watched { limits, writing: &writing, cancel, membership: None };
        let outcome = kilnyard_process::run_watched(&sandbox, &mut output, watched, &mut |_| {});
        root.remove_or_set_aside();
        let said = String::from_utf8_lossy(&output.bytes).into_owned();
        Ok(match outcome.end {
            End::Exit(0) => Ok(said),
            End::Exit(_) => {
                // As the files are called on this machine.
                let said = said.replace(folder, &place.folder.display().to_string());
                let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
                Err(format!("rpmspec failed: {}", lines[lines.len().saturating_sub(3)..].join(" / ")))
            }
            End::Cancelled => {
                return Err(Error::new(Kind::Interrupted, "interrupted while reading spec files"));
            }
            End::Limit(limit, _) => Err(format!(
                "rpmspec was ended: {}",
                match limit {
                    // Settings of builds have nothing to do with it.
                    Passed::Memory => format!("its processes held more than {ASKED_BYTES_MAX} bytes"),
                    Passed::Written { .. } => "it wrote too much".to_owned(),
                    _ => limit.words(&limits),
                }
            )),
            End::LogFailed(_) if output.is_over => Err("rpmspec printed too much".to_owned()),
            End::LogFailed(error) => return Err(Error::new(Kind::Machine, error)),
            End::SandboxFailed(error) => return Err(Error::new(Kind::Machine, error)),
        })
    }
}

impl Recipes {
    /// The answers of the last scan; none if there was none.
    pub fn read(yard: &Yard) -> Recipes {
        let text = fs_err::read(yard.path(RECORD)).ok();
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    /// The names of the sources of this machine.
    pub fn names(&self) -> Vec<String> {
        let name = |(path, kept): (&PathBuf, &Kept)| match &kept.recipe {
            Ok(recipe) => Some(recipe.name.clone()),
            Err(_) => Place::of(path).map(|place| place.presumed()),
        };
        self.found.iter().filter_map(name).collect()
    }

    /// The paths of a source within the folder of spec files: its own folder, or the files next to a spec file there.
    pub fn paths(&self, name: &str, specs: &Path) -> Vec<String> {
        let is_named = |kept: &Kept| kept.recipe.as_ref().is_ok_and(|recipe| recipe.name == name);
        let path = self.found.iter().find(|(_, kept)| is_named(kept)).map(|(path, _)| path);
        let Some(place) = path.and_then(|path| Place::of(path)) else { return Vec::new() };
        let within = |path: &Path| Some(path.strip_prefix(specs).ok()?.to_str()?.to_owned());
        match place.folder == specs {
            // Other spec files are not its own.
            true => within(&place.path()).into_iter().collect(),
            false => within(&place.folder).into_iter().collect(),
        }
    }

    /// A text that changes with the answers.
    pub fn inputs(yard: &Yard) -> String {
        fs_err::read_to_string(yard.path(RECORD)).map(|text| hash_of(&text)).unwrap_or_default()
    }

    /// The sources of this machine, whose files are put into the distfiles, and those that cannot be read.
    pub fn own(&self, distfiles: &FileStore) -> Result<(BTreeMap<String, Recipe>, Vec<LeftOut>)> {
        let (mut recipes, mut left_out) = (BTreeMap::new(), Vec::new());
        for (path, kept) in &self.found {
            let Some(place) = Place::of(path) else { continue };
            let mut leave_out = |name: &str, explanation: String| {
                left_out.push(LeftOut { name: name.to_owned(), explanation });
            };
            let recipe = match &kept.recipe {
                Ok(recipe) => recipe,
                Err(why) => {
                    leave_out(&place.presumed(), why.clone());
                    continue;
                }
            };
            if recipes.contains_key(&recipe.name) {
                let text = format!("{} is the second source of the name {}", path.display(), recipe.name);
                leave_out(&recipe.name, text);
                continue;
            }
            let beside = recipe.files.iter().filter(|file| file.urls.is_empty());
            match beside.into_iter().try_for_each(|file| put(distfiles, &place.folder, file)) {
                Ok(()) => drop(recipes.insert(recipe.name.clone(), recipe.clone())),
                Err(why) => leave_out(&recipe.name, why),
            }
        }
        Ok((recipes, left_out))
    }
}

/// Puts a file into the distfiles, unless they have it.
fn put(distfiles: &FileStore, folder: &Path, file: &SourceFile) -> std::result::Result<(), String> {
    let hash = Sha256Hex::parse(&file.sha256).map_err(|error| error.to_string())?;
    if distfiles.size_bytes(&hash) == Some(file.size_bytes) {
        return Ok(());
    }
    let (found, _) = distfiles.insert(&folder.join(&file.name)).map_err(|error| error.to_string())?;
    match found == hash {
        true => Ok(()),
        false => Err(format!("{} has changed since the last scan", file.name)),
    }
}

/// The recipe of a repository's source package, from what the repository says of it and of the packages that were built from
/// it.
pub fn of_repository<'p>(
    source: &Package,
    made: impl Iterator<Item = &'p Package>,
    settings: &Settings,
) -> Option<Recipe> {
    let input = input_of(source, &settings.repositories)?;
    let text = source.evr.to_string();
    let (epoch, rest) = text.split_once(':').unwrap_or(("", &text));
    let (version, release) = rest.rsplit_once('-')?;
    let marked = |release: &str| settings.marked(release);
    let texts = |entries: &[kilnyard_ecosystem::rpm::universe::Entry]| {
        entries.iter().flatten().map(|relation| relation.to_string()).collect()
    };
    let planned = |package: &Package| {
        let text = package.evr.to_string();
        let (epoch, rest) = text.split_once(':').unwrap_or(("", &text));
        let (version, release) = rest.rsplit_once('-').unwrap_or((rest, "0"));
        kilnyard_ecosystem::rpm::recipe::PlannedPackage {
            name: package.name.to_string(),
            architecture: package.architecture.to_string(),
            evr: [epoch.to_owned(), version.to_owned(), marked(release)],
            ..Default::default()
        }
    };
    is_name(&source.name).then(|| Recipe {
        name: source.name.to_string(),
        epoch: epoch.to_owned(),
        version: version.to_owned(),
        release: marked(release),
        requires: texts(&source.requires),
        conflicts: texts(&source.conflicts),
        // Distributions have a change for each release.
        has_date: true,
        packages: made.map(planned).collect(),
        files: vec![SourceFile {
            name: input.name,
            sha256: input.sha256,
            size_bytes: input.size_bytes,
            urls: input.urls,
        }],
        ..Recipe::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn links_that_lead_out_of_the_folder_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        for path in ["specs/one", "specs/two", "specs/.git", "other"] {
            fs_err::create_dir_all(at(path)).unwrap();
        }
        for path in ["specs/one/one.spec", "specs/two/shared", "specs/.git/config", "other/secret"] {
            fs_err::write(at(path), "x").unwrap();
        }
        for (target, link) in [
            ("../two/shared", "specs/one/shared"),
            ("../../other/secret", "specs/one/out"),
            ("../.git/config", "specs/one/config"),
            ("../other", "specs/three"),
        ] {
            symlink(target, at(link)).unwrap();
        }
        // The folder may itself be one that a link leads to.
        symlink("specs", at("named")).unwrap();
        let text = format!("release = \"1\"\nrepositories = []\nspecs = {:?}\n", at("named"));
        let rpm: Rpm = toml::from_str(&text).unwrap();
        let strays = |path: &str| {
            let place = Place::of(&at(path)).unwrap();
            place.strays(&rpm, &place.name).is_some()
        };
        let all = ["one/one.spec", "one/shared", "one/missing", "one/out", "one/config", "three/secret"];
        let found = all.map(|path| strays(&format!("named/{path}")));
        assert_eq!(found, [false, false, false, true, true, true]);
    }

    #[test]
    fn files_of_a_closed_folder_are_copied_for_the_builder_alone() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can give files to others");
            return;
        }
        let (ids, _) = IdMap::of_this_user("root", 0);
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let place = Place { folder: from.path().to_owned(), name: "a.spec".to_owned() };
        let text = format!("release = \"1\"\nrepositories = []\nspecs = {:?}\n", from.path());
        let rpm: Rpm = toml::from_str(&text).unwrap();
        fs_err::write(place.path(), "Name: a").unwrap();
        let set_mode =
            |path: &Path, mode| fs_err::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        set_mode(&place.path(), 0o644);
        // Of the folder alone depends whether others may read the file.
        let is_reached = closed_folder(from.path().parent().unwrap()).is_none();
        for (mode, is_open) in [(0o755, is_reached), (0o711, false), (0o700, false)] {
            set_mode(from.path(), mode);
            assert_eq!(place.is_open(&rpm), is_open);
        }
        // A link leads nowhere in a root, so that its file is copied, too.
        set_mode(from.path(), 0o755);
        symlink("a.spec", from.path().join("b.patch")).unwrap();
        assert!(!place.is_open(&rpm));
        place.copy_to(&rpm, to.path(), &ids).unwrap();
        assert_eq!(fs_err::read(to.path().join("b.patch")).unwrap(), b"Name: a");
        let copy = fs_err::metadata(to.path().join("a.spec")).unwrap();
        assert_eq!((copy.mode() & 0o777, Some(copy.uid())), (0o600, ids.user_outside(BUILDER_ID)));
    }
}
