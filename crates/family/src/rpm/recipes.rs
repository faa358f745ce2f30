//! The sources of a yard: spec files in folders, source packages, and those of the repositories.
//!
//! A spec file is a program of macros, so it is asked by the root's own rpmspec, in a sandbox, for what it says of itself.
//! The answers are kept in `index/recipes.json`, by what they depend on: the spec file and the files next to it, the macros, and
//! the root.

use super::sources::{self, Downloads};
use super::{Rpm, base};
use crate::captured::Captured;
use kilnyard_ecosystem::rpm::recipe::{ANSWER_BYTES_MAX, SourceFile, is_name};
use kilnyard_ecosystem::rpm::universe::Package;
use kilnyard_ecosystem::rpm::{Base, Recipe, Settings, input_of, stages};
use kilnyard_ecosystem::{LeftOut, hash_of};
use kilnyard_mirror::{FileStore, Sha256Hex};
use kilnyard_process::End;
use kilnyard_root::IdMap;
use kilnyard_worker::{RootFolder, ShownFolder};
use kilnyard_yard::error::{Context, Error, Kind, Result};
use kilnyard_yard::files::write_whole;
use kilnyard_yard::mirror;
use kilnyard_yard::yard::Yard;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// The record of all answers.
const RECORD: &str = "index/recipes.json";
/// Where a root shows the folder of a spec file.
const SHOWN: &str = "/kilnyard/recipe";
/// The name of the root in which they are asked.
const ROOT: &str = "scan-recipes";
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
    fn files(&self) -> Vec<PathBuf> {
        if self.is_packed() {
            return vec![self.path()];
        }
        let entries = fs_err::read_dir(&self.folder).into_iter().flatten().flatten();
        let files = entries.filter(|entry| {
            let name = entry.file_name();
            entry.file_type().is_ok_and(|kind| kind.is_file())
                && NO_SOURCES.iter().all(|other| name != *other)
        });
        let mut files: Vec<PathBuf> = files.map(|entry| entry.path()).collect();
        files.sort();
        files
    }

    /// What an answer depends on: the content of the spec file, and the sizes and times of the others.
    fn inputs(&self, settings: &Settings, base: &Base) -> String {
        let mut text = format!("{} {}\n", stages::macros(settings, &settings.mark()).text, base.digest);
        // Their digests decide what is downloaded.
        text.push_str(&sources::list_text(&self.folder).unwrap_or_default());
        text.push_str(&String::from_utf8_lossy(&fs_err::read(self.path()).unwrap_or_default()));
        for path in self.files() {
            let facts = fs_err::metadata(&path);
            let facts = facts.map(|facts| (facts.len(), facts.modified().ok()));
            text.push_str(&format!("{} {facts:?}\n", path.display()));
        }
        hash_of(&text)
    }
}

/// The spec files of a folder: its own, and one in each folder of it, which has the name of the folder or is the only one.
fn places_of(folder: &Path) -> Result<Vec<Place>> {
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
    for below in folders {
        let found = specs(&below)?;
        let named = format!("{}.spec", below.file_name().unwrap_or_default().to_string_lossy());
        let own = found.iter().find(|place| place.name == named);
        all.extend(own.or(found.first().filter(|_| found.len() == 1)).cloned());
    }
    Ok(all)
}

/// The source packages and spec files of this machine that the set may have.
fn places(yard: &Yard, rpm: &Rpm) -> Result<Vec<Place>> {
    let mut all = match &rpm.specs {
        Some(folder) => places_of(folder)?,
        None => Vec::new(),
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
    Ok(all)
}

/// Whether a yard has sources of this machine, which need a base root to be read.
pub fn has_own(yard: &Yard, rpm: &Rpm) -> Result<bool> {
    places(yard, rpm).map(|places| !places.is_empty())
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
    for place in places(yard, rpm)? {
        let inputs = place.inputs(settings, base);
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
        let asking = Asking { yard, settings, base, ids, cancel };
        let (distfiles, client) = (mirror::open_files(yard)?, mirror::client(yard));
        let downloads = Downloads { yard, rpm, distfiles: &distfiles, client: &client, cancel, say };
        for (place, inputs) in open {
            let kept = asking.ask(&place, inputs, &downloads)?;
            changed.push(place.presumed());
            now.found.insert(place.path(), kept);
        }
    }
    let text = serde_json::to_vec_pretty(&now).or_internal("write the recipes")?;
    write_whole(&yard.path(RECORD), &text)?;
    Ok((changed, unchanged))
}

struct Asking<'a> {
    yard: &'a Yard,
    settings: &'a Settings,
    base: &'a Base,
    ids: &'a IdMap,
    cancel: &'a AtomicBool,
}

impl Asking<'_> {
    fn ask(&self, place: &Place, inputs: String, downloads: &Downloads<'_>) -> Result<Kept> {
        let answer = match self.answer(place)? {
            Ok(answer) => answer,
            Err(why) => return Ok(Kept { inputs, recipe: Err(why) }),
        };
        let mut recipe = match Recipe::read(&answer) {
            Ok(recipe) => recipe,
            Err(error) => return Ok(Kept { inputs, recipe: Err(error.to_string()) }),
        };
        let (mut files, mut downloaded) = (Vec::new(), Vec::new());
        if place.is_packed() {
            files.push(place.path());
        } else {
            recipe.spec.clone_from(&place.name);
            files.push(place.path());
            let of_bootstrap = recipe.bootstrap.iter().flat_map(|other| &other.listed);
            let more = of_bootstrap.filter(|name| !recipe.listed.contains(name));
            for name in recipe.listed.iter().chain(more) {
                let path = place.folder.join(name);
                if path.is_file() {
                    files.push(path);
                    continue;
                }
                match downloads.get(&recipe, &place.folder, name)? {
                    Ok(file) => downloaded.push(file),
                    // A network may be back at the next scan.
                    Err(why) => return Ok(Kept { inputs: String::new(), recipe: Err(why) }),
                }
            }
        }
        for path in files {
            let (sha256, size_bytes) = sources::hash_file::<sha2::Sha256>(&path)
                .context(Kind::Usage, format!("read {}", path.display()))?;
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            recipe.files.push(SourceFile { name, sha256, size_bytes, urls: Vec::new() });
        }
        recipe.files.extend(downloaded);
        recipe.files.dedup_by(|one, other| one.name == other.name);
        if let Some(other) = &mut recipe.bootstrap {
            (other.spec, other.files) = (recipe.spec.clone(), recipe.files.clone());
        }
        Ok(Kept { inputs, recipe: Ok(recipe) })
    }

    /// What rpmspec prints, or why it fails. Each source has a root of its own: its macros may leave anything behind.
    fn answer(&self, place: &Place) -> Result<std::result::Result<String, String>> {
        let Asking { yard, settings, base, ids, cancel } = *self;
        let failed = "make the root in which spec files are read";
        let trees: Vec<_> = base.tree.iter().cloned().collect();
        let layers = yard.trees().ensure(&trees).context(Kind::Machine, failed)?;
        RootFolder::at(&yard.folder, ROOT, ids, &[]).remove_or_set_aside();
        let root = RootFolder::create(&yard.folder, ROOT, ids, &layers, &yard.config.roots.on_disk());
        let root = root.context(Kind::Machine, failed)?;
        let shown = ShownFolder { source: place.folder.clone(), inside: SHOWN.to_owned() };
        let root = root.showing(std::slice::from_ref(&shown));
        let texts = [stages::macros(settings, &settings.mark())];
        root.provide(&[], &texts, &|_| PathBuf::new()).context(Kind::Machine, failed)?;
        let command = stages::query(SHOWN, &place.name);
        let mut output = Captured::new(ANSWER_BYTES_MAX);
        let sandbox = root.sandbox(&command);
        let limits = base::asking_limits();
        let outcome = kilnyard_process::run(&sandbox, &mut output, limits, cancel, None, &mut |_| {});
        root.remove_or_set_aside();
        let said = String::from_utf8_lossy(&output.bytes).into_owned();
        Ok(match outcome.end {
            End::Exit(0) => Ok(said),
            End::Exit(_) => {
                let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
                Err(format!("rpmspec failed: {}", lines[lines.len().saturating_sub(3)..].join(" / ")))
            }
            End::Cancelled => {
                return Err(Error::new(Kind::Interrupted, "interrupted while reading spec files"));
            }
            End::Limit(..) => Err("rpmspec did not end in time".to_owned()),
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
