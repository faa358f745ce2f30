//! Keys in tokens with PKCS#11: hardware security modules, smart cards, SoftHSM.

use crate::policy::Pkcs11 as Place;
use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error, RvError};
use cryptoki::mechanism::Mechanism;
use cryptoki::mechanism::eddsa::{EddsaParams, EddsaSignatureScheme};
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, UserType};
use cryptoki::slot::Slot;
use cryptoki::types::AuthPin;
use kilnyard_sign::{DigestSigner, Material, Token, TokenSignature, YardKey, certify, keys_of};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, PoisonError};

/// What precedes a SHA-256 in a signature of RSA.
const DIGEST_INFO_SHA256: [u8; 19] = [
    0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05, 0x00,
    0x04, 0x20,
];
/// What precedes a SHA-512 in a signature of RSA (RFC 8017, 9.2, note 1).
const DIGEST_INFO: [u8; 19] = [
    0x30, 0x51, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x03, 0x05, 0x00,
    0x04, 0x40,
];
/// DER of the curves' names: object identifiers, and the printable string that some tokens use for Ed25519.
const ED25519: [&[u8]; 2] = [&[0x06, 0x03, 0x2b, 0x65, 0x70], b"\x13\x0cedwards25519"];
const P256: &[u8] = &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22];

/// The kinds of keys that can be made in a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewKey {
    /// Ed25519.
    Ed25519,
    /// ECDSA on P-256.
    P256,
    /// RSA with 3072 bits.
    Rsa3072,
}

/// The modules in use: a process initializes each once.
static MODULES: LazyLock<Mutex<BTreeMap<PathBuf, Pkcs11>>> = LazyLock::new(Mutex::default);

/// A private key in a token.
pub struct TokenKey {
    place: Place,
    pin: Option<String>,
    fingerprint: String,
    material: Material,
    open: Mutex<Option<(Session, ObjectHandle)>>,
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenKey({} in {})", self.place.label, self.place.token)
    }
}

/// Opens the key of a token that a certificate is for.
///
/// # Errors
/// A clause: no module, token or key, a wrong PIN, or another key than the certificate's.
pub fn open(place: &Place, pin: Option<&str>, certificate: &[u8]) -> Result<YardKey, String> {
    let (session, key, material) = connect(place, pin)?;
    let keys = keys_of(certificate).map_err(|error| error.to_string())?;
    let fingerprint = keys.into_iter().find(|(_, found)| found.as_ref() == Some(&material));
    let (fingerprint, _) = fingerprint
        .ok_or_else(|| format!("the key {} of the token is not in the certificate", place.label))?;
    let token = TokenKey {
        place: place.clone(),
        pin: pin.map(str::to_owned),
        fingerprint,
        material,
        open: Mutex::new(Some((session, key))),
    };
    YardKey::with_token(certificate, Box::new(token)).map_err(|error| error.to_string())
}

/// Opens the key of a token that signs by X.509.
///
/// # Errors
/// A clause: no module, token or key, a wrong PIN, or a key that pkg_add does not verify.
pub fn open_signer(place: &Place, pin: Option<&str>) -> Result<Box<dyn DigestSigner>, String> {
    let (session, key, material) = connect(place, pin)?;
    match material {
        Material::Rsa { .. } | Material::P256(_) => Ok(Box::new(TokenKey {
            place: place.clone(),
            pin: pin.map(str::to_owned),
            fingerprint: String::new(),
            material,
            open: Mutex::new(Some((session, key))),
        })),
        _ => Err(format!(
            "the key {} of the token is neither RSA nor P-256, which pkg_add verifies",
            place.label
        )),
    }
}

/// Whether a token has a key with the label.
///
/// # Errors
/// A clause: no module or token, or a wrong PIN.
pub fn has(place: &Place, pin: Option<&str>) -> Result<bool, String> {
    let label = Attribute::Label(place.label.clone().into_bytes());
    let found = log_in(place, pin)?.find_objects(&[label, Attribute::Class(ObjectClass::PRIVATE_KEY)]);
    Ok(!found.map_err(|error| said(place, &error))?.is_empty())
}

/// Makes a key in a token.
///
/// # Errors
/// A clause: no module or token, a wrong PIN, or a token that cannot make such a key.
pub fn generate(place: &Place, pin: Option<&str>, kind: NewKey) -> Result<(), String> {
    let session = log_in(place, pin)?;
    let label = place.label.clone().into_bytes();
    let existing =
        session.find_objects(&[Attribute::Label(label.clone())]).map_err(|error| said(place, &error))?;
    if !existing.is_empty() {
        return Err(format!("the token {} has a key {}", place.token, place.label));
    }
    let (mechanism, kind) = match kind {
        NewKey::Ed25519 => (Mechanism::EccEdwardsKeyPairGen, Attribute::EcParams(ED25519[0].to_vec())),
        NewKey::P256 => (Mechanism::EccKeyPairGen, Attribute::EcParams(P256.to_vec())),
        NewKey::Rsa3072 => (Mechanism::RsaPkcsKeyPairGen, Attribute::ModulusBits(3072.into())),
    };
    let public = [Attribute::Token(true), Attribute::Verify(true), Attribute::Label(label.clone()), kind];
    let private = [
        Attribute::Token(true),
        Attribute::Private(true),
        Attribute::Sensitive(true),
        Attribute::Extractable(false),
        Attribute::Sign(true),
        Attribute::Label(label),
    ];
    session.generate_key_pair(&mechanism, &public, &private).map(drop).map_err(|error| said(place, &error))
}

/// Makes the certificate of a key in a token: armored.
///
/// # Errors
/// A clause: no module, token or key, a wrong PIN, or a token that does not sign.
pub fn certificate(
    place: &Place,
    pin: Option<&str>,
    made_seconds: u32,
    user_id: &str,
    days: Option<u32>,
) -> Result<String, String> {
    let (session, key, material) = connect(place, pin)?;
    let token = TokenKey {
        place: place.clone(),
        pin: pin.map(str::to_owned),
        fingerprint: material.fingerprint(made_seconds).map_err(|error| error.to_string())?,
        material: material.clone(),
        open: Mutex::new(Some((session, key))),
    };
    certify(&material, made_seconds, user_id, days, &token).map_err(|error| error.to_string())
}

impl Token for TokenKey {
    fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    fn sign(&self, sha512: &[u8]) -> Result<TokenSignature, String> {
        self.sign_digest(&DIGEST_INFO, sha512)
    }
}

impl DigestSigner for TokenKey {
    fn sign_sha256(&self, sha256: &[u8]) -> Result<TokenSignature, String> {
        self.sign_digest(&DIGEST_INFO_SHA256, sha256)
    }
}

impl TokenKey {
    /// Signs a digest. `info` is what precedes it in a signature of RSA.
    fn sign_digest(&self, info: &[u8], digest: &[u8]) -> Result<TokenSignature, String> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((session, key)) = &*open {
            match sign(session, *key, &self.material, info, digest) {
                Ok(signature) => return Ok(signature),
                // The token was pulled out, and perhaps put in again.
                Err(_) => *open = None,
            }
        }
        let (session, key, material) = connect(&self.place, self.pin.as_deref())?;
        if material != self.material {
            return Err(format!("the token {} has another key {} now", self.place.token, self.place.label));
        }
        let signature =
            sign(&session, key, &material, info, digest).map_err(|error| said(&self.place, &error));
        *open = Some((session, key));
        signature
    }
}

fn sign(
    session: &Session,
    key: ObjectHandle,
    material: &Material,
    info: &[u8],
    digest: &[u8],
) -> Result<TokenSignature, Error> {
    Ok(match material {
        Material::Rsa { .. } => {
            let text = [info, digest].concat();
            TokenSignature::Rsa(session.sign(&Mechanism::RsaPkcs, key, &text)?)
        }
        // ECDSA takes the leftmost bits of a digest (FIPS 186-5, 6.4.1), and not every token does it itself.
        Material::P256(_) => TokenSignature::Pair(session.sign(&Mechanism::Ecdsa, key, &digest[..32])?),
        Material::P384(_) => TokenSignature::Pair(session.sign(&Mechanism::Ecdsa, key, &digest[..48])?),
        // OpenPGP's EdDSA signs the digest as a text.
        Material::Ed25519(_) => {
            let mechanism = Mechanism::Eddsa(EddsaParams::new(EddsaSignatureScheme::Pure));
            TokenSignature::Pair(session.sign(&mechanism, key, digest)?)
        }
    })
}

/// Finds the private key, and the numbers of its public half.
fn connect(place: &Place, pin: Option<&str>) -> Result<(Session, ObjectHandle, Material), String> {
    let session = log_in(place, pin)?;
    let label = || Attribute::Label(place.label.clone().into_bytes());
    let find = |class: ObjectClass| -> Result<ObjectHandle, String> {
        let found = session.find_objects(&[label(), Attribute::Class(class)]);
        match found.map_err(|error| said(place, &error))?[..] {
            [one] => Ok(one),
            [] => Err(format!("the token {} has no key {}", place.token, place.label)),
            _ => Err(format!("the token {} has several keys {}", place.token, place.label)),
        }
    };
    let private = find(ObjectClass::PRIVATE_KEY)?;
    let public = find(ObjectClass::PUBLIC_KEY)?;
    let material = material(&session, public).map_err(|error| said(place, &error))?;
    let material = material.ok_or_else(|| {
        format!(
            "the key {} of the token {} is none of RSA, P-256, P-384 and Ed25519",
            place.label, place.token
        )
    })?;
    Ok((session, private, material))
}

fn material(session: &Session, public: ObjectHandle) -> Result<Option<Material>, Error> {
    let (mut kind, mut curve, mut point, mut modulus, mut exponent) = (None, None, None, None, None);
    let wanted = [AttributeType::KeyType];
    for attribute in session.get_attributes(public, &wanted)? {
        if let Attribute::KeyType(found) = attribute {
            kind = Some(found);
        }
    }
    let wanted = match kind {
        Some(KeyType::RSA) => vec![AttributeType::Modulus, AttributeType::PublicExponent],
        _ => vec![AttributeType::EcParams, AttributeType::EcPoint],
    };
    for attribute in session.get_attributes(public, &wanted)? {
        match attribute {
            Attribute::EcParams(bytes) => curve = Some(bytes),
            Attribute::EcPoint(bytes) => point = Some(bytes),
            Attribute::Modulus(bytes) => modulus = Some(bytes),
            Attribute::PublicExponent(bytes) => exponent = Some(bytes),
            _ => {}
        }
    }
    Ok(match (curve, point, modulus, exponent) {
        (_, _, Some(modulus), Some(exponent)) => Some(Material::Rsa { modulus, exponent }),
        (Some(curve), Some(point), ..) => {
            // A DER octet string around the point, which some tokens leave out.
            let inner = match &point[..] {
                [0x04, length, rest @ ..] if usize::from(*length) == rest.len() => rest.to_vec(),
                _ => point,
            };
            match &curve[..] {
                curve if ED25519.contains(&curve) && inner.len() == 32 => Some(Material::Ed25519(inner)),
                P256 if inner.len() == 65 => Some(Material::P256(inner)),
                P384 if inner.len() == 97 => Some(Material::P384(inner)),
                _ => None,
            }
        }
        _ => None,
    })
}

fn log_in(place: &Place, pin: Option<&str>) -> Result<Session, String> {
    let mut module = module(place)?;
    let mut slot = slot(&module, place)?;
    if slot.is_none() {
        // Some modules look for tokens only when they start.
        forget(place, module);
        module = self::module(place)?;
        slot = self::slot(&module, place)?;
    }
    let slot = slot.ok_or_else(|| format!("the token {} is not there", place.token))?;
    let session = module.open_rw_session(slot).map_err(|error| said(place, &error))?;
    let pin = pin.map(|pin| AuthPin::new(pin.to_owned().into_boxed_str()));
    match session.login(UserType::User, pin.as_ref()) {
        Ok(()) | Err(Error::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => Ok(session),
        Err(Error::Pkcs11(RvError::PinIncorrect, _)) => {
            Err(format!("the token {} refuses the PIN", place.token))
        }
        Err(Error::Pkcs11(RvError::PinLocked, _)) => {
            Err(format!("the token {} has locked the PIN", place.token))
        }
        Err(error) => Err(said(place, &error)),
    }
}

fn slot(module: &Pkcs11, place: &Place) -> Result<Option<Slot>, String> {
    let slots = module.get_slots_with_token().map_err(|error| said(place, &error))?;
    let is_it =
        |slot: &Slot| module.get_token_info(*slot).is_ok_and(|info| info.label().trim_end() == place.token);
    Ok(slots.into_iter().find(is_it))
}

/// Ends a module, with all sessions.
fn forget(place: &Place, module: Pkcs11) {
    MODULES.lock().unwrap_or_else(PoisonError::into_inner).remove(&place.module);
    // What fails here fails again when the module is opened.
    let _ = module.finalize();
}

fn module(place: &Place) -> Result<Pkcs11, String> {
    let mut modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(module) = modules.get(&place.module) {
        return Ok(module.clone());
    }
    let failed = |error: Error| format!("the module {} cannot be used: {error}", place.module.display());
    let module = Pkcs11::new(&place.module).map_err(failed)?;
    module.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK)).map_err(failed)?;
    modules.insert(place.module.clone(), module.clone());
    Ok(module)
}

fn said(place: &Place, error: &Error) -> String {
    format!("the token {} says: {error}", place.token)
}
