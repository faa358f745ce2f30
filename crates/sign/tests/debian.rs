//! Verifies the `InRelease` files that apt has fetched on this machine with Debian's own keyring.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use kilnyard_sign::{Keyring, SignError};

const KEYRINGS: &str = "/usr/share/keyrings";
const LISTS: &str = "/var/lib/apt/lists";

fn debian_keyring(test: &str) -> Option<Keyring> {
    let path = Path::new(KEYRINGS).join("debian-archive-keyring.gpg");
    if !path.exists() {
        let _ = writeln!(std::io::stderr(), "skipped: {test}: {} not found", path.display());
        return None;
    }
    Some(Keyring::read(&path).unwrap())
}

fn debian_messages(test: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(LISTS)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.to_string_lossy().ends_with("_InRelease"))
        .filter(|path| fs::read_to_string(path).is_ok_and(|text| text.contains("\nOrigin: Debian\n")))
        .collect();
    found.sort();
    if found.is_empty() {
        let _ = writeln!(std::io::stderr(), "skipped: {test}: no InRelease file from Debian in {LISTS}");
    }
    found
}

#[test]
fn debian_messages_are_verified() {
    let Some(ring) = debian_keyring("debian_messages_are_verified") else {
        return;
    };
    for path in debian_messages("debian_messages_are_verified") {
        let message = fs::read(&path).unwrap();
        let verified =
            ring.verify_clearsigned(&message).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(verified.text.starts_with(b"Origin: Debian\n"));
        assert!(verified.text.ends_with(b"\n"));
        // Debian's messages have neither dash escapes nor trailing blanks, so the file contains the text unchanged.
        assert!(message.windows(verified.text.len()).any(|part| part == verified.text));
        // The archive signs with subkeys.
        let by_subkey =
            |signer: &kilnyard_sign::Signer| signer.key.fingerprint != signer.key.primary_fingerprint;
        assert!(verified.signers.iter().any(by_subkey), "{:?}", verified.signers);

        let mut changed = message.clone();
        let place = message.len() / 2;
        changed[place] = if changed[place] == b'0' { b'1' } else { b'0' };
        assert!(ring.verify_clearsigned(&changed).is_err());
    }
}

#[test]
fn another_ring_does_not_verify_debian() {
    let test = "another_ring_does_not_verify_debian";
    let ring = kilnyard_sign::YardKey::generate("Not Debian").unwrap().keyring();
    for path in debian_messages(test) {
        let error = ring.verify_clearsigned(&fs::read(&path).unwrap()).unwrap_err();
        assert!(matches!(error, SignError::NoKnownSigner { .. }), "{error}");
    }
}

#[test]
fn every_keyring_downloaded_can_be_read() {
    let mut count = 0;
    for entry in fs::read_dir(KEYRINGS).into_iter().flatten() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with("debian-archive-") && name.ends_with(".gpg") {
            let ring = Keyring::read(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(ring.fingerprints().count() > 0, "{name}");
            assert_eq!(ring.skipped(), &[] as &[String], "{name}");
            count += 1;
        }
    }
    if count == 0 {
        let _ =
            writeln!(std::io::stderr(), "skipped: every_keyring_downloaded_can_be_read: none in {KEYRINGS}");
    }
}
