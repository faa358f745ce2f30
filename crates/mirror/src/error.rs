//! What can go wrong, for one attempt and for the whole.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::Sha256Hex;
use crate::pace::Slow;

/// A failure to fetch or to store. The text reads after "failed to".
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// Every url failed.
    #[error("fetch {name}: {}", list(failed))]
    Failed {
        /// What was wanted.
        name: String,
        /// The last failure of each url, in the order of the urls.
        failed: Vec<FailedAttempt>,
    },
    /// There is no url to fetch it from, and the store does not have it.
    #[error("fetch {name}: no url is known for it")]
    NoUrl {
        /// What was wanted.
        name: String,
    },
    /// The cancel flag was raised.
    #[error("fetch {name}: it was cancelled")]
    Cancelled {
        /// What was wanted.
        name: String,
    },
    /// The disk, or the user's quota, is full.
    #[error("store {name}: {} is full, and {needed_bytes} more bytes are needed", folder.display())]
    DiskFull {
        /// What was to be stored.
        name: String,
        /// The folder of the store.
        folder: PathBuf,
        /// What was still missing when the disk was found full.
        needed_bytes: u64,
        /// What the kernel said.
        source: io::Error,
    },
    /// A file or folder of the store cannot be used.
    #[error("{action} {}", path.display())]
    Store {
        /// What was to be done.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The proxy's address is no address.
    #[error("use the proxy {proxy}: {reason}")]
    Proxy {
        /// The address.
        proxy: String,
        /// What is wrong.
        reason: String,
    },
    /// Another thread fetched the same file and failed.
    #[error(transparent)]
    Shared(Arc<FetchError>),
}

/// A url and why it did not bring the file.
#[derive(Debug, thiserror::Error)]
#[error("{url}: {error}")]
pub struct FailedAttempt {
    /// The url, without a password.
    pub url: String,
    /// The reason.
    #[source]
    pub error: AttemptError,
}

/// Why one attempt at one url failed. The text is a clause.
#[derive(Debug, thiserror::Error)]
pub enum AttemptError {
    /// The server says no.
    #[error("the server answers with status {code}")]
    Status {
        /// The status.
        code: u16,
    },
    /// No connection, no answer, or a broken one.
    #[error("{reason}")]
    Transport {
        /// What happened.
        reason: String,
    },
    /// The server did not begin to answer in time.
    #[error("no answer within {} seconds", seconds(*waited))]
    NoAnswer {
        /// How long was waited.
        waited: Duration,
    },
    /// The body comes too slowly.
    #[error(
        "stalled after {received_bytes} bytes: {speed_bytes_per_second} bytes per second over {} seconds, \
         and the least is {speed_min_bytes_per_second}",
        seconds(*window)
    )]
    TooSlow {
        /// What came in this attempt.
        received_bytes: u64,
        /// The speed over the last window.
        speed_bytes_per_second: u64,
        /// The least speed.
        speed_min_bytes_per_second: u64,
        /// The window.
        window: Duration,
    },
    /// The body ended early.
    #[error("the connection ended after {received_bytes} bytes{}", of(*size_bytes))]
    Truncated {
        /// What is there, an earlier part included.
        received_bytes: u64,
        /// What should be there, if it is known.
        size_bytes: Option<u64>,
    },
    /// The server has a file of another size.
    #[error("the server has a file of {got_bytes} bytes where {size_bytes} were expected")]
    SizeDiffers {
        /// The size that was asked for.
        size_bytes: u64,
        /// The size that the server tells.
        got_bytes: u64,
    },
    /// The body is longer than the caller allows.
    #[error("the file is larger than the limit of {size_bytes_max} bytes")]
    TooLarge {
        /// The limit.
        size_bytes_max: u64,
    },
    /// The server's answer to a request for the rest of a file makes no sense.
    #[error("the server answers the request for a part with {got:?}")]
    BadRange {
        /// The range that it names.
        got: String,
    },
    /// The content is not what was asked for.
    #[error("the SHA-256 is {got} where {expected} was expected")]
    HashDiffers {
        /// The hash that was asked for.
        expected: Sha256Hex,
        /// The hash of what came.
        got: Sha256Hex,
    },
    /// A url that cannot be used.
    #[error("the url cannot be used: {reason}")]
    BadUrl {
        /// Why not.
        reason: String,
    },
    /// A `file` url whose file cannot be read.
    #[error("the file cannot be read: {reason}")]
    LocalFile {
        /// Why not.
        reason: String,
    },
}

/// What a failure says about trying the same url again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// It may be better next time.
    Passing,
    /// The content was wrong: once may be the fault of an old part or a cache on the way.
    OnceMore,
    /// It will be the same next time.
    Final,
}

impl AttemptError {
    pub(crate) fn outlook(&self) -> Outlook {
        match self {
            // 416 answers a range that begins behind the end: without the part it may do.
            AttemptError::Status { code: 408 | 416 | 425 | 429 | 500..=599 } => Outlook::Passing,
            AttemptError::Status { .. } => Outlook::Final,
            AttemptError::Transport { .. }
            | AttemptError::NoAnswer { .. }
            | AttemptError::TooSlow { .. }
            | AttemptError::Truncated { .. }
            | AttemptError::BadRange { .. } => Outlook::Passing,
            AttemptError::HashDiffers { .. } => Outlook::OnceMore,
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
    /// A failure of the store's own disk, with a full disk as a kind of its own.
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

    /// The failure itself, also when it was another thread's.
    pub fn root(&self) -> &FetchError {
        match self {
            FetchError::Shared(error) => error.root(),
            error => error,
        }
    }

    /// Whether it may be better another time: the network failed, or a server was busy.
    pub fn is_passing(&self) -> bool {
        match self.root() {
            FetchError::Failed { failed, .. } => {
                failed.iter().any(|attempt| attempt.error.outlook() == Outlook::Passing)
            }
            _ => false,
        }
    }

    /// Whether there was no room for the file.
    pub fn is_disk_full(&self) -> bool {
        matches!(self.root(), FetchError::DiskFull { .. })
    }

    /// Was it the caller who ended it?
    pub fn is_cancelled(&self) -> bool {
        matches!(self.root(), FetchError::Cancelled { .. })
    }
}

/// A text for people, with the user and password of each url in it replaced by `***`: a password stays out of messages,
/// logs and files that others can read.
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

/// More than these mirrors are not read by anyone.
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
    fn a_full_disk_is_told_apart() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let error = FetchError::disk("a.tar", "write", Path::new("/store/ab/abcd"), 7, full);
        assert_eq!(error.to_string(), "store a.tar: /store/ab is full, and 7 more bytes are needed");
        let other = io::Error::from(io::ErrorKind::PermissionDenied);
        let error = FetchError::disk("a.tar", "write", Path::new("/store/ab/abcd"), 7, other);
        assert_eq!(error.to_string(), "write /store/ab/abcd");
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let outlook = |code| AttemptError::Status { code }.outlook();
        assert_eq!([404, 410, 403, 304].map(outlook), [Outlook::Final; 4]);
        assert_eq!([500, 503, 429, 416].map(outlook), [Outlook::Passing; 4]);
    }
}
