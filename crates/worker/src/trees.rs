//! Trees that roots are made of, such as a base root. A tree is an artifact that each machine unpacks once.
//!
//! `layers/archives` in a worker's folder holds the archives, by hash. `layers/HASH` is an unpacked tree, with the
//! ids of this machine's roots; its manifest is next to it. Orders name trees by hash; folder names and file owners
//! are local to the machine. A layer that lost files is unpacked again.
//!
//! A worker that several yards share has a folder for each of them. A tree that one of them has becomes a layer of another
//! one by hard links: files of layers are never written.
//!
//! Known downside: both the archive and the layer stay on the disk; the archive is a third of the layer's size.

use crate::bound::now;
use crate::damage;
use crate::leftovers::remove_or_set_aside;
use kilnyard_artifacts::{ArtifactError, Artifacts, Folder, Storage, copy, patch};
use kilnyard_mirror::Sha256Hex;
use kilnyard_model::artifact::{Artifact, Media};
use kilnyard_model::order::TreePatch;
use kilnyard_process::pressure::available_bytes;
use kilnyard_root::sandbox::{RunError, Task};
use kilnyard_root::{Content, IdMap, Sandbox, probe};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Layers, relative to the yard.
pub(crate) const LAYERS: &str = "layers";
/// Archives of trees, relative to the yard.
pub const ARCHIVES: &str = "layers/archives";
/// The folder of the folders of further yards, in that of a worker that several yards share.
pub const YARDS: &str = "yards";
/// Suffix of a layer whose files all belong to one user.
pub(crate) const ALONE: &str = "-alone";

/// Why a tree could not become a layer, or a folder a tree.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The archive could not be fetched, found or stored.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// The tree could not be packed or unpacked.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A folder could not be created or moved, or its manifest not written.
    #[error(transparent)]
    Files(#[from] io::Error),
}

/// The trees of a worker's folder.
#[derive(Debug)]
pub struct Trees {
    yard: PathBuf,
    ids: IdMap,
    /// The folder with those of further yards; absent if there are none.
    site: Option<PathBuf>,
    // A lock instead of an owner with messages: a build that needs a tree cannot do anything else until it is unpacked.
    unpacking: Mutex<()>,
}

impl Trees {
    /// The trees in a yard, unpacked with these ids.
    pub fn new(yard: &Path, ids: &IdMap) -> Trees {
        Trees { yard: yard.to_owned(), ids: ids.clone(), site: None, unpacking: Mutex::new(()) }
    }

    /// The same, which takes trees from the folder of a site, and those of its further yards, too.
    #[must_use]
    pub fn of_site(self, site: Option<&Path>) -> Trees {
        Trees { site: site.map(Path::to_owned), ..self }
    }

    /// The layer of a tree, relative to the yard, whether it exists or not.
    pub fn layer(&self, tree: &Artifact) -> String {
        self.layer_of(&tree.sha256)
    }

    fn layer_of(&self, sha256: &Sha256Hex) -> String {
        format!("{LAYERS}/{sha256}{}", if self.ids.has_one_id() { ALONE } else { "" })
    }

    /// Whether the layer of a tree exists and is not marked as damaged.
    pub fn is_whole(&self, tree: &Artifact) -> bool {
        self.is_layer_whole(&self.layer(tree))
    }

    /// Records that a tree is used now.
    pub(crate) fn touch(&self, sha256: &Sha256Hex) {
        let manifest = self.yard.join(format!("{}.manifest", self.layer_of(sha256)));
        // If this fails, the tree may be removed too early, and is fetched again.
        let _ = std::fs::File::open(manifest).and_then(|file| file.set_modified(now()));
    }

    /// Whether the layer of a tree exists, or can be unpacked from its archive.
    pub fn has(&self, tree: &Artifact) -> bool {
        self.is_whole(tree) || self.has_archive(tree)
    }

    /// Whether the archive of a tree is stored here.
    pub fn has_archive(&self, tree: &Artifact) -> bool {
        self.archives().find(&tree.sha256).is_some()
    }

    fn is_layer_whole(&self, layer: &str) -> bool {
        self.yard.join(layer).is_dir() && !damage::is_marked_damaged(&self.yard, layer)
    }

    /// The store of the archives.
    pub fn archives(&self) -> Folder {
        Folder::at(&self.yard.join(ARCHIVES))
    }

    /// Takes the trees that are missing here from another yard of this worker, or their archives from an artifact store: as a patch of an
    /// earlier tree, if that is here, else whole.
    pub fn fetch(
        &self,
        trees: &[Artifact],
        patches: &[TreePatch],
        from: &dyn Artifacts,
    ) -> Result<(), TreeError> {
        let archives = self.archives();
        for tree in trees.iter().filter(|tree| !self.is_whole(tree)) {
            // The archive serves as well.
            if self.has_archive(tree) || !self.link(tree).unwrap_or(false) {
                let mut leading = patches.iter().filter(|patch| patch.to == tree.sha256);
                if !leading.any(|patch| self.is_patched(tree, patch, from)) {
                    copy(tree, from, &archives, Storage::Compressed)?;
                }
            }
        }
        Ok(())
    }

    /// Whether the archive of a tree is here now, made from an earlier one by a patch. What fails is fetched whole.
    fn is_patched(&self, tree: &Artifact, by: &TreePatch, from: &dyn Artifacts) -> bool {
        let has_memory = available_bytes().is_none_or(|bytes| bytes > patch::memory_bytes(&by.from, tree));
        has_memory
            && self.has_archive(&by.from)
            && patch::apply(&by.artifact, &by.from, tree, from, &self.archives()).is_ok()
    }

    /// Makes a layer from that of another yard. False if none has it.
    fn link(&self, tree: &Artifact) -> Result<bool, TreeError> {
        let Some(site) = &self.site else { return Ok(false) };
        let _alone = self.unpacking.lock().unwrap_or_else(PoisonError::into_inner);
        let layer = self.layer(tree);
        if self.is_layer_whole(&layer) {
            return Ok(true);
        }
        // Its files have the ids of that yard's roots.
        let is_usable = |folder: &Path| {
            let is_own = |metadata: Metadata| Some(metadata.uid()) == self.ids.user_outside(0);
            folder != self.yard
                && std::fs::metadata(folder.join(&layer)).is_ok_and(is_own)
                && !damage::is_marked_damaged(folder, &layer)
        };
        let further = std::fs::read_dir(site.join(YARDS)).into_iter().flatten().flatten();
        for other in further.map(|entry| entry.path()).chain([site.clone()]).filter(|path| is_usable(path)) {
            if self.link_to(&layer, site, &other)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes a layer from that of another folder in the site. False if it is not whole there.
    fn link_to(&self, layer: &str, site: &Path, other: &Path) -> Result<bool, TreeError> {
        let part = format!("{layer}.part");
        remove_or_set_aside(&self.yard, Path::new(&part), &self.ids);
        self.make_folder(&part)?;
        let within = |folder: &Path, path: &str| {
            folder.strip_prefix(site).map(|folder| folder.join(path)).map_err(io::Error::other)
        };
        let (lower, target) = (vec![within(other, layer)?], within(&self.yard, &part)?);
        let task = Task::Copy { lower, target, content: Content::Shared };
        let linked = Sandbox::of_machine(site, &self.ids, task).run();
        // That yard may have removed it meanwhile.
        let is_whole = linked.is_ok() && damage::has_all(&self.yard, &part, (other, layer));
        if is_whole {
            self.name(&part, layer)?;
        } else {
            remove_or_set_aside(&self.yard, Path::new(&part), &self.ids);
        }
        Ok(is_whole)
    }

    /// Unpacks the trees that are missing. Returns the layers of all trees, relative to the yard and in the same order.
    /// Concurrent callers wait.
    pub fn ensure(&self, trees: &[Artifact]) -> Result<Vec<String>, TreeError> {
        trees.iter().map(|tree| self.ensure_one(tree)).collect()
    }

    fn ensure_one(&self, tree: &Artifact) -> Result<String, TreeError> {
        let layer = self.layer(tree);
        if self.is_layer_whole(&layer) {
            return Ok(layer);
        }
        let _alone = self.unpacking.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_layer_whole(&layer) {
            self.unpack(&layer)?;
        }
        Ok(layer)
    }

    /// Replaces an existing layer by a freshly unpacked one.
    pub(crate) fn unpack_again(&self, layer: &str) -> Result<(), TreeError> {
        let _alone = self.unpacking.lock().unwrap_or_else(PoisonError::into_inner);
        self.unpack(layer)
    }

    fn unpack(&self, layer: &str) -> Result<(), TreeError> {
        let name = layer.strip_prefix(LAYERS).and_then(|name| name.strip_prefix('/')).unwrap_or(layer);
        let sha256 = Sha256Hex::parse(name.strip_suffix(ALONE).unwrap_or(name)).map_err(io::Error::other)?;
        let archive = self.archives().find(&sha256).ok_or(ArtifactError::Missing(sha256))?;
        let archive = archive.strip_prefix(&self.yard).unwrap_or(&archive).to_owned();
        let part = format!("{layer}.part");
        remove_or_set_aside(&self.yard, Path::new(&part), &self.ids);
        self.make_folder(&part)?;
        let task = Task::Unpack { archive, target: PathBuf::from(&part) };
        let unpacked = Sandbox::of_machine(&self.yard, &self.ids, task).run();
        let kept = unpacked.map_err(TreeError::Run).and_then(|_| Ok(self.keep(&part, layer)?));
        if kept.is_err() {
            remove_or_set_aside(&self.yard, Path::new(&part), &self.ids);
        }
        kept
    }

    fn make_folder(&self, layer: &str) -> io::Result<()> {
        let path = self.yard.join(layer);
        fs_err::create_dir(&path)?;
        probe::give_to_root(&path, &self.ids)
    }

    /// Gives a completely unpacked layer its final name.
    fn keep(&self, part: &str, layer: &str) -> io::Result<()> {
        // The name and the manifest must not reach the disk before the layer itself.
        rustix::fs::syncfs(fs_err::File::open(self.yard.join(part))?.file())?;
        self.name(part, layer)
    }

    /// The same for one whose files are on the disk already.
    fn name(&self, part: &str, layer: &str) -> io::Result<()> {
        if self.yard.join(layer).exists() {
            // Roots of running builds may still use its files; the next clean-up of partial layers removes it.
            let aside = format!("{layer}.damaged.part");
            remove_or_set_aside(&self.yard, Path::new(&aside), &self.ids);
            fs_err::rename(self.yard.join(layer), self.yard.join(&aside))?;
        }
        damage::write_manifest(&self.yard, layer, part)?;
        fs_err::rename(self.yard.join(part), self.yard.join(layer))
    }

    /// Packs a folder, relative to the yard, into the archive of a tree. `made_since_seconds` is when the creation of
    /// the folder began, in seconds since the epoch: later file times are replaced, so that they do not change the
    /// archive.
    pub fn pack(&self, folder: &str, made_since_seconds: Option<u64>) -> Result<Artifact, TreeError> {
        let task = Task::Pack { folder: PathBuf::from(folder), made_since_seconds };
        let archives = self.archives();
        let packed = Sandbox::of_machine(&self.yard, &self.ids, task).run_reading(|mut output| {
            archives.insert(&mut output, Storage::Compressed).map_err(io::Error::other)
        });
        let (sha256, size_bytes) = packed?;
        Ok(Artifact { sha256, size_bytes, media: Media::Tree })
    }
}
