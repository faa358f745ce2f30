//! The order of the table's reads and writes, under a model checker: every interleaving of a few threads, with every
//! value that the memory model lets a read return.
//!
//! The table is the real one; under it are the checker's words. Only those that a small table uses exist: the
//! others read as 0, as a fresh session's do.

use kilnyard_fakeroot::shared::layout;
use kilnyard_fakeroot::shared::memory::{Full, Memory};
use kilnyard_fakeroot::shared::table::{Change, Entry, Key, Table};
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;
use std::collections::BTreeMap;

struct Words {
    words: BTreeMap<usize, AtomicU64>,
    stripes: BTreeMap<usize, Mutex<()>>,
}

impl Words {
    /// The words that entries of these inodes use in a table with so many nodes.
    fn of(keys: &[Key], nodes: u64) -> Words {
        let mut words: Vec<usize> =
            vec![layout::HEADER_EVER, layout::HEADER_NODES, layout::HEADER_NODES_READY];
        let mut stripes = BTreeMap::new();
        for key in keys {
            let hash = layout::Hash::of(key.device, key.inode);
            let stripe = hash.stripe();
            stripes.insert(stripe, Mutex::new(()));
            words.extend(
                [layout::STRIPE_LEVEL, layout::STRIPE_USED, layout::STRIPE_FREE]
                    .map(|field| layout::stripe(stripe, field)),
            );
            words.push(hash.filter().0);
            let slots = layout::part_slots(0);
            // The slots of a search that meets one other entry, and what stands before and behind.
            for step in 0..3 {
                words.push(layout::part_at(0, stripe) + ((hash.slot(slots) + step) & (slots - 1)));
            }
        }
        for node in 0..nodes {
            words.extend((0..layout::NODE_WORDS).map(|field| layout::node(node, field)));
        }
        let words = words.into_iter().map(|word| (word, AtomicU64::new(0))).collect();
        let words = Words { words, stripes };
        words.store(layout::HEADER_NODES_READY, nodes, Ordering::Relaxed);
        words
    }
}

impl Memory for Words {
    fn load(&self, word: usize, order: Ordering) -> u64 {
        self.words.get(&word).map_or(0, |word| word.load(order))
    }

    fn store(&self, word: usize, value: u64, order: Ordering) {
        match self.words.get(&word) {
            Some(word) => word.store(value, order),
            None => assert_eq!(value, 0, "word {word} is not in this model"),
        }
    }

    fn add(&self, word: usize, value: u64) -> u64 {
        self.words[&word].fetch_add(value, Ordering::AcqRel)
    }

    fn set_bits(&self, word: usize, bits: u64, order: Ordering) {
        self.words[&word].fetch_or(bits, order);
    }

    fn raise(&self, word: usize, value: u64) {
        self.words[&word].fetch_max(value, Ordering::AcqRel);
    }

    fn fence(&self, order: Ordering) {
        fence(order);
    }

    fn reserve(&self, _: usize, _: usize) -> Result<(), Full> {
        Err(Full)
    }

    fn release(&self, _: usize, _: usize) {}

    fn locked<R>(&self, stripe: usize, work: impl FnOnce() -> R) -> Option<R> {
        let _held = self.stripes[&stripe].lock().unwrap();
        Some(work())
    }
}

const FIRST: Key = Key { device: 1, inode: 1 };

/// Another inode of the same stripe whose search begins at another slot.
fn second() -> Key {
    let of = |inode| layout::Hash::of(1, inode);
    let first = of(FIRST.inode);
    let is_other = |hash: layout::Hash| hash.stripe() == first.stripe() && hash.slot(64) != first.slot(64);
    Key { device: 1, inode: (2..).find(|inode| is_other(of(*inode))).unwrap() }
}

/// An entry whose words all tell the same number.
fn entry(number: u32) -> Entry {
    Entry {
        user: number,
        group: number,
        mode: number,
        number,
        birth: u64::from(number),
        links: u64::from(number),
        attributes: u64::from(number),
    }
}

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    // Every known bug of such structures shows with few switches of threads (CHESS, PLDI 2007); more take hours.
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

#[test]
fn what_was_put_is_seen_by_whoever_is_told() {
    check(3, || {
        let table = Arc::new(Table::new(Words::of(&[FIRST], 1)));
        let told = Arc::new(AtomicU64::new(0));
        let writer = {
            let (table, told) = (table.clone(), told.clone());
            thread::spawn(move || {
                table.change(FIRST, |_| Change::Put(entry(7))).unwrap();
                told.store(1, Ordering::Release);
            })
        };
        let is_told = told.load(Ordering::Acquire) == 1;
        match table.find(FIRST) {
            Some(found) => assert_eq!(found, entry(7)),
            None => assert!(!is_told),
        }
        writer.join().unwrap();
    });
}

#[test]
fn an_owner_is_one_of_those_that_were_given() {
    check(3, || {
        let table = Arc::new(Table::new(Words::of(&[FIRST], 1)));
        table.change(FIRST, |_| Change::Put(entry(1))).unwrap();
        let writer = {
            let table = table.clone();
            thread::spawn(move || table.change(FIRST, |_| Change::Put(entry(2))).unwrap())
        };
        let found = table.find(FIRST).unwrap();
        // User and group are one word, mode and number another.
        assert_eq!((found.user, found.mode), (found.group, found.number));
        // The mode is changed before the owner.
        assert!(found.user == 1 || found.mode == 2);
        writer.join().unwrap();
        assert_eq!(table.find(FIRST), Some(entry(2)));
    });
}

#[test]
fn a_node_that_is_used_again_never_shows_in_its_old_life() {
    check(3, || {
        let table = Arc::new(Table::new(Words::of(&[FIRST, second()], 1)));
        table.change(FIRST, |_| Change::Put(entry(1))).unwrap();
        let writer = {
            let table = table.clone();
            thread::spawn(move || {
                table.change(FIRST, |_| Change::Remove).unwrap();
                table.change(second(), |_| Change::Put(entry(2))).unwrap();
            })
        };
        assert!(table.find(FIRST).is_none_or(|found| found == entry(1)));
        assert!(table.find(second()).is_none_or(|found| found == entry(2)));
        writer.join().unwrap();
        assert_eq!((table.find(FIRST), table.find(second())), (None, Some(entry(2))));
    });
}

#[test]
fn two_writers_lose_nothing() {
    check(2, || {
        let table = Arc::new(Table::new(Words::of(&[FIRST, second()], 2)));
        let writers = [(FIRST, 1), (second(), 2)].map(|(key, number)| {
            let table = table.clone();
            thread::spawn(move || table.change(key, |_| Change::Put(entry(number))).unwrap())
        });
        for writer in writers {
            writer.join().unwrap();
        }
        assert_eq!((table.find(FIRST), table.find(second())), (Some(entry(1)), Some(entry(2))));
    });
}
