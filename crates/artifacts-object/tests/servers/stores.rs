//! A bucket as a store.

use super::server::Kind;
use super::{PART_BYTES, Stand, content, file};
use kilnyard_artifacts::{ArtifactError, Artifacts, Storage, suite};
use kilnyard_artifacts_object::{Bucket, Outcome};
use kilnyard_model::sha256::Sha256Hex;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Larger than two parts, and not a multiple.
const LARGE_BYTES: usize = 2 * PART_BYTES + 12_345;

pub fn read(bucket: &Bucket, sha256: &Sha256Hex) -> Vec<u8> {
    let mut bytes = Vec::new();
    bucket.open(sha256).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

pub fn the_suite_passes(stand: &Stand) {
    suite::run(&stand.bucket("one"), &stand.bucket("two"));
}

pub fn files_are_sent_in_parts(stand: &Stand) {
    let bucket = stand.bucket("one");
    // The edges of a part, and of no content.
    for (seed, size) in
        [0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, LARGE_BYTES].into_iter().enumerate()
    {
        let (bytes, sha256) = content(seed as u64, size);
        let file = file(&bytes);
        for _ in 0..2 {
            bucket.put_file(file.path(), &sha256).unwrap();
            assert_eq!(bucket.size_bytes(&sha256).unwrap(), Some(size as u64));
        }
        assert!(read(&bucket, &sha256) == bytes, "{size}");
        bucket.remove(&sha256).unwrap();
        bucket.remove(&sha256).unwrap();
        assert_eq!(bucket.size_bytes(&sha256).unwrap(), None);
    }
}

pub fn a_file_of_another_hash_is_not_stored(stand: &Stand) {
    let bucket = stand.bucket("one");
    let other = Sha256Hex::of(b"other");
    for size in [100, LARGE_BYTES] {
        let file = file(&content(1, size).0);
        let error = bucket.put_file(file.path(), &other).unwrap_err();
        assert!(matches!(&error, ArtifactError::Differs { expected, .. } if *expected == other), "{error}");
        assert!(!bucket.contains(&other).unwrap());
    }
    // No parts either.
    assert_eq!(bucket.sweep_incoming(1e12).unwrap().uploads, 0);
    let error = bucket.put_file("/absent/file".as_ref(), &other).unwrap_err();
    assert!(error.to_string().contains("/absent/file"), "{error}");
}

pub fn large_content_is_inserted(stand: &Stand) {
    let bucket = stand.bucket("one");
    let (bytes, sha256) = content(2, LARGE_BYTES);
    let inserted = bucket.insert(&mut &bytes[..], Storage::Compressed).unwrap();
    assert_eq!(inserted, (sha256.clone(), LARGE_BYTES as u64));
    assert!(read(&bucket, &sha256) == bytes);
    // Plain in any case.
    assert_eq!(bucket.size_bytes(&sha256).unwrap(), Some(LARGE_BYTES as u64));
}

pub fn many_are_listed(stand: &Stand) {
    // A page has a thousand.
    const COUNT: usize = 1050;
    let bucket = stand.bucket("one");
    bucket.list(&mut |_| panic!("the bucket is empty")).unwrap();
    let texts: Vec<String> = (0..COUNT).map(|number| format!("artifact {number:04}")).collect();
    std::thread::scope(|scope| {
        for some in texts.chunks(COUNT / 4 + 1) {
            let bucket = &bucket;
            scope.spawn(move || {
                for text in some {
                    bucket.insert(&mut text.as_bytes(), Storage::Plain).unwrap();
                }
            });
        }
    });
    let mut listed = BTreeSet::new();
    bucket
        .list(&mut |artifact| {
            assert_eq!(artifact.size_bytes, 13);
            assert!(artifact.modified_seconds > 1.7e9 && artifact.modified_seconds < 1e10);
            listed.insert(artifact.sha256)
        })
        .unwrap();
    assert_eq!(listed, texts.iter().map(|text| Sha256Hex::of(text.as_bytes())).collect());
    let mut count = 0;
    bucket
        .list(&mut |_| {
            count += 1;
            count < 10
        })
        .unwrap();
    assert_eq!(count, 10);
}

/// The server does what `examine` tests, and nothing of the examination is left.
pub fn little_is_missing(stand: &Stand) {
    let place = stand.place("one");
    let findings = super::open(&place, stand.options()).examine();
    assert_eq!(findings.len(), 13, "{findings:#?}");
    for finding in &findings {
        let is_known = stand.server.kind == Kind::S3Proxy && finding.what == "parts of a removed upload";
        match &finding.outcome {
            Outcome::Works => assert!(!is_known, "{finding}"),
            Outcome::Missing(_) => assert!(is_known, "{finding}"),
            Outcome::Refuse(_) => panic!("{finding}"),
        }
    }
    let mut left = stand.server.files(&place, "/examine/");
    // The part of the removed upload.
    left.retain(|path| stand.server.kind != Kind::S3Proxy || !path.to_string_lossy().contains("/.mpus-"));
    assert_eq!(left, Vec::<PathBuf>::new());
    // A bucket that does not exist.
    let findings = super::open("absent", stand.options()).examine();
    assert!(
        matches!(&findings[..], [finding] if matches!(finding.outcome, Outcome::Refuse(_))),
        "{findings:?}"
    );
}
