//! The table in a real session file, compared with a simple model, and with processes that are killed while they
//! write.

use kilnyard_fakeroot::Session;
use kilnyard_fakeroot::shared::mapping::Mapping;
use kilnyard_fakeroot::shared::ownership::{self, Change as LastChange, Unknown};
use kilnyard_fakeroot::shared::table::{Change, Entry, FileId, Table};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn session() -> Session {
    let folders = [PathBuf::from("/dev/shm"), std::env::temp_dir()];
    let [memory, disk] = folders.clone();
    Session::make(&folders, &[disk, memory], Unknown::Root).unwrap()
}

fn entry(number: u32) -> Entry {
    Entry { user: number, group: number, mode: number, number, ..Entry::default() }
}

fn put(table: &Table<Mapping>, key: FileId, number: u32) {
    table.change(key, |_| Change::Put(entry(number))).unwrap();
}

fn key(inode: u64) -> FileId {
    FileId { device: 0xfe01, inode }
}

#[derive(Clone, Debug)]
enum Step {
    Put(u64, u32),
    Remove(u64),
    Find(u64),
}

fn step() -> impl Strategy<Value = Step> {
    // Few inodes, so that the steps affect each other, and each inode is removed and inserted again.
    let inode = 0u64..400;
    prop_oneof![
        4 => (inode.clone(), any::<u32>()).prop_map(|(inode, number)| Step::Put(inode, number)),
        3 => inode.clone().prop_map(Step::Remove),
        2 => inode.prop_map(Step::Find),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_table_is_a_map(steps in proptest::collection::vec(step(), 1..4000)) {
        let session = session();
        let mut model = BTreeMap::new();
        for step in steps {
            match step {
                Step::Put(inode, number) => {
                    put(session.table(), key(inode), number);
                    model.insert(key(inode), entry(number));
                }
                Step::Remove(inode) => {
                    session.table().change(key(inode), |_| Change::Remove).unwrap();
                    model.remove(&key(inode));
                }
                Step::Find(inode) => {
                    prop_assert_eq!(session.table().find(key(inode)), model.get(&key(inode)).copied());
                }
            }
        }
        let mut found = BTreeMap::new();
        session.table().visit(|key, entry| {
            found.insert(key, entry);
        });
        prop_assert_eq!(found, model);
    }
}

proptest! {
    /// The fast path for the most frequent query agrees with the whole entry.
    #[test]
    fn a_sure_look_agrees_with_the_entry(
        entries in proptest::collection::vec((0u64..40, any::<u32>(), 0u32..3), 1..60),
        modes in proptest::collection::vec(any::<u32>(), 4),
    ) {
        let session = session();
        let table = session.table();
        for (inode, number, change) in entries {
            let entry = Entry { change: LastChange(change), ..entry(number) };
            table.change(key(inode), |_| Change::Put(entry)).unwrap();
        }
        for inode in 0..40 {
            let found = table.find(key(inode));
            for mode in modes.iter().copied().chain(found.map(|entry| entry.mode)) {
                for change in 0..3 {
                    let change = LastChange(change);
                    let sure = table.trace(key(inode)).and_then(|trace| table.certain_view(trace, mode, change));
                    let is_sure = |entry: &Entry| ownership::is_certainly_about(entry, mode, change);
                    prop_assert_eq!(sure, found.filter(is_sure).map(|entry| ownership::view(&entry)));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Each process has its own inodes, which share stripes, cache lines and free-node lists with those of all others.
    /// The entries that it finds in the meantime, and the final content, agree with its own steps.
    #[test]
    fn the_table_is_a_map_for_many_processes(
        all in proptest::collection::vec(proptest::collection::vec(step(), 1..1500), 8)
    ) {
        let session = session();
        let table = session.table();
        let processes = all.len() as u64;
        let mut expected = BTreeMap::new();
        let mut running = Vec::new();
        for (process, steps) in all.iter().enumerate() {
            let own = |inode: u64| key(inode * processes + process as u64);
            // The expected result of each step, computed before the fork: the child allocates no memory.
            let mut model = BTreeMap::new();
            let found: Vec<Option<Entry>> = steps
                .iter()
                .map(|step| match step {
                    Step::Put(inode, number) => {
                        model.insert(own(*inode), entry(*number));
                        None
                    }
                    Step::Remove(inode) => {
                        model.remove(&own(*inode));
                        None
                    }
                    Step::Find(inode) => model.get(&own(*inode)).copied(),
                })
                .collect();
            expected.extend(model);
            running.push(fork(|| {
                for (step, found) in steps.iter().zip(&found) {
                    let is_correct = match step {
                        Step::Put(inode, number) => {
                            table.change(own(*inode), |_| Change::Put(entry(*number))).is_ok()
                        }
                        Step::Remove(inode) => table.change(own(*inode), |_| Change::Remove).is_ok(),
                        Step::Find(inode) => table.find(own(*inode)) == *found,
                    };
                    if !is_correct {
                        // SAFETY: _exit has no preconditions.
                        unsafe { libc::_exit(1) };
                    }
                }
            }));
        }
        for process in running {
            let mut status = 0;
            // SAFETY: our own child.
            unsafe { libc::waitpid(process, &raw mut status, 0) };
            prop_assert_eq!(status, 0);
        }
        let mut there = BTreeMap::new();
        table.visit(|key, entry| {
            there.insert(key, entry);
        });
        prop_assert_eq!(there, expected);
    }
}

/// The bytes that a file occupies on the disk.
fn bytes_used(path: &Path) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(path).unwrap()) * 512
}

#[test]
fn fifty_thousand_entries_take_less_than_128_bytes_each() {
    const ENTRIES: u64 = 50_000;
    let session = session();
    for inode in 0..ENTRIES {
        put(session.table(), key(inode), inode as u32);
    }
    for inode in 0..ENTRIES {
        assert_eq!(session.table().find(key(inode)), Some(entry(inode as u32)));
    }
    let bytes = bytes_used(session.path());
    assert!(bytes < ENTRIES * 128, "{}", bytes / ENTRIES);
}

#[test]
fn removed_entries_are_reused() {
    let session = session();
    let round = |round: u64| {
        for inode in round * 1000..round * 1000 + 1000 {
            put(session.table(), key(inode), 1);
        }
        for inode in round * 1000..round * 1000 + 1000 {
            session.table().change(key(inode), |_| Change::Remove).unwrap();
        }
    };
    (0..20).for_each(round);
    let before = bytes_used(session.path());
    (20..200).for_each(round);
    // Freed nodes are reused within their stripes, which are not filled alike in each round.
    assert!(bytes_used(session.path()) < before * 2, "{} and {before}", bytes_used(session.path()));
}

/// Starts a process that works on the table until it is killed. It shares only the file with this process.
fn fork(work: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child makes only system calls, and never returns.
    let process = unsafe { libc::fork() };
    assert!(process >= 0);
    if process == 0 {
        work();
        // SAFETY: _exit has no preconditions.
        unsafe { libc::_exit(0) };
    }
    process
}

fn kill(process: libc::pid_t) {
    // SAFETY: our own child, for which no other thread waits.
    unsafe {
        libc::kill(process, libc::SIGKILL);
        libc::waitpid(process, std::ptr::null_mut(), 0);
    }
}

/// Writers are killed at random moments; readers continue and see no half-written values, and the entries of other
/// writers stay.
#[test]
fn a_thousand_killed_writers_do_no_harm() {
    const KILLS: u64 = 1000;
    const SHARED: u64 = 97;
    let session = session();
    let table = session.table();
    let mut kept = BTreeMap::new();
    let deadline = Instant::now() + Duration::from_secs(300);
    for round in 0..KILLS {
        let writer = fork(|| {
            for number in 0u32.. {
                let inode = u64::from(number) % SHARED;
                if number % 3 == 0 {
                    let _ = table.change(key(inode), |_| Change::Remove);
                } else {
                    put(table, key(inode), number);
                }
            }
        });
        // Kill the writer at a different point each time.
        let until = Instant::now() + Duration::from_micros(100 + round * 7919 % 900);
        while Instant::now() < until {
            for inode in 0..SHARED {
                if let Some(found) = table.find(key(inode)) {
                    assert_eq!((found.user, found.mode), (found.group, found.number));
                }
            }
        }
        kill(writer);
        assert!(Instant::now() < deadline, "kill {round}");
        // Each stripe can still be written to, including the one that the killed writer held.
        let inode = 1_000_000 + round;
        put(table, key(inode), round as u32);
        kept.insert(key(inode), entry(round as u32));
        for inode in 0..SHARED {
            table.change(key(inode), |_| Change::Keep).unwrap();
        }
    }
    for (key, entry) in kept {
        assert_eq!(table.find(key), Some(entry));
    }
}

/// Processes that write different inodes at the same time lose no entry.
#[test]
fn many_processes_write_at_once() {
    const PROCESSES: u64 = 16;
    const EACH: u64 = 3000;
    let session = session();
    let table = session.table();
    let processes: Vec<_> = (0..PROCESSES)
        .map(|process| {
            fork(|| {
                for number in 0..EACH {
                    put(table, key(number * PROCESSES + process), (number % 1000) as u32);
                    if number % 5 == 4 {
                        let _ = table.change(key((number - 2) * PROCESSES + process), |_| Change::Remove);
                    }
                }
            })
        })
        .collect();
    for process in processes {
        let mut status = 0;
        // SAFETY: our own child.
        unsafe { libc::waitpid(process, &raw mut status, 0) };
        assert_eq!(status, 0);
    }
    for inode in 0..PROCESSES * EACH {
        let number = inode / PROCESSES;
        let expected = (number % 5 != 2).then(|| entry((number % 1000) as u32));
        assert_eq!(table.find(key(inode)), expected, "{inode}");
    }
}
