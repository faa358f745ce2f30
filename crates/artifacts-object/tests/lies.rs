//! A server that believes everything: `examine` must find it. It stores what it gets and verifies nothing.

use kilnyard_artifacts_object::{Address, Bucket, Credentials, Finding, Options, Outcome};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Objects = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// Serves objects without a check of signatures, checksums, times or conditions, and without uploads in parts.
fn start() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let objects = Objects::default();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let objects = objects.clone();
            std::thread::spawn(move || serve(stream, &objects));
        }
    });
    endpoint
}

fn serve(stream: TcpStream, objects: &Objects) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let header = |name: &str| {
            let values = lines.iter().filter_map(|line| line.split_once(": "));
            values
                .filter(|(found, _)| found.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.to_owned())
                .next()
        };
        let size = header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut body = vec![0; size];
        reader.read_exact(&mut body).ok()?;
        let mut words = lines.first()?.split(' ');
        let (method, target) = (words.next()?, words.next()?);
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (status, body) = answer(objects, method, path, query, body);
        // HEAD has the size of what it does not send.
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nETag: \"x\"\r\nLast-Modified: Thu, 26 Nov 2026 16:00:00 GMT\r\n\r\n",
            body.len()
        );
        let mut answer = head.into_bytes();
        if method != "HEAD" {
            answer.extend(body);
        }
        (&stream).write_all(&answer).ok()?;
    }
}

fn answer(
    objects: &Objects,
    method: &str,
    path: &str,
    query: &str,
    body: Vec<u8>,
) -> (&'static str, Vec<u8>) {
    let mut objects = objects.lock().unwrap();
    match method {
        "PUT" => {
            objects.insert(path.to_owned(), body);
            ("200 OK", Vec::new())
        }
        "DELETE" => ("204 No Content", objects.remove(path).map(|_| Vec::new()).unwrap_or_default()),
        "GET" if query.contains("list-type=2") => {
            let mut text = "<ListBucketResult>".to_owned();
            for (path, content) in &*objects {
                let name = path.trim_start_matches("/lies/");
                let _ = write!(
                    text,
                    "<Contents><Key>{name}</Key><Size>{}</Size><LastModified>2026-11-26T16:00:00Z</LastModified></Contents>",
                    content.len()
                );
            }
            ("200 OK", (text + "</ListBucketResult>").into_bytes())
        }
        "GET" | "HEAD" => match objects.get(path) {
            Some(content) => ("200 OK", content.clone()),
            None => ("404 Not Found", Vec::new()),
        },
        _ => ("400 Bad Request", b"<Error><Code>Nonsense</Code><Message>not here</Message></Error>".to_vec()),
    }
}

#[test]
fn a_server_that_believes_everything_is_refused() {
    let credentials = Credentials { key_id: "key".to_owned(), secret: "hush".to_owned(), token: None };
    let options = Options {
        endpoint: Some(start()),
        credentials: Some(credentials),
        allows_http: true,
        patience: Duration::from_secs(5),
        ..Options::default()
    };
    let address = Address::parse("s3://lies/farm", options).unwrap();
    let findings = Bucket::open(address, &std::env::temp_dir()).unwrap().examine();
    let outcome = |what: &str| {
        let found = findings.iter().find(|finding| finding.what == what);
        found.unwrap_or_else(|| panic!("{what}: {findings:#?}")).outcome.clone()
    };
    let refused = |what: &str, words: &str| match outcome(what) {
        Outcome::Refuse(reason) => assert!(reason.contains(words), "{what}: {reason}"),
        other => panic!("{what}: {other:?}"),
    };
    assert_eq!(outcome("writing and reading"), Outcome::Works);
    assert!(matches!(outcome("reading a range"), Outcome::Missing(_)));
    assert!(matches!(outcome("writing only what is missing"), Outcome::Missing(_)));
    refused("uploads in parts", "Nonsense: not here");
    refused("presigned uploads of other content", "SHA-256");
    refused("expired URLs", "after its time");
    refused("uploads without a signature", "everyone");
    let said: Vec<String> = findings.iter().map(Finding::to_string).collect();
    assert!(!said.concat().contains("hush"), "{said:#?}");
}
