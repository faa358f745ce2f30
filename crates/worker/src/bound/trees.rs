//! Trees: the layer of each, with its manifest, and its archive.

use super::{Entry, Kind, Uses, What, needed_by_failed};
use crate::leftovers::{LeftOver, remove_or_set_aside};
use crate::trees::{ALONE, LAYERS, Trees};
use kilnyard_mirror::Sha256Hex;
use kilnyard_root::IdMap;
use kilnyard_root::tree::{Manifest, used_bytes};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Files next to a layer, and the ends of their names.
const BESIDE: [&str; 2] = ["manifest", "damaged"];

pub(super) struct KeptTrees<'a> {
    pub(super) trees: &'a Trees,
    pub(super) yard: &'a Path,
    pub(super) ids: &'a IdMap,
    pub(super) uses: &'a Uses,
}

/// The hash of the tree that a layer's folder has.
pub(super) fn hash_of(layer: &str) -> Option<String> {
    let name = layer.strip_suffix(ALONE).unwrap_or(layer);
    Sha256Hex::parse(name).ok().map(|_| name.to_owned())
}

/// The names in a folder; none if it does not exist.
pub(super) fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs_err::read_dir(folder) {
        // A file that is being written may lie where folders are.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        entries => entries?,
    };
    let names = entries.map(|entry| Ok(entry?.file_name().into_string().ok()));
    Ok(names.collect::<io::Result<Vec<Option<String>>>>()?.into_iter().flatten().collect())
}

/// The space of a file on the disk, and its times of change and of access; none if it is not a file.
pub(super) fn facts(path: &Path) -> Option<(u64, SystemTime, SystemTime)> {
    const BLOCK_BYTES: u64 = 512;
    let metadata = fs_err::symlink_metadata(path).ok().filter(|metadata| metadata.is_file())?;
    let changed = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    Some((metadata.blocks().saturating_mul(BLOCK_BYTES), changed, metadata.accessed().unwrap_or(changed)))
}

/// Removes partial layers that a killed process left, and what describes layers that do not exist.
pub(super) fn remove_parts(yard: &Path, ids: &IdMap) -> io::Result<Vec<LeftOver>> {
    let mut left = Vec::new();
    let folder = yard.join(LAYERS);
    for name in names(&folder)? {
        let path = folder.join(&name);
        let is_beside = BESIDE.iter().find_map(|end| name.strip_suffix(&format!(".{end}")));
        if name.ends_with(".part") {
            match path.is_dir() {
                true => left.extend(remove_or_set_aside(yard, &Path::new(LAYERS).join(&name), ids)),
                false => fs_err::remove_file(&path)?,
            }
        } else if is_beside.is_some_and(|layer| !folder.join(layer).exists()) {
            fs_err::remove_file(&path)?;
        }
    }
    Ok(left)
}

impl KeptTrees<'_> {
    fn layers(&self, hash: &str) -> [String; 2] {
        ["", ALONE].map(|end| format!("{LAYERS}/{hash}{end}"))
    }

    fn beside(&self, layer: &str, what: &str) -> PathBuf {
        self.yard.join(format!("{layer}.{what}"))
    }

    /// Renames the layers of a tree, and removes its files. Returns the folders to remove.
    fn give_up(&self, hash: &str) -> io::Result<Vec<PathBuf>> {
        let mut gone = Vec::new();
        for layer in self.layers(hash) {
            if self.yard.join(&layer).is_dir() {
                let mut number = 0;
                let part = loop {
                    let part = PathBuf::from(format!("{layer}.{number}.part"));
                    if !self.yard.join(&part).exists() {
                        break part;
                    }
                    number += 1;
                };
                fs_err::rename(self.yard.join(&layer), self.yard.join(&part))?;
                gone.push(part);
            }
            // After the layer has lost its name: without a manifest, damage would not be found.
            for what in BESIDE {
                remove_file(&self.beside(&layer, what))?;
            }
        }
        let sha256 = Sha256Hex::parse(hash).map_err(io::Error::other)?;
        self.trees.archives().remove(&sha256)?;
        Ok(gone)
    }
}

pub(super) fn remove_file(path: &Path) -> io::Result<()> {
    match fs_err::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Kind for KeptTrees<'_> {
    fn what(&self) -> What {
        What::Tree
    }

    fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut found: BTreeMap<String, (u64, SystemTime)> = BTreeMap::new();
        let mut add = |hash: String, bytes: u64, used: SystemTime| {
            let known = found.entry(hash).or_insert((0, SystemTime::UNIX_EPOCH));
            *known = (known.0.saturating_add(bytes), known.1.max(used));
        };
        for name in names(&self.yard.join(LAYERS))? {
            let layer = format!("{LAYERS}/{name}");
            let Some(hash) = hash_of(&name).filter(|_| self.yard.join(&layer).is_dir()) else { continue };
            let manifest = self.beside(&layer, "manifest");
            let known = fs_err::read(&manifest).ok();
            let known = known.and_then(|text| serde_json::from_slice::<Manifest>(&text).ok());
            let bytes = known.map_or_else(|| used_bytes(&self.yard.join(&layer)), |manifest| manifest.bytes);
            let used = facts(&manifest).map_or(SystemTime::UNIX_EPOCH, |(_, changed, _)| changed);
            add(hash, bytes, used);
        }
        let archives = self.trees.archives().folder().to_owned();
        for part in names(&archives)? {
            for name in names(&archives.join(&part))? {
                let hash = name.split('.').next().and_then(hash_of);
                let Some((hash, (bytes, changed, _))) = hash.zip(facts(&archives.join(&part).join(&name)))
                else {
                    continue;
                };
                add(hash, bytes, changed);
            }
        }
        let failed = needed_by_failed(self.yard)?;
        let entries = found.into_iter().map(|(name, (bytes, used))| {
            let is_needed = failed.contains(&name) || self.uses.is_used(&name);
            Entry { name, bytes, used, is_needed }
        });
        Ok(entries.collect())
    }

    fn discard(&self, name: &str) -> io::Result<bool> {
        let gone = self.uses.unless_used(name, || {
            // A build that failed in the meantime kept its root before it stopped using its trees.
            match needed_by_failed(self.yard)?.contains(name) {
                true => Ok(None),
                false => self.give_up(name).map(Some),
            }
        })?;
        let Some(gone) = gone else { return Ok(false) };
        for folder in gone {
            // What cannot be removed is set aside, and no longer counts.
            let _ = remove_or_set_aside(self.yard, &folder, self.ids);
        }
        Ok(true)
    }
}
