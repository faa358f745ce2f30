//! Where things are, relative to the repository's directory.

use std::path::PathBuf;

use crate::compress::Form;

/// The name of the public key file at the repository's top, for clients to install.
pub const KEYRING_FILE: &str = "kilnyard-archive-keyring.asc";

/// How many generations stay: the current one and two for readers that began before a switch.
pub const GENERATIONS_KEPT: usize = 3;

pub(crate) const POOL: &str = "pool";
pub(crate) const DISTS: &str = "dists";
pub(crate) const GENERATIONS: &str = ".generations";
pub(crate) const LOCK: &str = ".lock";

/// Everything unfinished is here, so whatever is here when a publication begins is left over from a broken one.
pub(crate) const STAGING: &str = ".staging";

pub(crate) const RELEASE: &str = "Release";
pub(crate) const RELEASE_CLEAR_SIGNED: &str = "InRelease";
pub(crate) const RELEASE_SIGNATURE: &str = "Release.gpg";

pub(crate) fn generations(codename: &str) -> PathBuf {
    [GENERATIONS, codename].iter().collect()
}

pub(crate) fn generation(codename: &str, number: u64) -> PathBuf {
    generations(codename).join(number.to_string())
}

pub(crate) fn staged(name: &str) -> PathBuf {
    [STAGING, name].iter().collect()
}

pub(crate) fn current_link(codename: &str) -> PathBuf {
    [DISTS, codename].iter().collect()
}

/// What the link of `codename` says when `number` is current.
pub(crate) fn link_target(codename: &str, number: u64) -> PathBuf {
    PathBuf::from("..").join(generation(codename, number))
}

/// `main/binary-amd64/Packages.xz` for `main/binary-amd64/Packages`.
pub(crate) fn packed_path(index: &str, form: Form) -> String {
    format!("{index}.{}", form.suffix())
}

/// Where an index file is found by its checksum.
pub(crate) fn by_hash_path(index: &str, sha256: &str) -> PathBuf {
    let directory = index.rsplit_once('/').map_or("", |(directory, _)| directory);
    [directory, "by-hash", "SHA256", sha256].iter().collect()
}
