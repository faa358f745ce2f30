//! The text of an RPM repository, and the lists that it names.

use super::{Package, Read};
use crate::memory::Name;
use crate::message::Generation;
use kilnyard_ecosystem::rpm::metadata::ListedFiles;
use kilnyard_ecosystem::rpm::relation::Relation;
use kilnyard_ecosystem::rpm::version::Evr;
use kilnyard_ecosystem::rpm::{Lists, SOURCE, described, listed_name, repository};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// The only series of such a repository.
const SERIES: &str = "packages";

/// Compares two versions.
pub fn compare(left: &str, right: &str) -> Ordering {
    Evr::parse(left).compare(&Evr::parse(right))
}

/// The texts of the lists in a generation, by their kind.
///
/// # Errors
/// The text is none, or a list cannot be read.
pub fn texts(text: &str, folder: &Path) -> io::Result<BTreeMap<String, String>> {
    let read = Lists::read(text, &mut |name| std::fs::read(folder.join(name)));
    read.map(|lists| lists.0).map_err(io::Error::other)
}

/// The names of the text and of its signature.
pub const FILES: [&str; 2] = [repository::TOP, "repomd.xml.asc"];

/// Reads a text with its lists: it must be the one that follows from them.
///
/// # Errors
/// A sentence that names the fault.
pub fn read(generation: &Generation, indexes: &BTreeMap<String, String>, now: i64) -> Result<Read, String> {
    if generation.series != SERIES {
        return Err(format!("the series of an RPM repository is {SERIES}"));
    }
    let lists = Lists(indexes.clone());
    let (files, text) =
        lists.files().map_err(|error| format!("the signer cannot compress a list: {error}"))?;
    if text != generation.text || indexes.len() != files.len() {
        return Err(
            "the text does not follow from its lists; do both ends have the same version of Kilnyard?"
                .to_owned(),
        );
    }
    let mut read = Read { date: now, ..Read::default() };
    let (files, changes) = (lists.entries_of("filelists"), lists.entries_of("other"));
    for (entry, (of_files, of_changes)) in lists.entries().zip(files.zip(changes)) {
        let mut package = package(entry)?;
        let listed = ListedFiles::read(of_files).map_err(|error| error.to_string())?;
        if !listed.is_of(&package.name.variant, entry) {
            return Err(format!("the list of files names another package than {}", package.name.name));
        }
        package.files = Some(listed.files);
        package.rest = format!("{of_files}{of_changes}");
        read.packages.push(package);
    }
    // A package names the file of its source, which has no epoch: its source package says it.
    let sources: BTreeMap<String, String> = read
        .packages
        .iter()
        .filter(|package| package.name.variant == SOURCE)
        .map(|package| (package.source.clone(), package.version.clone()))
        .collect();
    for package in &mut read.packages {
        let whole = sources.get(&package.source);
        if let Some(whole) = whole.filter(|whole| without_epoch(whole) == package.source_version) {
            package.source_version.clone_from(whole);
        }
    }
    let digests: Vec<&str> = read.packages.iter().map(|package| package.listed.as_str()).collect();
    // Each list has the same packages, and nothing that its entries hide: what is between them would be no part of one.
    for kind in indexes.keys() {
        let same = lists.digests(kind);
        let elements = indexes[kind].matches("<package ").count();
        if !lists.is_whole(kind) {
            return Err(format!("the list {kind} has more than packages"));
        }
        if same != digests || elements != digests.len() {
            return Err(format!("the list {kind} has other packages than the first one"));
        }
    }
    Ok(read)
}

fn without_epoch(version: &str) -> &str {
    version.split_once(':').map_or(version, |(_, rest)| rest)
}

fn package(entry: &str) -> Result<Package, String> {
    let fault = || format!("{:?} is no entry of a package", entry.chars().take(100).collect::<String>());
    let package = described(entry).ok_or_else(fault)?;
    let version = package.evr.to_string();
    let name = listed_name(&package);
    let file = package.location.rsplit('/').next().unwrap_or_default().to_owned();
    let plain = without_epoch(&version);
    // The name of a file says what it is.
    if file != format!("{}-{plain}.{}.rpm", package.name, package.architecture) {
        return Err(format!("{name} {version} has a file of another package: {file}"));
    }
    // NAME-VERSION-RELEASE.src.rpm.
    let (source, source_version) = match package.source.is_empty() {
        true => (package.name.to_string(), plain.to_owned()),
        false => {
            let whole = package.source.strip_suffix(".src.rpm").ok_or_else(fault)?;
            let mut parts = whole.rsplitn(3, '-');
            let (Some(release), Some(of_source), Some(name)) = (parts.next(), parts.next(), parts.next())
            else {
                return Err(fault());
            };
            (name.to_owned(), format!("{of_source}-{release}"))
        }
    };
    let plain_names = package.conflicts.iter().flatten().filter_map(|relation| match relation {
        Relation::Plain(capability) => Some(capability.name.to_string()),
        _ => None,
    });
    let replaced = package.obsoletes.iter().map(|capability| capability.name.to_string());
    Ok(Package {
        name: Name { name, variant: package.architecture.to_string() },
        version,
        source,
        source_version,
        file,
        listed: package.digest.to_string(),
        has_signature: false,
        entry: crate::hash(entry.trim_end().as_bytes()),
        yields_to: plain_names.chain(replaced).collect(),
        files: None,
        rest: String::new(),
    })
}
