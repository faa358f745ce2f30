//! `pkg_add` as the installer of dependencies.

use super::Workshop;
use crate::pkgsrc::stages;
use crate::{Layering, Manager, Stack};
use kilnyard_model::order::{CommandOrder, Dependency};
use std::collections::BTreeSet;
use std::io;

impl Manager for Workshop {
    fn install(&self, packages: &[&Dependency]) -> Vec<CommandOrder> {
        stages::install(&self.settings, packages.iter().map(|package| &package.file)).into_iter().collect()
    }

    fn installed(&self, _stack: &Stack, packages: &[&Dependency]) -> io::Result<BTreeSet<String>> {
        // It ends badly where one of those that it is given is not installed.
        Ok(packages.iter().map(|package| package.name.clone()).collect())
    }

    fn layering(&self) -> Result<&dyn Layering, &'static str> {
        Err("pkg_add writes the files of all packages into one table")
    }
}
