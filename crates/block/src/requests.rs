//! The log of the requests to a device, and what can be learned from it.
//!
//! A line for each request: seconds since the device began, what it was, its offset and its length in bytes, separated by
//! blanks. `spill` is not a request, but the move of blocks from memory to the file.

use crate::BLOCK_BYTES;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufWriter, Read, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// What a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Makes durable what was written.
    Flush,
    /// Drops content.
    Discard,
    /// Replaces content by zeros.
    Zero,
    /// Moves blocks from memory to the file.
    Spill,
}

impl Kind {
    const ALL: [Kind; 6] = [Kind::Read, Kind::Write, Kind::Flush, Kind::Discard, Kind::Zero, Kind::Spill];

    fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Flush => "flush",
            Kind::Discard => "discard",
            Kind::Zero => "zero",
            Kind::Spill => "spill",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One line of a log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// Seconds since the device began.
    pub at_seconds: f64,
    /// What it is.
    pub kind: Kind,
    /// The first byte.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
}

/// A line that is not a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {number} is no request to a device: {line:?}")]
pub struct RequestError {
    /// Counted from 1.
    pub number: u64,
    /// Its first characters.
    pub line: String,
}

/// The largest device, and the longest request that transfers content.
const DEVICE_BYTES_MAX: u64 = 1 << 40;
const REQUEST_BYTES_MAX: u64 = 32 << 20;
/// A line is shorter.
const LINE_BYTES_MAX: u64 = 200;
/// The characters of a line that an error shows.
const SHOWN: usize = 80;

impl Request {
    /// Reads a line.
    pub fn parse(line: &str) -> Option<Request> {
        let mut words = line.split(' ');
        let mut next = || words.next();
        let (at, kind, offset, bytes) = (next()?, next()?, next()?, next()?);
        let at_seconds: f64 = at.parse().ok()?;
        let kind = Kind::ALL.into_iter().find(|one| one.name() == kind)?;
        let (offset, bytes): (u64, u64) = (offset.parse().ok()?, bytes.parse().ok()?);
        let is_valid = words.next().is_none()
            && at_seconds.is_finite()
            && at_seconds >= 0.0
            && offset.checked_add(bytes).is_some_and(|end| end <= DEVICE_BYTES_MAX)
            && (bytes <= REQUEST_BYTES_MAX || matches!(kind, Kind::Discard | Kind::Zero));
        is_valid.then_some(Request { at_seconds, kind, offset, bytes })
    }
}

/// A log that is being written.
#[derive(Debug)]
pub(crate) struct Log {
    began: Instant,
    to: Mutex<(BufWriter<File>, io::Result<()>)>,
}

impl Log {
    pub(crate) fn new(file: File) -> Log {
        Log { began: Instant::now(), to: Mutex::new((BufWriter::with_capacity(1 << 16, file), Ok(()))) }
    }

    /// Adds a line. After a failure, which [`Log::finish`] reports, lines are dropped.
    pub(crate) fn note(&self, kind: Kind, offset: u64, bytes: u64) {
        let (file, state) = &mut *self.to.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_ok() {
            let seconds = self.began.elapsed().as_secs_f64();
            *state = writeln!(file, "{seconds:.6} {kind} {offset} {bytes}");
        }
    }

    pub(crate) fn finish(&self) -> io::Result<()> {
        let (file, state) = &mut *self.to.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(state, Ok(())).and_then(|()| file.flush())
    }
}

/// Whether requests are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Requests {
    /// They are counted.
    #[default]
    Forget,
    /// Each is logged too.
    Log,
}

/// The size of the ranges of which the hottest are named.
const RANGE_BYTES: u64 = 1 << 20;
/// The number of hot ranges that are named.
const HOT_MAX: usize = 10;

/// The requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Total {
    /// How many.
    pub requests: u64,
    /// Their length in all.
    pub bytes: u64,
}

/// A range of a device that was used much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Hot {
    /// The first byte.
    pub offset: u64,
    /// Its length.
    pub length_bytes: u64,
    /// Bytes that were read there.
    pub read_bytes: u64,
    /// Bytes that were written there.
    pub written_bytes: u64,
}

/// What a log says.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// From the first to the last line.
    pub seconds: f64,
    /// By kind.
    pub totals: BTreeMap<Kind, Total>,
    /// Bytes of different blocks that were written.
    pub touched_bytes: u64,
    /// Bytes of blocks that were written again.
    pub rewritten_bytes: u64,
    /// Bytes of blocks that were written, and discarded later.
    pub dropped_bytes: u64,
    /// Bytes of blocks that were written, and never reached the disk: they were in memory to the end, or until they
    /// were dropped or written again.
    pub never_on_disk_bytes: u64,
    /// Bytes that flushes would have written if they were not discarded: at each, what was written since the one before.
    pub flushed_bytes: u64,
    /// The ranges of 1 MiB that were used most, the hottest first.
    pub hot: Vec<Hot>,
}

impl Summary {
    /// Reads a log to its end.
    ///
    /// # Errors
    /// It cannot be read, or a line is not a request. The last line may be cut, as after a kill.
    pub fn read(mut log: impl BufRead) -> io::Result<Result<Summary, RequestError>> {
        let mut summing = Summing::default();
        let (mut line, mut number) = (Vec::new(), 0);
        loop {
            line.clear();
            if log.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
                return Ok(Ok(summing.finish()));
            }
            number += 1;
            let whole = match line.strip_suffix(b"\n") {
                Some(whole) => whole,
                None if (line.len() as u64) < LINE_BYTES_MAX => return Ok(Ok(summing.finish())),
                None => &line[..],
            };
            match std::str::from_utf8(whole).ok().and_then(Request::parse) {
                Some(request) => {
                    summing.add(&request);
                    if summing.is_full() {
                        let text =
                            format!("line {number}: requests have written more than {BLOCKS_MAX} blocks");
                        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
                    }
                }
                None => {
                    let line = String::from_utf8_lossy(whole).chars().take(SHOWN).collect();
                    return Ok(Err(RequestError { number, line }));
                }
            }
        }
    }
}

#[derive(Default)]
struct Summing {
    summary: Summary,
    written: HashSet<u64>,
    unspilled: HashSet<u64>,
    unflushed: HashSet<u64>,
    hot: HashMap<u64, (u64, u64)>,
    spilled_bytes: u64,
}

/// The most blocks that a log may name: 32 GiB, of which the summary takes some hundred megabytes.
const BLOCKS_MAX: usize = 8 << 20;

impl Summing {
    /// Whether it takes more memory than the requests of a build can need.
    fn is_full(&self) -> bool {
        self.written.len() > BLOCKS_MAX
    }

    fn add(&mut self, request: &Request) {
        let summary = &mut self.summary;
        summary.seconds = request.at_seconds;
        let total = summary.totals.entry(request.kind).or_default();
        total.requests += 1;
        total.bytes = total.bytes.saturating_add(request.bytes);
        let end = request.offset + request.bytes;
        let touched = request.offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
        let whole = request.offset.div_ceil(BLOCK_BYTES)..end / BLOCK_BYTES;
        match request.kind {
            Kind::Write => {
                for block in touched {
                    if !self.written.insert(block) {
                        summary.rewritten_bytes += BLOCK_BYTES;
                    }
                    self.unspilled.insert(block);
                    self.unflushed.insert(block);
                }
            }
            Kind::Flush => {
                summary.flushed_bytes += self.unflushed.len() as u64 * BLOCK_BYTES;
                self.unflushed.clear();
            }
            Kind::Discard | Kind::Zero => {
                // A discard of a whole device is longer than what was written.
                let blocks: Vec<u64> = match whole.end.saturating_sub(whole.start) > self.written.len() as u64
                {
                    true => self.written.iter().copied().filter(|block| whole.contains(block)).collect(),
                    false => whole.collect(),
                };
                for block in blocks {
                    self.unflushed.remove(&block);
                    if self.unspilled.remove(&block) {
                        summary.dropped_bytes += BLOCK_BYTES;
                    }
                }
            }
            Kind::Spill => {
                self.spilled_bytes = self.spilled_bytes.saturating_add(request.bytes);
                touched.for_each(|block| {
                    self.unspilled.remove(&block);
                });
            }
            Kind::Read => {}
        }
        if matches!(request.kind, Kind::Read | Kind::Write) {
            let mut at = request.offset;
            while at < end {
                let range = at / RANGE_BYTES;
                let part = ((range + 1) * RANGE_BYTES).min(end) - at;
                let (read, written) = self.hot.entry(range).or_default();
                *(if request.kind == Kind::Read { read } else { written }) += part;
                at += part;
            }
        }
    }

    fn finish(self) -> Summary {
        let mut hot: Vec<Hot> = self
            .hot
            .into_iter()
            .map(|(range, (read_bytes, written_bytes))| Hot {
                offset: range * RANGE_BYTES,
                length_bytes: RANGE_BYTES,
                read_bytes,
                written_bytes,
            })
            .collect();
        hot.sort_by_key(|hot| (std::cmp::Reverse(hot.read_bytes + hot.written_bytes), hot.offset));
        hot.truncate(HOT_MAX);
        let written = self.summary.totals.get(&Kind::Write).map_or(0, |total| total.bytes);
        Summary {
            touched_bytes: self.written.len() as u64 * BLOCK_BYTES,
            never_on_disk_bytes: written.saturating_sub(self.spilled_bytes),
            hot,
            ..self.summary
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(log: &str) -> Result<Summary, RequestError> {
        Summary::read(log.as_bytes()).unwrap()
    }

    #[test]
    fn a_log_says_what_was_written_again_and_what_never_reached_the_disk() {
        let log = "0.1 write 0 8192\n0.2 write 4096 4096\n0.3 flush 0 0\n0.4 read 1048576 4096\n\
                   0.5 spill 0 4096\n0.6 discard 0 1099511627776\n0.7 write 8192 4096\n1.5 flush 0 0\n2 wri";
        let summary = read(log).unwrap();
        assert_eq!(summary.seconds, 1.5);
        assert_eq!(summary.totals[&Kind::Write], Total { requests: 3, bytes: 16384 });
        assert_eq!((summary.touched_bytes, summary.rewritten_bytes), (12288, 4096));
        assert_eq!((summary.dropped_bytes, summary.never_on_disk_bytes), (4096, 12288));
        assert_eq!(summary.flushed_bytes, 12288);
        assert_eq!((summary.hot[0].offset, summary.hot[0].written_bytes), (0, 16384));
        assert_eq!((summary.hot[1].offset, summary.hot[1].read_bytes), (1 << 20, 4096));
    }

    #[test]
    fn a_log_that_names_too_many_blocks_is_refused() {
        let line = |number: u64| format!("0 write {} {REQUEST_BYTES_MAX}\n", number * REQUEST_BYTES_MAX);
        let count = BLOCKS_MAX as u64 * BLOCK_BYTES / REQUEST_BYTES_MAX + 1;
        let log: String = (0..count).map(line).collect();
        let error = Summary::read(log.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("line {count}: ")), "{error}");
    }

    #[test]
    fn a_line_that_is_no_request_is_named() {
        for line in [
            "",
            "0.1 write 0",
            "-1 write 0 1",
            "nan read 0 1",
            "0 write 0 1 2",
            "0 write 9223372036854775807 1",
        ] {
            let error = read(&format!("0.1 read 0 1\n{line}\n")).unwrap_err();
            assert_eq!(error, RequestError { number: 2, line: line.to_owned() });
        }
        assert_eq!(read("").unwrap(), Summary::default());
    }
}
