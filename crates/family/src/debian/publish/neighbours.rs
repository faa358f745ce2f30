//! Packages of a yard's other targets in the same suite, which stay published unchanged.
//!
//! Each target publishes after its own builds, from its own store. A suite lists all architectures, so the entries of
//! the others are taken over from the current index.

use super::{entry_of, indexes_of, published_source};
use crate::debian::Debian;
use kilnyard_ecosystem::debian::deb822::{self, Stanza};
use kilnyard_ecosystem::debian::source::{Parts, Source};
use kilnyard_publish::{BinaryEntry, SourceEntry};
use kilnyard_yard::error::{Context, Kind, Result};
use kilnyard_yard::yard::Yard;
use std::collections::HashSet;

/// The architectures of a suite, in the order of their names.
pub fn architectures(debian: &Debian) -> Vec<String> {
    let mut all = debian.other_architectures.clone();
    all.push(debian.architecture());
    all.sort_unstable();
    all.dedup();
    all
}

/// Adds the binary packages of other architectures, and the architecture-independent ones of other targets, with
/// their sources. `published` is the text of the published `Sources`, and `built` has the sources that this target
/// has built: it makes their architecture-independent packages itself, if it makes any, so one that it no longer
/// makes is withdrawn.
///
/// # Errors
/// An index cannot be read: without it, the packages of other targets would be withdrawn.
pub fn add(
    yard: &Yard,
    debian: &Debian,
    published: &str,
    built: &HashSet<String>,
    binaries: &mut Vec<BinaryEntry>,
    sources: &mut Vec<SourceEntry>,
) -> Result<()> {
    if debian.other_architectures.is_empty() {
        return Ok(());
    }
    let own = debian.architecture();
    let makes_independent = debian.settings().parts == Parts::All;
    let name = |stanza: &str| Stanza::new(stanza).get("Package").unwrap_or("").to_owned();
    let made: HashSet<String> = binaries.iter().map(|entry| name(&entry.stanza)).collect();
    let mut made_by: HashSet<String> = HashSet::new();
    let mut added: HashSet<(String, String)> = HashSet::new();
    for architecture in &debian.other_architectures {
        for index in indexes_of(yard, debian, architecture) {
            let text = match fs_err::read_to_string(index) {
                // That target has published nothing yet.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                read => read.context(Kind::Machine, "read the repository's index")?,
            };
            for stanza in deb822::stanzas(&text) {
                let of = stanza.get("Architecture").unwrap_or("");
                let package = name(stanza.text());
                let source = stanza.get("Source").and_then(|text| text.split([' ', '(']).next());
                let source = source.unwrap_or(&package).to_owned();
                let is_ours = made.contains(&package) || (makes_independent && built.contains(&source));
                if of == own || (of == "all" && is_ours) {
                    continue;
                }
                if !added.insert((package.clone(), of.to_owned())) {
                    continue;
                }
                if let Some(entry) = entry_of(&yard.repository(), &stanza) {
                    made_by.insert(source);
                    binaries.push(entry);
                }
            }
        }
    }
    let version = |stanza: &str| Stanza::new(stanza).get("Version").unwrap_or("").to_owned();
    let listed: HashSet<(String, String)> =
        sources.iter().map(|entry| (name(&entry.stanza), version(&entry.stanza))).collect();
    let others = deb822::stanzas(published).map(Source::new).filter(|one| made_by.contains(one.name()));
    let others = others.filter(|one| !listed.contains(&(one.name().to_owned(), one.version().to_owned())));
    sources.extend(others.filter_map(|one| published_source(yard, &one)));
    Ok(())
}
