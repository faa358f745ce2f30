//! Checks the stanzas of the summary: they come from builds, which are not trusted.

use std::fmt::Write as _;

use super::PackageEntry;
use crate::index::{ENTRY_COUNT_MAX, check_total};
use crate::name::{check_name, check_sha256, check_sha512, shortened};
use crate::{Checksum, PublishError, Result};

/// The longest real stanzas, with thousands of `REQUIRES` lines, have a few hundred KiB.
const STANZA_BYTES_MAX: usize = 4 << 20;

/// The fields about a file, which only the publisher writes.
pub(super) const OWN: [&str; 2] = ["FILE_NAME", "FILE_SIZE"];

/// A package in the summary.
#[derive(Debug)]
pub(super) struct Stanza<'a> {
    pub(super) name: &'a str,
    /// Its lines, each with a line feed.
    pub(super) text: String,
}

/// Returns the stanzas of all packages, sorted by name, with the fields about their files.
pub(super) fn stanzas(entries: &[PackageEntry]) -> Result<Vec<Stanza<'_>>> {
    if entries.len() > ENTRY_COUNT_MAX {
        return Err(PublishError::TooLarge { what: "number of packages", limit: ENTRY_COUNT_MAX as u64 });
    }
    let mut total_bytes = 0;
    let mut stanzas = Vec::with_capacity(entries.len());
    for entry in entries {
        let stanza = stanza(entry)?;
        total_bytes += stanza.text.len() + 1;
        check_total(total_bytes)?;
        stanzas.push(stanza);
    }
    stanzas.sort_by_key(|stanza| stanza.name);
    match stanzas.windows(2).find(|pair| pair[0].name == pair[1].name) {
        Some(pair) => Err(refuse("package", pair[0].name, "it is a duplicate")),
        None => Ok(stanzas),
    }
}

fn stanza(entry: &PackageEntry) -> Result<Stanza<'_>> {
    check_name("package name", &entry.name)?;
    if entry.name.rsplit_once('-').is_none_or(|(_, version)| version.is_empty()) {
        return Err(refuse("package name", &entry.name, "it has no version"));
    }
    check_name("file name", &entry.file_name)?;
    let ending = entry.file_name.strip_prefix(&entry.name).and_then(|ending| ending.strip_prefix('.'));
    let is_ending =
        |ending: &str| !ending.is_empty() && ending.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !ending.is_some_and(is_ending) {
        return Err(refuse("file name", &entry.file_name, "it is not the package's name with an extension"));
    }
    match &entry.checksum {
        Checksum::Sha512(digits) => check_sha512(digits)?,
        Checksum::Sha256(digits) | Checksum::PkgHash(digits) => check_sha256(digits)?,
    }
    let text = check(entry)?;
    // `pkg_info -X FILE` prints them at the same place.
    let before =
        text.split_inclusive('\n').take_while(|line| !line.starts_with("DESCRIPTION=")).map(str::len).sum();
    let (before, description) = text.split_at(before);
    let mut stanza = String::with_capacity(text.len() + 80);
    stanza.push_str(before);
    if !before.ends_with('\n') {
        stanza.push('\n');
    }
    // Writing to a String cannot fail.
    let _ = write!(stanza, "FILE_NAME={}\nFILE_SIZE={}\n{description}", entry.file_name, entry.size_bytes);
    if !stanza.ends_with('\n') {
        stanza.push('\n');
    }
    Ok(Stanza { name: &entry.name, text: stanza })
}

/// Checks that a summary belongs to this package, is one stanza, and stays one inside an index.
fn check(entry: &PackageEntry) -> Result<&str> {
    let text = entry.summary.trim_end_matches('\n');
    let bad = |reason| Err(refuse("summary", text, reason));
    if text.is_empty() || text.len() > STANZA_BYTES_MAX {
        return bad("it is empty or too long");
    }
    let mut is_named = false;
    for line in text.split('\n') {
        // Some readers end a line at a carriage return, others do not.
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.contains(['\0', '\r']) {
            return bad("it has a control character");
        }
        if line.trim().is_empty() {
            return bad("an empty line would end it early");
        }
        match line.split_once('=') {
            Some((key, _)) if !is_key(key) => return bad("a line is not KEY=value"),
            None => return bad("a line is not KEY=value"),
            Some((key, _)) if OWN.contains(&key) => {
                return bad("it has a field that only the index may write");
            }
            Some(("PKGNAME", _)) if is_named => return bad("it has more than one PKGNAME"),
            Some(("PKGNAME", name)) if name != entry.name => {
                return bad("its PKGNAME differs from the entry's name");
            }
            Some(("PKGNAME", _)) => is_named = true,
            Some(_) => {}
        }
    }
    if is_named { Ok(text) } else { bad("it has no PKGNAME") }
}

fn is_key(key: &str) -> bool {
    !key.is_empty()
        && key.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

fn refuse(what: &'static str, value: &str, reason: &'static str) -> PublishError {
    PublishError::Input { what, value: shortened(value), reason }
}
