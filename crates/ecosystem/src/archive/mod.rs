//! Compressed tar archives from untrusted sources: the basis of the package files of all families.
//!
//! A stream is decompressed ([`decompress`]), its entries are assembled ([`for_each_entry`]), and their contents
//! are reduced to digests ([`Contents`]), which make up a package's canonical form ([`Canonical`]).
//!
//! Invariants: everything that can grow has a named limit, the decompressors have memory limits, no member is held
//! in memory except short packed texts, one at a time, and no input causes a panic. Nothing is extracted. Sparse
//! entries, and anything else that package tools do not write, are rejected.

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
