//! Tickets: what workers show to the mirror of their site, and it to the door.

use crate::support::{Served, build, plain, session, sha256_of};
use kilnyard_artifacts::{Artifacts, Folder, Storage};
use kilnyard_farm::relay::Allowed;
use kilnyard_farm::ticket::{TICKET_HEADER, TicketKey};
use kilnyard_model::sha256::Sha256Hex;
use reqwest::StatusCode;
use reqwest::blocking::Response;
use serde_json::json;

/// A build of a worker that reads these.
fn reads(worker: &str, reads: &[&Sha256Hex]) -> (String, Allowed) {
    let (worker, allowed) = build(worker, "a");
    (worker, Allowed { reads: reads.iter().map(|sha256| (*sha256).clone()).collect(), ..allowed })
}

#[test]
fn a_ticket_reads_the_file_that_it_is_for_and_no_other() {
    let served = Served::new();
    drop(served.joined("one"));
    let distfiles = Folder::open(&served.path("distfiles")).unwrap();
    let (input, _) = distfiles.insert(&mut &b"an input"[..], Storage::Plain).unwrap();
    let (other, _) = distfiles.insert(&mut &b"of another build"[..], Storage::Plain).unwrap();
    let _run = served.run_with(vec![reads("one", &[&input])]);
    served.until_run(true);
    let http = plain(&served, None);
    let session = session(&served, "one");
    let at = |path: &str| format!("https://{}{path}", served.address);
    let tickets = |names: Vec<String>| {
        let request = http.post(at("/v1/tickets")).bearer_auth(&session).json(&json!({ "blobs": names }));
        request.send().unwrap()
    };
    let absent = sha256_of(b"absent");
    let given: serde_json::Value =
        tickets([&input, &other, &absent].map(ToString::to_string).to_vec()).json().unwrap();
    let ticket = given["tickets"][0].as_str().unwrap().to_owned();
    // Of a file that no build of the worker reads, it learns nothing.
    assert!(given["tickets"][1].is_null() && given["tickets"][2].is_null(), "{given}");
    let read = |sha256: &Sha256Hex, ticket: &str, range: Option<&str>| -> Response {
        let request = http.get(at(&format!("/v1/blobs/{sha256}"))).header(TICKET_HEADER, ticket);
        range.iter().fold(request, |request, range| request.header("range", *range)).send().unwrap()
    };
    // Without a session.
    assert_eq!(read(&input, &ticket, None).text().unwrap(), "an input");
    let rest = read(&input, &ticket, Some("bytes=3-"));
    assert_eq!(rest.status(), StatusCode::PARTIAL_CONTENT);
    assert_eq!(rest.headers()["content-range"], "bytes 3-7/8");
    assert_eq!(rest.text().unwrap(), "input");
    assert_eq!(read(&input, &ticket, Some("bytes=8-")).status(), StatusCode::RANGE_NOT_SATISFIABLE);
    // A rest of another form is no rest.
    let request = http.get(at(&format!("/v1/blobs/{input}"))).header(TICKET_HEADER, &ticket);
    let whole = request.header("range", "bytes=3-").header("if-range", "\"zst\"").send().unwrap();
    assert_eq!((whole.status(), whole.text().unwrap().as_str()), (StatusCode::OK, "an input"));
    let stranger = TicketKey::open(tempfile::tempdir().unwrap().path()).unwrap();
    let own = TicketKey::open(&served.path("")).unwrap();
    for (sha256, ticket) in [
        (&other, ticket.clone()),
        (&input, String::new()),
        (&input, stranger.issue("", &input, 1)),
        (&input, own.issue("another", &input, 1)),
    ] {
        assert_eq!(read(sha256, &ticket, None).status(), StatusCode::FORBIDDEN, "{ticket}");
    }
    // Nothing else is done with one.
    let put =
        http.put(at(&format!("/v1/blobs/{input}?attempt=a"))).header(TICKET_HEADER, &ticket).body("an input");
    assert_eq!(put.send().unwrap().status(), StatusCode::UNAUTHORIZED);
    assert_eq!(tickets(vec!["x".to_owned()]).status(), StatusCode::BAD_REQUEST);
    assert_eq!(tickets(vec![input.to_string(); 4097]).status(), StatusCode::PAYLOAD_TOO_LARGE);
    let without = http.post(at("/v1/tickets")).json(&json!({ "blobs": [input.to_string()] }));
    assert_eq!(without.send().unwrap().status(), StatusCode::UNAUTHORIZED);
}
