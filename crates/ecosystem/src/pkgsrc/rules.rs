//! The pkgsrc rules that a worker needs.

use super::package_file;
use super::settings::Settings;
use super::{description, signed, stages};
use crate::archive::{OutputBounds, refusal};
use crate::rules::{RulesError, fact};
use crate::{CollectError, Layering, Manager, files_digest, hash_of};
use kilnyard_model::digests::{BLOCKS, ENTRY, FILES, PKG_HASH, SHA512};
use kilnyard_model::order::{CommandOrder, Dependency, FamilyOrder, Output};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Name of the family in orders and in the configuration.
pub const FAMILY: &str = "pkgsrc";
/// Increment this when the commands of stages change their effect, so that earlier builds are repeated.
pub(super) const VERSION: u32 = 1;
/// The fact with the architecture of outputs, in the tree's spelling.
const ARCHITECTURE: &str = "architecture";
/// The fact with the environment of the package tools: `NAME=VALUE`, one per line.
const ENVIRONMENT: &str = "environment";

/// The [`crate::Rules`] of pkgsrc.
#[derive(Clone, Debug)]
pub struct Rules {
    architecture: String,
    environment: Vec<(String, String)>,
}

impl Rules {
    /// Makes the rules from the facts in an order.
    pub(crate) fn of(order: &FamilyOrder) -> Result<Rules, RulesError> {
        let environment = fact(order, ENVIRONMENT)?.lines().filter_map(|line| line.split_once('='));
        Ok(Rules {
            architecture: fact(order, ARCHITECTURE)?.to_owned(),
            environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        })
    }

    /// The facts that orders carry under these settings.
    pub fn order(settings: &Settings) -> FamilyOrder {
        let environment = stages::environment(settings);
        let lines: String = environment.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        let facts = [(ARCHITECTURE, settings.architecture.clone()), (ENVIRONMENT, lines)];
        FamilyOrder {
            name: FAMILY.to_owned(),
            facts: facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        }
    }
}

impl crate::Rules for Rules {
    fn read_outputs(&self, folder: &Path, bounds: OutputBounds) -> Result<Vec<Output>, CollectError> {
        let at = |error: io::Error| CollectError(format!("failed to read the outputs: {error}"));
        let mut outputs = Vec::new();
        for entry in fs_err::read_dir(folder).map_err(at)? {
            let entry = entry.map_err(at)?;
            // A link could lead anywhere outside the root.
            if !entry.file_type().map_err(at)?.is_file() {
                continue;
            }
            let file = entry.file_name().to_string_lossy().into_owned();
            let read = package_file::read_within(&entry.path(), bounds)
                .map_err(|error| CollectError(format!("{file}: {}", refusal(&error))))?;
            outputs.push(output_of(&self.architecture, &file, &read));
        }
        Ok(outputs)
    }
}

/// The most blocks whose hashes are kept: those of 64 MiB, which take 128 KiB of the database.
const BLOCKS_MAX: usize = 1024;

/// Converts a package file to an output.
pub(super) fn output_of(architecture: &str, file: &str, read: &package_file::PackageFile) -> Output {
    let (name, version) = split(&read.name);
    Output {
        name: name.to_owned(),
        version: version.to_owned(),
        architecture: architecture.to_owned(),
        file: file.to_owned(),
        sha256: read.sha256.clone(),
        size_bytes: read.size_bytes,
        content: read.content.clone(),
        description: description::write(read),
        digests: with_blocks(
            read,
            BTreeMap::from([
                (SHA512.to_owned(), read.sha512.clone()),
                (FILES.to_owned(), files_digest(&read.paths)),
                (ENTRY.to_owned(), hash_of(read.summary.trim_end())),
                (PKG_HASH.to_owned(), hash_of(&signed::text(&read.name, read.size_bytes, &read.blocks))),
            ]),
        ),
    }
}

/// Adds the hashes of the blocks, so that a package is not read again when it is signed.
fn with_blocks(
    read: &package_file::PackageFile,
    mut digests: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    if read.blocks.len() <= BLOCKS_MAX {
        digests.insert(BLOCKS.to_owned(), read.blocks.concat());
    }
    digests
}

/// Splits a package's full name into name and version.
pub(super) fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('-').unwrap_or((name, ""))
}

impl Manager for Rules {
    fn install(&self, packages: &[&Dependency]) -> Vec<CommandOrder> {
        let files = packages.iter().map(|package| &package.file);
        stages::install(self.environment.clone(), files).into_iter().collect()
    }

    fn layering(&self) -> Result<&dyn Layering, &'static str> {
        Err("pkg_add writes the files of all packages into one table")
    }
}
