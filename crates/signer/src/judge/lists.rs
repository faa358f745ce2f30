//! The text of an RPM repository, and the lists that it names.

use super::{Package, Read};
use crate::memory::Name;
use crate::message::{Built, Generation, PackageText};
use kilnyard_ecosystem::rpm::metadata::ListedFiles;
use kilnyard_ecosystem::rpm::relation::Relation;
use kilnyard_ecosystem::rpm::signature::{describe, masked};
use kilnyard_ecosystem::rpm::version::Evr;
use kilnyard_ecosystem::rpm::{Lists, POOL, SOURCE, described, listed_name, repository};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// The only series of such a repository.
pub const SERIES: &str = "packages";

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

/// The folder of the text, of its signature and of the lists, in the repository.
pub const FOLDER: &str = repository::FOLDER;
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
    add_epochs(&mut read.packages);
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

/// The path, the size and the SHA-256 of each file that the first list has.
pub fn files(indexes: &BTreeMap<String, String>) -> Vec<(String, u64, String)> {
    let lists = Lists(indexes.clone());
    let packages = lists.entries().filter_map(described);
    packages.map(|one| (one.location.to_string(), one.size_bytes, one.digest.to_string())).collect()
}

/// Adds the epochs of sources: a package names the file of its source, which has none, and its source package says it.
pub fn add_epochs(packages: &mut [Package]) {
    let sources: BTreeMap<String, String> = packages
        .iter()
        .filter(|package| package.name.variant == SOURCE)
        .map(|package| (package.source.clone(), package.version.clone()))
        .collect();
    for package in packages {
        let whole = sources.get(&package.source);
        if let Some(whole) = whole.filter(|whole| without_epoch(whole) == package.source_version) {
            package.source_version.clone_from(whole);
        }
    }
}

/// The bytes of a text in hexadecimal.
pub fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    let pair = |pair: &[u8]| Some(digit(&pair[0])? << 4 | digit(&pair[1])?);
    text.len().is_multiple_of(2).then(|| text.as_bytes().chunks_exact(2).map(pair).collect())?
}

/// The package that a header describes, as an output of a build.
///
/// # Errors
/// It is none, or is not that of the file or of the output.
pub fn package_of(text: &PackageText, built: &Built) -> Result<Package, String> {
    let fault = |why: &str| format!("the header of {} {why}", text.file.escape_debug());
    let bytes = bytes_of(&text.text).ok_or_else(|| fault("is no hexadecimal text"))?;
    let header = describe(&bytes).map_err(|error| fault(&error.to_string()))?;
    let plain = without_epoch(&header.version);
    if text.file != format!("{}-{plain}.{}.rpm", header.name, header.architecture) {
        return Err(fault("is of another package"));
    }
    let (source, source_version) =
        source_of(&header.source, &header.name, plain).ok_or_else(|| fault("names no source"))?;
    let name = match header.architecture == SOURCE {
        true => format!("{}.{SOURCE}", header.name),
        false => header.name,
    };
    let listed = crate::hash(&bytes);
    if built.header.as_ref() != Some(&listed) || built.listed != listed {
        return Err(fault("is not that of its build"));
    }
    Ok(Package {
        name: Name { name, variant: header.architecture },
        version: header.version,
        source,
        source_version,
        file: text.file.clone(),
        listed,
        has_signature: true,
        entry: String::new(),
        yields_to: Vec::new(),
        files: None,
        rest: String::new(),
    })
}

/// The name and the version of a source, by the file of its package: `NAME-VERSION-RELEASE.src.rpm`. A source package has none,
/// and is its own.
fn source_of(file: &str, name: &str, version: &str) -> Option<(String, String)> {
    if file.is_empty() {
        return Some((name.to_owned(), version.to_owned()));
    }
    let mut parts = file.strip_suffix(".src.rpm")?.rsplitn(3, '-');
    let (release, version, name) = (parts.next()?, parts.next()?, parts.next()?);
    Some((name.to_owned(), format!("{version}-{release}")))
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
    // What a worker signs of an entry has no path.
    let folder = package.location.strip_suffix(&file).and_then(|folder| folder.strip_prefix(POOL));
    let is_key = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_pool = folder
        .and_then(|folder| folder.strip_prefix('/'))
        .is_some_and(|rest| rest.is_empty() || rest.strip_suffix('/').is_some_and(is_key));
    if !is_pool {
        return Err(format!("{name} {version} has its file at another place: {}", package.location));
    }
    let (source, source_version) = source_of(&package.source, &package.name, plain).ok_or_else(fault)?;
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
        entry: crate::hash(masked(entry.trim_end()).as_bytes()),
        yields_to: plain_names.chain(replaced).collect(),
        files: None,
        rest: String::new(),
    })
}
