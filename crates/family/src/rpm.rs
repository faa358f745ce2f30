//! RPM: the metadata of repositories, and what in them cannot be installed or built.
//!
//! Out of scope so far: base roots, builds and publication. What needs them is an error that says so.

mod check;
mod config;
mod init;
mod scan;

pub use config::Rpm;

use crate::arguments::read;
use clap::{ArgMatches, Args, Command};
use kilnyard_ecosystem::{NamePattern, Options};
use kilnyard_mirror::FileStore;
use kilnyard_model::artifact::Artifact;
use kilnyard_model::target::{Target, TargetError};
use kilnyard_root::IdMap;
use kilnyard_store::Store;
use kilnyard_yard::error::{Error, Result};
use kilnyard_yard::family::{Family, FamilyEntry, NewYard, Recovered, Scanned, Set};
use kilnyard_yard::finding::Finding;
use kilnyard_yard::program::Program;
use kilnyard_yard::remedy::Remedy;
use kilnyard_yard::yard::Yard;
use serde::Deserialize;
use std::path::Path;
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
        Remedy::command("init rpm --repo URL").then(", which makes one to check")
    }

    fn findings(&self) -> Vec<Finding> {
        Vec::new()
    }

    fn init_command(&self) -> Command {
        init::Init::augment_args(Command::new(NAME)).about("A yard of RPM repositories, to check")
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

/// Why an operation on a yard fails.
fn no_builds() -> Error {
    Error::usage("builds of RPM packages are not there yet").hint(Remedy::command("check"))
}

impl Family for Rpm {
    fn located(&self, yard: &Path, _own: &Path) -> Arc<dyn Family> {
        Arc::new(Rpm { keys: self.keys.iter().map(|key| yard.join(key)).collect(), ..self.clone() })
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
        let is_name = !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte));
        match is_name {
            true => Ok(()),
            false => Err(Error::usage(format!("`{name}` is not the name of a package"))),
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
        scan::scan(yard, self, cancel, say)
    }

    fn check_scanned(&self, yard: &Yard) -> Result<()> {
        scan::Index::open(yard).map(drop)
    }

    fn ensure_layers(&self, _: &Yard, _: &IdMap, _: &AtomicBool, _: &dyn Fn(&str)) -> Result<()> {
        Err(no_builds())
    }

    fn trees(&self, _yard: &Yard) -> Option<Vec<Artifact>> {
        None
    }

    fn source_pattern(&self, package: &str) -> String {
        package.to_owned()
    }

    fn inputs(&self, yard: &Yard, _names: Option<&[String]>) -> Result<String> {
        scan::Index::open(yard).map(|index| index.identity())
    }

    fn resolve(&self, _yard: &Yard, _distfiles: &FileStore) -> Result<Set> {
        Err(no_builds())
    }

    fn rescan(&self, _: &Yard, _: &FileStore, _: &str, _: &AtomicBool) -> Result<Option<Vec<u8>>> {
        Err(no_builds())
    }

    fn keep_rescanned(&self, _: &Yard, _: &AtomicBool, _: &(dyn Fn(&str) + Sync)) -> Result<()> {
        Err(no_builds())
    }

    fn recover(&self, _yard: &Yard, _store: &dyn Store, _distfiles: &FileStore) -> Result<Recovered> {
        Err(no_builds())
    }

    fn machine_findings(&self) -> Vec<Finding> {
        Vec::new()
    }

    fn yard_findings(&self, _yard: &Yard, _cancel: &AtomicBool) -> Vec<Finding> {
        Vec::new()
    }
}
