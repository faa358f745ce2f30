//! Answers that a client has already are not sent again (RFC 9110, 13.1.2): each whole answer to a `GET` gets an `ETag`, a
//! hash of its bytes, and `If-None-Match` with it is answered with 304.
//!
//! Known downside: the answer is made all the same; only its transfer is saved.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::BodyExt;
use hyper::body::Body as _;
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// Larger answers get no `ETag`: they are logs.
const BYTES_MAX: u64 = 32 << 20;
/// The bytes of the hash that are sent.
const HASH_BYTES: usize = 12;

/// Answers a request, or says that the client has the answer.
pub(crate) async fn answer(request: Request, next: Next) -> Response {
    let is_get = matches!(*request.method(), Method::GET | Method::HEAD);
    let known = request.headers().get(header::IF_NONE_MATCH).cloned();
    let answer = next.run(request).await;
    // Those that are sent as they grow have no exact size.
    let is_whole = answer.body().size_hint().exact().is_some_and(|bytes| bytes <= BYTES_MAX);
    if !is_get
        || answer.status() != StatusCode::OK
        || !is_whole
        || answer.headers().contains_key(header::ETAG)
    {
        return answer;
    }
    let (mut parts, body) = answer.into_parts();
    // It is in memory, so that nothing fails.
    let bytes = body.collect().await.map(|bytes| bytes.to_bytes()).unwrap_or_default();
    let mut tag = String::from("\"");
    for byte in Sha256::digest(&bytes).iter().take(HASH_BYTES) {
        let _ = write!(tag, "{byte:02x}");
    }
    // The same text has other bytes in another encoding.
    let encoding = parts.headers.get(header::CONTENT_ENCODING).and_then(|encoding| encoding.to_str().ok());
    tag.push_str(encoding.unwrap_or(""));
    tag.push('"');
    let is_known = known.as_ref().and_then(|known| known.to_str().ok()).is_some_and(|known| {
        known.split(',').map(str::trim).any(|one| one == "*" || one.trim_start_matches("W/") == tag)
    });
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        parts.headers.insert(header::ETAG, tag);
    }
    if is_known {
        parts.status = StatusCode::NOT_MODIFIED;
        for name in [header::CONTENT_LENGTH, header::CONTENT_TYPE] {
            parts.headers.remove(name);
        }
        return Response::from_parts(parts, Body::empty());
    }
    Response::from_parts(parts, Body::from(bytes))
}
