//! Interprets an HTTP response for a file that may be partly here already. Pure.

use crate::AttemptError;

/// The relevant fields of a response head.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) content_length: Option<u64>,
    pub(crate) content_range: Option<String>,
    pub(crate) etag: Option<String>,
    pub(crate) last_modified: Option<String>,
}

/// How to use the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    /// It is the whole file; an existing part is discarded.
    Whole,
    /// It continues the existing part.
    Rest,
}

/// Judges the response to a request for a file of known size, of which the first `part_bytes` bytes are here.
pub(crate) fn judge(head: &Head, part_bytes: u64, size_bytes: u64) -> Result<Body, AttemptError> {
    match head.status {
        200 => match head.content_length {
            Some(got_bytes) if got_bytes != size_bytes => {
                Err(AttemptError::SizeDiffers { size_bytes, got_bytes })
            }
            Some(_) | None => Ok(Body::Whole),
        },
        206 => {
            let got = head.content_range.clone().unwrap_or_default();
            let Some(range) = parse_range(&got) else {
                return Err(AttemptError::BadRange { got });
            };
            match range.size_bytes {
                Some(got_bytes) if got_bytes != size_bytes => {
                    Err(AttemptError::SizeDiffers { size_bytes, got_bytes })
                }
                // A server may send less than the rest; the next attempt continues from there.
                Some(_) | None if part_bytes > 0 && range.first == part_bytes => Ok(Body::Rest),
                Some(_) | None => Err(AttemptError::BadRange { got }),
            }
        }
        code => Err(AttemptError::Status { code }),
    }
}

struct Range {
    first: u64,
    size_bytes: Option<u64>,
}

/// Parses `bytes 5-9/10` or `bytes 5-9/*`.
fn parse_range(text: &str) -> Option<Range> {
    let (range, size) = text.trim().strip_prefix("bytes ")?.trim().split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let first: u64 = first.trim().parse().ok()?;
    let last: u64 = last.trim().parse().ok()?;
    let size_bytes = match size.trim() {
        "*" => None,
        size => Some(size.parse().ok()?),
    };
    (first <= last && size_bytes.is_none_or(|size| last < size)).then_some(Range { first, size_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(content_length: Option<u64>) -> Head {
        Head { status: 200, content_length, ..Head::default() }
    }

    fn part(range: &str) -> Head {
        Head { status: 206, content_range: Some(range.to_owned()), ..Head::default() }
    }

    #[test]
    fn a_whole_file_drops_the_part() {
        assert_eq!(judge(&whole(Some(10)), 5, 10).unwrap(), Body::Whole);
        assert_eq!(judge(&whole(None), 5, 10).unwrap(), Body::Whole);
    }

    #[test]
    fn another_size_is_another_file() {
        for head in [whole(Some(9)), whole(Some(11)), part("bytes 5-10/11")] {
            let error = judge(&head, 5, 10).unwrap_err();
            assert!(matches!(error, AttemptError::SizeDiffers { .. }), "{error}");
        }
    }

    #[test]
    fn a_part_must_begin_where_ours_ends() {
        for range in ["bytes 5-9/10", "bytes 5-9/*", "bytes 5-7/10"] {
            assert_eq!(judge(&part(range), 5, 10).unwrap(), Body::Rest, "{range}");
        }
        for range in [
            "bytes 4-9/10",
            "bytes 6-9/10",
            "bytes 0-9/10",
            "bytes 5-10/10",
            "bytes 9-5/10",
            "bytes */10",
            "bytes 5-9",
            "chars 5-9/10",
            "bytes -5-9/10",
            "bytes 99999999999999999999-9/10",
            "",
        ] {
            let error = judge(&part(range), 5, 10).unwrap_err();
            assert!(matches!(error, AttemptError::BadRange { .. }), "{range}: {error}");
        }
    }

    #[test]
    fn a_part_that_was_not_requested_is_refused() {
        assert!(judge(&part("bytes 0-9/10"), 0, 10).is_err());
    }
}
