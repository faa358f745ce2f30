//! What a yard asks of its package family. Everything above works with a [`Family`] and a [`Set`], and knows none by name.
//!
//! An [`Entry`] stands for a family before there is a yard; the program has one list of them. A [`Family`] is what one
//! yard says of it: its table of the configuration, read. A [`Resolved`] is the set of packages that the family made of its
//! index, which a coordinator asks as an [`Ecosystem`].

use crate::error::{Context, Error, Kind, Result};
use crate::finding::Finding;
use crate::key::Key;
use crate::program::Program;
use crate::remedy::Remedy;
use crate::words;
use crate::yard::Yard;
use clap::{ArgMatches, Command};
use kilnyard_ecosystem::Ecosystem;
use kilnyard_mirror::DistfileStore;
use kilnyard_model::artifact::Artifact;
use kilnyard_model::graph::Graph;
use kilnyard_model::order::{Output, RootOrder};
use kilnyard_model::target::{Target, TargetError};
use kilnyard_publish::Publication;
use kilnyard_root::IdMap;
use kilnyard_store::{Current, Store};
use serde_json::json;
use std::any::Any;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A family before there is a yard of it.
pub trait Entry: Sync {
    /// The name, which is that of its table in `kilnyard.toml` too.
    fn name(&self) -> &'static str;

    /// Reads its table out of a whole configuration that has one.
    fn read(&self, text: &str) -> std::result::Result<Arc<dyn Family>, toml::de::Error>;

    /// The command that makes a yard of it, for a person who has none.
    fn init_remedy(&self) -> Remedy;

    /// Whether this machine has what any yard of it needs.
    fn findings(&self) -> Vec<Finding>;

    /// The arguments of `kilnyard init NAME`.
    fn init_command(&self) -> Command;

    /// Works out the yard that these arguments ask for.
    fn init(&self, folder: &Path, arguments: &ArgMatches, program: &dyn Program) -> Result<NewYard>;

    /// The command line with the commands that are the family's own, and its options of other commands.
    fn commands(&self, all: Command) -> Command {
        all
    }

    /// Performs a command that is the family's own, by its name or by an option; none where it is not.
    fn perform(
        &self,
        _name: &str,
        _arguments: &ArgMatches,
        _program: &dyn Program,
    ) -> Result<Option<ExitCode>> {
        Ok(None)
    }

    /// Answers a question that is asked too often for knowing the arguments of all commands; none where these words
    /// are no such question.
    fn answer_at_once(&self, _words: &[OsString], _program: &dyn Program) -> Option<Result<ExitCode>> {
        None
    }

    /// The set of `kilnyard demo`, if the family has one.
    fn demo(&self, _is_large: bool) -> Option<Demo> {
        None
    }

    /// What depends on what by the family's own file of it; none for any other text.
    fn read_graph(&self, _text: &str, _path: &Path) -> Option<Result<Graph>> {
        None
    }
}

/// A yard to be made.
pub struct NewYard {
    /// Its configuration, which was checked.
    pub configuration: String,
    /// What it is, to be said once it is there.
    pub made: String,
    /// What is done and said then.
    pub afterwards: Afterwards,
}

/// What is done once a yard is there.
pub type Afterwards = Box<dyn FnOnce(&dyn Program) -> Result<()>>;

/// A yard that shows what there is to see.
pub struct Demo {
    /// Its configuration.
    pub configuration: String,
    /// What it builds.
    pub packages: Vec<String>,
    /// Where its index comes from, behind "fetch".
    pub index: String,
    /// Its repository, with an article.
    pub repository: &'static str,
}

/// What a yard of a family is.
pub trait Family: Any + Debug + Send + Sync {
    /// The same with paths that are found from any folder: relative ones are the yard's.
    fn located(&self, yard: &Path) -> Arc<dyn Family>;

    /// The family's name, for people.
    fn title(&self) -> &'static str;

    /// What a yard of it builds for, by its configuration.
    fn target(&self) -> std::result::Result<Target, TargetError>;

    /// What is wrong with the configuration, if anything.
    fn check(&self) -> std::result::Result<(), String>;

    /// An error for a name that no package of the family can have.
    fn check_name(&self, name: &str) -> Result<()>;

    /// The addresses of the archive that roots come from.
    fn mirrors(&self) -> Vec<String>;

    /// The tree's name and the architecture, for a report.
    fn tree_and_architecture(&self) -> (String, String);

    /// Brings the index up to date. `say` gets what is done.
    fn scan(&self, yard: &Yard, cancel: &AtomicBool, say: &(dyn Fn(&str) + Sync)) -> Result<Scanned>;

    /// An error if there is no index.
    fn check_scanned(&self, yard: &Yard) -> Result<()>;

    /// Makes the layers that roots begin with, if they are not there.
    fn ensure_layers(&self, yard: &Yard, ids: &IdMap, cancel: &AtomicBool, say: &dyn Fn(&str)) -> Result<()>;

    /// The trees that roots begin with, the uppermost first; none if they are not all there.
    fn trees(&self, yard: &Yard) -> Option<Vec<Artifact>>;

    /// The folders of this machine that orders of the yard show, by their names.
    fn folders(&self) -> BTreeMap<String, PathBuf> {
        BTreeMap::new()
    }

    /// What every root of a build shows in addition to its layers and inputs.
    fn shown(&self, yard: &Yard) -> Result<RootOrder>;

    /// Where the source of a package is unpacked in its root, as a pattern for a shell.
    fn source_pattern(&self, package: &str) -> String;

    /// Packages of the set whose sources belong to the yard's owner, and not to the archive or tree.
    fn own_packages(&self, _yard: &Yard) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Packages of the set that a commit, or a range of commits such as `A..B`, of the tree changes.
    ///
    /// # Errors
    /// There is no tree under version control, or it has no such commit.
    fn changed_packages(&self, _yard: &Yard, _commit: &str) -> Result<Vec<String>> {
        Err(Error::usage(format!("{} packages are in no tree under version control", self.title())))
    }

    /// What else helps where no mirror has a file any more that the index lists.
    fn remedy_for_absent_files(&self) -> Option<&'static str> {
        None
    }

    /// Everything that a set follows from, apart from the configuration and the names of packages, as a text to be hashed.
    fn inputs(&self, yard: &Yard, names: Option<&[String]>) -> Result<String>;

    /// Reads the index and resolves the set.
    fn resolve(&self, yard: &Yard, distfiles: &DistfileStore) -> Result<Set>;

    /// The recipe of a package of a set as it is now, as [`kilnyard_ecosystem::Stock::rescan`] takes it; none where only a
    /// scan can find another one.
    fn rescan(
        &self,
        yard: &Yard,
        distfiles: &DistfileStore,
        package: &str,
        cancel: &AtomicBool,
    ) -> Result<Option<Vec<u8>>>;

    /// Brings the index up to date after a run in which packages were rescanned.
    fn keep_rescanned(&self, yard: &Yard, cancel: &AtomicBool, say: &(dyn Fn(&str) + Sync)) -> Result<()>;

    /// Reads the repository for a store that was lost.
    fn recover(&self, yard: &Yard, store: &dyn Store, distfiles: &DistfileStore) -> Result<Recovered>;

    /// Hashes of distfiles that the repository shares, apart from the outputs of packages.
    fn published_files(&self, _yard: &Yard) -> HashSet<String> {
        HashSet::new()
    }

    /// Whether this machine has what any yard of it needs, as this one says it.
    fn machine_findings(&self) -> Vec<Finding>;

    /// Whether what this yard alone needs is there: its mirror, its tree.
    fn yard_findings(&self, yard: &Yard, cancel: &AtomicBool) -> Vec<Finding>;
}

impl dyn Family {
    /// The family's own type, for what is special to it; none in a yard of another family.
    pub fn of<F: Family>(&self) -> Option<&F> {
        (self as &dyn Any).downcast_ref()
    }

    /// The same, or an error that names the family that was asked for.
    pub fn require<F: Family>(&self, wanted: &str) -> Result<&F> {
        let title = self.title();
        let other = || Error::usage(format!("this is a yard of {title}, and that asks for one of {wanted}"));
        self.of().ok_or_else(other)
    }
}

/// A set of packages with exact dependencies, and what its family makes of it.
pub trait Resolved: Any + Send + Sync {
    /// The set, as plans and runs see it.
    fn ecosystem(&self) -> Arc<dyn Ecosystem>;

    /// The repository of everything that is there.
    fn to_publish(
        &self,
        yard: &Yard,
        store: &dyn Store,
        distfiles: &DistfileStore,
        key: &Key,
    ) -> Result<ToPublish>;

    /// Writes the reports that are the family's own, of the last run.
    fn write_reports(&self, _yard: &Yard, _store: &dyn Store) -> Result<()> {
        Ok(())
    }
}

/// A resolved set, shared.
#[derive(Clone)]
pub struct Set(Arc<dyn Resolved>);

impl Set {
    /// A set of a family.
    pub fn new(resolved: impl Resolved) -> Set {
        Set(Arc::new(resolved))
    }

    /// The set, as plans and runs see it.
    pub fn ecosystem(&self) -> Arc<dyn Ecosystem> {
        self.0.ecosystem()
    }

    /// The family's own type, for what is special to it; none in a yard of another family.
    pub fn of<R: Resolved>(&self) -> Option<&R> {
        (&*self.0 as &dyn Any).downcast_ref()
    }

    /// Publishes everything that is there.
    pub fn publish(&self, yard: &Yard, store: &dyn Store, distfiles: &DistfileStore) -> Result<Published> {
        let key = Key::read(yard)?;
        self.0.to_publish(yard, store, distfiles, &key)?.publish(&key)
    }

    /// What publishing would do.
    pub fn plan_publication(
        &self,
        yard: &Yard,
        store: &dyn Store,
        distfiles: &DistfileStore,
    ) -> Result<String> {
        Ok(self.0.to_publish(yard, store, distfiles, &Key::read(yard)?)?.publication.to_string())
    }

    /// Writes the reports that are the family's own, of the last run.
    pub fn write_reports(&self, yard: &Yard, store: &dyn Store) -> Result<()> {
        self.0.write_reports(yard, store)
    }
}

/// What a scan did, by part of the index: a suite, or a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Parts whose index is new.
    pub changed: Vec<String>,
    /// Parts whose index is the one that was there.
    pub unchanged: Vec<String>,
}

impl Scanned {
    /// Says what was done, or prints it as JSON.
    pub fn report(&self, program: &dyn Program, as_json: bool) -> Result<ExitCode> {
        if as_json {
            return program.print_json(&json!({ "changed": self.changed, "unchanged": self.unchanged }));
        }
        for part in &self.changed {
            program.say(&format!("{part}: a new index"));
        }
        for part in &self.unchanged {
            program.say(&format!("{part}: nothing new"));
        }
        program.print("")
    }
}

/// What a repository came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// Whether anything is new.
    pub is_changed: bool,
    /// How many binary packages it has.
    pub packages: u64,
    /// What the line is for.
    pub line_for: &'static str,
    /// The line that lets a machine install from it.
    pub line: String,
    /// The fingerprint of the key.
    pub fingerprint: String,
    /// What is not as it should be, a sentence each.
    pub remarks: Vec<String>,
}

/// A repository as it is to be.
pub struct ToPublish {
    /// What is to be done.
    pub publication: Publication,
    /// How many binary packages it has then.
    pub packages: u64,
    /// What the line is for.
    pub line_for: &'static str,
    /// The line that lets a machine install from it.
    pub line: String,
    /// What is not as it should be, a sentence each.
    pub remarks: Vec<String>,
}

impl ToPublish {
    /// Does it, with the yard's key.
    pub fn publish(self, key: &Key) -> Result<Published> {
        let is_changed = self.publication.execute(key).context(Kind::Machine, "publish")?.is_new;
        let ToPublish { packages, line_for, line, remarks, .. } = self;
        Ok(Published { is_changed, packages, line_for, line, fingerprint: key.fingerprint(), remarks })
    }
}

/// What the repository knows of packages that a store does not have, or only in lower versions.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The packages, with keys that no build has: the next one is built to compare its content.
    pub packages: Vec<Current>,
    /// What could not be recovered, a sentence each.
    pub remarks: Vec<String>,
}

/// The sentence on an output whose file is missing or damaged, and on what is published in its place.
pub fn broken_remark(output: &Output, package: &str, published: Option<&str>) -> String {
    let file = &output.file;
    let instead = match published {
        Some(name) if name == file => "it stays published as it is".to_owned(),
        Some(name) => format!("{name} stays published in its place"),
        None => "it is not published".to_owned(),
    };
    let remedy = words::command(&format!("build --force {package}"));
    format!("{file} is missing or damaged: {instead} ({remedy})")
}

/// Scans where that was never done, so that a question about a new yard has an answer.
pub fn ensure_scanned(yard: &Yard, cancel: &AtomicBool, say: &(dyn Fn(&str) + Sync)) -> Result<()> {
    if yard.config.family.check_scanned(yard).is_ok() {
        return Ok(());
    }
    let _lock = yard.lock()?;
    yard.config.family.scan(yard, cancel, say).map(|_| ())
}
