//! Workers behind a proxy that ends TLS with a certificate of its own, and passes on each request and each answer when it
//! has all of it.

use crate::shells;
use crate::support::{Served, message, refused, sha256_of, write};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use kilnyard_artifacts::{Artifacts, Folder, Storage};
use kilnyard_farm::client::{Client, ClientError};
use kilnyard_farm::door::ClientCertificates;
use kilnyard_farm::identity::{self, Fingerprint, Pin};
use kilnyard_farm::proof::WorkerKey;
use kilnyard_farm::relay::{self, Allowed, ToDoor, ToRun};
use kilnyard_farm::roster::Token;
use kilnyard_farm::shell::{self, FromShell, ToShell};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

/// The most bytes of a request or an answer that the proxy holds.
const HELD_BYTES_MAX: usize = 64 << 20;

/// The proxy's side towards the door.
struct Upstream {
    http: reqwest::Client,
    door: SocketAddr,
    /// The number of requests that it has passed on.
    passed: AtomicUsize,
}

struct Proxy {
    address: SocketAddr,
    key: KeyPair,
    /// Its certificate, as `--certificate` takes it.
    pem: String,
    upstream: Arc<Upstream>,
    runtime: Option<Runtime>,
}

impl Proxy {
    fn new(served: &Served) -> Proxy {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        Proxy::at(address, served.fingerprint, served.address, KeyPair::generate().unwrap())
    }

    fn at(address: SocketAddr, fingerprint: Fingerprint, door: SocketAddr, key: KeyPair) -> Proxy {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let certificate =
            CertificateParams::new(["proxy.example".to_owned()]).unwrap().self_signed(&key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        let http = reqwest::Client::builder()
            .use_preconfigured_tls(identity::client(Pin::Certificate(fingerprint), None).unwrap())
            .build()
            .unwrap();
        let upstream = Arc::new(Upstream { http, door, passed: AtomicUsize::new(0) });
        let listener = runtime.block_on(TcpListener::bind(address)).unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(pass).with_state(upstream.clone());
        runtime.spawn(accept(listener, TlsAcceptor::from(Arc::new(tls)), router));
        Proxy { address, key, pem: certificate.pem(), upstream, runtime: Some(runtime) }
    }

    /// The proxy after a restart with another certificate, which may be one of the same key.
    fn renewed(mut self, served: &Served, key: Option<KeyPair>) -> Proxy {
        self.stop();
        let same = || KeyPair::from_pem(&self.key.serialize_pem()).unwrap();
        Proxy::at(self.address, served.fingerprint, served.address, key.unwrap_or_else(same))
    }

    fn stop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
    }

    /// A token for a worker behind the proxy, as text and back.
    fn token(&self, served: &Served) -> Token {
        let proxy = Some(Fingerprint::of_key_in(self.pem.as_bytes()).unwrap());
        Token { proxy, ..served.token() }.to_string().parse().unwrap()
    }

    /// A client behind the proxy that this token is for.
    fn client(&self, served: &Served, name: &str, token: &Token) -> Client {
        let key = WorkerKey::open(&served.path(&format!("{name}.key"))).unwrap();
        let url = format!("https://{}", self.address);
        Client::through(
            &url,
            Pin::Key { proxy: token.proxy.unwrap(), certificate: token.fingerprint },
            token.fingerprint,
            name,
            key,
        )
        .unwrap()
    }

    fn joined(&self, served: &Served, name: &str) -> Client {
        let token = self.token(served);
        let client = self.client(served, name, &token);
        client.join(&token.secret).unwrap();
        client
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, router: Router) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (tls, router) = (tls.clone(), router.clone());
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let builder = Builder::new(TokioExecutor::new());
            // A broken connection is its client's concern.
            let _ = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await;
        });
    }
}

/// Headers without those of one connection.
fn end_to_end(mut headers: HeaderMap) -> HeaderMap {
    for name in [header::CONNECTION, header::TRANSFER_ENCODING, header::HOST, header::CONTENT_LENGTH] {
        headers.remove(name);
    }
    headers
}

/// Collects a request, passes it on, and answers with the whole answer.
async fn pass(State(upstream): State<Arc<Upstream>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, HELD_BYTES_MAX).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    upstream.passed.fetch_add(1, Ordering::Relaxed);
    let path = parts.uri.path_and_query().unwrap();
    let request = upstream.http.request(parts.method, format!("https://{}{path}", upstream.door));
    let Ok(answer) = request.headers(end_to_end(parts.headers)).body(body).send().await else {
        return StatusCode::BAD_GATEWAY.into_response();
    };
    let (status, headers) = (answer.status(), end_to_end(answer.headers().clone()));
    match answer.bytes().await {
        Ok(body) => (status, headers, Body::from(body)).into_response(),
        Err(_) => StatusCode::BAD_GATEWAY.into_response(),
    }
}

/// A build that reads one file.
fn allow(worker: &str, reads: kilnyard_model::sha256::Sha256Hex) -> (String, Allowed) {
    let logs = Some("logs/1/p/2-".to_owned());
    (worker.to_owned(), Allowed { attempt: "a".to_owned(), reads: vec![reads], logs })
}

#[test]
fn everything_works_behind_a_proxy_that_ends_tls_and_buffers() {
    let served = Served::new();
    let proxy = Proxy::new(&served);
    let one = proxy.joined(&served, "one");
    let store = Folder::open(&served.path("distfiles")).unwrap();
    let content: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    let (input, _) = store.insert(&mut &content[..], Storage::Compressed).unwrap();
    let mut run = served.run_with(vec![allow("one", input.clone())]);
    served.until_run(true);
    // Messages, of which long ones are compressed, and news of another run.
    let long = "message ".repeat(10_000).into_bytes();
    for said in [b"short".to_vec(), long.clone()] {
        one.send(said.clone()).unwrap();
        let (from, body) = relay::read::<ToRun>(&mut run).unwrap().unwrap();
        assert_eq!((from.worker.as_str(), &body), ("one", &said));
        let to = ToDoor { to: "one".to_owned(), ..ToDoor::default() };
        relay::write(&mut run, &to, &said).unwrap();
        assert_eq!(message(&one), said);
    }
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| message(&one));
        std::thread::sleep(Duration::from_millis(50));
        let to = ToDoor { to: "one".to_owned(), ..ToDoor::default() };
        relay::write(&mut run, &to, b"later").unwrap();
        assert_eq!(waiting.join().unwrap(), b"later");
    });
    // Files and logs.
    let mut read = Vec::new();
    one.open(&input).unwrap().read_to_end(&mut read).unwrap();
    assert!(read == content);
    let output = vec![b'x'; 20 << 20];
    let files: Vec<_> = ["output", "again"]
        .map(|name| {
            let bytes = [&output[..], name.as_bytes()].concat();
            (sha256_of(&bytes), write(&served.path(name), &bytes))
        })
        .to_vec();
    one.store_all("a", &files).unwrap();
    assert!(files.iter().all(|(sha256, _)| store.contains(sha256).unwrap()));
    refused(one.store("b", &files[0].0, &files[0].1), "no build of this worker");
    assert!(one.store_part("a", "build", 0, b"one ").unwrap());
    assert!(!one.store_part("a", "build", 9, b"gap").unwrap());
    assert!(one.store_part("a", "build", 4, b"two").unwrap());
    let log = write(&served.path("log.zst"), &zstd::encode_all(&b"one two"[..], 1).unwrap());
    one.store_log("a", "build", &log).unwrap();
    assert!(served.path("yard/logs/1/p/2-build.log.zst").exists());
    // A shell.
    let mut yard = shells::open(&served, "one");
    let id = shells::id_of_next(&one);
    let frame = relay::frame(&ToShell::Input, b"typed").unwrap();
    yard.write_all(&frame).unwrap();
    assert_eq!(one.shell_input(&id, 0).unwrap(), frame);
    let exited = relay::frame(&FromShell::Exited { code: 7 }, b"").unwrap();
    one.shell_output(&id, 0, &exited).unwrap();
    let read = shell::read::<FromShell>(&mut yard).unwrap();
    assert_eq!(read, Some((FromShell::Exited { code: 7 }, Vec::new())));
    // Another run, and another door.
    let before = one.receive(false).unwrap().run;
    let _run = served.run_with(vec![allow("one", input)]);
    while one.receive(true).unwrap().run == before {}
    let served = served.again();
    one.send(long).unwrap();
    assert!(proxy.upstream.passed.load(Ordering::Relaxed) > 20);
    // A worker that was removed.
    assert!(served.roster().remove("one").unwrap());
    refused(one.send(b"x".to_vec()), "was removed");
}

#[test]
fn a_proxy_may_renew_its_certificate_and_a_new_token_accepts_another_key() {
    let served = Served::new();
    let proxy = Proxy::new(&served);
    let one = proxy.joined(&served, "one");
    one.send(b"x".to_vec()).unwrap();
    let first = proxy.pem.clone();
    let proxy = proxy.renewed(&served, None);
    assert_ne!(proxy.pem, first);
    one.send(b"x".to_vec()).unwrap();
    let proxy = proxy.renewed(&served, Some(KeyPair::generate().unwrap()));
    let sent = one.send(b"x".to_vec());
    assert!(matches!(sent, Err(ClientError::OtherDoor)), "{sent:?}");
    // It joins again under its name, which uses the token up.
    let token = proxy.token(&served);
    let again = proxy.client(&served, "one", &token);
    again.join(&token.secret).unwrap();
    again.send(b"x".to_vec()).unwrap();
    refused(served.client("two").join(&token.secret), "was used");
    assert_eq!(served.status().workers.len(), 1);
}

#[test]
fn a_proxy_is_accepted_only_with_its_token_and_proofs_are_for_the_door() {
    let served = Served::new();
    let proxy = Proxy::new(&served);
    let url = format!("https://{}", proxy.address);
    let key = |name: &str| WorkerKey::open(&served.path(&format!("{name}.key"))).unwrap();
    let direct = Client::new(&url, served.fingerprint, "one", key("one")).unwrap();
    let joined = direct.join(&served.token().secret);
    assert!(matches!(joined, Err(ClientError::OtherDoor)), "{joined:?}");
    // A server that has a token of its own cannot pass on what its workers prove to it.
    let token = proxy.token(&served);
    let pin = Pin::Key { proxy: token.proxy.unwrap(), certificate: token.fingerprint };
    let misled = Client::through(&url, pin, token.proxy.unwrap(), "one", key("one")).unwrap();
    misled.join(&token.secret).unwrap();
    refused(misled.send(b"x".to_vec()), "not that of the worker's key");
    // A door that requires certificates sees none of the worker's.
    let one = proxy.client(&served, "one", &token);
    one.send(b"x".to_vec()).unwrap();
    let served = served.again_with(ClientCertificates::Required);
    refused(one.send(b"x".to_vec()), "a proxy ends TLS");
    drop(served);
}
