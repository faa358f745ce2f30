//! Tests apt with a `file:` repository.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::process::Command;

use crate::support::{APT_TOOLS, CODENAME, Client, Yard, build_source, lacks, run, text};

#[test]
fn a_client_updates_downloads_and_gets_the_right_bytes() {
    let test = "a_client_updates_downloads_and_gets_the_right_bytes";
    if lacks(test, &APT_TOOLS) || lacks(test, &["dpkg-source"]) {
        return;
    }
    let yard = Yard::new();
    let binaries = [yard.deb("alpha", "1.0-1", "amd64"), yard.deb("beta", "1:2.0", "all")];
    let source = build_source(&yard.path("files"), "gamma", "3.0");
    let published = yard.publish(&binaries, std::slice::from_ref(&source));
    assert_eq!((published.generation, published.is_new, published.pool_files_placed), (1, true, 4));

    let client = Client::of_directory(&yard.repository());
    client.update();
    assert_eq!(client.candidate("alpha").as_deref(), Some("1.0-1"));
    assert_eq!(client.candidate("beta").as_deref(), Some("1:2.0"));
    for entry in &binaries {
        let name = entry.stanza.lines().next().unwrap().strip_prefix("Package: ").unwrap();
        let output = client.get(&["download", name]);
        assert!(output.status.success(), "{}", text(&output));
        let downloaded = fs::read_dir(client.work())
            .unwrap()
            .map(|found| found.unwrap().path())
            .find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(name))
            .unwrap();
        assert_eq!(fs::read(downloaded).unwrap(), fs::read(&entry.file).unwrap());
    }
    let output = client.get(&["source", "--download-only", "gamma"]);
    assert!(output.status.success(), "{}", text(&output));
    for file in &source.files {
        let name = file.file.file_name().unwrap();
        assert_eq!(fs::read(client.work().join(name)).unwrap(), fs::read(&file.file).unwrap());
    }

    // The detached signature, which people verify by hand.
    let generation = yard.repository().join("dists").join(CODENAME);
    run(Command::new("gpg")
        .env("GNUPGHOME", &yard.signer.home)
        .args(["--batch", "--verify"])
        .arg(generation.join("Release.gpg"))
        .arg(generation.join("Release")));
}

#[test]
fn a_new_version_is_seen_and_an_unknown_key_is_rejected() {
    if lacks("a_new_version_is_seen_and_an_unknown_key_is_rejected", &APT_TOOLS) {
        return;
    }
    let yard = Yard::new();
    let mut binaries = vec![yard.deb("alpha", "1.0-1", "amd64")];
    yard.publish(&binaries, &[]);
    let client = Client::of_directory(&yard.repository());
    client.update();
    binaries.push(yard.deb("alpha", "1.0-2", "amd64"));
    yard.publish(&binaries, &[]);
    client.update();
    assert_eq!(client.candidate("alpha").as_deref(), Some("1.0-2"));

    let other = Yard::new();
    let stranger = Client::of_directory(&yard.repository());
    fs::write(
        stranger.directory.path().join("yard.asc"),
        kilnyard_publish::Signer::public_armored(&other.signer).unwrap(),
    )
    .unwrap();
    let output = stranger.get(&["update"]);
    assert!(!output.status.success() && text(&output).contains("NO_PUBKEY"), "{}", text(&output));
}

#[test]
fn a_changed_index_or_package_is_rejected() {
    if lacks("a_changed_index_or_package_is_rejected", &APT_TOOLS) {
        return;
    }
    let yard = Yard::new();
    let entry = yard.deb("alpha", "1.0-1", "amd64");
    yard.publish(std::slice::from_ref(&entry), &[]);
    let client = Client::of_directory(&yard.repository());
    client.update();

    let flip = |path: &std::path::Path| {
        let mut bytes = fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        let mut file = fs::File::options().write(true).open(path).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.write_all(&bytes).unwrap();
    };
    // In the pool, where the bytes are shared with the yard's own file.
    flip(&yard.repository().join(&entry.pool_path));
    let output = client.get(&["download", "alpha"]);
    assert!(!output.status.success() && text(&output).contains("Hash Sum mismatch"), "{}", text(&output));

    let indexes = yard.repository().join("dists").join(CODENAME).join("main/binary-amd64");
    for name in ["Packages", "Packages.xz", "Packages.zst"] {
        flip(&indexes.join(name));
    }
    let client = Client::of_directory(&yard.repository());
    let output = client.get(&["update"]);
    assert!(!output.status.success() && text(&output).contains("Hash Sum mismatch"), "{}", text(&output));
}

#[test]
fn a_new_key_gives_a_new_generation() {
    if lacks("a_new_key_gives_a_new_generation", &APT_TOOLS) {
        return;
    }
    let mut yard = Yard::new();
    let binaries = [yard.deb("alpha", "1.0-1", "amd64")];
    yard.publish(&binaries, &[]);
    assert!(yard.plan(&yard.repository(), &binaries, &[]).is_empty());
    yard.signer = crate::support::GnupgSigner::generate(&yard.path("gnupg-2"));
    let published = yard.publish(&binaries, &[]);
    assert_eq!((published.generation, published.is_new, published.pool_files_placed), (2, true, 0));
    Client::of_directory(&yard.repository()).update();
}
