//! How packages get into roots: by the family's package manager, and as layers, each unpacked once, configured together,
//! and kept.
//!
//! A [`Manager`] installs packages in a root. A [`Layering`] knows how a family's packages are unpacked, and what its
//! database of installed packages has to say for a stack of such layers to be what its own package manager would have
//! made. It decides; a worker makes the layers, stacks them, and runs the commands. What a package manager does to a
//! package beyond putting its files where they belong cannot be done ahead: such packages are named with the reason, and
//! are left to the package manager.

use crate::CollectError;
use kilnyard_model::order::{CommandOrder, Dependency, InputText};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
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
    pub fn find(&self, path: &str) -> io::Result<Option<(PathBuf, Metadata)>> {
        for layer in self.layers {
            match look(layer, path)? {
                Seen::There(found, metadata) => return Ok(Some((found, metadata))),
                Seen::Gone => return Ok(None),
                Seen::Nothing => {}
            }
        }
        Ok(None)
    }

    /// Permissions, user and group of what is at a path, as they are inside.
    pub fn attributes(&self, metadata: &Metadata) -> Option<(u32, u32, u32)> {
        let user = (self.user_inside)(metadata.uid())?;
        Some((metadata.mode() & 0o7777, user, (self.group_inside)(metadata.gid())?))
    }

    /// The file at a path; none where there is none. Bytes that are no text are replaced.
    pub fn read(&self, path: &str) -> io::Result<Option<String>> {
        match self.find(path)? {
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
    pub fn names(&self, path: &str) -> io::Result<BTreeSet<String>> {
        let (mut names, mut gone) = (BTreeSet::new(), BTreeSet::new());
        for layer in self.layers {
            let folder = match look(layer, path)? {
                Seen::There(folder, metadata) if metadata.is_dir() => folder,
                Seen::Nothing => continue,
                Seen::There(..) | Seen::Gone => break,
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

/// What one layer says of a path.
enum Seen {
    There(PathBuf, Metadata),
    /// It was removed: layers below do not matter.
    Gone,
    Nothing,
}

/// What is at a path of one layer, if no folder on the way to it is a link. An overlay marks what is removed by a character
/// device of number 0, and a folder that hides those below it by an attribute ("Overlay Filesystem", "whiteouts and opaque
/// directories", in the kernel's documentation).
fn look(layer: &Path, path: &str) -> io::Result<Seen> {
    let mut found = layer.to_owned();
    let mut seen = None;
    let mut hides = false;
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if seen.as_ref().is_some_and(|above: &Metadata| !above.is_dir()) {
            return Ok(Seen::Gone);
        }
        if seen.is_some() {
            hides |= is_opaque(&found)?;
        }
        found.push(part);
        seen = match std::fs::symlink_metadata(&found) {
            Ok(metadata) if is_whiteout(&metadata) => return Ok(Seen::Gone),
            Ok(metadata) => Some(metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(if hides { Seen::Gone } else { Seen::Nothing });
            }
            Err(error) => return Err(error),
        };
    }
    Ok(seen.map_or(Seen::Nothing, |metadata| Seen::There(found, metadata)))
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
    /// Those that the package manager has to install, and has to install before the others are checked again; with the
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
}

/// The package manager of a family. All methods decide; none of them runs a command.
pub trait Manager: Send + Sync {
    /// The commands by which it installs these packages, with what they need of the root's inputs.
    fn install(&self, packages: &[&Dependency]) -> Vec<CommandOrder>;

    /// The names of those among these packages that a stack has installed, once commands that installed some of them ended
    /// well.
    fn installed(&self, stack: &Stack, packages: &[&Dependency]) -> io::Result<BTreeSet<String>>;

    /// How packages become layers; or why it has to install all of them itself.
    fn layering(&self) -> Result<&dyn Layering, &'static str>;
}
