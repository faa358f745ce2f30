//! Debian: the archive's index, sets of source packages, an apt repository.

pub mod archives;
mod autopkgtest;
pub mod base;
mod check;
pub mod config;
mod demo;
mod doctor;
pub mod git;
pub mod init;
mod lock;
pub mod mirror;
mod pins;
pub mod publish;
pub mod recover;
pub mod reuse;
pub mod rules;
pub mod scan;
pub mod select;
pub mod set;

pub use config::{Debian, DebianRoot, Mirrors, template};
pub use doctor::{base_findings, mirror_finding};

use crate::arguments::read;
use crate::git::{CommitFolder, time_of};
use clap::{ArgMatches, Args, Command};
use kilnyard_ecosystem::debian::{Workshop, stages};
use kilnyard_ecosystem::{Ecosystem, NamePattern, Options};
use kilnyard_mirror::FileStore;
use kilnyard_model::artifact::Artifact;
use kilnyard_model::graph::Against;
use kilnyard_model::order::Processor;
use kilnyard_model::target::{Target, TargetError};
use kilnyard_root::IdMap;
use kilnyard_store::{RunCommit, Store};
use kilnyard_yard::causes::KnownCause;
use kilnyard_yard::commits::Change;
use kilnyard_yard::error::Result;
use kilnyard_yard::family::{
    self, Family, Neighbour, NewYard, PublicationTerms, Recovered, Resolved, Scanned, Set, ToPublish,
};
use kilnyard_yard::finding::Finding;
use kilnyard_yard::program::Program;
use kilnyard_yard::remedy::Remedy;
use kilnyard_yard::tries;
use kilnyard_yard::yard::Yard;
use serde::Deserialize;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The part of the Debian family that works without a yard.
pub struct DebianEntry;

/// Names the table in `kilnyard.toml` and the `init` subcommand.
const NAME: &str = "debian";
/// The tables of additional archives in `kilnyard.toml`.
const ARCHIVE: &str = "archive";
/// The command that only this family has.
const CHECK: &str = "check";
/// The command that writes the lock.
const LOCK: &str = "lock";

/// The name of the family in messages.
pub const TITLE: &str = "Debian";

impl family::FamilyEntry for DebianEntry {
    fn name(&self) -> &'static str {
        NAME
    }

    fn read(&self, text: &str) -> std::result::Result<Arc<dyn Family>, toml::de::Error> {
        #[derive(Deserialize)]
        struct File {
            debian: Debian,
            #[serde(default)]
            archive: Vec<archives::Archive>,
        }
        toml::from_str(text).map(|mut file: File| {
            file.debian.archives.extend(file.archive);
            Arc::new(file.debian) as Arc<dyn Family>
        })
    }

    fn more_tables(&self) -> &'static [&'static str] {
        &[ARCHIVE]
    }

    fn has_targets(&self) -> bool {
        true
    }

    fn init_remedy(&self) -> Remedy {
        Remedy::command("init debian --release bookworm PACKAGE...").then(", which makes one")
    }

    fn findings(&self) -> Vec<Finding> {
        base_findings(&config::root::debian_keyring())
    }

    fn init_command(&self) -> Command {
        init::Init::augment_args(Command::new(NAME)).about("A yard of Debian source packages")
    }

    fn init(&self, folder: &Path, arguments: &ArgMatches, program: &dyn Program) -> Result<NewYard> {
        read::<init::Init>(arguments)?.plan(folder, program)
    }

    fn commands(&self, all: Command) -> Command {
        let check = check::Check::augment_args(Command::new(CHECK));
        let lock = lock::Options::augment_args(Command::new(LOCK));
        all.subcommand(check.about("List the sources of the release that cannot be built, and why; of RPM repositories, what cannot be installed, too"))
            .subcommand(
                lock.about("Write kilnyard.lock, so that runs repeat with the same sources and indexes"),
            )
    }

    fn perform(&self, name: &str, arguments: &ArgMatches, program: &dyn Program) -> Result<Option<ExitCode>> {
        match name {
            CHECK => {
                let yard = program.yard()?;
                // Another family may have the command, too.
                match yard.config.family.of::<Debian>() {
                    Some(debian) => check::run(&yard, debian, &read(arguments)?, program).map(Some),
                    None => Ok(None),
                }
            }
            LOCK => {
                let options = read(arguments)?;
                program.each(&|yard| lock::run(yard, &options, program)).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn demo(&self, is_large: bool) -> Option<family::Demo> {
        Some(demo::demo(is_large))
    }
}

impl Family for Debian {
    fn located(&self, yard: &Path, _own: &Path) -> Arc<dyn Family> {
        let archives = self.archives.iter().map(|archive| archive.located(yard)).collect();
        Arc::new(Debian { keyring: yard.join(&self.keyring), archives, ..self.clone() })
    }

    fn title(&self) -> &'static str {
        TITLE
    }

    fn target(&self) -> std::result::Result<Target, TargetError> {
        Debian::target(self)
    }

    fn check(&self) -> std::result::Result<(), String> {
        self.check_table()
    }

    fn beside(&self, other: &dyn Family, order: Neighbour) -> Option<Arc<dyn Family>> {
        let other = (other as &dyn std::any::Any).downcast_ref::<Debian>()?;
        Some(Arc::new(self.beside_target(other, order)))
    }

    fn crossing(&self) -> Option<Arc<dyn Family>> {
        let own = config::root::own_architecture();
        (self.architecture() != own)
            .then(|| Arc::new(Debian { build_architecture: Some(own), ..self.clone() }) as Arc<dyn Family>)
    }

    fn emulated(&self) -> Option<Arc<dyn Family>> {
        let processor = config::root::foreign_processor(&self.architecture())?;
        let is_cross = self.build_architecture.is_some();
        (!is_cross)
            .then(|| Arc::new(Debian { processor: Some(processor), ..self.clone() }) as Arc<dyn Family>)
    }

    fn processor(&self) -> Option<Processor> {
        self.processor
    }

    fn confined(&self) -> Option<&'static str> {
        let is_emulated = self.processor.is_none()
            && self.build_architecture.is_none()
            && self.architecture() != config::root::own_architecture();
        is_emulated.then_some("this machine emulates the target's architecture, and others may not")
    }

    fn foreign(&self) -> Option<(String, Remedy)> {
        if self.build_architecture.is_some() {
            return None;
        }
        if let Some(processor) = self.processor {
            return kilnyard_worker::missing_machine(Some(processor), None).map(|(reason, package)| {
                (
                    reason,
                    package.map_or_else(
                        || Remedy::from("docs/machines.md"),
                        |package| Remedy::packages(&[package]),
                    ),
                )
            });
        }
        config::root::foreign(&self.architecture()).map(|(reason, remedy)| {
            (
                reason,
                remedy
                    .then("; or cross = true in [package.NAME], which cross-builds packages that support it"),
            )
        })
    }

    fn is_published(&self, yard: &Yard) -> bool {
        publish::has_packages(yard, self)
    }

    fn builds_against(&self) -> &'static [Against] {
        &[Against::Set, Against::Ancestors, Against::Archive]
    }

    fn check_name(&self, name: &str) -> Result<()> {
        rules::Rule::parse(name).map(drop)
    }

    fn check_package(&self, _name: &NamePattern, options: &Options) -> std::result::Result<(), String> {
        config::check_options(options)
    }

    fn mirrors(&self) -> Vec<String> {
        self.mirror.all()
    }

    fn tree_and_architecture(&self) -> (String, String) {
        (self.release.clone(), self.architecture())
    }

    fn scan(&self, yard: &Yard, cancel: &AtomicBool, say: &(dyn Fn(&str) + Sync)) -> Result<Scanned> {
        lock::scan(yard, self, &lock::Kept::all(yard)?, cancel, say)
    }

    fn check_scanned(&self, yard: &Yard) -> Result<()> {
        scan::Index::open(yard).map(drop)
    }

    fn ensure_layers(&self, yard: &Yard, ids: &IdMap, cancel: &AtomicBool, say: &dyn Fn(&str)) -> Result<()> {
        base::ensure(yard, &self.root(), ids, cancel, say).map(drop)
    }

    fn trees(&self, yard: &Yard) -> Option<Vec<Artifact>> {
        Some(vec![base::find(yard, &self.root())?.tree?])
    }

    fn source_pattern(&self, _package: &str) -> String {
        stages::source_pattern()
    }

    fn own_packages(&self, yard: &Yard) -> Result<Vec<String>> {
        set::own_packages(yard)
    }

    fn provenances(&self, yard: &Yard) -> Result<BTreeMap<String, String>> {
        set::provenances(yard)
    }

    fn check_lock(&self, yard: &Yard, set: &Set, is_strict: bool, say: &dyn Fn(&str)) -> Result<()> {
        lock::check(yard, self, set, is_strict, say)
    }

    fn kept_index_files(&self, yard: &Yard) -> Vec<String> {
        lock::kept_files(yard)
    }

    fn causes(&self) -> &'static [KnownCause] {
        &[
            KnownCause {
                texts: &["dpkg-gensymbols"],
                title: "the symbols of a library differ from debian/*.symbols",
            },
            KnownCause { texts: &["dh_auto_test"], title: "tests fail" },
            KnownCause {
                texts: &["dh_missing: ", "dh_install: error: missing files"],
                title: "packaged files do not match what was installed",
            },
        ]
    }

    fn remedy_for_absent_files(&self) -> Option<&'static str> {
        Some(
            "a snapshot from the day of the index, such as \
             https://snapshot.debian.org/archive/debian/20240101T000000Z/ with check-valid-until = false",
        )
    }

    fn inputs(&self, yard: &Yard, names: Option<&[String]>) -> Result<String> {
        set::inputs(yard, self, base::find(yard, &self.root()).as_ref(), names)
    }

    fn resolve(&self, yard: &Yard, distfiles: &FileStore) -> Result<Set> {
        let base = base::find(yard, &self.root()).unwrap_or_default();
        let workshop = Arc::new(set::resolve(yard, self, base, distfiles)?);
        Ok(Set::new(SourceSet { debian: self.clone(), workshop }))
    }

    fn rescan(
        &self,
        yard: &Yard,
        distfiles: &FileStore,
        package: &str,
        _cancel: &AtomicBool,
    ) -> Result<Option<Vec<u8>>> {
        set::rescan(yard, distfiles, package)
    }

    fn tried(&self, _folder: &Path, changes: &[String], text: &str) -> Result<String> {
        tries::with_packages(text, &init::changed(changes)?)
    }

    fn commits(&self, yard: &Yard) -> Result<Vec<RunCommit>> {
        let located = git::located(yard, &set::rules(yard)?).into_iter();
        let described = |(source, _, folder): (String, _, CommitFolder)| RunCommit {
            source,
            date_seconds: time_of(&folder.git, &folder.commit),
            commit: folder.commit,
        };
        Ok(located.map(described).collect())
    }

    fn changes(
        &self,
        yard: &Yard,
        earlier: &[RunCommit],
        later: &[RunCommit],
        package: Option<&str>,
    ) -> Result<Vec<Change>> {
        git::changes(yard, &set::rules(yard)?, earlier, later, package)
    }

    fn scans_tries(&self, changes: &[String]) -> bool {
        // A scan makes the sources of git repositories.
        changes.iter().any(|change| change.starts_with("git:"))
    }

    fn touched(&self, tried: &Yard, changes: &[String]) -> Option<Vec<String>> {
        let (of_git, others): (Vec<&String>, Vec<&String>) =
            changes.iter().partition(|change| change.starts_with("git:"));
        let mut all: Vec<String> = others.iter().map(|change| init::source_of(change).to_owned()).collect();
        if !of_git.is_empty() {
            // What a repository contains, its scan has found.
            all.extend(set::names_of_git(tried, &init::changed(changes).ok()?).ok()?);
        }
        Some(all)
    }

    fn keep_rescanned(&self, _yard: &Yard, _cancel: &AtomicBool, _say: &(dyn Fn(&str) + Sync)) -> Result<()> {
        // Local sources are not in any index.
        Ok(())
    }

    fn recover(&self, yard: &Yard, store: &dyn Store, distfiles: &FileStore) -> Result<Recovered> {
        recover::recover(yard, self, store, distfiles)
    }

    fn published_files(&self, yard: &Yard) -> HashSet<String> {
        publish::published_files(yard, self)
    }

    fn machine_findings(&self) -> Vec<Finding> {
        base_findings(&self.keyring)
    }

    fn yard_findings(&self, yard: &Yard, cancel: &AtomicBool) -> Vec<Finding> {
        let mut findings = vec![mirror_finding(yard, &self.root(), cancel)];
        findings.extend(self.architecture_finding());
        findings
    }
}

/// A resolved set of source packages, with the settings to publish it.
pub struct SourceSet {
    debian: Debian,
    workshop: Arc<Workshop>,
}

impl Resolved for SourceSet {
    fn ecosystem(&self) -> Arc<dyn Ecosystem> {
        self.workshop.clone()
    }

    fn to_publish<'a>(
        &'a self,
        yard: &'a Yard,
        store: &'a dyn Store,
        distfiles: &'a FileStore,
        terms: &PublicationTerms,
    ) -> Result<ToPublish<'a>> {
        publish::make(yard, &self.debian, store, &self.workshop, distfiles, terms)
    }
}
