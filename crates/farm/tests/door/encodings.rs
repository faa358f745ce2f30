//! Messages that are compressed on their way, by workers and doors that know this and by others.

use crate::support::{Served, message as received, plain, session};
use kilnyard_farm::relay::{self, ToDoor, ToRun};
use std::io::Read;
use std::os::unix::net::UnixStream;

/// A message that shrinks: as large as a long lease.
fn long(word: &str) -> Vec<u8> {
    word.repeat(400_000).into_bytes()
}

fn next(run: &mut UnixStream) -> Vec<u8> {
    relay::read::<ToRun>(run).unwrap().unwrap().1
}

fn say(run: &mut UnixStream, message: &[u8]) {
    relay::write(run, &ToDoor { to: "one".to_owned(), ..ToDoor::default() }, message).unwrap();
}

#[test]
fn long_messages_are_compressed_both_ways() {
    let served = Served::new();
    let one = served.joined("one");
    let mut run = served.run();
    served.until_run(true);
    for message in [b"short".to_vec(), long("one "), vec![b'x'; 1024], vec![b'x'; 1025], Vec::new()] {
        one.send(message.clone()).unwrap();
        assert_eq!(next(&mut run), message);
        say(&mut run, &message);
        assert_eq!(received(&one), message);
    }
    // An older door takes the place of this one: the session is over, and says nothing of zstd.
    let served = served.again();
    let mut run = served.run();
    served.until_run(true);
    one.send(long("again ")).unwrap();
    assert_eq!(next(&mut run), long("again "));
}

/// Plain requests, as another program of this version or an earlier one sends them.
#[test]
fn codings_are_used_only_if_the_other_side_knows_them() {
    let served = Served::new();
    let _one = served.joined("one");
    let mut run = served.run();
    served.until_run(true);
    let session = session(&served, "one");
    let http = plain(&served, None);
    let url = format!("https://{}/v1/messages", served.address);
    let get = |accepted: Option<&str>| {
        let request = http.get(&url).query(&[("wait", "20")]).bearer_auth(&session);
        let request = match accepted {
            Some(accepted) => request.header("accept-encoding", accepted),
            None => request,
        };
        let answer = request.send().unwrap();
        let encoding = answer.headers().get("content-encoding").map(|name| name.to_str().unwrap().to_owned());
        (encoding, answer.bytes().unwrap())
    };
    for accepted in [None, Some("gzip, br"), Some("zstd;q=0"), Some("zstdandard")] {
        say(&mut run, &long("to one "));
        assert_eq!(get(accepted), (None, long("to one ").into()), "{accepted:?}");
    }
    say(&mut run, &long("to one "));
    let (encoding, packed) = get(Some("gzip, zstd"));
    assert!(encoding.as_deref() == Some("zstd") && packed.len() < 10_000);
    assert_eq!(zstd::decode_all(&packed[..]).unwrap(), long("to one "));
    say(&mut run, b"short");
    assert_eq!(get(Some("zstd")), (None, "short".into()));

    let post = |encoding: Option<&str>, body: Vec<u8>| {
        let request = http.post(&url).bearer_auth(&session).body(body);
        let request = match encoding {
            Some(encoding) => request.header("content-encoding", encoding),
            None => request,
        };
        request.send().unwrap().status().as_u16()
    };
    assert_eq!(post(None, long("from one ")), 204);
    assert_eq!(next(&mut run), long("from one "));
    assert_eq!(post(Some("zstd"), zstd::encode_all(&long("from one ")[..], 1).unwrap()), 204);
    assert_eq!(next(&mut run), long("from one "));
    // Six kilobytes that unpack to 65 MiB, bytes that are not zstd, and another coding.
    let bomb = zstd::encode_all(std::io::repeat(0).take(65 << 20), 1).unwrap();
    assert!(bomb.len() < 10_000);
    assert_eq!(post(Some("zstd"), bomb), 413);
    assert_eq!(post(Some("zstd"), b"not zstd".to_vec()), 400);
    assert_eq!(post(Some("gzip"), b"anything".to_vec()), 415);
    // None of them reached the run.
    assert_eq!(post(None, b"last".to_vec()), 204);
    assert_eq!(next(&mut run), b"last");
    let fits = zstd::encode_all(std::io::repeat(0).take(64 << 20), 1).unwrap();
    assert_eq!(post(Some("zstd"), fits), 204);
    assert_eq!(next(&mut run).len(), 64 << 20);
}
