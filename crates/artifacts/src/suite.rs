//! The tests of the contract, for every store of artifacts. They panic if a store breaks it.

use crate::{ArtifactError, Artifacts, Storage, copy};
use kilnyard_model::artifact::{Artifact, Media};
use kilnyard_model::sha256::Sha256Hex;
use std::io::{self, Read};

/// Tests two empty stores of the same kind.
pub fn run(one: &dyn Artifacts, other: &dyn Artifacts) {
    artifacts_are_named_by_their_content(one);
    failed_inserts_store_nothing(one);
    copies_are_verified(one, other);
    concurrent_writers_of_the_same_content_succeed(one);
}

fn read(store: &dyn Artifacts, sha256: &Sha256Hex) -> Vec<u8> {
    let mut bytes = Vec::new();
    store.open(sha256).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

fn artifacts_are_named_by_their_content(store: &dyn Artifacts) {
    for (text, storage) in [("", Storage::Plain), ("plain", Storage::Plain), ("packed", Storage::Compressed)]
    {
        let sha256 = Sha256Hex::of(text.as_bytes());
        assert!(!store.contains(&sha256).unwrap(), "{text}");
        assert!(matches!(store.open(&sha256), Err(ArtifactError::Missing(_))), "{text}");
        for _ in 0..2 {
            let kept = store.insert(&mut text.as_bytes(), storage).unwrap();
            assert_eq!(kept, (sha256.clone(), text.len() as u64));
        }
        assert!(store.contains(&sha256).unwrap() && read(store, &sha256) == text.as_bytes());
    }
}

fn failed_inserts_store_nothing(store: &dyn Artifacts) {
    struct Broken(bool);
    impl Read for Broken {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            match std::mem::replace(&mut self.0, true) {
                true => Err(io::Error::other("a broken pipe")),
                false => {
                    bytes[0] = b'x';
                    Ok(1)
                }
            }
        }
    }
    let error = store.insert(&mut Broken(false), Storage::Plain).unwrap_err();
    assert!(error.to_string().contains("a broken pipe"), "{error}");
    assert!(!store.contains(&Sha256Hex::of(b"x")).unwrap());
}

fn copies_are_verified(from: &dyn Artifacts, to: &dyn Artifacts) {
    let (sha256, size_bytes) = from.insert(&mut &b"copied"[..], Storage::Compressed).unwrap();
    let artifact = Artifact { sha256: sha256.clone(), size_bytes, media: Media::Bytes };
    for wrong_bytes in [size_bytes - 1, size_bytes + 1] {
        let wrong = Artifact { size_bytes: wrong_bytes, ..artifact.clone() };
        let error = copy(&wrong, from, to, Storage::Plain).unwrap_err();
        assert!(matches!(error, ArtifactError::Size { .. }), "{error}");
        assert!(!to.contains(&sha256).unwrap());
    }
    copy(&artifact, from, to, Storage::Plain).unwrap();
    copy(&artifact, from, to, Storage::Plain).unwrap();
    assert_eq!(read(to, &sha256), b"copied");
}

fn concurrent_writers_of_the_same_content_succeed(store: &dyn Artifacts) {
    let content = vec![5; 1 << 20];
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| store.insert(&mut &content[..], Storage::Plain).unwrap());
        }
    });
    assert_eq!(read(store, &Sha256Hex::of(&content)), content);
}
