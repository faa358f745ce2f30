//! Farms whose files by digest this mirror serves to their workers: each request has a ticket of the farm's door.

use crate::config::Farm;
use kilnyard_farm::identity::{self, Pin};
use kilnyard_farm::ticket::TicketVerifier;
use kilnyard_model::sha256::Sha256Hex;
use reqwest::Client;
use reqwest::redirect::Policy;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long a door may take to connect, and to send something.
const CONNECT_MAX: Duration = Duration::from_secs(10);
const SILENT_MAX: Duration = Duration::from_secs(60);
/// The most tickets that are remembered as valid.
const KNOWN_MAX: usize = 100_000;

/// A farm.
#[derive(Debug)]
struct Known {
    name: String,
    url: String,
    tickets: TicketVerifier,
    client: Client,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Farms {
    farms: Vec<Known>,
    /// Tickets that were valid: the farm's number and the yard. Verifying is most of what a small file costs.
    valid: Mutex<HashMap<(Sha256Hex, String), (usize, String)>>,
}

/// A file of a farm that a request may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The text of the ticket.
    pub text: String,
    /// The number of the farm.
    farm: usize,
    /// The name of its yard; empty for the site's own.
    pub yard: String,
}

impl Farms {
    /// Those of a configuration.
    ///
    /// # Errors
    /// A key is malformed.
    pub fn new(configured: &BTreeMap<String, Farm>) -> io::Result<Farms> {
        let farm = |(name, farm): (&String, &Farm)| {
            let key = farm.key.parse::<kilnyard_farm::ticket::FarmKey>();
            let key = key.map_err(|error| io::Error::other(format!("[farm.{name}]: {error}")))?;
            let client = Client::builder()
                .use_preconfigured_tls(identity::client(Pin::Certificate(key.door), None)?)
                .redirect(Policy::none())
                .connect_timeout(CONNECT_MAX)
                .read_timeout(SILENT_MAX)
                .build();
            let client = client.map_err(io::Error::other)?;
            let url = farm.url.trim_end_matches('/').to_owned();
            Ok(Known { name: name.clone(), url, tickets: key.tickets, client })
        };
        Ok(Farms { farms: configured.iter().map(farm).collect::<io::Result<_>>()?, valid: Mutex::default() })
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.farms.is_empty()
    }

    /// The farm that a ticket for a file is of; none if it is not valid now.
    pub fn admit(&self, text: &str, sha256: &Sha256Hex, now: u64) -> Option<Ticket> {
        let until: u64 = text.split('.').next()?.parse().ok()?;
        if until <= now {
            return None;
        }
        let key = (sha256.clone(), text.to_owned());
        let mut valid = self.valid.lock().unwrap_or_else(PoisonError::into_inner);
        let known = valid.get(&key).cloned();
        let (farm, yard) = match known {
            Some(known) => known,
            None => {
                let find = |(number, farm): (usize, &Known)| {
                    Some((number, farm.tickets.yard_of(text, sha256, now)?.to_owned()))
                };
                let found = self.farms.iter().enumerate().find_map(find)?;
                if valid.len() >= KNOWN_MAX {
                    valid.clear();
                }
                valid.insert(key, found.clone());
                found
            }
        };
        Some(Ticket { text: text.to_owned(), farm, yard })
    }

    /// The connections to a ticket's farm, and the address of a file there.
    pub fn origin(&self, ticket: &Ticket, sha256: &Sha256Hex) -> Option<(&Client, String)> {
        let farm = self.farms.get(ticket.farm)?;
        Some((&farm.client, format!("{}/v1/blobs/{sha256}", farm.url)))
    }

    /// Their names.
    pub fn names(&self) -> Vec<&str> {
        self.farms.iter().map(|farm| farm.name.as_str()).collect()
    }
}
