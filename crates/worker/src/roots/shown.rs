//! Folders that commands of a root see in addition to its layers and inputs, and their paths outside.

use super::RootFolder;
use crate::local::{LayeredFolder, Local, ShownFolder};
use kilnyard_model::order::{BuildOrder, RootOrder};
use kilnyard_root::probe;
use kilnyard_root::sandbox::RunError;
use std::io;
use std::path::{Path, PathBuf};

/// See the module documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown {
    /// Read-only folders of the machine.
    pub(super) folders: Vec<ShownFolder>,
    /// Read-only folders of several layers.
    pub(super) layered: Vec<LayeredFolder>,
    /// Folders that commands may write to.
    pub(super) writable: Vec<ShownFolder>,
    /// Path of the work folder inside the root, if only that folder is in memory.
    pub(super) work_inside: Option<String>,
}

impl RootFolder {
    /// Adds the folders and programs of a build's order.
    pub(crate) fn of_order(self, order: &BuildOrder, local: &Local) -> RootFolder {
        let mut root = self.of_root_order(&order.root, local);
        root.owners.fakeroots.clone_from(&order.fakeroots);
        root.shown.work_inside = order.work.as_ref().map(|work| work.inside.clone());
        root
    }

    /// Adds the folders of an order.
    pub fn of_root_order(self, order: &RootOrder, local: &Local) -> RootFolder {
        let composed = local.composed.iter().enumerate();
        let composed = composed.map(|(number, folder)| ShownFolder {
            source: self.composed(number),
            inside: folder.inside.clone(),
        });
        let folders: Vec<ShownFolder> = local.folders.iter().cloned().chain(composed).collect();
        let mut root = self.showing(&folders).sealing(&order.sealed);
        root.shown.layered.clone_from(&local.layered);
        root.terms.open.clone_from(&order.open);
        root
    }

    /// The path of a folder made of links for this root.
    pub(crate) fn composed(&self, number: usize) -> PathBuf {
        self.path().join(format!("folder-{number}"))
    }

    /// Mounts folders that nothing writes to read-only and without the overlay, if only one layer has them.
    pub fn sealing(mut self, folders: &[String]) -> RootFolder {
        let sealed: Vec<ShownFolder> = folders.iter().filter_map(|inside| self.sealed(inside)).collect();
        self.shown.folders.extend(sealed);
        self
    }

    /// The folder in the only layer that has it; absent if several have it. An overlay makes opening a file slower.
    fn sealed(&self, inside: &str) -> Option<ShownFolder> {
        let below = Path::new(inside).strip_prefix("/").ok()?;
        let lower = self.plan.lower().iter().map(|layer| self.yard.join(layer));
        let mut found = lower.filter(|layer| layer.join(below).symlink_metadata().is_ok());
        let layer = found.next().filter(|_| found.next().is_none())?;
        let source = without_links(&layer, below).ok().filter(|folder| folder.is_dir())?;
        Some(ShownFolder { source, inside: inside.to_owned() })
    }

    /// Mounts folders of the machine in the root, read-only.
    pub fn showing(mut self, folders: &[ShownFolder]) -> RootFolder {
        self.shown.folders = folders.to_vec();
        self
    }

    /// Adds a folder at this path inside that the root's own root user may write to; outside, it is
    /// [`RootFolder::added`].
    pub fn adding_at(self, inside: &str) -> Result<RootFolder, RunError> {
        let added = self.added();
        fs_err::create_dir(&added)?;
        probe::give_to_root(&added, &self.ids)?;
        Ok(self.writing_to(&ShownFolder { source: added, inside: inside.to_owned() }))
    }

    /// Lets commands of the root write to a folder of the machine that belongs to the root's own root user.
    pub fn writing_to(mut self, folder: &ShownFolder) -> RootFolder {
        self.shown.writable.push(folder.clone());
        self
    }

    /// The path, outside the root, of the folder that [`RootFolder::adding_at`] adds.
    pub fn added(&self) -> PathBuf {
        self.path().join("added")
    }

    /// The path, outside the root, of a folder of written files. Fails if any part of the path is a symbolic link: a
    /// build may have made one, and it would lead elsewhere outside the root than inside. Call this only when no
    /// process of the root runs.
    pub fn written_without_links(&self, inside: &str) -> io::Result<PathBuf> {
        let (base, below) = self.place_of(inside);
        without_links(&base, &below)
    }

    /// The path, outside the root, of a written file or folder, without a check for links.
    pub fn written(&self, inside: &str) -> PathBuf {
        let (base, below) = self.place_of(inside);
        base.join(below)
    }

    /// The outside folder that contains a path of the root, and the path relative to it.
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

/// Joins a path to a folder that a build has written to, if no part of the path is a symbolic link.
pub(crate) fn without_links(base: &Path, below: &Path) -> io::Result<PathBuf> {
    let mut path = base.to_owned();
    for part in below.components() {
        path.push(part);
        if fs_err::symlink_metadata(&path)?.is_symlink() {
            return Err(io::Error::other(format!("{} is a symbolic link", path.display())));
        }
    }
    Ok(path)
}
