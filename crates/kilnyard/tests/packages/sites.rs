//! Workers at a site with a mirror: files of builds cross the link to the yard once.

use crate::fixtures::{Packages, Shared, Trial, good, slow};
use crate::support::farm::{Far, Served};
use crate::support::site::SiteMirror;
use crate::support::{Ended, Yard, has, quiet};
use std::fs;
use std::process::Command;

pub const CASES: &[Trial] = &[("workers_of_a_site_read_files_of_builds_at_its_mirror", at_mirror)];

/// The folder of workers.
const FAR: &str = "workers";

fn configure(yard: &Yard, farm: &str) {
    let text = yard.read("kilnyard.toml");
    let text =
        text.replace("\n[farm]", "\n# farm").replace("\n[repository]", &format!("\n{farm}\n[repository]"));
    fs::write(yard.path("kilnyard.toml"), text).unwrap();
}

/// The status of a request to a mirror.
fn status(url: &str, arguments: &[&str]) -> String {
    let mut command = Command::new("curl");
    command
        .args(["--silent", "--output", "/dev/null", "--write-out", "%{http_code}"])
        .args(arguments)
        .arg(url);
    quiet(&mut command);
    Ended::from(command.output().unwrap()).stdout
}

fn at_mirror(shared: &Shared) {
    let set = [
        slow("one", "sleep 2"),
        slow("two", "sleep 2"),
        slow("three", "sleep 2"),
        good("after", "one, two, three"),
    ];
    let yard = shared.yard("sites", &set);
    // The door makes its key when it is opened first.
    drop(Served::start(&yard));
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("https://127.0.0.1:{port}");
    let printed = yard.run(&["workers", "mirror", "--address", &url]).exits(0);
    let table = printed.stdout.split("\n\n").next().unwrap();
    let mut mirror = SiteMirror::start(shared.path("sites-mirror"), table);
    configure(&yard, &format!("[farm.pool.lab]\nmirror = \"{}\"\n", mirror.url));
    let served = Served::start_at(&yard, &format!("127.0.0.1:{port}"));
    let one = Far::join_with(&shared.path(FAR), &yard, &served, "site-one", &["--pool", "lab"]);
    let two = Far::join_with(&shared.path(FAR), &yard, &served, "site-two", &["--pool", "lab"]);
    yard.run(&["build", "--no-scan", "--elsewhere"]).exits(0).says(&["4 built"]);
    let paths = mirror.paths();
    let blobs: Vec<&String> = paths.iter().filter(|path| path.starts_with("blobs/sha256/")).collect();
    // The base root, the sources, and what the last package is built with.
    assert!(blobs.len() >= 8, "{paths:?}");
    mirror.run(&["verify"]).exits(0).says(&["0 damaged"]);
    let kept = |far: &Far| {
        let archives = fs::read_dir(far.folder.join("worker/layers/archives")).unwrap();
        archives.flatten().count()
    };
    assert!(kept(&one) > 0 && kept(&two) > 0);
    // Nothing is read there without a ticket.
    if has("curl") {
        let blob = format!("{}/{}", mirror.url, blobs[0]);
        for ticket in ["", "kilnyard-ticket: ", "kilnyard-ticket: 9999999999..00", "kilnyard-only-here: 1"] {
            assert_eq!(status(&blob, &["--header", ticket]), "403", "{ticket}");
        }
    }
    // What it keeps is damaged: workers find out, and read at the door.
    for path in &blobs {
        let file = mirror.folder.join("files/files").join(path);
        let bytes = fs::read(&file).unwrap();
        fs::write(&file, vec![b'x'; bytes.len()]).unwrap();
    }
    let three = Far::join_with(&shared.path(FAR), &yard, &served, "site-three", &["--pool", "lab"]);
    for name in ["site-one", "site-two"] {
        yard.run(&["workers", "drain", name]).exits(0);
    }
    yard.run(&["build", "--no-scan", "--elsewhere", "--force", "one"]).exits(0).says(&["1 unchanged"]);
    mirror.run(&["verify", "--remove"]).exits(1).says(&["is damaged"]);
    // One that is gone is done without, and one that is back is used again.
    mirror.kill();
    yard.run(&["build", "--no-scan", "--elsewhere", "--force", "two"]).exits(0).says(&["1 unchanged"]);
    mirror.start_again();
    drop((one, two, three));
    drop(served);
    assert!(yard.is_clean());
}
