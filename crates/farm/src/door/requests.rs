//! The requests of workers (`/v1`).

use super::{ClientCertificates, Peer, Place, Shared, blobs, files, shells, yards};
use crate::api::{
    self, About, BYTES, Began, Challenge, EPOCH_HEADER, Join, Joined, Keeps, Proof, RUN_HEADER, Refused,
    WaitForMessage,
};
use crate::encoding::{self, MESSAGE_BYTES_MAX, UnpackError, ZSTD};
use crate::proof::is_proved;
use crate::relay::{ToRun, frame};
use crate::roster::{JoinError, Member};
use crate::ticket::TICKET_HEADER;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, FromRequestParts, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{AppendHeaders, IntoResponse, Response};
use axum::{Extension, Json, Router};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::OwnedSemaphorePermit;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{Components, Info, License, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Where messages are sent and taken.
const MESSAGES: &str = "/v1/messages";
/// The description of all requests.
const ABOUT: &str = "Workers on other machines are the clients. A worker joins once with the secret of a token, proves \
                     its key to begin a session, and then exchanges messages with the run, reads the files that its \
                     builds name, and stores their outputs and logs. A refusal has a JSON body with the reason.";
/// Messages up to this size are packed and unpacked at once. Larger ones get a thread, of which files may take all.
const QUICK_BYTES_MAX: usize = 1 << 20;
/// The largest other body, apart from files.
const SMALL_BYTES_MAX: usize = 16 << 10;
/// The largest list of files.
const NAMES_BYTES_MAX: usize = 1 << 20;
/// The longest time that a request for messages waits.
pub const WAIT_MAX: Duration = Duration::from_secs(50);

/// A request that is refused, with the reason.
#[derive(Debug)]
pub struct Refusal(pub StatusCode, pub String);

impl Refusal {
    /// The request needs a run.
    pub fn without_run() -> Refusal {
        Refusal(StatusCode::SERVICE_UNAVAILABLE, "no run is in progress".to_owned())
    }

    /// A failure of the door's machine.
    pub fn machine(error: impl ToString) -> Refusal {
        Refusal(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(Refused::because(self.1))).into_response()
    }
}

/// The worker of a request, which its session names.
#[derive(Debug)]
pub struct Worker(pub String);

impl FromRequestParts<Arc<Shared>> for Worker {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Worker, Refusal> {
        let value = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let session = value.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or("");
        let unknown = || Refusal(StatusCode::UNAUTHORIZED, "the session is unknown or over".to_owned());
        let worker = shared.state().worker(session, Instant::now()).ok_or_else(unknown)?;
        // It may have been removed since.
        let Some(member) = shared.roster.member(&worker).map_err(Refusal::machine)? else {
            shared.state().remove(&worker);
            shared.uploads.end_all(&worker);
            return Err(unknown());
        };
        certified(shared, &member, parts.extensions.get())?;
        if let Some(place) = parts.extensions.get::<Arc<Place>>() {
            place.is_of(&worker);
        }
        Ok(Worker(worker))
    }
}

/// Refuses a connection that has not shown the key of a member, if the door requires it.
fn certified(shared: &Shared, member: &Member, peer: Option<&Peer>) -> Result<(), Refusal> {
    let shown = peer.and_then(|Peer(key)| key.as_ref());
    let why = match shown {
        _ if shared.certificates == ClientCertificates::Optional => return Ok(()),
        Some(key) if *key == member.key => return Ok(()),
        Some(_) => "has one of another key",
        None => "has none: a proxy ends TLS, or the worker's program is too old",
    };
    let reason =
        format!("the yard requires a client certificate of the worker's key, and the connection {why}");
    Err(Refusal(StatusCode::FORBIDDEN, reason))
}

/// The worker of a request with a large body, which waits for its turn before the body is read.
#[derive(Debug)]
pub struct Sender {
    /// Its name.
    pub worker: String,
    _place: OwnedSemaphorePermit,
}

impl FromRequestParts<Arc<Shared>> for Sender {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Sender, Refusal> {
        let Worker(worker) = Worker::from_request_parts(parts, shared).await?;
        let gone = || Refusal(StatusCode::UNAUTHORIZED, "the worker was removed".to_owned());
        let is_file = parts.uri.path() != MESSAGES;
        let places = shared.state().arriving(&worker, is_file).ok_or_else(gone)?;
        let place = places.acquire_owned().await.map_err(Refusal::machine)?;
        Ok(Sender { worker, _place: place })
    }
}

/// The requests and their handlers.
pub fn router(shared: Arc<Shared>) -> Router {
    let (router, _) = described().split_for_parts();
    router.layer(middleware::from_fn_with_state(shared.clone(), with_leader)).with_state(shared)
}

/// Refers workers to the server that has the run, if that is another one, and names the epoch of this one's otherwise.
async fn with_leader(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    if let Some(refusal) = elsewhere(&shared) {
        return refusal;
    }
    let mut answer = next.run(request).await;
    let epoch = shared.state().epoch().and_then(|epoch| HeaderValue::from_str(epoch).ok());
    if let Some(epoch) = epoch {
        answer.headers_mut().insert(EPOCH_HEADER, epoch);
    }
    answer
}

/// The refusal of a server that does not have the run.
fn elsewhere(shared: &Shared) -> Option<Response> {
    let elsewhere = shared.state().elsewhere().cloned()?;
    let error = match &elsewhere.leader {
        Some(leader) => format!("the server at {leader} has the run"),
        None => "this server does not know which one has the run".to_owned(),
    };
    let refused = Refused { leader: elsewhere.leader, ..Refused::because(error) };
    Some((StatusCode::MISDIRECTED_REQUEST, Json(refused)).into_response())
}

/// The requests as an OpenAPI document.
pub fn openapi() -> OpenApi {
    described().into_openapi()
}

/// The requests, their handlers and their descriptions, which are made from the same functions and types.
fn described() -> OpenApiRouter<Arc<Shared>> {
    let small = OpenApiRouter::new()
        .routes(routes!(join))
        .routes(routes!(challenge))
        .routes(routes!(session))
        .routes(routes!(yards::yards))
        .layer(DefaultBodyLimit::max(SMALL_BYTES_MAX));
    let messages = OpenApiRouter::new()
        .routes(routes!(messages, message))
        .routes(routes!(ending))
        .layer(DefaultBodyLimit::max(MESSAGE_BYTES_MAX));
    let names = OpenApiRouter::new()
        .routes(routes!(blobs::missing))
        .routes(routes!(blobs::uploaded))
        .routes(routes!(files::tickets))
        .layer(DefaultBodyLimit::max(NAMES_BYTES_MAX));
    let shells = OpenApiRouter::new()
        .routes(routes!(shells::next))
        .routes(routes!(shells::input))
        .routes(routes!(shells::output))
        // What they take is bounded where it is read.
        .layer(DefaultBodyLimit::max(0));
    let files = OpenApiRouter::new()
        .routes(routes!(files::read, blobs::write))
        .routes(routes!(files::log))
        .routes(routes!(blobs::batch))
        .layer(DefaultBodyLimit::disable());
    let router = OpenApiRouter::with_openapi(document()).merge(small).merge(messages);
    router.merge(names).merge(shells).merge(files)
}

/// What is not said of a single request.
fn document() -> OpenApi {
    let info = Info::builder()
        .title("The door of a Kilnyard farm")
        .description(Some(ABOUT))
        .version("1")
        .license(Some(License::new("MIT OR Apache-2.0")));
    let session =
        Http::builder().scheme(HttpAuthScheme::Bearer).description(Some("The session of a worker."));
    let ticket = ApiKeyValue::with_description(TICKET_HEADER, "A ticket for the file that is read.");
    let schemes = Components::builder()
        .security_scheme("session", SecurityScheme::Http(session.build()))
        .security_scheme("ticket", SecurityScheme::ApiKey(ApiKey::Header(ticket)));
    OpenApi::builder().info(info.build()).components(Some(schemes.build())).build()
}

/// Joins with the secret of a token.
///
/// A worker that has joined with the same name and key may repeat this.
#[utoipa::path(
    post,
    path = "/v1/join",
    request_body = Join,
    responses(
        (status = 200, description = "The worker has joined.", body = Joined),
        (status = 403, description = "The token was used, has expired, or is unknown.", body = Refused),
        (status = 409, description = "Another worker has the name.", body = Refused),
        (status = "default", description = "Any other refusal.", body = Refused),
    ),
)]
async fn join(State(shared): State<Arc<Shared>>, Json(join): Json<Join>) -> Result<Json<Joined>, Refusal> {
    if join.name == shared.own {
        let reason = format!("{} is the name of the yard's own machine; choose another", join.name);
        return Err(Refusal(StatusCode::CONFLICT, reason));
    }
    // Requests of workers that have joined wait for none of this.
    let place = shared.joining.clone().acquire_owned().await.map_err(Refusal::machine)?;
    let (roster, now_seconds, sharing) = (shared.roster.clone(), (shared.clock)() as u64, shared.clone());
    let joined = tokio::task::spawn_blocking(move || {
        // Until the thread is done, even if the client is gone.
        let _place = place;
        let share = || sharing.shares.get().map_or(Ok(()), |share| share.0()).map_err(JoinError::Io);
        // The token may have been used on another machine.
        share()?;
        let member = roster.join(&join.secret, &join.name, &join.key, now_seconds)?;
        // If this fails, the worker may repeat its request.
        share()?;
        Ok(member)
    });
    let member = joined.await.map_err(Refusal::machine)?.map_err(|error| {
        let status = match &error {
            JoinError::Token | JoinError::Expired => StatusCode::FORBIDDEN,
            JoinError::Taken(_) => StatusCode::CONFLICT,
            JoinError::Name | JoinError::Key => StatusCode::BAD_REQUEST,
            JoinError::Io(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Refusal(status, error.to_string())
    })?;
    // Only the proof of the key begins a session.
    Ok(Json(Joined { worker: member.name }))
}

/// Asks for a challenge, which the worker signs to begin a session.
///
/// It can be answered once, within a minute.
#[utoipa::path(
    post,
    path = "/v1/challenge",
    responses((status = 200, description = "A challenge.", body = Challenge)),
)]
async fn challenge(State(shared): State<Arc<Shared>>) -> Json<Challenge> {
    Json(Challenge { challenge: shared.state().challenge(Instant::now()) })
}

/// Begins a session, in place of the worker's last one.
#[utoipa::path(
    post,
    path = "/v1/session",
    request_body = Proof,
    responses(
        (status = 200, description = "A session.", body = Began),
        (
            status = 403,
            description = "The worker has not joined, the proof is wrong, or the connection lacks a certificate.",
            body = Refused,
        ),
        (status = "default", description = "Any other refusal.", body = Refused),
    ),
)]
async fn session(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    Json(proof): Json<Proof>,
) -> Result<Json<Began>, Refusal> {
    let refused = |why: &str| Refusal(StatusCode::FORBIDDEN, why.to_owned());
    let now = Instant::now();
    if !shared.state().take_challenge(&proof.challenge, now) {
        return Err(refused("the challenge is unknown or too old"));
    }
    let member = shared.roster.member(&proof.worker).map_err(Refusal::machine)?;
    let member = member.ok_or_else(|| refused("this worker has not joined, or was removed"))?;
    if !is_proved(&member.key, shared.identity.fingerprint(), &proof.challenge, &proof.proof) {
        return Err(refused("the proof is not that of the worker's key"));
    }
    certified(&shared, &member, Some(&peer))?;
    let about = Some(proof.about).filter(About::is_short).unwrap_or_default();
    let session = shared.state().begin(&member.name, about, now, (shared.clock)());
    let addresses = shared.state().addresses.clone();
    let mirror = shared.state().mirrors.get(&member.pool).cloned();
    Ok(Json(Began { session, encodings: vec![ZSTD.to_owned()], addresses, mirror }))
}

/// Sends a message to the run.
///
/// Without a run, it is lost. It may be compressed with `Content-Encoding: zstd`, if the session's `encodings` say so.
#[utoipa::path(
    post,
    path = MESSAGES,
    request_body(content = api::Bytes, content_type = BYTES, description = "A message of the protocol, of at most 64 MiB."),
    responses(
        (status = 204, description = "The message was passed on, or there is no run."),
        (status = 401, description = "The session is unknown or over.", body = Refused),
        (status = 413, description = "The message is too large, compressed or not.", body = Refused),
        (status = 415, description = "The message is encoded in another way.", body = Refused),
        (status = 421, description = "Another server of the farm has the run: `leader`.", body = Refused),
        (status = "default", description = "Any other refusal.", body = Refused),
    ),
    security(("session" = [])),
)]
async fn message(
    State(shared): State<Arc<Shared>>,
    sender: Sender,
    headers: HeaderMap,
    message: Bytes,
) -> Result<Response, Refusal> {
    let message = unpacked(&headers, message).await?;
    let (run, turned) = {
        let state = shared.state();
        (state.run(), state.turned())
    };
    // Before the run has to read, which it may never do: another machine's takes its place then.
    let mut turned = std::pin::pin!(turned.notified());
    turned.as_mut().enable();
    if let Some(refusal) = elsewhere(&shared) {
        return Ok(refusal);
    }
    if let Some(run) = run {
        let bytes = frame(&ToRun { worker: sender.worker.clone() }, &message).map_err(Refusal::machine)?;
        tokio::select! {
            // It may have ended meanwhile.
            _ = run.send(bytes) => {}
            () = turned => if let Some(refusal) = elsewhere(&shared) {
                return Ok(refusal);
            },
        }
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// A message as it was before it was compressed, if it was.
async fn unpacked(headers: &HeaderMap, message: Bytes) -> Result<Bytes, Refusal> {
    match headers.get(header::CONTENT_ENCODING) {
        None => return Ok(message),
        Some(encoding) if encoding == ZSTD => {}
        Some(_) => {
            let reason = format!("a message may be compressed with {ZSTD} alone");
            return Err(Refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason));
        }
    }
    let unpacked = match encoding::unpacked(&message, QUICK_BYTES_MAX) {
        Err(UnpackError::TooLarge(_)) => {
            let large = tokio::task::spawn_blocking(move || encoding::unpacked(&message, MESSAGE_BYTES_MAX));
            large.await.map_err(Refusal::machine)?
        }
        unpacked => unpacked,
    };
    unpacked.map(Bytes::from).map_err(|error| {
        let status = match error {
            UnpackError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            UnpackError::Malformed(_) => StatusCode::BAD_REQUEST,
        };
        Refusal(status, error.to_string())
    })
}

/// A message for a worker, compressed if the worker accepts that and it helps.
async fn packed(headers: &HeaderMap, message: Vec<u8>) -> Response {
    let lists = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|list| list.to_str().ok());
    if !lists.into_iter().any(encoding::is_accepted) {
        return Body::from(message).into_response();
    }
    let pack = |message: Vec<u8>| encoding::packed(&message).ok_or(message);
    let packed = match message.len() <= QUICK_BYTES_MAX {
        true => pack(message),
        false => match tokio::task::spawn_blocking(move || pack(message)).await {
            Ok(packed) => packed,
            Err(error) => return Refusal::machine(error).into_response(),
        },
    };
    match packed {
        Ok(packed) => ([(header::CONTENT_ENCODING, ZSTD)], packed).into_response(),
        Err(message) => message.into_response(),
    }
}

/// Notes that the worker ends soon and takes no more builds: the manager of its machine has asked it to. What it has may end
/// before. Holds until its next session.
#[utoipa::path(
    post,
    path = "/v1/ending",
    responses(
        (status = 204, description = "It was noted."),
        (status = 401, description = "The session is unknown or over.", body = Refused),
        (status = "default", description = "Any other refusal.", body = Refused),
    ),
    security(("session" = [])),
)]
async fn ending(State(shared): State<Arc<Shared>>, Worker(worker): Worker) -> StatusCode {
    shared.state().ends(&worker);
    StatusCode::NO_CONTENT
}

/// Takes the next message for the worker, and waits for it.
///
/// Every answer names the run; one without a message comes early if it is another run than the request names. A message of more than
/// 1 KiB is compressed if the request has `Accept-Encoding: zstd`.
#[utoipa::path(
    get,
    path = MESSAGES,
    params(WaitForMessage, Keeps),
    responses(
        (
            status = 200,
            description = "A message of the protocol.",
            body = api::Bytes,
            content_type = BYTES,
            headers(
                ("kilnyard-run" = String, description = "Identifies the run."),
                ("content-encoding" = String, description = "`zstd`, or absent."),
            ),
        ),
        (
            status = 204,
            description = "There is no message.",
            headers(("kilnyard-run" = String, description = "Identifies the run; absent without a run.")),
        ),
        (status = 401, description = "The session is unknown or over.", body = Refused),
        (status = 421, description = "Another server of the farm has the run: `leader`.", body = Refused),
        (status = "default", description = "Any other refusal.", body = Refused),
    ),
    security(("session" = [])),
)]
async fn messages(
    State(shared): State<Arc<Shared>>,
    Worker(worker): Worker,
    Query(wait): Query<WaitForMessage>,
    Query(keeps): Query<Keeps>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let end = tokio::time::Instant::now() + Duration::from_secs(wait.wait).min(WAIT_MAX);
    if let Some(holdings) = keeps.holdings() {
        shared.state().keeps(&worker, holdings);
    }
    let run_before = match wait.run {
        Some(run) => Some(run).filter(|run| !run.is_empty()),
        None => shared.state().run_id().map(str::to_owned),
    };
    loop {
        let gone = || Refusal(StatusCode::UNAUTHORIZED, "the worker was removed".to_owned());
        let (message, filled) = shared.state().take(&worker).ok_or_else(gone)?;
        // Before the run is compared, so that no change after that is missed.
        let mut changed = std::pin::pin!(filled.notified());
        changed.as_mut().enable();
        let run = shared.state().run_id().map(str::to_owned);
        let named = run.iter().map(|run| (RUN_HEADER, run.clone()));
        let named = AppendHeaders(named.collect::<Vec<_>>());
        if let Some(message) = message {
            return Ok((named, packed(&headers, message).await).into_response());
        }
        if let Some(refusal) = elsewhere(&shared) {
            return Ok(refusal);
        }
        if run != run_before || tokio::time::timeout_at(end, changed).await.is_err() {
            return Ok((StatusCode::NO_CONTENT, named).into_response());
        }
    }
}
