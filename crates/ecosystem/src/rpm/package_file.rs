//! Reads a package file: its header, its checksum, and a digest of its content.
//!
//! # The content digest
//!
//! Two packages have the same digest if all tags of their headers agree, apart from what a rebuild changes: the release,
//! wherever it occurs in a text; the time of the build and of files; the cookie of the build; inodes; and the digests of the
//! payload, which contains those times. The header has the SHA-256 of each file, which rpm verifies when it installs the
//! package, so the payload itself is not unpacked.
//!
//! The digests of the files of a source package are left out: they are in the key of its build, and its spec file is rewritten for a
//! rebuild if it has no `%dist`.
//!
//! A file that contains the release differs after every rebuild, and the packages that depend on it are rebuilt. That is
//! the safe side.

use super::header::{Header, HeaderError, tag};
use crate::archive::{Hashing, OutputBounds};
use crate::hex;
use sha2::{Digest, Sha256};
use std::io::{self, Read};
use std::path::Path;

/// The lead, which only has what identifies the file (`docs/manual/format_lead.md`).
pub(super) const LEAD_BYTES: u64 = 96;
const LEAD_MAGIC: [u8; 4] = [0xed, 0xab, 0xee, 0xdb];
/// `PGPHASHALGO_SHA256`.
pub(super) const SHA256_KIND: u64 = 8;
/// `RPMSIGTAG_LONGARCHIVESIZE`, `RPMSIGTAG_PAYLOADSIZE`, in the header of signatures.
const ARCHIVE_SIZES: [u32; 2] = [271, 1007];
/// Tags that say when or where a package was built, or follow from that.
const VOLATILE: [u32; 11] = [
    tag::RELEASE,
    tag::BUILD_TIME,
    tag::BUILD_HOST,
    tag::FILE_TIMES,
    tag::COOKIE,
    tag::FILE_DEVICES,
    tag::FILE_INODES,
    tag::PAYLOAD_DIGEST,
    tag::UNPACKED_DIGEST,
    tag::SOURCE_PACKAGE_ID,
    // A sum over files, which differs with the length of the release.
    tag::SIZE,
];
/// What is left out of a source package, too.
const OF_SOURCES: [u32; 4] = [tag::FILE_DIGESTS, tag::FILE_SIZES, tag::LONG_FILE_SIZES, tag::LONG_SIZE];
/// A folder is in the header like a file: `S_IFDIR` of its mode.
pub(super) const FORMAT: u64 = 0o170_000;
pub(super) const FOLDER: u64 = 0o040_000;
/// In the place of the release.
const MASK: &[u8] = b"%{RELEASE}";

/// A package file.
#[derive(Clone, Debug)]
pub struct PackageFile {
    /// The main header.
    pub header: Header,
    /// The first byte of the main header, and the byte after its last.
    pub header_range: (u64, u64),
    /// The SHA-256 of the main header.
    pub header_sha256: String,
    /// The SHA-256 of the file.
    pub sha256: String,
    /// The size of the file.
    pub size_bytes: u64,
    /// The size of its unpacked payload, as it says.
    pub archive_bytes: u64,
    /// See the module documentation.
    pub content: String,
    /// The paths of its files and folders, in the header's order.
    pub paths: Vec<String>,
}

/// A file that is no package, or one beyond the bounds.
#[derive(Debug, thiserror::Error)]
pub enum PackageFileError {
    /// It cannot be read.
    #[error("failed to read it")]
    Read(#[from] io::Error),
    /// Its header is malformed.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// It breaks the format.
    #[error("it {0}")]
    Format(String),
}

fn broken(what: impl Into<String>) -> PackageFileError {
    PackageFileError::Format(what.into())
}

impl PackageFile {
    /// Reads a file once, from front to back.
    ///
    /// # Errors
    /// It is not a package, its payload is another one than its header says, or it unpacks to more than the bounds.
    pub fn read(path: &Path, bounds: OutputBounds) -> Result<PackageFile, PackageFileError> {
        let file = fs_err::File::open(path)?;
        let size_bytes = file.metadata()?.len();
        let mut input = Hashing::<_, Sha256>::new(io::BufReader::new(file));
        let mut lead = [0; LEAD_BYTES as usize];
        input.read_exact(&mut lead)?;
        if lead[..4] != LEAD_MAGIC {
            return Err(broken("is not a package file"));
        }
        // Signatures, which a build does not make; what is signed later is another file.
        let signatures = Header::read(&mut input)?;
        let padding = signatures.bytes().next_multiple_of(8) - signatures.bytes();
        input.read_exact(&mut [0; 8][..padding as usize])?;
        let archive_bytes = ARCHIVE_SIZES.iter().find_map(|tag| signatures.number(*tag)).unwrap_or(0);
        let start = LEAD_BYTES + signatures.bytes() + padding;
        let mut of_header = Hashing::<_, Sha256>::new(input);
        let header = Header::read(&mut of_header)?;
        let (header_sha256, input) = of_header.finish();
        let end = start + header.bytes();
        let mut payload = Hashing::<_, Sha256>::new(input);
        io::copy(&mut payload, &mut io::sink())?;
        let (payload, input) = payload.finish();
        let (sha256, _) = input.finish();
        let said = header.text(tag::PAYLOAD_DIGEST);
        if header.number(tag::PAYLOAD_DIGEST_KIND) != Some(SHA256_KIND) || said.as_ref() != Some(&payload) {
            return Err(broken("has another payload than its header says, or no SHA-256 of it"));
        }
        let paths = paths(&header)?;
        check_bounds(&header, paths.len(), bounds)?;
        let content = content(&header);
        Ok(PackageFile {
            header,
            header_range: (start, end),
            header_sha256,
            sha256,
            size_bytes,
            archive_bytes,
            content,
            paths,
        })
    }

    /// The paths of its files, sorted and without a slash in front; folders may be those of many packages. A source package
    /// has its files in none, so that they are below its name.
    pub fn files(&self) -> Vec<String> {
        let modes = self.header.numbers(tag::FILE_MODES);
        let is_folder = |number: usize| modes.get(number).is_some_and(|mode| mode & FORMAT == FOLDER);
        let files = self.paths.iter().enumerate().filter(|(number, _)| !is_folder(*number));
        let mut files: Vec<String> = match self.is_source() {
            true => {
                let name = self.header.text(tag::NAME).unwrap_or_default();
                files.map(|(_, path)| format!("{name}.src/{path}")).collect()
            }
            false => files.map(|(_, path)| path.trim_start_matches('/').to_owned()).collect(),
        };
        files.sort();
        files
    }

    /// Whether it is a source package.
    pub fn is_source(&self) -> bool {
        !self.header.has(tag::SOURCE_PACKAGE)
    }
}

/// Whether XML and lists of lines can have a character (XML 1.0, "Char").
pub(super) fn is_of_text(character: char) -> bool {
    !character.is_control() && !matches!(character, '\u{fffe}' | '\u{ffff}')
}

/// The paths of a header, which has them in parts.
pub(super) fn paths(header: &Header) -> Result<Vec<String>, PackageFileError> {
    if header.has(tag::OLD_FILE_NAMES) {
        return Err(broken("has its files in the form of rpm 3"));
    }
    let (folders, names) = (header.texts(tag::FOLDER_NAMES), header.texts(tag::BASE_NAMES));
    let indexes = header.numbers(tag::FOLDER_INDEXES);
    if indexes.len() != names.len() {
        return Err(broken("has another number of files than of their folders"));
    }
    let path = |(index, name): (&u64, &String)| {
        let folder = folders.get(*index as usize).ok_or_else(|| broken("has a file in no folder"))?;
        let path = format!("{folder}{name}");
        let is_plain = !name.contains('/') && path.chars().all(is_of_text);
        let leads_up = path.split('/').any(|part| part == "..");
        match is_plain && !leads_up && path.len() < 4096 {
            true => Ok(path),
            false => Err(broken(format!("has the file {path:?}, which is no path within a root"))),
        }
    };
    indexes.iter().zip(&names).map(path).collect()
}

fn check_bounds(header: &Header, files: usize, bounds: OutputBounds) -> Result<(), PackageFileError> {
    let sizes = match header.has(tag::LONG_FILE_SIZES) {
        true => header.numbers(tag::LONG_FILE_SIZES),
        false => header.numbers(tag::FILE_SIZES),
    };
    let bytes = sizes.iter().fold(0u64, |sum, size| sum.saturating_add(*size));
    if bytes > bounds.unpacked_bytes_max {
        let max = bounds.unpacked_bytes_max;
        return Err(broken(format!("unpacks to more than {max} bytes (`unpacked` of [limits])")));
    }
    if files > bounds.files_max {
        let max = bounds.files_max;
        return Err(broken(format!("has more than {max} files (`unpacked-files` of [limits])")));
    }
    Ok(())
}

fn content(header: &Header) -> String {
    let release = header.text(tag::RELEASE).unwrap_or_default().into_bytes();
    let mut hash = Sha256::new();
    let is_source = !header.has(tag::SOURCE_PACKAGE);
    let is_left_out = |tag: &u32| VOLATILE.contains(tag) || is_source && OF_SOURCES.contains(tag);
    for (tag, bytes) in header.values().filter(|(tag, _)| !is_left_out(tag)) {
        let masked = masked(bytes, &release);
        hash.update(tag.to_be_bytes());
        hash.update((masked.len() as u64).to_be_bytes());
        hash.update(&masked);
    }
    hex(&hash.finalize())
}

/// The bytes with another word in the place of the release. A release that is a short number is too frequent to be one.
fn masked(bytes: &[u8], release: &[u8]) -> Vec<u8> {
    const LENGTH_MIN: usize = 4;
    let mut masked = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while release.len() >= LENGTH_MIN
        && let Some(at) = memchr::memmem::find(rest, release)
    {
        masked.extend(&rest[..at]);
        masked.extend(MASK);
        rest = &rest[at + release.len()..];
    }
    masked.extend(rest);
    masked
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpm::header::MAGIC;

    /// A header of files in folders.
    fn header(folders: &[&str], files: &[(u32, &str)]) -> Header {
        let (mut index, mut data) = (Vec::new(), Vec::new());
        let mut add = |tag: u32, kind: u32, count: usize, bytes: Vec<u8>| {
            for word in [tag, kind, data.len() as u32, count as u32] {
                index.extend(word.to_be_bytes());
            }
            data.extend(bytes);
        };
        let texts =
            |texts: &[&str]| texts.iter().flat_map(|text| [text.as_bytes(), b"\0"].concat()).collect();
        let numbers = files.iter().flat_map(|(folder, _)| folder.to_be_bytes()).collect();
        add(tag::FOLDER_INDEXES, 4, files.len(), numbers);
        let names: Vec<&str> = files.iter().map(|(_, name)| *name).collect();
        add(tag::BASE_NAMES, 8, names.len(), texts(&names));
        add(tag::FOLDER_NAMES, 8, folders.len(), texts(folders));
        let mut bytes =
            [&MAGIC[..], &[0; 4], &3u32.to_be_bytes(), &(data.len() as u32).to_be_bytes()].concat();
        bytes.extend(index);
        bytes.extend(data);
        Header::read(&mut &bytes[..]).unwrap()
    }

    #[test]
    fn paths_lead_nowhere_else() {
        let good = header(&["/usr/bin/", "/etc/"], &[(0, "a"), (1, "..b"), (1, "c d")]);
        assert_eq!(paths(&good).unwrap(), ["/usr/bin/a", "/etc/..b", "/etc/c d"]);
        for (folder, name) in [
            ("/usr/../", "a"),
            ("../", "a"),
            ("/", ".."),
            ("/..", "/a"),
            ("/", "a/b"),
            ("/", "a\nb"),
            ("/\u{1}/", "a"),
            ("/", "a\u{fffe}"),
            ("/", &"a".repeat(5000)),
        ] {
            assert!(paths(&header(&[folder], &[(0, name)])).is_err(), "{folder:?} {name:?}");
        }
        assert!(paths(&header(&["/"], &[(1, "a")])).is_err(), "there is no such folder");
    }
}
