//! The bound on what a worker's folder keeps between builds.
//!
//! A yard keeps what its configuration says. A worker on another machine gets whatever the builds of a farm name, for
//! years: base roots, trees of recipes, sources, outputs of other workers, layers of dependencies, logs. All of this can
//! be fetched or made again, so the least recently used entries are removed while everything together exceeds a bound.
//!
//! ```text
//! kinds --entries--> excess() --names--> kinds --removed--> ... until the bound is met, or nothing more can go
//! ```
//!
//! Each [`Kind`] lists its entries and removes one by name. [`excess`] decides, without input or output.
//!
//! Invariants: what a running build has named stays, as does what the root of a failed build needs; the kind checks both
//! again when it removes an entry, while no build can begin to use it. A kill at any time leaves an entry complete, or
//! under a name that never counts as one; [`Worker::clean_up`] removes such remains at the next start.
//!
//! Known downside: running builds keep what they need even if that exceeds the bound, and roots do not count.

mod files;
mod logs;
mod trees;
mod uses;
mod work;

#[cfg(test)]
mod tests;

pub use uses::InUse;
pub(crate) use uses::Uses;

use crate::roots::{layers_of_failed, orders_of_failed};
use crate::{LeftOver, Worker};
use kilnyard_mirror::Sha256Hex;
use kilnyard_model::holdings::Holdings;
use kilnyard_model::order::{FolderContent, Input, RootOrder, TestOrder};
use kilnyard_protocol::Lease;
use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::time::SystemTime;

/// The most problems that are reported.
const PROBLEMS_MAX: usize = 8;

/// What kind of thing an entry is, for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Tree,
    Layer,
    File,
    Log,
    Work,
}

/// Something that is removed as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Unique within its kind.
    pub(crate) name: String,
    /// Its space on the disk.
    pub(crate) bytes: u64,
    /// When it was last used.
    pub(crate) used: SystemTime,
    /// Whether something needs it now.
    pub(crate) is_needed: bool,
}

/// Entries of one kind.
pub(crate) trait Kind {
    fn what(&self) -> What;

    /// All entries.
    fn entries(&self) -> io::Result<Vec<Entry>>;

    /// Removes an entry, unless something has come to need it. Returns whether it is gone.
    fn discard(&self, name: &str) -> io::Result<bool>;
}

/// What a worker's folder keeps, and what was removed for the bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tidied {
    /// What it keeps. What counts against the bound is its size of everything.
    pub kept: Holdings,
    /// The number of removed entries.
    pub removed: u64,
    /// Their size.
    pub removed_bytes: u64,
    /// Why entries could not be removed, a few of them.
    pub problems: Vec<String>,
}

/// What all these entries are.
fn kept(kinds: &[(What, Vec<Entry>)]) -> Holdings {
    let mut kept = Holdings::default();
    let mut trees = Vec::new();
    for (what, entry) in kinds.iter().flat_map(|(what, entries)| entries.iter().map(move |e| (what, e))) {
        kept.bytes = kept.bytes.saturating_add(entry.bytes);
        match what {
            What::Tree => trees.extend(Sha256Hex::parse(&entry.name).map(|name| (entry.used, name))),
            What::Layer => {
                kept.layers += 1;
                kept.layers_bytes = kept.layers_bytes.saturating_add(entry.bytes);
            }
            What::File => {
                kept.files += 1;
                kept.files_bytes = kept.files_bytes.saturating_add(entry.bytes);
            }
            What::Log | What::Work => {}
        }
    }
    trees.sort_by(|one, other| other.cmp(one));
    kept.trees = trees.into_iter().map(|(_, name)| name).collect();
    kept
}

/// The entries to remove so that the rest meets the bound, the least recently used first: the place of their kind, and
/// of the entry in it.
fn excess(kinds: &[(What, Vec<Entry>)], bytes_max: u64) -> Vec<(usize, usize)> {
    let places = kinds.iter().enumerate().flat_map(|(kind, (_, entries))| {
        entries.iter().enumerate().map(move |(place, entry)| (entry, (kind, place)))
    });
    let mut bytes = places.clone().fold(0_u64, |sum, (entry, _)| sum.saturating_add(entry.bytes));
    let mut free: Vec<(&Entry, (usize, usize))> = places.filter(|(entry, _)| !entry.is_needed).collect();
    // Of those of the same age, the largest.
    free.sort_by_key(|(entry, _)| (entry.used, u64::MAX - entry.bytes));
    let mut chosen = Vec::new();
    for (entry, place) in free {
        if bytes <= bytes_max {
            break;
        }
        // An entry without a size frees nothing.
        if entry.bytes > 0 {
            bytes -= entry.bytes.min(bytes);
            chosen.push(place);
        }
    }
    chosen
}

/// Now, as files record it.
#[expect(clippy::disallowed_methods, reason = "it is compared with times of files alone")]
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}

/// The hashes that a root names.
fn named(root: &RootOrder) -> impl Iterator<Item = &str> {
    let folders = root.folders.iter().filter_map(|folder| folder.content.as_ref());
    let in_folders = folders.flat_map(|content| -> Vec<&str> {
        match content {
            FolderContent::Tree(tree) => vec![tree.sha256.as_str()],
            FolderContent::Layers(layers) => layers.iter().map(|layer| layer.sha256.as_str()).collect(),
            FolderContent::Files(files) => files.iter().map(|file| file.artifact.sha256.as_str()).collect(),
        }
    });
    root.layers.iter().map(|tree| tree.sha256.as_str()).chain(in_folders).chain(hashes(&root.inputs))
}

fn hashes(inputs: &[Input]) -> impl Iterator<Item = &str> {
    inputs.iter().map(|input| input.sha256.as_str())
}

impl Worker {
    /// Keeps what a lease names from being removed until the result is dropped. Take it before looking for any of that.
    pub fn using(&self, lease: &Lease) -> InUse {
        let test = lease.to_test.as_ref().map(|to_test| &to_test.order);
        let names = named(&lease.order.root).chain(test.into_iter().flat_map(named_by_test));
        let logs = logs::name(lease.run, &lease.order.package);
        self.hold(names.map(str::to_owned).chain([logs]).collect())
    }

    /// Keeps what a test names.
    pub fn using_for_test(&self, test: &TestOrder) -> InUse {
        self.hold(named_by_test(test).map(str::to_owned).collect())
    }

    fn hold(&self, names: Vec<String>) -> InUse {
        Uses::hold(&self.uses, names)
    }

    /// Records on the disk that these trees and files are used now.
    pub fn touch<'a>(
        &self,
        trees: impl Iterator<Item = &'a Sha256Hex>,
        files: impl Iterator<Item = &'a Sha256Hex>,
    ) {
        trees.for_each(|sha256| self.trees.touch(sha256));
        files.for_each(|sha256| files::touch(&self.distfiles, sha256));
    }

    /// Changes whenever a build begins or ends to use something.
    pub fn uses_so_far(&self) -> u64 {
        self.uses.changes()
    }

    /// Removes what an interrupted process left in the worker's folder. Call it before the first build. Returns the
    /// folders that were set aside.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn clean_up(&self) -> io::Result<Vec<LeftOver>> {
        files::remove_parts(self.distfiles.artifacts().folder())?;
        files::remove_parts(self.trees.archives().folder())?;
        trees::remove_parts(&self.settings.yard, &self.settings.ids)
    }

    /// Removes the least recently used entries until all together have at most `bytes_max(BYTES)`, where `BYTES` is
    /// what they have now. Builds may run.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn tidy(&self, bytes_max: &dyn Fn(u64) -> u64) -> io::Result<Tidied> {
        let (yard, ids) = (self.settings.yard.as_path(), &self.settings.ids);
        let kinds: [&dyn Kind; 5] = [
            &trees::KeptTrees { trees: &self.trees, yard, ids, uses: &self.uses },
            &*self.layers,
            &files::KeptFiles { store: &self.distfiles, yard, uses: &self.uses },
            &logs::KeptLogs { yard, uses: &self.uses },
            &*self.kept,
        ];
        tidy(&kinds, bytes_max)
    }
}

fn named_by_test(test: &TestOrder) -> impl Iterator<Item = &str> {
    named(&test.root).chain(hashes(&test.inputs))
}

fn tidy(kinds: &[&dyn Kind], bytes_max: &dyn Fn(u64) -> u64) -> io::Result<Tidied> {
    let (mut removed, mut removed_bytes, mut problems) = (0, 0, Vec::new());
    let (mut limit, mut tried) = (None, HashSet::new());
    loop {
        let listed = kinds.iter().map(|kind| Ok((kind.what(), kind.entries()?)));
        let listed: Vec<(What, Vec<Entry>)> = listed.collect::<io::Result<_>>()?;
        let kept = kept(&listed);
        // Once: removing frees space, which may be what the limit depends on.
        let limit = *limit.get_or_insert_with(|| bytes_max(kept.bytes));
        let mut is_done = true;
        for (kind, place) in excess(&listed, limit) {
            let entry = &listed[kind].1[place];
            // Once: an entry that is still listed cannot be removed.
            if !tried.insert((kind, entry.name.clone())) {
                continue;
            }
            match kinds[kind].discard(&entry.name) {
                Ok(true) => {
                    is_done = false;
                    removed += 1;
                    removed_bytes += entry.bytes;
                }
                Ok(false) => {}
                Err(error) if problems.len() < PROBLEMS_MAX => problems.push(error.to_string()),
                Err(_) => {}
            }
        }
        // Removing a set of dependencies makes the packages below it free, so there may be more to remove.
        if is_done {
            return Ok(Tidied { kept, removed, removed_bytes, problems });
        }
    }
}

/// The hashes that roots of failed builds need.
fn needed_by_failed(yard: &Path) -> io::Result<HashSet<String>> {
    let orders = orders_of_failed(yard)?;
    let mut needed: HashSet<String> = orders.iter().flat_map(named).map(str::to_owned).collect();
    // A root may have more layers than its order.
    let layers = layers_of_failed(yard)?;
    needed.extend(layers.iter().filter_map(|layer| trees::hash_of(layer.file_name()?.to_str()?)));
    Ok(needed)
}
