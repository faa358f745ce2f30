//! A real door, real clients over TLS, and the other end of its socket in place of a run.

mod certificates;
mod direct;
mod encodings;
mod metrics;
mod older;
mod proxy;
mod several;
mod shells;
mod support;
mod tickets;
mod uploads;
mod yards;

use kilnyard_artifacts::{Artifacts, Folder, Storage};
use kilnyard_farm::About;
use kilnyard_farm::client::{Client, ClientError};
use kilnyard_farm::door::{ClientCertificates, Door};
use kilnyard_farm::identity::Identity;
use kilnyard_farm::proof::WorkerKey;
use kilnyard_farm::relay::{self, Allowed, ToDoor, ToRun};
use kilnyard_model::holdings::Holdings;
use kilnyard_model::sha256::Sha256Hex;
use reqwest::blocking::Body;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use support::{Served, message, plain, refused, session, sha256_of, write};

#[test]
fn a_worker_joins_once_and_proves_its_key() {
    let served = Served::new();
    let token = served.token();
    refused(served.client("w").send(b"x".to_vec()), "has not joined");
    refused(served.client("w").join(&"0".repeat(64)), "was used, or is not one");
    served.client("w").join(&token.secret).unwrap();
    served.client("w").send(b"x".to_vec()).unwrap();
    refused(served.client("other").join(&token.secret), "was used");
    // The name with another key.
    refused(served.client_with("w", "thief").join(&served.token().secret), "with another key");
    refused(served.client_with("w", "thief").send(b"x".to_vec()), "not that of the worker's key");
    refused(served.client("own-machine").join(&served.token().secret), "own-machine");
    refused(served.client("../w").join(&served.token().secret), "a worker's name");
}

#[test]
fn another_certificate_is_refused() {
    let (served, other) = (Served::new(), tempfile::tempdir().unwrap());
    let fingerprint = Identity::open(other.path()).unwrap().fingerprint();
    let key = WorkerKey::open(&served.path("w.key")).unwrap();
    let client = Client::new(&format!("https://{}", served.address), fingerprint, "w", key).unwrap();
    let joined = client.join(&served.token().secret);
    assert!(matches!(joined, Err(ClientError::OtherDoor)), "{joined:?}");
}

#[test]
fn messages_pass_both_ways_and_are_lost_without_a_run() {
    let served = Served::new();
    let (one, two) = (served.joined("one"), served.joined("two"));
    one.send(b"lost".to_vec()).unwrap();
    let mut run = served.run();
    served.until_run(true);
    one.send(b"from one".to_vec()).unwrap();
    two.send(b"from two".to_vec()).unwrap();
    for (worker, said) in [("one", "from one"), ("two", "from two")] {
        let (header, body) = relay::read::<ToRun>(&mut run).unwrap().unwrap();
        assert_eq!((header.worker.as_str(), &body[..]), (worker, said.as_bytes()));
    }
    let to = |worker: &str| ToDoor { to: worker.to_owned(), ..ToDoor::default() };
    for (worker, said) in [("two", "to two"), ("one", "to one"), ("absent", "to absent")] {
        relay::write(&mut run, &to(worker), said.as_bytes()).unwrap();
    }
    assert_eq!(message(&one), b"to one");
    assert_eq!(message(&two), b"to two");
    // A message that is sent while the worker waits.
    let waiting = std::thread::spawn(move || message(&one));
    std::thread::sleep(std::time::Duration::from_millis(50));
    relay::write(&mut run, &to("one"), b"later").unwrap();
    assert_eq!(waiting.join().unwrap(), b"later");
    drop(run);
    served.until_run(false);
    two.send(b"lost again".to_vec()).unwrap();
}

#[test]
fn a_waiting_worker_learns_at_once_of_another_run() {
    let served = Served::new();
    let one = Arc::new(served.joined("one"));
    assert_eq!(one.receive(false).unwrap().run, None);
    let waiting = |one: Arc<Client>| std::thread::spawn(move || one.receive(true).unwrap());
    let next = waiting(one.clone());
    let run = served.run();
    let first = next.join().unwrap();
    assert!(first.message.is_none() && first.run.is_some(), "{first:?}");
    assert_eq!(one.receive(false).unwrap().run, first.run);
    drop(run);
    served.until_run(false);
    // That there is none any more is news too, but once: then it waits.
    assert_eq!(one.receive(true).unwrap().run, None);
    let next = waiting(one.clone());
    let _run = served.run();
    let second = next.join().unwrap().run;
    assert!(second.is_some() && second != first.run);
    // Between two requests, a run may take the place of another.
    let _run = served.run();
    while one.receive(false).unwrap().run == second {}
    let session = session(&served, "one");
    let ask = |run: &str| {
        let url = format!("https://{}/v1/messages?wait=50{run}", served.address);
        let answer = plain(&served, None).get(url).bearer_auth(&session).send().unwrap();
        (answer.status().as_u16(), answer.headers()["kilnyard-run"].to_str().unwrap().to_owned())
    };
    let third = ask("&run=").1;
    for earlier in [&first.run, &second] {
        assert_eq!(ask(&format!("&run={}", earlier.as_ref().unwrap())), (204, third.clone()));
    }
    assert_eq!(ask("&run=%00"), (204, third));
}

#[test]
fn files_are_read_and_stored_for_builds_alone() {
    let served = Served::new();
    let (one, two) = (served.joined("one"), served.joined("two"));
    let distfiles = Folder::open(&served.path("distfiles")).unwrap();
    let archives = Folder::open(&served.path("archives")).unwrap();
    let (input, _) = distfiles.insert(&mut &b"input"[..], Storage::Plain).unwrap();
    let (base, _) = archives.insert(&mut &b"base root"[..], Storage::Compressed).unwrap();
    let (secret, _) = distfiles.insert(&mut &b"of another build"[..], Storage::Plain).unwrap();
    let output = write(&served.path("output"), b"output");
    let hash = sha256_of(b"output");
    let mut run = served.run();
    served.until_run(true);
    let text = |client: &Client, sha256: &Sha256Hex| {
        let mut text = String::new();
        client.open(sha256).map_err(|error| error.to_string())?.read_to_string(&mut text).unwrap();
        Ok::<_, String>(text)
    };
    assert!(text(&one, &input).is_err_and(|error| error.contains("no build of this worker")));
    let allows = Allowed {
        attempt: "a".to_owned(),
        reads: vec![input.clone(), base.clone()],
        logs: Some("logs/1/pkg/2-".to_owned()),
    };
    relay::write(
        &mut run,
        &ToDoor { to: "one".to_owned(), allows: Some(allows), ..ToDoor::default() },
        b"grant",
    )
    .unwrap();
    assert_eq!(message(&one), b"grant");
    assert_eq!(text(&one, &input).as_deref(), Ok("input"));
    assert_eq!(text(&one, &base).as_deref(), Ok("base root"));
    assert!(text(&one, &secret).is_err() && text(&two, &input).is_err());
    // An announced build: it reads, and stores nothing.
    let allows = Allowed { attempt: "announced".to_owned(), reads: vec![input.clone()], logs: None };
    relay::write(
        &mut run,
        &ToDoor { to: "two".to_owned(), allows: Some(allows), ..ToDoor::default() },
        b"announced",
    )
    .unwrap();
    assert_eq!(message(&two), b"announced");
    assert_eq!(text(&two, &input).as_deref(), Ok("input"));
    refused(two.store("announced", &hash, &output), "no build of this worker");
    refused(two.store_part("announced", "build", 0, b"x"), "no build of this worker");
    refused(two.store_log("announced", "build", &output), "no build of this worker");
    relay::write(
        &mut run,
        &ToDoor {
            to: "two".to_owned(),
            allows: None,
            ends: Some("announced".to_owned()),
            ..ToDoor::default()
        },
        b"withdrawn",
    )
    .unwrap();
    assert_eq!(message(&two), b"withdrawn");
    assert!(text(&two, &input).is_err());
    // An output: under its hash, for a build of this worker.
    let other = Sha256Hex::parse(&"b".repeat(64)).unwrap();
    refused(one.store("a", &other, &output), "different content");
    refused(one.store("b", &hash, &output), "no build of this worker");
    refused(two.store("a", &hash, &output), "no build of this worker");
    assert!(!distfiles.contains(&hash).unwrap());
    one.store("a", &hash, &output).unwrap();
    one.store("a", &hash, &output).unwrap();
    assert!(distfiles.contains(&hash).unwrap());
    // A large file that is here already is answered only when all of it has arrived: otherwise the connection breaks.
    let large = vec![b'x'; 16 << 20];
    let file = write(&served.path("large"), &large);
    for _ in 0..3 {
        one.store("a", &Sha256Hex::of(&large), &file).unwrap();
    }
    // Parts of a log, while it is being written: in their order, where the run says, and bounded.
    let part = |offset: u64, text: &str| one.store_part("a", "build", offset, text.as_bytes());
    assert!(part(0, "one ").unwrap());
    assert!(part(4, "two").unwrap());
    assert!(part(0, "one ").unwrap());
    assert!(!part(20, "x").unwrap(), "a part before it is missing");
    refused(part(u64::MAX, "x"), "at most");
    refused(part(256 << 20, "x"), "at most");
    refused(two.store_part("a", "build", 0, b"x"), "no build of this worker");
    refused(one.store_part("a", "..%2f..%2fx", 0, b"x"), "the name of a log");
    assert_eq!(std::fs::read_to_string(served.path("yard/logs/1/pkg/2-build.log")).unwrap(), "one two");
    // A log: where the run says, with a plain name, and readable. It replaces its parts.
    let log = write(&served.path("log.zst"), &zstd::encode_all(&b"text"[..], 1).unwrap());
    one.store_log("a", "build", &log).unwrap();
    let kept = || std::fs::read(served.path("yard/logs/1/pkg/2-build.log.zst")).unwrap();
    assert_eq!(zstd::decode_all(&kept()[..]).unwrap(), b"text");
    // A late part changes nothing, and is answered.
    assert!(one.store_part("a", "build", 0, &large).unwrap());
    for name in ["..%2f..%2fx", "A", "a.b", &"x".repeat(65)] {
        refused(one.store_log("a", name, &log), "the name of a log");
    }
    refused(two.store_log("a", "build", &log), "no build of this worker");
    // Thirty kilobytes that unpack to more than any reader takes, and bytes that do not unpack.
    let bomb = zstd::encode_all(std::io::repeat(0).take(300 << 20), 1).unwrap();
    assert!(bomb.len() < 100_000);
    let bomb = write(&served.path("bomb.zst"), &bomb);
    for bad in [&bomb, &output] {
        refused(one.store_log("a", "build", bad), "a log is compressed");
    }
    assert_eq!(zstd::decode_all(&kept()[..]).unwrap(), b"text");
    assert_eq!(std::fs::read_dir(served.path("yard/logs/1/pkg")).unwrap().count(), 1);
    assert_eq!(served.status().workers[0].builds, 1);
    // The build ends.
    relay::write(
        &mut run,
        &ToDoor { to: "one".to_owned(), allows: None, ends: Some("a".to_owned()), ..ToDoor::default() },
        b"over",
    )
    .unwrap();
    assert_eq!(message(&one), b"over");
    refused(one.store("a", &hash, &output), "no build of this worker");
    assert!(text(&one, &input).is_err());
}

#[test]
fn a_removed_worker_is_refused_at_its_next_request() {
    let served = Served::new();
    let one = served.joined("one");
    one.send(b"x".to_vec()).unwrap();
    assert!(served.roster().remove("one").unwrap());
    refused(one.send(b"x".to_vec()), "was removed");
    refused(one.receive(true), "was removed");
    assert!(served.status().workers.is_empty());
}

#[test]
fn a_restarted_door_has_the_same_identity_and_workers() {
    let served = Served::new();
    let (one, fingerprint) = (served.joined("one"), served.fingerprint);
    one.send(b"x".to_vec()).unwrap();
    let served = served.again();
    assert_eq!(served.fingerprint, fingerprint);
    // The old session is over; the client begins another.
    one.send(b"y".to_vec()).unwrap();
    assert_eq!(served.status().workers[0].name, "one");
}

#[test]
fn what_a_worker_says_of_its_machine_and_of_what_it_keeps_is_bounded() {
    let served = Served::new();
    let clock: fn() -> f64 = || 1e9;
    let about = |names: usize, value: &str| About {
        cores: 2,
        kernel: "Linux \u{1b}[2J".to_owned(),
        conditions: (0..names).map(|number| (number.to_string(), value.to_owned())).collect(),
        ..About::default()
    };
    let seen = |about: About| {
        let client = served.joined_once("w").with_about(about, clock);
        client.receive(false).unwrap();
        (served.status().workers.remove(0), client)
    };
    let (known, client) = seen(about(2, "v"));
    assert_eq!((known.about.cores, known.about.conditions.len()), (2, 2));
    assert!(known.clock_ahead_seconds.is_some_and(f64::is_finite) && known.holdings.is_none());
    let tree = sha256_of(b"tree");
    let kept = Holdings { trees: vec![tree.clone(); 100], files: u64::MAX, ..Holdings::default() };
    client.set_holdings(kept);
    client.receive(false).unwrap();
    let kept = served.status().workers[0].holdings.clone().unwrap();
    assert_eq!((kept.trees.len(), kept.files), (Holdings::TREES_MAX, u64::MAX));
    // Too many, too long, or with control characters: nothing of it is kept, and the session begins anyway.
    for hostile in [about(99, "v"), about(1, &"v".repeat(300)), about(1, "\u{1b}[2J"), about(1, "a\nb")] {
        let (known, _) = seen(hostile);
        assert_eq!((known.about, known.holdings), (About::default(), None));
    }
}

#[test]
fn a_worker_that_ends_soon_says_so_until_its_next_session() {
    let served = Served::new();
    let (one, two) = (served.joined("one"), served.joined("two"));
    [&one, &two].into_iter().for_each(|client| drop(client.receive(false).unwrap()));
    one.say_ending().unwrap();
    let ending = |name: &str| {
        let workers = served.status().workers;
        workers.iter().find(|worker| worker.name == name).map(|worker| worker.is_ending)
    };
    assert_eq!((ending("one"), ending("two")), (Some(true), Some(false)));
    let served = served.again();
    one.receive(false).unwrap();
    assert!(!served.status().workers.iter().any(|worker| worker.is_ending));
}

#[test]
fn nonsense_does_not_stop_the_door() {
    let served = Served::new();
    let one = served.joined("one");
    let mut silent = Vec::new();
    for garbage in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[0xff; 4096], b"\x16\x03\x01"] {
        let mut stream = TcpStream::connect(served.address).unwrap();
        stream.write_all(garbage).unwrap();
        silent.push(stream);
    }
    let mut run = served.connect();
    run.write_all(&[0xff; 64]).unwrap();
    one.send(b"x".to_vec()).unwrap();
    assert!(!served.status().has_run);
    let address =
        Client::new("http://host", served.fingerprint, "w", WorkerKey::open(&served.path("k")).unwrap());
    assert!(matches!(address, Err(ClientError::Address(_))));
}

#[test]
fn what_a_worker_may_do_is_known_as_soon_as_a_run_is() {
    let served = Served::new();
    let one = served.joined("one");
    let store = Folder::open(&served.path("distfiles")).unwrap();
    let (input, _) = store.insert(&mut &b"input"[..], Storage::Plain).unwrap();
    let output = write(&served.path("output"), b"output");
    let hash = sha256_of(b"output");
    // Without a run, a build is not refused for good.
    let stored = one.store("a", &hash, &output);
    assert!(stored.as_ref().is_err_and(ClientError::is_passing), "{stored:?}");
    let allowed =
        Allowed { attempt: "a".to_owned(), reads: vec![input.clone()], logs: Some("logs/1/p/2-".to_owned()) };
    let _run = served.run_with(vec![("one".to_owned(), allowed)]);
    served.until_run(true);
    one.store("a", &hash, &output).unwrap();
    assert!(one.open(&input).is_ok());
}

/// Each thread finds its session over at the same time; one that begins another must not end those of the rest.
#[test]
fn threads_of_a_worker_share_a_new_session() {
    let served = Served::new();
    let one = served.joined("one");
    one.send(b"x".to_vec()).unwrap();
    let _served = served.again();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(|| one.send(b"x".to_vec()))).collect();
        for thread in threads {
            thread.join().unwrap().unwrap();
        }
    });
}

/// Uploads that stop in the middle occupy threads; those of one worker leave some to others.
#[test]
fn silent_uploads_do_not_stop_the_door() {
    const UPLOADS: usize = 600;
    let served = Served::new();
    let (one, two) = (served.joined("one"), served.joined("two"));
    let output = write(&served.path("output"), b"output");
    let allow = |worker: &str| {
        let logs = Some("logs/1/p/2-".to_owned());
        (worker.to_owned(), Allowed { attempt: worker.to_owned(), reads: Vec::new(), logs })
    };
    let _run = served.run_with(vec![allow("one"), allow("two")]);
    served.until_run(true);
    let session = session(&served, "one");
    let http = plain(&served, None);
    for number in 0..UPLOADS {
        let url = format!("https://{}/v1/blobs/{number:064x}?attempt=one", served.address);
        let request = http.put(&url).bearer_auth(&session).body(Body::sized(Silent, 6));
        // They end with this process.
        std::thread::spawn(move || request.send());
    }
    std::thread::sleep(std::time::Duration::from_millis(500));
    // A worker's messages do not wait for its files. This begins a new session, and the uploads stay.
    one.send(b"x".to_vec()).unwrap();
    // Silent uploads end after a minute; this is not to wait for that.
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(two.store("two", &sha256_of(b"output"), &output)));
    receiver.recv_timeout(std::time::Duration::from_secs(30)).expect("the upload of another worker").unwrap();
}

/// A body that never comes.
struct Silent;

impl Read for Silent {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        std::thread::sleep(std::time::Duration::from_secs(3600));
        Ok(0)
    }
}

#[test]
fn a_door_may_have_a_long_path() {
    let folder = tempfile::tempdir().unwrap();
    let long = folder.path().join("x".repeat(200));
    std::fs::create_dir(&long).unwrap();
    let _door = Door::open(
        &long,
        SocketAddr::from(([127, 0, 0, 1], 0)),
        "own-machine",
        ClientCertificates::Optional,
        || 1.0,
    )
    .unwrap();
    relay::connect(&long).unwrap();
}
