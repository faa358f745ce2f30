//! Files that workers read and write: artifacts by hash, and logs.

use super::Shared;
use super::requests::{Refusal, Sender, Worker};
use crate::api::{For, PART_MISSING, Part};
use crate::relay::is_log_name;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use kilnyard_artifacts::{ArtifactError, Artifacts, Storage, copy};
use kilnyard_model::artifact::{Artifact, Media};
use kilnyard_model::sha256::Sha256Hex;
use std::fs::Permissions;
use std::io::{self, Read, Seek};
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio_util::io::{ReaderStream, StreamReader, SyncIoBridge};

/// The largest file that a worker may store: more than any package.
const FILE_BYTES_MAX: u64 = 64 << 30;
/// The largest log that a worker may store, compressed.
const LOG_BYTES_MAX: u64 = 64 << 20;
/// The most text of a log: its readers hold it in memory. Workers cut their logs at an eighth of it.
const LOG_TEXT_BYTES_MAX: u64 = 256 << 20;
/// How long a body may stop in the middle.
const SILENT_MAX: Duration = Duration::from_secs(60);
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
    // First: without a run, no build names anything, and trying again helps.
    let files = shared.files()?;
    if !shared.state().may_read(&worker, &sha256) {
        return Err(not_yours());
    }
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
    let parts = futures_util::stream::unfold(body.into_data_stream(), |mut body| async {
        let part = match tokio::time::timeout(SILENT_MAX, body.next()).await {
            Ok(part) => part?.map_err(io::Error::other),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        Some((part, body))
    });
    SyncIoBridge::new(StreamReader::new(Box::pin(parts)))
}

/// One artifact that arrives.
struct Arriving(Mutex<Option<Box<dyn Read + Send>>>);

impl Arriving {
    /// Reads what was not read, because the artifact is here already: an answer in the middle of a body would break the
    /// connection, and the worker would not get it.
    fn skip(&self) -> io::Result<u64> {
        let body = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        body.map_or(Ok(0), |mut body| io::copy(&mut body, &mut io::sink()))
    }
}

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
    sender: Sender,
    Path(sha256): Path<String>,
    Query(of): Query<For>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Refusal> {
    let sha256 = hash(&sha256)?;
    let files = shared.files()?;
    if shared.state().logs(&sender.worker, &of.attempt).is_none() {
        return Err(not_yours());
    }
    let size_bytes = size_of(&headers, FILE_BYTES_MAX)?;
    let from = Arriving(Mutex::new(Some(Box::new(reader(body)))));
    let stored = tokio::task::spawn_blocking(move || {
        let artifact = Artifact { sha256, size_bytes, media: Media::Bytes };
        copy(&artifact, &from, &files.distfiles, Storage::Plain)?;
        from.skip().map(drop).map_err(|error| ArtifactError::io("receive an artifact", error))
    });
    match stored.await.map_err(Refusal::machine)? {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(error @ (ArtifactError::Differs { .. } | ArtifactError::Size { .. })) => {
            Err(Refusal(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()))
        }
        Err(error) => Err(Refusal::machine(error)),
    }
}

/// Stores a log of a build that the worker has, or a part of it while it is being written.
pub async fn log(
    State(shared): State<Arc<Shared>>,
    sender: Sender,
    Path((attempt, name)): Path<(String, String)>,
    Query(part): Query<Part>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Refusal> {
    let files = shared.files()?;
    if !is_log_name(&name) {
        return Err(Refusal(StatusCode::BAD_REQUEST, "the name of a log has lower-case letters".to_owned()));
    }
    let logs = shared.state().logs_with(&sender.worker, &attempt, &name).ok_or_else(not_yours)?;
    let size = size_of(&headers, LOG_BYTES_MAX)?;
    let open = files.yard.join(format!("{logs}{name}.log"));
    let path = open.with_extension(format!("log.{COMPRESSED}"));
    let body = reader(body);
    if let Some(offset) = part.offset {
        if offset.saturating_add(size) > LOG_TEXT_BYTES_MAX {
            let reason = format!("a log may have at most {LOG_TEXT_BYTES_MAX} bytes of text");
            return Err(Refusal(StatusCode::PAYLOAD_TOO_LARGE, reason));
        }
        let added = tokio::task::spawn_blocking(move || {
            let mut body = body.take(size);
            let added = add(&open, &path, offset, &mut body)?;
            // What was not written is read too, so that the worker gets the answer.
            io::copy(&mut body, &mut io::sink())?;
            Ok::<bool, io::Error>(added)
        });
        return match added.await.map_err(Refusal::machine)?.map_err(Refusal::machine)? {
            true => Ok(StatusCode::NO_CONTENT),
            false => Err(Refusal(StatusCode::CONFLICT, PART_MISSING.to_owned())),
        };
    }
    let stored = tokio::task::spawn_blocking(move || keep(&path, &mut body.take(LOG_BYTES_MAX)));
    match stored.await.map_err(Refusal::machine)?.map_err(Refusal::machine)? {
        true => Ok(StatusCode::NO_CONTENT),
        false => {
            let reason =
                format!("a log is compressed with zstd, and has at most {LOG_TEXT_BYTES_MAX} bytes of text");
            Err(Refusal(StatusCode::UNPROCESSABLE_ENTITY, reason))
        }
    }
}

/// Writes a log in place of an earlier one. Returns false if its readers could not unpack it.
fn keep(path: &std::path::Path, from: &mut impl Read) -> io::Result<bool> {
    let folder = path.parent().ok_or(io::ErrorKind::NotFound)?;
    fs_err::create_dir_all(folder)?;
    let mut part = tempfile::Builder::new().suffix(".part").tempfile_in(folder)?;
    io::copy(from, part.as_file_mut())?;
    part.as_file_mut().rewind()?;
    let unpacked = zstd::Decoder::new(part.as_file())?.take(LOG_TEXT_BYTES_MAX + 1);
    match io::copy(&mut { unpacked }, &mut io::sink()) {
        Ok(bytes) if bytes <= LOG_TEXT_BYTES_MAX => {}
        _ => return Ok(false),
    }
    // Logs are readable like those of builds on this machine.
    part.as_file().set_permissions(Permissions::from_mode(0o644))?;
    part.persist(path).map_err(|error| error.error)?;
    // What arrived while it was being written.
    match fs_err::remove_file(path.with_extension("")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(true),
    }
}

/// Adds a part to a log that is being written, unless the whole log is there. Returns false if a part before it is
/// missing.
fn add(
    open: &std::path::Path,
    whole: &std::path::Path,
    offset: u64,
    from: &mut impl Read,
) -> io::Result<bool> {
    if whole.exists() {
        return Ok(true);
    }
    fs_err::create_dir_all(open.parent().ok_or(io::ErrorKind::NotFound)?)?;
    let mut file = fs_err::OpenOptions::new().write(true).create(true).truncate(false).open(open)?;
    if offset > file.metadata()?.len() {
        return Ok(false);
    }
    file.seek(io::SeekFrom::Start(offset))?;
    io::copy(from, &mut file)?;
    // The whole log may have arrived meanwhile.
    if whole.exists() {
        fs_err::remove_file(open)?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilnyard_artifacts::Folder;

    #[test]
    fn parts_of_a_log_follow_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let (open, whole) =
            (folder.path().join("logs/1-build.log"), folder.path().join("logs/1-build.log.zst"));
        let add = |offset: u64, text: &str| add(&open, &whole, offset, &mut text.as_bytes()).unwrap();
        let text = || fs_err::read_to_string(&open).unwrap();
        assert!(add(0, "one ") && add(4, "two ") && add(4, "two ") && add(0, "one "));
        assert!(!add(9, "lost"), "a gap is refused");
        assert_eq!(text(), "one two ");
        // The whole log replaces the parts, and late parts change nothing.
        let bytes = zstd::encode_all(&b"one two three"[..], 1).unwrap();
        assert!(keep(&whole, &mut &bytes[..]).unwrap());
        assert!(!open.exists() && add(8, "three") && !open.exists());
    }

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
