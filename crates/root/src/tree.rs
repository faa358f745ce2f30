//! Trees of files that others wrote: counted, removed, and opened without following links.
//!
//! Builds, sources and packages decide how deep such a tree is, what its names are, and where its links lead. So no function
//! here recurses, follows a link, keeps a descriptor for each level, or passes the kernel a path of more than one name.
//!
//! What it does not do: cope with changes by others meanwhile. Nothing may run in the tree any more. [`usage`] alone counts
//! what builds still write to, at the price of a descriptor for some kilobytes of depth.

mod beneath;
mod manifest;
mod remove;
mod size;
mod usage;

pub use beneath::{beneath, entries_beneath, open_beneath};
pub use manifest::Manifest;
pub use remove::{empty_folder, remove_beneath, remove_tree};
pub use size::used_bytes;
pub use usage::{Usage, usage};
