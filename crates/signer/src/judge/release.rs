//! `Release` of an apt repository, and the indexes that it names.

pub mod document;

use super::{Package, Read};
use crate::hash;
use crate::memory::Name;
use crate::message::Generation;
use kilnyard_ecosystem::debian::deb822::{self, Stanza};
use kilnyard_ecosystem::debian::source::Source;
pub use kilnyard_ecosystem::debian::version::compare;
use kilnyard_ecosystem::debian::version::without_epoch;
use std::collections::{BTreeMap, HashSet};

/// The fields of `Release`. It has no others: what the signer does not know, it does not sign.
const FIELDS: [&str; 11] = [
    "Origin",
    "Label",
    "Suite",
    "Codename",
    "Date",
    "Valid-Until",
    "Acquire-By-Hash",
    "Architectures",
    "Components",
    "Description",
    "SHA256",
];

/// The longest `Valid-Until` after the date, in seconds.
const VALID_SECONDS_MAX: i64 = 400 * 86_400;

const DATE_FORMAT: &str = "%a, %d %b %Y %H:%M:%S";

/// Reads a text with its indexes. `shown` are the digests that were signed last, by path.
///
/// # Errors
/// A sentence that names the fault.
pub fn read(
    generation: &Generation,
    indexes: &BTreeMap<String, String>,
    shown: &BTreeMap<String, String>,
) -> Result<Read, String> {
    let text = &generation.text;
    if !is_series(&generation.series) {
        return Err(
            "the name of the series has other characters than letters, digits, hyphens and dots".to_owned()
        );
    }
    if has_control(text) {
        return Err("Release has control characters".to_owned());
    }
    if text.contains("\n\n") || text.contains('\r') || !text.ends_with('\n') {
        return Err("Release is not one stanza".to_owned());
    }
    let stanza = Stanza::new(text);
    if let Some(fault) = stanza.fault() {
        return Err(format!("Release has {fault}"));
    }
    let mut seen = HashSet::new();
    for (field, _) in stanza.fields() {
        if !FIELDS.contains(&field) {
            return Err(format!("Release has the field {field}, which this signer does not know"));
        }
        if !seen.insert(field) {
            return Err(format!("Release has the field {field} twice"));
        }
    }
    let field = |name: &str| stanza.get(name).ok_or_else(|| format!("Release has no field {name}"));
    if field("Codename")? != generation.series {
        return Err(format!("Release is of {}, not of {}", field("Codename")?, generation.series));
    }
    if stanza.get("Suite").is_some_and(|suite| suite != generation.series) {
        return Err("the suite in Release is not its codename".to_owned());
    }
    let date = date("Date", field("Date")?)?;
    if let Some(until) = stanza.get("Valid-Until") {
        let until = self::date("Valid-Until", until)?;
        if until <= date || until - date > VALID_SECONDS_MAX {
            return Err("Release is valid until a time that is not within the next 400 days".to_owned());
        }
    }
    let mut listed = listing(field("SHA256")?)?;
    let mut read = Read { date, ..Read::default() };
    for (path, text) in indexes {
        let sha256 = hash(text.as_bytes());
        take(&mut listed, path, &sha256, Some(text.len()))?;
        if has_control(text) {
            return Err(format!("{path} has control characters"));
        }
        let is_known = shown.get(path) == Some(&sha256);
        let forms = kilnyard_publish::packed_paths(path);
        match is_known && forms.iter().all(|form| shown.contains_key(form)) {
            true => {
                for form in forms {
                    let digest = shown[&form].clone();
                    take(&mut listed, &form, &digest, None)?;
                    read.derived.insert(form, digest);
                }
            }
            false => {
                let packed = kilnyard_publish::packed_forms(path, text.as_bytes());
                for (form, bytes) in packed.map_err(|error| format!("the signer cannot {error}"))? {
                    let digest = hash(&bytes);
                    take(&mut listed, &form, &digest, Some(bytes.len()))?;
                    read.derived.insert(form, digest);
                }
            }
        }
        packages(path, text, &mut read.packages)?;
    }
    match listed.first_key_value() {
        Some((path, _)) => Err(format!("Release names {path}, which the signer was not shown")),
        None => Ok(read),
    }
}

/// Whether a codename is one for every reader.
fn is_series(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._+".contains(&byte);
    name != super::checksums::SERIES
        && name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
        && name.bytes().all(is_part)
}

/// Whether a text has characters that readers treat differently.
fn has_control(text: &str) -> bool {
    text.chars().any(|character| character.is_control() && !matches!(character, '\n' | '\t'))
}

/// The files that `Release` names: SHA-256 and size by path.
fn listing(field: &str) -> Result<BTreeMap<String, (String, usize)>, String> {
    let mut listed = BTreeMap::new();
    for line in field.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if !line.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
            return Err("a line of the checksums in Release has characters that it must not have".to_owned());
        }
        let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
        let [sha256, size, path] = words[..] else {
            return Err("a line of the checksums in Release does not have three words".to_owned());
        };
        let size = size.parse().map_err(|_| format!("the size of {path} in Release is not a number"))?;
        if listed.insert(path.to_owned(), (sha256.to_owned(), size)).is_some() {
            return Err(format!("Release names {path} twice"));
        }
    }
    Ok(listed)
}

/// The SHA-256 that the `Release` file of an archive names for a path.
pub fn listed_digest(release: &str, path: &str) -> Option<String> {
    let stanza = Stanza::new(release);
    let is_sound = stanza.fault().is_none() && !release.trim_end().contains("\n\n");
    let lines = stanza.get("SHA256").filter(|_| is_sound)?.lines();
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>()).find_map(|words| match words[..] {
        [digest, _, named] if named == path => Some(digest.to_owned()),
        _ => None,
    })
}

fn take(
    listed: &mut BTreeMap<String, (String, usize)>,
    path: &str,
    sha256: &str,
    size: Option<usize>,
) -> Result<(), String> {
    match listed.remove(path) {
        None => Err(format!("Release does not name {path}")),
        Some((listed, listed_size)) if listed != sha256 || size.is_some_and(|size| size != listed_size) => {
            Err(format!(
                "the checksum of {path} in Release is not that of its text; do both ends have the same version of Kilnyard?"
            ))
        }
        Some(_) => Ok(()),
    }
}

fn date(name: &str, text: &str) -> Result<i64, String> {
    let time =
        text.strip_suffix(" UTC").and_then(|text| jiff::civil::DateTime::strptime(DATE_FORMAT, text).ok());
    let time = time.and_then(|time| time.to_zoned(jiff::tz::TimeZone::UTC).ok());
    time.map(|time| time.timestamp().as_second()).ok_or_else(|| format!("{name} in Release is not a time"))
}

/// The paths of plain indexes that a text names.
pub fn indexes_of(release: &str) -> impl Iterator<Item = &str> {
    let paths = release.lines().filter_map(|line| line.strip_prefix(' ')?.split_whitespace().nth(2));
    paths.filter(|path| path.ends_with("/Packages") || path.ends_with("/Sources"))
}

/// The files that `Release` names: SHA-256 and size, by path.
///
/// # Errors
/// A sentence that names the fault.
pub fn listed_files(release: &str) -> Result<BTreeMap<String, (String, usize)>, String> {
    listing(Stanza::new(release).get("SHA256").unwrap_or_default())
}

/// The files in the pool that a stanza of an index names: SHA-256 and size, by path.
pub fn files_of(stanza: &Stanza<'_>) -> Vec<(String, (String, u64))> {
    if let Some(path) = stanza.get("Filename") {
        let size = stanza.get("Size").and_then(|size| size.parse().ok()).unwrap_or_default();
        return vec![(path.to_owned(), (stanza.get("SHA256").unwrap_or_default().to_owned(), size))];
    }
    let source = Source::new(*stanza);
    let files = source.files().unwrap_or_default().into_iter();
    files
        .map(|file| (format!("{}/{}", source.directory(), file.name), (file.sha256, file.size_bytes)))
        .collect()
}

/// Reads the packages of an index.
///
/// # Errors
/// A sentence that names the fault.
pub fn packages(path: &str, text: &str, packages: &mut Vec<Package>) -> Result<(), String> {
    let is_of_sources = path.ends_with("/Sources");
    if !is_of_sources && !path.ends_with("/Packages") {
        return Err(format!("{path} is not an index of packages"));
    }
    if is_of_sources {
        return Ok(());
    }
    // Packages of the installer are in indexes of their own.
    let kind = if path.contains("/debian-installer/") { "udeb" } else { "deb" };
    for stanza in deb822::stanzas(text) {
        let fault = |what: &str| {
            format!(
                "{path}: the stanza of {} {what}",
                stanza.get("Package").unwrap_or("a package without a name")
            )
        };
        if let Some(found) = stanza.fault() {
            return Err(fault(&format!("has {found}")));
        }
        let field = |name: &str| stanza.get(name).ok_or_else(|| fault(&format!("has no field {name}")));
        let (name, version, pool_path) = (field("Package")?, field("Version")?, field("Filename")?);
        let listed = field("SHA256")?;
        if !pool_path.starts_with("pool/")
            || pool_path.split('/').any(|part| part.is_empty() || part.starts_with('.'))
        {
            return Err(fault("has a file outside of the pool"));
        }
        if listed.len() != 64
            || !listed.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        {
            return Err(fault("has a checksum that is none"));
        }
        // The name of a file says what it is: that is what its worker signs.
        let file = pool_path.rsplit('/').next().unwrap_or_default();
        let expected = format!("{name}_{}_{}.", without_epoch(version), field("Architecture")?);
        if file.strip_prefix(&expected) != Some(kind) {
            return Err(fault("has a file of another package"));
        }
        // What the index adds comes last, and nothing else with it.
        let (entry, added) =
            stanza.text().split_once("\nFilename: ").ok_or_else(|| fault("has no file at its end"))?;
        let added: Vec<&str> =
            added.trim_end().lines().skip(1).map(|line| line.split(':').next().unwrap_or(line)).collect();
        if added != ["Size", "SHA256"] {
            return Err(fault("has other fields after its file"));
        }
        let mut seen = HashSet::new();
        if let Some((field, _)) = stanza.fields().find(|(field, _)| !seen.insert(field.to_ascii_lowercase()))
        {
            return Err(fault(&format!("has the field {field} twice")));
        }
        let source = stanza.get("Source").unwrap_or(name);
        let (source, source_version) = match source.split_once(" (") {
            Some((source, version)) => (source, version.trim_end_matches(')')),
            None => (source, version),
        };
        let yields = ["Replaces", "Conflicts"].into_iter().filter_map(|name| stanza.get(name));
        let yields_to = yields.flat_map(|value| value.split(',')).filter_map(|one| {
            let name = one.trim().split([' ', '(', ':', '\n']).next()?;
            (!name.is_empty()).then(|| name.to_owned())
        });
        packages.push(Package {
            name: Name { name: name.to_owned(), variant: field("Architecture")?.to_owned() },
            version: version.to_owned(),
            source: source.to_owned(),
            source_version: source_version.to_owned(),
            file: file.to_owned(),
            listed: listed.to_owned(),
            has_signature: false,
            entry: hash(entry.as_bytes()),
            yields_to: yields_to.collect(),
            files: None,
            rest: String::new(),
        });
    }
    Ok(())
}
