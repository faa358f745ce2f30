//! The table's source in a model checker (loom): every interleaving of a reader with writers, with a bounded number
//! of preemptions, and every value that the memory model allows a load to return.
//!
//! Each property is checked for the table as it is, with a writer that is killed after each of its writes, and with
//! a rule broken, which must be detected.
//!
//! Known downside: the checker does not model loads that take effect after later stores, and replaces the lock with
//! its own.

mod memory;

use kilnyard_fakeroot::shared::layout::{self, Hash};
use kilnyard_fakeroot::shared::memory::Memory;
use kilnyard_fakeroot::shared::ownership::{self, Change as LastChange};
use kilnyard_fakeroot::shared::table::{Change, Entry, FileId, Table};
use loom::model::Builder;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use memory::{Flaw, View, Words};
use std::sync::Arc;

/// Maximum number of preemptions in a run: one or two detect each broken rule below, and a third takes hours.
const PREEMPTIONS_MAX: usize = 2;
/// Maximum number of steps in a run; a loop that waits for another thread would exceed it.
const STEPS_MAX: usize = 20_000;

/// At least the number of writes in a change of the table: a killed writer is killed after each of them.
const WRITES_MAX: usize = 20;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.max_branches = STEPS_MAX;
    builder.check(model);
}

/// Whether the checker detects a violation.
fn is_detected(model: impl Fn() + Sync + Send + 'static) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(model))).is_err()
}

/// Two inodes of one stripe.
fn keys() -> [FileId; 2] {
    let key = |inode| FileId { device: 1, inode };
    let stripe = |inode| Hash::of(1, inode).stripe();
    let other = (2..).find(|inode| stripe(*inode) == stripe(1)).unwrap();
    [key(1), key(other)]
}

/// An entry whose words all contain the same number.
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

/// Whether the look of a file with this number is the one last written for it, or absent.
fn is_sure_look_whole(table: &Table<View>, key: FileId, number: u32) -> bool {
    let look = table.trace(key).and_then(|trace| table.certain_view(trace, number, LastChange(number)));
    look.is_none_or(|look| look == ownership::view(&entry(number)))
}

fn is_whole(entry: &Entry) -> bool {
    entry.user == entry.group
        && entry.user == entry.mode
        && entry.mode == entry.number
        && entry.birth == entry.user.into()
}

fn put(table: &Table<View>, key: FileId, number: u32) {
    table.change(key, |_| Change::Put(entry(number))).unwrap();
}

fn remove(table: &Table<View>, key: FileId) {
    table.change(key, |_| Change::Remove).unwrap();
}

fn words(flaw: Flaw) -> Arc<Words> {
    Words::new(&keys(), &[0], &[(layout::HEADER_NODES_READY, layout::NODES_NEAR as u64)], flaw)
}

/// An entry that is being inserted is visible as a whole or not at all, and is visible once the insertion was
/// announced.
fn inserting(flaw: Flaw, kill: Option<usize>) {
    let [key, _] = keys();
    let words = words(flaw);
    let announced = Arc::new(AtomicU64::new(0));
    let writer = {
        let (words, announced) = (words.clone(), announced.clone());
        thread::spawn(move || {
            let view = kill.map_or_else(|| View::new(&words), |writes| View::killed_after(&words, writes));
            let table = Table::new(view);
            put(&table, key, 1);
            if !table.memory().is_dead() {
                announced.store(1, Ordering::Release);
            }
        })
    };
    let table = Table::new(View::reader(&words));
    let was_announced = announced.load(Ordering::Acquire) == 1;
    let found = table.find(key);
    assert!(found.is_none_or(|found| found == entry(1)), "{found:?}");
    assert!(!was_announced || found.is_some(), "announced, but not found");
    writer.join().unwrap();
    let table = Table::new(View::new(&words));
    // A writer that follows a killed one can write.
    put(&table, key, 2);
    assert_eq!(table.find(key), Some(entry(2)));
}

/// If a node is reused for another inode, a reader sees no words of the other one.
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

/// A reused inode is the old file or the new one, or unknown in between; never a mix of both.
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

/// An entry is found while its part of the index is replaced and the old part is released.
fn growing(flaw: Flaw, kill: Option<usize>) {
    /// The first level whose parts are whole pages, which are released.
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
fn a_part_is_replaced_by_a_killed_writer() {
    for writes in 0..WRITES_MAX {
        check(move || growing(Flaw::None, Some(writes)));
    }
}

/// Shows that the checker can fail: one of the models detects each broken rule.
#[test]
fn every_broken_rule_is_detected() {
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
        assert!(is_detected(move || model(flaw, None)), "{flaw:?} is not detected");
    }
}
