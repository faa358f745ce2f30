//! The list of checksums of a pkgsrc repository, and the summary that it names.

use super::{Package, Read};
use crate::memory::Name;
use crate::message::{Generation, PackageText};
use kilnyard_ecosystem::pkgsrc::signed;
use kilnyard_ecosystem::pkgsrc::version::Version;
use sha2::{Digest, Sha512};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Compares two versions.
pub fn compare(left: &str, right: &str) -> Ordering {
    Version::parse(left).cmp(&Version::parse(right))
}

/// The path of the summary without the suffix of a compressed form.
pub const SUMMARY: &str = "pkg_summary";

/// Reads a text with its summary. `shown` are the digests that were signed last, by path.
///
/// # Errors
/// A sentence that names the fault.
pub fn read(
    generation: &Generation,
    indexes: &BTreeMap<String, String>,
    shown: &BTreeMap<String, String>,
    now: i64,
) -> Result<Read, String> {
    if generation.series != SERIES {
        return Err(format!("the series of a pkgsrc repository is {SERIES}"));
    }
    let Some(summary) = indexes.get(SUMMARY).filter(|_| indexes.len() == 1) else {
        return Err(format!("the signer needs {SUMMARY}, and nothing else"));
    };
    let mut listed = listing(&generation.text)?;
    let mut read = Read { date: now, ..Read::default() };
    let is_known = shown.get(SUMMARY) == Some(&crate::hash(summary.as_bytes()));
    let names = kilnyard_publish::INDEXES_OF_SUMMARY;
    let derived: Vec<(String, String)> = match is_known && names.iter().all(|name| shown.contains_key(*name))
    {
        true => names.iter().map(|name| ((*name).to_owned(), shown[*name].clone())).collect(),
        false => {
            let files = kilnyard_publish::indexes_of_summary(summary);
            let files = files.map_err(|error| format!("the signer cannot {error}"))?;
            files.into_iter().map(|(name, bytes)| (name.to_owned(), sha512(&bytes))).collect()
        }
    };
    for (name, digest) in derived {
        if listed.remove(&name).as_ref() != Some(&digest) {
            return Err(format!(
                "the checksum of {name} is not that of its text; do both ends have the same version of Kilnyard?"
            ));
        }
        read.derived.insert(name, digest);
    }
    read.packages = packages(summary, &mut listed)?;
    match listed.first_key_value() {
        Some((name, _)) => Err(format!("{name} is not in the summary")),
        None => Ok(read),
    }
}

/// Reads the packages of a summary, and takes their checksums out of the list.
///
/// # Errors
/// A sentence that names the fault.
pub fn packages(summary: &str, listed: &mut BTreeMap<String, String>) -> Result<Vec<Package>, String> {
    let mut packages = Vec::new();
    for stanza in summary.split_terminator("\n\n").filter(|stanza| !stanza.is_empty()) {
        let field = |key: &str| stanza.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        let whole = field("PKGNAME").ok_or("a stanza of the summary has no PKGNAME")?;
        for key in ["PKGNAME", "PKGPATH", "FILE_NAME", "FILE_SIZE"] {
            let count = stanza.lines().filter(|line| line.split('=').next() == Some(key)).count();
            if count != 1 {
                return Err(format!("the stanza of {} has {count} fields {key}", whole.escape_debug()));
            }
        }
        if stanza.chars().any(|character| character.is_control() && !matches!(character, '\n' | '\t')) {
            return Err(format!("the stanza of {} has control characters", whole.escape_debug()));
        }
        let fault = |what: &str| format!("the stanza of {whole} {what}");
        let (name, version) = whole.rsplit_once('-').ok_or_else(|| fault("has no version"))?;
        let file = field("FILE_NAME").ok_or_else(|| fault("has no FILE_NAME"))?;
        // The name of a file says what it is: that is what its worker signs.
        if !file
            .strip_prefix(whole)
            .is_some_and(|ending| ending.starts_with('.') && !ending[1..].contains('.'))
        {
            return Err(fault("has a file of another package"));
        }
        let source = field("PKGPATH").ok_or_else(|| fault("has no PKGPATH"))?;
        let listed = listed.remove(file).ok_or_else(|| fault("has a file without a checksum"))?;
        let has_signature = listed.len() == TEXT_DIGITS;
        let conflicts = stanza.lines().filter_map(|line| line.strip_prefix("CONFLICTS="));
        let yields_to = conflicts.map(|pattern| {
            let end = pattern.find(['<', '>', '=', '[', '{', '*']).unwrap_or(pattern.len());
            pattern[..end].trim_end_matches('-').to_owned()
        });
        packages.push(Package {
            name: Name { name: name.to_owned(), variant: version.to_owned() },
            version: version.to_owned(),
            source: source.to_owned(),
            source_version: version.to_owned(),
            file: file.to_owned(),
            listed,
            has_signature,
            entry: entry(stanza),
            yields_to: yields_to.collect(),
            files: None,
            rest: String::new(),
        });
    }
    Ok(packages)
}

/// The sizes of the files that a summary names, by name.
pub fn sizes(summary: &str) -> impl Iterator<Item = (String, u64)> + '_ {
    let stanzas = summary.split_terminator("\n\n");
    stanzas.filter_map(|stanza| {
        let field = |key: &str| stanza.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        Some((field("FILE_NAME")?.to_owned(), field("FILE_SIZE")?.parse().ok()?))
    })
}

/// The SHA-256 of a stanza without what the index adds about the file.
fn entry(stanza: &str) -> String {
    let is_own = |line: &&str| line.starts_with("FILE_NAME=") || line.starts_with("FILE_SIZE=");
    let lines: Vec<&str> = stanza.lines().filter(|line| !is_own(line)).collect();
    crate::hash(lines.join("\n").trim_end().as_bytes())
}

/// The package of a source that a text `+PKG_HASH` is of: the text must be as pkg_admin(1) writes it.
///
/// # Errors
/// A sentence that names the fault.
pub fn package_of(text: &PackageText, source: &str) -> Result<Package, String> {
    let fault = || format!("the text of {} is not +PKG_HASH", text.file.escape_debug());
    let mut lines = text.text.lines();
    let mut field = |name: &str| lines.next().and_then(|line| line.strip_prefix(name));
    let is_begun =
        field("pkgsrc signature") == Some("") && field("") == Some("") && field("version: ") == Some("1");
    let whole = field("pkgname: ").filter(|_| is_begun).ok_or_else(fault)?;
    let is_known = field("algorithm: ") == Some("SHA512") && field("block size: ") == Some(BLOCK_SIZE);
    let size: u64 =
        field("file size: ").filter(|_| is_known).and_then(|size| size.parse().ok()).ok_or_else(fault)?;
    if field("") != Some("") {
        return Err(fault());
    }
    let blocks: Vec<String> = lines.map(str::to_owned).collect();
    let (end, blocks) = blocks.split_last().ok_or_else(fault)?;
    // The same text again, so that nothing else is in it.
    let is_same = signed::text(whole, size, blocks) == text.text && end == "end pkgsrc signature";
    let is_digest = |block: &String| {
        block.len() == 128 && block.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    let count = size.div_ceil(signed::BLOCK_BYTES as u64);
    let (name, version) = whole.rsplit_once('-').ok_or_else(fault)?;
    let ending = text.file.strip_prefix(whole).and_then(|ending| ending.strip_prefix('.'));
    let is_ending = ending
        .is_some_and(|ending| !ending.is_empty() && ending.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    let is_named = !name.is_empty() && whole.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/');
    if !is_same || blocks.len() as u64 != count || !blocks.iter().all(is_digest) || !is_ending || !is_named {
        return Err(fault());
    }
    Ok(Package {
        name: Name { name: name.to_owned(), variant: version.to_owned() },
        version: version.to_owned(),
        source: source.to_owned(),
        source_version: version.to_owned(),
        file: text.file.clone(),
        listed: crate::hash(text.text.as_bytes()),
        has_signature: true,
        entry: String::new(),
        yields_to: Vec::new(),
        files: None,
        rest: String::new(),
    })
}

/// The size of a block, as the text has it.
const BLOCK_SIZE: &str = "65536";

/// The only series of a pkgsrc repository.
pub const SERIES: &str = "packages";

/// The digits of the digest of a text `+PKG_HASH`: SHA-256, where other checksums are SHA-512.
const TEXT_DIGITS: usize = 64;

/// The checksums of files, by name: the SHA-512 of a file (`SHA512`), or the SHA-256 of what the signature of a signed package signs
/// (`PKG_HASH`).
///
/// # Errors
/// A sentence that names the fault.
pub fn listing(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut listed = BTreeMap::new();
    for line in text.lines() {
        let digits = if line.starts_with("PKG_HASH (") { TEXT_DIGITS } else { 128 };
        let rest = line.strip_prefix("SHA512 (").or_else(|| line.strip_prefix("PKG_HASH ("));
        let parts = rest.and_then(|rest| rest.split_once(") = "));
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_digest = |digest: &str| digest.len() == digits && digest.bytes().all(is_digit);
        let Some((name, digest)) = parts.filter(|(_, digest)| is_digest(digest)) else {
            return Err("a line of the checksums is none".to_owned());
        };
        if listed.insert(name.to_owned(), digest.to_owned()).is_some() {
            return Err(format!("the checksums name {name} twice"));
        }
    }
    Ok(listed)
}

fn sha512(bytes: &[u8]) -> String {
    Sha512::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
