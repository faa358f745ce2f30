//! The RPM rules that a worker needs.

use super::entry::Entry;
use super::header::tag;
use super::layers::{BaseFacts, Layers, Triggers, header_of};
use super::package_file::PackageFile;
use super::settings::Base;
use super::{signature, stages};
use crate::archive::{OutputBounds, refusal};
use crate::rules::fact;
use crate::{CollectError, Layering, Manager, RulesError, files_digest, hash_of};
use kilnyard_model::digests::{ENTRY, FILES, HEADER};
use kilnyard_model::order::{CommandOrder, Dependency, FamilyOrder, Output};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Name of the family in orders and in the configuration.
pub const FAMILY: &str = "rpm";
/// Increment this when the commands of stages change their effect, so that earlier builds are repeated.
pub(super) const VERSION: u32 = 1;
/// The folder of package files in a repository.
pub const POOL: &str = "Packages";
/// The architecture of source packages in repositories.
pub const SOURCE: &str = "src";

/// Names of the facts: the names of the packages in the base root, and their triggers.
const INSTALLED: &str = "installed";
const TRIGGERS: &str = "triggers";
/// The fact with the keys of the repositories; absent if their packages need no signatures.
const KEYS: &str = "keys";

/// The [`crate::Rules`] of RPM.
#[derive(Clone, Debug)]
pub struct Rules {
    layers: Layers,
}

impl Rules {
    /// Made from the facts of an order.
    ///
    /// # Errors
    /// A fact is missing.
    pub(crate) fn of(order: &FamilyOrder) -> Result<Rules, RulesError> {
        let unreadable = || RulesError::MissingFact { family: order.name.clone(), fact: TRIGGERS };
        let base = BaseFacts {
            names: fact(order, INSTALLED)?.split_whitespace().map(str::to_owned).collect(),
            triggers: serde_json::from_str(fact(order, TRIGGERS)?).map_err(|_| unreadable())?,
        };
        // A package that needs a signature has none by no key.
        let keys = order.facts.get(KEYS).cloned().unwrap_or_default();
        Ok(Rules { layers: Layers { base, keys } })
    }

    /// What orders carry.
    pub(super) fn order(base: &Base, keys: Option<&str>) -> FamilyOrder {
        let names: Vec<&str> = base.packages.iter().map(|(name, _)| name.as_str()).collect();
        let fact = |name: &str, value: String| (name.to_owned(), value);
        let facts = [fact(INSTALLED, names.join(" ")), fact(TRIGGERS, base.triggers.clone())];
        let keys = keys.map(|keys| fact(KEYS, keys.to_owned()));
        FamilyOrder { name: FAMILY.to_owned(), facts: facts.into_iter().chain(keys).collect() }
    }
}

/// The triggers of package files for later installations, as [`Base`] has them.
///
/// # Errors
/// A file is not a package.
pub fn triggers_of(files: &[PathBuf]) -> Result<String, CollectError> {
    let mut triggers = Triggers::default();
    for file in files {
        let header = header_of(file).map_err(|error| CollectError(format!("{}: {error}", file.display())))?;
        triggers.add(Triggers::of(&header));
    }
    serde_json::to_string(&triggers).map_err(|error| CollectError(error.to_string()))
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
        let signed = packages.iter().filter(|package| package.is_signed).map(|package| &package.file);
        let verify = stages::verify(&self.layers.keys, signed);
        let install = stages::install(packages.iter().map(|package| &package.file));
        let checks = stages::check_installed(packages);
        // Layers below were put together without these, and nothing has checked what they require.
        let consistent = install.is_some().then(stages::check_consistent);
        verify.into_iter().chain(install).chain(checks).chain(consistent).collect()
    }

    fn layering(&self) -> Result<&dyn Layering, &'static str> {
        Ok(&self.layers)
    }
}
