//! The secret key of a yard: made once, kept in one file, signs what the yard publishes.
//!
//! A key has no passphrase: it must sign unattended. What protects it is the mode of its file and
//! where the file is, which is neither in a build nor on a worker.

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

/// A secret key with its certificate is a few kilobytes, with many foreign certifications a few hundred.
const SECRET_KEY_BYTES_MAX: u64 = 4 << 20;

/// A user id ends up in every certificate and every listing.
const USER_ID_BYTES_MAX: usize = 512;

/// Every gpgv in use knows it, and Ed25519 itself is built on it.
const HASH: HashAlgorithm = HashAlgorithm::Sha512;

/// A secret key and its certificate.
#[derive(Clone)]
pub struct YardKey {
    key: SignedSecretKey,
}

// The secret stays out of logs and panics.
impl fmt::Debug for YardKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "YardKey({})", self.fingerprint())
    }
}

impl YardKey {
    /// Make a key: Ed25519 as GnuPG 2.2 knows it (version 4, "EdDSA"), which signs and certifies, without
    /// an expiry.
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

    /// Read a secret key, armored or binary, as [`YardKey::write`] or `gpg --export-secret-keys` wrote it.
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
            return Err(fail("it has more than one key, and one must be chosen".to_owned()));
        }
        Ok(YardKey { key })
    }

    /// Write the key, armored, to a file that must not exist yet. The file can be read by its owner only
    /// from its first moment, and appears whole or not at all.
    pub fn write(&self, path: &Path) -> Result<(), SignError> {
        let armored = self.key.to_armored_bytes(ArmorOptions::default()).map_err(|error| {
            SignError::SecretKey { origin: self.fingerprint(), reason: error.to_string() }
        })?;
        write_new(path, &armored)
    }

    /// The certificate, armored, as it is published.
    pub fn public_armored(&self) -> Result<String, SignError> {
        self.certificate()
            .to_armored_string(ArmorOptions::default())
            .map_err(|error| SignError::Sign { action: "write the certificate", reason: error.to_string() })
    }

    /// The certificate in binary form, as `gpgv` and apt's `.gpg` keyrings take it.
    pub fn public_binary(&self) -> Result<Vec<u8>, SignError> {
        self.certificate()
            .to_bytes()
            .map_err(|error| SignError::Sign { action: "write the certificate", reason: error.to_string() })
    }

    /// The fingerprint of the primary key, upper-case hexadecimal.
    pub fn fingerprint(&self) -> String {
        upper(&self.key.primary_key.fingerprint())
    }

    /// A ring of this key alone, for a yard that checks its own signatures.
    pub fn keyring(&self) -> Keyring {
        Keyring::from_certificate(&self.certificate(), format!("the key {}", self.fingerprint()))
    }

    /// Sign a text into one message (`InRelease`).
    ///
    /// Trailing blanks are not signed and therefore cut, carriage returns before line feeds among them,
    /// and a last line without a line feed is given one.
    pub fn sign_clear(&self, text: &str) -> Result<String, SignError> {
        let action = "sign a text";
        let lines = clearsign::lines_of(text);
        let hashed = lines.join(&b"\r\n"[..]);
        let signature = self.sign(action, SignatureType::Text, &hashed)?;
        String::from_utf8(clearsign::join(&lines, &HASH.to_string(), &signature))
            .map_err(|error| SignError::Sign { action, reason: error.to_string() })
    }

    /// Sign bytes, byte for byte, into an armored signature of its own (`Release.gpg`).
    pub fn sign_detached(&self, text: &[u8]) -> Result<String, SignError> {
        self.sign("sign a file", SignatureType::Binary, text)
    }

    fn certificate(&self) -> SignedPublicKey {
        self.key.to_public_key()
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "signatures are judged by the calendar, and this crate knows no other"
    )]
    fn sign(&self, action: &'static str, kind: SignatureType, bytes: &[u8]) -> Result<String, SignError> {
        let keyring = self.keyring();
        let now = moment_of(SystemTime::now());
        // The newest subkey that may sign, as GnuPG chooses; the primary key is the oldest of all.
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
            reason: format!("the key {chosen} cannot be used (has it a passphrase?): {error}"),
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
    // Such a file is made with mode 0600, and renamed only where nothing is.
    let mut file = tempfile::Builder::new().prefix(".key-").tempfile_in(folder).map_err(fail)?;
    file.write_all(bytes).map_err(fail)?;
    file.as_file().sync_all().map_err(fail)?;
    file.persist_noclobber(path).map_err(|error| fail(error.error))?;
    std::fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(fail)
}
