//! The yard's key and its file, tested without other programs.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use kilnyard_sign::{Keyring, SignError, YardKey};

#[test]
fn a_key_survives_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("yard.key");
    let key = YardKey::generate("Yard <yard@example.org>").unwrap();
    key.write(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    // No temporary file is left.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);

    let again = YardKey::read(&path).unwrap();
    assert_eq!(again.fingerprint(), key.fingerprint());
    assert_eq!(again.fingerprint().len(), 40);
    let message = again.sign_clear("text\n").unwrap();
    assert_eq!(key.keyring().verify_clearsigned(message.as_bytes()).unwrap().text, b"text\n");
}

#[test]
fn a_key_is_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("yard.key");
    fs::write(&path, "precious").unwrap();
    let error = YardKey::generate("Yard").unwrap().write(&path).unwrap_err();
    assert!(matches!(error, SignError::KeyExists { .. }), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);

    let nowhere = folder.path().join("missing/yard.key");
    let error = YardKey::generate("Yard").unwrap().write(&nowhere).unwrap_err();
    assert!(matches!(error, SignError::WriteKey { .. }), "{error}");
}

#[test]
fn the_secret_is_not_shown() {
    let key = YardKey::generate("Yard").unwrap();
    assert_eq!(format!("{key:?}"), format!("YardKey({})", key.fingerprint()));
    assert!(!key.public_armored().unwrap().contains("PRIVATE"));
    assert!(Keyring::from_bytes(&key.public_binary().unwrap()).is_ok());
}

#[test]
fn a_user_id_is_one_line() {
    for bad in ["", "  ", "two\nlines", &"x".repeat(600)] {
        assert!(YardKey::generate(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn a_file_that_is_not_a_secret_key_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let key = YardKey::generate("Yard").unwrap();
    let path = folder.path().join("public.asc");
    fs::write(&path, key.public_armored().unwrap()).unwrap();
    let text = YardKey::read(&path).unwrap_err().to_string();
    assert!(text.contains("public.asc") && text.contains("PGP PRIVATE KEY BLOCK"), "{text}");

    let path = folder.path().join("cut.key");
    key.write(&folder.path().join("yard.key")).unwrap();
    let whole = fs::read(folder.path().join("yard.key")).unwrap();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let text = YardKey::read(&path).unwrap_err().to_string();
    assert!(text.contains("truncated"), "{text}");
}

#[test]
fn another_key_does_not_verify() {
    let (one, other) = (YardKey::generate("One").unwrap(), YardKey::generate("Other").unwrap());
    let message = one.sign_clear("text\n").unwrap();
    let error = other.keyring().verify_clearsigned(message.as_bytes()).unwrap_err();
    assert!(matches!(error, SignError::NoKnownSigner { .. }), "{error}");
    let signature = one.sign_detached(b"text\n").unwrap();
    assert!(other.keyring().verify_detached(b"text\n", signature.as_bytes()).is_err());
    assert!(one.keyring().verify_detached(b"text", signature.as_bytes()).is_err());
    assert!(one.keyring().verify_detached(b"text\n", signature.as_bytes()).is_ok());
}
