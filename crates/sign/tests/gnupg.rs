//! Both directions with a real GnuPG: it accepts signatures of a yard, and its own signatures are judged correctly.

mod support;

use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kilnyard_sign::{Keyring, SignError, SignatureProblem, YardKey};
use support::{Gnupg, gpgv};

/// Texts that a clearsigned message carries unchanged.
const TEXTS: [&str; 7] = [
    "Origin: Yard\nSuite: stable\n",
    "",
    "\n\nblank lines around\n\n\n",
    "-----BEGIN PGP SIGNED MESSAGE-----\n- dash\n-- two\n---\n-\n",
    "From the start\nFrom: line\n",
    "no ASCII: \u{fc}\u{f1}\u{2713}\n",
    "a\rb\n",
];

#[test]
fn gpgv_verifies_what_a_yard_signs() {
    let Some(gnupg) = Gnupg::start("gpgv_verifies_what_a_yard_signs") else {
        return;
    };
    let key = YardKey::generate("Yard <yard@example.org>").unwrap();
    let keyring = gnupg.write("yard.gpg", key.public_binary().unwrap());
    for text in TEXTS {
        let message = gnupg.write("InRelease", key.sign_clear(text).unwrap());
        let shown = gpgv(&keyring, &[&message]).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        let ours = key.keyring().verify_clearsigned(&std::fs::read(&message).unwrap()).unwrap();
        assert_eq!(ours.text, text.as_bytes());
        // GnuPG prints an empty text as one empty line, which has the same signature.
        assert_eq!(shown, if text.is_empty() { b"\n" } else { text.as_bytes() });

        let release = gnupg.write("Release", text);
        let signature = gnupg.write("Release.gpg", key.sign_detached(text.as_bytes()).unwrap());
        gpgv(&keyring, &[&signature, &release]).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    }
}

#[test]
fn gpgv_verifies_a_text_with_trailing_blanks() {
    let Some(gnupg) = Gnupg::start("gpgv_verifies_a_text_with_trailing_blanks") else {
        return;
    };
    let key = YardKey::generate("Yard <yard@example.org>").unwrap();
    let keyring = gnupg.write("yard.gpg", key.public_binary().unwrap());
    let message = gnupg.write("InRelease", key.sign_clear("a \t\r\n  \nb").unwrap());
    assert_eq!(gpgv(&keyring, &[&message]).unwrap(), b"a\n\nb\n");
}

#[test]
fn gpg_imports_the_certificate_and_the_secret_key() {
    let Some(gnupg) = Gnupg::start("gpg_imports_the_certificate_and_the_secret_key") else {
        return;
    };
    let key = YardKey::generate("Yard <yard@example.org>").unwrap();
    gnupg.gpg(&["--import"], key.public_armored().unwrap().as_bytes());
    assert_eq!(gnupg.fingerprints("yard@example.org"), [key.fingerprint()]);

    let file = gnupg.file("yard.key");
    key.write(&file).unwrap();
    gnupg.gpg(&["--import".as_ref(), file.as_os_str()], b"");
    let message = gnupg.clearsign(&key.fingerprint(), b"by gpg\n");
    let verified = key.keyring().verify_clearsigned(&message).unwrap();
    assert_eq!(verified.text, b"by gpg\n");
    assert_eq!(verified.signers[0].key.user_id.as_deref(), Some("Yard <yard@example.org>"));
}

#[test]
fn a_yard_signs_with_a_key_that_gpg_made() {
    let Some(gnupg) = Gnupg::start("a_yard_signs_with_a_key_that_gpg_made") else {
        return;
    };
    let primary = gnupg.make_key("Site <site@example.org>", "rsa2048", "cert", "never", "20240101T000000");
    gnupg.gpg(&["--quick-add-key", &primary, "ed25519", "sign", "never"], b"");
    let subkey = gnupg.fingerprints("site@example.org")[1].clone();
    let secret = gnupg.gpg(&["--armor", "--export-secret-keys", &primary], b"");
    let key = YardKey::read(&gnupg.write("site.key", secret)).unwrap();
    assert_eq!(key.fingerprint(), primary);

    let message = gnupg.write("InRelease", key.sign_clear("text\n").unwrap());
    let keyring = gnupg.write("site.gpg", gnupg.export(&[&primary]));
    assert_eq!(gpgv(&keyring, &[&message]).unwrap(), b"text\n");
    let verified =
        Keyring::read(&keyring).unwrap().verify_clearsigned(&std::fs::read(&message).unwrap()).unwrap();
    assert_eq!(verified.signers[0].key.fingerprint, subkey);
    assert_eq!(verified.signers[0].key.primary_fingerprint, primary);
}

#[test]
fn signatures_of_gpg_are_verified() {
    let Some(gnupg) = Gnupg::start("signatures_of_gpg_are_verified") else {
        return;
    };
    let signer = gnupg.make_signing_key("Archive <archive@example.org>");
    let binary = Keyring::from_bytes(&gnupg.export(&[&signer])).unwrap();
    let armored = gnupg.gpg(&["--armor", "--export", &signer], b"");
    let armored = Keyring::read(&gnupg.write("archive.asc", armored)).unwrap();
    for ring in [&binary, &armored] {
        assert_eq!(ring.fingerprints().collect::<Vec<_>>(), [signer.as_str()]);
        for text in TEXTS {
            let verified = ring
                .verify_clearsigned(&gnupg.clearsign(&signer, text.as_bytes()))
                .unwrap_or_else(|error| panic!("{text:?}: {error}"));
            assert_eq!(verified.text, text.as_bytes());
            assert_eq!(verified.signers.len(), 1);
            assert_eq!(verified.signers[0].key.fingerprint, signer);
            assert!(verified.unknown_signers.is_empty());

            for form in ["--armor", "--no-armor"] {
                let signature = gnupg.gpg(&["-u", &signer, form, "--detach-sign"], text.as_bytes());
                let verified = ring.verify_detached(text.as_bytes(), &signature).unwrap();
                assert_eq!(verified.text, text.as_bytes());
            }
        }
        let message = gnupg.clearsign(&signer, b"blanks \t \r\nat the end  \n");
        let verified = ring.verify_clearsigned(&message).unwrap();
        assert_eq!(verified.text, b"blanks\nat the end\n");
        // Converted line endings do not change the message.
        let windows = String::from_utf8(gnupg.clearsign(&signer, b"one\n- two\n")).unwrap();
        let verified = ring.verify_clearsigned(windows.replace('\n', "\r\n").as_bytes()).unwrap();
        assert_eq!(verified.text, b"one\n- two\n");
    }
}

#[test]
fn a_text_signature_over_a_file_is_verified() {
    let Some(gnupg) = Gnupg::start("a_text_signature_over_a_file_is_verified") else {
        return;
    };
    let signer = gnupg.make_signing_key("Archive <archive@example.org>");
    let ring = Keyring::from_bytes(&gnupg.export(&[&signer])).unwrap();
    let signature = gnupg.gpg(&["-u", &signer, "--textmode", "--detach-sign"], b"a\nb\n");
    ring.verify_detached(b"a\r\nb\r\n", &signature).unwrap();
    assert!(ring.verify_detached(b"a\nc\n", &signature).is_err());
}

#[test]
fn one_known_signature_of_two_suffices() {
    let Some(gnupg) = Gnupg::start("one_known_signature_of_two_suffices") else {
        return;
    };
    let old = gnupg.make_signing_key("Old <old@example.org>");
    let new = gnupg.make_signing_key("New <new@example.org>");
    let other = gnupg.make_signing_key("Other <other@example.org>");
    let message = gnupg.gpg(&["-u", &old, "-u", &new, "--clearsign"], b"text\n");

    for (known, unknown) in [(&old, &new), (&new, &old)] {
        let ring = Keyring::from_bytes(&gnupg.export(&[known, &other])).unwrap();
        let verified = ring.verify_clearsigned(&message).unwrap();
        assert_eq!(verified.signers.len(), 1);
        assert_eq!(&verified.signers[0].key.fingerprint, known);
        assert_eq!(&verified.unknown_signers, std::slice::from_ref(unknown));
    }
    let both = Keyring::from_bytes(&gnupg.export(&[&old, &new])).unwrap();
    assert_eq!(both.verify_clearsigned(&message).unwrap().signers.len(), 2);

    let neither = Keyring::read(&gnupg.write("other.gpg", gnupg.export(&[&other]))).unwrap();
    let error = neither.verify_clearsigned(&message).unwrap_err();
    assert!(matches!(&error, SignError::NoKnownSigner { signed_by, .. } if signed_by.len() == 2));
    let text = error.to_string();
    for words in [&old, &new, &other[24..], "other.gpg"] {
        assert!(text.contains(words), "{words} is not in {text}");
    }
}

#[test]
fn a_changed_text_is_refused() {
    let Some(gnupg) = Gnupg::start("a_changed_text_is_refused") else {
        return;
    };
    let signer = gnupg.make_signing_key("Archive <archive@example.org>");
    let ring = Keyring::from_bytes(&gnupg.export(&[&signer])).unwrap();
    let message = String::from_utf8(gnupg.clearsign(&signer, b"Suite: stable\n- x\n")).unwrap();
    for (from, to) in [("stable", "stabls"), ("Suite", " Suite"), ("- - x", "- x"), ("\nSuite", "\n\nSuite")]
    {
        let changed = message.replacen(from, to, 1);
        assert_ne!(changed, message);
        let error = ring.verify_clearsigned(changed.as_bytes()).unwrap_err();
        let SignError::NoGoodSignature { problems, .. } = &error else {
            panic!("{from}: {error}");
        };
        assert!(matches!(problems[0], SignatureProblem::TextDiffers { .. }), "{error}");
        assert!(error.to_string().contains(&signer), "{error}");
    }
}

#[test]
fn a_weak_hash_is_refused() {
    let Some(gnupg) = Gnupg::start("a_weak_hash_is_refused") else {
        return;
    };
    let signer = gnupg.make_key("Old <old@example.org>", "rsa2048", "sign", "never", "20240101T000000");
    let ring = Keyring::from_bytes(&gnupg.export(&[&signer])).unwrap();
    for hash in ["SHA1", "RIPEMD160"] {
        let message = gnupg.gpg(
            &["--digest-algo", hash, "--allow-weak-digest-algos", "-u", &signer, "--clearsign"],
            b"text\n",
        );
        let error = ring.verify_clearsigned(&message).unwrap_err();
        assert!(error.to_string().contains(&format!("uses {hash}, which is too weak")), "{error}");
    }
    let message = gnupg.gpg(&["--digest-algo", "SHA224", "-u", &signer, "--clearsign"], b"text\n");
    assert!(ring.verify_clearsigned(&message).is_ok());
}

#[test]
fn the_error_of_an_expired_key_has_the_date() {
    let Some(gnupg) = Gnupg::start("the_error_of_an_expired_key_has_the_date") else {
        return;
    };
    let signer = gnupg.make_key("Old <old@example.org>", "ed25519", "sign", "1d", "20240101T000000");
    let message =
        gnupg.gpg(&["--faked-system-time", "20240101T010000", "-u", &signer, "--clearsign"], b"text\n");
    let ring = Keyring::from_bytes(&gnupg.export(&[&signer])).unwrap();
    let error = ring.verify_clearsigned(&message).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&signer) && text.contains("expired on 2024-01-02T"), "{text}");

    let in_its_time = UNIX_EPOCH + Duration::from_secs(1_704_074_400);
    assert!(ring.verify_clearsigned_at(&message, in_its_time).is_ok());
    let error = ring.verify_clearsigned_at(&message, UNIX_EPOCH).unwrap_err();
    assert!(error.to_string().contains("in the future"), "{error}");

    // A message signed by a key that is still valid is accepted.
    let other = gnupg.make_signing_key("New <new@example.org>");
    let ring = Keyring::from_bytes(&gnupg.export(&[&signer, &other])).unwrap();
    let message = gnupg.clearsign(&other, b"text\n");
    assert!(ring.verify_clearsigned(&message).is_ok());
}

#[test]
fn the_expiry_of_the_primary_key_ends_its_subkeys() {
    let Some(gnupg) = Gnupg::start("the_expiry_of_the_primary_key_ends_its_subkeys") else {
        return;
    };
    let when = "20240101T000000";
    let primary = gnupg.make_key("Old <old@example.org>", "ed25519", "cert", "1d", when);
    gnupg.gpg(&["--faked-system-time", when, "--quick-add-key", &primary, "ed25519", "sign", "never"], b"");
    let subkey = gnupg.fingerprints("old@example.org")[1].clone();
    let message =
        gnupg.gpg(&["--faked-system-time", "20240101T010000", "-u", &subkey, "--clearsign"], b"text\n");
    let ring = Keyring::from_bytes(&gnupg.export(&[&primary])).unwrap();
    let text = ring.verify_clearsigned(&message).unwrap_err().to_string();
    assert!(text.contains(&format!("{subkey} (subkey of {primary})")), "{text}");
    assert!(text.contains("expired on 2024-01-02T"), "{text}");
}

#[test]
fn a_revoked_key_is_refused() {
    let Some(gnupg) = Gnupg::start("a_revoked_key_is_refused") else {
        return;
    };
    let signer = gnupg.make_signing_key("Gone <gone@example.org>");
    let message = gnupg.clearsign(&signer, b"text\n");
    let before = gnupg.export(&[&signer]);
    assert!(Keyring::from_bytes(&before).unwrap().verify_clearsigned(&message).is_ok());

    let revocation = gnupg.file(&format!("openpgp-revocs.d/{signer}.rev"));
    let revocation = std::fs::read_to_string(revocation).unwrap();
    gnupg.gpg(&["--import"], revocation.replace(":-----BEGIN", "-----BEGIN").as_bytes());
    let after = gnupg.export(&[&signer]);
    // An older copy of the certificate in the same ring does not reinstate the key.
    for ring in [after.clone(), [before.clone(), after.clone()].concat(), [after, before].concat()] {
        let error = Keyring::from_bytes(&ring).unwrap().verify_clearsigned(&message).unwrap_err();
        assert!(error.to_string().contains("is revoked"), "{error}");
    }
}

#[test]
fn a_subkey_without_its_binding_is_refused() {
    let Some(gnupg) = Gnupg::start("a_subkey_without_its_binding_is_refused") else {
        return;
    };
    let primary = gnupg.make_key("A <a@example.org>", "ed25519", "cert", "never", "20240101T000000");
    gnupg.gpg(&["--quick-add-key", &primary, "ed25519", "sign", "never"], b"");
    let subkey = gnupg.fingerprints("a@example.org")[1].clone();
    let message = gnupg.clearsign(&subkey, b"text\n");
    let certificate = gnupg.export(&[&primary]);
    assert!(Keyring::from_bytes(&certificate).unwrap().verify_clearsigned(&message).is_ok());

    // The last byte of the export is the last byte of the binding signature.
    let mut damaged = certificate.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let error = Keyring::from_bytes(&damaged).unwrap().verify_clearsigned(&message).unwrap_err();
    assert!(error.to_string().contains("no valid signature binds it"), "{error}");

    // The subkey is moved to another primary key.
    let other = gnupg.make_key("B <b@example.org>", "ed25519", "cert", "never", "20240101T000000");
    let split = gnupg.write("a.gpg", &certificate);
    let packets = packets_of(&std::fs::read(split).unwrap());
    let stolen = [gnupg.export(&[&other]), packets[packets.len() - 2..].concat()].concat();
    let error = Keyring::from_bytes(&stolen).unwrap().verify_clearsigned(&message).unwrap_err();
    assert!(error.to_string().contains("no valid signature binds it"), "{error}");
}

#[test]
fn a_key_for_certification_only_does_not_sign() {
    let Some(gnupg) = Gnupg::start("a_key_for_certification_only_does_not_sign") else {
        return;
    };
    let signer = gnupg.make_signing_key("A <a@example.org>");
    let message = gnupg.clearsign(&signer, b"text\n");
    // Its owner removes the signing flag afterwards.
    let script = b"change-usage\nS\nQ\nsave\n";
    let edit = gnupg.try_gpg(&["--command-fd", "0", "--expert", "--edit-key", &signer], script);
    let ring = Keyring::from_bytes(&gnupg.export(&[&signer])).unwrap();
    let listed = gnupg.gpg(&["--with-colons", "--list-keys", &signer], b"");
    let listed = String::from_utf8(listed).unwrap();
    let usage = listed.lines().find(|line| line.starts_with("pub:")).unwrap();
    if usage.split(':').nth(11).is_some_and(|usage| usage.contains('s')) {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: a_key_for_certification_only_does_not_sign: this gpg does not change usage: {}",
            String::from_utf8_lossy(&edit.stderr)
        );
        return;
    }
    let error = ring.verify_clearsigned(&message).unwrap_err();
    assert!(error.to_string().contains("does not allow it to sign data"), "{error}");
}

#[test]
fn a_signature_with_a_term_expires() {
    let Some(gnupg) = Gnupg::start("a_signature_with_a_term_expires") else {
        return;
    };
    let signer = gnupg.make_signing_key("A <a@example.org>");
    let message = gnupg.gpg(&["--default-sig-expire", "2d", "-u", &signer, "--clearsign"], b"text\n");
    let ring = Keyring::from_bytes(&gnupg.export(&[&signer])).unwrap();
    assert!(ring.verify_clearsigned(&message).is_ok());
    let later = SystemTime::now() + Duration::from_secs(3 * 24 * 60 * 60);
    let error = ring.verify_clearsigned_at(&message, later).unwrap_err();
    assert!(error.to_string().contains("expired on"), "{error}");
}

#[test]
fn files_that_are_not_keyrings_are_rejected() {
    let Some(gnupg) = Gnupg::start("files_that_are_not_keyrings_are_rejected") else {
        return;
    };
    let signer = gnupg.make_signing_key("A <a@example.org>");
    let export = gnupg.export(&[&signer]);
    let secret = gnupg.gpg(&["--export-secret-keys", &signer], b"");
    let reason = |bytes: &[u8]| {
        let path = gnupg.write("ring", bytes);
        let text = Keyring::read(&path).unwrap_err().to_string();
        assert!(text.contains(path.to_str().unwrap()), "{text}");
        text
    };
    assert!(reason(b"").contains("empty"));
    assert!(reason(b"hello").contains("no PGP PUBLIC KEY BLOCK"));
    assert!(reason(&secret).contains("secret key"));
    assert!(reason(&export[..export.len() - 1]).contains("damaged"));
    assert!(reason(&std::fs::read(gnupg.file("pubring.kbx")).unwrap()).contains("gpg --export"));
    let missing = Keyring::read(&gnupg.file("missing")).unwrap_err();
    assert!(matches!(missing, SignError::ReadFile { .. }));
}

#[test]
fn several_certificates_in_one_file_are_all_read() {
    let Some(gnupg) = Gnupg::start("several_certificates_in_one_file_are_all_read") else {
        return;
    };
    let keys = ["a", "b", "c"].map(|name| gnupg.make_signing_key(&format!("{name} <{name}@x.org>")));
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    let binary = gnupg.export(&names);
    let mut armored = Vec::new();
    for key in &names {
        armored.extend_from_slice(format!("The key {key}:\n").as_bytes());
        armored.extend(gnupg.gpg(&["--armor", "--export", key], b""));
    }
    for bytes in [binary, armored] {
        let ring = Keyring::from_bytes(&bytes).unwrap();
        assert_eq!(ring.fingerprints().collect::<Vec<_>>(), names);
        for key in &names {
            assert!(ring.verify_clearsigned(&gnupg.clearsign(key, b"x\n")).is_ok());
        }
    }
}

/// Splits an export of GnuPG into packets. GnuPG writes old-format headers with one or two length bytes.
fn packets_of(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    while let Some(first) = bytes.first() {
        let (header, length) = match first & 3 {
            0 => (2, usize::from(bytes[1])),
            1 => (3, usize::from(u16::from_be_bytes([bytes[1], bytes[2]]))),
            kind => panic!("length kind {kind}"),
        };
        let (packet, rest) = bytes.split_at(header + length);
        packets.push(packet.to_vec());
        bytes = rest;
    }
    packets
}
