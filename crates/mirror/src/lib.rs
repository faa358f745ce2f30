//! Distfiles: fetched once, checked, resumed.
//!
//! A [`DistfileStore`] is a folder of files by their SHA-256. A build asks it for what it needs
//! ([`DistfileStore::ensure`]); the store has the file, or fetches it from the first mirror that has it.
//! Small files whose hash is not known beforehand (an `InRelease`) come through [`Client::fetch_bytes`].
//!
//! The way of a file:
//!
//! ```text
//! ensure --is it there?--> done
//!        --is it on its way?--> wait for the thread that fetches it
//!        --else--> attempts (urls, rounds, pauses) --> one exchange --chunks--> .part --hash--> fsync, rename
//! ```
//!
//! The decisions are pure and apart: what an answer means (`answer`), whether a mirror is too slow (`pace`),
//! what is tried next (`attempts`). The doing is one thread for each exchange, which only reads the socket,
//! and the caller's thread, which writes, hashes, and checks the clock and the cancel flag. An exchange
//! that is given up has its socket shut down, so nothing waits for a dead mirror.
//!
//! What must hold:
//!
//! - A file under its own name in the store was hashed in full and flushed before it got that name. A crash
//!   at any point leaves at most a `.part`, which the next fetch resumes after hashing it from its start.
//! - No mirror is believed: not its status, its lengths, its ranges or its content. The size and the hash
//!   that were asked for decide, and nothing beyond that size is read.
//! - No mirror holds up a build: a body that brings less than the least speed over any window of patience
//!   is ended, so a fetch takes at most its size at that speed and one window more, for each attempt.
//! - Within a process a file is fetched once, however many ask for it.
//!
//! What it does not do: judge who signed what it fetched, choose mirrors by speed, keep a store within a
//! size, or keep two processes from fetching the same file (they would disturb each other's `.part`, and
//! the hash would tell).
//!
//! Known downsides: each exchange makes a connection of its own, which costs a handshake for every small
//! file. The certificate roots are those of the browsers, compiled in; a mirror of a private authority
//! must be reached over `http`, which is safe for files whose hash is known.

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
mod store;

pub use error::{AttemptError, FailedAttempt, FetchError, without_password};
pub use fetch::{Client, Condition, Fetched, Progress, Wanted};
pub use limits::Limits;
pub use store::DistfileStore;

pub use kilnyard_model::sha256::{Sha256Hex, Sha256HexError};
