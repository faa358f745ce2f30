//! The builds that packages of the repository are from, for the signer.

use super::signed::SignedPackages;
use kilnyard_ecosystem::pkgsrc::{description, package_file};
use kilnyard_mirror::{FileStore, Sha256Hex};
use kilnyard_publish::SignerError;
use kilnyard_signer::client::Builds;
use kilnyard_signer::memory::Name;
use kilnyard_signer::message::{Build, Built};
use kilnyard_store::{OutputRow, Store};
use std::collections::HashSet;

/// Finds builds in the store.
pub struct PackageBuilds<'a> {
    pub store: &'a dyn Store,
    pub distfiles: &'a FileStore,
    /// The signed packages, if the repository has these.
    pub signed: Option<SignedPackages>,
    pub outputs: Vec<OutputRow>,
}

impl Builds for PackageBuilds<'_> {
    fn of(&self, packages: &[Name]) -> Result<Vec<Build>, SignerError> {
        let wanted: HashSet<(&str, &str)> =
            packages.iter().map(|name| (name.name.as_str(), name.variant.as_str())).collect();
        let is_wanted =
            |row: &&OutputRow| wanted.contains(&(row.output.name.as_str(), row.output.version.as_str()));
        let rows = self.outputs.iter().filter(is_wanted);
        rows.map(|row| self.build(row)).collect()
    }
}

impl PackageBuilds<'_> {
    /// Each package of a tree makes one output.
    fn build(&self, row: &OutputRow) -> Result<Build, SignerError> {
        let output = &row.output;
        let files = package_file::read(&self.distfiles.path(&Sha256Hex::parse(&output.sha256)?))?.paths;
        let path = output.description.lines().find_map(|line| line.strip_prefix("PKGPATH="));
        let facts = self.signed.as_ref().and_then(|signed| signed.facts(output));
        let listed = match &facts {
            Some(facts) => facts.text.as_str(),
            None => description::sha512(&output.description).unwrap_or_default(),
        };
        Ok(Build {
            source: path.unwrap_or_default().to_owned(),
            package: row.package.clone(),
            declared: vec![output.name.clone()],
            outputs: vec![Built {
                sha256: output.sha256.clone(),
                listed: listed.to_owned(),
                files: Some(files),
            }],
            statement: self.store.provenance(&row.package)?.map(|found| found.signed),
        })
    }
}
