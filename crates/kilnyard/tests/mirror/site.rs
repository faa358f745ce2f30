//! Mirrors of a site, as yards use them, and killed under load.

#[path = "../../../artifacts-object/tests/server/mod.rs"]
mod objects;

use crate::support::archive::Archive;
use crate::support::farm;
use crate::support::server::{Manner, Server};
use crate::support::site::SiteMirror;
use crate::support::tiny::Tiny;
use crate::support::{Yard, folder, quiet, until};
use kilnyard_model::sha256::Sha256Hex;
use kilnyard_sign::YardKey;
use objects::Kind;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sha2::{Digest, Sha512};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

pub const CASES: &[(&str, fn())] = &[
    ("the_mirror_of_the_site_is_asked_first", the_mirror_of_the_site_is_asked_first),
    ("a_mirror_of_the_site_that_lies_is_found_out", a_mirror_of_the_site_that_lies_is_found_out),
    ("serve_has_a_mirror_within", serve_has_a_mirror_within),
    (
        "a_killed_mirror_serves_no_wrong_byte_and_keeps_nothing_half",
        a_killed_mirror_serves_no_wrong_byte_and_keeps_nothing_half,
    ),
    ("pinned_files_have_a_name", pinned_files_have_a_name),
    ("the_hook_of_the_documentation_uploads_what_was_fetched_elsewhere", documented_hook),
    ("ten_thousand_connections_delay_no_others", ten_thousand_connections),
];

/// The trial with a server of object storage.
pub const IN_A_BUCKET: (&str, fn()) = ("what_a_mirror_has_no_room_for_is_in_object_storage", in_a_bucket);

/// Why it is skipped, if it is.
pub fn lacks_objects() -> Option<String> {
    Kind::S3Proxy.find().err()
}

/// The trial that mounts a file system.
pub const ON_A_FULL_DISK: (&str, fn()) =
    ("a_mirror_on_a_full_disk_serves_no_wrong_byte", a_mirror_on_a_full_disk_serves_no_wrong_byte);

/// A configuration of the mirror of the site for the archive of a yard.
fn with_site(tiny: &Tiny, url: &str) {
    tiny.configure("\"goodsource\"", &format!("[mirror]\nurl = \"{url}\""));
}

fn the_mirror_of_the_site_is_asked_first() {
    let tiny = Tiny::new("site");
    let folder = folder("site-mirror");
    let archive = format!("[archive.tiny]\nurls = [\"{}\"]\n", tiny.server.url());
    let mut mirror = SiteMirror::start(folder.path().to_owned(), &archive);
    with_site(&tiny, &mirror.url);
    tiny.scan().exits(0).says(&["tiny: a new index"]);
    assert_eq!(tiny.server.answers(Archive::PACKAGES_PATH), [200]);
    let of_archive = mirror.paths().into_iter().filter(|path| path.starts_with("tiny/dists/")).count();
    assert!(of_archive >= 3, "{:?}", mirror.paths());
    // Another yard of the site: nothing comes from far, but for the question whether it is still the same.
    let other = Yard { folder: tiny.yard.folder.with_file_name("other") };
    other.configure(&tiny.yard.read("kilnyard.toml"));
    other.run(&["scan"]).exits(0).says(&["tiny: a new index"]);
    assert_eq!(tiny.server.answers(Archive::PACKAGES_PATH), [200]);
    tiny.yard.run(&["doctor"]).says(&[&format!("{} answers", mirror.url)]);
    // A mirror that is gone, hangs, or is no mirror, changes nothing.
    mirror.kill();
    let mut archive = tiny.archive.clone();
    archive.packages.push_str("\nPackage: newcomer\nVersion: 1\nArchitecture: amd64\n");
    archive.date_seconds += 60;
    tiny.server.serve(archive.files());
    tiny.scan().exits(0).says(&["tiny: a new index"]);
    tiny.yard.run(&["doctor"]).says(&["does not answer", "mirror serve"]);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    with_site(&tiny, &format!("http://{}", silent.local_addr().unwrap()));
    tiny.scan().exits(0).says(&["tiny: nothing new"]);
    with_site(&tiny, &tiny.server.url());
    tiny.scan().exits(0).says(&["tiny: nothing new"]);
    with_site(&tiny, "https://mirror.example");
    tiny.scan().exits(2).says(&["begins with http://"]);
}

/// What a mirror of the site sends is judged as what any other mirror sends.
fn a_mirror_of_the_site_that_lies_is_found_out() {
    let tiny = Tiny::new("site-lies");
    tiny.scan().exits(0);
    // It has an older archive of another owner, and says that it serves this one.
    let stranger = YardKey::generate("Stranger <stranger@example.org>").unwrap();
    let mut archive = tiny.archive.clone();
    archive.date_seconds += 60;
    let mut files: std::collections::BTreeMap<String, Vec<u8>> = archive
        .files_signed_by(&stranger)
        .into_iter()
        .map(|(path, bytes)| (format!("/tiny{path}"), bytes))
        .collect();
    let says = format!("{{\"kilnyard-mirror\":1,\"archives\":{{\"tiny\":[\"{}\"]}}}}", tiny.server.url());
    files.insert("/".to_owned(), says.into_bytes());
    let liar = Server::start(files);
    with_site(&tiny, &liar.url());
    let before = tiny.index();
    tiny.scan().exits(3).says(&["verify the Release file of tiny"]);
    assert_eq!(tiny.index().1, before.1);
}

/// Requests a file, and ends the connection after its beginning.
fn cut_off(address: &str, path: &str) {
    let Ok(mut stream) = TcpStream::connect(address) else { return };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
    let _ = write!(stream, "GET {path} HTTP/1.1\r\nHost: mirror\r\n\r\n");
    let _ = stream.read(&mut [0; 500]);
}

fn pinned_files_have_a_name() {
    let origin = Server::start([("/pool/a".to_owned(), b"content".to_vec())].into());
    let folder = folder("pinned-mirror");
    let configuration = format!("[archive.a]\nurls = [\"{}\"]\n", origin.url());
    let mirror = SiteMirror::start(folder.path().to_owned(), &configuration);
    mirror.run(&["fetch", "--pin", "release-1", "/a/pool/a"]).exits(0).says(&["1 of 1 file here"]);
    let list = mirror.folder.join("files/pins/release-1.json");
    assert!(std::fs::read_to_string(&list).unwrap().contains("a/pool/a"));
    mirror.run(&["fetch", "--pin", "../x", "/a/pool/a"]).exits(2).says(&["is no name of pins"]);
    mirror.run(&["unpin", "release-1"]).exits(0);
    assert!(!list.exists());
    mirror.run(&["unpin", "release-1"]).exits(0);
}

/// The whole answer to a request for a file; none if it is an error, or breaks off.
fn whole_answer(address: &str, path: &str) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: mirror\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    // An end without a close of the connection is an error here.
    let is_closed = stream.read_to_end(&mut answer).is_ok();
    let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&answer[..head]).to_ascii_lowercase();
    let length =
        text.lines().find_map(|line| line.strip_prefix("content-length: "))?.trim().parse::<usize>().ok()?;
    let is_whole = text.starts_with("http/1.1 200") && answer.len() - head == length;
    (is_whole && is_closed).then(|| answer.split_off(head))
}

fn a_killed_mirror_serves_no_wrong_byte_and_keeps_nothing_half() {
    kill_under_load(&folder("killed-mirror"));
}

/// The same on a disk that has no room for what the mirror may keep.
fn a_mirror_on_a_full_disk_serves_no_wrong_byte() {
    let folder = folder("full-mirror");
    let mount = |arguments: &[&str]| {
        let ended =
            std::process::Command::new(arguments[0]).args(&arguments[1..]).arg(folder.path()).status();
        assert!(ended.unwrap().success(), "{arguments:?}");
    };
    mount(&["mount", "-t", "tmpfs", "-o", "size=9m", "none"]);
    let ended = std::panic::catch_unwind(|| kill_under_load(&folder));
    mount(&["umount", "-l"]);
    ended.unwrap();
}

/// Kills a mirror in this folder while clients read: some whole files, some the beginning alone. Origins break off. `KILNYARD_KILLS` is the
/// number of kills: more than here belong to a trial of hours.
fn kill_under_load(folder: &tempfile::TempDir) {
    let kills: usize = std::env::var("KILNYARD_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    let content = |number: usize| -> Vec<u8> {
        let size = 1000 + number * 37_777;
        (0..size).map(|at| (at * 31 + number * 7) as u8 ^ (at >> 8) as u8).collect()
    };
    let contents: Arc<Vec<Vec<u8>>> = Arc::new((0..40).map(content).collect());
    let path = |number: usize, bytes: &[u8]| match number % 2 {
        0 => format!("/a/pool/{number}"),
        _ => format!("/a/dists/by-hash/SHA256/{}", Sha256Hex::of(bytes)),
    };
    let paths: Arc<Vec<String>> =
        Arc::new(contents.iter().enumerate().map(|(number, bytes)| path(number, bytes)).collect());
    let of_origin = |path: &String| path.strip_prefix("/a").unwrap().to_owned();
    let origin = Server::start(paths.iter().map(of_origin).zip(contents.iter().cloned()).collect());
    // Half of the files have room, so that some are always removed and fetched again.
    let configuration = format!("keep-bytes = 15_000_000\n[archive.a]\nurls = [\"{}\"]\n", origin.url());
    let mut mirror = SiteMirror::start(folder.path().to_owned(), &configuration);
    let address = mirror.url.trim_start_matches("http://").to_owned();
    let (is_over, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..6)
        .map(|client: usize| {
            let (address, contents, paths) = (address.clone(), contents.clone(), paths.clone());
            let (is_over, answers) = (is_over.clone(), answers.clone());
            std::thread::spawn(move || {
                let mut number = client * 7;
                while !is_over.load(Ordering::Relaxed) {
                    number = (number * 13 + 5) % 40;
                    if let Some(found) = whole_answer(&address, &paths[number]) {
                        assert!(found == contents[number], "wrong bytes of {}", paths[number]);
                        answers.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    let cutting = {
        let (address, paths, is_over) = (address.clone(), paths.clone(), is_over.clone());
        std::thread::spawn(move || {
            for number in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                cut_off(&address, &paths[number % 40]);
                std::thread::sleep(Duration::from_millis(5));
            }
        })
    };
    for kill in 0..kills {
        // An origin that breaks off, now and then.
        let path = of_origin(&paths[kill % 40]);
        origin.behave(&path, (kill % 3 == 0).then_some(Manner::Truncate(20_000)));
        std::thread::sleep(Duration::from_millis(60 + (kill * 37 % 200) as u64));
        mirror.kill();
        origin.behave(&path, None);
        mirror.start_again();
    }
    let before = answers.load(Ordering::Relaxed);
    until("it serves again", || answers.load(Ordering::Relaxed) > before + 20);
    is_over.store(true, Ordering::Relaxed);
    clients.into_iter().chain([cutting]).for_each(|client| client.join().unwrap());
    println!("{kills} kills, {} whole answers", answers.load(Ordering::Relaxed));
    mirror.kill();
    mirror.run(&["verify"]).exits(0).says(&["0 damaged"]);
    for listed in mirror.paths() {
        let number = paths.iter().position(|path| path[1..] == listed).unwrap();
        let kept = std::fs::read(mirror.folder.join("files/files").join(&listed)).unwrap();
        assert!(kept == contents[number], "{listed}");
    }
    // What a killed process left on its way is removed at the next start.
    mirror.start_again();
    assert_eq!(std::fs::read_dir(mirror.folder.join("files/parts")).unwrap().count(), 0);
}

fn serve_has_a_mirror_within() {
    let tiny = Tiny::new("within");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    tiny.configure("\"goodsource\"", &format!("[mirror]\nlisten = \"127.0.0.1:{port}\""));
    let served = farm::Served::start(&tiny.yard);
    tiny.scan().exits(0).says(&["tiny: a new index"]);
    assert!(tiny.yard.path("mirror/files").is_dir());
    let names = tiny.yard.names("mirror/files");
    assert_eq!(names.len(), 1, "{names:?}");
    assert_eq!(tiny.server.answers(Archive::PACKAGES_PATH), [200]);
    assert!(farm::served(&tiny.yard).contains("a mirror for this site listens at"));
    drop(served);
    tiny.scan().exits(0).says(&["tiny: nothing new"]);
}

/// Files leave the folder for a bucket, and come back from there, also after the server of the bucket was away.
fn in_a_bucket() {
    let objects = objects::Server::start(Kind::S3Proxy).unwrap();
    objects.bucket("farm");
    let content = |number: usize| vec![b'a' + number as u8; 100_000];
    let files = (0..8).map(|number| (format!("/pool/{number}"), content(number)));
    let origin = Server::start(files.collect());
    let folder = folder("bucket-mirror");
    let credentials = folder.path().join("s3.toml");
    let text = format!("key-id = \"{}\"\nsecret = \"{}\"\n", objects.key_id, objects.secret);
    std::fs::write(&credentials, text).unwrap();
    let configuration = format!(
        "keep-bytes = 250_000\n[archive.a]\nurls = [\"{}\"]\n[bucket]\nurl = \"s3://farm/mirror\"\nendpoint = \"{}\"\n\
         region = \"us-east-1\"\ncredentials-file = \"s3.toml\"\n",
        origin.url(),
        objects.endpoint()
    );
    let mirror = SiteMirror::start(folder.path().to_owned(), &configuration);
    let address = mirror.url.trim_start_matches("http://").to_owned();
    let read = |number: usize| whole_answer(&address, &format!("/a/pool/{number}"));
    for number in 0..8 {
        assert_eq!(read(number), Some(content(number)), "{number}");
    }
    until("all are in the bucket", || objects.files("farm", "mirror").len() >= 8);
    let here = || std::fs::read_dir(folder.path().join("files/files/a/pool")).unwrap().count();
    until("the folder has made room", || here() <= 3);
    // The origin is not asked again.
    let asked = |number: usize| origin.answers(&format!("/pool/{number}")).len();
    for number in 0..8 {
        assert_eq!((read(number), asked(number)), (Some(content(number)), 1), "{number}");
    }
    // Without the bucket, the origin is; with it, files are verified as they come back.
    objects.kill();
    assert_eq!(read(0), Some(content(0)));
    objects.begin().unwrap();
    for number in 0..8 {
        assert_eq!(read(number), Some(content(number)), "{number}");
    }
    mirror.run(&["verify"]).exits(0).says(&["0 damaged"]);
}

/// More connections than the mirror takes: those that it has answer, and after their end the others do.
fn ten_thousand_connections() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let most = limit.maximum.map_or(10_000, |maximum| (maximum as usize).saturating_sub(500).min(10_000));
    let origin = Server::start([("/pool/a".to_owned(), b"content".to_vec())].into());
    let folder = folder("crowded-mirror");
    let configuration = format!("[archive.a]\nurls = [\"{}\"]\n", origin.url());
    let mirror = SiteMirror::start(folder.path().to_owned(), &configuration);
    let address = mirror.url.trim_start_matches("http://").to_owned();
    let place = address.parse().unwrap();
    let mut open = Vec::new();
    let mut connect = |most: usize| {
        while open.len() < most {
            // Half a request, so that it waits for the rest.
            // A busy machine takes them slowly, and a full mirror not at all.
            let timeout = Duration::from_secs(5);
            let mut tries = (0..3).map(|_| TcpStream::connect_timeout(&place, timeout));
            let Some(mut stream) = tries.find_map(Result::ok) else { break };
            let _ = stream.write_all(b"GET /a/pool/a HTTP/1.1\r\nHost");
            open.push(stream);
        }
        open.len()
    };
    let is_answered = || whole_answer(&address, "/a/pool/a").as_deref() == Some(&b"content"[..]);
    // How many it takes within the time is a matter of the machine.
    let taken = connect(most.min(8_000));
    assert!(taken >= 500, "{taken}");
    until("others are answered", is_answered);
    let all = connect(most);
    println!("{all} connections");
    drop(open);
    until("it answers again", is_answered);
    setrlimit(Resource::Nofile, limit).unwrap();
}

/// The program of docs/mirror.md for `POST_FETCH_HOOK`, as pkgsrc's make calls it: with the path below `DISTDIR`, and where that is from.
fn documented_hook() {
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/mirror.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    let (_, script) = manual.split_once("A program for `POST_FETCH_HOOK`").unwrap();
    let script = script.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let folder = folder("hook-mirror");
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("tokens"), "secret\n").unwrap();
    let text = b"a distfile";
    let digest: String = Sha512::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
    std::fs::write(path("checksums"), format!("SHA512 (sub/one-1.0.tgz) = {digest}\n")).unwrap();
    let configuration = "[distfiles]\ntokens = \"tokens\"\nchecksums = [\"checksums\"]\n";
    let mirror = SiteMirror::start(folder.path().to_owned(), configuration);
    let token = path("tokens").display().to_string();
    let hook = script.replace("http://mirror:3142", &mirror.url).replace("/etc/mirror-token", &token);
    std::fs::write(path("hook"), hook).unwrap();
    std::fs::create_dir_all(path("distfiles/sub")).unwrap();
    let run = |address: &str, content: &[u8]| {
        std::fs::write(path("distfiles/sub/one-1.0.tgz"), content).unwrap();
        let mut command = std::process::Command::new("sh");
        command.arg(path("hook")).args(["sub/one-1.0.tgz", address]).env("DISTDIR", path("distfiles"));
        quiet(&mut command);
        command.output().unwrap().status.success()
    };
    // What the mirror sent is not uploaded; what is not what distinfo says is refused.
    assert!(run(&format!("{}/distfiles/", mirror.url), text) && mirror.paths().is_empty());
    assert!(!run("https://elsewhere.example/", b"another file") && mirror.paths().is_empty());
    assert!(run("https://elsewhere.example/", text));
    assert_eq!(mirror.paths(), ["distfiles/sub/one-1.0.tgz"]);
}
