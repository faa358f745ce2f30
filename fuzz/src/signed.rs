//! Signatures. The key for the messages among the seeds signed one text and was then destroyed, so any other text
//! that is accepted is a forgery.

use kilnyard_sign::{Keyring, SignError, Verified};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The only text that the key signed.
const TEXT: &[u8] = include_bytes!("../seeds/clear_signed/text");
const MESSAGE: &[u8] = include_bytes!("../seeds/clear_signed/message");
const SIGNATURE: &[u8] = include_bytes!("../seeds/detached/signature");
const CERTIFICATE: &[u8] = include_bytes!("../seeds/keyring/armored");

static RING: LazyLock<Keyring> = LazyLock::new(|| Keyring::from_bytes(CERTIFICATE).unwrap());

/// A day in January 2030: after the key was created, and the same in every run.
fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_893_900_000)
}

fn assert_ours(verified: Result<Verified, SignError>, text: &[u8]) {
    if let Ok(verified) = verified {
        assert_eq!(verified.text, text);
        for signer in &verified.signers {
            let known = RING.fingerprints().any(|fingerprint| fingerprint == signer.key.primary_fingerprint);
            assert!(known, "{}", signer.key.primary_fingerprint);
        }
        assert!(!verified.signers.is_empty());
    }
}

/// Only messages with the signed text are accepted.
pub fn clear_signed(data: &[u8]) {
    assert_ours(RING.verify_clearsigned_at(data, now()), TEXT);
}

/// No other signature is accepted for the text, and no other text for the signature.
pub fn detached(data: &[u8]) {
    assert_ours(RING.verify_detached_at(TEXT, data, now()), TEXT);
    assert_ours(RING.verify_detached_at(data, SIGNATURE, now()), TEXT);
}

/// Whatever certificates a keyring contains, the message is accepted only with the key that signed it.
pub fn keyring(data: &[u8]) {
    if let Ok(ring) = Keyring::from_bytes(data) {
        assert!(ring.fingerprints().all(|fingerprint| fingerprint.bytes().all(|b| b.is_ascii_hexdigit())));
        assert_ours(ring.verify_clearsigned_at(MESSAGE, now()), TEXT);
    }
}
