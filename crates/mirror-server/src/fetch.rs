//! Fetches a file from its origins, once for all who ask. A connection that breaks is resumed, at another origin if need be.

use crate::cache::{Cache, Facts, Part};
use crate::config::Config;
use crate::expected::{Decoding, FileDigest, Hasher, ZSTD};
use crate::farms::Farms;
use crate::growing::End;
use crate::respond::ONLY_HERE;
use crate::route::{Rule, Wanted};
use kilnyard_artifacts::Depot;
use kilnyard_farm::api::YARD_HEADER;
use kilnyard_farm::ticket::TICKET_HEADER;
use kilnyard_model::sha256::Sha256Hex;
use kilnyard_sign::Keyring;
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED, RANGE,
};
use reqwest::redirect::{Action, Attempt, Policy};
use reqwest::{Client, NoProxy, Proxy, RequestBuilder, Response, StatusCode};
use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most redirections of a request.
const REDIRECTIONS_MAX: usize = 5;
/// How often each origin is tried.
const ROUNDS: usize = 3;
/// The pause before another round.
const PAUSE: Duration = Duration::from_millis(500);
/// How long an origin may take to connect, and to send something.
const CONNECT_MAX: Duration = Duration::from_secs(10);
const SILENT_MAX: Duration = Duration::from_secs(30);
/// What is read of the bucket at a time, in bytes.
const PART_BYTES: usize = 256 << 10;
/// How long another mirror of the site may take to connect and to answer, and for how long one that did not is not asked.
const PEER_CONNECT_MAX: Duration = Duration::from_secs(1);
const PEER_ANSWER_MAX: Duration = Duration::from_secs(2);
const AWAY: Duration = Duration::from_secs(30);
/// The largest signed file that is held in memory to verify it.
const SIGNED_BYTES_MAX: u64 = 16 << 20;

/// Connections to origins, and to other mirrors of the site.
#[derive(Debug)]
pub struct Origins {
    client: Client,
    peers: Client,
    /// Connections to farms.
    pub farms: Farms,
    /// Mirrors of the site that did not answer, and when: they are not asked for a while.
    away: Mutex<HashMap<String, Instant>>,
}

impl Origins {
    /// Connections as the configuration wants them.
    ///
    /// # Errors
    /// The address of the proxy is none.
    pub fn new(config: &Config) -> Result<Origins, Box<dyn std::error::Error + Send + Sync>> {
        let client = client(config, CONNECT_MAX)?;
        // The site's network needs no proxy.
        let peers = self::client(&Config { proxy: None, ..config.clone() }, PEER_CONNECT_MAX)?;
        Ok(Origins { client, peers, farms: Farms::new(&config.farm)?, away: Mutex::default() })
    }

    fn away(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_away(&self, url: &str) -> bool {
        self.away().get(host(url)).is_some_and(|since| since.elapsed() < AWAY)
    }
}

/// The part of an address before its path.
fn host(url: &str) -> &str {
    let start = url.find("://").map_or(0, |at| at + 3);
    url[start..].find('/').map_or(url, |end| &url[..start + end])
}

fn client(
    config: &Config,
    connect_max: Duration,
) -> Result<Client, Box<dyn std::error::Error + Send + Sync>> {
    let roots = rustls::RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut client = Client::builder().use_preconfigured_tls(tls).no_proxy().redirect(Policy::custom(follow));
    if let Some(proxy) = &config.proxy {
        let exceptions = config.no_proxy.as_deref().and_then(NoProxy::from_string);
        client = client.proxy(Proxy::all(proxy)?.no_proxy(exceptions));
    }
    Ok(client.connect_timeout(connect_max).read_timeout(SILENT_MAX).build()?)
}

/// Follows an origin to another place of a file, and not to the listing of a folder.
fn follow(attempt: Attempt<'_>) -> Action {
    if attempt.url().path().ends_with('/') || attempt.previous().len() > REDIRECTIONS_MAX {
        return attempt.stop();
    }
    attempt.follow()
}

/// Performs the fetch of a file that no one else fetches, and ends its way.
pub async fn perform(
    cache: &Arc<Cache>,
    origins: &Origins,
    keyrings: &BTreeMap<String, Keyring>,
    wanted: &Wanted,
    part: Part,
) {
    let known = cache.whole(&wanted.key).map(|whole| (*whole.facts).clone());
    let stored = match cache.bucket() {
        Some(bucket) => from_bucket(bucket, cache.facts(&wanted.key), wanted, &part).await,
        None => None,
    };
    let hasher = Hasher::of(&wanted.expected).decoding(None);
    let mut way = Way { origins, wanted, part: &part, known, hasher, written: 0, facts: None };
    let end = match stored {
        Some((facts, hasher, written)) => {
            way.facts = Some((facts, Some(written)));
            (way.hasher, way.written) = (hasher.decoding(None), written);
            way.finish(cache, keyrings)
        }
        None => match way.run().await {
            Ok(End::Whole) => way.finish(cache, keyrings),
            Ok(end) => end,
            Err(reason) => End::Failed(reason),
        },
    };
    let written = way.written;
    // Where what is there is served instead, an origin that is gone is not asked for each request.
    if matches!(end, End::Whole | End::Unchanged) || way.known.is_some() {
        cache.note_asked(&wanted.key);
    }
    // Who asks from now on finds the file itself, and who followed reads to its end.
    cache.forget(&part);
    let is_new = end == End::Whole;
    part.growing.end(end, written);
    if is_new && cache.bucket().is_some() {
        let (cache, key) = (cache.clone(), wanted.key.clone());
        // What is not stored now is stored when the mirror starts next.
        let _ = tokio::task::spawn_blocking(move || cache.store(&key)).await;
    }
}

/// Reads a file that never changes from the bucket; none if it does not have it, or fails.
async fn from_bucket(
    bucket: &Arc<dyn Depot>,
    known: Option<Facts>,
    wanted: &Wanted,
    part: &Part,
) -> Option<(Facts, Hasher, u64)> {
    if wanted.rule != Rule::Fixed {
        return None;
    }
    let by_digest = wanted.expected.iter().find_map(|expected| match &expected.digest {
        FileDigest::Sha256(sha256) => Some(sha256.clone()),
        FileDigest::Sha512(_) => None,
    });
    let known = known.filter(|known| known.is_stored && known.may_be(&wanted.expected));
    let of_known = known.as_ref().and_then(|known| Sha256Hex::parse(&known.sha256).ok());
    let sha256 = by_digest.or(of_known)?;
    let (bucket, growing, mut hasher) = (bucket.clone(), part.growing.clone(), Hasher::of(&wanted.expected));
    let read = tokio::task::spawn_blocking(move || {
        let (mut content, mut bytes, mut at) = (bucket.open(&sha256).ok()?, vec![0; PART_BYTES], 0_u64);
        loop {
            let count = content.read(&mut bytes).ok()?;
            if count == 0 {
                let found = hasher.clone().finish();
                return (found.sha256 == sha256.as_str()).then_some((hasher, at));
            }
            growing.write(at, &bytes[..count]).ok()?;
            hasher.update(&bytes[..count]);
            at += count as u64;
        }
    });
    let (hasher, size) = read.await.ok()??;
    let facts = known.unwrap_or_default();
    let facts = Facts { is_stored: true, ..facts };
    part.growing.begin(facts.clone(), Some(size));
    Some((facts, hasher, size))
}

struct Way<'a> {
    origins: &'a Origins,
    wanted: &'a Wanted,
    part: &'a Part,
    /// What the mirror has of it.
    known: Option<Facts>,
    hasher: Decoding,
    written: u64,
    /// What the origin said that the bytes so far are from.
    facts: Option<(Facts, Option<u64>)>,
}

impl Way<'_> {
    async fn run(&mut self) -> Result<End, String> {
        let (mut reasons, mut is_absent) = (Vec::new(), !self.wanted.urls.is_empty());
        let (origins, wanted) = (self.origins, self.wanted);
        let farm = wanted.ticket.as_ref().zip(wanted.blob());
        let farm = farm.and_then(|(ticket, sha256)| {
            let (client, url) = origins.farms.origin(ticket, &sha256)?;
            Some((client, url, ticket))
        });
        is_absent |= farm.is_some();
        for url in &self.wanted.peers {
            if self.origins.is_away(url) {
                continue;
            }
            let request = origins.peers.get(url).header(ONLY_HERE, "1");
            let request = match &wanted.ticket {
                Some(ticket) => request.header(TICKET_HEADER, &ticket.text),
                None => request,
            };
            match self.attempt(request, PEER_ANSWER_MAX).await {
                Ok(Some(end)) => return Ok(end),
                Ok(None) => {}
                // Then an origin continues.
                Err(_) => drop(self.origins.away().insert(host(url).to_owned(), Instant::now())),
            }
        }
        for round in 0..ROUNDS {
            if round > 0 {
                tokio::time::sleep(PAUSE).await;
            }
            let of_farm = farm.iter().map(|(client, url, ticket)| {
                let request = client.get(url).header(TICKET_HEADER, &ticket.text);
                match ticket.yard.is_empty() {
                    true => (url, request),
                    false => (url, request.header(YARD_HEADER, &ticket.yard)),
                }
            });
            let others = wanted.urls.iter().map(|url| (url, origins.client.get(url)));
            for (url, request) in of_farm.chain(others) {
                match self.attempt(request, SILENT_MAX).await {
                    Ok(Some(end)) => return Ok(end),
                    Ok(None) => {}
                    Err(reason) => {
                        is_absent = false;
                        reasons.push(format!("{url}: {reason}"));
                    }
                }
            }
            if is_absent {
                return Ok(End::Absent);
            }
        }
        match wanted.urls.is_empty() && farm.is_none() {
            true => Ok(End::Absent),
            false => Err(reasons.pop().unwrap_or_default()),
        }
    }

    /// One exchange with an origin; `None` if it does not have the file.
    async fn attempt(
        &mut self,
        request: RequestBuilder,
        answer_max: Duration,
    ) -> Result<Option<End>, String> {
        let said = |error: reqwest::Error| error.without_url().to_string();
        // Otherwise, an encoding on the way would be another file.
        let encoding = if self.wanted.ticket.is_some() { ZSTD } else { "identity" };
        let mut request = request.header(ACCEPT_ENCODING, encoding);
        if let Some(accept) = self.wanted.accept {
            request = request.header(ACCEPT, accept);
        }
        if self.written > 0 {
            request = request.header(RANGE, format!("bytes={}-", self.written));
            if let Some(etag) = self.facts.as_ref().and_then(|(facts, _)| facts.etag.as_ref()) {
                request = request.header(IF_RANGE, etag);
            }
        } else if let Some(known) = self.known.as_ref().filter(|_| self.wanted.rule == Rule::Asked) {
            if let Some(etag) = &known.etag {
                request = request.header(IF_NONE_MATCH, etag);
            }
            if let Some(modified) = &known.last_modified {
                request = request.header(IF_MODIFIED_SINCE, modified);
            }
        }
        let response = tokio::time::timeout(answer_max, request.send()).await;
        let response = response.map_err(|_| "it does not answer".to_owned())?.map_err(said)?;
        let skipped = match response.status() {
            StatusCode::NOT_FOUND | StatusCode::GONE => return Ok(None),
            StatusCode::NOT_MODIFIED if self.written == 0 && self.known.is_some() => {
                return Ok(Some(End::Unchanged));
            }
            StatusCode::OK => self.written,
            StatusCode::PARTIAL_CONTENT
                if self.written > 0 && begins_at(response.headers(), self.written) =>
            {
                0
            }
            status => return Err(format!("it answers {status}")),
        };
        self.take(response, skipped).await.map(Some)
    }

    /// Takes a body, whose first bytes may be there already.
    async fn take(&mut self, mut response: Response, mut skipped: u64) -> Result<End, String> {
        let text =
            |name| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let length = text(CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
        if skipped == self.written {
            let facts = Facts {
                etag: text(ETAG),
                last_modified: text(LAST_MODIFIED),
                content_type: text(CONTENT_TYPE),
                encoding: text(CONTENT_ENCODING).filter(|_| self.wanted.ticket.is_some()),
                ..Facts::default()
            };
            match &self.facts {
                None => {
                    if facts.encoding.is_some() {
                        self.hasher = Hasher::of(&self.wanted.expected).decoding(facts.encoding.as_deref());
                    }
                    // A signed file is shown once it is verified.
                    if self.wanted.signed_by.is_none() {
                        self.part.growing.begin(facts.clone(), length);
                    }
                    self.facts = Some((facts, length));
                }
                // Another content cannot continue this one, unless a digest decides.
                Some((before, size)) => {
                    let is_same = before.etag == facts.etag && before.last_modified == facts.last_modified;
                    let is_encoded_otherwise = before.encoding != facts.encoding;
                    if *size != length || is_encoded_otherwise || !is_same && self.wanted.expected.is_empty()
                    {
                        return Err("it has another content now".to_owned());
                    }
                }
            }
        }
        let size = self.facts.as_ref().and_then(|(_, size)| *size);
        while let Some(bytes) = response.chunk().await.map_err(|error| error.without_url().to_string())? {
            let skip = skipped.min(bytes.len() as u64);
            skipped -= skip;
            let new = &bytes[skip as usize..];
            if size.is_some_and(|size| self.written + new.len() as u64 > size) {
                return Err("it sends more than it said".to_owned());
            }
            self.part
                .growing
                .write(self.written, new)
                .map_err(|error| format!("the mirror cannot keep it: {error}"))?;
            self.hasher.update(new);
            self.written += new.len() as u64;
        }
        match size.is_some_and(|size| self.written < size) {
            true => Err("the connection ended early".to_owned()),
            false => Ok(End::Whole),
        }
    }

    /// Verifies and keeps what arrived.
    fn finish(&mut self, cache: &Cache, keyrings: &BTreeMap<String, Keyring>) -> End {
        let found = std::mem::replace(&mut self.hasher, Hasher::new(false).decoding(None)).finish();
        if !found.is_one_of(&self.wanted.expected) {
            return End::Failed(format!("an origin sent another content of {}", self.wanted.key));
        }
        let (facts, size) = self.facts.take().unwrap_or_default();
        if let Some(archive) = &self.wanted.signed_by {
            let verified = keyrings.get(archive).ok_or_else(|| "its keyring cannot be read".to_owned());
            let verified = verified.and_then(|keyring| {
                if self.written > SIGNED_BYTES_MAX {
                    return Err("it is too large".to_owned());
                }
                let bytes = self.part.growing.read_all().map_err(|error| error.to_string())?;
                keyring.verify_clearsigned(&bytes).map(drop).map_err(|error| error.to_string())
            });
            if let Err(reason) = verified {
                return End::Failed(format!("{} is not what the archive signed: {reason}", self.wanted.key));
            }
            self.part.growing.begin(facts.clone(), size);
        }
        let facts = Facts { size: self.written, sha256: found.sha256, sha512: found.sha512, ..facts };
        let kept = self.part.growing.flush(self.written).and_then(|()| cache.keep(self.part, &facts));
        match kept {
            Ok(()) => End::Whole,
            Err(error) => End::Failed(format!("the mirror cannot keep {}: {error}", self.wanted.key)),
        }
    }
}

/// Whether a partial answer begins at this byte.
fn begins_at(headers: &HeaderMap, at: u64) -> bool {
    let range = headers.get(CONTENT_RANGE).and_then(|range| range.to_str().ok());
    let first = range.and_then(|range| range.strip_prefix("bytes ")?.split('-').next()?.parse::<u64>().ok());
    first == Some(at)
}
