//! What a worker needs to know of pkgsrc.

use super::package_file;
use super::settings::Settings;
use super::{description, stages};
use crate::archive::{OutputBounds, refusal};
use crate::rules::{RulesError, fact};
use crate::{CollectError, Layering, Manager, Stack};
use kilnyard_model::order::{CommandOrder, Dependency, FamilyOrder, Output};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// The family's name.
pub const FAMILY: &str = "pkgsrc";
/// Raised when the commands of stages do something else, so that what was built before is built again.
pub(super) const VERSION: u32 = 1;
/// What outputs are for, as the tree names it.
const ARCHITECTURE: &str = "architecture";
/// The environment of the package tools: `NAME=VALUE`, one a line.
const ENVIRONMENT: &str = "environment";

/// See the module.
#[derive(Clone, Debug)]
pub struct Rules {
    architecture: String,
    environment: Vec<(String, String)>,
}

impl Rules {
    /// The rules that an order asks for.
    pub(crate) fn of(order: &FamilyOrder) -> Result<Rules, RulesError> {
        let environment = fact(order, ENVIRONMENT)?.lines().filter_map(|line| line.split_once('='));
        Ok(Rules {
            architecture: fact(order, ARCHITECTURE)?.to_owned(),
            environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        })
    }

    /// What orders of these settings say.
    pub(super) fn order(settings: &Settings) -> FamilyOrder {
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
            // A link could lead anywhere outside of the root.
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

/// A package file as an output.
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
    }
}

/// A package's name and its version.
pub(super) fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('-').unwrap_or((name, ""))
}

impl Manager for Rules {
    fn install(&self, packages: &[&Dependency]) -> Vec<CommandOrder> {
        let files = packages.iter().map(|package| &package.file);
        stages::install(self.environment.clone(), files).into_iter().collect()
    }

    fn installed(&self, _stack: &Stack, packages: &[&Dependency]) -> io::Result<BTreeSet<String>> {
        // It ends badly where one of those that it is given is not installed.
        Ok(packages.iter().map(|package| package.name.clone()).collect())
    }

    fn layering(&self) -> Result<&dyn Layering, &'static str> {
        Err("pkg_add writes the files of all packages into one table")
    }
}
