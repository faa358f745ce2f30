//! The builds that packages of the repository are from, for the signer.

use super::signed::SignedPackages;
use crate::git::{CommitFolder, TreeCommit};
use crate::pkgsrc::Pkgsrc;
use crate::pkgsrc::changed::tree_commit;
use kilnyard_ecosystem::pkgsrc::{description, package_file};
use kilnyard_mirror::{FileStore, Sha256Hex};
use kilnyard_model::order::Output;
use kilnyard_publish::SignerError;
use kilnyard_signer::client::{Builds, Sources};
use kilnyard_signer::memory::Name;
use kilnyard_signer::message::{Build, Built, Evidence};
use kilnyard_store::{OutputRow, Store};
use kilnyard_yard::yard::Yard;
use std::collections::{BTreeSet, HashSet};

/// The files that declare a package, for the signer.
const DECLARED_IN: [&str; 1] = ["Makefile"];

/// Finds builds in the store.
pub struct PackageBuilds<'a> {
    /// The store, with what workers signed.
    pub store: &'a dyn Store,
    /// The files of outputs.
    pub distfiles: &'a FileStore,
    /// The signed packages, if the repository has these.
    pub signed: Option<SignedPackages>,
    /// All outputs.
    pub outputs: Vec<OutputRow>,
    /// The folders that they are from.
    pub commits: TreeCommits,
}

/// The folders of packages in the commit that the tree is at; none if the tree is not one of git.
#[derive(Clone, Debug, Default)]
pub struct TreeCommits(Vec<(Name, CommitFolder)>);

impl TreeCommits {
    /// Those of outputs.
    pub fn of<'a>(yard: &Yard, outputs: impl IntoIterator<Item = &'a OutputRow>) -> TreeCommits {
        let pkgsrc = yard.config.family.of::<Pkgsrc>();
        let Some(place) = pkgsrc.and_then(|pkgsrc| tree_commit(yard, pkgsrc)) else {
            return TreeCommits::default();
        };
        let folder = |row: &OutputRow| {
            let Output { name, version, description, .. } = &row.output;
            let path = description.lines().find_map(|line| line.strip_prefix("PKGPATH="))?.to_owned();
            let name = Name { name: name.clone(), variant: version.clone() };
            let path = match place.folder.as_str() {
                "" => path,
                folder => format!("{folder}/{path}"),
            };
            let TreeCommit { git, commit, .. } = place.clone();
            Some((name, CommitFolder { git, commit, path, declared_in: &DECLARED_IN }))
        };
        TreeCommits(outputs.into_iter().filter_map(folder).collect())
    }
}

impl Sources for TreeCommits {
    fn keys(&self, packages: &[Name]) -> Result<Vec<String>, SignerError> {
        let wanted: HashSet<&Name> = packages.iter().collect();
        let folders = self.0.iter().filter(|(name, _)| wanted.contains(name));
        let keys: BTreeSet<String> = folders.map(|(_, folder)| folder.key()).collect();
        Ok(keys.into_iter().collect())
    }

    fn shown(&self, key: &str) -> Result<Option<Evidence>, SignerError> {
        let found = self.0.iter().find(|(_, folder)| folder.key() == key);
        Ok(found.and_then(|(_, folder)| folder.shown()).map(Evidence::Commit))
    }
}

impl Sources for PackageBuilds<'_> {
    fn keys(&self, packages: &[Name]) -> Result<Vec<String>, SignerError> {
        self.commits.keys(packages)
    }

    fn shown(&self, key: &str) -> Result<Option<Evidence>, SignerError> {
        self.commits.shown(key)
    }
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
                header: None,
                sha256: output.sha256.clone(),
                listed: listed.to_owned(),
                files: Some(files),
            }],
            statement: self.store.provenance(&row.package)?.map(|found| found.signed),
        })
    }
}
