//! Runs a real GnuPG with its own home folder, for the tests of this crate.

#![allow(dead_code)]

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A GnuPG home folder. Dropping it ends its agent.
pub struct Gnupg {
    home: TempDir,
}

impl Gnupg {
    /// Returns `None`, and prints the reason, if GnuPG is not installed.
    pub fn start(test: &str) -> Option<Gnupg> {
        for program in ["gpg", "gpgv"] {
            if Command::new(program).arg("--version").output().is_err() {
                let _ = writeln!(std::io::stderr(), "skipped: {test}: {program} is not installed");
                return None;
            }
        }
        let home = TempDir::with_prefix("gnupg-").unwrap();
        Some(Gnupg { home })
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.file(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Runs gpg with this standard input. Returns its standard output, and panics if it fails.
    pub fn gpg<A: AsRef<OsStr>>(&self, arguments: &[A], input: &[u8]) -> Vec<u8> {
        let output = self.try_gpg(arguments, input);
        assert!(output.status.success(), "gpg: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    pub fn try_gpg<A: AsRef<OsStr>>(&self, arguments: &[A], input: &[u8]) -> Output {
        let mut child = Command::new("gpg")
            .arg("--homedir")
            .arg(self.home.path())
            .args(["--batch", "--yes", "--pinentry-mode", "loopback", "--passphrase", ""])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        // gpg may answer before it has read everything, or end early.
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output().unwrap();
        let _ = writer.join();
        output
    }

    /// Makes a key and returns its fingerprint; `when` is GnuPG's faked system time.
    pub fn make_key(&self, user: &str, kind: &str, usage: &str, expire: &str, when: &str) -> String {
        self.gpg(&["--faked-system-time", when, "--quick-gen-key", user, kind, usage, expire], b"");
        self.fingerprints(user)[0].clone()
    }

    /// Makes a signing key without expiry, at the current time. Returns its fingerprint.
    pub fn make_signing_key(&self, user: &str) -> String {
        self.gpg(&["--quick-gen-key", user, "ed25519", "sign", "never"], b"");
        self.fingerprints(user)[0].clone()
    }

    /// The fingerprints of a key and its subkeys.
    pub fn fingerprints(&self, user: &str) -> Vec<String> {
        let list = self.gpg(&["--with-colons", "--with-subkey-fingerprint", "--list-keys", user], b"");
        String::from_utf8(list)
            .unwrap()
            .lines()
            .filter_map(|line| line.strip_prefix("fpr:"))
            .map(|line| line.trim_matches(':').to_owned())
            .collect()
    }

    pub fn export(&self, keys: &[&str]) -> Vec<u8> {
        self.gpg(&[&["--export"], keys].concat(), b"")
    }

    pub fn clearsign(&self, key: &str, text: &[u8]) -> Vec<u8> {
        self.gpg(&["-u", key, "--clearsign"], text)
    }
}

impl Drop for Gnupg {
    fn drop(&mut self) {
        let _ =
            Command::new("gpgconf").arg("--homedir").arg(self.home.path()).args(["--kill", "all"]).output();
    }
}

/// Runs gpgv. Returns the text of a clearsigned message if the signature is good, else the error output.
pub fn gpgv(keyring: &Path, files: &[&Path]) -> Result<Vec<u8>, String> {
    let output = Command::new("gpgv")
        .arg("--keyring")
        .arg(keyring)
        .args(["--output", "-"])
        .args(files)
        .output()
        .unwrap();
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}
