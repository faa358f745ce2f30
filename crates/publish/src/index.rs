//! The texts of a generation: `Packages`, `Sources`, `Release`.

use crate::{BinaryEntry, PublishError, ReleaseFacts, SourceEntry};
use sha2::{Digest, Sha256};
use std::io::{self, Write};

/// A file of a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexFile {
    /// Its path below `dists/CODENAME`.
    pub path: String,
    /// Its text, not compressed.
    pub text: String,
}

/// A compressed form of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Plain,
    Xz,
    Zstd,
}

impl Form {
    pub(crate) const ALL: [Form; 3] = [Form::Plain, Form::Xz, Form::Zstd];

    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Form::Plain => "",
            Form::Xz => ".xz",
            Form::Zstd => ".zst",
        }
    }

    /// Compresses. The levels are cheap ones: an index is written after every run and read by few.
    pub(crate) fn pack(self, text: &str) -> io::Result<Vec<u8>> {
        match self {
            Form::Plain => Ok(text.as_bytes().to_vec()),
            Form::Xz => {
                let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
                encoder.write_all(text.as_bytes())?;
                encoder.finish()
            }
            Form::Zstd => zstd::encode_all(text.as_bytes(), 9),
        }
    }
}

pub(crate) fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn malformed(text: &str) -> PublishError {
    PublishError::Malformed { what: text.lines().next().unwrap_or("an empty stanza").to_owned() }
}

pub(crate) fn check_stanza(stanza: &str) -> Result<(), PublishError> {
    let is_whole = !stanza.trim().is_empty() && !stanza.lines().any(|line| line.trim().is_empty());
    if is_whole { Ok(()) } else { Err(malformed(stanza)) }
}

/// The key by which stanzas are ordered.
fn name_and_version(stanza: &str) -> (&str, &str) {
    let field = |name: &str| stanza.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("").trim();
    (field("Package:"), field("Version:"))
}

/// All indexes but `Release`.
pub(crate) fn indexes(
    facts: &ReleaseFacts,
    binaries: &[BinaryEntry],
    sources: &[SourceEntry],
) -> Result<Vec<IndexFile>, PublishError> {
    let mut files = Vec::new();
    for component in &facts.components {
        for architecture in &facts.architectures {
            let mut entries: Vec<&BinaryEntry> = binaries
                .iter()
                .filter(|entry| entry.component == *component)
                .filter(|entry| entry.architecture == *architecture || entry.architecture == "all")
                .collect();
            entries.sort_by_key(|entry| (name_and_version(&entry.stanza), &entry.pool_path));
            let mut text = String::new();
            for entry in entries {
                check_stanza(&entry.stanza)?;
                text.push_str(entry.stanza.trim_end());
                text.push_str(&format!(
                    "\nFilename: {}\nSize: {}\nSHA256: {}\n\n",
                    entry.pool_path, entry.size_bytes, entry.sha256
                ));
            }
            files.push(IndexFile { path: format!("{component}/binary-{architecture}/Packages"), text });
        }
        let mut entries: Vec<&SourceEntry> =
            sources.iter().filter(|entry| entry.component == *component).collect();
        entries.sort_by_key(|entry| name_and_version(&entry.stanza));
        let mut text = String::new();
        for entry in entries {
            check_stanza(&entry.stanza)?;
            text.push_str(entry.stanza.trim_end());
            text.push_str("\n\n");
        }
        files.push(IndexFile { path: format!("{component}/source/Sources"), text });
    }
    Ok(files)
}

/// The `Release` file over these files: path, size, hash.
pub(crate) fn release(facts: &ReleaseFacts, files: &[(String, u64, String)]) -> String {
    let mut text = format!(
        "Origin: {}\nLabel: {}\nSuite: {}\nCodename: {}\nDate: {}\n",
        facts.origin,
        facts.label,
        facts.suite,
        facts.codename,
        date(facts.date_seconds)
    );
    if let Some(until) = facts.valid_until_seconds {
        text.push_str(&format!("Valid-Until: {}\n", date(until)));
    }
    text.push_str(&format!(
        "Acquire-By-Hash: yes\nArchitectures: {}\nComponents: {}\nDescription: {}\nSHA256:\n",
        facts.architectures.join(" "),
        facts.components.join(" "),
        facts.description
    ));
    for (path, size, sha256) in files {
        text.push_str(&format!(" {sha256} {size} {path}\n"));
    }
    text
}

/// A date as `Release` files have it: RFC 1123, in UTC.
pub(crate) fn date(seconds: i64) -> String {
    let timestamp = jiff::Timestamp::from_second(seconds).unwrap_or_default();
    timestamp.strftime("%a, %d %b %Y %H:%M:%S UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_release_files() {
        assert_eq!(date(1_700_000_000), "Tue, 14 Nov 2023 22:13:20 UTC");
    }

    #[test]
    fn a_stanza_with_an_empty_line_is_refused() {
        assert!(check_stanza("Package: a\n\nPackage: smuggled").is_err());
        assert!(check_stanza("").is_err());
        assert!(check_stanza("Package: a\nVersion: 1").is_ok());
    }
}
