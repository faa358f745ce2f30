//! Maps the layers and folders that an order names to paths of this machine.

use crate::Worker;
use crate::roots::without_links;
use crate::trees::{TreeError, Trees};
use kilnyard_mirror::FileStore;
use kilnyard_model::artifact::Artifact;
use kilnyard_model::order::{FolderContent, FolderFile, RootOrder, SharedFolder};
use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};

/// A folder of this machine that is mounted in a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownFolder {
    /// Absolute path on this machine.
    pub source: PathBuf,
    /// Path inside the root.
    pub inside: String,
}

/// The layers and folders of an order, as paths of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Local {
    /// Relative to the yard, the uppermost first.
    pub layers: Vec<String>,
    /// Folders that are mounted in each root.
    pub folders: Vec<ShownFolder>,
    /// Folders of several layers, each with its path inside the root.
    pub(crate) layered: Vec<LayeredFolder>,
    /// Folders that are made in each root, of links to stored files.
    pub(crate) composed: Vec<Composed>,
}

/// A folder of several layers that is mounted in a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LayeredFolder {
    /// Absolute paths on this machine, the uppermost first.
    pub(crate) layers: Vec<PathBuf>,
    /// Path inside the root.
    pub(crate) inside: String,
}

/// A folder composed of stored files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Composed {
    /// Path inside the root.
    pub(crate) inside: String,
    files: Vec<FolderFile>,
}

impl Local {
    /// Resolves an order; `folders` are this machine's, by name. Creates nothing: layers may still have to be unpacked.
    pub fn of(
        order: &RootOrder,
        trees: &Trees,
        yard: &Path,
        folders: &BTreeMap<String, PathBuf>,
    ) -> io::Result<Local> {
        let mut local =
            Local { layers: order.layers.iter().map(|tree| trees.layer(tree)).collect(), ..Local::default() };
        for folder in &order.folders {
            let inside = folder.inside.clone();
            match &folder.content {
                Some(FolderContent::Files(files)) => {
                    local.composed.push(Composed { inside, files: files.clone() });
                }
                Some(FolderContent::Tree(tree)) => {
                    local.folders.push(ShownFolder { source: yard.join(trees.layer(tree)), inside })
                }
                Some(FolderContent::Layers(layers)) => {
                    let layers = layers.iter().map(|tree| yard.join(trees.layer(tree))).collect();
                    local.layered.push(LayeredFolder { layers, inside });
                }
                None => {
                    let source = named(folders, folder)?.to_owned();
                    local.folders.push(ShownFolder { source, inside });
                }
            }
        }
        Ok(local)
    }

    /// These folders with other layers.
    pub(crate) fn on(&self, layers: &[String]) -> Local {
        Local { layers: layers.to_vec(), ..self.clone() }
    }
}

/// Finds a folder of this machine by name. Fails if the machine has none of this name.
pub(crate) fn named<'a>(
    folders: &'a BTreeMap<String, PathBuf>,
    folder: &SharedFolder,
) -> io::Result<&'a Path> {
    let lacks = || io::Error::other(format!("this machine has no folder `{}`", folder.name));
    folders.get(&folder.name).map(PathBuf::as_path).ok_or_else(lacks)
}

impl Composed {
    /// Makes the folder of hard links to files of the store, which all users can read.
    pub(crate) fn make(&self, folder: &Path, store: &FileStore) -> io::Result<()> {
        fs_err::create_dir_all(folder)?;
        for file in &self.files {
            if !is_inside(&file.name) {
                return Err(io::Error::other(format!("`{}` is not a file name below a folder", file.name)));
            }
            let (source, target) = (store.path(&file.artifact.sha256), folder.join(&file.name));
            fs_err::create_dir_all(target.parent().unwrap_or(folder))?;
            without_links(folder, Path::new(&file.name).parent().unwrap_or(Path::new("")))?;
            match fs_err::hard_link(&source, &target) {
                // The store is on another file system, or the file has the maximum number of links.
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    fs_err::copy(&source, &target)?;
                }
                linked => linked?,
            }
        }
        Ok(())
    }
}

/// Whether a relative name stays below its folder.
pub(crate) fn is_inside(file: &str) -> bool {
    !file.is_empty() && Path::new(file).components().all(|part| matches!(part, Component::Normal(_)))
}

impl Worker {
    /// Resolves an order, and unpacks its trees.
    pub(crate) fn local(&self, order: &RootOrder) -> Result<Local, TreeError> {
        let shown = order.folders.iter().flat_map(|folder| match &folder.content {
            Some(FolderContent::Tree(tree)) => vec![tree.clone()],
            Some(FolderContent::Layers(layers)) => layers.clone(),
            _ => Vec::new(),
        });
        let trees: Vec<Artifact> = order.layers.iter().cloned().chain(shown).collect();
        self.trees.ensure(&trees)?;
        Ok(Local::of(order, &self.trees, &self.settings.yard, &self.settings.folders)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_leave_their_folder_are_rejected() {
        assert!(is_inside("a-1.tar.gz") && is_inside("dir/a-1.tar.gz"));
        for name in ["", "/etc/passwd", "../x", "a/../../x", "./x/.."] {
            assert!(!is_inside(name), "{name}");
        }
    }
}
