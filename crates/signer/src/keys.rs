//! The keys of a signer.

use crate::agent;
use crate::message::KeyState;
use crate::pkcs11;
use crate::policy::{self, Policy};
use kilnyard_sign::{Keyring, YardKey};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// All keys of a policy, opened.
#[derive(Debug)]
pub struct Keys {
    keys: BTreeMap<String, Opened>,
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
            let (kind, opened) = match key {
                policy::Key { pkcs11: Some(place), .. } => {
                    ("pkcs11", open_token(folder, key, place, credentials))
                }
                policy::Key { gpg_agent: Some(socket), .. } => {
                    let opened = certificate(folder, key);
                    ("gpg-agent", opened.and_then(|certificate| agent::open(socket, &certificate)))
                }
                _ => ("file", open_file(folder, key, credentials)),
            };
            (name.clone(), Opened { kind, key: opened })
        });
        Keys { keys: keys.collect() }
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

fn system_time(seconds: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.max(0).unsigned_abs())
}

fn open_file(folder: &Path, key: &policy::Key, credentials: &Credentials) -> Result<YardKey, String> {
    let path = key.file.as_ref().ok_or("it has no file")?;
    let mut opened = YardKey::read(&folder.join(path)).map_err(|error| with_cause(&error))?;
    if opened.is_locked() {
        let name = key.credential.as_ref();
        let name = name.ok_or("it has a passphrase, and the policy names no credential for it")?;
        let passphrase = credentials.get(name).ok_or_else(|| format!("the credential {name} is missing"))?;
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
    let pin = match &key.credential {
        Some(name) => {
            Some(credentials.get(name).ok_or_else(|| format!("the credential {name} is missing"))?.as_str())
        }
        None => None,
    };
    pkcs11::open(place, pin, &certificate)
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
