//! Installs dependencies in a root: from existing layers, from new layers, and by the package manager for the rest.

use crate::build::{Performance, machine, unmade, write_log};
use crate::layers::{LayerSet, Layers, LayersInUse, SETS_STACKED_MAX, STACKED_MAX, mergeable};
use crate::runner::{LayeredRoot, PlainRoot, Root, RunnerError, Running, Shown};
use crate::{Share, Silent, Worker};
use kilnyard_ecosystem::{CollectError, Layering, Manager, Part, Stack};
use kilnyard_model::order::{Dependency, Input, RootOrder, Stage, StageOrder};
use kilnyard_model::result::{Failure, FailureKind};
use kilnyard_process::{End, own_cpu_seconds};
use kilnyard_protocol::Lease;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Packages that the package manager installed may allow others to be layered, so these are tried again, at most this
/// often.
const ROUNDS_MAX: usize = 4;

/// The folder inside the root where packages are unpacked.
const ADDED: &str = "/kilnyard/added";

/// Prefix of the names of roots and logs of layers that are made before a build.
const AHEAD: &str = "ahead-";

/// Paths that are written in a root even if its command writes nothing: mount points, and logs, which record when
/// commands ran and do not affect builds.
const ALWAYS_WRITTEN: [&str; 6] = ["dev", "kilnyard", "proc", "run", "sys", "var/log"];

/// The layers of a root with all its dependencies. They are not removed before this is dropped.
pub struct Stacked {
    layers: Vec<String>,
    _held: LayersInUse,
}

impl Stacked {
    /// Paths relative to the yard, the uppermost first.
    pub fn layers(&self) -> &[String] {
        &self.layers
    }
}

impl Worker {
    /// Makes layers of a lease's dependencies, as a build does before its stages, without building. `None` if there
    /// is nothing to install, or layers are disabled.
    pub fn stack(
        &self,
        lease: &Lease,
        share: &Share,
        cancel: &AtomicBool,
    ) -> Result<Option<Stacked>, Failure> {
        let performance = Performance::new(self, lease, share, cancel, &Silent)?.without_failed_roots();
        let local = self.local(&lease.order.root).map_err(failed)?;
        // The build itself may begin meanwhile.
        let name = format!("{AHEAD}{}", lease.attempt);
        let purpose = Purpose { stage: Stage::Depends, prefix: AHEAD, name: &name };
        performance.depends(&lease.order.root, &local.layers, purpose)
    }
}

/// The build or test that dependencies are installed for.
#[derive(Clone, Copy)]
pub(crate) struct Purpose<'a> {
    pub(crate) stage: Stage,
    /// Prefix of the names of its logs.
    pub(crate) prefix: &'a str,
    /// Distinguishes its roots from others.
    pub(crate) name: &'a str,
}

/// A root that is getting its dependencies.
struct Making<'a> {
    performance: &'a Performance<'a>,
    manager: &'a dyn Manager,
    order: &'a RootOrder,
    /// The layers of the order, relative to the yard.
    base: &'a [String],
    /// Where packages are configured and installed; the written files become a layer.
    root: Box<dyn LayeredRoot>,
    /// Hashes of the packages not installed yet.
    missing: BTreeSet<String>,
    /// The layers below the root, without the base, the uppermost first.
    stack: Vec<String>,
    /// Hashes of the installed packages.
    installed: BTreeSet<String>,
    /// Text of the log.
    said: String,
    purpose: Purpose<'a>,
}

impl Performance<'_> {
    /// Makes layers of an order's dependencies. `None` if there is nothing to install, or layers are disabled.
    pub(crate) fn depends(
        &self,
        order: &RootOrder,
        base: &[String],
        purpose: Purpose<'_>,
    ) -> Result<Option<Stacked>, Failure> {
        let stage = purpose.stage;
        self.stacked(order, base, purpose).map_err(|failure| Failure { stage, ..failure })
    }

    fn stacked(
        &self,
        order: &RootOrder,
        base: &[String],
        purpose: Purpose<'_>,
    ) -> Result<Option<Stacked>, Failure> {
        let Purpose { stage, prefix, name } = purpose;
        let worker = self.worker;
        if !worker.runner.makes_layers() || order.depends.is_empty() || worker.layers.are_disabled() {
            return Ok(None);
        }
        let mut result = self.begin(stage);
        let (started, cpu_seconds_before) = (Instant::now(), own_cpu_seconds());
        let root_name = format!("depends-{name}");
        let shown = Shown::Sealed(&order.sealed);
        let machine = self.virtual_machine();
        let wanted = PlainRoot { name: &root_name, layers: base, shown, added: None, machine };
        let root = worker.runner.layered_root(&wanted).map_err(no_root)?;
        let mut making = Making {
            performance: self,
            manager: &*self.rules,
            order,
            base,
            root,
            missing: BTreeSet::new(),
            stack: Vec::new(),
            installed: BTreeSet::new(),
            said: String::new(),
            purpose,
        };
        let is_in_machine = self.lease.order.terms.machine.is_some();
        let outcome = making.make().and_then(|held| match is_in_machine {
            true => making.merge_packages(),
            false => Ok(held),
        });
        let stacked = outcome.as_ref().map(|_| making.stacked());
        let (layers, failure) = (stacked.unwrap_or_default(), outcome.as_ref().err());
        let Making { root, mut said, .. } = making;
        self.done_with(root, failure);
        if let Err(failure) = &outcome {
            if !matches!(failure.kind, FailureKind::Machine | FailureKind::Cancelled) {
                // The log of the commands that failed stays the last one of the stage, which users read.
                return Err(failure.clone());
            }
            said.push_str(&format!("E: {}\n", failure.message));
        }
        let log = self.log_place(stage, prefix);
        let written = write_log(&log.path, worker.settings.log_limits, &said);
        result.log = Some(log.name);
        result.wall_seconds = started.elapsed().as_secs_f64();
        // The commands report their own usage.
        result.cpu_seconds = own_cpu_seconds() - cpu_seconds_before;
        result.is_ok = outcome.is_ok();
        self.report_ended(result);
        let held = outcome?;
        written.map_err(failed)?;
        Ok(Some(Stacked { layers, _held: held }))
    }

    /// Lets the package manager install all dependencies of an order in a root.
    pub(crate) fn install(&self, order: &RootOrder, root: &dyn Root, prefix: &str) -> Result<(), Failure> {
        let commands = self.rules.install(&order.depends.iter().collect::<Vec<_>>());
        self.stage(&StageOrder { stage: Stage::Depends, commands }, root, prefix)
    }
}

impl<'a> Making<'a> {
    fn layers(&self) -> &Layers {
        &self.performance.worker.layers
    }

    fn say(&mut self, line: &str) {
        self.said.push_str(line);
        self.said.push('\n');
    }

    fn make(&mut self) -> Result<LayersInUse, Failure> {
        let mut held = self.begin_with_largest()?;
        if self.missing.is_empty() {
            return Ok(held);
        }
        // Other builds that need the same set wait for it.
        let wanted = self.set_of(self.order.depends.iter().map(|one| one.sha256.clone()).collect());
        let claim = self.layers().claim(vec![wanted.name()], self.performance.cancel);
        let Some(_claim) = claim else { return Err(cancelled()) };
        held = self.begin_with_largest()?;
        if self.missing.is_empty() {
            return Ok(held);
        }
        let order = self.order;
        self.root.provide(&order.inputs, &order.texts).map_err(failed)?;
        let manager = self.manager;
        match manager.layering() {
            Ok(layering) => {
                for _ in 0..ROUNDS_MAX {
                    if self.missing.is_empty() {
                        return Ok(held);
                    }
                    let unpacked = self.unpacked(layering)?;
                    match self.stack_up(layering, &unpacked)? {
                        Some(grown) => held = grown,
                        None => break,
                    }
                }
            }
            Err(reason) => self.say(&format!("the rest is left to the package manager: {reason}")),
        }
        if !self.missing.is_empty() {
            held = self.by_manager(self.lacking())?;
        }
        Ok(held)
    }

    /// The packages not installed yet, in the order of the dependencies.
    fn lacking(&self) -> Vec<&'a Dependency> {
        self.order.depends.iter().filter(|package| self.missing.contains(&package.sha256)).collect()
    }

    /// Starts the root from the largest existing set.
    fn begin_with_largest(&mut self) -> Result<LayersInUse, Failure> {
        let all: BTreeSet<String> = self.order.depends.iter().map(|one| one.sha256.clone()).collect();
        let (mut layers, mut packages) = (Vec::new(), Vec::new());
        let stacked_max = if self.manager.layering().is_ok() { STACKED_MAX } else { SETS_STACKED_MAX };
        if let Some(set) = self.layers().largest(self.base, &all, stacked_max) {
            layers = set.layers();
            packages = set.packages;
        }
        let held = match self.layers().hold(&layers) {
            Some(held) => held,
            None => {
                // It was removed in the meantime.
                (layers, packages) = Default::default();
                self.layers().hold(&[]).ok_or_else(cancelled)?
            }
        };
        self.missing = all.into_iter().filter(|hash| !packages.contains(hash)).collect();
        self.said.clear();
        let (count, all) = (packages.len(), self.order.depends.len());
        self.say(&format!("{count} of {all} dependencies were installed together before"));
        self.installed = packages.into_iter().collect();
        self.stack = layers;
        self.show()?;
        Ok(held)
    }

    /// All layers below the root, relative to the yard, the uppermost first.
    fn stacked(&self) -> Vec<String> {
        let own = self.stack.iter().map(|layer| self.layers().files(layer).display().to_string());
        own.chain(self.base.iter().cloned()).collect()
    }

    /// All layers below the root, as paths that this process can open.
    fn folders(&self) -> Vec<PathBuf> {
        let yard = &self.performance.worker.settings.yard;
        self.stacked().iter().map(|layer| yard.join(layer)).collect()
    }

    /// Gives the current stack to the root.
    fn show(&mut self) -> Result<(), Failure> {
        let layers = self.stacked();
        self.root.set_layers(&layers).map_err(failed)
    }

    /// The descriptions of missing packages, by hash. Packages that can have a layer have one after this.
    fn unpacked(&mut self, layering: &dyn Layering) -> Result<BTreeMap<String, String>, Failure> {
        let hashes: Vec<String> = self.missing.iter().cloned().collect();
        let lack = |layers: &Layers| hashes.iter().any(|hash| layers.package(hash, self.base).is_none());
        let mut descriptions = BTreeMap::new();
        if lack(self.layers()) {
            let claim = self.layers().claim(hashes.clone(), self.performance.cancel);
            let Some(_claim) = claim else { return Err(cancelled()) };
            let mut to_unpack = Vec::new();
            for package in self.lacking() {
                if self.layers().package(&package.sha256, self.base).is_some() {
                    continue;
                }
                let input = self.order.inputs.iter().find(|input| input.name == package.file);
                let file = input.map(|input| self.performance.worker.file_of(input));
                match file.map(|file| layering.describe(&file)) {
                    Some(Ok(description)) => {
                        to_unpack.push((package, self.tried(layering, package, description)?))
                    }
                    Some(Err(error)) => self.say(&format!("{} has no layer: {error}", package.name)),
                    None => self.say(&format!("{} is not among the inputs", package.name)),
                }
            }
            match self.unpack(layering, &to_unpack) {
                // Packages without a layer have a description too, which gives the reason.
                Ok(()) => descriptions
                    .extend(to_unpack.into_iter().map(|(package, text)| (package.sha256.clone(), text))),
                Err(failure) if failure.kind == FailureKind::Cancelled => return Err(failure),
                Err(failure) => self.say(&format!("not unpacked into layers: {}", failure.message)),
            }
        }
        for hash in &hashes {
            if let Some(known) = self.layers().package(hash, self.base) {
                descriptions.insert(hash.clone(), known.description);
            }
        }
        Ok(descriptions)
    }

    /// The description of a package, after trying it out if its family asks for that.
    fn tried(
        &self,
        layering: &dyn Layering,
        package: &Dependency,
        description: String,
    ) -> Result<String, Failure> {
        let Some(command) = layering.trial(Part { package, description: &description }) else {
            return Ok(description);
        };
        let root = self.root_with_folder("try")?;
        let inputs = self.inputs_of(&[package.file.as_str()]);
        let provided = root.provide(&inputs, &[]).map_err(failed);
        let outcome = provided.map(|()| {
            let running = Running {
                command: &command,
                sees_jobserver: false,
                has_network: false,
                limits: self.performance.worker.settings.limits.limits(None),
                cancel: self.performance.cancel,
                membership: Some(&self.performance.share.membership),
            };
            root.run(&running, &mut io::sink(), &mut |_| {}).end
        });
        let has_written = root.has_written(&ALWAYS_WRITTEN).unwrap_or(true);
        let is_harmless = matches!(&outcome, Ok(End::Exit(0))) && !has_written;
        root.remove_at_once();
        match outcome? {
            End::Cancelled => Err(cancelled()),
            _ if is_harmless => Ok(layering.harmless(&description)),
            _ => Ok(description),
        }
    }

    /// A root of the base with a folder that its commands may write in.
    fn root_with_folder(&self, what_for: &str) -> Result<Box<dyn LayeredRoot>, Failure> {
        let name = format!("{what_for}-{}", self.purpose.name);
        let shown = Shown::Nothing;
        let machine = self.performance.virtual_machine();
        let wanted = PlainRoot { name: &name, layers: self.base, shown, added: Some(ADDED), machine };
        self.performance.worker.runner.layered_root(&wanted).map_err(no_root)
    }

    fn inputs_of(&self, files: &[&str]) -> Vec<Input> {
        self.order.inputs.iter().filter(|input| files.contains(&input.name.as_str())).cloned().collect()
    }

    /// Unpacks packages into layers, in a separate root.
    fn unpack(&mut self, layering: &dyn Layering, packages: &[(&Dependency, String)]) -> Result<(), Failure> {
        let parts: Vec<Part> =
            packages.iter().map(|(package, description)| Part { package, description }).collect();
        let (places, unpacking) = layering.unpack(&parts);
        if places.is_empty() {
            return Ok(());
        }
        let root = self.root_with_folder("unpack")?;
        let files: Vec<&str> = places.iter().map(|place| packages[*place].0.file.as_str()).collect();
        let inputs = self.inputs_of(&files);
        let outcome = root
            .provide(&inputs, &unpacking.texts)
            .map_err(failed)
            .and_then(|()| {
                let stage = StageOrder { stage: self.purpose.stage, commands: unpacking.commands };
                self.performance.stage(&stage, &*root, &format!("{}unpack-", self.purpose.prefix))
            })
            .and_then(|()| {
                let added = root.bring_out(ADDED).map_err(failed)?;
                places.iter().try_for_each(|place| {
                    let (package, description) = &packages[*place];
                    let folder = added.join(&package.sha256);
                    self.layers()
                        .keep_package(&package.sha256, self.base, &folder, description)
                        .map_err(failed)
                })
            });
        // At once, since the next round makes a root of the same name.
        root.remove_at_once();
        if outcome.is_ok() {
            self.say(&format!("{} unpacked into layers", places.len()));
        }
        outcome
    }

    /// The descriptions of the packages that are installed above the base.
    fn descriptions_of_installed(&self, layering: &dyn Layering) -> Result<Vec<String>, CollectError> {
        let installed = self.order.depends.iter().filter(|package| self.installed.contains(&package.sha256));
        let described = |package: &Dependency| match self.layers().package(&package.sha256, self.base) {
            Some(known) => Ok(known.description),
            None => {
                let input = self.order.inputs.iter().find(|input| input.name == package.file);
                let missing = || CollectError(format!("{} is not among the inputs", package.name));
                layering.describe(&self.performance.worker.file_of(input.ok_or_else(missing)?))
            }
        };
        installed.map(described).collect()
    }

    /// One round: installs the packages that only the package manager can install; if there are none, stacks layers.
    /// `None` if this made no progress.
    fn stack_up(
        &mut self,
        layering: &dyn Layering,
        descriptions: &BTreeMap<String, String>,
    ) -> Result<Option<LayersInUse>, Failure> {
        let packages = self.lacking();
        let parts: Vec<Part> = packages
            .iter()
            .filter_map(|package| Some(Part { package, description: descriptions.get(&package.sha256)? }))
            .collect();
        let ids = &self.performance.worker.settings.ids;
        let (user_inside, group_inside) = (|id| ids.user_inside(id), |id| ids.group_inside(id));
        let folders = self.folders();
        let below = Stack { layers: &folders, user_inside: &user_inside, group_inside: &group_inside };
        let installed = || self.descriptions_of_installed(layering);
        let composition = match layering.compose(&below, &installed, &parts) {
            Ok(composition) => composition,
            Err(error) => {
                self.say(&format!("cannot use layers: {error}"));
                return Ok(None);
            }
        };
        let mut first: Vec<&Dependency> =
            packages.iter().filter(|package| !descriptions.contains_key(&package.sha256)).copied().collect();
        // The last round has no layers left, and gives the reasons.
        let is_later = layering.begins_with_layers() && !composition.layered.is_empty();
        for (place, reason) in composition.by_manager.iter().filter(|_| !is_later) {
            let package = parts[*place].package;
            self.say(&format!("{} is left to the package manager: {reason}", package.name));
            first.push(package);
        }
        if !first.is_empty() && !layering.begins_with_layers() {
            return self.by_manager(first).map(Some);
        }
        let stacked: Vec<&Dependency> =
            composition.layered.iter().map(|place| parts[*place].package).collect();
        let added: Vec<String> = stacked
            .iter()
            .filter_map(|package| Some(self.layers().package(&package.sha256, self.base)?.layer))
            .collect();
        if stacked.is_empty() || added.len() < stacked.len() {
            return Ok(None);
        }
        let added = match self.stack.len() + added.len() < STACKED_MAX {
            true => added,
            false => vec![self.merge(&added)?],
        };
        if self.stack.len() + added.len() >= STACKED_MAX {
            return Ok(None);
        }
        let before = std::mem::take(&mut self.stack);
        self.stack = added.into_iter().chain(before.iter().cloned()).collect();
        let Some(held) = self.layers().hold(&self.stack) else {
            self.stack = before;
            return Ok(None);
        };
        self.show()?;
        let configured = self.root.provide(&[], &composition.texts).map_err(failed).and_then(|()| {
            let stage = StageOrder { stage: self.purpose.stage, commands: composition.commands };
            self.performance.stage(&stage, &*self.root, &format!("{}configure-", self.purpose.prefix))
        });
        match configured {
            Ok(()) => {
                self.say(&format!("{} stacked and configured", stacked.len()));
                self.keep(held, &stacked).map(Some)
            }
            Err(failure) if failure.kind == FailureKind::Cancelled => Err(failure),
            Err(failure) => {
                self.say(&format!("the layers could not be configured: {}", failure.message));
                self.stack = before;
                self.root.start_over().map_err(no_root)?;
                self.show()?;
                Ok(None)
            }
        }
    }

    /// Merges layers of packages, the uppermost first, into one. Returns its name.
    fn merge(&mut self, layers: &[String]) -> Result<String, Failure> {
        let cancel = self.performance.cancel;
        let merged = self.layers().merge(layers, cancel).map_err(failed)?.ok_or_else(cancelled)?;
        self.say(&format!("{} layers merged into one", layers.len()));
        Ok(merged)
    }

    /// Merges layers of packages for a virtual machine, which asks this machine in each of them about every path that it lacks.
    fn merge_packages(&mut self) -> Result<LayersInUse, Failure> {
        let mut stack = Vec::new();
        let before = std::mem::take(&mut self.stack);
        for layers in mergeable(&before) {
            match layers {
                [layer] => stack.push(layer.clone()),
                layers => stack.push(self.merge(layers)?),
            }
        }
        self.stack = stack;
        self.layers().hold(&self.stack).ok_or_else(gone)
    }

    /// Installs packages, and the missing packages that they need, by the package manager.
    fn by_manager(&mut self, packages: Vec<&Dependency>) -> Result<LayersInUse, Failure> {
        let held = self.layers().hold(&self.stack);
        let held = held.ok_or_else(gone)?;
        self.install(&packages)?;
        self.keep(held, &packages)
    }

    fn install(&mut self, packages: &[&Dependency]) -> Result<(), Failure> {
        let stage = StageOrder { stage: self.purpose.stage, commands: self.manager.install(packages) };
        self.performance.stage(&stage, &*self.root, &format!("{}install-", self.purpose.prefix))?;
        self.say(&format!("{} installed by the package manager", packages.len()));
        Ok(())
    }

    /// Turns the files written by commands that installed `given` into a layer, and puts the root on top of it.
    fn keep(&mut self, held: LayersInUse, given: &[&Dependency]) -> Result<LayersInUse, Failure> {
        let upper = self.root.written().map_err(failed)?;
        let ids = &self.performance.worker.settings.ids;
        let (user_inside, group_inside) = (|id| ids.user_inside(id), |id| ids.group_inside(id));
        let folders: Vec<PathBuf> = std::iter::once(upper.clone()).chain(self.folders()).collect();
        let stack = Stack { layers: &folders, user_inside: &user_inside, group_inside: &group_inside };
        let missing = self.lacking();
        let names = self.manager.installed(&stack, given).map_err(failed)?;
        for package in missing.into_iter().filter(|package| names.contains(&package.name)) {
            self.missing.remove(&package.sha256);
            self.installed.insert(package.sha256.clone());
        }
        let mut set = self.set_of(self.installed.clone());
        set.stack.clone_from(&self.stack);
        // Another build may have made the same set from other layers.
        let grown = self.layers().keep_set(&upper, set).map_err(failed)?.ok_or_else(gone)?;
        self.stack.clone_from(&grown.layers);
        drop(held);
        self.root.start_over().map_err(no_root)?;
        self.show()?;
        Ok(grown)
    }

    fn set_of(&self, packages: BTreeSet<String>) -> LayerSet {
        LayerSet { base: self.base.to_vec(), packages: packages.into_iter().collect(), stack: Vec::new() }
    }
}

fn failed(error: impl ToString) -> Failure {
    machine(Stage::Depends, error)
}

fn no_root(error: RunnerError) -> Failure {
    unmade(Stage::Depends, error)
}

fn gone() -> Failure {
    machine(Stage::Depends, "a layer below the root was removed in the meantime")
}

fn cancelled() -> Failure {
    crate::build::cancelled(Stage::Depends)
}
