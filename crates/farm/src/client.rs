//! A worker's side of the connection: requests to a door, repeated with a new session when the old one is over.

mod direct;
mod places;
mod read;
mod shells;
mod site;
mod uploads;

use crate::api::{
    About, Began, Challenge, EPOCH_HEADER, Join, Joined, Keeps, PART_MISSING, Part, Proof, RUN_HEADER,
    Refused, WaitForMessage, WaitForYards, YARD_HEADER, Yards,
};
use crate::encoding::{self, MESSAGE_BYTES_MAX, ZSTD};
use crate::identity::{self, Fingerprint, Pin};
use crate::proof::WorkerKey;
use kilnyard_artifacts::{ArtifactError, Artifacts, Storage};
use kilnyard_model::holdings::Holdings;
use kilnyard_model::sha256::Sha256Hex;
use places::Places;
use reqwest::blocking::{Body, RequestBuilder, Response};
use reqwest::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use site::Site;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a request for messages waits at the door.
const WAIT: Duration = Duration::from_secs(25);
/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// The longest time for a small request, and until a machine that is gone is noticed.
const SILENT_MAX: Duration = Duration::from_secs(60);
/// The same two times where there are several servers: one that does not answer has to be left soon, since another one continues
/// its run after ten seconds.
const WAIT_OF_SEVERAL: Duration = Duration::from_secs(3);
const SILENT_MAX_OF_SEVERAL: Duration = Duration::from_secs(6);
/// The slowest connection over which a message arrives in time, in bytes a second.
const RATE_MIN: u64 = 50_000;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address is not that of a door.
    #[error("{0} is not an address such as https://build.example:7878")]
    Address(String),
    /// The address is not that of a mirror.
    #[error("{0} is not an address such as http://mirror.example:3142")]
    Mirror(String),
    /// The door has another certificate than the token's.
    #[error(
        "the server has another certificate than the token says: it is not the one that you want to join, it was set up anew, or there is a proxy in between"
    )]
    OtherDoor,
    /// There is no connection, or it broke. Trying again may help.
    #[error("no connection: {0}")]
    Connection(String),
    /// The door refuses the request. Trying again does not help.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// The door cannot handle the request now. Trying again may help.
    #[error("the server failed: {0}")]
    Failed(String),
    /// The server is that of a leader that another one has replaced. Trying again may help.
    #[error("the server is that of an earlier leader, of epoch {found}; {known} is known")]
    Older {
        /// Its epoch.
        found: u64,
        /// The latest epoch that this worker has seen.
        known: u64,
    },
    /// Another server has the run. Trying again may help.
    #[error("{reason}")]
    Elsewhere {
        /// What the server says.
        reason: String,
        /// The address of the other server, if it is known.
        leader: Option<String>,
    },
    /// The content of a file does not unpack. Trying again helps only if it was damaged on its way.
    #[error("the server sent a file that does not unpack: {0}")]
    Damaged(String),
    /// A file of this machine.
    #[error("{0}")]
    File(#[from] io::Error),
}

impl ClientError {
    /// Whether trying again may help.
    pub fn is_passing(&self) -> bool {
        self.is_of_server() || matches!(self, ClientError::Failed(_))
    }

    /// Whether another server of the farm may answer.
    fn is_of_server(&self) -> bool {
        matches!(self, ClientError::Connection(_) | ClientError::Older { .. } | ClientError::Elsewhere { .. })
    }

    /// The error behind one that [`Artifacts::open`] of a client, or reading what it opened, returned.
    pub fn behind(error: &io::Error) -> Option<&ClientError> {
        error.get_ref()?.downcast_ref()
    }
}

/// A way to send a request.
type Sending = fn(&dyn Fn() -> RequestBuilder) -> Result<Response, ClientError>;

/// The answer to a request for messages.
#[derive(Debug)]
pub struct Received {
    /// A message of the run, if there is one.
    pub message: Option<Vec<u8>>,
    /// The random id of the run; absent if there is none.
    pub run: Option<String>,
}

/// Requests of one worker to one farm, whose servers have the same certificate.
#[derive(Debug)]
pub struct Client {
    http: reqwest::blocking::Client,
    /// Connections to the store that machines share; absent if they cannot be made.
    outside: Option<reqwest::blocking::Client>,
    /// The mirror of the worker's site.
    site: Arc<Site>,
    places: Mutex<Places>,
    /// How much longer than usual requests may take where there are several servers, in seconds.
    patience_seconds: AtomicU64,
    /// What shows that a server is the right one.
    server: Pin,
    /// The farm and the latest epoch that its servers named.
    epoch: Mutex<Option<(String, u64)>>,
    door: Fingerprint,
    worker: String,
    key: WorkerKey,
    about: About,
    /// The seconds since 1970, for the description of the machine.
    clock: Option<fn() -> f64>,
    /// What the worker keeps, if it said so: set by the thread that cleans, read by the one that asks for messages.
    holdings: Mutex<Option<Holdings>>,
    session: Mutex<Option<Session>>,
    /// The run that the last answer to a request for messages named.
    run: Mutex<Option<String>>,
    /// Whether it begins no further session.
    is_closed: AtomicBool,
}

/// A session that has begun.
#[derive(Clone, Debug, PartialEq)]
struct Session {
    id: String,
    /// Whether the door unpacks messages.
    takes_zstd: bool,
}

impl Client {
    /// A client of the door at this address, which has this fingerprint.
    ///
    /// # Errors
    /// The address is malformed.
    pub fn new(url: &str, door: Fingerprint, worker: &str, key: WorkerKey) -> Result<Client, ClientError> {
        Client::through(url, Pin::Certificate(door), door, worker, key)
    }

    /// The same, where the server at this address may be a proxy with another pin than the door's.
    ///
    /// # Errors
    /// The address is malformed.
    pub fn through(
        url: &str,
        server: Pin,
        door: Fingerprint,
        worker: &str,
        key: WorkerKey,
    ) -> Result<Client, ClientError> {
        let places = Mutex::new(Places::new(places::address(url)?));
        let http = http(server, &key, HeaderMap::new())?;
        let (worker, about) = (worker.to_owned(), About::default());
        let (clock, holdings, session, run, epoch) = Default::default();
        let outside = direct::http();
        Ok(Client {
            http,
            outside,
            site: Arc::default(),
            places,
            patience_seconds: AtomicU64::new(0),
            server,
            epoch,
            door,
            worker,
            key,
            about,
            clock,
            holdings,
            session,
            run,
            is_closed: AtomicBool::new(false),
        })
    }

    /// A client of another yard at the same site, of which this worker is a member too.
    ///
    /// # Errors
    /// The name has characters that no yard's has.
    pub fn of_yard(&self, yard: &str) -> Result<Client, ClientError> {
        let places = Mutex::new(self.places().clone());
        let key = self.key.clone();
        let name = HeaderValue::from_str(yard).map_err(|error| ClientError::Failed(error.to_string()))?;
        let http =
            http(self.server, &key, HeaderMap::from_iter([(HeaderName::from_static(YARD_HEADER), name)]))?;
        Ok(Client {
            http,
            outside: direct::http(),
            site: Arc::new(self.site.for_yard()),
            places,
            patience_seconds: AtomicU64::new(0),
            server: self.server,
            epoch: Mutex::default(),
            door: self.door,
            worker: self.worker.clone(),
            key,
            about: self.about.clone(),
            clock: self.clock,
            holdings: Mutex::default(),
            session: Mutex::default(),
            run: Mutex::default(),
            is_closed: AtomicBool::new(false),
        })
    }

    /// Ends the use of this connection: threads that have it end when they ask next, and none begins a session, which would
    /// end that of another connection of the worker.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// The yards that share this worker, as soon as they are others than those of this version, or half a minute later.
    ///
    /// # Errors
    /// See [`ClientError`]. A site from before there were several yards refuses this.
    pub fn yards(&self, version: &str) -> Result<Yards, ClientError> {
        let wait = WaitForYards { wait: WAIT.as_secs(), version: Some(version.to_owned()) };
        let request = || self.http.get(self.at("/v1/yards")).timeout(WAIT + SILENT_MAX).query(&wait);
        self.in_session(&request)?.json().map_err(broken)
    }

    /// The same client, which describes its machine to the door. `clock` gives the seconds since 1970.
    pub fn with_about(self, about: About, clock: fn() -> f64) -> Client {
        Client { about, clock: Some(clock), ..self }
    }

    /// The same client, which knows further servers.
    pub fn with_addresses(self, addresses: &[String]) -> Client {
        self.places().learn(addresses);
        self
    }

    /// The addresses of all servers that it knows, that in use first.
    pub fn addresses(&self) -> Vec<String> {
        self.places().all()
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says from now on that the worker keeps this.
    pub fn set_holdings(&self, holdings: Holdings) {
        *self.holdings.lock().unwrap_or_else(PoisonError::into_inner) = Some(holdings);
    }

    /// Joins with a token's secret. A worker that has joined may repeat this.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn join(&self, secret: &str) -> Result<(), ClientError> {
        let join = Join { secret: secret.to_owned(), name: self.worker.clone(), key: self.key.public() };
        self.somewhere(|| self.post::<Joined>("/v1/join", &join)).map(drop)
    }

    /// Asks one server after another, until one answers that has the run. Each is asked once.
    fn somewhere<T>(&self, ask: impl Fn() -> Result<T, ClientError>) -> Result<T, ClientError> {
        let mut turns = 0;
        loop {
            let from = self.places().current().clone();
            match ask() {
                Err(error) if error.is_of_server() => {
                    if matches!(error, ClientError::Connection(_)) {
                        self.places().note_silent(&from);
                    }
                    let leader = match &error {
                        ClientError::Elsewhere { leader, .. } => leader.as_deref(),
                        _ => None,
                    };
                    let mut places = self.places();
                    turns += 1;
                    if !places.turn(&from, leader) || turns >= places.all().len() {
                        return Err(error);
                    }
                }
                answer => {
                    self.places().note_answer(&from);
                    return answer;
                }
            }
        }
    }

    /// Sends a message to the run, or loses it if there is none.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn send(&self, message: Vec<u8>) -> Result<(), ClientError> {
        let packed = encoding::packed(&message);
        let from = self.places().current().clone();
        let request = || {
            let sending = Duration::from_secs(message.len() as u64 / RATE_MIN);
            let post = self.http.post(self.at("/v1/messages")).timeout(self.silent_max() + sending);
            // Each try may be in another session: the door may have been replaced by an older one.
            let takes_zstd = self.session().is_some_and(|session| session.takes_zstd);
            match packed.as_ref().filter(|_| takes_zstd) {
                Some(packed) => post.header(CONTENT_ENCODING, ZSTD).body(packed.clone()),
                None => post.body(message.clone()),
            }
        };
        self.in_session(&request).map(drop).inspect_err(|error| {
            // So that the next message does not wait for the same server.
            if matches!(error, ClientError::Connection(_)) {
                let mut places = self.places();
                places.note_silent(&from);
                places.turn(&from, None);
            }
        })
    }

    /// Says that this worker ends soon, and takes no more builds. This holds until its next session.
    ///
    /// # Errors
    /// See [`ClientError`]; a server of an earlier version does not know this request.
    pub fn say_ending(&self) -> Result<(), ClientError> {
        self.in_session(&|| self.http.post(self.at("/v1/ending")).timeout(self.silent_max())).map(drop)
    }

    /// Takes a message, and waits half a minute for one if `waits`, or until the run is another one than the last answer
    /// named, if any. If the server refers the worker to another one, or does not answer, that other one is asked, and used
    /// from then on.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn receive(&self, waits: bool) -> Result<Received, ClientError> {
        self.somewhere(|| self.receive_here(waits))
    }

    /// The run that the last answer named, if it named one.
    pub fn run(&self) -> Option<String> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn receive_here(&self, waits: bool) -> Result<Received, ClientError> {
        let known = self.run.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default();
        let holdings = self.holdings.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let keeps = holdings.as_ref().map(Keeps::of);
        let longest = if self.has_several() { WAIT_OF_SEVERAL } else { WAIT };
        let wait = WaitForMessage { wait: if waits { longest.as_secs() } else { 0 }, run: Some(known) };
        let request = || {
            let get = self.http.get(self.at("/v1/messages")).timeout(longest + self.silent_max());
            get.header(ACCEPT_ENCODING, ZSTD).query(&wait).query(&keeps)
        };
        let answer = self.in_session(&request).inspect_err(|_| self.be_patient(true))?;
        let run = answer.headers().get(RUN_HEADER).and_then(|run| run.to_str().ok()).map(str::to_owned);
        self.run.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&run);
        let message = match answer.status() {
            StatusCode::NO_CONTENT => None,
            _ => Some(received(answer).inspect_err(|_| self.be_patient(true))?),
        };
        self.be_patient(false);
        Ok(Received { message, run })
    }

    /// Stores a compressed log of a build.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn store_log(&self, attempt: &str, name: &str, path: &Path) -> Result<(), ClientError> {
        let url = self.at(&format!("/v1/logs/{attempt}/{name}"));
        let open = || -> io::Result<Body> {
            let file = fs_err::File::open(path)?;
            let size = file.metadata()?.len();
            Ok(Body::sized(file, size))
        };
        // Errors of the file show when it is read: first here.
        open()?;
        let request = || self.http.put(url.clone()).body(open().unwrap_or_else(|_| Body::from("")));
        self.in_session(&request).map(drop)
    }

    /// Stores a part of a log that is still being written, as text. A part that is repeated changes nothing. Returns false
    /// if a part before it is missing.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn store_part(
        &self,
        attempt: &str,
        name: &str,
        offset: u64,
        text: &[u8],
    ) -> Result<bool, ClientError> {
        let url = self.at(&format!("/v1/logs/{attempt}/{name}"));
        let part = Part { offset: Some(offset) };
        let request = || self.http.put(url.clone()).timeout(SILENT_MAX).query(&part).body(text.to_vec());
        match self.in_session(&request) {
            Ok(_) => Ok(true),
            Err(ClientError::Refused(reason)) if reason == PART_MISSING => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether another server may have the run.
    fn has_several(&self) -> bool {
        self.places().all().len() > 1
    }

    /// The longest time for a small request.
    fn silent_max(&self) -> Duration {
        match self.has_several() {
            true => {
                let further = Duration::from_secs(self.patience_seconds.load(Ordering::Relaxed));
                (SILENT_MAX_OF_SEVERAL + further).min(SILENT_MAX)
            }
            false => SILENT_MAX,
        }
    }

    /// Waits longer from now on, or not as long: a large message over a slow connection arrives in the end.
    fn be_patient(&self, is_failed: bool) {
        let adapted = |seconds: u64| match is_failed {
            true => (seconds * 2 + SILENT_MAX_OF_SEVERAL.as_secs() / 2).min(SILENT_MAX.as_secs()),
            false => seconds / 2,
        };
        // Two threads may do so at once, which changes little.
        let seconds = self.patience_seconds.load(Ordering::Relaxed);
        self.patience_seconds.store(adapted(seconds), Ordering::Relaxed);
    }

    fn at(&self, path: &str) -> Url {
        let mut url = self.places().current().clone();
        url.set_path(path);
        url
    }

    /// Sends a request in a session, and returns the answer unless it is a refusal.
    fn in_session(&self, request: &dyn Fn() -> RequestBuilder) -> Result<Response, ClientError> {
        judged(self.answer(request, sent)?)
    }

    /// Refuses an answer of a leader that another one has replaced.
    fn current(&self, answer: Response) -> Result<Response, ClientError> {
        let named = answer.headers().get(EPOCH_HEADER).and_then(|epoch| epoch.to_str().ok());
        let named = named.and_then(|epoch| epoch.rsplit_once('.'));
        let Some((farm, found)) = named.and_then(|(farm, number)| Some((farm, number.parse::<u64>().ok()?)))
        else {
            return Ok(answer);
        };
        let mut latest = self.epoch.lock().unwrap_or_else(PoisonError::into_inner);
        match &*latest {
            Some((known_farm, known)) if known_farm == farm && found < *known => {
                return Err(ClientError::Older { found, known: *known });
            }
            Some((known_farm, known)) if known_farm == farm && found == *known => {}
            _ => *latest = Some((farm.to_owned(), found)),
        }
        Ok(answer)
    }

    /// Sends a request by `send` in a session; in a new one if the last is over.
    fn answer(&self, request: &dyn Fn() -> RequestBuilder, send: Sending) -> Result<Response, ClientError> {
        if self.is_closed() {
            return Err(ClientError::Refused("the connection was closed here".to_owned()));
        }
        let known = self.session();
        if let Some(session) = &known {
            let answer = self.current(send(&|| request().bearer_auth(&session.id))?)?;
            if answer.status() != StatusCode::UNAUTHORIZED {
                return Ok(answer);
            }
        }
        let session = self.begin(known)?;
        self.current(send(&|| request().bearer_auth(&session.id))?)
    }

    /// The session, if one has begun.
    fn session(&self) -> Option<Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Begins a session in place of one that is over. Threads that need one at the same time share it: each would end
    /// that of the others.
    fn begin(&self, over: Option<Session>) -> Result<Session, ClientError> {
        let mut current = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = current.as_ref().filter(|session| Some(*session) != over.as_ref()) {
            return Ok(session.clone());
        }
        let challenge: Challenge = self.post("/v1/challenge", &())?;
        let proof = self.key.prove(self.door, &challenge.challenge);
        let worker = self.worker.clone();
        let about = About { clock_seconds: self.clock.map(|clock| clock()), ..self.about.clone() };
        let proof = Proof { worker, challenge: challenge.challenge, proof, about };
        let began: Began = self.post("/v1/session", &proof)?;
        self.places().learn(&began.addresses);
        self.site.learn(began.mirror.as_deref());
        let takes_zstd = began.encodings.iter().any(|encoding| encoding == ZSTD);
        Ok(current.insert(Session { id: began.session, takes_zstd }).clone())
    }

    fn post<A: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<A, ClientError> {
        // Not repeated here: a challenge is answered once.
        let answer =
            self.http.post(self.at(path)).timeout(self.silent_max()).json(body).send().map_err(broken)?;
        judged(answer)?.json().map_err(broken)
    }
}

/// Connections to a server with this pin, whose requests all have these headers.
fn http(server: Pin, key: &WorkerKey, headers: HeaderMap) -> Result<reqwest::blocking::Client, ClientError> {
    let failed = |error: &dyn std::fmt::Display| ClientError::Failed(error.to_string());
    let tls = identity::client(server, Some(key)).map_err(|error| failed(&error))?;
    let client = reqwest::blocking::Client::builder()
        .use_preconfigured_tls(tls)
        .default_headers(headers)
        .connect_timeout(CONNECT_MAX)
        // Transfers take as long as they need.
        .timeout(None)
        .tcp_keepalive(SILENT_MAX)
        .redirect(Policy::none())
        .user_agent(concat!("kilnyard/", env!("CARGO_PKG_VERSION")))
        .build();
    client.map_err(|error| failed(&error))
}

/// The files of a door, for reading.
impl Artifacts for Client {
    fn contains(&self, _: &Sha256Hex) -> Result<bool, ArtifactError> {
        // The door has what it assigns; reading shows if it does not.
        Ok(true)
    }

    fn open(&self, sha256: &Sha256Hex) -> Result<Box<dyn Read + Send + '_>, ArtifactError> {
        let failed = |error| ArtifactError::io(format!("fetch {sha256}"), error);
        let content = self.content(sha256).map_err(|error| failed(io::Error::other(error)))?;
        let is_compressed = content.encoding().is_some_and(|encoding| encoding == ZSTD);
        let content = Named { from: content, name: |error| ClientError::Connection(error.to_string()) };
        match is_compressed {
            true => {
                let from = zstd::Decoder::new(content).map_err(failed)?;
                Ok(Box::new(Named { from, name: |error| ClientError::Damaged(error.to_string()) }))
            }
            false => Ok(Box::new(content)),
        }
    }

    fn insert(&self, _: &mut dyn Read, _: Storage) -> Result<(Sha256Hex, u64), ArtifactError> {
        Err(ArtifactError::io("store an artifact without its build", io::ErrorKind::Unsupported.into()))
    }
}

/// Reads content, and names its errors, unless they have a name already.
struct Named<R> {
    from: R,
    name: fn(&io::Error) -> ClientError,
}

impl<R: Read> Read for Named<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.from.read(bytes).map_err(|error| {
            let has_name =
                error.kind() == io::ErrorKind::Interrupted || ClientError::behind(&error).is_some();
            if has_name { error } else { io::Error::other((self.name)(&error)) }
        })
    }
}

/// Sends a request in a session; again if its connection was an earlier one that the door has closed meanwhile. Every such
/// request may be repeated.
fn sent(request: &dyn Fn() -> RequestBuilder) -> Result<Response, ClientError> {
    match request().send() {
        Err(error) if error.is_request() && !error.is_timeout() && !error.is_connect() => {
            request().send().map_err(broken)
        }
        sent => sent.map_err(broken),
    }
}

/// The message in an answer.
fn received(answer: Response) -> Result<Vec<u8>, ClientError> {
    let is_packed = answer.headers().get(CONTENT_ENCODING).is_some_and(|encoding| encoding == ZSTD);
    let bytes = answer.bytes().map_err(broken)?;
    match is_packed {
        true => encoding::unpacked(&bytes, MESSAGE_BYTES_MAX)
            .map_err(|error| ClientError::Failed(error.to_string())),
        false => Ok(bytes.to_vec()),
    }
}

/// An answer, unless it is a refusal.
fn judged(answer: Response) -> Result<Response, ClientError> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let refused = answer.json::<Refused>().unwrap_or_else(|_| Refused::because(status.to_string()));
    if status == StatusCode::MISDIRECTED_REQUEST {
        return Err(ClientError::Elsewhere { reason: refused.error, leader: refused.leader });
    }
    let said = refused.error;
    let passing = [
        // A session that is over is replaced at the next try.
        StatusCode::UNAUTHORIZED,
        // The answers of busy proxies.
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::TOO_EARLY,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    Err(match status.is_server_error() || passing.contains(&status) {
        true => ClientError::Failed(said),
        false => ClientError::Refused(said),
    })
}

/// The error of a connection. The first cause says the most.
fn broken(error: reqwest::Error) -> ClientError {
    let mut text = error.to_string();
    let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(&error);
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    match text.contains("ApplicationVerificationFailure") {
        true => ClientError::OtherDoor,
        // rustls ends a message with the address of its manual.
        false => ClientError::Connection(text.split(": https://").next().unwrap_or_default().to_owned()),
    }
}
