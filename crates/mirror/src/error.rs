//! The errors of single attempts and of whole fetches.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kilnyard_artifacts::ArtifactError;

use crate::Sha256Hex;
use crate::pace::Slow;

/// A failure to fetch or store a file. The message reads after "failed to".
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// Every URL failed.
    #[error("fetch {name}: {}", list(failed))]
    Failed {
        /// The name of the file, for messages only.
        name: String,
        /// The last failure of each URL, in the order of the URLs.
        failed: Vec<FailedAttempt>,
    },
    /// The store lacks the file, and there is no URL to fetch it from.
    #[error("fetch {name}: no URL is available")]
    NoUrl {
        /// The name of the file, for messages only.
        name: String,
    },
    /// The store that the machines share cannot be read.
    #[error("fetch {name} from {depot}: {source}")]
    Depot {
        /// The name of the file, for messages only.
        name: String,
        /// The address of the store that the machines share.
        depot: String,
        /// Its error.
        source: ArtifactError,
    },
    /// The cancel flag was set.
    #[error("fetch {name}: cancelled")]
    Cancelled {
        /// The name of the file, for messages only.
        name: String,
    },
    /// The disk, or the user's quota, is full.
    #[error("store {name}: {} is full, and {needed_bytes} more bytes are needed", folder.display())]
    DiskFull {
        /// The name of the file, for messages only.
        name: String,
        /// The folder of the store.
        folder: PathBuf,
        /// The bytes still missing when the disk was found full.
        needed_bytes: u64,
        /// The error from the kernel.
        source: io::Error,
    },
    /// A file or folder of the store cannot be used.
    #[error("{action} {}", path.display())]
    Store {
        /// The failed operation, as a verb phrase.
        action: &'static str,
        /// The affected file or folder.
        path: PathBuf,
        /// The error from the kernel.
        source: io::Error,
    },
    /// The proxy's address is invalid.
    #[error("use the proxy {proxy}: {reason}")]
    Proxy {
        /// The address, without a password.
        proxy: String,
        /// The flaw in the address.
        reason: String,
    },
    /// Another thread fetched the same file, and failed.
    #[error(transparent)]
    Shared(Arc<FetchError>),
}

/// A URL that did not deliver the file, with the reason.
#[derive(Debug, thiserror::Error)]
#[error("{url}: {error}")]
pub struct FailedAttempt {
    /// The URL, without a password.
    pub url: String,
    /// The reason.
    #[source]
    pub error: AttemptError,
}

/// Why one attempt at one URL failed. The message is a clause.
#[derive(Debug, thiserror::Error)]
pub enum AttemptError {
    /// The server responded with an error status.
    #[error("the server returned status {code}")]
    Status {
        /// The HTTP status code.
        code: u16,
    },
    /// No connection, no response, or a broken one.
    #[error("{reason}")]
    Transport {
        /// The error of the HTTP client, as a clause.
        reason: String,
    },
    /// The server did not start to respond in time.
    #[error("no response within {} seconds", seconds(*waited))]
    NoAnswer {
        /// How long the attempt waited for a response.
        waited: Duration,
    },
    /// The body arrives too slowly.
    #[error(
        "stalled after {received_bytes} bytes: {speed_bytes_per_second} bytes per second over {} seconds, \
         below the minimum of {speed_min_bytes_per_second}",
        seconds(*window)
    )]
    TooSlow {
        /// The bytes received in this attempt, without an earlier part.
        received_bytes: u64,
        /// The speed over the last window.
        speed_bytes_per_second: u64,
        /// The minimum speed, by the limits of the client.
        speed_min_bytes_per_second: u64,
        /// The time over which the speed was measured.
        window: Duration,
    },
    /// The body ended early.
    #[error("the connection ended after {received_bytes} bytes{}", of(*size_bytes))]
    Truncated {
        /// The bytes received so far, including an earlier part.
        received_bytes: u64,
        /// The expected size, if it is known.
        size_bytes: Option<u64>,
    },
    /// The server has a file of a different size.
    #[error("the server has a file of {got_bytes} bytes, expected {size_bytes}")]
    SizeDiffers {
        /// The size that the caller expects.
        size_bytes: u64,
        /// The size that the server reports.
        got_bytes: u64,
    },
    /// The body exceeds the caller's limit.
    #[error("the file is larger than the limit of {size_bytes_max} bytes")]
    TooLarge {
        /// The limit that the caller set.
        size_bytes_max: u64,
    },
    /// The server's response to a range request makes no sense.
    #[error("invalid response to a range request: {got:?}")]
    BadRange {
        /// The range in the response.
        got: String,
    },
    /// The content does not match the expected hash.
    #[error("the SHA-256 is {got}, expected {expected}")]
    HashDiffers {
        /// The hash that the caller expects.
        expected: Sha256Hex,
        /// The hash of the received content.
        got: Sha256Hex,
    },
    /// The content is not what the caller expects.
    #[error("{reason}")]
    NotAccepted {
        /// A clause that names the difference.
        reason: String,
    },
    /// A URL that cannot be used.
    #[error("the URL cannot be used: {reason}")]
    BadUrl {
        /// A clause that names the defect.
        reason: String,
    },
    /// A `file` URL whose file cannot be read.
    #[error("the file cannot be read: {reason}")]
    LocalFile {
        /// The error from the kernel, as text.
        reason: String,
    },
}

/// Whether trying the same URL again makes sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// The failure may be transient.
    Transient,
    /// The content was wrong, which may once be the fault of an old part or of a cache in between.
    OnceMore,
    /// The result would be the same.
    Final,
}

impl AttemptError {
    pub(crate) fn outlook(&self) -> Outlook {
        match self {
            // 416 rejects a range that starts beyond the end; without the part, the request may succeed.
            AttemptError::Status { code: 408 | 416 | 425 | 429 | 500..=599 } => Outlook::Transient,
            AttemptError::Status { .. } => Outlook::Final,
            AttemptError::Transport { .. }
            | AttemptError::NoAnswer { .. }
            | AttemptError::TooSlow { .. }
            | AttemptError::Truncated { .. }
            | AttemptError::BadRange { .. } => Outlook::Transient,
            AttemptError::HashDiffers { .. } | AttemptError::NotAccepted { .. } => Outlook::OnceMore,
            AttemptError::SizeDiffers { .. }
            | AttemptError::TooLarge { .. }
            | AttemptError::BadUrl { .. }
            | AttemptError::LocalFile { .. } => Outlook::Final,
        }
    }

    pub(crate) fn too_slow(slow: Slow, received_bytes: u64) -> AttemptError {
        AttemptError::TooSlow {
            received_bytes,
            speed_bytes_per_second: slow.speed_bytes_per_second,
            speed_min_bytes_per_second: slow.speed_min_bytes_per_second,
            window: slow.window,
        }
    }
}

impl FetchError {
    /// A failure of the store's disk; a full disk is a separate variant.
    pub(crate) fn disk(
        name: &str,
        action: &'static str,
        path: &Path,
        needed_bytes: u64,
        source: io::Error,
    ) -> FetchError {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FetchError::DiskFull {
                name: name.to_owned(),
                folder: path.parent().unwrap_or(path).to_owned(),
                needed_bytes,
                source,
            },
            _ => FetchError::Store { action, path: path.to_owned(), source },
        }
    }

    /// The underlying failure, even if it was another thread's.
    pub fn root(&self) -> &FetchError {
        match self {
            FetchError::Shared(error) => error.root(),
            error => error,
        }
    }

    /// Whether a later try may succeed: the network failed, or a server was busy.
    pub fn is_transient(&self) -> bool {
        match self.root() {
            FetchError::Failed { failed, .. } => {
                failed.iter().any(|attempt| attempt.error.outlook() == Outlook::Transient)
            }
            _ => false,
        }
    }

    /// Whether there was no space for the file.
    pub fn is_disk_full(&self) -> bool {
        matches!(self.root(), FetchError::DiskFull { .. })
    }

    /// Whether the caller cancelled it.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.root(), FetchError::Cancelled { .. })
    }
}

/// Replaces the user and password of each URL in a text with `***`, so that passwords stay out of messages, logs and
/// files that others can read.
pub fn without_password(text: &str) -> String {
    const SCHEME_END: &str = "://";
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(scheme) = rest.find(SCHEME_END) {
        let (before, after) = rest.split_at(scheme + SCHEME_END.len());
        shown.push_str(before);
        let end = after.find(|c: char| c == '/' || c == '"' || c.is_whitespace()).unwrap_or(after.len());
        rest = match after[..end].rfind('@') {
            Some(at) => {
                shown.push_str("***");
                &after[at..]
            }
            None => after,
        };
    }
    shown + rest
}

/// Maximum number of mirrors listed in a message; a longer list would not be read.
const LISTED_MAX: usize = 8;

fn list(failed: &[FailedAttempt]) -> String {
    let mut text =
        failed.iter().take(LISTED_MAX).map(FailedAttempt::to_string).collect::<Vec<_>>().join("; ");
    if failed.len() > LISTED_MAX {
        text.push_str(&format!("; and {} more", failed.len() - LISTED_MAX));
    }
    text
}

fn of(size_bytes: Option<u64>) -> String {
    size_bytes.map_or_else(String::new, |size| format!(" of {size}"))
}

fn seconds(duration: Duration) -> String {
    if duration.subsec_millis() == 0 {
        duration.as_secs().to_string()
    } else {
        format!("{:.1}", duration.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        for (url, shown) in [
            ("https://me:secret@mirror.example/a@b", "https://***@mirror.example/a@b"),
            ("https://mirror.example/a@b", "https://mirror.example/a@b"),
            ("https://me:se@cret@mirror.example", "https://***@mirror.example"),
            ("no url", "no url"),
            (
                "http://a:b@c/x and http://d:e@f/y, not http://g/h@i",
                "http://***@c/x and http://***@f/y, not http://g/h@i",
            ),
            ("mirror = \"http://a:b@c\"", "mirror = \"http://***@c\""),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }

    #[test]
    fn a_full_disk_is_a_separate_error() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let error = FetchError::disk("a.tar", "write", Path::new("/store/ab/abcd"), 7, full);
        assert_eq!(error.to_string(), "store a.tar: /store/ab is full, and 7 more bytes are needed");
        let other = io::Error::from(io::ErrorKind::PermissionDenied);
        let error = FetchError::disk("a.tar", "write", Path::new("/store/ab/abcd"), 7, other);
        assert_eq!(error.to_string(), "write /store/ab/abcd");
    }

    #[test]
    fn only_transient_failures_are_retried() {
        let outlook = |code| AttemptError::Status { code }.outlook();
        assert_eq!([404, 410, 403, 304].map(outlook), [Outlook::Final; 4]);
        assert_eq!([500, 503, 429, 416].map(outlook), [Outlook::Transient; 4]);
    }
}
