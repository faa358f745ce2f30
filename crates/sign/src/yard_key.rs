//! A key that signs repositories: in a file, with or without a passphrase, or in a device.

use std::fmt;
use std::io::Write;
use std::path::Path;
use std::time::SystemTime;

use pgp::armor::BlockType;
use pgp::composed::{
    ArmorOptions, KeyType, SecretKeyParamsBuilder, SignedPublicKey, SignedPublicSubKey, SignedSecretKey,
    SignedSecretKeyParser, SignedSecretSubKey,
};
use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::{
    KeyFlags, PacketTrait, RevocationCode, Signature, SignatureConfig, SignatureType, Subpacket,
    SubpacketData,
};
use pgp::ser::Serialize;
use pgp::types::{KeyDetails, KeyVersion, Password, SigningKey, Tag, Timestamp};
use rand::rngs::OsRng;

use crate::armor::{self, Block};
use crate::certificate::{self, Component, upper};
use crate::clearsign;
use crate::error::{Moment, SignError};
use crate::keyring::{Keyring, moment_of, read_bounded};
use crate::token::{InDevice, Token};

/// A secret key with its certificate takes a few kilobytes; with many foreign certifications, a few hundred.
const SECRET_KEY_BYTES_MAX: u64 = 4 << 20;

/// The maximum length of a user id, which is part of every certificate and every listing.
const USER_ID_BYTES_MAX: usize = 512;

/// Every gpgv in use supports it, and Ed25519 itself is based on it.
const HASH: HashAlgorithm = HashAlgorithm::Sha512;

/// A certificate, and the means to sign with one of its keys.
pub struct YardKey {
    certificate: SignedPublicKey,
    keyring: Keyring,
    secret: Secret,
}

enum Secret {
    /// In memory, and its passphrase, which is empty for a key without one.
    Software { key: Box<SignedSecretKey>, passphrase: Password },
    /// In a device.
    Token(Box<dyn Token>),
}

// Keeps the secret out of logs and panics.
impl fmt::Debug for YardKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "YardKey({})", self.fingerprint())
    }
}

impl YardKey {
    /// Makes a key without expiry that signs and certifies: Ed25519 in the form of GnuPG 2.2 (version 4, "EdDSA").
    pub fn generate(user_id: &str) -> Result<YardKey, SignError> {
        YardKey::generate_for(user_id, None)
    }

    /// Makes such a key that expires after some days.
    pub fn generate_for(user_id: &str, days: Option<u32>) -> Result<YardKey, SignError> {
        let action = "make a key";
        if user_id.trim().is_empty()
            || user_id.len() > USER_ID_BYTES_MAX
            || user_id.chars().any(char::is_control)
        {
            return Err(SignError::Sign {
                action,
                reason: format!(
                    "the user id must be one line of 1 to {USER_ID_BYTES_MAX} bytes, such as \
                     'Our yard <yard@example.org>'"
                ),
            });
        }
        let fail = |reason: String| SignError::Sign { action, reason };
        let parameters = SecretKeyParamsBuilder::default()
            .version(KeyVersion::V4)
            .key_type(KeyType::Ed25519Legacy)
            .can_certify(true)
            .can_sign(true)
            .primary_user_id(user_id.to_owned())
            .preferred_hash_algorithms(vec![HASH, HashAlgorithm::Sha256].into())
            .build()
            .map_err(|error| fail(error.to_string()))?;
        let mut key = parameters.generate(OsRng).map_err(|error| fail(error.to_string()))?;
        if let Some(days) = days {
            expire(&mut key, days).map_err(|error| fail(error.to_string()))?;
        }
        Ok(YardKey::of(key))
    }

    /// Reads a secret key, armored or binary, as written by [`YardKey::write`] or `gpg --export-secret-keys`.
    pub fn read(path: &Path) -> Result<YardKey, SignError> {
        let fail = |reason: String| SignError::SecretKey { origin: path.display().to_string(), reason };
        let bytes = read_bounded(path, SECRET_KEY_BYTES_MAX)?;
        let packets = armor::packets(&bytes, Block::SecretKey).map_err(fail)?;
        let mut keys = SignedSecretKeyParser::from_packets(packets.into_iter().map(Ok).peekable());
        let key = match keys.next() {
            Some(Ok(key)) => key,
            Some(Err(error)) => return Err(fail(error.to_string())),
            None => return Err(fail("it has no secret key".to_owned())),
        };
        if keys.next().is_some() {
            return Err(fail("it has more than one key; export only one".to_owned()));
        }
        Ok(YardKey::of(key))
    }

    fn of(key: SignedSecretKey) -> YardKey {
        let certificate = key.to_public_key();
        let keyring = ring(&certificate);
        YardKey {
            certificate,
            keyring,
            secret: Secret::Software { key: Box::new(key), passphrase: Password::empty() },
        }
    }

    /// A certificate whose signing key is in a device.
    ///
    /// # Errors
    /// The certificate cannot be read, or there is more than one.
    pub fn with_token(certificate: &[u8], token: Box<dyn Token>) -> Result<YardKey, SignError> {
        let certificate = certificate::read_one(certificate)?;
        Ok(YardKey { keyring: ring(&certificate), certificate, secret: Secret::Token(token) })
    }

    /// Whether signing needs a passphrase.
    pub fn is_locked(&self) -> bool {
        let Secret::Software { key, .. } = &self.secret else { return false };
        // A primary key that only certifies may be elsewhere, in which case its file has no private part of it.
        let signs = |fingerprint: String| {
            let mut components = self.keyring.components().iter();
            components.any(|component| component.name.fingerprint == fingerprint && component.signs())
        };
        let is_encrypted = |subkey: &SignedSecretSubKey| {
            signs(upper(&subkey.key.fingerprint())) && subkey.key.secret_params().is_encrypted()
        };
        let primary = &key.primary_key;
        key.secret_subkeys.iter().any(is_encrypted)
            || signs(upper(&primary.fingerprint())) && primary.secret_params().is_encrypted()
    }

    /// Uses this passphrase from now on.
    ///
    /// # Errors
    /// It opens none of the keys that may sign.
    pub fn unlock(&mut self, passphrase: &str) -> Result<(), SignError> {
        if let Secret::Software { passphrase: own, .. } = &mut self.secret {
            *own = Password::from(passphrase);
        }
        self.sign_detached(b"").map(drop).map_err(|_| SignError::SecretKey {
            origin: self.fingerprint(),
            reason: "the passphrase does not open it".to_owned(),
        })
    }

    /// Revokes the key: the certificate says so, with a reason for people.
    ///
    /// # Errors
    /// The private key is in a device, or needs a passphrase.
    pub fn revoke(&mut self, reason: &str) -> Result<(), SignError> {
        let fail = |reason: String| SignError::Sign { action: "revoke the key", reason };
        let reason =
            SubpacketData::RevocationReason(RevocationCode::NoReason, reason.as_bytes().to_vec().into());
        let kind = SignatureType::KeyRevocation;
        match &mut self.secret {
            Secret::Software { key, passphrase } => {
                let revocation = || -> Result<Signature, pgp::errors::Error> {
                    let config = own_config(&key.primary_key, kind, vec![reason])?;
                    config.sign_key(&key.primary_key, passphrase, key.primary_key.public_key())
                };
                let revocation = revocation().map_err(|error| fail(error.to_string()))?;
                key.details.revocation_signatures.push(revocation);
                self.certificate = key.to_public_key();
            }
            Secret::Token(token) => {
                let primary = self.certificate.primary_key.clone();
                if upper(&primary.fingerprint()) != token.fingerprint() {
                    return Err(fail("its primary key, which revokes it, is elsewhere".to_owned()));
                }
                let device = InDevice { key: &primary, token: &**token };
                let revocation = || -> Result<Signature, pgp::errors::Error> {
                    let config = own_config(&device, kind, vec![reason])?;
                    config.sign_key(&device, &Password::empty(), &primary)
                };
                let revocation = revocation().map_err(|error| fail(error.to_string()))?;
                self.certificate.details.revocation_signatures.push(revocation);
            }
        }
        self.keyring = ring(&self.certificate);
        Ok(())
    }

    /// Writes the key, armored, to a file that must not exist yet. The file is created with mode 0600 and
    /// appears atomically, with its full content.
    pub fn write(&self, path: &Path) -> Result<(), SignError> {
        write_new(path, self.to_armored()?.as_bytes())
    }

    /// The private key, armored.
    pub fn to_armored(&self) -> Result<String, SignError> {
        let fail = |reason: String| SignError::SecretKey { origin: self.fingerprint(), reason };
        let Secret::Software { key, .. } = &self.secret else {
            return Err(fail("it is in a device, which does not show it".to_owned()));
        };
        key.to_armored_string(ArmorOptions::default()).map_err(|error| fail(error.to_string()))
    }

    /// The armored certificate, as published.
    pub fn public_armored(&self) -> Result<String, SignError> {
        self.certificate
            .to_armored_string(ArmorOptions::default())
            .map_err(|error| SignError::Sign { action: "write the certificate", reason: error.to_string() })
    }

    /// The certificate in binary form, for `gpgv` and apt's `.gpg` keyrings.
    pub fn public_binary(&self) -> Result<Vec<u8>, SignError> {
        self.certificate
            .to_bytes()
            .map_err(|error| SignError::Sign { action: "write the certificate", reason: error.to_string() })
    }

    /// The fingerprint of the primary key, in upper-case hexadecimal.
    pub fn fingerprint(&self) -> String {
        upper(&self.certificate.primary_key.fingerprint())
    }

    /// A keyring with only this key, for a yard that verifies its own signatures.
    pub fn keyring(&self) -> Keyring {
        self.keyring.clone()
    }

    /// When the key that would sign at a time can no longer do so; absent if it does not expire.
    ///
    /// # Errors
    /// No key of the certificate may sign at that time.
    pub fn expires(&self, now: SystemTime) -> Result<Option<Moment>, SignError> {
        Ok(self.chosen("check the key", moment_of(now))?.expires())
    }

    /// Makes a clearsigned message (`InRelease`) of a text. See [`sign_clear`].
    pub fn sign_clear(&self, text: &str) -> Result<String, SignError> {
        sign_clear(&[self], text)
    }

    /// Makes an armored detached signature (`Release.gpg`) over exactly these bytes.
    pub fn sign_detached(&self, text: &[u8]) -> Result<String, SignError> {
        sign_detached(&[self], text)
    }

    /// The newest key that may sign, as GnuPG chooses it; the primary key is the oldest. Of a certificate with a device,
    /// only the key in the device can sign.
    fn chosen(&self, action: &'static str, now: Moment) -> Result<&Component, SignError> {
        let is_there = |component: &&Component| match &self.secret {
            Secret::Token(token) => token.fingerprint() == component.name.fingerprint,
            Secret::Software { .. } => true,
        };
        let chosen = self.keyring.signing_at(now).filter(is_there).max_by_key(|component| component.created);
        chosen.ok_or_else(|| {
            let components = self.keyring.components().iter().filter(is_there);
            let problems: Vec<String> = components
                .filter_map(|component| component.problem_at(now))
                .map(|problem| problem.to_string())
                .collect();
            let reason = match problems.is_empty() {
                true => format!("the certificate {} lacks the key of the device", self.fingerprint()),
                false => problems.join(", "),
            };
            SignError::Sign { action, reason }
        })
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the validity of keys and signatures depends on calendar time"
    )]
    fn sign(&self, action: &'static str, kind: SignatureType, bytes: &[u8]) -> Result<Signature, SignError> {
        let now = SystemTime::now();
        let chosen = &self.chosen(action, moment_of(now))?.name.fingerprint;
        let signature = match &self.secret {
            Secret::Software { key, passphrase } => {
                let is_chosen = |subkey: &&SignedSecretSubKey| upper(&subkey.key.fingerprint()) == *chosen;
                match key.secret_subkeys.iter().find(is_chosen) {
                    Some(subkey) => sign_with(&subkey.key, passphrase, kind, bytes),
                    None => sign_with(&key.primary_key, passphrase, kind, bytes),
                }
            }
            Secret::Token(token) => {
                let token = &**token;
                let is_chosen = |subkey: &&SignedPublicSubKey| upper(&subkey.key.fingerprint()) == *chosen;
                match self.certificate.public_subkeys.iter().find(is_chosen) {
                    Some(subkey) => {
                        sign_with(&InDevice { key: &subkey.key, token }, &Password::empty(), kind, bytes)
                    }
                    None => sign_with(
                        &InDevice { key: &self.certificate.primary_key, token },
                        &Password::empty(),
                        kind,
                        bytes,
                    ),
                }
            }
        };
        signature.map_err(|error| SignError::Sign {
            action,
            reason: match self.is_locked() {
                true => format!("the key {chosen} cannot be used (is its passphrase wrong?): {error}"),
                false => format!("the key {chosen} cannot be used: {error}"),
            },
        })
    }
}

fn ring(certificate: &SignedPublicKey) -> Keyring {
    Keyring::from_certificate(
        certificate,
        format!("the key {}", upper(&certificate.primary_key.fingerprint())),
    )
}

/// The configuration of a signature by which a key says something of itself.
pub(crate) fn own_config(
    key: &impl SigningKey,
    kind: SignatureType,
    more: Vec<SubpacketData>,
) -> Result<SignatureConfig, pgp::errors::Error> {
    let mut config = SignatureConfig::from_key(OsRng, key, kind)?;
    config.hash_alg = HASH;
    let first = [
        SubpacketData::SignatureCreationTime(Timestamp::now()),
        SubpacketData::IssuerFingerprint(key.fingerprint()),
    ];
    config.hashed_subpackets =
        first.into_iter().chain(more).map(Subpacket::regular).collect::<Result<_, _>>()?;
    if key.version() <= KeyVersion::V4 {
        // GnuPG looks for it.
        config.unhashed_subpackets =
            vec![Subpacket::regular(SubpacketData::IssuerKeyId(key.legacy_key_id()))?];
    }
    Ok(config)
}

/// Replaces the self-signature of a new key by one with an end.
fn expire(key: &mut SignedSecretKey, days: u32) -> Result<(), pgp::errors::Error> {
    let mut flags = KeyFlags::default();
    flags.set_certify(true);
    flags.set_sign(true);
    let seconds = days.saturating_mul(86_400);
    let more = vec![
        SubpacketData::KeyFlags(flags),
        SubpacketData::KeyExpirationTime(pgp::types::Duration::from_secs(seconds)),
        SubpacketData::PreferredHashAlgorithms(vec![HASH, HashAlgorithm::Sha256].into()),
        SubpacketData::IsPrimary(true),
    ];
    let primary = &key.primary_key;
    let public = primary.public_key();
    for user in &mut key.details.users {
        let config = own_config(primary, SignatureType::CertPositive, more.clone())?;
        user.signatures =
            vec![config.sign_certification(primary, public, &Password::empty(), Tag::UserId, &user.id)?];
    }
    Ok(())
}

/// Makes a clearsigned message (`InRelease`) of a text, with a signature of each key.
///
/// Trailing blanks, including carriage returns before line feeds, are not signed and therefore cut. A missing line feed at
/// the end is added.
pub fn sign_clear(keys: &[&YardKey], text: &str) -> Result<String, SignError> {
    let action = "sign a text";
    let lines = clearsign::lines_of(text);
    let hashed = lines.join(&b"\r\n"[..]);
    let signatures = sign_all(keys, action, SignatureType::Text, &hashed)?;
    String::from_utf8(clearsign::join(&lines, &HASH.to_string(), &signatures))
        .map_err(|error| SignError::Sign { action, reason: error.to_string() })
}

/// Makes an armored detached signature (`Release.gpg`) over exactly these bytes, with a signature of each key.
pub fn sign_detached(keys: &[&YardKey], bytes: &[u8]) -> Result<String, SignError> {
    sign_all(keys, "sign a file", SignatureType::Binary, bytes)
}

/// Makes a detached signature over exactly these bytes, as one packet in binary form.
pub fn sign_binary(key: &YardKey, bytes: &[u8]) -> Result<Vec<u8>, SignError> {
    let action = "sign a file";
    let mut packet = Vec::new();
    let written = key.sign(action, SignatureType::Binary, bytes)?.to_writer_with_header(&mut packet);
    written.map_err(|error| SignError::Sign { action, reason: error.to_string() })?;
    Ok(packet)
}

fn sign_all(
    keys: &[&YardKey],
    action: &'static str,
    kind: SignatureType,
    bytes: &[u8],
) -> Result<String, SignError> {
    let fail = |error: pgp::errors::Error| SignError::Sign { action, reason: error.to_string() };
    let signatures: Result<Vec<_>, _> = keys.iter().map(|key| key.sign(action, kind, bytes)).collect();
    let mut packets = Packets(Vec::new());
    for signature in signatures? {
        signature.to_writer_with_header(&mut packets.0).map_err(fail)?;
    }
    let mut armored = Vec::new();
    pgp::armor::write(&packets, BlockType::Signature, &mut armored, None, true).map_err(fail)?;
    String::from_utf8(armored).map_err(|error| SignError::Sign { action, reason: error.to_string() })
}

/// Packets in binary form.
struct Packets(Vec<u8>);

impl Serialize for Packets {
    fn to_writer<W: Write>(&self, writer: &mut W) -> pgp::errors::Result<()> {
        Ok(writer.write_all(&self.0)?)
    }

    fn write_len(&self) -> usize {
        self.0.len()
    }
}

fn sign_with(
    key: &impl SigningKey,
    passphrase: &Password,
    kind: SignatureType,
    bytes: &[u8],
) -> Result<Signature, pgp::errors::Error> {
    let mut config = SignatureConfig::from_key(OsRng, key, kind)?;
    config.hash_alg = HASH;
    config.hashed_subpackets = vec![
        Subpacket::regular(SubpacketData::SignatureCreationTime(Timestamp::now()))?,
        Subpacket::regular(SubpacketData::IssuerFingerprint(key.fingerprint()))?,
    ];
    if key.version() <= KeyVersion::V4 {
        config.unhashed_subpackets =
            vec![Subpacket::regular(SubpacketData::IssuerKeyId(key.legacy_key_id()))?];
    }
    config.sign(key, passphrase, bytes)
}

fn write_new(path: &Path, bytes: &[u8]) -> Result<(), SignError> {
    let fail = |source: std::io::Error| match source.kind() {
        std::io::ErrorKind::AlreadyExists => SignError::KeyExists { path: path.to_owned() },
        _ => SignError::WriteKey { path: path.to_owned(), source },
    };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // The temporary file has mode 0600. It is renamed only if the target does not exist.
    let mut file = tempfile::Builder::new().prefix(".key-").tempfile_in(folder).map_err(fail)?;
    file.write_all(bytes).map_err(fail)?;
    file.as_file().sync_all().map_err(fail)?;
    file.persist_noclobber(path).map_err(|error| fail(error.error))?;
    std::fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(fail)
}
