//! The record stored with each layer.

use kilnyard_mirror::Sha256Hex;
use kilnyard_root::tree::Manifest;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::time::SystemTime;

const FILE: &str = "layer.json";

/// A set of packages that was configured or installed together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerSet {
    /// The base layers, relative to the yard.
    pub(crate) base: Vec<String>,
    /// Sorted hashes of all packages.
    pub(crate) packages: Vec<String>,
    /// The layers below it, without the base, the uppermost first.
    pub(crate) stack: Vec<String>,
}

impl LayerSet {
    /// The name of its layer, which depends on the packages and the base only.
    pub(crate) fn name(&self) -> String {
        let text = format!("{:?} {:?}", self.base, self.packages);
        format!("sets/{}", Sha256Hex::of(text.as_bytes()).as_str())
    }

    /// Its own layer and those below, without the base, the uppermost first.
    pub(crate) fn layers(&self) -> Vec<String> {
        std::iter::once(self.name()).chain(self.stack.iter().cloned()).collect()
    }
}

/// Version of the layers and their records: layers of another version are made again.
const FORMAT: u32 = 1;

/// The record of a layer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LayerRecord {
    format: u32,
    /// The id of the boot that made it.
    pub(super) boot: String,
    /// Whether it was synced to the disk since.
    pub(super) is_safe: bool,
    pub(super) bytes: u64,
    /// Detects lost files; absent if an older Kilnyard made the layer.
    #[serde(default)]
    pub(super) manifest: Option<Manifest>,
    /// Absent for packages and images.
    pub(super) set: Option<LayerSet>,
    /// The layers whose files a merged one shares.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) merged: Vec<String>,
}

/// The content of a new layer.
#[derive(Debug)]
pub(super) enum Of<'a> {
    /// A package, with the text that its family keeps with it.
    Package(&'a str),
    /// The files of these layers.
    Merged(&'a [String]),
    Set(LayerSet),
    /// An image of layers.
    Image,
}

impl LayerRecord {
    /// Removes the record of a layer, so that the next start removes the layer.
    pub(super) fn forget(folder: &Path) {
        let _ = fs_err::remove_file(folder.join(FILE));
    }

    pub(super) fn new(boot: &str, manifest: Manifest, of: &Of<'_>) -> LayerRecord {
        let bytes = manifest.bytes;
        let (set, merged) = match of {
            Of::Package(_) | Of::Image => (None, Vec::new()),
            Of::Merged(layers) => (None, layers.to_vec()),
            Of::Set(set) => (Some(set.clone()), Vec::new()),
        };
        LayerRecord {
            format: FORMAT,
            boot: boot.to_owned(),
            is_safe: false,
            bytes,
            manifest: Some(manifest),
            set,
            merged,
        }
    }

    /// Whether the layer is known to be complete: synced, or made in this boot.
    pub(super) fn is_whole(&self, boot: &str) -> bool {
        self.format == FORMAT && (self.is_safe || (self.boot == boot && !boot.is_empty()))
    }

    pub(super) fn read(layer: &Path) -> io::Result<LayerRecord> {
        // A layer in the making has an extension.
        if layer.extension().is_some() {
            return Err(io::ErrorKind::NotFound.into());
        }
        serde_json::from_slice(&fs_err::read(layer.join(FILE))?).map_err(io::Error::other)
    }

    pub(super) fn write(&self, layer: &Path) -> io::Result<()> {
        let part = layer.join("layer.json.part");
        fs_err::write(&part, serde_json::to_vec(self).map_err(io::Error::other)?)?;
        fs_err::rename(part, layer.join(FILE))
    }

    pub(super) fn mark_safe(layer: &Path) -> io::Result<()> {
        let kept = LayerRecord::read(layer)?;
        let used = LayerRecord::used(layer)?;
        LayerRecord { is_safe: true, ..kept }.write(layer)?;
        std::fs::File::open(layer.join(FILE))?.set_modified(used)
    }

    /// When the layer was last used.
    pub(super) fn used(layer: &Path) -> io::Result<SystemTime> {
        fs_err::metadata(layer.join(FILE))?.modified()
    }

    /// Records that the layer is used now.
    #[expect(clippy::disallowed_methods, reason = "it is compared with times of files alone")]
    pub(super) fn touch(layer: &Path) {
        // If this fails, the layer may be evicted too early, and is made again.
        let _ = std::fs::File::open(layer.join(FILE)).and_then(|file| file.set_modified(SystemTime::now()));
    }
}
