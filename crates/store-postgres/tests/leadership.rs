//! Who leads: takeovers, replicas that take the place of the server, and servers that are killed.

mod rows;
mod server;

use kilnyard_store::{Holder, RENEW_SECONDS, SILENT_SECONDS_MAX, Store, StoreError};
use kilnyard_store_postgres::{Address, Documents};
use rows::{began, open, run_row};
use server::Server;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn a_leader_is_replaced_only_when_it_is_silent() {
    let server = Server::start().unwrap();
    let address = server.database("silent").unwrap();
    let (one, two) = (Holder::named("one"), Holder::named("two"));
    let (mut leading, mut waiting) = (open(&address), open(&address));
    assert_eq!(waiting.leader().unwrap(), None);
    leading.lead(&one).unwrap();
    let refused = waiting.lead(&two).unwrap_err();
    assert!(matches!(&refused, StoreError::Led { holder, .. } if *holder == one), "{refused:?}");
    assert!(refused.to_string().contains("one leads"), "{refused}");
    let seen = waiting.leader().unwrap().unwrap();
    assert_eq!((seen.epoch, &seen.holder, seen.has_left), (1, &one, false));
    // Another process in the same folder has its lock, so the first one is gone.
    let mut again = open(&address);
    assert_eq!(again.lead(&one).unwrap().epoch, 2);
    assert!(matches!(leading.renew().unwrap_err(), StoreError::Fenced { own: 1, latest: 2, .. }));

    // It stays the leader while it shows itself.
    let end = Instant::now() + Duration::from_secs_f64(SILENT_SECONDS_MAX + 2.0);
    while Instant::now() < end {
        std::thread::sleep(Duration::from_secs_f64(RENEW_SECONDS));
        again.renew().unwrap();
        assert!(matches!(waiting.lead(&two).unwrap_err(), StoreError::Led { .. }));
    }
    // A write shows it as well.
    let run = again.begin_run(&run_row(), &[]).unwrap();
    let silent_seconds = waiting.leader().unwrap().unwrap().silent_seconds;
    assert!((0.0..5.0).contains(&silent_seconds), "{silent_seconds}");
    // Then it is silent.
    let began_at = Instant::now();
    let lead = loop {
        match waiting.lead(&two) {
            Ok(lead) => break lead,
            Err(StoreError::Led { .. }) => std::thread::sleep(Duration::from_millis(100)),
            Err(error) => panic!("{error}"),
        }
    };
    assert!(began_at.elapsed().as_secs_f64() > SILENT_SECONDS_MAX - 5.0);
    assert_eq!(lead.epoch, 3);
    let late = again.record(&[began(run, 1)]).unwrap_err();
    assert!(matches!(late, StoreError::Fenced { own: 2, latest: 3, .. }), "{late:?}");
    waiting.record(&[began(run, 1)]).unwrap();
    server.end();
}

#[test]
fn one_of_many_becomes_the_leader() {
    let server = Server::start().unwrap();
    let address = server.database("many").unwrap();
    open(&address);
    let won: Vec<bool> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..12)
            .map(|number| {
                let address = &address;
                scope.spawn(move || open(address).lead(&Holder::named(&format!("holder {number}"))).is_ok())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(won.iter().filter(|won| **won).count(), 1, "{won:?}");
    server.end();
}

/// The states of a leader whose server's place a replica takes. Whether the replica lacks the last records depends on
/// `is_cut`.
fn a_replica_takes_the_place(is_cut: bool) {
    let server = Server::start().unwrap();
    let address = server.database("farm").unwrap();
    let one = Holder::named("one");
    let mut store = open(&address);
    store.lead(&one).unwrap();
    let run = store.begin_run(&run_row(), &[]).unwrap();
    let replica = server.replica().unwrap();
    let both = format!(
        "postgres://kiln@{},{}/farm?target_session_attrs=read-write",
        server.socket().parent().unwrap().display().to_string().replace('/', "%2F"),
        replica.socket().parent().unwrap().display().to_string().replace('/', "%2F"),
    );
    let mut store = open(&Address::parse(&both, None, None).unwrap());
    let lead = store.lead(&one).unwrap();
    if !is_cut {
        server.query("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'").unwrap();
        server.query("postgres", "SELECT pg_reload_conf()").unwrap();
    }
    store.record(&[began(run, 1)]).unwrap();
    let copy = Address::parse(&replica.url("farm"), None, None).unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while replica.query("farm", "SELECT 1 / count(*) FROM kilnyard.build").is_err() {
        assert!(Instant::now() < end, "the replica does not receive anything");
        std::thread::sleep(Duration::from_millis(50));
    }
    if is_cut {
        // From here on, the replica receives nothing.
        replica.query("postgres", "ALTER SYSTEM SET primary_conninfo = ''").unwrap();
        replica.query("postgres", "SELECT pg_reload_conf()").unwrap();
        std::thread::sleep(Duration::from_secs(1));
    }
    store.record(&[began(run, 2)]).unwrap();
    if is_cut {
        store.lead(&one).unwrap();
        store.record(&[began(run, 3)]).unwrap();
    }
    server.kill().unwrap();
    replica.promote().unwrap();
    // Nothing is written before the state is read again.
    let refused = store.record(&[began(run, 4)]).unwrap_err();
    assert!(matches!(refused, StoreError::Replaced { .. }), "{refused:?}");
    let again = store.lead(&one).unwrap();
    assert!(again.epoch > lead.epoch + 1_000_000, "{again:?} {lead:?}");
    assert!(again.next_build > 4, "a number is used twice");
    let there: Vec<u64> = store.builds_in(run).unwrap().iter().map(|build| build.number).collect();
    assert_eq!(there, if is_cut { vec![1] } else { vec![1, 2] });
    store.record(&[began(run, again.next_build)]).unwrap();
    // Later leads of the same server count on.
    assert_eq!(store.lead(&one).unwrap().epoch, again.epoch + 1);
    // A leader of before, and one that waits, know which one is later.
    let mut other = open(&copy);
    assert!(matches!(other.lead(&Holder::named("two")).unwrap_err(), StoreError::Led { .. }));
    replica.end();
}

#[test]
fn nothing_is_lost_when_a_synchronous_replica_takes_the_place() {
    a_replica_takes_the_place(false);
}

#[test]
fn lost_records_are_noticed_when_an_asynchronous_replica_takes_the_place() {
    a_replica_takes_the_place(true);
}

#[test]
fn a_killed_server_loses_no_decision() {
    let server = Server::start().unwrap();
    let address = server.database("killed").unwrap();
    let mut store = open(&address);
    store.lead(&Holder::named("one")).unwrap();
    let run = store.begin_run(&run_row(), &[]).unwrap();
    let stops = AtomicBool::new(false);
    let stop = StopLater(&stops);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut number = 0;
            while !stops.load(Ordering::Relaxed) {
                number += 1;
                store.record(&[began(run, number)]).unwrap();
            }
            number
        });
        let _stop = stop;
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(400));
            server.kill().unwrap();
            server.begin().unwrap();
            std::thread::sleep(Duration::from_millis(400));
        }
        stops.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    let there: Vec<u64> = open(&address).builds_in(run).unwrap().iter().map(|build| build.number).collect();
    assert_eq!(there, (1..=written).collect::<Vec<_>>());
    assert!(written > 10, "{written}");
    server.end();
}

/// Ends the writer even if the test fails.
struct StopLater<'a>(&'a AtomicBool);

impl Drop for StopLater<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn documents_are_replaced_only_by_others() {
    let server = Server::start().unwrap();
    let address = server.database("documents").unwrap();
    let (one, two) = (Documents::open(&address).unwrap(), Documents::open(&address).unwrap());
    assert_eq!((one.documents().unwrap(), one.document("a").unwrap().is_none()), (Vec::new(), true));
    assert_eq!(one.save_document("a", b"text\0").unwrap(), 1);
    assert_eq!(two.save_document("a", b"text\0").unwrap(), 1);
    assert_eq!(two.save_document("a", b"other").unwrap(), 2);
    assert_eq!(one.save_document("b", b"").unwrap(), 1);
    assert_eq!(one.documents().unwrap(), [("a".to_owned(), 2), ("b".to_owned(), 1)]);
    let found = one.document("a").unwrap().unwrap();
    assert_eq!((found.version, found.content), (2, b"other".to_vec()));
    assert_eq!(one.claim_document("c", b"one").unwrap(), b"one");
    assert_eq!(two.claim_document("c", b"two").unwrap(), b"one");
    one.remove_document("c").unwrap();
    one.remove_document("a").unwrap();
    two.remove_document("a").unwrap();
    assert_eq!(one.documents().unwrap(), [("b".to_owned(), 1)]);
    server.end();
}
