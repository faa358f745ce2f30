//! Notifications by webhooks, mail and commands, when receivers fail, hang, and processes are killed.

use crate::fixtures::{Fixture, Shared, Trial, good, slow};
use crate::support::until;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

pub const CASES: &[Trial] = &[("notifications_arrive_whatever_happens", notified)];

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// The signatures and bodies of calls.
type Calls = Arc<Mutex<Vec<(String, String)>>>;

/// A receiver that refuses its first calls, and keeps the others: their signatures and bodies.
fn receiver(refused: usize) -> (String, Calls) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let calls: Calls = Arc::default();
    let kept = calls.clone();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().flatten().enumerate() {
            let mut reader = BufReader::new(stream);
            let (mut signature, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                let Some((name, value)) = line.trim_end().split_once(": ") else {
                    if line.trim_end().is_empty() {
                        break;
                    }
                    continue;
                };
                match name.to_ascii_lowercase().as_str() {
                    "content-length" => length = value.parse().unwrap(),
                    "kilnyard-signature" => signature = value.to_owned(),
                    _ => {}
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let status = if number < refused { "503 Busy" } else { "204 Good" };
            if number >= refused {
                kept.lock().unwrap().push((signature, String::from_utf8(body).unwrap()));
            }
            let _ = write!(
                reader.get_mut(),
                "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
        }
    });
    (url, calls)
}

fn notified(shared: &Shared) {
    let broken = Fixture { build: "echo 'x.c:1: error: no `y`' >&2; exit 1", ..good("broken", "") };
    let yard = shared.yard("notified", &[broken, slow("one", "sleep 3"), good("two", "one")]);
    let (url, calls) = receiver(2);
    // It takes connections, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    fs::write(yard.path("hook-secret"), SECRET).unwrap();
    let sendmail = yard.path("sendmail");
    fs::write(&sendmail, "#!/bin/sh\ncat >> sent-mail\n").unwrap();
    let noted = yard.path("note");
    fs::write(&noted, "#!/bin/sh\nprintf '%s|%s|%s|%s\\n' \"$KILNYARD_OCCASION\" \"$KILNYARD_PACKAGE\" \"${SECRET-none}\" \"$(wc -l)\" >> noted\n").unwrap();
    for program in [&sendmail, &noted] {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let config = yard.read("kilnyard.toml");
    let tables = format!(
        "\n[[notify]]\non = [\"first-failure\", \"run-ended\", \"fixed\"]\nwebhook = \"{url}\"\nsecret-file = \"hook-secret\"\n\
         [[notify]]\nname = \"silent\"\non = [\"run-ended\"]\nwebhook = \"http://{}/\"\n\
         [[notify]]\non = [\"failure\"]\npackages = [\"br*\"]\nmail = [\"anna@b.example\"]\nfrom = \"kiln@b.example\"\nsendmail = [\"{}\"]\n\
         [[notify]]\non = [\"run-began\", \"published\", \"failure\"]\ncommand = [\"{}\"]\n",
        silent.local_addr().unwrap(),
        sendmail.display(),
        noted.display(),
    );
    yard.configure(&(config.clone() + "\n[[notify]]\non = [\"fixed\"]\nmail = [\"a@b\\nc: d\"]\n"));
    yard.run(&["status"]).exits(2).says(&["not an address of mail"]);
    yard.configure(&(config + &tables));
    yard.run(&["notify"]).exits(0).says(&["nothing was sent yet"]);

    // Killed in the middle, and run again.
    let mut build = yard.start(&["build"]);
    until("something failed", || yard.run(&["status", "--json"]).stdout.contains("x.c:1"));
    build.signal(libc::SIGKILL);
    build.end();
    yard.run(&["build"]).exits(1);
    // What the run could not deliver in time, the next process delivers.
    let pages = crate::pages::Pages::start(&yard, "127.0.0.1:0");
    let occasions = || {
        let calls = calls.lock().unwrap();
        let bodies = calls.iter().map(|(_, body)| serde_json::from_str::<Value>(body).unwrap());
        bodies.map(|body| body["occasion"].as_str().unwrap().to_owned()).collect::<Vec<String>>()
    };
    until("the end of the run arrives", || occasions().contains(&"run-ended".to_owned()));
    {
        let calls = calls.lock().unwrap();
        let of = |occasion: &str| {
            let bodies = calls.iter().map(|(_, body)| serde_json::from_str::<Value>(body).unwrap());
            bodies.filter(|body| body["occasion"] == occasion).collect::<Vec<Value>>()
        };
        let failures = of("first-failure");
        assert!(
            failures.iter().all(|one| one["event_number"] == failures[0]["event_number"]),
            "{failures:?}"
        );
        assert!(failures[0]["text"].as_str().unwrap().contains("no `y`"), "{failures:?}");
        assert_eq!(of("run-ended")[0]["event"]["body"]["state"], "finished");
        for (signature, body) in calls.iter() {
            let (time, digest) = signature.split_once(",v1=").unwrap();
            let signed = format!("{}.{body}", time.strip_prefix("t=").unwrap());
            let mut openssl = std::process::Command::new("openssl")
                .args(["dgst", "-sha256", "-hmac", SECRET])
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            openssl.stdin.take().unwrap().write_all(signed.as_bytes()).unwrap();
            let ended = openssl.wait_with_output().unwrap();
            assert!(String::from_utf8_lossy(&ended.stdout).trim().ends_with(digest), "{signature}");
        }
    }
    let mail = || fs::read_to_string(yard.path("sent-mail")).unwrap_or_default();
    until("mail arrives", || mail().contains("Subject: [notified] broken failed"));
    assert!(
        mail().contains("To: anna@b.example\n") && mail().contains("\nx.c:1: error: no `y`\n"),
        "{}",
        mail()
    );
    let noted = || fs::read_to_string(yard.path("noted")).unwrap_or_default();
    until("the command has noted the publication", || noted().contains("published||none|"));
    assert!(noted().contains("run-began||none|") && noted().contains("failure|broken|none|"), "{}", noted());
    // The receiver that never answers holds up nothing but itself, and is named.
    until("the silent receiver is reported", || {
        yard.run(&["notify"]).stdout.contains("silent: nothing was sent yet\n    it fails: ")
    });
    drop(pages);
    yard.run(&["notify", "--test"])
        .exits(3)
        .says(&["silent: failed: ", "/hook (run-ended, first-failure, fixed): sent"]);
}
