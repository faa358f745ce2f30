use crate::fixture::*;
use kilnyard_sign::Keyring;
use kilnyard_signer::account::Account;
use kilnyard_signer::memory::Memory;
use kilnyard_signer::message::{Answer, Ask, Generation, Rule};
use std::fs;

fn keyring(signer: &mut Signer) -> Keyring {
    let Answer::Keys { armored, .. } = signer.ask(Ask::Keys) else { panic!() };
    Keyring::from_bytes(armored.as_bytes()).unwrap()
}

#[test]
fn the_account_is_sealed_at_intervals() {
    let mut signer = Signer::new();
    for number in 0..70 {
        signed(&signer.publish(&[deb("hello", &format!("1.{number}"))]));
    }
    let keyring = keyring(&mut signer);
    let account = Account::check(&signer.account(), Some(&keyring)).unwrap();
    assert_eq!((account.lines.len(), account.sealed), (71, 64));
    let other = Keyring::from_bytes(
        kilnyard_sign::YardKey::generate("Other <o@example.org>")
            .unwrap()
            .public_armored()
            .unwrap()
            .as_bytes(),
    );
    let fault = Account::check(&signer.account(), Some(&other.unwrap())).unwrap_err();
    assert!(fault.reason.contains("is no seal of the signer"), "{fault}");
}

/// A kill between the database and the file leaves the file behind; one within the write leaves a part of a line.
#[test]
fn a_killed_signer_continues_its_account() {
    let mut signer = Signer::new();
    signed(&signer.publish(&[deb("hello", "1.0")]));
    signed(&signer.publish(&[deb("hello", "1.1")]));
    let whole = signer.account();
    let path = signer.folder.path().join("account");
    for cut in [0, 1, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..cut]).unwrap();
        signer.again();
        assert_eq!(signer.account(), whole, "cut at {cut}");
    }
    signed(&signer.publish(&[deb("hello", "1.2")]));
    assert!(signer.account().starts_with(&whole));
    Account::check(&signer.account(), None).unwrap();
}

#[test]
fn a_changed_account_is_not_continued() {
    let mut signer = Signer::new();
    signed(&signer.publish(&[deb("hello", "1.0")]));
    signed(&signer.publish(&[deb("hello", "1.1")]));
    let whole = signer.account();
    let spare = Signer::new();
    let folder = std::mem::replace(&mut signer, spare).folder;
    for changed in [whole.replace("hello", "jello"), whole.lines().last().unwrap().to_owned() + "\n"] {
        fs::write(folder.path().join("account"), changed).unwrap();
        let error = Memory::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains("failed") || error.contains("the account"), "{error}");
    }
}

/// A machine that takes over has the account and the keys, not the memory.
#[test]
fn a_copy_of_the_account_continues_where_the_repository_is() {
    let mut signer = Signer::new();
    let (old, new) = ([deb("hello", "1.0")], [deb("hello", "1.1"), deb("zlib", "1.0")]);
    signed(&signer.publish(&old));
    let old_texts = texts(&old, signer.now);
    signed(&signer.publish(&new));
    let new_texts = texts(&new, signer.now);
    let keyring = keyring(&mut signer);
    let mut other = Signer::new();
    for name in ["account", "keys/main.asc"] {
        fs::copy(signer.folder.path().join(name), other.folder.path().join(name)).unwrap();
    }
    other.now = signer.now;
    other.again();
    assert_eq!(
        other.ask(Ask::Memory { series: SERIES.to_owned() }),
        Answer::Memory { indexes: Default::default() }
    );
    let key = kilnyard_sign::YardKey::read(&other.folder.path().join("keys/main.asc")).unwrap();
    let adopt = |texts: &Texts| Ask::Adopt {
        generation: generation(texts),
        signature: key.sign_detached(texts.release.as_bytes()).unwrap(),
    };
    // An older generation is genuine, and yet not the last one.
    is_refused(&other.ask(adopt(&old_texts)), Rule::Text, "not the one that the account ends with");
    let mut forged = adopt(&new_texts);
    if let Ask::Adopt { signature, .. } = &mut forged {
        *signature = signature.replace("A", "B");
    }
    is_refused(&other.ask(forged), Rule::Text, "not signed with a key of the repository");
    assert_eq!(other.ask(adopt(&new_texts)), Answer::Adopted);
    is_refused(&other.ask(adopt(&new_texts)), Rule::Policy, "the signer remembers the series");
    is_refused(&other.publish(&old), Rule::Replayed, "replaced");
    signed(&other.publish(&new));
    assert!(other.account().starts_with(&signer.account()));
    Account::check(&other.account(), Some(&keyring)).unwrap();
}

/// A series that the account does not know is taken over while the account is new; later, a person approves it.
#[test]
fn an_old_generation_of_an_unknown_series_needs_an_approval() {
    let other_series = |texts: Texts| {
        let release = texts.release.replace(SERIES, "older");
        Ask::Adopt {
            generation: Generation { series: "older".to_owned(), text: release, ..generation(&texts) },
            signature: String::new(),
        }
    };
    let signed_by = |ask: Ask, signer: &Signer| {
        let key = kilnyard_sign::YardKey::read(&signer.folder.path().join("keys/main.asc")).unwrap();
        let Ask::Adopt { generation, .. } = ask else { panic!() };
        let signature = key.sign_detached(generation.text.as_bytes()).unwrap();
        Ask::Adopt { generation, signature }
    };
    let hello = [deb("hello", "1.0")];
    let mut signer = Signer::new();
    signed(&signer.publish(&hello));
    let ask = signed_by(other_series(texts(&hello, signer.now)), &signer);
    signer.now += 86_400;
    let answer = signer.ask(ask.clone());
    is_refused(&answer, Rule::Approval, "the account knows nothing of older");
    let id = refused(&answer)[0].id.clone().unwrap();
    assert!(signer.service.memory().approve(signer.now, &id, "person").unwrap());
    assert_eq!(signer.ask(ask), Answer::Adopted);
    // Within a day, it is taken as it is.
    let mut signer = Signer::new();
    signed(&signer.publish(&hello));
    let ask = signed_by(other_series(texts(&hello, signer.now)), &signer);
    assert_eq!(signer.ask(ask), Answer::Adopted);
}

#[test]
fn two_processes_do_not_continue_one_account() {
    let signer = Signer::new();
    let error = Memory::open(signer.folder.path()).unwrap_err().to_string();
    assert!(error.contains("another process has it"), "{error}");
}
