//! A fake of the API, made from its documented behaviour: objects with uids, pages with `continue`, deletion in the foreground, and
//! errors as `Status`. It has no controllers, no admission and no validation.

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Pages are small, so that lists have several.
const PAGE_MAX: usize = 2;

#[derive(Default)]
pub struct State {
    /// By path of the object.
    pub objects: BTreeMap<String, Value>,
    uids: u32,
    /// Requests to create a Secret fail.
    pub refuses_secrets: bool,
    /// What the next answers are instead: garbage.
    pub garbage: Option<Vec<u8>>,
}

pub struct Fake {
    pub port: u16,
    pub state: Arc<Mutex<State>>,
}

impl Fake {
    pub fn start(certificate: CertificateDer<'static>, key: PrivateKeyDer<'static>, token: &str) -> Fake {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let tls = Arc::new(tls);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State::default()));
        let (shared, authorization) = (state.clone(), format!("bearer {token}").to_lowercase());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), tls, state, authorization) =
                    (stream, tls.clone(), shared.clone(), authorization.clone())
                else {
                    continue;
                };
                // A client that goes away in the middle is none of ours.
                std::thread::spawn(move || drop(serve(stream, tls, &state, &authorization)));
            }
        });
        Fake { port, state }
    }
}

fn serve(
    stream: TcpStream,
    tls: Arc<rustls::ServerConfig>,
    state: &Mutex<State>,
    authorization: &str,
) -> std::io::Result<()> {
    let connection = rustls::ServerConnection::new(tls).map_err(std::io::Error::other)?;
    let mut reader = BufReader::new(rustls::StreamOwned::new(connection, stream));
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let (mut size, mut is_known) = (0, false);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        let header = header.trim().to_lowercase();
        if header.is_empty() {
            break;
        }
        size = header.strip_prefix("content-length:").map_or(size, |text| text.trim().parse().unwrap());
        is_known |= header.strip_prefix("authorization:").is_some_and(|text| text.trim() == authorization);
    }
    let mut body = vec![0; size];
    reader.read_exact(&mut body)?;
    let mut state = state.lock().unwrap();
    let (code, answer) = match (is_known, state.garbage.clone()) {
        (false, _) => (401, status("Unauthorized").to_string().into_bytes()),
        (true, Some(garbage)) => (200, garbage),
        (true, None) => {
            let (code, value) = state.answer(&words[0], &words[1], serde_json::from_slice(&body).ok());
            (code, value.to_string().into_bytes())
        }
    };
    drop(state);
    let stream = reader.get_mut();
    write!(stream, "HTTP/1.1 {code} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", answer.len())?;
    stream.write_all(&answer)?;
    stream.conn.send_close_notify();
    stream.flush()
}

fn status(message: &str) -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message })
}

impl State {
    fn answer(&mut self, method: &str, target: &str, body: Option<Value>) -> (u16, Value) {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let query: BTreeMap<&str, &str> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
        match (method, body) {
            ("GET", _) if path == "/version" => (200, json!({ "gitVersion": "v1.34.4-fake" })),
            ("POST", Some(mut review)) if path.ends_with("/selfsubjectaccessreviews") => {
                review["status"] = json!({ "allowed": true });
                (201, review)
            }
            ("POST", Some(_)) if path.ends_with("/secrets") && self.refuses_secrets => {
                (403, status("secrets is forbidden: exceeded quota"))
            }
            ("POST", Some(mut object)) => {
                let path = format!("{path}/{}", object["metadata"]["name"].as_str().unwrap());
                if self.objects.contains_key(&path) {
                    return (409, status("jobs.batch already exists"));
                }
                self.uids += 1;
                object["metadata"]["uid"] = json!(format!("uid-{}", self.uids));
                self.objects.insert(path, object.clone());
                (201, object)
            }
            ("GET", _) if self.objects.contains_key(path) => (200, self.objects[path].clone()),
            ("GET", _) => {
                let selector = query.get("labelSelector").unwrap().split_once("%3D").unwrap();
                let after = query.get("continue").map_or(String::new(), |text| text.replace("%2F", "/"));
                let is_of = |name: &str, object: &Value| {
                    name.rsplit_once('/').unwrap().0 == path
                        && name > after.as_str()
                        && object["metadata"]["labels"][selector.0] == selector.1
                };
                let mut found = self.objects.iter().filter(|(name, object)| is_of(name, object));
                let limit = query["limit"].parse::<usize>().unwrap().min(PAGE_MAX);
                let page: Vec<_> = found.by_ref().take(limit).collect();
                let next = found.next().map_or("", |_| page.last().unwrap().0.as_str());
                // As the API does for lists, items have no kind.
                let items: Vec<&Value> = page.iter().map(|(_, object)| *object).collect();
                (200, json!({ "kind": "List", "metadata": { "continue": next }, "items": items }))
            }
            ("DELETE", Some(options)) => match self.objects.get_mut(path) {
                Some(object) if options["propagationPolicy"] == "Foreground" => {
                    object["metadata"]["deletionTimestamp"] = json!("2026-11-26T20:00:00Z");
                    (200, object.clone())
                }
                Some(_) => (422, status("only in the foreground")),
                None => (404, status("not found")),
            },
            _ => (405, status("no such method")),
        }
    }
}
