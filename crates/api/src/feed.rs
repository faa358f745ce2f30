//! The feed of events (`GET /api/v1/events`): as server-sent events, or as lines of JSON by long poll.
//!
//! ```text
//! store --one thread for each yard--> ring of the latest events --each reader at its own pace--> connection
//!   '------ events that the ring does not have any more: asked of the site by the reader ------------'
//! ```
//!
//! A reader asks for the events after a number, and so misses none and gets none twice, over restarts of the server too. A
//! slow reader delays no other: it takes what is next when its connection has room, from the store if the ring has moved
//! on. An event is encoded once for all readers.

use crate::Person;
use crate::queries::{At, EventsOf, FeedEvent, listed};
use crate::requests::{Refusal, Site, Trouble, allow, may_still_read};
use crate::server::Shared;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use kilnyard_model::scope::Scope;
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The events that a ring keeps. At 5 a second, these are a quarter of an hour.
const RING_MAX: usize = 4096;
/// The most events of one answer.
const COUNT_MAX: usize = 10_000;
/// The most events that are written to a connection at once.
const CHUNK_MAX: usize = 256;
/// The longest that a list waits for events.
const WAIT_SECONDS_MAX: f64 = 60.0;
/// The header of a list with the number of the last event that was read for it: what `after` of the next request may be, also
/// if a filter left nothing.
const LAST_EVENT: &str = "kilnyard-last-event";
/// How long the thread of a yard waits for events, before it checks whether anyone reads.
const STEP: Duration = Duration::from_millis(250);
/// How often samples are sent.
const LIVE_STEP: Duration = Duration::from_secs(2);
/// How often a reader without events gets a comment, so that proxies keep its connection, and is asked who it is again.
const IDLE: Duration = Duration::from_secs(15);
/// How long a thread that cannot read its store pauses.
const PAUSE: Duration = Duration::from_secs(1);
/// How soon a client connects again, in milliseconds.
const RETRY_MILLISECONDS: u32 = 1000;

/// Reads the events of one yard, over a connection of its own.
pub trait Follow: Send {
    /// The events after a number; after this time at most, there may be none.
    ///
    /// # Errors
    /// The store cannot be read now.
    fn next(&mut self, after: u64, at_most: Duration) -> Result<Vec<FeedEvent>, Trouble>;
    /// What only the process of the run knows now, as JSON.
    fn live(&mut self) -> Bytes;
}

/// An event, with the filter's part of it and the bytes that are sent.
#[derive(Debug)]
struct Frame {
    event: FeedEvent,
    /// The event as a server-sent event.
    sent: Bytes,
}

impl Frame {
    fn new(event: FeedEvent) -> Frame {
        let mut sent = Vec::with_capacity(event.json.len() + 64);
        // JSON in one line, and a type without line breaks: nothing in them can begin another event.
        sent.extend(format!("id: {}\nevent: {}\ndata: ", event.seq, event.kind).bytes());
        sent.extend_from_slice(&event.json);
        sent.extend(b"\n\n");
        Frame { event, sent: sent.into() }
    }
}

/// The latest events of a yard.
#[derive(Debug)]
struct Ring {
    /// The ring has all events after this number.
    floor: u64,
    frames: VecDeque<Arc<Frame>>,
}

/// What the readers of a yard share.
#[derive(Debug)]
struct Hub {
    ring: RwLock<Ring>,
    /// The number of the last event in the ring.
    last: watch::Sender<u64>,
    /// The latest samples.
    live: watch::Sender<Bytes>,
}

/// The hubs of all yards that are read.
#[derive(Debug, Default)]
pub struct Feed {
    hubs: Mutex<HashMap<At, Weak<Hub>>>,
}

impl Feed {
    /// The hub of a yard, with its thread. Without readers it ends.
    fn hub(&self, site: &dyn Site, at: &At) -> Result<Arc<Hub>, Trouble> {
        let hubs = || self.hubs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hub) = hubs().get(at).and_then(Weak::upgrade) {
            return Ok(hub);
        }
        // A yard that is slow to answer holds up no other.
        let floor = site.last_event(at)?;
        let follow = site.follow(at)?;
        let mut hubs = hubs();
        hubs.retain(|_, hub| hub.strong_count() > 0);
        if let Some(hub) = hubs.get(at).and_then(Weak::upgrade) {
            return Ok(hub);
        }
        let ring = RwLock::new(Ring { floor, frames: VecDeque::new() });
        let hub = Arc::new(Hub { ring, last: watch::Sender::new(floor), live: watch::Sender::default() });
        hubs.insert(at.clone(), Arc::downgrade(&hub));
        let weak = Arc::downgrade(&hub);
        std::thread::spawn(move || fill(&weak, follow, floor));
        Ok(hub)
    }
}

/// Fills a ring as long as it has readers.
fn fill(hub: &Weak<Hub>, mut follow: Box<dyn Follow>, mut last: u64) {
    let mut sampled = std::time::Instant::now();
    loop {
        let read = follow.next(last, STEP);
        let Some(hub) = hub.upgrade() else { return };
        match read {
            Err(_) => {
                drop(hub);
                std::thread::sleep(PAUSE);
                continue;
            }
            Ok(events) if events.is_empty() => {}
            Ok(events) => {
                let frames: Vec<Arc<Frame>> =
                    events.into_iter().map(|event| Arc::new(Frame::new(event))).collect();
                last = frames.last().map_or(last, |frame| frame.event.seq);
                let mut ring = hub.ring.write().unwrap_or_else(PoisonError::into_inner);
                ring.frames.extend(frames);
                while ring.frames.len() > RING_MAX {
                    ring.floor = ring.frames.pop_front().map_or(ring.floor, |frame| frame.event.seq);
                }
                drop(ring);
                hub.last.send_replace(last);
            }
        }
        if hub.live.receiver_count() > 0 && sampled.elapsed() >= LIVE_STEP {
            sampled = std::time::Instant::now();
            let live = follow.live();
            hub.live.send_if_modified(|known| {
                let is_new = *known != live;
                *known = live;
                is_new
            });
        }
    }
}

/// Which events a reader gets.
#[derive(Clone, Debug)]
struct Filter {
    run: Option<u64>,
    package: Option<String>,
    kinds: Vec<String>,
}

impl Filter {
    fn of(events: &EventsOf) -> Filter {
        Filter { run: events.run, package: events.package.clone(), kinds: listed(events.types.as_deref()) }
    }

    fn lets(&self, event: &FeedEvent) -> bool {
        // Requests belong to no run, and may be for this one.
        self.run.is_none_or(|run| event.run.is_none_or(|other| other == run))
            && self.package.as_ref().is_none_or(|package| event.package.as_ref() == Some(package))
            && (self.kinds.is_empty() || self.kinds.contains(&event.kind))
    }
}

/// A reader of the feed.
struct Reader {
    shared: Arc<Shared>,
    hub: Arc<Hub>,
    at: At,
    headers: HeaderMap,
    filter: Filter,
    /// The last event that it got or does not want.
    after: u64,
    last: watch::Receiver<u64>,
    live: Option<watch::Receiver<Bytes>>,
    /// Whether the connection has got its first bytes.
    has_begun: bool,
    /// When it is checked again that the person may read.
    check_at: Instant,
}

impl Reader {
    /// What is sent next. Absent when the reader may not read any more.
    async fn next(&mut self) -> Option<Bytes> {
        if !std::mem::replace(&mut self.has_begun, true) {
            return Some(format!("retry: {RETRY_MILLISECONDS}\n\n").into());
        }
        loop {
            // Also while events come without a pause.
            if Instant::now() >= self.check_at {
                self.check_at = Instant::now() + IDLE;
                return may_still_read(&self.shared, &self.headers, &self.at.yard)
                    .then(|| Bytes::from_static(b":\n\n"));
            }
            let frames = self.frames().await?;
            let mut sent = Vec::new();
            for frame in &frames {
                self.after = frame.event.seq;
                if self.filter.lets(&frame.event) {
                    sent.extend_from_slice(&frame.sent);
                }
            }
            if !sent.is_empty() {
                return Some(sent.into());
            }
            if !frames.is_empty() {
                continue;
            }
            let live = async {
                let Some(live) = &mut self.live else { return std::future::pending().await };
                match live.changed().await {
                    Ok(()) => live.borrow_and_update().clone(),
                    Err(_) => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = self.last.changed() => changed.ok()?,
                live = live => {
                    if !live.is_empty() {
                        return Some([b"event: live\ndata: ", &live[..], b"\n\n"].concat().into());
                    }
                }
                () = tokio::time::sleep_until(self.check_at) => {}
            }
        }
    }

    /// The next events, from the ring or else from the store; none if there are none yet. Absent if the store cannot be read:
    /// the client connects again.
    async fn frames(&mut self) -> Option<Vec<Arc<Frame>>> {
        self.last.mark_unchanged();
        {
            let ring = self.hub.ring.read().unwrap_or_else(PoisonError::into_inner);
            if self.after >= ring.floor {
                let first = ring.frames.partition_point(|frame| frame.event.seq <= self.after);
                return Some(ring.frames.iter().skip(first).take(CHUNK_MAX).cloned().collect());
            }
        }
        let (at, after) = (self.at.clone(), self.after);
        let events = self.shared.ask(move |site| site.events(&at, after, CHUNK_MAX)).await.ok()?;
        Some(events.into_iter().map(|event| Arc::new(Frame::new(event))).collect())
    }
}

/// Sends the events of a yard as they happen.
///
/// With `Accept: text/event-stream`, as server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html): a
/// client that connects again with `Last-Event-ID`, as browsers do, gets what it missed. Otherwise as a list of lines of JSON,
/// which is empty if nothing has happened within `wait` seconds; the next request has `after` of the last line's `seq`.
#[utoipa::path(
    get,
    path = "/api/v1/events",
    params(EventsOf, ("Last-Event-ID" = Option<u64>, Header, description = "As `after`.")),
    responses(
        (status = 200, description = "The events: the envelope of docs/store.md.", content_type = "text/event-stream"),
        (status = 200, description = "The events: the envelope of docs/store.md.", content_type = "application/jsonl"),
        (status = "default", description = "A refusal.", body = crate::bodies::Refused),
    ),
    security(("token" = [])),
)]
pub(crate) async fn events(
    State(shared): State<Arc<Shared>>,
    person: Person,
    headers: HeaderMap,
    of: Result<Query<EventsOf>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(of) = of?;
    allow(&person, Scope::Read, &of.yard)?;
    let text = |name: &header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let accepts = text(&header::ACCEPT).is_some_and(|accept| accept.contains("text/event-stream"));
    // An id that is no number is none of this feed.
    let last_id = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.trim().parse().ok());
    match accepts {
        true => streamed(shared, headers, &of, last_id).await,
        false => listed_events(&shared, &of, last_id).await,
    }
}

async fn streamed(
    shared: Arc<Shared>,
    headers: HeaderMap,
    of: &EventsOf,
    last_id: Option<u64>,
) -> Result<Response, Refusal> {
    let (at, feed) = (of.at(), shared.clone());
    let hub = shared.ask(move |site| feed.feed.hub(site, &at)).await?;
    // The hub may be behind the store.
    let at = of.at();
    let newest = shared.ask(move |site| site.last_event(&at)).await?;
    // A higher number is from another store, or from before a restore.
    let after = last_id.or(of.after).unwrap_or(newest).min(newest);
    let (last, mut live) = (hub.last.subscribe(), of.live.then(|| hub.live.subscribe()));
    live.iter_mut().for_each(|live| live.mark_changed());
    let (at, filter) = (of.at(), Filter::of(of));
    let check_at = Instant::now() + IDLE;
    let reader = Reader { shared, hub, at, headers, filter, after, last, live, has_begun: false, check_at };
    let sent = stream::unfold(reader, async |mut reader| {
        let bytes = reader.next().await?;
        Some((Ok::<Bytes, Infallible>(bytes), reader))
    });
    // A proxy that collects answers would delay events: nginx does not with this header.
    let headers = [(header::CONTENT_TYPE.as_str(), "text/event-stream"), ("x-accel-buffering", "no")];
    Ok((headers, Body::from_stream(sent)).into_response())
}

async fn listed_events(
    shared: &Arc<Shared>,
    of: &EventsOf,
    last_id: Option<u64>,
) -> Result<Response, Refusal> {
    let (at, filter, count) = (of.at(), Filter::of(of), of.count.clamp(1, COUNT_MAX));
    if !(0.0..=WAIT_SECONDS_MAX).contains(&of.wait) {
        let why = format!("`wait` is 0 to {WAIT_SECONDS_MAX} seconds");
        return Err(Refusal::new(StatusCode::BAD_REQUEST, why));
    }
    let ends = Instant::now() + Duration::from_secs_f64(of.wait);
    let mut after = last_id.or(of.after).unwrap_or(0);
    let mut lines = String::new();
    let mut found = 0;
    let mut hub: Option<(Arc<Hub>, watch::Receiver<u64>)> = None;
    loop {
        let here = at.clone();
        let events = shared.ask(move |site| site.events(&here, after, count)).await?;
        let is_last = events.len() < count;
        for event in &events {
            after = event.seq;
            if filter.lets(event) && found < count {
                found += 1;
                // The JSON of an event is UTF-8.
                let _ = writeln!(lines, "{}", String::from_utf8_lossy(&event.json));
            }
        }
        // A filter that lets little through has the client ask again, after what was read.
        if found > 0 || Instant::now() >= ends {
            break;
        }
        if is_last {
            let (_, last) = match &mut hub {
                Some(hub) => hub,
                None => {
                    let (here, feed) = (at.clone(), shared.clone());
                    let made = shared.ask(move |site| feed.feed.hub(site, &here)).await?;
                    let last = made.last.subscribe();
                    // What happened in between is read at once.
                    hub.insert((made, last))
                }
            };
            if *last.borrow_and_update() <= after {
                let _ = tokio::time::timeout_at(ends, last.changed()).await;
            }
        }
    }
    let headers =
        [(header::CONTENT_TYPE.as_str(), "application/jsonl".to_owned()), (LAST_EVENT, after.to_string())];
    Ok((headers, lines).into_response())
}
