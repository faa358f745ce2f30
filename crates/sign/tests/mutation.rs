//! Random changes of a message, a signature or a keyring never cause a panic, and never give another text.

use std::sync::LazyLock;

use kilnyard_sign::{Keyring, YardKey};
use proptest::prelude::*;

const TEXT: &str = "Origin: Yard\nSuite: stable\n\n- dash\nFrom here\n";

struct Signed {
    ring: Keyring,
    certificate: Vec<u8>,
    armored: Vec<u8>,
    message: Vec<u8>,
    signature: Vec<u8>,
}

static SIGNED: LazyLock<Signed> = LazyLock::new(|| {
    let key = YardKey::generate("Yard <yard@example.org>").unwrap();
    Signed {
        ring: key.keyring(),
        certificate: key.public_binary().unwrap(),
        armored: key.public_armored().unwrap().into_bytes(),
        message: key.sign_clear(TEXT).unwrap().into_bytes(),
        signature: key.sign_detached(TEXT.as_bytes()).unwrap().into_bytes(),
    }
});

#[derive(Debug, Clone)]
enum Change {
    Set(prop::sample::Index, u8),
    Flip(prop::sample::Index, u8),
    Remove(prop::sample::Index, u8),
    Insert(prop::sample::Index, Vec<u8>),
    Truncate(prop::sample::Index),
    Repeat(prop::sample::Index, prop::sample::Index),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let place = any::<prop::sample::Index>;
    let change = prop_oneof![
        (place(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        (place(), 0..8u8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        (place(), any::<u8>()).prop_map(|(at, count)| Change::Remove(at, count)),
        (place(), prop::collection::vec(any::<u8>(), 1..20)).prop_map(|(at, new)| Change::Insert(at, new)),
        place().prop_map(Change::Truncate),
        (place(), place()).prop_map(|(from, to)| Change::Repeat(from, to)),
    ];
    prop::collection::vec(change, 1..4)
}

fn apply(original: &[u8], changes: &[Change]) -> Vec<u8> {
    let mut bytes = original.to_vec();
    for change in changes {
        if bytes.is_empty() {
            return bytes;
        }
        let length = bytes.len();
        match change {
            Change::Set(at, byte) => bytes[at.index(length)] = *byte,
            Change::Flip(at, bit) => bytes[at.index(length)] ^= 1 << bit,
            Change::Remove(at, count) => {
                let at = at.index(length);
                bytes.drain(at..length.min(at + usize::from(*count)));
            }
            Change::Insert(at, new) => {
                let at = at.index(length);
                bytes.splice(at..at, new.iter().copied());
            }
            Change::Truncate(at) => bytes.truncate(at.index(length)),
            Change::Repeat(from, to) => {
                let (from, to) = (from.index(length), to.index(length));
                let part = bytes[from.min(to)..from.max(to)].to_vec();
                bytes.splice(from..from, part);
            }
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn a_changed_message_gives_the_same_text_or_an_error(changes in changes()) {
        let message = apply(&SIGNED.message, &changes);
        if let Ok(verified) = SIGNED.ring.verify_clearsigned(&message) {
            prop_assert_eq!(verified.text, TEXT.as_bytes());
        }
    }

    #[test]
    fn a_changed_signature_does_not_panic(changes in changes()) {
        let signature = apply(&SIGNED.signature, &changes);
        let _ = SIGNED.ring.verify_detached(TEXT.as_bytes(), &signature);
    }

    #[test]
    fn a_changed_ring_does_not_panic(changes in changes()) {
        for original in [&SIGNED.certificate, &SIGNED.armored] {
            if let Ok(ring) = Keyring::from_bytes(&apply(original, &changes)) {
                let _ = ring.verify_clearsigned(&SIGNED.message);
            }
        }
    }

    #[test]
    fn a_ring_does_not_verify_a_changed_text(changes in changes()) {
        let text = apply(TEXT.as_bytes(), &changes);
        let verified = SIGNED.ring.verify_detached(&text, &SIGNED.signature);
        prop_assert_eq!(verified.is_ok(), text == TEXT.as_bytes());
    }

    #[test]
    fn a_changed_binary_signature_does_not_panic(changes in changes(), text in any::<Vec<u8>>()) {
        // A certificate has packets of every kind that a signature file must not contain.
        let packets = apply(&SIGNED.certificate, &changes);
        let _ = SIGNED.ring.verify_detached(&text, &packets);
    }

    #[test]
    fn any_text_survives_signing(text in "[ -~\u{e4}\n]{0,80}") {
        let key = LazyLock::force(&KEY);
        let message = key.sign_clear(&text).unwrap();
        let verified = key.keyring().verify_clearsigned(message.as_bytes()).unwrap();
        let mut expected = String::new();
        for line in text.lines() {
            expected.push_str(line.trim_end_matches([' ', '\t', '\r']));
            expected.push('\n');
        }
        if expected == "\n" {
            expected.clear();
        }
        prop_assert_eq!(String::from_utf8(verified.text).unwrap(), expected);
    }
}

static KEY: LazyLock<YardKey> = LazyLock::new(|| YardKey::generate("Yard").unwrap());
