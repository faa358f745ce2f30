//! Artifacts in object storage: [`Bucket`] is a store in S3, in a server that speaks its protocol, or in Google's or
//! Azure's storage.
//!
//! An artifact is one object, `PREFIX/sha256/AB/ABCD…`, which is always stored uncompressed: its name is then the hash
//! of exactly the bytes that the server has, so that the server can verify them, a broken download resumes in the middle,
//! and a presigned URL gives the file itself. A caller that asks for [`Storage::Compressed`] gets the same.
//!
//! An object appears under its name when all of its content has arrived and was verified, in one step of the server:
//! small ones are sent in one request, large ones in parts that the server joins at the end. The server gets a SHA-256 with
//! every request and refuses content that differs (S3; Google's and Azure's storage have no such header, there TLS alone
//! protects what is sent). A name that exists is not written again.
//!
//! Machines that are not trusted upload by presigned URLs, and only to `PREFIX/incoming/TOKEN/SHA256`. [`Bucket::adopt`]
//! reads such an upload, hashes it, and stores the bytes that it read under the name of the artifact. Content is never
//! moved inside the server: an upload could be replaced between the two.
//!
//! A call returns when its work is done or has failed. It tries again while a server does not answer, up to
//! [`Options::patience`]; [`is_away`] recognizes the error that it returns then. Network traffic is on two threads of the
//! bucket's own, so calls may come from any thread.
//!
//! [`Bucket::examine`] tests whether a server keeps the promises that this relies on; not all that speak the protocol do.
//!
//! Known downsides: an adopted upload crosses the network twice. Two writers of the same large artifact at once both write
//! it, with the same content. A killed process leaves the parts of its unfinished
//! upload in the server, invisible but paid for, until [`Bucket::sweep_incoming`].
//!
//! [`Storage::Compressed`]: kilnyard_artifacts::Storage::Compressed

#![forbid(unsafe_code)]

mod address;
mod backend;
mod bucket;
mod client;
mod examine;
mod failure;
mod link;
mod read;
mod send;
mod sweep;
mod upload;

pub use address::{Address, AddressError, Credentials, Options};
pub use bucket::Bucket;
pub use failure::is_away;
pub use kilnyard_artifacts::{Finding, Listed, Outcome, Part, Upload};
pub use sweep::Swept;
