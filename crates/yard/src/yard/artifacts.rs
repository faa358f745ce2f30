//! The store of outputs that the machines of a farm share.

use super::Yard;
use crate::config::artifacts::{ArtifactsTable, KEEP_DAYS};
use crate::error::{Context, Error, Kind, Result};
use crate::image;
use crate::words::now_seconds;
use crate::yard::store_error;
use kilnyard_artifacts::{Depot, Folder, Listed, hash_of};
use kilnyard_artifacts_object::{Address, Bucket, Credentials, Options};
use kilnyard_mirror::{FileStore, Sha256Hex, Wanted};
use kilnyard_store::Store;
use serde::Deserialize;
use std::collections::{BTreeSet, HashSet};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Reads after "failed to".
const USING: &str = "use the store of artifacts";
/// Artifacts that are older are stored again when they are needed: half of the least time for which they are kept.
const FRESH_SECONDS: f64 = DAY_SECONDS;
/// The largest compressed log, and the most text in it, in bytes: what a server takes from a worker.
const LOG_BYTES_MAX: u64 = 64 << 20;
const LOG_TEXT_BYTES_MAX: u64 = 256 << 20;
const DAY_SECONDS: f64 = 24.0 * 60.0 * 60.0;

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
pub fn depot_of(table: &ArtifactsTable, home: &Path) -> Result<Option<Arc<dyn Depot>>> {
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

/// Copies a log that this machine lacks from the store that the machines share. `path` is without the suffix of the
/// compression.
///
/// # Errors
/// It is not there, or the disk cannot be used.
pub fn bring_log(yard: &Yard, path: &Path, sha256: &Sha256Hex) -> Result<()> {
    let failed = "bring the log to this machine";
    let mut name = path.as_os_str().to_owned();
    name.push(".zst");
    let to = Path::new(&name);
    if path.exists() || to.exists() {
        return Ok(());
    }
    let Some(depot) = yard.depot()? else { return Ok(()) };
    let folder = to.parent().unwrap_or(&yard.folder);
    fs_err::create_dir_all(folder).context(Kind::Machine, failed)?;
    let mut copied = tempfile::NamedTempFile::new_in(folder).context(Kind::Machine, failed)?;
    let content = depot.open(sha256).context(Kind::Machine, failed)?;
    // A worker named the artifact: it can be any that the store has.
    let size_bytes =
        std::io::copy(&mut content.take(LOG_BYTES_MAX + 1), &mut copied).context(Kind::Machine, failed)?;
    let read = || copied.reopen().context(Kind::Machine, failed);
    let (found, _) = hash_of(&mut read()?).context(Kind::Machine, failed)?;
    if size_bytes > LOG_BYTES_MAX || found != *sha256 || !is_log(read()?) {
        return Err(Error::new(Kind::Machine, format!("failed to {failed}: what is stored is not a log")));
    }
    copied.persist(to).context(Kind::Machine, failed).map(drop)
}

/// Whether a file is a compressed log that its readers can hold in memory.
fn is_log(file: impl Read) -> bool {
    let Ok(text) = zstd::Decoder::new(file) else { return false };
    let unpacked = std::io::copy(&mut text.take(LOG_TEXT_BYTES_MAX + 1), &mut std::io::sink());
    unpacked.is_ok_and(|bytes| bytes <= LOG_TEXT_BYTES_MAX)
}

/// Stores the current outputs of a yard where machines share them, as far as they are not there: those from before there was
/// such a place. Returns their number.
///
/// # Errors
/// A store cannot be used.
pub fn share_outputs(yard: &Yard, depot: &dyn Depot, cancel: &AtomicBool) -> Result<u64> {
    let failed = "store the outputs where machines share them";
    let here = Folder::at(&yard.path("distfiles"));
    let outputs = yard.store()?.outputs().map_err(store_error)?;
    let hashes: BTreeSet<Sha256Hex> =
        outputs.iter().filter_map(|row| Sha256Hex::parse(&row.output.sha256).ok()).collect();
    let hashes: Vec<Sha256Hex> = hashes.into_iter().collect();
    let is_there = depot.contains_each(&hashes).context(Kind::Machine, failed)?;
    let mut count = 0;
    for (sha256, is_there) in hashes.iter().zip(is_there) {
        if cancel.load(Ordering::Relaxed) {
            break;
        }
        let path = here.path(sha256);
        // One that is missing here too is built again.
        if !is_there && path.is_file() {
            depot.deposit(&path, sha256, 0.0).context(Kind::Machine, failed)?;
            count += 1;
        }
    }
    Ok(count)
}

/// Artifacts that were stored before this time, in seconds since 1970, are stored again when they are needed.
pub fn fresh_since_seconds() -> f64 {
    now_seconds() - FRESH_SECONDS
}

/// Artifacts that nothing names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unneeded {
    /// The number of all artifacts.
    pub all: u64,
    /// Those that nothing names, stored long enough ago, with their sizes in bytes.
    pub artifacts: Vec<(Sha256Hex, u64)>,
    /// The time before which they were stored, in seconds since 1970.
    pub before_seconds: f64,
}

/// The artifacts that the yard needs: current outputs of all targets, and its image.
///
/// # Errors
/// A store cannot be read.
pub fn needed(yard: &Yard) -> Result<HashSet<Sha256Hex>> {
    let mut needed = HashSet::new();
    for target in yard.targets()? {
        let outputs = target.store()?.outputs().map_err(store_error)?;
        needed.extend(outputs.iter().filter_map(|row| Sha256Hex::parse(&row.output.sha256).ok()));
    }
    if let Some(documents) = yard.documents()? {
        needed.extend(image::needed(&documents)?);
    }
    Ok(needed)
}

/// The artifacts that can be removed. What is needed is read after they were listed.
///
/// # Errors
/// A store cannot be read.
pub fn unneeded(yard: &Yard, depot: &dyn Depot) -> Result<Unneeded> {
    let days = yard.config.artifacts.keep_days.unwrap_or(KEEP_DAYS);
    let before_seconds = now_seconds() - f64::from(days) * DAY_SECONDS;
    let mut unneeded = Unneeded { before_seconds, ..Unneeded::default() };
    let listed = depot.each(&mut |Listed { sha256, size_bytes, modified_seconds }| {
        unneeded.all += 1;
        if modified_seconds < before_seconds {
            unneeded.artifacts.push((sha256, size_bytes));
        }
        true
    });
    listed.context(Kind::Machine, "list the artifacts")?;
    let needed = needed(yard)?;
    unneeded.artifacts.retain(|(sha256, _)| !needed.contains(sha256));
    Ok(unneeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_log_or_unpacks_to_too_much_is_refused() {
        let packed = |text: &mut dyn Read| zstd::encode_all(text, 1).unwrap();
        assert!(is_log(&packed(&mut &b"a line\n"[..])[..]));
        assert!(!is_log(&b"!<arch>\ndebian-binary"[..]));
        let most = |bytes: u64| packed(&mut std::io::repeat(b'a').take(bytes));
        assert!(is_log(&most(LOG_TEXT_BYTES_MAX)[..]));
        assert!(!is_log(&most(LOG_TEXT_BYTES_MAX + 1)[..]));
        // One that was cut off.
        let whole = most(1 << 20);
        assert!(!is_log(&whole[..whole.len() - 1]));
    }
}
