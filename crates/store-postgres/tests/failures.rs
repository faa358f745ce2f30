//! A server that ends, answers that are lost, and stores that this program must not use.

mod rows;
mod server;

use kilnyard_model::reason::Reason;
use kilnyard_model::result::PackageState;
use kilnyard_store::{Holder, PackageRow, RequestKind, Store, StoreError};
use kilnyard_store_postgres::{Address, Postgres};
use rows::{began, open, run_row, target};
use server::Server;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Passes bytes to a server's socket and back.
struct Relay {
    /// Cut the connection after the next commit has reached the server, before its answer.
    cuts: Arc<AtomicBool>,
    url: String,
    _folder: tempfile::TempDir,
}

impl Relay {
    fn start(server: &Server, database: &str) -> Relay {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
        let (cuts, socket) = (Arc::new(AtomicBool::new(false)), server.socket());
        let place = folder.path().display().to_string().replace('/', "%2F");
        let relay =
            Relay { cuts: cuts.clone(), url: format!("postgres://kiln@{place}/{database}"), _folder: folder };
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = UnixStream::connect(&socket) else { continue };
                let is_cut = Arc::new(AtomicBool::new(false));
                let (from, to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let (answers, cuts) = (is_cut.clone(), cuts.clone());
                std::thread::spawn(move || pass(from, to, |_| answers.load(Ordering::Relaxed)));
                std::thread::spawn(move || {
                    pass(client, server, |bytes| {
                        let commits = bytes.windows(6).any(|word| word == b"COMMIT");
                        if commits && cuts.swap(false, Ordering::Relaxed) {
                            is_cut.store(true, Ordering::Relaxed);
                        }
                        false
                    });
                });
            }
        });
        relay
    }
}

/// Passes bytes on until one side ends, or `ends` says so of what would be passed next.
fn pass(mut from: UnixStream, mut to: UnixStream, ends: impl Fn(&[u8]) -> bool) {
    let mut buffer = [0; 4096];
    while let Ok(count) = from.read(&mut buffer) {
        if count == 0 || ends(&buffer[..count]) || to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(std::net::Shutdown::Both), to.shutdown(std::net::Shutdown::Both));
}

#[test]
fn a_decision_whose_answer_is_lost_is_written_once() {
    let server = Server::start().unwrap();
    server.database("lost").unwrap();
    let relay = Relay::start(&server, "lost");
    let mut store = open(&Address::parse(&relay.url, None, None).unwrap());
    store.lead(&Holder::named("test")).unwrap();
    let run = store.begin_run(&run_row(), &[]).unwrap();
    for number in 1..=5 {
        relay.cuts.store(true, Ordering::Relaxed);
        store.record(&[began(run, number)]).unwrap();
        assert!(!relay.cuts.load(Ordering::Relaxed), "no answer was lost");
    }
    relay.cuts.store(true, Ordering::Relaxed);
    assert_eq!(store.begin_run(&run_row(), &[]).unwrap(), run + 1);
    assert_eq!(store.builds_in(run).unwrap().len(), 5);
    let events = store.events_since(0, 100).unwrap();
    let numbers: Vec<u64> = events.iter().map(|event| event.seq).collect();
    // Each run begins with a number of its own partition.
    let (first, second) = (numbers[0], numbers[6]);
    assert_eq!(numbers[..6], (first..first + 6).collect::<Vec<_>>());
    assert!(second > first + 6 && numbers.len() == 7, "{numbers:?}");
    server.end();
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_is_written_twice_while_the_server_ends_and_starts() {
    let server = Server::start().unwrap();
    let address = server.database("ends").unwrap();
    let mut store = open(&address);
    store.lead(&Holder::named("test")).unwrap();
    let package = PackageRow {
        name: "a".to_owned(),
        version: String::new(),
        state: PackageState::Waiting,
        reason: Reason::FirstBuild,
        blamed: None,
        estimate_seconds: 1.0,
        rank_seconds: 1.0,
    };
    let run = store.begin_run(&run_row(), &[package]).unwrap();
    let (written, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let number = written.load(Ordering::Relaxed) + 1;
                store.record(&[began(run, number)]).unwrap();
                written.store(number, Ordering::Relaxed);
            }
        });
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(300));
            server.end();
            let before = written.load(Ordering::Relaxed);
            server.begin().unwrap();
            let mut waits = 0;
            while written.load(Ordering::Relaxed) <= before + 1 {
                waits += 1;
                assert!(waits < 1000, "it does not continue");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    // A connection of before, and a new one.
    let count = written.load(Ordering::Relaxed);
    for reader in [&store, &open(&address)] {
        let builds = reader.builds_in(run).unwrap();
        assert_eq!(builds.len() as u64, count);
        let first = reader.events_since(0, 1).unwrap()[0].seq;
        assert_eq!(reader.last_event().unwrap(), first + count);
    }
    server.end();
}

#[test]
fn another_leader_fences_a_store_that_is_connected_again() {
    let server = Server::start().unwrap();
    let address = server.database("fenced").unwrap();
    let (mut one, mut two) = (open(&address), open(&address));
    one.lead(&Holder::named("test")).unwrap();
    let run = one.begin_run(&run_row(), &[]).unwrap();
    server.end();
    server.begin().unwrap();
    two.lead(&Holder::named("test")).unwrap();
    let refused = one.record(&[began(run, 1)]).unwrap_err();
    assert!(matches!(refused, StoreError::Fenced { own: 1, latest: 2, .. }), "{refused}");
    two.record(&[began(run, 1)]).unwrap();
    two.check().unwrap();
    // Requests need no leader.
    one.request(RequestKind::Retry, "a", "ann", 1.0).unwrap();
    assert_eq!(two.take_requests().unwrap().len(), 1);
    server.end();
}

#[test]
fn an_unreachable_database_is_named_without_its_password() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display().to_string().replace('/', "%2F");
    let url = format!("postgres://kiln:secret@{place}/farm");
    let error = Postgres::open(&Address::parse(&url, None, None).unwrap(), &target()).unwrap_err();
    let said = error.to_string();
    assert!(matches!(error, StoreError::Busy { .. }), "{error:?}");
    assert!(said.contains("No such file") && !said.contains("secret"), "{said}");
}

#[test]
fn a_store_of_a_later_format_is_not_written() {
    let server = Server::start().unwrap();
    let address = server.database("later").unwrap();
    drop(open(&address));
    server.query("later", "UPDATE kilnyard.store SET format = 7, oldest_writer = 5").unwrap();
    let error = Postgres::open(&address, &target()).unwrap_err();
    assert!(matches!(error, StoreError::TooNew { found: 7, oldest: 5, .. }), "{error}");
    // One whose later steps only added something is.
    server.query("later", "UPDATE kilnyard.store SET oldest_writer = 1").unwrap();
    open(&address).lead(&Holder::named("test")).unwrap();
    server.end();
}

#[test]
fn passwords_and_roles_are_the_databases() {
    let server = Server::start().unwrap();
    server.database("roles").unwrap();
    drop(open(&Address::parse(&server.url("roles"), None, None).unwrap()));
    server.query("roles", "CREATE ROLE reader LOGIN").unwrap();
    let url = server.url("roles").replace("kiln@", "reader@");
    let error = Postgres::open(&Address::parse(&url, None, None).unwrap(), &target()).unwrap_err();
    assert!(error.to_string().contains("permission denied"), "{error}");
    assert!(Path::new(&server.socket()).exists());
    server.end();
}

#[test]
fn what_is_wrong_in_a_store_is_found() {
    let server = Server::start().unwrap();
    let address = server.database("wrong").unwrap();
    let mut store = open(&address);
    store.lead(&Holder::named("test")).unwrap();
    let run = store.begin_run(&run_row(), &[]).unwrap();
    store.record(&[began(run, 1)]).unwrap();
    store.check().unwrap();
    for (damage, words) in [
        ("UPDATE kilnyard.store SET builds = 0", "builds with numbers"),
        ("DELETE FROM kilnyard.run", "a run that is missing"),
        ("INSERT INTO kilnyard.stage VALUES (7, 0, '')", "a build that is missing"),
    ] {
        server.query("wrong", &format!("BEGIN; {damage}; COMMIT")).unwrap();
        let error = store.check().unwrap_err();
        assert!(matches!(&error, StoreError::Damaged { reason, .. } if reason.contains(words)), "{error}");
        server
            .query("wrong", "UPDATE kilnyard.store SET builds = 9, runs = 9; DELETE FROM kilnyard.stage")
            .unwrap();
        if damage.starts_with("DELETE") {
            server.query("wrong", "DELETE FROM kilnyard.build").unwrap();
        }
    }
    server.end();
}
