//! The key of a worker: the proof that a process has it, and its signatures of what it built.
//!
//! The door sends a random challenge; the worker signs it, together with the door's fingerprint, so that the answer
//! counts at this door alone. The signature is Ed25519 (RFC 8032). The key also signs handshakes of TLS, whose signed bytes
//! begin otherwise (RFC 8446, 4.4.3), so that none passes for another.

use crate::identity::Fingerprint;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use kilnyard_model::provenance::{Signed, signed_bytes};
use std::io;
use std::path::Path;

/// Begins what is signed, so that no other signature of this key passes for one.
const CONTEXT: &str = "kilnyard session 1";

/// The key of a worker.
#[derive(Clone, Debug)]
pub struct WorkerKey(SigningKey);

impl WorkerKey {
    /// The key in this file, made if there is none.
    ///
    /// # Errors
    /// The file cannot be read or written, or is damaged.
    pub fn open(path: &Path) -> io::Result<WorkerKey> {
        if !path.try_exists()? {
            let made = SigningKey::generate(&mut rand::rngs::OsRng);
            crate::write_private(path, &format!("{}\n", crate::hex(made.as_bytes())))?;
        }
        let text = fs_err::read_to_string(path)?;
        let damaged = || io::Error::other(format!("{} is damaged", path.display()));
        let bytes = crate::from_hex::<32>(text.trim_end()).ok_or_else(damaged)?;
        Ok(WorkerKey(SigningKey::from_bytes(&bytes)))
    }

    /// The public part, in hexadecimal.
    pub fn public(&self) -> String {
        crate::hex(self.0.verifying_key().as_bytes())
    }

    /// The key itself, for TLS.
    pub(crate) fn signing_key(&self) -> &SigningKey {
        &self.0
    }

    /// The proof for a challenge of a door, in hexadecimal.
    pub fn prove(&self, door: Fingerprint, challenge: &str) -> String {
        crate::hex(&self.0.sign(&text(door, challenge)).to_bytes())
    }
}

impl WorkerKey {
    /// Signs a statement about a build. The bytes that are signed begin otherwise than a proof.
    pub fn sign(&self, statement: &str) -> Signed {
        let signature = crate::hex(&self.0.sign(&signed_bytes(statement)).to_bytes());
        Signed { statement: statement.to_owned(), key: self.public(), signature }
    }
}

/// Whether a proof is that of the key with this public part.
pub fn is_proved(public: &str, door: Fingerprint, challenge: &str, proof: &str) -> bool {
    is_signed_by(public, &text(door, challenge), proof)
}

/// Whether the key that a signed statement names has signed it.
pub fn is_signed(signed: &Signed) -> bool {
    is_signed_by(&signed.key, &signed_bytes(&signed.statement), &signed.signature)
}

fn is_signed_by(public: &str, text: &[u8], signature: &str) -> bool {
    let key = crate::from_hex::<32>(public).and_then(|bytes| VerifyingKey::from_bytes(&bytes).ok());
    let signature = crate::from_hex::<64>(signature).map(|bytes| Signature::from_bytes(&bytes));
    let (Some(key), Some(signature)) = (key, signature) else { return false };
    key.verify_strict(text, &signature).is_ok()
}

fn text(door: Fingerprint, challenge: &str) -> Vec<u8> {
    format!("{CONTEXT}\n{door}\n{challenge}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_proves_a_challenge_and_only_at_its_door() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let key = WorkerKey::open(&path).unwrap();
        let other = WorkerKey::open(&folder.path().join("other")).unwrap();
        let door: Fingerprint = "0".repeat(64).parse().unwrap();
        let elsewhere: Fingerprint = "1".repeat(64).parse().unwrap();
        let proof = key.prove(door, "c");
        assert!(is_proved(&WorkerKey::open(&path).unwrap().public(), door, "c", &proof));
        assert!(!is_proved(&other.public(), door, "c", &proof));
        assert!(!is_proved(&key.public(), elsewhere, "c", &proof));
        assert!(!is_proved(&key.public(), door, "d", &proof));
        let signed = key.sign("{}");
        assert!(is_signed(&signed));
        assert!(!is_signed(&Signed { statement: "{ }".to_owned(), ..signed.clone() }));
        assert!(!is_signed(&Signed { key: other.public(), ..signed }));
        for proof in ["", "00", &"0".repeat(128), &"é".repeat(64)] {
            assert!(!is_proved(&key.public(), door, "c", proof), "{proof}");
        }
    }
}
