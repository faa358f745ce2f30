//! The interface between a yard and its package family. Other modules use a [`Family`] and a [`Set`] and know
//! no family by name.
//!
//! A [`FamilyEntry`] stands for a family before there is a yard; the program has one list of them. A [`Family`] is
//! the family as one yard configures it: the parsed table of the configuration. A [`Resolved`] is the set of packages
//! that the family made from its index; a coordinator queries it as an [`Ecosystem`].

use crate::causes::KnownCause;
use crate::commits::Change;
use crate::error::{Context, Error, Kind, Result};
use crate::finding::Finding;
use crate::helpers::Helpers;
use crate::program::Program;
use crate::remedy::Remedy;
use crate::signing::{Reached, Signing, delayed};
use crate::words;
use crate::yard::Yard;
use clap::{ArgMatches, Command};
use kilnyard_ecosystem::{Ecosystem, NamePattern, Options};
use kilnyard_mirror::FileStore;
use kilnyard_model::artifact::Artifact;
use kilnyard_model::graph::{Against, Graph};
use kilnyard_model::order::{Output, Processor};
use kilnyard_model::target::{Target, TargetError};
use kilnyard_publish::{Publication, PublishError};
use kilnyard_root::IdMap;
use kilnyard_signer::client::{Builds, ClientError};
use kilnyard_signer::message::Refusal;
use kilnyard_store::{Current, RunCommit, Store};
use serde_json::json;
use std::any::Any;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A package family, independent of any yard.
pub trait FamilyEntry: Sync {
    /// The name, which is also the name of its table in `kilnyard.toml`.
    fn name(&self) -> &'static str;

    /// Names of further tables of `kilnyard.toml` that only this family has.
    fn more_tables(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether a yard may have several targets: its repository then has room for all of them.
    fn has_targets(&self) -> bool {
        false
    }

    /// Parses the family's tables in a whole configuration, which must contain the first one.
    fn read(&self, text: &str) -> std::result::Result<Arc<dyn Family>, toml::de::Error>;

    /// The command that creates a yard of this family, for users who have none.
    fn init_remedy(&self) -> Remedy;

    /// Checks whether this machine has what every yard of this family needs.
    fn findings(&self) -> Vec<Finding>;

    /// The arguments of `kilnyard init NAME`.
    fn init_command(&self) -> Command;

    /// Works out the yard that these arguments describe.
    fn init(&self, folder: &Path, arguments: &ArgMatches, program: &dyn Program) -> Result<NewYard>;

    /// Adds the family's own commands, and its options of other commands, to the command line.
    fn commands(&self, all: Command) -> Command {
        all
    }

    /// Runs one of the family's own commands, by name or by option. Returns none if it is not one of them.
    fn perform(
        &self,
        _name: &str,
        _arguments: &ArgMatches,
        _program: &dyn Program,
    ) -> Result<Option<ExitCode>> {
        Ok(None)
    }

    /// Answers a query that runs too often to parse the full command line for it. Returns none if these words
    /// are not such a query.
    fn answer_at_once(&self, _words: &[OsString], _program: &dyn Program) -> Option<Result<ExitCode>> {
        None
    }

    /// The yard of `kilnyard demo`, if the family has one.
    fn demo(&self, _is_large: bool) -> Option<Demo> {
        None
    }

    /// Reads a dependency graph from the family's own file format. Returns none for any other text.
    fn read_graph(&self, _text: &str, _path: &Path) -> Option<Result<Graph>> {
        None
    }
}

/// A yard to be created.
pub struct NewYard {
    /// The text of `kilnyard.toml`, already checked.
    pub configuration: String,
    /// A description of the yard, printed once it exists.
    pub made: String,
    /// The command that users run next in it.
    pub next: &'static str,
    /// The work that follows.
    pub afterwards: Afterwards,
}

/// Runs once a yard has been created.
pub type Afterwards = Box<dyn FnOnce(&dyn Program) -> Result<()>>;

/// The yard of `kilnyard demo`.
pub struct Demo {
    /// The text of `kilnyard.toml`.
    pub configuration: String,
    /// The packages to build.
    pub packages: Vec<String>,
    /// The source of its index, as text that follows "fetch".
    pub index: String,
    /// Its repository, with an article, for messages.
    pub repository: &'static str,
}

/// The place of another target in the configuration of a yard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbour {
    /// It comes before this one.
    Earlier,
    /// It comes after this one.
    Later,
}

/// A package family as one yard configures it.
pub trait Family: Any + Debug + Send + Sync {
    /// This family with absolute paths: relative ones are resolved against the yard. `own` is the folder with the state, index and
    /// layers of its target, or of the yard.
    fn located(&self, yard: &Path, own: &Path) -> Arc<dyn Family>;

    /// The family's name, for messages.
    fn title(&self) -> &'static str;

    /// The target that the configuration asks for.
    fn target(&self) -> std::result::Result<Target, TargetError>;

    /// The digests of an output that indexes of the repository may name.
    fn listed_digests(&self, _yard: &Yard, output: &Output) -> Vec<String> {
        vec![output.sha256.clone()]
    }

    /// Checks the configuration. The error says what is invalid.
    fn check(&self) -> std::result::Result<(), String>;

    /// This family in a yard that also has the given target, if that makes a difference: what both would build is built
    /// once, by the earlier target, and they share a repository.
    fn beside(&self, _other: &dyn Family, _order: Neighbour) -> Option<Arc<dyn Family>> {
        None
    }

    /// This family in a yard that cross-builds packages, if that makes a difference on this machine.
    fn crossing(&self) -> Option<Arc<dyn Family>> {
        None
    }

    /// This family in a yard whose builds run in virtual machines, if these have another processor than this machine.
    fn emulated(&self) -> Option<Arc<dyn Family>> {
        None
    }

    /// The processor of the virtual machines of such a yard.
    fn processor(&self) -> Option<Processor> {
        None
    }

    /// Why this machine cannot build for the target, with the remedy. Absent if it can.
    fn foreign(&self) -> Option<(String, Remedy)> {
        None
    }

    /// Why workers on other machines cannot build for the target, although this machine can: a clause. Absent if they can.
    fn confined(&self) -> Option<&'static str> {
        None
    }

    /// Whether the repository has packages of this target.
    fn is_published(&self, yard: &Yard) -> bool {
        ["dists", "packages"].iter().any(|folder| {
            fs_err::read_dir(yard.repository().join(folder)).is_ok_and(|mut all| all.next().is_some())
        })
    }

    /// What packages of this family can be built against.
    fn builds_against(&self) -> &'static [Against] {
        &[Against::Set]
    }

    /// Fails for a name that no package of this family can have.
    fn check_name(&self, name: &str) -> Result<()>;

    /// Checks the options of single packages. The error says which one this family does not have, or what to use
    /// instead.
    fn check_package(&self, name: &NamePattern, options: &Options) -> std::result::Result<(), String>;

    /// The addresses of the archive that roots are made from.
    fn mirrors(&self) -> Vec<String>;

    /// What commands of packages that fetch get in their environment, if a mirror has distfiles at this address, which ends with a
    /// slash.
    fn fetch_environment(&self, distfiles: &str) -> Vec<(String, String)> {
        let _ = distfiles;
        Vec::new()
    }

    /// Files and trees with the checksums of distfiles.
    fn checksums(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// The tree's name and the architecture, for the report.
    fn tree_and_architecture(&self) -> (String, String);

    /// Updates the index. `say` receives progress messages.
    fn scan(&self, yard: &Yard, cancel: &AtomicBool, say: &(dyn Fn(&str) + Sync)) -> Result<Scanned>;

    /// Updates the index; other machines help if that is worth it.
    fn scan_with(
        &self,
        yard: &Yard,
        _: &dyn Helpers,
        cancel: &AtomicBool,
        say: &(dyn Fn(&str) + Sync),
    ) -> Result<Scanned> {
        self.scan(yard, cancel, say)
    }

    /// Fails if there is no index.
    fn check_scanned(&self, yard: &Yard) -> Result<()>;

    /// Makes the layers that roots start from, unless they exist.
    fn ensure_layers(&self, yard: &Yard, ids: &IdMap, cancel: &AtomicBool, say: &dyn Fn(&str)) -> Result<()>;

    /// The trees that roots start from, uppermost first. Absent unless all of them exist.
    fn trees(&self, yard: &Yard) -> Option<Vec<Artifact>>;

    /// The folders of this machine, by name, that the yard's orders may show.
    fn folders(&self) -> BTreeMap<String, PathBuf> {
        BTreeMap::new()
    }

    /// Shell pattern of the folder in the root where a package's source is unpacked.
    fn source_pattern(&self, package: &str) -> String;

    /// Packages of the set whose sources belong to the yard's owner, not to the archive or tree.
    fn own_packages(&self, _yard: &Yard) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// The origins, as text for people, of sources that are neither in the archive or tree nor named by their file,
    /// by package.
    fn provenances(&self, _yard: &Yard) -> Result<BTreeMap<String, String>> {
        Ok(BTreeMap::new())
    }

    /// The commits that the sources of the set are from, as far as they are from git.
    ///
    /// # Errors
    /// The configuration names no valid sources.
    fn commits(&self, _yard: &Yard) -> Result<Vec<RunCommit>> {
        Ok(Vec::new())
    }

    /// The commits between those of two runs, the newest first; those that concern one package, if it is named.
    ///
    /// # Errors
    /// The repository does not have them any more, or the package is not known.
    fn changes(
        &self,
        _yard: &Yard,
        _earlier: &[RunCommit],
        _later: &[RunCommit],
        _package: Option<&str>,
    ) -> Result<Vec<Change>> {
        Ok(Vec::new())
    }

    /// Compares a set with the lock of the yard, if there is one. A different set is an error if `is_strict`;
    /// otherwise the lock is rewritten, and `say` receives the differences.
    fn check_lock(&self, _yard: &Yard, _set: &Set, is_strict: bool, _say: &dyn Fn(&str)) -> Result<()> {
        match is_strict {
            true => Err(Error::usage(format!("yards of {} have no lock", self.title()))),
            false => Ok(()),
        }
    }

    /// Names of files in the yard's `index` that a lock needs.
    fn kept_index_files(&self, _yard: &Yard) -> Vec<String> {
        Vec::new()
    }

    /// Packages of the set that a commit, or a range of commits such as `A..B`, of the tree changes.
    ///
    /// # Errors
    /// There is no tree under version control, or it has no such commit.
    fn changed_packages(&self, _yard: &Yard, _commit: &str) -> Result<Vec<String>> {
        Err(Error::usage(format!("{} packages are in no tree under version control", self.title())))
    }

    /// Causes of failures that the family's packaging tools report in their own words.
    fn causes(&self) -> &'static [KnownCause] {
        &[]
    }

    /// Additional advice for files that the index lists and no mirror has any more.
    fn remedy_for_absent_files(&self) -> Option<&'static str> {
        None
    }

    /// All inputs of a set except the configuration and the package names, as text to hash.
    fn inputs(&self, yard: &Yard, names: Option<&[String]>) -> Result<String>;

    /// Reads the index and resolves the set.
    fn resolve(&self, yard: &Yard, distfiles: &FileStore) -> Result<Set>;

    /// The current recipe of a package, in the format of [`kilnyard_ecosystem::Stock::rescan`]. Absent if only
    /// a scan can find a changed recipe.
    fn rescan(
        &self,
        yard: &Yard,
        distfiles: &FileStore,
        package: &str,
        cancel: &AtomicBool,
    ) -> Result<Option<Vec<u8>>>;

    /// The configuration of a try of these changes, whose folder has a copy of the yard: that of the yard, changed.
    /// Whether it has to be scanned says [`Family::scans_tries`].
    fn tried(&self, _folder: &Path, _changes: &[String], _text: &str) -> Result<String> {
        Err(Error::usage(format!("changes of {} packages cannot be tried yet", self.title())))
    }

    /// The packages that changes are about, by name; none if they may be about all. What differs in its version is found
    /// without this.
    fn touched(&self, _tried: &Yard, _changes: &[String]) -> Option<Vec<String>> {
        None
    }

    /// Whether the index of a yard does not hold for a try of these changes.
    fn scans_tries(&self, _changes: &[String]) -> bool {
        false
    }

    /// Keeps what a build of a package found out that it requires, for later runs. `recipe` is a hash of the recipe that it was
    /// built from.
    fn keep_requirements(
        &self,
        _yard: &Yard,
        _package: &str,
        _recipe: &str,
        _requires: &[String],
    ) -> Result<()> {
        Ok(())
    }

    /// Takes note of what the current outputs provide beyond their recipes, for the next resolution. Returns whether that may differ
    /// from the last one.
    fn learn(&self, _yard: &Yard, _store: &dyn Store) -> Result<bool> {
        Ok(false)
    }

    /// Updates the index after a run that rescanned packages.
    fn keep_rescanned(&self, yard: &Yard, cancel: &AtomicBool, say: &(dyn Fn(&str) + Sync)) -> Result<()>;

    /// Recovers packages from the repository after the store was lost.
    fn recover(&self, yard: &Yard, store: &dyn Store, distfiles: &FileStore) -> Result<Recovered>;

    /// Hashes of distfiles that the repository uses in addition to the outputs of packages.
    fn published_files(&self, _yard: &Yard) -> HashSet<String> {
        HashSet::new()
    }

    /// Checks whether this machine has what yards with this configuration need.
    fn machine_findings(&self) -> Vec<Finding>;

    /// Checks what only this yard needs: its mirror, its tree.
    fn yard_findings(&self, yard: &Yard, cancel: &AtomicBool) -> Vec<Finding>;
}

impl dyn Family {
    /// The family's own type, for code specific to it. Absent in a yard of another family.
    pub fn of<F: Family>(&self) -> Option<&F> {
        (self as &dyn Any).downcast_ref()
    }

    /// Like `of`, or an error that names the family that the user asked for.
    pub fn require<F: Family>(&self, wanted: &str) -> Result<&F> {
        let title = self.title();
        let other =
            || Error::usage(format!("this is a yard of {title}, and the command needs one of {wanted}"));
        self.of().ok_or_else(other)
    }
}

/// A set of packages with exact dependencies, as its family resolved it.
pub trait Resolved: Any + Send + Sync {
    /// The set as plans and runs see it.
    fn ecosystem(&self) -> Arc<dyn Ecosystem>;

    /// The repository with all outputs that exist.
    fn to_publish<'a>(
        &'a self,
        yard: &'a Yard,
        store: &'a dyn Store,
        distfiles: &'a FileStore,
        terms: &PublicationTerms,
    ) -> Result<ToPublish<'a>>;

    /// Signs packages that have signatures of their own, as far as they are new. Returns those that the signer refuses.
    fn sign_packages(
        &self,
        _yard: &Yard,
        _store: &dyn Store,
        _distfiles: &FileStore,
        _signing: &Signing,
    ) -> Result<Vec<RefusedPackage>> {
        Ok(Vec::new())
    }

    /// Writes the family's own reports of the last run.
    fn write_reports(&self, _yard: &Yard, _store: &dyn Store) -> Result<()> {
        Ok(())
    }
}

/// A resolved set that can be shared.
#[derive(Clone)]
pub struct Set(Arc<dyn Resolved>);

impl Set {
    /// Wraps a family's resolved set.
    pub fn new(resolved: impl Resolved) -> Set {
        Set(Arc::new(resolved))
    }

    /// The set as plans and runs see it.
    pub fn ecosystem(&self) -> Arc<dyn Ecosystem> {
        self.0.ecosystem()
    }

    /// The family's own type, for code specific to it. Absent in a yard of another family.
    pub fn of<R: Resolved>(&self) -> Option<&R> {
        (&*self.0 as &dyn Any).downcast_ref()
    }

    /// Publishes all outputs that exist. A signer on another machine that is away delays it, which is noted.
    ///
    /// # Errors
    /// The repository cannot be written or signed.
    pub fn publish(&self, yard: &Yard, store: &dyn Store, distfiles: &FileStore) -> Result<Publishing> {
        let publishing = self.publish_now(yard, store, distfiles)?;
        delayed::note(yard, publishing.delay())?;
        Ok(publishing)
    }

    fn publish_now(&self, yard: &Yard, store: &dyn Store, distfiles: &FileStore) -> Result<Publishing> {
        let signing = match Signing::reach(yard)? {
            Reached::Here(signing) => signing,
            Reached::Away(reason) => return Ok(Publishing::Delayed(reason)),
        };
        let _lock = yard.lock_repository()?;
        let mut terms = PublicationTerms {
            public_key: signing.public_armored().to_owned(),
            package_key: signing.public_of_packages().to_owned(),
            fingerprint: signing.fingerprint(),
            ..Default::default()
        };
        let mut refused = self.0.sign_packages(yard, store, distfiles, &signing)?;
        loop {
            let to_publish = self.0.to_publish(yard, store, distfiles, &terms)?;
            let error = match to_publish.publish(&signing) {
                Ok(published) => return Ok(Publishing::Done(Published { refused, ..published })),
                Err(error) => error,
            };
            if let Some(reason) = delay_of(&error).filter(|_| yard.config.signer.is_some()) {
                return Ok(Publishing::Delayed(reason));
            }
            // One package does not stop the rest: it stays as it is published.
            let before = terms.withheld.len();
            if let Some(refusals) = refusals_of(&error) {
                for refusal in refusals {
                    let part = |text: &Option<String>| text.clone().unwrap_or_default();
                    terms.withheld.insert((part(&refusal.package), part(&refusal.variant)));
                    refused.push(RefusedPackage::of(refusal));
                }
            }
            if terms.withheld.len() == before {
                return Err(error).context(Kind::Machine, "publish");
            }
        }
    }

    /// Lists what publishing would do.
    pub fn plan_publication(&self, yard: &Yard, store: &dyn Store, distfiles: &FileStore) -> Result<String> {
        let signing = Signing::open(yard)?;
        let public_key = signing.public_armored().to_owned();
        let terms = PublicationTerms { public_key, ..Default::default() };
        let to_publish = self.0.to_publish(yard, store, distfiles, &terms)?;
        Ok(to_publish.publication.to_string())
    }

    /// Writes the family's own reports of the last run.
    pub fn write_reports(&self, yard: &Yard, store: &dyn Store) -> Result<()> {
        self.0.write_reports(yard, store)
    }
}

/// The result of a scan. A part of the index is a suite or a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Parts with a new index.
    pub changed: Vec<String>,
    /// Parts whose index has not changed.
    pub unchanged: Vec<String>,
}

impl Scanned {
    /// Prints the result for people, or as JSON.
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

/// The result of publishing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// Whether the repository changed.
    pub is_changed: bool,
    /// Number of binary packages in the repository.
    pub packages: u64,
    /// The file or program that `line` is for.
    pub line_for: &'static str,
    /// The line that makes a machine install from the repository.
    pub line: String,
    /// The fingerprint of the signing key.
    pub fingerprint: String,
    /// Problems, one sentence each.
    pub remarks: Vec<String>,
    /// What the signer refused. These packages stay as they were published, or out of the repository.
    pub refused: Vec<RefusedPackage>,
}

/// A package that the signer refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedPackage {
    /// A sentence without its full stop.
    pub reason: String,
    /// Names the refusal for an approval; absent if only the policy can allow it.
    pub id: Option<String>,
}

impl RefusedPackage {
    /// What a refusal says.
    pub fn of(refusal: &Refusal) -> RefusedPackage {
        RefusedPackage { reason: refusal.reason.clone(), id: refusal.id.clone() }
    }

    /// The reason, and what approves it.
    pub fn line(&self, yard: &Yard) -> String {
        match &self.id {
            Some(id) if yard.config.signer.is_some() => {
                format!(
                    "{} (on the signer's machine: kilnyard keys --signer FOLDER approve {id})",
                    self.reason
                )
            }
            Some(id) => format!("{} ({})", self.reason, words::command(&format!("keys approve {id}"))),
            None => self.reason.clone(),
        }
    }
}

/// What a publication depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublicationTerms {
    /// The armored public keys that verify its signatures.
    pub public_key: String,
    /// What verifies the signatures of packages that are signed one by one; empty if it is not known.
    pub package_key: String,
    /// The fingerprint of the key that signs first.
    pub fingerprint: String,
    /// Packages whose new outputs the signer refuses, by name and variant.
    pub withheld: HashSet<(String, String)>,
}

impl PublicationTerms {
    /// Whether the signer refuses an output. Its variant is its architecture, or its version where a repository may have several.
    pub fn withholds(&self, output: &Output, variant: &str) -> bool {
        self.withheld.contains(&(output.name.clone(), variant.to_owned()))
    }
}

/// How a publication ended without an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Publishing {
    /// The repository is what it must be.
    Done(Published),
    /// The signer is away, for this reason. The repository is what it was.
    Delayed(String),
}

impl Publishing {
    /// Why it is delayed; none if it is done.
    pub fn delay(&self) -> Option<&str> {
        match self {
            Publishing::Done(_) => None,
            Publishing::Delayed(reason) => Some(reason),
        }
    }

    /// The result, if it is done.
    pub fn done(self) -> Option<Published> {
        match self {
            Publishing::Done(published) => Some(published),
            Publishing::Delayed(_) => None,
        }
    }
}

/// Why the signer is away, if that is why a publication failed.
fn delay_of(error: &PublishError) -> Option<String> {
    let PublishError::Sign { source } = error else { return None };
    match source.downcast_ref::<ClientError>()? {
        ClientError::Away(error) => Some(error.to_string()),
        _ => None,
    }
}

/// The packages that the signer refuses, if that is why a publication failed.
fn refusals_of(error: &PublishError) -> Option<Vec<&Refusal>> {
    let PublishError::Sign { source } = error else { return None };
    source.downcast_ref::<ClientError>()?.refused_packages()
}

/// A repository about to be published.
pub struct ToPublish<'a> {
    /// The operations to perform.
    pub publication: Publication,
    /// Finds the builds that its packages are from, for the signer.
    pub builds: Box<dyn Builds + 'a>,
    /// Number of binary packages in the published repository.
    pub packages: u64,
    /// The file or program that `line` is for.
    pub line_for: &'static str,
    /// The line that makes a machine install from the repository.
    pub line: String,
    /// Problems, one sentence each.
    pub remarks: Vec<String>,
}

impl ToPublish<'_> {
    /// Publishes it, signed by the yard's signer.
    ///
    /// # Errors
    /// The signer refuses a package, or cannot sign; the repository cannot be written.
    pub fn publish(self, signing: &Signing) -> std::result::Result<Published, PublishError> {
        let signer = signing.with(&*self.builds);
        let is_changed = self.publication.execute(&signer)?.is_new;
        let ToPublish { packages, line_for, line, mut remarks, .. } = self;
        remarks.extend(signing.warnings());
        Ok(Published {
            is_changed,
            packages,
            line_for,
            line,
            fingerprint: signing.fingerprint(),
            remarks,
            refused: Vec::new(),
        })
    }
}

/// Packages found in the repository that the store lacks or has only in lower versions.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The packages. Their keys match no build, so the next build compares its content with them.
    pub packages: Vec<Current>,
    /// Packages that could not be recovered, one sentence each.
    pub remarks: Vec<String>,
}

/// Describes an output whose file is missing or damaged, and what is published in its place.
pub fn broken_output_note(output: &Output, package: &str, published: Option<&str>) -> String {
    let file = &output.file;
    let instead = match published {
        Some(name) if name == file => "it stays published as it is".to_owned(),
        Some(name) => format!("{name} stays published in its place"),
        None => "it is not published".to_owned(),
    };
    let remedy = words::command(&format!("build --force {package}"));
    format!("{file} is missing or damaged: {instead} ({remedy})")
}

/// Scans if that was never done, so that commands also work in a new yard.
pub fn ensure_scanned(yard: &Yard, cancel: &AtomicBool, say: &(dyn Fn(&str) + Sync)) -> Result<()> {
    if yard.config.family.check_scanned(yard).is_ok() {
        return Ok(());
    }
    let _lock = yard.lock()?;
    yard.config.family.scan(yard, cancel, say).map(|_| ())
}
