//! The public half of a key that is in a device, and its certificate.
//!
//! A device knows numbers, and OpenPGP needs a certificate: a key packet with the time of its making, a user id, and a
//! signature of both by the key itself (RFC 4880, 5.5.2 and 5.2.4; RFC 6637; for Ed25519 the form of GnuPG 2.2).

use crate::armor::{self, Block};
use crate::certificate::{read_one, upper};
use crate::error::SignError;
use crate::token::{InDevice, Token};
use crate::yard_key::own_config;
use pgp::composed::{ArmorOptions, SignedKeyDetails, SignedPublicKey};
use pgp::packet::{KeyFlags, Packet, PublicKey, SignatureType, SubpacketData, UserId};
use pgp::ser::Serialize;
use pgp::types::{KeyDetails, Password, PublicParams, SignedUser, Tag};

/// Object identifiers of curves, without tag and length.
const ED25519: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0xda, 0x47, 0x0f, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];

/// Numbers of algorithms (RFC 4880, 9.1; RFC 6637; GnuPG's "EdDSA").
const RSA: u8 = 1;
const ECDSA: u8 = 19;
const EDDSA: u8 = 22;

/// The numbers of a public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Material {
    /// The 32 bytes of an Ed25519 key.
    Ed25519(Vec<u8>),
    /// An uncompressed point on P-256, which begins with the byte 4.
    P256(Vec<u8>),
    /// An uncompressed point on P-384.
    P384(Vec<u8>),
    /// RSA, big-endian.
    Rsa {
        /// The modulus.
        modulus: Vec<u8>,
        /// The public exponent.
        exponent: Vec<u8>,
    },
}

impl Material {
    /// The numbers of an OpenPGP key; none if its algorithm has no place here.
    fn of(params: &PublicParams) -> Option<Material> {
        let mut bytes = Vec::new();
        params.to_writer(&mut bytes).ok()?;
        let number = |bytes: &[u8]| -> Option<(Vec<u8>, usize)> {
            let bits = usize::from(u16::from_be_bytes([*bytes.first()?, *bytes.get(1)?]));
            let end = 2 + bits.div_ceil(8);
            Some((bytes.get(2..end)?.to_vec(), end))
        };
        let curve =
            |of: &[u8]| bytes.strip_prefix(&[of.len() as u8][..])?.strip_prefix(of).map(<[u8]>::to_vec);
        match params {
            PublicParams::RSA(_) => {
                let (modulus, end) = number(&bytes)?;
                Some(Material::Rsa { modulus, exponent: number(&bytes[end..])?.0 })
            }
            PublicParams::EdDSALegacy(_) => {
                let point = number(&curve(ED25519)?)?.0;
                Some(Material::Ed25519(point.strip_prefix(&[0x40])?.to_vec()))
            }
            PublicParams::ECDSA(_) => match (curve(P256), curve(P384)) {
                (Some(rest), _) => Some(Material::P256(number(&rest)?.0)),
                (_, Some(rest)) => Some(Material::P384(number(&rest)?.0)),
                _ => None,
            },
            _ => None,
        }
    }

    /// The body of a version 4 key packet.
    fn packet(&self, made_seconds: u32) -> Vec<u8> {
        let mut body = vec![4];
        body.extend(made_seconds.to_be_bytes());
        let mut on_curve = |algorithm: u8, curve: &[u8], point: &[u8]| {
            body.push(algorithm);
            body.push(curve.len() as u8);
            body.extend_from_slice(curve);
            body.extend(number(point));
        };
        match self {
            Material::Ed25519(bytes) => on_curve(EDDSA, ED25519, &[&[0x40], &bytes[..]].concat()),
            Material::P256(point) => on_curve(ECDSA, P256, point),
            Material::P384(point) => on_curve(ECDSA, P384, point),
            Material::Rsa { modulus, exponent } => {
                body.push(RSA);
                body.extend(number(modulus));
                body.extend(number(exponent));
            }
        }
        body
    }

    /// The key packet of this key, made at a time in seconds since 1970.
    fn key(&self, made_seconds: u32) -> Result<PublicKey, String> {
        let body = self.packet(made_seconds);
        let length = u16::try_from(body.len()).map_err(|_| "it is too long".to_owned())?;
        // Tag 6 with a length of two bytes (RFC 4880, 4.2.1).
        let packet = [&[0x99], &length.to_be_bytes()[..], &body].concat();
        match armor::packets(&packet, Block::PublicKey)?.pop() {
            Some(Packet::PublicKey(key)) => Ok(key),
            _ => Err("it is no key".to_owned()),
        }
    }

    /// The fingerprint of the OpenPGP key with these numbers that was made at a time in seconds since 1970.
    ///
    /// # Errors
    /// The numbers are not those of a key.
    pub fn fingerprint(&self, made_seconds: u32) -> Result<String, SignError> {
        let fail = |reason| SignError::SecretKey { origin: "of the device".to_owned(), reason };
        Ok(upper(&self.key(made_seconds).map_err(fail)?.fingerprint()))
    }
}

/// A number with its length in bits (RFC 4880, 3.2).
fn number(bytes: &[u8]) -> Vec<u8> {
    let bytes = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
    let bits = bytes.first().map_or(0, |first| bytes.len() * 8 - first.leading_zeros() as usize);
    [&(bits as u16).to_be_bytes()[..], bytes].concat()
}

/// The fingerprint and the numbers of each key in a certificate, the primary key first.
///
/// # Errors
/// The certificate cannot be read, or there is more than one.
pub fn keys_of(certificate: &[u8]) -> Result<Vec<(String, Option<Material>)>, SignError> {
    let certificate = read_one(certificate)?;
    let primary = &certificate.primary_key;
    let first = (upper(&primary.fingerprint()), Material::of(primary.public_params()));
    let subkeys = certificate.public_subkeys.iter();
    let more =
        subkeys.map(|subkey| (upper(&subkey.key.fingerprint()), Material::of(subkey.key.public_params())));
    Ok(std::iter::once(first).chain(more).collect())
}

/// Makes the certificate of a key in a device, which signs it: armored. It signs and certifies, and expires after some days if
/// these are given.
///
/// # Errors
/// The numbers are not those of a key, or the device does not sign.
pub fn certify(
    material: &Material,
    made_seconds: u32,
    user_id: &str,
    days: Option<u32>,
    token: &dyn Token,
) -> Result<String, SignError> {
    let action = "make the certificate of the key";
    let fail = |reason: String| SignError::Sign { action, reason };
    let key = material.key(made_seconds).map_err(fail)?;
    let make = || -> Result<String, pgp::errors::Error> {
        let signer = InDevice { key: &key, token };
        let id = UserId::from_str(Default::default(), user_id)?;
        let mut flags = KeyFlags::default();
        flags.set_certify(true);
        flags.set_sign(true);
        let mut more = vec![SubpacketData::KeyFlags(flags), SubpacketData::IsPrimary(true)];
        if let Some(days) = days {
            let end = pgp::types::Duration::from_secs(days.saturating_mul(86_400));
            more.push(SubpacketData::KeyExpirationTime(end));
        }
        let config = own_config(&signer, SignatureType::CertPositive, more)?;
        let signature = config.sign_certification(&signer, &key, &Password::empty(), Tag::UserId, &id)?;
        let details = SignedKeyDetails::new(
            Vec::new(),
            Vec::new(),
            vec![SignedUser::new(id, vec![signature])],
            Vec::new(),
        );
        let certificate = SignedPublicKey::new(key.clone(), details, Vec::new());
        certificate.to_armored_string(ArmorOptions::default())
    };
    make().map_err(|error| fail(error.to_string()))
}
