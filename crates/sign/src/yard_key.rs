//! The secret key of a yard: made once, stored in one file, and used to sign the yard's repositories.
//!
//! The key has no passphrase, since it must sign unattended. It is protected by the mode of its file and by
//! the file's location, which neither a build nor a worker can access.

use std::fmt;
use std::io::Write;
use std::path::Path;
use std::time::SystemTime;

use pgp::composed::{
    ArmorOptions, DetachedSignature, KeyType, SecretKeyParamsBuilder, SignedPublicKey, SignedSecretKey,
    SignedSecretKeyParser,
};
use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::{SignatureConfig, SignatureType, Subpacket, SubpacketData};
use pgp::ser::Serialize;
use pgp::types::{KeyDetails, KeyVersion, Password, SigningKey, Timestamp};
use rand::rngs::OsRng;

use crate::armor::{self, Block};
use crate::certificate::upper;
use crate::clearsign;
use crate::error::SignError;
use crate::keyring::{Keyring, moment_of, read_bounded};

/// A secret key with its certificate takes a few kilobytes; with many foreign certifications, a few hundred.
const SECRET_KEY_BYTES_MAX: u64 = 4 << 20;

/// The maximum length of a user id, which is part of every certificate and every listing.
const USER_ID_BYTES_MAX: usize = 512;

/// Every gpgv in use supports it, and Ed25519 itself is based on it.
const HASH: HashAlgorithm = HashAlgorithm::Sha512;

/// A secret key and its certificate.
#[derive(Clone)]
pub struct YardKey {
    key: SignedSecretKey,
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
        let key = parameters.generate(OsRng).map_err(|error| fail(error.to_string()))?;
        Ok(YardKey { key })
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
        Ok(YardKey { key })
    }

    /// Writes the key, armored, to a file that must not exist yet. The file is created with mode 0600 and
    /// appears atomically, with its full content.
    pub fn write(&self, path: &Path) -> Result<(), SignError> {
        let armored = self.key.to_armored_bytes(ArmorOptions::default()).map_err(|error| {
            SignError::SecretKey { origin: self.fingerprint(), reason: error.to_string() }
        })?;
        write_new(path, &armored)
    }

    /// The armored certificate, as published.
    pub fn public_armored(&self) -> Result<String, SignError> {
        self.certificate()
            .to_armored_string(ArmorOptions::default())
            .map_err(|error| SignError::Sign { action: "write the certificate", reason: error.to_string() })
    }

    /// The certificate in binary form, for `gpgv` and apt's `.gpg` keyrings.
    pub fn public_binary(&self) -> Result<Vec<u8>, SignError> {
        self.certificate()
            .to_bytes()
            .map_err(|error| SignError::Sign { action: "write the certificate", reason: error.to_string() })
    }

    /// The fingerprint of the primary key, in upper-case hexadecimal.
    pub fn fingerprint(&self) -> String {
        upper(&self.key.primary_key.fingerprint())
    }

    /// A keyring with only this key, for a yard that verifies its own signatures.
    pub fn keyring(&self) -> Keyring {
        Keyring::from_certificate(&self.certificate(), format!("the key {}", self.fingerprint()))
    }

    /// Makes a clearsigned message (`InRelease`) of a text.
    ///
    /// Trailing blanks, including carriage returns before line feeds, are not signed and therefore cut. A
    /// missing line feed at the end is added.
    pub fn sign_clear(&self, text: &str) -> Result<String, SignError> {
        let action = "sign a text";
        let lines = clearsign::lines_of(text);
        let hashed = lines.join(&b"\r\n"[..]);
        let signature = self.sign(action, SignatureType::Text, &hashed)?;
        String::from_utf8(clearsign::join(&lines, &HASH.to_string(), &signature))
            .map_err(|error| SignError::Sign { action, reason: error.to_string() })
    }

    /// Makes an armored detached signature (`Release.gpg`) over exactly these bytes.
    pub fn sign_detached(&self, text: &[u8]) -> Result<String, SignError> {
        self.sign("sign a file", SignatureType::Binary, text)
    }

    fn certificate(&self) -> SignedPublicKey {
        self.key.to_public_key()
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the validity of keys and signatures depends on calendar time"
    )]
    fn sign(&self, action: &'static str, kind: SignatureType, bytes: &[u8]) -> Result<String, SignError> {
        let keyring = self.keyring();
        let now = moment_of(SystemTime::now());
        // Choose the newest key that may sign, as GnuPG does; the primary key is the oldest.
        let chosen = keyring
            .signing_at(now)
            .max_by_key(|component| component.created)
            .map(|component| component.name.fingerprint.clone());
        let Some(chosen) = chosen else {
            let problems = keyring
                .components()
                .iter()
                .filter_map(|component| component.problem_at(now))
                .map(|problem| problem.to_string())
                .collect::<Vec<_>>();
            return Err(SignError::Sign { action, reason: problems.join(", ") });
        };
        let signature =
            match self.key.secret_subkeys.iter().find(|subkey| upper(&subkey.key.fingerprint()) == chosen) {
                Some(subkey) => sign_with(&subkey.key, kind, bytes),
                None => sign_with(&self.key.primary_key, kind, bytes),
            };
        signature.map_err(|error| SignError::Sign {
            action,
            reason: format!("the key {chosen} cannot be used (does it have a passphrase?): {error}"),
        })
    }
}

fn sign_with(key: &impl SigningKey, kind: SignatureType, bytes: &[u8]) -> Result<String, pgp::errors::Error> {
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
    let signature = config.sign(key, &Password::empty(), bytes)?;
    DetachedSignature::new(signature).to_armored_string(ArmorOptions::default())
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
