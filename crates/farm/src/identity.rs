//! The key and the certificate of a door, made once for each yard, and how a client recognizes them.
//!
//! There is no certificate authority: the token that a worker joins with contains the fingerprint, the SHA-256 of the
//! certificate, and the worker accepts this certificate and no other. Names and dates in it do not count.

use crate::certificate::{self, AnyKey};
use crate::proof::WorkerKey;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, SignatureScheme};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

/// The file of key and certificate in the folder of a door.
const FILE: &str = "door.pem";

/// The SHA-256 of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    fn of(certificate: &CertificateDer<'_>) -> Fingerprint {
        let mut hash = [0; 32];
        hash.copy_from_slice(&Sha256::digest(certificate));
        Fingerprint(hash)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&crate::hex(&self.0))
    }
}

impl FromStr for Fingerprint {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Fingerprint, &'static str> {
        crate::from_hex(text).map(Fingerprint).ok_or("a fingerprint has 64 hexadecimal digits")
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Fingerprint, &'static str> {
        text.parse()
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> String {
        fingerprint.to_string()
    }
}

/// The key and certificate of a door.
#[derive(Debug)]
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// The identity in this folder, made if there is none.
    ///
    /// # Errors
    /// The file cannot be read or written, or is damaged.
    pub fn open(folder: &Path) -> io::Result<Identity> {
        let path = folder.join(FILE);
        if !path.try_exists()? {
            // The name does not count: clients compare the fingerprint.
            let made = rcgen::generate_simple_self_signed(["kilnyard".to_owned()]);
            let made = made.map_err(io::Error::other)?;
            crate::write_private(&path, &format!("{}{}", made.signing_key.serialize_pem(), made.cert.pem()))?;
        }
        let text = fs_err::read(&path)?;
        let damaged = |error| io::Error::other(format!("{} is damaged: {error}", path.display()));
        let certificate = CertificateDer::from_pem_slice(&text).map_err(damaged)?;
        let key = PrivateKeyDer::from_pem_slice(&text).map_err(damaged)?;
        Ok(Identity { certificate, key })
    }

    /// The fingerprint of the certificate.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    /// The configuration of a server with this identity.
    pub(crate) fn server(&self) -> Result<rustls::ServerConfig, rustls::Error> {
        let provider = Arc::new(ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(Arc::new(AnyKey { provider }))
            .with_single_cert(vec![self.certificate.clone()], self.key.clone_key())?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// The configuration of a client that accepts only the certificate with this fingerprint, and presents one of this key.
///
/// # Errors
/// The cipher suites or the key cannot be used.
pub fn client(fingerprint: Fingerprint, key: Option<&WorkerKey>) -> io::Result<rustls::ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let pinned = Pinned { fingerprint, provider: provider.clone() };
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(pinned));
    let Some(key) = key else { return Ok(config.with_no_client_auth()) };
    let (certificate, key) = certificate::of(key)?;
    config.with_client_auth_cert(vec![certificate], key).map_err(io::Error::other)
}

/// Accepts one certificate.
#[derive(Debug)]
struct Pinned {
    fingerprint: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match Fingerprint::of(certificate) == self.fingerprint {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_stays_the_same_and_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let made = Identity::open(folder.path()).unwrap().fingerprint();
        assert_eq!(Identity::open(folder.path()).unwrap().fingerprint(), made);
        assert_eq!(made.to_string().parse(), Ok(made));
        let mode = std::fs::metadata(folder.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(folder.path().join(FILE), "garbage").unwrap();
        assert!(Identity::open(folder.path()).unwrap_err().to_string().contains("is damaged"));
    }

    #[test]
    fn a_fingerprint_that_is_not_hexadecimal_is_rejected() {
        for text in ["", "ab", &"x".repeat(64), &"é".repeat(32), &"0".repeat(66)] {
            assert!(text.parse::<Fingerprint>().is_err(), "{text}");
        }
    }
}
