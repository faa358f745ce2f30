//! Packed tar archives from a hostile hand: what the package files of all families are made of.
//!
//! A stream is unpacked ([`decompress`]), its entries are put together ([`for_each_entry`]), and what they hold is
//! reduced to digests ([`Contents`]), which make up a package's canonical form ([`Canonical`]).
//!
//! What must hold: each thing that can grow has a named bound, the decompressors have memory limits, no member is
//! held in memory but short packed texts, one at a time, and no input panics. Nothing is extracted. Sparse entries and what else no package tool writes are
//! refused.

mod bounds;
mod canonical;
mod compression;
mod contents;
mod entry;
mod error;
mod hashing;
mod numbers;
mod packed;

pub use bounds::OutputBounds;
pub use error::ArchiveProblem;

pub(crate) use bounds::refusal;
pub(crate) use canonical::Canonical;
pub use compression::{Bounded, Compression, decompress};
pub(crate) use contents::Contents;
pub(crate) use entry::{End, Entry, Kind, for_each_entry, read_bytes, refused};
pub(crate) use hashing::Hashing;
pub(crate) use numbers::Numbers;
