//! Outputs of builds, which workers store by hash.
//!
//! What a worker learns by storing: that a file "is not missing" means that its own builds let it read the file, or that
//! it has itself stored all of it for this attempt. Everything else is missing for it, whether the yard has the file or
//! not, and is received, hashed and answered the same way. Otherwise any worker could ask which files a yard has.

use super::Shared;
use super::files::{DIRECT_MAX, DRAINED_BYTES_MAX, admitted, hash, not_yours, reader, size_of};
use super::requests::{Refusal, Sender, Worker};
use crate::api::{
    self, Arrived, BATCH_BYTES_MAX, BLOBS_MAX, BYTES, BatchFor, Blob, Direct, DirectPart, For, Missing,
    Outputs, Refused, Uploaded,
};
use crate::batch;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use kilnyard_artifacts::{ArtifactError, Artifacts, Depot, Part, Upload};
use std::io::{self, Read};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The largest file that a worker may store: more than any package.
const FILE_BYTES_MAX: u64 = 64 << 30;

fn too_large() -> Refusal {
    Refusal(StatusCode::PAYLOAD_TOO_LARGE, format!("a file may have at most {FILE_BYTES_MAX} bytes"))
}

/// Asks which outputs of a build are missing, and how much of each has arrived.
///
/// A file is not missing if the worker has stored all of it for this build, or if its builds may read it.
#[utoipa::path(
    post,
    path = "/v1/blobs",
    request_body = Outputs,
    responses(
        (status = 200, description = "The files that the worker has to send.", body = Missing),
        (status = 401, description = "The session is unknown or over.", body = Refused),
        (status = 403, description = "The worker does not have the build.", body = Refused),
        (status = 413, description = "There are more than 4,096 files, or one has more than 64 GiB.", body = Refused),
        (status = 503, description = "No run is in progress: try again.", body = Refused),
        (status = "default", description = "Any other refusal.", body = Refused),
    ),
    security(("session" = [])),
)]
pub async fn missing(
    State(shared): State<Arc<Shared>>,
    Worker(worker): Worker,
    Json(outputs): Json<Outputs>,
) -> Result<Json<Missing>, Refusal> {
    let files = shared.files()?;
    if outputs.blobs.len() > BLOBS_MAX {
        let reason = format!("at most {BLOBS_MAX} files can be named at once");
        return Err(Refusal(StatusCode::PAYLOAD_TOO_LARGE, reason));
    }
    if shared.state().logs(&worker, &outputs.attempt).is_none() {
        return Err(not_yours());
    }
    let mut missing = Vec::new();
    for Blob { sha256, size_bytes } in &outputs.blobs {
        let (sha256, size_bytes) = (sha256.clone(), *size_bytes);
        let parsed = hash(&sha256)?;
        if size_bytes > FILE_BYTES_MAX {
            return Err(too_large());
        }
        let may_know = shared.state().may_know(&worker, &outputs.attempt, &parsed);
        if may_know && files.distfiles.contains(&parsed).map_err(Refusal::machine)? {
            continue;
        }
        let arrived_bytes = Some(shared.uploads.arrived_bytes(&worker, &parsed));
        // More than all of it belongs to another file, whose hash was wrong.
        let arrived_bytes = arrived_bytes.filter(|arrived| *arrived <= size_bytes).unwrap_or(0);
        missing.push((Arrived { sha256, arrived_bytes, direct: None }, size_bytes));
    }
    let depot = shared.depot.get().filter(|(_, is_direct)| *is_direct && outputs.direct);
    let missing = match depot.map(|(depot, _)| depot.clone()) {
        None => missing.into_iter().map(|(arrived, _)| arrived).collect(),
        Some(depot) => {
            let offered = tokio::task::spawn_blocking(move || {
                let offer = |(arrived, size_bytes): (Arrived, u64)| Arrived {
                    direct: direct(&*depot, &outputs.attempt, &arrived, size_bytes),
                    ..arrived
                };
                missing.into_iter().map(offer).collect()
            });
            offered.await.map_err(Refusal::machine)?
        }
    };
    Ok(Json(Missing { missing }))
}

/// How a worker sends a file of which nothing has arrived to the store; none if that fails.
fn direct(depot: &dyn Depot, attempt: &str, arrived: &Arrived, size_bytes: u64) -> Option<Direct> {
    let sha256 = hash(&arrived.sha256).ok().filter(|_| arrived.arrived_bytes == 0)?;
    match depot.upload(attempt, &sha256, size_bytes, DIRECT_MAX).ok()?? {
        Upload::Whole { url, headers } => {
            Some(Direct { id: None, parts: vec![DirectPart { url, headers, offset_bytes: 0, size_bytes }] })
        }
        Upload::Parts { id, parts, .. } => {
            let part = |part: Part| DirectPart {
                url: part.url,
                headers: part.headers,
                offset_bytes: part.offset_bytes,
                size_bytes: part.size_bytes,
            };
            Some(Direct { id: Some(id), parts: parts.into_iter().map(part).collect() })
        }
    }
}

/// Adopts an output of a build that the worker has sent to the store that machines share.
///
/// All of it is read and hashed.
#[utoipa::path(
    post,
    path = "/v1/blobs/{sha256}/uploaded",
    params(("sha256" = String, Path, description = "The hash of its content, in hexadecimal.")),
    request_body = Uploaded,
    responses(
        (status = 204, description = "It is stored."),
        (status = 401, description = "The session is unknown or over.", body = Refused),
        (status = 403, description = "The worker does not have the build.", body = Refused),
        (status = 422, description = "It is not there, or its content has another hash or size.", body = Refused),
        (status = 503, description = "No run is in progress: try again.", body = Refused),
        (status = "default", description = "Any other refusal.", body = Refused),
    ),
    security(("session" = [])),
)]
pub async fn uploaded(
    State(shared): State<Arc<Shared>>,
    sender: Sender,
    Path(sha256): Path<String>,
    Json(uploaded): Json<Uploaded>,
) -> Result<StatusCode, Refusal> {
    let (sha256, files) = (hash(&sha256)?, shared.files()?);
    let Uploaded { attempt, size_bytes, id, etags } = uploaded;
    if size_bytes > FILE_BYTES_MAX {
        return Err(too_large());
    }
    let has_build = |shared: &Shared| shared.state().logs(&sender.worker, &attempt).is_some();
    if !has_build(&shared) {
        return Err(not_yours());
    }
    let depot = shared.depot.get().filter(|(_, is_direct)| *is_direct).map(|(depot, _)| depot.clone());
    let depot = depot.ok_or_else(|| {
        let reason = "this server takes files itself".to_owned();
        Refusal(StatusCode::UNPROCESSABLE_ENTITY, reason)
    })?;
    let (wanted, token) = (sha256.clone(), attempt.clone());
    let adopted = tokio::task::spawn_blocking(move || {
        let finished = id.as_deref().map(|id| (id, &etags[..]));
        depot.adopt(&token, (&wanted, size_bytes), finished, &files.distfiles)
    });
    match adopted.await.map_err(Refusal::machine)? {
        Ok(()) => {}
        Err(ArtifactError::Io { action, source }) => {
            return Err(Refusal::machine(format!("failed to {action}: {source}")));
        }
        Err(error) => return Err(Refusal(StatusCode::UNPROCESSABLE_ENTITY, error.to_string())),
    }
    if !has_build(&shared) {
        return Err(not_yours());
    }
    shared.state().has_stored(&sender.worker, &attempt, sha256);
    Ok(StatusCode::NO_CONTENT)
}

/// Stores small outputs of a build, many in one request.
///
/// The body has them one after another: the hash of a file, as 32 bytes; its size, as 4 bytes, the most significant first; its
/// content, of at most 1 MiB.
#[utoipa::path(
    post,
    path = "/v1/blobs/batch",
    params(BatchFor),
    request_body(content = api::Bytes, content_type = BYTES, description = "The files, of at most 4 MiB together."),
    responses(
        (status = 204, description = "All are stored."),
        (status = 400, description = "The body is not of that form.", body = Refused),
        (status = 401, description = "The session is unknown or over.", body = Refused),
        (status = 403, description = "The worker does not have the build.", body = Refused),
        (status = 411, description = "The request does not say the size.", body = Refused),
        (status = 413, description = "The body, or a file, is too large.", body = Refused),
        (status = 422, description = "A content has another hash. Nothing of the batch is kept.", body = Refused),
        (status = 503, description = "No run is in progress: try again.", body = Refused),
        (status = "default", description = "Any other refusal.", body = Refused),
    ),
    security(("session" = [])),
)]
pub async fn batch(
    State(shared): State<Arc<Shared>>,
    sender: Sender,
    Query(of): Query<BatchFor>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Refusal> {
    let has_build = |shared: &Shared| shared.state().logs(&sender.worker, &of.attempt).is_some();
    let admit = || {
        let files = shared.files()?;
        match has_build(&shared) {
            true => Ok((files, size_of(&headers, BATCH_BYTES_MAX)?)),
            false => Err(not_yours()),
        }
    };
    let ((files, size_bytes), body) = admitted(admit(), body).await?;
    let mut body = reader(body, CancellationToken::new());
    let arrived = tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        (&mut body).take(size_bytes).read_to_end(&mut bytes).map(|_| bytes)
    });
    let bytes = arrived.await.map_err(Refusal::machine)?.map_err(Refusal::machine)?;
    // After that: a slow sender holds no place.
    let place = shared.batches.clone().acquire_owned().await.map_err(Refusal::machine)?;
    let stored = tokio::task::spawn_blocking(move || {
        let _place = place;
        let malformed = |reason| Refusal(StatusCode::BAD_REQUEST, reason);
        let batch = batch::read(&bytes).map_err(malformed)?;
        match files.distfiles.insert_each(&batch) {
            Ok(()) => Ok(batch.into_iter().map(|(sha256, _)| sha256).collect::<Vec<_>>()),
            Err(error @ ArtifactError::Differs { .. }) => {
                Err(Refusal(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()))
            }
            Err(error) => Err(Refusal::machine(error)),
        }
    });
    let stored = stored.await.map_err(Refusal::machine)??;
    if !has_build(&shared) {
        return Err(not_yours());
    }
    let mut state = shared.state();
    for sha256 in stored {
        state.has_stored(&sender.worker, &of.attempt, sha256);
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Stores an output of a build if its content has this hash.
///
/// The body is all of it, or the rest from an offset on. What has arrived when the connection breaks is kept until the
/// build ends.
#[utoipa::path(
    put,
    path = "/v1/blobs/{sha256}",
    params(("sha256" = String, Path, description = "The hash of its content, in hexadecimal."), For),
    request_body(content = api::Bytes, content_type = BYTES, description = "All of the file, or the rest of it."),
    responses(
        (status = 204, description = "It is stored."),
        (status = 401, description = "The session is unknown or over.", body = Refused),
        (status = 403, description = "The worker does not have the build.", body = Refused),
        (status = 409, description = "Fewer bytes than the offset have arrived: `arrived_bytes`.", body = Refused),
        (status = 411, description = "The request does not say the size.", body = Refused),
        (status = 413, description = "The file has more than 64 GiB.", body = Refused),
        (status = 422, description = "The content has another hash. Nothing of it is kept.", body = Refused),
        (status = 503, description = "No run is in progress, or too much arrives at once: try again.", body = Refused),
        (status = "default", description = "Any other refusal.", body = Refused),
    ),
    security(("session" = [])),
)]
pub async fn write(
    State(shared): State<Arc<Shared>>,
    sender: Sender,
    Path(sha256): Path<String>,
    Query(of): Query<For>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let offset = of.offset.unwrap_or(0);
    let busy = |reason: &str| Refusal(StatusCode::SERVICE_UNAVAILABLE, reason.to_owned());
    let admit = || {
        let sha256 = hash(&sha256)?;
        let files = shared.files()?;
        let has_build = || shared.state().logs(&sender.worker, &of.attempt).is_some();
        if !has_build() {
            return Err(not_yours());
        }
        let rest_bytes = size_of(&headers, FILE_BYTES_MAX)?;
        let size_bytes = offset.checked_add(rest_bytes).filter(|size| *size <= FILE_BYTES_MAX);
        let size_bytes = size_bytes.ok_or_else(too_large)?;
        let begun = shared.uploads.begin(&sender.worker, &of.attempt, &sha256, size_bytes);
        let request = begun.ok_or_else(|| busy("this worker sends too much at once"))?;
        // It may have ended before the upload was known.
        if !has_build() {
            request.forget();
            return Err(not_yours());
        }
        Ok((sha256, files, rest_bytes, request))
    };
    let ((sha256, files, rest_bytes, request), body) = admitted(admit(), body).await?;
    let turn = request.turn().await.ok_or_else(|| busy("another request continues this upload"))?;
    let mut body = reader(body, request.end.clone());
    // The thread finishes its work, and keeps its place, even if the client is gone.
    let stored = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let gap = request.write(offset, rest_bytes, &mut body).map_err(Refusal::machine)?;
        if let Some(arrived_bytes) = gap {
            // As in `admitted`. If it breaks off, the answer is of no use.
            let _ = io::copy(&mut body.take(DRAINED_BYTES_MAX), &mut io::sink());
            let error = format!("{arrived_bytes} bytes have arrived of this file, fewer than the offset");
            let refused = Refused { arrived_bytes: Some(arrived_bytes), ..Refused::because(error) };
            return Ok((StatusCode::CONFLICT, Json(refused)).into_response());
        }
        if shared.state().logs(&sender.worker, &of.attempt).is_none() {
            request.forget();
            return Err(not_yours());
        }
        match files.distfiles.adopt(request.path(), &sha256) {
            Ok(()) => shared.state().has_stored(&sender.worker, &of.attempt, sha256),
            Err(error @ ArtifactError::Differs { .. }) => {
                request.forget();
                return Err(Refusal(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()));
            }
            Err(error) => return Err(Refusal::machine(error)),
        }
        request.forget();
        Ok(StatusCode::NO_CONTENT.into_response())
    });
    stored.await.map_err(Refusal::machine)?
}
