//! Files that go straight to and from the store that machines share, by URLs that the server gives for a while. What fails
//! there goes through the server, as without such a store.

use super::{Client, ClientError, broken, judged, sent};
use crate::api::{DIRECT_HEADER, DIRECT_ONLY, Direct, Uploaded};
use kilnyard_artifacts::hash_of;
use kilnyard_model::artifact::Checked;
use kilnyard_model::sha256::Sha256Hex;
use reqwest::blocking::{Body, ClientBuilder, Response};
use reqwest::header::{ETAG, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{StatusCode, Url};
use std::io::{self, Read, Seek};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long a transfer may stop in the middle.
const SILENT_MAX: Duration = Duration::from_secs(60);

/// Connections to the store, which public authorities have certified.
pub(super) fn http() -> Option<reqwest::blocking::Client> {
    builder()?.connect_timeout(CONNECT_MAX).build().ok()
}

/// Connections without a limit of time, in which public authorities certify servers.
pub(super) fn builder() -> Option<ClientBuilder> {
    let roots = webpki_roots::TLS_SERVER_ROOTS.iter().cloned();
    let tls = rustls::ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .ok()?
        .with_root_certificates(rustls::RootCertStore::from_iter(roots))
        .with_no_client_auth();
    let builder = reqwest::blocking::Client::builder().use_preconfigured_tls(tls).timeout(None);
    Some(builder.tcp_keepalive(SILENT_MAX).redirect(Policy::none()))
}

impl Client {
    /// Uploads a file as the server says, and reports it. Returns false if it has to go through the server.
    pub(super) fn upload_directly(
        &self,
        attempt: &str,
        (sha256, path): (&Sha256Hex, &Path),
        direct: &Direct,
    ) -> Result<bool, ClientError> {
        let Some(outside) = &self.outside else { return Ok(false) };
        let size_bytes = fs_err::metadata(path)?.len();
        let mut etags = Vec::new();
        for part in &direct.parts {
            let mut file = fs_err::File::open(path)?;
            file.seek(io::SeekFrom::Start(part.offset_bytes))?;
            let mut request =
                outside.put(&part.url).body(Body::sized(file.take(part.size_bytes), part.size_bytes));
            for (name, value) in &part.headers {
                request = request.header(name, value);
            }
            let Ok(answer) = request.send() else { return Ok(false) };
            if !answer.status().is_success() {
                return Ok(false);
            }
            etags.extend(answer.headers().get(ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned));
        }
        let uploaded = Uploaded { attempt: attempt.to_owned(), size_bytes, id: direct.id.clone(), etags };
        let url = self.at(&format!("/v1/blobs/{sha256}/uploaded"));
        let answer = self.in_session(&|| self.http.post(url.clone()).json(&uploaded));
        match answer {
            Ok(_) => Ok(true),
            Err(error) if error.is_passing() => Err(error),
            // It did not arrive as it should have.
            Err(_) => Ok(false),
        }
    }

    /// Reads an artifact from the store that machines share, and compares its hash. It does not pass the server.
    ///
    /// # Errors
    /// It cannot be read: workers cannot read the store, no lease names the artifact any longer, or the check is cancelled.
    pub fn check(&self, sha256: &Sha256Hex, cancel: &AtomicBool) -> Result<Checked, ClientError> {
        let url = self.at(&format!("/v1/blobs/{sha256}"));
        let answer = self.answer(&|| self.http.get(url.clone()).header(DIRECT_HEADER, DIRECT_ONLY), sent)?;
        let mut content: Response = match answer.status() {
            StatusCode::NOT_FOUND => return Ok(Checked::Missing),
            StatusCode::SEE_OTHER => self.followed(answer)?,
            status => {
                judged(answer)?;
                return Err(ClientError::Failed(format!(
                    "it answers {status} where it should refer to the store"
                )));
            }
        };
        let (found, _) = hash_of(&mut Until { from: &mut content, cancel })
            .map_err(|error| ClientError::Connection(error.to_string()))?;
        Ok(if found == *sha256 { Checked::Intact } else { Checked::Damaged })
    }

    /// Follows an answer of the server to the store.
    pub(super) fn followed(&self, answer: Response) -> Result<Response, ClientError> {
        let place = answer.headers().get(LOCATION).and_then(|place| place.to_str().ok());
        let url = place.and_then(|place| Url::parse(place).ok());
        let (Some(url), Some(outside)) = (url, &self.outside) else {
            return Err(ClientError::Failed("it refers to a file without an address".to_owned()));
        };
        // The address is a secret for as long as it is valid.
        let answer = outside.get(url).send().map_err(|error| broken(error.without_url()))?;
        match answer.status().is_success() {
            true => Ok(answer),
            false => Err(ClientError::Failed(format!("the store of artifacts answers {}", answer.status()))),
        }
    }

    /// The header with which this worker accepts files from the store; absent if it cannot.
    pub(super) fn accepts_direct(&self) -> Option<(&'static str, &'static str)> {
        self.outside.as_ref().map(|_| (DIRECT_HEADER, "1"))
    }
}

/// Content that is read until that is cancelled.
struct Until<'a> {
    from: &'a mut dyn Read,
    cancel: &'a AtomicBool,
}

impl Read for Until<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.cancel.load(Ordering::Relaxed) {
            true => Err(io::Error::other("it was cancelled")),
            false => self.from.read(into),
        }
    }
}
