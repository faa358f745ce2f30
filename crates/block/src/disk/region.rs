//! One region of a device, under its lock.

use super::{BLOCK_BYTES, Disk, Extent, lock};
use crate::counters::add;
use crate::memory::release;
use crate::requests::Kind;
use std::io;
use std::ops::Range;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

const BLOCK: usize = BLOCK_BYTES as usize;
/// The blocks of a region.
const COUNT: usize = 256;
/// The size of a region.
pub(super) const REGION_BYTES: usize = COUNT * BLOCK;

/// The low bits of a block's byte: where its content is.
const PLACE: u8 = 0b11;
const BASE: u8 = 0;
const MEMORY: u8 = 1;
const SPILLED: u8 = 2;
const ZERO: u8 = 3;
/// It was used since demotion last passed.
const IS_USED: u8 = 1 << 2;
/// The file has a place for it.
const HAS_PLACE: u8 = 1 << 3;
/// It is in memory, and the file has the same content.
const IS_SAVED: u8 = 1 << 4;

/// What the lock of a region protects, in addition to its part of the memory.
#[derive(Debug)]
pub(super) struct Blocks {
    states: [u8; COUNT],
    in_memory: u16,
    /// Whether it is in the queue of regions with blocks in memory.
    pub(super) is_queued: bool,
}

impl Default for Blocks {
    fn default() -> Blocks {
        Blocks { states: [BASE; COUNT], in_memory: 0, is_queued: false }
    }
}

/// A region whose lock is held.
pub(super) struct Region<'a> {
    pub(super) disk: &'a Disk,
    pub(super) number: usize,
    pub(super) blocks: MutexGuard<'a, Blocks>,
    pub(super) memory: &'a mut [u8],
}

fn is_in_memory(state: u8) -> bool {
    state & PLACE == MEMORY
}

/// The blocks that a range of bytes touches.
fn touched(from: usize, bytes: usize) -> Range<usize> {
    from / BLOCK..(from + bytes).div_ceil(BLOCK)
}

fn bytes_of(blocks: &Range<usize>) -> Range<usize> {
    blocks.start * BLOCK..blocks.end * BLOCK
}

impl Region<'_> {
    pub(super) fn memory_bytes(&self) -> u64 {
        u64::from(self.blocks.in_memory) * BLOCK_BYTES
    }

    /// Puts it into the queue if it has blocks in memory.
    pub(super) fn queue(&mut self) {
        if self.blocks.in_memory > 0 && !self.blocks.is_queued {
            self.blocks.is_queued = true;
            lock(&self.disk.queue).push_back(self.number);
        }
    }

    pub(super) fn read(&mut self, from: usize, into: &mut [u8]) -> io::Result<()> {
        let all = touched(from, into.len());
        let end = from + into.len();
        for run in self.runs(all, |state| state & PLACE) {
            let bytes = bytes_of(&run);
            let bytes = bytes.start.max(from)..bytes.end.min(end);
            let place = self.blocks.states[run.start] & PLACE;
            let into = &mut into[bytes.start - from..bytes.end - from];
            self.load(place, bytes, into)?;
            for state in &mut self.blocks.states[run] {
                *state |= IS_USED;
            }
        }
        Ok(())
    }

    pub(super) fn write(&mut self, from: usize, bytes: &[u8]) -> io::Result<()> {
        let end = from + bytes.len();
        for block in touched(from, bytes.len()) {
            let own = (block * BLOCK).max(from)..((block + 1) * BLOCK).min(end);
            self.take(block, own.len() == BLOCK)?;
            self.memory[own.clone()].copy_from_slice(&bytes[own.start - from..own.end - from]);
        }
        Ok(())
    }

    /// Writes without bringing more blocks into memory; false, with nothing written, if that cannot be done.
    pub(super) fn write_through(&mut self, from: usize, bytes: &[u8]) -> io::Result<bool> {
        let end = from + bytes.len();
        let all = touched(from, bytes.len());
        // Of a block that is written in part, the rest must be where the part goes.
        let is_partial = |block: usize| from > block * BLOCK || end < (block + 1) * BLOCK;
        let is_elsewhere = |block: usize| matches!(self.blocks.states[block] & PLACE, BASE | ZERO);
        if [all.start, all.end - 1].into_iter().any(|block| is_partial(block) && is_elsewhere(block)) {
            return Ok(false);
        }
        for run in self.runs(all, is_in_memory) {
            let part = bytes_of(&run);
            let part = part.start.max(from)..part.end.min(end);
            let data = &bytes[part.start - from..part.end - from];
            if is_in_memory(self.blocks.states[run.start]) {
                add(&self.disk.counting.rewritten_bytes, data.len() as u64);
                self.memory[part].copy_from_slice(data);
                for state in &mut self.blocks.states[run] {
                    *state = MEMORY | IS_USED | *state & HAS_PLACE;
                }
                continue;
            }
            let again = run.clone().filter(|block| self.blocks.states[*block] & PLACE == SPILLED).count();
            add(&self.disk.counting.rewritten_bytes, (again * BLOCK) as u64);
            let offset = (self.number * REGION_BYTES + part.start) as u64;
            self.disk.spill.write(offset, data)?;
            self.disk.note(Kind::Spill, offset, data.len() as u64);
            add(&self.disk.counting.spilled_bytes, data.len() as u64);
            self.blocks.states[run].fill(SPILLED | HAS_PLACE);
        }
        Ok(true)
    }

    /// Makes whole blocks zero, which then have no place in memory or in the file.
    pub(super) fn discard(&mut self, from: usize, bytes: usize) -> io::Result<()> {
        let before = self.memory_bytes();
        let all = touched(from, bytes);
        let done = self.runs(all.clone(), is_in_memory).into_iter().try_for_each(|run| -> io::Result<()> {
            if is_in_memory(self.blocks.states[run.start]) {
                release(&mut self.memory[bytes_of(&run)])?;
                self.blocks.in_memory -= run.len() as u16;
            }
            for state in &mut self.blocks.states[run] {
                *state = ZERO | *state & HAS_PLACE;
            }
            Ok(())
        });
        self.disk.memory_bytes.fetch_sub(before - self.memory_bytes(), Ordering::Relaxed);
        done?;
        for run in self.runs(all, |state| state & HAS_PLACE) {
            if self.blocks.states[run.start] & HAS_PLACE != 0 {
                self.disk.spill.discard(self.offset(&run), (run.len() * BLOCK) as u64);
                self.blocks.states[run].fill(ZERO);
            }
        }
        Ok(())
    }

    /// Writes what the file does not have yet to it.
    pub(super) fn save(&mut self) -> io::Result<()> {
        if self.blocks.in_memory == 0 {
            return Ok(());
        }
        for run in self.runs(0..COUNT, |state| state & (PLACE | IS_SAVED) == MEMORY) {
            if self.blocks.states[run.start] & (PLACE | IS_SAVED) == MEMORY {
                self.save_run(&run)?;
            }
        }
        Ok(())
    }

    /// Moves the blocks to the file that were not used since the last call. Returns their bytes.
    pub(super) fn demote(&mut self) -> io::Result<u64> {
        let is_cold = |state: u8| state & (PLACE | IS_USED) == MEMORY;
        let before = self.memory_bytes();
        let mut done = Ok(());
        for run in self.runs(0..COUNT, is_cold) {
            if !is_cold(self.blocks.states[run.start]) {
                for state in &mut self.blocks.states[run] {
                    *state &= !IS_USED;
                }
                continue;
            }
            done = self.demote_run(&run);
            if done.is_err() {
                break;
            }
        }
        let freed = before - self.memory_bytes();
        self.disk.memory_bytes.fetch_sub(freed, Ordering::Relaxed);
        done.map(|()| freed)
    }

    pub(super) fn extents(&self, from: usize, bytes: usize) -> Vec<Extent> {
        let end = from + bytes;
        let extent = |run: Range<usize>| {
            let bytes = bytes_of(&run);
            let bytes = bytes.start.max(from)..bytes.end.min(end);
            Extent { bytes: bytes.len() as u64, is_zero: self.blocks.states[run.start] & PLACE == ZERO }
        };
        self.runs(touched(from, bytes), |state| state & PLACE == ZERO).into_iter().map(extent).collect()
    }

    /// Neighbours that are alike.
    fn runs<T: PartialEq>(&self, blocks: Range<usize>, like: impl Fn(u8) -> T) -> Vec<Range<usize>> {
        let (mut at, states) = (blocks.start, &self.blocks.states[blocks]);
        let runs = states.chunk_by(|one, next| like(*one) == like(*next));
        runs.map(|run| {
            let start = at;
            at += run.len();
            start..at
        })
        .collect()
    }

    fn offset(&self, blocks: &Range<usize>) -> u64 {
        (self.number * REGION_BYTES + blocks.start * BLOCK) as u64
    }

    /// Reads bytes from where they are.
    fn load(&self, place: u8, bytes: Range<usize>, into: &mut [u8]) -> io::Result<()> {
        let offset = (self.number * REGION_BYTES + bytes.start) as u64;
        match place {
            BASE => self.disk.read_base(offset, into),
            MEMORY => {
                into.copy_from_slice(&self.memory[bytes]);
                Ok(())
            }
            SPILLED => {
                add(&self.disk.counting.restored_bytes, into.len() as u64);
                self.disk.spill.read(offset, into)
            }
            _ => {
                into.fill(0);
                Ok(())
            }
        }
    }

    /// Brings a block into memory to be written, with its content unless all of it is replaced.
    fn take(&mut self, block: usize, is_whole: bool) -> io::Result<()> {
        let state = self.blocks.states[block];
        let place = state & PLACE;
        if place != MEMORY {
            let bytes = block * BLOCK..(block + 1) * BLOCK;
            if !is_whole {
                let offset = (self.number * REGION_BYTES + bytes.start) as u64;
                let into = &mut self.memory[bytes];
                match place {
                    BASE => self.disk.read_base(offset, into)?,
                    SPILLED => {
                        add(&self.disk.counting.restored_bytes, BLOCK_BYTES);
                        self.disk.spill.read(offset, into)?;
                    }
                    _ => into.fill(0),
                }
            }
            self.blocks.in_memory += 1;
        }
        if matches!(place, MEMORY | SPILLED) {
            add(&self.disk.counting.rewritten_bytes, BLOCK_BYTES);
        }
        // A block counts as used when it is used again: a file that is written once must not displace others.
        let used = if place == MEMORY { IS_USED } else { 0 };
        self.blocks.states[block] = MEMORY | used | state & HAS_PLACE;
        Ok(())
    }

    fn save_run(&mut self, run: &Range<usize>) -> io::Result<()> {
        let offset = self.offset(run);
        let bytes = &self.memory[bytes_of(run)];
        self.disk.spill.write(offset, bytes)?;
        self.disk.note(Kind::Spill, offset, bytes.len() as u64);
        add(&self.disk.counting.spilled_bytes, bytes.len() as u64);
        for state in &mut self.blocks.states[run.clone()] {
            *state |= HAS_PLACE | IS_SAVED;
        }
        Ok(())
    }

    fn demote_run(&mut self, run: &Range<usize>) -> io::Result<()> {
        let unsaved: Vec<Range<usize>> = self
            .runs(run.clone(), |state| state & IS_SAVED)
            .into_iter()
            .filter(|part| self.blocks.states[part.start] & IS_SAVED == 0)
            .collect();
        for part in &unsaved {
            self.save_run(part)?;
        }
        release(&mut self.memory[bytes_of(run)])?;
        self.blocks.in_memory -= run.len() as u16;
        self.blocks.states[run.clone()].fill(SPILLED | HAS_PLACE);
        Ok(())
    }
}
