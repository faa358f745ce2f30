//! The input: what to list, and where its bytes are.

use std::path::PathBuf;

/// Selects the index of a component that lists a binary package.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BinaryIndex {
    /// The regular index: `main/binary-amd64`.
    #[default]
    Machine,
    /// A separate index in this folder of the component: `main/FOLDER/binary-amd64`.
    Apart(&'static str),
}

/// A binary package to list.
#[derive(Debug, Clone)]
pub struct BinaryEntry {
    /// The control fields, without `Filename`, `Size` and `SHA256`.
    pub stanza: String,
    /// Path in the repository, such as `pool/main/z/zlib/x.deb`.
    pub pool_path: String,
    /// Current path of the file. Read only if the pool does not have the file yet.
    pub file: PathBuf,
    /// SHA-256 of the content, in lower-case hexadecimal.
    pub sha256: String,
    /// Size of `file` in bytes, checked before it is placed.
    pub size_bytes: u64,
    /// The package's architecture. `all` is listed for every architecture.
    pub architecture: String,
    /// The component that lists it; `pool_path` does not have to name it.
    pub component: String,
    /// The index within the component.
    pub index: BinaryIndex,
}

/// A source package to list.
#[derive(Debug, Clone)]
pub struct SourceEntry {
    /// The stanza of `Sources`, complete with `Package`, `Directory` and `Checksums-Sha256`.
    pub stanza: String,
    /// The component whose `Sources` lists it.
    pub component: String,
    /// The `.dsc` and all files that it names.
    pub files: Vec<SourceFile>,
}

/// A file of a source package.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// Path in the repository, such as `pool/main/z/zlib/zlib_1.3.orig.tar.gz`.
    pub pool_path: String,
    /// Current path of the file. Read only if the pool does not have the file yet.
    pub file: PathBuf,
    /// Size of `file` in bytes, checked before it is placed.
    pub size_bytes: u64,
    /// SHA-256 of the content, in lower-case hexadecimal.
    pub sha256: String,
}

/// The contents of the `Release` file, except for the list of indexes.
#[derive(Debug, Clone)]
pub struct ReleaseFacts {
    /// The `Origin` field, one line.
    pub origin: String,
    /// The `Label` field, one line.
    pub label: String,
    /// The `Suite` field, by which apt.conf(5) may select the release.
    pub suite: String,
    /// The `Codename` field, also the name of the directory in `dists`.
    pub codename: String,
    /// The `Description` field; left out if empty.
    pub description: String,
    /// The architectures that have an index, without `all`.
    pub architectures: Vec<String>,
    /// The `Components` field, in this order; each has an index, even an empty one.
    pub components: Vec<String>,
    /// The `Date` field, as seconds since 1970.
    pub date_seconds: i64,
    /// The `Valid-Until` field, as seconds since 1970. An unchanged repository is signed again once half of the
    /// time from `Date` to this has passed.
    pub valid_until_seconds: Option<i64>,
}
