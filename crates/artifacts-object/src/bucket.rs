//! An open bucket: names, and calls of one request.

use crate::Address;
use crate::backend::Backend;
use crate::failure::Failure;
use crate::link::Link;
use crate::read::Reader;
use futures_util::StreamExt;
use kilnyard_artifacts::{ArtifactError, Artifacts, Depot, Finding, Folder, Listed, Storage, Upload};
use kilnyard_model::sha256::Sha256Hex;
use object_store::list::PaginatedListOptions;
use object_store::path::Path as Name;
use object_store::signer::{Method, SignedUrlOptions};
use object_store::{ObjectMeta, ObjectStoreExt};
use std::collections::HashSet;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The most artifacts that are looked for one by one.
const ASKED_MAX: usize = 64;
/// Objects that a listing gets at a time.
const LISTED_AT_ONCE: usize = 1000;
/// Presigned URLs are valid for a week at most, in S3's and Google's protocol.
const VALID_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// A store of artifacts in object storage. See the documentation of the crate.
pub struct Bucket {
    pub(crate) address: Address,
    pub(crate) backend: Backend,
    pub(crate) link: Arc<Link>,
    /// Where [`Artifacts::insert`] keeps content whose hash it does not know yet.
    spool: PathBuf,
    /// Whether the bucket itself was found.
    is_found: AtomicBool,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bucket({})", self.address)
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

impl Bucket {
    /// Opens a bucket, without asking its server for anything. `spool` is an existing folder for unnamed temporary files
    /// (`/tmp` may be in memory): [`Artifacts::insert`] hashes large content there before it is sent.
    ///
    /// # Errors
    /// The credentials are malformed, or threads cannot be started.
    pub fn open(address: Address, spool: &Path) -> Result<Bucket, ArtifactError> {
        let link = Link::open().map_err(|source| ArtifactError::io(format!("open {address}"), source))?;
        let backend = Backend::open(&address).map_err(|error| {
            let source = Failure::Store(error).into_io(&address.secrets());
            ArtifactError::io(format!("open {address}"), source)
        })?;
        let (link, spool) = (Arc::new(link), spool.to_owned());
        Ok(Bucket { address, backend, link, spool, is_found: AtomicBool::new(false) })
    }

    /// The size of an artifact in bytes, or `None` if the bucket does not have it.
    ///
    /// # Errors
    /// The server cannot be reached or refused the request, or there is no such bucket.
    pub fn size_bytes(&self, sha256: &Sha256Hex) -> Result<Option<u64>, ArtifactError> {
        self.size_of(self.name(sha256))
            .map_err(|failure| self.error(format!("find artifact {sha256}"), failure))
    }

    /// Removes an artifact, if the bucket has it.
    ///
    /// # Errors
    /// The server cannot be reached or refused the request.
    pub fn remove(&self, sha256: &Sha256Hex) -> Result<(), ArtifactError> {
        self.delete(self.name(sha256))
            .map_err(|failure| self.error(format!("remove artifact {sha256}"), failure))
    }

    /// Calls `each` with every artifact, in no particular order, until it returns `false`. Other objects are left out.
    ///
    /// # Errors
    /// The server cannot be reached or refused the request. `each` may have been called for a part of them.
    pub fn list(&self, each: &mut dyn FnMut(Listed) -> bool) -> Result<(), ArtifactError> {
        let listed = self.each_object(self.under("sha256"), &mut |object| {
            let last = object.location.filename().unwrap_or_default();
            match Sha256Hex::parse(last) {
                Ok(sha256) if self.name(&sha256) == object.location => each(Listed {
                    sha256,
                    size_bytes: object.size,
                    modified_seconds: modified_seconds(object),
                }),
                _ => true,
            }
        });
        listed.map_err(|failure| self.error("list the artifacts".to_owned(), failure))
    }

    /// A URL by which everyone who has it can read the artifact for this time, up to a week. It is made without asking the
    /// server, so the artifact may be missing. With temporary credentials, it ends with them.
    ///
    /// # Errors
    /// The time is less than a second or more than a week, or the machine's credentials cannot be had.
    pub fn read_url(&self, sha256: &Sha256Hex, valid: Duration) -> Result<String, ArtifactError> {
        let signed = self.sign(Method::GET, self.name(sha256), valid, SignedUrlOptions::default());
        signed.map_err(|failure| self.error(format!("sign a URL of artifact {sha256}"), failure))
    }
}

impl Depot for Bucket {
    fn name(&self) -> String {
        self.to_string()
    }

    fn deposit(&self, path: &Path, sha256: &Sha256Hex, fresh_seconds: f64) -> Result<(), ArtifactError> {
        match self.modified(sha256)? {
            Some(modified_seconds) if modified_seconds < fresh_seconds => self.renew_file(path, sha256),
            Some(_) => Ok(()),
            None => self.put_file(path, sha256),
        }
    }

    /// One by one if they are few; otherwise by a listing, which takes a request for each thousand artifacts.
    fn contains_each(&self, wanted: &[Sha256Hex]) -> Result<Vec<bool>, ArtifactError> {
        if wanted.len() <= ASKED_MAX {
            return wanted.iter().map(|sha256| self.contains(sha256)).collect();
        }
        let names: HashSet<&Sha256Hex> = wanted.iter().collect();
        let mut found = HashSet::new();
        self.list(&mut |listed| {
            if names.contains(&listed.sha256) {
                found.insert(listed.sha256);
            }
            true
        })?;
        Ok(wanted.iter().map(|sha256| found.contains(sha256)).collect())
    }

    fn each(&self, each: &mut dyn FnMut(Listed) -> bool) -> Result<(), ArtifactError> {
        self.list(each)
    }

    fn remove_before(&self, sha256: &Sha256Hex, seconds: f64) -> Result<bool, ArtifactError> {
        match self.modified(sha256)? {
            Some(modified_seconds) if modified_seconds < seconds => self.remove(sha256).map(|()| true),
            _ => Ok(false),
        }
    }

    fn sweep(&self, before_seconds: f64) -> Result<u64, ArtifactError> {
        let swept = self.sweep_incoming(before_seconds)?;
        Ok(swept.objects + swept.uploads)
    }

    fn examine(&self) -> Vec<Finding> {
        Bucket::examine(self)
    }

    fn read_url(&self, sha256: &Sha256Hex, valid: Duration) -> Result<Option<String>, ArtifactError> {
        Bucket::read_url(self, sha256, valid).map(Some)
    }

    fn upload(
        &self,
        token: &str,
        sha256: &Sha256Hex,
        size_bytes: u64,
        valid: Duration,
    ) -> Result<Option<Upload>, ArtifactError> {
        Bucket::upload(self, token, sha256, size_bytes, valid).map(Some)
    }

    fn adopt(
        &self,
        token: &str,
        (sha256, size_bytes): (&Sha256Hex, u64),
        finished: Option<(&str, &[String])>,
        into: &Folder,
    ) -> Result<(), ArtifactError> {
        if let Some((id, etags)) = finished {
            self.finish_parts(token, sha256, id, etags)?;
        }
        Bucket::adopt(self, token, sha256, size_bytes, into)
    }
}

impl Artifacts for Bucket {
    fn contains(&self, sha256: &Sha256Hex) -> Result<bool, ArtifactError> {
        Ok(self.size_bytes(sha256)?.is_some())
    }

    /// Reads may take up to [`Options::patience`](crate::Options::patience) without any progress. A broken download is
    /// resumed.
    fn open(&self, sha256: &Sha256Hex) -> Result<Box<dyn Read + Send + '_>, ArtifactError> {
        Ok(Box::new(self.reader(self.name(sha256), sha256)?))
    }

    /// The content is stored uncompressed in any case.
    fn insert(&self, from: &mut dyn Read, _: Storage) -> Result<(Sha256Hex, u64), ArtifactError> {
        self.insert_by(from, &self.spool)
    }
}

/// What the other modules use.
impl Bucket {
    /// The name of an object below the prefix.
    pub(crate) fn under(&self, rest: &str) -> Name {
        match self.address.prefix.as_str() {
            "" => Name::from(rest),
            prefix => Name::from(format!("{prefix}/{rest}")),
        }
    }

    /// The name of an artifact's object.
    pub(crate) fn name(&self, sha256: &Sha256Hex) -> Name {
        self.under(&format!("sha256/{}/{sha256}", &sha256.as_str()[..2]))
    }

    pub(crate) fn patience(&self) -> Duration {
        self.address.options.patience
    }

    /// `action` reads after "failed to".
    pub(crate) fn error(&self, action: String, failure: Failure) -> ArtifactError {
        ArtifactError::io(format!("{action} in {self}"), failure.into_io(&self.address.secrets()))
    }

    /// The request itself is wrong: nothing was sent.
    pub(crate) fn invalid(&self, action: &str, reason: &str) -> ArtifactError {
        let source = io::Error::new(io::ErrorKind::InvalidInput, reason);
        ArtifactError::io(format!("{action} in {self}"), source)
    }

    pub(crate) fn size_of(&self, name: Name) -> Result<Option<u64>, Failure> {
        let objects = self.backend.objects.clone();
        match self.link.wait(self.patience(), async move { objects.head(&name).await }) {
            Ok(object) => Ok(Some(object.size)),
            Err(failure) if failure.is_absent() => self.find().map(|()| None),
            Err(failure) => Err(failure),
        }
    }

    /// When an artifact was stored, in seconds since 1970 by the server's clock.
    fn modified(&self, sha256: &Sha256Hex) -> Result<Option<f64>, ArtifactError> {
        let (objects, name) = (self.backend.objects.clone(), self.name(sha256));
        let found = match self.link.wait(self.patience(), async move { objects.head(&name).await }) {
            Ok(object) => Ok(Some(modified_seconds(&object))),
            Err(failure) if failure.is_absent() => self.find().map(|()| None),
            Err(failure) => Err(failure),
        };
        found.map_err(|failure| self.error(format!("look for artifact {sha256}"), failure))
    }

    /// The server's answer is the same for a missing object and a missing bucket, if it has no text.
    pub(crate) fn find(&self) -> Result<(), Failure> {
        if self.is_found.load(Ordering::Relaxed) {
            return Ok(());
        }
        let pages = self.backend.pages.clone();
        let prefix = self.under("sha256").to_string();
        self.link.wait(self.patience(), async move {
            let options = PaginatedListOptions { max_keys: Some(1), ..PaginatedListOptions::default() };
            pages.list_paginated(Some(&prefix), options).await
        })?;
        self.is_found.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn delete(&self, name: Name) -> Result<(), Failure> {
        let objects = self.backend.objects.clone();
        match self.link.wait(self.patience(), async move { objects.delete(&name).await }) {
            Err(failure) if failure.is_absent() => self.find(),
            outcome => outcome,
        }
    }

    /// Calls `each` with the objects below a name, until it returns `false`.
    pub(crate) fn each_object(
        &self,
        below: Name,
        each: &mut dyn FnMut(&ObjectMeta) -> bool,
    ) -> Result<(), Failure> {
        let mut stream = self.backend.objects.list(Some(&below)).fuse();
        loop {
            let (rest, objects) = self.link.wait(self.patience(), async move {
                let mut objects = Vec::new();
                while objects.len() < LISTED_AT_ONCE
                    && let Some(object) = stream.next().await
                {
                    objects.push(object?);
                }
                Ok((stream, objects))
            })?;
            if objects.is_empty() || !objects.iter().all(&mut *each) {
                return Ok(());
            }
            stream = rest;
        }
    }

    pub(crate) fn sign(
        &self,
        method: Method,
        name: Name,
        valid: Duration,
        options: SignedUrlOptions,
    ) -> Result<String, Failure> {
        if valid < Duration::from_secs(1) || valid > VALID_MAX {
            return Err(Failure::Content(
                "a URL is valid for a second at least and a week at most".to_owned(),
            ));
        }
        let signer = self.backend.signer.clone();
        let url = self.link.wait(self.patience(), async move {
            signer.signed_url_opts(method, &name, valid, &options).await
        })?;
        Ok(url.into())
    }

    pub(crate) fn reader(&self, name: Name, sha256: &Sha256Hex) -> Result<Reader, ArtifactError> {
        match Reader::open(self, name, format!("read artifact {sha256} in {self}")) {
            Ok(reader) => Ok(reader),
            Err(failure) if failure.is_absent() => match self.find() {
                Ok(()) => Err(ArtifactError::Missing(sha256.clone())),
                Err(failure) => Err(self.error(format!("read artifact {sha256}"), failure)),
            },
            Err(failure) => Err(self.error(format!("read artifact {sha256}"), failure)),
        }
    }
}

pub(crate) fn modified_seconds(object: &ObjectMeta) -> f64 {
    object.last_modified.timestamp_millis() as f64 / 1000.0
}
