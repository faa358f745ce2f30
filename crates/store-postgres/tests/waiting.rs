//! Notifications of events, and what waits for them where they do not come.

mod rows;
mod server;

use kilnyard_model::sha256::Sha256Hex;
use kilnyard_store::{Holder, Record, RequestKind, RunState, Store};
use kilnyard_store_postgres::{Address, Postgres};
use rows::{began, open, run_row};
use server::Server;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tokio_postgres::{AsyncMessage, NoTls};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(3600);
/// The content of the last notification of a test. Those of a store have none.
const END: &str = "end";

fn leading(address: &Address) -> (Postgres, u64) {
    let mut store = open(address);
    store.lead(&Holder::named("test")).unwrap();
    let run = store.begin_run(&run_row(), &[]).unwrap();
    (store, run)
}

/// The channel of a schema, as other programs may find it.
fn channel_of(schema: &str) -> String {
    format!("kilnyard_{}", &Sha256Hex::of(schema.as_bytes()).as_str()[..32])
}

/// The notifications of a store from `listens` until one with the content [`END`].
fn notifications(url: &str, name: &str, decide: impl FnOnce()) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (heard, all) = channel();
    let client = runtime.block_on(async {
        let (client, mut connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(async move {
            while let Some(Ok(message)) =
                std::future::poll_fn(|context| connection.poll_message(context)).await
            {
                if let AsyncMessage::Notification(notification) = message {
                    let _ = heard.send(notification.payload().to_owned());
                }
            }
        });
        client.batch_execute(&format!("LISTEN {name}")).await.unwrap();
        client
    });
    decide();
    runtime.block_on(client.batch_execute(&format!("NOTIFY {name}, '{END}'"))).unwrap();
    std::iter::from_fn(|| Some(all.recv().unwrap())).take_while(|text| text != END).collect()
}

#[test]
fn a_batch_notifies_once_and_without_content() {
    let server = Server::start().unwrap();
    let hostile = "it's \"a\" schema; $$ \u{fc}";
    for schema in ["kilnyard", hostile] {
        let address = server.database(&format!("once {}", schema.len())).unwrap().with_schema(schema);
        let url = server.url(&format!("once {}", schema.len())).replace(' ', "%20");
        let (mut store, run) = leading(&address);
        let heard = notifications(&url, &channel_of(schema), || {
            let batch: Vec<Record> = (1..=50).map(|number| began(run, number)).collect();
            store.record(&batch).unwrap();
            store.request(RequestKind::Retry, "a", "ann", 1.0).unwrap();
            // None of these has events.
            store.record(&[began(run, 1)]).unwrap_err();
            store.record(&[]).unwrap();
            store.renew().unwrap();
            store.import_durations(&[("a".to_owned(), 1.0, 1.0)]).unwrap();
        });
        assert_eq!(heard, ["", ""]);
    }
    server.end();
}

/// Counts the events that a waiting reader finds, and reports each number.
fn follow(store: Postgres, until: u64) -> Receiver<u64> {
    let (reads, are_read) = channel();
    std::thread::spawn(move || {
        let mut seen = store.last_event().unwrap();
        reads.send(seen).unwrap();
        while seen < until {
            store.wait_for_events(seen, LONG).unwrap();
            seen = store.last_event().unwrap();
            reads.send(seen).unwrap();
        }
    });
    are_read
}

/// Decides, and waits until each decision was read.
fn decide(store: &mut Postgres, run: u64, count: u64, are_read: &Receiver<u64>) {
    for _ in 0..count {
        store.record(&[Record::Run { run, state: RunState::Running, at_seconds: 1.0 }]).unwrap();
        let last = store.last_event().unwrap();
        while are_read.recv().unwrap() < last {}
    }
}

#[test]
fn a_reader_whose_listening_connection_ends_finds_events() {
    let server = Server::start().unwrap();
    let address = server.database("ends").unwrap();
    let (mut store, run) = leading(&address);
    let first = store.last_event().unwrap();
    let are_read = follow(open(&address), first + 20);
    assert_eq!(are_read.recv().unwrap(), first);
    decide(&mut store, run, 10, &are_read);
    let end =
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'LISTEN kilnyard_%'";
    assert_eq!(server.answer("ends", end).unwrap(), "1", "nothing listens");
    decide(&mut store, run, 10, &are_read);
    server.end();
}

/// The socket of a server without notifications, as a pooler gives it that shares sessions between transactions.
fn without_notifications(server: &Server) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
    let socket = server.socket();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = UnixStream::connect(&socket) else { continue };
            let (mut to_server, mut from_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from_client, &mut to_server);
                to_server.shutdown(std::net::Shutdown::Both)
            });
            std::thread::spawn(move || {
                let _ = pass_without_notifications(&server, &client);
                client.shutdown(std::net::Shutdown::Both)
            });
        }
    });
    folder
}

/// Passes on messages, which have a letter and a length.
fn pass_without_notifications(mut from: &UnixStream, mut to: &UnixStream) -> std::io::Result<()> {
    loop {
        let mut head = [0; 5];
        from.read_exact(&mut head)?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let mut body = vec![0; length - 4];
        from.read_exact(&mut body)?;
        if head[0] != b'A' {
            to.write_all(&[&head[..], &body[..]].concat())?;
        }
    }
}

#[test]
fn a_reader_behind_a_pooler_finds_events() {
    let server = Server::start().unwrap();
    let address = server.database("pooled").unwrap();
    let pooler = without_notifications(&server);
    let place = pooler.path().display().to_string().replace('/', "%2F");
    let pooled = Address::parse(&format!("postgres://kiln@{place}/pooled"), None, None).unwrap();
    let (mut store, run) = leading(&address);
    let first = store.last_event().unwrap();
    let are_read = follow(open(&pooled), first + 10);
    assert_eq!(are_read.recv().unwrap(), first);
    decide(&mut store, run, 10, &are_read);
    server.end();
}
