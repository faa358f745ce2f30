//! `distinfo`: the sizes and checksums of a package's distfiles, and the checksums of its patches.
//!
//! ```text
//! $NetBSD: distinfo,v 1.11 2012/08/15 17:45:45 drochner Exp $
//!
//! SHA1 (figlet-2.2.5.tar.gz) = dda696958c161bd71d6590152c94c4f705415727
//! Size (figlet-2.2.5.tar.gz) = 233201 bytes
//! SHA1 (patch-aa) = 7ff721d16e0bbc61dae8d397944cb518e6330325
//! ```
//!
//! Fetching trusts this file, so a line that cannot be parsed is an error with its number, and is never skipped;
//! pkgsrc's own tools skip it and report the file as unknown. Names become paths below the distfiles folder: a name
//! that points outside it is rejected.

use crate::hex;
use sha2::{Digest, Sha512};
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

/// pkgsrc's largest distinfo file, of a package with thousands of distfiles, is 2 MiB.
const BYTES_MAX: usize = 64 << 20;

/// The kernel's `PATH_MAX`: no file can have a longer name.
const NAME_BYTES_MAX: usize = 4096;

/// Characters of a line that an error shows.
const SHOWN_CHARACTERS_MAX: usize = 80;

/// A hash function used in `distinfo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// `BLAKE2s`, since 2021.
    Blake2s,
    /// `MD5`, in old files.
    Md5,
    /// `RMD160`, until 2021.
    Rmd160,
    /// `SHA1`: of patches, and of distfiles until 2021.
    Sha1,
    /// `SHA256`.
    Sha256,
    /// `SHA512`, since 2015.
    Sha512,
}

impl Algorithm {
    /// Every supported algorithm.
    pub const ALL: [Self; 6] =
        [Self::Blake2s, Self::Md5, Self::Rmd160, Self::Sha1, Self::Sha256, Self::Sha512];

    /// The algorithm's name in `distinfo`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Blake2s => "BLAKE2s",
            Self::Md5 => "MD5",
            Self::Rmd160 => "RMD160",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
            Self::Sha512 => "SHA512",
        }
    }

    /// Number of hexadecimal digits of a hash.
    pub fn digits(self) -> usize {
        match self {
            Self::Md5 => 32,
            Self::Rmd160 | Self::Sha1 => 40,
            Self::Blake2s | Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }

    fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }
}

/// A file listed in a `distinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distfile {
    /// Path below the distfiles folder, including `DIST_SUBDIR` if the package has one; for a patch, its file name.
    pub name: String,
    /// Size of the file; `None` for patches.
    pub size_bytes: Option<u64>,
    /// Hashes in lower-case hexadecimal, in the order of the lines. The hashes of a patch are computed without the
    /// lines that contain `$NetBSD`.
    pub hashes: Vec<(Algorithm, String)>,
    /// Whether it is one of the package's patches rather than a file to fetch.
    pub is_patch: bool,
}

/// How much of a file is read at once.
const BUFFER_BYTES: usize = 128 << 10;

impl Distfile {
    /// Whether a file has the size and the SHA-512 that are listed; false if these are not listed.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn is(&self, file: &Path) -> std::io::Result<bool> {
        let listed = self.hashes.iter().find(|(algorithm, _)| *algorithm == Algorithm::Sha512);
        let Some((_, listed)) = listed else { return Ok(false) };
        let mut file = std::fs::File::open(file)?;
        let (mut hasher, mut size_bytes, mut buffer) = (Sha512::new(), 0, vec![0; BUFFER_BYTES]);
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                read => {
                    hasher.update(&buffer[..read]);
                    size_bytes += read as u64;
                }
            }
        }
        Ok(Some(size_bytes) == self.size_bytes && hex(&hasher.finalize()) == *listed)
    }
}

/// A malformed `distinfo`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DistinfoError {
    /// A malformed line.
    #[error("line {line}: {problem}: `{text}`")]
    Line {
        /// Line number, from 1.
        line: usize,
        /// The fault in the line.
        problem: &'static str,
        /// The beginning of the line.
        text: String,
    },
    /// The file is larger than that of any real package.
    #[error("it is larger than {limit} bytes")]
    TooLarge {
        /// Largest accepted size.
        limit: usize,
    },
}

/// The files of a `distinfo`, in the order of their first lines.
pub fn parse(bytes: &[u8]) -> Result<Vec<Distfile>, DistinfoError> {
    if bytes.len() > BYTES_MAX {
        return Err(DistinfoError::TooLarge { limit: BYTES_MAX });
    }
    let mut files: Vec<Distfile> = Vec::new();
    let mut numbers: HashMap<String, usize> = HashMap::new();
    for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        // The name of the last committer may be in any encoding.
        if line.trim_ascii().is_empty() || line.starts_with(b"#") || line.starts_with(b"$NetBSD") {
            continue;
        }
        let error = |problem| DistinfoError::Line {
            line: number + 1,
            problem,
            text: String::from_utf8_lossy(line).chars().take(SHOWN_CHARACTERS_MAX).collect(),
        };
        let text = std::str::from_utf8(line).map_err(|_| error("it is not UTF-8"))?;
        let (name, fact) = parse_line(text.trim_ascii_end()).map_err(error)?;
        let at = *numbers.entry(name.to_owned()).or_insert(files.len());
        if at == files.len() {
            files.push(Distfile {
                name: name.to_owned(),
                size_bytes: None,
                hashes: Vec::new(),
                is_patch: is_patch_name(name),
            });
        }
        let file = &mut files[at];
        match fact {
            Fact::Size(_) if file.size_bytes.is_some() => return Err(error("the file already has a size")),
            Fact::Size(size_bytes) => file.size_bytes = Some(size_bytes),
            Fact::Hash(algorithm, _) if file.hashes.iter().any(|(other, _)| *other == algorithm) => {
                return Err(error("the file already has a hash of this algorithm"));
            }
            Fact::Hash(algorithm, hash) => file.hashes.push((algorithm, hash.to_owned())),
        }
    }
    Ok(files)
}

/// The fact that a line states about its file.
enum Fact<'a> {
    Size(u64),
    Hash(Algorithm, &'a str),
}

/// `WORD (NAME) = VALUE`.
fn parse_line(line: &str) -> Result<(&str, Fact<'_>), &'static str> {
    let no_line = "it is not `ALGORITHM (FILE) = HASH`";
    let (word, rest) = line.split_once(" (").ok_or(no_line)?;
    // Values never contain a parenthesis, but names may.
    let (name, value) = rest.rsplit_once(") = ").ok_or(no_line)?;
    check_name(name)?;
    if word == "Size" {
        // Some hand-written ones in pkgsrc lack the unit or have an extra blank.
        let digits = value.strip_suffix("bytes").unwrap_or(value).trim_matches(' ');
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        let size_bytes = digits.parse().ok().filter(|_| is_number).ok_or("its size is not a number")?;
        return Ok((name, Fact::Size(size_bytes)));
    }
    let algorithm = Algorithm::of_name(word).ok_or("its algorithm is unknown")?;
    let is_hash = value.len() == algorithm.digits()
        && value.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_hash {
        Ok((name, Fact::Hash(algorithm, value)))
    } else {
        Err("its hash does not fit its algorithm")
    }
}

fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(char::is_control) {
        return Err("its file has no valid name");
    }
    match name.split('/').any(|part| matches!(part, "" | "." | "..")) {
        true => Err("its file name is outside the distfiles folder"),
        false => Ok(()),
    }
}

/// Whether the name is that of one of pkgsrc's own patches. Those are in the package's folder, so a name with a
/// folder is a distfile's; so are archives that their authors call patches.
fn is_patch_name(name: &str) -> bool {
    let is_called_one = name.starts_with("patch-") || (name.starts_with("emul-") && name.contains("-patch-"));
    let is_left_over = name.starts_with("patch-local-")
        || [".orig", ".rej", "~"].iter().any(|ending| name.ends_with(ending));
    is_called_one && !is_left_over && !name.contains('/') && !name.contains(".tar.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_file_are_combined_in_order() {
        let sha1 = "d".repeat(40);
        let blake = "0a".repeat(32);
        let text = format!(
            "$NetBSD: distinfo,v 1.1 j\u{e9}r\u{f4}me Exp $\n\nBLAKE2s (sub/b (1).tgz) = {blake}\n\
             SHA1 (patch-aa) = {sha1}\nSize (sub/b (1).tgz) = 18446744073709551615 bytes\r\n\
             SHA1 (patch-2.7.tar.xz) = {sha1}\nSHA1 (sub/patch-1) = {sha1}"
        );
        let files = parse(text.as_bytes()).unwrap();
        let expected = [
            ("sub/b (1).tgz", Some(u64::MAX), Algorithm::Blake2s, &blake, false),
            ("patch-aa", None, Algorithm::Sha1, &sha1, true),
            ("patch-2.7.tar.xz", None, Algorithm::Sha1, &sha1, false),
            ("sub/patch-1", None, Algorithm::Sha1, &sha1, false),
        ]
        .map(|(name, size_bytes, algorithm, hash, is_patch)| Distfile {
            name: name.to_owned(),
            size_bytes,
            hashes: vec![(algorithm, hash.clone())],
            is_patch,
        });
        assert_eq!(files, expected);
        assert_eq!(parse(b"$NetBSD: by j\xe9r\xf4me $\n"), Ok(Vec::new()));
        assert_eq!(parse(b""), Ok(Vec::new()));
        let by_hand = parse(b"Size (a) = 813598\nSize (b) =  1942481 bytes\n").unwrap();
        assert_eq!(
            by_hand.iter().map(|file| file.size_bytes).collect::<Vec<_>>(),
            [Some(813598), Some(1942481)]
        );
    }

    #[test]
    fn errors_name_the_line() {
        let sha1 = "d".repeat(40);
        let problem = |line: &str| match parse(format!("$NetBSD$\n\n{line}\n").as_bytes()) {
            Err(DistinfoError::Line { line: 3, problem, .. }) => problem,
            other => panic!("{line}: {other:?}"),
        };
        for (line, expected) in [
            ("nonsense", "it is not `ALGORITHM (FILE) = HASH`"),
            ("SHA1 (a) == x", "it is not `ALGORITHM (FILE) = HASH`"),
            ("SHA1 (a) = x", "its hash does not fit its algorithm"),
            ("SHA3 (a) = x", "its algorithm is unknown"),
            ("Size (a) = 1 kilobytes", "its size is not a number"),
            ("Size (a) = +1 bytes", "its size is not a number"),
            ("Size (a) =  bytes", "its size is not a number"),
            ("Size (a) = 18446744073709551616 bytes", "its size is not a number"),
            ("Size () = 1 bytes", "its file has no valid name"),
            ("Size (a\tb) = 1 bytes", "its file has no valid name"),
            ("Size (../a) = 1 bytes", "its file name is outside the distfiles folder"),
            ("Size (/a) = 1 bytes", "its file name is outside the distfiles folder"),
            ("Size (a//b) = 1 bytes", "its file name is outside the distfiles folder"),
        ] {
            assert_eq!(problem(line), expected, "{line}");
        }
        assert_eq!(
            problem(&format!("SHA1 (a) = {}", sha1.to_uppercase())),
            "its hash does not fit its algorithm"
        );
        let twice = format!("SHA1 (a) = {sha1}\nSHA1 (a) = {sha1}");
        assert!(matches!(parse(twice.as_bytes()), Err(DistinfoError::Line { line: 2, .. })));
        let twice = "Size (a) = 1 bytes\nSize (b) = 1 bytes\nSize (a) = 1 bytes";
        assert!(matches!(parse(twice.as_bytes()), Err(DistinfoError::Line { line: 3, .. })));
        let error = parse(b"SHA1 (\xff) = x").unwrap_err();
        assert_eq!(error.to_string(), "line 1: it is not UTF-8: `SHA1 (\u{fffd}) = x`");
    }
}
