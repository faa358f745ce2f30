//! Reads a binary package file (`.deb`) natively: its control text, its checksum, and a digest of its content.
//!
//! A `.deb` is an `ar` archive of three members: `debian-binary` (the version of the format), `control.tar.*` (read
//! by the package manager) and `data.tar.*` (the files). The file is read once, from front to back: every byte goes
//! through SHA-256, the members go through their decompressor and a tar reader, and no member is held in memory.
//!
//! # The content digest
//!
//! [`DebFile::content`] answers one question: *is this rebuilt package the same as the last one, apart from its
//! version?* Two packages have the same digest if these agree:
//!
//! 1. The control file, where the `Version` and `Installed-Size` values are left out and every other occurrence of
//!    the package's own version (as in `Depends: libfoo1 (= 1.0-1+b2)`) is replaced by a placeholder. `Source`
//!    stays unchanged: a package built from another source version is a different package.
//! 2. Every other control member with its name, mode and text (maintainer scripts, `shlibs`, `symbols`, `triggers`,
//!    `conffiles`, `templates`, ...), where the package's own version is replaced by the same placeholder.
//! 3. Every data entry in the order of its path: path, kind, mode, owner and group (number and name), link target,
//!    device numbers, extended attributes, and the SHA-256 of the file's bytes.
//!
//! The digest leaves out:
//!
//! - `Version`, and the package's own version elsewhere in control members: a rebuild increments them by
//!   definition.
//! - `Installed-Size`: it changes with the size of the changelog, and the files that it counts are compared
//!   individually anyway.
//! - `md5sums`: it is derived from the data entries and holds the changelog's checksum.
//! - Modification times, in control and data: they say when a file was made, not what it is.
//! - The order of entries within the archives, the compressor, and which of several hard-linked names carries the
//!   bytes.
//! - The Debian changelog: the regular files `usr/share/doc/<package>/changelog.Debian.gz` and
//!   `changelog.Debian.<architecture>.gz`, and also `changelog.gz` and `changelog.<architecture>.gz` if the
//!   source's version has no Debian revision (the Debian changelog of a native package has that name); compressed
//!   or not. Each rebuild adds an entry to it. `NEWS.Debian.gz` and upstream changelogs are included; so is a
//!   changelog that is a symbolic link, since it names the package that documents this one.
//! - With [`read_rebuilt`], the rebuild number, wherever the whole version of the package or of its source occurs:
//!   in the control member, in paths and link targets, and in the bytes of files. A native Python package has it in
//!   the name and the text of its `egg-info`, in Debian's form or that of PEP 440 (`1.5+deb12u1.bk2`), and manual
//!   pages have it in their unpacked `.gz`: if a gzip file contains the version, its unpacked text and its header
//!   are hashed.
//! - Control members' owners: the package manager ignores them.
//!
//! The package's own version is only matched as a whole word: it must not be adjacent to a letter, a digit or one of `.
//! + ~ : -`. For example, version `1` is not found in `libfoo1`, nor `1.0` in `1.0~`.
//!
//! # Invariants
//!
//! A worker sends these files, so every byte is untrusted: everything that can grow has a named limit, the
//! decompressors have memory limits, and no input causes a panic.
//!
//! # Limitations
//!
//! It extracts nothing. Members compressed with `bzip2` or `lzma` and sparse tar entries are rejected; no current
//! tool writes them into a `.deb`. Consequences of the rebuild number still count: the build ID of a program that
//! contains the version, a checksum of such a file, and a file compressed in another format than gzip. Such a
//! package differs after every rebuild, and its dependents are rebuilt needlessly. That is the safe side: equal
//! digests never hide more than a number, and how gzip encoded a text with one.

mod control;
mod data;
mod error;
pub(super) mod inventory;
mod masking;
mod member;
mod spelling;

use std::io::Read;
use std::path::Path;

use sha2::Sha256;

pub use error::{DebFileError, DebProblem};

use super::deb822::Stanza;
use super::published::{maker, split_number};
use super::version::without_epoch;
use crate::archive::{Compression, Hashing, Numbers, OutputBounds};
use control::Control;
use masking::Masking;
use member::Members;

/// The identity and the content of one `.deb`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DebFile {
    /// The control file's text, unchanged.
    pub control: String,
    /// SHA-256 of the whole file, in lower-case hexadecimal.
    pub sha256: String,
    /// Size of the whole file, compressed as it is.
    pub size_bytes: u64,
    /// The content digest (see the module documentation), in lower-case hexadecimal.
    pub content: String,
    /// The paths of all files that it installs, without folders, sorted and without a slash in front.
    pub paths: Vec<String>,
}

/// Reads `path` once. The package's own version for the content digest is the control file's `Version`.
pub fn read(path: &Path) -> Result<DebFile, DebFileError> {
    read_with(path, None, None, OutputBounds::WIDEST)
}

/// Like [`read`], for a package of a yard whose versions end with `suffix` and a rebuild number: the content digest
/// ignores that number. The package may unpack to at most `bounds`.
pub fn read_rebuilt(path: &Path, suffix: &str, bounds: OutputBounds) -> Result<DebFile, DebFileError> {
    read_with(path, None, Some(suffix), bounds)
}

/// The content digest of `path`, with `version` as the package's own version in place of the control file's.
///
/// This is for a package whose relations name a version other than its own, such as a binary package with a
/// different version than the source it is released with.
pub fn content_digest(path: &Path, version: &str) -> Result<String, DebFileError> {
    read_with(path, Some(version), None, OutputBounds::WIDEST).map(|deb| deb.content)
}

fn read_with(
    path: &Path,
    version: Option<&str>,
    suffix: Option<&str>,
    bounds: OutputBounds,
) -> Result<DebFile, DebFileError> {
    let read_error = |source| DebFileError::Read { path: path.to_owned(), source };
    let file = fs_err::File::open(path).map_err(read_error)?;
    let size_bytes = file.metadata().map_err(read_error)?.len();
    let source = Hashing::<_, Sha256>::new(file);
    read_members(source, size_bytes, version, suffix, bounds)
        .map_err(|problem| DebFileError::Format { path: path.to_owned(), problem })
}

/// The package's own properties that decide which parts the content digest ignores.
struct Own {
    architecture: String,
    /// Whether its source is native: then the Debian changelog is its only changelog.
    is_native: bool,
    numbers: Numbers,
}

impl Own {
    fn of(control: &str, version: &str, suffix: Option<&str>) -> Own {
        let stanza = Stanza::new(control);
        // A binary package may have a different version than its source.
        let of_source = maker(&stanza).1.unwrap_or(version);
        let numbered = [version, of_source].into_iter().filter_map(|version| {
            let version = without_epoch(version);
            let (base, _) = split_number(version, suffix?)?;
            let digits = version.len() - base.len() - suffix?.len();
            Some([version.to_owned(), spelling::of_python(version)].map(|spelled| (spelled, digits)))
        });
        Own {
            architecture: stanza.get("Architecture").unwrap_or("").to_owned(),
            is_native: !of_source.contains('-'),
            numbers: Numbers::new(numbered.flatten()),
        }
    }
}

/// Reads the first two members, `debian-binary` and `control.tar`.
fn read_control<R: Read>(source: R, size_bytes: u64) -> Result<(Members<R>, Control), DebProblem> {
    let mut members = Members::open(source, size_bytes)?;
    let name = members.next_significant()?.ok_or(DebProblem::MissingMember { member: "debian-binary" })?;
    if name != "debian-binary" {
        return Err(DebProblem::UnexpectedMember { found: name, expected: "debian-binary" });
    }
    control::check_format_version(&mut members.content())?;
    members.finish_member()?;
    let name = members.next_significant()?.ok_or(DebProblem::MissingMember { member: "control.tar" })?;
    let compression = member::compression(&name, "control.tar")?;
    let control = Control::read(members.content(), compression)?;
    members.finish_member()?;
    Ok((members, control))
}

/// Advances to the third member, which holds the files; returns its compression.
fn begin_data<R: Read>(members: &mut Members<R>) -> Result<Compression, DebProblem> {
    let name = members.next_significant()?.ok_or(DebProblem::MissingMember { member: "data.tar" })?;
    member::compression(&name, "data.tar")
}

/// The single pass: members in their fixed order, then the hash of all bytes read.
fn read_members<R: Read>(
    source: Hashing<R, Sha256>,
    size_bytes: u64,
    version: Option<&str>,
    suffix: Option<&str>,
    bounds: OutputBounds,
) -> Result<DebFile, DebProblem> {
    let (mut members, control) = read_control(source, size_bytes)?;
    let own_version = match version {
        Some(version) => version.to_owned(),
        None => control.version()?,
    };
    let own = Own::of(&control.text, &own_version, suffix);
    let mut masking = Masking::new(&own_version, &own.numbers);
    control.write_canonical(&mut masking);

    let compression = begin_data(&mut members)?;
    let mut paths = Vec::new();
    let contents = data::read(members.content(), compression, &own, bounds, &mut paths)?;
    paths.sort_unstable();
    contents.write_canonical(&mut masking.canonical);
    members.finish_member()?;

    if let Some(found) = members.next_significant()? {
        return Err(DebProblem::UnexpectedMember { found, expected: "the end of the file" });
    }
    let source = members.into_source();
    Ok(DebFile {
        control: control.text,
        sha256: source.finish().0,
        size_bytes,
        content: masking.canonical.finish(),
        paths,
    })
}
