//! pkgsrc: a tree asked in a root, its bootstrap kit, sets of its directories, a repository for `pkg_add`.

pub mod asking;
pub mod config;
mod doctor;
pub mod kit;
pub mod pbulk;
pub mod publish;
pub mod reports;
mod root_make;
pub mod scan;
pub mod set;

pub use config::{Pkgsrc, Template, one_line, template};

use crate::debian::{self, base, base_findings, mirror_finding};
use kilnyard_ecosystem::Ecosystem;
use kilnyard_ecosystem::pkgsrc::scan_file::{is_category, is_location};
use kilnyard_ecosystem::pkgsrc::{self as rules, Workshop};
use kilnyard_mirror::DistfileStore;
use kilnyard_model::order::RootOrder;
use kilnyard_root::IdMap;
use kilnyard_store::Store;
use kilnyard_yard::error::{Error, Result};
use kilnyard_yard::family::{self, Family, Recovered, Resolved, Scanned, Set, ToPublish};
use kilnyard_yard::finding::Finding;
use kilnyard_yard::key::Key;
use kilnyard_yard::yard::Yard;
use serde::Deserialize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// pkgsrc, before there is a yard.
pub struct Entry;

/// The name of the family, for people.
pub const TITLE: &str = "pkgsrc";

impl family::Entry for Entry {
    fn name(&self) -> &'static str {
        "pkgsrc"
    }

    fn read(&self, text: &str) -> std::result::Result<Arc<dyn Family>, toml::de::Error> {
        #[derive(Deserialize)]
        struct File {
            pkgsrc: Pkgsrc,
        }
        toml::from_str(text).map(|file: File| Arc::new(file.pkgsrc) as Arc<dyn Family>)
    }

    fn init_hint(&self) -> &'static str {
        "kilnyard init pkgsrc, which makes one"
    }

    fn findings(&self) -> Vec<Finding> {
        family::Entry::findings(&debian::Entry)
    }
}

impl Family for Pkgsrc {
    fn located(&self, yard: &Path) -> Arc<dyn Family> {
        let mut located = self.clone();
        located.locate(yard);
        Arc::new(located)
    }

    fn title(&self) -> &'static str {
        TITLE
    }

    fn check(&self) -> std::result::Result<(), String> {
        self.check_table()
    }

    fn check_name(&self, name: &str) -> Result<()> {
        match is_location(name) || is_category(name) {
            true => Ok(()),
            false => Err(Error::usage(format!("`{name}` cannot be a directory of a tree"))
                .hint("category/package, such as mail/mutt, or a category, such as mail")),
        }
    }

    fn mirrors(&self) -> Vec<String> {
        self.root.mirror.all()
    }

    fn tree_and_architecture(&self) -> (String, String) {
        (self.tree.display().to_string(), self.root.architecture.clone())
    }

    fn scan(&self, yard: &Yard, cancel: &AtomicBool, say: &(dyn Fn(&str) + Sync)) -> Result<Scanned> {
        scan::scan(yard, self, cancel, say)
    }

    fn check_scanned(&self, yard: &Yard) -> Result<()> {
        scan::Index::open(yard).map(drop)
    }

    fn ensure_layers(&self, yard: &Yard, ids: &IdMap, cancel: &AtomicBool, say: &dyn Fn(&str)) -> Result<()> {
        let base = base::ensure(yard, &self.root, ids, cancel, say)?;
        kit::ensure(yard, self, &base, ids, cancel, say).map(drop)
    }

    fn layers(&self, yard: &Yard) -> Option<Vec<String>> {
        let base = base::find(yard, &self.root)?;
        Some(vec![kit::find(yard, self, &base)?.layer, base.layer])
    }

    fn shown(&self, yard: &Yard) -> Result<RootOrder> {
        let base = base::find(yard, &self.root).unwrap_or_default();
        Ok(rules::shown(&set::settings(yard, self, &base)?))
    }

    fn source_pattern(&self, package: &str) -> String {
        rules::source_pattern(package)
    }

    fn inputs(&self, yard: &Yard, _names: Option<&[String]>) -> Result<String> {
        set::inputs(yard, self, base::find(yard, &self.root).as_ref())
    }

    fn resolve(&self, yard: &Yard, _distfiles: &DistfileStore) -> Result<Set> {
        let base = base::find(yard, &self.root).unwrap_or_default();
        Ok(Set::new(TreeSet::new(set::resolve(yard, self, &base)?)))
    }

    fn rescan(
        &self,
        yard: &Yard,
        _distfiles: &DistfileStore,
        package: &str,
        cancel: &AtomicBool,
    ) -> Result<Option<Vec<u8>>> {
        scan::rescan(yard, self, package, cancel).map(Some)
    }

    fn keep_rescanned(&self, yard: &Yard, cancel: &AtomicBool, say: &(dyn Fn(&str) + Sync)) -> Result<()> {
        scan::scan(yard, self, cancel, say).map(drop)
    }

    fn recover(&self, yard: &Yard, store: &dyn Store, distfiles: &DistfileStore) -> Result<Recovered> {
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

/// A set of directories of a tree.
pub struct TreeSet {
    workshop: Arc<Workshop>,
}

impl TreeSet {
    /// Of what was resolved.
    pub fn new(workshop: Workshop) -> TreeSet {
        TreeSet { workshop: Arc::new(workshop) }
    }

    /// The set by its own type.
    pub fn workshop(&self) -> &Workshop {
        &self.workshop
    }
}

impl Resolved for TreeSet {
    fn ecosystem(&self) -> Arc<dyn Ecosystem> {
        self.workshop.clone()
    }

    fn to_publish(
        &self,
        yard: &Yard,
        store: &dyn Store,
        distfiles: &DistfileStore,
        key: &Key,
    ) -> Result<ToPublish> {
        publish::make(yard, store, &self.workshop, distfiles, key)
    }

    fn write_reports(&self, yard: &Yard, store: &dyn Store) -> Result<()> {
        reports::write(yard, store, &self.workshop)
    }
}
