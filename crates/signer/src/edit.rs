//! Changes of a signer's keys and policy by the person who runs it. Comments and order of the policy stay.

use crate::account::Entry;
use crate::keys::Credentials;
use crate::memory::{Memory, MemoryError};
use crate::policy::{POLICY, Pkcs11, Policy};
use crate::setup::{KEYS, write_private};
use kilnyard_sign::{Keyring, PackageKey, SignError, YardKey};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, value};

/// An error of a change. The text reads after "failed to", except for those of [`EditError::Usage`].
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The change makes no sense: a sentence without its full stop.
    #[error("{0}")]
    Usage(String),
    /// A file cannot be read or written.
    #[error("change the signer's folder")]
    File(#[from] io::Error),
    /// A key cannot be made, read or written.
    #[error(transparent)]
    Key(#[from] SignError),
    /// The account cannot be continued.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// Where the private half of a key is.
#[derive(Clone, Copy, Debug)]
pub enum Device<'a> {
    /// In a token.
    Pkcs11(&'a Pkcs11),
    /// Behind a `gpg-agent` with this socket.
    Agent(&'a Path),
}

fn text_of(path: &Path) -> Result<&str, EditError> {
    path.to_str().ok_or_else(|| EditError::Usage(format!("{} is not UTF-8", path.display())))
}

/// The folder of a signer, to be changed.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    policy: Policy,
    document: DocumentMut,
}

impl Folder {
    /// Opens a folder.
    ///
    /// # Errors
    /// The policy is missing or invalid.
    pub fn open(path: &Path) -> Result<Folder, EditError> {
        let file = path.join(POLICY);
        let text = match fs_err::read_to_string(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(EditError::Usage(format!("there is no signer: {} is missing", file.display())));
            }
            text => text?,
        };
        let invalid = |reason: String| EditError::Usage(format!("{}: {reason}", file.display()));
        let policy = Policy::parse(&text).map_err(invalid)?;
        let document = text.parse::<DocumentMut>().map_err(|error| invalid(error.to_string()))?;
        Ok(Folder { path: path.to_owned(), policy, document })
    }

    /// The policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Adds a key of a file. `credential` names its passphrase.
    ///
    /// # Errors
    /// There is a key of this name, or a file cannot be written.
    pub fn add(
        &mut self,
        now: i64,
        action: &str,
        name: &str,
        key: &YardKey,
        credential: Option<&str>,
    ) -> Result<(), EditError> {
        self.check_new(name)?;
        let file = format!("{KEYS}/{name}.asc");
        key.write(&self.path.join(&file))?;
        let mut table = Table::new();
        table.insert("file", value(file));
        self.insert(now, (action, name, &key.fingerprint()), table, credential)
    }

    /// Adds a key in a token or behind an agent, with its certificate.
    ///
    /// # Errors
    /// There is a key of this name, the certificate cannot be read, or a file cannot be written.
    pub fn add_in_device(
        &mut self,
        now: i64,
        (action, name): (&str, &str),
        device: &Device<'_>,
        certificate: &str,
        credential: Option<&str>,
    ) -> Result<(), EditError> {
        self.check_new(name)?;
        let fingerprint = kilnyard_sign::keys_of(certificate.as_bytes())?.swap_remove(0).0;
        let file = format!("{KEYS}/{name}.pub.asc");
        write_private(&self.path.join(&file), certificate.as_bytes())?;
        let mut table = Table::new();
        table.insert("certificate", value(file));
        match device {
            Device::Pkcs11(place) => {
                let mut own = Table::new();
                own.insert("module", value(text_of(&place.module)?));
                own.insert("token", value(place.token.as_str()));
                own.insert("label", value(place.label.as_str()));
                if !place.paths.is_empty() {
                    let mut paths = Array::new();
                    for path in &place.paths {
                        paths.push(text_of(path)?);
                    }
                    own.insert("paths", value(paths));
                }
                if !place.environment.is_empty() {
                    let variables =
                        place.environment.iter().map(|(name, text)| (name.as_str(), text.as_str()));
                    own.insert("environment", value(variables.collect::<InlineTable>()));
                }
                table.insert("pkcs11", Item::Table(own));
            }
            Device::Agent(socket) => drop(table.insert("gpg-agent", value(text_of(socket)?))),
        }
        self.insert(now, (action, name, &fingerprint), table, credential)
    }

    /// Adds an X.509 key of a file, with its certificates, both in PEM.
    ///
    /// # Errors
    /// There is a key of this name, the key or a certificate cannot be used, or a file cannot be written.
    pub fn add_x509(
        &mut self,
        now: i64,
        name: &str,
        (key, certificates): (&str, &str),
        (credential, passphrase): (Option<&str>, Option<&str>),
    ) -> Result<String, EditError> {
        self.check_new(name)?;
        // With a passphrase that is not at hand, the certificates alone are checked.
        let fingerprint = match credential.is_some() && passphrase.is_none() {
            true => PackageKey::check(certificates),
            false => PackageKey::open(key, passphrase, certificates).map(|key| key.fingerprint()),
        };
        let fingerprint = fingerprint.map_err(EditError::Usage)?;
        let (file, certificate) = (format!("{KEYS}/{name}.pem"), format!("{KEYS}/{name}.certificate.pem"));
        write_private(&self.path.join(&file), key.as_bytes())?;
        write_private(&self.path.join(&certificate), certificates.as_bytes())?;
        let mut table = Table::new();
        table.insert("file", value(file));
        table.insert("certificate", value(certificate));
        if let Some(credential) = credential {
            table.insert("credential", value(credential));
        }
        let keys = self.document.entry("x509").or_insert(Item::Table(Table::new()));
        if let Some(keys) = keys.as_table_mut() {
            keys.set_implicit(true);
            keys.insert(name, Item::Table(table));
        }
        self.write()?;
        self.note(now, "imported for packages", name, &fingerprint)?;
        Ok(fingerprint)
    }

    /// Has an X.509 key sign the packages of all repositories from now on.
    ///
    /// # Errors
    /// It does already, or the policy cannot be written.
    pub fn sign_packages_with(&mut self, now: i64, name: &str) -> Result<(), EditError> {
        let is_it = |rules: &crate::policy::Repository| rules.package_key.as_deref() == Some(name);
        if self.policy.repository.values().all(is_it) {
            return Err(EditError::Usage(format!("{name} signs packages already")));
        }
        for repository in self.policy.repository.keys() {
            self.document["repository"][repository]["package-key"] = value(name);
        }
        self.write()?;
        self.note(now, "signs packages", name, "")
    }

    /// Checks the name of a new key.
    ///
    /// # Errors
    /// It is none, or there is a key of this name.
    pub fn check_new(&self, name: &str) -> Result<(), EditError> {
        let is_name = !name.is_empty()
            && name.len() <= 64
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        if !is_name {
            return Err(EditError::Usage(format!(
                "{name:?} is not a name of a key: letters, digits, hyphens and underscores"
            )));
        }
        match self.policy.key.contains_key(name) || self.policy.x509.contains_key(name) {
            true => Err(EditError::Usage(format!("there is a key {name}"))),
            false => Ok(()),
        }
    }

    fn insert(
        &mut self,
        now: i64,
        (action, name, fingerprint): (&str, &str, &str),
        mut table: Table,
        credential: Option<&str>,
    ) -> Result<(), EditError> {
        if let Some(credential) = credential {
            table.insert("credential", value(credential));
        }
        let keys = self.document.entry("key").or_insert(Item::Table(Table::new()));
        if let Some(keys) = keys.as_table_mut() {
            keys.set_implicit(true);
            keys.insert(name, Item::Table(table));
        }
        self.write()?;
        self.note(now, action, name, fingerprint)
    }

    /// Refuses a key that is revoked or has expired.
    fn check_signs(&self, now: i64, name: &str) -> Result<(), EditError> {
        let key = self.require(name)?;
        if self.policy.repository.values().any(|rules| rules.revoked.iter().any(|one| one == name)) {
            return Err(EditError::Usage(format!("{name} is revoked")));
        }
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(now.max(0).unsigned_abs());
        match &key.file {
            Some(file) => match YardKey::read(&self.path.join(file))?.expires(time) {
                Ok(_) => Ok(()),
                Err(error) => Err(EditError::Usage(format!("{name} cannot sign: {error}"))),
            },
            None => Ok(()),
        }
    }

    /// Has the repositories signed by a key, too; or by it alone.
    ///
    /// # Errors
    /// There is no such key, or it signs already.
    pub fn rotate(&mut self, now: i64, name: &str, is_alone: bool) -> Result<(), EditError> {
        self.check_signs(now, name)?;
        let mut changed = false;
        for (repository, rules) in &self.policy.repository {
            let mut keys = rules.keys.clone();
            if is_alone {
                if !keys.iter().any(|key| key == name) {
                    return Err(EditError::Usage(format!(
                        "{name} does not sign {repository} yet, so readers do not know it"
                    )));
                }
                keys.retain(|key| key == name);
            } else if !keys.iter().any(|key| key == name) {
                keys.push(name.to_owned());
            }
            changed |= keys != rules.keys;
            set_keys(&mut self.document, repository, &keys);
        }
        if !changed {
            let how = if is_alone { "alone" } else { "already" };
            return Err(EditError::Usage(format!("{name} signs {how}")));
        }
        self.write()?;
        let action = if is_alone { "signs alone" } else { "signs too" };
        let fingerprint = self.fingerprint(name);
        self.note(now, action, name, &fingerprint)
    }

    /// Revokes a key. Its certificate is published with the others from then on. `credentials` open a key that needs it.
    ///
    /// # Errors
    /// It is the only key of a repository, or it cannot revoke itself.
    pub fn revoke(
        &mut self,
        now: i64,
        name: &str,
        reason: &str,
        credentials: &Credentials,
    ) -> Result<(), EditError> {
        if self.policy.x509.contains_key(name) {
            return Err(EditError::Usage(format!(
                "{name} is an X.509 key: its authority revokes the certificate; rotate to another key"
            )));
        }
        let key = self.require(name)?.clone();
        for (repository, rules) in &self.policy.repository {
            if rules.keys.iter().all(|key| key == name) {
                return Err(EditError::Usage(format!(
                    "{name} is the only key of {repository}: rotate to another one first"
                )));
            }
        }
        let mut opened = crate::keys::open(&self.path, &key, credentials).map_err(|reason| {
            EditError::Usage(format!("{name} cannot be used, and a key revokes itself: {reason}"))
        })?;
        let elsewhere = |error: SignError| match key.file {
            Some(_) => EditError::Key(error),
            None => EditError::Usage(format!(
                "{}: revoke it where its primary key is, and give the signer the new certificate: keys update {name} FILE",
                crate::keys::with_cause(&error)
            )),
        };
        if key.gpg_agent.is_some() {
            return Err(elsewhere(SignError::Sign {
                action: "revoke the key",
                reason: "gpg manages it (gpg --generate-revocation)".to_owned(),
            }));
        }
        opened.revoke(reason).map_err(elsewhere)?;
        let fingerprint = opened.fingerprint();
        match (&key.file, &key.certificate) {
            (Some(file), _) => write_private(&self.path.join(file), opened.to_armored()?.as_bytes())?,
            (None, Some(file)) => {
                write_private(&self.path.join(file), opened.public_armored()?.as_bytes())?;
            }
            (None, None) => {}
        }
        for (repository, rules) in self.policy.repository.clone() {
            let keys: Vec<String> = rules.keys.iter().filter(|key| *key != name).cloned().collect();
            set_keys(&mut self.document, &repository, &keys);
            // Also one that signs no more: readers may have it.
            let mut revoked = rules.revoked.clone();
            if !revoked.iter().any(|key| key == name) {
                revoked.push(name.to_owned());
            }
            set_array(&mut self.document, &repository, "revoked", &revoked);
        }
        self.write()?;
        self.note(now, "revoked", name, &fingerprint)
    }

    /// Replaces the certificate of a key in a device: one that was revoked or extended elsewhere.
    ///
    /// # Errors
    /// There is no such key, or the certificate is of another one.
    pub fn update(&mut self, now: i64, name: &str, certificate: &str) -> Result<(), EditError> {
        let key = self.require(name)?;
        let Some(file) = key.certificate.as_ref().map(|file| self.path.join(file)) else {
            return Err(EditError::Usage(format!("the certificate of {name} is in the file with its key")));
        };
        let before = kilnyard_sign::keys_of(&fs_err::read(&file)?)?;
        let after = kilnyard_sign::keys_of(certificate.as_bytes())?;
        if before.first().map(|(fingerprint, _)| fingerprint)
            != after.first().map(|(fingerprint, _)| fingerprint)
        {
            return Err(EditError::Usage(format!("the certificate is of another key than {name}")));
        }
        write_private(&file, certificate.as_bytes())?;
        let fingerprint = after.into_iter().next().map(|(fingerprint, _)| fingerprint).unwrap_or_default();
        self.note(now, "has a new certificate", name, &fingerprint)
    }

    /// Approves what was refused. Returns the ids that name no refusal.
    ///
    /// # Errors
    /// The policy wants a signed approval, or the memory cannot be used.
    pub fn approve(&self, now: i64, ids: &[String], by: &str) -> Result<Vec<String>, EditError> {
        if self.policy.approvers.is_some() {
            return Err(EditError::Usage(
                "the policy wants approvals that are signed by one of its approvers".to_owned(),
            ));
        }
        self.approve_as(now, ids, by)
    }

    /// Approves the refusals that a signed text names. Returns the ids that name no refusal.
    ///
    /// # Errors
    /// The text is not signed by one of the policy's approvers.
    pub fn approve_signed(&self, now: i64, message: &[u8]) -> Result<Vec<String>, EditError> {
        let Some(approvers) = &self.policy.approvers else {
            return Err(EditError::Usage("the policy names no approvers".to_owned()));
        };
        let verified = Keyring::read(&self.path.join(approvers))?.verify_clearsigned(message)?;
        let by = verified.signers.first().map(|signer| signer.key.primary_fingerprint.clone());
        let text = String::from_utf8_lossy(&verified.text).into_owned();
        let mut ids = Vec::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let id = line.strip_prefix("approve ").map(str::trim);
            ids.push(id.ok_or_else(|| EditError::Usage(format!("{line:?} is not `approve ID`")))?.to_owned());
        }
        self.approve_as(now, &ids, &by.unwrap_or_default())
    }

    fn approve_as(&self, now: i64, ids: &[String], by: &str) -> Result<Vec<String>, EditError> {
        let mut memory = Memory::open(&self.path)?;
        let mut unknown = Vec::new();
        for id in ids {
            if !memory.approve(now, id, by)? {
                unknown.push(id.clone());
            }
        }
        Ok(unknown)
    }

    fn require(&self, name: &str) -> Result<crate::policy::Key, EditError> {
        let found = self.policy.key.get(name).cloned();
        found.ok_or_else(|| EditError::Usage(format!("there is no key {name:?}")))
    }

    fn fingerprint(&self, name: &str) -> String {
        let file = self.policy.key.get(name).and_then(|key| key.file.clone());
        file.and_then(|file| YardKey::read(&self.path.join(file)).ok())
            .map(|key| key.fingerprint())
            .unwrap_or_default()
    }

    /// Writes the policy, if it is one.
    fn write(&mut self) -> Result<(), EditError> {
        let text = self.document.to_string();
        self.policy = Policy::parse(&text)
            .map_err(|reason| EditError::Usage(format!("the changed policy would be invalid: {reason}")))?;
        Ok(write_private(&self.path.join(POLICY), text.as_bytes())?)
    }

    fn note(&self, now: i64, action: &str, name: &str, fingerprint: &str) -> Result<(), EditError> {
        let entry = Entry::Key {
            action: action.to_owned(),
            name: name.to_owned(),
            fingerprint: fingerprint.to_owned(),
        };
        Ok(Memory::open(&self.path)?.record(now, vec![entry], None)?)
    }
}

fn set_keys(document: &mut DocumentMut, repository: &str, keys: &[String]) {
    set_array(document, repository, "keys", keys);
}

fn set_array(document: &mut DocumentMut, repository: &str, name: &str, values: &[String]) {
    if values.is_empty() {
        return;
    }
    let mut array = Array::new();
    array.extend(values.iter().map(String::as_str));
    document["repository"][repository][name] = value(array);
}
