//! Guards of the source tree. Each reads the repository and reports the file, the line and the remedy.
//!
//! - [`floors`]: ARCHITECTURE.md's table of floors matches the crates' manifests, and no crate uses a higher floor.
//! - [`doors`]: below the top floor, no code reads the environment, prints or ends the process, and the pure crates do
//!   not access the system at all; exempt files are listed with the reason.
//! - [`families`]: a package family is named only in its own folders; other files that may name one are listed.
//! - [`sizes`]: no source file has more than 800 lines.
//! - [`words`]: documentation, help, comments and messages avoid some words.
//!
//! Each guard is a function from texts to complaints, so it is also tested on a small text that violates it.
//!
//! Known downside: the guards see tokens, not types. They find a path as it is written, so code can hide a call from
//! them. For what is forbidden everywhere, clippy's `disallowed_methods` (clippy.toml) resolves names.

mod doors;
mod families;
mod floors;
mod sizes;
mod source;
mod words;
