//! `kilnyard clean`: removes files that are no longer needed.

use super::print;
use crate::cli;
use crate::error::{Context, Kind, Result};
use crate::yard::{Yard, store_error};
use crate::{layers, words};
use kilnyard_model::order::TreePatch;
use kilnyard_model::sha256::Sha256Hex;
use kilnyard_publish::Operation;
use kilnyard_root::{FileType, remove_folder, tree};
use kilnyard_worker::{ARCHIVES, KEPT_WORK};
use kilnyard_yard::lease::SHARED;
use kilnyard_yard::patches;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The length of the names of distfile folders: the first characters of hashes.
const HASH_FOLDER_CHARACTERS: usize = 2;

const FETCHABLE: &str = "can be fetched again";

/// The number and size of removable files, by reason.
#[derive(Default)]
struct Kinds(BTreeMap<&'static str, (u64, u64)>);

impl Kinds {
    fn add(&mut self, why: &'static str, bytes: u64) {
        let (count, sum) = self.0.entry(why).or_default();
        *count += 1;
        *sum += bytes;
    }
}

/// A removable file or folder.
struct Removal {
    /// Relative to the yard.
    path: PathBuf,
    why: &'static str,
    /// Whether its files may belong to users of roots.
    is_root: bool,
}

pub fn run(yard: &Yard, options: &cli::Clean) -> Result<ExitCode> {
    let _lock = yard.lock()?;
    if !options.dry_run {
        super::tries::remove_old(yard)?;
    }
    let removals = plan(yard, options)?;
    // Distfiles are named by hashes: without --list they are only counted.
    let is_listed = |why: &str| options.list || why != FETCHABLE;
    let mut kinds = Kinds::default();
    let (mut bytes, mut stuck) = (0, 0);
    for removal in &removals {
        let path = yard.folder.join(&removal.path);
        let size = size_of(&path);
        if is_listed(removal.why) {
            print(&format!("{} ({}, {})\n", path.display(), removal.why, words::size(size)))?;
        }
        kinds.add(removal.why, size);
        if !options.dry_run
            && let Err(error) = remove(yard, removal)
        {
            stuck += 1;
            say!("{error}");
            continue;
        }
        bytes += size;
    }
    let repository = yard.repository();
    // A publication of another target has files that no index lists yet.
    let _repository_lock = repository.exists().then(|| yard.lock_repository()).transpose()?;
    let prune =
        kilnyard_publish::prune(&repository).context(Kind::Machine, "find old files of the repository")?;
    let mut count = removals.len() - stuck;
    for operation in prune.operations() {
        if let Operation::RemoveFile { path, size_bytes } = operation {
            count += 1;
            let path = repository.join(path);
            print(&format!("{} (not in any index, {})\n", path.display(), words::size(*size_bytes)))?;
        }
    }
    bytes += prune.size_bytes();
    if !options.dry_run {
        prune.execute().context(Kind::Machine, "remove old files of the repository")?;
    }
    for (why, (count, bytes)) in kinds.0.iter().filter(|(why, _)| !is_listed(why)) {
        print(&format!(
            "{}: {why} ({}; clean --list lists them)\n",
            words::count(*count, "file"),
            words::size(*bytes)
        ))?;
    }
    let verb = if options.dry_run { "removable" } else { "removed" };
    say!("{} {verb}, {}", words::count(count as u64, "file"), words::size(bytes));
    Ok(if stuck == 0 { ExitCode::SUCCESS } else { ExitCode::from(Kind::Machine as u8) })
}

fn plan(yard: &Yard, options: &cli::Clean) -> Result<Vec<Removal>> {
    let store = yard.store()?;
    let mut removals = Vec::new();
    let mut add = |path: PathBuf, why, is_root| removals.push(Removal { path, why, is_root });
    for (path, _) in entries(yard, Path::new("roots"))? {
        if path != Path::new(kilnyard_worker::LEFT_OVER) {
            add(path, "the root of a build that failed", true);
            continue;
        }
        for (path, _) in entries(yard, &path)? {
            add(path, "left over from a failed removal", true);
        }
    }
    let kept: HashSet<String> =
        store.runs().map_err(store_error)?.iter().take(options.runs).map(|r| r.number.to_string()).collect();
    for (path, kind) in entries(yard, Path::new("logs"))? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if kind == FileType::Directory && !kept.contains(&*name) {
            add(path, "logs of an old run", false);
        }
    }
    // Sources of current outputs stay; other distfiles can be fetched again.
    let mut needed: HashSet<String> =
        store.outputs().map_err(store_error)?.into_iter().map(|row| row.output.sha256).collect();
    needed.extend(yard.config.family.published_files(yard));
    for (path, kind) in entries(yard, Path::new("distfiles"))? {
        match kind {
            FileType::RegularFile => add(path, "left by an interrupted copy", false),
            // Files with names of their own belong to a tree, and may not be on a mirror.
            FileType::Directory
                if path.file_name().is_some_and(|name| name.len() == HASH_FOLDER_CHARACTERS) =>
            {
                for (file, _) in entries(yard, &path)? {
                    let name = file.file_name().unwrap_or_default().to_string_lossy();
                    if !needed.contains(name.trim_end_matches(".part")) {
                        add(file, FETCHABLE, false);
                    }
                }
            }
            FileType::Directory => {}
            _ => {
                say!("note: {} is neither a file nor a folder, and is kept", yard.folder.join(path).display())
            }
        }
    }
    let trees = yard.config.family.trees(yard).unwrap_or_default();
    // The next base root is made for other machines as a patch of this one.
    let former = trees.last().filter(|_| options.base && patches::are_of_use(yard));
    if let Some(former) = former.filter(|_| !options.dry_run) {
        patches::note_former(yard, former)?;
    }
    let leads = |patch: &TreePatch| trees.iter().any(|tree| tree.sha256 == patch.to);
    let leading = patches::read(yard).into_iter().filter(leads).map(|patch| patch.artifact.sha256);
    let kept: Vec<Sha256Hex> = match (former, options.base) {
        (Some(former), _) => vec![former.sha256.clone()],
        (None, true) => Vec::new(),
        (None, false) => trees.iter().map(|tree| tree.sha256.clone()).chain(leading).collect(),
    };
    let layers: Vec<PathBuf> = trees.iter().map(|tree| PathBuf::from(yard.trees().layer(tree))).collect();
    for (path, kind) in entries(yard, Path::new("layers"))? {
        let is_folder = kind == FileType::Directory;
        if path == Path::new(ARCHIVES) && (!options.base || former.is_some()) {
            for file in old_archives(yard, &kept)? {
                add(file, "the archive of a layer of roots", false);
            }
            continue;
        }
        // Layers of dependencies have a bound of their own.
        let is_bounded = path.ends_with("dependencies");
        let is_old = is_folder && !layers.contains(&path) && !is_bounded;
        if path == Path::new(ARCHIVES) {
            add(path, "archives of layers of roots", false);
        } else if is_old || (options.base && is_folder) {
            add(path, "a layer of roots", true);
        } else if options.base || is_beside_none(yard, &path) {
            add(path, "the list of layers", false);
        }
    }
    // A yard without a farm has none.
    let has_shared = yard.path(SHARED).is_dir();
    let shared = if has_shared { entries(yard, Path::new(SHARED))? } else { Vec::new() };
    for (path, _) in shared {
        add(path, "copies for workers on other machines", false);
    }
    // Kept work has a bound of its own, too.
    if options.kept {
        for (path, _) in entries(yard, Path::new(KEPT_WORK))? {
            add(path, "kept work of a package", false);
        }
    }
    if options.index {
        let locked = yard.config.family.kept_index_files(yard);
        for (path, _) in entries(yard, Path::new("index"))? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if !locked.iter().any(|locked| *locked == name) {
                add(path, "the index", false);
            }
        }
    }
    Ok(removals)
}

/// Archives of trees that no root uses any longer, and files of interrupted packing.
fn old_archives(yard: &Yard, kept: &[Sha256Hex]) -> Result<Vec<PathBuf>> {
    let mut old = Vec::new();
    for (path, kind) in entries(yard, Path::new(ARCHIVES))? {
        if kind != FileType::Directory {
            old.push(path);
            continue;
        }
        for (file, _) in entries(yard, &path)? {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            if !kept.iter().any(|kept| name.starts_with(kept.as_str())) {
                old.push(file);
            }
        }
    }
    Ok(old)
}

/// Whether a file describes a layer that does not exist.
fn is_beside_none(yard: &Yard, path: &Path) -> bool {
    let is_beside = path.extension().is_some_and(|kind| kind == "manifest" || kind == "damaged");
    is_beside && !yard.folder.join(path.with_extension("")).exists()
}

/// The entries of a folder of the yard, relative to the yard. Links are not followed.
fn entries(yard: &Yard, folder: &Path) -> Result<Vec<(PathBuf, FileType)>> {
    let entries = tree::entries_beneath(&yard.folder, folder);
    let entries = entries.context(Kind::Machine, format!("read the yard's folder {}", folder.display()))?;
    Ok(entries.into_iter().map(|(name, kind)| (folder.join(name), kind)).collect())
}

fn size_of(path: &Path) -> u64 {
    match fs_err::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => tree::used_bytes(path),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    }
}

fn remove(yard: &Yard, removal: &Removal) -> Result<()> {
    let failed = format!("remove {}", yard.folder.join(&removal.path).display());
    if !removal.is_root {
        return tree::remove_beneath(&yard.folder, &removal.path).context(Kind::Machine, failed);
    }
    match removal.path.starts_with("layers") {
        true => layers::remove(yard, &yard.ids(), &removal.path.display().to_string()),
        false => remove_folder(&yard.folder, &removal.path, &yard.ids()).context(Kind::Machine, failed),
    }
}
