//! Trees that roots begin with, such as a base root: artifacts, of which each is unpacked once on a machine.
//!
//! `layers/archives` of a worker's folder holds the archives, by their hashes; `layers/HASH` is the tree of one, with the
//! ids that roots have here, and a manifest beside it. An order names its trees by their hashes: what they are called and
//! whose their files are is this machine's business. A layer that lost files is unpacked again.
//!
//! Known downside: an archive and its layer are both on the disk; the archive takes a third of the room of the layer.

use crate::damage;
use crate::leftovers::remove_or_set_aside;
use kilnyard_artifacts::{ArtifactError, Artifacts, Folder, Storage, copy};
use kilnyard_mirror::Sha256Hex;
use kilnyard_model::artifact::{Artifact, Media};
use kilnyard_root::sandbox::{RunError, Task};
use kilnyard_root::{IdMap, Sandbox, probe};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Where layers are, relative to the yard.
const LAYERS: &str = "layers";
/// Where the archives are, relative to the yard.
pub const ARCHIVES: &str = "layers/archives";
/// Behind the name of a layer all of whose files belong to one user.
const ALONE: &str = "-alone";

/// Why a tree is no layer.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// Its archive could not be had or kept.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// It could not be packed or unpacked.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A folder could not be made, moved or described.
    #[error(transparent)]
    Files(#[from] io::Error),
}

/// The trees of a worker's folder.
#[derive(Debug)]
pub struct Trees {
    yard: PathBuf,
    ids: IdMap,
    // A lock, and no owner with messages: who needs a tree that is being unpacked has nothing to do until it is there.
    unpacking: Mutex<()>,
}

impl Trees {
    /// The trees of a folder, for roots with these ids.
    pub fn new(yard: &Path, ids: &IdMap) -> Trees {
        Trees { yard: yard.to_owned(), ids: ids.clone(), unpacking: Mutex::new(()) }
    }

    /// The layer that a tree is here, relative to the yard, whether it is there or not.
    pub fn layer(&self, tree: &Artifact) -> String {
        format!("{LAYERS}/{}{}", tree.sha256, if self.ids.is_alone() { ALONE } else { "" })
    }

    /// Whether a tree is there as a layer that was not found damaged.
    pub fn is_whole(&self, tree: &Artifact) -> bool {
        self.is_layer_whole(&self.layer(tree))
    }

    /// Whether a tree is there, or could be unpacked.
    pub fn has(&self, tree: &Artifact) -> bool {
        self.is_whole(tree) || self.has_archive(tree)
    }

    /// Whether the archive of a tree is there.
    pub fn has_archive(&self, tree: &Artifact) -> bool {
        self.archives().find(&tree.sha256).is_some()
    }

    fn is_layer_whole(&self, layer: &str) -> bool {
        self.yard.join(layer).is_dir() && !damage::is_marked_damaged(&self.yard, layer)
    }

    /// The archives.
    pub fn archives(&self) -> Folder {
        Folder::at(&self.yard.join(ARCHIVES))
    }

    /// Gets the archives of trees from a store of artifacts, where they are missing here.
    pub fn fetch(&self, trees: &[Artifact], from: &dyn Artifacts) -> Result<(), TreeError> {
        let archives = self.archives();
        for tree in trees.iter().filter(|tree| !self.is_whole(tree)) {
            copy(tree, from, &archives, Storage::Compressed)?;
        }
        Ok(())
    }

    /// The layers of trees, relative to the yard and in the same order. What is not there is unpacked; who needs the same waits.
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

    /// Unpacks a layer again, by its name, in the place of the one that is there.
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

    /// Gives a layer that is whole its name.
    fn keep(&self, part: &str, layer: &str) -> io::Result<()> {
        // A record that says that the layer is there must not reach the disk before the layer.
        rustix::fs::syncfs(fs_err::File::open(self.yard.join(part))?.file())?;
        if self.yard.join(layer).exists() {
            // Roots of running builds may show its files: the next search for parts removes it.
            let aside = format!("{layer}.damaged.part");
            remove_or_set_aside(&self.yard, Path::new(&aside), &self.ids);
            fs_err::rename(self.yard.join(layer), self.yard.join(&aside))?;
        }
        damage::write_manifest(&self.yard, layer, part)?;
        fs_err::rename(self.yard.join(part), self.yard.join(layer))
    }

    /// Keeps a folder, relative to the yard, as the archive of a tree. `made_since_seconds` is when its making began, where that is to
    /// say nothing.
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
