//! The servers of a farm whose stores several machines share, as documents in the database.

use crate::error::{Context, Result};
use crate::yard::{Documents, Yard, store_error};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Begins the names of the documents of servers; the id of the server follows.
const SERVER: &str = "server/";
/// How often a server shows that it is alive.
pub const SHOW_STEP: Duration = Duration::from_secs(3);
/// For how long a server that does not show itself counts as alive.
const SILENT_MAX: Duration = Duration::from_secs(15);
/// How often the servers are read.
const LOOK_STEP: Duration = Duration::from_secs(2);

/// How often a thread checks whether the run is over.
const STEP: Duration = Duration::from_millis(100);
/// The document with the options with which the run in progress is continued.
const BUILD: &str = "build";

/// Notes how the run in progress is continued on another machine; with none, that it is not.
pub fn note_build(yard: &Yard, arguments: Option<&[String]>) -> Result<()> {
    let Some(documents) = yard.documents()? else { return Ok(()) };
    let Some(arguments) = arguments else {
        return forget_build(&documents);
    };
    let text = serde_json::to_vec(arguments).or_internal("note the options of the run")?;
    documents.save_document(BUILD, &text).map_err(store_error).map(drop)
}

/// The same for a caller with the documents.
pub fn forget_build(documents: &Documents) -> Result<()> {
    documents.remove_document(BUILD).map_err(store_error)
}

/// The options with which the run in progress is continued; none if it is not. They stay until it is published.
pub fn noted_build(documents: &Documents) -> Result<Option<Vec<String>>> {
    let document = documents.document(BUILD).map_err(store_error)?;
    Ok(document.and_then(|document| serde_json::from_slice(&document.content).ok()))
}

/// A server of a farm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// The machine and the folder.
    pub name: String,
    /// The address for workers.
    pub url: String,
    /// Counts, so that the document changes.
    pub beat: u64,
}

/// The servers, and which of them are alive.
#[derive(Debug, Default)]
pub struct Servers {
    seen: HashMap<String, (u64, Instant, Server)>,
}

impl Servers {
    /// Reads all servers.
    pub fn read(&mut self, documents: &Documents) -> Result<()> {
        let listed = documents.documents().map_err(store_error)?;
        let listed: Vec<(String, u64)> = listed
            .into_iter()
            .filter_map(|(name, version)| Some((name.strip_prefix(SERVER)?.to_owned(), version)))
            .collect();
        self.seen.retain(|id, _| listed.iter().any(|(listed, _)| listed == id));
        for (id, version) in listed {
            if self.seen.get(&id).is_some_and(|(known, ..)| *known == version) {
                continue;
            }
            let document = documents.document(&format!("{SERVER}{id}")).map_err(store_error)?;
            let server = document.and_then(|document| serde_json::from_slice(&document.content).ok());
            if let Some(server) = server {
                self.seen.insert(id, (version, Instant::now(), server));
            }
        }
        Ok(())
    }

    /// The addresses of all servers that are alive.
    pub fn addresses(&self) -> Vec<String> {
        let mut addresses: Vec<String> = self.alive().map(|(_, server)| server.url.clone()).collect();
        addresses.sort_unstable();
        addresses
    }

    /// The address of a server, if it is alive.
    pub fn address(&self, id: &str) -> Option<&str> {
        self.alive().find(|(known, _)| *known == id).map(|(_, server)| server.url.as_str())
    }

    /// Whether another server than this one is alive.
    pub fn has_other(&self, own: &str) -> bool {
        self.alive().any(|(id, _)| id != own)
    }

    /// Whether a server is alive.
    pub fn is_alive(&self, id: &str) -> bool {
        self.alive().any(|(known, _)| known == id)
    }

    fn alive(&self) -> impl Iterator<Item = (&String, &Server)> {
        let is_alive = |at: &Instant| at.elapsed() < SILENT_MAX;
        self.seen.iter().filter(move |(_, (_, at, _))| is_alive(at)).map(|(id, (.., server))| (id, server))
    }
}

/// Saves the document of a server.
pub fn show(documents: &Documents, id: &str, server: &Server) -> Result<()> {
    let text = serde_json::to_vec(server).unwrap_or_default();
    documents.save_document(&format!("{SERVER}{id}"), &text).map_err(store_error).map(drop)
}

/// Removes the document of a server that ends.
pub fn leave(documents: &Documents, id: &str) -> Result<()> {
    documents.remove_document(&format!("{SERVER}{id}")).map_err(store_error)
}

/// Whether another server could continue a run. A thread keeps it current.
#[derive(Debug)]
pub struct Standby {
    is_there: Arc<AtomicBool>,
    is_ended: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
}

impl Standby {
    /// Watches the servers until this is dropped; none if no other machine can have this yard.
    pub fn watch(yard: &Yard) -> Result<Option<Standby>> {
        let Some(documents) = yard.documents()? else { return Ok(None) };
        let own = yard.as_holder()?.id;
        let (is_there, is_over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let is_ended = Arc::new(AtomicBool::new(false));
        let (found, ended, over) = (is_there.clone(), is_ended.clone(), is_over.clone());
        let yard = yard.clone();
        std::thread::spawn(move || {
            let (mut servers, mut looked): (Servers, Option<Instant>) = Default::default();
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(STEP);
                if ended.load(Ordering::Relaxed) && note_build(&yard, None).is_ok() {
                    return;
                }
                if looked.is_some_and(|at| at.elapsed() < LOOK_STEP) {
                    continue;
                }
                looked = Some(Instant::now());
                // Without the database, no server can be asked to take over.
                let is_read = servers.read(&documents).is_ok();
                found.store(is_read && servers.has_other(&own), Ordering::Relaxed);
            }
        });
        Ok(Some(Standby { is_there, is_ended, is_over }))
    }

    /// The user has ended the run: no other machine continues it, even if its end cannot be recorded.
    pub fn forget_run(&self) {
        self.is_ended.store(true, Ordering::Relaxed);
    }

    /// Whether there is one.
    pub fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Relaxed)
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
