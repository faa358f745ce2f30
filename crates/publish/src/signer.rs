//! Who signs: the caller, since the key is kept where no build is.

/// What a signer may fail with.
pub type SignerError = Box<dyn std::error::Error + Send + Sync>;

/// Signs with the repository's key.
pub trait Signer {
    /// `text` as an OpenPGP cleartext-signed message.
    fn sign_clear(&self, text: &str) -> Result<String, SignerError>;
    /// An armored detached OpenPGP signature over the bytes of `text`.
    fn sign_detached(&self, text: &str) -> Result<String, SignerError>;
    /// The armored public key that verifies both.
    fn public_armored(&self) -> Result<String, SignerError>;
}
