//! How packages get into roots: through the family's package manager, or as layers that are each unpacked once,
//! then stacked and configured together, and kept.
//!
//! A [`Manager`] installs packages in a root. A [`Layering`] knows how to unpack a family's packages, and how its
//! database of installed packages must read for a stack of such layers to equal the package manager's own work. It
//! only decides; a worker makes the layers, stacks them, and runs the commands. Anything that a package manager
//! does to a package beyond putting its files in place cannot be done ahead of time: such packages are listed with
//! the reason and left to the package manager.

use crate::CollectError;
use kilnyard_model::order::{CommandOrder, Dependency, InputText};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A function of scripts that unpack packages; see there.
pub(crate) const MERGE_USR: &str = include_str!("layering/merge_usr.sh");
/// Limit for files read from a layer. The databases of the largest systems have about 20 MiB.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// A stack of layers, seen from outside any root. Packages wrote their files, so no link in them is followed.
#[derive(Clone, Copy)]
pub struct Stack<'a> {
    /// The layers' folders, topmost first.
    pub layers: &'a [PathBuf],
    /// Maps a user ID outside the root to the one inside.
    pub user_inside: &'a dyn Fn(u32) -> Option<u32>,
    /// Maps a group ID outside the root to the one inside.
    pub group_inside: &'a dyn Fn(u32) -> Option<u32>,
}

impl Stack<'_> {
    /// Finds a path in the topmost layer that has it, without following links.
    pub fn find(&self, path: &str) -> io::Result<Option<(PathBuf, Metadata)>> {
        for layer in self.layers {
            match look_up(layer, path)? {
                LayerLookup::There(found, metadata) => return Ok(Some((found, metadata))),
                LayerLookup::Gone => return Ok(None),
                LayerLookup::Nothing => {}
            }
        }
        Ok(None)
    }

    /// Permissions, user and group as seen inside the root; `None` if an ID is not mapped.
    pub fn attributes(&self, metadata: &Metadata) -> Option<(u32, u32, u32)> {
        let user = (self.user_inside)(metadata.uid())?;
        Some((metadata.mode() & 0o7777, user, (self.group_inside)(metadata.gid())?))
    }

    /// The content of the file at a path; `None` if it does not exist. Invalid UTF-8 is replaced.
    pub fn read(&self, path: &str) -> io::Result<Option<String>> {
        match self.find(path)? {
            Some((found, metadata)) if metadata.is_file() => {
                if metadata.len() > FILE_BYTES_MAX {
                    return Err(io::Error::other(format!(
                        "{path} of a root is too large: {} bytes",
                        metadata.len()
                    )));
                }
                Ok(Some(String::from_utf8_lossy(&fs_err::read(found)?).into_owned()))
            }
            Some(_) => Err(io::Error::other(format!("{path} of a root is not a file"))),
            None => Ok(None),
        }
    }

    /// The names in a folder, merged over all layers.
    pub fn names(&self, path: &str) -> io::Result<BTreeSet<String>> {
        let (mut names, mut gone) = (BTreeSet::new(), BTreeSet::new());
        for layer in self.layers {
            let folder = match look_up(layer, path)? {
                LayerLookup::There(folder, metadata) if metadata.is_dir() => folder,
                LayerLookup::Nothing => continue,
                LayerLookup::There(..) | LayerLookup::Gone => break,
            };
            for entry in fs_err::read_dir(&folder)? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                if is_whiteout(&entry.metadata()?) {
                    gone.insert(name);
                } else if !gone.contains(&name) {
                    names.insert(name);
                }
            }
            if is_opaque(&folder)? {
                break;
            }
        }
        Ok(names)
    }
}

/// The result of a lookup in one layer.
enum LayerLookup {
    There(PathBuf, Metadata),
    /// Removed by this layer: layers below do not matter.
    Gone,
    Nothing,
}

/// Finds a path in one layer, provided that no folder on the way is a link. An overlay marks a removed name with a
/// character device of number 0, and a folder that hides those below it with an attribute ("Overlay Filesystem",
/// "whiteouts and opaque directories", in the kernel's documentation).
fn look_up(layer: &Path, path: &str) -> io::Result<LayerLookup> {
    let mut found = layer.to_owned();
    let mut seen = None;
    let mut hides = false;
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if seen.as_ref().is_some_and(|above: &Metadata| !above.is_dir()) {
            return Ok(LayerLookup::Gone);
        }
        if seen.is_some() {
            hides |= is_opaque(&found)?;
        }
        found.push(part);
        seen = match std::fs::symlink_metadata(&found) {
            Ok(metadata) if is_whiteout(&metadata) => return Ok(LayerLookup::Gone),
            Ok(metadata) => Some(metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(if hides { LayerLookup::Gone } else { LayerLookup::Nothing });
            }
            Err(error) => return Err(error),
        };
    }
    Ok(seen.map_or(LayerLookup::Nothing, |metadata| LayerLookup::There(found, metadata)))
}

fn is_whiteout(metadata: &Metadata) -> bool {
    metadata.file_type().is_char_device() && metadata.rdev() == 0
}

fn is_opaque(folder: &Path) -> io::Result<bool> {
    let mut value = [0; 1];
    match rustix::fs::lgetxattr(folder, "user.overlay.opaque", &mut value) {
        Ok(length) => Ok(value[..length] == *b"y"),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The top-level folders that are links into `/usr` on a merged-`/usr` system.
pub(crate) const OF_PROGRAMS: [&str; 7] = ["bin", "sbin", "lib", "lib32", "lib64", "libo32", "libx32"];

/// A path on a merged-`/usr` system, where the top-level program folders are links into `/usr`.
pub(crate) fn merged_usr(path: &str) -> String {
    match path.split_once('/') {
        Some((top, _)) if OF_PROGRAMS.contains(&top) => format!("usr/{path}"),
        None if OF_PROGRAMS.contains(&path) => format!("usr/{path}"),
        _ => path.to_owned(),
    }
}

/// A package with its description.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The exact binary package.
    pub package: &'a Dependency,
    /// The text that [`Layering::describe`] returned for it.
    pub description: &'a str,
}

/// The work to unpack packages, each into its own folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unpacking {
    /// Files to place in the root's input folder.
    pub texts: Vec<InputText>,
    /// Commands to run in the root, in order.
    pub commands: Vec<CommandOrder>,
}

/// Reads the descriptions of installed packages, if rules need them.
pub type Installed<'a> = &'a dyn Fn() -> Result<Vec<String>, CollectError>;

/// The work to turn stacked layers into installed packages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Composition {
    /// Indices of the packages that can be layers.
    pub layered: Vec<usize>,
    /// Indices of the packages that the package manager must install, each with the reason. The others are checked again
    /// after that, unless the family [begins with layers](Layering::begins_with_layers).
    pub by_manager: Vec<(usize, String)>,
    /// Files to place in the root's input folder.
    pub texts: Vec<InputText>,
    /// Commands that configure the stacked packages.
    pub commands: Vec<CommandOrder>,
}

/// The layering rules of a family; see the module documentation. All methods only decide; none of them runs a
/// command.
pub trait Layering: Send + Sync {
    /// Describes the binary package in a file, as text that is kept with its layer.
    fn describe(&self, file: &Path) -> Result<String, CollectError>;

    /// A command that tests whether a package can be a layer. It runs in a root of the base layers and may write
    /// below `/kilnyard/added`: the package qualifies if the command succeeds and writes nothing elsewhere. `None`
    /// if the answer is already recorded.
    fn trial(&self, part: Part) -> Option<CommandOrder>;

    /// The description of a package that passed its trial.
    fn harmless(&self, description: &str) -> String;

    /// Unpacks packages in a root of the base layers, each into the folder below `/kilnyard/added` that is named
    /// after its SHA-256. Packages that cannot be layers are left out; returns the indices of the others.
    fn unpack(&self, packages: &[Part]) -> (Vec<usize>, Unpacking);

    /// Registers and configures packages whose layers lie on a stack, the first package topmost. `installed` has those that were
    /// installed above the order's layers before.
    fn compose(&self, below: &Stack, installed: Installed, packages: &[Part]) -> io::Result<Composition>;

    /// Whether the package manager installs what cannot be layers after the layers: all that it needs has to be installed
    /// then.
    fn begins_with_layers(&self) -> bool {
        false
    }
}

/// The package manager of a family. All methods only decide; none of them runs a command.
pub trait Manager: Send + Sync {
    /// The commands that install these packages, with the inputs that they need in the root.
    fn install(&self, packages: &[&Dependency]) -> Vec<CommandOrder>;

    /// The names of the packages that a stack has installed, after commands to install `given` succeeded: these, unless they
    /// may install others.
    fn installed(&self, _stack: &Stack, given: &[&Dependency]) -> io::Result<BTreeSet<String>> {
        Ok(given.iter().map(|package| package.name.clone()).collect())
    }

    /// How packages become layers, or the reason why the package manager must install all of them itself.
    fn layering(&self) -> Result<&dyn Layering, &'static str>;
}
