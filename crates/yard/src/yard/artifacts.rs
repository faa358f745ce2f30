//! The store of outputs that the machines of a farm share.

use super::Yard;
use crate::config::artifacts::ArtifactsTable;
use crate::error::{Context, Error, Kind, Result};
use crate::yard::store_error;
use kilnyard_artifacts::{Depot, Folder};
use kilnyard_artifacts_object::{Address, Bucket, Credentials, Options};
use kilnyard_mirror::{FileStore, Sha256Hex, Wanted};
use kilnyard_store::Store;
use serde::Deserialize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Reads after "failed to".
const USING: &str = "use the store of artifacts";

impl Yard {
    /// The store that the configuration chooses; none if outputs are in the yard alone.
    pub fn depot(&self) -> Result<Option<Arc<dyn Depot>>> {
        depot_of(&self.config.artifacts, &self.home)
    }
}

/// The credentials of a store of artifacts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct CredentialsFile {
    key_id: String,
    secret: String,
    token: Option<String>,
}

/// The store of a table `artifacts`, for the yard in this folder.
pub(crate) fn depot_of(table: &ArtifactsTable, home: &Path) -> Result<Option<Arc<dyn Depot>>> {
    let Some(url) = &table.url else { return Ok(None) };
    match url.strip_prefix("file://") {
        Some(folder) => Ok(Some(Arc::new(folder_at(Path::new(folder))?))),
        None => Ok(Some(Arc::new(bucket(url, table, home)?))),
    }
}

fn folder_at(folder: &Path) -> Result<Folder> {
    if !folder.is_absolute() {
        let message =
            format!("failed to {USING}: file://{} does not name an absolute path", folder.display());
        return Err(Error::usage(message));
    }
    // It is not made here: an empty folder, where a file system is not mounted, would lack all outputs.
    if !folder.is_dir() {
        let message = format!("failed to {USING}: there is no folder {}", folder.display());
        return Err(Error::new(Kind::Machine, message).hint("mkdir, or mount what has it"));
    }
    Ok(Folder::at(folder))
}

fn bucket(url: &str, table: &ArtifactsTable, home: &Path) -> Result<Bucket> {
    let credentials = match &table.credentials_file {
        Some(file) => {
            let failed = "read the credentials of the store of artifacts";
            let text = fs_err::read_to_string(home.join(file)).context(Kind::Usage, failed)?;
            // Its errors would quote the line.
            let file: CredentialsFile = toml::from_str(&text).map_err(|error| {
                Error::usage(format!("failed to {failed}: {}", error.message()))
                    .hint("key-id = \"...\" and secret = \"...\", and token = \"...\" if there is one")
            })?;
            let CredentialsFile { key_id, secret, token } = file;
            Some(Credentials { key_id, secret, token })
        }
        None => None,
    };
    // A server on this machine or in this network may have no certificate.
    let allows_http = table.endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"));
    let options = Options {
        endpoint: table.endpoint.clone(),
        region: table.region.clone(),
        credentials,
        certificates: table.certificates.as_ref().map(|file| home.join(file)),
        allows_http,
        ..Options::default()
    };
    let address = Address::parse(url, options).context(Kind::Usage, USING)?;
    Bucket::open(address, &home.join("distfiles")).context(Kind::Machine, USING)
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
