//! The yard's apt repository: all packages with their sources, signed with the yard's key.

mod builds;
mod neighbours;

use crate::debian::Debian;
use crate::debian::scan::Index;
use crate::debian::{git, set};
use builds::SourceBuilds;
use kilnyard_ecosystem::Ecosystem;
use kilnyard_ecosystem::debian::Workshop;
use kilnyard_ecosystem::debian::autopkgtest::is_test;
use kilnyard_ecosystem::debian::deb822::{self, Stanza};
use kilnyard_ecosystem::debian::source::{OutputKind, Source};
use kilnyard_mirror::{FileStore, Sha256Hex};
use kilnyard_publish::{BinaryEntry, BinaryIndex, KEYRING_FILE, ReleaseFacts, SourceEntry, SourceFile};
use kilnyard_store::{Current, OutputRow, Store};
use kilnyard_yard::error::{Context, Kind, Result};
use kilnyard_yard::family::{PublicationTerms, ToPublish, broken_output_note};
use kilnyard_yard::words::now_seconds;
use kilnyard_yard::yard::{Yard, store_error};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// The component of all published packages.
const COMPONENT: &str = "main";
/// The folder of the udeb index, which only the installer reads.
const INSTALLER: &str = "debian-installer";

/// The folder of a source's files in the pool. In a yard with several releases, each has a pool of its own: a version
/// may be the same in two releases, built against different libraries.
fn pool_folder(debian: &Debian, source: &str) -> String {
    let prefix = match source.strip_prefix("lib").and_then(|rest| rest.chars().next()) {
        Some(letter) => format!("lib{letter}"),
        None => source.chars().take(1).collect(),
    };
    match debian.has_other_releases {
        true => format!("pool/{}/{COMPONENT}/{prefix}/{source}", debian.release),
        false => format!("pool/{COMPONENT}/{prefix}/{source}"),
    }
}

/// Plans the publication of all current outputs of the set.
pub fn make<'a>(
    yard: &'a Yard,
    debian: &Debian,
    store: &'a dyn Store,
    workshop: &'a Workshop,
    distfiles: &'a FileStore,
    terms: &PublicationTerms,
) -> Result<ToPublish<'a>> {
    // Packages that left the set are withdrawn; packages of the set that could not be built stay published.
    let left_out: HashSet<&str> = workshop.left_out().iter().map(|left| left.name.as_str()).collect();
    let is_in_set = |name: &str| workshop.graph().find(name).is_some() || left_out.contains(name);
    let mut outputs = store.outputs().map_err(store_error)?;
    outputs.retain(|row| is_in_set(&row.package));
    // A name that another source took over is still among the last outputs of its old owner. That package stays
    // published until the new owner has made it.
    let owned: HashSet<String> = outputs
        .iter()
        .filter(|row| workshop.is_owner(&row.output.name, &row.package))
        .map(|row| row.output.name.clone())
        .collect();
    outputs
        .retain(|row| workshop.is_owner(&row.output.name, &row.package) || !owned.contains(&row.output.name));
    let (mut binaries, mut remarks) = (Vec::new(), Vec::new());
    for row in &outputs {
        if terms.withholds(&row.output, &row.output.architecture) {
            binaries.extend(published_binary(yard, debian, row));
            continue;
        }
        let entry = binary(debian, row, distfiles)?.or_else(|| {
            let entry = published_binary(yard, debian, row);
            let file = entry.as_ref().map(|entry| entry.pool_path.rsplit('/').next().unwrap_or_default());
            remarks.push(broken_output_note(&row.output, &row.package, file));
            entry
        });
        binaries.extend(entry);
    }
    let published = published_sources(yard, debian);
    let mut current = store.all_current().map_err(store_error)?;
    let built: HashSet<String> = current.iter().map(|current| current.package.clone()).collect();
    current.retain(|current| is_in_set(&current.package) && !is_test(&current.package));
    // Where new packages are withheld, the source of those that are published stays.
    let is_withheld = |current: &Current| {
        current.outputs.iter().any(|output| terms.withholds(output, &output.architecture))
    };
    let mut sources: Vec<SourceEntry> = current
        .iter()
        .flat_map(|current| match is_withheld(current) {
            true => published_sources_of(yard, current, &published),
            false => source(yard, debian, current, workshop, distfiles, &published).into_iter().collect(),
        })
        .collect();
    neighbours::add(yard, debian, &published, &built, &mut binaries, &mut sources)?;
    let facts = ReleaseFacts {
        origin: yard.config.repository.origin.clone(),
        label: yard.config.repository.origin.clone(),
        suite: debian.release.clone(),
        codename: debian.release.clone(),
        description: format!("Rebuilt from {} by Kilnyard", debian.release),
        architectures: neighbours::architectures(debian),
        components: vec![COMPONENT.to_owned()],
        date_seconds: now_seconds() as i64,
        valid_until_seconds: None,
    };
    let planned = kilnyard_publish::plan(&yard.repository(), &facts, &binaries, &sources, &terms.public_key);
    let repository = yard.repository();
    // A yard that was never scanned has its recipes in folders.
    let vouched = Index::open(yard).map(|index| index.vouched(yard)).unwrap_or_default();
    let commits = git::commits(yard, &set::rules(yard)?);
    Ok(ToPublish {
        publication: planned.context(Kind::Machine, "plan the repository")?,
        builds: Box::new(SourceBuilds { store, workshop, distfiles, outputs, yard, vouched, commits }),
        packages: binaries.len() as u64,
        remarks,
        line_for: "sources.list",
        line: format!(
            "deb [signed-by={0}/{KEYRING_FILE}] file:{0} {1} {COMPONENT}",
            repository.display(),
            debian.release
        ),
    })
}

/// The entry of an output; `None` if its file is missing or truncated.
fn binary(debian: &Debian, row: &OutputRow, distfiles: &FileStore) -> Result<Option<BinaryEntry>> {
    let output = &row.output;
    let hash = Sha256Hex::parse(&output.sha256).or_internal("read an output")?;
    if distfiles.size_bytes(&hash) != Some(output.size_bytes) {
        return Ok(None);
    }
    Ok(Some(BinaryEntry {
        stanza: output.description.trim_end().to_owned(),
        pool_path: format!("{}/{}", pool_folder(debian, &row.package), output.file),
        file: distfiles.path(&hash),
        sha256: output.sha256.clone(),
        size_bytes: output.size_bytes,
        architecture: output.architecture.clone(),
        component: COMPONENT.to_owned(),
        index: index_of(&output.file),
    }))
}

/// The published package of an output's name, in any version, if its file is intact.
fn published_binary(yard: &Yard, debian: &Debian, row: &OutputRow) -> Option<BinaryEntry> {
    let (repository, output) = (yard.repository(), &row.output);
    let indexes = indexes_of_binaries(yard, debian);
    let texts: Vec<String> = indexes.iter().filter_map(|index| fs_err::read_to_string(index).ok()).collect();
    let mut stanzas = texts.iter().flat_map(|text| deb822::stanzas(text));
    let stanza = stanzas.find(|stanza| {
        stanza.get("Package") == Some(&output.name)
            && stanza.get("Architecture") == Some(&output.architecture)
    })?;
    entry_of(&repository, &stanza)
}

/// The entry of a published package, if its file is intact.
fn entry_of(repository: &Path, stanza: &Stanza) -> Option<BinaryEntry> {
    let pool_path =
        stanza.get("Filename").filter(|path| path.starts_with("pool/") && !path.contains(".."))?;
    let file = repository.join(pool_path);
    let bytes = fs_err::read(&file).ok()?;
    let hash = Sha256Hex::of(&bytes);
    let is_whole = stanza.get("SHA256") == Some(hash.as_str());
    // The fields that the index adds come last.
    let (text, _) = stanza.text().split_once("\nFilename: ").filter(|_| is_whole)?;
    Some(BinaryEntry {
        stanza: text.to_owned(),
        pool_path: pool_path.to_owned(),
        file,
        sha256: hash.as_str().to_owned(),
        size_bytes: bytes.len() as u64,
        architecture: stanza.get("Architecture")?.to_owned(),
        component: COMPONENT.to_owned(),
        index: index_of(pool_path),
    })
}

/// The source of the current outputs: from the index if it has this version, else as published before. `None` if
/// neither has it, or if a file was cleaned away.
fn source(
    yard: &Yard,
    debian: &Debian,
    current: &Current,
    workshop: &Workshop,
    distfiles: &FileStore,
    published: &str,
) -> Option<SourceEntry> {
    let package = current.package.as_str();
    let indexed = workshop.graph().find(package).map(|id| workshop.source(id));
    let Some(source) = indexed.filter(|source| source.version() == current.recipe_version) else {
        let mut stanzas = deb822::stanzas(published).map(Source::new);
        let source = stanzas.find(|s| s.name() == package && s.version() == current.recipe_version)?;
        return published_source(yard, &source);
    };
    let mut folder = pool_folder(debian, package);
    let is_foreign = workshop.graph().find(package).is_some_and(|id| workshop.is_foreign(id));
    if source.directory().is_empty() || is_foreign {
        // A local source can change without a new version, and archives may differ in the same version, but a path in
        // the pool never changes its content.
        let files = source.files().ok()?;
        let dsc = files.iter().find(|file| file.name.ends_with(".dsc"))?;
        folder.push_str(&format!("/{}", dsc.sha256.get(..12)?));
    }
    let mut stanza = format!("Package: {package}\n");
    for (field, value) in source.stanza().fields() {
        match field {
            "Package" => {}
            "Directory" => continue,
            _ if value.starts_with(|c: char| c.is_ascii_hexdigit()) && value.contains('\n') => {
                stanza.push_str(&format!("{field}:\n {value}\n"));
            }
            "Files" | "Checksums-Sha1" | "Checksums-Sha256" | "Package-List" => {
                stanza.push_str(&format!("{field}:\n {value}\n"));
            }
            _ => stanza.push_str(&format!("{field}: {value}\n")),
        }
    }
    stanza.push_str(&format!("Directory: {folder}"));
    let mut files = Vec::new();
    for file in source.files().ok()? {
        let hash = Sha256Hex::parse(&file.sha256).ok()?;
        if !distfiles.contains(&hash) {
            return None;
        }
        files.push(SourceFile {
            pool_path: format!("{folder}/{}", file.name),
            file: distfiles.path(&hash),
            size_bytes: file.size_bytes,
            sha256: file.sha256,
        });
    }
    Some(SourceEntry { stanza, component: COMPONENT.to_owned(), files })
}

/// The published sources of a package, in any version.
fn published_sources_of(yard: &Yard, current: &Current, published: &str) -> Vec<SourceEntry> {
    let sources = deb822::stanzas(published).map(Source::new);
    sources
        .filter(|source| source.name() == current.package)
        .filter_map(|source| published_source(yard, &source))
        .collect()
}

/// The entry of a source as it is published.
fn published_source(yard: &Yard, source: &Source) -> Option<SourceEntry> {
    let files = source.files().ok()?.into_iter().map(|file| {
        let pool_path = format!("{}/{}", source.directory(), file.name);
        let path = yard.repository().join(&pool_path);
        SourceFile { pool_path, file: path, size_bytes: file.size_bytes, sha256: file.sha256 }
    });
    let stanza = source.stanza().text().trim_end().to_owned();
    Some(SourceEntry { stanza, component: COMPONENT.to_owned(), files: files.collect() })
}

/// The index that lists the output with this file name.
fn index_of(file: &str) -> BinaryIndex {
    match OutputKind::of_file(file) {
        OutputKind::Deb => BinaryIndex::Machine,
        OutputKind::Udeb => BinaryIndex::Apart(INSTALLER),
    }
}

/// The paths of the repository's `Packages` indexes.
pub fn indexes_of_binaries(yard: &Yard, debian: &Debian) -> Vec<PathBuf> {
    indexes_of(yard, debian, &debian.architecture())
}

/// Whether the repository has packages of this target. In a suite that it shares, another target may have published the
/// architecture-independent ones, and an empty index for this architecture. An unreadable index counts as packages.
pub fn has_packages(yard: &Yard, debian: &Debian) -> bool {
    let own = debian.architecture();
    let is_alone = debian.other_architectures.is_empty();
    indexes_of_binaries(yard, debian).iter().any(|index| match fs_err::read_to_string(index) {
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
        Ok(text) => {
            is_alone || deb822::stanzas(&text).any(|stanza| stanza.get("Architecture") == Some(own.as_str()))
        }
    })
}

fn indexes_of(yard: &Yard, debian: &Debian, architecture: &str) -> Vec<PathBuf> {
    let folder = yard.repository().join("dists").join(&debian.release).join(COMPONENT);
    let of_architecture = format!("binary-{architecture}/Packages");
    vec![folder.join(&of_architecture), folder.join(INSTALLER).join(of_architecture)]
}

/// The text of the published `Sources` index; empty if there is none.
fn published_sources(yard: &Yard, debian: &Debian) -> String {
    let folder = yard.repository().join("dists").join(&debian.release).join(COMPONENT).join("source");
    fs_err::read_to_string(folder.join("Sources")).unwrap_or_default()
}

/// SHA-256 hashes of the files that the repository shares with the distfiles.
pub fn published_files(yard: &Yard, debian: &Debian) -> HashSet<String> {
    let text = published_sources(yard, debian);
    let files = deb822::stanzas(&text).flat_map(|stanza| Source::new(stanza).files().unwrap_or_default());
    files.map(|file| file.sha256).collect()
}
