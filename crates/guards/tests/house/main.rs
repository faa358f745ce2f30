//! Guards of the source tree. Each reads the repository as it is and names the file, the line and the remedy.
//!
//! - [`floors`]: ARCHITECTURE.md's table of floors is what the crates' manifests say, and no crate uses a higher one.
//! - [`doors`]: below the top floor no code reads the environment, prints or ends the process, and the pure crates do
//!   nothing at all; except in the files that are listed with their reason.
//! - [`families`]: a family of packages is named in its own folders; the list of other files that still name one shrinks.
//! - [`sizes`]: no source file has more than 800 lines.
//! - [`words`]: documentation and help keep to the words of the house.
//!
//! Each guard is a function from texts to complaints, so that it is tried on a small text that violates it, too.
//!
//! Known downside: the guards see tokens, not types. They find a path as it is written, so that code which is determined
//! to hide a call can; clippy's `disallowed_methods` (clippy.toml) resolves names, for what is forbidden everywhere.

mod doors;
mod families;
mod floors;
mod sizes;
mod source;
mod words;
