//! Roots of failed builds, which are kept for inspection.

use super::{RootFolder, read_layers};
use crate::apart;
use crate::leftovers::remove_or_set_aside;
use kilnyard_model::order::RootOrder;
use kilnyard_root::sandbox::{RunError, Task};
use kilnyard_root::{IdMap, Keeper, Sandbox, probe};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The file of a kept root with its layers and folders.
const ORDER: &str = "order.json";

impl RootFolder {
    /// The folder of the last failed build of a package, whether it exists or not.
    pub fn of_failed(yard: &Path, package: &str, ids: &IdMap, layers: &[String]) -> RootFolder {
        let name = failed_name(package);
        // It may have had more layers than builds start from.
        let known = read_layers(&yard.join("roots").join(&name));
        let ids = apart::noted(&yard.join("roots").join(&name), ids);
        RootFolder::at(yard, &name, &ids, known.as_deref().unwrap_or(layers))
    }

    /// The path of the root of a package's last failed build, whether it is kept or not.
    pub fn failed_path(yard: &Path, package: &str) -> PathBuf {
        yard.join("roots").join(failed_name(package))
    }

    /// What was recorded of the root of a package's last failed build; absent if it is not kept.
    pub fn order_of_failed(yard: &Path, package: &str) -> io::Result<Option<RootOrder>> {
        let kept = RootFolder::failed_path(yard, package);
        if !kept.is_dir() {
            return Ok(None);
        }
        let order = fs_err::read(kept.join(ORDER))?;
        serde_json::from_slice(&order).map(Some).map_err(io::Error::other)
    }

    /// Keeps the root of a failed build, replacing the package's previous one. Beyond `kept_max` roots, the oldest
    /// are removed.
    pub fn keep_as_failed(&self, package: &str, order: &RootOrder, kept_max: usize) -> Result<(), RunError> {
        let kept = RootFolder::of_failed(&self.yard, package, &self.ids, &[]);
        kept.remove_or_set_aside();
        if kept_max == 0 {
            self.remove_or_set_aside();
            return Ok(());
        }
        if let Some(held) = &self.lasting.held {
            // The root is inspected later; memory and devices are for builds.
            self.bring_to_disk(&held.keeper)?;
            held.keeper.end()?;
        }
        let (layers, folders) = (order.layers.clone(), order.folders.clone());
        let (sealed, open) = (order.sealed.clone(), order.open.clone());
        let noted = serde_json::to_vec(&RootOrder { layers, folders, sealed, open, ..RootOrder::default() });
        let noted = noted.map_err(io::Error::other);
        let noted = noted.and_then(|text| fs_err::write(self.path().join(ORDER), text));
        noted.and_then(|()| fs_err::rename(self.path(), kept.path())).map_err(RunError::Files)?;
        let mut all: Vec<(SystemTime, PathBuf)> = failed(&self.yard).map_err(RunError::Files)?;
        all.sort();
        for (_, relative) in all.iter().take(all.len().saturating_sub(kept_max)) {
            remove_or_set_aside(&self.yard, relative, &self.ids);
        }
        Ok(())
    }

    /// Copies files in memory or on a device to the place they would have in a root on the disk.
    fn bring_to_disk(&self, keeper: &Keeper) -> Result<(), RunError> {
        let work = self.plan.work_folder().zip(self.shown.work_inside.as_deref());
        if let Some((work, inside)) = work {
            self.copy(keeper, work, &self.plan.written.join(inside.trim_start_matches('/')))?;
        }
        if work.is_none() || self.plan.has_device() {
            let to = self.plan.folder.join(self.plan.written.file_name().unwrap_or_default());
            // Held files may be on the disk already.
            if to != self.plan.written {
                self.copy(keeper, &self.plan.written, &to)?;
            }
        }
        let work = self.path().join("work");
        if self.plan.written.ends_with("upper") && !work.exists() {
            let made = fs_err::create_dir(&work).and_then(|()| probe::give_to_root(&work, &self.ids));
            made.map_err(RunError::Files)?;
        }
        Ok(())
    }

    /// Copies a folder as the root's own root.
    fn copy(&self, keeper: &Keeper, from: &Path, to: &Path) -> Result<(), RunError> {
        let arguments = ["cp", "--archive", "--no-target-directory"].map(str::to_owned).into_iter();
        let arguments = arguments.chain([from, to].map(|path| path.display().to_string()));
        let task = Task::Program(arguments.collect());
        let sandbox =
            Sandbox { keeper: Some(keeper.process()), ..Sandbox::of_machine(&self.yard, &self.ids, task) };
        sandbox.run().map(|_| ())
    }
}

/// The folder name of a failed build's root. Packages of a tree are named by their folder in it, so slashes are
/// replaced. The name must not contain a comma, which ends an option of an overlay mount.
fn failed_name(package: &str) -> String {
    format!("failed-{}", package.replace('/', "~"))
}

fn failed(yard: &Path) -> io::Result<Vec<(SystemTime, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs_err::read_dir(yard.join("roots"))? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("failed-") {
            found.push((entry.metadata()?.modified()?, Path::new("roots").join(entry.file_name())));
        }
    }
    Ok(found)
}

/// The layers that kept roots of failed builds use, relative to the yard.
pub(crate) fn layers_of_failed(yard: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let folders = failed(yard)?;
    let layers =
        folders.iter().flat_map(|(_, relative)| read_layers(&yard.join(relative)).unwrap_or_default());
    Ok(layers.map(PathBuf::from).collect())
}
