//! Publications that are killed, with their signer or without it. `KILNYARD_KILLS` is how often: 200 for a longer trial.

use crate::support::Yard;
use crate::support::tiny::Tiny;
use kilnyard_signer::account::{Account, Entry};
use kilnyard_signer::hash;
use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::{Duration, Instant};

pub const CASES: &[(&str, fn())] =
    &[("killed_publications_leave_whole_repositories_and_accounts", killed_publications)];

/// How often a publication is killed by default.
const KILLS: u32 = 24;

/// Changes what a publication signs.
fn change(yard: &Yard, text: &str, number: u32) {
    yard.configure(&text.replace("[repository]\n", &format!("[repository]\norigin = \"Yard {number}\"\n")));
}

/// The hashes of all texts that the account has, whose chain must be whole. A killed signer may have written a part of a line.
fn signed(yard: &Yard) -> BTreeSet<String> {
    let account = yard.read("state/signer/account");
    let whole = account.rfind('\n').map_or(0, |end| end + 1);
    let account = Account::check(&account[..whole], None).unwrap();
    let text = |entry| match entry {
        Entry::Generation { text, .. } => Some(text),
        _ => None,
    };
    account.lines.into_iter().filter_map(|line| text(line.entry)).collect()
}

/// Asserts that what is published has its signatures, and that the account has them.
fn check(yard: &Yard) {
    let dists = yard.path("repository/dists/tiny");
    if !dists.exists() {
        return;
    }
    let release = std::fs::read_to_string(dists.join("Release")).unwrap();
    for name in ["InRelease", "Release.gpg"] {
        assert!(
            std::fs::read_to_string(dists.join(name)).unwrap().contains("-----END PGP SIGNATURE-----"),
            "{name}"
        );
    }
    // The line may be in the database alone; the next signer writes it to the file.
    let is_known = || signed(yard).contains(&hash(release.as_bytes()));
    if !is_known() {
        yard.run(&["keys"]).exits(0);
    }
    assert!(is_known(), "a signature without its line");
}

fn killed_publications() {
    let tiny = Tiny::new("killed-publications");
    tiny.scan().exits(0);
    let yard = &tiny.yard;
    yard.make_signer();
    let text = yard.read("kilnyard.toml");
    let text = if text.contains("[repository]\n") { text } else { format!("{text}\n[repository]\n") };
    change(yard, &text, 0);
    let began = Instant::now();
    yard.run(&["publish"]).exits(0);
    let whole = began.elapsed();
    let kills = std::env::var("KILNYARD_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(KILLS);
    let mut before = 0;
    for number in 1..=kills {
        change(yard, &text, number);
        let mut command = yard.command(&["publish"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Evenly over the whole time, in no order: steps by the golden ratio.
        let part = (f64::from(number) * 0.618_034).fract();
        std::thread::sleep(Duration::from_secs_f64(whole.as_secs_f64() * part));
        let pid = child.id();
        let children =
            std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let signer = children.split_whitespace().next().and_then(|pid| pid.parse::<i32>().ok());
        // The signer alone every other time.
        match signer.filter(|_| number % 2 == 0) {
            // SAFETY: a signal to a child of a child that was not waited for.
            Some(signer) => drop(unsafe { libc::kill(signer, libc::SIGKILL) }),
            None => child.kill().unwrap(),
        }
        child.wait().unwrap();
        check(yard);
        let now = signed(yard).len();
        assert!(now >= before, "the account lost lines");
        before = now;
    }
    yard.run(&["publish"]).exits(0);
    check(yard);
    yard.run(&["keys", "audit"]).exits(0).says(&["the chain is whole", "0 findings"]);
    println!("{kills} kills, {} signatures", signed(yard).len());
}
