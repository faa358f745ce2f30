//! The connection between a run and the worker in this process. Messages are bytes, as over a network.

use super::Message;
use crate::error::{Context, Kind, Result};
use kilnyard_coordinator::Channel;
use kilnyard_worker::{Inbox, Transport};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::Sender;

/// The channel of the only worker.
pub const WORKER: Channel = Channel(0);

/// Reads after "failed to".
const RECORDING: &str = "record the messages of coordinator and worker";

/// The worker's end: messages for the owner of the run.
pub struct ToOwner(pub Sender<Message>);

impl Transport for ToOwner {
    fn send(&self, message: Vec<u8>) {
        // Without an owner the run is over.
        let _ = self.0.send(Message::OfWorker(message));
    }
}

/// The owner's end.
pub struct Link {
    inbox: Inbox,
    transcript: Option<Transcript>,
}

impl Link {
    /// A link to the worker that reads this inbox, with an optional transcript.
    pub fn new(inbox: Inbox, transcript: Option<Transcript>) -> Link {
        Link { inbox, transcript }
    }

    /// Sends a message to the worker.
    pub fn send(&mut self, message: Vec<u8>) -> Result<()> {
        self.note("worker", &message)?;
        self.inbox.deliver(message);
        Ok(())
    }

    /// Records a message of the worker in the transcript.
    pub fn received(&mut self, message: &[u8]) -> Result<()> {
        self.note("coordinator", message)
    }

    /// Ends the worker and all its builds.
    pub fn close(&mut self) -> Result<()> {
        self.inbox.close();
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
