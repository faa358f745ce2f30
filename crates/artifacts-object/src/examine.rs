//! Tests what Kilnyard relies on against the server of a bucket.

use crate::Bucket;
use crate::address::Place;
use crate::failure::Failure;
use crate::send::Parts;
use crate::sweep::answered;
use crate::upload::{CHECKSUM, checksum, signed_headers};
use kilnyard_artifacts::{Finding, Outcome};
use kilnyard_model::sha256::Sha256Hex;
use object_store::path::Path as Name;
use object_store::signer::{Method, SignedUrlOptions};
use object_store::{ObjectStoreExt, PutMode, PutPayload};
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::time::Duration;

/// The content of most objects here.
const CONTENT: &[u8] = b"kilnyard examines this bucket";
/// Another content of the same size.
const OTHER: &[u8] = b"kilnyard EXAMINES this bucket";
/// The range of bytes that is read alone.
const RANGE: Range<u64> = 9..17;
/// The least size of a part that S3 allows.
const PART_BYTES: usize = 5 << 20;
/// How long presigned URLs are valid here.
const VALID: Duration = Duration::from_secs(300);
/// Later than every time.
const NEVER_SECONDS: f64 = 1e12;

type Found = Result<Outcome, Failure>;
type Headers = Vec<(&'static str, String)>;

fn missing(consequence: &str) -> Found {
    Ok(Outcome::Missing(consequence.to_owned()))
}

fn refuse(reason: &str) -> Found {
    Ok(Outcome::Refuse(reason.to_owned()))
}

impl Bucket {
    /// Tests what Kilnyard relies on: some seconds, some megabytes, and about forty requests, on objects below
    /// `PREFIX/examine/`, which are removed again. If the bucket cannot be written and read at all, that is the only finding.
    pub fn examine(&self) -> Vec<Finding> {
        let id = RandomState::new().hash_one(CONTENT);
        let examination = Examination { bucket: self, folder: format!("examine/{id:016x}") };
        let findings = examination.run();
        // What cannot be removed now is removed by `sweep_incoming`.
        let _ = examination.clean();
        findings
    }
}

struct Examination<'a> {
    bucket: &'a Bucket,
    folder: String,
}

impl Examination<'_> {
    fn run(&self) -> Vec<Finding> {
        let found = |what: &'static str, found: Found| {
            let outcome = found
                .unwrap_or_else(|failure| Outcome::Refuse(failure.words(&self.bucket.address.secrets())));
            Finding { what, outcome }
        };
        let first = found("writing and reading", self.writes_and_reads());
        if first.outcome != Outcome::Works {
            return vec![first];
        }
        vec![
            first,
            found("listing what was just written", self.lists()),
            found("reading a range", self.reads_ranges()),
            found("writing only what is missing", self.writes_once()),
            found("uploads in parts", self.joins_parts()),
            found("listing of unfinished uploads", self.lists_unfinished()),
            found("presigned URLs", self.signs()),
            found("presigned uploads of other content", self.refuses_other_content()),
            found("parts with a wrong checksum", self.refuses_wrong_parts()),
            found("parts of a removed upload", self.refuses_late_parts()),
            found("expired URLs", self.refuses_expired()),
            found("uploads without a signature", self.refuses_unsigned()),
            found("removal", self.removes()),
        ]
    }

    fn clean(&self) -> Result<(), Failure> {
        let mut names = Vec::new();
        self.bucket.each_object(self.bucket.under(&self.folder), &mut |object| {
            names.push(object.location.clone());
            true
        })?;
        names.into_iter().try_for_each(|name| self.bucket.delete(name))?;
        match self.bucket.address.place {
            Place::S3 { .. } => {
                self.own_unfinished()?.into_iter().try_for_each(|(name, id)| self.bucket.abort(name, &id))
            }
            _ => Ok(()),
        }
    }

    fn own_unfinished(&self) -> Result<Vec<(Name, String)>, Failure> {
        let below = self.bucket.under(&self.folder);
        let mut unfinished = self.bucket.unfinished(NEVER_SECONDS)?;
        unfinished.retain(|(name, _)| name.prefix_matches(&below));
        Ok(unfinished)
    }

    fn name(&self, last: &str) -> Name {
        self.bucket.under(&format!("{}/{last}", self.folder))
    }

    fn is_s3(&self) -> bool {
        matches!(self.bucket.address.place, Place::S3 { .. })
    }

    fn put(&self, last: &str, content: &'static [u8], mode: PutMode) -> Result<(), Failure> {
        self.bucket.put(self.name(last), PutPayload::from_static(content), mode)
    }

    fn read(&self, last: &str) -> Result<Vec<u8>, Failure> {
        let (objects, name) = (self.bucket.backend.objects.clone(), self.name(last));
        let read = async move { objects.get(&name).await?.bytes().await };
        Ok(self.bucket.link.wait(self.bucket.patience(), read)?.to_vec())
    }

    fn exists(&self, last: &str) -> Result<bool, Failure> {
        Ok(self.bucket.size_of(self.name(last))?.is_some())
    }

    fn writes_and_reads(&self) -> Found {
        self.put("one", CONTENT, PutMode::Overwrite)?;
        match self.read("one")? == CONTENT {
            true => Ok(Outcome::Works),
            false => refuse("what was read differs from what was written"),
        }
    }

    fn lists(&self) -> Found {
        let mut is_listed = false;
        let one = self.name("one");
        self.bucket.each_object(self.bucket.under(&self.folder), &mut |object| {
            is_listed |= object.location == one && object.size == CONTENT.len() as u64;
            true
        })?;
        match is_listed {
            true => Ok(Outcome::Works),
            false => missing("new objects are found later, so a clean-up leaves some until the next"),
        }
    }

    fn reads_ranges(&self) -> Found {
        let (objects, name) = (self.bucket.backend.objects.clone(), self.name("one"));
        let read = async move { objects.get_range(&name, RANGE).await };
        match self.bucket.link.wait(self.bucket.patience(), read) {
            Ok(bytes) if bytes[..] == CONTENT[RANGE.start as usize..RANGE.end as usize] => Ok(Outcome::Works),
            Ok(_) => refuse("the bytes are others"),
            Err(Failure::Store(_)) => missing("a download fails if its connection breaks"),
            Err(failure) => Err(failure),
        }
    }

    fn writes_once(&self) -> Found {
        match self.put("one", OTHER, PutMode::Create) {
            Err(failure) if failure.is_present() => match self.read("one")? == CONTENT {
                true => Ok(Outcome::Works),
                false => refuse("the server refused to overwrite an object, and overwrote it"),
            },
            Ok(()) => missing("two writers of the same artifact both write it, with the same content"),
            Err(failure) if failure.is_unknown() => {
                missing("the same content is sent twice, the second time without this condition")
            }
            Err(failure) => Err(failure),
        }
    }

    fn joins_parts(&self) -> Found {
        let mut parts = Parts::begin(self.bucket, self.name("parts"))?;
        parts.send(vec![1; PART_BYTES])?;
        parts.send(vec![2])?;
        if self.exists("parts")? {
            return refuse("an unfinished upload can be read");
        }
        parts.finish()?;
        let size = self.bucket.size_of(self.name("parts"))?;
        match size == Some(PART_BYTES as u64 + 1) {
            true => Ok(Outcome::Works),
            false => refuse("the joined parts have another size"),
        }
    }

    fn lists_unfinished(&self) -> Found {
        let consequence = "a rule of the bucket must remove the parts that a killed upload leaves";
        match self.bucket.address.place {
            Place::S3 { .. } => {}
            Place::Google { .. } => return missing(consequence),
            Place::Azure { .. } => {
                return missing("the parts that a killed upload leaves are there for a week");
            }
        }
        let _parts = Parts::begin(self.bucket, self.name("unfinished"))?;
        match self.own_unfinished() {
            Ok(found) if found.iter().any(|(name, _)| *name == self.name("unfinished")) => Ok(Outcome::Works),
            Ok(_) | Err(Failure::Store(_) | Failure::Content(_)) => missing(consequence),
            Err(failure) => Err(failure),
        }
    }

    /// The URL and the headers to upload content with the checksum of this one.
    fn upload_url(
        &self,
        last: &str,
        content: &[u8],
        query: &[(&str, &str)],
    ) -> Result<(String, Headers), Failure> {
        let headers = match self.bucket.address.place {
            Place::S3 { .. } => vec![(CHECKSUM, checksum(&Sha256Hex::of(content)))],
            Place::Google { .. } => Vec::new(),
            Place::Azure { .. } => vec![("x-ms-blob-type", "BlockBlob".to_owned())],
        };
        let mut options = SignedUrlOptions::default();
        if self.is_s3() {
            options = signed_headers(&headers)?.with_query(query.iter().copied());
        }
        Ok((self.bucket.sign(Method::PUT, self.name(last), VALID, options)?, headers))
    }

    fn signs(&self) -> Found {
        let (url, headers) = self.upload_url("signed", CONTENT, &[])?;
        let (status, text) = self.bucket.request(Method::PUT, &url, &headers, CONTENT.to_vec())?;
        if !matches!(status, 200 | 201) {
            return Err(answered(status, &text));
        }
        let url = self.bucket.sign(Method::GET, self.name("signed"), VALID, SignedUrlOptions::default())?;
        match self.bucket.request(Method::GET, &url, &[], Vec::new())? {
            (200, text) if text.as_bytes() == CONTENT => Ok(Outcome::Works),
            (200, _) => refuse("what was read differs from what was written"),
            (status, text) => Err(answered(status, &text)),
        }
    }

    fn refuses_other_content(&self) -> Found {
        if !self.is_s3() {
            return missing("the hash of an upload is verified when it is adopted, and not before");
        }
        let (url, headers) = self.upload_url("other", CONTENT, &[])?;
        let (status, _) = self.bucket.request(Method::PUT, &url, &headers, OTHER.to_vec())?;
        if self.exists("other")? {
            return refuse("the server stored content whose SHA-256 is not the one in the signed request");
        }
        let without = Vec::new();
        let (bare, _) = self.bucket.request(Method::PUT, &url, &without, OTHER.to_vec())?;
        if self.exists("other")? {
            return refuse("the server stored an upload without a header that is part of its signature");
        }
        match (400..500).contains(&status) && (400..500).contains(&bare) {
            true => Ok(Outcome::Works),
            false => refuse("the server reported no error for content that it did not store"),
        }
    }

    fn begin_parts(&self, last: &str) -> Result<String, Failure> {
        let (parts, name) = (self.bucket.backend.parts.clone(), self.name(last));
        let begins = async move { parts.create_multipart(&name).await };
        self.bucket.link.wait(self.bucket.patience(), begins)
    }

    fn refuses_wrong_parts(&self) -> Found {
        if !self.is_s3() {
            return missing("TLS alone protects what is sent");
        }
        let id = self.begin_parts("wrong")?;
        let (url, headers) = self.upload_url("wrong", CONTENT, &[("partNumber", "1"), ("uploadId", &id)])?;
        let (status, _) = self.bucket.request(Method::PUT, &url, &headers, OTHER.to_vec())?;
        self.bucket.abort(self.name("wrong"), &id)?;
        match status {
            400..500 => Ok(Outcome::Works),
            _ => refuse("the server accepted a part with another SHA-256 than the request has"),
        }
    }

    fn refuses_late_parts(&self) -> Found {
        let consequence =
            "a machine whose upload was removed can still store parts, which the server must clean up";
        if !self.is_s3() {
            return missing(consequence);
        }
        let id = self.begin_parts("late")?;
        let (url, headers) = self.upload_url("late", CONTENT, &[("partNumber", "1"), ("uploadId", &id)])?;
        self.bucket.abort(self.name("late"), &id)?;
        match self.bucket.request(Method::PUT, &url, &headers, CONTENT.to_vec())?.0 {
            400..500 => Ok(Outcome::Works),
            _ => missing(consequence),
        }
    }

    fn refuses_expired(&self) -> Found {
        let valid = Duration::from_secs(1);
        let url = self.bucket.sign(Method::GET, self.name("one"), valid, SignedUrlOptions::default())?;
        // Servers count whole seconds.
        std::thread::sleep(valid * 3);
        match self.bucket.request(Method::GET, &url, &[], Vec::new())? {
            (400..500, _) => Ok(Outcome::Works),
            _ => refuse("a presigned URL can be used after its time; or the clock of the server is late"),
        }
    }

    fn refuses_unsigned(&self) -> Found {
        let (url, headers) = self.upload_url("unsigned", CONTENT, &[])?;
        let bare = url.split('?').next().unwrap_or_default();
        self.bucket.request(Method::PUT, bare, &headers, CONTENT.to_vec())?;
        match self.exists("unsigned")? {
            true => refuse("everyone can write to this bucket"),
            false => Ok(Outcome::Works),
        }
    }

    fn removes(&self) -> Found {
        self.bucket.delete(self.name("one"))?;
        // Removing what is missing is no error.
        self.bucket.delete(self.name("one"))?;
        match self.exists("one")? {
            true => refuse("a removed object still exists"),
            false => Ok(Outcome::Works),
        }
    }
}
