//! Dependencies of a build: layers that are there, layers that are made, and the package manager for the rest.

use crate::RootFolder;
use crate::build::{Performance, machine, write_log};
use crate::layers::{Layers, STACKED_MAX, Set, Standing};
use kilnyard_ecosystem::{Layering, Part, Stack};
use kilnyard_model::order::{BuildOrder, Dependency, Input, Stage, StageOrder};
use kilnyard_model::result::{Failure, FailureKind};
use kilnyard_process::{End, own_cpu_seconds};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::time::Instant;

/// What the package manager has installed can be below others, so that these are looked at again; so often at most.
const ROUNDS_MAX: usize = 4;

/// Where packages are unpacked, in a root.
const ADDED: &str = "/kilnyard/added";

/// What the root of a command has written though the command has not: where things are mounted, and logs, which say
/// when something ran and matter to no build.
const WRITTEN_ANYHOW: [&str; 6] = ["dev", "kilnyard", "proc", "run", "sys", "var/log"];

/// A root on its way to have all its dependencies.
struct Making<'a> {
    performance: &'a Performance<'a>,
    layering: &'a dyn Layering,
    order: &'a BuildOrder,
    /// What is still to be installed, by hash.
    missing: BTreeMap<String, &'a Dependency>,
    /// The layers that the root stands on, without the base, the uppermost first.
    stack: Vec<String>,
    /// The hashes of all that is installed.
    installed: BTreeSet<String>,
    /// What the log says.
    said: String,
    prefix: &'a str,
    name: &'a str,
}

impl Performance<'_> {
    /// Installs the dependencies of an order in a new root. What comes back has to be kept as long as the root is used.
    pub(crate) fn depends(
        &self,
        order: &BuildOrder,
        root: &mut RootFolder,
        prefix: &str,
        name: &str,
    ) -> Result<Option<Standing>, Failure> {
        let layering = self.worker.ecosystem.layering().filter(|_| !order.depends.is_empty());
        let Some(layering) = layering else { return Ok(None) };
        let mut result = self.begin(Stage::Depends);
        let (started, cpu_seconds_before) = (Instant::now(), own_cpu_seconds());
        let mut making = Making {
            performance: self,
            layering,
            order,
            missing: order.depends.iter().map(|one| (one.sha256.clone(), one)).collect(),
            stack: Vec::new(),
            installed: BTreeSet::new(),
            said: String::new(),
            prefix,
            name,
        };
        let outcome = making.make(root);
        if let Err(failure) = &outcome {
            if !matches!(failure.kind, FailureKind::Machine | FailureKind::Cancelled) {
                // The log of the commands that failed is the last one of the stage, and the one to be read.
                return Err(failure.clone());
            }
            making.say(&format!("E: {}", failure.message));
        }
        let (relative, path) = self.log_path(Stage::Depends, prefix);
        let written = write_log(&path, self.worker.settings.log_limits, &making.said);
        result.log = Some(relative);
        result.wall_seconds = started.elapsed().as_secs_f64();
        // What commands used is in the results of their own.
        result.cpu_seconds = own_cpu_seconds() - cpu_seconds_before;
        result.is_ok = outcome.is_ok();
        self.tell_ended(result);
        let standing = outcome?;
        written.map_err(|error| machine(Stage::Depends, error))?;
        Ok(Some(standing))
    }
}

impl Making<'_> {
    fn layers(&self) -> &Layers {
        &self.performance.worker.layers
    }

    fn say(&mut self, line: &str) {
        self.said.push_str(line);
        self.said.push('\n');
    }

    fn make(&mut self, root: &mut RootFolder) -> Result<Standing, Failure> {
        if self.layers().are_off() {
            let standing = self.layers().stand_on(&[]).ok_or_else(gone)?;
            self.install(root, &self.order.depends.iter().collect::<Vec<_>>())?;
            return Ok(standing);
        }
        let mut standing = self.begin_with_largest(root)?;
        if self.missing.is_empty() {
            return Ok(standing);
        }
        // Whoever needs the same set waits for it.
        let wanted = self.set_of(self.order.depends.iter().map(|one| one.sha256.clone()).collect());
        let claim = self.layers().claim(vec![wanted.name()], self.performance.cancel);
        let Some(_claim) = claim else { return Err(cancelled()) };
        standing = self.begin_with_largest(root)?;
        for _ in 0..ROUNDS_MAX {
            if self.missing.is_empty() {
                return Ok(standing);
            }
            let unpacked = self.unpacked()?;
            match self.stack_up(root, &unpacked)? {
                Some(grown) => standing = grown,
                None => break,
            }
        }
        if !self.missing.is_empty() {
            standing = self.by_manager(root, self.missing.values().copied().collect())?;
        }
        Ok(standing)
    }

    /// Puts the root onto the largest set that is there.
    fn begin_with_largest(&mut self, root: &mut RootFolder) -> Result<Standing, Failure> {
        let all: BTreeSet<String> = self.order.depends.iter().map(|one| one.sha256.clone()).collect();
        let (mut layers, mut packages) = (Vec::new(), Vec::new());
        if let Some((_, set)) = self.layers().largest(&self.order.layers, &all) {
            layers = set.layers();
            packages = set.packages;
        }
        let standing = match self.layers().stand_on(&layers) {
            Some(standing) => standing,
            None => {
                // It was just removed.
                (layers, packages) = Default::default();
                self.layers().stand_on(&[]).ok_or_else(cancelled)?
            }
        };
        self.missing = self.order.depends.iter().map(|one| (one.sha256.clone(), one)).collect();
        self.missing.retain(|hash, _| !packages.contains(hash));
        self.said.clear();
        let (count, all) = (packages.len(), self.order.depends.len());
        self.say(&format!("{count} of {all} dependencies were installed together before"));
        self.installed = packages.into_iter().collect();
        self.stack = layers;
        self.show(root)?;
        Ok(standing)
    }

    /// Lets the root stand on the stack.
    fn show(&self, root: &mut RootFolder) -> Result<(), Failure> {
        let base = self.order.layers.iter().map(PathBuf::from);
        let layers = self.stack.iter().map(|layer| self.layers().files(layer)).chain(base);
        root.stand_on(layers.collect()).map_err(|error| machine(Stage::Depends, error))
    }

    /// What is known of each missing package; their layers are there then, where they can have one.
    fn unpacked(&mut self) -> Result<BTreeMap<String, String>, Failure> {
        let hashes: Vec<String> = self.missing.keys().cloned().collect();
        let lack = |layers: &Layers| hashes.iter().any(|hash| layers.package(hash).is_none());
        let mut descriptions = BTreeMap::new();
        if lack(self.layers()) {
            let claim = self.layers().claim(hashes.clone(), self.performance.cancel);
            let Some(_claim) = claim else { return Err(cancelled()) };
            let mut to_unpack = Vec::new();
            let lacking: Vec<&Dependency> = self.missing.values().copied().collect();
            for package in lacking {
                if self.layers().package(&package.sha256).is_some() {
                    continue;
                }
                let input = self.order.inputs.iter().find(|input| input.name == package.file);
                let file = input.map(|input| self.performance.worker.file_of(input));
                match file.map(|file| self.layering.describe(&file)) {
                    Some(Ok(description)) => to_unpack.push((package, self.tried(package, description)?)),
                    Some(Err(error)) => self.say(&format!("{} has no layer: {error}", package.name)),
                    None => self.say(&format!("{} is no input", package.name)),
                }
            }
            self.unpack(&to_unpack)?;
            // Those without a layer are known all the same, with the reason.
            descriptions.extend(to_unpack.into_iter().map(|(package, text)| (package.sha256.clone(), text)));
        }
        for hash in &hashes {
            if let Some((_, description)) = self.layers().package(hash) {
                descriptions.insert(hash.clone(), description);
            }
        }
        Ok(descriptions)
    }

    /// The description of a package after its trial, if it needs one.
    fn tried(&self, package: &Dependency, description: String) -> Result<String, Failure> {
        let Some(command) = self.layering.trial(Part { package, description: &description }) else {
            return Ok(description);
        };
        let failed = |error: io::Error| machine(Stage::Depends, error);
        let worker = self.performance.worker;
        let settings = &worker.settings;
        let name = format!("try-{}", self.name);
        let root = RootFolder::create(&settings.yard, &name, &settings.ids, &self.order.layers)
            .and_then(|root| root.adding_at(ADDED))
            .map_err(failed)?;
        let inputs = self.inputs_of(&[package.file.as_str()]);
        let provided = root.provide(&inputs, &[], &|input| worker.file_of(input)).map_err(failed);
        let outcome = provided.map(|()| {
            let sandbox = root.sandbox(&command);
            let (cancel, limits) = (self.performance.cancel, settings.limits.limits(None));
            kilnyard_process::run(&sandbox, &mut io::sink(), limits, cancel, &|_| {}, &mut |_| {}).end
        });
        let is_harmless = matches!(&outcome, Ok(End::Exit(0))) && !root.has_written(&WRITTEN_ANYHOW);
        root.remove().map_err(failed)?;
        match outcome? {
            End::Cancelled => Err(cancelled()),
            _ if is_harmless => Ok(self.layering.harmless(&description)),
            _ => Ok(description),
        }
    }

    fn inputs_of(&self, files: &[&str]) -> Vec<Input> {
        self.order.inputs.iter().filter(|input| files.contains(&input.name.as_str())).cloned().collect()
    }

    /// Unpacks packages into layers, in a root of its own.
    fn unpack(&mut self, packages: &[(&Dependency, String)]) -> Result<(), Failure> {
        let parts: Vec<Part> =
            packages.iter().map(|(package, description)| Part { package, description }).collect();
        let (places, unpacking) = self.layering.unpack(&parts);
        if places.is_empty() {
            return Ok(());
        }
        let failed = |error: io::Error| machine(Stage::Depends, error);
        let settings = &self.performance.worker.settings;
        let name = format!("unpack-{}", self.name);
        let root = RootFolder::create(&settings.yard, &name, &settings.ids, &self.order.layers)
            .and_then(|root| root.adding_at(ADDED))
            .map_err(failed)?;
        let files: Vec<&str> = places.iter().map(|place| packages[*place].0.file.as_str()).collect();
        let inputs = self.inputs_of(&files);
        let worker = self.performance.worker;
        let outcome = root
            .provide(&inputs, &unpacking.texts, &|input| worker.file_of(input))
            .map_err(failed)
            .and_then(|()| {
                let stage = StageOrder { stage: Stage::Depends, commands: unpacking.commands };
                self.performance.stage(&stage, &root, &format!("{}unpack-", self.prefix))
            })
            .and_then(|()| {
                places.iter().try_for_each(|place| {
                    let (package, description) = &packages[*place];
                    let folder = root.added().join(&package.sha256);
                    self.layers().keep_package(&package.sha256, &folder, description).map_err(failed)
                })
            });
        worker.remover.remove(root);
        if outcome.is_ok() {
            self.say(&format!("{} unpacked into layers", places.len()));
        }
        outcome
    }

    /// One round: what the package manager has to install first, or else what can be stacked. None where this came to
    /// nothing.
    fn stack_up(
        &mut self,
        root: &mut RootFolder,
        descriptions: &BTreeMap<String, String>,
    ) -> Result<Option<Standing>, Failure> {
        let packages: Vec<&Dependency> = self.missing.values().copied().collect();
        let parts: Vec<Part> = packages
            .iter()
            .filter_map(|package| Some(Part { package, description: descriptions.get(&package.sha256)? }))
            .collect();
        let ids = &self.performance.worker.settings.ids;
        let (user_inside, group_inside) = (|id| ids.user_inside(id), |id| ids.group_inside(id));
        let folders = root.stacked();
        let below = Stack { layers: &folders, user_inside: &user_inside, group_inside: &group_inside };
        let composition = match self.layering.compose(&below, &parts) {
            Ok(composition) => composition,
            Err(error) => {
                self.say(&format!("no layers: {error}"));
                return Ok(None);
            }
        };
        let mut first: Vec<&Dependency> =
            packages.iter().filter(|package| !descriptions.contains_key(&package.sha256)).copied().collect();
        for (place, reason) in &composition.by_manager {
            let package = parts[*place].package;
            self.say(&format!("{} is left to the package manager: {reason}", package.name));
            first.push(package);
        }
        if !first.is_empty() {
            return self.by_manager(root, first).map(Some);
        }
        let stacked: Vec<&Dependency> =
            composition.layered.iter().map(|place| parts[*place].package).collect();
        let added: Vec<String> =
            stacked.iter().filter_map(|package| Some(self.layers().package(&package.sha256)?.0)).collect();
        let is_too_high = self.stack.len() + added.len() >= STACKED_MAX;
        if stacked.is_empty() || is_too_high || added.len() < stacked.len() {
            return Ok(None);
        }
        let before = std::mem::take(&mut self.stack);
        self.stack = added.into_iter().chain(before.iter().cloned()).collect();
        let Some(standing) = self.layers().stand_on(&self.stack) else {
            self.stack = before;
            return Ok(None);
        };
        self.show(root)?;
        let configured = root
            .provide(&[], &composition.texts, &|_| PathBuf::new())
            .map_err(|error| machine(Stage::Depends, error))
            .and_then(|()| {
                let stage = StageOrder { stage: Stage::Depends, commands: composition.commands };
                self.performance.stage(&stage, root, &format!("{}configure-", self.prefix))
            });
        match configured {
            Ok(()) => {
                self.say(&format!("{} stacked and configured", stacked.len()));
                self.keep(root, standing).map(Some)
            }
            Err(failure) if matches!(failure.kind, FailureKind::Cancelled | FailureKind::Machine) => {
                Err(failure)
            }
            Err(failure) => {
                self.say(&format!("the layers could not be configured: {}", failure.message));
                self.stack = before;
                root.start_over().map_err(|error| machine(Stage::Depends, error))?;
                self.show(root)?;
                Ok(None)
            }
        }
    }

    /// Lets the package manager install packages, with what of the missing ones they need.
    fn by_manager(&mut self, root: &mut RootFolder, packages: Vec<&Dependency>) -> Result<Standing, Failure> {
        let standing = self.layers().stand_on(&self.stack);
        let standing = standing.ok_or_else(gone)?;
        self.install(root, &packages)?;
        self.keep(root, standing)
    }

    fn install(&mut self, root: &RootFolder, packages: &[&Dependency]) -> Result<(), Failure> {
        let stage = StageOrder { stage: Stage::Depends, commands: self.layering.install(packages) };
        self.performance.stage(&stage, root, &format!("{}install-", self.prefix))?;
        self.say(&format!("{} installed by the package manager", packages.len()));
        Ok(())
    }

    /// Keeps what was written as a layer, and lets the root stand on it.
    fn keep(&mut self, root: &mut RootFolder, standing: Standing) -> Result<Standing, Failure> {
        let failed = |error: io::Error| machine(Stage::Depends, error);
        let upper = root.upper();
        let ids = &self.performance.worker.settings.ids;
        let (user_inside, group_inside) = (|id| ids.user_inside(id), |id| ids.group_inside(id));
        let folders: Vec<PathBuf> = std::iter::once(upper.clone()).chain(root.stacked()).collect();
        let stack = Stack { layers: &folders, user_inside: &user_inside, group_inside: &group_inside };
        let names = self.layering.installed(&stack).map_err(failed)?;
        let came: Vec<String> = self
            .missing
            .iter()
            .filter(|(_, package)| names.contains(&package.name))
            .map(|(hash, _)| hash.clone())
            .collect();
        for hash in came {
            self.missing.remove(&hash);
            self.installed.insert(hash);
        }
        let mut set = self.set_of(self.installed.clone());
        set.stack.clone_from(&self.stack);
        // Somebody may have come to the same on another way.
        let known = self.layers().largest(&self.order.layers, &self.installed);
        let known = known.filter(|(known, _)| *known == set.name()).map(|(_, known)| known.layers());
        let grown = match known {
            Some(layers) => {
                self.stack = layers;
                self.layers().stand_on(&self.stack).ok_or_else(gone)?
            }
            None => {
                self.stack = set.layers();
                self.layers().keep_set(&upper, set).map_err(failed)?
            }
        };
        drop(standing);
        root.start_over().map_err(failed)?;
        self.show(root)?;
        Ok(grown)
    }

    fn set_of(&self, packages: BTreeSet<String>) -> Set {
        Set { base: self.order.layers.clone(), packages: packages.into_iter().collect(), stack: Vec::new() }
    }
}

fn gone() -> Failure {
    machine(Stage::Depends, "a layer that the root stands on is gone")
}

fn cancelled() -> Failure {
    let message = "it was cancelled".to_owned();
    Failure {
        stage: Stage::Depends,
        kind: FailureKind::Cancelled,
        message,
        line_number: None,
        lines: Vec::new(),
    }
}
