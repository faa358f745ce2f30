//! A door with a yard, and its clients.

use kilnyard_artifacts::Depot;
use kilnyard_farm::client::{Client, ClientError};
use kilnyard_farm::door::{ClientCertificates, Control, Door};
use kilnyard_farm::identity::{self, Fingerprint, Pin};
use kilnyard_farm::proof::WorkerKey;
use kilnyard_farm::relay::{self, Allowed, First, Status};
use kilnyard_farm::roster::{Roster, Terms, Token};
use kilnyard_model::sha256::Sha256Hex;
use reqwest::blocking::Response;
use sha2::{Digest, Sha256};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The time of all doors, in seconds since 1970.
pub const NOW_SECONDS: u64 = 1_000_000;

/// A door in a thread, with a yard.
pub struct Served {
    pub folder: tempfile::TempDir,
    pub address: SocketAddr,
    pub fingerprint: Fingerprint,
    pub control: Control,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    pub fn new() -> Served {
        let folder = tempfile::tempdir().unwrap();
        Served::at(folder, SocketAddr::from(([127, 0, 0, 1], 0)), ClientCertificates::Optional)
    }

    /// One whose workers read and write this store themselves.
    pub fn with_depot(depot: Arc<dyn Depot>) -> Served {
        let folder = tempfile::tempdir().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        Served::of(folder, address, ClientCertificates::Optional, |door| door.with_depot(depot, true))
    }

    /// One that shows figures at another address.
    pub fn with_metrics(metrics: SocketAddr, text: fn(&Status) -> String) -> Served {
        let folder = tempfile::tempdir().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let with = |door: Door| door.with_metrics(metrics, text).unwrap();
        Served::of(folder, address, ClientCertificates::Optional, with)
    }

    pub fn at(folder: tempfile::TempDir, address: SocketAddr, certificates: ClientCertificates) -> Served {
        Served::of(folder, address, certificates, |door| door)
    }

    fn of(
        folder: tempfile::TempDir,
        address: SocketAddr,
        certificates: ClientCertificates,
        with: impl FnOnce(Door) -> Door,
    ) -> Served {
        let door =
            Door::open(folder.path(), address, "own-machine", certificates, || NOW_SECONDS as f64).unwrap();
        let door = with(door);
        let (address, fingerprint) = (door.address(), door.identity().fingerprint());
        let (end, control) = (Arc::new(AtomicBool::new(false)), door.control());
        let is_over = end.clone();
        let thread = Some(std::thread::spawn(move || {
            door.answer(&|| is_over.load(Ordering::Relaxed)).unwrap();
        }));
        Served { folder, address, fingerprint, control, end, thread }
    }

    /// Another server of the same farm: it has the same key and the same workers.
    pub fn another(&self) -> Served {
        let folder = tempfile::tempdir().unwrap();
        fs::copy(self.path("door.pem"), folder.path().join("door.pem")).unwrap();
        fs::create_dir(folder.path().join("workers")).unwrap();
        for worker in fs::read_dir(self.path("workers")).unwrap().flatten() {
            fs::copy(worker.path(), folder.path().join("workers").join(worker.file_name())).unwrap();
        }
        Served::at(folder, SocketAddr::from(([127, 0, 0, 1], 0)), ClientCertificates::Optional)
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The same door after a restart.
    pub fn again(self) -> Served {
        self.again_with(ClientCertificates::Optional)
    }

    /// The same door after a restart, which requires or does not require certificates of workers.
    pub fn again_with(mut self, certificates: ClientCertificates) -> Served {
        let address = self.address;
        self.stop();
        let folder = std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap());
        Served::at(folder, address, certificates)
    }

    pub fn stop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn roster(&self) -> Roster {
        Roster::open(self.folder.path()).unwrap()
    }

    pub fn token(&self) -> Token {
        self.roster().issue(self.fingerprint, Terms::default(), NOW_SECONDS).unwrap()
    }

    pub fn client(&self, name: &str) -> Client {
        self.client_with(name, name)
    }

    /// A client with the key of this name.
    pub fn client_with(&self, name: &str, key: &str) -> Client {
        let key = WorkerKey::open(&self.path(&format!("{key}.key"))).unwrap();
        Client::new(&format!("https://{}", self.address), self.fingerprint, name, key).unwrap()
    }

    /// A client that has joined.
    pub fn joined(&self, name: &str) -> Client {
        let client = self.client(name);
        client.join(&self.token().secret).unwrap();
        client
    }

    /// A client that has joined now or before.
    pub fn joined_once(&self, name: &str) -> Client {
        match self.roster().member(name).unwrap() {
            Some(_) => self.client(name),
            None => self.joined(name),
        }
    }

    /// Connects in place of a run.
    pub fn run(&self) -> UnixStream {
        self.run_with(Vec::new())
    }

    /// Connects in place of a run of this epoch.
    pub fn run_of(&self, epoch: &str) -> UnixStream {
        self.begin(Vec::new(), Some(epoch.to_owned()))
    }

    /// Connects in place of a run whose workers have builds.
    pub fn run_with(&self, allowed: Vec<(String, Allowed)>) -> UnixStream {
        self.begin(allowed, None)
    }

    fn begin(&self, allowed: Vec<(String, Allowed)>, epoch: Option<String>) -> UnixStream {
        let mut stream = self.connect();
        let archives = vec![self.path("archives")];
        let (yard, distfiles) = (self.path("yard"), self.path("distfiles"));
        let first = First::Run { yard, distfiles, archives, allowed, epoch };
        relay::write(&mut stream, &first, b"").unwrap();
        stream
    }

    pub fn connect(&self) -> UnixStream {
        relay::connect(self.folder.path()).unwrap()
    }

    pub fn status(&self) -> Status {
        let mut stream = self.connect();
        relay::write(&mut stream, &First::Status, b"").unwrap();
        relay::read(&mut stream).unwrap().unwrap().0
    }

    /// Waits until the door knows the run.
    pub fn until_run(&self, has_run: bool) {
        while self.status().has_run != has_run {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop();
    }
}

pub fn write(path: &Path, content: &[u8]) -> PathBuf {
    fs::write(path, content).unwrap();
    path.to_owned()
}

pub fn sha256_of(content: &[u8]) -> Sha256Hex {
    Sha256Hex::finish(Sha256::new_with_prefix(content))
}

/// The next message for a client.
pub fn message(client: &Client) -> Vec<u8> {
    loop {
        // An answer without one names another run.
        if let Some(message) = client.receive(true).unwrap().message {
            return message;
        }
    }
}

#[track_caller]
pub fn refused<T>(result: Result<T, ClientError>, words: &str) {
    match result {
        Err(ClientError::Refused(reason)) if reason.contains(words) => {}
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it is accepted"),
    }
}

/// Connects in place of a run of the yard whose door has this folder.
pub fn run_in(folder: &Path) -> UnixStream {
    let mut stream = relay::connect(folder).unwrap();
    let (yard, distfiles) = (folder.join("yard"), folder.join("distfiles"));
    let first = First::Run { yard, distfiles, archives: Vec::new(), allowed: Vec::new(), epoch: None };
    relay::write(&mut stream, &first, b"").unwrap();
    stream
}

/// A worker, and a build of it that reads nothing.
pub fn build(worker: &str, attempt: &str) -> (String, Allowed) {
    let logs = Some("logs/1/p/2-".to_owned());
    (worker.to_owned(), Allowed { attempt: attempt.to_owned(), reads: Vec::new(), logs })
}

/// Requests that this program's client does not make, over connections with a certificate of this key.
pub fn plain(served: &Served, key: Option<&str>) -> reqwest::blocking::Client {
    let key = key.map(|name| WorkerKey::open(&served.path(&format!("{name}.key"))).unwrap());
    let tls = identity::client(Pin::Certificate(served.fingerprint), key.as_ref()).unwrap();
    reqwest::blocking::Client::builder().use_preconfigured_tls(tls).http1_only().build().unwrap()
}

/// Begins a session of a worker that has joined, by plain requests.
pub fn begin(served: &Served, worker: &str, http: &reqwest::blocking::Client) -> Response {
    let post = |path: &str, body: serde_json::Value| {
        http.post(format!("https://{}{path}", served.address)).json(&body).send().unwrap()
    };
    let challenge: serde_json::Value = post("/v1/challenge", serde_json::json!(null)).json().unwrap();
    let challenge = challenge["challenge"].as_str().unwrap().to_owned();
    let key = WorkerKey::open(&served.path(&format!("{worker}.key"))).unwrap();
    let proof = key.prove(served.fingerprint, &challenge);
    post("/v1/session", serde_json::json!({ "worker": worker, "challenge": challenge, "proof": proof }))
}

/// A session of a worker that has joined, which has shown no certificate.
pub fn session(served: &Served, worker: &str) -> String {
    session_in(begin(served, worker, &plain(served, None)))
}

/// The session in an answer.
pub fn session_in(answer: Response) -> String {
    answer.json::<serde_json::Value>().unwrap()["session"].as_str().unwrap().to_owned()
}
