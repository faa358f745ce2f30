//! The session file in a process's memory.
//!
//! The first window is mapped when a session is opened, in the preload library over a room that it has for it; regions
//! that grow are mapped when they are first used, by opening the file again by its name: a descriptor that is kept
//! would be closed by programs that close all they do not know. Mappings stay until the process ends.

use super::kernel::{self, File, Open};
use super::layout::{self, WORD_BYTES};
use super::lock;
use super::memory::{Full, Memory};
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// Bytes of the first window.
const WINDOW_BYTES: usize = layout::WINDOW_WORDS * WORD_BYTES;

/// Pages that a first window can be mapped over.
#[derive(Debug)]
pub struct Room([u8; WINDOW_BYTES]);

impl Room {
    /// One of zeros, which whoever has it as a static puts at the beginning of a page, with nothing else behind it.
    pub const fn of_zeros() -> Room {
        Room([0; WINDOW_BYTES])
    }

    fn address(&'static self) -> usize {
        self.0.as_ptr().expose_provenance()
    }
}

/// A session's memory.
#[derive(Debug)]
pub struct Mapping {
    regions: [AtomicUsize; layout::REGIONS],
    path: AtomicPtr<c_char>,
}

impl Mapping {
    /// No session yet.
    pub const fn closed() -> Mapping {
        Mapping {
            regions: [const { AtomicUsize::new(0) }; layout::REGIONS],
            path: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Opens a session. The path must stay where it is as long as the mapping. Several threads may do this
    /// at once. The first window goes where there is place.
    pub fn open(&self, path: &'static CStr) -> Result<(), i32> {
        self.open_with(path, |file| file.map(0, WINDOW_BYTES))
    }

    /// The same with the first window in a place of its own.
    ///
    /// # Safety
    /// The room is for this mapping alone.
    pub unsafe fn open_over(&self, path: &'static CStr, room: &'static Room) -> Result<(), i32> {
        // SAFETY: the caller's promise; who maps it a second time maps the same.
        self.open_with(path, |file| unsafe { file.map_over(room.address(), WINDOW_BYTES) })
    }

    fn open_with(
        &self,
        path: &'static CStr,
        map: impl FnOnce(&File) -> Result<usize, i32>,
    ) -> Result<(), i32> {
        const NOT_A_SESSION: i32 = 22;
        let file = File::open(path, Open::Change)?;
        let mut magic = [0; WORD_BYTES];
        if file.read_at(&mut magic, 0)? != WORD_BYTES || u64::from_ne_bytes(magic) != layout::MAGIC {
            return Err(NOT_A_SESSION);
        }
        self.path.store(path.as_ptr().cast_mut(), Ordering::Release);
        let address = map(&file)?;
        self.settle(0, address, WINDOW_BYTES);
        Ok(())
    }

    /// Where a region is from now on: where it was mapped first.
    fn settle(&self, number: usize, address: usize, bytes: usize) -> usize {
        let region = &self.regions[number];
        match region.compare_exchange(0, address, Ordering::AcqRel, Ordering::Acquire) {
            Err(others) if others != address => {
                kernel::unmap(address, bytes);
                others
            }
            _ => address,
        }
    }

    fn file(&self) -> Option<File> {
        let path = self.path.load(Ordering::Acquire);
        if path.is_null() {
            return None;
        }
        // SAFETY: `open` was given a string that stays.
        File::open(unsafe { CStr::from_ptr(path) }, Open::Change).ok()
    }

    #[inline]
    fn word(&self, word: usize) -> Option<&AtomicU64> {
        // SAFETY: what is there is mapped and never unmapped; words are aligned.
        self.address(word).map(|address| unsafe { &*(address as *const AtomicU64) })
    }

    /// Where a word is mapped.
    #[inline]
    fn address(&self, word: usize) -> Option<usize> {
        let window = self.regions[0].load(Ordering::Acquire);
        if word >= layout::WINDOW_WORDS || window == 0 {
            return self.address_elsewhere(word);
        }
        Some(window + word * WORD_BYTES)
    }

    /// Apart, as it is called in many places of a small library.
    #[inline(never)]
    fn address_elsewhere(&self, word: usize) -> Option<usize> {
        let (first, words, number) = layout::region(word);
        let mut address = self.regions[number].load(Ordering::Acquire);
        if address == 0 {
            address = self.map_late(first, words, number)?;
        }
        Some(address + (word - first) * WORD_BYTES)
    }

    #[cold]
    fn map_late(&self, first: usize, words: usize, number: usize) -> Option<usize> {
        let bytes = words * WORD_BYTES;
        let address = self.file()?.map(first * WORD_BYTES, bytes).ok()?;
        Some(self.settle(number, address, bytes))
    }
}

impl Memory for Mapping {
    #[inline]
    fn load(&self, word: usize, order: Ordering) -> u64 {
        self.word(word).map_or(0, |word| word.load(order))
    }

    /// The region is looked for once: a node lies in one.
    #[inline]
    fn load_node(&self, node: u64) -> impl Fn(usize, Ordering) -> u64 {
        let address = self.address(layout::node(node, 0));
        move |field, order| match address {
            Some(address) if field < layout::NODE_WORDS => {
                // SAFETY: regions are mapped as a whole and never unmapped, and this one has all of the node.
                unsafe { &*((address + field * WORD_BYTES) as *const AtomicU64) }.load(order)
            }
            _ => 0,
        }
    }

    #[inline]
    fn store(&self, word: usize, value: u64, order: Ordering) {
        if let Some(word) = self.word(word) {
            word.store(value, order);
        }
    }

    fn add(&self, word: usize, value: u64) -> u64 {
        self.word(word).map_or(u64::MAX, |word| word.fetch_add(value, Ordering::AcqRel))
    }

    fn set_bits(&self, word: usize, bits: u64, order: Ordering) {
        if let Some(word) = self.word(word) {
            word.fetch_or(bits, order);
        }
    }

    fn raise(&self, word: usize, value: u64) {
        if let Some(word) = self.word(word) {
            word.fetch_max(value, Ordering::AcqRel);
        }
    }

    fn fence(&self, order: Ordering) {
        fence(order);
    }

    fn reserve(&self, word: usize, words: usize) -> Result<(), Full> {
        let file = self.file().ok_or(Full)?;
        file.allocate(word * WORD_BYTES, words * WORD_BYTES).map_err(|_| Full)?;
        self.word(word).and(self.word(word + words - 1)).map(drop).ok_or(Full)
    }

    fn release(&self, word: usize, words: usize) {
        if let Some(file) = self.file() {
            file.punch(word * WORD_BYTES, words * WORD_BYTES);
        }
    }

    fn locked<R>(&self, stripe: usize, work: impl FnOnce() -> R) -> Option<R> {
        let word = self.word(layout::stripe(stripe, layout::STRIPE_LOCK))?;
        // SAFETY: the lower half of an aligned word is an aligned half word; nobody uses it as a whole.
        let lock = unsafe { &*(word.as_ptr() as *const AtomicU32) };
        Some(lock::with(lock, work))
    }
}
