//! Reads a binary package file (`.deb`) natively: its control text, its checksum, and a digest of what it holds.
//!
//! A `.deb` is an `ar` archive of three members: `debian-binary` (the format's version), `control.tar.*` (what the package
//! manager reads) and `data.tar.*` (the files). The file is read once, from front to back: every byte goes through
//! SHA-256, the members go through their decompressor and a tar reader, and no member is held in memory.
//!
//! # The content digest
//!
//! [`DebFile::content`] answers one question: *is this rebuilt package the same as the last one, apart from its version?*
//! Two packages have the same digest when these agree:
//!
//! 1. The control file, where the `Version` and `Installed-Size` values are left out and every other occurrence of the
//!    package's own version (as in `Depends: libfoo1 (= 1.0-1+b2)`) is replaced by a mark. `Source` stays as it is: a
//!    package built from another source version is another package.
//! 2. Every other control member with its name, mode and text (maintainer scripts, `shlibs`, `symbols`, `triggers`,
//!    `conffiles`, `templates`, ...), where the package's own version is replaced by the same mark.
//! 3. Every data entry in the order of its path: path, kind, mode, owner and group (number and name), link target, device
//!    numbers, extended attributes, and the SHA-256 of the file's bytes.
//!
//! Left out, and why:
//!
//! - `Version` and the own version elsewhere in control members: a rebuild bumps them by definition.
//! - `Installed-Size`: it follows the size of the changelog, and what it counts is compared file by file anyway.
//! - `md5sums`: it is derived from the data entries and holds the changelog's checksum.
//! - Modification times, in control and data: they say when, not what.
//! - The order of entries within the archives, the compressor, and which of several hard-linked names carries the bytes.
//! - The Debian changelog: the regular files `usr/share/doc/<package>/changelog.Debian.gz` and
//!   `changelog.Debian.<architecture>.gz`, and `changelog.gz` and `changelog.<architecture>.gz` where the source's version has
//!   no Debian revision (a native package's Debian changelog has that name); packed or not. Each rebuild adds an entry to
//!   it. `NEWS.Debian.gz` and upstream changelogs count; a changelog that is a symbolic link counts too, since it says
//!   which package documents this one.
//! - The number of the rebuild, by [`read_rebuilt`], wherever the whole version of the package or of its source stands: in
//!   the control member, in paths and link targets, and in the bytes of files. A native Python package carries it in the
//!   name of its `egg-info` and in the text there, as it is or in the form of PEP 440 (`1.5+deb12u1.bk2`), and manual
//!   pages have it in what their `.gz` unpacks to: of a file packed by gzip that names it, the text and the header count.
//! - Control members' owners: the package manager ignores them.
//!
//! An occurrence of the own version is a whole word: it may not touch a letter, a digit or one of `. + ~ : -`. So version
//! `1` is not found in `libfoo1`, nor `1.0` in `1.0~`.
//!
//! # What must hold
//!
//! A worker sends these files, so every byte is hostile: each thing that can grow has a named bound, the decompressors have
//! memory limits, and no input panics.
//!
//! # What it does not do, and the known downside
//!
//! It extracts nothing. Members compressed with `bzip2` or `lzma` and sparse tar entries are refused; no current tool
//! writes them into a `.deb`. What follows from the number of the rebuild without being it still counts: the build ID of a program
//! that holds the version, a checksum of a file that does, and a file packed otherwise than by gzip. Such a package differs
//! at every bump, and its dependents are rebuilt although they need not be. That is the safe side: an equal digest never
//! hides more than a number, and how gzip encoded a text with one.

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

/// What one `.deb` says and holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DebFile {
    /// The control file's text, exactly as the package carries it.
    pub control: String,
    /// SHA-256 of the whole file, in lower-case hexadecimal.
    pub sha256: String,
    /// Size of the whole file.
    pub size_bytes: u64,
    /// The content digest (see the module's text), in lower-case hexadecimal.
    pub content: String,
}

/// Reads `path` once and says what it is. The own version of the content digest is the control file's `Version`.
pub fn read(path: &Path) -> Result<DebFile, DebFileError> {
    read_with(path, None, None, OutputBounds::WIDEST)
}

/// The same of a package of a yard that may unpack to no more than that, and whose versions end with `suffix` and the
/// number of the rebuild: for its content that number counts nowhere.
pub fn read_rebuilt(path: &Path, suffix: &str, bounds: OutputBounds) -> Result<DebFile, DebFileError> {
    read_with(path, None, Some(suffix), bounds)
}

/// The content digest of `path` with `version` taken as the package's own version instead of the control file's.
///
/// For a package whose relations name another version than its own, such as a binary package that is versioned apart from
/// the source it is released with.
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

/// What of a package's own names is left out of its content.
struct Own {
    architecture: String,
    /// Whether its source is native: whether its Debian changelog is the only one that it has.
    is_native: bool,
    numbers: Numbers,
}

impl Own {
    fn of(control: &str, version: &str, suffix: Option<&str>) -> Own {
        let stanza = Stanza::new(control);
        // A binary package may have another version than its source.
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

/// Reads the first two members.
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

/// Goes to the third member, which holds the files; how it is compressed.
fn begin_data<R: Read>(members: &mut Members<R>) -> Result<Compression, DebProblem> {
    let name = members.next_significant()?.ok_or(DebProblem::MissingMember { member: "data.tar" })?;
    member::compression(&name, "data.tar")
}

/// The one pass: members in their fixed order, then the hash of everything that was read.
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
    let contents = data::read(members.content(), compression, &own, bounds)?;
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
    })
}
