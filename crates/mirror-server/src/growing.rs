//! A file on its way: what is there of it, for all who follow.

use crate::cache::Facts;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use tokio::sync::watch;

/// Bytes that are kept back while a digest is not verified.
const KEPT_BACK: u64 = 64 << 10;

/// What is known of a file on its way.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// What the origin says of it; absent until it answers.
    pub facts: Option<Facts>,
    /// Its size, if the origin says so.
    pub size: Option<u64>,
    /// The bytes that followers may read.
    pub length: u64,
    /// How it ended; absent until then.
    pub end: Option<End>,
}

/// How the way of a file ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It is complete.
    Whole,
    /// What the mirror has is still the same.
    Unchanged,
    /// No origin has it.
    Absent,
    /// It could not be fetched, for this reason.
    Failed(String),
}

/// See the module documentation.
#[derive(Debug)]
pub struct Growing {
    file: File,
    is_verified_last: bool,
    state: watch::Sender<State>,
}

impl Growing {
    /// A file that is written from its beginning. With a digest to verify, its end is kept back.
    pub fn new(file: File, is_verified_last: bool) -> Growing {
        Growing { file, is_verified_last, state: watch::Sender::new(State::default()) }
    }

    /// Follows it.
    pub fn follow(self: &Arc<Growing>) -> Follower {
        Follower { growing: self.clone(), state: self.state.subscribe() }
    }

    /// Whether an origin sends it.
    pub fn has_begun(&self) -> bool {
        self.state.borrow().facts.is_some()
    }

    /// Notes what the origin says of it.
    pub fn begin(&self, facts: Facts, size: Option<u64>) {
        self.state.send_modify(|state| (state.facts, state.size) = (Some(facts), size));
    }

    /// Writes bytes at a place, which must be where the last ones ended.
    pub fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, at)?;
        let length = at + bytes.len() as u64;
        let visible = if self.is_verified_last { length.saturating_sub(KEPT_BACK) } else { length };
        self.state.send_modify(|state| state.length = visible);
        Ok(())
    }

    /// Flushes what was written, which has this length. What an attempt before wrote beyond it is cut off.
    pub fn flush(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)?;
        self.file.sync_all()
    }

    /// The bytes from the beginning, for a check.
    pub fn read_all(&self) -> io::Result<Vec<u8>> {
        let size = self.file.metadata()?.len();
        let mut bytes = vec![0; usize::try_from(size).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// Notes its end. If it is whole, followers may read all of it.
    pub fn end(&self, end: End, length: u64) {
        self.state.send_modify(|state| {
            if end == End::Whole {
                state.length = length;
                state.size = Some(length);
            }
            state.end = Some(end);
        });
    }
}

/// One who reads a file on its way.
#[derive(Clone, Debug)]
pub struct Follower {
    growing: Arc<Growing>,
    state: watch::Receiver<State>,
}

impl Follower {
    /// Waits until this holds, or the file has ended. Returns what is known then.
    pub async fn until(&mut self, holds: impl Fn(&State) -> bool) -> State {
        let found = self.state.wait_for(|state| state.end.is_some() || holds(state)).await;
        // The sender is as old as this.
        found.map(|state| state.clone()).unwrap_or_default()
    }

    /// Whether nothing of a file of this size can be read before it is verified.
    pub fn is_kept_back(&self, size: u64) -> bool {
        self.growing.is_verified_last && size <= KEPT_BACK
    }

    /// Reads up to this many bytes at a place.
    pub fn read(&self, at: u64, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        let read = self.growing.file.read_at(&mut bytes, at)?;
        bytes.truncate(read);
        Ok(bytes)
    }
}
