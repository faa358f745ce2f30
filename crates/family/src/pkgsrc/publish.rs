//! The repository of a pkgsrc yard: all packages that may be redistributed, for `pkg_add` and similar tools.
//!
//! Packages that may not be redistributed (`NO_BIN_ON_FTP`), and all their dependents, are built but stay in the yard.

pub mod builds;
pub mod signed;

use super::Pkgsrc;
use builds::{PackageBuilds, TreeCommits};
use kilnyard_ecosystem::Ecosystem;
use kilnyard_ecosystem::pkgsrc::{Workshop, description};
use kilnyard_mirror::{FileStore, Sha256Hex};
use kilnyard_model::order::Key as BuildKey;
use kilnyard_publish::{Checksum, PackageEntry, PublishedPackages, plan_packages};
use kilnyard_store::{Current, OutputRow, Store};
use kilnyard_yard::error::{Context, Kind, Result};
use kilnyard_yard::family::{PublicationTerms, Recovered, RefusedPackage, ToPublish, broken_output_note};
use kilnyard_yard::signing::Signing;
use kilnyard_yard::yard::{Yard, store_error};
use signed::SignedPackages;
use std::collections::HashSet;

/// Plans the publication of all current outputs of the set that may be redistributed.
pub fn make<'a>(
    yard: &Yard,
    store: &'a dyn Store,
    workshop: &Workshop,
    distfiles: &'a FileStore,
    terms: &PublicationTerms,
) -> Result<ToPublish<'a>> {
    // Packages that left the set are withdrawn; packages of the set that could not be built stay published.
    let left_out: HashSet<&str> = workshop.left_out().iter().map(|left| left.name.as_str()).collect();
    let (mut entries, mut withheld, mut remarks) = (Vec::new(), HashSet::new(), Vec::new());
    let mut published = None;
    let outputs = store.outputs().map_err(store_error)?;
    let signed = signs(yard).then(|| SignedPackages::of(yard, &terms.package_key));
    for row in &outputs {
        let id = workshop.graph().find(&row.package);
        // Both the current recipe and the one that made the file must allow redistribution.
        let is_restricted = description::is_restricted(&row.output.description)
            || id.is_some_and(|id| workshop.restricted(id).is_some());
        // If scans failed, it is unknown which packages left the set.
        let is_in_set =
            id.is_some() || left_out.contains(row.package.as_str()) || workshop.has_failed_scans();
        if is_restricted {
            withheld.insert(row.output.file.clone());
        } else if is_in_set && terms.withholds(&row.output, &row.output.version) {
            let published = published.get_or_insert_with(|| PublishedPackages::read(&yard.repository()));
            entries.extend(published.find(|stanza| is_of(stanza, row)));
        } else if is_in_set {
            let entry = entry(row, distfiles, signed.as_ref())?.or_else(|| {
                let published = published.get_or_insert_with(|| PublishedPackages::read(&yard.repository()));
                let entry = published.find(|stanza| is_of(stanza, row));
                let file = entry.as_ref().map(|entry| entry.file_name.as_str());
                remarks.push(broken_output_note(&row.output, &row.package, file));
                entry
            });
            entries.extend(entry);
        }
    }
    let commits = TreeCommits::of(yard, &outputs);
    let planned = plan_packages(&yard.repository(), &entries, &withheld, &terms.public_key);
    Ok(ToPublish {
        publication: planned.context(Kind::Machine, "plan the repository")?,
        builds: Box::new(PackageBuilds { store, distfiles, signed, outputs, commits }),
        packages: entries.len() as u64,
        line_for: "pkg_add",
        remarks,
        line: format!("PKG_PATH=file://{}/packages/All", yard.repository().display()),
    })
}

/// Whether published packages have signatures of their own.
fn signs(yard: &Yard) -> bool {
    yard.config.family.of::<Pkgsrc>().is_some_and(|pkgsrc| pkgsrc.sign_packages)
}

/// Signs the packages that will be published, as far as they are new.
pub fn sign(
    yard: &Yard,
    store: &dyn Store,
    workshop: &Workshop,
    distfiles: &FileStore,
    signing: &Signing,
) -> Result<Vec<RefusedPackage>> {
    if !signs(yard) {
        return Ok(Vec::new());
    }
    let mut outputs = store.outputs().map_err(store_error)?;
    outputs.retain(|row| {
        let id = workshop.graph().find(&row.package);
        let is_restricted = description::is_restricted(&row.output.description)
            || id.is_some_and(|id| workshop.restricted(id).is_some());
        let is_there = Sha256Hex::parse(&row.output.sha256)
            .is_ok_and(|hash| distfiles.size_bytes(&hash) == Some(row.output.size_bytes));
        !is_restricted && is_there
    });
    let commits = TreeCommits::of(yard, &outputs);
    signed::sign_missing(yard, store, distfiles, signing, (&outputs, &commits))
}

/// Finds packages of the repository that the store does not have. Packages made from another version of the tree are
/// lost.
pub fn recover(
    yard: &Yard,
    store: &dyn Store,
    workshop: &Workshop,
    distfiles: &FileStore,
) -> Result<Recovered> {
    let mut recovered = Recovered::default();
    let entries = match fs_err::read_dir(yard.repository().join("packages/All")) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(recovered),
        Err(error) => return Err(error).context(Kind::Machine, "list the repository"),
    };
    let scratch = tempfile::tempdir_in(yard.path("state")).context(Kind::Machine, "make a folder")?;
    for entry in entries {
        let path = entry.context(Kind::Machine, "list the repository")?.path();
        if path.extension().is_none_or(|ending| ending != "tgz") {
            continue;
        }
        // A signed package contains the one that was built.
        let path = match signed::unpacked(&path, scratch.path()) {
            Ok(unpacked) => unpacked.unwrap_or(path),
            Err(error) => {
                recovered.remarks.push(format!("{} is lost: {error}", path.display()));
                continue;
            }
        };
        let (package, output) = match workshop.published_output(&path) {
            Ok(Some(found)) => found,
            Ok(None) => {
                recovered.remarks.push(format!("{} is lost: its package is not in the set", path.display()));
                continue;
            }
            Err(error) => {
                recovered.remarks.push(format!("{} is lost: {error}", path.display()));
                continue;
            }
        };
        // A backup of the store may have an earlier version; the published one must win over it.
        let known = store.current(&package).map_err(store_error)?;
        if known.is_some_and(|known| known.outputs.iter().any(|other| other.sha256 == output.sha256)) {
            continue;
        }
        distfiles.insert(&path).context(Kind::Machine, "keep a published package")?;
        if path.starts_with(scratch.path()) {
            fs_err::remove_file(&path).context(Kind::Machine, "remove a copy")?;
        }
        recovered.packages.push(Current {
            package,
            build: 0,
            recipe_version: output.version.clone(),
            revision: 1,
            key: BuildKey { digest: String::new(), lines: Vec::new() },
            outputs: vec![output],
        });
    }
    Ok(recovered)
}

/// Whether a stanza of the repository belongs to the package of an output, in any version.
fn is_of(stanza: &str, row: &OutputRow) -> bool {
    let field = |text: &str, key: &str| {
        text.lines().find_map(|line| Some(line.strip_prefix(key)?.strip_prefix('=')?.to_owned()))
    };
    let name = field(stanza, "PKGNAME").unwrap_or_default();
    name.rsplit_once('-').is_some_and(|(base, _)| base == row.output.name)
        && field(stanza, "PKGPATH") == field(&row.output.description, "PKGPATH")
}

/// The entry of an output; `None` if its file is missing or truncated.
fn entry(
    row: &OutputRow,
    distfiles: &FileStore,
    signed: Option<&SignedPackages>,
) -> Result<Option<PackageEntry>> {
    let output = &row.output;
    let hash = Sha256Hex::parse(&output.sha256).or_internal("read an output")?;
    if distfiles.size_bytes(&hash) != Some(output.size_bytes) {
        return Ok(None);
    }
    let (file, checksum, size_bytes) = match signed {
        None => {
            let sha512 = description::sha512(&output.description).unwrap_or_default();
            (distfiles.path(&hash), Checksum::Sha512(sha512.to_owned()), output.size_bytes)
        }
        Some(signed) => {
            let Some(facts) = signed.facts(output) else { return Ok(None) };
            (signed.path(&output.sha256), Checksum::PkgHash(facts.text), facts.size_bytes)
        }
    };
    Ok(Some(PackageEntry {
        name: format!("{}-{}", output.name, output.version),
        file_name: output.file.clone(),
        file,
        checksum,
        size_bytes,
        summary: description::summary(&output.description),
    }))
}
