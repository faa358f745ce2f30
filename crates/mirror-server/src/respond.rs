//! Answers with a file: whole or in part, there already or on its way.

use crate::buffers;
use crate::cache::{Facts, Whole};
use crate::growing::{End, Follower, State};
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap,
    HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED, RANGE, VARY,
};
use hyper::{Method, Response, StatusCode};
use kilnyard_model::sha256::Sha256Hex;
use std::fs::File;
use std::io;
use std::sync::Arc;

/// What is read and sent at a time, in bytes.
const PART_BYTES: u64 = buffers::BUFFER_BYTES as u64;
/// A file up to this size is read at once.
const SMALL_BYTES: u64 = 64 << 10;

/// The header of a request for what this mirror has, and no origin: another mirror of the site asks.
pub const ONLY_HERE: &str = "kilnyard-only-here";

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;
/// An answer.
pub type Answer = Response<Body>;

/// What a request says of the answer that it wants.
#[derive(Clone, Debug)]
pub struct Asked {
    /// `GET` or `HEAD`.
    pub method: Method,
    /// Its headers.
    pub headers: HeaderMap,
}

/// A part of a file: the first byte, and the one after the last.
type Span = (u64, u64);

/// An answer of one line.
pub fn say(status: StatusCode, text: &str) -> Answer {
    let body = Full::new(Bytes::from(format!("{text}\n"))).map_err(|never| match never {}).boxed_unsync();
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

/// An answer of JSON.
pub fn json(text: String) -> Answer {
    let mut answer = say(StatusCode::OK, text.trim_end());
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

/// Answers with an index whose addresses are replaced.
pub fn replaced(asked: &Asked, facts: &Facts, text: String) -> Answer {
    // Its name is that of what the client gets.
    let etag = Some(format!("\"{}\"", &Sha256Hex::of(text.as_bytes()).as_str()[..32]));
    let facts = Facts { etag, size: text.len() as u64, ..facts.clone() };
    if is_unchanged(asked, &facts) {
        return answer(StatusCode::NOT_MODIFIED, &facts, empty());
    }
    let body = match asked.method == Method::HEAD {
        true => empty(),
        false => Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync(),
    };
    let mut answer = answer(StatusCode::OK, &facts, body);
    put(answer.headers_mut(), CONTENT_LENGTH, Some(&facts.size.to_string()));
    // Which of its forms it is depends on it.
    put(answer.headers_mut(), VARY, Some("accept"));
    answer
}

/// Answers with a file that is there.
pub fn whole(asked: &Asked, whole: Whole) -> Answer {
    let Whole { file, facts } = whole;
    if is_unchanged(asked, &facts) {
        return answer(StatusCode::NOT_MODIFIED, &facts, empty());
    }
    let size = facts.size;
    match span(asked, &facts, size) {
        Err(()) => unsatisfied(size),
        Ok(span) => {
            let (from, to) = span.unwrap_or((0, size));
            let body = match asked.method == Method::HEAD {
                true => empty(),
                false => read(file, from, to),
            };
            in_part(asked, &facts, Some(size), span, body)
        }
    }
}

/// Answers with a file on its way; `None` if its way ended without one.
pub async fn growing(asked: &Asked, mut follower: Follower) -> Result<Answer, End> {
    let state = follower.until(|state| state.facts.is_some()).await;
    let (facts, mut size) = match (state.facts, state.end) {
        (Some(facts), None | Some(End::Whole)) => (facts, state.size),
        (_, Some(end)) => return Err(end),
        (None, None) => return Err(End::Failed("the mirror ends".to_owned())),
    };
    if is_unchanged(asked, &facts) {
        return Ok(answer(StatusCode::NOT_MODIFIED, &facts, empty()));
    }
    let is_kept_back = size.is_some_and(|size| follower.is_kept_back(size));
    if size.is_none() && asked.headers.contains_key(RANGE) || is_kept_back {
        // Only its end says what part that is, or whether it is what it must be.
        size = match follower.until(|_| false).await {
            State { end: Some(End::Whole), size, .. } => size,
            State { end, .. } => return Err(end.unwrap_or(End::Absent)),
        };
    }
    let span = match size.map(|size| span(asked, &facts, size)).transpose() {
        Ok(span) => span.flatten(),
        Err(()) => return Ok(unsatisfied(size.unwrap_or_default())),
    };
    let (from, to) = span.unwrap_or((0, size.unwrap_or(u64::MAX)));
    let body = match asked.method == Method::HEAD {
        true => empty(),
        false => follow(follower, from, to),
    };
    Ok(in_part(asked, &facts, size, span, body))
}

fn in_part(asked: &Asked, facts: &Facts, size: Option<u64>, span: Option<Span>, body: Body) -> Answer {
    let status = if span.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    let mut answer = answer(status, facts, body);
    let headers = answer.headers_mut();
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let (Some((from, to)), Some(size)) = (span, size) {
        put(headers, CONTENT_RANGE, Some(&format!("bytes {from}-{}/{size}", to - 1)));
    }
    let length = span.map(|(from, to)| to - from).or(size);
    // What a body says of its length is not known for HEAD.
    if asked.method == Method::HEAD || length.is_some() {
        put(headers, CONTENT_LENGTH, length.map(|length| length.to_string()).as_deref());
    }
    answer
}

fn answer(status: StatusCode, facts: &Facts, body: Body) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    put(headers, ETAG, facts.etag.as_deref());
    put(headers, LAST_MODIFIED, facts.last_modified.as_deref());
    put(headers, CONTENT_ENCODING, facts.encoding.as_deref());
    put(headers, CONTENT_TYPE, Some(facts.content_type.as_deref().unwrap_or("application/octet-stream")));
    answer
}

fn put(headers: &mut HeaderMap, name: HeaderName, value: Option<&str>) {
    if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
        headers.insert(name, value);
    }
}

fn unsatisfied(size: u64) -> Answer {
    let mut answer = say(StatusCode::RANGE_NOT_SATISFIABLE, "the file has no such part");
    put(answer.headers_mut(), CONTENT_RANGE, Some(&format!("bytes */{size}")));
    answer
}

fn empty() -> Body {
    Full::new(Bytes::new()).map_err(|never| match never {}).boxed_unsync()
}

/// Whether the client has the file (RFC 9110, 13.2.2).
fn is_unchanged(asked: &Asked, facts: &Facts) -> bool {
    let header = |name| asked.headers.get(name).and_then(|value| value.to_str().ok());
    match (header(IF_NONE_MATCH), &facts.etag) {
        (Some(known), Some(etag)) => {
            let plain = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
            known.split(',').any(|one| one.trim() == "*" || plain(one) == plain(etag))
        }
        (Some(_), None) => false,
        (None, _) => {
            header(IF_MODIFIED_SINCE).is_some() && header(IF_MODIFIED_SINCE) == facts.last_modified.as_deref()
        }
    }
}

/// The part that is wanted of a file; none for all of it (RFC 9110, 14). Several parts at once are answered with all.
fn span(asked: &Asked, facts: &Facts, size: u64) -> Result<Option<Span>, ()> {
    let header = |name| asked.headers.get(name).and_then(|value| value.to_str().ok());
    let Some(range) = header(RANGE).and_then(|range| range.strip_prefix("bytes=")) else { return Ok(None) };
    let condition = header(IF_RANGE);
    let holds = |condition: &str| {
        Some(condition) == facts.etag.as_deref() || Some(condition) == facts.last_modified.as_deref()
    };
    if range.contains(',') || !condition.is_none_or(holds) {
        return Ok(None);
    }
    let Some((first, last)) = range.split_once('-') else { return Ok(None) };
    let (first, last) = (first.trim(), last.trim());
    let number = |text: &str| text.parse::<u64>().ok();
    let (from, to) = match (first.is_empty(), last.is_empty()) {
        (true, true) => return Ok(None),
        (true, false) => match number(last) {
            Some(count) => (size.saturating_sub(count), size),
            None => return Ok(None),
        },
        (false, _) => match (number(first), last.is_empty(), number(last)) {
            (Some(from), true, _) => (from, size),
            (Some(from), false, Some(last)) if last >= from => (from, last.saturating_add(1).min(size)),
            _ => return Ok(None),
        },
    };
    if from >= to { Err(()) } else { Ok(Some((from, to))) }
}

/// The bytes of a file.
fn read(file: Arc<File>, from: u64, to: u64) -> Body {
    if to - from <= SMALL_BYTES {
        let bytes = buffers::read_at(&file, from, to - from);
        return match bytes {
            Ok(bytes) => Full::new(bytes).map_err(|never| match never {}).boxed_unsync(),
            Err(error) => StreamBody::new(stream::iter([Err::<Frame<Bytes>, _>(error)])).boxed_unsync(),
        };
    }
    let parts = stream::unfold(from, move |at| {
        let file = file.clone();
        async move {
            let count = (to - at).min(PART_BYTES);
            if count == 0 {
                return None;
            }
            if let Some(bytes) = buffers::read_cached(&file, at, count) {
                let count = bytes.len() as u64;
                return Some((Ok(Frame::data(bytes)), at + count));
            }
            // A disk may be slow.
            let read = tokio::task::spawn_blocking(move || buffers::read_at(&file, at, count)).await;
            let read = read.unwrap_or_else(|error| Err(io::Error::other(error)));
            Some((read.map(Frame::data), at + count))
        }
    });
    StreamBody::new(parts).boxed_unsync()
}

/// The bytes of a file on its way, as they arrive.
fn follow(follower: Follower, from: u64, to: u64) -> Body {
    let parts = stream::unfold((follower, from, false), move |(mut follower, at, has_failed)| async move {
        if at >= to || has_failed {
            return None;
        }
        let state = follower.until(|state| state.length > at).await;
        let there = state.length.min(to).saturating_sub(at);
        if there > 0 {
            let count = there.min(PART_BYTES) as usize;
            let reader = follower.clone();
            let read = tokio::task::spawn_blocking(move || reader.read(at, count)).await;
            let read = read.unwrap_or_else(|error| Err(io::Error::other(error)));
            let count = read.as_ref().map_or(0, Vec::len) as u64;
            let has_failed = read.is_err() || count == 0;
            let read = read.map(|bytes| Frame::data(Bytes::from(bytes)));
            return Some((read, (follower, at + count, has_failed)));
        }
        match state.end {
            Some(End::Whole) => None,
            // The connection ends: the client must not take what it has for the whole.
            end => {
                let reason = format!("{end:?}");
                Some((Err(io::Error::other(reason)), (follower, at, true)))
            }
        }
    });
    StreamBody::new(parts).boxed_unsync()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_file_are_those_of_the_standard() {
        let facts = Facts { etag: Some("\"a\"".to_owned()), ..Facts::default() };
        let asked = |range: &str, condition: Option<&str>| {
            let mut headers = HeaderMap::new();
            put(&mut headers, RANGE, Some(range));
            put(&mut headers, IF_RANGE, condition);
            span(&Asked { method: Method::GET, headers }, &facts, 100)
        };
        for (range, expected) in [
            ("bytes=0-0", Ok(Some((0, 1)))),
            ("bytes=10-19", Ok(Some((10, 20)))),
            ("bytes=90-", Ok(Some((90, 100)))),
            ("bytes=-5", Ok(Some((95, 100)))),
            ("bytes=-500", Ok(Some((0, 100)))),
            ("bytes=90-500", Ok(Some((90, 100)))),
            ("bytes=100-", Err(())),
            ("bytes=-0", Err(())),
            ("bytes=5-4", Ok(None)),
            ("bytes=0-1,3-4", Ok(None)),
            ("bytes=x-1", Ok(None)),
            ("lines=0-1", Ok(None)),
            ("bytes=0-18446744073709551615", Ok(Some((0, 100)))),
        ] {
            assert_eq!(asked(range, None), expected, "{range}");
        }
        assert_eq!(asked("bytes=0-0", Some("\"a\"")), Ok(Some((0, 1))));
        assert_eq!(asked("bytes=0-0", Some("\"b\"")), Ok(None));
    }
}
