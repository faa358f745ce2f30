//! Files that workers read, and logs that they write.

use super::Shared;
use super::requests::{Refusal, Sender, Worker};
use crate::api::{
    self, BLOBS_MAX, BYTES, DIRECT_HEADER, DIRECT_ONLY, PART_MISSING, Part, Refused, Tickets, TicketsFor,
};
use crate::relay::is_log_name;
use crate::ticket::TICKET_HEADER;
use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use kilnyard_artifacts::{ArtifactError, Storage, copy_of_any_size};
use kilnyard_model::sha256::Sha256Hex;
use std::fs::Permissions;
use std::io::{self, Read, Seek};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncSeekExt;
use tokio_util::io::{ReaderStream, StreamReader, SyncIoBridge};
use tokio_util::sync::CancellationToken;

/// The largest log that a worker may store, compressed.
const LOG_BYTES_MAX: u64 = 64 << 20;
/// The most text of a log: its readers hold it in memory. Workers cut their logs at an eighth of it.
const LOG_TEXT_BYTES_MAX: u64 = 256 << 20;
/// How long a body may stop in the middle.
const SILENT_MAX: Duration = Duration::from_secs(60);
/// The most bytes of a refused body that are read before the answer, and how long that may take.
pub const DRAINED_BYTES_MAX: u64 = 1 << 20;
const DRAIN_MAX: Duration = Duration::from_secs(5);
/// How long a URL of the store that machines share is valid.
pub const DIRECT_MAX: Duration = Duration::from_secs(2 * 60 * 60);
/// How much of a file is read at a time, in bytes.
const READ_BYTES: usize = 128 << 10;
/// Extension of compressed files, and their encoding in HTTP.
const COMPRESSED: &str = "zst";

/// The refusal of what only a build of the worker could allow.
pub fn not_yours() -> Refusal {
    Refusal(StatusCode::FORBIDDEN, "no build of this worker names it".to_owned())
}

/// The hash in a path or body.
pub fn hash(text: &str) -> Result<Sha256Hex, Refusal> {
    Sha256Hex::parse(text).map_err(|error| Refusal(StatusCode::BAD_REQUEST, error.to_string()))
}

/// Refers to a file in the store that machines share, for a worker that checks how it is stored.
async fn stored(shared: &Shared, sha256: Sha256Hex) -> Result<Response, Refusal> {
    let Some((depot, true)) = shared.depot.get().cloned() else {
        return Err(Refusal(StatusCode::CONFLICT, "workers cannot read the store of artifacts".to_owned()));
    };
    let wanted = sha256.clone();
    let url = tokio::task::spawn_blocking(move || match depot.contains(&wanted)? {
        true => depot.read_url(&wanted, DIRECT_MAX).map(Some),
        false => Ok(None),
    });
    match url.await.map_err(Refusal::machine)?.map_err(Refusal::machine)? {
        None => Err(Refusal(StatusCode::NOT_FOUND, format!("artifact {sha256} not found"))),
        Some(None) => {
            Err(Refusal(StatusCode::CONFLICT, "the store of artifacts has no addresses".to_owned()))
        }
        Some(Some(url)) => Ok((StatusCode::SEE_OTHER, [(header::LOCATION, url)]).into_response()),
    }
}

/// Asks for tickets, with which files that builds of the worker name are read at the mirror of its site.
#[utoipa::path(
    post,
    path = "/v1/tickets",
    request_body = TicketsFor,
    responses(
        (status = 200, description = "The tickets, which are valid for some hours.", body = Tickets),
        (status = 401, description = "The session is unknown or over.", body = Refused),
        (status = 413, description = "There are more than 4,096 files.", body = Refused),
        (status = "default", description = "Any other refusal.", body = Refused),
    ),
    security(("session" = [])),
)]
pub async fn tickets(
    State(shared): State<Arc<Shared>>,
    Worker(worker): Worker,
    Json(wanted): Json<TicketsFor>,
) -> Result<Json<Tickets>, Refusal> {
    if wanted.blobs.len() > BLOBS_MAX {
        let reason = format!("at most {BLOBS_MAX} files can be named at once");
        return Err(Refusal(StatusCode::PAYLOAD_TOO_LARGE, reason));
    }
    let now = (shared.clock)() as u64;
    let ticket = |text: &String| {
        let sha256 = hash(text)?;
        let may_read = shared.state().may_read(&worker, &sha256);
        Ok(may_read.then(|| shared.tickets.issue(&shared.yard, &sha256, now)))
    };
    Ok(Json(Tickets { tickets: wanted.blobs.iter().map(ticket).collect::<Result<_, Refusal>>()? }))
}

/// Who reads a file: a worker in a session, or the mirror of a site with a worker's ticket.
#[derive(Debug)]
pub enum Reader {
    /// A worker.
    Worker(String),
    /// A ticket.
    Ticket(String),
}

impl FromRequestParts<Arc<Shared>> for Reader {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Reader, Refusal> {
        match parts.headers.get(TICKET_HEADER).and_then(|ticket| ticket.to_str().ok()) {
            Some(ticket) => Ok(Reader::Ticket(ticket.to_owned())),
            None => {
                let Worker(worker) = Worker::from_request_parts(parts, shared).await?;
                Ok(Reader::Worker(worker))
            }
        }
    }
}

/// Reads a file that a build of the worker names, or that a ticket is for.
///
/// It is sent as it is stored, compressed or not; all of it, or from an offset on (`Range: bytes=N-`).
#[utoipa::path(
    get,
    path = "/v1/blobs/{sha256}",
    params(("sha256" = String, Path, description = "The hash of its content, in hexadecimal.")),
    responses(
        (
            status = 200,
            description = "The file.",
            body = api::Bytes,
            content_type = BYTES,
            headers(("content-encoding" = String, description = "`zstd`, or absent.")),
        ),
        (status = 206, description = "The file from the offset on.", body = api::Bytes, content_type = BYTES),
        (status = 303, description = "Where it is, if the request has `kilnyard-direct`."),
        (status = 401, description = "The session is unknown or over.", body = Refused),
        (status = 403, description = "No build of this worker names the file, or the ticket is not for it.", body = Refused),
        (status = 404, description = "The store of artifacts does not have it, of which alone it was to be read.", body = Refused),
        (status = 409, description = "It was to be read from the store of artifacts, and workers cannot.", body = Refused),
        (status = 416, description = "The offset is not within the file.", body = Refused),
        (status = 503, description = "No run is in progress, or the file is not here yet: try again.", body = Refused),
        (status = "default", description = "Any other refusal.", body = Refused),
    ),
    security(("session" = []), ("ticket" = [])),
)]
pub async fn read(
    State(shared): State<Arc<Shared>>,
    reader: Reader,
    Path(sha256): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let sha256 = hash(&sha256)?;
    // First: without a run, no build names anything, and trying again helps.
    let files = shared.files()?;
    let may_read = match &reader {
        Reader::Worker(worker) => shared.state().may_read(worker, &sha256),
        Reader::Ticket(ticket) => {
            let now = (shared.clock)() as u64;
            shared.tickets.verifier().yard_of(ticket, &sha256, now) == Some(&*shared.yard)
        }
    };
    if !may_read {
        return Err(not_yours());
    }
    if headers.get(DIRECT_HEADER).is_some_and(|value| value == DIRECT_ONLY) {
        return stored(&shared, sha256).await;
    }
    let folders = std::iter::once(&files.distfiles).chain(&files.archives);
    let mut found = folders.into_iter().find_map(|folder| folder.find(&sha256));
    if let (None, Some((depot, is_direct))) = (&found, shared.depot.get().cloned()) {
        if is_direct && headers.contains_key(DIRECT_HEADER) {
            let (depot, wanted) = (depot.clone(), sha256.clone());
            let url = tokio::task::spawn_blocking(move || match depot.contains(&wanted)? {
                true => depot.read_url(&wanted, DIRECT_MAX),
                false => Ok(None),
            });
            // Without a URL, it is sent from here.
            if let Ok(Ok(Some(url))) = url.await {
                return Ok((StatusCode::SEE_OTHER, [(header::LOCATION, url)]).into_response());
            }
        }
        let (to, wanted) = (files.clone(), sha256.clone());
        let copied = tokio::task::spawn_blocking(move || {
            copy_of_any_size(&wanted, &*depot, &to.distfiles, Storage::Plain)
        });
        match copied.await.map_err(Refusal::machine)? {
            Ok(()) => found = files.distfiles.find(&sha256),
            Err(ArtifactError::Missing(_)) => {}
            Err(error) => return Err(Refusal::machine(error)),
        }
    }
    // A lease names it, so the run has it, or fetches it: after another machine had the run, it may not be here yet.
    let missing = || Refusal(StatusCode::SERVICE_UNAVAILABLE, format!("artifact {sha256} is not here yet"));
    let path = found.ok_or_else(missing)?;
    let mut file = tokio::fs::File::open(&path).await.map_err(Refusal::machine)?;
    let size = file.metadata().await.map_err(Refusal::machine)?.len();
    let range = headers.get(header::RANGE).and_then(|range| range.to_str().ok());
    let from = range.and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<u64>().ok());
    let is_compressed = path.extension().is_some_and(|extension| extension == COMPRESSED);
    // The same artifact may be stored otherwise by now: an offset counts for one of its forms.
    let etag = format!("\"{}\"", if is_compressed { COMPRESSED } else { "plain" });
    let is_same = headers.get(header::IF_RANGE).is_none_or(|known| *known == *etag);
    let from = from.filter(|_| is_same).unwrap_or(0);
    if from > 0 && from >= size {
        return Err(Refusal(StatusCode::RANGE_NOT_SATISFIABLE, format!("the file has {size} bytes")));
    }
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_LENGTH, (size - from).into());
    if let Ok(etag) = etag.parse() {
        headers.insert(header::ETAG, etag);
    }
    let status = match from {
        0 => StatusCode::OK,
        _ => {
            file.seek(io::SeekFrom::Start(from)).await.map_err(Refusal::machine)?;
            if let Ok(range) = format!("bytes {from}-{}/{size}", size - 1).parse() {
                headers.insert(header::CONTENT_RANGE, range);
            }
            StatusCode::PARTIAL_CONTENT
        }
    };
    if is_compressed {
        headers.insert(header::CONTENT_ENCODING, header::HeaderValue::from_static("zstd"));
    }
    Ok((status, headers, Body::from_stream(ReaderStream::with_capacity(file, READ_BYTES))).into_response())
}

/// The size of a body, which its header says.
pub fn size_of(headers: &HeaderMap, max: u64) -> Result<u64, Refusal> {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let length: u64 =
        length.ok_or_else(|| Refusal(StatusCode::LENGTH_REQUIRED, "the size is missing".to_owned()))?;
    match length <= max {
        true => Ok(length),
        false => Err(Refusal(StatusCode::PAYLOAD_TOO_LARGE, format!("a file may have at most {max} bytes"))),
    }
}

/// Passes on what a request was admitted to. A small body of one that is refused is read first: a client that is still
/// sending would see a broken connection instead of the reason, and try again.
pub async fn admitted<T>(admitted: Result<T, Refusal>, body: Body) -> Result<(T, Body), Refusal> {
    let refusal = match admitted {
        Ok(admitted) => return Ok((admitted, body)),
        Err(refusal) => refusal,
    };
    let (mut parts, mut left) = (body.into_data_stream(), DRAINED_BYTES_MAX);
    let drained = async {
        while let Some(Ok(part)) = parts.next().await {
            let Some(rest) = left.checked_sub(part.len() as u64) else { return };
            left = rest;
        }
    };
    let _ = tokio::time::timeout(DRAIN_MAX, drained).await;
    Err(refusal)
}

/// A body as a reader, for a thread that may block. It fails when `end` is cancelled.
pub fn reader(body: Body, end: CancellationToken) -> impl Read + Send {
    let parts = futures_util::stream::unfold((body.into_data_stream(), end), |(mut body, end)| async {
        let part = tokio::select! {
            () = end.cancelled() => Err(io::ErrorKind::ConnectionAborted.into()),
            part = tokio::time::timeout(SILENT_MAX, body.next()) => match part {
                Ok(part) => part?.map_err(io::Error::other),
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            },
        };
        Some((part, (body, end)))
    });
    SyncIoBridge::new(StreamReader::new(Box::pin(parts)))
}

/// Stores a log of a build that the worker has, or a part of it while it is being written.
#[utoipa::path(
    put,
    path = "/v1/logs/{attempt}/{name}",
    params(
        ("attempt" = String, Path, description = "A build that the worker has."),
        ("name" = String, Path, description = "The name of the log: lower-case letters, digits and dashes."),
        Part,
    ),
    request_body(
        content = api::Bytes,
        content_type = BYTES,
        description = "The whole log, compressed with zstd; or a part, as text, if the request has an offset.",
    ),
    responses(
        (status = 204, description = "It is stored."),
        (status = 401, description = "The session is unknown or over.", body = Refused),
        (status = 403, description = "The worker does not have the build.", body = Refused),
        (status = 409, description = "A part before this one is missing.", body = Refused),
        (status = 411, description = "The request does not say the size.", body = Refused),
        (status = 413, description = "The log is too large.", body = Refused),
        (status = 422, description = "The log is not compressed with zstd, or unpacks to too much.", body = Refused),
        (status = 503, description = "No run is in progress: try again.", body = Refused),
        (status = "default", description = "Any other refusal.", body = Refused),
    ),
    security(("session" = [])),
)]
pub async fn log(
    State(shared): State<Arc<Shared>>,
    sender: Sender,
    Path((attempt, name)): Path<(String, String)>,
    Query(part): Query<Part>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Refusal> {
    let admit = || {
        let files = shared.files()?;
        if !is_log_name(&name) {
            let reason = "the name of a log has lower-case letters".to_owned();
            return Err(Refusal(StatusCode::BAD_REQUEST, reason));
        }
        let logs = shared.state().logs_with(&sender.worker, &attempt, &name).ok_or_else(not_yours)?;
        let size = size_of(&headers, LOG_BYTES_MAX)?;
        if part.offset.is_some_and(|offset| offset.saturating_add(size) > LOG_TEXT_BYTES_MAX) {
            let reason = format!("a log may have at most {LOG_TEXT_BYTES_MAX} bytes of text");
            return Err(Refusal(StatusCode::PAYLOAD_TOO_LARGE, reason));
        }
        Ok((files.yard.join(format!("{logs}{name}.log")), size))
    };
    let ((open, size), body) = admitted(admit(), body).await?;
    let path = open.with_extension(format!("log.{COMPRESSED}"));
    let body = reader(body, CancellationToken::new());
    if let Some(offset) = part.offset {
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
}
