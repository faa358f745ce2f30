//! The key that signs a yard's repository.

use crate::error::{Context, Kind, Result};
use crate::remedy::Remedy;
use crate::yard::Yard;
use kilnyard_publish::{Signer, SignerError};
use kilnyard_sign::YardKey;

/// A yard's signing key. It is stored in `state/key.asc`.
pub struct SigningKey(YardKey);

impl SigningKey {
    /// Reads the key of a yard.
    pub fn read(yard: &Yard) -> Result<SigningKey> {
        let path = yard.home.join("state/key.asc");
        YardKey::read(&path).map(SigningKey).context(Kind::Machine, "read the yard's key").map_err(|error| {
            error.hint(
                Remedy::from("restoring a copy of state/key.asc; without one: ")
                    .then_command("init")
                    .then(" in a new folder, and giving readers the new key"),
            )
        })
    }

    /// The public key, which readers of the repository need.
    pub fn public_armored(&self) -> Result<String> {
        self.0.public_armored().or_internal("read the yard's key")
    }

    /// The key's fingerprint, in hexadecimal.
    pub fn fingerprint(&self) -> String {
        self.0.fingerprint()
    }
}

impl Signer for SigningKey {
    fn sign_clear(&self, text: &str) -> std::result::Result<String, SignerError> {
        Ok(self.0.sign_clear(text)?)
    }
    fn sign_detached(&self, text: &str) -> std::result::Result<String, SignerError> {
        Ok(self.0.sign_detached(text.as_bytes())?)
    }
    fn public_armored(&self) -> std::result::Result<String, SignerError> {
        Ok(self.0.public_armored()?)
    }
}
