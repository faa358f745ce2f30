//! Keys in SoftHSM, which keeps tokens in files.

use crate::fixture::*;
use kilnyard_sign::{Keyring, PackageKey};
use kilnyard_signer::keys::Credentials;
use kilnyard_signer::message::{Answer, Ask};
use kilnyard_signer::pkcs11::{self, NewKey};
use kilnyard_signer::policy::{POLICY, Pkcs11};
use kilnyard_signer::service::Service;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

const TOKEN: &str = "yard";
const PIN: &str = "1234";

/// The module; none, with a printed reason, where it is not installed.
fn module(test: &str) -> Option<PathBuf> {
    let places = ["/usr/lib/softhsm/libsofthsm2.so", "/usr/lib64/pkcs11/libsofthsm2.so"];
    let found = places.into_iter().map(PathBuf::from).find(|path| path.exists());
    if found.is_none() {
        println!("skipped: {test}: softhsm2 is not installed");
    }
    found
}

/// A new token in a folder. The variable that names its configuration belongs to the process, so one test has all cases.
fn make_token(folder: &Path) {
    let tokens = folder.join("tokens");
    fs::create_dir_all(&tokens).unwrap();
    let text = format!(
        "directories.tokendir = {}\nobjectstore.backend = file\nlog.level = ERROR\n",
        tokens.display()
    );
    fs::write(folder.join("softhsm2.conf"), text).unwrap();
    // SAFETY: no other test of this program reads or writes the environment.
    unsafe { std::env::set_var("SOFTHSM2_CONF", folder.join("softhsm2.conf")) };
    let arguments = ["--init-token", "--free", "--label", TOKEN, "--so-pin", "0000", "--pin", PIN];
    let made = Command::new("softhsm2-util").args(arguments).output().unwrap();
    assert!(made.status.success(), "{made:?}");
}

#[test]
fn tokens_sign_and_say_what_is_wrong() {
    let Some(module) = module("tokens_sign_and_say_what_is_wrong") else { return };
    let folder = tempfile::tempdir().unwrap();
    make_token(folder.path());
    let place = |label: &str| Pkcs11 {
        module: module.clone(),
        token: TOKEN.to_owned(),
        label: label.to_owned(),
        paths: Vec::new(),
        environment: Default::default(),
        network: false,
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let credentials = Credentials::from([("pin".to_owned(), PIN.to_owned())]);
    for (label, kind) in [("ed", NewKey::Ed25519), ("p256", NewKey::P256), ("rsa", NewKey::Rsa3072)] {
        pkcs11::generate(&place(label), Some(PIN), kind).unwrap();
        let again = pkcs11::generate(&place(label), Some(PIN), kind).unwrap_err();
        assert_eq!(again, format!("the token {TOKEN} has a key {label}"));
        let certificate =
            pkcs11::certificate(&place(label), Some(PIN), now as u32, "Yard <yard@example.org>", Some(30))
                .unwrap();
        let key = pkcs11::open(&place(label), Some(PIN), certificate.as_bytes()).unwrap();
        let text = key.sign_clear("a text\n").unwrap();
        let keyring = Keyring::from_bytes(certificate.as_bytes()).unwrap();
        keyring.verify_clearsigned(text.as_bytes()).unwrap();
        verified_by_others(folder.path(), &certificate, &text);
        // It revokes itself.
        let mut gone = pkcs11::open(&place(label), Some(PIN), certificate.as_bytes()).unwrap();
        gone.revoke("lost").unwrap();
        let revoked = Keyring::from_bytes(gone.public_armored().unwrap().as_bytes()).unwrap();
        assert!(revoked.verify_clearsigned(text.as_bytes()).is_err(), "{label}");
        certified(folder.path(), &place(label), label == "ed");
        // The whole signer with it.
        let policy = format!(
            "[repository.yard]\nkeys = [\"main\"]\n[key.main]\ncertificate = \"main.asc\"\ncredential = \"pin\"\n\
             [key.main.pkcs11]\nmodule = {module:?}\ntoken = {TOKEN:?}\nlabel = {label:?}\n"
        );
        let own = tempfile::tempdir().unwrap();
        fs::write(own.path().join(POLICY), &policy).unwrap();
        fs::write(own.path().join("main.asc"), &certificate).unwrap();
        let service = Service::open(own.path(), &credentials).unwrap();
        let mut signer = Signer { folder: own, service, now: NOW };
        let answer = signer.publish(&[deb("hello", "1")]);
        keyring.verify_clearsigned(signed(&answer).0.as_bytes()).unwrap();
        // The certificate of another key.
        let other = pkcs11::open(&place(label), Some(PIN), other_certificate().as_bytes()).unwrap_err();
        assert_eq!(other, format!("the key {label} of the token is not in the certificate"));
    }
    let error = pkcs11::certificate(&place("none"), Some(PIN), 1, "a", None).unwrap_err();
    assert_eq!(error, format!("the token {TOKEN} has no key none"));
    let elsewhere = Pkcs11 { token: "other".to_owned(), ..place("ed") };
    let error = pkcs11::certificate(&elsewhere, Some(PIN), 1, "a", None).unwrap_err();
    assert_eq!(error, "the token other is not there");
    let nothing = Pkcs11 { module: PathBuf::from("/nonexistent.so"), ..place("ed") };
    let error = pkcs11::certificate(&nothing, Some(PIN), 1, "a", None).unwrap_err();
    assert!(error.starts_with("the module /nonexistent.so cannot be used"), "{error}");

    // A token that is pulled out while its signer runs, and comes back.
    let certificate =
        pkcs11::certificate(&place("ed"), Some(PIN), now as u32, "Yard <y@example.org>", None).unwrap();
    let policy = format!(
        "[repository.yard]\nkeys = [\"main\"]\n[key.main]\ncertificate = \"main.asc\"\ncredential = \"pin\"\n\
         [key.main.pkcs11]\nmodule = {module:?}\ntoken = {TOKEN:?}\nlabel = \"ed\"\n"
    );
    let own = tempfile::tempdir().unwrap();
    fs::write(own.path().join(POLICY), &policy).unwrap();
    fs::write(own.path().join("main.asc"), &certificate).unwrap();
    let service = Service::open(own.path(), &credentials).unwrap();
    let mut signer = Signer { folder: own, service, now: NOW };
    signed(&signer.publish(&[deb("hello", "1")]));
    let (here, away) = (folder.path().join("tokens"), folder.path().join("away"));
    fs::rename(&here, &away).unwrap();
    fs::create_dir(&here).unwrap();
    let answer = signer.publish(&[deb("hello", "2")]);
    let Answer::Failed { reason } = &answer else { panic!("{answer:?}") };
    assert!(reason.contains("token") || reason.contains("the key"), "{reason}");
    assert_eq!(signer.account().lines().count(), 1, "what was not signed is not in the account");
    fs::remove_dir(&here).unwrap();
    fs::rename(&away, &here).unwrap();
    signed(&signer.publish(&[deb("hello", "2")]));
    let Answer::Keys { keys, .. } = signer.ask(Ask::Keys) else { panic!() };
    assert_eq!(keys[0].kind, "pkcs11");
}

/// A certificate of X.509 for a key of the token, by an authority that has the public key.
fn certified(folder: &Path, place: &Pkcs11, is_refused: bool) {
    let opened = pkcs11::open_signer(place, Some(PIN));
    if is_refused {
        assert!(opened.unwrap_err().contains("neither RSA nor P-256"));
        return;
    }
    // The public key, as the token's own tool writes it.
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    };
    let module = place.module.display().to_string();
    let read = ["--module", &module, "--token-label", TOKEN, "--read-object", "--type", "pubkey"];
    run("pkcs11-tool", &[&read[..], &["--label", &place.label, "-o", "public.der"]].concat());
    run("openssl", &["pkey", "-pubin", "-inform", "DER", "-in", "public.der", "-out", "public.pem"]);
    let text = "[req]\ndistinguished_name=dn\n[dn]\n[v3]\nextendedKeyUsage=codeSigning,emailProtection\n";
    fs::write(folder.join("x509.cnf"), text).unwrap();
    run("openssl", &["genpkey", "-algorithm", "RSA", "-out", "authority.pem"]);
    let authority = ["req", "-x509", "-config", "x509.cnf", "-key", "authority.pem", "-subj", "/CN=A"];
    run("openssl", &[&authority[..], &["-out", "authority-certificate.pem"]].concat());
    let request = ["x509", "-new", "-force_pubkey", "public.pem", "-subj", "/CN=Packages"];
    let with = ["-extfile", "x509.cnf", "-extensions", "v3", "-CA", "authority-certificate.pem"];
    let from = ["-CAkey", "authority.pem", "-days", "30", "-out", "made.pem"];
    run("openssl", &[&request[..], &with, &from].concat());
    let certificate = fs::read_to_string(folder.join("made.pem")).unwrap();
    let key = PackageKey::in_device(opened.unwrap(), &certificate).unwrap();
    fs::write(folder.join("text"), "a text\n").unwrap();
    fs::write(folder.join("signature.pem"), key.sign(b"a text\n").unwrap()).unwrap();
    let verify =
        ["smime", "-verify", "-binary", "-inform", "PEM", "-in", "signature.pem", "-content", "text"];
    run("openssl", &[&verify[..], &["-CAfile", "authority-certificate.pem", "-purpose", "any"]].concat());
    // The certificate of another key.
    let other = pkcs11::open_signer(place, Some(PIN)).unwrap();
    run("openssl", &["pkey", "-in", "authority.pem", "-pubout", "-out", "other.pem"]);
    let own = ["x509", "-new", "-force_pubkey", "other.pem", "-subj", "/CN=Other"];
    run("openssl", &[&own[..], &with, &from].concat());
    let wrong = PackageKey::in_device(other, &fs::read_to_string(folder.join("made.pem")).unwrap());
    assert!(wrong.unwrap_err().contains("another key than the device's"));
}

fn other_certificate() -> String {
    kilnyard_sign::YardKey::generate("Other <other@example.org>").unwrap().public_armored().unwrap()
}

/// gpgv and sq, where they are installed, accept the message.
fn verified_by_others(folder: &Path, certificate: &str, message: &str) {
    let (ring, text) = (folder.join("ring.asc"), folder.join("message"));
    fs::write(&ring, certificate).unwrap();
    fs::write(&text, message).unwrap();
    let binary = folder.join("ring.gpg");
    let _ = fs::remove_file(&binary);
    let run = |command: &mut Command| match command.output() {
        Err(_) => println!("skipped: {} is not installed", command.get_program().display()),
        Ok(output) => assert!(output.status.success(), "{command:?}: {output:?}"),
    };
    run(Command::new("gpg").args(["--batch", "--dearmor", "--output"]).args([&binary, &ring]));
    run(Command::new("gpgv").arg("--keyring").args([&binary, &text]));
    run(Command::new("sq").args(["verify", "--signer-cert"]).args([&ring, &text]));
}

/// A real gpg-agent, with a key of each kind that it can have without a card.
#[test]
fn an_agent_signs_and_its_absence_is_named() {
    if Command::new("gpg").arg("--version").output().is_err() {
        println!("skipped: an_agent_signs_and_its_absence_is_named: gpg is not installed");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let gpg = |arguments: &[&str]| {
        let mut command = Command::new("gpg");
        command.env("GNUPGHOME", home.path()).args(["--batch", "--quiet", "--pinentry-mode", "loopback"]);
        let output = command.args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    // Below /run/user, where that folder exists.
    let mut directories = Command::new("gpgconf");
    directories.env("GNUPGHOME", home.path()).args(["--list-dirs", "agent-socket"]);
    let socket = String::from_utf8(directories.output().unwrap().stdout).unwrap();
    let socket = PathBuf::from(socket.trim());
    for kind in ["ed25519", "nistp256", "rsa2048"] {
        let user = format!("{kind}@example.org");
        gpg(&["--passphrase", "", "--quick-generate-key", &user, kind, "sign", "never"]);
        let certificate = gpg(&["--armor", "--export", &user]);
        let key = kilnyard_signer::agent::open(&socket, certificate.as_bytes()).unwrap();
        for number in 0..20 {
            // Numbers that begin with zeros are shorter.
            let text = key.sign_clear(&format!("text {number}\n")).unwrap();
            Keyring::from_bytes(certificate.as_bytes()).unwrap().verify_clearsigned(text.as_bytes()).unwrap();
        }
        verified_by_others(home.path(), &certificate, &key.sign_clear("a text\n").unwrap());
    }
    // A primary key that is elsewhere, with a subkey that signs: what people keep on cards.
    gpg(&["--passphrase", "", "--quick-generate-key", "sub@example.org", "ed25519", "cert", "never"]);
    let listed = gpg(&["--with-colons", "--list-keys", "sub@example.org"]);
    let fingerprint =
        listed.lines().find_map(|line| line.strip_prefix("fpr:::::::::")).unwrap().trim_end_matches(':');
    gpg(&["--passphrase", "", "--quick-add-key", fingerprint, "ed25519", "sign", "never"]);
    let grip = gpg(&["--with-colons", "--with-keygrip", "--list-keys", fingerprint]);
    let grip = grip.lines().find_map(|line| line.strip_prefix("grp:::::::::")).unwrap().trim_end_matches(':');
    // The exported subkeys serve a signer without an agent as well.
    let file = home.path().join("subkeys.asc");
    fs::write(&file, gpg(&["--passphrase", "", "--armor", "--export-secret-subkeys", fingerprint])).unwrap();
    fs::remove_file(home.path().join("private-keys-v1.d").join(format!("{grip}.key"))).unwrap();
    let certificate = gpg(&["--armor", "--export", fingerprint]);
    let by_agent = kilnyard_signer::agent::open(&socket, certificate.as_bytes()).unwrap();
    let by_file = kilnyard_sign::YardKey::read(&file).unwrap();
    assert!(!by_file.is_locked());
    for key in [by_agent, by_file] {
        let text = key.sign_clear("a text\n").unwrap();
        let verified =
            Keyring::from_bytes(certificate.as_bytes()).unwrap().verify_clearsigned(text.as_bytes());
        assert_ne!(verified.unwrap().signers[0].key.fingerprint, fingerprint);
    }
    let error = kilnyard_signer::agent::open(&socket, other_certificate().as_bytes()).unwrap_err();
    assert!(error.contains("none of the certificate's keys"), "{error}");
    let key = kilnyard_signer::agent::open(&socket, certificate.as_bytes()).unwrap();
    let _ = Command::new("gpgconf").env("GNUPGHOME", home.path()).args(["--kill", "all"]).output();
    std::thread::sleep(std::time::Duration::from_millis(200));
    let error = key.sign_clear("a text\n").unwrap_err().to_string();
    assert!(error.contains("no agent answers at"), "{error}");
}
