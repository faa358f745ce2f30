//! Outputs that arrive in parts, and what a worker learns by asking for them.

use crate::support::{Served, build, message, plain, refused, session, sha256_of, write};
use kilnyard_artifacts::{Artifacts, Folder, Storage};
use kilnyard_farm::client::Client;
use kilnyard_farm::proof::WorkerKey;
use kilnyard_farm::relay::{self, Allowed, ToDoor};
use kilnyard_model::sha256::Sha256Hex;
use reqwest::blocking::{Body, Response};
use serde_json::{Value, json};
use std::io::{Cursor, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Plain requests of a worker.
struct Plain<'a> {
    served: &'a Served,
    http: reqwest::blocking::Client,
    session: String,
}

impl<'a> Plain<'a> {
    fn new(served: &'a Served, worker: &str) -> Plain<'a> {
        Plain { served, http: plain(served, None), session: session(served, worker) }
    }

    fn url(&self, rest: &str) -> String {
        format!("https://{}/v1/blobs{rest}", self.served.address)
    }

    fn ask(&self, attempt: &str, blobs: Value) -> Response {
        let body = json!({ "attempt": attempt, "blobs": blobs });
        self.http.post(self.url("")).bearer_auth(&self.session).json(&body).send().unwrap()
    }

    /// The number of bytes that have arrived of a file; none if it is not missing.
    fn arrived(&self, sha256: &Sha256Hex, size_bytes: u64) -> Option<u64> {
        let answer = self.ask("a", json!([{ "sha256": sha256.as_str(), "size_bytes": size_bytes }]));
        assert_eq!(answer.status().as_u16(), 200);
        let answer: Value = answer.json().unwrap();
        let missing = answer["missing"].as_array().unwrap();
        Some(missing.first()?["arrived_bytes"].as_u64().unwrap())
    }

    /// Sends a part; the status of the answer, and its body.
    fn put(&self, sha256: &Sha256Hex, offset: u64, part: &'static [u8]) -> (u16, Value) {
        let url = self.url(&format!("/{sha256}?attempt=a&offset={offset}"));
        let answer = self.http.put(url).bearer_auth(&self.session).body(part).send().unwrap();
        (answer.status().as_u16(), answer.json().unwrap_or(Value::Null))
    }

    /// Sends the beginning of a part of this size, and breaks the connection.
    fn break_off(&self, sha256: &Sha256Hex, offset: u64, size: u64, beginning: &[u8]) {
        let url = self.url(&format!("/{sha256}?attempt=a&offset={offset}"));
        let body = Body::sized(Broken(Cursor::new(beginning.to_vec())), size);
        self.http.put(url).bearer_auth(&self.session).body(body).send().unwrap_err();
    }

    /// Waits until this much of a file has arrived: the door may still be reading from a broken connection.
    fn until_arrived(&self, sha256: &Sha256Hex, size_bytes: u64, arrived_bytes: u64) {
        while self.arrived(sha256, size_bytes) != Some(arrived_bytes) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

/// A body that fails at its end.
struct Broken(Cursor<Vec<u8>>);

impl Read for Broken {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        match self.0.read(bytes)? {
            0 => {
                // What was sent leaves first.
                std::thread::sleep(std::time::Duration::from_millis(50));
                Err(std::io::Error::other("broken"))
            }
            count => Ok(count),
        }
    }
}

/// A door with the workers `one` and `two`, which have the builds `a` and `b`.
fn served() -> (Served, Client, Client, std::os::unix::net::UnixStream) {
    let served = Served::new();
    let (one, two) = (served.joined("one"), served.joined("two"));
    let run = served.run_with(vec![build("one", "a"), build("two", "b")]);
    served.until_run(true);
    (served, one, two, run)
}

fn store(served: &Served) -> Folder {
    Folder::open(&served.path("distfiles")).unwrap()
}

/// The files of interrupted uploads of a worker.
fn parts(served: &Served, worker: &str) -> usize {
    std::fs::read_dir(served.path("uploads").join(worker)).map_or(0, Iterator::count)
}

#[test]
fn an_interrupted_upload_continues_where_it_stopped() {
    let (served, _one, _two, _run) = served();
    let (one, sha256) = (Plain::new(&served, "one"), sha256_of(b"0123456789"));
    assert_eq!(one.arrived(&sha256, 10), Some(0));
    one.break_off(&sha256, 0, 10, b"0123");
    one.until_arrived(&sha256, 10, 4);
    let (status, body) = one.put(&sha256, 5, b"56789");
    assert_eq!((status, body["arrived_bytes"].as_u64()), (409, Some(4)), "{body}");
    // A part that overlaps, and one that is repeated; neither is the last.
    one.break_off(&sha256, 2, 8, b"2345");
    one.until_arrived(&sha256, 10, 6);
    one.break_off(&sha256, 0, 10, b"01");
    assert!(!store(&served).contains(&sha256).unwrap());
    assert_eq!(one.put(&sha256, 6, b"6789").0, 204);
    assert_eq!(std::fs::read(store(&served).path(&sha256)).unwrap(), b"0123456789");
    assert_eq!((one.arrived(&sha256, 10), parts(&served, "one")), (None, 0));
    // Everything had arrived, but not the answer.
    assert_eq!(one.put(&sha256, 0, b"0123456789").0, 204);
    // An empty file.
    assert_eq!(one.put(&sha256_of(b""), 0, b"").0, 204);
    assert!(store(&served).contains(&sha256_of(b"")).unwrap());
}

#[test]
fn parts_that_do_not_make_the_content_are_not_stored() {
    let (served, _one, _two, _run) = served();
    let (one, sha256) = (Plain::new(&served, "one"), sha256_of(b"0123456789"));
    one.break_off(&sha256, 0, 10, b"9999");
    one.until_arrived(&sha256, 10, 4);
    assert_eq!(one.arrived(&sha256, 3), Some(0), "it belongs to a larger file");
    let (status, body) = one.put(&sha256, 4, b"456789");
    assert_eq!(status, 422, "{body}");
    // Nothing of it stays in the way.
    assert_eq!((one.arrived(&sha256, 10), parts(&served, "one")), (Some(0), 0));
    assert!(!store(&served).contains(&sha256).unwrap());
    assert_eq!(one.put(&sha256, u64::MAX, b"x").0, 413);
    assert_eq!(one.put(&sha256, 64 << 30, b"x").0, 413);
    assert_eq!(one.put(&sha256, 1 << 30, b"x").0, 409);
    assert_eq!(one.put(&sha256, 0, b"0123456789").0, 204);
}

#[test]
fn a_worker_learns_nothing_of_files_that_it_may_not_read() {
    let (served, one, _two, mut run) = served();
    let (readable, _) = store(&served).insert(&mut &b"readable"[..], Storage::Plain).unwrap();
    let (secret, _) = store(&served).insert(&mut &b"secret"[..], Storage::Plain).unwrap();
    let logs = None;
    let allows = Some(Allowed { attempt: "a".to_owned(), reads: vec![readable.clone()], logs });
    relay::write(&mut run, &ToDoor { to: "one".to_owned(), allows, ..ToDoor::default() }, b"x").unwrap();
    message(&one);
    let (own, other) = (Plain::new(&served, "one"), Plain::new(&served, "two"));
    assert_eq!((own.arrived(&readable, 8), own.arrived(&secret, 6)), (None, Some(0)));
    // Nor by sending something else under its hash: that is not ignored because the yard has the file.
    assert_eq!(own.put(&secret, 0, b"guess?").0, 422);
    assert_eq!(own.put(&secret, 0, b"").0, 422);
    assert_eq!(own.put(&secret, 6, b"").0, 409);
    // Having the content, it learns nothing by storing it.
    assert_eq!(own.put(&secret, 0, b"secret").0, 204);
    assert_eq!(own.arrived(&secret, 6), None);
    // What one has stored, or has begun to, is missing for another.
    let ask = |sha256: &Sha256Hex| {
        let blobs = json!([{ "sha256": sha256.as_str(), "size_bytes": 6 }]);
        other.ask("b", blobs).json::<Value>().unwrap()["missing"][0]["arrived_bytes"].as_u64()
    };
    let begun = sha256_of(b"012345");
    own.break_off(&begun, 0, 6, b"01");
    own.until_arrived(&begun, 6, 2);
    assert_eq!((ask(&secret), ask(&begun)), (Some(0), Some(0)));
}

#[test]
fn questions_are_bounded_and_for_builds_alone() {
    let (served, _one, _two, _run) = served();
    let one = Plain::new(&served, "one");
    let blob = |sha256: &str, size_bytes: u64| json!([{ "sha256": sha256, "size_bytes": size_bytes }]);
    let sha256 = "a".repeat(64);
    assert_eq!(one.ask("a", blob(&sha256, 1)).status().as_u16(), 200);
    assert_eq!(one.ask("b", blob(&sha256, 1)).status().as_u16(), 403);
    assert_eq!(one.ask("a", blob(&sha256, (64 << 30) + 1)).status().as_u16(), 413);
    for bad in ["", "../../x", "a", &"g".repeat(64)] {
        assert_eq!(one.ask("a", blob(bad, 1)).status().as_u16(), 400, "{bad}");
    }
    let unknown = one.http.post(one.url("")).bearer_auth("0").json(&json!({})).send().unwrap();
    assert_eq!(unknown.status().as_u16(), 401);
    let many: Vec<Value> = (0..4097).map(|_| json!({ "sha256": sha256, "size_bytes": 1 })).collect();
    assert_eq!(one.ask("a", Value::Array(many)).status().as_u16(), 413);
}

#[test]
fn what_an_attempt_left_is_removed_when_it_ends_or_the_door_starts() {
    let (served, one, _two, mut run) = served();
    let sha256 = sha256_of(b"0123");
    let plain = Plain::new(&served, "one");
    plain.break_off(&sha256, 0, 4, b"01");
    plain.until_arrived(&sha256, 4, 2);
    assert_eq!(parts(&served, "one"), 1);
    let ends = ToDoor { to: "one".to_owned(), allows: None, ends: Some("a".to_owned()), ..ToDoor::default() };
    relay::write(&mut run, &ends, b"over").unwrap();
    // Another frame: the one before it was handled.
    let (worker, allows) = build("one", "a");
    relay::write(&mut run, &ToDoor { to: worker, allows: Some(allows), ..ToDoor::default() }, b"again")
        .unwrap();
    while message(&one) != b"again" {}
    assert_eq!(parts(&served, "one"), 0);
    let plain = Plain::new(&served, "one");
    plain.break_off(&sha256, 0, 4, b"01");
    plain.until_arrived(&sha256, 4, 2);
    // A run that is resumed keeps what belongs to its builds.
    drop(run);
    served.until_run(false);
    let run = served.run_with(vec![build("one", "a")]);
    served.until_run(true);
    plain.until_arrived(&sha256, 4, 2);
    drop(run);
    served.until_run(false);
    let _run = served.run_with(vec![build("one", "z")]);
    served.until_run(true);
    while parts(&served, "one") > 0 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let served = served.again();
    assert_eq!(parts(&served, "one"), 0);
}

/// The worker's own way: several files at once, of which one has arrived in part, one is there, and one is named twice.
#[test]
fn all_outputs_of_a_build_are_stored_and_only_what_is_missing_is_sent() {
    let (served, _one, _two, _run) = served();
    let one = served.client("one");
    let file = |name: &str, content: &[u8]| -> (Sha256Hex, PathBuf) {
        (sha256_of(content), write(&served.path(name), content))
    };
    let large = vec![7; 3 << 20];
    let mut files: Vec<_> = (0..9).map(|number| file(&format!("f{number}"), &[number; 1000])).collect();
    files.push(file("large", &large));
    files.push(file("empty", b""));
    files.push(files[0].clone());
    let plain = Plain::new(&served, "one");
    plain.break_off(&files[9].0, 0, large.len() as u64, &large[..1 << 20]);
    plain.until_arrived(&files[9].0, large.len() as u64, 1 << 20);
    one.store_all("a", &files).unwrap();
    for (sha256, _) in &files {
        assert!(store(&served).contains(sha256).unwrap(), "{sha256}");
    }
    assert_eq!(parts(&served, "one"), 0);
    // What is stored is not even opened again.
    let (sha256, path) = &files[9];
    std::fs::write(path, vec![8; large.len()]).unwrap();
    one.store_all("a", &[(sha256.clone(), path.clone())]).unwrap();
    // A refusal counts more than what else fails, and names the hash.
    let lie = (sha256_of(b"truth"), write(&served.path("lie"), b"lies!"));
    refused(one.store_all("a", &[lie, file("fine", b"fine")]), "different content");
    refused(one.store_all("b", &files), "no build of this worker");
    one.store_all("a", &[]).unwrap();
}

/// Passes connections on to a door. The first ones are cut after this many bytes of the client.
struct Cutting {
    address: SocketAddr,
    passed_bytes: Arc<AtomicU64>,
    /// The number of connections that were cut after this many bytes of the door.
    cut: Arc<AtomicU64>,
}

impl Cutting {
    fn new(door: SocketAddr, cuts: usize, bytes: u64) -> Cutting {
        Cutting::new_of(door, cuts, bytes, u64::MAX)
    }

    /// The first ones are cut after this many bytes of the client, or of the door.
    fn new_of(door: SocketAddr, cuts: usize, of_client: u64, of_door: u64) -> Cutting {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (passed_bytes, cut) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (counted, count) = (passed_bytes.clone(), cut.clone());
        // It ends with this process.
        std::thread::spawn(move || {
            for (number, client) in listener.incoming().flatten().enumerate() {
                let server = TcpStream::connect(door).unwrap();
                let both = [(&client, &server), (&server, &client)];
                let [up, down] = both.map(|(from, to)| (from.try_clone().unwrap(), to.try_clone().unwrap()));
                let (counted, count) = (counted.clone(), count.clone());
                let limit = move |bytes| if number < cuts { bytes } else { u64::MAX };
                std::thread::spawn(move || {
                    let (from, to) = down;
                    if std::io::copy(&mut (&from).take(limit(of_door)), &mut &to).ok() == Some(limit(of_door))
                    {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
                });
                std::thread::spawn(move || {
                    let (from, to) = up;
                    let copied = std::io::copy(&mut (&from).take(limit(of_client)), &mut &to);
                    counted.fetch_add(copied.unwrap_or(0), Ordering::Relaxed);
                    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
                });
            }
        });
        Cutting { address, passed_bytes, cut }
    }
}

#[test]
fn a_client_whose_connections_break_sends_only_the_rest() {
    const SIZE: usize = 24 << 20;
    let (served, _one, _two, _run) = served();
    let cutting = Cutting::new(served.address, 4, 5 << 20);
    let content: Vec<u8> = (0..SIZE).map(|number| (number / 1000) as u8).collect();
    let (sha256, path) = (sha256_of(&content), write(&served.path("output"), &content));
    let key = WorkerKey::open(&served.path("one.key")).unwrap();
    let one = Client::new(&format!("https://{}", cutting.address), served.fingerprint, "one", key).unwrap();
    one.store("a", &sha256, &path).unwrap();
    assert_eq!(std::fs::read(store(&served).path(&sha256)).unwrap(), content);
    drop(one);
    // Four connections passed 5 MiB each. What was on the way when they were cut is sent twice.
    let passed = cutting.passed_bytes.load(Ordering::Relaxed);
    assert!(passed < SIZE as u64 * 3 / 2, "{passed}");
}

#[test]
fn many_small_files_share_requests_and_a_wrong_one_is_no_other_ones_fault() {
    let (served, one, _two, _run) = served();
    let contents: Vec<Vec<u8>> =
        (0..600_u32).map(|number| format!("small file {number}").into_bytes()).collect();
    let mut files: Vec<(Sha256Hex, PathBuf)> = contents
        .iter()
        .enumerate()
        .map(|(number, content)| {
            (sha256_of(content), write(&served.path(&format!("small-{number}")), content))
        })
        .collect();
    one.store_all("a", &files).unwrap();
    let store = store(&served);
    assert!(files.iter().all(|(sha256, _)| store.contains(sha256).unwrap()));
    assert_eq!(parts(&served, "one"), 0, "each would have been an upload of its own");
    // One whose content has another hash is refused, and no other one is missing.
    let more = write(&served.path("more"), b"more");
    files = vec![(sha256_of(b"more"), more.clone()), (sha256_of(b"other"), more)];
    refused(one.store_all("a", &files), "different content");
    assert!(store.contains(&sha256_of(b"more")).unwrap() && !store.contains(&sha256_of(b"other")).unwrap());
    // A batch is for builds of the worker alone, and bounded.
    let http = plain(&served, None);
    let session = session(&served, "one");
    let post = |attempt: &str, body: Vec<u8>| {
        let url = format!("https://{}/v1/blobs/batch?attempt={attempt}", served.address);
        http.post(url).bearer_auth(&session).body(body).send().map(|answer| answer.status().as_u16())
    };
    let status = |attempt: &str, size: usize| post(attempt, vec![0; size]).unwrap();
    assert_eq!((status("b", 0), status("a", 35), status("a", 0)), (403, 400, 204));
    // What is far too large is not read to its end.
    let refused = post("a", vec![0; (4 << 20) + 1]);
    assert!(refused.as_ref().map_or(true, |status| *status == 413), "{refused:?}");
}

#[test]
fn a_download_whose_connection_breaks_continues() {
    let served = Served::new();
    let one = served.joined("one");
    let content: Vec<u8> = (0..2_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let (input, _) = store(&served).insert(&mut &content[..], Storage::Plain).unwrap();
    let (worker, allowed) = build("one", "a");
    let _run = served.run_with(vec![(worker, Allowed { reads: vec![input.clone()], ..allowed })]);
    served.until_run(true);
    drop(one);
    // Two connections are cut after three megabytes of answers.
    let cutting = Cutting::new_of(served.address, 2, u64::MAX, 3 << 20);
    let key = WorkerKey::open(&served.path("one.key")).unwrap();
    let one = Client::new(&format!("https://{}", cutting.address), served.fingerprint, "one", key).unwrap();
    let mut read = Vec::new();
    one.open(&input).unwrap().read_to_end(&mut read).unwrap();
    assert!(read == content);
    assert_eq!(cutting.cut.load(Ordering::Relaxed), 2);
}
