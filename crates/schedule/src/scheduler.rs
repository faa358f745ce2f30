//! The scheduler: what to start where, and who has how many cores.
//!
//! [`Scheduler::apply`] takes one event and says what is to be done; it reads no clock and does nothing itself.
//! For each event it walks over what is being built and what is ready in one order, that of rank:
//!
//! - a running build keeps one core whatever its rank (a jobserver cannot take back the job that a client
//!   always has), and gets as many more as it can use and those before it have left;
//! - a ready package is started where a core is left for it by those before it, and its memory fits.
//!
//! So a core that a package on the path does not use in a serial stage goes to the next, and comes back when
//! the path can use it. How many builds there are at once follows from that.
//!
//! What must hold: a package is started only when all its dependencies were built; on each machine the cores
//! given out are at most its own; expected memory stays within the machine's; every started build has a core.
//! Nothing starves: a run is finite, each build progresses, and a package that others overtook because its memory
//! did not fit is after [`OVERTAKEN_SECONDS_MAX`] the only one that may start.
//!
//! Machines come and go. While none is there, nothing is started and nothing fails; ranks follow the largest and the fastest of
//! those that are there.
//!
//! Known downside: the rank of a running build is a guess from the cores that it was given.

mod allot;
mod state;

pub use allot::{Sharer, share_out};

use crate::event::{Action, COMING_SECONDS_MAX, Event, Outcome, Policy, Pressure};
use crate::machine::{Door, Machine, MachineId};
use crate::queue::Queue;
use crate::rank::Ranks;
use crate::work::{Basis, Work};
use kilnyard_model::graph::{Graph, PackageId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A package whose memory does not fit is overtaken by others for so long at most.
pub const OVERTAKEN_SECONDS_MAX: f64 = 600.0;

/// How cores are shared among those who can use them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// The highest rank first.
    #[default]
    ByRank,
    /// All alike, as with one jobserver for all builds; for comparison.
    Equally,
}

/// What a person limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Builds at once on one machine.
    pub slots_max: Option<u32>,
    /// Cores of one build.
    pub jobs_max: Option<u32>,
    /// How cores are shared.
    pub sharing: Sharing,
}

/// What cannot be scheduled.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScheduleError {
    /// The graph has a cycle.
    #[error("these packages wait for each other: {}", .0.join(", "))]
    Cycle(Vec<String>),
    /// A time is not a time.
    #[error("{package} would take {seconds} seconds")]
    Time {
        /// The package.
        package: String,
        /// What was said.
        seconds: f64,
    },
    /// No machine, or one without cores or speed.
    #[error("there is no machine with a core to build on")]
    NoCores,
    /// A package that fits nowhere even alone and with its files on disk.
    #[error("{package} needs {needed_bytes} bytes of memory, and the largest machine has {largest_bytes}")]
    TooLarge {
        /// The package.
        package: String,
        /// What it needs.
        needed_bytes: u64,
        /// What the largest machine has.
        largest_bytes: u64,
    },
}

/// Where a package stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It waits for others, or is held.
    Waiting,
    /// It is in the queue.
    Ready,
    /// It is being built there.
    Running(MachineId),
    Built,
    Failed,
    /// Something that it needs failed.
    Blocked,
}

#[derive(Clone, Copy, Debug)]
struct Package {
    standing: Standing,
    /// How many of its dependencies are not built.
    waits: u32,
    is_held: bool,
    /// It was ended for want of memory, and is built alone.
    is_alone: bool,
}

/// A running build.
#[derive(Clone, Copy, Debug)]
struct Running {
    package: PackageId,
    wants: u32,
    cores: u32,
    serial_left_seconds: f64,
    parallel_left_seconds: f64,
    /// Memory without that of further cores.
    memory_bytes: u64,
    memory_per_core_bytes: u64,
    disk_bytes: u64,
    /// When it was bumped, and the longest path from now on; see `Queue`.
    bumped: u64,
    rank_seconds: f64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Scheduler {
    graph: Arc<Graph>,
    machines: Vec<Machine>,
    doors: Vec<Door>,
    works: Vec<Work>,
    limits: Limits,
    ranks: Ranks,
    queue: Queue,
    packages: Vec<Package>,
    running: Vec<Vec<Running>>,
    pressures: Vec<Pressure>,
    /// Since when a ready package is overtaken because its memory does not fit.
    overtaken: BTreeMap<PackageId, f64>,
    /// The logarithms of what packages took beside their priors.
    surprises: Vec<f64>,
    /// What priors are multiplied with.
    prior_factor: f64,
    is_stopping: bool,
    now_seconds: f64,
}

impl Scheduler {
    /// A scheduler of a whole graph, a work for each package, on these machines.
    pub fn new(
        graph: Arc<Graph>,
        works: Vec<Work>,
        machines: Vec<Machine>,
        limits: Limits,
    ) -> Result<Scheduler, ScheduleError> {
        check_machines(&graph, &works, &machines)?;
        let mut scheduler = Scheduler::without_machines(graph, works, limits)?;
        for (index, about) in machines.into_iter().enumerate() {
            scheduler.put(MachineId(index as u32), about);
        }
        scheduler.renew_ranks();
        Ok(scheduler)
    }

    /// A scheduler of a whole graph to which machines come by [`Event::Joined`].
    pub fn without_machines(
        graph: Arc<Graph>,
        works: Vec<Work>,
        limits: Limits,
    ) -> Result<Scheduler, ScheduleError> {
        check(&graph, &works)?;
        let packages = graph
            .packages()
            .map(|id| Package {
                standing: Standing::Waiting,
                waits: graph.dependencies(id).len() as u32,
                is_held: false,
                is_alone: false,
            })
            .collect();
        let mut scheduler = Scheduler {
            ranks: Ranks::new(&graph, vec![0.0; graph.len()]),
            queue: Queue::new(vec![0.0; graph.len()]),
            packages,
            machines: Vec::new(),
            doors: Vec::new(),
            running: Vec::new(),
            pressures: Vec::new(),
            overtaken: BTreeMap::new(),
            surprises: Vec::new(),
            prior_factor: 1.0,
            is_stopping: false,
            now_seconds: 0.0,
            graph,
            works,
            limits,
        };
        scheduler.renew_ranks();
        Ok(scheduler)
    }

    /// The longest path from the start of this package to the end of the run, in seconds.
    pub fn rank_seconds(&self, package: PackageId) -> f64 {
        self.ranks.seconds(package)
    }

    /// How many packages are ready and not started.
    pub fn ready(&self) -> usize {
        self.queue.len()
    }

    /// Whether a package comes before another one, if both can be started.
    pub fn comes_before(&self, package: PackageId, other: PackageId) -> bool {
        self.queue.comes_before(package, other)
    }

    /// How many builds a machine can have at once.
    pub fn slots(&self, machine: MachineId) -> u32 {
        self.slots_of(&self.machines[machine.index()])
    }

    /// How many builds a machine like this could have at once.
    pub fn slots_of(&self, machine: &Machine) -> u32 {
        machine.cores.min(self.limits.slots_max.unwrap_or(u32::MAX)).max(1)
    }

    /// The memory that a running build uses with one core, and with each further one, in bytes.
    pub fn memory_of(&self, machine: MachineId, package: PackageId) -> Option<(u64, u64)> {
        let mut running = self.running[machine.index()].iter();
        let build = running.find(|build| build.package == package)?;
        Some((build.memory_bytes, build.memory_per_core_bytes))
    }

    /// What a person limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The machines that are there, in the order of their numbers.
    pub fn machines(&self) -> impl Iterator<Item = MachineId> {
        let doors = (0..).map(MachineId).zip(&self.doors);
        doors.filter(|(_, door)| **door != Door::Gone).map(|(machine, _)| machine)
    }

    /// What is being built on a machine, the highest rank first, with its cores.
    pub fn running(&self, machine: MachineId) -> impl Iterator<Item = (PackageId, u32)> {
        self.running[machine.index()].iter().map(|build| (build.package, build.cores))
    }

    /// The graph.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }
}

impl Policy for Scheduler {
    fn apply(&mut self, now_seconds: f64, event: Event, actions: &mut Vec<Action>) {
        self.progress(now_seconds);
        match event {
            Event::Begin => {
                for index in 0..self.packages.len() as u32 {
                    self.look_at(PackageId(index));
                }
            }
            Event::Wants { package, cores } => {
                if let Some(running) = self.running_mut(package) {
                    running.wants = cores.max(1);
                }
            }
            Event::Ended { package, outcome } => self.ended(package, outcome),
            Event::Coming(package) => {
                self.queue.await_until(package, now_seconds + COMING_SECONDS_MAX);
            }
            Event::There(package) => self.there(package),
            Event::Gone(package) => self.gone(package),
            Event::Hold(package) => {
                self.packages[package.index()].is_held = true;
                self.queue.await_no_more(package);
                if self.queue.remove(package) {
                    self.packages[package.index()].standing = Standing::Waiting;
                    self.overtaken.remove(&package);
                }
            }
            Event::Release(package) => {
                self.packages[package.index()].is_held = false;
                self.queue.await_no_more(package);
                self.look_at(package);
            }
            Event::Bump(package) => {
                let mut all = self.graph.ancestors(package);
                all.insert(package);
                self.queue.bump(all);
            }
            Event::Retry(package) => self.retry(package),
            Event::Estimated { package, work } => {
                self.works[package.index()] = work;
                self.set_times(&[package]);
            }
            Event::Joined { machine, about } => {
                self.put(machine, about);
                self.renew_ranks();
            }
            Event::Closed(machine) => self.doors[machine.index()] = Door::Closed,
            Event::Opened(machine) => self.doors[machine.index()] = Door::Open,
            Event::Left(machine) => {
                self.doors[machine.index()] = Door::Gone;
                self.renew_ranks();
            }
            Event::Running { package, machine } => self.begin(package, machine),
            Event::Pressure { machine, pressure } => self.pressures[machine.index()] = pressure,
            Event::Stop => self.is_stopping = true,
            Event::Tick => {}
        }
        self.order_running();
        if !self.is_stopping {
            self.start(actions);
        }
        self.allot(actions);
    }
}

/// Refuses machines that cannot build, and packages that are too large for all of them.
fn check_machines(graph: &Graph, works: &[Work], machines: &[Machine]) -> Result<(), ScheduleError> {
    let is_machine =
        |machine: &Machine| machine.cores > 0 && machine.speed.is_finite() && machine.speed > 0.0;
    if machines.is_empty() || !machines.iter().all(is_machine) {
        return Err(ScheduleError::NoCores);
    }
    let largest = machines.iter().map(|machine| machine.memory_bytes.unwrap_or(u64::MAX)).max();
    let largest_bytes = largest.unwrap_or(u64::MAX);
    match graph.packages().zip(works).find(|(_, work)| work.memory_bytes > largest_bytes) {
        Some((package, work)) => Err(ScheduleError::TooLarge {
            package: graph.name(package).to_owned(),
            needed_bytes: work.memory_bytes,
            largest_bytes,
        }),
        None => Ok(()),
    }
}

/// Refuses what cannot be scheduled on any machine.
fn check(graph: &Graph, works: &[Work]) -> Result<(), ScheduleError> {
    if let Some(cycle) = graph.cycles().first() {
        return Err(ScheduleError::Cycle(cycle.iter().map(|id| graph.name(*id).to_owned()).collect()));
    }
    for (package, work) in graph.packages().zip(works) {
        let is_time = |seconds: &f64| seconds.is_finite() && *seconds >= 0.0;
        let mut times = work.steps.iter().map(|step| step.core_seconds());
        if let Some(seconds) = times.find(|seconds| !is_time(seconds)) {
            return Err(ScheduleError::Time { package: graph.name(package).to_owned(), seconds });
        }
    }
    Ok(())
}

impl Scheduler {
    /// The most cores that any build can have.
    fn cores_max(&self) -> u32 {
        let largest = self.present().map(|machine| machine.cores).max().unwrap_or(1);
        largest.min(self.limits.jobs_max.unwrap_or(u32::MAX)).max(1)
    }

    fn speed_max(&self) -> f64 {
        self.present().map(|machine| machine.speed).reduce(f64::max).unwrap_or(1.0)
    }

    /// The machines that are there.
    fn present(&self) -> impl Iterator<Item = &Machine> {
        let doors = self.machines.iter().zip(&self.doors);
        doors.filter(|(_, door)| **door != Door::Gone).map(|(machine, _)| machine)
    }

    /// A machine is there, in place of one of this number that was there before.
    fn put(&mut self, machine: MachineId, about: Machine) {
        if machine.index() == self.machines.len() {
            self.machines.push(about);
            self.doors.push(Door::Open);
            self.running.push(Vec::new());
            self.pressures.push(Pressure::Low);
        } else {
            self.machines[machine.index()] = about;
            self.doors[machine.index()] = Door::Open;
            self.pressures[machine.index()] = Pressure::Low;
        }
    }

    /// What ranks count for a package: its time at its best allotment, or nothing if it will not be built.
    fn own_seconds(&self, package: PackageId) -> f64 {
        match self.packages[package.index()].standing {
            Standing::Failed | Standing::Blocked => 0.0,
            _ => {
                let work = &self.works[package.index()];
                work.seconds_at(self.cores_max(), self.speed_max()) * self.factor(work)
            }
        }
    }

    fn factor(&self, work: &Work) -> f64 {
        match work.basis {
            Basis::Recorded => 1.0,
            Basis::Prior => self.prior_factor,
        }
    }

    /// Works out all ranks anew.
    fn renew_ranks(&mut self) {
        let own = self.graph.packages().map(|id| self.own_seconds(id)).collect();
        self.ranks.replace(&self.graph, own);
        for package in self.graph.packages() {
            self.queue.set_rank(package, self.ranks.seconds(package));
        }
    }

    /// Lets the ranks follow changes of these packages.
    fn set_times(&mut self, packages: &[PackageId]) {
        let times: Vec<(PackageId, f64)> =
            packages.iter().map(|package| (*package, self.own_seconds(*package))).collect();
        for changed in self.ranks.set(&self.graph, &times) {
            self.queue.set_rank(changed, self.ranks.seconds(changed));
        }
    }

    fn ended(&mut self, package: PackageId, outcome: Outcome) {
        let Standing::Running(machine) = self.packages[package.index()].standing else { return };
        self.running[machine.index()].retain(|running| running.package != package);
        match outcome {
            Outcome::Built { core_seconds } => {
                self.there(package);
                self.learn(package, core_seconds);
            }
            Outcome::Lost => {
                self.packages[package.index()].standing = Standing::Waiting;
                self.look_at(package);
            }
            Outcome::OutOfMemory if !self.packages[package.index()].is_alone => {
                self.packages[package.index()].is_alone = true;
                self.packages[package.index()].standing = Standing::Waiting;
                self.look_at(package);
            }
            Outcome::Failed | Outcome::OutOfMemory => self.fail(package),
        }
    }
}

#[cfg(test)]
mod tests;
