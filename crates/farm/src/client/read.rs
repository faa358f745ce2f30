//! Reading a file of a build: at the mirror of the site or at the door. A connection that breaks is continued where it broke.

use super::{Client, ClientError, judged, sent};
use kilnyard_model::sha256::Sha256Hex;
use reqwest::StatusCode;
use reqwest::blocking::{RequestBuilder, Response};
use reqwest::header::{CONTENT_ENCODING, CONTENT_RANGE, ETAG, HeaderValue, IF_RANGE, RANGE};
use std::io::{self, Read};
use std::time::Duration;

/// How often in a row a connection may break without bringing anything.
const BREAKS_MAX: u32 = 3;
/// The pause before it is continued.
const PAUSE: Duration = Duration::from_millis(200);

/// The content of a file as it is sent, compressed or not.
#[derive(Debug)]
pub(super) struct Content<'a> {
    client: &'a Client,
    sha256: Sha256Hex,
    answer: Response,
    /// Which form of the file this is.
    etag: Option<HeaderValue>,
    received: u64,
    breaks: u32,
}

impl Client {
    /// Opens a file.
    pub(super) fn content(&self, sha256: &Sha256Hex) -> Result<Content<'_>, ClientError> {
        let answer = match self.site.read(sha256) {
            Some(answer) => answer,
            None => self.at_door(sha256, &|request| request)?,
        };
        let etag = answer.headers().get(ETAG).cloned();
        Ok(Content { client: self, sha256: sha256.clone(), answer, etag, received: 0, breaks: 0 })
    }

    /// Asks the door for a file, or the store that it refers to.
    fn at_door(
        &self,
        sha256: &Sha256Hex,
        with: &dyn Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<Response, ClientError> {
        let url = self.at(&format!("/v1/blobs/{sha256}"));
        let request = || {
            let request = with(self.http.get(url.clone()));
            self.accepts_direct()
                .into_iter()
                .fold(request, |request, (name, value)| request.header(name, value))
        };
        let answer = self.answer(&request, sent)?;
        match answer.status() {
            StatusCode::SEE_OTHER => self.followed(answer),
            _ => judged(answer),
        }
    }
}

impl Content<'_> {
    /// The value of the header that says how it is compressed.
    pub(super) fn encoding(&self) -> Option<&HeaderValue> {
        self.answer.headers().get(CONTENT_ENCODING)
    }

    /// Continues at the door. False if it has the file in another form, or cannot continue.
    fn again(&mut self) -> bool {
        let Some(etag) = self.etag.clone() else { return false };
        let range = format!("bytes={}-", self.received);
        let with = |request: RequestBuilder| request.header(RANGE, &range).header(IF_RANGE, etag.clone());
        let Ok(answer) = self.client.at_door(&self.sha256, &with) else { return false };
        let begins = answer.headers().get(CONTENT_RANGE).and_then(|range| range.to_str().ok());
        let begins = begins.and_then(|range| range.strip_prefix("bytes ")?.split('-').next()?.parse().ok());
        let is_rest = answer.status() == StatusCode::PARTIAL_CONTENT && begins == Some(self.received);
        if is_rest {
            self.answer = answer;
        }
        is_rest
    }
}

impl Read for Content<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let error = match self.answer.read(into) {
                Ok(count) => {
                    self.received += count as u64;
                    self.breaks = if count > 0 { 0 } else { self.breaks };
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
                Err(error) => error,
            };
            self.breaks += 1;
            if self.breaks > BREAKS_MAX || self.received == 0 {
                return Err(error);
            }
            std::thread::sleep(PAUSE);
            if !self.again() {
                return Err(error);
            }
        }
    }
}
