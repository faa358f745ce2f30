//! Roots on this machine, whose commands run in namespaces, of this machine or of a virtual one: currently the only
//! [`Runner`].

use crate::apart::Apart;
use crate::layers::{Image, Layers, OF_MACHINES};
use crate::machines::{Machines, RootMachine, check, is_contained};
use crate::memory::{Memory, Reservation};
use crate::remover::Remover;
use crate::roots::{BuildFacts, Planned, RootResources, in_machine};
use crate::runner::{BuildRoot, Entering, LayeredRoot, PlainRoot, Root, Runner, RunnerError, Running, Shown};
use crate::{Local, RootFolder, Settings, tools};
use kilnyard_mirror::{FileStore, Sha256Hex};
use kilnyard_model::order::{Input, InputText, MachineTerms, RootOrder};
use kilnyard_process::{CommandOutcome, End, Sample, Watched, run_watched};
use kilnyard_root::sandbox::RunError;
use kilnyard_root::tree::remove_beneath;
use kilnyard_root::{Form, Nesting, SHARED, Sandbox, used_bytes};
use kilnyard_schedule::Files;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The folder of the machine of a shell, before a number, relative to the folder of its root.
const CONSOLE: &str = "console";
/// Shells of this process so far: several may be open in one root.
static SHELLS: AtomicU64 = AtomicU64::new(0);

/// See the module documentation.
#[derive(Clone, Debug)]
pub(crate) struct Sandboxed {
    settings: Arc<Settings>,
    distfiles: Arc<FileStore>,
    layers: Arc<Layers>,
    memory: Arc<Memory>,
    remover: Arc<Remover>,
    machines: Arc<Machines>,
}

/// A root and the runner that made it.
#[derive(Debug)]
struct SandboxedRoot {
    root: RootFolder,
    runner: Sandboxed,
    /// The virtual machine for its commands, if they do not run on this one.
    machine: Option<RootMachine>,
}

impl Sandboxed {
    pub(crate) fn new(settings: Arc<Settings>, distfiles: Arc<FileStore>, layers: Arc<Layers>) -> Sandboxed {
        let memory = Arc::new(Memory::new(settings.works_in_memory || settings.roots.is_in_memory()));
        let machines = Arc::new(Machines::new(&settings.yard));
        Sandboxed { settings, distfiles, layers, memory, remover: Arc::default(), machines }
    }

    fn nesting(&self, package: &str) -> Nesting {
        match self.settings.nesting.contains(package) {
            true => Nesting::Allowed,
            false => Nesting::Refused,
        }
    }

    /// The file of an input in the file store, whether it exists or not.
    fn file_of(&self, input: &Input) -> PathBuf {
        // An invalid hash gives an empty path, and linking that fails.
        Sha256Hex::parse(&input.sha256).map_or_else(|_| PathBuf::new(), |hash| self.distfiles.path(&hash))
    }

    /// Makes the folders of a root that consist of links. Removes the root on failure.
    fn composing(&self, root: RootFolder, local: &Local) -> Result<RootFolder, RunError> {
        for (number, folder) in local.composed.iter().enumerate() {
            if let Err(error) = folder.make(&root.composed(number), &self.distfiles) {
                let _ = root.remove();
                return Err(RunError::Files(error));
            }
        }
        Ok(root)
    }

    /// The image for the root of a build, if roots are on a block device.
    fn image(&self, layers: &[String], cancel: &AtomicBool) -> Result<Option<Image>, RunnerError> {
        let Form::Image(device) = self.settings.roots.of_build().form else { return Ok(None) };
        let image = self.layers.image(layers, &device, cancel)?;
        image.map(Some).ok_or(RunnerError::Cancelled)
    }

    /// The image for the disk of a root's virtual machines, if this machine can make one.
    fn disk(&self, layers: &[String], cancel: &AtomicBool) -> Result<Option<Arc<Image>>, RunnerError> {
        if !OF_MACHINES.file_system.can_be_made() {
            return Ok(None);
        }
        let image = self.layers.image(layers, &OF_MACHINES, cancel)?;
        image.map(|image| Some(Arc::new(image))).ok_or(RunnerError::Cancelled)
    }

    /// Memory for the files that a build is expected to write, if they should be in memory and it has room.
    fn reserve(&self, wanted: &BuildRoot<'_>) -> Option<Reservation> {
        let Settings { yard, roots, works_in_memory, .. } = &*self.settings;
        let BuildRoot { order, local, written_bytes, .. } = *wanted;
        let facts =
            BuildFacts { order, local, roots: *roots, works_in_memory: *works_in_memory, written_bytes };
        self.memory.reserve(facts.wanted_memory(&|layer| self.memory.layer(&yard.join(layer)).bytes)?)
    }

    fn root(
        &self,
        root: RootFolder,
        machine: Option<MachineTerms>,
        disk: Option<Arc<Image>>,
    ) -> SandboxedRoot {
        let machine = machine.map(|terms| RootMachine::new(self.machines.clone(), terms, disk));
        SandboxedRoot { root, runner: self.clone(), machine }
    }

    fn make(&self, wanted: &PlainRoot<'_>) -> Result<SandboxedRoot, RunnerError> {
        let Settings { yard, ids, roots, .. } = &*self.settings;
        let (making, disk) = match wanted.machine {
            // Nothing waits for long but for other builds that make the same image.
            Some(_) => (in_machine(*roots), self.disk(wanted.layers, &AtomicBool::new(false))?),
            None => (roots.on_disk(), None),
        };
        let root = RootFolder::create(yard, wanted.name, ids, wanted.layers, &making)?;
        let root = match wanted.shown {
            Shown::Nothing => root,
            Shown::Sealed(folders) => root.sealing(folders),
            Shown::Order(order, local) => self.composing(root, local)?.of_root_order(order, local),
        };
        let root = match wanted.added {
            None => root,
            Some(inside) => root.clone().adding_at(inside).inspect_err(|_| {
                let _ = root.remove();
            })?,
        };
        Ok(self.root(root, wanted.machine, disk))
    }
}

impl Runner for Sandboxed {
    fn build_root(&self, wanted: &BuildRoot<'_>, cancel: &AtomicBool) -> Result<Box<dyn Root>, RunnerError> {
        let Settings { yard, ids, roots, jobserver, .. } = &*self.settings;
        let BuildRoot { name, order, local, .. } = *wanted;
        let machine = order.terms.machine.filter(|terms| !terms.is_optional || self.machines.are_there(ids));
        let reservation = match wanted.files {
            Files::Memory if machine.is_none() => self.reserve(wanted),
            Files::Memory | Files::Disk => None,
        };
        let (image, disk) = match machine {
            None => (self.image(&local.layers, cancel)?, None),
            Some(_) => (None, self.disk(&local.layers, cancel)?),
        };
        let resources = RootResources { reservation, image };
        let reservation = resources.reservation.as_ref();
        let making = match machine {
            Some(_) => in_machine(*roots),
            None => reservation.map_or(roots.of_build(), |reservation| roots.in_memory(reservation.bytes)),
        };
        let planned = Planned::of_build(name, &local.layers, &making, resources.image.as_ref(), ids);
        let apart = Apart::claim(ids);
        let ids = apart.as_ref().map_or(ids, |apart| &apart.ids).clone();
        let root = RootFolder::create_with(yard, &ids, &local.layers, planned, resources)?;
        let root = self.composing(root.of_one_build(apart)?, local)?;
        let mut root = root.of_order(order, local).nesting(self.nesting(&order.package));
        if let Some(path) = wanted.jobserver {
            root = root.with_jobserver(path, &order.clients);
        }
        let root = self.root(root, machine, disk);
        if let Err(error) = tools::provide(yard, *jobserver, &order.clients) {
            // On a full disk, the remains would make the next attempt fail too.
            Box::new(root).remove();
            return Err(error.into());
        }
        Ok(Box::new(root))
    }

    fn plain_root(&self, wanted: &PlainRoot<'_>) -> Result<Box<dyn Root>, RunnerError> {
        Ok(Box::new(self.make(wanted)?))
    }

    fn makes_layers(&self) -> bool {
        self.settings.roots.on_disk().form == Form::Overlay
    }

    fn layered_root(&self, wanted: &PlainRoot<'_>) -> Result<Box<dyn LayeredRoot>, RunnerError> {
        Ok(Box::new(self.make(wanted)?))
    }

    fn failed_root(&self, package: &str) -> io::Result<Option<RootOrder>> {
        RootFolder::order_of_failed(&self.settings.yard, package)
    }

    fn enter_failed_root(
        &self,
        entering: &Entering<'_>,
        run: &mut dyn FnMut(Command) -> io::Result<i32>,
    ) -> Result<i32, RunnerError> {
        let Entering { package, order, local, .. } = *entering;
        let Settings { yard, ids, .. } = &*self.settings;
        let found = || RootFolder::of_failed(yard, package, ids, &local.layers);
        if entering.machine.is_some() {
            found().share_with_machines()?;
        }
        let root = found().of_root_order(order, local);
        let shared = root.path().join(SHARED);
        // What a virtual machine left may lead elsewhere.
        if shared.exists() {
            check(&shared)?;
        }
        // The fakeroot session lasts as long as `root`.
        let root = root.with_session()?.nesting(self.nesting(package));
        let mut sandbox = root.sandbox(entering.command);
        sandbox.is_interactive = true;
        let Some(terms) = entering.machine else {
            return Ok(sandbox.run_interactively(entering.specification, run)?);
        };
        if !is_contained(&sandbox, &root.plan().folder) {
            let text = "this root has its files where a virtual machine would reach those of others";
            return Err(io::Error::other(text).into());
        }
        let number = SHELLS.fetch_add(1, Ordering::Relaxed);
        let name = format!("{CONSOLE}-{}-{number}", std::process::id());
        let console = self.machines.console(root.path().join(&name), terms, sandbox);
        let console = console.map_err(io::Error::other)?;
        let ended = console.command(entering.specification).and_then(run);
        // One that was killed could not remove it.
        let removed = match root.path().join(&name).exists() {
            true => remove_beneath(yard, &root.plan().folder.join(&name)),
            false => Ok(()),
        };
        fs_err::remove_file(entering.specification)?;
        check(&shared)?;
        removed?;
        Ok(ended?)
    }
}

impl SandboxedRoot {
    /// The root while no virtual machine writes to it.
    ///
    /// # Errors
    /// A machine left something that cannot be used.
    fn still(&self) -> io::Result<&RootFolder> {
        self.machine.as_ref().map_or(Ok(()), |machine| machine.end(&self.root)).map(|()| &self.root)
    }
}

impl Root for SandboxedRoot {
    fn provide(&self, inputs: &[Input], texts: &[InputText]) -> io::Result<()> {
        self.still()?.provide(inputs, texts, &|input| self.runner.file_of(input))
    }

    fn provide_file(&self, name: &str, file: &Path) -> io::Result<()> {
        self.still()?.provide_file(name, file)
    }

    fn bring_in(&self, name: &str, file: &Path) -> io::Result<()> {
        let added = self.still()?.added();
        let target = added.join(name);
        fs_err::create_dir_all(target.parent().unwrap_or(&added))?;
        fs_err::copy(file, target).map(|_| ())
    }

    fn bring_out(&self, inside: &str) -> io::Result<PathBuf> {
        self.still()?.written_without_links(inside)
    }

    fn run(
        &self,
        running: &Running<'_>,
        output: &mut (dyn Write + Send),
        observe: &mut dyn FnMut(Sample),
    ) -> CommandOutcome {
        let Running { command, limits, cancel, membership, .. } = *running;
        if let Err(error) = self.root.bound_writing(limits.written_bytes_max) {
            return CommandOutcome::of(End::SandboxFailed(error.to_string()));
        }
        let sandbox = |sees_jobserver| {
            let sandbox = match sees_jobserver {
                true => self.root.building_sandbox(command),
                false => self.root.sandbox(command),
            };
            Sandbox { has_network: running.has_network, ..sandbox }
        };
        let own = sandbox(running.sees_jobserver);
        let writing = &self.root.writing(&self.runner.memory);
        let watched = Watched { limits, writing, cancel, membership };
        match &self.machine {
            Some(machine) => {
                // Commands of both kinds follow each other.
                let other = sandbox(!running.sees_jobserver);
                machine.run(&self.root, [&own, &other], watched, output, observe)
            }
            None => run_watched(&own, output, watched, observe),
        }
    }

    fn work_bytes(&self, inside: &str) -> Option<u64> {
        let folder = self.still().and_then(|root| root.written_without_links(inside));
        folder.ok().map(|folder| used_bytes(&folder))
    }

    fn rest_bytes(&self, work_bytes: Option<u64>) -> u64 {
        // A work folder on the disk is part of the root.
        let work_bytes = work_bytes.filter(|_| !self.root.has_separate_work_folder());
        let written_bytes = self.still().map_or(0, RootFolder::written_bytes);
        written_bytes.saturating_sub(work_bytes.unwrap_or(0))
    }

    fn charged_bytes(&self) -> Result<u64, RunnerError> {
        Ok(self.still()?.charged_bytes(&self.runner.memory)?)
    }

    fn bounded_bytes(&self) -> Option<u64> {
        self.root.project_bytes()
    }

    fn is_exhausted(&self) -> bool {
        self.root.is_exhausted()
    }

    fn has_room_for_others(&self) -> bool {
        self.root.has_room_for_others()
    }

    fn keep_requests(&self, folder: &Path) {
        for (record, name) in self.root.requests() {
            // The server has them open, and writes on wherever they are. If this fails, the record is missing, which its readers notice.
            let _ = fs_err::rename(record, folder.join(name));
        }
    }

    fn keep_as_failed(self: Box<Self>, package: &str, order: &RootOrder) -> bool {
        // The failure matters more than keeping the root; the next start removes any remains.
        let failed_roots_max = self.runner.settings.failed_roots_max;
        let is_kept =
            self.still().is_ok_and(|root| root.keep_as_failed(package, order, failed_roots_max).is_ok());
        if !is_kept {
            self.remove();
        }
        is_kept
    }

    fn remove(self: Box<Self>) {
        // Whatever a machine left is removed.
        let _ = self.still();
        let SandboxedRoot { root, runner, .. } = *self;
        runner.remover.remove(root);
    }

    fn remove_at_once(self: Box<Self>) {
        let _ = self.still();
        // The run ends with a list of everything that was set aside.
        let _ = self.root.remove_or_set_aside();
    }
}

impl LayeredRoot for SandboxedRoot {
    fn set_layers(&mut self, layers: &[String]) -> io::Result<()> {
        self.still()?;
        self.root.set_layers(layers)
    }

    fn has_written(&self, but_below: &[&str]) -> io::Result<bool> {
        Ok(self.still()?.has_written(but_below))
    }

    fn written(&self) -> io::Result<PathBuf> {
        Ok(self.still()?.upper())
    }

    fn start_over(&self) -> Result<(), RunnerError> {
        Ok(self.still()?.start_over()?)
    }
}
