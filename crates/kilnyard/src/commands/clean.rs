//! `kilnyard clean`: removes what is not needed any more.

use super::print;
use crate::cli;
use crate::config::Family;
use crate::error::{Context, Kind, Result};
use crate::family::debian::publish::published_files;
use crate::yard::{Yard, store_error};
use crate::{base, family, words};
use kilnyard_publish::Operation;
use kilnyard_store::Store;
use kilnyard_worker::RootFolder;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Distfiles lie in folders by the first characters of their hashes.
const HASH_FOLDER_CHARACTERS: usize = 2;

/// Why a distfile can go.
const FETCHABLE: &str = "can be fetched again";

/// How many things can go for each reason, and how large they are.
#[derive(Default)]
struct Kinds(BTreeMap<&'static str, (u64, u64)>);

impl Kinds {
    fn add(&mut self, why: &'static str, bytes: u64) {
        let (count, sum) = self.0.entry(why).or_default();
        *count += 1;
        *sum += bytes;
    }
}

/// Something that can go.
struct Removal {
    path: PathBuf,
    why: &'static str,
    is_root: bool,
}

pub fn run(yard: &Yard, options: &cli::Clean) -> Result<ExitCode> {
    let _lock = yard.lock()?;
    let removals = plan(yard, options)?;
    // A distfile has its hash for a name, which says nothing: of those there is a count, unless all are asked for.
    let is_listed = |why: &str| options.list || why != FETCHABLE;
    let mut kinds = Kinds::default();
    let mut bytes = 0;
    for removal in &removals {
        let size = size_of(&removal.path);
        bytes += size;
        if is_listed(removal.why) {
            print(&format!("{} ({}, {})\n", removal.path.display(), removal.why, words::size(size)))?;
        }
        kinds.add(removal.why, size);
        if !options.dry_run {
            remove(yard, removal)?;
        }
    }
    let repository = yard.path("repository");
    let prune = kilnyard_publish::prune(&repository)
        .context(Kind::Machine, "look for old files of the repository")?;
    let mut count = removals.len();
    for operation in prune.operations() {
        if let Operation::RemoveFile { path, size_bytes } = operation {
            count += 1;
            let path = repository.join(path);
            print(&format!("{} (no index names it, {})\n", path.display(), words::size(*size_bytes)))?;
        }
    }
    bytes += prune.size_bytes();
    if !options.dry_run {
        prune.execute().context(Kind::Machine, "remove old files of the repository")?;
    }
    for (why, (count, bytes)) in kinds.0.iter().filter(|(why, _)| !is_listed(why)) {
        print(&format!(
            "{}: {why} ({}; clean --list names them)\n",
            words::count(*count, "file"),
            words::size(*bytes)
        ))?;
    }
    let verb = if options.dry_run { "could go" } else { "gone" };
    tell!("{} {verb}, {}", words::count(count as u64, "thing"), words::size(bytes));
    Ok(ExitCode::SUCCESS)
}

fn plan(yard: &Yard, options: &cli::Clean) -> Result<Vec<Removal>> {
    let store = yard.store()?;
    let mut removals = Vec::new();
    let mut add = |path: PathBuf, why, is_root| removals.push(Removal { path, why, is_root });
    for entry in entries(&yard.path("roots")) {
        add(entry, "the root of a build that failed", true);
    }
    let kept: HashSet<String> =
        store.runs().map_err(store_error)?.iter().take(options.runs).map(|r| r.number.to_string()).collect();
    for entry in entries(&yard.path("logs")) {
        let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if entry.is_dir() && !kept.contains(&name) {
            add(entry, "logs of an old run", false);
        }
    }
    // What outputs are made of stays; the rest can be fetched again.
    let mut needed: HashSet<String> =
        store.outputs().map_err(store_error)?.into_iter().map(|row| row.output.sha256).collect();
    if let Family::Debian(debian) = &yard.config.family {
        needed.extend(published_files(yard, debian));
    }
    for folder in entries(&yard.path("distfiles")) {
        if folder.is_file() {
            add(folder, "left by an interrupted copy", false);
            continue;
        }
        // What lies under names of its own is a tree's, and not only to be had from a mirror.
        if folder.file_name().is_some_and(|name| name.len() != HASH_FOLDER_CHARACTERS) {
            continue;
        }
        for file in entries(&folder) {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !needed.contains(name.trim_end_matches(".part")) {
                add(file, FETCHABLE, false);
            }
        }
    }
    let layers: Vec<PathBuf> =
        family::layers(yard).unwrap_or_default().iter().map(|layer| yard.path(layer)).collect();
    for entry in entries(&yard.path("layers")) {
        // Those of dependencies have a bound of their own.
        let is_bounded = entry.ends_with("dependencies");
        let is_old = entry.is_dir() && !layers.contains(&entry) && !is_bounded;
        if is_old || (options.base && entry.is_dir()) {
            add(entry, "a layer of roots", true);
        } else if options.base && entry.is_file() {
            add(entry, "says which layers there are", false);
        }
    }
    if options.index {
        for entry in entries(&yard.path("index")) {
            add(entry, "the index", false);
        }
    }
    Ok(removals)
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs_err::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn size_of(path: &Path) -> u64 {
    let Ok(metadata) = fs_err::symlink_metadata(path) else { return 0 };
    if metadata.is_dir() { entries(path).iter().map(|entry| size_of(entry)).sum() } else { metadata.len() }
}

fn remove(yard: &Yard, removal: &Removal) -> Result<()> {
    let failed = format!("remove {}", removal.path.display());
    if removal.is_root {
        let ids = yard.ids();
        if let Ok(layer) = removal.path.strip_prefix(&yard.folder)
            && layer.starts_with("layers")
        {
            return base::remove(yard, &ids, &layer.display().to_string());
        }
        let name = removal.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        return RootFolder::at(&yard.folder, &name, &ids, &[]).remove().context(Kind::Machine, failed);
    }
    let removed = if removal.path.is_dir() {
        fs_err::remove_dir_all(&removal.path)
    } else {
        fs_err::remove_file(&removal.path)
    };
    removed.context(Kind::Machine, failed)
}
