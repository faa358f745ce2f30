//! A keyring of public certificates, and verification with it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use pgp::composed::{SignedPublicKey, SignedPublicKeyParser};
use pgp::packet::{Packet, Signature};

use crate::armor::{self, Block};
use crate::certificate::{self, Component, upper};
use crate::clearsign;
use crate::error::{KeyName, Moment, SignError};
use crate::judge::{Subject, judge};

/// Debian's keyring of all its developers is about 30 MiB; an archive's is some 50 KiB.
const KEYRING_BYTES_MAX: u64 = 64 << 20;

/// The largest `InRelease` known is about 2 MiB.
const MESSAGE_BYTES_MAX: u64 = 64 << 20;

/// Each signature costs a public-key operation, and messages are untrusted. Debian signs with three keys.
const SIGNATURES_MAX: usize = 64;

/// Public certificates that are trusted to sign.
#[derive(Debug, Clone)]
pub struct Keyring {
    origin: String,
    components: Vec<Component>,
    skipped: Vec<String>,
}

/// A text with at least one good signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Exactly the signed text. For a clearsigned message: the lines without dash escapes and without
    /// trailing blanks, each ended by a line feed. For a detached signature: the given bytes.
    pub text: Vec<u8>,
    /// Every key of the ring with a good signature; at least one.
    pub signers: Vec<Signer>,
    /// Keys that also signed but are not in the ring, by fingerprint or key id. Their signatures are not
    /// verified.
    pub unknown_signers: Vec<String>,
}

/// A key with a good signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signer {
    /// The key that signed, and the primary key that it belongs to.
    pub key: KeyName,
    /// The time of signing, according to the signature.
    pub made: Moment,
}

impl Keyring {
    /// Reads a file with any number of certificates, binary (`.gpg`) or armored (`.asc`).
    ///
    /// Certificates of an obsolete version are skipped and listed in [`Keyring::skipped`].
    ///
    /// # Errors
    /// Fails if the file is truncated or has no certificate.
    pub fn read(path: &Path) -> Result<Keyring, SignError> {
        let bytes = read_bounded(path, KEYRING_BYTES_MAX)?;
        Keyring::parse(&bytes, path.display().to_string())
    }

    /// Reads certificates from memory, in the formats of [`Keyring::read`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Keyring, SignError> {
        Keyring::parse(bytes, "the given keyring".to_owned())
    }

    fn parse(bytes: &[u8], origin: String) -> Result<Keyring, SignError> {
        let fail = |reason: String| SignError::Keyring { origin: origin.clone(), reason };
        check_size(&origin, bytes.len() as u64, KEYRING_BYTES_MAX)?;
        let packets = armor::packets(bytes, Block::PublicKey).map_err(fail)?;

        let mut components = Vec::new();
        let mut skipped = Vec::new();
        for packets in split_certificates(packets).map_err(fail)? {
            let packets = packets.into_iter().map(Ok).peekable();
            match SignedPublicKeyParser::from_packets(packets).next() {
                Some(Ok(certificate)) => {
                    components.extend(certificate::components(&certificate));
                }
                Some(Err(error)) => skipped.push(error.to_string()),
                None => {}
            }
        }
        if components.is_empty() {
            return Err(fail(match skipped.first() {
                Some(reason) => format!("it has no usable certificate: {reason}"),
                None => "it has no certificate".to_owned(),
            }));
        }
        let revoked: BTreeSet<String> = components
            .iter()
            .filter(|component| component.is_revoked())
            .map(|component| component.name.fingerprint.clone())
            .collect();
        for component in &mut components {
            if revoked.contains(&component.name.fingerprint)
                || revoked.contains(&component.name.primary_fingerprint)
            {
                component.revoke();
            }
        }
        Ok(Keyring { origin, components, skipped })
    }

    pub(crate) fn from_certificate(certificate: &SignedPublicKey, origin: String) -> Keyring {
        Keyring { origin, components: certificate::components(certificate), skipped: Vec::new() }
    }

    /// The components that may sign at the given time.
    pub(crate) fn signing_at(&self, now: Moment) -> impl Iterator<Item = &Component> {
        self.components.iter().filter(move |component| component.problem_at(now).is_none())
    }

    pub(crate) fn components(&self) -> &[Component] {
        &self.components
    }

    /// The fingerprints of the primary keys, in the order of the file.
    pub fn fingerprints(&self) -> impl Iterator<Item = &str> {
        self.components
            .iter()
            .filter(|component| component.name.fingerprint == component.name.primary_fingerprint)
            .map(|component| component.name.fingerprint.as_str())
    }

    /// The reasons why certificates in the file were skipped, one for each.
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }

    /// Verifies a clearsigned message (`InRelease`) at the current time.
    #[expect(
        clippy::disallowed_methods,
        reason = "the validity of keys and signatures depends on calendar time"
    )]
    pub fn verify_clearsigned(&self, message: &[u8]) -> Result<Verified, SignError> {
        self.verify_clearsigned_at(message, SystemTime::now())
    }

    /// Verifies a clearsigned message at a given time, which decides which keys have expired.
    pub fn verify_clearsigned_at(&self, message: &[u8], now: SystemTime) -> Result<Verified, SignError> {
        check_size("the clearsigned message", message.len() as u64, MESSAGE_BYTES_MAX)?;
        let parts = clearsign::split(message)?;
        let signatures = read_signatures(parts.signature)?;
        let hashed = parts.hashed();
        self.judge_all(&signatures, Subject::Clearsigned, &hashed, parts.text(), now)
    }

    /// Verifies a text (`Release`) by its detached signature (`Release.gpg`), armored or binary, at the current time.
    #[expect(
        clippy::disallowed_methods,
        reason = "the validity of keys and signatures depends on calendar time"
    )]
    pub fn verify_detached(&self, text: &[u8], signature: &[u8]) -> Result<Verified, SignError> {
        self.verify_detached_at(text, signature, SystemTime::now())
    }

    /// Verifies a text by its detached signature at a given time.
    pub fn verify_detached_at(
        &self,
        text: &[u8],
        signature: &[u8],
        now: SystemTime,
    ) -> Result<Verified, SignError> {
        check_size("the signed text", text.len() as u64, MESSAGE_BYTES_MAX)?;
        check_size("the signature", signature.len() as u64, MESSAGE_BYTES_MAX)?;
        let signatures = read_signatures(signature)?;
        self.judge_all(&signatures, Subject::Detached, text, text.to_vec(), now)
    }

    fn judge_all(
        &self,
        signatures: &[Signature],
        subject: Subject,
        hashed: &[u8],
        text: Vec<u8>,
        now: SystemTime,
    ) -> Result<Verified, SignError> {
        let now = moment_of(now);
        let mut signers: Vec<Signer> = Vec::new();
        let mut problems = Vec::new();
        let mut unknown_signers = BTreeSet::new();
        for signature in signatures {
            let mut known = false;
            for component in &self.components {
                if !component.is_named_by(signature) {
                    continue;
                }
                known = true;
                match judge(signature, component, subject, hashed, now) {
                    Ok(made) => {
                        let key = component.name.clone();
                        let signer = Signer { key, made };
                        if !signers.contains(&signer) {
                            signers.push(signer);
                        }
                    }
                    Err(problem) => problems.push(problem),
                }
            }
            if !known {
                unknown_signers.insert(issuer(signature));
            }
        }
        let unknown_signers = Vec::from_iter(unknown_signers);

        if !signers.is_empty() {
            Ok(Verified { text, signers, unknown_signers })
        } else if !problems.is_empty() {
            Err(SignError::NoGoodSignature { origin: self.origin.clone(), problems })
        } else {
            Err(SignError::NoKnownSigner {
                origin: self.origin.clone(),
                signed_by: unknown_signers,
                ring: self.components.iter().map(|component| component.key_id.clone()).collect(),
            })
        }
    }
}

/// Splits packets into certificates, each of which begins with a primary key.
fn split_certificates(packets: Vec<Packet>) -> Result<Vec<Vec<Packet>>, String> {
    let mut certificates: Vec<Vec<Packet>> = Vec::new();
    for packet in packets {
        match (&packet, certificates.last_mut()) {
            (Packet::PublicKey(_), _) => certificates.push(vec![packet]),
            (Packet::SecretKey(_) | Packet::SecretSubkey(_), _) => {
                return Err("it contains a secret key; a keyring must have only public keys".to_owned());
            }
            (_, Some(certificate)) => certificate.push(packet),
            // The primary key before it had an unknown version and was skipped, so this packet is useless.
            (_, None) => {}
        }
    }
    Ok(certificates)
}

fn read_signatures(bytes: &[u8]) -> Result<Vec<Signature>, SignError> {
    let fail = |reason: String| SignError::Signature { reason };
    let mut signatures = Vec::new();
    for packet in armor::packets(bytes, Block::Signature).map_err(fail)? {
        match packet {
            Packet::Signature(signature) => signatures.push(signature),
            _ => return Err(fail("it contains a packet that is not a signature".to_owned())),
        }
    }
    if signatures.is_empty() {
        return Err(fail("it has no signature of a known version".to_owned()));
    }
    if signatures.len() > SIGNATURES_MAX {
        return Err(fail(format!("it has {} signatures; the limit is {SIGNATURES_MAX}", signatures.len())));
    }
    Ok(signatures)
}

/// The key that a signature names as its maker: the fingerprint, or else the key id.
fn issuer(signature: &Signature) -> String {
    let fingerprint = signature.issuer_fingerprint().first().map(|name| upper(*name));
    let key_id = || signature.issuer_key_id().first().map(|name| upper(*name));
    fingerprint.or_else(key_id).unwrap_or_else(|| "a key that the signature does not name".to_owned())
}

pub(crate) fn moment_of(time: SystemTime) -> Moment {
    let seconds = match time.duration_since(UNIX_EPOCH) {
        Ok(duration) => i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        Err(_) => 0,
    };
    Moment::new(seconds)
}

fn check_size(what: &str, size_bytes: u64, size_bytes_max: u64) -> Result<(), SignError> {
    if size_bytes <= size_bytes_max {
        return Ok(());
    }
    Err(SignError::TooLarge { what: what.to_owned(), size_bytes, size_bytes_max })
}

pub(crate) fn read_bounded(path: &Path, size_bytes_max: u64) -> Result<Vec<u8>, SignError> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let read =
        std::fs::File::open(path).and_then(|file| file.take(size_bytes_max + 1).read_to_end(&mut bytes));
    match read {
        Ok(_) => {
            check_size(&path.display().to_string(), bytes.len() as u64, size_bytes_max)?;
            Ok(bytes)
        }
        Err(source) => Err(SignError::ReadFile { path: path.to_owned(), source }),
    }
}
