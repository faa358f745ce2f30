//! X.509 signatures of packages, verified by openssl as pkg_install's calls of it do.

use kilnyard_sign::PackageKey;
use std::path::Path;
use std::process::{Command, Output};

fn openssl(folder: &Path, arguments: &[&str]) -> Output {
    Command::new("openssl").args(arguments).current_dir(folder).output().unwrap()
}

#[track_caller]
fn run(folder: &Path, arguments: &[&str]) {
    let output = openssl(folder, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Makes a certificate with these extensions, signed by itself.
fn certificate(folder: &Path, key: &str, extensions: &str) -> String {
    let text = format!("[req]\ndistinguished_name=dn\nx509_extensions=v3\n[dn]\n[v3]\n{extensions}\n");
    std::fs::write(folder.join("request.cnf"), text).unwrap();
    let request =
        ["req", "-x509", "-config", "request.cnf", "-key", key, "-subj", "/CN=Packages", "-days", "30"];
    run(folder, &[&request[..], &["-out", "made.pem"]].concat());
    std::fs::read_to_string(folder.join("made.pem")).unwrap()
}

const USES: &str = "extendedKeyUsage=codeSigning,emailProtection\nbasicConstraints=CA:FALSE";

#[test]
fn openssl_verifies_signatures_of_each_kind_of_key() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("text"), "pkgsrc signature\n\nversion: 1\n").unwrap();
    let makes: [(&[&str], Option<&str>); 5] = [
        (&["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"], None),
        (&["genrsa", "-traditional", "2048"], None),
        (&["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"], None),
        (&["ecparam", "-genkey", "-noout", "-name", "prime256v1"], None),
        (&["genpkey", "-algorithm", "RSA", "-aes256", "-pass", "pass:secret"], Some("secret")),
    ];
    for (make, passphrase) in makes {
        run(folder, &[&make[..1], &["-out", "key.pem"], &make[1..]].concat());
        let key = std::fs::read_to_string(folder.join("key.pem")).unwrap();
        if passphrase.is_some() {
            run(folder, &["pkey", "-in", "key.pem", "-passin", "pass:secret", "-out", "open.pem"]);
        } else {
            std::fs::copy(folder.join("key.pem"), folder.join("open.pem")).unwrap();
        }
        let certificate = certificate(folder, "open.pem", USES);
        // Other programs write a text before a certificate.
        let opened = PackageKey::open(&key, passphrase, &format!("Subject: x\n{certificate}")).unwrap();
        let text = std::fs::read(folder.join("text")).unwrap();
        std::fs::write(folder.join("signature.pem"), opened.sign(&text).unwrap()).unwrap();
        let verify = |text: &str| {
            let verify = ["smime", "-verify", "-binary", "-inform", "PEM", "-in", "signature.pem"];
            let trust = ["-content", text, "-CAfile", "made.pem", "-purpose", "any"];
            openssl(folder, &[&verify[..], &trust].concat())
        };
        let verified = verify("text");
        assert!(verified.status.success(), "{make:?}: {}", String::from_utf8_lossy(&verified.stderr));
        std::fs::write(folder.join("other"), "another text").unwrap();
        assert!(!verify("other").status.success());
        if let Some(passphrase) = passphrase {
            assert!(PackageKey::open(&key, None, &certificate).unwrap_err().contains("passphrase"));
            let wrong = PackageKey::open(&key, Some(&format!("{passphrase}x")), &certificate).unwrap_err();
            assert!(wrong.contains("does not open it"), "{wrong}");
        }
        // RSA without attributes has one signature, which openssl makes as well.
        if make[0] == "genrsa" {
            let sign = ["smime", "-sign", "-binary", "-noattr", "-outform", "PEM", "-signer", "made.pem"];
            let with = ["-inkey", "open.pem", "-in", "text", "-out", "theirs.pem"];
            run(folder, &[&sign[..], &with].concat());
            let theirs = std::fs::read_to_string(folder.join("theirs.pem")).unwrap();
            assert_eq!(opened.sign(&text).unwrap(), theirs);
        }
        let now = opened.expires() - 1;
        assert_eq!(opened.trouble(now), None);
        assert!(opened.trouble(now + 1).unwrap().contains("has expired"));
        assert!(opened.trouble(now - 40 * 86_400).unwrap().contains("not valid yet"));
    }
}

#[test]
fn a_certificate_that_readers_refuse_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run(folder, &["genrsa", "-out", "key.pem", "2048"]);
    run(folder, &["genrsa", "-out", "other.pem", "2048"]);
    let key = std::fs::read_to_string(folder.join("key.pem")).unwrap();
    let other = std::fs::read_to_string(folder.join("other.pem")).unwrap();
    let refused = |key: &str, certificate: &str| PackageKey::open(key, None, certificate).unwrap_err();
    for (extensions, says) in [
        ("extendedKeyUsage=codeSigning", "codeSigning and emailProtection, and nothing else"),
        ("extendedKeyUsage=codeSigning,emailProtection,clientAuth", "and nothing else"),
        ("basicConstraints=CA:FALSE", "codeSigning and emailProtection"),
        ("extendedKeyUsage=codeSigning,emailProtection\nkeyUsage=keyEncipherment", "no digitalSignature"),
        ("extendedKeyUsage=codeSigning,emailProtection\nbasicConstraints=CA:TRUE", "an authority"),
    ] {
        let certificate = certificate(folder, "key.pem", extensions);
        assert!(refused(&key, &certificate).contains(says), "{extensions}");
    }
    let good = certificate(folder, "key.pem", USES);
    assert!(refused(&other, &good).contains("of another key"));
    assert!(refused("nothing", &good).contains("not the PEM"));
    assert!(refused(&key, "").contains("no certificate"));
    assert!(refused(&key, &good.replace("MII", "MIJ")).contains("damaged"));
    run(folder, &["genrsa", "-out", "short.pem", "1024"]);
    let short = std::fs::read_to_string(folder.join("short.pem")).unwrap();
    assert!(refused(&short, &good).contains("1024 bits"));
}
