//! Reads a binary package file of pkg_install natively: its name, its checksums, what a repository's index says of it,
//! and a digest of what it holds.
//!
//! A package is a tar archive, packed by gzip, xz, zstd or not at all, whose first entries are the metadata (`+CONTENTS`,
//! the packing list; `+COMMENT`; `+DESC`; `+BUILD_INFO` and others) and whose further entries are the files, by their
//! paths below the prefix (pkg_create(1)). The file is read once, from front to back: every byte goes through SHA-256 and
//! SHA-512, and through the decompressor and a tar reader. Only the metadata that is needed is held in memory.
//!
//! A package that is read without an error is whole: the compressed stream has its end and its checksum, and the archive
//! has its end mark. A file that is there is no sign of that; a full disk or a crash leaves a short one.
//!
//! # The summary
//!
//! [`PackageFile::summary`] is what `pkg_info -X FILE` prints, field by field in its order, but for `FILE_NAME` and
//! `FILE_SIZE`, which the publisher of the file adds, and the empty line at its end. Bytes that are not UTF-8 (old
//! descriptions have some) are replaced by the replacement character.
//!
//! # The content digest
//!
//! [`PackageFile::content`] answers one question: *is this rebuilt package the same as the last one?* Two packages have
//! the same digest when their entries agree, in the order of the paths: path, kind, mode, owner and group (number and
//! name), link target, extended attributes and the SHA-256 of the bytes; the metadata are entries like all others.
//!
//! Left out, and why:
//!
//! - The lines `BUILD_DATE` and `BUILD_HOST` of `+BUILD_INFO`: they say when and where, not what.
//! - `+BUILD_VERSION`: it names the version of each file of the recipe; a comment there changes nothing that is installed.
//! - Modification times, and what an extended header says of times, and of the device, the inode and the number of names
//!   that a file had where it was packed.
//! - The order of entries, the compressor, and which of several hard-linked names carries the bytes.
//!
//! `@blddep` lines count: they are the exact names of what the package was built with, which `pkg_add` goes by.
//!
//! # What must hold
//!
//! A worker sends these files, so every byte is hostile: each thing that can grow has a named bound, the decompressors have
//! memory limits, no path leads out of the prefix, and no input panics.
//!
//! # What it does not do, and the known downside
//!
//! It extracts nothing, and does not compare the files with the packing list. Signed packages (an `ar` archive around the
//! package) and ones packed by bzip2 are refused, with that reason. A file that carries the time of its build is another
//! file at each build: such a package differs, and what is built with it is rebuilt. A package that unpacks to very much
//! more than it is (256 MiB and 100 times its size) is refused even if it means no harm.

mod error;
mod metadata;
mod packing_list;
mod stanza;

use std::io::{self, Read};
use std::path::Path;

use sha2::{Sha256, Sha512};

pub use error::{PackageFileError, PackageProblem};

use crate::archive::{
    ArchiveProblem, Canonical, Compression, Contents, End, Hashing, Kind, Numbers, OutputBounds, decompress,
    for_each_entry, refused,
};
use metadata::Metadata;
use packing_list::PackingList;

/// A change of the canonical form changes this line, and with it every digest.
const FORM: &[u8] = b"kilnyard pkg content 1";

const MEMBER: &str = "archive";

/// What a package of any size may unpack to.
const UNPACKED_BYTES_FREE: u64 = 256 << 20;

/// How many times its own size a package may unpack to beyond that. Real ones come to 20 times; zeros packed by gzip to
/// 200 to 1,000 times, by others to 30,000 times.
const UNPACKED_TIMES_MAX: u64 = 100;

/// More than any magic number that is looked for.
const MAGIC_BYTES: usize = 8;

/// What an extended header says of where a file was packed, and of times; the plain ones are left out by the reader.
const EXTENDED_OF_THE_PACKING: [&str; 4] =
    ["LIBARCHIVE.creationtime", "SCHILY.dev", "SCHILY.ino", "SCHILY.nlink"];

/// What one package file says and holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageFile {
    /// `PKGNAME`: the package's name with its version, as the packing list says.
    pub name: String,
    /// SHA-256 of the whole file, in lower-case hexadecimal.
    pub sha256: String,
    /// SHA-512 of the whole file, in lower-case hexadecimal.
    pub sha512: String,
    /// Size of the whole file.
    pub size_bytes: u64,
    /// The content digest (see the module's text), in lower-case hexadecimal.
    pub content: String,
    /// The exact names of the packages that it was built with (`@blddep`), in the order of the packing list.
    pub built_with: Vec<String>,
    /// What `pkg_info -b` prints: `FILE: ID` for each file of the recipe, by which pbulk tells whether it has changed.
    pub recipe_versions: String,
    /// Why it may not be put on a public server (`NO_BIN_ON_FTP`), where that is said.
    pub restricted: Option<String>,
    /// Its stanza of a summary (pkg_summary(5)), without `FILE_NAME` and `FILE_SIZE`; lines that end in a line end each.
    pub summary: String,
}

/// Reads `path` once, to its end, and says what it is.
pub fn read(path: &Path) -> Result<PackageFile, PackageFileError> {
    read_within(path, OutputBounds::WIDEST)
}

/// The same of a package that may unpack to no more than that.
pub fn read_within(path: &Path, bounds: OutputBounds) -> Result<PackageFile, PackageFileError> {
    let read_error = |source| PackageFileError::Read { path: path.to_owned(), source };
    let file = fs_err::File::open(path).map_err(read_error)?;
    let size_bytes = file.metadata().map_err(read_error)?.len();
    read_package(file, size_bytes, bounds)
        .map_err(|problem| PackageFileError::Format { path: path.to_owned(), problem })
}

/// What pbulk's own check for what is up to date reads in a package (`pkg_info -qb`, `-qN`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecipeFacts {
    /// See [`PackageFile::recipe_versions`].
    pub recipe_versions: String,
    /// See [`PackageFile::built_with`].
    pub built_with: Vec<String>,
}

/// Reads what a package says of its recipe, and not its files, which come behind that.
pub fn read_recipe_facts(path: &Path) -> Result<RecipeFacts, PackageFileError> {
    let read_error = |source| PackageFileError::Read { path: path.to_owned(), source };
    let file = fs_err::File::open(path).map_err(read_error)?;
    let size_bytes = file.metadata().map_err(read_error)?.len();
    recipe_facts(file, size_bytes)
        .map_err(|problem| PackageFileError::Format { path: path.to_owned(), problem })
}

fn recipe_facts(mut file: impl Read, size_bytes: u64) -> Result<RecipeFacts, PackageProblem> {
    /// Why the entries are not gone on with.
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

/// The one pass: the hashes of everything that the decompressor takes, and the entries of everything that it gives.
fn read_package(
    file: impl Read,
    size_bytes: u64,
    bounds: OutputBounds,
) -> Result<PackageFile, PackageProblem> {
    let damaged = |source| ArchiveProblem::Content { member: MEMBER, source };
    let mut source = Hashing::<_, Sha256>::new(Hashing::<_, Sha512>::new(file));
    let mut begin = Vec::new();
    source.by_ref().take(MAGIC_BYTES as u64).read_to_end(&mut begin).map_err(damaged)?;
    let compression = compression(&begin)?;

    let mut metadata = Metadata::default();
    let mut contents = Contents::within(bounds.files_max, Numbers::default());
    {
        let mut packed = begin.as_slice().chain(&mut source);
        let mut unpacked =
            decompress(&mut packed, compression, unpacked_bytes_max(size_bytes, bounds)).map_err(damaged)?;
        let end = for_each_entry::<PackageProblem>(&mut unpacked, MEMBER, |mut entry, bytes| {
            entry.extended.retain(|(key, _)| !EXTENDED_OF_THE_PACKING.contains(&key.as_str()));
            if leads_out(&entry.path) || (entry.kind == Kind::HardLink && leads_out(&entry.link_target)) {
                return Err(refused(MEMBER, &entry.path, "it leads out of the prefix").into());
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
    // The decompressors read to the end of the file; a checksum of less than the file would be none.
    let count_bytes = io::copy(&mut source, &mut io::sink()).map_err(damaged)?;
    if count_bytes > 0 {
        return Err(ArchiveProblem::TrailingBytes { member: MEMBER, count_bytes }.into());
    }

    let metadata = metadata.complete()?;
    let list = PackingList::parse(&metadata.contents)?;
    let mut canonical = Canonical::new(FORM);
    contents.write_canonical(&mut canonical);
    let (sha256, source) = source.finish();
    let (sha512, _) = source.finish();
    Ok(PackageFile {
        name: list.name.to_owned(),
        sha256,
        sha512,
        size_bytes,
        content: canonical.finish(),
        built_with: list.built_with.iter().map(|name| (*name).to_owned()).collect(),
        recipe_versions: metadata.recipe_versions.clone(),
        restricted: metadata.restricted().map(str::to_owned),
        summary: stanza::render(&list, &metadata),
    })
}

/// How a file that begins like this is packed.
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

/// Symbolic links may point anywhere; names of files may not.
fn leads_out(path: &[u8]) -> bool {
    path.starts_with(b"/") || path.split(|byte| *byte == b'/').any(|part| part == b"..")
}
