//! Decides whether one signature, by one key of the ring, is good for given bytes at a given time. A pure function.

use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::{Signature, SignatureType, SignatureVersion, SubpacketData};

use crate::certificate::{Component, moment};
use crate::error::{Moment, SignatureProblem};

/// The maximum accepted clock skew of a signature from the future: time zones and drifting clocks account for
/// less than a day.
const CLOCK_SKEW_SECONDS_MAX: u32 = 24 * 60 * 60;

/// The kind of signed data, which decides which kinds of signature are valid for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A clearsigned text in its hashed form; only text signatures are valid.
    Clearsigned,
    /// A separate file; binary and text signatures are valid.
    Detached,
}

/// Returns when a good signature was made, or the problem of a bad one.
pub(crate) fn judge(
    signature: &Signature,
    component: &Component,
    subject: Subject,
    bytes: &[u8],
    now: Moment,
) -> Result<Moment, SignatureProblem> {
    let key = || component.name.clone();
    let unusable = |reason: String| SignatureProblem::Unusable { key: key(), reason };

    let Some(config) = signature.config() else {
        return Err(unusable(format!("its version {:?} is not supported", signature.version())));
    };
    match signature.version() {
        SignatureVersion::V4 | SignatureVersion::V6 => {}
        version => return Err(unusable(format!("its version {version:?} is obsolete"))),
    }
    // Other kinds of signature cover none of the bytes, or only the first ones.
    match (subject, config.typ()) {
        (Subject::Clearsigned | Subject::Detached, SignatureType::Text) => {}
        (Subject::Detached, SignatureType::Binary) => {}
        (_, kind) => return Err(unusable(format!("its type is {kind:?}"))),
    }
    match config.hash_alg {
        HashAlgorithm::Sha224
        | HashAlgorithm::Sha256
        | HashAlgorithm::Sha384
        | HashAlgorithm::Sha512
        | HashAlgorithm::Sha3_256
        | HashAlgorithm::Sha3_512 => {}
        weak => {
            return Err(SignatureProblem::WeakHash { key: key(), hash: weak.to_string() });
        }
    }
    // A critical notation that is not understood may restrict or void the signature.
    let critical_notation = config
        .hashed_subpackets()
        .any(|subpacket| subpacket.is_critical && matches!(subpacket.data, SubpacketData::Notation(_)));
    if critical_notation {
        return Err(unusable("it has a critical notation, which is not supported".to_owned()));
    }

    if component.verify(signature, bytes).is_err() {
        return Err(SignatureProblem::TextDiffers { key: key() });
    }

    // Only a verified signature can be trusted about its own properties.
    if let Some(problem) = component.problem_at(now) {
        return Err(problem);
    }
    let Some(made) = signature.created().map(moment) else {
        return Err(unusable("it has no creation time".to_owned()));
    };
    let clock_wrong =
        |reason: &str| SignatureProblem::ClockWrong { key: key(), made, reason: reason.to_owned() };
    if made < component.created {
        return Err(clock_wrong("before its key was made"));
    }
    if made > now.plus(CLOCK_SKEW_SECONDS_MAX) {
        return Err(clock_wrong("which is in the future according to this machine's clock"));
    }
    let expires = signature
        .signature_expiration_time()
        .map(|duration| duration.as_secs())
        .filter(|seconds| *seconds > 0)
        .map(|seconds| made.plus(seconds));
    match expires {
        Some(since) if since <= now => Err(SignatureProblem::SignatureExpired { key: key(), since }),
        Some(_) | None => Ok(made),
    }
}
