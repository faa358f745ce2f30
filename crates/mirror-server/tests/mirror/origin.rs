//! An origin that does what a test wants, and a mirror in front of it.

use kilnyard_artifacts::Depot;
use kilnyard_mirror_server::{Config, Server, Stop};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How an origin answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    Honest,
    /// Sends this many bytes of a body, then waits until its manner changes.
    Slow,
    /// Ends each connection after this many bytes.
    CutAfter(usize),
    Gone,
}

/// An origin.
pub struct Origin {
    pub address: SocketAddr,
    pub files: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    manner: Arc<Mutex<Manner>>,
    requests: Arc<AtomicUsize>,
}

impl Origin {
    pub fn start(files: &[(&str, &[u8])]) -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let files = files.iter().map(|(path, bytes)| ((*path).to_owned(), bytes.to_vec())).collect();
        let origin = Origin {
            address: listener.local_addr().unwrap(),
            files: Arc::new(Mutex::new(files)),
            manner: Arc::new(Mutex::new(Manner::Honest)),
            requests: Arc::default(),
        };
        let (files, manner, requests) =
            (origin.files.clone(), origin.manner.clone(), origin.requests.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (files, manner, requests) = (files.clone(), manner.clone(), requests.clone());
                std::thread::spawn(move || {
                    let _ = answer(stream, &files, &manner, &requests);
                });
            }
        });
        origin
    }

    pub fn set(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
    }

    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

fn answer(
    stream: TcpStream,
    files: &Mutex<BTreeMap<String, Vec<u8>>>,
    manner: &Mutex<Manner>,
    requests: &AtomicUsize,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    let (mut line, mut headers) = (String::new(), BTreeMap::new());
    reader.read_line(&mut line)?;
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header)? == 0 || header == "\r\n" {
            break;
        }
        if let Some((name, value)) = header.split_once(':') {
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    requests.fetch_add(1, Ordering::SeqCst);
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let how = *manner.lock().unwrap();
    let found = files.lock().unwrap().get(&path).cloned();
    let (Some(bytes), false) = (found, how == Manner::Gone) else {
        let status = if how == Manner::Gone { "503 Gone for now" } else { "404 Not Found" };
        return write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    };
    if let Some(to) = bytes.strip_prefix(b"REDIRECT ") {
        let to = String::from_utf8_lossy(to);
        return write!(
            stream,
            "HTTP/1.1 302 Moved\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
    }
    let etag = format!("\"{}\"", &hex(&bytes)[..8]);
    if headers.get("if-none-match") == Some(&etag) {
        return write!(stream, "HTTP/1.1 304 Not Modified\r\nETag: {etag}\r\nConnection: close\r\n\r\n");
    }
    let from =
        headers.get("range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
    let from: usize =
        from.filter(|_| headers.get("if-range").is_none_or(|known| *known == etag)).unwrap_or(0);
    let (status, range) = match from {
        0 => ("200 OK", String::new()),
        _ => ("206 Partial", format!("Content-Range: bytes {from}-{}/{}\r\n", bytes.len() - 1, bytes.len())),
    };
    let body = &bytes[from..];
    let form = if path.ends_with('/') { "Content-Type: text/html\r\n" } else { "" };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nETag: {etag}\r\n{range}{form}Connection: close\r\n\r\n",
        body.len()
    )?;
    match how {
        Manner::CutAfter(count) => stream.write_all(&body[..count.min(body.len())]),
        Manner::Slow => {
            let half = body.len() / 2;
            stream.write_all(&body[..half])?;
            while *manner.lock().unwrap() == Manner::Slow {
                std::thread::sleep(Duration::from_millis(5));
            }
            stream.write_all(&body[half..])
        }
        _ => stream.write_all(body),
    }
}

pub fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A mirror in a thread of its own.
pub struct Mirror {
    pub folder: tempfile::TempDir,
    pub url: String,
    stop: Stop,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Mirror {
    pub fn start(origin: &Origin, more: &str) -> Mirror {
        Mirror::start_in(tempfile::tempdir().unwrap(), origin, more)
    }

    pub fn start_in(folder: tempfile::TempDir, origin: &Origin, more: &str) -> Mirror {
        Mirror::start_with(folder, origin, more, "")
    }

    pub fn start_with(folder: tempfile::TempDir, origin: &Origin, more: &str, of_archive: &str) -> Mirror {
        let text = format!(
            "listen = \"127.0.0.1:0\"\nblobs = [\"http://{0}\"]\n{more}\n[archive.debian]\nurls = [\"http://{0}/debian\"]\n{of_archive}\n\
             [distfiles]\nurls = [\"http://{0}/dist\"]\ntokens = \"tokens\"\n",
            origin.address
        );
        Mirror::of(folder, &text, None)
    }

    /// A mirror of this configuration.
    pub fn of(folder: tempfile::TempDir, text: &str, bucket: Option<Arc<dyn Depot>>) -> Mirror {
        std::fs::write(folder.path().join("tokens"), "first\nsecret\n").unwrap();
        let config = Config::parse(text).unwrap();
        let base = folder.path().to_owned();
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let (server, stop) = Server::open(config, &base, bucket).await.unwrap();
                sender.send((server.address().unwrap(), stop)).unwrap();
                server.run().await.unwrap();
            });
            runtime.shutdown_timeout(Duration::from_millis(100));
        });
        let (address, stop) = receiver.recv().unwrap();
        Mirror { folder, url: format!("http://{address}"), stop, thread: Some(thread) }
    }

    pub fn curl(&self, path: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--noproxy", "*", "--max-time", "30"]).args(arguments);
        command.arg(format!("{}{path}", self.url)).output().unwrap()
    }

    pub fn get(&self, path: &str) -> Vec<u8> {
        let output = self.curl(path, &["--fail"]);
        assert!(output.status.success(), "{path}: {output:?}");
        output.stdout
    }

    pub fn status(&self, path: &str, arguments: &[&str]) -> String {
        let output =
            self.curl(path, &[&["--output", "/dev/null", "--write-out", "%{http_code}"], arguments].concat());
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn files(&self) -> std::path::PathBuf {
        self.folder.path().join("files/files")
    }

    /// A file as the mirror keeps it. A client may have its last byte before that.
    pub fn kept(&self, path: &str) -> Vec<u8> {
        let facts = self.folder.path().join(format!("files/facts{path}#.json"));
        until(&format!("{path} is kept"), || facts.exists());
        std::fs::read(self.files().join(&path[1..])).unwrap()
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.stop.stop();
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

pub fn large() -> Vec<u8> {
    (0..3_000_000_u32).flat_map(|number| number.to_le_bytes()).collect()
}

pub fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
