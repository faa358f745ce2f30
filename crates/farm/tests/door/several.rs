//! A farm with several servers, of which one has the run.

use crate::support::{Served, message};
use kilnyard_farm::client::{Client, ClientError};
use kilnyard_farm::door::Elsewhere;
use kilnyard_farm::relay::{self, ToDoor};
use std::sync::Arc;
use std::time::Duration;

fn to(worker: &str) -> ToDoor {
    ToDoor { to: worker.to_owned(), ..ToDoor::default() }
}

/// A server with a worker, and another server that knows the worker.
fn two() -> (Served, Served, Client) {
    let one = Served::new();
    let client = one.joined("w");
    let two = one.another();
    let addresses = vec![one.url(), two.url()];
    one.control.set_addresses(addresses.clone());
    two.control.set_addresses(addresses);
    (one, two, client)
}

#[test]
fn a_worker_is_referred_to_the_server_that_has_the_run() {
    let (one, two, client) = two();
    let mut run = two.run();
    two.until_run(true);
    one.control.set_elsewhere(Some(Elsewhere { leader: Some(two.url()) }));
    // Joining is repeated there as well.
    client.join("x").unwrap();
    assert_eq!(client.addresses()[0], two.url());
    relay::write(&mut run, &to("w"), b"from two").unwrap();
    assert_eq!(message(&client), b"from two");
    assert_eq!(client.addresses(), [two.url(), one.url()]);
    // It stays there.
    relay::write(&mut run, &to("w"), b"again").unwrap();
    assert_eq!(message(&client), b"again");
    // One that waits is referred at once.
    let client = Arc::new(client);
    let waiting = std::thread::spawn({
        let client = client.clone();
        move || message(&client)
    });
    std::thread::sleep(Duration::from_millis(100));
    let mut run = one.run();
    one.until_run(true);
    one.control.set_elsewhere(None);
    two.control.set_elsewhere(Some(Elsewhere { leader: Some(one.url()) }));
    relay::write(&mut run, &to("w"), b"from one").unwrap();
    assert_eq!(waiting.join().unwrap(), b"from one");
    // Two servers that refer to each other make no circle.
    one.control.set_elsewhere(Some(Elsewhere { leader: Some(two.url()) }));
    let received = client.receive(true);
    assert!(matches!(&received, Err(ClientError::Elsewhere { .. })), "{received:?}");
    assert!(received.unwrap_err().is_passing());
    // A server that knows no leader, and one that is asked next.
    two.control.set_elsewhere(None);
    let mut run = two.run();
    two.until_run(true);
    one.control.set_elsewhere(Some(Elsewhere { leader: None }));
    relay::write(&mut run, &to("w"), b"found").unwrap();
    assert_eq!(message(&client), b"found");
}

#[test]
fn a_run_that_reads_nothing_holds_no_worker_once_another_server_has_the_run() {
    let one = Served::new();
    let client = one.joined("w");
    let _run = one.run();
    one.until_run(true);
    let (sent, sending) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // Random, so that nothing is compressed.
        let message: Vec<u8> =
            (0_u32..1 << 18).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        while sent.send(client.send(message.clone())).is_ok() {}
    });
    // Until neither the socket nor the server takes more.
    while let Ok(sent) = sending.recv_timeout(Duration::from_secs(2)) {
        sent.unwrap();
    }
    one.control.set_elsewhere(Some(Elsewhere { leader: None }));
    let refused = sending.recv_timeout(Duration::from_secs(20)).expect("it is not held any more");
    assert!(matches!(&refused, Err(ClientError::Elsewhere { .. })), "{refused:?}");
}

#[test]
fn a_worker_turns_to_another_server_when_its_own_is_gone() {
    let (mut one, two, client) = two();
    let _run = one.run();
    one.until_run(true);
    while client.receive(false).unwrap().run.is_none() {}
    let mut run = two.run();
    two.until_run(true);
    relay::write(&mut run, &to("w"), b"from two").unwrap();
    one.stop();
    assert_eq!(message(&client), b"from two");
    client.send(b"to two".to_vec()).unwrap();
    let (_, body) = relay::read::<relay::ToRun>(&mut run).unwrap().unwrap();
    assert_eq!(body, b"to two");
}

#[test]
fn a_leader_of_an_earlier_epoch_is_refused() {
    let (one, two, client) = two();
    let farm = "0123456789abcdef";
    let mut late = two.run_of(&format!("{farm}.{}", 7_u64 << 32));
    let mut current = one.run_of(&format!("{farm}.{}", (7_u64 << 32) + 1));
    one.until_run(true);
    two.until_run(true);
    relay::write(&mut current, &to("w"), b"current").unwrap();
    relay::write(&mut late, &to("w"), b"late").unwrap();
    assert_eq!(message(&client), b"current");
    // The later leader's server refers the worker to the earlier one by mistake.
    one.control.set_elsewhere(Some(Elsewhere { leader: Some(two.url()) }));
    let sent = client.receive(false).unwrap_err();
    assert!(!sent.to_string().contains("late"), "{sent}");
    let sent = client.send(b"x".to_vec());
    assert!(matches!(sent, Err(ClientError::Older { .. } | ClientError::Elsewhere { .. })), "{sent:?}");
    // Another farm counts epochs of its own.
    drop(late);
    let mut other = two.run_of("fedcba9876543210.1");
    two.until_run(true);
    relay::write(&mut other, &to("w"), b"other").unwrap();
    assert_eq!(message(&client), b"other");
}
