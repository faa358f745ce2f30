//! The RPM rules that a worker needs.

use super::entry::Entry;
use super::header::tag;
use super::package_file::PackageFile;
use super::{signature, stages};
use crate::archive::{OutputBounds, refusal};
use crate::{CollectError, Layering, Manager, Stack, files_digest, hash_of};
use kilnyard_model::digests::{ENTRY, FILES, HEADER};
use kilnyard_model::order::{CommandOrder, Dependency, FamilyOrder, Output};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

/// Name of the family in orders and in the configuration.
pub const FAMILY: &str = "rpm";
/// Increment this when the commands of stages change their effect, so that earlier builds are repeated.
pub(super) const VERSION: u32 = 1;
/// The folder of package files in a repository.
pub const POOL: &str = "Packages";
/// The architecture of source packages in repositories.
pub const SOURCE: &str = "src";

/// The [`crate::Rules`] of RPM. They depend on no facts of an order.
#[derive(Clone, Copy, Debug)]
pub struct Rules;

impl Rules {
    /// What orders carry.
    pub(super) fn order() -> FamilyOrder {
        FamilyOrder { name: FAMILY.to_owned(), facts: BTreeMap::new() }
    }
}

/// Reads a package file as an output. Its description is its entry in the list of a repository.
pub fn output_of(path: &Path, bounds: OutputBounds) -> Result<Output, CollectError> {
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let read = PackageFile::read(path, bounds)
        .map_err(|error| CollectError(format!("{file}: {}", refusal(&error))))?;
    let text = |tag| read.header.text(tag).unwrap_or_default();
    let epoch = read.header.number(tag::EPOCH).filter(|epoch| *epoch != 0);
    let epoch = epoch.map_or_else(String::new, |epoch| format!("{epoch}:"));
    let architecture = if read.is_source() { SOURCE.to_owned() } else { text(tag::ARCHITECTURE) };
    let description = Entry::new(&read, &format!("{POOL}/{file}")).primary;
    Ok(Output {
        name: match read.is_source() {
            // A source and a package of it have the same name.
            true => format!("{}.{SOURCE}", text(tag::NAME)),
            false => text(tag::NAME),
        },
        version: format!("{epoch}{}-{}", text(tag::VERSION), text(tag::RELEASE)),
        architecture,
        file,
        digests: BTreeMap::from([
            (FILES.to_owned(), files_digest(&read.files())),
            (ENTRY.to_owned(), hash_of(&signature::masked(description.trim_end()))),
            (HEADER.to_owned(), read.header_sha256.clone()),
        ]),
        sha256: read.sha256,
        size_bytes: read.size_bytes,
        content: read.content,
        description,
    })
}

impl crate::Rules for Rules {
    fn read_outputs(&self, folder: &Path, bounds: OutputBounds) -> Result<Vec<Output>, CollectError> {
        let at = |error: io::Error| CollectError(format!("failed to read the outputs: {error}"));
        let mut paths = Vec::new();
        for entry in fs_err::read_dir(folder).map_err(at)? {
            let entry = entry.map_err(at)?;
            // A link could lead anywhere outside the root.
            if entry.file_type().map_err(at)?.is_file() {
                paths.push(entry.path());
            }
        }
        paths.sort();
        paths.iter().map(|path| output_of(path, bounds)).collect()
    }
}

impl Manager for Rules {
    fn install(&self, packages: &[&Dependency]) -> Vec<CommandOrder> {
        stages::install(packages.iter().map(|package| &package.file)).into_iter().collect()
    }

    fn installed(&self, _stack: &Stack, packages: &[&Dependency]) -> io::Result<BTreeSet<String>> {
        // The command fails if one of the given packages is not installed.
        Ok(packages.iter().map(|package| package.name.clone()).collect())
    }

    fn layering(&self) -> Result<&dyn Layering, &'static str> {
        Err("rpm runs scriptlets and triggers of packages in the order of a transaction")
    }
}
