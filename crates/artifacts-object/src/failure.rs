//! Failures in the words of the server, without secrets.

use kilnyard_artifacts::ArtifactError;
use object_store::client::{HttpError, HttpErrorKind};
use std::error::Error;
use std::io::{self, ErrorKind};
use std::time::Duration;

/// The longest message of a server that is passed on, in characters.
const WORDS_MAX: usize = 500;

/// The status of a server that is overloaded, or that a proxy cannot reach.
const AWAY: [u16; 6] = [408, 429, 500, 502, 503, 504];
/// The same in the text of an answer.
const AWAY_CODES: [&str; 3] = ["InternalError", "ServiceUnavailable", "SlowDown"];

/// Why a task failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The library's own error; most are the server's answer.
    Store(object_store::Error),
    /// There was no outcome within this time.
    Silent(Duration),
    /// The task ended without an outcome.
    Ended,
    /// Content is other than the server promised.
    Content(String),
}

impl Failure {
    /// The server has no such object, or no such bucket.
    pub fn is_absent(&self) -> bool {
        matches!(self, Failure::Store(object_store::Error::NotFound { .. }))
    }

    /// The server has an object of this name already, or is getting one.
    pub fn is_present(&self) -> bool {
        use object_store::Error::{AlreadyExists, Precondition};
        matches!(self, Failure::Store(AlreadyExists { .. } | Precondition { .. }))
    }

    /// The server does not know this kind of request.
    pub fn is_unknown(&self) -> bool {
        match self {
            Failure::Store(error) => status(&error.to_string()) == Some(501),
            _ => false,
        }
    }

    /// The server understood the request and refused it.
    pub fn is_refusal(&self) -> bool {
        match self {
            Failure::Store(error) => {
                let status = status(&error.to_string());
                status.is_some_and(|status| (400..500).contains(&status) && !AWAY.contains(&status))
            }
            _ => false,
        }
    }

    /// [`ErrorKind::TimedOut`] or [`ErrorKind::NotConnected`] if the server may only be away.
    pub fn kind(&self) -> ErrorKind {
        let error = match self {
            Failure::Silent(_) => return ErrorKind::TimedOut,
            Failure::Ended => return ErrorKind::Other,
            Failure::Content(_) => return ErrorKind::InvalidData,
            Failure::Store(error) => error,
        };
        let mut cause: Option<&(dyn Error + 'static)> = Some(error);
        while let Some(error) = cause {
            if let Some(http) = error.downcast_ref::<HttpError>() {
                return match http.kind() {
                    HttpErrorKind::Timeout => ErrorKind::TimedOut,
                    HttpErrorKind::Connect | HttpErrorKind::Request | HttpErrorKind::Interrupted => {
                        ErrorKind::NotConnected
                    }
                    _ => ErrorKind::Other,
                };
            }
            cause = error.source();
        }
        let text = error.to_string();
        match status(&text) {
            Some(404) => ErrorKind::NotFound,
            Some(401 | 403) => ErrorKind::PermissionDenied,
            Some(status) if AWAY.contains(&status) => ErrorKind::NotConnected,
            // Joining parts can fail after the status was sent.
            None if element(&text, "Code").is_some_and(|code| AWAY_CODES.contains(&code)) => {
                ErrorKind::NotConnected
            }
            _ => ErrorKind::Other,
        }
    }

    /// What happened, without secrets.
    pub fn words(&self, secrets: &[String]) -> String {
        let words = match self {
            Failure::Store(error) => words(error),
            Failure::Silent(limit) => format!("no answer within {} seconds", limit.as_secs_f64().ceil()),
            Failure::Ended => "the task ended unexpectedly".to_owned(),
            Failure::Content(reason) => reason.clone(),
        };
        let words = secrets.iter().fold(words, |words, secret| words.replace(secret, "…"));
        words.chars().take(WORDS_MAX).collect()
    }

    pub fn into_io(self, secrets: &[String]) -> io::Error {
        io::Error::new(self.kind(), self.words(secrets))
    }
}

/// Whether an error of a bucket says that its server did not answer or could not serve now, so that the same call may
/// succeed later.
pub fn is_away(error: &ArtifactError) -> bool {
    match error {
        ArtifactError::Io { source, .. } => {
            matches!(source.kind(), ErrorKind::TimedOut | ErrorKind::NotConnected)
        }
        _ => false,
    }
}

/// The status of HTTP in a message of the library, whose type for it is not public.
fn status(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("status code: ")?;
    rest.get(..3)?.parse().ok()
}

fn words(error: &object_store::Error) -> String {
    let text = error.to_string();
    if let Some(code) = element(&text, "Code") {
        let message = element(&text, "Message").unwrap_or_default();
        let message = quick_xml::escape::unescape(message).unwrap_or(message.into());
        let status = status(&text).map(|status| format!("HTTP {status}, ")).unwrap_or_default();
        return format!("{status}{code}: {message}");
    }
    let mut text = without_queries(&text);
    // The message of the innermost cause is often missing in the outer ones: "connection refused".
    let mut cause = error.source();
    let mut innermost = None;
    while let Some(error) = cause {
        innermost = Some(error);
        cause = error.source();
    }
    if let Some(innermost) = innermost.map(|error| without_queries(&error.to_string()))
        && !text.contains(&innermost)
    {
        text = format!("{text}: {innermost}");
    }
    text
}

/// The text of an element in a server's XML.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0)
}

/// Removes what follows a `?` up to the next space or quote: signatures are there.
fn without_queries(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut is_query = false;
    for character in text.chars() {
        if character.is_whitespace() || "\"')>".contains(character) {
            is_query = false;
        }
        if !is_query {
            kept.push(character);
        }
        is_query |= character == '?';
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> Failure {
        Failure::Store(object_store::Error::Generic { store: "S3", source: text.into() })
    }

    #[test]
    fn the_servers_words_are_kept_and_secrets_are_not() {
        let secrets = ["hush".to_owned()];
        let xml = "status code: 403 Forbidden: <Error><Code>Denied</Code><Message>it&#39;s not hush</Message></Error>";
        assert_eq!(generic(xml).words(&secrets), "HTTP 403, Denied: it's not …");
        assert_eq!(generic(xml).kind(), ErrorKind::PermissionDenied);
        assert!(generic(xml).is_refusal() && !generic(xml).is_unknown());
        let said = generic("GET http://one/two?X-Amz-Signature=abc failed").words(&secrets);
        assert!(said.contains("http://one/two? failed") && !said.contains("abc"), "{said}");
    }

    #[test]
    fn a_server_that_is_away_is_recognized() {
        let error = |failure: Failure| ArtifactError::io("read", failure.into_io(&[]));
        assert!(is_away(&error(generic("status code: 503 Slow Down"))));
        let late = generic("Server returned error response: <Error><Code>SlowDown</Code></Error>");
        assert!(is_away(&error(late)));
        assert!(is_away(&error(generic("status code: 429 "))) && !generic("status code: 429 ").is_refusal());
        assert!(is_away(&error(Failure::Silent(Duration::from_secs(1)))));
        let refused = HttpError::new(HttpErrorKind::Connect, io::Error::other("refused"));
        let source = Box::new(refused);
        assert!(is_away(&error(Failure::Store(object_store::Error::Generic { store: "S3", source }))));
        assert!(!is_away(&error(generic("status code: 400 Bad Request"))));
        assert!(!is_away(&error(Failure::Content("short".to_owned()))));
    }
}
