//! Several mirrors of a site, what is behind them, and what they know of files in advance.

use crate::origin::{Manner, Mirror, Origin, hex, large, until};
use kilnyard_artifacts::{Depot, Folder};
use sha2::{Digest, Sha512};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn sha512(bytes: &[u8]) -> String {
    Sha512::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// A tree of recipes with a package whose distinfo has these files.
fn tree(at: &Path, package: &str, files: &[(&str, &[u8])]) {
    let folder = at.join(package);
    std::fs::create_dir_all(&folder).unwrap();
    let lines = files.iter().map(|(name, bytes)| {
        format!("SHA512 ({name}) = {}\nSize ({name}) = {} bytes\n", sha512(bytes), bytes.len())
    });
    std::fs::write(folder.join("distinfo"), format!("$NetBSD$\n\n{}", lines.collect::<String>())).unwrap();
}

fn with_checksums(origin: &Origin, folder: tempfile::TempDir) -> Mirror {
    let text = format!(
        "listen = \"127.0.0.1:0\"\n[distfiles]\nurls = [\"http://{}/dist\"]\ntokens = \"tokens\"\nchecksums = [\"tree\"]\n",
        origin.address
    );
    Mirror::of(folder, &text, None)
}

#[test]
fn mirrors_of_a_site_ask_each_other_first() {
    let bytes = large();
    let digest = format!("/blobs/sha256/{}", hex(&bytes));
    let origin = Origin::start(&[
        ("/debian/pool/a.deb", &bytes),
        (&digest, &bytes),
        ("/debian/dists/sid/Release", b"r"),
    ]);
    let first = Mirror::start(&origin, "");
    // One that is away costs little, once.
    let more = format!("peers = [\"http://127.0.0.1:1\", \"{}\"]", first.url);
    let second = Mirror::start(&origin, &more);
    assert!(first.get("/debian/pool/a.deb") == bytes);
    assert!(second.get("/debian/pool/a.deb") == bytes && origin.requests() == 1, "it asked far");
    // While it grows, too.
    origin.set(Manner::Slow);
    let (url, second_url) = (first.url.clone(), second.url.clone());
    let reads = [url, second_url].map(|url| {
        let path = digest.clone();
        let read = std::thread::spawn(move || {
            let command = std::process::Command::new("curl")
                .args(["--silent", "--fail", "--noproxy", "*", "--max-time", "60", &format!("{url}{path}")])
                .output();
            command.unwrap().stdout
        });
        until("the origin has been asked", || origin.requests() == 2);
        std::thread::sleep(Duration::from_millis(300));
        read
    });
    origin.set(Manner::Honest);
    for read in reads {
        assert!(read.join().unwrap() == bytes);
    }
    assert_eq!(origin.requests(), 2);
    // What no mirror has, and indexes, come from the origin.
    assert_eq!(second.get("/debian/dists/sid/Release"), b"r");
    assert_eq!(second.status("/debian/pool/absent", &[]), "404");
    assert_eq!(first.status("/debian/pool/other", &["--header", "kilnyard-only-here: 1"]), "404");
    drop(first);
    origin.files.lock().unwrap().insert("/debian/pool/b.deb".to_owned(), b"b".to_vec());
    let began = Instant::now();
    assert_eq!(second.get("/debian/pool/b.deb"), b"b");
    assert!(began.elapsed() < Duration::from_secs(10), "a mirror that is gone delays others");
}

#[test]
fn two_mirrors_that_ask_each_other_do_not_wait_for_each_other() {
    let origin = Origin::start(&[("/debian/pool/a.deb", b"a")]);
    let find = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (one, other) = (find(), find());
    let mirror = |own: std::net::SocketAddr, peer: std::net::SocketAddr| {
        let text = format!(
            "listen = \"{own}\"\npeers = [\"http://{peer}\"]\n[archive.debian]\nurls = [\"http://{}/debian\"]\n",
            origin.address
        );
        Mirror::of(folder(), &text, None)
    };
    let (one, other) = (mirror(one, other), mirror(other, one));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for mirror in [&one, &other] {
            scope.spawn(|| assert_eq!(mirror.get("/debian/pool/a.deb"), b"a"));
        }
    });
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(one.status("/debian/pool/absent", &[]), "404");
}

#[test]
fn distfiles_are_what_distinfo_says() {
    let (good, other) = (large(), b"something else".to_vec());
    let origin =
        Origin::start(&[("/dist/sub/good.tgz", &good), ("/dist/bad.tgz", &other), ("/dist/free.tgz", b"f")]);
    let folder = folder();
    let at = folder.path().join("tree");
    tree(
        &at,
        "devel/one",
        &[("sub/good.tgz", &good), ("bad.tgz", b"what it should be"), ("by-hand.zip", b"hand")],
    );
    let mirror = with_checksums(&origin, folder);
    assert!(mirror.get("/distfiles/sub/good.tgz") == good);
    assert_eq!(mirror.status("/distfiles/bad.tgz", &[]), "502");
    assert!(!mirror.files().join("distfiles/bad.tgz").exists());
    // What no list names is fetched as it is, and not taken from anyone.
    assert_eq!(mirror.get("/distfiles/free.tgz"), b"f");
    let put = |name: &str, bytes: &[u8]| {
        let file = mirror.folder.path().join("upload");
        std::fs::write(&file, bytes).unwrap();
        mirror.status(
            &format!("/distfiles/{name}"),
            &["--upload-file", file.to_str().unwrap(), "--user", "x:secret"],
        )
    };
    assert_eq!(put("unlisted.tgz", b"x"), "403");
    assert_eq!(put("by-hand.zip", b"wrong"), "422");
    assert_eq!(put("by-hand.zip", b"hand"), "201");
    assert_eq!(put("bad.tgz", b"what it should be"), "201");
    assert_eq!(mirror.get("/distfiles/bad.tgz"), b"what it should be");
}

#[test]
fn a_distfile_that_distinfo_has_replaced_is_fetched_again() {
    let origin = Origin::start(&[("/dist/a.tgz", b"first")]);
    let folder = folder();
    tree(&folder.path().join("tree"), "devel/one", &[("a.tgz", b"first")]);
    let mirror = with_checksums(&origin, folder);
    assert_eq!(mirror.get("/distfiles/a.tgz"), b"first");
    let kept = mirror.folder.path().to_owned();
    tree(&kept.join("tree"), "devel/one", &[("a.tgz", b"second")]);
    origin.files.lock().unwrap().insert("/dist/a.tgz".to_owned(), b"second".to_vec());
    let mut mirror = mirror;
    let folder = std::mem::replace(&mut mirror.folder, self::folder());
    drop(mirror);
    let mirror = with_checksums(&origin, folder);
    assert_eq!(mirror.get("/distfiles/a.tgz"), b"second");
    assert_eq!(origin.requests(), 2);
}

#[test]
fn files_of_manifests_are_served_by_digest() {
    let (gcc, clang) = (b"a toolchain".to_vec(), b"another".to_vec());
    let (of_gcc, of_clang) = (sha512(&gcc), sha512(&clang));
    let origin = Origin::start(&[
        (&format!("/tt/sha512/{of_gcc}"), &gcc),
        (&format!("/tt/sha512/{of_clang}"), b"wrong!!"),
    ]);
    let folder = folder();
    let listed = |digest: &str, size: usize| {
        format!(
            "{{\"filename\":\"x\",\"size\":{size},\"algorithm\":\"sha512\",\"digest\":\"{digest}\",\"unpack\":true}}"
        )
    };
    let manifest = format!("[{},{}]", listed(&of_gcc, gcc.len()), listed(&of_clang, clang.len()));
    std::fs::write(folder.path().join("releng.manifest"), manifest).unwrap();
    let text = format!(
        "listen = \"127.0.0.1:0\"\n[tooltool]\nmanifests = [\"releng.manifest\"]\nurls = [\"http://{}/tt\"]\n",
        origin.address
    );
    let mirror = Mirror::of(folder, &text, None);
    assert_eq!(mirror.get(&format!("/tooltool/sha512/{of_gcc}")), gcc);
    assert_eq!(mirror.status(&format!("/tooltool/sha512/{of_clang}"), &[]), "502");
    assert_eq!(mirror.status(&format!("/tooltool/sha512/{}", "0".repeat(128)), &[]), "404");
}

#[test]
fn what_a_run_needs_stays_and_the_rest_makes_room() {
    let file = |letter: u8| vec![letter; 1000];
    let origin = Origin::start(&[]);
    for letter in b'a'..=b'z' {
        let path = format!("/debian/pool/{}", letter as char);
        origin.files.lock().unwrap().insert(path, file(letter));
    }
    let mirror = Mirror::start(&origin, "keep-bytes = 5000");
    mirror.get("/debian/pool/a");
    mirror.get("/debian/pool/b");
    let list = mirror.folder.path().join("list");
    std::fs::write(&list, "/debian/pool/a\n\ndebian/pool/b\n").unwrap();
    let list = list.to_str().unwrap();
    let pin =
        |user: &str, path: &str, list: &str| mirror.status(path, &["--upload-file", list, "--user", user]);
    assert_eq!(pin("x:wrong", "/pins/run-1", list), "401");
    assert_eq!(pin("x:secret", "/pins/../x", list), "404");
    assert_eq!(pin("x:secret", "/pins/a.b", list), "400");
    assert_eq!(pin("x:secret", "/pins/run-1", list), "200");
    let bad = mirror.folder.path().join("bad");
    std::fs::write(&bad, "../../etc/passwd\n").unwrap();
    assert_eq!(pin("x:secret", "/pins/run-2", bad.to_str().unwrap()), "400");
    for letter in b'c'..=b'z' {
        mirror.get(&format!("/debian/pool/{}", letter as char));
    }
    let there = || {
        let names = std::fs::read_dir(mirror.files().join("debian/pool")).unwrap();
        let mut names: Vec<_> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    until("there is room again", || there().len() == 5);
    assert!(there().starts_with(&["a".to_owned(), "b".to_owned()]), "{:?}", there());
    assert_eq!(mirror.status("/pins/run-1", &["--request", "DELETE", "--user", "x:secret"]), "200");
    for letter in b'c'..=b'z' {
        mirror.get(&format!("/debian/pool/{}", letter as char));
    }
    until("the files make room", || !there().contains(&"a".to_owned()));
}

#[test]
fn what_the_folder_has_no_room_for_is_in_the_bucket() {
    let file = |letter: u8| vec![letter; 1000];
    let origin = Origin::start(&[]);
    for letter in b'a'..=b'h' {
        let path = format!("/debian/pool/{}", letter as char);
        origin.files.lock().unwrap().insert(path, file(letter));
    }
    let behind = folder();
    let bucket: Arc<dyn Depot> = Arc::new(Folder::open(behind.path()).unwrap());
    let text = format!(
        "listen = \"127.0.0.1:0\"\nkeep-bytes = 2500\n[archive.debian]\nurls = [\"http://{}/debian\"]\n",
        origin.address
    );
    let mirror = Mirror::of(folder(), &text, Some(bucket.clone()));
    for letter in b'a'..=b'h' {
        let path = format!("/debian/pool/{}", letter as char);
        assert_eq!(mirror.get(&path), file(letter));
        let facts = mirror.folder.path().join(format!("files/facts{path}#.json"));
        until("it is in the bucket", || {
            std::fs::read_to_string(&facts).is_ok_and(|text| text.contains("\"is_stored\":true"))
        });
    }
    let here = || std::fs::read_dir(mirror.files().join("debian/pool")).unwrap().count();
    until("the folder has made room", || here() <= 2);
    // The origin is not needed any more, and etags are still its.
    origin.set(Manner::Gone);
    for letter in b'a'..=b'h' {
        assert_eq!(mirror.get(&format!("/debian/pool/{}", letter as char)), file(letter));
    }
    let etag = format!("If-None-Match: \"{}\"", &hex(&file(b'a'))[..8]);
    assert_eq!(mirror.status("/debian/pool/a", &["--header", &etag]), "304");
    // A mirror with an empty folder finds by digest what the bucket has.
    let text = "listen = \"127.0.0.1:0\"\n";
    let another = Mirror::of(folder(), text, Some(bucket));
    assert_eq!(another.get(&format!("/blobs/sha256/{}", hex(&file(b'c')))), file(b'c'));
    assert_eq!(another.status(&format!("/blobs/sha256/{}", "0".repeat(64)), &[]), "404");
}

#[test]
fn a_mirror_says_what_it_serves_and_no_password() {
    let text =
        "listen = \"127.0.0.1:0\"\n[archive.debian]\nurls = [\"http://user:hidden@deb.example/debian\"]\n";
    let mirror = Mirror::of(folder(), text, None);
    let said = String::from_utf8(mirror.get("/")).unwrap();
    assert!(said.contains("\"kilnyard-mirror\":1") && said.contains("http://deb.example/debian"), "{said}");
    assert!(!said.contains("hidden"), "{said}");
}
