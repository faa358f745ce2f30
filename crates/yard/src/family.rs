//! What each package family does in its own way: reading its tree, its roots, its sets, its repository.
//!
//! Everything above works with a [`Set`] and knows no family.

pub mod debian;
pub mod pkgsrc;

use crate::base;
use crate::config::Family;
use crate::error::{Context, Error, Kind, Result};
use crate::key::Key;
use crate::words;
use crate::yard::Yard;
use kilnyard_ecosystem::Ecosystem;
use kilnyard_ecosystem::debian::{
    Workshop as DebianWorkshop, stages::shown as debian_shown,
    stages::source_pattern as debian_source_pattern,
};
use kilnyard_ecosystem::pkgsrc::{
    Workshop as PkgsrcWorkshop, shown as pkgsrc_shown, source_pattern as pkgsrc_source_pattern,
};
use kilnyard_mirror::DistfileStore;
use kilnyard_model::order::{Output, RootOrder};
use kilnyard_publish::Publication;
use kilnyard_root::IdMap;
use kilnyard_store::{Current, Store};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A resolved set.
#[derive(Clone)]
pub enum Set {
    /// Of Debian sources.
    Debian(Arc<DebianWorkshop>),
    /// Of a pkgsrc tree.
    Pkgsrc(Arc<PkgsrcWorkshop>),
}

impl Set {
    /// The set, as whoever plans and builds it sees it.
    pub fn ecosystem(&self) -> Arc<dyn Ecosystem> {
        match self {
            Set::Debian(workshop) => workshop.clone(),
            Set::Pkgsrc(workshop) => workshop.clone(),
        }
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

/// What is said of an output whose file is gone from the yard, or is not whole, and what is published in its place.
pub(crate) fn broken_remark(output: &Output, package: &str, published: Option<&str>) -> String {
    let file = &output.file;
    let instead = match published {
        Some(name) if name == file => "it stays published as it is".to_owned(),
        Some(name) => format!("{name} stays published in its place"),
        None => "it is not published".to_owned(),
    };
    let remedy = words::command(&format!("build --force {package}"));
    format!("{file} is gone from the yard, or is not whole: {instead} ({remedy})")
}

impl ToPublish {
    /// Does it, with the yard's key.
    pub fn publish(self, key: &Key) -> Result<Published> {
        let is_changed = self.publication.execute(key).context(Kind::Machine, "publish")?.is_new;
        let ToPublish { packages, line_for, line, remarks, .. } = self;
        Ok(Published { is_changed, packages, line_for, line, fingerprint: key.fingerprint(), remarks })
    }
}

/// Brings the index up to date. `say` is told what is done.
pub fn scan(yard: &Yard, cancel: &AtomicBool, say: &(dyn Fn(&str) + Sync)) -> Result<Scanned> {
    match &yard.config.family {
        Family::Debian(_) => debian::scan::scan(yard, cancel, say),
        Family::Pkgsrc(pkgsrc) => pkgsrc::scan::scan(yard, pkgsrc, cancel, say),
    }
}

/// Scans where that was never done, so that a question about a new yard has an answer.
pub fn ensure_scanned(yard: &Yard, cancel: &AtomicBool, say: &(dyn Fn(&str) + Sync)) -> Result<()> {
    if check_scanned(yard).is_ok() {
        return Ok(());
    }
    let _lock = yard.lock()?;
    scan(yard, cancel, say).map(|_| ())
}

/// An error if there is no index.
pub fn check_scanned(yard: &Yard) -> Result<()> {
    match &yard.config.family {
        Family::Debian(_) => debian::scan::Index::open(yard).map(drop),
        Family::Pkgsrc(_) => pkgsrc::scan::Index::open(yard).map(drop),
    }
}

/// Makes the layers that roots begin with, if they are not there.
pub fn ensure_layers(yard: &Yard, ids: &IdMap, cancel: &AtomicBool, say: &dyn Fn(&str)) -> Result<()> {
    let base = base::ensure(yard, ids, cancel, say)?;
    match &yard.config.family {
        Family::Debian(_) => Ok(()),
        Family::Pkgsrc(pkgsrc) => pkgsrc::kit::ensure(yard, pkgsrc, &base, ids, cancel, say).map(|_| ()),
    }
}

/// Makes a layer that was found damaged anew. An error where that makes another one, since the archive has other packages now.
pub fn remake_layer(yard: &Yard, layer: &str, cancel: &AtomicBool) -> Result<()> {
    ensure_layers(yard, &yard.ids(), cancel, &|_| {})?;
    match layers(yard).is_some_and(|layers| layers.iter().any(|other| other == layer)) {
        true => Ok(()),
        false => Err(Error::new(Kind::Machine, "the archive has other packages for it now")),
    }
}

/// The layers that roots begin with, the uppermost first; none if they are not all there.
pub fn layers(yard: &Yard) -> Option<Vec<String>> {
    let base = base::find(yard)?;
    match &yard.config.family {
        Family::Debian(_) => Some(vec![base.layer]),
        Family::Pkgsrc(pkgsrc) => Some(vec![pkgsrc::kit::find(yard, pkgsrc, &base)?.layer, base.layer]),
    }
}

/// What every root of a build shows besides its layers and inputs.
pub fn shown(yard: &Yard) -> Result<RootOrder> {
    match &yard.config.family {
        Family::Debian(_) => Ok(debian_shown()),
        Family::Pkgsrc(pkgsrc) => {
            let base = base::find(yard).unwrap_or_default();
            Ok(pkgsrc_shown(&pkgsrc::set::settings(yard, pkgsrc, &base)?))
        }
    }
}

/// Where the source of a package is unpacked in its root, as a pattern for a shell.
pub fn source_pattern(yard: &Yard, package: &str) -> String {
    match &yard.config.family {
        Family::Debian(_) => debian_source_pattern(),
        Family::Pkgsrc(_) => pkgsrc_source_pattern(package),
    }
}

/// Everything besides the configuration and the names of packages that a set follows from, as a text to be hashed.
pub fn inputs(yard: &Yard, names: Option<&[String]>) -> Result<String> {
    let base = base::find(yard);
    match &yard.config.family {
        Family::Debian(_) => debian::set::inputs(yard, base.as_ref(), names),
        Family::Pkgsrc(pkgsrc) => pkgsrc::set::inputs(yard, pkgsrc, base.as_ref()),
    }
}

/// Reads the index and resolves the set.
pub fn resolve(yard: &Yard, distfiles: &DistfileStore) -> Result<Set> {
    let base = base::find(yard).unwrap_or_default();
    Ok(match &yard.config.family {
        Family::Debian(debian) => Set::Debian(Arc::new(debian::set::resolve(yard, debian, base, distfiles)?)),
        Family::Pkgsrc(pkgsrc) => Set::Pkgsrc(Arc::new(pkgsrc::set::resolve(yard, pkgsrc, &base)?)),
    })
}

/// Publishes everything that is there.
pub fn publish(yard: &Yard, store: &dyn Store, set: &Set, distfiles: &DistfileStore) -> Result<Published> {
    let key = Key::read(yard)?;
    to_publish(yard, store, set, distfiles, &key)?.publish(&key)
}

/// What the repository knows of packages that a store does not have, or only in lower versions.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The packages, with keys that no build has: the next one is built to compare its content.
    pub packages: Vec<Current>,
    /// What could not be recovered, a sentence each.
    pub remarks: Vec<String>,
}

/// Reads the repository for a store that was lost.
pub fn recover(yard: &Yard, store: &dyn Store, distfiles: &DistfileStore) -> Result<Recovered> {
    match &yard.config.family {
        Family::Debian(debian) => debian::recover::recover(yard, debian, store, distfiles),
        Family::Pkgsrc(_) => match resolve(yard, distfiles)? {
            Set::Pkgsrc(workshop) => pkgsrc::publish::recover(yard, store, &workshop, distfiles),
            Set::Debian(_) => Ok(Recovered::default()),
        },
    }
}

/// Says what publishing would do.
pub fn plan_publication(
    yard: &Yard,
    store: &dyn Store,
    set: &Set,
    distfiles: &DistfileStore,
) -> Result<String> {
    Ok(to_publish(yard, store, set, distfiles, &Key::read(yard)?)?.publication.to_string())
}

fn to_publish(
    yard: &Yard,
    store: &dyn Store,
    set: &Set,
    distfiles: &DistfileStore,
    key: &Key,
) -> Result<ToPublish> {
    match set {
        Set::Debian(workshop) => debian::publish::make(yard, store, workshop, distfiles, key),
        Set::Pkgsrc(workshop) => pkgsrc::publish::make(yard, store, workshop, distfiles, key),
    }
}

/// Writes the reports that are a family's own, of the last run.
pub fn write_reports(yard: &Yard, store: &dyn Store, set: &Set) -> Result<()> {
    match set {
        Set::Debian(_) => Ok(()),
        Set::Pkgsrc(workshop) => pkgsrc::reports::write(yard, store, workshop),
    }
}

/// The tree's name and the architecture, for a report.
pub fn tree_and_architecture(yard: &Yard) -> (String, String) {
    match &yard.config.family {
        Family::Debian(debian) => (debian.release.clone(), debian.architecture()),
        Family::Pkgsrc(pkgsrc) => (pkgsrc.tree.display().to_string(), pkgsrc.root.architecture.clone()),
    }
}
