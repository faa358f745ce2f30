//! The keys of a signer.

use crate::agent;
use crate::message::KeyState;
use crate::pkcs11;
use crate::policy::{self, Policy};
use kilnyard_sign::{Keyring, PackageKey, YardKey};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// All keys of a policy, opened.
#[derive(Debug)]
pub struct Keys {
    keys: BTreeMap<String, Opened>,
    x509: BTreeMap<String, OpenedX509>,
}

#[derive(Debug)]
struct OpenedX509 {
    kind: &'static str,
    /// Its certificates, in PEM.
    certificates: String,
    key: Result<PackageKey, String>,
}

#[derive(Debug)]
struct Opened {
    kind: &'static str,
    key: Result<YardKey, String>,
}

/// Passphrases and PINs, by the name of their credential.
pub type Credentials = BTreeMap<String, String>;

impl Keys {
    /// Opens all keys. One that cannot be used is kept with the reason: the others can still sign.
    pub fn open(folder: &Path, policy: &Policy, credentials: &Credentials) -> Keys {
        let keys = policy.key.iter().map(|(name, key)| {
            let kind = match key {
                policy::Key { pkcs11: Some(_), .. } => "pkcs11",
                policy::Key { gpg_agent: Some(_), .. } => "gpg-agent",
                _ => "file",
            };
            (name.clone(), Opened { kind, key: open(folder, key, credentials) })
        });
        let x509 = policy.x509.iter().map(|(name, key)| {
            let kind = if key.pkcs11.is_some() { "x509-pkcs11" } else { "x509-file" };
            let certificates = fs_err::read_to_string(folder.join(&key.certificate));
            let opened = match &certificates {
                Ok(certificates) => open_x509(folder, key, certificates, credentials),
                Err(error) => Err(with_cause(error)),
            };
            (name.clone(), OpenedX509 { kind, certificates: certificates.unwrap_or_default(), key: opened })
        });
        Keys { keys: keys.collect(), x509: x509.collect() }
    }

    /// The X.509 key of this name, and its certificates in PEM.
    ///
    /// # Errors
    /// A clause that says why it cannot be used at this time, in seconds since 1970.
    pub fn of_packages(&self, name: &str, now: i64) -> Result<(&PackageKey, &str), String> {
        let opened = self.x509.get(name).ok_or_else(|| format!("there is no X.509 key {name}"))?;
        let usable = opened.key.as_ref().map_err(Clone::clone);
        let usable = usable.and_then(|key| key.trouble(now).map_or(Ok(key), Err));
        match usable {
            Ok(key) => Ok((key, &opened.certificates)),
            Err(reason) => Err(format!("the X.509 key {name} cannot be used: {reason}")),
        }
    }

    /// The state of an X.509 key at a time, in seconds since 1970.
    pub fn state_of_packages(&self, name: &str, now: i64) -> KeyState {
        let opened = self.x509.get(name);
        let key = opened.and_then(|opened| opened.key.as_ref().ok());
        KeyState {
            name: name.to_owned(),
            fingerprint: key.map(PackageKey::fingerprint).unwrap_or_default(),
            kind: opened.map(|opened| opened.kind.to_owned()).unwrap_or_default(),
            expires: key.map(PackageKey::expires),
            trouble: self.of_packages(name, now).err(),
        }
    }

    /// The keys with these names, all of which can sign.
    ///
    /// # Errors
    /// A clause that names one that cannot.
    pub fn named(&self, names: &[String]) -> Result<Vec<&YardKey>, String> {
        let find = |name: &String| match self.keys.get(name).map(|opened| &opened.key) {
            Some(Ok(key)) => Ok(key),
            Some(Err(reason)) => Err(format!("the key {name} cannot be used: {reason}")),
            None => Err(format!("there is no key {name}")),
        };
        names.iter().map(find).collect()
    }

    /// The state of a key at a time, in seconds since 1970.
    pub fn state(&self, name: &str, now: i64) -> KeyState {
        let mut state = KeyState {
            name: name.to_owned(),
            fingerprint: String::new(),
            kind: String::new(),
            expires: None,
            trouble: None,
        };
        match self.keys.get(name) {
            None => state.trouble = Some("there is no such key".to_owned()),
            Some(Opened { kind, key }) => {
                state.kind = (*kind).to_owned();
                match key {
                    Err(reason) => state.trouble = Some(reason.clone()),
                    Ok(key) => {
                        state.fingerprint = key.fingerprint();
                        match key.expires(system_time(now)) {
                            Ok(expires) => state.expires = expires.map(|moment| moment.unix_seconds),
                            Err(error) => state.trouble = Some(error.to_string()),
                        }
                    }
                }
            }
        }
        state
    }

    /// A ring of the keys with these names, as far as they can be used.
    pub fn ring(&self, names: &[String]) -> Option<Keyring> {
        let opened = names.iter().filter_map(|name| self.keys.get(name)?.key.as_ref().ok());
        let bytes: Vec<u8> = opened.filter_map(|key| key.public_binary().ok()).flatten().collect();
        Keyring::from_bytes(&bytes).ok()
    }
}

/// Opens a key.
///
/// # Errors
/// A clause that says why it cannot be used.
pub fn open(folder: &Path, key: &policy::Key, credentials: &Credentials) -> Result<YardKey, String> {
    match key {
        policy::Key { pkcs11: Some(place), .. } => open_token(folder, key, place, credentials),
        policy::Key { gpg_agent: Some(socket), .. } => {
            certificate(folder, key).and_then(|certificate| agent::open(socket, &certificate))
        }
        _ => open_file(folder, key, credentials),
    }
}

fn system_time(seconds: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.max(0).unsigned_abs())
}

fn open_file(folder: &Path, key: &policy::Key, credentials: &Credentials) -> Result<YardKey, String> {
    let path = key.file.as_ref().ok_or("it has no file")?;
    let mut opened = YardKey::read(&folder.join(path)).map_err(|error| with_cause(&error))?;
    if opened.is_locked() {
        let name = key.credential.as_ref();
        let name = name.ok_or("it has a passphrase, and the policy names no credential for it")?;
        let passphrase = credentials.get(name).ok_or_else(|| missing_credential(name))?;
        opened.unlock(passphrase).map_err(|error| error.to_string())?;
    }
    Ok(opened)
}

fn open_token(
    folder: &Path,
    key: &policy::Key,
    place: &policy::Pkcs11,
    credentials: &Credentials,
) -> Result<YardKey, String> {
    let certificate = certificate(folder, key)?;
    pkcs11::open(place, secret_of(key.credential.as_deref(), credentials)?, &certificate)
}

fn missing_credential(name: &str) -> String {
    format!("the credential {name} is missing (a file of this name in the folder CREDENTIALS_DIRECTORY)")
}

/// The passphrase or PIN that a credential of this name has; none without a name.
fn secret_of<'a>(name: Option<&str>, credentials: &'a Credentials) -> Result<Option<&'a str>, String> {
    let Some(name) = name else { return Ok(None) };
    let found = credentials.get(name).ok_or_else(|| missing_credential(name))?;
    Ok(Some(found.as_str()))
}

fn open_x509(
    folder: &Path,
    key: &policy::X509Key,
    certificates: &str,
    credentials: &Credentials,
) -> Result<PackageKey, String> {
    let secret = secret_of(key.credential.as_deref(), credentials)?;
    match (&key.pkcs11, &key.file) {
        (Some(place), _) => PackageKey::in_device(pkcs11::open_signer(place, secret)?, certificates),
        (None, Some(file)) => {
            let text = fs_err::read_to_string(folder.join(file)).map_err(|error| with_cause(&error))?;
            PackageKey::open(&text, secret, certificates)
        }
        (None, None) => Err("it has no file".to_owned()),
    }
}

fn certificate(folder: &Path, key: &policy::Key) -> Result<Vec<u8>, String> {
    let path = key.certificate.as_ref().ok_or("it has no certificate")?;
    fs_err::read(folder.join(path)).map_err(|error| with_cause(&error))
}

/// An error with its causes, in one line.
pub fn with_cause(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", with_cause(cause)),
        None => error.to_string(),
    }
}
