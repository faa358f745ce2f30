//! The server over real connections: who may see and ask what.

use kilnyard_api::bodies::{Ask, Asked, Made, Of, Target, Yard};
use kilnyard_api::entrance::Entrance;
use kilnyard_api::requests::{Site, Trouble};
use kilnyard_api::server::{Certificate, Server};
use kilnyard_api::tokens::{Terms, Tokens};
use kilnyard_model::scope::Scope;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Records what it is asked.
#[derive(Debug, Default)]
struct Recorder(Mutex<Vec<(String, String, Vec<String>)>>);

impl Site for Recorder {
    fn yards(&self) -> Result<Vec<Yard>, Trouble> {
        let yard = |name: &str| Yard {
            name: name.to_owned(),
            targets: vec![Target { run: Some(3), ..Target::default() }],
            trouble: None,
        };
        Ok(vec![yard("."), yard("lab")])
    }

    fn ask(&self, ask: &Ask, author: &str) -> Result<Asked, Trouble> {
        match ask.packages[0].as_str() {
            "absent" => return Err(Trouble::Absent("no such package".to_owned())),
            "good" => return Err(Trouble::Refused("good is built".to_owned())),
            "broken-disk" => return Err(Trouble::Machine("the disk is gone".to_owned())),
            "panic" => panic!("a defect"),
            _ => {}
        }
        let asked = (author.to_owned(), ask.yard.clone(), ask.packages.clone());
        self.0.lock().unwrap().push(asked);
        Ok(Asked { run: Some(3) })
    }

    fn made(&self, of: &Of) -> Result<Vec<Made>, Trouble> {
        let all = self.0.lock().unwrap();
        let made = all.iter().filter(|(_, yard, _)| *yard == of.yard).map(|(author, _, packages)| Made {
            seq: 1,
            at_seconds: 1.0,
            request: "retry".to_owned(),
            package: packages.first().cloned(),
            author: Some(author.clone()),
        });
        Ok(made.take(of.count as usize).collect())
    }
}

struct Bench {
    folder: TempDir,
    server: Server,
    site: Arc<Recorder>,
    client: reqwest::blocking::Client,
}

impl Bench {
    fn start(anonymous: &[Scope]) -> Bench {
        Bench::start_with(anonymous, None)
    }

    fn start_with(anonymous: &[Scope], certificate: Option<&Certificate>) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let site = Arc::new(Recorder::default());
        let entrance = Entrance { anonymous: anonymous.iter().copied().collect(), proxy: None };
        let address = "127.0.0.1:0".parse().unwrap();
        let tokens = Tokens::open(folder.path());
        let server = Server::start(address, certificate, entrance, tokens, site.clone(), || 1.0).unwrap();
        let provider = rustls::crypto::ring::default_provider();
        let mut roots = rustls::RootCertStore::empty();
        if let Some(certificate) = certificate {
            use rustls::pki_types::pem::PemObject;
            let chain = rustls::pki_types::CertificateDer::from_pem_slice(&certificate.chain).unwrap();
            roots.add(chain).unwrap();
        }
        let tls = rustls::ClientConfig::builder_with_provider(Arc::new(provider));
        let tls = tls.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        let client = reqwest::blocking::Client::builder().use_preconfigured_tls(tls.with_no_client_auth());
        Bench { folder, server, site, client: client.no_proxy().build().unwrap() }
    }

    fn token(&self, name: &str, scopes: &[Scope], yards: Option<&[&str]>) -> String {
        let scopes = scopes.iter().copied().collect();
        let yards = yards.map(|yards| yards.iter().map(|yard| (*yard).to_owned()).collect::<BTreeSet<_>>());
        let terms = Terms { name: name.to_owned(), scopes, yards, ends_seconds: 9 };
        Tokens::open(self.folder.path()).issue(terms, 1).unwrap().1
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/api/v1/{path}", self.server.address())
    }

    fn get(&self, path: &str, token: &str) -> (u16, Value) {
        let request = self.client.get(self.url(path));
        let request = if token.is_empty() { request } else { request.bearer_auth(token) };
        answered(request)
    }

    fn post(&self, token: &str, body: &Value) -> (u16, Value) {
        let request = self.client.post(self.url("requests")).json(body);
        let request = if token.is_empty() { request } else { request.bearer_auth(token) };
        answered(request)
    }
}

fn answered(request: reqwest::blocking::RequestBuilder) -> (u16, Value) {
    let answer = request.send().unwrap();
    assert_eq!(answer.headers()["cache-control"], "no-store");
    assert_eq!(answer.headers()["content-type"], "application/json");
    (answer.status().as_u16(), answer.json().unwrap())
}

fn names(yards: &Value) -> Vec<&str> {
    yards.as_array().unwrap().iter().map(|yard| yard["name"].as_str().unwrap()).collect()
}

fn retry(yard: &str, package: &str) -> Value {
    json!({ "yard": yard, "request": "retry", "packages": [package] })
}

#[test]
fn a_token_does_what_its_scopes_say_in_its_yards() {
    let bench = Bench::start(&[]);
    let reader = bench.token("reader", &[Scope::Read], None);
    let anna = bench.token("anna", &[Scope::Request], Some(&["lab"]));
    assert_eq!(bench.get("yards", "").0, 401);
    let (status, answer) = bench.get("who", "kilnyard-person-1.00.00");
    assert!(status == 401 && answer["error"].as_str().unwrap().contains("is unknown"), "{answer}");
    assert_eq!(
        bench.get("who", &anna),
        (200, json!({ "name": "anna", "scopes": ["request"], "yards": ["lab"] }))
    );
    assert_eq!(names(&bench.get("yards", &reader).1), [".", "lab"]);
    assert_eq!(names(&bench.get("yards", &anna).1), ["lab"]);

    assert_eq!(bench.post("", &retry("lab", "zlib")).0, 401);
    let (status, answer) = bench.post(&reader, &retry("lab", "zlib"));
    assert_eq!((status, &answer["error"]), (403, &json!("the scope `request` is needed")));
    // What she may not see is what does not exist.
    for yard in [".", "nowhere"] {
        let (status, answer) = bench.post(&anna, &retry(yard, "zlib"));
        assert_eq!((status, &answer["error"]), (404, &json!(format!("there is no yard \"{yard}\" here"))));
        assert_eq!(bench.get(&format!("requests?yard={yard}"), &anna).0, 404);
    }
    assert_eq!(bench.site.0.lock().unwrap().len(), 0, "none of them did anything");
    assert_eq!(bench.post(&anna, &retry("lab", "zlib")), (202, json!({ "run": 3 })));
    let (status, made) = bench.get("requests?yard=lab", &reader);
    assert_eq!((status, &made[0]["author"], &made[0]["package"]), (200, &json!("anna"), &json!("zlib")));
    assert_eq!(bench.get("requests", &reader).1, json!([]));
    // A token counts no more from the next request on.
    Tokens::open(bench.folder.path()).remove("anna").unwrap();
    assert_eq!(bench.post(&anna, &retry("lab", "zlib")).0, 401);
}

#[test]
fn everyone_sees_what_the_site_allows_and_asks_nothing() {
    let bench = Bench::start(&[Scope::Read]);
    assert_eq!(names(&bench.get("yards", "").1), [".", "lab"]);
    assert_eq!(bench.get("who", "").1["name"], Value::Null);
    assert_eq!(bench.post("", &retry("lab", "zlib")).0, 403);
    // A token that does not count is not the same as none.
    assert_eq!(bench.get("yards", "kilnyard-person-1.00.00").0, 401);
    assert_eq!(bench.site.0.lock().unwrap().len(), 0);
}

#[test]
fn wrong_requests_are_explained_and_do_nothing() {
    let bench = Bench::start(&[]);
    let anna = bench.token("anna", &[Scope::Request], None);
    for (body, expected, reason) in [
        (json!({}), 422, "missing field"),
        (json!({ "request": "remove", "packages": ["a"] }), 422, "unknown variant"),
        (json!({ "request": "retry", "packages": [] }), 422, "1 to 500"),
        (json!({ "request": "retry", "packages": vec!["a"; 501] }), 422, "1 to 500"),
        (json!({ "request": "retry", "packages": ["a"], "yrad": "lab" }), 422, "unknown field"),
        (retry("lab", "absent"), 404, "no such package"),
        (retry("lab", "good"), 409, "is built"),
        (retry("lab", "broken-disk"), 500, "the disk"),
        (retry("lab", "panic"), 500, "the server panicked, and says why"),
        (json!({ "request": "retry", "packages": ["a".repeat(1 << 17)] }), 413, "length limit"),
    ] {
        let (status, answer) = bench.post(&anna, &body);
        let error = answer["error"].as_str().unwrap();
        assert!(status == expected && error.contains(reason), "{status} {error}");
    }
    let plain = bench.client.post(bench.url("requests")).bearer_auth(&anna);
    // What a form of any page can send.
    let plain = plain.header("content-type", "text/plain").body(retry("lab", "zlib").to_string());
    assert_eq!(answered(plain).0, 415);
    for (name, value) in [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")] {
        let foreign = bench.client.post(bench.url("requests")).bearer_auth(&anna).json(&retry("lab", "zlib"));
        assert_eq!(answered(foreign.header(name, value)).0, 403, "{name}");
    }
    assert_eq!(bench.get("nothing", &anna).0, 404);
    assert_eq!(bench.get("requests?count=x", &anna).0, 400);
    assert_eq!(bench.get("requests?count=4000000000", &anna).0, 200);
    assert_eq!(bench.site.0.lock().unwrap().len(), 0);
}

#[test]
fn clients_that_do_not_speak_hold_up_no_other() {
    let bench = Bench::start(&[Scope::Read]);
    let address = bench.server.address();
    let mut silent: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(address).unwrap()).collect();
    for stream in &mut silent {
        stream.write_all(b"POST /api/v1/requests HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n").unwrap();
    }
    assert_eq!(bench.get("yards", "").0, 200);
    // A head of unlimited length ends its connection.
    let mut long = TcpStream::connect(address).unwrap();
    long.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let began = Instant::now();
    while long.write_all(&[b'a'; 4096]).is_ok() {
        assert!(began.elapsed() < Duration::from_secs(30), "it takes all");
    }
    let mut rest = Vec::new();
    let _ = long.read_to_end(&mut rest);
    assert!(rest.len() < 4096);
}

#[test]
fn over_tls_with_the_sites_own_certificate() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (chain, key) = (made.cert.pem().into_bytes(), made.signing_key.serialize_pem().into_bytes());
    let certificate = Certificate { chain, key };
    let bench = Bench::start_with(&[Scope::Read], Some(&certificate));
    let port = bench.server.address().port();
    let (status, _) = answered(bench.client.get(format!("https://localhost:{port}/api/v1/yards")));
    assert_eq!(status, 200);
    assert!(bench.client.get(bench.url("yards")).send().is_err(), "nothing is answered in the clear");
    for (chain, key) in [(b"".to_vec(), certificate.key.clone()), (certificate.chain.clone(), b"x".to_vec())]
    {
        let tokens = Tokens::open(bench.folder.path());
        let certificate = Certificate { chain, key };
        let address = "127.0.0.1:0".parse().unwrap();
        let site = Arc::new(Recorder::default());
        let entrance = Entrance::default();
        assert!(Server::start(address, Some(&certificate), entrance, tokens, site, || 1.0).is_err());
    }
}

#[test]
fn the_document_describes_each_request() {
    let bench = Bench::start(&[Scope::Read]);
    let (status, document) = bench.get("openapi", "");
    assert_eq!(status, 200);
    let paths: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
    assert_eq!(paths, ["/api/v1/openapi", "/api/v1/requests", "/api/v1/who", "/api/v1/yards"]);
    assert!(document["paths"]["/api/v1/requests"]["post"]["responses"]["409"].is_object());
}
