//! The interface for signing. The caller implements it, since the key is kept out of reach of builds.

/// Any error of a signer.
pub type SignerError = Box<dyn std::error::Error + Send + Sync>;

/// Signs with the key of the repository.
pub trait Signer {
    /// Returns `text` as an OpenPGP cleartext-signed message.
    fn sign_clear(&self, text: &str) -> Result<String, SignerError>;
    /// Returns an armored detached OpenPGP signature of the bytes of `text`.
    fn sign_detached(&self, text: &str) -> Result<String, SignerError>;
    /// Returns the armored public key that verifies both.
    fn public_armored(&self) -> Result<String, SignerError>;
}
