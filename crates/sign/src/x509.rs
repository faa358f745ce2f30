//! X.509 signatures of pkgsrc packages, as `pkg_admin x509-sign-package` makes and `pkg_add` verifies them: a detached PKCS #7
//! signature (RFC 2315, 9) with the certificate of its signer and without attributes.
//!
//! pkg_install accepts RSA with PKCS #1 v1.5 and ECDSA, and certificates whose extended key usage is code signing and e-mail
//! protection, and nothing else. A certificate that readers would refuse is refused here, before it signs anything.

use crate::token::TokenSignature;
use cms::cert::{CertificateChoices, IssuerAndSerialNumber};
use cms::content_info::{CmsVersion, ContentInfo};
use cms::signed_data::{
    CertificateSet, EncapsulatedContentInfo, SignedData, SignerIdentifier, SignerInfo, SignerInfos,
};
use pkcs8::DecodePrivateKey;
use rsa::pkcs1::DecodeRsaPrivateKey;
use rsa::pkcs1v15;
use rsa::signature::{RandomizedSigner, SignatureEncoding};
use rsa::traits::PublicKeyParts;
use sha2_10::{Digest, Sha256};
use std::fmt;
use x509_cert::Certificate;
use x509_cert::der::asn1::{Any, ObjectIdentifier, OctetString, SetOfVec};
use x509_cert::der::pem::{self, LineEnding};
use x509_cert::der::referenced::OwnedToRef;
use x509_cert::der::{DecodePem, Encode};
use x509_cert::ext::pkix::{BasicConstraints, ExtendedKeyUsage, KeyUsage, KeyUsages};
use x509_cert::spki::AlgorithmIdentifierOwned;

/// The label of the signature (RFC 7468, 8, as OpenSSL writes it).
const LABEL: &str = "PKCS7";

const DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.1");
const SIGNED_DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.2");
const SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.1");
const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const ECDSA_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2");
const CODE_SIGNING: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.3");
const EMAIL_PROTECTION: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.4");

/// The smallest RSA key, in bits.
const RSA_BITS_MIN: usize = 2048;

/// A key that signs packages, with its certificate.
pub struct PackageKey {
    certificate: Certificate,
    /// The certificate, and those that lead to one that readers trust.
    chain: Vec<Certificate>,
    secret: Secret,
}

/// Signs a SHA-256 outside of this process's memory.
pub trait DigestSigner: fmt::Debug + Send + Sync {
    /// Signs the SHA-256 of a text.
    ///
    /// # Errors
    /// A clause that names the cause.
    fn sign_sha256(&self, sha256: &[u8]) -> Result<TokenSignature, String>;
}

enum Secret {
    Rsa(Box<pkcs1v15::SigningKey<Sha256>>),
    P256(Box<p256::ecdsa::SigningKey>),
    Device(Box<dyn DigestSigner>),
}

// Keeps the secret out of logs and panics.
impl fmt::Debug for PackageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PackageKey({})", self.fingerprint())
    }
}

impl PackageKey {
    /// Reads a private key (PKCS #8, with a passphrase or without, PKCS #1 or SEC 1) and the certificates of its file, of which the
    /// first is its own: all as PEM.
    ///
    /// # Errors
    /// A clause that names what is wrong: the key or a certificate is damaged, they do not belong together, or readers would not
    /// accept the certificate.
    pub fn open(key: &str, passphrase: Option<&str>, certificates: &str) -> Result<PackageKey, String> {
        let (certificate, chain) = read_certificates(certificates)?;
        let secret = read_key(key, passphrase)?;
        let public = certificate.tbs_certificate.subject_public_key_info.clone();
        let is_own = match &secret {
            Secret::Rsa(own) => {
                let own: &rsa::RsaPrivateKey = (**own).as_ref();
                rsa::RsaPublicKey::try_from(public.owned_to_ref())
                    .is_ok_and(|public| public == own.to_public_key())
            }
            Secret::P256(own) => p256::PublicKey::try_from(public.owned_to_ref())
                .is_ok_and(|public| public == own.verifying_key().into()),
            Secret::Device(_) => true,
        };
        match is_own {
            true => Ok(PackageKey { certificate, chain, secret }),
            false => Err("the certificate is of another key".to_owned()),
        }
    }

    /// A key in a device, with the certificates of its file.
    ///
    /// # Errors
    /// A clause: a certificate is damaged, readers would not accept it, or a signature of the device is not one of its key.
    pub fn in_device(device: Box<dyn DigestSigner>, certificates: &str) -> Result<PackageKey, String> {
        let (certificate, chain) = read_certificates(certificates)?;
        let key = PackageKey { certificate, chain, secret: Secret::Device(device) };
        key.check_device()?;
        Ok(key)
    }

    /// Checks the certificates of a key that is not at hand, and returns the fingerprint.
    ///
    /// # Errors
    /// A clause: a certificate is damaged, or readers would not accept it.
    pub fn check(certificates: &str) -> Result<String, String> {
        read_certificates(certificates).map(|(certificate, _)| fingerprint(&certificate))
    }

    /// The fingerprint of the certificate: its SHA-256, in upper-case hexadecimal.
    pub fn fingerprint(&self) -> String {
        fingerprint(&self.certificate)
    }

    /// When the certificate expires, in seconds since 1970.
    pub fn expires(&self) -> i64 {
        let until = self.certificate.tbs_certificate.validity.not_after.to_unix_duration();
        i64::try_from(until.as_secs()).unwrap_or(i64::MAX)
    }

    /// Why the certificate does not count at a time, in seconds since 1970; none if it does.
    pub fn trouble(&self, now: i64) -> Option<String> {
        let from = self.certificate.tbs_certificate.validity.not_before.to_unix_duration();
        if now < i64::try_from(from.as_secs()).unwrap_or(i64::MAX) {
            return Some("the certificate is not valid yet".to_owned());
        }
        (now >= self.expires()).then(|| "the certificate has expired".to_owned())
    }

    /// The detached signature of a text, as PEM.
    ///
    /// # Errors
    /// A clause that names why it cannot be made.
    pub fn sign(&self, text: &[u8]) -> Result<String, String> {
        let failed = |error: x509_cert::der::Error| format!("the signature cannot be encoded: {error}");
        let own = &self.certificate.tbs_certificate;
        let public = own.subject_public_key_info.algorithm.oid;
        let (algorithm, parameters) =
            if public == RSA { (RSA, Some(Any::null())) } else { (ECDSA_SHA256, None) };
        let digest = AlgorithmIdentifierOwned { oid: SHA256, parameters: Some(Any::null()) };
        let signer = SignerInfo {
            version: CmsVersion::V1,
            sid: SignerIdentifier::IssuerAndSerialNumber(IssuerAndSerialNumber {
                issuer: own.issuer.clone(),
                serial_number: own.serial_number.clone(),
            }),
            digest_alg: digest.clone(),
            signed_attrs: None,
            signature_algorithm: AlgorithmIdentifierOwned { oid: algorithm, parameters },
            signature: OctetString::new(self.raw(text)?).map_err(failed)?,
            unsigned_attrs: None,
        };
        let chain = self.chain.iter().cloned().map(CertificateChoices::Certificate).collect::<Vec<_>>();
        let data = SignedData {
            version: CmsVersion::V1,
            digest_algorithms: SetOfVec::try_from(vec![digest]).map_err(failed)?,
            encap_content_info: EncapsulatedContentInfo { econtent_type: DATA, econtent: None },
            certificates: Some(CertificateSet(SetOfVec::try_from(chain).map_err(failed)?)),
            crls: None,
            signer_infos: SignerInfos(SetOfVec::try_from(vec![signer]).map_err(failed)?),
        };
        let content = Any::encode_from(&data).map_err(failed)?;
        let whole = ContentInfo { content_type: SIGNED_DATA, content }.to_der().map_err(failed)?;
        pem::encode_string(LABEL, LineEnding::LF, &whole)
            .map_err(|error| format!("the signature cannot be encoded: {error}"))
    }

    /// The signature itself: RSA's number, or DER of ECDSA's pair.
    fn raw(&self, text: &[u8]) -> Result<Vec<u8>, String> {
        let failed = |error: rsa::signature::Error| format!("the key does not sign: {error}");
        match &self.secret {
            Secret::Rsa(key) => {
                Ok(key.try_sign_with_rng(&mut rand::rngs::OsRng, text).map_err(failed)?.to_vec())
            }
            Secret::P256(key) => {
                let signature: p256::ecdsa::Signature =
                    key.try_sign_with_rng(&mut rand::rngs::OsRng, text).map_err(failed)?;
                Ok(signature.to_der().as_bytes().to_vec())
            }
            Secret::Device(device) => match device.sign_sha256(&Sha256::digest(text))? {
                TokenSignature::Rsa(number) => Ok(number),
                TokenSignature::Pair(pair) => {
                    let signature = p256::ecdsa::Signature::from_slice(&pair).map_err(failed)?;
                    Ok(signature.to_der().as_bytes().to_vec())
                }
            },
        }
    }

    /// Whether a device signs with the key of the certificate.
    fn check_device(&self) -> Result<(), String> {
        use rsa::signature::Verifier;
        const TEXT: &[u8] = b"kilnyard checks a device";
        let signature = self.raw(TEXT)?;
        let public = self.certificate.tbs_certificate.subject_public_key_info.owned_to_ref();
        let is_own = match (rsa::RsaPublicKey::try_from(public.clone()), p256::PublicKey::try_from(public)) {
            (Ok(public), _) => pkcs1v15::Signature::try_from(&signature[..]).is_ok_and(|found| {
                pkcs1v15::VerifyingKey::<Sha256>::new(public).verify(TEXT, &found).is_ok()
            }),
            (_, Ok(public)) => p256::ecdsa::Signature::from_der(&signature)
                .is_ok_and(|found| p256::ecdsa::VerifyingKey::from(&public).verify(TEXT, &found).is_ok()),
            _ => false,
        };
        if is_own { Ok(()) } else { Err("the certificate is of another key than the device's".to_owned()) }
    }
}

fn fingerprint(certificate: &Certificate) -> String {
    // It was read from this form.
    let bytes = certificate.to_der().unwrap_or_default();
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02X}")).collect()
}

fn read_key(text: &str, passphrase: Option<&str>) -> Result<Secret, String> {
    let rsa = |key: rsa::RsaPrivateKey| match key.n().bits() {
        bits if bits < RSA_BITS_MIN => {
            Err(format!("the RSA key has {bits} bits; {RSA_BITS_MIN} are the least"))
        }
        _ => Ok(Secret::Rsa(Box::new(pkcs1v15::SigningKey::new(key)))),
    };
    let p256 = |key: p256::SecretKey| Ok(Secret::P256(Box::new(key.into())));
    if text.contains("ENCRYPTED") {
        let passphrase =
            passphrase.ok_or("it has a passphrase, and the policy names no credential for it")?;
        if let Ok(key) = rsa::RsaPrivateKey::from_pkcs8_encrypted_pem(text, passphrase) {
            return rsa(key);
        }
        return match p256::SecretKey::from_pkcs8_encrypted_pem(text, passphrase) {
            Ok(key) => p256(key),
            Err(_) => Err("the passphrase does not open it, or it is neither RSA nor P-256".to_owned()),
        };
    }
    if let Ok(key) = rsa::RsaPrivateKey::from_pkcs8_pem(text) {
        return rsa(key);
    }
    if let Ok(key) = rsa::RsaPrivateKey::from_pkcs1_pem(text) {
        return rsa(key);
    }
    if let Ok(key) = p256::SecretKey::from_pkcs8_pem(text) {
        return p256(key);
    }
    if let Ok(key) = p256::SecretKey::from_sec1_pem(text) {
        return p256(key);
    }
    Err("it is not the PEM of an RSA or P-256 key, which pkg_add verifies".to_owned())
}

/// The first certificate of a file, which must be one that pkg_install accepts, and all of them.
fn read_certificates(text: &str) -> Result<(Certificate, Vec<Certificate>), String> {
    const END: &str = "-----END CERTIFICATE-----";
    let mut chain = Vec::new();
    for part in text.split_inclusive(END).filter(|part| part.contains(END)) {
        // Other programs write a text before each.
        let begin = part.find("-----BEGIN CERTIFICATE-----").ok_or("a certificate is damaged")?;
        let read = Certificate::from_pem(&part[begin..]);
        chain.push(read.map_err(|error| format!("a certificate is damaged: {error}"))?);
    }
    let own = chain.first().cloned().ok_or("there is no certificate in PEM")?;
    check(&own)?;
    Ok((own, chain))
}

/// Refuses a certificate that pkg_install would not accept (x509/pkgsrc.cnf, lib/pkcs7.c there).
fn check(certificate: &Certificate) -> Result<(), String> {
    let tbs = &certificate.tbs_certificate;
    let damaged = |error: x509_cert::der::Error| format!("the certificate is damaged: {error}");
    let uses = tbs.get::<ExtendedKeyUsage>().map_err(damaged)?.map(|(_, uses)| uses.0).unwrap_or_default();
    let is_known = |oid: &ObjectIdentifier| [CODE_SIGNING, EMAIL_PROTECTION].contains(oid);
    let has = |oid: &ObjectIdentifier| uses.contains(oid);
    if !has(&CODE_SIGNING) || !has(&EMAIL_PROTECTION) || !uses.iter().all(is_known) {
        return Err("pkg_add accepts a certificate whose extended key usage is codeSigning and emailProtection, and nothing else".to_owned());
    }
    if let Some((_, usage)) = tbs.get::<KeyUsage>().map_err(damaged)? {
        let signs = [KeyUsages::DigitalSignature, KeyUsages::NonRepudiation];
        if !signs.iter().any(|one| usage.0.contains(*one)) {
            return Err("the certificate's key usage has no digitalSignature".to_owned());
        }
        if usage.0.contains(KeyUsages::KeyCertSign) {
            return Err(
                "the certificate is that of an authority, which pkg_add does not accept for packages"
                    .to_owned(),
            );
        }
    }
    if tbs.get::<BasicConstraints>().map_err(damaged)?.is_some_and(|(_, basic)| basic.ca) {
        return Err(
            "the certificate is that of an authority, which pkg_add does not accept for packages".to_owned()
        );
    }
    match tbs.subject_public_key_info.algorithm.oid {
        RSA | EC => Ok(()),
        _ => Err("pkg_add verifies certificates of RSA and P-256 keys alone".to_owned()),
    }
}
