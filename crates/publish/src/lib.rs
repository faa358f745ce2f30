//! An apt repository, written natively and switched at once.
//!
//! [`plan`] decides: it makes the texts of all indexes and an ordered list of operations that prints.
//! [`Publication::execute`] performs it. Layout:
//!
//! ```text
//! repository/
//!   kilnyard-archive-keyring.asc        the public key
//!   pool/main/z/zlib/...                files, never changed once they are there
//!   dists/bookworm -> ../.generations/000007
//!   .generations/000007/                InRelease, Release, Release.gpg, main/..., by-hash
//! ```
//!
//! What must hold: a reader sees one generation or the next, never a mixture, since the switch is the
//! rename of a link; everything a generation names is on the disk before the switch; a reader who began
//! with an earlier generation still finds its indexes by their hashes, for [`GENERATIONS_KEPT`] of them. A
//! kill at any moment leaves the generation that was there, and a folder that the next publication removes.
//!
//! What it does not do: look into packages (whoever collected them said what they are), or decide what is
//! published. Files of packages that are published no more stay until [`prune`] says that they can go.

mod execute;
mod index;
mod plan;

pub use plan::{Operation, Publication, plan, prune};

use std::error::Error;
use std::io;
use std::path::PathBuf;

/// How many generations are kept: an `apt-get update` that began before two switches still succeeds.
pub const GENERATIONS_KEPT: usize = 3;
/// The public key's name in a repository.
pub const KEY_FILE: &str = "kilnyard-archive-keyring.asc";

/// A binary package, as the index lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BinaryEntry {
    /// Its control fields, without `Filename`, `Size` and `SHA256`, and without a line break at the end.
    pub stanza: String,
    /// Where it lies in the repository: `pool/main/z/zlib/zlib1g_1_amd64.deb`.
    pub pool_path: String,
    /// Where its content is now.
    pub file: PathBuf,
    /// The content's SHA-256, in hexadecimal digits.
    pub sha256: String,
    /// Its size.
    pub size_bytes: u64,
    /// Its architecture.
    pub architecture: String,
    /// Its component.
    pub component: String,
}

/// A source package, as the index lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceEntry {
    /// Its whole stanza, without a line break at the end.
    pub stanza: String,
    /// Its component.
    pub component: String,
    /// Its files: path in the repository, where the content is now, size, SHA-256.
    pub files: Vec<(String, PathBuf, u64, String)>,
}

/// What the `Release` file says of the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseFacts {
    /// `Origin`.
    pub origin: String,
    /// `Label`.
    pub label: String,
    /// `Suite`.
    pub suite: String,
    /// `Codename`, which is also the folder below `dists`.
    pub codename: String,
    /// `Description`.
    pub description: String,
    /// `Architectures`.
    pub architectures: Vec<String>,
    /// `Components`.
    pub components: Vec<String>,
    /// `Date`, in seconds since 1970.
    pub date_seconds: i64,
    /// `Valid-Until`, in seconds since 1970.
    pub valid_until_seconds: Option<i64>,
}

/// Signs with the key of the repository.
pub trait Signer {
    /// A clearsigned message of this text.
    fn sign_clear(&self, text: &str) -> Result<String, Box<dyn Error + Send + Sync>>;
    /// An armored signature of these bytes.
    fn sign_detached(&self, text: &[u8]) -> Result<String, Box<dyn Error + Send + Sync>>;
    /// The public key, armored.
    fn public_armored(&self) -> Result<String, Box<dyn Error + Send + Sync>>;
}

/// A repository could not be written. What was published before is as it was.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// A file or folder could not be used.
    #[error("{action} {}", path.display())]
    Disk {
        /// What was to be done.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A file of this name with another content is published already.
    #[error(
        "publish {pool_path}: its content has {found} bytes where {wanted} are meant; versions must not be used twice"
    )]
    Conflict {
        /// Where in the repository.
        pool_path: String,
        /// The size of what is there.
        found: u64,
        /// The size of what should be.
        wanted: u64,
    },
    /// Two entries want the same place with different contents.
    #[error("publish {pool_path}: two packages claim it, with the SHA-256 {first} and {second}")]
    Twice {
        /// Where in the repository.
        pool_path: String,
        /// The hash of the first.
        first: String,
        /// The hash of the second.
        second: String,
    },
    /// A path leads out of the repository, or a stanza has an empty line.
    #[error("publish {what}: it is not of a form that can be published")]
    Malformed {
        /// The path or the beginning of the stanza.
        what: String,
    },
    /// The signature could not be made.
    #[error("sign the repository")]
    Sign(#[source] Box<dyn Error + Send + Sync>),
}
