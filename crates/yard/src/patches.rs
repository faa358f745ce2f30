//! Patches of base roots: what machines at the end of a slow link get in place of a whole tree, if they have the one before it.

use crate::error::Context;
use crate::error::Result;
use crate::files::write_whole;
use crate::yard::Yard;
use kilnyard_artifacts::patch;
use kilnyard_model::artifact::Artifact;
use kilnyard_model::order::TreePatch;
use kilnyard_process::pressure::available_bytes;

/// The record of the patches, in the folder of the yard's state.
const RECORD: &str = "state/patches.json";
/// The note of a base root that was removed.
const FORMER: &str = "state/former.json";
/// The folder that `kilnyard serve` makes.
const FARM: &str = "state/farm";
/// The maximum number of patches that are kept.
const KEPT_MAX: usize = 4;
/// A patch is kept if it is smaller than the archive by this factor.
const WORTH: u64 = 2;
/// The memory that making a patch needs beyond that of applying it, in bytes.
const SEARCH_BYTES: u64 = 512 << 20;

/// Whether other machines may need patches: the yard has been served to them.
pub fn are_of_use(yard: &Yard) -> bool {
    yard.home.join(FARM).is_dir()
}

/// The patches that lead to trees, the latest last.
pub fn read(yard: &Yard) -> Vec<TreePatch> {
    let text = fs_err::read(yard.path(RECORD)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// The base root that a clean-up has removed, if its archive is kept for a patch.
pub fn former(yard: &Yard) -> Option<Artifact> {
    serde_json::from_slice(&fs_err::read(yard.path(FORMER)).ok()?).ok()
}

/// Notes the base root that a clean-up removes, whose archive stays.
///
/// # Errors
/// The note cannot be written.
pub fn note_former(yard: &Yard, tree: &Artifact) -> Result<()> {
    write_whole(&yard.path(FORMER), &serde_json::to_vec_pretty(tree).or_internal("note the base root")?)
}

/// Makes the patch that leads from one tree to another, next to their archives. Without one, machines get the whole tree: neither a lack
/// of memory nor a missing archive is an error. True if there is a new one.
///
/// # Errors
/// The record cannot be written.
pub fn make(yard: &Yard, from: &Artifact, to: &Artifact) -> Result<bool> {
    if !are_of_use(yard) {
        return Ok(false);
    }
    let mut known = read(yard);
    let archives = yard.trees().archives();
    let is_known = known.iter().any(|one| one.from == *from && one.to == to.sha256);
    let archive = archives.find(&to.sha256).and_then(|path| path.metadata().ok());
    let needed_bytes = patch::memory_bytes(from, to).saturating_add(SEARCH_BYTES);
    let has_memory = available_bytes().is_none_or(|bytes| bytes > needed_bytes);
    let (Some(archive), false, true) = (archive, is_known || from == to, has_memory) else {
        return Ok(false);
    };
    let Ok(Some(artifact)) = patch::make(from, to, &archives, archive.len() / WORTH) else {
        return Ok(false);
    };
    known.push(TreePatch { from: from.clone(), to: to.sha256.clone(), artifact });
    known.drain(..known.len().saturating_sub(KEPT_MAX));
    write_whole(
        &yard.path(RECORD),
        &serde_json::to_vec_pretty(&known).or_internal("write the record of patches")?,
    )?;
    Ok(true)
}
