//! The store of outputs that the machines of a farm share.

use super::Yard;
use crate::config::artifacts::ArtifactsTable;
use crate::error::{Context, Error, Kind, Result};
use crate::yard::store_error;
use kilnyard_artifacts::{Depot, Folder};
use kilnyard_mirror::{FileStore, Sha256Hex, Wanted};
use kilnyard_store::Store;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

impl Yard {
    /// The store that the configuration chooses; none if outputs are in the yard alone.
    pub fn depot(&self) -> Result<Option<Arc<dyn Depot>>> {
        depot_of(&self.config.artifacts)
    }
}

/// The store of a table `artifacts`.
pub(crate) fn depot_of(table: &ArtifactsTable) -> Result<Option<Arc<dyn Depot>>> {
    let Some(url) = &table.url else { return Ok(None) };
    let failed = "use the store of artifacts";
    let Some(folder) = url.strip_prefix("file://") else {
        let other = "its URL begins with file:// and the path of a folder";
        return Err(Error::usage(format!("failed to {failed}: {other}")));
    };
    let folder = Path::new(folder);
    if !folder.is_absolute() {
        return Err(Error::usage(format!("failed to {failed}: {url} does not name an absolute path")));
    }
    // It is not made here: an empty folder, where a file system is not mounted, would lack all outputs.
    if !folder.is_dir() {
        let message = format!("failed to {failed}: there is no folder {}", folder.display());
        return Err(Error::new(Kind::Machine, message).hint("mkdir, or mount what has it"));
    }
    Ok(Some(Arc::new(Folder::at(folder))))
}

/// Copies the current outputs that this machine lacks from the store that the machines share. Those that it lacks too stay
/// missing.
///
/// # Errors
/// The shared store or the disk cannot be used.
pub fn bring(store: &dyn Store, distfiles: &FileStore, cancel: &AtomicBool) -> Result<()> {
    if distfiles.depot().is_none() {
        return Ok(());
    }
    for row in store.outputs().map_err(store_error)? {
        let Ok(sha256) = Sha256Hex::parse(&row.output.sha256) else { continue };
        let (size_bytes, name) = (row.output.size_bytes, row.output.file);
        let wanted = Wanted { urls: Vec::new(), sha256, size_bytes, name };
        match distfiles.ensure(&wanted, &|_| {}, cancel) {
            Err(error) if matches!(error.root(), kilnyard_mirror::FetchError::NoUrl { .. }) => {}
            other => drop(other.context(Kind::Machine, "bring outputs to this machine")?),
        }
    }
    Ok(())
}
