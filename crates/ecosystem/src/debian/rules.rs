//! The Debian rules that a worker needs.

use super::deb822::Stanza;
use super::layers::{self, Layers};
use super::settings::Settings;
use super::{deb_file, stages};
use crate::archive::{OutputBounds, refusal};
use crate::rules::{RulesError, fact};
use crate::{CollectError, Layering, Manager, Stack, files_digest, hash_of};
use kilnyard_model::digests::{ENTRY, FILES};
use kilnyard_model::order::{CommandOrder, Dependency, FamilyOrder, Output};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

/// Name of the family in orders and in the configuration.
pub const FAMILY: &str = "debian";
/// Increment this when the commands of stages change their effect, so that earlier builds are repeated.
pub(super) const VERSION: u32 = 1;
/// The fact with the version suffix of rebuilt packages; needed to ignore rebuild numbers in the content digest.
const SUFFIX: &str = "suffix";

/// Debian's [`crate::Rules`].
#[derive(Clone, Debug)]
pub struct Rules {
    version_suffix: String,
}

impl Rules {
    /// Makes the rules from the facts in an order.
    pub(crate) fn of(order: &FamilyOrder) -> Result<Rules, RulesError> {
        Ok(Rules { version_suffix: fact(order, SUFFIX)?.to_owned() })
    }

    /// The facts that orders carry under these settings.
    pub(super) fn order(settings: &Settings) -> FamilyOrder {
        let suffix = (SUFFIX.to_owned(), settings.version_suffix.clone());
        FamilyOrder { name: FAMILY.to_owned(), facts: [suffix].into() }
    }
}

impl crate::Rules for Rules {
    fn read_outputs(&self, folder: &Path, bounds: OutputBounds) -> Result<Vec<Output>, CollectError> {
        let at = |error: io::Error| CollectError(format!("failed to read the outputs: {error}"));
        let mut paths = Vec::new();
        for entry in fs_err::read_dir(folder).map_err(at)? {
            let entry = entry.map_err(at)?;
            // A link could lead anywhere outside the root.
            if entry.file_type().map_err(at)?.is_file()
                && entry.path().extension().is_some_and(|ending| ending == "deb" || ending == "udeb")
            {
                paths.push(entry.path());
            }
        }
        paths.sort();
        let read = |path: &Path| {
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let deb = deb_file::read_rebuilt(path, &self.version_suffix, bounds)
                .map_err(|error| CollectError(format!("{file}: failed to {}", refusal(&error))))?;
            let control = Stanza::new(&deb.control);
            let field = |name: &str| control.get(name).unwrap_or("").to_owned();
            Ok(Output {
                name: field("Package"),
                version: field("Version"),
                architecture: field("Architecture"),
                file,
                sha256: deb.sha256,
                size_bytes: deb.size_bytes,
                content: deb.content,
                digests: BTreeMap::from([
                    (FILES.to_owned(), files_digest(&deb.paths)),
                    (ENTRY.to_owned(), hash_of(deb.control.trim_end())),
                ]),
                description: deb.control,
            })
        };
        paths.iter().map(|path| read(path)).collect()
    }
}

impl Manager for Rules {
    fn install(&self, packages: &[&Dependency]) -> Vec<CommandOrder> {
        let wanted = packages.iter().map(|package| format!("{}={}", package.name, package.version));
        stages::install(wanted.collect())
    }

    fn installed(&self, stack: &Stack, _given: &[&Dependency]) -> io::Result<BTreeSet<String>> {
        layers::installed(stack)
    }

    fn layering(&self) -> Result<&dyn Layering, &'static str> {
        Ok(&Layers)
    }
}
