//! One request and its response, on a separate thread that only reads the socket.
//!
//! The caller's thread receives the events and never blocks for more than a moment, so it can check the clock and the
//! cancel flag whatever the server does. When it drops the exchange, the socket is shut down. The thread then ends at
//! once, or, while it is still connecting, after the connection timeout.

use std::io::{self, Read};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use ureq::http::HeaderMap;

use crate::answer::Head;
use crate::attempts::{POLL, Stop, check};
use crate::error::{AttemptError, without_password};
use crate::limits::Limits;
use crate::pace::Pace;
use crate::sha256::CHUNK_BYTES;

/// Maximum number of chunks that wait to be written. If the disk is slower than the network, the transfer slows down.
const CHUNKS_WAITING_MAX: usize = 16;

/// The largest response head; a mirror needs a few hundred bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;

const USER_AGENT: &str = concat!("kilnyard/", env!("CARGO_PKG_VERSION"));

enum Event {
    Head(Head),
    Chunk(Vec<u8>),
    /// The body is complete, as far as HTTP can tell.
    End,
    /// The connection ended in the middle of the body.
    Cut,
    Failed(AttemptError),
}

/// An exchange whose response head has arrived.
pub(crate) struct Exchange<'a> {
    name: &'a str,
    cancel: &'a AtomicBool,
    events: Receiver<Event>,
    agent: Option<ureq::Agent>,
    began: Instant,
    pace: Pace,
    received_bytes: u64,
}

/// A piece of a body.
pub(crate) enum Piece {
    Chunk(Vec<u8>),
    End,
    Cut,
}

impl<'a> Exchange<'a> {
    /// Sends a request, and waits for the head of the response.
    pub(crate) fn open(
        name: &'a str,
        url: &str,
        headers: &[(&'static str, String)],
        limits: &Limits,
        proxy: Option<&ureq::Proxy>,
        cancel: &'a AtomicBool,
    ) -> Result<(Head, Exchange<'a>), Stop> {
        let agent = agent(limits, proxy);
        let (sender, events) = sync_channel(CHUNKS_WAITING_MAX);
        let request = Request {
            agent: agent.clone(),
            url: url.to_owned(),
            headers: headers.to_vec(),
            limits: limits.clone(),
        };
        std::thread::Builder::new()
            .name("fetch".to_owned())
            .spawn(move || request.run(&sender))
            .map_err(|error| failed(AttemptError::Transport { reason: error.to_string() }))?;

        let began = Instant::now();
        let mut exchange = Exchange {
            name,
            cancel,
            events,
            agent: Some(agent),
            began,
            pace: Pace::begin(limits, Duration::ZERO),
            received_bytes: 0,
        };
        let wait_max = limits.connect_max.saturating_add(limits.patience);
        loop {
            match exchange.next_event()? {
                Some(Event::Head(head)) => {
                    exchange.pace = Pace::begin(limits, began.elapsed());
                    return Ok((head, exchange));
                }
                Some(Event::Failed(error)) => return Err(failed(error)),
                Some(Event::Chunk(_) | Event::End | Event::Cut) => return Err(failed(ended())),
                None if began.elapsed() > wait_max => {
                    return Err(failed(AttemptError::NoAnswer { waited: wait_max }));
                }
                None => {}
            }
        }
    }

    /// Waits for the next piece of the body.
    pub(crate) fn next(&mut self) -> Result<Piece, Stop> {
        loop {
            let event = self.next_event()?;
            if let Some(Event::Chunk(chunk)) = &event {
                self.received_bytes += chunk.len() as u64;
            }
            match event {
                Some(Event::Head(_)) => return Err(failed(ended())),
                Some(Event::End) => return Ok(Piece::End),
                Some(Event::Cut) => return Ok(Piece::Cut),
                Some(Event::Failed(error)) => return Err(failed(error)),
                Some(Event::Chunk(_)) | None => {
                    if let Err(slow) = self.pace.judge(self.began.elapsed(), self.received_bytes) {
                        return Err(failed(AttemptError::too_slow(slow, self.received_bytes)));
                    }
                    if let Some(Event::Chunk(chunk)) = event {
                        return Ok(Piece::Chunk(chunk));
                    }
                }
            }
        }
    }

    /// The next event, or none if nothing arrives for a moment.
    fn next_event(&self) -> Result<Option<Event>, Stop> {
        check(self.name, self.cancel).map_err(Stop::Whole)?;
        match self.events.recv_timeout(POLL) {
            Ok(event) => Ok(Some(event)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(failed(ended())),
        }
    }
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.shutdown();
        }
    }
}

fn failed(error: AttemptError) -> Stop {
    Stop::Url { error, part_bytes: 0 }
}

fn ended() -> AttemptError {
    AttemptError::Transport { reason: "the exchange ended unexpectedly".to_owned() }
}

fn agent(limits: &Limits, proxy: Option<&ureq::Proxy>) -> ureq::Agent {
    ureq::Agent::config_builder()
        // Set explicitly, because the default takes the proxy from the environment.
        .proxy(proxy.cloned())
        .http_status_as_error(false)
        .max_redirects(limits.redirects_max)
        .user_agent(USER_AGENT)
        // A range of a compressed body is useless, and sizes must be those of the file.
        .accept_encoding("identity")
        .max_response_header_size(HEAD_BYTES_MAX)
        .timeout_resolve(Some(limits.connect_max))
        .timeout_connect(Some(limits.connect_max))
        .timeout_send_request(Some(limits.patience))
        .timeout_recv_response(Some(limits.patience))
        .build()
        .new_agent()
}

struct Request {
    agent: ureq::Agent,
    url: String,
    headers: Vec<(&'static str, String)>,
    limits: Limits,
}

impl Request {
    /// Runs on its own thread. A send fails once the receiver is gone.
    fn run(self, events: &SyncSender<Event>) {
        let mut request = self.agent.get(&self.url);
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let response = match request.call() {
            Ok(response) => response,
            Err(error) => {
                let _ = events.send(Event::Failed(transport(error, &self.limits)));
                return;
            }
        };
        let (parts, body) = response.into_parts();
        let head = Head {
            status: parts.status.as_u16(),
            content_length: body.content_length(),
            content_range: header(&parts.headers, "content-range"),
            etag: header(&parts.headers, "etag"),
            last_modified: header(&parts.headers, "last-modified"),
        };
        if events.send(Event::Head(head)).is_err() {
            return;
        }
        let mut reader = body.into_reader();
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let event = match reader.read(&mut buffer) {
                Ok(0) => Event::End,
                Ok(length) => Event::Chunk(buffer[..length].to_vec()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if is_cut(error.kind()) => Event::Cut,
                Err(error) => Event::Failed(AttemptError::Transport { reason: error.to_string() }),
            };
            let last = !matches!(event, Event::Chunk(_));
            if events.send(event).is_err() || last {
                return;
            }
        }
    }
}

fn is_cut(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted
    )
}

fn transport(error: ureq::Error, limits: &Limits) -> AttemptError {
    match error {
        ureq::Error::Timeout(ureq::Timeout::Resolve | ureq::Timeout::Connect) => AttemptError::Transport {
            reason: format!("no connection within {} seconds", limits.connect_max.as_secs_f64()),
        },
        ureq::Error::Timeout(_) => AttemptError::NoAnswer { waited: limits.patience },
        ureq::Error::TooManyRedirects => {
            AttemptError::BadUrl { reason: format!("it redirects more than {} times", limits.redirects_max) }
        }
        ureq::Error::BadUri(reason) => AttemptError::BadUrl { reason: without_password(&reason) },
        ureq::Error::Http(error) => AttemptError::BadUrl { reason: without_password(&error.to_string()) },
        error => AttemptError::Transport { reason: without_password(&error.to_string()) },
    }
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}
