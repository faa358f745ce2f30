//! The copy-on-write engine: a state for each block, memory up to a limit, and a file behind it.
//!
//! A device is cut into regions of 1 MiB. Each has a lock over the states of its blocks and over its part of the memory, and
//! a request holds one lock at a time. Regions with blocks in memory wait in a queue, which demotion goes through as a
//! clock: a block that was used since the hand last passed gets another round (Corbató, "A paging experiment with the
//! Multics system", 1968).

mod region;

use crate::Counters;
use crate::counters::{Counting, add};
use crate::memory::Memory;
use crate::requests::{Kind, Log};
use crate::spill::Spill;
use region::{Blocks, REGION_BYTES, Region};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The unit of copy-on-write: a page, and the block size of the file systems of roots.
pub const BLOCK_BYTES: u64 = 4096;
/// The least memory of a device: enough for the requests in progress and for some blocks that are hot.
pub const MEMORY_BYTES_MIN: u64 = 16 << 20;
/// The bytes that one demotion frees, if it can.
const DEMOTED_BYTES: u64 = 4 << 20;
/// After this much went past a full memory, a part of as much takes its turn in it.
const PASSED_BYTES: u64 = 4 << 20;
const TURNS_PART: u64 = 4;

/// The properties of a device.
#[derive(Debug)]
pub struct Options {
    /// The image that is shown where nothing was written; zeros if there is none.
    pub base: Option<File>,
    /// A multiple of [`BLOCK_BYTES`]. What is beyond the base is zero.
    pub size_bytes: u64,
    /// The most bytes of blocks in memory; at least [`MEMORY_BYTES_MIN`] are used.
    pub memory_bytes_max: u64,
    /// The folder of the unnamed file for other blocks.
    pub spill: PathBuf,
    /// Whether a flush writes all blocks in memory to that file, and the file to the disk.
    pub keeps_flushes: bool,
    /// Whether nothing can be written.
    pub is_read_only: bool,
    /// The file for a log of requests.
    pub requests: Option<File>,
}

/// A part of a device of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its length.
    pub bytes: u64,
    /// Whether it was discarded or zeroed: it takes no place.
    pub is_zero: bool,
}

/// See the module documentation.
#[derive(Debug)]
pub struct Disk {
    base: Option<File>,
    size_bytes: u64,
    memory: Memory,
    memory_bytes_max: u64,
    /// Bytes of blocks in memory, with those that requests in progress may add.
    memory_bytes: AtomicU64,
    /// Bytes that were written past a full memory.
    passed_bytes: AtomicU64,
    spill: Spill,
    keeps_flushes: bool,
    is_read_only: bool,
    regions: Box<[Mutex<Blocks>]>,
    /// The regions with blocks in memory, each once. A region's lock may be held when this one is taken, but not the
    /// other way round.
    queue: Mutex<VecDeque<usize>>,
    counting: Counting,
    log: Option<Log>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The part of a request that is in one region.
#[derive(Clone, Copy, Debug)]
struct Part {
    region: usize,
    /// The first byte within the region.
    from: usize,
    /// The first byte within the request.
    at: usize,
    bytes: usize,
}

fn parts(offset: u64, bytes: u64) -> impl Iterator<Item = Part> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let left = bytes - at;
        if left == 0 {
            return None;
        }
        let (region, from) = ((offset + at) / REGION_BYTES as u64, (offset + at) % REGION_BYTES as u64);
        let length = left.min(REGION_BYTES as u64 - from);
        let part =
            Part { region: region as usize, from: from as usize, at: at as usize, bytes: length as usize };
        at += length;
        Some(part)
    })
}

/// Zeros for a range without a whole block: it lies in two blocks at most.
const EDGE: [u8; 2 * BLOCK_BYTES as usize] = [0; 2 * BLOCK_BYTES as usize];

/// The first and the end of the whole blocks in a range.
fn whole_blocks(offset: u64, bytes: u64) -> (u64, u64) {
    (offset.next_multiple_of(BLOCK_BYTES), (offset + bytes) / BLOCK_BYTES * BLOCK_BYTES)
}

impl Disk {
    /// Makes a device.
    ///
    /// # Errors
    /// The size is not a multiple of the block size, or memory or the file cannot be had.
    pub fn new(options: Options) -> io::Result<Disk> {
        let size_bytes = options.size_bytes;
        if size_bytes == 0 || !size_bytes.is_multiple_of(BLOCK_BYTES) {
            let text = format!("a device of {size_bytes} bytes is no multiple of {BLOCK_BYTES}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let count = size_bytes.div_ceil(REGION_BYTES as u64) as usize;
        Ok(Disk {
            base: options.base,
            size_bytes,
            // Whole regions, so that the last one needs no other rule.
            memory: Memory::new(count * REGION_BYTES)?,
            memory_bytes_max: options.memory_bytes_max.max(MEMORY_BYTES_MIN),
            memory_bytes: AtomicU64::new(0),
            passed_bytes: AtomicU64::new(0),
            spill: Spill::new(&options.spill, size_bytes)?,
            keeps_flushes: options.keeps_flushes,
            is_read_only: options.is_read_only,
            regions: (0..count).map(|_| Mutex::default()).collect(),
            queue: Mutex::default(),
            counting: Counting::default(),
            log: options.requests.map(Log::new),
        })
    }

    /// The size of the device.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Whether nothing can be written.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Whether flushes are performed or logged.
    pub(crate) fn wants_flushes(&self) -> bool {
        self.keeps_flushes || self.log.is_some()
    }

    /// What the device did so far.
    pub fn counters(&self) -> Counters {
        self.counting.read()
    }

    /// Bytes of blocks in memory now.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// Fills the buffer.
    ///
    /// # Errors
    /// The range is outside of the device, or the base or the file cannot be read.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.check(offset, bytes.len() as u64)?;
        self.note(Kind::Read, offset, bytes.len() as u64);
        add(&self.counting.reads, 1);
        add(&self.counting.read_bytes, bytes.len() as u64);
        for part in parts(offset, bytes.len() as u64) {
            let into = &mut bytes[part.at..part.at + part.bytes];
            self.region(part.region).read(part.from, into)?;
        }
        Ok(())
    }

    /// Writes the bytes.
    ///
    /// # Errors
    /// The device is read-only, the range is outside of it, or there is no room for the bytes. Some of them may have been written.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.check_written(offset, bytes.len() as u64)?;
        self.note(Kind::Write, offset, bytes.len() as u64);
        add(&self.counting.writes, 1);
        add(&self.counting.written_bytes, bytes.len() as u64);
        self.write_parts(offset, bytes)
    }

    /// Makes the range read as zeros.
    ///
    /// # Errors
    /// As for [`Disk::write`].
    pub fn zero(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.check_written(offset, bytes)?;
        self.note(Kind::Zero, offset, bytes);
        let (first, end) = whole_blocks(offset, bytes);
        if first >= end {
            return self.write_parts(offset, &EDGE[..bytes as usize]);
        }
        self.write_parts(offset, &EDGE[..(first - offset) as usize])?;
        self.discard_blocks(first, end)?;
        self.write_parts(end, &EDGE[..(offset + bytes - end) as usize])
    }

    /// Drops the content of the whole blocks in the range, which are zero from then on.
    ///
    /// # Errors
    /// The device is read-only, the range is outside of it, or memory cannot be given back.
    pub fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.check_written(offset, bytes)?;
        self.note(Kind::Discard, offset, bytes);
        let (first, end) = whole_blocks(offset, bytes);
        if first < end { self.discard_blocks(first, end) } else { Ok(()) }
    }

    fn discard_blocks(&self, first: u64, end: u64) -> io::Result<()> {
        add(&self.counting.discarded_bytes, end - first);
        parts(first, end - first).try_for_each(|part| self.region(part.region).discard(part.from, part.bytes))
    }

    fn write_parts(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        for part in parts(offset, bytes.len() as u64) {
            let from = &bytes[part.at..part.at + part.bytes];
            if self.is_full(part.bytes as u64) && self.region(part.region).write_through(part.from, from)? {
                self.take_turn(part.bytes as u64)?;
                continue;
            }
            self.promised(part, |region| region.write(part.from, from))?;
        }
        Ok(())
    }

    /// Makes everything durable that was written before, if flushes are kept.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush(&self) -> io::Result<()> {
        self.note(Kind::Flush, 0, 0);
        add(&self.counting.flushes, 1);
        if !self.keeps_flushes {
            return Ok(());
        }
        // Not by the queue, from which a region is missing while its blocks are demoted.
        for number in 0..self.regions.len() {
            self.region(number).save()?;
        }
        self.spill.flush()
    }

    /// The parts of a range, in order, until `take` returns false.
    ///
    /// # Errors
    /// The range is outside of the device.
    pub fn extents(&self, offset: u64, bytes: u64, mut take: impl FnMut(Extent) -> bool) -> io::Result<()> {
        self.check(offset, bytes)?;
        let mut last: Option<Extent> = None;
        for part in parts(offset, bytes) {
            for extent in self.region(part.region).extents(part.from, part.bytes) {
                match &mut last {
                    Some(last) if last.is_zero == extent.is_zero => last.bytes += extent.bytes,
                    _ => {
                        if last.replace(extent).is_some_and(|before| !take(before)) {
                            return Ok(());
                        }
                    }
                }
            }
        }
        if let Some(last) = last {
            take(last);
        }
        Ok(())
    }

    /// Writes the log of requests to its file.
    ///
    /// # Errors
    /// The file cannot be written, now or earlier.
    pub fn finish_log(&self) -> io::Result<()> {
        self.log.as_ref().map_or(Ok(()), Log::finish)
    }

    fn note(&self, kind: Kind, offset: u64, bytes: u64) {
        if let Some(log) = &self.log {
            log.note(kind, offset, bytes);
        }
    }

    fn check(&self, offset: u64, bytes: u64) -> io::Result<()> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.size_bytes => Ok(()),
            _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    }

    fn check_written(&self, offset: u64, bytes: u64) -> io::Result<()> {
        match self.is_read_only {
            true => Err(io::Error::from_raw_os_error(libc::EPERM)),
            false => self.check(offset, bytes),
        }
    }

    fn region(&self, number: usize) -> Region<'_> {
        let blocks = lock(&self.regions[number]);
        // SAFETY: the bytes of a region are used only by the one who holds the lock of its blocks.
        let memory = unsafe { self.memory.slice(number * REGION_BYTES, REGION_BYTES) };
        Region { disk: self, number, blocks, memory }
    }

    /// Does what may bring blocks of a part into memory: first makes room for all of them.
    fn promised(&self, part: Part, action: impl FnOnce(&mut Region<'_>) -> io::Result<()>) -> io::Result<()> {
        let (first, end) = (part.from as u64 / BLOCK_BYTES, (part.from + part.bytes) as u64);
        let promised = (end.div_ceil(BLOCK_BYTES) - first) * BLOCK_BYTES;
        self.reserve(promised)?;
        let mut region = self.region(part.region);
        let before = region.memory_bytes();
        let done = action(&mut region);
        let after = region.memory_bytes();
        // What was promised and not used is free again. A region's own use changes only under its lock.
        self.memory_bytes.fetch_sub(promised + before - after, Ordering::Relaxed);
        region.queue();
        done
    }

    /// Whether memory has no room for this much more.
    fn is_full(&self, bytes: u64) -> bool {
        self.memory_bytes.load(Ordering::Relaxed) + bytes + BLOCK_BYTES > self.memory_bytes_max
    }

    /// After some writes that went past a full memory, makes room in it for as many of the next ones as it takes to keep up with
    /// what is used now, but not for all: each block that takes a turn in memory is copied twice.
    fn take_turn(&self, passed_bytes: u64) -> io::Result<()> {
        let before = self.passed_bytes.fetch_add(passed_bytes, Ordering::Relaxed);
        match before / PASSED_BYTES != (before + passed_bytes) / PASSED_BYTES {
            true => self.demote(PASSED_BYTES / TURNS_PART),
            false => Ok(()),
        }
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        loop {
            let before = self.memory_bytes.fetch_add(bytes, Ordering::Relaxed);
            if before + bytes <= self.memory_bytes_max {
                self.counting.memory_bytes_max.fetch_max(before + bytes, Ordering::Relaxed);
                return Ok(());
            }
            self.memory_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.demote(DEMOTED_BYTES)?;
        }
    }

    /// Moves blocks that were not used lately to the file, until about this much is free.
    fn demote(&self, bytes: u64) -> io::Result<()> {
        let mut freed = 0;
        // Twice round at most: the first round takes the marks of use away.
        let turns = lock(&self.queue).len() * 2;
        for _ in 0..turns.max(1) {
            let Some(number) = lock(&self.queue).pop_front() else { break };
            let mut region = self.region(number);
            region.blocks.is_queued = false;
            let demoted = region.demote();
            region.queue();
            drop(region);
            freed += demoted?;
            if freed >= bytes {
                return Ok(());
            }
        }
        if freed == 0 {
            // All memory is promised to requests in progress.
            std::thread::yield_now();
        }
        Ok(())
    }

    fn read_base(&self, mut offset: u64, mut bytes: &mut [u8]) -> io::Result<()> {
        let Some(base) = &self.base else {
            bytes.fill(0);
            return Ok(());
        };
        while !bytes.is_empty() {
            match base.read_at(bytes, offset) {
                // Beyond its end.
                Ok(0) => {
                    bytes.fill(0);
                    return Ok(());
                }
                Ok(count) => {
                    offset += count as u64;
                    bytes = &mut bytes[count..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
