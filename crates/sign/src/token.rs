//! Keys in devices, which sign digests and never show the key.

use pgp::crypto::hash::HashAlgorithm;
use pgp::crypto::public_key::PublicKeyAlgorithm;
use pgp::errors::Result;
use pgp::types::{
    Fingerprint, KeyDetails, KeyId, KeyVersion, Mpi, Password, PublicParams, SignatureBytes, SigningKey,
    Timestamp,
};
use std::fmt;

/// A private key in a device: a token with PKCS#11, a card behind `gpg-agent`.
pub trait Token: fmt::Debug + Send + Sync {
    /// The fingerprint of the OpenPGP key that it has, in upper-case hexadecimal.
    fn fingerprint(&self) -> &str;
    /// Signs the SHA-512 of a text.
    ///
    /// # Errors
    /// A clause that names the cause: no device, a wrong PIN, a key that it lacks.
    fn sign(&self, sha512: &[u8]) -> std::result::Result<TokenSignature, String>;
}

/// A signature as devices make it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSignature {
    /// RSA: the number, big-endian.
    Rsa(Vec<u8>),
    /// ECDSA and EdDSA: r and s, each half of these bytes.
    Pair(Vec<u8>),
}

/// A key of a certificate, with the device that signs for it.
pub(crate) struct InDevice<'a, K> {
    pub(crate) key: &'a K,
    pub(crate) token: &'a dyn Token,
}

// `derive` would want the token to be shown.
impl<K: KeyDetails> fmt::Debug for InDevice<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InDevice({})", self.key.fingerprint())
    }
}

impl<K: KeyDetails> KeyDetails for InDevice<'_, K> {
    fn version(&self) -> KeyVersion {
        self.key.version()
    }
    fn fingerprint(&self) -> Fingerprint {
        self.key.fingerprint()
    }
    fn legacy_key_id(&self) -> KeyId {
        self.key.legacy_key_id()
    }
    fn algorithm(&self) -> PublicKeyAlgorithm {
        self.key.algorithm()
    }
    fn created_at(&self) -> Timestamp {
        self.key.created_at()
    }
    fn legacy_v3_expiration_days(&self) -> Option<u16> {
        self.key.legacy_v3_expiration_days()
    }
    fn public_params(&self) -> &PublicParams {
        self.key.public_params()
    }
}

impl<K: KeyDetails> SigningKey for InDevice<'_, K> {
    fn sign(&self, _: &Password, _: HashAlgorithm, digest: &[u8]) -> Result<SignatureBytes> {
        let signature = self
            .token
            .sign(digest)
            .map_err(|reason| pgp::errors::Error::from(std::io::Error::other(reason)))?;
        let numbers = match &signature {
            TokenSignature::Rsa(number) => vec![Mpi::from_slice(number)],
            TokenSignature::Pair(pair) => {
                let (r, s) = pair.split_at(pair.len() / 2);
                vec![Mpi::from_slice(r), Mpi::from_slice(s)]
            }
        };
        Ok(SignatureBytes::Mpis(numbers))
    }

    fn hash_alg(&self) -> HashAlgorithm {
        HashAlgorithm::Sha512
    }
}
