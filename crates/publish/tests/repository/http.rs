//! Tests apt over HTTP, with a server that records requests and can publish between them.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::support::{APT_TOOLS, CODENAME, Client, Yard, lacks, sha256};

type AfterAnswer = Box<dyn FnMut(&str) + Send>;

/// Serves a directory on loopback until the process ends.
struct Server {
    address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(root: PathBuf, after_answer: AfterAnswer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let after_answer = Arc::new(Mutex::new(after_answer));
        let log = asked.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (root, log, after_answer) = (root.clone(), log.clone(), after_answer.clone());
                thread::spawn(move || {
                    let _ = answer_all(stream, &root, &log, &after_answer);
                });
            }
        });
        Self { address, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn answer_all(
    stream: TcpStream,
    root: &Path,
    log: &Mutex<Vec<String>>,
    after_answer: &Mutex<AfterAnswer>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    loop {
        let mut request = String::new();
        if reader.read_line(&mut request)? == 0 {
            return Ok(());
        }
        let path = request.split_whitespace().nth(1).unwrap_or("/").trim_start_matches('/').to_owned();
        let mut header = String::new();
        while reader.read_line(&mut header)? > 2 {
            header.clear();
        }
        let (status, body) = match fs::read(root.join(&path)) {
            Ok(body) => ("200 OK", body),
            Err(_) => ("404 Not Found", Vec::new()),
        };
        log.lock().unwrap().push(format!("{} {path}", &status[..3]));
        // Run this before answering, so that the client cannot send its next request earlier.
        after_answer.lock().unwrap()(&path);
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len())?;
        stream.write_all(&body)?;
    }
}

fn client_of(server: &Server, yard: &Yard) -> Client {
    Client::new(&format!("http://{}", server.address), &yard.repository())
}

#[test]
fn indexes_are_fetched_by_hash() {
    if lacks("indexes_are_fetched_by_hash", &APT_TOOLS) {
        return;
    }
    let yard = Yard::new();
    yard.publish(&[yard.deb("alpha", "1.0-1", "amd64")], &[]);
    let server = Server::start(yard.repository(), Box::new(|_| {}));
    let client = client_of(&server, &yard);
    client.update();
    let asked = server.asked();
    assert!(
        asked.iter().any(|line| line.starts_with("200") && line.contains("/by-hash/SHA256/")),
        "{asked:?}"
    );
    assert!(!asked.iter().any(|line| line.contains("Packages")), "{asked:?}");
    assert!(client.get(&["download", "alpha"]).status.success());
}

#[test]
fn a_reader_in_the_middle_of_an_update_succeeds() {
    if lacks("a_reader_in_the_middle_of_an_update_succeeds", &APT_TOOLS) {
        return;
    }
    let yard = Arc::new(Yard::new());
    yard.publish(&[yard.deb("alpha", "1.0-1", "amd64")], &[]);
    // After the client has fetched InRelease, publish two more generations before it requests an index. The
    // server outlives the test and must not keep the yard alive.
    let publisher = Arc::downgrade(&yard);
    let mut versions = ["1.0-2", "1.0-3"].into_iter();
    let server = Server::start(
        yard.repository(),
        Box::new(move |path| {
            if let (true, Some(publisher)) = (path.ends_with("/InRelease"), publisher.upgrade()) {
                for version in versions.by_ref() {
                    publisher.publish(&[publisher.deb("alpha", version, "amd64")], &[]);
                }
            }
        }),
    );
    let client = client_of(&server, &yard);
    client.update();
    assert_eq!(client.candidate("alpha").as_deref(), Some("1.0-1"));
    let asked = server.asked();
    assert!(asked.iter().all(|line| line.starts_with("200")), "{asked:?}");
    client.update();
    assert_eq!(client.candidate("alpha").as_deref(), Some("1.0-3"));
}

#[test]
fn an_old_release_names_indexes_for_two_more_switches() {
    if lacks("an_old_release_names_indexes_for_two_more_switches", &["dpkg-deb", "gpg"]) {
        return;
    }
    let yard = Yard::new();
    let generation = yard.repository().join("dists").join(CODENAME);
    let by_hash = |release: &str| -> Vec<(String, PathBuf)> {
        release
            .lines()
            .filter_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
                [hash, _, path] if hash.len() == 64 => {
                    let directory = Path::new(path).parent().unwrap();
                    Some((hash.to_owned(), generation.join(directory).join("by-hash/SHA256").join(hash)))
                }
                _ => None,
            })
            .collect()
    };
    let mut releases = Vec::new();
    for number in 1..=5 {
        yard.publish(&[yard.deb("alpha", &format!("1.0-{number}"), "amd64")], &[]);
        releases.push(fs::read_to_string(generation.join("InRelease")).unwrap());
        for (age, release) in releases.iter().rev().enumerate() {
            let files = by_hash(release);
            assert_eq!(files.len(), 6);
            for (hash, path) in files {
                match fs::read(&path) {
                    Ok(content) => assert_eq!(sha256(&content), hash),
                    Err(_) => {
                        assert!(age > 2, "generation {number}: {} is gone at age {age}", path.display())
                    }
                }
            }
        }
    }
    let kept: Vec<_> = fs::read_dir(yard.repository().join(".generations").join(CODENAME)).unwrap().collect();
    assert_eq!(kept.len(), 3);
}
