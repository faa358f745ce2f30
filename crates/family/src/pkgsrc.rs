//! pkgsrc: scans of a tree in a root, its bootstrap kit, sets of its directories, a repository for `pkg_add`.

pub mod asking;
mod awaited;
mod bob_history;
mod changed;
pub mod config;
mod doctor;
mod graph;
mod helped_make;
mod history;
mod index;
mod init;
pub mod kit;
mod options;
mod pbulk;
mod plan_pbulk;
pub mod publish;
pub mod reports;
mod resolve;
mod root_make;
pub mod scan;
mod scan_files;
mod scan_tree;
pub mod set;

pub use config::{Pkgsrc, Template, one_line, template};

use crate::arguments::{extend, read};
use crate::debian::{self, base, base_findings, mirror_finding};
use crate::git::{TreeCommit, place};
use clap::{ArgMatches, Args, Command, Subcommand};
use kilnyard_ecosystem::pkgsrc::scan_file::{is_category, is_location};
use kilnyard_ecosystem::pkgsrc::{self as rules, Workshop};
use kilnyard_ecosystem::{Ecosystem, NamePattern, Options};
use kilnyard_mirror::FileStore;
use kilnyard_model::artifact::Artifact;
use kilnyard_model::digests::PKG_HASH;
use kilnyard_model::graph::Graph;
use kilnyard_model::order::Output;
use kilnyard_model::target::{Target, TargetError};
use kilnyard_root::IdMap;
use kilnyard_store::{RunCommit, Store};
use kilnyard_yard::commits::Change;
use kilnyard_yard::config::ALL;
use kilnyard_yard::config::edit::{self, OnConflict};
use kilnyard_yard::error::{Context, Error, Kind, Result};
use kilnyard_yard::family::{
    self, Family, NewYard, PublicationTerms, Recovered, RefusedPackage, Resolved, Scanned, Set, ToPublish,
};
use kilnyard_yard::finding::Finding;
use kilnyard_yard::helpers::{Helpers, NoHelpers};
use kilnyard_yard::program::Program;
use kilnyard_yard::remedy::Remedy;
use kilnyard_yard::signing::Signing;
use kilnyard_yard::tries;
use kilnyard_yard::yard::Yard;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The part of the pkgsrc family that works without a yard.
pub struct PkgsrcEntry;

/// Names the table in `kilnyard.toml` and the `init` subcommand.
const NAME: &str = "pkgsrc";

/// The name of the family in messages.
pub const TITLE: &str = "pkgsrc";

impl family::FamilyEntry for PkgsrcEntry {
    fn name(&self) -> &'static str {
        NAME
    }

    fn read(&self, text: &str) -> std::result::Result<Arc<dyn Family>, toml::de::Error> {
        #[derive(Deserialize)]
        struct File {
            pkgsrc: Pkgsrc,
        }
        toml::from_str(text).map(|file: File| Arc::new(file.pkgsrc) as Arc<dyn Family>)
    }

    fn init_remedy(&self) -> Remedy {
        Remedy::command("init pkgsrc").then(", which makes one")
    }

    fn findings(&self) -> Vec<Finding> {
        family::FamilyEntry::findings(&debian::DebianEntry)
    }

    fn init_command(&self) -> Command {
        init::Init::augment_args(Command::new(NAME)).about("A yard of packages from a pkgsrc tree")
    }

    fn init(&self, folder: &Path, arguments: &ArgMatches, program: &dyn Program) -> Result<NewYard> {
        read::<init::Init>(arguments)?.plan(folder, program)
    }

    fn commands(&self, all: Command) -> Command {
        let resolve = options::Resolve::augment_args(Command::new("resolve"))
            .about("Resolve the dependencies of a scan file, without a yard");
        let index = options::Index::augment_subcommands(Command::new("index"))
            .about("Make and query look-up files, which find a package without parsing the others")
            .subcommand_required(true)
            .arg_required_else_help(true);
        all.subcommand(resolve)
            .subcommand(index)
            .mut_subcommand("scan", extend::<options::ScanOptions>)
            .mut_subcommand("plan", extend::<options::PlanOptions>)
            .mut_subcommand("history", extend::<options::HistoryOptions>)
    }

    fn perform(&self, name: &str, arguments: &ArgMatches, program: &dyn Program) -> Result<Option<ExitCode>> {
        let as_json = || arguments.get_flag("json");
        Ok(match name {
            "resolve" => Some(resolve::run(&read(arguments)?, program)?),
            "index" => Some(index::run(&read(arguments)?, program)?),
            "scan" => {
                let scan: options::ScanOptions = read(arguments)?;
                match &scan.tree {
                    Some(tree) => Some(scan_tree::run(tree, &scan, as_json(), program)?),
                    None if scan.import.is_some() || scan.export.is_some() => {
                        Some(scan_files::run(&program.yard()?, &scan, as_json(), program)?)
                    }
                    None => None,
                }
            }
            "plan" => match read::<options::PlanOptions>(arguments)?.pbulk_rules {
                true => Some(plan_pbulk::run(&program.yard()?, as_json(), program)?),
                false => None,
            },
            "history" => match read::<options::HistoryOptions>(arguments)?.import_bob {
                Some(file) => {
                    history::import_bob(&program.yard()?, &file, program)?;
                    Some(ExitCode::SUCCESS)
                }
                None => None,
            },
            _ => None,
        })
    }

    fn answer_at_once(&self, words: &[OsString], program: &dyn Program) -> Option<Result<ExitCode>> {
        index::look_up_if_asked(words, program)
    }

    fn read_graph(&self, text: &str, path: &Path) -> Option<Result<Graph>> {
        graph::is_scan(text).then(|| graph::read(text, path))
    }
}

impl Family for Pkgsrc {
    fn located(&self, yard: &Path, own: &Path) -> Arc<dyn Family> {
        let mut located = self.clone();
        located.locate(yard, own);
        Arc::new(located)
    }

    fn title(&self) -> &'static str {
        TITLE
    }

    fn target(&self) -> std::result::Result<Target, TargetError> {
        self.root.target(rules::FAMILY)
    }

    fn listed_digests(&self, _yard: &Yard, output: &Output) -> Vec<String> {
        let sha512 = rules::description::sha512(&output.description).map(str::to_owned);
        sha512.into_iter().chain(output.digests.get(PKG_HASH).cloned()).collect()
    }

    fn check(&self) -> std::result::Result<(), String> {
        self.check_table()
    }

    fn check_name(&self, name: &str) -> Result<()> {
        if name == ALL {
            return Err(Error::usage("`all` is listed as a package name")
                .hint("packages = \"all\" in kilnyard.toml, without brackets, to build everything"));
        }
        match is_location(name) || is_category(name) {
            true => Ok(()),
            false => Err(Error::usage(format!("`{name}` is not a package directory or category"))
                .hint("category/package, such as mail/mutt, or a category, such as mail")),
        }
    }

    fn check_package(&self, name: &NamePattern, options: &Options) -> std::result::Result<(), String> {
        config::check_options(name, options)
    }

    fn mirrors(&self) -> Vec<String> {
        self.root.mirror.all()
    }

    /// `MASTER_SITE_OVERRIDE` is asked before all other sites (mk/fetch).
    fn fetch_environment(&self, distfiles: &str) -> Vec<(String, String)> {
        vec![("MASTER_SITE_OVERRIDE".to_owned(), distfiles.to_owned())]
    }

    fn checksums(&self) -> Vec<PathBuf> {
        vec![self.tree.clone()]
    }

    fn tree_and_architecture(&self) -> (String, String) {
        (self.shown(), self.root.architecture.clone())
    }

    fn scan(&self, yard: &Yard, cancel: &AtomicBool, say: &(dyn Fn(&str) + Sync)) -> Result<Scanned> {
        scan::scan(yard, self, &NoHelpers, cancel, say)
    }

    fn scan_with(
        &self,
        yard: &Yard,
        helpers: &dyn Helpers,
        cancel: &AtomicBool,
        say: &(dyn Fn(&str) + Sync),
    ) -> Result<Scanned> {
        scan::scan(yard, self, helpers, cancel, say)
    }

    fn check_scanned(&self, yard: &Yard) -> Result<()> {
        scan::Index::open(yard).map(drop)
    }

    fn ensure_layers(&self, yard: &Yard, ids: &IdMap, cancel: &AtomicBool, say: &dyn Fn(&str)) -> Result<()> {
        let base = base::ensure(yard, &self.root, ids, cancel, say)?;
        kit::ensure(yard, self, &base, ids, cancel, say).map(drop)
    }

    fn trees(&self, yard: &Yard) -> Option<Vec<Artifact>> {
        let base = base::find(yard, &self.root)?;
        Some(vec![kit::find(yard, self, &base)?.tree?, base.tree?])
    }

    fn folders(&self) -> BTreeMap<String, PathBuf> {
        let folders = [(rules::TREE_FOLDER, &self.tree), (rules::DISTFILES_FOLDER, &self.distfiles)];
        folders.map(|(name, folder)| (name.to_owned(), folder.clone())).into()
    }

    fn source_pattern(&self, package: &str) -> String {
        rules::source_pattern(package)
    }

    fn changed_packages(&self, yard: &Yard, commit: &str) -> Result<Vec<String>> {
        changed::changed_packages(yard, self, commit)
    }

    fn commits(&self, yard: &Yard) -> Result<Vec<RunCommit>> {
        let commit = changed::tree_commit(yard, self);
        let described = |commit: TreeCommit| place::of_run(self.shown(), commit);
        Ok(commit.map(described).into_iter().collect())
    }

    fn changes(
        &self,
        yard: &Yard,
        earlier: &[RunCommit],
        later: &[RunCommit],
        package: Option<&str>,
    ) -> Result<Vec<Change>> {
        changed::changes(yard, self, earlier, later, package)
    }

    fn inputs(&self, yard: &Yard, _names: Option<&[String]>) -> Result<String> {
        set::inputs(yard, self, base::find(yard, &self.root).as_ref())
    }

    fn resolve(&self, yard: &Yard, _distfiles: &FileStore) -> Result<Set> {
        let base = base::find(yard, &self.root).unwrap_or_default();
        Ok(Set::new(TreeSet::new(set::resolve(yard, self, &base)?)))
    }

    fn rescan(
        &self,
        yard: &Yard,
        _distfiles: &FileStore,
        package: &str,
        cancel: &AtomicBool,
    ) -> Result<Option<Vec<u8>>> {
        scan::rescan(yard, self, package, cancel).map(Some)
    }

    fn tried(&self, folder: &Path, changes: &[String], text: &str) -> Result<String> {
        let tree = folder.join("tree");
        tries::copy(&self.tree, &tree)?;
        for change in changes {
            let patch = std::path::absolute(change).context(Kind::Usage, format!("find {change}"))?;
            tries::apply_patch(&patch, &tree)?;
        }
        let path = tree.to_str().ok_or_else(|| Error::usage("the path of the yard is not text"))?.to_owned();
        let edited = edit::set(text, "pkgsrc", &[("tree", path.as_str())], OnConflict::Replace);
        Ok(edited.map_err(|refusal| Error::usage(refusal.to_string()))?.text)
    }

    fn touched(&self, _tried: &Yard, changes: &[String]) -> Option<Vec<String>> {
        let mut all = Vec::new();
        for change in changes {
            let patch = fs_err::read_to_string(change).ok()?;
            for line in patch.lines() {
                let Some(path) = line.strip_prefix("+++ ").or_else(|| line.strip_prefix("--- ")) else {
                    continue;
                };
                let path = path.split('\t').next().unwrap_or(path).trim_end();
                if path == "/dev/null" {
                    continue;
                }
                // Without the first folder, as `patch -p1` does.
                let mut parts = path.split('/').skip(1);
                let location = [parts.next()?, parts.next()?].join("/");
                // Other files are for all packages: those in `mk`, and what is gone.
                if !is_location(&location) || !self.tree.join(&location).join("Makefile").is_file() {
                    return None;
                }
                all.push(location);
            }
        }
        Some(all)
    }

    fn scans_tries(&self, _changes: &[String]) -> bool {
        true
    }

    fn keep_rescanned(&self, yard: &Yard, cancel: &AtomicBool, say: &(dyn Fn(&str) + Sync)) -> Result<()> {
        scan::scan(yard, self, &NoHelpers, cancel, say).map(drop)
    }

    fn recover(&self, yard: &Yard, store: &dyn Store, distfiles: &FileStore) -> Result<Recovered> {
        let base = base::find(yard, &self.root).unwrap_or_default();
        publish::recover(yard, store, &set::resolve(yard, self, &base)?, distfiles)
    }

    fn machine_findings(&self) -> Vec<Finding> {
        base_findings(&self.root.keyring)
    }

    fn yard_findings(&self, yard: &Yard, cancel: &AtomicBool) -> Vec<Finding> {
        let mirror = mirror_finding(yard, &self.root, cancel);
        vec![mirror, doctor::tree(self), doctor::kit(self), doctor::make_program(self)]
    }
}

/// A resolved set of a tree's packages.
pub struct TreeSet {
    workshop: Arc<Workshop>,
}

impl TreeSet {
    /// Wraps a resolved workshop.
    pub fn new(workshop: Workshop) -> TreeSet {
        TreeSet { workshop: Arc::new(workshop) }
    }

    /// The set as pkgsrc's own type, for commands that only this family has.
    pub fn workshop(&self) -> &Workshop {
        &self.workshop
    }
}

impl Resolved for TreeSet {
    fn ecosystem(&self) -> Arc<dyn Ecosystem> {
        self.workshop.clone()
    }

    fn sign_packages(
        &self,
        yard: &Yard,
        store: &dyn Store,
        distfiles: &FileStore,
        signing: &Signing,
    ) -> Result<Vec<RefusedPackage>> {
        publish::sign(yard, store, &self.workshop, distfiles, signing)
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

    fn write_reports(&self, yard: &Yard, store: &dyn Store) -> Result<()> {
        reports::write(yard, store, &self.workshop)
    }
}
