//! Uploads and downloads by machines that have no credentials: with a plain HTTP client.

use super::server::Kind;
use super::stores::read;
use super::{PART_BYTES, Stand, content};
use kilnyard_artifacts::{ArtifactError, Artifacts, Folder, Storage};
use kilnyard_artifacts_object::{Bucket, Part, Swept, Upload};
use kilnyard_model::sha256::Sha256Hex;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
/// Later than every time.
const NEVER_SECONDS: f64 = 1e12;

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder().http_status_as_error(false).build().into()
}

fn get(url: &str) -> (u16, Vec<u8>) {
    let mut answer = agent().get(url).call().unwrap();
    (answer.status().as_u16(), answer.body_mut().read_to_vec().unwrap())
}

/// The status of the answer, and its `ETag`.
fn put(url: &str, headers: &[(String, String)], content: &[u8]) -> (u16, String) {
    let request = headers.iter().fold(agent().put(url), |request, (name, value)| request.header(name, value));
    let answer = request.send(content).unwrap();
    let etag = answer.headers().get("etag").map(|etag| etag.to_str().unwrap().to_owned());
    (answer.status().as_u16(), etag.unwrap_or_default())
}

fn whole(upload: Upload) -> (String, Vec<(String, String)>) {
    match upload {
        Upload::Whole { url, headers } => (url, headers),
        Upload::Parts { .. } => panic!("{upload:?}"),
    }
}

fn parts(upload: Upload) -> (String, Vec<Part>) {
    match upload {
        Upload::Parts { id, parts, .. } => (id, parts),
        Upload::Whole { .. } => panic!("{upload:?}"),
    }
}

/// Sends the parts of content, and returns their tags.
fn send(parts: &[Part], content: &[u8]) -> Vec<String> {
    let send = |part: &Part| {
        let end = part.offset_bytes + part.size_bytes;
        let (status, etag) =
            put(&part.url, &part.headers, &content[part.offset_bytes as usize..end as usize]);
        assert_eq!(status, 200);
        etag
    };
    parts.iter().map(send).collect()
}

fn folder() -> (tempfile::TempDir, Folder) {
    let folder = tempfile::tempdir().unwrap();
    let store = Folder::at(folder.path());
    (folder, store)
}

fn uploaded(stand: &Stand, place: &str) -> Vec<PathBuf> {
    stand.server.files(place, "/incoming/")
}

/// A part of an upload that is removed. S3Proxy keeps it where it does no harm, which `examine` reports.
fn refuses_late(stand: &Stand, url: &str) {
    let (status, _) = put(url, &[], b"late");
    assert_eq!((400..500).contains(&status), stand.server.kind != Kind::S3Proxy, "{status}");
}

pub fn a_presigned_read(stand: &Stand) {
    let bucket = stand.bucket("one");
    let (sha256, _) = bucket.insert(&mut &b"read by others"[..], Storage::Plain).unwrap();
    let url = bucket.read_url(&sha256, HOUR).unwrap();
    assert_eq!(get(&url), (200, b"read by others".to_vec()));
    let (bare, _) = url.split_once('?').unwrap();
    assert!((400..500).contains(&get(bare).0));
    let missing = bucket.read_url(&Sha256Hex::of(b"missing"), HOUR).unwrap();
    assert_eq!(get(&missing).0, 404);
    let expired = bucket.read_url(&sha256, Duration::from_secs(1)).unwrap();
    std::thread::sleep(Duration::from_secs(3));
    assert!((400..500).contains(&get(&expired).0));
    for wrong in [Duration::ZERO, HOUR * 24 * 8] {
        let error = bucket.read_url(&sha256, wrong).unwrap_err();
        assert!(error.to_string().contains("a week"), "{error}");
    }
}

pub fn a_presigned_upload(stand: &Stand) {
    let place = stand.place("one");
    let bucket = super::open(&place, stand.options());
    let (bytes, sha256) = content(1, 1000);
    let (url, headers) = whole(bucket.upload("one", &sha256, 1000, HOUR).unwrap());
    // Other content of the same size, with and without the header.
    let other = content(2, 1000).0;
    assert!((400..500).contains(&put(&url, &headers, &other).0));
    assert!((400..500).contains(&put(&url, &[], &other).0));
    assert!((400..500).contains(&put(&url.replace("one/incoming", "one/sha256"), &headers, &bytes).0));
    assert_eq!(uploaded(stand, &place), Vec::<PathBuf>::new());
    // It may be repeated.
    for _ in 0..2 {
        assert_eq!(put(&url, &headers, &bytes).0, 200);
    }
    assert!(!bucket.contains(&sha256).unwrap());
    let (_folder, into) = folder();
    bucket.adopt("one", &sha256, 1000, &into).unwrap();
    assert!(read(&bucket, &sha256) == bytes && fs::read(into.path(&sha256)).unwrap() == bytes);
    assert_eq!(uploaded(stand, &place), Vec::<PathBuf>::new());
    // Adopted again: it is there, and is read for another folder.
    let (_folder, another) = folder();
    bucket.adopt("one", &sha256, 1000, &another).unwrap();
    assert_eq!(fs::read(another.path(&sha256)).unwrap(), bytes);
    // An expired upload.
    let (url, headers) = whole(bucket.upload("two", &sha256, 1000, Duration::from_secs(1)).unwrap());
    std::thread::sleep(Duration::from_secs(3));
    assert!((400..500).contains(&put(&url, &headers, &bytes).0));
}

pub fn a_presigned_upload_in_parts(stand: &Stand) {
    let place = stand.place("one");
    let bucket = super::open(&place, stand.options());
    let size = 2 * PART_BYTES + 5;
    let (bytes, sha256) = content(3, size);
    let (id, list) = parts(bucket.upload("one", &sha256, size as u64, HOUR).unwrap());
    assert_eq!(list.iter().map(|part| part.size_bytes).collect::<Vec<_>>(), [5 << 20, 5 << 20, 5]);
    let etags = send(&list, &bytes);
    let (_folder, into) = folder();
    let error = bucket.adopt("one", &sha256, size as u64, &into).unwrap_err();
    assert!(matches!(error, ArtifactError::Missing(_)), "{error}");
    for _ in 0..2 {
        bucket.finish_parts("one", &sha256, &id, &etags).unwrap();
    }
    bucket.adopt("one", &sha256, size as u64, &into).unwrap();
    assert!(read(&bucket, &sha256) == bytes && fs::read(into.path(&sha256)).unwrap() == bytes);
    assert_eq!(uploaded(stand, &place), Vec::<PathBuf>::new());
    // One that is given up.
    let (bytes, sha256) = content(4, size);
    let (id, list) = parts(bucket.upload("two", &sha256, size as u64, HOUR).unwrap());
    let etags = send(&list[..1], &bytes);
    for _ in 0..2 {
        bucket.abort_parts("two", &sha256, &id).unwrap();
    }
    assert!(bucket.finish_parts("two", &sha256, &id, &etags).is_err());
    refuses_late(stand, &list[1].url);
    assert!(bucket.finish_parts("two", &sha256, &id, &[]).is_err());
}

pub fn wrong_uploads_are_not_adopted(stand: &Stand) {
    let place = stand.place("one");
    let bucket = super::open(&place, stand.options());
    let size = PART_BYTES + 5;
    let ((bytes, sha256), (_folder, into)) = (content(5, size), folder());
    // The content of parts is verified only now.
    let upload = |content: &[u8]| {
        let (id, list) = parts(bucket.upload("one", &sha256, size as u64, HOUR).unwrap());
        let etags = send(&list, content);
        bucket.finish_parts("one", &sha256, &id, &etags).unwrap();
    };
    let check = |bucket: &Bucket| {
        assert!(!bucket.contains(&sha256).unwrap() && into.find(&sha256).is_none());
        assert_eq!(uploaded(stand, &place), Vec::<PathBuf>::new());
    };
    upload(&content(6, size).0);
    let error = bucket.adopt("one", &sha256, size as u64, &into).unwrap_err();
    assert!(matches!(error, ArtifactError::Differs { .. }), "{error}");
    check(&bucket);
    // The right content, of another size than was agreed.
    upload(&bytes);
    let error = bucket.adopt("one", &sha256, size as u64 - 1, &into).unwrap_err();
    assert!(matches!(error, ArtifactError::Size { .. }), "{error}");
    check(&bucket);
    // Nothing at all.
    let error = bucket.adopt("one", &sha256, size as u64, &into).unwrap_err();
    assert!(matches!(error, ArtifactError::Missing(_)), "{error}");
    // Another token sees nothing of it.
    upload(&bytes);
    let error = bucket.adopt("two", &sha256, size as u64, &into).unwrap_err();
    assert!(matches!(error, ArtifactError::Missing(_)), "{error}");
    bucket.adopt("one", &sha256, size as u64, &into).unwrap();
    assert!(bucket.contains(&sha256).unwrap());
}

pub fn abandoned_uploads_are_removed(stand: &Stand) {
    let place = stand.place("one");
    let bucket = super::open(&place, stand.options());
    let (kept, _) = bucket.insert(&mut &b"kept"[..], Storage::Plain).unwrap();
    let (bytes, sha256) = content(7, 2 * PART_BYTES);
    let (url, headers) = whole(bucket.upload("one", &Sha256Hex::of(b"small"), 5, HOUR).unwrap());
    assert_eq!(put(&url, &headers, b"small").0, 200);
    let (_, list) = parts(bucket.upload("two", &sha256, bytes.len() as u64, HOUR).unwrap());
    send(&list[..1], &bytes);
    // Another user of the same server's bucket.
    let other =
        kilnyard_artifacts_object::Address::parse(&format!("s3://{place}/other"), stand.options()).unwrap();
    let other = Bucket::open(other, &std::env::temp_dir()).unwrap();
    assert_eq!(other.sweep_incoming(NEVER_SECONDS).unwrap(), Swept::default());
    assert_eq!(bucket.sweep_incoming(1.7e9).unwrap(), Swept::default());
    assert_eq!(bucket.sweep_incoming(NEVER_SECONDS).unwrap(), Swept { objects: 1, uploads: 1 });
    assert_eq!(bucket.sweep_incoming(NEVER_SECONDS).unwrap(), Swept::default());
    assert_eq!(uploaded(stand, &place), Vec::<PathBuf>::new());
    assert!(bucket.contains(&kept).unwrap());
    refuses_late(stand, &list[1].url);
}

pub fn arguments_are_checked(stand: &Stand) {
    let bucket = stand.bucket("one");
    let sha256 = Sha256Hex::of(b"x");
    let error = bucket.upload("one", &sha256, u64::MAX, HOUR).unwrap_err();
    assert!(error.to_string().contains("5000 GiB"), "{error}");
    for wrong in ["", &"a".repeat(1025)] {
        let error = bucket.finish_parts("one", &sha256, "id", &[wrong.to_owned()]).unwrap_err();
        assert!(error.to_string().contains("tag"), "{error}");
    }
    for wrong in ["", "..", "a/b", "a b", "ä", &"a".repeat(65)] {
        let error = bucket.upload(wrong, &sha256, 1, HOUR).unwrap_err();
        assert!(error.to_string().contains("token"), "{error}");
        assert!(bucket.finish_parts(wrong, &sha256, "id", &["etag".to_owned()]).is_err());
        assert!(bucket.abort_parts(wrong, &sha256, "id").is_err());
        assert!(bucket.adopt(wrong, &sha256, 1, &Folder::at("/absent".as_ref())).is_err());
    }
}
