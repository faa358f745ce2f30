//! RPM: the metadata of repositories, spec files and source packages, and a repository of what is built from them.

mod base;
mod check;
mod config;
mod init;
mod keys;
mod made;
mod publish;
mod recipes;
mod requirements;
mod scan;
mod set;
mod signed;
mod sources;

pub use config::Rpm;

use crate::arguments::read;
use crate::git::{WORK_TREE, WorkTree, place};
use clap::{ArgMatches, Args, Command};
use kilnyard_ecosystem::rpm::{Workshop, recipe};
use kilnyard_ecosystem::{Ecosystem, NamePattern, Options};
use kilnyard_mirror::FileStore;
use kilnyard_model::artifact::Artifact;
use kilnyard_model::order::Output;
use kilnyard_model::target::{Target, TargetError};
use kilnyard_root::IdMap;
use kilnyard_store::{RunCommit, Store};
use kilnyard_yard::commits::Change;
use kilnyard_yard::error::{Context, Error, Result};
use kilnyard_yard::family::{
    Family, FamilyEntry, NewYard, PublicationTerms, Recovered, RefusedPackage, Resolved, Scanned, Set,
    ToPublish,
};
use kilnyard_yard::finding::Finding;
use kilnyard_yard::program::Program;
use kilnyard_yard::remedy::Remedy;
use kilnyard_yard::signing::Signing;
use kilnyard_yard::yard::Yard;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The part of the RPM family that works without a yard.
pub struct RpmEntry;

/// Names the table in `kilnyard.toml` and the `init` subcommand.
const NAME: &str = "rpm";
/// The name of the family in messages.
const TITLE: &str = "RPM";
/// The command that this family shares with another one, which adds it to the command line.
const CHECK: &str = "check";

impl FamilyEntry for RpmEntry {
    fn name(&self) -> &'static str {
        NAME
    }

    fn read(&self, text: &str) -> std::result::Result<Arc<dyn Family>, toml::de::Error> {
        #[derive(Deserialize)]
        struct File {
            rpm: Rpm,
        }
        toml::from_str(text).map(|file: File| Arc::new(file.rpm) as Arc<dyn Family>)
    }

    fn init_remedy(&self) -> Remedy {
        Remedy::command("init rpm --repo URL --specs FOLDER").then(", which makes one")
    }

    fn findings(&self) -> Vec<Finding> {
        vec![base::finding()]
    }

    fn init_command(&self) -> Command {
        init::Init::augment_args(Command::new(NAME))
            .about("A yard of RPM packages, from spec files and source packages")
    }

    fn init(&self, folder: &Path, arguments: &ArgMatches, _program: &dyn Program) -> Result<NewYard> {
        read::<init::Init>(arguments)?.plan(folder)
    }

    fn perform(&self, name: &str, arguments: &ArgMatches, program: &dyn Program) -> Result<Option<ExitCode>> {
        if name != CHECK {
            return Ok(None);
        }
        let yard = program.yard()?;
        let rpm = yard.config.family.require::<Rpm>("Debian or RPM")?;
        if let Some(option) = ["dependent", "checks"].into_iter().find(|option| arguments.get_flag(option)) {
            return Err(Error::usage(format!("--{option} is for Debian: RPM has no such parts of a source")));
        }
        check::run(&yard, rpm, arguments.get_flag("json"), program).map(Some)
    }
}

impl Family for Rpm {
    fn located(&self, yard: &Path, own: &Path) -> Arc<dyn Family> {
        let git = self.specs.as_deref().and_then(place::address).and_then(std::result::Result::ok);
        let folder = |folder: &PathBuf| match &git {
            Some(_) => own.join(WORK_TREE),
            None => yard.join(folder),
        };
        Arc::new(Rpm {
            keys: self.keys.iter().map(|key| yard.join(key)).collect(),
            specs: self.specs.as_ref().map(folder),
            git,
            ..self.clone()
        })
    }

    fn title(&self) -> &'static str {
        TITLE
    }

    fn target(&self) -> std::result::Result<Target, TargetError> {
        Rpm::target(self)
    }

    fn check(&self) -> std::result::Result<(), String> {
        self.check_table()
    }

    fn check_name(&self, name: &str) -> Result<()> {
        match recipe::is_name(name) || name.ends_with(".src.rpm") {
            true => Ok(()),
            false => Err(Error::usage(format!("`{name}` is not the name of a package"))
                .hint("the name of a spec file's package, or a path or pattern of .src.rpm files")),
        }
    }

    fn check_package(&self, _name: &NamePattern, _options: &Options) -> std::result::Result<(), String> {
        Ok(())
    }

    fn mirrors(&self) -> Vec<String> {
        self.addresses()
    }

    fn tree_and_architecture(&self) -> (String, String) {
        (self.release.clone(), self.architecture.clone())
    }

    fn scan(&self, yard: &Yard, cancel: &AtomicBool, say: &(dyn Fn(&str) + Sync)) -> Result<Scanned> {
        if let Some(address) = &self.git {
            WorkTree { yard, address }.update(cancel, say)?;
        }
        let mut scanned = scan::scan(yard, self, cancel, say)?;
        if recipes::has_own(yard, self)? {
            let ids = yard.ids();
            let base = base::ensure(yard, self, &ids, cancel, say)?;
            let settings = set::settings(yard, self)?;
            let (changed, unchanged) = recipes::scan(yard, self, &settings, &base, &ids, cancel, say)?;
            scanned.changed.extend(changed);
            scanned.unchanged.extend(unchanged);
        }
        Ok(scanned)
    }

    fn listed_digests(&self, yard: &Yard, output: &Output) -> Vec<String> {
        [vec![output.sha256.clone()], signed::digests(yard, output)].concat()
    }

    fn check_scanned(&self, yard: &Yard) -> Result<()> {
        scan::Index::open(yard).map(drop)
    }

    fn ensure_layers(&self, yard: &Yard, ids: &IdMap, cancel: &AtomicBool, say: &dyn Fn(&str)) -> Result<()> {
        base::ensure(yard, self, ids, cancel, say).map(drop)
    }

    fn trees(&self, yard: &Yard) -> Option<Vec<Artifact>> {
        Some(vec![base::find(yard, self)?.tree?])
    }

    fn source_pattern(&self, _package: &str) -> String {
        "/build/BUILD/*/".to_owned()
    }

    fn own_packages(&self, yard: &Yard) -> Result<Vec<String>> {
        Ok(recipes::Recipes::read(yard).names())
    }

    fn commits(&self, yard: &Yard) -> Result<Vec<RunCommit>> {
        let (Some(folder), Some(shown)) = (&self.specs, self.shown_specs()) else { return Ok(Vec::new()) };
        let commit = place::commit(yard, self.git.as_ref(), folder);
        Ok(commit.map(|commit| place::of_run(shown, commit)).into_iter().collect())
    }

    fn changes(
        &self,
        yard: &Yard,
        earlier: &[RunCommit],
        later: &[RunCommit],
        package: Option<&str>,
    ) -> Result<Vec<Change>> {
        let (Some(folder), Some(shown)) = (&self.specs, self.shown_specs()) else { return Ok(Vec::new()) };
        let Some(commit) = place::commit(yard, self.git.as_ref(), folder) else { return Ok(Vec::new()) };
        let paths: Vec<String> =
            package.map(|name| recipes::Recipes::read(yard).paths(name, folder)).unwrap_or_default();
        if package.is_some() && paths.is_empty() {
            return Ok(Vec::new());
        }
        place::changes(&shown, commit, (earlier, later), &paths)
    }

    fn inputs(&self, yard: &Yard, names: Option<&[String]>) -> Result<String> {
        let base = base::find(yard, self).map(|base| base.digest).unwrap_or_default();
        let index = scan::Index::open(yard)?.identity();
        let (recipes, requirements) = (recipes::Recipes::inputs(yard), requirements::inputs(yard));
        let made = made::inputs(yard);
        Ok(format!("{index}\n{base}\n{recipes}\n{requirements}\n{made}\n{names:?}\n"))
    }

    fn resolve(&self, yard: &Yard, distfiles: &FileStore) -> Result<Set> {
        let workshop = Arc::new(set::resolve(yard, self, distfiles)?);
        Ok(Set::new(SourceSet { workshop }))
    }

    fn rescan(
        &self,
        yard: &Yard,
        distfiles: &FileStore,
        package: &str,
        cancel: &AtomicBool,
    ) -> Result<Option<Vec<u8>>> {
        let Some(base) = base::find(yard, self) else { return Ok(None) };
        let settings = set::settings(yard, self)?;
        recipes::scan(yard, self, &settings, &base, &yard.ids(), cancel, &|_| ())?;
        let (own, left_out) = recipes::Recipes::read(yard).own(distfiles)?;
        if let Some(left) = left_out.iter().find(|left| left.name == package) {
            return Err(Error::usage(left.explanation.clone()));
        }
        let recipe = own.get(package).cloned().map(|mut recipe| {
            requirements::add(yard, &mut recipe, &settings);
            recipe
        });
        recipe.map(|recipe| serde_json::to_vec(&recipe)).transpose().or_internal("write a recipe")
    }

    fn keep_requirements(&self, yard: &Yard, package: &str, recipe: &str, requires: &[String]) -> Result<()> {
        requirements::keep(yard, package, recipe, requires)
    }

    fn learn(&self, yard: &Yard, store: &dyn Store) -> Result<bool> {
        made::learn(yard, store)
    }

    fn keep_rescanned(&self, _: &Yard, _: &AtomicBool, _: &(dyn Fn(&str) + Sync)) -> Result<()> {
        // A rescan keeps what it finds.
        Ok(())
    }

    fn recover(&self, yard: &Yard, store: &dyn Store, distfiles: &FileStore) -> Result<Recovered> {
        publish::recover(yard, self, store, distfiles)
    }

    fn machine_findings(&self) -> Vec<Finding> {
        vec![base::finding()]
    }

    fn yard_findings(&self, _yard: &Yard, _cancel: &AtomicBool) -> Vec<Finding> {
        Vec::new()
    }
}

/// A resolved set of sources.
pub struct SourceSet {
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
        publish::make(yard, store, &self.workshop, distfiles, terms)
    }

    fn sign_packages(
        &self,
        yard: &Yard,
        store: &dyn Store,
        distfiles: &FileStore,
        signing: &Signing,
    ) -> Result<Vec<RefusedPackage>> {
        signed::sign_missing(yard, &self.workshop, store, distfiles, signing)
    }
}
