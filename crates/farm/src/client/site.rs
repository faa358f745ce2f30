//! Files that are read at the mirror of the worker's site, with tickets of the door. What fails there is read at the door.

use super::{Client, ClientError, direct, sent};
use crate::api::{BLOBS_MAX, Tickets, TicketsFor};
use crate::encoding::ZSTD;
use crate::ticket::TICKET_HEADER;
use kilnyard_model::sha256::Sha256Hex;
use reqwest::blocking::Response;
use reqwest::header::ACCEPT_ENCODING;
use reqwest::{StatusCode, Url};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long a connection to the mirror may take to be made: it is near.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// How long a request for tickets may take.
const SILENT_MAX: Duration = Duration::from_secs(60);
/// For how long a mirror that failed is not asked.
const AWAY: Duration = Duration::from_secs(30);
/// How long a ticket is used. It is valid for longer.
const TICKET_MAX: Duration = Duration::from_secs(5 * 60 * 60);
/// The most tickets that are kept.
const TICKETS_MAX: usize = 100_000;

/// The mirror of a site, as a worker uses it.
#[derive(Debug, Default)]
pub(super) struct Site {
    /// Made when it is needed: it has a thread.
    http: OnceLock<Option<reqwest::blocking::Client>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Its address, as the worker's user or the door says.
    url: Option<Url>,
    /// Whether the user says so: the door is not heard then.
    is_given: bool,
    /// Since when it fails.
    away: Option<Instant>,
    tickets: HashMap<Sha256Hex, (String, Instant)>,
}

impl Site {
    /// The same mirror for another yard, which has tickets of its own.
    pub(super) fn for_yard(&self) -> Site {
        let state = self.state();
        let State { url, is_given, .. } = &*state;
        let state = State { url: url.clone(), is_given: *is_given, ..State::default() };
        Site { http: OnceLock::new(), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses the mirror at this address, whatever the door says.
    fn give(&self, url: &str) -> Result<(), ClientError> {
        let parsed = Url::parse(url).ok().filter(|url| url.scheme() == "http" && url.host().is_some());
        let mut state = self.state();
        state.url = Some(parsed.ok_or_else(|| ClientError::Mirror(url.to_owned()))?);
        state.is_given = true;
        Ok(())
    }

    /// Learns the address that the door says.
    pub(super) fn learn(&self, url: Option<&str>) {
        let mut state = self.state();
        if !state.is_given {
            state.url = url.and_then(|url| Url::parse(url).ok()).filter(|url| url.scheme() == "http");
        }
    }

    /// Its address, if it is to be asked now.
    fn address(&self) -> Option<Url> {
        let mut state = self.state();
        if state.away.is_some_and(|since| since.elapsed() > AWAY) {
            state.away = None;
        }
        state.url.clone().filter(|_| state.away.is_none())
    }

    /// Reads a file there; none if it cannot be read there.
    pub(super) fn read(&self, sha256: &Sha256Hex) -> Option<Response> {
        let mut url = self.address()?;
        let ticket = self.state().tickets.get(sha256).map(|(ticket, _)| ticket.clone())?;
        // It is in the site's network, without TLS.
        let make = || direct::builder()?.no_proxy().connect_timeout(CONNECT_MAX).build().ok();
        let http = self.http.get_or_init(make).as_ref()?;
        url.set_path(&format!("/blobs/sha256/{sha256}"));
        let request = http.get(url).header(TICKET_HEADER, ticket).header(ACCEPT_ENCODING, ZSTD);
        match request.send() {
            Ok(answer) if answer.status() == StatusCode::OK => Some(answer),
            // The door may know more of this file.
            Ok(answer) if answer.status().is_client_error() => None,
            Ok(_) | Err(_) => {
                self.state().away = Some(Instant::now());
                None
            }
        }
    }

    /// The files of these that there is no ticket for.
    fn without_ticket<'a>(&self, files: &'a [Sha256Hex]) -> Vec<&'a Sha256Hex> {
        let mut state = self.state();
        if state.tickets.len() > TICKETS_MAX {
            state.tickets.clear();
        }
        state.tickets.retain(|_, (_, since)| since.elapsed() < TICKET_MAX);
        files.iter().filter(|sha256| !state.tickets.contains_key(*sha256)).collect()
    }
}

impl Client {
    /// The same client, which reads files at the mirror at this address first, whatever the farm says.
    ///
    /// # Errors
    /// It is not an address that begins with http://.
    pub fn with_mirror(self, url: &str) -> Result<Client, ClientError> {
        self.site.give(url)?;
        Ok(self)
    }

    /// Reads files at the door for a while: what came from the mirror was not what was asked for, or did not come.
    pub fn doubt_mirror(&self) {
        self.site.state().away = Some(Instant::now());
    }

    /// Asks for what is needed to read these files of a build at the mirror of the site. If that fails, they are read at the door.
    pub fn announce(&self, files: &[Sha256Hex]) {
        if self.site.address().is_none() {
            return;
        }
        for part in self.site.without_ticket(files).chunks(BLOBS_MAX) {
            let wanted = TicketsFor { blobs: part.iter().map(|sha256| sha256.to_string()).collect() };
            let url = self.at("/v1/tickets");
            let request = || self.http.post(url.clone()).timeout(SILENT_MAX).json(&wanted);
            let answer = self.answer(&request, sent).ok().filter(|answer| answer.status().is_success());
            let Some(tickets) = answer.and_then(|answer| answer.json::<Tickets>().ok()) else { return };
            let mut state = self.site.state();
            let now = Instant::now();
            let named = part.iter().zip(tickets.tickets);
            state
                .tickets
                .extend(named.filter_map(|(sha256, ticket)| Some(((*sha256).clone(), (ticket?, now)))));
        }
    }
}
