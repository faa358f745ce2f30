//! Paths relative to the repository's directory.

use std::path::{Path, PathBuf};

use crate::compress::Form;

/// Name of the public key file at the top of the repository, which clients install.
pub const KEYRING_FILE: &str = "kilnyard-archive-keyring.asc";

/// Number of generations kept: the current one, and two for readers that began before a switch.
pub const GENERATIONS_KEPT: usize = 3;

pub(crate) const POOL: &str = "pool";
pub(crate) const DISTS: &str = "dists";
pub(crate) const GENERATIONS: &str = ".generations";
pub(crate) const LOCK: &str = ".lock";

/// Directory for everything unfinished. Its content when a publication begins is left over from an interrupted
/// one.
pub(crate) const STAGING: &str = ".staging";

pub(crate) const RELEASE: &str = "Release";
pub(crate) const RELEASE_CLEAR_SIGNED: &str = "InRelease";
pub(crate) const RELEASE_SIGNATURE: &str = "Release.gpg";

/// Name of the generations and of the link of a pkgsrc repository. Not a valid codename.
pub(crate) const PACKAGES: &str = "packages";

/// A series of generations, and the link to the one that readers see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Series {
    name: String,
    link: PathBuf,
}

impl Series {
    /// The generations of an apt repository with this codename.
    pub(crate) fn of_codename(codename: &str) -> Self {
        Self { name: codename.to_owned(), link: [DISTS, codename].iter().collect() }
    }

    /// The generations of a pkgsrc repository.
    pub(crate) fn of_packages() -> Self {
        Self { name: PACKAGES.to_owned(), link: PACKAGES.into() }
    }

    /// The codename, or the name of a pkgsrc repository's series.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The folder with all generations of the series.
    pub(crate) fn generations(&self) -> PathBuf {
        [GENERATIONS, &self.name].iter().collect()
    }

    pub(crate) fn generation(&self, number: u64) -> PathBuf {
        self.generations().join(number.to_string())
    }

    pub(crate) fn link(&self) -> &Path {
        &self.link
    }

    /// The folder that contains the link. Empty for the repository itself.
    pub(crate) fn folder_of_link(&self) -> PathBuf {
        self.link.parent().unwrap_or(Path::new("")).to_owned()
    }

    /// The target of the link if `number` is the current generation.
    pub(crate) fn link_target(&self, number: u64) -> PathBuf {
        let way_up = self.folder_of_link().iter().map(|_| "..").collect::<PathBuf>();
        way_up.join(self.generation(number))
    }
}

/// The only folder of a generation of a pkgsrc repository, as `pkg_add` and other tools expect it.
pub(crate) const ALL: &str = "All";
pub(crate) const CHECKSUMS: &str = "SHA512";
pub(crate) const CHECKSUMS_PACKED: &str = "SHA512.gz";
pub(crate) const CHECKSUMS_SIGNATURE: &str = "SHA512.asc";

/// The paths of the files of a generation that are listed.
pub(crate) const LISTED: &str = ".listed";

/// The path of the signature of a text.
pub(crate) fn signature_of(text: &Path) -> PathBuf {
    let name = text.file_name().unwrap_or_default().to_string_lossy();
    text.with_file_name(format!("{name}.asc"))
}

pub(crate) fn staged(name: &str) -> PathBuf {
    [STAGING, name].iter().collect()
}

/// `main/binary-amd64/Packages.xz` for `main/binary-amd64/Packages`.
pub(crate) fn packed_path(index: &str, form: Form) -> String {
    format!("{index}.{}", form.suffix())
}

/// The path of an index file by its checksum.
pub(crate) fn by_hash_path(index: &str, sha256: &str) -> PathBuf {
    let directory = index.rsplit_once('/').map_or("", |(directory, _)| directory);
    [directory, "by-hash", "SHA256", sha256].iter().collect()
}
