//! The table's source in a model checker (loom): every interleaving of a reader with writers, with a bounded number of
//! preemptions, and every value that the memory model lets a load have.
//!
//! Each property is checked as the table is, with a writer that is killed after each of its writes, and with
//! a rule broken, which must be found.
//!
//! Known downside: the checker does not know loads that take effect after later stores, and takes the lock for
//! one of its own.

mod memory;

use kilnyard_fakeroot::shared::layout::{self, Hash};
use kilnyard_fakeroot::shared::memory::Memory;
use kilnyard_fakeroot::shared::ownership::{self, Change as LastChange};
use kilnyard_fakeroot::shared::table::{Change, Entry, Key, Table};
use loom::model::Builder;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use memory::{Flaw, View, Words};
use std::sync::Arc;

/// Preemptions of a run: each broken rule below is found with one or two, and a third takes hours.
const PREEMPTIONS_MAX: usize = 2;
/// Steps of one run; a loop that waits for somebody would go beyond it.
const STEPS_MAX: usize = 20_000;

/// Writes of a change of the table, and some more: a killed writer is killed after each of them.
const WRITES_MAX: usize = 20;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.max_branches = STEPS_MAX;
    builder.check(model);
}

/// Whether the checker finds something wrong.
fn is_found(model: impl Fn() + Sync + Send + 'static) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(model))).is_err()
}

/// Inodes of one stripe.
fn keys() -> [Key; 2] {
    let key = |inode| Key { device: 1, inode };
    let stripe = |inode| Hash::of(1, inode).stripe();
    let other = (2..).find(|inode| stripe(*inode) == stripe(1)).unwrap();
    [key(1), key(other)]
}

/// An entry whose words all say the same number.
fn entry(number: u32) -> Entry {
    let change = LastChange(number);
    Entry {
        user: number,
        group: number,
        mode: number,
        number,
        birth: number.into(),
        change,
        ..Entry::default()
    }
}

/// What is shown of a file with this number is what was last written of it, or nothing.
fn is_sure_look_whole(table: &Table<View>, key: Key, number: u32) -> bool {
    let look = table.trace(key).and_then(|trace| table.sure_look(trace, number, LastChange(number)));
    look.is_none_or(|look| look == ownership::view(&entry(number)))
}

fn is_whole(entry: &Entry) -> bool {
    entry.user == entry.group
        && entry.user == entry.mode
        && entry.mode == entry.number
        && entry.birth == entry.user.into()
}

fn put(table: &Table<View>, key: Key, number: u32) {
    table.change(key, |_| Change::Put(entry(number))).unwrap();
}

fn remove(table: &Table<View>, key: Key) {
    table.change(key, |_| Change::Remove).unwrap();
}

fn words(flaw: Flaw) -> Arc<Words> {
    Words::new(&keys(), &[0], &[(layout::HEADER_NODES_READY, layout::NODES_NEAR as u64)], flaw)
}

/// What is being inserted is there as a whole or not at all, and once somebody was told of it, it is there.
fn inserting(flaw: Flaw, kill: Option<usize>) {
    let [key, _] = keys();
    let words = words(flaw);
    let told = Arc::new(AtomicU64::new(0));
    let writer = {
        let (words, told) = (words.clone(), told.clone());
        thread::spawn(move || {
            let view = kill.map_or_else(|| View::new(&words), |writes| View::killed_after(&words, writes));
            let table = Table::new(view);
            put(&table, key, 1);
            if !table.memory().is_dead() {
                told.store(1, Ordering::Release);
            }
        })
    };
    let table = Table::new(View::reader(&words));
    let is_told = told.load(Ordering::Acquire) == 1;
    let found = table.find(key);
    assert!(found.is_none_or(|found| found == entry(1)), "{found:?}");
    assert!(!is_told || found.is_some(), "it was told and is not there");
    writer.join().unwrap();
    let table = Table::new(View::new(&words));
    // Whoever comes after a killed one can write.
    put(&table, key, 2);
    assert_eq!(table.find(key), Some(entry(2)));
}

/// A node that is given to another inode shows nobody the other one's words.
fn reusing_a_node(flaw: Flaw, kill: Option<usize>) {
    let [key, other] = keys();
    let words = words(flaw);
    put(&Table::new(View::new(&words)), key, 1);
    let writer = {
        let words = words.clone();
        thread::spawn(move || {
            let view = kill.map_or_else(|| View::new(&words), |writes| View::killed_after(&words, writes));
            let table = Table::new(view);
            remove(&table, key);
            put(&table, other, 2);
        })
    };
    let table = Table::new(View::reader(&words));
    let found = table.find(key);
    assert!(found.is_none_or(|found| found == entry(1)), "{found:?}");
    let found = table.find(other);
    assert!(found.is_none_or(|found| found == entry(2)), "{found:?}");
    writer.join().unwrap();
    let table = Table::new(View::new(&words));
    put(&table, other, 3);
    assert_eq!(table.find(other), Some(entry(3)));
}

/// An inode that is used again is the old file or the new one, or unknown in between; never half of each.
fn reusing_an_inode(flaw: Flaw, kill: Option<usize>) {
    let [key, _] = keys();
    let words = words(flaw);
    put(&Table::new(View::new(&words)), key, 1);
    let writer = {
        let words = words.clone();
        thread::spawn(move || {
            let view = kill.map_or_else(|| View::new(&words), |writes| View::killed_after(&words, writes));
            put(&Table::new(view), key, 2);
        })
    };
    let table = Table::new(View::reader(&words));
    let found = table.find(key);
    assert!(found.is_none_or(|found| is_whole(&found)), "{found:?}");
    assert!(is_sure_look_whole(&table, key, 1), "words of two files");
    writer.join().unwrap();
    let table = Table::new(View::new(&words));
    put(&table, key, 3);
    assert_eq!(table.find(key), Some(entry(3)));
}

/// What is there is found while its part of the index is replaced and the old one is given back.
fn growing(flaw: Flaw, kill: Option<usize>) {
    /// The first level whose parts are whole pages, which are given back.
    const LEVEL: usize = 3;
    let [key, other] = keys();
    let stripe = Hash::of(key.device, key.inode).stripe();
    let full = layout::part_slots(LEVEL) / 4 * 3;
    let set = [
        (layout::HEADER_NODES_READY, layout::NODES_NEAR as u64),
        (layout::stripe(stripe, layout::STRIPE_LEVEL), LEVEL as u64),
    ];
    let words = Words::new(&keys(), &[LEVEL, LEVEL + 1], &set, flaw);
    let first = Table::new(View::new(&words));
    put(&first, key, 1);
    first.memory().store(layout::stripe(stripe, layout::STRIPE_USED), full as u64, Ordering::Relaxed);
    let writer = {
        let words = words.clone();
        thread::spawn(move || {
            let view = kill.map_or_else(|| View::new(&words), |writes| View::killed_after(&words, writes));
            put(&Table::new(view), other, 2);
        })
    };
    let table = Table::new(View::reader(&words));
    assert_eq!(table.find(key), Some(entry(1)));
    writer.join().unwrap();
    let table = Table::new(View::new(&words));
    assert_eq!(table.find(key), Some(entry(1)));
    put(&table, other, 3);
    assert_eq!(table.find(other), Some(entry(3)));
}

type Model = fn(Flaw, Option<usize>);

fn holds(model: Model) {
    check(move || model(Flaw::None, None));
}

fn holds_with_kills(model: Model) {
    for writes in 0..WRITES_MAX {
        check(move || model(Flaw::None, Some(writes)));
    }
}

#[test]
fn an_entry_is_inserted_as_a_whole() {
    holds(inserting);
    holds_with_kills(inserting);
}

#[test]
fn a_node_is_reused() {
    holds(reusing_a_node);
    holds_with_kills(reusing_a_node);
}

#[test]
fn an_inode_is_reused() {
    holds(reusing_an_inode);
    holds_with_kills(reusing_an_inode);
}

#[test]
fn a_part_is_replaced() {
    holds(growing);
}

#[test]
fn a_part_is_replaced_by_one_that_is_killed() {
    for writes in 0..WRITES_MAX {
        check(move || growing(Flaw::None, Some(writes)));
    }
}

/// The checker can fail: each rule that is broken is found by one of the models.
#[test]
fn every_broken_rule_is_found() {
    let broken: [(Flaw, Model); 8] = [
        (Flaw::NoSecondLook, reusing_a_node),
        (Flaw::RelaxedBirth, reusing_an_inode),
        (Flaw::RelaxedLook, reusing_an_inode),
        (Flaw::NoReaderFence, reusing_a_node),
        (Flaw::NoWriterFence, reusing_a_node),
        (Flaw::RelaxedLevel, growing),
        (Flaw::NoSecondLevel, growing),
        (Flaw::NoNewLife, reusing_an_inode),
    ];
    for (flaw, model) in broken {
        assert!(is_found(move || model(flaw, None)), "{flaw:?} is not found");
    }
}
