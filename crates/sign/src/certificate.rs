//! The components of a certificate, and the uses that the certificate allows for each of them.
//!
//! Everything that does not depend on the time of verification is decided once, when a ring is read: which
//! self-signatures are valid, and the flags and expiry from the newest of them. [`Component::problem_at`]
//! decides what depends on the time.

use pgp::composed::{SignedPublicKey, SignedPublicKeyParser, SignedPublicSubKey};
use pgp::crypto::hash::HashAlgorithm;
use pgp::errors::Result as PgpResult;
use pgp::packet::{PublicKey, PublicSubkey, Signature, SignatureType, SubpacketData};
use pgp::ser::Serialize;
use pgp::types::{KeyDetails, Tag, VerifyingKey};

use crate::armor::{self, Block};
use crate::error::{KeyName, Moment, SignError, SignatureProblem};

/// One key of a certificate, primary or subkey, and whether it may sign.
#[derive(Debug, Clone)]
pub(crate) struct Component {
    pub(crate) name: KeyName,
    pub(crate) key_id: String,
    pub(crate) created: Moment,
    key: CertificateKey,
    validity: Validity,
}

#[derive(Debug, Clone)]
enum CertificateKey {
    Primary(PublicKey),
    Subkey(PublicSubkey),
}

#[derive(Debug, Clone)]
enum Validity {
    /// May sign data, until it expires.
    Signs {
        expires: Option<Moment>,
    },
    Revoked,
    Unfit {
        reason: String,
    },
}

impl Component {
    /// Why signatures by this key do not count at the given time; `None` if they do.
    pub(crate) fn problem_at(&self, now: Moment) -> Option<SignatureProblem> {
        let key = self.name.clone();
        match &self.validity {
            Validity::Signs { expires: Some(since) } if *since <= now => {
                Some(SignatureProblem::KeyExpired { key, since: *since })
            }
            Validity::Signs { .. } => None,
            Validity::Revoked => Some(SignatureProblem::KeyRevoked { key }),
            Validity::Unfit { reason } => Some(SignatureProblem::KeyUnfit { key, reason: reason.clone() }),
        }
    }

    /// When it can no longer sign; absent if it does not expire, or cannot sign.
    pub(crate) fn expires(&self) -> Option<Moment> {
        match self.validity {
            Validity::Signs { expires } => expires,
            _ => None,
        }
    }

    /// Whether it may sign data at some time.
    pub(crate) fn signs(&self) -> bool {
        matches!(self.validity, Validity::Signs { .. })
    }

    pub(crate) fn is_revoked(&self) -> bool {
        matches!(self.validity, Validity::Revoked)
    }

    /// Revokes the key. A ring may have two copies of a certificate, of different age; a revocation in either holds.
    pub(crate) fn revoke(&mut self) {
        self.validity = Validity::Revoked;
    }

    /// Whether a signature names this key as its maker.
    pub(crate) fn is_named_by(&self, signature: &Signature) -> bool {
        signature.issuer_fingerprint().iter().any(|fingerprint| upper(fingerprint) == self.name.fingerprint)
            || signature.issuer_key_id().iter().any(|key_id| upper(key_id) == self.key_id)
    }

    /// Checks a signature over bytes cryptographically, and nothing else.
    pub(crate) fn verify(&self, signature: &Signature, bytes: &[u8]) -> PgpResult<()> {
        match &self.key {
            CertificateKey::Primary(key) => signature.verify(key, bytes),
            CertificateKey::Subkey(key) => signature.verify(key, bytes),
        }
    }
}

/// Reads the one certificate of an input, armored or binary.
pub(crate) fn read_one(bytes: &[u8]) -> Result<SignedPublicKey, SignError> {
    let fail = |reason: String| SignError::Keyring { origin: "of the key".to_owned(), reason };
    let packets = armor::packets(bytes, Block::PublicKey).map_err(fail)?;
    let mut certificates = SignedPublicKeyParser::from_packets(packets.into_iter().map(Ok).peekable());
    let certificate = match certificates.next() {
        Some(Ok(certificate)) => certificate,
        Some(Err(error)) => return Err(fail(error.to_string())),
        None => return Err(fail("it has no certificate".to_owned())),
    };
    match certificates.next() {
        Some(_) => Err(fail("it has more than one certificate".to_owned())),
        None => Ok(certificate),
    }
}

/// The primary key and all subkeys of a certificate.
pub(crate) fn components(certificate: &SignedPublicKey) -> Vec<Component> {
    let primary = &certificate.primary_key;
    let primary_fingerprint = upper(&primary.fingerprint());
    let own = SelfSignatures::of(certificate);
    let name = |fingerprint: String| KeyName {
        fingerprint,
        primary_fingerprint: primary_fingerprint.clone(),
        user_id: own.user_id.clone(),
    };

    let mut components = vec![Component {
        name: name(primary_fingerprint.clone()),
        key_id: upper(&primary.legacy_key_id()),
        created: moment(primary.created_at()),
        key: CertificateKey::Primary(primary.clone()),
        validity: own.primary_validity(),
    }];
    for subkey in &certificate.public_subkeys {
        components.push(Component {
            name: name(upper(&subkey.key.fingerprint())),
            key_id: upper(&subkey.key.legacy_key_id()),
            created: moment(subkey.key.created_at()),
            key: CertificateKey::Subkey(subkey.key.clone()),
            validity: own.subkey_validity(primary, subkey),
        });
    }
    components
}

/// The properties of a primary key, from the valid self-signatures of its certificate.
struct SelfSignatures {
    revoked: bool,
    /// Whether at least one self-signature is valid.
    bound: bool,
    expires: Option<Moment>,
    /// Whether the primary key may sign data; true without key flags.
    signs: bool,
    user_id: Option<String>,
}

impl SelfSignatures {
    fn of(certificate: &SignedPublicKey) -> SelfSignatures {
        let primary = &certificate.primary_key;
        let created = moment(primary.created_at());

        let revoked = certificate
            .details
            .revocation_signatures
            .iter()
            .any(|signature| is_kept(signature) && signature.verify_key(primary).is_ok());
        let direct = newest(
            certificate
                .details
                .direct_signatures
                .iter()
                .filter(|signature| signature.typ() == Some(SignatureType::Key))
                .filter(|signature| is_kept(signature) && signature.verify_key(primary).is_ok()),
        );

        let mut certification: Option<&Signature> = None;
        let mut user_id = None;
        for user in &certificate.details.users {
            let valid = user.signatures.iter().filter(|signature| {
                is_kept(signature) && signature.verify_certification(primary, Tag::UserId, &user.id).is_ok()
            });
            // A user id is skipped if its newest self-signature is a revocation.
            let Some(last) = newest(valid) else { continue };
            if last.typ() == Some(SignatureType::CertRevocation) {
                continue;
            }
            if certification.is_none_or(|best| best.created() < last.created()) {
                certification = Some(last);
                user_id = Some(String::from_utf8_lossy(user.id.id()).into_owned());
            }
        }

        // As in GnuPG, an expiry in a direct key signature takes precedence over that of the user ids.
        let expiry = direct
            .and_then(|signature| expiry_of(signature, created))
            .or_else(|| certification.and_then(|signature| expiry_of(signature, created)));
        let flags = [certification, direct].into_iter().flatten().find_map(signing_flag);
        SelfSignatures {
            revoked,
            bound: direct.is_some() || certification.is_some(),
            expires: expiry,
            signs: flags.unwrap_or(true),
            user_id,
        }
    }

    fn primary_validity(&self) -> Validity {
        if self.revoked {
            Validity::Revoked
        } else if !self.bound {
            unfit("its certificate has no valid self-signature")
        } else if !self.signs {
            unfit("its certificate does not allow it to sign data")
        } else {
            Validity::Signs { expires: self.expires }
        }
    }

    fn subkey_validity(&self, primary: &PublicKey, subkey: &SignedPublicSubKey) -> Validity {
        let valid = |wanted: SignatureType| {
            newest(subkey.signatures.iter().filter(|signature| signature.typ() == Some(wanted)).filter(
                |signature| {
                    is_kept(signature) && signature.verify_subkey_binding(primary, &subkey.key).is_ok()
                },
            ))
        };
        if self.revoked || valid(SignatureType::SubkeyRevocation).is_some() {
            return Validity::Revoked;
        }
        if !self.bound {
            return unfit("its certificate has no valid self-signature");
        }
        let Some(binding) = valid(SignatureType::SubkeyBinding) else {
            return unfit("no valid signature binds it to its primary key");
        };
        if signing_flag(binding) != Some(true) {
            return unfit("its certificate does not allow it to sign data");
        }
        // Without the back signature, anyone could claim a foreign signing key as a subkey.
        if !is_bound_back(binding, primary, &subkey.key) {
            return unfit("it has no valid back signature for its primary key");
        }
        let own = expiry_of(binding, moment(subkey.key.created_at()));
        Validity::Signs { expires: earlier(own, self.expires) }
    }
}

fn is_bound_back<P>(binding: &Signature, primary: &P, subkey: &PublicSubkey) -> bool
where
    P: VerifyingKey + Serialize,
{
    binding
        .embedded_signature()
        .is_some_and(|back| is_kept(back) && back.verify_primary_key_binding(subkey, primary).is_ok())
}

/// MD5 signatures are easy to forge, so MD5 self-signatures are ignored.
fn is_kept(signature: &Signature) -> bool {
    signature.hash_alg() != Some(HashAlgorithm::Md5)
}

fn newest<'a>(signatures: impl Iterator<Item = &'a Signature>) -> Option<&'a Signature> {
    signatures.max_by_key(|signature| signature.created())
}

/// When a self-signature ends: at the expiry that it sets for the key, or at its own, whichever comes first.
fn expiry_of(signature: &Signature, created: Moment) -> Option<Moment> {
    // In the standard, zero seconds mean never.
    let after = |from: Moment, duration: Option<pgp::types::Duration>| {
        duration
            .map(|duration| duration.as_secs())
            .filter(|seconds| *seconds > 0)
            .map(|seconds| from.plus(seconds))
    };
    let key = after(created, signature.key_expiration_time());
    let made = signature.created().map_or(created, moment);
    let own = after(made, signature.signature_expiration_time());
    earlier(key, own)
}

fn earlier(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Whether the key flags of a self-signature allow signing data; `None` without key flags.
fn signing_flag(signature: &Signature) -> Option<bool> {
    signature.config()?.hashed_subpackets().find_map(|subpacket| match &subpacket.data {
        SubpacketData::KeyFlags(flags) => Some(flags.sign()),
        _ => None,
    })
}

fn unfit(reason: &str) -> Validity {
    Validity::Unfit { reason: reason.to_owned() }
}

pub(crate) fn moment(timestamp: pgp::types::Timestamp) -> Moment {
    Moment::new(i64::from(timestamp.as_secs()))
}

/// Formats a fingerprint or key id in upper case, as GnuPG does.
pub(crate) fn upper(identifier: &impl std::fmt::Display) -> String {
    identifier.to_string().to_ascii_uppercase()
}
