//! Is one signature, by one key of the ring, good for these bytes now? Pure.

use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::{Signature, SignatureType, SignatureVersion, SubpacketData};

use crate::certificate::{Component, moment};
use crate::error::{Moment, SignatureProblem};

/// A signature from further in the future than this is not believed: time zones and drifting clocks
/// explain less than a day.
const CLOCK_SKEW_SECONDS_MAX: u32 = 24 * 60 * 60;

/// What the bytes are, which decides the kinds of signature that may be over them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A clearsigned text in the form that is hashed: its signature is one over text.
    Clearsigned,
    /// A file of its own: its signature is one over bytes, or over text.
    Detached,
}

/// The moment of a good signature, or what is wrong with it.
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
        return Err(unusable(format!("its version {:?} is unknown", signature.version())));
    };
    match signature.version() {
        SignatureVersion::V4 | SignatureVersion::V6 => {}
        version => return Err(unusable(format!("its version {version:?} is obsolete"))),
    }
    // Other kinds exist that cover none of the bytes, or only the first.
    match (subject, config.typ()) {
        (Subject::Clearsigned | Subject::Detached, SignatureType::Text) => {}
        (Subject::Detached, SignatureType::Binary) => {}
        (_, kind) => return Err(unusable(format!("it is of the kind {kind:?}"))),
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
    // What its maker declared critical, and is not understood here, may say that it is void.
    let critical_notation = config
        .hashed_subpackets()
        .any(|subpacket| subpacket.is_critical && matches!(subpacket.data, SubpacketData::Notation(_)));
    if critical_notation {
        return Err(unusable("it has a critical notation, which is not understood".to_owned()));
    }

    if component.verify(signature, bytes).is_err() {
        return Err(SignatureProblem::TextDiffers { key: key() });
    }

    // Only now is what the signature says of itself more than a claim.
    if let Some(problem) = component.problem_at(now) {
        return Err(problem);
    }
    let Some(made) = signature.created().map(moment) else {
        return Err(unusable("it does not say when it was made".to_owned()));
    };
    let clock_wrong =
        |reason: &str| SignatureProblem::ClockWrong { key: key(), made, reason: reason.to_owned() };
    if made < component.created {
        return Err(clock_wrong("before its key was"));
    }
    if made > now.plus(CLOCK_SKEW_SECONDS_MAX) {
        return Err(clock_wrong("which is in the future for this machine's clock"));
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
