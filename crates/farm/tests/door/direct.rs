//! Files that workers read from and write to a real bucket themselves.

#[path = "../../../artifacts-object/tests/server/mod.rs"]
mod server;

use crate::support::{Served, plain, session, sha256_of, write};
use kilnyard_artifacts::{Artifacts, Depot, Folder};
use kilnyard_artifacts_object::{Address, Bucket, Credentials, Options};
use kilnyard_farm::client::ClientError;
use kilnyard_farm::relay::{self, Allowed, ToDoor};
use kilnyard_model::artifact::Checked;
use kilnyard_model::sha256::Sha256Hex;
use server::{Kind, Server};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// More than one part: parts have 16 MiB.
const LARGE_BYTES: usize = 20 << 20;

fn bucket(server: &Server) -> Bucket {
    server.bucket("farm");
    let (key_id, secret) = (server.key_id.clone(), server.secret.clone());
    let options = Options {
        endpoint: Some(server.endpoint()),
        credentials: Some(Credentials { key_id, secret, token: None }),
        allows_http: true,
        patience: Duration::from_secs(10),
        ..Options::default()
    };
    Bucket::open(Address::parse("s3://farm/one", options).unwrap(), &std::env::temp_dir()).unwrap()
}

#[test]
fn workers_read_and_store_files_in_a_bucket_themselves() {
    let server = match Server::start(Kind::S3Proxy) {
        Ok(server) => server,
        Err(missing) => return println!("skipped: {missing}"),
    };
    let store = Arc::new(bucket(&server));
    let served = Served::with_depot(store.clone());
    let (one, two) = (served.joined("one"), served.joined("two"));
    let distfiles = Folder::open(&served.path("distfiles")).unwrap();
    let mut run = served.run();
    served.until_run(true);
    let input = write(&served.path("input"), b"an input that only the bucket has");
    let hash = sha256_of(b"an input that only the bucket has");
    store.deposit(&input, &hash, 0.0).unwrap();
    let allow = |run: &mut _, worker: &str, attempt: &str| {
        let (attempt, logs) = (attempt.to_owned(), Some("logs/1/p/1-".to_owned()));
        let allows = Some(Allowed { attempt, reads: vec![hash.clone()], logs });
        relay::write(run, &ToDoor { to: worker.to_owned(), allows, ..ToDoor::default() }, b"grant").unwrap();
    };
    allow(&mut run, "one", "a");
    allow(&mut run, "two", "b");
    crate::support::message(&one);
    crate::support::message(&two);
    let mut text = String::new();
    one.open(&hash).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "an input that only the bucket has");
    assert!(!distfiles.contains(&hash).unwrap(), "it passed through the server");

    // How it is stored there is for those to check whose leases name it.
    let cancel = AtomicBool::new(false);
    assert_eq!(one.check(&hash, &cancel).unwrap(), Checked::Intact);
    let three = served.joined("three");
    assert!(matches!(three.check(&hash, &cancel), Err(ClientError::Refused(_))));
    let stored = server.files("farm", hash.as_str()).pop().expect("it is in the bucket");
    let content = std::fs::read(&stored).unwrap();
    std::fs::write(&stored, "something else").unwrap();
    assert_eq!(one.check(&hash, &cancel).unwrap(), Checked::Damaged);
    std::fs::remove_file(&stored).unwrap();
    assert_eq!(one.check(&hash, &cancel).unwrap(), Checked::Missing);
    // For a build, the run may still fetch it.
    let missing = one.open(&hash).err().expect("it is nowhere");
    assert!(missing.to_string().contains("not here yet"), "{missing}");
    std::fs::write(&stored, content).unwrap();
    assert_eq!(one.check(&hash, &cancel).unwrap(), Checked::Intact);

    // Stored files are in the bucket when the server has adopted them; otherwise the run puts them there later.
    let large: Vec<u8> = (0..LARGE_BYTES).map(|at| (at / 7) as u8).collect();
    for content in [&b"an output"[..], &large] {
        let (path, sha256) = (write(&served.path("output"), content), sha256_of(content));
        one.store("a", &sha256, &path).unwrap();
        assert!(store.contains(&sha256).unwrap() && distfiles.contains(&sha256).unwrap());
        std::fs::remove_file(&path).unwrap();
    }
    assert_eq!(server.files("farm", "incoming").len(), 0, "uploads stay");

    // What another worker claims, or has never sent, is not adopted.
    let uploaded = |worker: &str, attempt: &str, sha256: &Sha256Hex, size_bytes: u64| {
        let url = format!("{}/v1/blobs/{sha256}/uploaded", served.url());
        let body = serde_json::json!({ "attempt": attempt, "size_bytes": size_bytes, "etags": [] });
        let request = plain(&served, None).post(url).bearer_auth(session(&served, worker)).json(&body);
        request.send().unwrap().status().as_u16()
    };
    let never = sha256_of(b"never sent");
    assert_eq!(uploaded("two", "a", &never, 10), 403);
    assert_eq!(uploaded("two", "b", &never, 10), 422);
    assert!(!store.contains(&never).unwrap() && !distfiles.contains(&never).unwrap());

    // Without the bucket, files go through the server.
    server.kill();
    let (path, sha256) = (write(&served.path("output"), b"another"), sha256_of(b"another"));
    one.store("a", &sha256, &path).unwrap();
    assert!(distfiles.contains(&sha256).unwrap());
}
