//! The mirror of a site: it serves what builds fetch, over HTTP, and fetches each file once from far.
//!
//! ```text
//! request --route--> wanted (key, origins, rule) --cache--> whole file ---------------> response
//!                                                    \---> growing file --followers--> response
//!                                                            ^
//! origins --fetch (one task, resumes)------------------------/
//! ```
//!
//! Files are stored under their paths, so that any web server can serve the folder read-only.
//!
//! Invariants:
//!
//! - A file has its final name only when it is complete, flushed, and has the digest that is known of it.
//! - However many clients ask for a file that is not there, one task fetches it. Clients read what is there while it grows; a client
//!   that is slow, or gone, delays no other one.
//! - A file whose digest is known is sent up to its last bytes only once the digest is verified: with a wrong one, the
//!   connection ends, and no client has a whole file.
//! - What names a path is hostile: a request, an origin. No path leaves the folder.
//!
//! Out of scope: HTTPS towards clients, which a proxy in front of it adds; dividing one file among several origins.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod buffers;
mod cache;
mod checksums;
mod config;
mod expected;
mod farms;
mod fetch;
mod growing;
mod manifest;
mod pins;
mod registry;
mod respond;
mod route;
mod server;
mod stalls;
mod upload;

pub use cache::{Cache, Facts, Listed};
pub use checksums::{Checksums, Distfile};
pub use config::{Archive, Bucket, Config, ConfigError, Distfiles, Farm, Registry, RegistryKind, Tooltool};
pub use expected::{Expected, FileDigest, Found, Hasher};
pub use pins::Pins;
pub use route::Manifests;
pub use server::{Server, Stop, fill, serve};
