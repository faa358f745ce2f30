//! The folders of roots in a yard: `roots/NUMBER` while a build goes on, `roots/failed-PACKAGE` after it
//! failed.

mod base;
mod inputs;
mod kept;

pub use base::{BaseSandbox, run_in_base};
pub(crate) use kept::layers_of_failed;

use crate::apart::Apart;
use crate::layers::{Image, planned_image};
use crate::leftovers::remove_or_set_aside;
use crate::local::{Local, ShownFolder};
use crate::memory::{Promise, promised_bytes};
use crate::{BUILDER_FOLDER, BUILDER_ID, Settings, Worker, fakeroot, tools};
use kilnyard_fakeroot::Session;
use kilnyard_model::order::{Account, BuildOrder, CommandOrder, RootOrder};
use kilnyard_process::Writing;
use kilnyard_root::quota::Project;
use kilnyard_root::sandbox::{RunError, Task};
use kilnyard_root::{
    Access, Flushes, Form, IdMap, ImagePlan, Keeper, MEMORY, Making, Nesting, Operation, RootPlan, Roots,
    Sandbox, User, View, block, probe, usage, used_bytes,
};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Room on the disk that must be left where the root of a failed build is kept.
const ROOM_BYTES_MIN: u64 = 64 << 20;

/// The file of a root that names its layers, one a line.
const LAYERS: &str = "layers";

/// What is left at the least of memory that was enough, as a divisor of what was free.
const FREE_PART: u64 = 4;

/// How far a quota lies above the limit: enough that whoever reaches it has passed the limit.
const QUOTA_MARGIN_PART: u64 = 16;
const QUOTA_MARGIN_BYTES: u64 = 64 << 20;

/// Where inputs are shown in a root.
const INPUTS_INSIDE: &str = "/kilnyard/inputs";

/// Where Kilnyard's own small files are shown in a root.
const TEXTS_INSIDE: &str = "/kilnyard/texts";

/// A root's folder in a yard.
#[derive(Clone, Debug)]
pub struct RootFolder {
    yard: PathBuf,
    ids: IdMap,
    /// Its paths are relative to the yard.
    plan: RootPlan,
    flushes: Flushes,
    /// What holds the files that are in memory or on a device, if there are any.
    held: Option<Arc<Held>>,
    /// Where commands see the folder in memory that they work in, if only that one is there.
    work_inside: Option<String>,
    /// Folders of the machine that are shown.
    folders: Vec<ShownFolder>,
    /// Folders that commands may write in.
    writable: Vec<ShownFolder>,
    /// The jobserver of its build, relative to the yard.
    jobserver: Option<PathBuf>,
    /// Programs of the root that know jobservers.
    clients: Vec<String>,
    /// What makes up owners, where there is one id alone.
    session: Option<Arc<Session>>,
    /// Programs of the root that the session stands in for.
    fakeroots: Vec<String>,
    /// Folders, inside, that the builder may write in.
    open: Vec<String>,
    nesting: Nesting,
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
        let plan = plan_of(name, layers, making, None);
        RootFolder::create_with(yard, ids, layers, (plan, making.flushes), Means::default())
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
        let plan = plan_of(name, layers, making, Some(&image));
        let means = Means { image: Some(image), promise: None };
        RootFolder::create_with(yard, ids, layers, (plan, making.flushes), means)
    }

    /// Makes a new root with what it needs.
    fn create_with(
        yard: &Path,
        ids: &IdMap,
        layer_names: &[String],
        (plan, flushes): (RootPlan, Flushes),
        means: Means,
    ) -> Result<RootFolder, RunError> {
        let keeper = plan.make(yard, ids)?;
        let held = keeper.map(|keeper| {
            let memory = keeper.seen_from_outside(&plan.folder.join(MEMORY));
            let free_blocks = rustix::fs::statvfs(memory).map_or(0, |facts| facts.f_bavail);
            Arc::new(Held { keeper, free_blocks, _means: means })
        });
        let root = RootFolder { flushes, held, ..RootFolder::of_plan(yard, ids, plan) };
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
            self.session = Some(Arc::new(fakeroot::begin(&self.path())?));
        }
        Ok(self)
    }

    /// The root that a build would get if memory has room for what it is expected to write; nothing is made.
    pub fn planned(
        yard: &Path,
        name: &str,
        ids: &IdMap,
        (order, local): (&BuildOrder, &Local),
        (roots, works_in_memory, written_bytes): (Roots, bool, u64),
    ) -> RootFolder {
        let layer_bytes = |layer: &str| used_bytes(&yard.join(layer));
        let memory = wanted_memory(roots, works_in_memory, (order, local), written_bytes, &layer_bytes);
        let making = memory.map_or(roots.of_build(), |bytes| roots.in_memory(bytes));
        let image = planned_image(yard, &local.layers, making.form).map(|(image, _)| image);
        let plan = build_plan(name, &local.layers, &making, image.as_ref(), ids);
        RootFolder { flushes: making.flushes, ..RootFolder::of_plan(yard, ids, plan) }.of_order(order, local)
    }

    /// How the image is made that the root of a build would be on, if that is on a device.
    pub fn planned_image(yard: &Path, layers: &[String], roots: Roots) -> Option<ImagePlan> {
        planned_image(yard, layers, roots.of_build().form).map(|(_, plan)| plan)
    }

    /// What belongs to the root of a build besides its files.
    fn of_order(self, order: &BuildOrder, local: &Local) -> RootFolder {
        let root = RootFolder { fakeroots: order.fakeroots.clone(), ..self };
        root.of_root_order(&order.root, local)
            .working_in(order.work.as_ref().map(|work| work.inside.as_str()))
    }

    /// Shows what belongs to a root besides its layers and inputs.
    pub fn of_root_order(self, order: &RootOrder, local: &Local) -> RootFolder {
        let composed = local.composed.iter().enumerate();
        let composed = composed.map(|(number, folder)| ShownFolder {
            source: self.composed(number),
            inside: folder.inside.clone(),
        });
        let folders: Vec<ShownFolder> = local.folders.iter().cloned().chain(composed).collect();
        RootFolder { open: order.open.clone(), ..self.showing(&folders).sealing(&order.sealed) }
    }

    /// Where a folder lies that is made of links for this root.
    pub(crate) fn composed(&self, number: usize) -> PathBuf {
        self.path().join(format!("folder-{number}"))
    }

    /// Shows folders, inside, that nothing writes to without the overlay, for reading, where one layer alone has them.
    pub fn sealing(mut self, folders: &[String]) -> RootFolder {
        let sealed: Vec<ShownFolder> = folders.iter().filter_map(|inside| self.sealed(inside)).collect();
        self.folders.extend(sealed);
        self
    }

    /// A folder as the one layer has it that has it: an overlay costs something for each file that is opened.
    fn sealed(&self, inside: &str) -> Option<ShownFolder> {
        let below = Path::new(inside).strip_prefix("/").ok()?;
        let lower = self.plan.lower().iter().map(|layer| self.yard.join(layer));
        let mut found = lower.filter(|layer| layer.join(below).symlink_metadata().is_ok());
        let layer = found.next().filter(|_| found.next().is_none())?;
        let source = without_links(&layer, below).ok().filter(|folder| folder.is_dir())?;
        Some(ShownFolder { source, inside: inside.to_owned() })
    }

    /// The plan.
    pub fn plan(&self) -> &RootPlan {
        &self.plan
    }

    /// The folder of a root that exists.
    pub fn at(yard: &Path, name: &str, ids: &IdMap, layers: &[String]) -> RootFolder {
        let layers: Vec<PathBuf> = layers.iter().map(PathBuf::from).collect();
        let plan = RootPlan::found(yard, &Path::new("roots").join(name), &layers);
        RootFolder::of_plan(yard, ids, plan)
    }

    fn of_plan(yard: &Path, ids: &IdMap, plan: RootPlan) -> RootFolder {
        RootFolder {
            yard: yard.to_owned(),
            ids: ids.clone(),
            plan,
            flushes: Flushes::Discard,
            held: None,
            work_inside: None,
            folders: Vec::new(),
            writable: Vec::new(),
            jobserver: None,
            clients: Vec::new(),
            session: None,
            fakeroots: Vec::new(),
            open: Vec::new(),
            nesting: Nesting::Refused,
            apart: None,
            project: None,
        }
    }

    /// Says whether commands of the root may make namespaces of their own.
    pub fn nesting(self, nesting: Nesting) -> RootFolder {
        RootFolder { nesting, ..self }
    }

    /// Gives commands that build the jobserver of their build, and these programs that know what to do with it.
    pub(crate) fn with_jobserver(mut self, path: &Path, clients: &[String]) -> RootFolder {
        self.jobserver = path.strip_prefix(&self.yard).ok().map(Path::to_owned);
        self.clients = clients.to_vec();
        self
    }

    /// Shows folders of the machine in the root, for reading.
    pub fn showing(mut self, folders: &[ShownFolder]) -> RootFolder {
        self.folders = folders.to_vec();
        self
    }

    /// Gives the root's own root a folder to write in, at this path inside; [`RootFolder::added`] is the same from
    /// outside.
    pub fn adding_at(self, inside: &str) -> Result<RootFolder, RunError> {
        let added = self.added();
        fs_err::create_dir(&added)?;
        probe::give_to_root(&added, &self.ids)?;
        Ok(self.writing_to(&ShownFolder { source: added, inside: inside.to_owned() }))
    }

    /// Lets commands of the root write in a folder of the machine that belongs to the root's own root.
    pub fn writing_to(mut self, folder: &ShownFolder) -> RootFolder {
        self.writable.push(folder.clone());
        self
    }

    /// Says where commands see the folder to work in, where that is in memory.
    pub(crate) fn working_in(mut self, inside: Option<&str>) -> RootFolder {
        self.work_inside = inside.map(str::to_owned);
        self
    }

    /// The folder that commands of the root write in, seen from outside.
    pub fn added(&self) -> PathBuf {
        self.path().join("added")
    }

    /// Gives a root that is an overlay on the disk other layers, relative to the yard, the uppermost first.
    pub(crate) fn stand_on(&mut self, layers: &[String]) -> io::Result<()> {
        write_layers(&self.path(), layers)?;
        let layers: Vec<PathBuf> = layers.iter().map(PathBuf::from).collect();
        let making = Making { flushes: self.flushes, ..Making::default() };
        self.plan = RootPlan::new(&self.plan.folder, &layers, &making);
        Ok(())
    }

    /// The folder of what was written.
    pub(crate) fn upper(&self) -> PathBuf {
        self.seen(&self.plan.written)
    }

    /// Whether something was written, but below these folders.
    pub(crate) fn has_written(&self, but_below: &[&str]) -> bool {
        let upper = self.upper();
        let mut open = vec![PathBuf::new()];
        while let Some(folder) = open.pop() {
            let Ok(entries) = fs_err::read_dir(upper.join(&folder)) else { return true };
            for entry in entries {
                let Ok(entry) = entry else { return true };
                let path = folder.join(entry.file_name());
                if but_below.iter().any(|folder| path == Path::new(folder)) {
                    continue;
                }
                // A folder on the way to one of them is there for its sake.
                if !but_below.iter().any(|folder| Path::new(folder).starts_with(&path)) {
                    return true;
                }
                open.push(path);
            }
        }
        false
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

    /// A folder of the root as it was written, seen from outside. A build may have put links in its way, which lead
    /// elsewhere outside than they do inside: there must be none. To be asked when nothing of the root runs any more.
    pub fn written_without_links(&self, inside: &str) -> io::Result<PathBuf> {
        let (base, below) = self.place_of(inside);
        without_links(&base, &below)
    }

    /// A path of the root as it was written, seen from outside.
    pub fn written(&self, inside: &str) -> PathBuf {
        let (base, below) = self.place_of(inside);
        base.join(below)
    }

    /// The folder that holds a path of the root, seen from outside, and where in it that is.
    fn place_of(&self, inside: &str) -> (PathBuf, PathBuf) {
        let inside = Path::new(inside);
        let below = |folder: &str| inside.strip_prefix(folder).ok().map(Path::to_owned);
        if let (Some(work), Some(folder)) = (self.plan.work_folder(), &self.work_inside)
            && let Some(below) = below(folder)
        {
            return (self.seen(work), below);
        }
        let bound =
            self.writable.iter().find_map(|folder| Some((folder.source.clone(), below(&folder.inside)?)));
        let in_root = || inside.strip_prefix("/").unwrap_or(inside).to_owned();
        bound.unwrap_or_else(|| (self.seen(&self.plan.written), in_root()))
    }

    /// A path of the plan, for this process to open.
    fn seen(&self, path: &Path) -> PathBuf {
        match &self.held {
            Some(held) => held.keeper.seen_from_outside(path),
            None => self.yard.join(path),
        }
    }

    /// The sandbox of a command that builds: it has the jobserver, if there is one.
    pub(crate) fn building_sandbox(&self, command: &CommandOrder) -> Sandbox {
        let mut sandbox = self.sandbox(command);
        if let (Some(jobserver), View::Root(operations)) = (&self.jobserver, &mut sandbox.view) {
            before_pivot(operations, tools::operations(&self.plan.root, jobserver, &self.clients));
            sandbox.environment.push(tools::environment());
        }
        sandbox
    }

    /// What a command of this root performs before it runs.
    pub fn entering(&self) -> Vec<Operation> {
        let own = [("inputs", INPUTS_INSIDE), ("texts", TEXTS_INSIDE)];
        let mut binds: Vec<_> = own
            .map(|(name, inside)| (self.plan.folder.join(name), PathBuf::from(inside), Access::Read))
            .into();
        let shown = |folder: &ShownFolder, access| {
            (self.reached(&folder.source), PathBuf::from(&folder.inside), access)
        };
        binds.extend(self.folders.iter().map(|folder| shown(folder, Access::Read)));
        if let (Some(work), Some(inside)) = (self.plan.work_folder(), &self.work_inside) {
            binds.push((work.to_owned(), PathBuf::from(inside), Access::Write));
        }
        binds.extend(self.writable.iter().map(|folder| shown(folder, Access::Write)));
        if !self.ids.is_alone() {
            let mut operations = self.plan.entering(&binds);
            operations.extend(self.handing_over());
            return operations;
        }
        binds.push(fakeroot::shown(&self.plan.folder));
        let mut operations = self.plan.entering(&binds);
        let more = fakeroot::operations(&self.plan.root, &self.plan.folder, &self.fakeroots);
        before_pivot(&mut operations, more);
        operations
    }

    /// Gives a builder with an id of its own the folder that the layers' builder has.
    fn handing_over(&self) -> Option<Operation> {
        let from = self.apart.as_ref()?.number;
        Some(Operation::HandOver { folder: BUILDER_FOLDER.into(), from, to: BUILDER_ID })
    }

    /// What a command of the builder performs besides, last: with one id alone nobody else would keep it from writing to the
    /// files of the root's root.
    pub fn entering_of_builder(&self) -> Option<Operation> {
        let open = self.open.iter().map(PathBuf::from).collect();
        (self.ids.is_alone() && !self.open.is_empty()).then_some(Operation::Seal { open })
    }

    /// The sandbox of one command in this root.
    pub fn sandbox(&self, command: &CommandOrder) -> Sandbox {
        let own = self.entering_of_builder().filter(|_| command.account == Account::Builder);
        Sandbox {
            folder: self.yard.clone(),
            ids: self.ids.clone(),
            keeper: self.held.as_ref().map(|held| held.keeper.process()),
            view: View::Root(self.entering().into_iter().chain(own).collect()),
            user: user_of(command.account),
            task: Task::Program(command.arguments.clone()),
            directory: PathBuf::from(&command.directory),
            environment: environment_of(command, self.session.as_deref()),
            is_interactive: false,
            has_network: false,
            flushes: self.flushes,
            nesting: self.nesting,
        }
    }

    /// Removes the root with all that is in it.
    pub fn remove(&self) -> Result<(), RunError> {
        self.plan.remove(&self.yard, &self.ids, self.held.as_ref().map(|held| &held.keeper))
    }

    /// Ends what holds files that are not in the root's folder.
    pub(crate) fn end_holding(&self) {
        if let Some(held) = &self.held {
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

    /// Whether the build works in a folder that is no part of what is written.
    pub(crate) fn is_work_apart(&self) -> bool {
        self.plan.work_folder().is_some()
    }

    /// Where commands of the root write: on disks, and not in memory, which is bounded by its size. They are relative to the
    /// yard, since folders above it may be closed to the root's ids.
    fn written_folders(&self) -> Vec<PathBuf> {
        let is_in_memory = self.plan.written.starts_with(self.plan.folder.join(MEMORY));
        let own = (!is_in_memory).then(|| self.plan.written.clone());
        let writable = self.writable.iter().map(|folder| self.reached(&folder.source));
        own.into_iter().chain(writable).collect()
    }

    fn reached(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.yard).unwrap_or(path).to_owned()
    }

    /// What is charged for what was written, as the root's own root sees it.
    fn measured_inside(&self) -> Result<u64, RunError> {
        let sandbox = Sandbox {
            keeper: self.held.as_ref().map(|held| held.keeper.process()),
            ..Sandbox::of_machine(&self.yard, &self.ids, Task::Measure(self.written_folders()))
        };
        let text = sandbox.run()?;
        text.trim().parse().map_err(|error| RunError::Files(io::Error::other(error)))
    }

    /// Whether what is written is a copy of the layers, and not apart from them.
    fn is_copied(&self) -> bool {
        self.plan.lower().is_empty() && (!self.plan.has_device() || self.plan.writes_on_device())
    }

    /// What was written, without folders of the machine that were written in.
    pub(crate) fn written_bytes(&self) -> u64 {
        used_bytes(&self.seen(&self.plan.written))
    }

    /// Lets the kernel bound what is written to the disk, where it can: a little above the limit, which the watch reports.
    pub(crate) fn bound_writing(&self, bytes_max: Option<u64>) -> io::Result<()> {
        let (Some(project), Some(bytes_max)) = (&self.project, bytes_max) else { return Ok(()) };
        project
            .bound(bytes_max.saturating_add(bytes_max / QUOTA_MARGIN_PART).saturating_add(QUOTA_MARGIN_BYTES))
    }

    /// What was written to the disk, where the kernel bounds that.
    pub(crate) fn project_bytes(&self) -> Option<u64> {
        self.project.as_ref()?.used_bytes().ok()
    }

    /// Whether a build that failed may have failed for want of memory for its files. What did not fit is often removed
    /// by whoever wrote it.
    pub(crate) fn is_exhausted(&self) -> bool {
        let memory = self.memory();
        let facts = memory.and_then(|memory| rustix::fs::statvfs(memory).ok());
        facts
            .zip(self.held.as_ref())
            .is_some_and(|(facts, held)| facts.f_bavail < held.free_blocks / FREE_PART || facts.f_favail == 0)
    }

    /// The folder of what is in memory, seen from outside.
    fn memory(&self) -> Option<PathBuf> {
        self.held.as_ref().map(|held| held.keeper.seen_from_outside(&self.plan.folder.join(MEMORY)))
    }

    /// Whether the disk has room for more while this root stays. A build that filled the disk must not fail all
    /// others for the sake of its root.
    pub fn has_room_beside_it(&self) -> bool {
        let on_device = self.plan.writes_on_device().then(|| self.seen(&self.plan.written));
        let held = self.memory().into_iter().chain(on_device);
        let needed = ROOM_BYTES_MIN + held.map(|folder| used_bytes(&folder)).sum::<u64>();
        rustix::fs::statvfs(self.path()).is_ok_and(|facts| facts.f_bavail * facts.f_frsize >= needed)
    }

    /// The file that tells requests to the root's device, if they are told, and a name for it.
    pub(crate) fn requests(&self) -> Option<(PathBuf, String)> {
        let path = self.path().join(block::REQUESTS);
        let name = self.plan.folder.file_name()?.to_string_lossy().into_owned();
        path.exists().then(|| (path, format!("{name}-requests.log")))
    }
}

impl Worker {
    /// What is watched while commands of a root write.
    pub(crate) fn writing(&self, root: &RootFolder) -> Writing {
        let layers = root.is_copied().then(|| read_layers(&root.path())).flatten().unwrap_or_default();
        let memory = root.memory().and_then(|memory| rustix::fs::statvfs(memory).ok());
        Writing {
            folders: root.written_folders().iter().map(|folder| root.seen(folder)).collect(),
            before_bytes: layers
                .iter()
                .map(|layer| self.memory.layer(&self.settings.yard.join(layer)).charged_bytes())
                .sum(),
            memory_bytes_max: memory.map_or(0, |facts| facts.f_blocks.saturating_mul(facts.f_frsize)),
        }
    }

    /// What counts against the limit of what a build writes, now that none of its commands runs.
    pub(crate) fn written_bytes(&self, root: &RootFolder) -> Result<u64, RunError> {
        let Writing { folders, before_bytes, .. } = self.writing(root);
        let charged: u64 = match root.ids.is_ordinary() {
            false => folders.iter().map(|folder| usage(folder, u64::MAX).charged_bytes()).sum(),
            // The builder may have closed folders to everyone but the root's own root.
            true => root.measured_inside()?,
        };
        Ok(charged.saturating_sub(before_bytes))
    }

    /// A root whose files are on the disk.
    pub(crate) fn disk_root(&self, name: &str, layers: &[String]) -> Result<RootFolder, RunError> {
        let settings = &self.settings;
        RootFolder::create(&settings.yard, name, &settings.ids, layers, &settings.roots.on_disk())
    }

    /// The root of a build, in memory if it was promised room there.
    pub(crate) fn build_root(
        &self,
        name: &str,
        order: &BuildOrder,
        local: &Local,
        means: Means,
    ) -> Result<RootFolder, RunError> {
        let Settings { yard, ids, roots, nesting, .. } = &self.settings;
        let promise = means.promise.as_ref();
        let making = promise.map_or(roots.of_build(), |promise| roots.in_memory(promise.bytes));
        let plan = build_plan(name, &local.layers, &making, means.image.as_ref(), ids);
        let apart = Apart::claim(ids).map(Arc::new);
        let ids = apart.as_ref().map_or(ids, |apart| &apart.ids);
        let root = RootFolder::create_with(yard, ids, &local.layers, (plan, making.flushes), means)?;
        let noted = apart.as_ref().map_or(Ok(()), |apart| apart.note(&root.path()));
        let project = noted.and_then(|()| project_of(&root, apart.as_deref()));
        let root = RootFolder { apart, ..root };
        let root = match project {
            Ok(project) => RootFolder { project: project.map(Arc::new), ..root },
            Err(error) => {
                let _ = root.remove();
                return Err(RunError::Files(error));
            }
        };
        let nests = nesting.contains(&order.package);
        let root = self.composing(root, local)?;
        Ok(root.of_order(order, local).nesting(if nests { Nesting::Allowed } else { Nesting::Refused }))
    }

    /// A root with what belongs to it besides its layers and inputs.
    pub(crate) fn showing(
        &self,
        root: RootFolder,
        order: &RootOrder,
        local: &Local,
    ) -> Result<RootFolder, RunError> {
        Ok(self.composing(root, local)?.of_root_order(order, local))
    }

    /// Makes the folders of a root that are made of links; it is removed where that fails.
    fn composing(&self, root: RootFolder, local: &Local) -> Result<RootFolder, RunError> {
        for (number, folder) in local.composed.iter().enumerate() {
            if let Err(error) = folder.make(&root.composed(number), &self.distfiles) {
                let _ = root.remove();
                return Err(RunError::Files(error));
            }
        }
        Ok(root)
    }

    /// The image that the root of a build is on, if it is on a device; that it was cancelled is an error without a reason.
    pub(crate) fn image(
        &self,
        layers: &[String],
        cancel: &AtomicBool,
    ) -> Result<Option<Image>, Option<RunError>> {
        let Form::Image(device) = self.settings.roots.of_build().form else { return Ok(None) };
        let image = self.layers.image(layers, &device, cancel).map_err(Some)?;
        image.map(Some).ok_or(None)
    }

    /// Room in memory for what a build is expected to write, if that is wanted there.
    pub(crate) fn promise(&self, order: &BuildOrder, local: &Local, written_bytes: u64) -> Option<Promise> {
        let Settings { yard, roots, works_in_memory, .. } = &self.settings;
        let layer_bytes = |layer: &str| self.memory.layer(&yard.join(layer)).bytes;
        let bytes = wanted_memory(*roots, *works_in_memory, (order, local), written_bytes, &layer_bytes)?;
        self.memory.promise(bytes)
    }
}

/// The project of what a build writes, numbered as its builder, of which there is one at a time.
fn project_of(root: &RootFolder, apart: Option<&Apart>) -> io::Result<Option<Project>> {
    let number = apart.filter(|apart| !apart.ids.is_ordinary()).and_then(|a| a.ids.user_outside(BUILDER_ID));
    let (Some(number), Some(scratch)) = (number, root.plan.scratch()) else { return Ok(None) };
    let [upper, work] = scratch.map(|folder| root.yard.join(folder));
    Project::begin(&[&upper, &work], number)
}

/// Adds what takes paths of the machine to the operations of a command.
fn before_pivot(operations: &mut Vec<Operation>, more: Vec<Operation>) {
    let pivot = operations.iter().position(|operation| matches!(operation, Operation::Pivot { .. }));
    let at = pivot.unwrap_or(operations.len());
    operations.splice(at..at, more);
}

/// The plan of a root of these layers.
fn plan_of(name: &str, layers: &[String], making: &Making, image: Option<&Image>) -> RootPlan {
    RootPlan::new(&Path::new("roots").join(name), &layers_below(layers, image), making)
}

/// The plan of the root of a build, which several commands go through.
fn build_plan(
    name: &str,
    layers: &[String],
    making: &Making,
    image: Option<&Image>,
    ids: &IdMap,
) -> RootPlan {
    let plan = plan_of(name, layers, making, image);
    if ids.is_alone() { plan.held() } else { plan }
}

/// The layers of a root, with an image in the place of those that it holds.
fn layers_below(layers: &[String], image: Option<&Image>) -> Vec<PathBuf> {
    image.map_or_else(|| layers.iter().map(PathBuf::from).collect(), |image| image.below(layers))
}

/// How much memory a build should be promised for its files; none if they are to be on the disk.
fn wanted_memory(
    roots: Roots,
    works_in_memory: bool,
    (order, local): (&BuildOrder, &Local),
    written_bytes: u64,
    layer_bytes: &dyn Fn(&str) -> u64,
) -> Option<u64> {
    if roots.is_in_memory() {
        let layers = local.layers.iter().filter(|_| roots.copies_to_memory());
        return Some(promised_bytes(written_bytes, layers.map(|layer| layer_bytes(layer)).sum()));
    }
    let work = order.work.as_ref().filter(|_| works_in_memory)?;
    Some(promised_bytes(work.expected_bytes, 0))
}

/// A path below a folder that belongs to a build, if no part of it is a link.
pub(crate) fn without_links(base: &Path, below: &Path) -> io::Result<PathBuf> {
    let mut path = base.to_owned();
    for part in below.components() {
        path.push(part);
        if fs_err::symlink_metadata(&path)?.is_symlink() {
            return Err(io::Error::other(format!("{} is a link", path.display())));
        }
    }
    Ok(path)
}

fn user_of(account: Account) -> User {
    match account {
        Account::Root => User::Root,
        Account::Builder => User::Plain { user: BUILDER_ID, group: BUILDER_ID },
    }
}

/// The same few variables for every command, then its own, then those of the session that root's commands have.
fn environment_of(command: &CommandOrder, session: Option<&Session>) -> Vec<(String, String)> {
    let name = match command.account {
        Account::Root => "root",
        Account::Builder => "builder",
    };
    let common = [
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        ("HOME", "/nonexistent"),
        ("LC_ALL", "C.UTF-8"),
        ("LOGNAME", name),
        ("SHELL", "/bin/sh"),
        ("TERM", "dumb"),
        ("TZ", "UTC"),
        ("USER", name),
    ];
    let is_own = |variable: &str| command.environment.iter().any(|(own, _)| own == variable);
    let common = common.into_iter().filter(|(variable, _)| !is_own(variable));
    let session = session.filter(|_| command.account == Account::Root).map(fakeroot::environment);
    let own = common.map(|(a, b)| (a.to_owned(), b.to_owned())).chain(command.environment.clone());
    own.chain(session.into_iter().flatten()).collect()
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
