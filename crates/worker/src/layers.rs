//! Dependency layers of a yard: each binary package is unpacked once, if its family supports it, and each set of
//! packages is configured or installed once.
//!
//! `layers/dependencies/packages/HASH` holds the files of the package with that SHA-256, and the description that its
//! family needs. `layers/dependencies/sets/KEY` holds the files written by configuring or installing a set of
//! packages, and a record of the layers below. A root starts from the largest existing set that is a subset of its
//! package's dependencies. The missing packages are stacked on top, configured, and kept as another set. If the stack
//! would become too high, the packages are first merged into one layer of hard links.
//! `layers/dependencies/images/KEY` holds an image of the layers below all sets, for roots on block devices.
//!
//! All of this is a cache: incomplete layers are removed and made again. A layer gets its final name when it is
//! complete. Until the file system is synced, only the boot that made a layer trusts it, since a crash may have kept
//! it from the disk. When the cache exceeds its bound, the least recently used layers are removed.
//!
//! Known downside: files of a merged layer count twice against the bound, although they are on the disk once.

mod claims;
mod image;
mod record;

pub(crate) use claims::Claim;
pub use image::Image;
pub(crate) use image::{OF_MACHINES, planned as planned_image};
pub(crate) use record::LayerSet;

use crate::bound::{Entry, Kind, What};
use crate::leftovers::{LeftOver, remove_or_set_aside};
use crate::roots::layers_of_failed;
use claims::Claims;
use kilnyard_mirror::Sha256Hex;
use kilnyard_root::sandbox::Task;
use kilnyard_root::tree::{self, Manifest};
use kilnyard_root::{Content, IdMap, Sandbox, probe};
use record::{LayerRecord, Of};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// Layers of dependencies, relative to the yard.
pub const DEPENDENCIES: &str = "layers/dependencies";
/// The folder of a yard that holds the sets. If it is missing, dependencies are configured again from the layers of
/// their packages, or installed again. Remove it only while no worker runs.
pub const SETS: &str = "layers/dependencies/sets";
/// Maximum number of stacked layers: an overlay takes 500, and cold walks over 400 are slow. Packages beyond that are
/// merged into one layer.
pub(crate) const STACKED_MAX: usize = 400;
/// Maximum number of stacked sets if each run of the package manager makes a layer. Beyond that, a root starts from a
/// smaller set, and the rest is installed on top. Older kernels take about 200 layers.
pub(crate) const SETS_STACKED_MAX: usize = 100;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Layers {
    yard: PathBuf,
    ids: IdMap,
    bytes_max: u64,
    boot: String,
    claims: Arc<Claims>,
    state: Arc<Mutex<State>>,
    /// Number of temporary folders so far, to give each another name.
    parts: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    sets: BTreeMap<String, LayerSet>,
    /// The layers that each merged layer was made of.
    merged: BTreeMap<String, Vec<String>>,
    /// Size of each layer, by name: `packages/HASH`, `sets/KEY` or `images/KEY`.
    bytes: BTreeMap<String, u64>,
    /// Number of roots that use a layer.
    users: HashMap<String, usize>,
    /// Layers that are not yet synced to the disk.
    unsynced: BTreeSet<String>,
}

impl State {
    fn add(&mut self, name: String, kept: LayerRecord) {
        if let Some(set) = kept.set {
            self.sets.insert(name.clone(), set);
        }
        if !kept.merged.is_empty() {
            self.merged.insert(name.clone(), kept.merged);
        }
        self.bytes.insert(name, kept.bytes);
    }

    /// Returns its size.
    fn forget(&mut self, name: &str) -> Option<u64> {
        self.sets.remove(name);
        self.merged.remove(name);
        self.unsynced.remove(name);
        self.bytes.remove(name)
    }
}

/// A package that has a layer.
#[derive(Debug)]
pub(crate) struct PackageLayer {
    pub(crate) layer: String,
    /// The text that its family keeps with it.
    pub(crate) description: String,
}

/// Marks layers as used by a root; they are not removed before this is dropped.
#[derive(Debug)]
pub(crate) struct LayersInUse {
    /// Names of layers, the uppermost first.
    pub(crate) layers: Vec<String>,
    state: Arc<Mutex<State>>,
}

impl Drop for LayersInUse {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        for layer in &self.layers {
            if let Some(count) = state.users.get_mut(layer) {
                *count -= 1;
                if *count == 0 {
                    state.users.remove(layer);
                }
            }
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Layers {
    /// The layers of a yard, which are evicted when they exceed `bytes_max`.
    pub(crate) fn new(yard: &Path, ids: &IdMap, bytes_max: u64) -> Layers {
        let boot = fs_err::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Layers {
            yard: yard.to_owned(),
            ids: ids.clone(),
            bytes_max,
            boot: boot.trim().to_owned(),
            claims: Arc::default(),
            state: Arc::default(),
            parts: AtomicU64::new(0),
        }
    }

    /// Whether dependency layers are disabled.
    pub(crate) fn are_disabled(&self) -> bool {
        self.bytes_max == 0
    }

    /// Reads the existing layers, and removes incomplete and excess ones. Call it once, before the first build.
    /// Returns the folders that could not be removed and were set aside.
    pub(crate) fn sweep(&self) -> io::Result<Vec<LeftOver>> {
        let mut left = Vec::new();
        let mut state = State::default();
        for kind in ["packages", "sets", "images"] {
            let folder = self.yard.join(DEPENDENCIES).join(kind);
            fs_err::create_dir_all(&folder)?;
            tree::spread(fs_err::File::open(&folder)?.file());
            for entry in fs_err::read_dir(&folder)? {
                let name = format!("{kind}/{}", entry?.file_name().to_string_lossy());
                match LayerRecord::read(&self.at(&name)) {
                    Ok(kept) if kept.is_whole(&self.boot) => {
                        if !kept.is_safe {
                            state.unsynced.insert(name.clone());
                        }
                        state.add(name, kept);
                    }
                    _ => left.extend(self.remove(&self.give_up(&name)?)),
                }
            }
        }
        // A set is useless if a layer below it is missing.
        let is_whole = |set: &LayerSet| {
            set.base.iter().all(|layer| self.yard.join(layer).is_dir())
                && set.stack.iter().all(|layer| state.bytes.contains_key(layer))
        };
        let broken: Vec<String> =
            state.sets.iter().filter(|(_, set)| !is_whole(set)).map(|(name, _)| name.clone()).collect();
        for name in &broken {
            state.sets.remove(name);
            state.bytes.remove(name);
            left.extend(self.remove(&self.give_up(name)?));
        }
        *lock(&self.state) = state;
        left.extend(self.evict()?);
        Ok(left)
    }

    /// Syncs the layers made in this boot, so that they survive a crash of the machine.
    pub(crate) fn synchronize(&self) -> io::Result<()> {
        let names = lock(&self.state).unsynced.clone();
        if names.is_empty() {
            return Ok(());
        }
        rustix::fs::syncfs(fs_err::File::open(self.yard.join(DEPENDENCIES))?)?;
        let mut outcome = Ok(());
        for name in &names {
            match LayerRecord::mark_safe(&self.at(name)) {
                Ok(()) => drop(lock(&self.state).unsynced.remove(name)),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }

    /// The exclusive right to make the layers with these names. Waits while another build makes one of them. `None` if
    /// cancelled.
    pub(crate) fn claim(&self, names: Vec<String>, cancel: &AtomicBool) -> Option<Claim> {
        Claims::claim(&self.claims, names, cancel)
    }

    /// The largest set whose packages are all in `wanted`, which contains hashes, and that has fewer than `stacked_max`
    /// layers below it.
    pub(crate) fn largest(
        &self,
        base: &[String],
        wanted: &BTreeSet<String>,
        stacked_max: usize,
    ) -> Option<LayerSet> {
        let state = lock(&self.state);
        let fits = |set: &LayerSet| {
            set.base == base
                && set.stack.len() < stacked_max
                && set.packages.len() <= wanted.len()
                && set.packages.iter().all(|package| wanted.contains(package))
        };
        state.sets.values().filter(|set| fits(set)).max_by_key(|set| set.packages.len()).cloned()
    }

    /// The layer of a package for roots with this base.
    pub(crate) fn package(&self, hash: &str, base: &[String]) -> Option<PackageLayer> {
        let name = package_name(hash, base);
        let kept = lock(&self.state).bytes.contains_key(&name);
        let description = kept.then(|| fs_err::read_to_string(self.at(&name).join("description")).ok())??;
        Some(PackageLayer { layer: name, description })
    }

    /// Marks these layers as used by a root. `None` if one of them is gone.
    pub(crate) fn hold(&self, layers: &[String]) -> Option<LayersInUse> {
        let mut state = lock(&self.state);
        if !layers.iter().all(|layer| state.bytes.contains_key(layer)) {
            return None;
        }
        for layer in layers {
            *state.users.entry(layer.clone()).or_default() += 1;
            // Eviction starts with the least recently used layer.
            LayerRecord::touch(&self.at(layer));
        }
        drop(state);
        Some(LayersInUse { layers: layers.to_vec(), state: self.state.clone() })
    }

    /// The folder of a layer's files, relative to the yard, whether it exists or not.
    pub(crate) fn files(&self, layer: &str) -> PathBuf {
        Path::new(DEPENDENCIES).join(layer).join("files")
    }

    /// Moves a folder into the layer of a package, for roots with this base.
    pub(crate) fn keep_package(
        &self,
        hash: &str,
        base: &[String],
        folder: &Path,
        description: &str,
    ) -> io::Result<()> {
        self.keep(&package_name(hash, base), folder, Of::Package(description))
    }

    /// Merges layers, the uppermost first, into one and returns its name. None of them may delete files of another.
    /// `None` if cancelled.
    pub(crate) fn merge(&self, layers: &[String], cancel: &AtomicBool) -> io::Result<Option<String>> {
        let name = format!("packages/merged-{}", Sha256Hex::of(format!("{layers:?}").as_bytes()).as_str());
        let Some(_claim) = self.claim(vec![name.clone()], cancel) else { return Ok(None) };
        if lock(&self.state).bytes.contains_key(&name) {
            return Ok(Some(name));
        }
        let Some(_held) = self.hold(layers) else {
            return Err(io::Error::other("a layer to be merged was removed in the meantime"));
        };
        let part = self.new_part(&name);
        let target = part.join("files");
        fs_err::create_dir(self.yard.join(&part))?;
        let merged = self.merge_into(layers, &target);
        let kept = merged.and_then(|()| self.keep(&name, &self.yard.join(&target), Of::Merged(layers)));
        // The files were moved into the layer, or are no longer wanted.
        self.remove(&part);
        kept.map(|()| Some(name))
    }

    fn merge_into(&self, layers: &[String], target: &Path) -> io::Result<()> {
        let path = self.yard.join(target);
        fs_err::create_dir(&path)?;
        probe::give_to_root(&path, &self.ids)?;
        let lower = layers.iter().map(|layer| self.files(layer)).collect();
        let task = Task::Copy { lower, target: target.to_owned(), content: Content::Shared };
        Sandbox::of_machine(&self.yard, &self.ids, task).run().map(|_| ()).map_err(io::Error::other)
    }

    /// Moves a folder into the layer of a set, and marks that layer as used by a root. If another build made the same
    /// set before, that one stays. `None` if a layer below it is gone.
    pub(crate) fn keep_set(&self, folder: &Path, set: LayerSet) -> io::Result<Option<LayersInUse>> {
        let name = set.name();
        self.keep(&name, folder, Of::Set(set))?;
        let known = lock(&self.state).sets.get(&name).map(LayerSet::layers);
        let held = known.and_then(|layers| self.hold(&layers));
        // The next sweep removes what could not be removed now.
        let _ = self.evict();
        Ok(held)
    }

    fn keep(&self, name: &str, files: &Path, of: Of<'_>) -> io::Result<()> {
        let part = self.new_part(name);
        let kept = self.put_together(&part, files, &of);
        let kept = match kept {
            Ok(kept) => kept,
            Err(error) => {
                self.remove(&part);
                return Err(error);
            }
        };
        let mut state = lock(&self.state);
        if state.bytes.contains_key(name) {
            drop(state);
            self.remove(&part);
            return Ok(());
        }
        // Under the lock, so that a layer of the same name is removed either before or after this.
        fs_err::rename(self.yard.join(&part), self.at(name))?;
        state.unsynced.insert(name.to_owned());
        state.add(name.to_owned(), kept);
        Ok(())
    }

    /// Assembles a layer under a temporary name.
    fn put_together(&self, part: &Path, files: &Path, of: &Of<'_>) -> io::Result<LayerRecord> {
        // Commands made it, perhaps in a virtual machine: as a link, it would lead elsewhere from now on.
        if !fs_err::symlink_metadata(files)?.is_dir() {
            return Err(io::Error::other(format!("{} is no folder", files.display())));
        }
        let part = self.yard.join(part);
        fs_err::create_dir(&part)?;
        fs_err::rename(files, part.join("files"))?;
        if let Of::Package(description) = of {
            fs_err::write(part.join("description"), description)?;
        }
        let kept = LayerRecord::new(&self.boot, Manifest::of(&part.join("files")), of);
        kept.write(&part)?;
        Ok(kept)
    }

    /// Drops layers that lost files, so that they are made again. Returns the damage of the first one as a clause.
    /// Layers are named by the folders of their files.
    pub(crate) fn drop_damaged(&self, folders: &[String]) -> Option<String> {
        let name = |folder: &String| {
            let below = folder.strip_prefix(DEPENDENCIES)?.strip_prefix('/')?;
            Some(below.strip_suffix("/files")?.to_owned())
        };
        let mut names: BTreeSet<String> = folders.iter().filter_map(name).collect();
        // A merged layer has the same files as those that it was made of.
        let state = lock(&self.state);
        let of_merged = names.iter().filter_map(|name| state.merged.get(name)).flatten();
        let of_merged: Vec<String> = of_merged.cloned().collect();
        names.extend(of_merged);
        drop(state);
        let mut found = None;
        for name in names {
            let Some(difference) = self.damage(&name) else { continue };
            let mut state = lock(&self.state);
            // Layers with its files, and those above, are useless without it.
            let merged = state.merged.iter().filter(|(_, layers)| layers.contains(&name));
            let mut useless: Vec<String> = merged.map(|(merged, _)| merged.clone()).collect();
            useless.push(name.clone());
            let is_useless = |layer: &String| useless.contains(layer);
            let above = state.sets.iter().filter(|(_, set)| set.stack.iter().any(is_useless));
            let above: Vec<String> = above.map(|(above, _)| above.clone()).collect();
            useless.extend(above);
            let mut gone = Vec::new();
            for name in useless {
                gone.extend(self.drop_one(&mut state, &name));
            }
            drop(state);
            for folder in gone {
                self.remove(&folder);
            }
            found.get_or_insert(format!(
                "{DEPENDENCIES}/{name} was damaged ({difference}) and will be made again"
            ));
        }
        found
    }

    /// Forgets a layer. Returns the folder to remove, if any.
    fn drop_one(&self, state: &mut State, name: &str) -> Option<PathBuf> {
        state.forget(name)?;
        let folder = self.give_up(name).ok()?;
        if state.users.contains_key(name) {
            // Roots of running builds use its files. Since it has no record, the next start removes it.
            LayerRecord::forget(&self.yard.join(&folder));
            return None;
        }
        Some(folder)
    }

    /// Drops all images. They are made again from their layers.
    pub(crate) fn drop_images(&self) {
        let mut state = lock(&self.state);
        let images: Vec<String> =
            state.bytes.keys().filter(|name| name.starts_with("images/")).cloned().collect();
        let gone: Vec<PathBuf> = images.iter().filter_map(|name| self.drop_one(&mut state, name)).collect();
        drop(state);
        for folder in gone {
            self.remove(&folder);
        }
    }

    fn damage(&self, name: &str) -> Option<String> {
        let manifest = LayerRecord::read(&self.at(name)).ok()?.manifest?;
        manifest.difference(&Manifest::of(&self.at(name).join("files")))
    }

    /// While the bound is exceeded, removes the least recently used layer that no set or root uses.
    fn evict(&self) -> io::Result<Vec<LeftOver>> {
        let mut left = Vec::new();
        loop {
            let state = lock(&self.state);
            if state.bytes.values().sum::<u64>() <= self.bytes_max {
                return Ok(left);
            }
            let free = self.free(&state)?;
            let Some(oldest) = free.into_iter().min_by_key(|name| self.used(name)).cloned() else {
                // All layers are in use.
                return Ok(left);
            };
            left.extend(self.take(state, &oldest)?);
        }
    }

    /// The layers that no set and no root uses.
    fn free<'a>(&self, state: &'a State) -> io::Result<BTreeSet<&'a String>> {
        let failed = layers_of_failed(&self.yard)?;
        let mut needed: BTreeSet<&String> = state.users.keys().collect();
        needed.extend(state.sets.values().flat_map(|set| &set.stack));
        let is_free = |name: &&String| !needed.contains(name) && !failed.contains(&self.files(name));
        Ok(state.bytes.keys().filter(is_free).collect())
    }

    fn used(&self, name: &str) -> SystemTime {
        LayerRecord::used(&self.at(name)).unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Forgets a layer and removes it.
    fn take(&self, mut state: MutexGuard<'_, State>, name: &str) -> io::Result<Option<LeftOver>> {
        let gone = self.give_up(name)?;
        state.forget(name);
        drop(state);
        Ok(self.remove(&gone))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.yard.join(DEPENDENCIES).join(name)
    }

    /// A temporary folder next to a layer, relative to the yard. Its name is never taken for a layer.
    fn new_part(&self, name: &str) -> PathBuf {
        let number = self.parts.fetch_add(1, Ordering::Relaxed);
        Path::new(DEPENDENCIES).join(format!("{name}.{number}.part"))
    }

    /// Renames a layer, so that it does not count as complete if its removal is interrupted.
    fn give_up(&self, name: &str) -> io::Result<PathBuf> {
        if name.ends_with(".part") {
            return Ok(Path::new(DEPENDENCIES).join(name));
        }
        let mut part = self.new_part(name);
        // An earlier process may have left a folder of this name.
        while self.yard.join(&part).exists() {
            part = self.new_part(name);
        }
        fs_err::rename(self.at(name), self.yard.join(&part))?;
        Ok(part)
    }

    fn remove(&self, folder: &Path) -> Option<LeftOver> {
        remove_or_set_aside(&self.yard, folder, &self.ids)
    }
}

impl Kind for Layers {
    fn what(&self) -> What {
        What::Layer
    }

    fn entries(&self) -> io::Result<Vec<Entry>> {
        let state = lock(&self.state);
        let free = self.free(&state)?;
        let entries = state.bytes.iter().map(|(name, bytes)| Entry {
            name: name.clone(),
            bytes: *bytes,
            used: self.used(name),
            is_needed: !free.contains(name),
        });
        Ok(entries.collect())
    }

    fn discard(&self, name: &str) -> io::Result<bool> {
        let state = lock(&self.state);
        if !self.free(&state)?.iter().any(|free| *free == name) {
            return Ok(false);
        }
        // What cannot be removed is set aside, and no longer counts.
        self.take(state, name).map(|_| true)
    }
}

/// Divides a stack into groups of layers that can be merged. Layers of single packages that follow each other are one: they delete no
/// file of another layer.
pub(crate) fn mergeable(stack: &[String]) -> impl Iterator<Item = &[String]> {
    let is_of_package = |layer: &str| layer.starts_with("packages/");
    stack.chunk_by(move |above, below| is_of_package(above) && is_of_package(below))
}

/// The name includes the base, since unpacking and trying out a package may give another result on another base.
fn package_name(hash: &str, base: &[String]) -> String {
    let base = Sha256Hex::of(format!("{base:?}").as_bytes());
    format!("packages/{hash}-{}", &base.as_str()[..12])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_layers_of_packages_are_merged() {
        let stack = ["sets/a", "packages/b", "packages/merged-c", "sets/d", "sets/e", "packages/f"];
        let stack = stack.map(str::to_owned);
        let groups: Vec<usize> = mergeable(&stack).map(<[String]>::len).collect();
        assert_eq!(groups, [1, 2, 1, 1, 1]);
        assert_eq!(mergeable(&[]).count(), 0);
    }
    use kilnyard_root::Mapper;

    const HASHES: [&str; 3] = ["aa", "bb", "cc"];

    struct Trial {
        folder: tempfile::TempDir,
    }

    impl Trial {
        fn new() -> Trial {
            let folder = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(folder.path().join("layers/base")).unwrap();
            Trial { folder }
        }

        fn layers(&self, bytes_max: u64) -> Layers {
            let own = rustix::process::geteuid().as_raw();
            let ids = IdMap { users: vec![(0, own, 1)], groups: vec![(0, own, 1)], mapper: Mapper::Root };
            std::fs::create_dir_all(self.folder.path().join("roots")).unwrap();
            let layers = Layers::new(self.folder.path(), &ids, bytes_max);
            layers.sweep().unwrap();
            layers
        }

        /// A folder with a file of this size.
        fn written(&self, bytes: usize) -> PathBuf {
            let folder = self.folder.path().join("written");
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("file"), vec![1; bytes]).unwrap();
            folder
        }

        fn set(&self, packages: &[&str], stack: &[String]) -> LayerSet {
            let packages = packages.iter().map(|hash| (*hash).to_owned()).collect();
            LayerSet { base: base().to_vec(), packages, stack: stack.to_vec() }
        }
    }

    fn base() -> [String; 1] {
        ["layers/base".to_owned()]
    }

    fn wanted(hashes: &[&str]) -> BTreeSet<String> {
        hashes.iter().map(|hash| (*hash).to_owned()).collect()
    }

    #[test]
    fn a_root_starts_from_the_largest_set_of_its_dependencies() {
        let trial = Trial::new();
        let layers = trial.layers(1 << 30);
        for hash in HASHES {
            layers.keep_package(hash, &base(), &trial.written(10), hash).unwrap();
        }
        let stack = [package_name("aa", &base())];
        drop(layers.keep_set(&trial.written(10), trial.set(&["aa"], &stack)).unwrap());
        let stack =
            [package_name("bb", &base()), trial.set(&["aa"], &[]).name(), package_name("aa", &base())];
        drop(layers.keep_set(&trial.written(10), trial.set(&["aa", "bb"], &stack)).unwrap());
        // The next instance finds these layers as well.
        for layers in [&layers, &trial.layers(1 << 30)] {
            let largest =
                |hashes| layers.largest(&base(), &wanted(hashes), STACKED_MAX).map(|set| set.packages);
            assert_eq!(largest(&["aa", "bb", "cc"]).unwrap(), ["aa", "bb"]);
            assert_eq!(largest(&["aa", "cc"]).unwrap(), ["aa"]);
            assert_eq!(largest(&["bb", "cc"]), None);
            // The set of two has three layers below it.
            let lower = layers.largest(&base(), &wanted(&["aa", "bb"]), 3).map(|set| set.packages);
            assert_eq!(lower.unwrap(), ["aa"]);
            assert!(layers.largest(&["layers/other".to_owned()], &wanted(&["aa"]), STACKED_MAX).is_none());
            assert_eq!(layers.package("cc", &base()).unwrap().description, "cc");
            assert!(layers.package("dd", &base()).is_none());
        }
    }

    #[test]
    fn eviction_removes_the_least_recently_used_layers_that_no_root_uses() {
        let trial = Trial::new();
        let layers = trial.layers(3 << 20);
        layers.keep_package("aa", &base(), &trial.written(1 << 20), "").unwrap();
        let first = layers
            .keep_set(&trial.written(1 << 20), trial.set(&["aa"], &[package_name("aa", &base())]))
            .unwrap();
        layers.keep_package("bb", &base(), &trial.written(1 << 20), "").unwrap();
        let second = layers
            .keep_set(&trial.written(1 << 20), trial.set(&["bb"], &[package_name("bb", &base())]))
            .unwrap();
        // Beyond the bound, but in use.
        assert!(layers.package("aa", &base()).is_some() && layers.package("bb", &base()).is_some());
        drop(first);
        layers.evict().unwrap();
        assert!(
            layers.largest(&base(), &wanted(&["aa"]), STACKED_MAX).is_none()
                && layers.package("bb", &base()).is_some()
        );
        let name = trial.set(&["bb"], &[]).name();
        assert!(trial.folder.path().join(layers.files(&name)).join("file").exists());
        drop(second);
        // The root of a failed build uses it.
        let failed = trial.folder.path().join("roots/failed-x");
        std::fs::create_dir(&failed).unwrap();
        std::fs::write(failed.join("layers"), format!("{}\n", layers.files(&name).display())).unwrap();
        let layers = trial.layers(1);
        assert!(layers.largest(&base(), &wanted(&["bb"]), STACKED_MAX).is_some());
        std::fs::remove_dir_all(failed).unwrap();
        let layers = trial.layers(1);
        assert!(layers.largest(&base(), &wanted(&["bb"]), STACKED_MAX).is_none());
        let left = std::fs::read_dir(trial.folder.path().join(DEPENDENCIES).join("packages")).unwrap();
        assert_eq!(left.count(), 0);
    }

    #[test]
    fn unsynced_layers_do_not_survive_a_crash() {
        let trial = Trial::new();
        let layers = trial.layers(1 << 30);
        layers.keep_package("aa", &base(), &trial.written(10), "").unwrap();
        layers.synchronize().unwrap();
        layers.keep_package("bb", &base(), &trial.written(10), "").unwrap();
        layers.keep_package("cc", &base(), &trial.written(10), "").unwrap();
        // The machine crashed, and one record was half written.
        for hash in ["aa", "bb"] {
            let file =
                trial.folder.path().join(DEPENDENCIES).join(package_name(hash, &base())).join("layer.json");
            let text = std::fs::read_to_string(&file).unwrap().replace(&layers.boot, "an earlier one");
            std::fs::write(file, text).unwrap();
        }
        let broken =
            trial.folder.path().join(DEPENDENCIES).join(package_name("cc", &base())).join("layer.json");
        std::fs::write(broken, "{\"boot\":").unwrap();
        std::fs::create_dir(trial.folder.path().join(DEPENDENCIES).join("packages/dd.part")).unwrap();
        let layers = trial.layers(1 << 30);
        assert_eq!(HASHES.map(|hash| layers.package(hash, &base()).is_some()), [true, false, false]);
        let left = std::fs::read_dir(trial.folder.path().join(DEPENDENCIES).join("packages")).unwrap();
        assert_eq!(left.count(), 1);
    }

    #[test]
    fn damage_of_a_merged_layer_is_that_of_its_sources() {
        let trial = Trial::new();
        let layers = trial.layers(1 << 30);
        for hash in HASHES {
            layers.keep_package(hash, &base(), &trial.written(10), hash).unwrap();
        }
        let merged = HASHES[..2].iter().map(|hash| package_name(hash, &base())).collect::<Vec<_>>();
        // Merged, with the files of one of them.
        let folder = trial.folder.path().join("merged");
        std::fs::create_dir(&folder).unwrap();
        let shared = trial.folder.path().join(layers.files(&merged[0])).join("file");
        std::fs::hard_link(&shared, folder.join("file")).unwrap();
        layers.keep("packages/merged-x", &folder, Of::Merged(&merged)).unwrap();
        let above = trial.set(&["aa", "bb"], &["packages/merged-x".to_owned()]);
        drop(layers.keep_set(&trial.written(10), above).unwrap());
        std::fs::write(&shared, "short").unwrap();
        // An instance that finds them knows it, too.
        let layers = trial.layers(1 << 30);
        let folders = [layers.files("packages/merged-x").display().to_string()];
        assert!(layers.drop_damaged(&folders).is_some());
        assert_eq!(HASHES.map(|hash| layers.package(hash, &base()).is_some()), [false, true, true]);
        assert!(!layers.at("packages/merged-x").exists());
        assert!(layers.largest(&base(), &wanted(&["aa", "bb"]), STACKED_MAX).is_none());
    }

    #[test]
    fn a_link_is_no_layer() {
        let trial = Trial::new();
        let layers = trial.layers(1 << 30);
        let link = trial.folder.path().join("link");
        std::os::unix::fs::symlink("/", &link).unwrap();
        assert!(layers.keep_package("aa", &base(), &link, "").is_err());
        assert!(layers.package("aa", &base()).is_none());
    }

    #[test]
    fn two_builds_never_make_the_same_layer_at_once() {
        let trial = Trial::new();
        let layers = Arc::new(trial.layers(1 << 30));
        let cancel = AtomicBool::new(false);
        let claim = layers.claim(vec!["a".to_owned(), "b".to_owned()], &cancel).unwrap();
        let other = layers.clone();
        let waiter = std::thread::spawn(move || {
            other.claim(vec!["b".to_owned(), "c".to_owned()], &AtomicBool::new(false)).is_some()
        });
        // Unclaimed names are free.
        assert!(layers.claim(vec!["d".to_owned()], &cancel).is_some());
        assert!(layers.claim(vec!["a".to_owned()], &AtomicBool::new(true)).is_none());
        drop(claim);
        assert!(waiter.join().unwrap());
    }
}
