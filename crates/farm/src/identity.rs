//! The key and the certificate of a door, made once for each yard, and how a client recognizes them.
//!
//! There is no certificate authority: the token that a worker joins with contains the fingerprint, the SHA-256 of the
//! certificate, and the worker accepts this certificate and no other. Names and dates in it do not count.
//!
//! A proxy in front of a door shows a certificate of its own. The token then names the key of that, so that the proxy may
//! renew the certificate; what the worker signs still names the door.

use crate::certificate::{self, AnyKey};
use crate::proof::WorkerKey;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
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

/// The SHA-256 of a certificate, or of the key of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    fn of(bytes: &[u8]) -> Fingerprint {
        let mut hash = [0; 32];
        hash.copy_from_slice(&Sha256::digest(bytes));
        Fingerprint(hash)
    }

    /// That of the key of the first certificate in PEM, which is the server's own if others follow.
    ///
    /// # Errors
    /// There is no certificate, or it is damaged.
    pub fn of_key_in(pem: &[u8]) -> io::Result<Fingerprint> {
        let certificate = CertificateDer::from_pem_slice(pem).map_err(io::Error::other)?;
        key_of(&certificate).map_err(io::Error::other)
    }
}

/// The fingerprint of a certificate's key (the SubjectPublicKeyInfo of RFC 5280).
fn key_of(certificate: &CertificateDer<'_>) -> Result<Fingerprint, rustls::Error> {
    Ok(Fingerprint::of(&ParsedCertificate::try_from(certificate)?.subject_public_key_info()))
}

/// How a worker recognizes the server that it connects to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// By its certificate: a door.
    Certificate(Fingerprint),
    /// By the key of its certificate, a proxy, or by its certificate, another server of the farm.
    Key {
        /// The key of the proxy.
        proxy: Fingerprint,
        /// The certificate of the farm's servers.
        certificate: Fingerprint,
    },
}

impl Pin {
    fn accepts(self, certificate: &CertificateDer<'_>) -> Result<bool, rustls::Error> {
        Ok(match self {
            Pin::Certificate(fingerprint) => Fingerprint::of(certificate) == fingerprint,
            Pin::Key { proxy, certificate: own } => {
                key_of(certificate)? == proxy || Fingerprint::of(certificate) == own
            }
        })
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

/// The configuration of a client that accepts only the server with this pin, and presents a certificate of this key.
///
/// # Errors
/// The cipher suites or the key cannot be used.
pub fn client(pin: Pin, key: Option<&WorkerKey>) -> io::Result<rustls::ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let pinned = Pinned { pin, provider: provider.clone() };
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(pinned));
    let Some(key) = key else { return Ok(config.with_no_client_auth()) };
    let (certificate, key) = certificate::of(key)?;
    config.with_client_auth_cert(vec![certificate], key).map_err(io::Error::other)
}

/// Accepts one server.
#[derive(Debug)]
struct Pinned {
    pin: Pin,
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
        match self.pin.accepts(certificate)? {
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
    fn a_key_is_recognized_in_each_certificate_of_it() {
        let key = rcgen::KeyPair::generate().unwrap();
        let made = |name: &str, key: &rcgen::KeyPair| {
            rcgen::CertificateParams::new([name.to_owned()]).unwrap().self_signed(key).unwrap()
        };
        let (first, renewed) = (made("proxy", &key), made("renewed", &key));
        let other = made("proxy", &rcgen::KeyPair::generate().unwrap());
        // As proxies are configured: their own certificate first, and sometimes the key in the same file.
        let chain = format!("{}{}{}", key.serialize_pem(), first.pem(), other.pem());
        let certificate = Fingerprint::of(&[0]);
        let pin = Pin::Key { proxy: Fingerprint::of_key_in(chain.as_bytes()).unwrap(), certificate };
        assert_eq!((pin.accepts(first.der()), pin.accepts(renewed.der())), (Ok(true), Ok(true)));
        assert_eq!(pin.accepts(other.der()), Ok(false));
        let farm = Pin::Key { proxy: certificate, certificate: Fingerprint::of(other.der()) };
        assert_eq!((farm.accepts(other.der()), farm.accepts(first.der())), (Ok(true), Ok(false)));
        assert!(pin.accepts(&first.der()[..40].into()).is_err());
        for bad in ["", "garbage", &key.serialize_pem(), &first.pem().replace("MII", "AAA")] {
            assert!(Fingerprint::of_key_in(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_fingerprint_that_is_not_hexadecimal_is_rejected() {
        for text in ["", "ab", &"x".repeat(64), &"é".repeat(32), &"0".repeat(66)] {
            assert!(text.parse::<Fingerprint>().is_err(), "{text}");
        }
    }
}
