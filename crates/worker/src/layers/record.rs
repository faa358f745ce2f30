//! What is written beside a layer.

use kilnyard_mirror::Sha256Hex;
use kilnyard_root::tree::Manifest;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::time::SystemTime;

const FILE: &str = "layer.json";

/// A set of packages that was configured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Set {
    /// The layers that builds begin with, relative to the yard.
    pub(crate) base: Vec<String>,
    /// The hashes of all packages, in order.
    pub(crate) packages: Vec<String>,
    /// The layers that it lies on, without the base, the uppermost first.
    pub(crate) stack: Vec<String>,
}

impl Set {
    /// The name of its layer: sets of the same packages over the same base are the same.
    pub(crate) fn name(&self) -> String {
        let text = format!("{:?} {:?}", self.base, self.packages);
        format!("sets/{}", Sha256Hex::of(text.as_bytes()).as_str())
    }

    /// All its layers, without the base, the uppermost first.
    pub(crate) fn layers(&self) -> Vec<String> {
        std::iter::once(self.name()).chain(self.stack.iter().cloned()).collect()
    }
}

/// What makes layers, and how they are kept: what another version made is made again.
const FORMAT: u32 = 1;

/// What is known of a layer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    format: u32,
    /// The boot of the machine that it was made in.
    pub(super) boot: String,
    /// Whether it was synchronized since.
    pub(super) is_safe: bool,
    pub(super) bytes: u64,
    /// What its files were; none if an older Kilnyard made it.
    #[serde(default)]
    pub(super) manifest: Option<Manifest>,
    /// What it is, if it is that of a set.
    pub(super) set: Option<Set>,
}

impl Kept {
    /// Removes the record of a layer, which then counts as left over.
    pub(super) fn forget(folder: &Path) {
        let _ = fs_err::remove_file(folder.join(FILE));
    }

    pub(super) fn new(boot: &str, manifest: Manifest, set: Option<Set>) -> Kept {
        let bytes = manifest.bytes;
        Kept { format: FORMAT, boot: boot.to_owned(), is_safe: false, bytes, manifest: Some(manifest), set }
    }

    /// Whether all of it is there, in this boot of the machine.
    pub(super) fn is_whole(&self, boot: &str) -> bool {
        self.format == FORMAT && (self.is_safe || (self.boot == boot && !boot.is_empty()))
    }

    pub(super) fn read(layer: &Path) -> io::Result<Kept> {
        // One that is still being made has another name.
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
        let kept = Kept::read(layer)?;
        let used = Kept::used(layer)?;
        Kept { is_safe: true, ..kept }.write(layer)?;
        std::fs::File::open(layer.join(FILE))?.set_modified(used)
    }

    /// When it was used last.
    pub(super) fn used(layer: &Path) -> io::Result<SystemTime> {
        fs_err::metadata(layer.join(FILE))?.modified()
    }

    /// Says that it is used now.
    #[expect(clippy::disallowed_methods, reason = "it is compared with times of files alone")]
    pub(super) fn touch(layer: &Path) {
        // At worst it goes too early, and is made again.
        let _ = std::fs::File::open(layer.join(FILE)).and_then(|file| file.set_modified(SystemTime::now()));
    }
}
