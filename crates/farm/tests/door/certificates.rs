//! Doors that require the worker's key in TLS too, not only in the proof that begins a session.

use crate::support::{Served, begin, plain, refused, session, session_in};
use kilnyard_farm::door::ClientCertificates;

#[test]
fn a_door_that_requires_certificates_takes_sessions_over_no_other_connections() {
    let served = Served::new();
    let _thief = served.joined("thief");
    let earlier = session(&served, "thief");
    let served = served.again_with(ClientCertificates::Required);
    // The program's own client always presents one. Joining needs none.
    let one = served.joined("one");
    one.send(b"x".to_vec()).unwrap();
    let bare = plain(&served, None);
    let join = serde_json::json!({
        "secret": served.token().secret,
        "name": "two",
        "key": "0".repeat(64),
    });
    let url = |path: &str| format!("https://{}{path}", served.address);
    assert_eq!(bare.post(url("/v1/join")).json(&join).send().unwrap().status().as_u16(), 200);
    // The right proof over a connection without a certificate, as a proxy makes it, or with that of another worker.
    for (key, reason) in [(None, "the connection has none"), (Some("thief"), "one of another key")] {
        let answer = begin(&served, "one", &plain(&served, key));
        assert_eq!(answer.status().as_u16(), 403);
        let text = answer.text().unwrap();
        assert!(text.contains(reason), "{text}");
    }
    // A session that was stolen, over the thief's connections.
    let stolen = session_in(begin(&served, "one", &plain(&served, Some("one"))));
    let post = |key: Option<&str>, session: &str| {
        let request = plain(&served, key).post(url("/v1/messages")).bearer_auth(session);
        request.body("x").send().unwrap().status().as_u16()
    };
    assert_eq!(post(Some("one"), &stolen), 204);
    assert_eq!((post(None, &stolen), post(Some("thief"), &stolen)), (403, 403));
    assert_eq!(post(Some("thief"), &earlier), 401);
    // The key of another worker does not help to speak for this one.
    refused(served.client_with("one", "thief").send(b"x".to_vec()), "not that of the worker's key");
}

#[test]
fn without_the_option_certificates_do_not_count() {
    let served = Served::new();
    let _others = (served.joined("one"), served.joined("two"));
    for key in [None, Some("one"), Some("two")] {
        let session = session_in(begin(&served, "one", &plain(&served, key)));
        let url = format!("https://{}/v1/messages", served.address);
        let request = plain(&served, None).post(url).bearer_auth(session).body("x");
        assert_eq!(request.send().unwrap().status().as_u16(), 204);
    }
}
