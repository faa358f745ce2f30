//! Shells in roots that workers keep: a client in place of the worker's loop, and the yard's end of the socket.

use crate::support::{Served, refused};
use kilnyard_farm::client::Client;
use kilnyard_farm::relay::{self, First};
use kilnyard_farm::shell::{self, FromShell, ToShell};
use serde_json::json;
use std::io::Write;
use std::os::unix::net::UnixStream;

/// The yard's end of a new shell.
pub fn open(served: &Served, worker: &str) -> UnixStream {
    let mut stream = served.connect();
    let first = First::Shell { worker: worker.to_owned(), order: json!({ "package": "p" }) };
    relay::write(&mut stream, &first, b"").unwrap();
    stream
}

/// Why a shell ends.
fn reason(mut stream: UnixStream) -> String {
    match shell::read::<FromShell>(&mut stream).unwrap() {
        Some((FromShell::Failed { reason }, _)) => reason,
        other => panic!("{other:?}"),
    }
}

pub fn id_of_next(worker: &Client) -> String {
    let shell = worker.next_shell().unwrap().unwrap();
    assert_eq!(shell.order, json!({ "package": "p" }));
    shell.id
}

#[test]
fn a_shell_needs_a_connected_worker_that_begins_it() {
    let served = Served::new();
    assert_eq!(reason(open(&served, "one")), "there is no worker one");
    let one = served.joined("one");
    assert_eq!(reason(open(&served, "one")), "one is not connected");
    one.send(b"x".to_vec()).unwrap();
    let unanswered = open(&served, "one");
    // The answer may be lost, so that the same shell is offered again.
    assert_eq!(id_of_next(&one), id_of_next(&one));
    assert!(reason(unanswered).contains("earlier version"));
}

#[test]
fn input_and_output_pass_once_whatever_is_repeated() {
    let served = Served::new();
    let (one, two) = (served.joined("one"), served.joined("two"));
    for worker in [&one, &two] {
        worker.send(b"x".to_vec()).unwrap();
    }
    let mut yard = open(&served, "one");
    let id = id_of_next(&one);
    refused(two.shell_input(&id, 0).map(drop), "the shell is over");
    refused(two.shell_output(&id, 0, b"x"), "the shell is over");
    // Without a shell, the output is not kept.
    let large = vec![b'x'; (256 << 10) + 1];
    refused(two.shell_output(&id, 0, &large), "the shell is over");
    refused(one.shell_output(&id, 0, &large), "limit");
    let frame = relay::frame(&ToShell::Input, b"typed").unwrap();
    yard.write_all(&frame).unwrap();
    assert_eq!(one.shell_input(&id, 0).unwrap(), frame);
    assert_eq!(one.shell_input(&id, 0).unwrap(), frame);
    refused(one.shell_input(&id, frame.len() as u64 + 1).map(drop), "begins at 0");
    let rest = one.shell_input(&id, 3).unwrap();
    assert_eq!(rest, frame[3..]);
    refused(one.shell_input(&id, 0).map(drop), "begins at 3");
    let printed = [
        relay::frame(&FromShell::Output, b"printed").unwrap(),
        relay::frame(&FromShell::Exited { code: 7 }, b"").unwrap(),
    ]
    .concat();
    one.shell_output(&id, 0, &printed[..9]).unwrap();
    refused(one.shell_output(&id, 10, &printed[10..]), "9 bytes of the output have arrived");
    one.shell_output(&id, 0, &printed[..9]).unwrap();
    one.shell_output(&id, 4, &printed[4..]).unwrap();
    one.shell_output(&id, 0, &printed).unwrap();
    let mut read = || shell::read::<FromShell>(&mut yard).unwrap().unwrap();
    assert_eq!(read(), (FromShell::Output, b"printed".to_vec()));
    assert_eq!(read(), (FromShell::Exited { code: 7 }, Vec::new()));
    drop(yard);
    refused(one.shell_input(&id, frame.len() as u64).map(drop), "the shell is over");
    refused(one.shell_output(&id, printed.len() as u64, b"late"), "the shell is over");
}

#[test]
fn what_waits_is_bounded_and_nothing_of_it_is_lost() {
    let served = Served::new();
    let one = served.joined("one");
    one.send(b"x".to_vec()).unwrap();
    let mut yard = open(&served, "one");
    let id = id_of_next(&one);
    let typed: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    let typing = std::thread::spawn({
        let (mut yard, typed) = (yard.try_clone().unwrap(), typed.clone());
        move || yard.write_all(&typed).unwrap()
    });
    let mut arrived = Vec::new();
    while arrived.len() < typed.len() {
        let part = one.shell_input(&id, arrived.len() as u64).unwrap();
        assert!(part.len() <= 64 << 10);
        arrived.extend(part);
    }
    assert!(arrived == typed);
    typing.join().unwrap();
    // Output waits for the yard's end.
    let sending = std::thread::spawn({
        let typed = typed.clone();
        move || {
            let mut offset = 0;
            for part in typed.chunks(30_000) {
                let frame = relay::frame(&FromShell::Output, part).unwrap();
                assert!(one.shell_output(&id, offset, &frame).unwrap());
                offset += frame.len() as u64;
            }
            one
        }
    });
    let mut printed = Vec::new();
    while printed.len() < typed.len() {
        let (header, body) = shell::read::<FromShell>(&mut yard).unwrap().unwrap();
        assert_eq!(header, FromShell::Output);
        printed.extend(body);
    }
    assert!(printed == typed);
    let one = sending.join().unwrap();
    let more: Vec<UnixStream> = (0..7).map(|_| open(&served, "one")).collect();
    for _ in &more {
        id_of_next(&one);
    }
    assert_eq!(reason(open(&served, "one")), "one has 8 shells, the maximum");
}

#[test]
fn the_end_of_a_yard_whose_input_waits_ends_its_shell() {
    let served = Served::new();
    let one = served.joined("one");
    one.send(b"x".to_vec()).unwrap();
    let yard = open(&served, "one");
    let id = id_of_next(&one);
    let typing = std::thread::spawn({
        let mut yard = yard.try_clone().unwrap();
        move || yard.write_all(&vec![b'x'; 4 << 20])
    });
    // The command reads nothing, and its worker says only that it is alive.
    while one.shell_input(&id, 0).unwrap().len() < 64 << 10 {}
    yard.shutdown(std::net::Shutdown::Both).unwrap();
    typing.join().unwrap().unwrap_err();
    while one.shell_input(&id, 0).is_ok() {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    refused(one.shell_input(&id, 0).map(drop), "the shell is over");
}
