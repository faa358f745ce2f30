//! Folders that are there for a benchmark alone.

use crate::config::{self, Config};
use crate::error::{Context, Kind, Result};
use crate::yard::{CONFIG, Yard};
use kilnyard_root::{IdMap, remove_folder};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// How scratch folders begin; the number of the process follows.
const PREFIX: &str = ".bench-";

/// A folder that is removed when this is dropped, with roots that may be in it.
pub struct Scratch {
    folder: PathBuf,
    ids: Option<IdMap>,
}

impl Scratch {
    /// A new folder in this one. Folders of processes that were killed are removed first.
    pub fn within(parent: &Path, ids: Option<IdMap>) -> Result<Scratch> {
        for entry in fs_err::read_dir(parent).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let number = name.strip_prefix(PREFIX).and_then(|number| number.parse::<u32>().ok());
            if number.is_some_and(|number| !Path::new(&format!("/proc/{number}")).exists()) {
                remove(&entry.path(), ids.as_ref());
            }
        }
        let folder = parent.join(format!("{PREFIX}{}", std::process::id()));
        fs_err::create_dir(&folder).context(Kind::Machine, "make a folder for the benchmark")?;
        let folder = fs_err::canonicalize(&folder).or_internal("find the benchmark's folder")?;
        Ok(Scratch { folder, ids })
    }

    /// A new folder where this machine keeps temporary files.
    pub fn temporary() -> Result<Scratch> {
        Scratch::within(&std::env::temp_dir(), None)
    }

    /// A path in it.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.folder.join(relative)
    }

    /// Makes this a yard with the index, the base and the key of another one, which it must lie in. Its
    /// store, files and repository are its own.
    pub fn beside(&self, yard: &Yard, config: Config) -> Result<Yard> {
        let failed = "make a yard for the benchmark";
        for name in ["index", "layers"] {
            symlink(Path::new("..").join(name), self.path(name)).context(Kind::Machine, failed)?;
        }
        Yard::make_folders(&self.folder)?;
        for name in [CONFIG, "state/key.asc"] {
            fs_err::copy(yard.path(name), self.path(name)).context(Kind::Machine, failed)?;
        }
        Ok(Yard { folder: self.folder.clone(), config })
    }

    /// Makes this an empty yard.
    pub fn empty_yard(&self) -> Result<Yard> {
        Yard::make_folders(&self.folder)?;
        let text = config::debian_template("bookworm", "http://mirror.invalid/debian", &[]);
        let path = self.path(CONFIG);
        fs_err::write(&path, &text).context(Kind::Machine, "make a yard for the benchmark")?;
        Ok(Yard { folder: self.folder.clone(), config: Config::parse(&text, &path)? })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.folder, self.ids.as_ref());
    }
}

/// Removes as much as can be removed; the next benchmark tries again.
fn remove(folder: &Path, ids: Option<&IdMap>) {
    if let (Some(ids), Some(parent), Some(name)) = (ids, folder.parent(), folder.file_name()) {
        // Roots and layers in it have files of the roots' own users.
        let _ = remove_folder(parent, Path::new(name), ids);
    }
    let _ = fs_err::remove_dir_all(folder);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_folder_goes_and_takes_those_of_the_dead_along() {
        let parent = tempfile::tempdir().unwrap();
        // No process has this number: it is above the largest that the kernel allows.
        let dead = parent.path().join(format!("{PREFIX}{}", u32::MAX));
        std::fs::create_dir_all(dead.join("roots/1")).unwrap();
        std::fs::create_dir(parent.path().join("index")).unwrap();
        let scratch = Scratch::within(parent.path(), None).unwrap();
        let folder = scratch.folder.clone();
        assert!(folder.is_dir() && !dead.exists());
        // What a link leads to stays.
        symlink("../index", scratch.path("index")).unwrap();
        drop(scratch);
        assert!(!folder.exists() && parent.path().join("index").is_dir());
    }
}
