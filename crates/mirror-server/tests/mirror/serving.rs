//! Files, parts of files and indexes, as clients get them.

use crate::origin::{Manner, Mirror, Origin, hex, large, until};
use kilnyard_mirror_server::Cache;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

#[test]
fn a_file_is_fetched_once_and_kept_under_its_path() {
    let origin = Origin::start(&[("/debian/pool/a.deb", b"a package"), ("/dist/sub/a-1.tgz", b"a distfile")]);
    let mirror = Mirror::start(&origin, "");
    for _ in 0..3 {
        assert_eq!(mirror.get("/debian/pool/a.deb"), b"a package");
        assert_eq!(mirror.get("/distfiles/sub/a-1.tgz"), b"a distfile");
    }
    assert_eq!(origin.requests(), 2);
    assert_eq!(mirror.kept("/debian/pool/a.deb"), b"a package");
    // As a proxy, and for no one else's files.
    let proxied = |url: &str| {
        let output = Command::new("curl")
            .args(["--silent", "--proxy", &mirror.url, "--write-out", "%{http_code}", url])
            .output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    assert_eq!(proxied(&format!("http://{}/debian/pool/a.deb", origin.address)), "a package200");
    assert!(proxied(&format!("http://{}/dist/sub/a-1.tgz", origin.address)).ends_with("403"));
    for (path, status) in [
        ("/debian/pool/absent", "404"),
        ("/nothing/x", "404"),
        ("/debian/../../etc/passwd", "400"),
        ("/debian/%2e%2e/%2e%2e/etc/passwd", "400"),
        ("/debian/pool/", "400"),
    ] {
        assert_eq!(mirror.status(path, &["--path-as-is"]), status, "{path}");
    }
    assert_eq!(mirror.status("/debian/pool/a.deb", &["--request", "DELETE"]), "405");
    // Parts and conditions.
    assert_eq!(mirror.curl("/debian/pool/a.deb", &["--range", "2-5"]).stdout, b"pack");
    assert_eq!(mirror.status("/debian/pool/a.deb", &["--range", "2-5"]), "206");
    assert_eq!(mirror.status("/debian/pool/a.deb", &["--range", "90-"]), "416");
    let etag = format!("If-None-Match: \"{}\"", &hex(b"a package")[..8]);
    assert_eq!(mirror.status("/debian/pool/a.deb", &["--header", &etag]), "304");
    assert_eq!(mirror.curl("/debian/pool/a.deb", &["--head"]).status.code(), Some(0));
    // Another mirror finds what this one has, in its folder.
    drop(mirror);
}

#[test]
fn a_herd_reads_a_file_while_it_grows() {
    let bytes = large();
    let origin = Origin::start(&[("/debian/pool/large.deb", &bytes)]);
    let mirror = Mirror::start(&origin, "");
    origin.set(Manner::Slow);
    let clients: Vec<_> = (0..16)
        .map(|number| {
            let url = format!("{}/debian/pool/large.deb", mirror.url);
            let to = mirror.folder.path().join(format!("client-{number}"));
            let mut command = Command::new("curl");
            command.args(["--silent", "--fail", "--noproxy", "*", "--max-time", "60", "--output"]);
            (command.arg(&to).arg(url).spawn().unwrap(), to)
        })
        .collect();
    let size = |path: &Path| path.metadata().map_or(0, |file| file.len()) as usize;
    until("all have the first half", || clients.iter().all(|(_, to)| size(to) > bytes.len() / 2 - 1_000_000));
    // A part that is there does not wait for the rest.
    assert_eq!(mirror.curl("/debian/pool/large.deb", &["--range", "1000-1003"]).stdout, bytes[1000..1004]);
    assert_eq!(origin.requests(), 1);
    origin.set(Manner::Honest);
    for (mut client, to) in clients {
        assert!(client.wait().unwrap().success());
        assert!(std::fs::read(to).unwrap() == bytes);
    }
    assert_eq!(origin.requests(), 1);
}

#[test]
fn an_origin_that_dies_is_resumed_for_all() {
    let bytes = large();
    let origin = Origin::start(&[("/debian/pool/large.deb", &bytes)]);
    let mirror = Mirror::start(&origin, "");
    origin.set(Manner::CutAfter(bytes.len() / 2 + 1));
    assert!(mirror.get("/debian/pool/large.deb") == bytes);
    assert_eq!(origin.requests(), 2);
    // One that is gone: an error, and nothing half kept.
    origin.set(Manner::CutAfter(1000));
    origin.files.lock().unwrap().insert("/debian/pool/other.deb".to_owned(), bytes.clone());
    let cut = mirror.curl("/debian/pool/other.deb", &["--fail"]);
    assert!(!cut.status.success() && cut.stdout.len() < bytes.len(), "{:?}", cut.status);
    assert!(!mirror.files().join("debian/pool/other.deb").exists());
    origin.set(Manner::Honest);
    assert!(mirror.get("/debian/pool/other.deb") == bytes);
}

#[test]
fn a_wrong_digest_reaches_no_client_whole() {
    let (bytes, mut wrong) = (large(), large());
    *wrong.last_mut().unwrap() ^= 1;
    let path = format!("/blobs/sha256/{}", hex(&bytes));
    let origin = Origin::start(&[(&path, &wrong)]);
    let mirror = Mirror::start(&origin, "");
    let cut = mirror.curl(&path, &["--fail"]);
    assert!(!cut.status.success() && cut.stdout.len() < bytes.len());
    assert!(!mirror.files().join(&path[1..]).exists(), "it is kept");
    let small = format!("/blobs/sha256/{}", hex(b"right"));
    origin.files.lock().unwrap().insert(small.clone(), b"wrong".to_vec());
    assert_eq!(mirror.status(&small, &[]), "502");
    origin.files.lock().unwrap().insert(path.clone(), bytes.clone());
    assert!(mirror.get(&path) == bytes);
}

#[test]
fn indexes_are_asked_for_again_and_outlive_their_origin() {
    let origin = Origin::start(&[("/debian/dists/sid/Release", b"first")]);
    let mirror = Mirror::start(&origin, "");
    assert_eq!(mirror.get("/debian/dists/sid/Release"), b"first");
    // Within some seconds, it is not asked for again.
    assert_eq!((mirror.get("/debian/dists/sid/Release"), origin.requests()), (b"first".to_vec(), 1));
    let (folder, _stopped) = {
        let mut mirror = mirror;
        let folder = std::mem::replace(&mut mirror.folder, tempfile::tempdir().unwrap());
        (folder, mirror)
    };
    // A new process remembers nothing of that.
    let mirror = Mirror::start_in(folder, &origin, "");
    assert_eq!((mirror.get("/debian/dists/sid/Release"), origin.requests()), (b"first".to_vec(), 2));
    let folder = |mirror: Mirror| {
        let mut mirror = mirror;
        std::mem::replace(&mut mirror.folder, tempfile::tempdir().unwrap())
    };
    origin.files.lock().unwrap().insert("/debian/dists/sid/Release".to_owned(), b"second".to_vec());
    let mirror = Mirror::start_in(folder(mirror), &origin, "");
    assert_eq!(mirror.get("/debian/dists/sid/Release"), b"second");
    origin.set(Manner::Gone);
    let mirror = Mirror::start_in(folder(mirror), &origin, "");
    assert_eq!(mirror.get("/debian/dists/sid/Release"), b"second", "what it has is better than nothing");
    assert_eq!(mirror.status("/debian/dists/sid/Other", &[]), "502");
}

/// With the keys of an archive, only what they signed is served.
#[test]
fn an_index_that_the_archive_did_not_sign_is_not_served() {
    let (own, other) = (
        kilnyard_sign::YardKey::generate("Archive <archive@example.org>").unwrap(),
        kilnyard_sign::YardKey::generate("Other <other@example.org>").unwrap(),
    );
    let path = "/debian/dists/sid/InRelease";
    let text = own.sign_clear("Codename: sid\n").unwrap();
    let origin = Origin::start(&[(path, text.as_bytes())]);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("keys.asc"), own.public_armored().unwrap()).unwrap();
    let mirror = Mirror::start_with(folder, &origin, "", "keyring = \"keys.asc\"");
    assert_eq!(mirror.get(path), text.as_bytes());
    let mut mirror = mirror;
    let folder = std::mem::replace(&mut mirror.folder, tempfile::tempdir().unwrap());
    drop(mirror);
    let forged = other.sign_clear("Codename: sid\n").unwrap();
    origin.files.lock().unwrap().insert(path.to_owned(), forged.clone().into_bytes());
    let mirror = Mirror::start_with(folder, &origin, "", "keyring = \"keys.asc\"");
    assert_eq!(mirror.get(path), text.as_bytes(), "what the archive signed stays");
    let empty = tempfile::tempdir().unwrap();
    std::fs::write(empty.path().join("keys.asc"), own.public_armored().unwrap()).unwrap();
    let mirror = Mirror::start_with(empty, &origin, "", "keyring = \"keys.asc\"");
    assert_eq!(mirror.status(path, &[]), "502");
    assert!(!mirror.files().join("debian/dists/sid/InRelease").exists());
}

#[test]
fn uploads_need_a_token_and_their_digest() {
    let origin = Origin::start(&[]);
    let mirror = Mirror::start(&origin, "");
    let file = mirror.folder.path().join("upload");
    std::fs::write(&file, "by hand").unwrap();
    let file = file.display().to_string();
    let put = |arguments: &[&str]| {
        mirror.status("/distfiles/by-hand-1.tgz", &[&["--upload-file", &file], arguments].concat())
    };
    assert_eq!(put(&[]), "401");
    assert_eq!(put(&["--user", ":other"]), "401");
    assert_eq!(put(&["--user", ":secret", "--header", "X-SHA512: 12"]), "422");
    assert_eq!(mirror.status("/distfiles/by-hand-1.tgz", &[]), "404", "nothing half kept");
    let digest = String::from_utf8(Command::new("sha512sum").arg(&file).output().unwrap().stdout).unwrap();
    let header = format!("X-SHA512: {}", digest.split(' ').next().unwrap());
    assert_eq!(put(&["--user", ":secret", "--header", &header]), "201");
    assert_eq!(mirror.get("/distfiles/by-hand-1.tgz"), b"by hand");
    assert_eq!(put(&["--header", "Authorization: Bearer secret"]), "200");
    std::fs::write(&file, "other bytes").unwrap();
    assert_eq!(put(&["--user", ":secret"]), "409");
    // Added beside the server.
    let beside = Cache::read(&mirror.folder.path().join("files"), None).unwrap();
    assert!(beside.add("distfiles/sub/added-1.tgz", Path::new(&file), &[]).unwrap());
    assert!(!beside.add("distfiles/sub/added-1.tgz", Path::new(&file), &[]).unwrap());
    assert!(beside.add("distfiles/by-hand-1.tgz", Path::new(&file), &[]).is_err());
    assert!(beside.add("../x", Path::new(&file), &[]).is_err());
    assert_eq!(mirror.get("/distfiles/sub/added-1.tgz"), b"other bytes");
    assert_eq!(mirror.get("/distfiles/by-hand-1.tgz"), b"by hand");
    for path in ["/debian/pool/x", "/distfiles/../x"] {
        let status = mirror.status(path, &["--path-as-is", "--upload-file", &file, "--user", ":secret"]);
        assert!(["400", "405"].contains(&status.as_str()), "{path}: {status}");
    }
}

#[test]
fn the_folder_keeps_to_its_size_and_is_verified() {
    let bytes = vec![7; 400_000];
    let names: Vec<String> = (0..6).map(|number| format!("/debian/pool/{number}")).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &bytes[..])).collect();
    let origin = Origin::start(&files);
    let mirror = Mirror::start(&origin, "keep-bytes = 1000000");
    names.iter().for_each(|name| drop(mirror.get(name)));
    let kept = || std::fs::read_dir(mirror.files().join("debian/pool")).unwrap().count();
    mirror.kept("/debian/pool/5");
    // Room is made after that.
    until("there is room again", || kept() == 2);
    let cache = Cache::open(&mirror.folder.path().join("files"), Some(1_000_000)).unwrap();
    let listed = cache.list().unwrap();
    assert_eq!((listed.len(), cache.size()), (2, (2, 800_000)));
    assert!(listed.iter().all(|one| cache.verify(one).unwrap()));
    let damaged = mirror.files().join(&listed[0].key);
    std::fs::write(&damaged, vec![8; 400_000]).unwrap();
    assert!(!cache.verify(&listed[0]).unwrap());
    std::fs::write(mirror.files().join("debian/pool/unknown"), "x").unwrap();
    assert_eq!(cache.collect().unwrap(), 1);
    // A file of another size counts as missing, and is fetched again.
    std::fs::write(&damaged, "short").unwrap();
    assert!(mirror.get(&format!("/{}", listed[0].key)) == bytes);
}

/// A repository of one package, as files by path.
fn repository(scratch: &Path) -> Vec<(String, Vec<u8>)> {
    let run = |program: &str, arguments: &[&str], folder: &Path| {
        let output = Command::new(program).args(arguments).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{program}: {output:?}");
        output.stdout
    };
    let package = scratch.join("package");
    std::fs::create_dir_all(package.join("DEBIAN")).unwrap();
    let control =
        "Package: mirrored\nVersion: 1\nArchitecture: all\nMaintainer: A <a@b.c>\nDescription: none\n";
    std::fs::write(package.join("DEBIAN/control"), control).unwrap();
    let root = scratch.join("repository");
    std::fs::create_dir_all(root.join("pool")).unwrap();
    std::fs::create_dir_all(root.join("dists/sid/main/binary-all")).unwrap();
    run(
        "dpkg-deb",
        &["--build", "--root-owner-group", "package", "repository/pool/mirrored_1_all.deb"],
        scratch,
    );
    let packages = run("apt-ftparchive", &["packages", "pool"], &root);
    std::fs::write(root.join("dists/sid/main/binary-all/Packages"), &packages).unwrap();
    let options =
        ["-o", "APT::FTPArchive::Release::Codename=sid", "-o", "APT::FTPArchive::Release::Components=main"];
    let release =
        [&options[..], &["-o", "APT::FTPArchive::Release::Architectures=all", "release", "dists/sid"]]
            .concat();
    let release = run("apt-ftparchive", &release, &root);
    std::fs::write(root.join("dists/sid/Release"), release).unwrap();
    ["pool/mirrored_1_all.deb", "dists/sid/main/binary-all/Packages", "dists/sid/Release"]
        .map(|path| (format!("/debian/{path}"), std::fs::read(root.join(path)).unwrap()))
        .to_vec()
}

/// apt's own view: the mirror as the address of an archive, and as a proxy for the archive's own address.
#[test]
fn apt_updates_and_downloads_through_it() {
    let scratch = tempfile::tempdir().unwrap();
    let files = repository(scratch.path());
    let files: Vec<(&str, &[u8])> = files.iter().map(|(path, bytes)| (path.as_str(), &bytes[..])).collect();
    let origin = Origin::start(&files);
    let mirror = Mirror::start(&origin, "");
    let of_origin = format!("http://{}", origin.address);
    for (url, proxy) in [(&mirror.url, "DIRECT"), (&of_origin, mirror.url.as_str())] {
        let root = tempfile::tempdir().unwrap();
        for folder in ["lists/partial", "cache/archives/partial", "etc"] {
            std::fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let list = format!("deb [trusted=yes arch=all] {url}/debian sid main\n");
        std::fs::write(root.path().join("etc/sources.list"), list).unwrap();
        let at = |path: &str| root.path().join(path).display().to_string();
        let options = [
            format!("Dir::State::Lists={}", at("lists")),
            format!("Dir::Cache={}", at("cache")),
            format!("Dir::Etc::SourceList={}", at("etc/sources.list")),
            "Dir::Etc::SourceParts=-".to_owned(),
            "APT::Sandbox::User=root".to_owned(),
            "APT::Architectures::=all".to_owned(),
            format!("Acquire::http::Proxy={proxy}"),
        ];
        let apt = |arguments: &[&str]| {
            let mut command = Command::new("apt-get");
            command.env_remove("http_proxy").env_remove("no_proxy").current_dir(root.path());
            let output =
                command.args(options.iter().flat_map(|option| ["-o", option])).args(arguments).output();
            let output = output.unwrap();
            assert!(output.status.success(), "{output:?}");
        };
        apt(&["update"]);
        apt(&["download", "mirrored"]);
        let downloaded = std::fs::read(root.path().join("mirrored_1_all.deb")).unwrap();
        assert!(origin.files.lock().unwrap()["/debian/pool/mirrored_1_all.deb"] == downloaded);
    }
    let kept = mirror.files().join("debian/pool/mirrored_1_all.deb");
    assert!(kept.exists(), "apt went past the mirror");
}

/// An origin answers for a folder with a listing, or with a way to one: neither keeps out the files below.
#[test]
fn a_listing_of_a_folder_does_not_take_its_place() {
    let origin =
        Origin::start(&[("/debian/pool/main", b"a listing"), ("/debian/pool/main/a.deb", b"a package")]);
    let mirror = Mirror::start(&origin, "");
    assert_eq!(mirror.get("/debian/pool/main"), b"a listing");
    assert_eq!(mirror.get("/debian/pool/main/a.deb"), b"a package");
    assert_eq!(mirror.kept("/debian/pool/main/a.deb"), b"a package");
    let elsewhere = [
        ("/debian/pool/moved", &b"REDIRECT /debian/pool/main/a.deb"[..]),
        ("/debian/pool/x", b"REDIRECT /y/"),
    ];
    for (path, bytes) in elsewhere {
        origin.files.lock().unwrap().insert(path.to_owned(), bytes.to_vec());
    }
    origin.files.lock().unwrap().insert("/y/".to_owned(), b"a listing".to_vec());
    assert_eq!(mirror.get("/debian/pool/moved"), b"a package");
    assert_eq!(mirror.status("/debian/pool/x", &[]), "502");
}

/// An upload whose client goes leaves nothing, and the name is free again.
#[test]
fn an_upload_that_ends_early_blocks_nothing() {
    let origin = Origin::start(&[]);
    let mirror = Mirror::start(&origin, "");
    let mut gone = TcpStream::connect(mirror.url.trim_start_matches("http://")).unwrap();
    let head = "PUT /distfiles/a-1.tgz HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\nContent-Length: 100\r\n\r\n";
    gone.write_all(head.as_bytes()).unwrap();
    gone.write_all(b"a part").unwrap();
    std::thread::sleep(Duration::from_millis(300));
    drop(gone);
    let file = mirror.folder.path().join("upload");
    std::fs::write(&file, "all of it").unwrap();
    let file = file.display().to_string();
    until("the name is free", || {
        ["201"].contains(
            &mirror.status("/distfiles/a-1.tgz", &["--user", ":secret", "--upload-file", &file]).as_str(),
        )
    });
    assert_eq!(mirror.get("/distfiles/a-1.tgz"), b"all of it");
}

/// A connection without a request ends after a while.
#[test]
fn a_silent_connection_ends() {
    let origin = Origin::start(&[]);
    let mirror = Mirror::start(&origin, "");
    let address = mirror.url.trim_start_matches("http://").to_owned();
    let mut silent = TcpStream::connect(&address).unwrap();
    let mut slow = TcpStream::connect(&address).unwrap();
    slow.write_all(b"GET /debian/pool/x HTTP/1.1\r\nHost").unwrap();
    for stream in [&mut silent, &mut slow] {
        stream.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
        let mut said = Vec::new();
        // Its end, with an answer or without one.
        assert!(stream.read_to_end(&mut said).is_ok(), "it is open after 40 s");
    }
}

#[test]
fn hostile_clients_are_bounded() {
    let bytes = large();
    let origin = Origin::start(&[("/debian/pool/large.deb", &bytes)]);
    let mirror = Mirror::start(&origin, "");
    let address = mirror.url.trim_start_matches("http://").to_owned();
    // A client that stops reading delays no other one.
    let mut stalled = TcpStream::connect(&address).unwrap();
    stalled.write_all(b"GET /debian/pool/large.deb HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert!(mirror.get("/debian/pool/large.deb") == bytes);
    // A bomb of headers.
    let mut bomb = TcpStream::connect(&address).unwrap();
    bomb.write_all(b"GET /debian/pool/large.deb HTTP/1.1\r\n").unwrap();
    let line = format!("X-{}: {}\r\n", "a".repeat(100), "b".repeat(1000));
    let mut refused = String::new();
    for _ in 0..200 {
        if bomb.write_all(line.as_bytes()).is_err() {
            break;
        }
    }
    let _ = bomb.set_read_timeout(Some(Duration::from_secs(5)));
    let _ = BufReader::new(bomb).read_line(&mut refused);
    assert!(refused.is_empty() || refused.contains("431") || refused.contains("400"), "{refused}");
    // What is no request.
    let mut nonsense = TcpStream::connect(&address).unwrap();
    nonsense.write_all(b"\0\0\0\0\r\n\r\n").unwrap();
    let mut said = Vec::new();
    let _ = nonsense.set_read_timeout(Some(Duration::from_secs(5)));
    let _ = nonsense.read_to_end(&mut said);
    assert!(mirror.get("/debian/pool/large.deb") == bytes);
}
