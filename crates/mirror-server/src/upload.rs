//! Distfiles that a worker or a person uploads (`PUT`, as `curl -T` does it).

use crate::cache::{Cache, Facts, Found};
use crate::expected::{Found as Content, Hasher};
use crate::growing::End;
use crate::respond::{Answer, say};
use crate::route::Wanted;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HeaderMap};
use hyper::{Request, StatusCode};
use std::sync::Arc;
use std::time::Duration;
use subtle::ConstantTimeEq;
use tokio::time::timeout;

/// The largest upload, in bytes.
const BYTES_MAX: u64 = 64 << 30;
/// How long an upload may be silent.
const SILENT_MAX: Duration = Duration::from_secs(60);
/// The header with the SHA-512 of the file, in hexadecimal, as distinfo has it.
const SHA512: &str = "x-sha512";

/// Whether a request has a token that may upload: as a bearer, or as the password of any user.
pub fn may_upload(headers: &HeaderMap, tokens: &[String]) -> bool {
    let Some(given) = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()) else { return false };
    let basic = given.strip_prefix("Basic ").and_then(|text| STANDARD.decode(text).ok());
    let basic = basic.and_then(|bytes| String::from_utf8(bytes).ok());
    let password = basic.as_deref().and_then(|pair| pair.split_once(':')).map(|(_, password)| password);
    let Some(token) = given.strip_prefix("Bearer ").or(password) else { return false };
    tokens.iter().any(|known| bool::from(known.as_bytes().ct_eq(token.as_bytes())))
}

/// Takes a file.
pub async fn take(cache: &Arc<Cache>, wanted: &Wanted, request: Request<Incoming>) -> Answer {
    let said =
        request.headers().get(SHA512).and_then(|value| value.to_str().ok()).map(str::to_ascii_lowercase);
    let is_other = cache.facts(&wanted.key).is_some_and(|facts| !facts.may_be(&wanted.expected));
    let part = match cache.find(&wanted.key, is_other, true) {
        Ok(Found::Absent(part, _)) => part,
        Ok(Found::Growing(_)) => return say(StatusCode::CONFLICT, "the file is on its way already"),
        Ok(Found::Whole(whole)) => return compare(request, &whole.facts.sha256).await,
        Err(error) => {
            return say(StatusCode::INSUFFICIENT_STORAGE, &format!("the mirror cannot keep it: {error}"));
        }
    };
    let taken = receive(request, |at, bytes| part.growing.write(at, bytes)).await;
    let answer = match taken {
        Err((status, reason)) => say(status, &reason),
        Ok(content) if said.is_some() && said != content.sha512 || !content.is_one_of(&wanted.expected) => {
            let found = content.sha512.unwrap_or_default();
            let reason = format!("what arrived has {} bytes and the SHA-512 {found}", content.size);
            say(StatusCode::UNPROCESSABLE_ENTITY, &reason)
        }
        Ok(content) => {
            let size = content.size;
            let facts = Facts::of(content).named();
            match part.growing.flush(size).and_then(|()| cache.keep(&part, &facts)) {
                Ok(()) => {
                    cache.forget(&part);
                    part.growing.begin(facts, Some(size));
                    part.growing.end(End::Whole, size);
                    if cache.bucket().is_some() {
                        let (cache, key) = (cache.clone(), wanted.key.clone());
                        tokio::task::spawn_blocking(move || cache.store(&key));
                    }
                    return say(StatusCode::CREATED, "kept");
                }
                Err(error) => {
                    say(StatusCode::INSUFFICIENT_STORAGE, &format!("the mirror cannot keep it: {error}"))
                }
            }
        }
    };
    cache.forget(&part);
    part.growing.end(End::Failed("an upload of it failed".to_owned()), 0);
    answer
}

/// Compares an upload with the file that is there, which stays.
async fn compare(request: Request<Incoming>, known: &str) -> Answer {
    match receive(request, |_, _| Ok(())).await {
        Ok(content) if content.sha256 == known => say(StatusCode::OK, "the mirror has it"),
        Ok(_) => say(StatusCode::CONFLICT, "the mirror has another file of this name"),
        Err((status, reason)) => say(status, &reason),
    }
}

async fn receive(
    request: Request<Incoming>,
    write: impl Fn(u64, &[u8]) -> std::io::Result<()>,
) -> Result<Content, (StatusCode, String)> {
    let (mut body, mut size, mut hasher) = (request.into_body(), 0, Hasher::new(true));
    loop {
        let silent = || (StatusCode::REQUEST_TIMEOUT, "the upload was silent for too long".to_owned());
        let Some(frame) = timeout(SILENT_MAX, body.frame()).await.map_err(|_| silent())? else { break };
        let frame =
            frame.map_err(|error| (StatusCode::BAD_REQUEST, format!("the upload ended early: {error}")))?;
        let Ok(bytes) = frame.into_data() else { continue };
        write(size, &bytes).map_err(|error| {
            (StatusCode::INSUFFICIENT_STORAGE, format!("the mirror cannot keep it: {error}"))
        })?;
        hasher.update(&bytes);
        size += bytes.len() as u64;
        if size > BYTES_MAX {
            return Err((StatusCode::PAYLOAD_TOO_LARGE, "the file is too large".to_owned()));
        }
    }
    Ok(hasher.finish())
}
