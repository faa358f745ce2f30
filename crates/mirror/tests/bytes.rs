//! Small files without a known hash: conditions, limits, and the next mirror.

mod support;

use std::fs;
use std::sync::atomic::AtomicBool;

use kilnyard_mirror::{AttemptError, Client, Condition, FetchError, Fetched};
use support::{Act, Server, content, impatient, limits};

fn fetch(urls: &[String], size_bytes_max: u64, condition: Option<&Condition>) -> Result<Fetched, FetchError> {
    let cancel = AtomicBool::new(false);
    Client::new(impatient()).fetch_bytes("InRelease", urls, size_bytes_max, condition, &cancel)
}

#[track_caller]
fn bytes_of(fetched: Fetched) -> Vec<u8> {
    match fetched {
        Fetched::Body { bytes, .. } => bytes,
        Fetched::NotModified => panic!("no body"),
    }
}

#[test]
fn a_file_that_did_not_change_is_not_sent() {
    let server = Server::start();
    let (etag, date) = ("\"abc\"".to_owned(), "Sat, 11 Jul 2026 10:16:37 GMT".to_owned());
    let act = Act::Conditional { etag: etag.clone(), date: date.clone() };
    let url = server.page("/InRelease", b"text", [act]);
    let Fetched::Body { bytes, etag: got_etag, last_modified, url: from } =
        fetch(std::slice::from_ref(&url), 100, None).unwrap()
    else {
        panic!("no body");
    };
    assert_eq!((bytes.as_slice(), &from), (&b"text"[..], &url));
    assert_eq!((got_etag.as_ref(), last_modified.as_ref()), (Some(&etag), Some(&date)));

    for condition in
        [Condition { etag: got_etag, last_modified: None }, Condition { etag: None, last_modified }]
    {
        let fetched = fetch(std::slice::from_ref(&url), 100, Some(&condition)).unwrap();
        assert_eq!(fetched, Fetched::NotModified);
    }
    let old = Condition { etag: Some("\"old\"".to_owned()), last_modified: None };
    assert_eq!(bytes_of(fetch(&[url], 100, Some(&old)).unwrap()), b"text");
}

#[test]
fn not_modified_without_a_condition_is_an_error() {
    let server = Server::start();
    let url = server.page("/a", b"", [Act::Status(304)]);
    let error = fetch(&[url], 100, None).unwrap_err();
    assert!(error.to_string().contains("status 304"), "{error}");
}

#[test]
fn a_file_that_is_too_large_is_refused() {
    let (server, content) = (Server::start(), content(5000));
    let announced = server.page("/announced", &content, [Act::Serve]);
    let unannounced = server.page("/unannounced", &content, [Act::TooMuch]);
    for url in [announced.clone(), unannounced] {
        let error = fetch(&[url], 4999, None).unwrap_err();
        let FetchError::Failed { failed, .. } = &error else {
            panic!("{error}");
        };
        assert!(matches!(failed[0].error, AttemptError::TooLarge { size_bytes_max: 4999 }), "{error}");
    }
    assert_eq!(server.requests().len(), 2);
    assert!(bytes_of(fetch(&[announced], 5000, None).unwrap()) == content);
}

#[test]
fn a_cut_body_is_asked_for_again() {
    let (server, content) = (Server::start(), content(5000));
    let url = server.page("/a", &content, [Act::Truncate(1000), Act::Status(500), Act::Serve]);
    assert!(bytes_of(fetch(&[url], 5000, None).unwrap()) == content);
    assert_eq!(server.requests().len(), 3);
    assert!(server.ranges().iter().all(Option::is_none));
}

#[test]
fn the_next_mirror_has_it() {
    let (server, content) = (Server::start(), content(5000));
    let missing = server.page("/missing", b"", [Act::Status(404)]);
    let stalled = server.page("/stalled", &content, [Act::Trickle(10)]);
    let good = server.page("/good", &content, [Act::Serve]);
    let fetched = fetch(&[missing, stalled, good.clone()], 5000, None).unwrap();
    assert!(matches!(&fetched, Fetched::Body { url, .. } if *url == good));
    assert!(bytes_of(fetched) == content);
}

#[test]
fn a_local_file_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("InRelease");
    fs::write(&file, b"text").unwrap();
    let url = format!("file://{}", file.display());
    assert_eq!(bytes_of(fetch(std::slice::from_ref(&url), 4, None).unwrap()), b"text");
    assert!(fetch(&[url], 3, None).is_err());
}

#[test]
fn a_set_flag_prevents_any_request() {
    let server = Server::start();
    let url = server.page("/a", b"text", [Act::Serve]);
    let cancel = AtomicBool::new(true);
    let error = Client::new(limits()).fetch_bytes("InRelease", &[url], 100, None, &cancel).unwrap_err();
    assert!(error.is_cancelled());
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn a_proxy_is_asked_instead() {
    let server = Server::start();
    let url = server.page("/", b"", [Act::Status(404)]);
    let client = Client::with_proxy(limits(), &url).unwrap();
    let cancel = AtomicBool::new(false);
    let error =
        client.fetch_bytes("x", &["http://mirror.invalid/a".to_owned()], 100, None, &cancel).unwrap_err();
    // The host name does not exist, so the proxy must have answered, or refused the tunnel.
    assert!(!server.requests().is_empty(), "{error}");
    assert!(matches!(Client::with_proxy(limits(), "::"), Err(FetchError::Proxy { .. })));
}
