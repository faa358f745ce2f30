//! The image of a yard: what a coordinator on another machine needs to continue its runs. The configuration and the other
//! files of the user, the index, the repository, and the keys.
//!
//! The coordinator that leads sends the image to the store that the machines share: a list of files with their hashes, small
//! files and secrets as documents in the database, all others as artifacts. The other coordinators receive it, and so have
//! all of it when they take over. What a yard makes again by itself (layers, roots, logs) is not part of it.
//!
//! Who may take part is shared at once, in both directions ([`Admitted`]).
//!
//! Files arrive before what names them: the list is sent last, and links, which switch a repository, are made last.

mod admitted;
mod list;
mod receive;
mod send;

pub use admitted::Admitted;
pub(crate) use list::files_to_copy;
pub(crate) use receive::needed;
pub use receive::{Change, REPLACED, Received, begin};
pub use send::Sent;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Component, Path};

/// The document with the image.
const DOCUMENT: &str = "image";
/// Begins the names of documents with the content of files.
const CONTENT: &str = "file/";
/// The largest file whose content is in a document, unless it is a secret.
const SMALL_BYTES_MAX: u64 = 64 << 10;
/// The largest secret.
const SECRET_BYTES_MAX: u64 = 1 << 20;
/// The level of zstd for the list.
const COMPRESSION: i32 = 3;
/// The largest list, unpacked.
const LIST_BYTES_MAX: u64 = 512 << 20;

/// The files of a yard, by their path in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
struct Image(BTreeMap<String, Entry>);

/// A file of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Entry {
    /// A regular file.
    File {
        sha256: String,
        size_bytes: u64,
        /// Its permissions.
        mode: u32,
        /// When it was last modified, in seconds and nanoseconds since 1970: by this, runs notice changes of sources. Absent
        /// where that does not matter.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        modified: Option<(u64, u32)>,
        /// Whether its content is a document.
        #[serde(default)]
        is_document: bool,
    },
    /// A symbolic link to this path.
    Link(String),
}

/// Begins the paths of files that Kilnyard writes.
const PARTS: [&str; 5] = ["index/", "repository/", "state/", "layers/", "targets/"];

/// Whether a file is the user's, and not Kilnyard's.
fn is_users(name: &str) -> bool {
    !PARTS.iter().any(|part| name.starts_with(part))
}

/// Whether a path stays in the yard.
fn is_inside(path: &str) -> bool {
    !path.is_empty() && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}
