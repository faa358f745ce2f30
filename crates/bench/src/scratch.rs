//! Temporary folders for benchmarks.

use crate::Trial;
use crate::config::Config;
use crate::config::store::{StoreTable, without_stores};
use crate::error::{Context, Kind, Result};
use crate::init;
use crate::yard::{CONFIG, Yard};
use kilnyard_family::FAMILIES;
use kilnyard_root::sandbox::{RunError, Task};
use kilnyard_root::{Content, IdMap, Sandbox, probe, remove_folder};
use kilnyard_worker::ARCHIVES;
use std::path::{Path, PathBuf};

/// Prefix of scratch folders. The process id follows.
const PREFIX: &str = ".bench-";

/// A folder that is removed on drop, including any roots in it.
pub struct Scratch {
    folder: PathBuf,
    ids: Option<IdMap>,
}

impl Scratch {
    /// Creates a folder in `parent`. Also removes folders of killed processes.
    pub fn within(parent: &Path, ids: Option<IdMap>) -> Result<Scratch> {
        for entry in fs_err::read_dir(parent).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let number = name.strip_prefix(PREFIX).and_then(|number| number.parse::<u32>().ok());
            if number.is_some_and(|number| !Path::new(&format!("/proc/{number}")).exists()) {
                remove(&entry.path(), ids.as_ref());
            }
        }
        let folder = parent.join(format!("{PREFIX}{}", std::process::id()));
        fs_err::create_dir(&folder).context(Kind::Machine, "create a folder for the benchmark")?;
        let folder = fs_err::canonicalize(&folder).or_internal("find the benchmark's folder")?;
        Ok(Scratch { folder, ids })
    }

    /// Resolves a path relative to the folder.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.folder.join(relative)
    }

    /// Turns this folder into a yard with the index and the base of another yard, which must contain it. It has its
    /// own store, key, files and repository, and no layers of dependencies.
    pub fn beside(&self, yard: &Yard, config: Config) -> Result<Yard> {
        let failed = "create a yard for the benchmark";
        Yard::make_folders(&self.folder)?;
        // The layers' files have ids of the same range.
        for name in [CONFIG, "state/range"] {
            if yard.path(name).exists() {
                fs_err::copy(yard.path(name), self.path(name)).context(Kind::Machine, failed)?;
            }
        }
        init::make_key(&self.folder)?;
        if self.path(CONFIG).exists() {
            let text = fs_err::read_to_string(self.path(CONFIG)).context(Kind::Machine, failed)?;
            fs_err::write(self.path(CONFIG), without_stores(&text)).context(Kind::Machine, failed)?;
        }
        let config = Config { store: StoreTable::default(), ..config };
        // Again, with the range: this changes the owner of the folders to its ids.
        Yard::make_folders(&self.folder)?;
        let own = Yard::of_parts(self.folder.clone(), config, &yard.environment);
        for folder in ["index", "layers"] {
            self.share(yard, &own, folder).context(Kind::Machine, failed)?;
        }
        Ok(own)
    }

    /// Copies the files of a yard's folder. Copies its subfolders as hard links, except for dependencies and
    /// archives of layers.
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

    /// Turns this folder into a yard with this configuration.
    pub fn yard(&self, configuration: &str, trial: &Trial<'_>) -> Result<Yard> {
        Yard::make_folders(&self.folder)?;
        let path = self.path(CONFIG);
        fs_err::write(&path, configuration).context(Kind::Machine, "create a yard for the benchmark")?;
        let config = Config::parse(configuration, &path, FAMILIES)?;
        Ok(Yard::of_parts(self.folder.clone(), config, trial.environment))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.folder, self.ids.as_ref());
    }
}

/// Removes as much as possible. The next benchmark tries again.
fn remove(folder: &Path, ids: Option<&IdMap>) {
    if let (Some(ids), Some(parent), Some(name)) = (ids, folder.parent(), folder.file_name()) {
        // Files of roots and layers belong to the users of roots.
        let _ = remove_folder(parent, Path::new(name), ids);
    }
    let _ = fs_err::remove_dir_all(folder);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_folder_is_removed_along_with_those_of_killed_processes() {
        let parent = tempfile::tempdir().unwrap();
        // No process has this id: it exceeds the kernel's maximum.
        let dead = parent.path().join(format!("{PREFIX}{}", u32::MAX));
        std::fs::create_dir_all(dead.join("roots/1")).unwrap();
        std::fs::create_dir(parent.path().join("index")).unwrap();
        let scratch = Scratch::within(parent.path(), None).unwrap();
        let folder = scratch.folder.clone();
        assert!(folder.is_dir() && !dead.exists());
        // The target of a symbolic link is not removed.
        std::os::unix::fs::symlink("../index", scratch.path("index")).unwrap();
        drop(scratch);
        assert!(!folder.exists() && parent.path().join("index").is_dir());
    }
}
