//! The partitions of events: what a store of an earlier format had, slow readers, and the number of partitions.

mod rows;
mod server;

use kilnyard_store::{EVENT_RUNS_MAX, EventKind, Holder, Record, RequestKind, RunState, Store};
use kilnyard_store_postgres::Postgres;
use rows::{began, open, run_row};
use server::Server;
use std::sync::mpsc::channel;

/// More events than any of these tests writes.
const ALL: usize = 10_000;

/// The tables of a store of format 2.
const FORMAT_2: [&str; 2] =
    [include_str!("../src/postgres/schema.sql"), include_str!("../src/postgres/leader.sql")];

fn leading(store: &mut Postgres) {
    store.lead(&Holder::named("test")).unwrap();
}

/// A run of one build, which ends.
fn run(store: &mut Postgres) -> u64 {
    let run = store.begin_run(&run_row(), &[]).unwrap();
    let build = store.next_build().unwrap();
    let ended = Record::Run { run, state: RunState::Finished, at_seconds: 2.0 };
    store.record(&[began(run, build), ended]).unwrap();
    run
}

/// The runs that have events, ascending.
fn runs_with_events(store: &Postgres) -> Vec<u64> {
    let mut runs: Vec<u64> =
        store.events_since(0, ALL).unwrap().iter().filter_map(|event| event.ids.run).collect();
    runs.dedup();
    runs
}

fn partitions(server: &Server, database: &str) -> Vec<String> {
    let names = "SELECT relname FROM pg_class JOIN pg_inherits ON inhrelid = pg_class.oid
                 WHERE inhparent = 'kilnyard.event'::regclass ORDER BY length(relname), relname";
    server.answer(database, names).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn each_run_has_a_partition_and_old_ones_are_dropped() {
    let server = Server::start().unwrap();
    let mut store = open(&server.database("each").unwrap());
    leading(&mut store);
    store.request(RequestKind::Retry, "a", "ann", 1.0).unwrap();
    let first = run(&mut store);
    assert_eq!(partitions(&server, "each"), ["event_0", "event_1"]);
    // A transaction that is rolled back leaves no partition.
    store.record(&[began(first, 1)]).unwrap_err();
    for _ in 0..EVENT_RUNS_MAX + 4 {
        run(&mut store);
    }
    let latest = EVENT_RUNS_MAX + 5;
    assert_eq!(runs_with_events(&store), (latest - EVENT_RUNS_MAX + 1..=latest).collect::<Vec<_>>());
    let left = partitions(&server, "each");
    assert_eq!(left.len() as u64, EVENT_RUNS_MAX + 1, "{left:?}");
    assert_eq!((left[1].as_str(), left.last().unwrap().as_str()), ("event_6", "event_15"));
    // A resumed run is in the latest partition, and a run that never ends has one, too.
    let begun = store.begin_run(&run_row(), &[]).unwrap();
    let resumed = [
        Record::Run { run: latest, state: RunState::Running, at_seconds: 3.0 },
        Record::Run { run: latest, state: RunState::Finished, at_seconds: 4.0 },
    ];
    store.record(&resumed).unwrap();
    assert!(runs_with_events(&store).ends_with(&[latest, begun, latest]));
    store.check().unwrap();
    // A reader that follows needs the last partition only, and its index.
    let since = format!(
        "SET enable_seqscan = off; EXPLAIN SELECT * FROM kilnyard.event WHERE seq > {} ORDER BY seq LIMIT 9",
        store.last_event().unwrap() - 2
    );
    let plan = server.answer("each", &since).unwrap();
    assert!(plan.contains("Index Scan using event_16_pkey") && !plan.contains("event_15"), "{plan}");
    server.end();
}

#[test]
fn the_number_of_partitions_is_bounded_without_ends_of_runs() {
    let server = Server::start().unwrap();
    let mut store = open(&server.database("bounded").unwrap());
    leading(&mut store);
    for _ in 0..110 {
        store.begin_run(&run_row(), &[]).unwrap();
    }
    assert_eq!(partitions(&server, "bounded").len(), 100);
    assert_eq!(runs_with_events(&store).len(), 110);
    let last = run(&mut store);
    assert_eq!(runs_with_events(&store), (last - EVENT_RUNS_MAX + 1..=last).collect::<Vec<_>>());
    // The last one is shared by the latest runs.
    assert_eq!(partitions(&server, "bounded"), ["event_0", "event_99"]);
    run(&mut store);
    assert_eq!(partitions(&server, "bounded"), ["event_0", "event_99", "event_100"]);
    server.end();
}

#[test]
fn a_slow_reader_does_not_stop_a_run() {
    let server = Server::start().unwrap();
    let address = server.database("slow").unwrap();
    let mut store = open(&address);
    leading(&mut store);
    for _ in 0..EVENT_RUNS_MAX {
        run(&mut store);
    }
    std::thread::scope(|scope| {
        let (reads, is_read) = channel();
        let (may_end, ends) = channel::<()>();
        let other = &address;
        let reader = scope.spawn(move || {
            let reader: Box<dyn Store> = Box::new(open(other));
            let seen = reader.at_once(|store| {
                let before = store.events_since(0, ALL).unwrap();
                reads.send(()).unwrap();
                // Its transaction lasts as long as these runs.
                let _ = ends.recv();
                (before, store.events_since(0, ALL).unwrap())
            });
            seen.unwrap()
        });
        is_read.recv().unwrap();
        for _ in 0..3 {
            run(&mut store);
        }
        let kept: Vec<u64> = (4..=EVENT_RUNS_MAX + 3).collect();
        assert_eq!(runs_with_events(&store), kept, "they are removed row by row");
        assert_eq!(runs_with_events(&open(&address)), kept, "other readers do not wait");
        assert!(partitions(&server, "slow").contains(&"event_1".to_owned()));
        may_end.send(()).unwrap();
        let (before, after) = reader.join().unwrap();
        assert_eq!(before, after, "the snapshot changed");
    });
    run(&mut store);
    assert_eq!(partitions(&server, "slow")[..2], ["event_0", "event_5"]);
    server.end();
}

/// Makes a store as a program of format 2 did, with these events.
fn store_of_format_2(server: &Server, database: &str, events: u64) {
    let first = "INSERT INTO kilnyard.store
                   (only_row, farm, yard, format, oldest_writer, epoch, builds, runs, events, batch)
                 SELECT 1, repeat('a', 32), repeat('b', 32), 2, 1, 3, 0, 1, 0, ''";
    let scope = "INSERT INTO kilnyard.scope (farm, yard, target)
                 VALUES (repeat('a', 32), repeat('b', 32), 'any/linux/one/amd64')";
    let run = "INSERT INTO kilnyard.run VALUES (1, 1, 1, NULL, 'running', 'd', 2, 2, 1, 1)";
    for statement in FORMAT_2.into_iter().chain([first, scope, run]) {
        server.query(database, statement).unwrap();
    }
    server.query(database, &written_by_format_2(1, events)).unwrap();
}

/// The statements of a program of format 2 that writes these events, of which the first begins run 1.
fn written_by_format_2(first: u64, last: u64) -> String {
    format!(
        "INSERT INTO kilnyard.event (seq, epoch, type, version, scope, run, package, build, at, body)
         SELECT seq, 3, CASE WHEN seq = 1 THEN 'run-began' ELSE 'run-ended' END, 1, 1, 1, NULL, NULL, 1.0,
                CASE WHEN seq = 1 THEN '{{\"is_resumed\":false}}' ELSE '{{\"state\":\"interrupted\"}}' END
         FROM generate_series({first}, {last}) AS seq;
         UPDATE kilnyard.store SET events = {last}"
    )
}

#[test]
fn a_store_of_an_earlier_format_keeps_its_events_and_its_programs() {
    let server = Server::start().unwrap();
    let address = server.database("earlier").unwrap();
    store_of_format_2(&server, "earlier", 5);
    let mut store = open(&address);
    let head = "SELECT format, oldest_writer, events FROM kilnyard.store";
    assert_eq!(server.answer("earlier", head).unwrap(), "4|1|5");
    let events = store.events_since(0, ALL).unwrap();
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert!(matches!(events[0].kind, EventKind::RunBegan { is_resumed: false, .. }));
    // A program of format 2 that was running continues: before a run of this one, and in it.
    server.query("earlier", &written_by_format_2(6, 7)).unwrap();
    leading(&mut store);
    let second = store.begin_run(&run_row(), &[]).unwrap();
    let last = store.last_event().unwrap();
    server.query("earlier", &written_by_format_2(last + 1, last + 2)).unwrap();
    assert_eq!(runs_with_events(&store), [1, second, 1]);
    assert_eq!(partitions(&server, "earlier"), ["event_0", "event_1"]);
    // It removes old events row by row, and so does this one where they share a partition with others.
    let old = "DELETE FROM kilnyard.event WHERE seq < (
                 SELECT min(seq) FROM kilnyard.event
                 WHERE type = 'run-began' AND run > (SELECT max(number) FROM kilnyard.run) - 1)";
    server.query("earlier", old).unwrap();
    assert_eq!(store.events_since(0, ALL).unwrap().len(), 3);
    for _ in 0..EVENT_RUNS_MAX {
        run(&mut store);
    }
    assert_eq!(runs_with_events(&store), (3..EVENT_RUNS_MAX + 3).collect::<Vec<_>>());
    store.check().unwrap();
    server.end();
}

#[test]
fn a_store_of_an_earlier_format_is_migrated_once_by_many() {
    let server = Server::start().unwrap();
    let address = server.database("many").unwrap();
    store_of_format_2(&server, "many", 1000);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| assert_eq!(open(&address).events_since(0, ALL).unwrap().len(), 1000));
        }
    });
    assert_eq!(partitions(&server, "many"), ["event_0"]);
    server.end();
}
