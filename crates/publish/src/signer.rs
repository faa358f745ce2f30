//! The interface for signing. The caller implements it, since the key is kept out of reach of builds.

use std::path::{Path, PathBuf};

/// Any error of a signer.
pub type SignerError = Box<dyn std::error::Error + Send + Sync>;

/// A text that vouches for a generation of a repository: it names all index files with their checksums.
#[derive(Debug, Clone, Copy)]
pub struct ToSign<'a> {
    /// The codename of an apt repository, or `packages`.
    pub series: &'a str,
    /// What is signed.
    pub text: SignedText<'a>,
    /// The folder of the new generation. It has all files that the text names.
    pub folder: &'a Path,
    /// The same folders of the generations that readers may have seen, newest first.
    pub previous: &'a [PathBuf],
}

/// A text, and the signatures that it needs.
#[derive(Debug, Clone, Copy)]
pub enum SignedText<'a> {
    /// `Release` of an apt repository: an inline and a detached signature.
    Release(&'a str),
    /// The list of checksums of a pkgsrc repository: a detached signature.
    Checksums(&'a str),
    /// A text that names lists of packages by digest: a detached signature.
    Lists(&'a str),
}

/// The signatures of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signatures {
    /// The text as a cleartext-signed message, if it needs one.
    pub clear: Option<String>,
    /// An armored detached signature of its bytes.
    pub detached: String,
}

/// Signs with the key of the repository.
pub trait Signer {
    /// Returns all OpenPGP signatures of a text, or none.
    fn sign(&self, to_sign: &ToSign<'_>) -> Result<Signatures, SignerError>;
    /// Returns the armored public keys that verify them.
    fn public_armored(&self) -> Result<String, SignerError>;
}
