//! Distfiles: fetched once, checked, resumed.
//!
//! A [`FileStore`] is a folder of files named by their SHA-256. A build asks the store for each file it needs
//! ([`FileStore::ensure`]); the store has the file, or fetches it from the first mirror that does.
//! A [`Site`] is the mirror of the yard's site, which is asked first. [`Client::fetch_bytes`] fetches small files whose hash is not known beforehand, such as an `InRelease`.
//!
//! The path of a file:
//!
//! ```text
//! ensure --is it there?--> done
//!        --is it on its way?--> wait for the thread that fetches it
//!        --else--> attempts (urls, rounds, pauses) --> one exchange --chunks--> .part --hash--> fsync, rename
//! ```
//!
//! The decisions are pure and separate: what a response means (`answer`), whether a mirror is too slow (`pace`), and
//! what to try next (`attempts`). The work is done by one thread per exchange, which only reads the socket, and by
//! the caller's thread, which writes, hashes, and checks the clock and the cancel flag. When an exchange is
//! abandoned, its socket is shut down, so nothing waits for a dead mirror.
//!
//! Invariants:
//!
//! - A file under its final name in the store was fully hashed and flushed before it got that name. A crash at any
//!   point leaves at most a `.part`, which the next fetch hashes from its start and then resumes.
//! - No mirror is trusted: not its status, its lengths, its ranges or its content. The expected size and hash decide,
//!   and nothing beyond that size is read.
//! - No mirror holds up a build: a body slower than the minimum speed over any window of patience is aborted. Each
//!   attempt takes at most the time for the file at that speed, plus one window.
//! - A process fetches each file once, however many threads ask for it.
//!
//! Out of scope: judging who signed the fetched files, choosing mirrors by speed, limiting the size of a store, and
//! keeping two processes from fetching the same file (they would disturb each other's `.part`, which the hash would
//! reveal).
//!
//! Known downsides: each exchange opens its own connection, which costs a handshake for every small file. The
//! certificate roots are those of the browsers, compiled in; a mirror with a private certificate authority must be
//! reached over `http`, which is safe for files with a known hash.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod answer;
mod attempts;
mod error;
mod exchange;
mod fetch;
mod limits;
mod local;
mod pace;
mod part;
mod sha256;
mod site;
mod store;

pub use error::{AttemptError, FailedAttempt, FetchError, without_password};
pub use fetch::{Client, Condition, Fetched, Progress, Wanted};
pub use limits::Limits;
pub use site::{Offered, Site};
pub use store::FileStore;

pub use kilnyard_model::sha256::{Sha256Hex, Sha256HexError};
