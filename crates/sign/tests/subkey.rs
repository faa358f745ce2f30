//! Subkeys that a certificate claims wrongly. They are made with rPGP, because ordinary programs do not make them.

use kilnyard_sign::{Keyring, YardKey};
use pgp::composed::{
    ArmorOptions, KeyType, SecretKeyParamsBuilder, SignedPublicKey, SignedPublicSubKey, SignedSecretKey,
    SubkeyParamsBuilder,
};
use pgp::packet::{KeyFlags, SignatureConfig, SignatureType, Subpacket, SubpacketData};
use pgp::ser::Serialize;
use pgp::types::{KeyDetails, Password, Timestamp};
use rand::rngs::OsRng;

fn key_with_signing_subkey(user: &str) -> SignedSecretKey {
    let subkey =
        SubkeyParamsBuilder::default().key_type(KeyType::Ed25519Legacy).can_sign(true).build().unwrap();
    SecretKeyParamsBuilder::default()
        .key_type(KeyType::Ed25519Legacy)
        .can_certify(true)
        .primary_user_id(user.to_owned())
        .subkey(subkey)
        .build()
        .unwrap()
        .generate(OsRng)
        .unwrap()
}

/// A text signed by the subkey.
fn message_by(key: &SignedSecretKey) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    std::fs::write(&path, key.to_armored_string(ArmorOptions::default()).unwrap()).unwrap();
    YardKey::read(&path).unwrap().sign_clear("text\n").unwrap()
}

/// The owner's certificate with a subkey of another key, and a binding signature by the owner with this data.
fn claim(owner: &SignedSecretKey, other: &SignedSecretKey, data: Vec<SubpacketData>) -> SignedPublicKey {
    let mut certificate = owner.to_public_key();
    let subkey = other.secret_subkeys[0].key.public_key().clone();
    let primary = &owner.primary_key;
    let mut config = SignatureConfig::from_key(OsRng, primary, SignatureType::SubkeyBinding).unwrap();
    config.hashed_subpackets = [
        SubpacketData::SignatureCreationTime(Timestamp::now()),
        SubpacketData::IssuerFingerprint(primary.fingerprint()),
    ]
    .into_iter()
    .chain(data)
    .map(|data| Subpacket::regular(data).unwrap())
    .collect();
    let binding =
        config.sign_subkey_binding(primary, primary.public_key(), &Password::empty(), &subkey).unwrap();
    certificate.public_subkeys = vec![SignedPublicSubKey::new(subkey, vec![binding])];
    certificate
}

fn signing() -> SubpacketData {
    let mut flags = KeyFlags::default();
    flags.set_sign(true);
    SubpacketData::KeyFlags(flags)
}

#[track_caller]
fn refused(certificate: &SignedPublicKey, message: &str, words: &str) {
    let ring = Keyring::from_bytes(&certificate.to_bytes().unwrap()).unwrap();
    let error = ring.verify_clearsigned(message.as_bytes()).unwrap_err();
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn an_own_subkey_counts() {
    let archive = key_with_signing_subkey("Archive");
    let ring = Keyring::from_bytes(&archive.to_public_key().to_bytes().unwrap()).unwrap();
    let verified = ring.verify_clearsigned(message_by(&archive).as_bytes()).unwrap();
    assert_ne!(verified.signers[0].key.fingerprint, verified.signers[0].key.primary_fingerprint);
}

#[test]
fn a_foreign_subkey_needs_a_back_signature() {
    let (archive, thief) = (key_with_signing_subkey("Archive"), key_with_signing_subkey("Thief"));
    let message = message_by(&archive);
    let words = "no valid back signature for its primary key";
    refused(&claim(&thief, &archive, vec![signing()]), &message, words);

    // A copy of its back signature for its own primary key is not valid for another.
    let back = archive.secret_subkeys[0].signatures[0].embedded_signature().unwrap().clone();
    let copied = vec![signing(), SubpacketData::EmbeddedSignature(Box::new(back))];
    refused(&claim(&thief, &archive, copied), &message, words);
}

#[test]
fn a_subkey_for_another_use_does_not_sign() {
    let archive = key_with_signing_subkey("Archive");
    let message = message_by(&archive);
    let mut flags = KeyFlags::default();
    flags.set_authentication(true);
    for data in [vec![SubpacketData::KeyFlags(flags)], vec![]] {
        refused(&claim(&archive, &archive, data), &message, "does not allow it to sign data");
    }
}
