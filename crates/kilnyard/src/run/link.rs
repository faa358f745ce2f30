//! The connections between a run and its workers: the one in this process, and those behind a door. Messages are bytes,
//! as over a network.

use super::Message;
use super::door::{Door, RemoteBuild};
use crate::error::{Context, Kind, Result};
use kilnyard_coordinator::{Channel, Granted};
use kilnyard_model::attempt::Attempt;
use kilnyard_protocol::{Lease, ToWorker};
use kilnyard_worker::{Inbox, Transport};
use std::collections::HashSet;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::Sender;

/// The channel of the worker in this process. Those of a door count from 1.
pub const WORKER: Channel = Channel(0);

/// Reads after "failed to".
const RECORDING: &str = "record the messages of coordinator and worker";

/// The worker's end: messages for the owner of the run.
pub struct ToOwner(pub Sender<Message>);

impl Transport for ToOwner {
    fn send(&self, message: Vec<u8>) {
        // Without an owner the run is over.
        let _ = self.0.send(Message::OfWorker { worker: None, bytes: message });
    }
}

/// Where a build is.
pub enum Place<'a> {
    /// In this process.
    Here,
    /// On another machine.
    Elsewhere(&'a RemoteBuild),
}

/// The owner's end.
pub struct Link {
    inbox: Inbox,
    transcript: Option<Transcript>,
    /// The way to workers on other machines.
    pub door: Option<Door>,
    /// The builds of the worker in this process.
    own: HashSet<Attempt>,
}

impl Link {
    /// A link to the worker that reads this inbox, with an optional transcript.
    pub fn new(inbox: Inbox, transcript: Option<Transcript>, door: Option<Door>) -> Link {
        Link { inbox, transcript, door, own: HashSet::new() }
    }

    /// Sends a lease to its worker.
    pub fn grant(&mut self, granted: &Granted, lease: &Lease, bytes: Vec<u8>) -> Result<()> {
        self.note("worker", &bytes)?;
        match &mut self.door {
            _ if granted.channel == WORKER => {
                self.own.insert(granted.attempt);
                self.inbox.deliver(bytes);
            }
            Some(door) => door.grant(granted.channel, lease, bytes),
            None => {}
        }
        Ok(())
    }

    /// Where a build is; absent if this process did not grant it.
    pub fn place(&self, attempt: &Attempt) -> Option<Place<'_>> {
        match self.own.contains(attempt) {
            true => Some(Place::Here),
            false => self.door.as_ref()?.build(attempt).map(Place::Elsewhere),
        }
    }

    /// Sends another message to a worker.
    pub fn send(&mut self, to: Channel, message: &ToWorker, bytes: Vec<u8>) -> Result<()> {
        self.note("worker", &bytes)?;
        match &mut self.door {
            _ if to == WORKER => self.inbox.deliver(bytes),
            Some(door) => door.send(to, message, bytes),
            None => {}
        }
        Ok(())
    }

    /// Records a message of the worker in the transcript.
    pub fn received(&mut self, message: &[u8]) -> Result<()> {
        self.note("coordinator", message)
    }

    /// Ends the worker and all its builds.
    pub fn close(&mut self) -> Result<()> {
        self.inbox.close();
        self.door = None;
        self.transcript.as_mut().map_or(Ok(()), Transcript::finish)
    }

    fn note(&mut self, to: &str, message: &[u8]) -> Result<()> {
        self.transcript.as_mut().map_or(Ok(()), |transcript| transcript.write(to, message))
    }
}

/// A file with a line of JSON for each message: its direction and its envelope.
pub struct Transcript(BufWriter<fs_err::File>);

impl Transcript {
    /// A transcript in this file, which is overwritten.
    pub fn create(path: &Path) -> Result<Transcript> {
        let file = fs_err::File::create(path).context(Kind::Machine, RECORDING)?;
        Ok(Transcript(BufWriter::new(file)))
    }

    fn write(&mut self, to: &str, message: &[u8]) -> Result<()> {
        // Messages are JSON without line breaks.
        let parts: [&[u8]; 5] = [b"{\"to\":\"", to.as_bytes(), b"\",\"message\":", message, b"}\n"];
        parts.into_iter().try_for_each(|part| self.0.write_all(part)).context(Kind::Machine, RECORDING)
    }

    fn finish(&mut self) -> Result<()> {
        self.0.flush().context(Kind::Machine, RECORDING)
    }
}
