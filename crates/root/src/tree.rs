//! Trees of untrusted files: counted, removed, and opened without following links.
//!
//! Builds, sources and packages decide how deep such a tree is, what its names are, and where its links lead. The
//! functions here therefore never recurse, never follow a link, do not keep a descriptor for each level, and do not
//! pass the kernel a path of more than one name.
//!
//! Concurrent changes are not supported: no process may still run in the tree. Only [`usage`] may count a tree that a
//! build still writes to, and pays for that with a descriptor for every few kilobytes of path depth.

mod beneath;
mod manifest;
mod remove;
mod size;
mod spread;
mod usage;

pub use beneath::{beneath, entries_beneath, open_beneath};
pub use manifest::Manifest;
pub use remove::{empty_folder, remove_beneath, remove_tree};
pub use size::used_bytes;
pub use spread::spread;
pub use usage::{Usage, usage};
