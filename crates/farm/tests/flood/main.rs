//! A real door that many clients bother at once. The tests count descriptors and threads of this process, and run one after
//! another in it.

#[allow(dead_code, reason = "the tests of the door use the rest")]
#[path = "../door/support.rs"]
mod support;

use kilnyard_farm::client::{Client, ClientError};
use kilnyard_farm::relay::{self, ToDoor, ToRun};
use kilnyard_farm::roster::Terms;
use rustix::process::{Resource, getrlimit};
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use support::{NOW_SECONDS, Served, message, plain};

const JOINS: u64 = 10_000;
/// The workers that join: each costs two files that are safe on the disk.
const WORKERS: u64 = 2500;
const THREADS: u64 = 8;
/// How many joins use one connection.
const JOINS_PER_CONNECTION: u64 = 25;
/// How long to wait for what must happen at some time.
const PATIENCE: Duration = Duration::from_secs(60);

/// One test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn entries(folder: &str) -> u64 {
    std::fs::read_dir(folder).unwrap().count() as u64
}

/// What this process has open, its threads, and its memory in KiB.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Use {
    descriptors: u64,
    threads: u64,
    memory: u64,
}

impl Use {
    fn now() -> Use {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let memory = memory.trim().trim_end_matches(" kB").parse().unwrap();
        Use { descriptors: entries("/proc/self/fd"), threads: entries("/proc/self/task"), memory }
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a message to the run, and takes its answer.
fn exchange(worker: &str, client: &Client, run: &mut UnixStream, number: u64) {
    client.send(format!("question {number}").into_bytes()).unwrap();
    let (from, question) = relay::read::<ToRun>(run).unwrap().unwrap();
    assert_eq!((from.worker.as_str(), question), (worker, format!("question {number}").into_bytes()));
    let to = ToDoor { to: worker.to_owned(), ..ToDoor::default() };
    relay::write(run, &to, format!("answer {number}").as_bytes()).unwrap();
    assert_eq!(message(client), format!("answer {number}").into_bytes());
}

/// Joins with tokens that do not admit, by an own connection for every few of them.
fn flood(served: &Served, thread: u64, used: &str, expired: &[String]) {
    let mut client = None;
    for number in 0..JOINS / THREADS {
        if number % JOINS_PER_CONNECTION == 0 {
            client = Some(served.client(&format!("flood-{thread}")));
        }
        let client = client.as_ref().unwrap();
        let wrong = format!("{:064x}", number + (thread << 32));
        let (secret, reasons): (&str, &[&str]) = match number % 4 {
            0 => (used, &["the token was used, or is not one of this yard's"]),
            1 => (&expired[(number / 4) as usize % expired.len()], &["has expired", "the token was used"]),
            2 => ("../../x", &["the token was used, or is not one of this yard's"]),
            _ => (&wrong, &["the token was used, or is not one of this yard's"]),
        };
        match client.join(secret) {
            Err(ClientError::Refused(reason)) if reasons.iter().any(|words| reason.contains(words)) => {}
            other => panic!("{secret}: {other:?}"),
        }
    }
}

#[test]
fn ten_thousand_joins_that_are_refused_leave_workers_alone() {
    let _alone = alone();
    let served = Served::new();
    let used = served.token().secret;
    served.client("early").join(&used).unwrap();
    let roster = served.roster();
    let long_ago = NOW_SECONDS - 2 * 24 * 60 * 60;
    let issue = |_| roster.issue(served.fingerprint, Terms::default(), long_ago).unwrap().secret;
    let expired: Vec<String> = (0..100).map(issue).collect();
    let mut run = served.run();
    served.until_run(true);
    let early = served.client("early");
    exchange("early", &early, &mut run, 0);
    let before = Use::now();
    let (is_over, exchanges, peak) = (AtomicBool::new(false), AtomicU64::new(0), Mutex::new(before));
    std::thread::scope(|scope| {
        let floods: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (served, used, expired) = (&served, &used, &expired);
                scope.spawn(move || flood(served, thread, used, expired))
            })
            .collect();
        scope.spawn(|| {
            // It joins in the flood.
            let late = served.joined("late");
            while !is_over.load(Ordering::Relaxed) {
                let number = exchanges.fetch_add(1, Ordering::Relaxed);
                exchange("late", &late, &mut run, number);
                exchange("early", &early, &mut run, number);
            }
        });
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let (now, mut peak) = (Use::now(), peak.lock().unwrap());
                peak.descriptors = peak.descriptors.max(now.descriptors);
                peak.threads = peak.threads.max(now.threads);
                peak.memory = peak.memory.max(now.memory);
                drop(peak);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let ended: Vec<_> = floods.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(Result::unwrap);
    });
    let peak = peak.into_inner().unwrap();
    println!("{} exchanges; before {before:?}, peak {peak:?}", exchanges.load(Ordering::Relaxed));
    assert!(exchanges.load(Ordering::Relaxed) > 0);
    // Each thread has a connection or two, of two descriptors, and a client with a thread and a few descriptors.
    assert!(peak.descriptors < before.descriptors + THREADS * 20, "{before:?}, {peak:?}");
    assert!(peak.threads < before.threads + THREADS * 6, "{before:?}, {peak:?}");
    assert!(peak.memory < before.memory + (64 << 10), "{before:?}, {peak:?}");
    // The late worker's client is gone too.
    until("descriptors stay open", || Use::now().descriptors <= before.descriptors);
    let names = |folder: &str| entries(served.path(folder).to_str().unwrap());
    assert_eq!((names("workers"), names("tokens")), (2, 0));
}

/// Connections that never say anything, from the address of the workers: more than the door has places for.
#[test]
fn silent_connections_keep_no_worker_out() {
    let _alone = alone();
    let served = Served::new();
    let early = served.joined("early");
    let mut run = served.run();
    served.until_run(true);
    exchange("early", &early, &mut run, 0);
    let files_max = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let places = (files_max / 2).min(4096) / 4;
    let mut silent = Vec::new();
    for number in 0..places + 200 {
        silent.push(TcpStream::connect(served.address).unwrap());
        if number % 100 == 0 {
            exchange("early", &early, &mut run, number);
        }
    }
    let late = served.joined("late");
    exchange("late", &late, &mut run, 1);
    exchange("early", &early, &mut run, 1);
    let mut ended = 0;
    until("the oldest silent connections end", || {
        ended += silent.extract_if(.., is_over).count();
        ended >= 200
    });
}

/// Whether the other side has ended a connection.
fn is_over(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    match stream.read(&mut [0]) {
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        Ok(count) => count == 0,
    }
}

/// Each token is a file, and each worker: what one join costs does not grow with the others.
#[test]
fn thousands_of_workers_join() {
    let _alone = alone();
    let served = Served::new();
    let roster = served.roster();
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let http = plain(&served, None);
                let url = format!("https://{}/v1/join", served.address);
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= WORKERS {
                        return;
                    }
                    let token = roster.issue(served.fingerprint, Terms::default(), NOW_SECONDS).unwrap();
                    let join = serde_json::json!({
                        "secret": token.secret,
                        "name": format!("w{number}"),
                        "key": format!("{number:064x}"),
                    });
                    assert_eq!(http.post(&url).json(&join).send().unwrap().status().as_u16(), 200);
                }
            });
        }
    });
    assert_eq!(served.status().workers.len() as u64, WORKERS);
    assert_eq!(entries(served.path("tokens").to_str().unwrap()), 0);
    // One of them, and one that joins now.
    let one = served.joined("one");
    one.send(b"x".to_vec()).unwrap();
}
