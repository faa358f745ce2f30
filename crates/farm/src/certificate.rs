//! The certificate of a worker, by which a TLS connection shows that it has the worker's key.
//!
//! It is self-signed with the key that the worker made when it joined. The door checks in the handshake that the other side
//! has the key of its certificate, whichever that is, and names and dates do not count. Whether it is the right key is
//! decided when a worker begins or uses a session: only then is it known which worker it says it is.

use crate::proof::WorkerKey;
use ed25519_dalek::VerifyingKey;
use ed25519_dalek::pkcs8::{DecodePublicKey, EncodePrivateKey};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};
use std::io;
use std::sync::Arc;

/// A certificate of this key, and the key for TLS.
///
/// # Errors
/// They cannot be made, which does not happen with a valid key.
pub(crate) fn of(key: &WorkerKey) -> io::Result<(CertificateDer<'static>, PrivateKeyDer<'static>)> {
    let der = key.signing_key().to_pkcs8_der().map_err(io::Error::other)?;
    let der = PrivatePkcs8KeyDer::from(der.as_bytes().to_vec());
    let pair = rcgen::KeyPair::from_pkcs8_der_and_sign_algo(&der, &rcgen::PKCS_ED25519);
    let made = rcgen::CertificateParams::new(["kilnyard-worker".to_owned()])
        .and_then(|parameters| parameters.self_signed(&pair?))
        .map_err(io::Error::other)?;
    Ok((made.into(), der.into()))
}

/// The key of a certificate, in hexadecimal as in the roster. None if it is not an Ed25519 key.
pub(crate) fn key_in(certificate: &CertificateDer<'_>) -> Option<String> {
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    let key = VerifyingKey::from_public_key_der(&parsed.subject_public_key_info()).ok()?;
    Some(crate::hex(key.as_bytes()))
}

/// Asks clients for a certificate of any Ed25519 key, and does without one.
#[derive(Debug)]
pub(crate) struct AnyKey {
    pub provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for AnyKey {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
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
        vec![SignatureScheme::ED25519]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_has_the_key_of_its_worker() {
        let folder = tempfile::tempdir().unwrap();
        let key = WorkerKey::open(&folder.path().join("key")).unwrap();
        let (certificate, _) = of(&key).unwrap();
        assert_eq!(key_in(&certificate), Some(key.public()));
        let other = rcgen::generate_simple_self_signed(["ecdsa".to_owned()]).unwrap();
        assert_eq!(key_in(other.cert.der()), None);
        for end in 0..certificate.len() {
            assert_eq!(key_in(&certificate[..end].into()), None, "{end}");
        }
    }
}
