//! The folders of roots in a yard: `roots/NUMBER` while a build runs, `roots/failed-PACKAGE` after it failed.
//!
//! This module makes and removes a root's folder. `shown` has the folders that commands see in it, `commands` their
//! sandbox, `written` the files that they wrote, and `planned` the plan of a build's root.

mod base;
mod commands;
mod inputs;
mod kept;
mod planned;
mod shown;
mod written;

pub use base::{BaseFolders, BaseSandbox, run_in_base};
pub(crate) use kept::{layers_of_failed, orders_of_failed};
pub use planned::BuildFacts;
pub(crate) use planned::{Planned, in_machine};
pub(crate) use shown::without_links;

use crate::apart::Apart;
use crate::fakeroot;
use crate::layers::Image;
use crate::leftovers::remove_or_set_aside;
use crate::memory::Reservation;
use commands::{Jobserver, Owners, Terms};
use kilnyard_root::quota::Project;
use kilnyard_root::sandbox::RunError;
use kilnyard_root::{IdMap, Keeper, MEMORY, Making, Place, RootPlan, SHARED, probe};
use shown::Shown;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file of a root that lists its layers, one per line.
const LAYERS: &str = "layers";

/// A root's folder in a yard.
#[derive(Clone, Debug)]
pub struct RootFolder {
    yard: PathBuf,
    ids: IdMap,
    /// Its paths are relative to the yard.
    plan: RootPlan,
    place: Place,
    lasting: Lasting,
    shown: Shown,
    terms: Terms,
    owners: Owners,
    jobserver: Option<Jobserver>,
}

/// Resources that live as long as a root.
#[derive(Clone, Debug, Default)]
struct Lasting {
    /// Holds the files in memory or on a device, if there are any.
    held: Option<Arc<Held>>,
    /// Holds the user id of this build's builder, if it has its own.
    apart: Option<Arc<Apart>>,
    /// Limits writes to the machine's disk, if the kernel supports it.
    project: Option<Arc<Project>>,
}

/// Files outside the root's folder, and their resources.
#[derive(Debug)]
struct Held {
    keeper: Keeper,
    /// Free blocks of the file system in memory before the build began.
    free_blocks: u64,
    /// Dropped after the keeper, whose end frees the memory.
    _resources: RootResources,
}

/// Resources that the root of a build may need in addition to its folder.
#[derive(Debug, Default)]
pub(crate) struct RootResources {
    /// Memory for its files.
    pub(crate) reservation: Option<Reservation>,
    /// The image for its block device.
    pub(crate) image: Option<Image>,
}

impl RootFolder {
    /// Makes a new root on the disk; `layers` are relative to the yard, the uppermost first.
    pub fn create(
        yard: &Path,
        name: &str,
        ids: &IdMap,
        layers: &[String],
        making: &Making,
    ) -> Result<RootFolder, RunError> {
        let planned = Planned::of(name, layers, making, None);
        RootFolder::create_with(yard, ids, layers, planned, RootResources::default())
    }

    /// Makes a new root on a block device with an image of its lowest layers.
    pub fn create_on(
        yard: &Path,
        name: &str,
        ids: &IdMap,
        layers: &[String],
        making: &Making,
        image: Image,
    ) -> Result<RootFolder, RunError> {
        let planned = Planned::of(name, layers, making, Some(&image));
        let resources = RootResources { image: Some(image), reservation: None };
        RootFolder::create_with(yard, ids, layers, planned, resources)
    }

    /// Makes a new root as planned. `resources` must fit the plan.
    pub(crate) fn create_with(
        yard: &Path,
        ids: &IdMap,
        layer_names: &[String],
        planned: Planned,
        resources: RootResources,
    ) -> Result<RootFolder, RunError> {
        let plan = &planned.plan;
        let keeper = plan.make(yard, ids)?;
        let held = keeper.map(|keeper| {
            let memory = keeper.seen_from_outside(&plan.folder.join(MEMORY));
            let free_blocks = rustix::fs::statvfs(memory).map_or(0, |facts| facts.f_bavail);
            Arc::new(Held { keeper, free_blocks, _resources: resources })
        });
        let mut root = RootFolder::of_plan(yard, ids, planned);
        root.lasting.held = held;
        let provided = fs_err::create_dir(root.path().join("inputs"))
            .and_then(|()| fs_err::create_dir(root.path().join("texts")))
            .and_then(|()| write_layers(&root.path(), layer_names))
            .and_then(|()| root.clone().with_session());
        provided.map_err(|error| {
            let _ = root.remove();
            RunError::Files(error)
        })
    }

    /// Starts the fakeroot session if roots have only one id.
    pub fn with_session(mut self) -> io::Result<RootFolder> {
        if self.ids.has_one_id() {
            self.owners.session = Some(Arc::new(fakeroot::begin(&self.path())?));
        }
        Ok(self)
    }

    /// Gives the root what belongs to its build alone: a builder with its own id, and a quota, if the file system
    /// supports that. Removes the root on failure.
    pub(crate) fn of_one_build(mut self, apart: Option<Apart>) -> Result<RootFolder, RunError> {
        let noted = apart.as_ref().map_or(Ok(()), |apart| apart.note(&self.path()));
        match noted.and_then(|()| self.project(apart.as_ref())) {
            Ok(project) => {
                self.lasting.project = project.map(Arc::new);
                self.lasting.apart = apart.map(Arc::new);
                Ok(self)
            }
            Err(error) => {
                let _ = self.remove();
                Err(RunError::Files(error))
            }
        }
    }

    /// The operations that make and enter this root.
    pub fn plan(&self) -> &RootPlan {
        &self.plan
    }

    /// The folder of an existing root.
    pub fn at(yard: &Path, name: &str, ids: &IdMap, layers: &[String]) -> RootFolder {
        let layers: Vec<PathBuf> = layers.iter().map(PathBuf::from).collect();
        let folder = Path::new("roots").join(name);
        let making = Making::found(yard, &folder);
        let plan = RootPlan::new(&folder, &layers, &making);
        RootFolder::of_plan(yard, ids, Planned { plan, making })
    }

    fn of_plan(yard: &Path, ids: &IdMap, planned: Planned) -> RootFolder {
        let Planned { plan, making: Making { place, flushes, .. } } = planned;
        RootFolder {
            yard: yard.to_owned(),
            ids: ids.clone(),
            plan,
            place,
            lasting: Lasting::default(),
            shown: Shown::default(),
            terms: Terms { flushes, ..Terms::default() },
            owners: Owners::default(),
            jobserver: None,
        }
    }

    /// Replaces the layers of a root that is an overlay on the disk. They are relative to the yard, the uppermost
    /// first.
    pub(crate) fn set_layers(&mut self, layers: &[String]) -> io::Result<()> {
        write_layers(&self.path(), layers)?;
        let layers: Vec<PathBuf> = layers.iter().map(PathBuf::from).collect();
        let making = Making { place: self.place, flushes: self.terms.flushes, ..Making::default() };
        self.plan = RootPlan::new(&self.plan.folder, &layers, &making);
        Ok(())
    }

    /// Discards the files written to a root that is an overlay on the disk.
    pub(crate) fn start_over(&self) -> Result<(), RunError> {
        let parts = match self.place {
            Place::Shared => self.plan.folder.join(SHARED),
            _ => self.plan.folder.clone(),
        };
        for part in ["upper", "work"].map(|part| parts.join(part)) {
            remove_or_set_aside(&self.yard, &part, &self.ids);
            fs_err::create_dir(self.yard.join(&part))?;
            probe::give_to_root(&self.yard.join(&part), &self.ids)?;
        }
        Ok(())
    }

    /// Moves the written files of a root that no machine has used into the folder that machines may write to. The root is to be
    /// found again after that.
    ///
    /// # Errors
    /// The files cannot be moved, or are not those of an overlay.
    pub(crate) fn share_with_machines(&self) -> io::Result<()> {
        if self.place == Place::Shared {
            return Ok(());
        }
        // An earlier attempt may have been killed at any step.
        let part = self.path().join("shared.part");
        fs_err::create_dir_all(&part)?;
        for name in ["work", "upper"] {
            let (from, to) = (self.path().join(name), part.join(name));
            if from.is_dir() {
                fs_err::rename(from, to)?;
            } else if !to.is_dir() {
                return Err(io::Error::other(
                    "a virtual machine can only use a root on the disk that is an overlay",
                ));
            }
        }
        probe::give_to_root(&part, &self.ids)?;
        fs_err::rename(part, self.path().join(SHARED))
    }

    /// The folder, as a path that this process can open.
    pub fn path(&self) -> PathBuf {
        self.yard.join(&self.plan.folder)
    }

    /// A path of the plan as this process can open it.
    fn seen(&self, path: &Path) -> PathBuf {
        match &self.lasting.held {
            Some(held) => held.keeper.seen_from_outside(path),
            None => self.yard.join(path),
        }
    }

    /// Removes the root and all its files.
    pub fn remove(&self) -> Result<(), RunError> {
        self.plan.remove(&self.yard, &self.ids, self.lasting.held.as_ref().map(|held| &held.keeper))
    }

    /// Ends the process that holds files outside the root's folder.
    pub(crate) fn end_holding(&self) {
        if let Some(held) = &self.lasting.held {
            // If something stays mounted, removing the folder fails and reports that.
            let _ = held.keeper.end();
        }
    }

    pub(crate) fn yard(&self) -> &Path {
        &self.yard
    }

    pub(crate) fn ids(&self) -> &IdMap {
        &self.ids
    }
}

/// The recorded layers of an existing root; absent if there is no record.
fn read_layers(folder: &Path) -> Option<Vec<String>> {
    let text = fs_err::read_to_string(folder.join(LAYERS)).ok()?;
    Some(text.lines().map(str::to_owned).collect())
}

fn write_layers(folder: &Path, layers: &[String]) -> io::Result<()> {
    let lines: String = layers.iter().map(|layer| format!("{layer}\n")).collect();
    fs_err::write(folder.join(LAYERS), lines)
}
