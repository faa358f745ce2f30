//! The server: connections, and what each request leads to.

use crate::cache::{Cache, Facts, Found};
use crate::checksums::Checksums;
use crate::config::Config;
use crate::fetch::{self, Origins};
use crate::growing::{End, Follower};
use crate::pins::Pins;
use crate::registry::{self, INDEX_BYTES_MAX, Replaced};
use crate::respond::{self, Answer, Asked, ONLY_HERE, say};
use crate::route::{self, Manifests, Refused, Rule, Wanted};
use crate::stalls::Stalls;
use crate::upload;
use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, ALLOW, HOST, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use kilnyard_artifacts::Depot;
use kilnyard_farm::ticket::TICKET_HEADER;
use kilnyard_sign::Keyring;
use serde_json::json;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

/// The most connections at once.
const CONNECTIONS_MAX: usize = 8192;
/// How long the headers of a request may take.
const HEADERS_MAX: Duration = Duration::from_secs(15);
/// How long a client may leave bytes unread.
const UNREAD_MAX: Duration = Duration::from_secs(120);
/// The most bytes of the headers of a request.
const HEADER_BYTES_MAX: usize = 32 << 10;
/// How often the end is checked for.
const STEP: Duration = Duration::from_millis(100);
/// How long transfers may take to end.
const GRACE: Duration = Duration::from_millis(500);
/// An index is asked for at its origin at most this often, in seconds.
const ASKED_EVERY_SECONDS: u64 = 10;
/// How many files are fetched at a time ahead of a run.
const FILLED_AT_ONCE: usize = 8;
/// How often the folder is read for what other processes did.
const UPDATED_EVERY: Duration = Duration::from_secs(600);
/// The largest list of pins, in bytes, and how long pins hold unless they are renewed, in seconds.
const PINS_BYTES_MAX: usize = 64 << 20;
const PINNED_SECONDS: u64 = 24 * 60 * 60;

/// A mirror that listens.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
    stop: watch::Receiver<bool>,
}

/// Ends a server.
#[derive(Clone, Debug)]
pub struct Stop(watch::Sender<bool>);

impl Stop {
    /// Ends it: it takes no more connections.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

/// Serves a mirror until `is_ended`, with the bucket behind its folder, if there is one. `listens` gets the address, and the
/// files that are there.
///
/// # Errors
/// See [`Server::open`]; or the socket is gone.
pub fn serve(
    config: Config,
    base: &Path,
    bucket: Option<Arc<dyn Depot>>,
    listens: impl FnOnce(SocketAddr, &Cache),
    is_ended: impl Fn() -> bool + Send + 'static,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let (server, stop) = Server::open(config, base, bucket).await?;
        listens(server.address()?, server.cache());
        tokio::spawn(async move {
            while !is_ended() {
                tokio::time::sleep(STEP).await;
            }
            stop.stop();
        });
        server.run().await
    });
    runtime.shutdown_timeout(GRACE);
    ended
}

/// Fetches the files at these paths to a mirror's folder, beside its server if that runs. `report` gets each with its size, or
/// why it is missing.
///
/// # Errors
/// See [`Server::open`].
pub fn fill(
    config: Config,
    base: &Path,
    bucket: Option<Arc<dyn Depot>>,
    paths: Vec<String>,
    report: impl Fn(&str, Result<u64, String>),
    is_ended: impl Fn() -> bool,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let filled = runtime.block_on(async {
        let (server, _stop) = Server::open(config, base, bucket).await?;
        server.fill(paths, report, is_ended).await;
        Ok(())
    });
    runtime.shutdown_timeout(GRACE);
    filled
}

#[derive(Debug)]
struct Shared {
    config: Config,
    cache: Arc<Cache>,
    origins: Origins,
    keyrings: BTreeMap<String, Keyring>,
    tokens: Vec<String>,
    checksums: Arc<Checksums>,
    manifests: Manifests,
}

impl Server {
    /// Opens the folder, reads keys, tokens and manifests, and listens. `base` is the folder of the configuration.
    ///
    /// # Errors
    /// One of these cannot be used.
    pub async fn open(
        config: Config,
        base: &Path,
        bucket: Option<Arc<dyn Depot>>,
    ) -> io::Result<(Server, Stop)> {
        let cache = Cache::open(&base.join(&config.folder), config.keep_bytes)?.with_bucket(bucket);
        let mut keyrings = BTreeMap::new();
        for (name, archive) in &config.archive {
            if let Some(keyring) = &archive.keyring {
                let read = Keyring::read(&base.join(keyring)).map_err(io::Error::other)?;
                keyrings.insert(name.clone(), read);
            }
        }
        let tokens = match config.distfiles.as_ref().and_then(|distfiles| distfiles.tokens.as_ref()) {
            Some(path) => fs_err::read_to_string(base.join(path))?,
            None => String::new(),
        };
        let tokens =
            tokens.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
        let checksums = Arc::new(config.checksums(base));
        let manifests = config.manifests(base)?;
        let origins = Origins::new(&config).map_err(io::Error::other)?;
        let listener = TcpListener::bind(config.listen).await?;
        let (sender, stop) = watch::channel(false);
        let cache = Arc::new(cache);
        if cache.bucket().is_some() {
            let cache = cache.clone();
            tokio::task::spawn_blocking(move || store_all(&cache));
        }
        let shared = Arc::new(Shared { config, cache, origins, keyrings, tokens, checksums, manifests });
        Ok((Server { listener, shared, stop }, Stop(sender)))
    }

    /// The address that it listens at.
    ///
    /// # Errors
    /// The socket is gone.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Its files.
    pub fn cache(&self) -> &Cache {
        &self.shared.cache
    }

    /// Fetches the files at these paths, unless they are there, some at a time. `report` gets each with its size, or why it is
    /// missing.
    pub async fn fill(
        &self,
        paths: Vec<String>,
        report: impl Fn(&str, Result<u64, String>),
        is_ended: impl Fn() -> bool,
    ) {
        let fetch = |path: String| {
            let shared = self.shared.clone();
            async move {
                let filled = shared.fill(&path).await;
                (path, filled)
            }
        };
        let mut filled = stream::iter(paths).map(fetch).buffer_unordered(FILLED_AT_ONCE);
        while let Some((path, filled)) = filled.next().await {
            report(&path, filled);
            if is_ended() {
                return;
            }
        }
    }

    /// Answers until it is stopped.
    ///
    /// # Errors
    /// The socket is gone.
    pub async fn run(mut self) -> io::Result<()> {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let cache = self.shared.cache.clone();
        let updates = tokio::spawn(async move {
            loop {
                tokio::time::sleep(UPDATED_EVERY).await;
                let cache = cache.clone();
                // A folder that cannot be read now is read later.
                let _ = tokio::task::spawn_blocking(move || cache.update()).await;
            }
        });
        let _ended = Ended(updates);
        loop {
            let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = self.stop.wait_for(|stopped| *stopped) => return Ok(()),
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                // Too many files are open, for a moment.
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let _ = stream.set_nodelay(true);
            let shared = self.shared.clone();
            tokio::spawn(async move {
                let _place = place;
                let service = service_fn(move |request| {
                    let shared = shared.clone();
                    async move { Ok::<_, Infallible>(shared.answer(request).await) }
                });
                let mut builder = http1::Builder::new();
                builder
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEADERS_MAX)
                    .max_buf_size(HEADER_BYTES_MAX);
                // An error is the end of a connection, and nothing else.
                let _ =
                    builder.serve_connection(TokioIo::new(Stalls::new(stream, UNREAD_MAX)), service).await;
            });
        }
    }
}

/// Ends a task when this is dropped.
struct Ended(tokio::task::JoinHandle<()>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Stores what the bucket lacks: an earlier process ended, or could not reach it.
fn store_all(cache: &Cache) {
    for listed in cache.list().into_iter().flatten().filter(|listed| listed.is_here) {
        if cache.store(&listed.key).is_err() {
            return;
        }
    }
}

impl Shared {
    /// Makes sure that a file is there. Returns its size.
    async fn fill(self: &Arc<Shared>, path: &str) -> Result<u64, String> {
        let wanted =
            route::of_path(&self.config, &self.manifests, &format!("/{}", path.trim_start_matches('/')), "");
        let mut wanted = wanted.map_err(|_| "the mirror has no such path".to_owned())?;
        self.expect(&mut wanted).await.map_err(|error| error.to_string())?;
        let size = || self.cache.facts(&wanted.key).map(|facts| facts.size);
        let end = match self.find(&wanted).map_err(|error| error.to_string())? {
            Found::Whole(whole) => return Ok(whole.facts.size),
            Found::Growing(follower) | Found::Absent(_, follower) => end_of(follower).await,
        };
        match end {
            End::Whole | End::Unchanged => size().ok_or_else(|| "it is gone".to_owned()),
            End::Absent => Err("no origin has it".to_owned()),
            End::Failed(reason) => Err(reason),
        }
    }

    /// Finds what a distfile must be. Returns false if lists are there, and none names it.
    async fn expect(&self, wanted: &mut Wanted) -> io::Result<bool> {
        let Some(name) = wanted.distfile().map(str::to_owned).filter(|_| !self.checksums.is_empty()) else {
            return Ok(true);
        };
        let checksums = self.checksums.clone();
        let found = tokio::task::spawn_blocking(move || checksums.find(&name)).await;
        match found.map_err(io::Error::other)?? {
            Some(distfile) => {
                wanted.expected = distfile.expected;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    async fn answer(self: Arc<Shared>, request: Request<Incoming>) -> Answer {
        let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        let accept = header(ACCEPT).unwrap_or_default();
        let host = header(HOST).filter(|host| is_host(host)).unwrap_or("mirror").to_owned();
        let uri = request.uri();
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        if uri.scheme().is_none() && uri.path() == "/" && is_read {
            return respond::json(self.description());
        }
        if let Some(name) = uri.path().strip_prefix("/pins/").filter(|_| uri.scheme().is_none()) {
            let name = name.to_owned();
            return self.pin(&name, request).await;
        }
        let made = uri.path()[1.min(uri.path().len())..]
            .split_once('/')
            .and_then(|(name, rest)| registry::made(self.config.registry.get(name)?, name, rest, &host));
        if let Some(text) = made.filter(|_| is_read) {
            return respond::json(text);
        }
        let wanted = match uri.scheme() {
            Some(_) => route::of_address(&self.config, &uri.to_string()),
            None => route::of_path(&self.config, &self.manifests, uri.path(), accept),
        };
        let mut wanted = match wanted {
            Ok(wanted) => wanted,
            Err(Refused::NoSuchPath) => return say(StatusCode::NOT_FOUND, "the mirror has no such path"),
            Err(Refused::BadPath) => return say(StatusCode::BAD_REQUEST, "the path is not one of a file"),
            Err(Refused::NoSuchHost) => {
                return say(StatusCode::FORBIDDEN, "the mirror is a proxy for its own archives alone");
            }
        };
        if let Some(sha256) = wanted.blob().filter(|_| !self.origins.farms.is_empty()) {
            let text = header(HeaderName::from_static(TICKET_HEADER)).unwrap_or_default();
            wanted.ticket = self.origins.farms.admit(text, &sha256, crate::cache::now());
            if wanted.ticket.is_none() {
                return say(StatusCode::FORBIDDEN, "no ticket of a farm is for this file now");
            }
        }
        let is_listed = match self.expect(&mut wanted).await {
            Ok(is_listed) => is_listed,
            Err(error) => {
                let reason = format!("the mirror cannot read its checksums: {error}");
                return say(StatusCode::INTERNAL_SERVER_ERROR, &reason);
            }
        };
        match *request.method() {
            Method::GET | Method::HEAD => {
                let asked = Asked { method: request.method().clone(), headers: request.headers().clone() };
                match wanted.replaced.clone() {
                    None => self.give(&asked, wanted).await,
                    Some(replaced) => self.give_replaced(&asked, wanted, &replaced, &host).await,
                }
            }
            Method::PUT if wanted.distfile().is_some() && !self.tokens.is_empty() => {
                if !upload::may_upload(request.headers(), &self.tokens) {
                    return needs_token();
                }
                if !is_listed {
                    return say(StatusCode::FORBIDDEN, "no list of checksums has a file of this name");
                }
                // In a task of its own, which cleans up if the client is gone.
                let cache = self.cache.clone();
                let taken = tokio::spawn(async move { upload::take(&cache, &wanted, request).await });
                let failed = |_| say(StatusCode::INTERNAL_SERVER_ERROR, "the upload failed");
                taken.await.unwrap_or_else(failed)
            }
            _ => {
                let mut answer = say(StatusCode::METHOD_NOT_ALLOWED, "the mirror does not do that");
                answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
                answer
            }
        }
    }

    /// What it serves, for the yards that use it.
    fn description(&self) -> String {
        let (files, bytes) = self.cache.size();
        let archives: BTreeMap<&String, Vec<String>> = self
            .config
            .archive
            .iter()
            .map(|(name, archive)| (name, archive.urls.iter().map(|url| without_user(url)).collect()))
            .collect();
        json!({
            "kilnyard-mirror": 1,
            "archives": archives,
            "distfiles": self.config.distfiles.is_some(),
            "farms": self.origins.farms.names(),
            "registries": self.config.registry.keys().collect::<Vec<_>>(),
            "files": files,
            "bytes": bytes,
        })
        .to_string()
    }

    /// Keeps files for a run (`PUT`, a path a line), or ends that (`DELETE`).
    async fn pin(self: Arc<Shared>, name: &str, request: Request<Incoming>) -> Answer {
        if self.tokens.is_empty() || !upload::may_upload(request.headers(), &self.tokens) {
            return needs_token();
        }
        if !Pins::is_name(name) {
            return say(
                StatusCode::BAD_REQUEST,
                "letters, digits, dashes and underscores name a list of pins",
            );
        }
        let failed = |error: io::Error| say(StatusCode::INSUFFICIENT_STORAGE, &error.to_string());
        match *request.method() {
            Method::DELETE => match self.cache.pins().end(name) {
                Ok(()) => say(StatusCode::OK, "ended"),
                Err(error) => failed(error),
            },
            Method::PUT => {
                let body = tokio::time::timeout(
                    UNREAD_MAX,
                    Limited::new(request.into_body(), PINS_BYTES_MAX).collect(),
                );
                let Ok(Ok(body)) = body.await else {
                    return say(StatusCode::PAYLOAD_TOO_LARGE, "the list is too large, or did not arrive");
                };
                let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
                let paths = text.lines().map(|line| line.trim().trim_start_matches('/'));
                let keys: Vec<String> = paths.filter(|path| !path.is_empty()).map(str::to_owned).collect();
                if let Some(other) = keys.iter().find(|key| !route::is_key(key)) {
                    return say(StatusCode::BAD_REQUEST, &format!("{other:?} is not the path of a file"));
                }
                let until = crate::cache::now() + PINNED_SECONDS;
                match self.cache.pins().set(name, keys, until) {
                    Ok(()) => say(StatusCode::OK, "kept for a day, unless they are renewed"),
                    Err(error) => failed(error),
                }
            }
            _ => say(StatusCode::METHOD_NOT_ALLOWED, "PUT a list of paths, or DELETE"),
        }
    }

    /// Finds a file, and begins to fetch it if nothing else does.
    fn find(self: &Arc<Shared>, wanted: &Wanted) -> io::Result<Found> {
        let is_old = wanted.rule == Rule::Asked && !self.cache.was_asked(&wanted.key, ASKED_EVERY_SECONDS);
        let is_other = || self.cache.facts(&wanted.key).is_some_and(|facts| !facts.may_be(&wanted.expected));
        let must_ask = is_old || !wanted.expected.is_empty() && is_other();
        match self.cache.find(&wanted.key, must_ask, !wanted.expected.is_empty())? {
            Found::Absent(part, follower) => {
                let (shared, mut wanted) = (self.clone(), wanted.clone());
                if wanted.rule == Rule::Fixed {
                    wanted.peers = route::addresses(&self.config.peers, &wanted.key);
                }
                // It goes to its end whether the client that asked first stays or not.
                tokio::spawn(async move {
                    fetch::perform(&shared.cache, &shared.origins, &shared.keyrings, &wanted, part).await;
                });
                Ok(Found::Growing(follower))
            }
            found => Ok(found),
        }
    }

    async fn give(self: Arc<Shared>, asked: &Asked, wanted: Wanted) -> Answer {
        let found = match asked.headers.contains_key(ONLY_HERE) {
            true => match self.cache.find_here(&wanted.key) {
                Some(found) => Ok(found),
                None => return say(StatusCode::NOT_FOUND, "this mirror does not have it"),
            },
            false => self.find(&wanted),
        };
        let follower = match found {
            Err(error) => return full(&error),
            Ok(Found::Whole(whole)) => return respond::whole(asked, whole),
            Ok(Found::Growing(follower) | Found::Absent(_, follower)) => follower,
        };
        match respond::growing(asked, follower).await {
            Ok(answer) => answer,
            Err(end) => self.ended(end, &wanted, |whole| respond::whole(asked, whole)),
        }
    }

    /// Gives an index whose addresses are replaced: all of it has to be there first.
    async fn give_replaced(
        self: Arc<Shared>,
        asked: &Asked,
        wanted: Wanted,
        replaced: &Replaced,
        host: &str,
    ) -> Answer {
        let give = |(facts, text): (Facts, String)| {
            let form = wanted.accept.and_then(|accept| accept.split(',').next()).map(str::to_owned);
            let facts = Facts { content_type: facts.content_type.clone().or(form), ..facts };
            respond::replaced(asked, &facts, replaced.apply(&text, host))
        };
        let end = match self.find(&wanted) {
            Err(error) => return full(&error),
            Ok(Found::Whole(whole)) => {
                return index_of(whole).map_or_else(|error| full(&error), give);
            }
            Ok(Found::Growing(follower) | Found::Absent(_, follower)) => end_of(follower).await,
        };
        self.ended(end, &wanted, |whole| index_of(whole).map_or_else(|error| full(&error), give))
    }

    /// Answers when the way of a file has ended, with what is there.
    fn ended(&self, end: End, wanted: &Wanted, give: impl FnOnce(crate::cache::Whole) -> Answer) -> Answer {
        match end {
            End::Absent => say(StatusCode::NOT_FOUND, "no origin has the file"),
            // What the mirror has is still right, or better than nothing.
            End::Whole | End::Unchanged | End::Failed(_) => {
                let whole = self.cache.whole(&wanted.key);
                match whole.filter(|whole| whole.facts.may_be(&wanted.expected)) {
                    Some(whole) => give(whole),
                    None => {
                        let reason =
                            if let End::Failed(reason) = end { reason } else { "it is gone".to_owned() };
                        say(StatusCode::BAD_GATEWAY, &reason)
                    }
                }
            }
        }
    }
}

fn full(error: &io::Error) -> Answer {
    say(StatusCode::INSUFFICIENT_STORAGE, &format!("the mirror cannot keep files: {error}"))
}

fn needs_token() -> Answer {
    let mut answer = say(StatusCode::UNAUTHORIZED, "an upload needs a token");
    let realm = HeaderValue::from_static("Basic realm=\"kilnyard mirror\"");
    answer.headers_mut().insert(WWW_AUTHENTICATE, realm);
    answer
}

/// Waits for the end of a file on its way.
async fn end_of(mut follower: Follower) -> End {
    follower.until(|_| false).await.end.unwrap_or(End::Failed("the mirror ends".to_owned()))
}

fn index_of(whole: crate::cache::Whole) -> io::Result<(Facts, String)> {
    let mut bytes = Vec::new();
    // At its beginning: the file is shared.
    let size = whole.facts.size.min(INDEX_BYTES_MAX);
    bytes.resize(usize::try_from(size).map_err(io::Error::other)?, 0);
    whole.file.read_exact_at(&mut bytes, 0)?;
    Ok(((*whole.facts).clone(), String::from_utf8_lossy(&bytes).into_owned()))
}

/// Whether a text names a host, and may be part of an address.
fn is_host(text: &str) -> bool {
    text.len() < 256 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte))
}

/// An address without a user and password.
fn without_user(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    format!("{scheme}://{}{path}", host.rsplit('@').next().unwrap_or(host))
}
