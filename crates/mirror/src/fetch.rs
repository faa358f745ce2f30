//! Fetches files with a known hash, and small ones without.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::Sha256Hex;
use crate::answer::{self, Body};
use crate::attempts::{self, Stop, check};
use crate::error::{AttemptError, FetchError, without_password};
use crate::exchange::{Exchange, Piece};
use crate::limits::Limits;
use crate::local;
use crate::part::Part;
use crate::sha256::CHUNK_BYTES;
use crate::site::Site;

/// A file to fetch, and where it may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// `http`, `https` and `file` URLs, best first.
    pub urls: Vec<String>,
    /// The hash that the content must have.
    pub sha256: Sha256Hex,
    /// The size that the content must have.
    pub size_bytes: u64,
    /// The name shown in errors.
    pub name: String,
}

/// An event during a fetch.
#[derive(Debug)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// A URL is requested, for everything after the bytes already here.
    Asking {
        /// The URL, without a password.
        url: &'a str,
        /// The bytes already here.
        part_bytes: u64,
    },
    /// Bytes arrived.
    Received {
        /// The bytes here now.
        part_bytes: u64,
        /// The final size.
        size_bytes: u64,
    },
    /// A url failed; another one, or the same again, may follow.
    Failed {
        /// The URL, without a password.
        url: &'a str,
        /// Why it failed.
        error: &'a AttemptError,
    },
}

/// Identifies the caller's copy of a file, so that an unchanged file is not sent again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Condition {
    /// The tag received with the copy.
    pub etag: Option<String>,
    /// The date received with the copy, verbatim.
    pub last_modified: Option<String>,
}

/// The result of [`Client::fetch_bytes`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fetched {
    /// The caller's copy is still current.
    NotModified,
    /// The content, with the fields of a [`Condition`] for the next request.
    Body {
        /// The content.
        bytes: Vec<u8>,
        /// The tag of the content, if the server sent one.
        etag: Option<String>,
        /// The date of the content, as sent by the server.
        last_modified: Option<String>,
        /// The url that delivered it, without a password.
        url: String,
    },
}

/// Fetches files within limits. Cheap to clone; every exchange uses its own connection.
#[derive(Debug, Clone)]
pub struct Client {
    limits: Limits,
    proxy: Option<ureq::Proxy>,
    site: Option<Arc<Site>>,
}

impl Client {
    /// Creates a client that connects directly. Proxy settings in the environment are ignored.
    pub fn new(limits: Limits) -> Client {
        Client { limits, proxy: None, site: None }
    }

    /// Creates a client that connects through a proxy, such as `http://proxy.example:3128`.
    pub fn with_proxy(limits: Limits, proxy: &str) -> Result<Client, FetchError> {
        match ureq::Proxy::new(proxy) {
            Ok(proxy) => Ok(Client { limits, proxy: Some(proxy), site: None }),
            Err(error) => {
                Err(FetchError::Proxy { proxy: without_password(proxy), reason: error.to_string() })
            }
        }
    }

    /// The same client, which asks the mirror of its site first, without a proxy.
    #[must_use]
    pub fn with_site(self, site: Option<Arc<Site>>) -> Client {
        Client { site, ..self }
    }

    /// The mirror of its site.
    pub fn site(&self) -> Option<&Arc<Site>> {
        self.site.as_ref()
    }

    /// These addresses, after those at the mirror of the site.
    fn places(&self, urls: &[String]) -> Vec<String> {
        self.site.as_ref().map_or_else(|| urls.to_vec(), |site| site.urls(urls))
    }

    /// Learns from a failure whether the mirror of the site is away.
    fn note(&self, url: &str, error: &AttemptError) {
        if let Some(site) = self.site.as_ref().filter(|site| site.is_at(url))
            && !matches!(error, AttemptError::Status { .. })
        {
            site.note_away();
        }
    }

    /// The limits of its fetches.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Fetches a file to a path, through a `.part` file next to it, which is resumed if it exists. On success, the
    /// path holds the checked file, which has replaced any earlier one.
    pub fn fetch_checked(
        &self,
        wanted: &Wanted,
        target: &Path,
        progress: &dyn Fn(Progress<'_>),
        cancel: &AtomicBool,
    ) -> Result<(), FetchError> {
        let name = &wanted.name;
        check(name, cancel)?;
        let mut part = Part::open(name, target, wanted.size_bytes)?;
        if part.is_complete() {
            // An earlier process ended between the last byte and the renaming.
            if part.sha256() == wanted.sha256 {
                return part.finish();
            }
            part.reset()?;
        }
        let failed = |url: &str, error: &AttemptError| {
            self.note(url, error);
            let url = &without_password(url);
            progress(Progress::Failed { url, error });
        };
        let result = attempts::run(name, &self.places(&wanted.urls), &self.limits, cancel, &failed, |url| {
            progress(Progress::Asking { url: &without_password(url), part_bytes: part.length_bytes() });
            self.attempt(url, wanted, &mut part, progress, cancel).map_err(|stop| match stop {
                Stop::Url { error, .. } => Stop::Url { error, part_bytes: part.length_bytes() },
                whole @ Stop::Whole(_) => whole,
            })
        });
        match result {
            Ok(()) => part.finish(),
            Err(error) => {
                part.give_back();
                Err(error)
            }
        }
    }

    /// Makes one attempt. On success, the part is complete and has the expected hash.
    fn attempt(
        &self,
        url: &str,
        wanted: &Wanted,
        part: &mut Part<'_>,
        progress: &dyn Fn(Progress<'_>),
        cancel: &AtomicBool,
    ) -> Result<(), Stop> {
        match local::path_of(url) {
            Some(path) => self.copy(&path.map_err(stop)?, wanted, part, progress, cancel)?,
            None => self.download(url, wanted, part, progress, cancel)?,
        }
        let got = part.sha256();
        if got == wanted.sha256 {
            return Ok(());
        }
        part.reset().map_err(Stop::Whole)?;
        Err(stop(AttemptError::HashDiffers { expected: wanted.sha256.clone(), got }))
    }

    fn download(
        &self,
        url: &str,
        wanted: &Wanted,
        part: &mut Part<'_>,
        progress: &dyn Fn(Progress<'_>),
        cancel: &AtomicBool,
    ) -> Result<(), Stop> {
        let mut headers = Vec::new();
        let have_bytes = part.length_bytes();
        if have_bytes > 0 {
            headers.push(("Range", format!("bytes={have_bytes}-")));
        }
        let (head, mut exchange) = self.open(&wanted.name, url, &headers, cancel)?;
        match answer::judge(&head, have_bytes, wanted.size_bytes) {
            Ok(Body::Rest) => {}
            Ok(Body::Whole) => part.reset().map_err(Stop::Whole)?,
            Err(error) => {
                // A server that cannot resume a file is asked for all of it next time.
                if matches!(error, AttemptError::BadRange { .. } | AttemptError::Status { code: 416 }) {
                    part.reset().map_err(Stop::Whole)?;
                }
                return Err(stop(error));
            }
        }
        // Bytes beyond the size are not read; the hash decides.
        while !part.is_complete() {
            match exchange.next()? {
                Piece::Chunk(chunk) => {
                    part.append(&chunk).map_err(Stop::Whole)?;
                    progress(Progress::Received {
                        part_bytes: part.length_bytes(),
                        size_bytes: wanted.size_bytes,
                    });
                }
                Piece::End | Piece::Cut => {
                    return Err(stop(AttemptError::Truncated {
                        received_bytes: part.length_bytes(),
                        size_bytes: Some(wanted.size_bytes),
                    }));
                }
            }
        }
        Ok(())
    }

    fn copy(
        &self,
        path: &Path,
        wanted: &Wanted,
        part: &mut Part<'_>,
        progress: &dyn Fn(Progress<'_>),
        cancel: &AtomicBool,
    ) -> Result<(), Stop> {
        let (mut file, got_bytes) = local::open(path).map_err(stop)?;
        if got_bytes != wanted.size_bytes {
            return Err(stop(AttemptError::SizeDiffers { size_bytes: wanted.size_bytes, got_bytes }));
        }
        part.reset().map_err(Stop::Whole)?;
        let mut buffer = vec![0; CHUNK_BYTES];
        while !part.is_complete() {
            check(&wanted.name, cancel).map_err(Stop::Whole)?;
            match file.read(&mut buffer) {
                Ok(0) => {
                    return Err(stop(AttemptError::Truncated {
                        received_bytes: part.length_bytes(),
                        size_bytes: Some(wanted.size_bytes),
                    }));
                }
                Ok(length) => part.append(&buffer[..length]).map_err(Stop::Whole)?,
                Err(error) => {
                    return Err(stop(AttemptError::LocalFile { reason: error.to_string() }));
                }
            }
            progress(Progress::Received { part_bytes: part.length_bytes(), size_bytes: wanted.size_bytes });
        }
        Ok(())
    }

    /// Fetches a file whose hash and size are unknown, such as an `InRelease`. The caller must verify the content by
    /// other means. `name` is shown in errors.
    pub fn fetch_bytes(
        &self,
        name: &str,
        urls: &[String],
        size_bytes_max: u64,
        condition: Option<&Condition>,
        cancel: &AtomicBool,
    ) -> Result<Fetched, FetchError> {
        check(name, cancel)?;
        let noted = |url: &str, error: &AttemptError| self.note(url, error);
        attempts::run(name, &self.places(urls), &self.limits, cancel, &noted, |url| {
            match local::path_of(url) {
                Some(path) => read_local(&path.map_err(stop)?, url, size_bytes_max),
                None => self.ask(name, url, size_bytes_max, condition, cancel),
            }
        })
    }

    fn ask(
        &self,
        name: &str,
        url: &str,
        size_bytes_max: u64,
        condition: Option<&Condition>,
        cancel: &AtomicBool,
    ) -> Result<Fetched, Stop> {
        let mut bytes = Vec::new();
        let mut keep = |chunk: &[u8]| {
            bytes.extend_from_slice(chunk);
            Ok(())
        };
        let head = self.receive(name, url, size_bytes_max, condition, &mut keep, cancel)?;
        let Some(head) = head else { return Ok(Fetched::NotModified) };
        Ok(Fetched::Body {
            bytes,
            etag: head.etag,
            last_modified: head.last_modified,
            url: without_password(url),
        })
    }

    /// Passes the body of an answer on; none if the file is that of the condition.
    fn receive(
        &self,
        name: &str,
        url: &str,
        size_bytes_max: u64,
        condition: Option<&Condition>,
        keep: &mut dyn FnMut(&[u8]) -> Result<(), Stop>,
        cancel: &AtomicBool,
    ) -> Result<Option<answer::Head>, Stop> {
        let mut headers = Vec::new();
        if let Some(condition) = condition {
            let tag = condition.etag.clone();
            headers.extend(tag.map(|tag| ("If-None-Match", tag)));
            let date = condition.last_modified.clone();
            headers.extend(date.map(|date| ("If-Modified-Since", date)));
        }
        let (head, mut exchange) = self.open(name, url, &headers, cancel)?;
        match head.status {
            200 => {}
            304 if !headers.is_empty() => return Ok(None),
            code => return Err(stop(AttemptError::Status { code })),
        }
        if head.content_length.is_some_and(|length| length > size_bytes_max) {
            return Err(stop(AttemptError::TooLarge { size_bytes_max }));
        }
        let mut received_bytes = 0;
        loop {
            match exchange.next()? {
                Piece::Chunk(chunk) => {
                    received_bytes += chunk.len() as u64;
                    if received_bytes > size_bytes_max {
                        return Err(stop(AttemptError::TooLarge { size_bytes_max }));
                    }
                    keep(&chunk)?;
                }
                Piece::End => return Ok(Some(head)),
                Piece::Cut => {
                    return Err(stop(AttemptError::Truncated {
                        received_bytes,
                        size_bytes: head.content_length,
                    }));
                }
            }
        }
    }

    /// Fetches a file of unknown size from `http` and `https` URLs to a path, which the caller owns. `accepts` checks what
    /// arrived; an error of it is a clause, and the next URL is tried. After a failure, the path has no file.
    ///
    /// # Errors
    /// No URL has a file that is accepted.
    pub fn fetch_accepted(
        &self,
        name: &str,
        urls: &[String],
        size_bytes_max: u64,
        target: &Path,
        accepts: &dyn Fn(&Path) -> Result<(), String>,
        cancel: &AtomicBool,
    ) -> Result<(), FetchError> {
        check(name, cancel)?;
        let noted = |url: &str, error: &AttemptError| self.note(url, error);
        let result = attempts::run(name, &self.places(urls), &self.limits, cancel, &noted, |url| {
            let fail = |action, source| Stop::Whole(FetchError::disk(name, action, target, 0, source));
            let mut file = File::create(target).map_err(|source| fail("create", source))?;
            let mut keep = |chunk: &[u8]| file.write_all(chunk).map_err(|source| fail("write", source));
            self.receive(name, url, size_bytes_max, None, &mut keep, cancel)?;
            accepts(target).map_err(|reason| stop(AttemptError::NotAccepted { reason }))
        });
        if result.is_err() {
            // The error to report is the one before.
            let _ = fs::remove_file(target);
        }
        result
    }

    fn open<'a>(
        &self,
        name: &'a str,
        url: &str,
        headers: &[(&'static str, String)],
        cancel: &'a AtomicBool,
    ) -> Result<(answer::Head, Exchange<'a>), Stop> {
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(stop(AttemptError::BadUrl {
                reason: "only http, https and file are supported".to_owned(),
            }));
        }
        let proxy = self.proxy.as_ref().filter(|_| self.site.as_ref().is_none_or(|site| !site.is_at(url)));
        Exchange::open(name, url, headers, &self.limits, proxy, cancel)
    }
}

fn read_local(path: &Path, url: &str, size_bytes_max: u64) -> Result<Fetched, Stop> {
    let (file, size_bytes) = local::open(path).map_err(stop)?;
    let mut bytes = Vec::new();
    if let Err(error) = file.take(size_bytes_max.saturating_add(1)).read_to_end(&mut bytes) {
        return Err(stop(AttemptError::LocalFile { reason: error.to_string() }));
    }
    if size_bytes > size_bytes_max || bytes.len() as u64 > size_bytes_max {
        return Err(stop(AttemptError::TooLarge { size_bytes_max }));
    }
    Ok(Fetched::Body { bytes, etag: None, last_modified: None, url: url.to_owned() })
}

fn stop(error: AttemptError) -> Stop {
    Stop::Url { error, part_bytes: 0 }
}
