//! Signatures. The key that made the messages beside this file's seeds was made for one text and thrown away, so
//! another text that is accepted was forged.

use kilnyard_sign::{Keyring, SignError, Verified};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The one text that the key signed.
const TEXT: &[u8] = include_bytes!("../seeds/clear_signed/text");
const MESSAGE: &[u8] = include_bytes!("../seeds/clear_signed/message");
const SIGNATURE: &[u8] = include_bytes!("../seeds/detached/signature");
const CERTIFICATE: &[u8] = include_bytes!("../seeds/keyring/armored");

static RING: LazyLock<Keyring> = LazyLock::new(|| Keyring::from_bytes(CERTIFICATE).unwrap());

/// A day in January 2030: after the key was made, and the same for every run.
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

/// No message but one with the signed text is believed.
pub fn clear_signed(data: &[u8]) {
    assert_ours(RING.verify_clearsigned_at(data, now()), TEXT);
}

/// No other signature is believed for the text, and no other text for the signature.
pub fn detached(data: &[u8]) {
    assert_ours(RING.verify_detached_at(TEXT, data, now()), TEXT);
    assert_ours(RING.verify_detached_at(data, SIGNATURE, now()), TEXT);
}

/// Whatever certificates a ring has, the message is believed by the key that made it alone.
pub fn keyring(data: &[u8]) {
    if let Ok(ring) = Keyring::from_bytes(data) {
        assert!(ring.fingerprints().all(|fingerprint| fingerprint.bytes().all(|b| b.is_ascii_hexdigit())));
        assert_ours(ring.verify_clearsigned_at(MESSAGE, now()), TEXT);
    }
}
