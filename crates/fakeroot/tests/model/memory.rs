//! The words of a session in a model checker, for the table's own source.
//!
//! Words that threads share are the checker's atomics, and every order in which their loads and stores may take
//! effect is explored. The thousands of other words (slots that no search reaches) are plain.
//!
//! A thread can be killed: from some write on, none of its writes takes effect, and its lock is released as the
//! kernel does it. Rules can also be broken on purpose, to verify that the checker detects it.

use kilnyard_fakeroot::shared::layout::{self, Hash};
use kilnyard_fakeroot::shared::memory::{Full, Memory};
use kilnyard_fakeroot::shared::table::FileId;
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicU64, fence};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::{self, Relaxed};

/// A broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// No rule is broken.
    None,
    /// The generation is not checked again after the read.
    NoSecondLook,
    /// A generation is stored without release ordering for the earlier writes.
    RelaxedBirth,
    /// A generation is loaded without acquire ordering for the writes before it.
    RelaxedLook,
    /// The reader's fence between the words and the second check is missing.
    NoReaderFence,
    /// The writer's fence between a death and the writes to the node is missing.
    NoWriterFence,
    /// A new level is stored without release ordering for its content.
    RelaxedLevel,
    /// The level is not checked again after a miss.
    NoSecondLevel,
    /// A file that reuses an inode overwrites the old entry without starting another life.
    NoNewLife,
}

/// A word that threads share.
struct Shared {
    value: AtomicU64,
    /// Touched by a reader before it loads the word, and by a writer before it stores it. The checker only keeps
    /// the last access of a word: without this, a load by the word's writer would hide that of a reader, and the
    /// order in which the store comes first would not be explored.
    touched: AtomicU64,
}

impl Shared {
    fn new(value: u64) -> Shared {
        Shared { value: AtomicU64::new(value), touched: AtomicU64::new(0) }
    }

    fn touch(&self) {
        // Relaxed, so that it orders nothing else.
        self.touched.fetch_add(0, Relaxed);
    }
}

/// The words of all threads.
pub struct Words {
    shared: BTreeMap<usize, Shared>,
    plain: std::sync::Mutex<BTreeMap<usize, u64>>,
    /// One lock is enough, because the keys of a model are in one stripe.
    lock: Mutex<()>,
    flaw: Flaw,
}

impl Words {
    /// Zeroed words except for those in `set`. The words that matter for the keys are shared.
    pub fn new(keys: &[FileId], levels: &[usize], set: &[(usize, u64)], flaw: Flaw) -> Arc<Words> {
        let mut shared = vec![layout::HEADER_EVER, layout::HEADER_NODES, layout::HEADER_NODES_READY];
        for key in keys {
            let hash = Hash::of(key.device, key.inode);
            let stripe = layout::stripe(hash.stripe(), 0);
            shared.extend([stripe + layout::STRIPE_LEVEL, stripe + layout::STRIPE_FREE, hash.filter().0]);
            for level in levels {
                let (part, slots) = (layout::part_at(*level, hash.stripe()), layout::part_slots(*level));
                shared.extend((0..2).map(|step| part + ((hash.slot(slots) + step) & (slots - 1))));
            }
        }
        for node in 0..keys.len() as u64 {
            shared.extend((0..layout::NODE_WORDS).map(|field| layout::node(node, field)));
        }
        let set: BTreeMap<usize, u64> = set.iter().copied().collect();
        let initial = |word: &usize| set.get(word).copied().unwrap_or(0);
        let shared = shared.into_iter().map(|word| (word, Shared::new(initial(&word)))).collect();
        Arc::new(Words { shared, plain: std::sync::Mutex::new(set), lock: Mutex::new(()), flaw })
    }
}

/// The words as one thread sees them.
pub struct View {
    words: Arc<Words>,
    /// Whether the thread only reads.
    is_reader: bool,
    /// How many more writes of this thread take effect; `None` for all.
    writes_left: Cell<Option<usize>>,
    /// The values that the first ordered load of each word returned.
    first_looks: RefCell<BTreeMap<usize, u64>>,
}

impl View {
    pub fn new(words: &Arc<Words>) -> View {
        let (writes_left, first_looks) = (Cell::new(None), RefCell::default());
        View { words: words.clone(), is_reader: false, writes_left, first_looks }
    }

    /// A thread that only reads.
    pub fn reader(words: &Arc<Words>) -> View {
        View { is_reader: true, ..View::new(words) }
    }

    /// A thread that is killed after this many writes.
    pub fn killed_after(words: &Arc<Words>, writes: usize) -> View {
        View { writes_left: Cell::new(Some(writes)), ..View::new(words) }
    }

    /// Whether this thread was killed.
    pub fn is_dead(&self) -> bool {
        self.writes_left.get() == Some(0)
    }

    /// Whether the next write of this thread takes effect; counts it.
    fn lives(&self) -> bool {
        match self.writes_left.get() {
            None => true,
            Some(0) => false,
            Some(left) => {
                self.writes_left.set(Some(left - 1));
                true
            }
        }
    }

    fn is_generation(word: usize) -> bool {
        (layout::NODES_AT..layout::WINDOW_WORDS).contains(&word)
            && (word - layout::NODES_AT) % layout::NODE_WORDS == layout::NODE_GENERATION
    }

    fn is_level(word: usize) -> bool {
        (layout::STRIPES_AT..layout::FILTER_AT).contains(&word)
            && word % layout::STRIPE_WORDS == layout::stripe(0, layout::STRIPE_LEVEL) % layout::STRIPE_WORDS
    }

    /// The first value again, if the flaw omits the second check.
    fn look_again(&self, word: usize, order: Ordering) -> Option<u64> {
        let is_left_out = match self.words.flaw {
            Flaw::NoSecondLook => View::is_generation(word),
            Flaw::NoSecondLevel => View::is_level(word),
            _ => false,
        };
        (is_left_out && order == Relaxed).then(|| self.first_looks.borrow().get(&word).copied()).flatten()
    }

    fn plain(&self, word: usize, change: impl FnOnce(u64) -> u64) -> u64 {
        let mut plain = self.words.plain.lock().unwrap();
        let value = plain.entry(word).or_insert(0);
        let before = *value;
        *value = change(before);
        before
    }
}

impl Memory for View {
    fn load(&self, word: usize, order: Ordering) -> u64 {
        let Some(shared) = self.words.shared.get(&word) else { return self.plain(word, |value| value) };
        if let Some(value) = self.look_again(word, order) {
            return value;
        }
        let is_weak = self.words.flaw == Flaw::RelaxedLook && View::is_generation(word);
        if self.is_reader {
            shared.touch();
        }
        let value = shared.value.load(if is_weak { Relaxed } else { order });
        if order != Relaxed {
            self.first_looks.borrow_mut().insert(word, value);
        }
        value
    }

    fn store(&self, word: usize, value: u64, order: Ordering) {
        if self.words.flaw == Flaw::NoNewLife && View::is_generation(word) && value != 1 {
            return;
        }
        if !self.lives() {
            return;
        }
        let Some(shared) = self.words.shared.get(&word) else {
            self.plain(word, |_| value);
            return;
        };
        let is_weak = match self.words.flaw {
            Flaw::RelaxedBirth => View::is_generation(word),
            Flaw::RelaxedLevel => View::is_level(word),
            _ => false,
        };
        shared.touch();
        shared.value.store(value, if is_weak { Relaxed } else { order });
    }

    fn add(&self, word: usize, value: u64) -> u64 {
        match self.words.shared.get(&word) {
            _ if !self.lives() => 0,
            Some(shared) => {
                shared.touch();
                shared.value.fetch_add(value, Ordering::AcqRel)
            }
            None => self.plain(word, |before| before + value),
        }
    }

    fn set_bits(&self, word: usize, bits: u64, order: Ordering) {
        match self.words.shared.get(&word) {
            _ if !self.lives() => {}
            Some(shared) => {
                shared.touch();
                shared.value.fetch_or(bits, order);
            }
            None => drop(self.plain(word, |before| before | bits)),
        }
    }

    fn raise(&self, word: usize, value: u64) {
        if self.lives() {
            self.plain(word, |before| before.max(value));
        }
    }

    fn fence(&self, order: Ordering) {
        let is_left_out = match self.words.flaw {
            Flaw::NoReaderFence => order == Ordering::Acquire,
            Flaw::NoWriterFence => order == Ordering::Release,
            _ => false,
        };
        if !is_left_out {
            fence(order);
        }
    }

    fn reserve(&self, _: usize, _: usize) -> Result<(), Full> {
        Ok(())
    }

    fn release(&self, word: usize, words: usize) {
        if self.lives() {
            self.words.plain.lock().unwrap().retain(|at, _| !(word..word + words).contains(at));
            for (_, shared) in self.words.shared.range(word..word + words) {
                shared.touch();
                shared.value.store(0, Relaxed);
            }
        }
    }

    fn locked<R>(&self, _: usize, work: impl FnOnce() -> R) -> Option<R> {
        let _held = self.words.lock.lock().unwrap();
        Some(work())
    }
}
