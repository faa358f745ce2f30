//! Trees of recipes for other machines: a whole tree once, and then what has changed in it.
//!
//! `state/trees` has the archive of a tree, with the stamps of its files at that time. A later run compares stamps, reads the files
//! that are others, and packs them as a layer above that tree; a machine that has the tree needs this layer alone, and mounts
//! both above each other. Once much has changed, the whole tree is packed again.

use crate::error::{Context, Error, Kind, Result};
use crate::lease::packed_by;
use crate::yard::Yard;
use kilnyard_artifacts::{Depot, Folder};
use kilnyard_model::artifact::Artifact;
use kilnyard_model::order::{FolderContent, SharedFolder};
use kilnyard_root::archive::{Stamps, pack_changes, pack_shared};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The folder of trees in a yard.
const TREES: &str = "state/trees";
/// The share of a tree's files that may have changed, as a divisor, and how many may have in any case.
const CHANGED_PART: usize = 20;
const CHANGED_MIN: usize = 100;

/// A tree that was packed.
#[derive(Serialize, Deserialize)]
struct Packed {
    /// The folder that it was packed from.
    source: PathBuf,
    archive: Artifact,
    stamps: Stamps,
}

/// Where archives of trees are.
pub fn folder(yard: &Yard) -> PathBuf {
    yard.path(TREES)
}

fn record(yard: &Yard, name: &str) -> PathBuf {
    folder(yard).join(format!("{name}.json"))
}

/// The content of a tree, as artifacts in `to` and in [`folder`].
///
/// # Errors
/// The tree is missing, or cannot be read or packed.
pub fn content(yard: &Yard, shared: &SharedFolder, to: &Folder) -> Result<FolderContent> {
    let folders = yard.config.family.folders();
    let lacks = || Error::new(Kind::Internal, format!("this machine has no folder `{}`", shared.name));
    let source = folders.get(&shared.name).ok_or_else(lacks)?;
    let failed = || format!("pack {}", source.display());
    // Before it is packed: what changes meanwhile has another stamp the next time.
    let stamps = Stamps::read(source).context(Kind::Machine, failed())?;
    let kept = Folder::open(&folder(yard)).context(Kind::Machine, failed())?;
    let known = known(yard, &shared.name, source).filter(|known| kept.find(&known.archive.sha256).is_some());
    if let Some(Packed { archive, stamps: before, .. }) = known {
        let changes = stamps.changes_since(&before);
        if changes.count() == 0 {
            return Ok(FolderContent::Tree(archive));
        }
        if changes.count() <= CHANGED_MIN.max(before.count() / CHANGED_PART) {
            let layer = packed_by(source, to, |writer| pack_changes(source, &changes, writer))?;
            return Ok(FolderContent::Layers(vec![layer, archive]));
        }
    }
    let archive = packed_by(source, &kept, |writer| pack_shared(source, writer))?;
    let packed = Packed { source: source.clone(), archive: archive.clone(), stamps };
    let path = record(yard, &shared.name);
    let (text, making) = (serde_json::to_vec(&packed).or_internal(failed())?, path.with_extension("new"));
    fs_err::write(&making, text)
        .and_then(|()| fs_err::rename(making, path))
        .context(Kind::Machine, failed())?;
    Ok(FolderContent::Tree(archive))
}

/// The tree of this name that was packed last from this folder. A record that cannot be read is none.
fn known(yard: &Yard, name: &str, source: &Path) -> Option<Packed> {
    let packed: Packed = serde_json::from_slice(&fs_err::read(record(yard, name)).ok()?).ok()?;
    (packed.source == source).then_some(packed)
}

/// Removes archives that no record names: no run needs them now. What cannot be removed is tried again at the next run.
pub fn tidy(yard: &Yard) {
    let records = fs_err::read_dir(folder(yard)).into_iter().flatten().flatten().map(|entry| entry.path());
    let records = records.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    let packed = records.filter_map(|path| serde_json::from_slice::<Packed>(&fs_err::read(path).ok()?).ok());
    let needed: Vec<_> = packed.map(|packed| packed.archive.sha256).collect();
    let kept = Folder::at(&folder(yard));
    let mut others = Vec::new();
    let _ = kept.each(&mut |listed| {
        if !needed.contains(&listed.sha256) {
            others.push(listed.sha256);
        }
        true
    });
    for sha256 in others {
        let _ = kept.remove(&sha256);
    }
}
