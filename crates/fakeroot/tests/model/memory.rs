//! Words of a session in a model checker: the table's own source runs on them.
//!
//! Words that threads share are the checker's atomics, and every order in which their loads and stores may take
//! effect is gone through. The thousands of other words (slots that nobody searches) are plain.
//!
//! A thread can be killed: from some write on, none of its writes takes effect, and its lock is given up as the
//! kernel does it. And the rules can be broken on purpose, to see that the checker finds it.

use kilnyard_fakeroot::shared::layout::{self, Hash};
use kilnyard_fakeroot::shared::memory::{Full, Memory};
use kilnyard_fakeroot::shared::table::Key;
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicU64, fence};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::{self, Relaxed};

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// None is.
    None,
    /// The generation is not looked at again after the read.
    NoSecondLook,
    /// A generation is stored without what was written before.
    RelaxedBirth,
    /// A generation is loaded without what was written before it.
    RelaxedLook,
    /// The reader's fence between the words and the second look is not there.
    NoReaderFence,
    /// The writer's fence between a death and what is written into the node is not there.
    NoWriterFence,
    /// A new level is stored without what was written into it.
    RelaxedLevel,
    /// The level is not looked at again after a miss.
    NoSecondLevel,
    /// The file that gets an inode again is written over the old one, in its life.
    NoNewLife,
}

/// A word that threads share.
struct Shared {
    value: AtomicU64,
    /// Touched by a reader before it loads the word, and by a writer before it stores it. The checker keeps the last
    /// access of a word only: a load by its writer would hide that of a reader, and the order in which the
    /// store comes first would not be gone through.
    touched: AtomicU64,
}

impl Shared {
    fn new(value: u64) -> Shared {
        Shared { value: AtomicU64::new(value), touched: AtomicU64::new(0) }
    }

    fn touch(&self) {
        // It orders nothing else.
        self.touched.fetch_add(0, Relaxed);
    }
}

/// What all threads share.
pub struct Words {
    shared: BTreeMap<usize, Shared>,
    plain: std::sync::Mutex<BTreeMap<usize, u64>>,
    /// One: the keys of a model are of one stripe.
    lock: Mutex<()>,
    flaw: Flaw,
}

impl Words {
    /// Words of zeros but for these, of which those are shared that matter for the keys.
    pub fn new(keys: &[Key], levels: &[usize], set: &[(usize, u64)], flaw: Flaw) -> Arc<Words> {
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
    /// Whether it only reads.
    is_reader: bool,
    /// How many writes this thread lives on; `None` for ever.
    writes_left: Cell<Option<usize>>,
    /// What the first look at a word, with its order, has found.
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

    /// A thread that is killed after so many writes.
    pub fn killed_after(words: &Arc<Words>, writes: usize) -> View {
        View { writes_left: Cell::new(Some(writes)), ..View::new(words) }
    }

    /// Whether this thread was killed.
    pub fn is_dead(&self) -> bool {
        self.writes_left.get() == Some(0)
    }

    /// Whether a write of this thread still takes effect.
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

    /// The second look, if that is what is left out.
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
