//! Binary packages as layers of roots: each unpacked once, configured together, and kept.
//!
//! A [`Layering`] knows how a family's packages are unpacked, and what its database of installed packages has to say for
//! a stack of such layers to be what its own package manager would have made. It decides; a worker makes the layers,
//! stacks them, and runs the commands. What a package manager does to a package beyond putting its files where they
//! belong cannot be done ahead: such packages are named with the reason, and are left to the package manager.

use crate::CollectError;
use kilnyard_model::order::{CommandOrder, Dependency, InputText};
use std::collections::BTreeSet;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Files that are read of a layer: databases of the largest systems have some 20 MiB.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// Layers that lie over each other, seen from outside of any root. Their files were written by packages, so that no link
/// in them is followed.
#[derive(Clone, Copy)]
pub struct Stack<'a> {
    /// Their folders, the uppermost first.
    pub layers: &'a [PathBuf],
    /// Who a user outside is inside.
    pub user_inside: &'a dyn Fn(u32) -> Option<u32>,
    /// Which group a group outside is inside.
    pub group_inside: &'a dyn Fn(u32) -> Option<u32>,
}

impl Stack<'_> {
    /// What is at a path, without its link followed: its place in the uppermost layer that has it.
    pub fn find(&self, path: &str) -> Option<(PathBuf, Metadata)> {
        self.layers.iter().find_map(|layer| look(layer, path))
    }

    /// Permissions, user and group of what is at a path, as they are inside.
    pub fn attributes(&self, metadata: &Metadata) -> Option<(u32, u32, u32)> {
        let user = (self.user_inside)(metadata.uid())?;
        Some((metadata.mode() & 0o7777, user, (self.group_inside)(metadata.gid())?))
    }

    /// The file at a path; none where there is none. Bytes that are no text are replaced.
    pub fn read(&self, path: &str) -> io::Result<Option<String>> {
        match self.find(path) {
            Some((found, metadata)) if metadata.is_file() => {
                if metadata.len() > FILE_BYTES_MAX {
                    return Err(io::Error::other(format!("{path} of a root has {} bytes", metadata.len())));
                }
                Ok(Some(String::from_utf8_lossy(&fs_err::read(found)?).into_owned()))
            }
            Some(_) => Err(io::Error::other(format!("{path} of a root is no file"))),
            None => Ok(None),
        }
    }

    /// The names in a folder, in whatever layer they are.
    pub fn names(&self, path: &str) -> BTreeSet<String> {
        let folders = self.layers.iter().filter_map(|layer| look(layer, path));
        let entries = folders.filter(|(_, metadata)| metadata.is_dir()).flat_map(|(folder, _)| {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
        });
        entries.collect()
    }
}

/// What is at a path of one layer, if no folder on the way to it is a link.
fn look(layer: &Path, path: &str) -> Option<(PathBuf, Metadata)> {
    let mut found = layer.to_owned();
    let mut metadata = None;
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if metadata.as_ref().is_some_and(|above: &Metadata| !above.is_dir()) {
            return None;
        }
        found.push(part);
        metadata = Some(std::fs::symlink_metadata(&found).ok()?);
    }
    metadata.map(|metadata| (found, metadata))
}

/// A package, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The package.
    pub package: &'a Dependency,
    /// What [`Layering::describe`] said.
    pub description: &'a str,
}

/// How packages are unpacked into folders of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unpacking {
    /// Files for the root's folder of inputs.
    pub texts: Vec<InputText>,
    /// The commands.
    pub commands: Vec<CommandOrder>,
}

/// How packages whose layers are stacked become installed ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Composition {
    /// Those that can be layers, by their place.
    pub layered: Vec<usize>,
    /// Those that the package manager has to install, and has to install before the others are looked at again; with the
    /// reason of each.
    pub by_manager: Vec<(usize, String)>,
    /// Files for the root's folder of inputs.
    pub texts: Vec<InputText>,
    /// The commands that configure what is stacked.
    pub commands: Vec<CommandOrder>,
}

/// See the module. All methods decide; none of them runs a command.
pub trait Layering: Send + Sync {
    /// What has to be known of the binary package in a file, as text that is kept beside its layer.
    fn describe(&self, file: &Path) -> Result<String, CollectError>;

    /// A command that tells whether a package can be a layer, in a root of the layers that builds begin with, where it may write
    /// below `/kilnyard/added`: it can if the command ends well and writes nothing elsewhere. None where that is known.
    fn trial(&self, part: Part) -> Option<CommandOrder>;

    /// The description of a package whose trial went well.
    fn harmless(&self, description: &str) -> String;

    /// How packages are unpacked, in a root of the layers that builds begin with, each into the folder below `/kilnyard/added` that is
    /// named by its SHA-256. Those that cannot be layers are left out; the places of the others.
    fn unpack(&self, packages: &[Part]) -> (Vec<usize>, Unpacking);

    /// How packages whose layers lie on a stack, the first one uppermost, are made known and configured.
    fn compose(&self, below: &Stack, packages: &[Part]) -> io::Result<Composition>;

    /// The commands by which the package manager installs these packages, with all of [`Dependency`] that they need.
    fn install(&self, packages: &[&Dependency]) -> Vec<CommandOrder>;

    /// The names of the packages that a stack has installed.
    fn installed(&self, stack: &Stack) -> io::Result<BTreeSet<String>>;
}
