//! Files that workers read and write: artifacts by hash, and logs.

use super::Shared;
use super::requests::{Refusal, Worker};
use crate::api::For;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::TryStreamExt;
use kilnyard_artifacts::{ArtifactError, Artifacts, Storage, copy};
use kilnyard_model::artifact::{Artifact, Media};
use kilnyard_model::sha256::Sha256Hex;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};
use tokio_util::io::{ReaderStream, StreamReader, SyncIoBridge};

/// The largest file that a worker may store: more than any package.
const FILE_BYTES_MAX: u64 = 64 << 30;
/// The largest log that a worker may store, compressed.
const LOG_BYTES_MAX: u64 = 64 << 20;
/// The longest name of a log.
const LOG_NAME_BYTES_MAX: usize = 64;
/// Extension of compressed files, and their encoding in HTTP.
const COMPRESSED: &str = "zst";

fn not_yours() -> Refusal {
    Refusal(StatusCode::FORBIDDEN, "no build of this worker names it".to_owned())
}

fn hash(text: &str) -> Result<Sha256Hex, Refusal> {
    Sha256Hex::parse(text).map_err(|error| Refusal(StatusCode::BAD_REQUEST, error.to_string()))
}

/// Sends an artifact as it is stored, compressed or not.
pub async fn read(
    State(shared): State<Arc<Shared>>,
    Worker(worker): Worker,
    Path(sha256): Path<String>,
) -> Result<Response, Refusal> {
    let sha256 = hash(&sha256)?;
    if !shared.state().may_read(&worker, &sha256) {
        return Err(not_yours());
    }
    let files = shared.files()?;
    let folders = std::iter::once(&files.distfiles).chain(&files.archives);
    let found = folders.into_iter().find_map(|folder| folder.find(&sha256));
    let path = found.ok_or_else(|| Refusal(StatusCode::NOT_FOUND, format!("artifact {sha256} not found")))?;
    let file = tokio::fs::File::open(&path).await.map_err(Refusal::machine)?;
    let size = file.metadata().await.map_err(Refusal::machine)?.len();
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_LENGTH, size.into());
    if path.extension().is_some_and(|extension| extension == COMPRESSED) {
        headers.insert(header::CONTENT_ENCODING, header::HeaderValue::from_static("zstd"));
    }
    Ok((headers, Body::from_stream(ReaderStream::new(file))).into_response())
}

fn size_of(headers: &HeaderMap, max: u64) -> Result<u64, Refusal> {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let length: u64 =
        length.ok_or_else(|| Refusal(StatusCode::LENGTH_REQUIRED, "the size is missing".to_owned()))?;
    match length <= max {
        true => Ok(length),
        false => Err(Refusal(StatusCode::PAYLOAD_TOO_LARGE, format!("a file may have at most {max} bytes"))),
    }
}

/// A body as a reader, for a thread that may block.
fn reader(body: Body) -> impl Read + Send {
    let stream = body.into_data_stream().map_err(io::Error::other);
    SyncIoBridge::new(StreamReader::new(stream))
}

/// One artifact that arrives.
struct Arriving(Mutex<Option<Box<dyn Read + Send>>>);

impl Artifacts for Arriving {
    fn contains(&self, _: &Sha256Hex) -> Result<bool, ArtifactError> {
        Ok(true)
    }

    fn open(&self, sha256: &Sha256Hex) -> Result<Box<dyn Read + Send + '_>, ArtifactError> {
        let body = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        body.ok_or_else(|| ArtifactError::Missing(sha256.clone()))
    }

    fn insert(&self, _: &mut dyn Read, _: Storage) -> Result<(Sha256Hex, u64), ArtifactError> {
        Err(ArtifactError::io("store an artifact", io::ErrorKind::Unsupported.into()))
    }
}

/// Stores an artifact if its content has this hash.
pub async fn write(
    State(shared): State<Arc<Shared>>,
    Worker(worker): Worker,
    Path(sha256): Path<String>,
    Query(of): Query<For>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Refusal> {
    let sha256 = hash(&sha256)?;
    if shared.state().logs(&worker, &of.attempt).is_none() {
        return Err(not_yours());
    }
    let size_bytes = size_of(&headers, FILE_BYTES_MAX)?;
    let files = shared.files()?;
    let from = Arriving(Mutex::new(Some(Box::new(reader(body)))));
    let stored = tokio::task::spawn_blocking(move || {
        let artifact = Artifact { sha256, size_bytes, media: Media::Bytes };
        copy(&artifact, &from, &files.distfiles, Storage::Plain)
    });
    match stored.await.map_err(Refusal::machine)? {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(error @ (ArtifactError::Differs { .. } | ArtifactError::Size { .. })) => {
            Err(Refusal(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()))
        }
        Err(error) => Err(Refusal::machine(error)),
    }
}

/// Stores a log of a build that the worker has.
pub async fn log(
    State(shared): State<Arc<Shared>>,
    Worker(worker): Worker,
    Path((attempt, name)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Refusal> {
    let logs = shared.state().logs(&worker, &attempt).ok_or_else(not_yours)?;
    let is_name = name.len() <= LOG_NAME_BYTES_MAX
        && !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    if !is_name {
        return Err(Refusal(StatusCode::BAD_REQUEST, "the name of a log has lower-case letters".to_owned()));
    }
    size_of(&headers, LOG_BYTES_MAX)?;
    let path = shared.files()?.yard.join(format!("{logs}{name}.log.{COMPRESSED}"));
    let body = reader(body);
    let stored = tokio::task::spawn_blocking(move || keep(&path, &mut body.take(LOG_BYTES_MAX)));
    stored.await.map_err(Refusal::machine)?.map_err(Refusal::machine)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Writes a log in place of an earlier one.
fn keep(path: &std::path::Path, from: &mut impl Read) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::NotFound)?;
    fs_err::create_dir_all(folder)?;
    let part = path.with_extension("part");
    io::copy(from, &mut fs_err::File::create(&part)?)?;
    fs_err::rename(&part, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilnyard_artifacts::Folder;

    #[test]
    fn content_with_another_hash_is_not_stored() {
        let folder = tempfile::tempdir().unwrap();
        let store = Folder::open(folder.path()).unwrap();
        let arriving = |text: &'static str| Arriving(Mutex::new(Some(Box::new(text.as_bytes()))));
        let sha256 = Sha256Hex::parse(&"a".repeat(64)).unwrap();
        let artifact = Artifact { sha256, size_bytes: 3, media: Media::Bytes };
        let copied = copy(&artifact, &arriving("lie"), &store, Storage::Plain);
        assert!(matches!(copied, Err(ArtifactError::Differs { .. })), "{copied:?}");
        let copied = copy(&artifact, &arriving("a long lie"), &store, Storage::Plain);
        assert!(matches!(copied, Err(ArtifactError::Size { .. })), "{copied:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
