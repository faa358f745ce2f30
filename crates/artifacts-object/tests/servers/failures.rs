//! Connections that break, servers that are away, and processes that are killed.

use super::stores::read;
use super::{PART_BYTES, Stand, content, file, open, patience};
use crate::server::Server;
use kilnyard_artifacts::{ArtifactError, Artifacts, Folder, Storage, copy};
use kilnyard_artifacts_object::{Credentials, Options, is_away};
use kilnyard_model::artifact::{Artifact, Media};
use kilnyard_model::sha256::Sha256Hex;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Passes connections to a server.
struct Relay {
    endpoint: String,
    /// The number of answers that are cut from now on, each after some bytes.
    cuts: Arc<AtomicUsize>,
    /// Bytes that were passed to the server.
    sent_bytes: Arc<AtomicUsize>,
}

impl Relay {
    /// Answers are cut after `cut_bytes`. What is sent to the server is passed at `rate` bytes per second at most.
    fn start(server: &Server, cut_bytes: usize, rate: usize) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (cuts, sent_bytes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let relay = Relay { endpoint, cuts: cuts.clone(), sent_bytes: sent_bytes.clone() };
        let address = server.address();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&address) else { continue };
                let (from, to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let (cuts, sent_bytes) = (cuts.clone(), sent_bytes.clone());
                std::thread::spawn(move || {
                    let mut passed = 0;
                    pass(from, to, |count| {
                        passed += count;
                        let cut = |left: usize| left.checked_sub(1);
                        passed > cut_bytes
                            && cuts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, cut).is_ok()
                    });
                });
                std::thread::spawn(move || {
                    pass(client, server, |count| {
                        sent_bytes.fetch_add(count, Ordering::SeqCst);
                        std::thread::sleep(Duration::from_secs_f64(count as f64 / rate as f64));
                        false
                    });
                });
            }
        });
        relay
    }
}

/// Passes bytes on until one side ends, or `ends` says so of what would be passed next.
fn pass(mut from: TcpStream, mut to: TcpStream, mut ends: impl FnMut(usize) -> bool) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count) = from.read(&mut buffer) {
        if count == 0 || ends(count) || to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// A server of its own, which may be killed.
fn own(stand: &Stand) -> Stand {
    Stand { server: Arc::new(Server::start(stand.server.kind).unwrap()), name: stand.name.clone() }
}

pub fn a_broken_download_is_resumed(stand: &Stand) {
    let place = stand.place("one");
    let relay = Relay::start(&stand.server, 1_000_000, usize::MAX);
    let bucket = open(&place, Options { endpoint: Some(relay.endpoint.clone()), ..stand.options() });
    let (bytes, sha256) = content(1, 4_500_000);
    bucket.insert(&mut &bytes[..], Storage::Plain).unwrap();
    relay.cuts.store(4, Ordering::SeqCst);
    assert!(read(&bucket, &sha256) == bytes);
    assert_eq!(relay.cuts.load(Ordering::SeqCst), 0, "no download was cut");
    // The same as a copy, which verifies what it gets.
    relay.cuts.store(3, Ordering::SeqCst);
    let folder = tempfile::tempdir().unwrap();
    let into = Folder::at(folder.path());
    let artifact = Artifact { sha256: sha256.clone(), size_bytes: bytes.len() as u64, media: Media::Bytes };
    copy(&artifact, &bucket, &into, Storage::Plain).unwrap();
    assert!(std::fs::read(into.path(&sha256)).unwrap() == bytes);
    // A connection that breaks each time after it got something is not away; one that gets nothing is.
    relay.cuts.store(usize::MAX, Ordering::SeqCst);
    assert!(read(&bucket, &sha256) == bytes);
    let relay = Relay::start(&stand.server, 0, usize::MAX);
    relay.cuts.store(usize::MAX, Ordering::SeqCst);
    let bucket = open(&place, patience(2, Options { endpoint: Some(relay.endpoint), ..stand.options() }));
    assert!(is_away(&bucket.open(&sha256).err().unwrap()));
}

pub fn errors_name_the_bucket(stand: &Stand) {
    let place = stand.place("one");
    let sha256 = Sha256Hex::of(b"x");
    let secret = "an-entirely-wrong-secret".to_owned();
    let credentials =
        Credentials { key_id: stand.server.key_id.clone(), secret: secret.clone(), token: None };
    let wrong = open(&place, Options { credentials: Some(credentials), ..stand.options() });
    let folder = tempfile::tempdir().unwrap();
    let errors = [
        wrong.size_bytes(&sha256).unwrap_err(),
        wrong.insert(&mut &b"x"[..], Storage::Plain).unwrap_err(),
        wrong.list(&mut |_| true).unwrap_err(),
        wrong.adopt("one", &sha256, 1, &Folder::at(folder.path())).unwrap_err(),
        wrong.sweep_incoming(0.0).unwrap_err(),
    ];
    for error in &errors {
        let said = format!("{error} {error:?}");
        assert!(said.contains(&format!("s3://{place}/farm/one")), "{said}");
        assert!(!said.contains(&secret) && !said.contains("Signature="), "{said}");
        assert!(!is_away(error), "{said}");
    }
    assert!(errors[2].to_string().contains("SignatureDoesNotMatch"), "{}", errors[2]);
    let said =
        format!("{wrong:?} {wrong} {:?}", wrong.upload("one", &sha256, 1, Duration::from_secs(9)).unwrap());
    assert!(!said.contains(&secret) && !said.contains("Signature="), "{said}");
    // A bucket that does not exist is not one that lacks an artifact.
    let absent = open("absent-bucket", stand.options());
    for error in [absent.size_bytes(&sha256).unwrap_err(), absent.open(&sha256).err().unwrap()] {
        assert!(matches!(&error, ArtifactError::Io { .. }), "{error}");
        assert!(error.to_string().contains("NoSuchBucket"), "{error}");
    }
    assert!(absent.put_file(file(b"x").path(), &sha256).is_err());
}

pub fn a_server_is_away(stand: &Stand) {
    let stand = own(stand);
    let bucket = open(&stand.place("one"), patience(4, stand.options()));
    let (sha256, _) = bucket.insert(&mut &b"before"[..], Storage::Plain).unwrap();
    stand.server.kill();
    let folder = tempfile::tempdir().unwrap();
    type Call<'a> = &'a dyn Fn() -> Result<(), ArtifactError>;
    let calls: [(&str, Call<'_>); 4] = [
        ("size", &|| bucket.size_bytes(&sha256).map(drop)),
        ("open", &|| bucket.open(&sha256).map(drop)),
        ("insert", &|| bucket.insert(&mut &b"x"[..], Storage::Plain).map(drop)),
        ("adopt", &|| bucket.adopt("one", &Sha256Hex::of(b"y"), 1, &Folder::at(folder.path()))),
    ];
    for (name, call) in calls {
        let began = Instant::now();
        let error = call().unwrap_err();
        let seconds = began.elapsed().as_secs_f64();
        assert!(is_away(&error), "{name}: {error:?}");
        assert!(error.to_string().to_lowercase().contains("refused"), "{name}: {error}");
        // The server may be back soon, so there must be more than one try.
        assert!((1.0..6.0).contains(&seconds), "{name}: {seconds} s");
    }
    // A call that began before is served when the server is back.
    std::thread::scope(|scope| {
        let options = patience(120, stand.options());
        let waiting = scope.spawn(|| open(&format!("{}-one", stand.name), options).size_bytes(&sha256));
        std::thread::sleep(Duration::from_millis(500));
        stand.server.begin().unwrap();
        assert_eq!(waiting.join().unwrap().unwrap(), Some(6));
    });
    assert_eq!(read(&bucket, &sha256), b"before");
}

/// Connections are accepted, and there is no answer.
pub fn a_server_is_silent(stand: &Stand) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Some(format!("http://{}", listener.local_addr().unwrap()));
    let bucket = open("absent", patience(2, Options { endpoint, ..stand.options() }));
    let began = Instant::now();
    let error = bucket.size_bytes(&Sha256Hex::of(b"x")).unwrap_err();
    assert!(is_away(&error) && error.to_string().contains("no answer"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(3));
    // An upload waits as long.
    let began = Instant::now();
    let upload = bucket.upload("one", &Sha256Hex::of(b"x"), 2 * PART_BYTES as u64, Duration::from_secs(9));
    assert!(is_away(&upload.unwrap_err()));
    assert!(began.elapsed() < Duration::from_secs(3));
}

/// Ends TLS in front of a server.
fn tls(server: &Server, certificate: rcgen::CertifiedKey<rcgen::KeyPair>) -> String {
    use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
    use tokio_rustls::rustls::{ServerConfig, crypto::ring};
    let key = PrivatePkcs8KeyDer::from(certificate.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = config.with_single_cert(vec![certificate.cert.der().clone()], key.into()).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let endpoint = format!("https://{}", listener.local_addr().unwrap());
    let address = server.address();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((client, _)) = listener.accept().await {
                let (acceptor, address) = (acceptor.clone(), address.clone());
                tokio::spawn(async move {
                    let mut client = acceptor.accept(client).await?;
                    let mut server = tokio::net::TcpStream::connect(address).await?;
                    tokio::io::copy_bidirectional(&mut client, &mut server).await
                });
            }
        });
    });
    endpoint
}

pub fn certificates_are_verified(stand: &Stand) {
    let place = stand.place("one");
    let certificate = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let own = file(certificate.cert.pem().as_bytes());
    let options = Options {
        endpoint: Some(tls(&stand.server, certificate)),
        certificates: Some(own.path().to_owned()),
        allows_http: false,
        ..stand.options()
    };
    let bucket = open(&place, options.clone());
    let (sha256, _) = bucket.insert(&mut &b"over TLS"[..], Storage::Plain).unwrap();
    assert_eq!(read(&bucket, &sha256), b"over TLS");
    // Another authority, and the public ones.
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let other = file(other.cert.pem().as_bytes());
    for certificates in [Some(other.path().to_owned()), None] {
        let began = Instant::now();
        let error =
            open(&place, Options { certificates, ..options.clone() }).size_bytes(&sha256).unwrap_err();
        assert!(error.to_string().contains("certificate") && !is_away(&error), "{error:?}");
        assert!(began.elapsed() < Duration::from_secs(5), "it was tried again");
    }
}

/// Killed in the middle of a file: the artifact is missing or complete, and can be stored after that.
pub fn the_server_is_killed(stand: &Stand) {
    let stand = own(stand);
    let place = stand.place("one");
    for (seed, size) in [(1, PART_BYTES - 1), (2, 3 * PART_BYTES)] {
        let relay = Relay::start(&stand.server, usize::MAX, 4 << 20);
        let (bytes, sha256) = content(seed, size);
        let file = file(&bytes);
        let through =
            open(&place, patience(2, Options { endpoint: Some(relay.endpoint), ..stand.options() }));
        std::thread::scope(|scope| {
            let put = scope.spawn(|| through.put_file(file.path(), &sha256));
            while relay.sent_bytes.load(Ordering::SeqCst) < size / 2 {
                std::thread::sleep(Duration::from_millis(5));
            }
            stand.server.kill();
            let error = put.join().unwrap().unwrap_err();
            assert!(is_away(&error), "{error}");
        });
        stand.server.begin().unwrap();
        let bucket = open(&place, stand.options());
        assert_eq!(bucket.size_bytes(&sha256).unwrap(), None);
        assert!(matches!(bucket.open(&sha256), Err(ArtifactError::Missing(_))));
        bucket.list(&mut |listed| listed.sha256 != sha256 || panic!("half an artifact is listed")).unwrap();
        bucket.put_file(file.path(), &sha256).unwrap();
        assert!(read(&bucket, &sha256) == bytes);
        // The parts of the first try.
        bucket.sweep_incoming(1e12).unwrap();
        assert_eq!(bucket.sweep_incoming(1e12).unwrap().uploads, 0);
    }
}

pub fn the_client_is_killed(stand: &Stand) {
    let place = stand.place("one");
    let bucket = open(&place, stand.options());
    let size = 3 * PART_BYTES;
    let (bytes, sha256) = content(3, size);
    let file = file(&bytes);
    let relay = Relay::start(&stand.server, usize::MAX, 4 << 20);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["put", &place, &relay.endpoint, &stand.server.key_id, &stand.server.secret])
        .args([file.path().to_str().unwrap(), sha256.as_str()])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    while relay.sent_bytes.load(Ordering::SeqCst) < size / 2 {
        assert!(child.try_wait().unwrap().is_none(), "it ended early");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(bucket.size_bytes(&sha256).unwrap(), None);
    assert!(matches!(bucket.open(&sha256), Err(ArtifactError::Missing(_))));
    // Its parts are found and removed.
    assert_eq!(bucket.sweep_incoming(1e12).unwrap().uploads, 1);
    bucket.put_file(file.path(), &sha256).unwrap();
    assert!(read(&bucket, &sha256) == bytes);
}

/// The child: puts a file.
pub fn put(arguments: &[String]) {
    let [place, endpoint, key_id, secret, file, sha256] = arguments else { panic!("{arguments:?}") };
    let options = Options {
        endpoint: Some(endpoint.clone()),
        credentials: Some(Credentials { key_id: key_id.clone(), secret: secret.clone(), token: None }),
        allows_http: true,
        part_bytes: PART_BYTES,
        ..Options::default()
    };
    open(place, options).put_file(file.as_ref(), &Sha256Hex::parse(sha256).unwrap()).unwrap();
}
