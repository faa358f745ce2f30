//! The server: connections, and what each request leads to.

use crate::cache::{Cache, Found};
use crate::config::Config;
use crate::fetch;
use crate::growing::End;
use crate::respond::{self, Answer, Asked, say};
use crate::route::{self, Refused, Rule, Wanted};
use crate::stalls::Stalls;
use crate::upload;
use hyper::body::Incoming;
use hyper::header::{ALLOW, HeaderValue, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use kilnyard_sign::Keyring;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
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

/// Serves a mirror until `is_ended`. `listens` gets the address, and the files that are there.
///
/// # Errors
/// See [`Server::open`]; or the socket is gone.
pub fn serve(
    config: Config,
    base: &Path,
    listens: impl FnOnce(SocketAddr, &Cache),
    is_ended: impl Fn() -> bool + Send + 'static,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let (server, stop) = Server::open(config, base).await?;
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

#[derive(Debug)]
struct Shared {
    config: Config,
    cache: Arc<Cache>,
    client: reqwest::Client,
    keyrings: BTreeMap<String, Keyring>,
    tokens: Vec<String>,
}

impl Server {
    /// Opens the folder, and listens. Paths of the configuration are relative to `base`.
    ///
    /// # Errors
    /// The folder, a keyring or the tokens cannot be read, or the address is in use.
    pub async fn open(config: Config, base: &Path) -> io::Result<(Server, Stop)> {
        let cache = Arc::new(Cache::open(&base.join(&config.folder), config.keep_bytes)?);
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
        let client = fetch::client(&config).map_err(io::Error::other)?;
        let listener = TcpListener::bind(config.listen).await?;
        let (sender, stop) = watch::channel(false);
        let shared = Arc::new(Shared { config, cache, client, keyrings, tokens });
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

    /// Answers until it is stopped.
    ///
    /// # Errors
    /// The socket is gone.
    pub async fn run(mut self) -> io::Result<()> {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
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

impl Shared {
    async fn answer(self: Arc<Shared>, request: Request<Incoming>) -> Answer {
        let uri = request.uri();
        let wanted = match uri.scheme() {
            Some(_) => route::of_address(&self.config, &uri.to_string()),
            None => route::of_path(&self.config, uri.path()),
        };
        let wanted = match wanted {
            Ok(wanted) => wanted,
            Err(Refused::NoSuchPath) => return say(StatusCode::NOT_FOUND, "the mirror has no such path"),
            Err(Refused::BadPath) => return say(StatusCode::BAD_REQUEST, "the path is not one of a file"),
            Err(Refused::NoSuchHost) => {
                return say(StatusCode::FORBIDDEN, "the mirror is a proxy for its own archives alone");
            }
        };
        match *request.method() {
            Method::GET | Method::HEAD => {
                let asked = Asked { method: request.method().clone(), headers: request.headers().clone() };
                self.give(&asked, wanted).await
            }
            Method::PUT if wanted.key.starts_with("distfiles/") && !self.tokens.is_empty() => {
                match upload::may_upload(request.headers(), &self.tokens) {
                    // In a task of its own, which cleans up if the client is gone.
                    true => {
                        let cache = self.cache.clone();
                        let taken =
                            tokio::spawn(async move { upload::take(&cache, &wanted.key, request).await });
                        let failed = |_| say(StatusCode::INTERNAL_SERVER_ERROR, "the upload failed");
                        taken.await.unwrap_or_else(failed)
                    }
                    false => {
                        let mut answer = say(StatusCode::UNAUTHORIZED, "an upload needs a token");
                        let realm = HeaderValue::from_static("Basic realm=\"kilnyard mirror\"");
                        answer.headers_mut().insert(WWW_AUTHENTICATE, realm);
                        answer
                    }
                }
            }
            _ => {
                let mut answer = say(StatusCode::METHOD_NOT_ALLOWED, "the mirror does not do that");
                answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
                answer
            }
        }
    }

    async fn give(self: Arc<Shared>, asked: &Asked, wanted: Wanted) -> Answer {
        let must_ask = wanted.rule == Rule::Asked && !self.cache.was_asked(&wanted.key, ASKED_EVERY_SECONDS);
        let is_verified_last = wanted.sha256.is_some();
        let follower = match self.cache.find(&wanted.key, must_ask, is_verified_last) {
            Err(error) => {
                return say(
                    StatusCode::INSUFFICIENT_STORAGE,
                    &format!("the mirror cannot keep files: {error}"),
                );
            }
            Ok(Found::Whole(whole)) => return respond::whole(asked, whole),
            Ok(Found::Growing(follower)) => follower,
            Ok(Found::Absent(part, follower)) => {
                let (shared, wanted) = (self.clone(), wanted.clone());
                // It goes to its end whether the client that asked first stays or not.
                tokio::spawn(async move {
                    fetch::perform(&shared.cache, &shared.client, &shared.keyrings, &wanted, part).await;
                });
                follower
            }
        };
        let end = match respond::growing(asked, follower).await {
            Ok(answer) => return answer,
            Err(end) => end,
        };
        match end {
            End::Absent => say(StatusCode::NOT_FOUND, "no origin has the file"),
            // What the mirror has is still right, or better than nothing.
            End::Whole | End::Unchanged | End::Failed(_) => match self.cache.whole(&wanted.key) {
                Some(whole) => respond::whole(asked, whole),
                None => {
                    let reason = if let End::Failed(reason) = end { reason } else { "it is gone".to_owned() };
                    say(StatusCode::BAD_GATEWAY, &reason)
                }
            },
        }
    }
}
