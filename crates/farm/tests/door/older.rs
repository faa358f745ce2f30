//! A door of an earlier version, which knows neither codings nor questions about outputs.

use crate::support::{sha256_of, write};
use kilnyard_farm::client::Client;
use kilnyard_farm::proof::WorkerKey;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

/// A request: its first line and header in lower case, and its body.
type Request = (String, Vec<u8>);

/// A door that answers what the client needs, and passes on what it got.
fn older() -> (SocketAddr, String, Receiver<Request>) {
    let made = rcgen::generate_simple_self_signed(["kilnyard".to_owned()]).unwrap();
    let fingerprint = sha256_of(made.cert.der()).to_string();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let (listener, config) = (TcpListener::bind("127.0.0.1:0").unwrap(), Arc::new(config));
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = mpsc::channel();
    // It ends with this process.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (config, sender) = (config.clone(), sender.clone());
            std::thread::spawn(move || answer(stream, config, &sender));
        }
    });
    (address, fingerprint, receiver)
}

fn answer(stream: TcpStream, config: Arc<rustls::ServerConfig>, requests: &Sender<Request>) {
    let tls = rustls::ServerConnection::new(config).unwrap();
    let mut stream = BufReader::new(rustls::StreamOwned::new(tls, stream));
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        head.make_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        stream.read_exact(&mut body).unwrap();
        let (status, text) = match head.split(' ').nth(1).unwrap() {
            "/v1/challenge" => ("200 OK", r#"{"challenge":"c"}"#),
            "/v1/session" => ("200 OK", r#"{"session":"s"}"#),
            "/v1/blobs" => ("404 Not Found", ""),
            _ => ("204 No Content", ""),
        };
        let length = if status.starts_with("204") {
            String::new()
        } else {
            format!("content-length: {}\r\n", text.len())
        };
        write!(stream.get_mut(), "HTTP/1.1 {status}\r\n{length}\r\n{text}").unwrap();
        requests.send((head, body)).unwrap();
    }
}

#[test]
fn an_older_door_gets_plain_messages_and_whole_files() {
    let (address, fingerprint, requests) = older();
    let folder = tempfile::tempdir().unwrap();
    let key = WorkerKey::open(&folder.path().join("key")).unwrap();
    let one = Client::new(&format!("https://{address}"), fingerprint.parse().unwrap(), "one", key).unwrap();
    let next = |path: &str| {
        let found = requests.iter().find(|(head, _)| head.contains(path)).unwrap();
        (found.0.contains("content-encoding"), found)
    };
    let message = b"message ".repeat(1000);
    one.send(message.clone()).unwrap();
    let (is_packed, (_, body)) = next("post /v1/messages");
    assert!(!is_packed && body == message);
    let path = write(&folder.path().join("output"), b"output");
    one.store("a", &sha256_of(b"output"), &path).unwrap();
    let (_, (head, body)) = next("put /v1/blobs/");
    assert!(head.contains("?attempt=a&offset=0 ") && body == b"output", "{head}");
}
