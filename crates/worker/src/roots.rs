//! The folders of roots in a yard: `roots/NUMBER` while a build goes on, `roots/failed-PACKAGE` after it
//! failed.
//!
//! A root's folder is made here and removed here. What commands see in it is in `shown`, what they begin with in `commands`, what
//! they wrote in `written`, and which plan the root of a build has in `planned`.

mod base;
mod commands;
mod inputs;
mod kept;
mod planned;
mod shown;
mod written;

pub use base::{BaseFolders, BaseSandbox, run_in_base};
pub(crate) use kept::layers_of_failed;
pub use planned::BuildFacts;
pub(crate) use planned::Planned;
pub(crate) use shown::without_links;

use crate::apart::Apart;
use crate::fakeroot;
use crate::layers::Image;
use crate::leftovers::remove_or_set_aside;
use crate::memory::Promise;
use commands::{Jobserver, Owners, Terms};
use kilnyard_root::quota::Project;
use kilnyard_root::sandbox::RunError;
use kilnyard_root::{Flushes, IdMap, Keeper, MEMORY, Making, RootPlan, probe};
use shown::Shown;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file of a root that names its layers, one a line.
const LAYERS: &str = "layers";

/// A root's folder in a yard.
#[derive(Clone, Debug)]
pub struct RootFolder {
    yard: PathBuf,
    ids: IdMap,
    /// Its paths are relative to the yard.
    plan: RootPlan,
    lasting: Lasting,
    shown: Shown,
    terms: Terms,
    owners: Owners,
    jobserver: Option<Jobserver>,
}

/// What is there as long as a root.
#[derive(Clone, Debug, Default)]
struct Lasting {
    /// What holds the files that are in memory or on a device, if there are any.
    held: Option<Arc<Held>>,
    /// Holds the builder's own id, if it has one.
    apart: Option<Arc<Apart>>,
    /// Bounds what is written to the machine's disk, where the kernel can.
    project: Option<Arc<Project>>,
}

/// Files that are not in the root's folder, and what they need.
#[derive(Debug)]
struct Held {
    keeper: Keeper,
    /// What was free in memory before the build began.
    free_blocks: u64,
    /// Given back with the keeper, by whose end the memory is free again.
    _means: Means,
}

/// What the root of a build may need besides its folder.
#[derive(Debug, Default)]
pub(crate) struct Means {
    /// Room in memory.
    pub(crate) promise: Option<Promise>,
    /// What is served on a device.
    pub(crate) image: Option<Image>,
}

impl RootFolder {
    /// Makes a new root on the disk.
    pub fn create(
        yard: &Path,
        name: &str,
        ids: &IdMap,
        layers: &[String],
        making: &Making,
    ) -> Result<RootFolder, RunError> {
        let planned = Planned::of(name, layers, making, None);
        RootFolder::create_with(yard, ids, layers, planned, Means::default())
    }

    /// Makes a new root on a device that shows an image of its lowest layers.
    pub fn create_on(
        yard: &Path,
        name: &str,
        ids: &IdMap,
        layers: &[String],
        making: &Making,
        image: Image,
    ) -> Result<RootFolder, RunError> {
        let planned = Planned::of(name, layers, making, Some(&image));
        let means = Means { image: Some(image), promise: None };
        RootFolder::create_with(yard, ids, layers, planned, means)
    }

    /// Makes a new root with what it needs.
    pub(crate) fn create_with(
        yard: &Path,
        ids: &IdMap,
        layer_names: &[String],
        planned: Planned,
        means: Means,
    ) -> Result<RootFolder, RunError> {
        let plan = &planned.plan;
        let keeper = plan.make(yard, ids)?;
        let held = keeper.map(|keeper| {
            let memory = keeper.seen_from_outside(&plan.folder.join(MEMORY));
            let free_blocks = rustix::fs::statvfs(memory).map_or(0, |facts| facts.f_bavail);
            Arc::new(Held { keeper, free_blocks, _means: means })
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

    /// Begins what makes up owners in this root, where there is one id alone.
    pub fn with_session(mut self) -> io::Result<RootFolder> {
        if self.ids.is_alone() {
            self.owners.session = Some(Arc::new(fakeroot::begin(&self.path())?));
        }
        Ok(self)
    }

    /// Gives the root what its build alone has: a builder with an id of its own, and a bound of the kernel on what it writes,
    /// where the file system has that. The root is removed where this fails.
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

    /// The plan.
    pub fn plan(&self) -> &RootPlan {
        &self.plan
    }

    /// The folder of a root that exists.
    pub fn at(yard: &Path, name: &str, ids: &IdMap, layers: &[String]) -> RootFolder {
        let layers: Vec<PathBuf> = layers.iter().map(PathBuf::from).collect();
        let plan = RootPlan::found(yard, &Path::new("roots").join(name), &layers);
        RootFolder::of_plan(yard, ids, Planned { plan, flushes: Flushes::Discard })
    }

    fn of_plan(yard: &Path, ids: &IdMap, planned: Planned) -> RootFolder {
        let Planned { plan, flushes } = planned;
        RootFolder {
            yard: yard.to_owned(),
            ids: ids.clone(),
            plan,
            lasting: Lasting::default(),
            shown: Shown::default(),
            terms: Terms { flushes, ..Terms::default() },
            owners: Owners::default(),
            jobserver: None,
        }
    }

    /// Gives a root that is an overlay on the disk other layers, relative to the yard, the uppermost first.
    pub(crate) fn stand_on(&mut self, layers: &[String]) -> io::Result<()> {
        write_layers(&self.path(), layers)?;
        let layers: Vec<PathBuf> = layers.iter().map(PathBuf::from).collect();
        let making = Making { flushes: self.terms.flushes, ..Making::default() };
        self.plan = RootPlan::new(&self.plan.folder, &layers, &making);
        Ok(())
    }

    /// Forgets what was written to a root that is an overlay on the disk.
    pub(crate) fn start_over(&self) -> Result<(), RunError> {
        for part in ["upper", "work"] {
            remove_or_set_aside(&self.yard, &self.plan.folder.join(part), &self.ids);
            fs_err::create_dir(self.path().join(part))?;
            probe::give_to_root(&self.path().join(part), &self.ids)?;
        }
        Ok(())
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.yard.join(&self.plan.folder)
    }

    /// A path of the plan, for this process to open.
    fn seen(&self, path: &Path) -> PathBuf {
        match &self.lasting.held {
            Some(held) => held.keeper.seen_from_outside(path),
            None => self.yard.join(path),
        }
    }

    /// Removes the root with all that is in it.
    pub fn remove(&self) -> Result<(), RunError> {
        self.plan.remove(&self.yard, &self.ids, self.lasting.held.as_ref().map(|held| &held.keeper))
    }

    /// Ends what holds files that are not in the root's folder.
    pub(crate) fn end_holding(&self) {
        if let Some(held) = &self.lasting.held {
            // What is still mounted keeps the folder from being removed, which says so.
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

/// The layers of a root that exists, if it says so.
fn read_layers(folder: &Path) -> Option<Vec<String>> {
    let text = fs_err::read_to_string(folder.join(LAYERS)).ok()?;
    Some(text.lines().map(str::to_owned).collect())
}

fn write_layers(folder: &Path, layers: &[String]) -> io::Result<()> {
    let lines: String = layers.iter().map(|layer| format!("{layer}\n")).collect();
    fs_err::write(folder.join(LAYERS), lines)
}
