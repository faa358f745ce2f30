//! The session file in a process's memory.
//!
//! A program that only reads maps nothing itself: the dynamic linker has mapped the first window with the library,
//! privately and for reading. On Linux, such a mapping shows what other processes write to the file as long as nothing
//! is written through the mapping, because both use the pages of the file. mmap(2) leaves this open, so the launcher
//! tests it, and records the path in the header if it works. The first change maps the window again, shared, over the
//! same address, where other threads may read at the same time: the kernel replaces a mapping in one step.
//!
//! Regions that grow are mapped when first used, by opening the file again by its name: a descriptor kept open
//! would be closed by programs that close all descriptors they do not know. Mappings stay until the process ends.

use super::kernel::{self, File, Open};
use super::layout::{self, FILE_AT, WINDOW_BYTES, WORD_BYTES};
use super::lock;
use super::memory::{Full, Memory};
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// Space for the first window in the library: the dynamic linker maps this part of the file. It is never written
/// through.
#[derive(Debug)]
pub struct Room([AtomicU64; layout::WINDOW_WORDS]);

impl Room {
    /// The content until the library is in a session's file.
    pub const fn empty() -> Room {
        Room([const { AtomicU64::new(0) }; layout::WINDOW_WORDS])
    }

    fn address(&'static self) -> usize {
        self.0.as_ptr().expose_provenance()
    }

    /// The path of the session that is mapped here; `None` if there is no session.
    fn path(&'static self) -> Option<&'static CStr> {
        if self.0[layout::HEADER_MAGIC].load(Ordering::Acquire) != layout::MAGIC {
            return None;
        }
        let at = &self.0[layout::HEADER_PATH];
        // SAFETY: the launcher writes the path once, NUL-terminated, before any program sees it.
        Some(unsafe { CStr::from_ptr(at.as_ptr().cast_const().cast()) })
    }
}

/// The memory of a session.
#[derive(Debug)]
pub struct Mapping {
    regions: [AtomicUsize; layout::REGIONS],
    path: AtomicPtr<c_char>,
    /// Whether the first window is mapped such that other processes see changes to it.
    is_shared: AtomicBool,
    /// Whether a failure to map it so was reported.
    is_reported: AtomicBool,
}

impl Mapping {
    /// A mapping without a session.
    pub const fn closed() -> Mapping {
        Mapping {
            regions: [const { AtomicUsize::new(0) }; layout::REGIONS],
            path: AtomicPtr::new(core::ptr::null_mut()),
            is_shared: AtomicBool::new(false),
            is_reported: AtomicBool::new(false),
        }
    }

    /// Opens a session and maps the first window at any address. The path must stay valid as long as the mapping.
    /// Several threads may call this at once.
    pub fn open(&self, path: &'static CStr) -> Result<(), i32> {
        self.open_with(path, |file| file.map(FILE_AT, WINDOW_BYTES))
    }

    /// Opens the session of this path where the dynamic linker has mapped it; `false` if no session or another one
    /// is mapped.
    pub fn open_in_place(&self, path: &CStr, room: &'static Room) -> bool {
        let Some(own) = room.path().filter(|own| *own == path) else { return false };
        self.path.store(own.as_ptr().cast_mut(), Ordering::Release);
        self.regions[0].store(room.address(), Ordering::Release);
        true
    }

    /// Opens a session with the first window at this address, replacing the current content.
    ///
    /// # Safety
    /// The room must be used by this mapping alone.
    pub unsafe fn open_over(&self, path: &'static CStr, room: &'static Room) -> Result<(), i32> {
        // SAFETY: the caller's guarantee; a second thread maps the same file.
        self.open_with(path, |file| unsafe { file.map_over(room.address(), FILE_AT, WINDOW_BYTES) })
    }

    fn open_with(
        &self,
        path: &'static CStr,
        map: impl FnOnce(&File) -> Result<usize, i32>,
    ) -> Result<(), i32> {
        const NOT_A_SESSION: i32 = 22;
        let file = File::open(path, Open::Change)?;
        let mut magic = [0; WORD_BYTES];
        if file.read_at(&mut magic, FILE_AT)? != WORD_BYTES || u64::from_ne_bytes(magic) != layout::MAGIC {
            return Err(NOT_A_SESSION);
        }
        self.path.store(path.as_ptr().cast_mut(), Ordering::Release);
        let address = map(&file)?;
        self.settle(0, address, WINDOW_BYTES);
        self.is_shared.store(true, Ordering::Release);
        Ok(())
    }

    /// Maps the first window such that other processes see changes to it, which the dynamic linker's mapping does
    /// not provide. `false` if the session's file no longer exists, or cannot be written to.
    #[cold]
    fn share(&self) -> bool {
        let place = self.regions[0].load(Ordering::Acquire);
        // SAFETY: the room is used by this mapping alone; a reader there sees the same content before and after.
        let map = |file: File| unsafe { file.map_over(place, FILE_AT, WINDOW_BYTES) };
        let is_shared = place != 0 && File::open(self.path(), Open::Change).and_then(map).is_ok();
        if is_shared {
            self.is_shared.store(true, Ordering::Release);
        } else if place != 0 && !self.is_reported.swap(true, Ordering::Relaxed) {
            kernel::complain(b"fakeroot: the session cannot be changed: its file can no longer be opened\n");
        }
        is_shared
    }

    /// Maps for writing now what the first change would otherwise open by its name.
    pub fn prepare(&self) {
        if !self.is_shared.load(Ordering::Acquire) {
            self.share();
        }
    }

    /// The session's path; empty without a session.
    pub fn path(&self) -> &'static CStr {
        let path = self.path.load(Ordering::Acquire);
        // SAFETY: `open` was given a string that stays valid.
        if path.is_null() { c"" } else { unsafe { CStr::from_ptr(path) } }
    }

    /// The permanent address of a region: where the first thread mapped it.
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

    /// The position of words in the file; `None` if it has no room for them.
    fn offset_bytes(&self, word: usize, words: usize) -> Option<usize> {
        let nearer = self.load(layout::HEADER_NEARER, Ordering::Relaxed) as u32;
        layout::place(word, words, nearer.min(layout::NEARER_MAX)).map(|place| FILE_AT + place * WORD_BYTES)
    }

    fn file(&self) -> Option<File> {
        File::open(self.path(), Open::Change).ok()
    }

    /// A word for a change.
    fn word_to_change(&self, word: usize) -> Option<&AtomicU64> {
        if word < layout::WINDOW_WORDS && !self.is_shared.load(Ordering::Acquire) && !self.share() {
            return None;
        }
        self.word(word)
    }

    #[inline]
    fn word(&self, word: usize) -> Option<&AtomicU64> {
        // SAFETY: the address is mapped and never unmapped; words are aligned.
        self.address(word).map(|address| unsafe { &*(address as *const AtomicU64) })
    }

    /// The address of a word.
    #[inline]
    fn address(&self, word: usize) -> Option<usize> {
        let window = self.regions[0].load(Ordering::Acquire);
        if word >= layout::WINDOW_WORDS || window == 0 {
            return self.address_elsewhere(word);
        }
        Some(window + word * WORD_BYTES)
    }

    /// Not inlined, because a small library calls it in many places.
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
        // A region may extend past the end of the file: that part is never allocated or accessed.
        let bytes = words * WORD_BYTES;
        let address = self.file()?.map(self.offset_bytes(first, 0)?, bytes).ok()?;
        Some(self.settle(number, address, bytes))
    }
}

impl Memory for Mapping {
    #[inline]
    fn load(&self, word: usize, order: Ordering) -> u64 {
        self.word(word).map_or(0, |word| word.load(order))
    }

    /// Looks up the region once: a node is within one region.
    #[inline]
    fn load_node(&self, node: u64) -> impl Fn(usize, Ordering) -> u64 {
        let address = self.address(layout::node(node, 0));
        move |field, order| match address {
            Some(address) if field < layout::NODE_WORDS => {
                // SAFETY: regions are mapped as a whole and never unmapped, and this one contains all of the node.
                unsafe { &*((address + field * WORD_BYTES) as *const AtomicU64) }.load(order)
            }
            _ => 0,
        }
    }

    fn store(&self, word: usize, value: u64, order: Ordering) {
        if let Some(word) = self.word_to_change(word) {
            word.store(value, order);
        }
    }

    fn add(&self, word: usize, value: u64) -> u64 {
        self.word_to_change(word).map_or(u64::MAX, |word| word.fetch_add(value, Ordering::AcqRel))
    }

    fn set_bits(&self, word: usize, bits: u64, order: Ordering) {
        if let Some(word) = self.word_to_change(word) {
            word.fetch_or(bits, order);
        }
    }

    fn raise(&self, word: usize, value: u64) {
        if let Some(word) = self.word_to_change(word) {
            word.fetch_max(value, Ordering::AcqRel);
        }
    }

    fn fence(&self, order: Ordering) {
        fence(order);
    }

    fn reserve(&self, word: usize, words: usize) -> Result<(), Full> {
        let offset_bytes = self.offset_bytes(word, words).ok_or(Full)?;
        let file = self.file().ok_or(Full)?;
        file.allocate(offset_bytes, words * WORD_BYTES).map_err(|_| Full)?;
        self.word(word).and(self.word(word + words - 1)).map(drop).ok_or(Full)
    }

    fn release(&self, word: usize, words: usize) {
        if let (Some(file), Some(offset_bytes)) = (self.file(), self.offset_bytes(word, words)) {
            file.punch(offset_bytes, words * WORD_BYTES);
        }
    }

    fn locked<R>(&self, stripe: usize, work: impl FnOnce() -> R) -> Option<R> {
        let word = self.word_to_change(layout::stripe(stripe, layout::STRIPE_LOCK))?;
        // SAFETY: the lower half of an aligned word is an aligned half word; the word is never accessed as a whole.
        let lock = unsafe { &*(word.as_ptr() as *const AtomicU32) };
        Some(lock::with(lock, work))
    }
}
