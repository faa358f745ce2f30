//! Layers that lost files: a person or a disk may take away a part of what every build stands on, and each build fails in another
//! way then. A layer has a manifest beside it; what differs is made anew.

use kilnyard_root::tree::Manifest;
use std::io;
use std::path::{Path, PathBuf};

fn beside(yard: &Path, layer: &str, what: &str) -> PathBuf {
    yard.join(format!("{layer}.{what}"))
}

/// Writes the manifest of a layer that is whole; `files` is where it is now. Both are relative to the yard.
pub fn write_manifest(yard: &Path, layer: &str, files: &str) -> io::Result<()> {
    let manifest = serde_json::to_vec(&Manifest::of(&yard.join(files))).map_err(io::Error::other)?;
    let part = beside(yard, layer, "manifest.part");
    fs_err::write(&part, manifest)?;
    fs_err::rename(part, beside(yard, layer, "manifest"))?;
    match fs_err::remove_file(beside(yard, layer, "damaged")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// How a layer differs from its manifest; none where it does not, or has none. One that does is marked, and is made anew by
/// whoever makes such layers.
pub fn find_damage(yard: &Path, layer: &str) -> Option<String> {
    let text = fs_err::read(beside(yard, layer, "manifest")).ok()?;
    let manifest: Manifest = serde_json::from_slice(&text).ok()?;
    let difference = manifest.difference(&Manifest::of(&yard.join(layer)))?;
    // Without the mark it is found again by the next who looks.
    let _ = fs_err::write(beside(yard, layer, "damaged"), &difference);
    Some(difference)
}

/// Whether a layer can be checked: older versions of Kilnyard wrote no manifests.
pub fn has_manifest(yard: &Path, layer: &str) -> bool {
    beside(yard, layer, "manifest").exists()
}

/// Whether a layer was found damaged.
pub fn is_marked_damaged(yard: &Path, layer: &str) -> bool {
    beside(yard, layer, "damaged").exists()
}
