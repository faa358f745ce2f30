//! The input: what is to be listed, and where its bytes are.

use std::path::PathBuf;

/// Which index of its component lists a binary package.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BinaryIndex {
    /// That of machines: `main/binary-amd64`.
    #[default]
    Machine,
    /// One apart, in this folder of the component: `main/FOLDER/binary-amd64`.
    Apart(&'static str),
}

/// One binary package to list.
#[derive(Debug, Clone)]
pub struct BinaryEntry {
    /// The control fields, without `Filename`, `Size` and `SHA256`.
    pub stanza: String,
    /// Path in the repository, such as `pool/main/z/zlib/x.deb`.
    pub pool_path: String,
    /// Where the content is now. Read only when the pool does not have it yet.
    pub file: PathBuf,
    /// SHA-256 of the content, in lower-case hexadecimal.
    pub sha256: String,
    /// Size of the content.
    pub size_bytes: u64,
    /// The package's architecture; `all` is listed for every architecture.
    pub architecture: String,
    /// The component that lists it.
    pub component: String,
    /// The index of the component.
    pub index: BinaryIndex,
}

/// One source package to list.
#[derive(Debug, Clone)]
pub struct SourceEntry {
    /// The stanza of `Sources`, complete with `Package`, `Directory` and `Checksums-Sha256`.
    pub stanza: String,
    /// The component that lists it.
    pub component: String,
    /// Its files: the `.dsc` and all that it names.
    pub files: Vec<SourceFile>,
}

/// One file of a source package.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// Path in the repository.
    pub pool_path: String,
    /// Where the content is now. Read only when the pool does not have it yet.
    pub file: PathBuf,
    /// Size of the content.
    pub size_bytes: u64,
    /// SHA-256 of the content, in lower-case hexadecimal.
    pub sha256: String,
}

/// What the `Release` file says about the repository.
#[derive(Debug, Clone)]
pub struct ReleaseFacts {
    /// `Origin`.
    pub origin: String,
    /// `Label`.
    pub label: String,
    /// `Suite`.
    pub suite: String,
    /// `Codename`, and the directory below `dists`.
    pub codename: String,
    /// `Description`; left out when empty.
    pub description: String,
    /// The architectures that have an index; `all` is not one of them.
    pub architectures: Vec<String>,
    /// The components.
    pub components: Vec<String>,
    /// `Date`, in seconds since 1970.
    pub date_seconds: i64,
    /// `Valid-Until`, in seconds since 1970. An unchanged repository is signed again once half of the time from `Date`
    /// to here has passed.
    pub valid_until_seconds: Option<i64>,
}
