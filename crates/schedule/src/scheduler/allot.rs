//! Decides which packages start, and how many cores each build gets.

use super::choose::Waiting;
use super::{Limits, OVERTAKEN_SECONDS_MAX, PackagePhase, Running, Scheduler, Sharing};
use crate::event::{Action, Files, Pressure};
use crate::machine::{Classes, Door, Machine, MachineId};
use crate::queue::QueuePlace;
use kilnyard_model::graph::PackageId;

/// Maximum number of ready packages that one decision passes over because their memory does not fit.
const PASSED_OVER_MAX: usize = 16;

/// Maximum number of ready packages that one decision passes over because the machines that they are confined to are
/// busy.
const CONFINED_MAX: usize = 1024;

/// Maximum number of ready packages that one decision lets wait for a machine without a free core; it bounds the time of
/// the decision.
const WAITS_MAX: usize = 64;

/// Whether a package can start on a machine.
pub(super) enum Room {
    /// It can start.
    Free,
    /// Packages before it take all cores.
    NoCores,
    /// Its memory or disk space does not fit now.
    NoSpace,
}

impl Running {
    pub(super) fn place(&self) -> QueuePlace {
        let Running { package, bumped, priority, rank_seconds: rank, .. } = *self;
        QueuePlace { bumped, priority, rank, package }
    }

    /// The time that it still takes with its cores, on a machine of this speed.
    pub(super) fn left_seconds(&self, speed: f64) -> f64 {
        (self.serial_left_seconds + self.parallel_left_seconds / f64::from(self.cores)) / speed
    }

    /// The cores beyond its first that it can use.
    fn extra_wanted(&self, limits: &Limits) -> u32 {
        self.wants.min(limits.jobs_max.unwrap_or(u32::MAX)).max(1) - 1
    }
}

/// What is left of a machine after the first core, the memory and the disk space of each build.
struct Spare {
    cores: u32,
    memory_bytes: u64,
    disk_bytes: u64,
}

impl Spare {
    fn of(cores: u32, machine: &Machine, running: &[Running]) -> Spare {
        let left = |all: Option<u64>, taken: fn(&Running) -> u64| {
            running.iter().map(taken).fold(all.unwrap_or(u64::MAX), u64::saturating_sub)
        };
        Spare {
            cores: cores.saturating_sub(running.len() as u32),
            memory_bytes: left(machine.memory_bytes, |build| build.memory_bytes),
            disk_bytes: left(machine.disk_bytes, |build| build.disk_bytes),
        }
    }

    /// Gives a build as many further cores as it wants and are left, with the memory they need.
    fn give(&mut self, memory_per_core_bytes: u64, wanted: u32) -> u32 {
        let fits = self.memory_bytes.checked_div(memory_per_core_bytes);
        let fits = fits.map_or(u32::MAX, |cores| u32::try_from(cores).unwrap_or(u32::MAX));
        let given = wanted.min(self.cores).min(fits);
        self.cores -= given;
        self.memory_bytes -= u64::from(given) * memory_per_core_bytes;
        given
    }
}

/// The properties of a build that determine its cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharer {
    /// The cores that it can use; at least 1.
    pub wants: u32,
    /// Its memory with one core.
    pub memory_bytes: u64,
    /// The memory that each further core adds.
    pub memory_per_core_bytes: u64,
}

/// The cores of each build on a machine, by the scheduler's rule: one for each build, and the others to the first
/// builds, as far as they can use them and memory suffices. `builds` are in order of rank; no build gets more than
/// `jobs_max`.
pub fn share_out(machine: &Machine, jobs_max: Option<u32>, builds: &[Sharer]) -> Vec<u32> {
    let memory = builds.iter().map(|build| build.memory_bytes);
    let mut spare = Spare {
        cores: machine.cores.saturating_sub(builds.len() as u32),
        memory_bytes: memory.fold(machine.memory_bytes.unwrap_or(u64::MAX), u64::saturating_sub),
        disk_bytes: 0,
    };
    let mut cores = |build: &Sharer| {
        let wanted = build.wants.min(jobs_max.unwrap_or(u32::MAX)).max(1) - 1;
        1 + spare.give(build.memory_per_core_bytes, wanted)
    };
    builds.iter().map(&mut cores).collect()
}

impl Scheduler {
    /// Advances running builds to the present, by their estimates and cores.
    pub(super) fn progress(&mut self, now_seconds: f64) {
        let passed_seconds = now_seconds - self.now_seconds;
        if passed_seconds > 0.0 {
            self.now_seconds = now_seconds;
            for (machine, running) in self.machines.iter().zip(&mut self.running) {
                for build in running {
                    let (left, rate) = match build.wants {
                        1 => (&mut build.serial_left_seconds, machine.speed),
                        _ => (&mut build.parallel_left_seconds, machine.speed * f64::from(build.cores)),
                    };
                    *left = (*left - passed_seconds * rate).max(0.0);
                }
            }
        }
    }

    /// Sorts running builds by rank.
    pub(super) fn order_running(&mut self) {
        let (cores_max, speed_max) = (self.cores_max, self.speed_max);
        for running in &mut self.running {
            for build in running.iter_mut() {
                let cores = f64::from(cores_max.min(build.jobs_max));
                let own = build.serial_left_seconds + build.parallel_left_seconds / cores;
                build.rank_seconds = self.ranks.after_seconds(build.package) + own / speed_max;
                let place = self.queue.place(build.package);
                (build.bumped, build.priority) = (place.bumped, place.priority);
            }
            running.sort_by_key(Running::place);
        }
    }

    /// Starts ready packages in order of rank, as far as they fit.
    pub(super) fn start(&mut self, actions: &mut Vec<Action>) {
        let is_overdue = |(_, since): &(&PackageId, &f64)| self.now_seconds - **since > OVERTAKEN_SECONDS_MAX;
        let overdue = self.overtaken.iter().filter(is_overdue).min_by(|a, b| a.1.total_cmp(b.1));
        if let Some(package) = overdue.map(|(package, _)| *package) {
            match self.soonest_here(package, &Waiting::new()) {
                Ok(here) => self.start_on(package, here.machine, actions),
                // The machines that it fits on have left: it waits for one, and does not hold up others.
                Err(_) if !self.fits_anywhere(package) => {}
                Err(_) => return,
            }
        }
        let (mut passed_over, mut waiting) = (Vec::new(), Waiting::new());
        let (mut waits, mut confined) = (Vec::new(), Vec::new());
        while passed_over.len() < PASSED_OVER_MAX && waits.len() < WAITS_MAX && confined.len() < CONFINED_MAX
        {
            let Some(package) = self.queue.first() else { break };
            if self.queue.is_overtaking(package, self.now_seconds) {
                break;
            }
            match self.soonest_here(package, &waiting) {
                Ok(here) => match self.sooner_elsewhere(package, here, &waiting) {
                    // It is still first in the queue when a core is free there.
                    Some(machine) => {
                        waiting.entry(machine).or_default().push(self.ahead(package, machine));
                        self.queue.remove(package);
                        waits.push(package);
                    }
                    None => self.start_on(package, here.machine, actions),
                },
                Err(Room::NoSpace) => {
                    self.overtaken.entry(package).or_insert(self.now_seconds);
                    self.queue.remove(package);
                    passed_over.push(package);
                }
                // Other machines may have cores for later packages.
                Err(_) if self.packages[package.index()].classes != Classes::ALL => {
                    self.queue.remove(package);
                    confined.push(package);
                }
                // No cores are left for later packages.
                Err(_) => break,
            }
        }
        self.start_those_with_time(&waits, actions);
        for package in passed_over.into_iter().chain(waits).chain(confined) {
            if matches!(self.packages[package.index()].phase, PackagePhase::Ready) {
                self.queue.push(package);
            }
        }
    }

    /// Starts packages that wait for a machine elsewhere, if that does not prolong the run.
    fn start_those_with_time(&mut self, waits: &[PackageId], actions: &mut Vec<Action>) {
        let mut waiting = Waiting::new();
        let longest_seconds = waits.iter().map(|package| self.ranks.seconds(*package)).fold(0.0, f64::max);
        let end_seconds = if waits.is_empty() { 0.0 } else { self.end_seconds(longest_seconds) };
        for package in waits {
            let Ok(here) = self.soonest_here(*package, &waiting) else { continue };
            match self.sooner_elsewhere(*package, here, &waiting) {
                Some(machine) if !self.has_time(*package, here, end_seconds) => {
                    waiting.entry(machine).or_default().push(self.ahead(*package, machine));
                }
                _ => self.start_on(*package, here.machine, actions),
            }
        }
    }

    /// Whether any present machine may build a package and has enough memory for it, if it were idle.
    fn fits_anywhere(&self, package: PackageId) -> bool {
        let needed_bytes = self.works[package.index()].memory_bytes;
        let classes = self.packages[package.index()].classes;
        self.present().any(|machine| {
            classes.contains(machine.class) && machine.memory_bytes.is_none_or(|bytes| bytes >= needed_bytes)
        })
    }

    /// Whether a package may start on a machine, by its class.
    pub(super) fn admits(&self, machine: MachineId, package: PackageId) -> bool {
        self.packages[package.index()].classes.contains(self.machines[machine.index()].class)
    }

    pub(super) fn room(&self, machine: MachineId, package: PackageId) -> Room {
        let running = &self.running[machine.index()];
        let is_full = running.len() >= self.slots(machine) as usize;
        if self.doors[machine.index()] != Door::Open || is_full || !self.admits(machine, package) {
            return Room::NoCores;
        }
        let place = self.queue.place(package);
        let mut spare = Spare::of(self.cores_now(machine), &self.machines[machine.index()], running);
        if self.limits.sharing == Sharing::ByRank {
            for build in running.iter().take_while(|build| build.place() < place) {
                spare.give(build.memory_per_core_bytes, build.extra_wanted(&self.limits));
            }
        }
        if spare.cores == 0 {
            return Room::NoCores;
        }
        let is_alone = |id: PackageId| self.packages[id.index()].is_alone;
        let is_alone_there = running.iter().any(|build| is_alone(build.package));
        let wants_idle = self.pressures[machine.index()] == Pressure::High || is_alone(package);
        if is_alone_there || wants_idle && !running.is_empty() {
            return Room::NoSpace;
        }
        let (files, needed_bytes) = self.placed(machine, package);
        // Expected disk use is a guess, so an idle machine tries it anyway.
        let is_disk_short = self.disk_bytes(files, package) > spare.disk_bytes && !running.is_empty();
        if needed_bytes > spare.memory_bytes || is_disk_short {
            return Room::NoSpace;
        }
        Room::Free
    }

    /// Where the files of a package go on a machine, and its memory with one core.
    fn placed(&self, machine: MachineId, package: PackageId) -> (Files, u64) {
        let work = &self.works[package.index()];
        let with_files = work.memory_bytes.saturating_add(work.files_bytes);
        let limit = self.machines[machine.index()].memory_bytes.unwrap_or(u64::MAX);
        if with_files > limit || self.packages[package.index()].is_alone {
            (Files::Disk, work.memory_bytes)
        } else {
            (Files::Memory, with_files)
        }
    }

    /// The disk space that a package needs.
    fn disk_bytes(&self, files: Files, package: PackageId) -> u64 {
        let work = &self.works[package.index()];
        let files_bytes = if files == Files::Disk { work.files_bytes } else { 0 };
        work.disk_bytes.saturating_add(files_bytes)
    }

    fn start_on(&mut self, package: PackageId, machine: MachineId, actions: &mut Vec<Action>) {
        let (files, _) = self.placed(machine, package);
        self.begin(package, machine);
        actions.push(Action::Start { package, machine, cores: 1, files });
    }

    /// Records that a package is being built on a machine, with one core.
    pub(super) fn begin(&mut self, package: PackageId, machine: MachineId) {
        let missing_bytes = self.transfers.missing_bytes(package, machine);
        self.transfers.begin(package, machine);
        let (files, memory_bytes) = self.placed(machine, package);
        self.queue.remove(package);
        self.overtaken.remove(&package);
        self.set_phase(package, PackagePhase::Running(machine));
        let work = &self.works[package.index()];
        let (serial, parallel) = work.parts_seconds();
        let factor = self.factor(work) * self.share(package, machine);
        let place = self.queue.place(package);
        let build = Running {
            package,
            wants: 1,
            cores: 1,
            serial_left_seconds: serial * factor,
            parallel_left_seconds: parallel * factor,
            memory_bytes,
            memory_per_core_bytes: work.memory_per_core_bytes,
            disk_bytes: self.disk_bytes(files, package),
            missing_bytes,
            has_kept: self.kept.is_on(machine, package),
            jobs_max: work.jobs_max.unwrap_or(u32::MAX).max(1),
            bumped: place.bumped,
            priority: place.priority,
            rank_seconds: place.rank,
        };
        let running = &mut self.running[machine.index()];
        let at = running.partition_point(|other| other.place() < place);
        running.insert(at, build);
    }

    /// Hands out the cores beyond the first of each build.
    pub(super) fn allot(&mut self, actions: &mut Vec<Action>) {
        let limits = self.limits;
        let now: Vec<u32> = (0..self.machines.len() as u32).map(|id| self.cores_now(MachineId(id))).collect();
        for ((machine, cores), running) in self.machines.iter().zip(now).zip(&mut self.running) {
            let machine = Machine { cores, ..*machine };
            let sharer = |build: &Running| Sharer {
                wants: build.wants,
                memory_bytes: build.memory_bytes,
                memory_per_core_bytes: build.memory_per_core_bytes,
            };
            let mut cores = vec![1; running.len()];
            match limits.sharing {
                Sharing::ByRank => {
                    let sharers: Vec<Sharer> = running.iter().map(sharer).collect();
                    cores = share_out(&machine, limits.jobs_max, &sharers);
                }
                Sharing::Equally => {
                    let mut spare = Spare::of(machine.cores, &machine, running);
                    let mut is_left = true;
                    while is_left {
                        is_left = false;
                        for (build, cores) in running.iter().zip(&mut cores) {
                            let wanted = build.extra_wanted(&limits) + 1 - *cores;
                            let given = spare.give(build.memory_per_core_bytes, wanted.min(1));
                            *cores += given;
                            is_left |= given > 0;
                        }
                    }
                }
            }
            // Cores are taken back before they are given to others.
            for is_loss in [true, false] {
                for (build, cores) in running.iter_mut().zip(&cores) {
                    if build.cores != *cores && (*cores < build.cores) == is_loss {
                        build.cores = *cores;
                        actions.push(Action::Cores { package: build.package, cores: *cores });
                    }
                }
            }
        }
    }
}
