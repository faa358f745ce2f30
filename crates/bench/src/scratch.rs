//! Folders that are there for a benchmark alone.

use crate::Trial;
use crate::config::Config;
use crate::error::{Context, Kind, Result};
use crate::yard::{CONFIG, Yard};
use kilnyard_family::FAMILIES;
use kilnyard_root::sandbox::{RunError, Task};
use kilnyard_root::{Content, IdMap, Sandbox, probe, remove_folder};
use kilnyard_worker::ARCHIVES;
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

    /// A path in it.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.folder.join(relative)
    }

    /// Makes this a yard with the index, the base and the key of another one, which it must lie in. Its
    /// store, files and repository are its own, and it has no layers of dependencies.
    pub fn beside(&self, yard: &Yard, config: Config) -> Result<Yard> {
        let failed = "make a yard for the benchmark";
        Yard::make_folders(&self.folder)?;
        // The layers' files have ids of this range.
        for name in [CONFIG, "state/key.asc", "state/range"] {
            if yard.path(name).exists() {
                fs_err::copy(yard.path(name), self.path(name)).context(Kind::Machine, failed)?;
            }
        }
        // Which now belong to it.
        Yard::make_folders(&self.folder)?;
        let own = Yard { folder: self.folder.clone(), config, environment: yard.environment.clone() };
        for folder in ["index", "layers"] {
            self.share(yard, &own, folder).context(Kind::Machine, failed)?;
        }
        Ok(own)
    }

    /// Copies the files of a yard's folder, and its folders as hard links, but for dependencies and for archives of layers that are there.
    fn share(&self, yard: &Yard, own: &Yard, folder: &str) -> std::result::Result<(), RunError> {
        for entry in fs_err::read_dir(yard.path(folder))? {
            let entry = entry?;
            let name = Path::new(folder).join(entry.file_name());
            let target = self.folder.join(&name);
            if entry.file_type()?.is_file() {
                fs_err::copy(entry.path(), &target)?;
            } else if !name.ends_with("dependencies") && name != Path::new(ARCHIVES) {
                let ids = own.ids();
                fs_err::create_dir(&target)?;
                probe::give_to_root(&target, &ids)?;
                let target = target.strip_prefix(&yard.folder).unwrap_or(&target).to_owned();
                let task = Task::Copy { lower: vec![name], target, content: Content::Shared };
                Sandbox::of_machine(&yard.folder, &ids, task).run()?;
            }
        }
        Ok(())
    }

    /// Makes this a yard of this configuration.
    pub fn yard(&self, configuration: &str, trial: &Trial<'_>) -> Result<Yard> {
        Yard::make_folders(&self.folder)?;
        let path = self.path(CONFIG);
        fs_err::write(&path, configuration).context(Kind::Machine, "make a yard for the benchmark")?;
        Ok(Yard {
            folder: self.folder.clone(),
            config: Config::parse(configuration, &path, FAMILIES)?,
            environment: trial.environment.clone(),
        })
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
        std::os::unix::fs::symlink("../index", scratch.path("index")).unwrap();
        drop(scratch);
        assert!(!folder.exists() && parent.path().join("index").is_dir());
    }
}
