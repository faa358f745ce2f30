use crate::fixture::*;
use kilnyard_sign::{Keyring, YardKey};
use kilnyard_signer::edit::Folder;
use kilnyard_signer::keys::Credentials;
use kilnyard_signer::message::{Answer, Ask};
use kilnyard_signer::policy::POLICY;
use kilnyard_signer::service::Service;
use kilnyard_signer::setup;
use std::fs;

fn names(signer: &mut Signer) -> Vec<String> {
    let Answer::Keys { keys, .. } = signer.ask(Ask::Keys) else { panic!() };
    keys.into_iter().map(|key| key.name).collect()
}

/// The number of good signatures of a message, by a keyring.
fn signatures(signer: &mut Signer, version: &str) -> (usize, Keyring) {
    let answer = signer.publish(&[deb("hello", version)]);
    let (clear, _) = signed(&answer);
    let Answer::Keys { armored, .. } = signer.ask(Ask::Keys) else { panic!() };
    let keyring = Keyring::from_bytes(armored.as_bytes()).unwrap();
    (keyring.verify_clearsigned(clear.as_bytes()).unwrap().signers.len(), keyring)
}

/// Performs a change while no signer runs.
fn change(signer: &mut Signer, change: impl FnOnce(&mut Folder)) {
    let spare = Signer::new();
    let Signer { folder, service, now } = std::mem::replace(signer, spare);
    drop(service);
    change(&mut Folder::open(folder.path()).unwrap());
    let service = Service::open(folder.path(), &Credentials::new()).unwrap();
    *signer = Signer { folder, service, now };
}

#[test]
fn keys_rotate_with_an_overlap_and_are_revoked() {
    let mut signer = Signer::new();
    let (count, first) = signatures(&mut signer, "1");
    assert_eq!(count, 1);
    let next = YardKey::generate_for("Next <next@example.org>", Some(90)).unwrap();
    change(&mut signer, |folder| {
        folder.add(NOW, "made", "next", &next, None).unwrap();
        assert!(
            folder
                .add(NOW, "made", "next", &next, None)
                .unwrap_err()
                .to_string()
                .contains("there is a key next")
        );
        assert!(
            folder.add(NOW, "made", "../x", &next, None).unwrap_err().to_string().contains("is not a name")
        );
        assert!(folder.rotate(NOW, "next", true).unwrap_err().to_string().contains("does not sign yard yet"));
        assert!(
            folder.revoke(NOW, "main", "", &none()).unwrap_err().to_string().contains("the only key of yard")
        );
        folder.rotate(NOW, "next", false).unwrap();
    });
    assert_eq!(names(&mut signer), ["main", "next"]);
    // Readers of either key are satisfied.
    let answer = signer.publish(&[deb("hello", "2")]);
    let (clear, detached) = signed(&answer);
    let second = next.keyring();
    for keyring in [&first, &second] {
        let text = keyring.verify_clearsigned(clear.as_bytes()).unwrap().text;
        keyring.verify_detached(&text, detached.as_bytes()).unwrap();
    }
    assert_eq!(signatures(&mut signer, "3").0, 2);
    change(&mut signer, |folder| folder.rotate(NOW, "next", true).unwrap());
    assert_eq!(signatures(&mut signer, "4").0, 1);
    // A revoked key is published as such, and its old signatures count no more.
    change(&mut signer, |folder| {
        folder.rotate(NOW, "main", false).unwrap();
        folder.revoke(NOW, "main", "lost", &none()).unwrap();
        let again = folder.rotate(NOW, "main", false).unwrap_err().to_string();
        assert!(again.contains("main is revoked"), "{again}");
    });
    let (count, published) = signatures(&mut signer, "5");
    assert_eq!((count, names(&mut signer)), (1, vec!["next".to_owned()]));
    let old = YardKey::read(&signer.folder.path().join("keys/main.asc")).unwrap();
    assert!(old.sign_clear("a\n").unwrap_err().to_string().contains("revoked"));
    let by_old = first.verify_clearsigned(clear.as_bytes()).unwrap();
    assert_eq!(by_old.signers.len(), 1);
    let by_new = published.verify_clearsigned(clear.as_bytes()).unwrap();
    assert_eq!(by_new.signers.len(), 1, "the revoked key counts: {by_new:?}");
    let account = signer.account();
    for action in ["made", "signs too", "signs alone", "revoked"] {
        assert!(account.contains(&format!("\"action\":\"{action}\"")), "{action}");
    }
    let policy = fs::read_to_string(signer.folder.path().join(POLICY)).unwrap();
    assert!(policy.starts_with("# What this signer signs"), "{policy}");
}

fn none() -> Credentials {
    Credentials::new()
}

/// Readers learn that a key is revoked, also if it signed no more, or has a passphrase.
#[test]
fn keys_that_sign_no_more_are_revoked() {
    let mut signer = Signer::new();
    let (_, first) = signatures(&mut signer, "1");
    let answer = signer.publish(&[deb("hello", "2")]);
    let clear = signed(&answer).0.to_owned();
    let next = YardKey::generate("Next <next@example.org>").unwrap();
    change(&mut signer, |folder| {
        folder.add(NOW, "made", "next", &next, None).unwrap();
        folder.rotate(NOW, "next", false).unwrap();
    });
    change(&mut signer, |folder| {
        folder.rotate(NOW, "next", true).unwrap();
        folder.revoke(NOW, "main", "stolen", &none()).unwrap();
    });
    let (_, published) = signatures(&mut signer, "3");
    assert_eq!(first.verify_clearsigned(clear.as_bytes()).unwrap().signers.len(), 1);
    assert!(published.verify_clearsigned(clear.as_bytes()).is_err(), "a reader would still take it");
    // A key with a passphrase.
    let scratch = tempfile::tempdir().unwrap();
    let gpg = |arguments: &[&str]| {
        let mut command = std::process::Command::new("gpg");
        command.args(["--batch", "--pinentry-mode", "loopback", "--passphrase", "words"]).args(arguments);
        let output = command.env("GNUPGHOME", scratch.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    gpg(&["--quick-generate-key", "Locked <locked@example.org>", "ed25519", "sign", "never"]);
    fs::write(scratch.path().join("locked.asc"), gpg(&["--armor", "--export-secret-keys"])).unwrap();
    let locked = YardKey::read(&scratch.path().join("locked.asc")).unwrap();
    let mut folder = Folder::open(signer.folder.path()).unwrap();
    drop(std::mem::replace(&mut signer.service, Signer::new().service));
    folder.add(NOW, "imported", "locked", &locked, Some("words")).unwrap();
    let error = folder.revoke(NOW, "locked", "", &none()).unwrap_err().to_string();
    assert!(error.contains("the credential words is missing"), "{error}");
    let with = |words: &str| Credentials::from([("words".to_owned(), words.to_owned())]);
    let error = folder.revoke(NOW, "locked", "", &with("other")).unwrap_err().to_string();
    assert!(error.contains("does not open it"), "{error}");
    folder.revoke(NOW, "locked", "", &with("words")).unwrap();
    let revoked = YardKey::read(&signer.folder.path().join("keys/locked.asc")).unwrap();
    assert!(revoked.expires(std::time::SystemTime::now()).unwrap_err().to_string().contains("revoked"));
    let _ = std::process::Command::new("gpgconf")
        .arg("--homedir")
        .arg(scratch.path())
        .args(["--kill", "all"])
        .output();
}

#[test]
fn keys_that_cannot_be_used_are_named() {
    let folder = tempfile::tempdir().unwrap();
    setup::make(folder.path(), || YardKey::generate("Test <test@example.org>")).unwrap();
    let path = folder.path().join("keys/main.asc");
    let whole = fs::read_to_string(&path).unwrap();
    for (content, says) in
        [("", "it is empty"), (&whole[..whole.len() / 2], "the secret key"), ("x", "the secret key")]
    {
        fs::write(&path, content).unwrap();
        let service = Service::open(folder.path(), &Credentials::new()).unwrap();
        let mut signer = Signer { folder: tempfile::tempdir().unwrap(), service, now: NOW };
        let Answer::Keys { trouble: Some(reason), keys, .. } = signer.ask(Ask::Keys) else { panic!() };
        assert!(keys[0].trouble.is_some());
        assert!(reason.contains("the key main cannot be used") && reason.contains(says), "{reason}");
        assert!(matches!(signer.publish(&[deb("hello", "1")]), Answer::Failed { .. }));
        // What was not signed is not in the account.
        assert_eq!(fs::read_to_string(folder.path().join("account")).unwrap(), "");
    }
    fs::write(folder.path().join(POLICY), "[repositry.yard]\n").unwrap();
    let error = Service::open(folder.path(), &Credentials::new()).unwrap_err().to_string();
    assert!(error.contains("unknown field `repositry`"), "{error}");
}

#[test]
fn an_expired_key_signs_nothing() {
    let mut signer = Signer::new();
    let expired = YardKey::generate_for("Test <test@example.org>", Some(1)).unwrap();
    fs::write(signer.folder.path().join("keys/main.asc"), expired.to_armored().unwrap()).unwrap();
    signer.again();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
    signer.now = now;
    let Answer::Keys { keys, .. } = signer.ask(Ask::Keys) else { panic!() };
    let expires = keys[0].expires.unwrap();
    assert!((86_390..=86_410).contains(&(expires - now)), "{keys:?}");
    signer.now = now + 86_500;
    let Answer::Keys { keys, .. } = signer.ask(Ask::Keys) else { panic!() };
    assert!(keys[0].trouble.as_ref().unwrap().contains("expired on"), "{keys:?}");
}
