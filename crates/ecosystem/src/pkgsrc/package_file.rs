//! Reads a binary package file of pkg_install natively: its name, its checksums, its entry in a repository's index,
//! and a digest of its content.
//!
//! A package is a tar archive, compressed with gzip, xz or zstd or not at all. Its first entries are the metadata
//! (`+CONTENTS`, the packing list; `+COMMENT`; `+DESC`; `+BUILD_INFO` and others), and the remaining entries are
//! the files, with paths relative to the prefix (pkg_create(1)). The file is read once, from front to back: every
//! byte goes through SHA-256 and SHA-512, and through the decompressor and a tar reader. Only the necessary
//! metadata is held in memory.
//!
//! A package that is read without an error is complete: the compressed stream has its end and its checksum, and the
//! archive has its end marker. The mere existence of a file proves nothing; a full disk or a crash leaves a
//! truncated one.
//!
//! # The summary
//!
//! [`PackageFile::summary`] equals the output of `pkg_info -X FILE`, field by field in its order, except for
//! `FILE_NAME` and `FILE_SIZE`, which the publisher of the file adds, and the empty line at its end. Bytes that are
//! not UTF-8 (old descriptions have some) are replaced by the replacement character.
//!
//! # The content digest
//!
//! [`PackageFile::content`] answers one question: *is this rebuilt package the same as the last one?* Two packages
//! have the same digest if their entries agree, in the order of the paths: path, kind, mode, owner and group
//! (number and name), link target, extended attributes and the SHA-256 of the bytes; the metadata are entries like
//! all others.
//!
//! The digest leaves out:
//!
//! - The lines `BUILD_DATE` and `BUILD_HOST` of `+BUILD_INFO`: they say when and where a package was built, not
//!   what it is.
//! - `+BUILD_VERSION`: it lists the version of each recipe file; a change to a comment there changes nothing that
//!   is installed.
//! - Modification times, and all extended headers for times, or for the device, the inode and the link count that a
//!   file had where it was packed.
//! - The order of entries, the compressor, and which of several hard-linked names carries the bytes.
//!
//! `@blddep` lines are included: they are the exact names of the packages that it was built with, and `pkg_add`
//! relies on them.
//!
//! # Invariants
//!
//! A worker sends these files, so every byte is untrusted: everything that can grow has a named limit, the
//! decompressors have memory limits, no path points outside the prefix, and no input causes a panic.
//!
//! # Limitations
//!
//! It extracts nothing, and does not compare the files with the packing list. Signed packages (an `ar` archive
//! around the package) and those compressed with bzip2 are rejected, with that reason. A file that contains the
//! time of its build differs in each build: such a package differs as well, and its dependents are rebuilt. A
//! package that unpacks to far more than its own size (256 MiB plus 100 times its size) is rejected, even if it is
//! harmless.

mod error;
mod metadata;
mod packing_list;
mod stanza;

use std::io::{self, Read};
use std::path::Path;

use sha2::{Sha256, Sha512};

pub use error::{PackageFileError, PackageProblem};

use super::signed::HashingBlocks;
use crate::archive::{
    ArchiveProblem, Canonical, Compression, Contents, End, Hashing, Kind, Numbers, OutputBounds, decompress,
    for_each_entry, refused,
};
use metadata::Metadata;
use packing_list::PackingList;

/// Identifies the canonical form. Change this when the form changes; it changes every digest.
const FORM: &[u8] = b"kilnyard pkg content 1";

const MEMBER: &str = "archive";

/// Unpacked size that is allowed for a package of any size.
const UNPACKED_BYTES_FREE: u64 = 256 << 20;

/// Additional unpacked size that is allowed, as a multiple of the package's own size. Real packages reach 20 times;
/// zeros reach 200 to 1,000 times with gzip, and 30,000 times with other compressors.
const UNPACKED_TIMES_MAX: u64 = 100;

/// At least as long as any magic number that is checked.
const MAGIC_BYTES: usize = 8;

/// Extended headers that describe where a file was packed, and times; the reader itself drops the plain times.
const EXTENDED_OF_THE_PACKING: [&str; 4] =
    ["LIBARCHIVE.creationtime", "SCHILY.dev", "SCHILY.ino", "SCHILY.nlink"];

/// The identity and the content of one package file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageFile {
    /// `PKGNAME`: name and version of the package, from the packing list.
    pub name: String,
    /// SHA-256 of the whole file, in lower-case hexadecimal.
    pub sha256: String,
    /// SHA-512 of the whole file, in lower-case hexadecimal.
    pub sha512: String,
    /// Size of the whole file, compressed as it is.
    pub size_bytes: u64,
    /// The content digest (see the module documentation), in lower-case hexadecimal.
    pub content: String,
    /// The exact names of the packages that it was built with (`@blddep`), in the order of the packing list.
    pub built_with: Vec<String>,
    /// The output of `pkg_info -b`: `FILE: ID` for each recipe file, which pbulk uses to detect changes.
    pub recipe_versions: String,
    /// The reason why it must not be put on a public server (`NO_BIN_ON_FTP`), if the package states one.
    pub restricted: Option<String>,
    /// Its stanza of a summary (pkg_summary(5)), without `FILE_NAME` and `FILE_SIZE`; each line ends with a
    /// newline.
    pub summary: String,
    /// The paths of all files that it installs, relative to the prefix, without folders, sorted.
    pub paths: Vec<String>,
    /// The SHA-512 of each block of the file: see [`signed`](super::signed).
    pub blocks: Vec<String>,
}

/// Reads `path` once, to its end.
pub fn read(path: &Path) -> Result<PackageFile, PackageFileError> {
    read_within(path, OutputBounds::WIDEST)
}

/// Like [`read`], for a package that may unpack to at most `bounds`.
pub fn read_within(path: &Path, bounds: OutputBounds) -> Result<PackageFile, PackageFileError> {
    let read_error = |source| PackageFileError::Read { path: path.to_owned(), source };
    let file = fs_err::File::open(path).map_err(read_error)?;
    let size_bytes = file.metadata().map_err(read_error)?.len();
    read_package(file, size_bytes, bounds)
        .map_err(|problem| PackageFileError::Format { path: path.to_owned(), problem })
}

/// The parts of a package that pbulk's own up-to-date check reads (`pkg_info -qb`, `-qN`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecipeFacts {
    /// See [`PackageFile::recipe_versions`].
    pub recipe_versions: String,
    /// See [`PackageFile::built_with`].
    pub built_with: Vec<String>,
}

/// Reads only the recipe facts of a package, not its files, which follow them.
pub fn read_recipe_facts(path: &Path) -> Result<RecipeFacts, PackageFileError> {
    let read_error = |source| PackageFileError::Read { path: path.to_owned(), source };
    let file = fs_err::File::open(path).map_err(read_error)?;
    let size_bytes = file.metadata().map_err(read_error)?.len();
    recipe_facts(file, size_bytes)
        .map_err(|problem| PackageFileError::Format { path: path.to_owned(), problem })
}

fn recipe_facts(mut file: impl Read, size_bytes: u64) -> Result<RecipeFacts, PackageProblem> {
    /// The reason to stop reading entries.
    enum Stop {
        FilesBegin,
        Problem(PackageProblem),
    }
    impl From<ArchiveProblem> for Stop {
        fn from(problem: ArchiveProblem) -> Stop {
            Stop::Problem(problem.into())
        }
    }
    let damaged = |source| ArchiveProblem::Content { member: MEMBER, source };
    let mut begin = Vec::new();
    file.by_ref().take(MAGIC_BYTES as u64).read_to_end(&mut begin).map_err(damaged)?;
    let mut packed = begin.as_slice().chain(&mut file);
    let mut unpacked =
        decompress(&mut packed, compression(&begin)?, unpacked_bytes_max(size_bytes, OutputBounds::WIDEST))
            .map_err(damaged)?;
    let (mut metadata, mut contents) =
        (Metadata::default(), Contents::within(OutputBounds::WIDEST.files_max, Numbers::default()));
    let read = for_each_entry::<Stop>(&mut unpacked, MEMBER, |entry, bytes| {
        if !entry.path.starts_with(b"+") {
            return Err(Stop::FilesBegin);
        }
        metadata.take(entry, bytes, &mut contents).map_err(Stop::Problem)
    });
    if let Err(Stop::Problem(problem)) = read {
        return Err(problem);
    }
    let metadata = metadata.complete()?;
    let list = PackingList::parse(&metadata.contents)?;
    Ok(RecipeFacts {
        built_with: list.built_with.iter().map(|name| (*name).to_owned()).collect(),
        recipe_versions: metadata.recipe_versions.clone(),
    })
}

/// The single pass: hashes all bytes that the decompressor reads, and parses the entries of its output.
fn read_package(
    file: impl Read,
    size_bytes: u64,
    bounds: OutputBounds,
) -> Result<PackageFile, PackageProblem> {
    let damaged = |source| ArchiveProblem::Content { member: MEMBER, source };
    let mut source = Hashing::<_, Sha256>::new(Hashing::<_, Sha512>::new(HashingBlocks::new(file)));
    let mut begin = Vec::new();
    source.by_ref().take(MAGIC_BYTES as u64).read_to_end(&mut begin).map_err(damaged)?;
    let compression = compression(&begin)?;

    let mut metadata = Metadata::default();
    let mut contents = Contents::within(bounds.files_max, Numbers::default());
    let mut paths = Vec::new();
    {
        let mut packed = begin.as_slice().chain(&mut source);
        let mut unpacked =
            decompress(&mut packed, compression, unpacked_bytes_max(size_bytes, bounds)).map_err(damaged)?;
        let end = for_each_entry::<PackageProblem>(&mut unpacked, MEMBER, |mut entry, bytes| {
            entry.extended.retain(|(key, _)| !EXTENDED_OF_THE_PACKING.contains(&key.as_str()));
            if leads_out(&entry.path) || (entry.kind == Kind::HardLink && leads_out(&entry.link_target)) {
                return Err(refused(MEMBER, &entry.path, "it is outside the prefix").into());
            }
            let is_file = entry.kind != Kind::Directory && !entry.path.starts_with(b"+");
            if is_file && paths.len() < bounds.files_max {
                paths.push(String::from_utf8_lossy(&entry.path).into_owned());
            }
            metadata.take(entry, bytes, &mut contents)
        })?;
        match end {
            End::Marked => {}
            End::Unmarked => return Err(PackageProblem::CutOff),
            End::Followed { count_bytes } => {
                return Err(ArchiveProblem::TrailingBytes { member: MEMBER, count_bytes }.into());
            }
        }
    }
    // The decompressors read to the end of the file; a checksum of only a part would be meaningless.
    let count_bytes = io::copy(&mut source, &mut io::sink()).map_err(damaged)?;
    if count_bytes > 0 {
        return Err(ArchiveProblem::TrailingBytes { member: MEMBER, count_bytes }.into());
    }

    let metadata = metadata.complete()?;
    let list = PackingList::parse(&metadata.contents)?;
    let mut canonical = Canonical::new(FORM);
    contents.write_canonical(&mut canonical);
    let (sha256, source) = source.finish();
    let (sha512, source) = source.finish();
    paths.sort_unstable();
    Ok(PackageFile {
        name: list.name.to_owned(),
        sha256,
        sha512,
        size_bytes,
        paths,
        blocks: source.finish(),
        content: canonical.finish(),
        built_with: list.built_with.iter().map(|name| (*name).to_owned()).collect(),
        recipe_versions: metadata.recipe_versions.clone(),
        restricted: metadata.restricted().map(str::to_owned),
        summary: stanza::render(&list, &metadata),
    })
}

/// The compression of a file, from its first bytes.
fn compression(begin: &[u8]) -> Result<Compression, PackageProblem> {
    match begin {
        b"" => Err(PackageProblem::Empty),
        b"!<arch>\n" => Err(PackageProblem::Signed),
        [b'B', b'Z', b'h', ..] => Err(PackageProblem::UnsupportedCompression { name: "bzip2" }),
        _ => Ok(Compression::of_magic(begin)),
    }
}

fn unpacked_bytes_max(packed_bytes: u64, bounds: OutputBounds) -> u64 {
    packed_bytes
        .saturating_mul(UNPACKED_TIMES_MAX)
        .saturating_add(UNPACKED_BYTES_FREE)
        .min(bounds.unpacked_bytes_max)
}

/// Whether a file name points outside the prefix. Targets of symbolic links may, but names may not.
fn leads_out(path: &[u8]) -> bool {
    path.starts_with(b"/") || path.split(|byte| *byte == b'/').any(|part| part == b"..")
}
