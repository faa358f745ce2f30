//! What commands of a root see besides its layers and inputs, and where that is outside.

use super::RootFolder;
use crate::local::{Local, ShownFolder};
use kilnyard_model::order::{BuildOrder, RootOrder};
use kilnyard_root::probe;
use kilnyard_root::sandbox::RunError;
use std::io;
use std::path::{Path, PathBuf};

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown {
    /// Folders of the machine, for reading.
    pub(super) folders: Vec<ShownFolder>,
    /// Folders that commands may write in.
    pub(super) writable: Vec<ShownFolder>,
    /// Where commands see the folder in memory that they work in, if only that one is there.
    pub(super) work_inside: Option<String>,
}

impl RootFolder {
    /// What belongs to the root of a build besides its files.
    pub(crate) fn of_order(self, order: &BuildOrder, local: &Local) -> RootFolder {
        let mut root = self.of_root_order(&order.root, local);
        root.owners.fakeroots.clone_from(&order.fakeroots);
        root.shown.work_inside = order.work.as_ref().map(|work| work.inside.clone());
        root
    }

    /// Shows what belongs to a root besides its layers and inputs.
    pub fn of_root_order(self, order: &RootOrder, local: &Local) -> RootFolder {
        let composed = local.composed.iter().enumerate();
        let composed = composed.map(|(number, folder)| ShownFolder {
            source: self.composed(number),
            inside: folder.inside.clone(),
        });
        let folders: Vec<ShownFolder> = local.folders.iter().cloned().chain(composed).collect();
        let mut root = self.showing(&folders).sealing(&order.sealed);
        root.terms.open.clone_from(&order.open);
        root
    }

    /// Where a folder lies that is made of links for this root.
    pub(crate) fn composed(&self, number: usize) -> PathBuf {
        self.path().join(format!("folder-{number}"))
    }

    /// Shows folders, inside, that nothing writes to without the overlay, for reading, where one layer alone has them.
    pub fn sealing(mut self, folders: &[String]) -> RootFolder {
        let sealed: Vec<ShownFolder> = folders.iter().filter_map(|inside| self.sealed(inside)).collect();
        self.shown.folders.extend(sealed);
        self
    }

    /// A folder as the one layer has it that has it: an overlay costs something for each file that is opened.
    fn sealed(&self, inside: &str) -> Option<ShownFolder> {
        let below = Path::new(inside).strip_prefix("/").ok()?;
        let lower = self.plan.lower().iter().map(|layer| self.yard.join(layer));
        let mut found = lower.filter(|layer| layer.join(below).symlink_metadata().is_ok());
        let layer = found.next().filter(|_| found.next().is_none())?;
        let source = without_links(&layer, below).ok().filter(|folder| folder.is_dir())?;
        Some(ShownFolder { source, inside: inside.to_owned() })
    }

    /// Shows folders of the machine in the root, for reading.
    pub fn showing(mut self, folders: &[ShownFolder]) -> RootFolder {
        self.shown.folders = folders.to_vec();
        self
    }

    /// Gives the root's own root a folder to write in, at this path inside; [`RootFolder::added`] is the same from
    /// outside.
    pub fn adding_at(self, inside: &str) -> Result<RootFolder, RunError> {
        let added = self.added();
        fs_err::create_dir(&added)?;
        probe::give_to_root(&added, &self.ids)?;
        Ok(self.writing_to(&ShownFolder { source: added, inside: inside.to_owned() }))
    }

    /// Lets commands of the root write in a folder of the machine that belongs to the root's own root.
    pub fn writing_to(mut self, folder: &ShownFolder) -> RootFolder {
        self.shown.writable.push(folder.clone());
        self
    }

    /// The folder that commands of the root write in, seen from outside.
    pub fn added(&self) -> PathBuf {
        self.path().join("added")
    }

    /// A folder of the root as it was written, seen from outside. A build may have put links in its way, which lead
    /// elsewhere outside than they do inside: there must be none. To be asked when nothing of the root runs any more.
    pub fn written_without_links(&self, inside: &str) -> io::Result<PathBuf> {
        let (base, below) = self.place_of(inside);
        without_links(&base, &below)
    }

    /// A path of the root as it was written, seen from outside.
    pub fn written(&self, inside: &str) -> PathBuf {
        let (base, below) = self.place_of(inside);
        base.join(below)
    }

    /// The folder that holds a path of the root, seen from outside, and where in it that is.
    fn place_of(&self, inside: &str) -> (PathBuf, PathBuf) {
        let inside = Path::new(inside);
        let below = |folder: &str| inside.strip_prefix(folder).ok().map(Path::to_owned);
        if let (Some(work), Some(folder)) = (self.plan.work_folder(), &self.shown.work_inside)
            && let Some(below) = below(folder)
        {
            return (self.seen(work), below);
        }
        let bound = self
            .shown
            .writable
            .iter()
            .find_map(|folder| Some((folder.source.clone(), below(&folder.inside)?)));
        let in_root = || inside.strip_prefix("/").unwrap_or(inside).to_owned();
        bound.unwrap_or_else(|| (self.seen(&self.plan.written), in_root()))
    }
}

/// A path below a folder that belongs to a build, if no part of it is a link.
pub(crate) fn without_links(base: &Path, below: &Path) -> io::Result<PathBuf> {
    let mut path = base.to_owned();
    for part in below.components() {
        path.push(part);
        if fs_err::symlink_metadata(&path)?.is_symlink() {
            return Err(io::Error::other(format!("{} is a link", path.display())));
        }
    }
    Ok(path)
}
