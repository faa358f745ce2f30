//! The signer: the process that has the keys of repositories, and nothing else.
//!
//! It is asked for signatures of small texts that vouch for a repository, and gets with each text what it vouches for: the
//! changes of its indexes, and the builds that new packages are from. It judges them by its policy and by what it signed
//! before, makes the signature itself, and records it in an account before it leaves.
//!
//! ```text
//! publish::Signer = client --questions--> service --judge(policy, memory)--> keys --> account, memory --answer--> client
//! ```
//!
//! Invariants:
//!
//! - No signature leaves before its line of the account is on disk. (A killed signer may leave a line whose signature
//!   did not arrive; asking again makes another line.)
//! - It signs no digest and no text that it does not know the form of. The text of every signature says what it is:
//!   `Release` names its fields, a list of checksums its files, a header of RPM begins as one; a seal of the account begins with a word of its own.
//! - What it is sent is hostile: sizes and counts are bounded, nothing is run, no path is followed.
//!
//! Known downside: without `archives` in the policy, it believes the coordinator about which names a source declares; without
//! `workers-only`, about all that workers sign. `docs/signing.md` says what a coordinator that lies can do.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod account;
pub mod agent;
pub mod audit;
pub mod change;
pub mod client;
pub mod edit;
pub mod judge;
pub mod keys;
pub mod memory;
pub mod message;
pub mod pkcs11;
pub mod policy;
pub mod service;
pub mod setup;
pub mod sources;
pub mod statement;

use sha2::{Digest, Sha256};

/// The SHA-256 of bytes, in hexadecimal.
pub fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
