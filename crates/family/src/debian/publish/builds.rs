//! The builds that packages of the repository are from, for the signer.

use crate::debian::scan::Vouched;
use crate::git::CommitFolder;
use kilnyard_ecosystem::Ecosystem;
use kilnyard_ecosystem::debian::{Workshop, deb_file};
use kilnyard_mirror::{FileStore, Sha256Hex};
use kilnyard_publish::SignerError;
use kilnyard_signer::client::{Builds, Sources};
use kilnyard_signer::memory::Name;
use kilnyard_signer::message::{Build, Built, Evidence, SourceIndex};
use kilnyard_store::{OutputRow, Store};
use kilnyard_yard::yard::Yard;
use std::collections::{BTreeMap, HashSet};

/// Finds builds in the store.
pub struct SourceBuilds<'a> {
    pub store: &'a dyn Store,
    pub workshop: &'a Workshop,
    pub distfiles: &'a FileStore,
    pub outputs: Vec<OutputRow>,
    pub yard: &'a Yard,
    /// The indexes of sources of the last scan.
    pub vouched: Vec<Vouched>,
    /// The commits of sources from git, by the name of the source.
    pub commits: BTreeMap<String, CommitFolder>,
}

impl Builds for SourceBuilds<'_> {
    fn of(&self, packages: &[Name]) -> Result<Vec<Build>, SignerError> {
        let wanted: HashSet<(&str, &str)> =
            packages.iter().map(|name| (name.name.as_str(), name.variant.as_str())).collect();
        let mut by_source: BTreeMap<&str, Vec<&OutputRow>> = BTreeMap::new();
        for row in &self.outputs {
            if wanted.contains(&(&row.output.name, &row.output.architecture)) {
                by_source.entry(&row.package).or_default().push(row);
            }
        }
        by_source.into_iter().map(|(source, rows)| self.build(source, &rows)).collect()
    }
}

impl Sources for SourceBuilds<'_> {
    fn keys(&self, packages: &[Name]) -> Result<Vec<String>, SignerError> {
        if packages.is_empty() {
            return Ok(self.vouched.iter().map(|index| index.sha256.clone()).collect());
        }
        let names: HashSet<&str> = packages.iter().map(|name| name.name.as_str()).collect();
        let rows = self.outputs.iter().filter(|row| names.contains(row.output.name.as_str()));
        let sources: HashSet<&str> = rows.map(|row| row.package.as_str()).collect();
        let commits = self.commits.iter().filter(|(source, _)| sources.contains(source.as_str()));
        Ok(commits.map(|(_, commit)| commit.key()).collect())
    }

    fn shown(&self, key: &str) -> Result<Option<Evidence>, SignerError> {
        if let Some(commit) = self.commits.values().find(|commit| commit.key() == key) {
            return Ok(commit.shown().map(Evidence::Commit));
        }
        let Some(index) = self.vouched.iter().find(|index| index.sha256 == key) else { return Ok(None) };
        let text = index.text(self.yard)?;
        let (release, path) = (index.release.clone(), index.path.clone());
        Ok(Some(Evidence::Index(SourceIndex { release, path, text })))
    }
}

impl SourceBuilds<'_> {
    fn build(&self, source: &str, rows: &[&OutputRow]) -> Result<Build, SignerError> {
        let built = |row: &&OutputRow| -> Result<Built, SignerError> {
            let sha256 = row.output.sha256.clone();
            // What cannot be read has no list, and the signer decides.
            let read = deb_file::read(&self.distfiles.path(&Sha256Hex::parse(&sha256)?));
            let files = read.ok().map(|deb| deb.paths);
            Ok(Built { listed: sha256.clone(), sha256, header: None, files })
        };
        Ok(Build {
            source: source.to_owned(),
            package: source.to_owned(),
            declared: self.declared(source),
            outputs: rows.iter().map(built).collect::<Result<_, _>>()?,
            statement: self.store.provenance(source)?.map(|found| found.signed),
        })
    }

    /// What a source declares. Of one that left the index, what its last build made: that was admitted when the index had it.
    fn declared(&self, source: &str) -> Vec<String> {
        match self.workshop.graph().find(source) {
            Some(id) => {
                self.workshop.source(id).declared().iter().map(|declared| declared.name.to_owned()).collect()
            }
            None => {
                let own = self.outputs.iter().filter(|row| row.package == source);
                own.map(|row| row.output.name.clone()).collect()
            }
        }
    }
}
