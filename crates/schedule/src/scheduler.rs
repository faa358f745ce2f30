//! The scheduler: decides what to start on which machine, and how many cores each build gets.
//!
//! [`Scheduler::apply`] takes one event and returns actions; it reads no clock and performs nothing itself. For each
//! event it goes through running and ready packages in a single order, that of rank:
//!
//! - a running build keeps one core whatever its rank (a jobserver cannot take back the job that a client always
//!   has), and gets as many further cores as it can use and those before it have left;
//! - a ready package starts if those before it leave a core, and its memory fits.
//!
//! A core that a package on the path does not use in a serial stage goes to the next one, and comes back when the path
//! can use it. The number of concurrent builds follows from that.
//!
//! Invariants: a package starts only when all its dependencies are built; the cores given out on a machine never
//! exceed its own; expected memory stays within the machine's; every started build has a core. Nothing starves: a run
//! is finite, each build progresses, and a package that others overtook because its memory did not fit becomes, after
//! [`OVERTAKEN_SECONDS_MAX`], the only one that may start.
//!
//! On several machines, a package starts where it is expected to end first, and waits if that is a machine without a free
//! core, unless it has time.
//!
//! Machines come and go. Without a machine, nothing starts and nothing fails. Ranks assume the largest and the
//! fastest of the present machines. Their speeds are measured by the builds that they finish.
//!
//! Known downside: the rank of a running build is a guess, based on the cores that it was given.

mod allot;
mod backlog;
mod choose;
mod state;

pub use allot::{Sharer, share_out};
pub use backlog::{Backlog, Needs};

use crate::event::{Action, EXPECTED_SECONDS_MAX, Event, Outcome, Policy, Pressure};
use crate::kept::Kept;
use crate::machine::{Classes, Door, Machine, MachineId};
use crate::priority::effective_priorities;
use crate::queue::Queue;
use crate::rank::Ranks;
use crate::speed::Speed;
use crate::transfer::Transfers;
use crate::work::{Basis, Work};
use kilnyard_model::graph::{Graph, PackageId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How long others may overtake a package whose memory does not fit.
pub const OVERTAKEN_SECONDS_MAX: f64 = 600.0;

/// How cores are shared among the builds that can use them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// Highest rank first.
    #[default]
    ByRank,
    /// Evenly, as with one jobserver for all builds; for comparison.
    Equally,
}

/// Limits set by the user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Concurrent builds on one machine; unlimited when absent.
    pub slots_max: Option<u32>,
    /// Cores of one build; unlimited when absent.
    pub jobs_max: Option<u32>,
    /// How cores are shared.
    pub sharing: Sharing,
}

/// Why a graph cannot be scheduled.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScheduleError {
    /// The graph has a cycle.
    #[error("these packages wait for each other: {}", .0.join(", "))]
    Cycle(Vec<String>),
    /// A time is negative or not finite.
    #[error("{package} has an invalid time of {seconds} seconds")]
    Time {
        /// The package.
        package: String,
        /// The time given.
        seconds: f64,
    },
    /// There is no machine, or one has no cores or no speed.
    #[error("no machine to build on, or one without cores")]
    NoCores,
    /// A package does not fit on any machine, even alone and with its files on disk.
    #[error(
        "{package} needs {needed_bytes} bytes of memory, but the largest machine has only {largest_bytes}"
    )]
    TooLarge {
        /// The package.
        package: String,
        /// The memory it needs.
        needed_bytes: u64,
        /// The memory of the largest machine.
        largest_bytes: u64,
    },
}

/// The state of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PackagePhase {
    /// It waits for dependencies, or is held.
    Waiting,
    /// It is in the queue.
    Ready,
    /// It is being built on this machine.
    Running(MachineId),
    /// Its build has finished, and its outputs will be available.
    Freed,
    Built,
    Failed,
    /// A dependency failed.
    Blocked,
}

#[derive(Clone, Copy, Debug)]
struct Package {
    phase: PackagePhase,
    /// The number of dependencies that are not built.
    waits: u32,
    is_held: bool,
    /// Whether it ran out of memory and must be built alone.
    is_alone: bool,
    /// The machines that it may start on.
    classes: Classes,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    package: PackageId,
    wants: u32,
    cores: u32,
    serial_left_seconds: f64,
    parallel_left_seconds: f64,
    /// Memory, without that of further cores.
    memory_bytes: u64,
    memory_per_core_bytes: u64,
    disk_bytes: u64,
    /// The bytes of inputs that its machine lacked.
    missing_bytes: u64,
    /// Whether it is expected to begin with kept work.
    has_kept: bool,
    /// Maximum number of cores that its package may have, on any machine: ranks compare with the best machine.
    jobs_max: u32,
    /// When it was bumped, and its priority; see `Queue`. Together with the longest path from now on, they determine
    /// the order.
    bumped: u64,
    priority: i32,
    rank_seconds: f64,
}

/// See the module documentation.
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
    /// Ready packages that are overtaken because their memory does not fit, with the start of that.
    overtaken: BTreeMap<PackageId, f64>,
    /// Logarithms of the ratios between actual times and priors.
    surprises: Vec<f64>,
    /// The factor applied to priors.
    prior_factor: f64,
    /// The measured speed of each machine.
    speeds: Vec<Speed>,
    /// The cores that may be used now, if others use the rest.
    shares: Vec<Option<u32>>,
    /// What machines have of the inputs of packages.
    transfers: Transfers,
    /// Where kept work of packages is.
    kept: Kept,
    /// Maximum number of cores that any build can have, and the highest speed, of the machines present.
    cores_max: u32,
    speed_max: f64,
    /// The expected work of all packages that wait or are ready, in core-seconds.
    unstarted_seconds: f64,
    is_stopping: bool,
    now_seconds: f64,
}

impl Scheduler {
    /// A scheduler for a whole graph on these machines, with one work per package.
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

    /// A scheduler for a whole graph, whose machines arrive by [`Event::Joined`].
    pub fn without_machines(
        graph: Arc<Graph>,
        works: Vec<Work>,
        limits: Limits,
    ) -> Result<Scheduler, ScheduleError> {
        check(&graph, &works)?;
        let packages = graph
            .packages()
            .map(|id| Package {
                phase: PackagePhase::Waiting,
                waits: graph.dependencies(id).len() as u32,
                is_held: false,
                is_alone: false,
                classes: Classes::ALL,
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
            speeds: Vec::new(),
            shares: Vec::new(),
            transfers: Transfers::default(),
            kept: Kept::default(),
            cores_max: 1,
            speed_max: 1.0,
            unstarted_seconds: 0.0,
            is_stopping: false,
            now_seconds: 0.0,
            graph,
            works,
            limits,
        };
        scheduler.renew_ranks();
        Ok(scheduler)
    }

    /// The same scheduler, with a [priority](effective_priorities) for each package.
    pub fn with_priorities(mut self, own: &[i32]) -> Scheduler {
        let all = effective_priorities(&self.graph, own);
        for (package, priority) in self.graph.packages().zip(all) {
            self.queue.set_priority(package, priority);
        }
        self
    }

    /// The longest path from the start of this package to the end of the run, in seconds.
    pub fn rank_seconds(&self, package: PackageId) -> f64 {
        self.ranks.seconds(package)
    }

    /// The number of packages that are ready but not started.
    pub fn ready(&self) -> usize {
        self.queue.len()
    }

    /// Whether a package comes before another one if both can start.
    pub fn comes_before(&self, package: PackageId, other: PackageId) -> bool {
        self.queue.comes_before(package, other)
    }

    /// The number of concurrent builds of a machine.
    pub fn slots(&self, machine: MachineId) -> u32 {
        self.slots_of(&self.machines[machine.index()]).min(self.cores_now(machine))
    }

    /// The number of concurrent builds of a machine like this.
    pub fn slots_of(&self, machine: &Machine) -> u32 {
        machine.cores.min(self.limits.slots_max.unwrap_or(u32::MAX)).max(1)
    }

    /// The memory that a running build uses with one core, and with each further one, in bytes.
    pub fn memory_of(&self, machine: MachineId, package: PackageId) -> Option<(u64, u64)> {
        let mut running = self.running[machine.index()].iter();
        let build = running.find(|build| build.package == package)?;
        Some((build.memory_bytes, build.memory_per_core_bytes))
    }

    /// Whether a machine has enough memory for a package if it were idle.
    pub fn fits_idle(&self, machine: MachineId, package: PackageId) -> bool {
        let needed_bytes = self.works[package.index()].memory_bytes;
        self.machines[machine.index()].memory_bytes.is_none_or(|bytes| bytes >= needed_bytes)
    }

    /// The speed of a machine, if the builds that it finished have measured it.
    pub fn measured_speed(&self, machine: MachineId) -> Option<f64> {
        let about = &self.machines[machine.index()];
        self.speeds[machine.index()].measured(about.speed).map(|_| about.speed)
    }

    /// The bytes of inputs that a machine lacked when a running build was started there.
    pub fn missing_bytes_of(&self, machine: MachineId, package: PackageId) -> u64 {
        let running = self.running[machine.index()].iter();
        running.filter(|build| build.package == package).map(|build| build.missing_bytes).sum()
    }

    /// The maximum number of cores that one build can have on a machine like this.
    pub fn jobs_max_of(&self, machine: &Machine) -> u32 {
        self.build_cores_max(machine)
    }

    /// The machines present, in order of their numbers.
    pub fn machines(&self) -> impl Iterator<Item = MachineId> {
        let doors = (0..).map(MachineId).zip(&self.doors);
        doors.filter(|(_, door)| **door != Door::Gone).map(|(machine, _)| machine)
    }

    /// The builds running on a machine with their cores, highest rank first.
    pub fn running(&self, machine: MachineId) -> impl Iterator<Item = (PackageId, u32)> {
        self.running[machine.index()].iter().map(|build| (build.package, build.cores))
    }

    /// The dependencies of all packages.
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
                    self.make_ready(PackageId(index));
                }
            }
            Event::Wants { package, cores } => {
                if let PackagePhase::Running(machine) = self.packages[package.index()].phase {
                    let exist = self.build_cores_max(&self.machines[machine.index()]);
                    if let Some(running) = self.running_mut(package) {
                        running.wants = cores.clamp(1, running.jobs_max.min(exist));
                    }
                }
            }
            Event::Freed { package, core_seconds } => self.freed(package, core_seconds),
            Event::Ended { package, outcome } => self.ended(package, outcome),
            Event::Expected(package) => {
                self.queue.wait_for(package, now_seconds + EXPECTED_SECONDS_MAX);
            }
            Event::Available(package) => self.mark_built(package),
            Event::Unavailable(package) => self.mark_gone(package),
            Event::Hold(package) => {
                self.packages[package.index()].is_held = true;
                self.queue.stop_waiting_for(package);
                if self.queue.remove(package) {
                    self.set_phase(package, PackagePhase::Waiting);
                    self.overtaken.remove(&package);
                }
            }
            Event::Release(package) => {
                self.packages[package.index()].is_held = false;
                self.queue.stop_waiting_for(package);
                self.make_ready(package);
            }
            Event::Bump(package) => {
                let mut all = self.graph.ancestors(package);
                all.insert(package);
                self.queue.bump(all);
            }
            Event::Retry(package) => self.retry(package),
            Event::Needs { package, inputs } => self.transfers.set_needs(package, inputs),
            Event::Has { machine, artifacts } => self.transfers.add(machine, &artifacts),
            Event::Announced { package, machine } => self.transfers.begin(package, machine),
            Event::Rate { machine, bytes_per_second } => {
                self.transfers.set_rate(machine, Some(bytes_per_second));
            }
            Event::Kept { package, machines } => {
                let phase = self.packages[package.index()].phase;
                self.unstarted_seconds -= self.unstarted_in(package, phase);
                self.kept.set(package, machines);
                self.unstarted_seconds += self.unstarted_in(package, phase);
                self.set_times(&[package]);
            }
            Event::Confine { package, to } => self.packages[package.index()].classes = to,
            Event::Estimated { package, work } => {
                let phase = self.packages[package.index()].phase;
                self.unstarted_seconds -= self.unstarted_in(package, phase);
                self.works[package.index()] = work;
                self.unstarted_seconds += self.unstarted_in(package, phase);
                self.set_times(&[package]);
            }
            Event::Joined { machine, about, is_open } => {
                self.put(machine, about);
                if !is_open {
                    self.doors[machine.index()] = Door::Closed;
                }
                self.renew_ranks();
            }
            Event::Closed(machine) => self.doors[machine.index()] = Door::Closed,
            Event::Opened(machine) => self.doors[machine.index()] = Door::Open,
            // Ranks stay those of whole machines: this changes every moment.
            Event::Cores { machine, cores } => self.shares[machine.index()] = Some(cores.max(1)),
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

/// Rejects machines that cannot build, and packages that are too large for all of them.
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

/// Rejects graphs and works that cannot be scheduled on any machine.
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
    /// The cores of a machine that builds may use now.
    fn cores_now(&self, machine: MachineId) -> u32 {
        let share = self.shares[machine.index()].unwrap_or(u32::MAX);
        self.machines[machine.index()].cores.min(share)
    }

    /// Maximum number of cores that a build on this machine can have.
    fn build_cores_max(&self, machine: &Machine) -> u32 {
        machine.build_cores_max().min(self.limits.jobs_max.unwrap_or(u32::MAX)).max(1)
    }

    /// The machines present.
    fn present(&self) -> impl Iterator<Item = &Machine> {
        let doors = self.machines.iter().zip(&self.doors);
        doors.filter(|(_, door)| **door != Door::Gone).map(|(machine, _)| machine)
    }

    /// Adds a machine, or replaces an earlier one with this number.
    fn put(&mut self, machine: MachineId, about: Machine) {
        if machine.index() == self.machines.len() {
            self.machines.push(about);
            self.doors.push(Door::Open);
            self.running.push(Vec::new());
            self.pressures.push(Pressure::Low);
            self.speeds.push(Speed::default());
            self.shares.push(None);
        } else {
            let speed = self.speeds[machine.index()].measured(about.speed).unwrap_or(about.speed);
            self.machines[machine.index()] = Machine { speed, ..about };
            self.doors[machine.index()] = Door::Open;
            self.pressures[machine.index()] = Pressure::Low;
            self.shares[machine.index()] = None;
        }
    }

    /// The time that a package adds to ranks: its time at the best allotment, or nothing if it will not be built.
    fn own_seconds(&self, package: PackageId) -> f64 {
        match self.packages[package.index()].phase {
            PackagePhase::Failed | PackagePhase::Blocked => 0.0,
            _ => self.least_seconds(package),
        }
    }

    /// The share of a package's work that a machine has to do.
    fn share(&self, package: PackageId, machine: MachineId) -> f64 {
        if self.kept.is_on(machine, package) { self.works[package.index()].share_with_kept() } else { 1.0 }
    }

    /// The share of a package's work that the best machine has to do.
    fn least_share(&self, package: PackageId) -> f64 {
        let is_kept = self.kept.is_present(package, &self.doors);
        if is_kept { self.works[package.index()].share_with_kept() } else { 1.0 }
    }

    fn factor(&self, work: &Work) -> f64 {
        match work.basis {
            Basis::Recorded => 1.0,
            Basis::Prior => self.prior_factor,
        }
    }

    /// Computes all ranks, and all else that follows from the machines and the works, from scratch.
    fn renew_ranks(&mut self) {
        let cores_max = self.present().map(|machine| self.build_cores_max(machine)).max();
        self.cores_max = cores_max.unwrap_or(1);
        self.speed_max = self.present().map(|machine| machine.speed).reduce(f64::max).unwrap_or(1.0);
        let unstarted =
            self.graph.packages().map(|id| self.unstarted_in(id, self.packages[id.index()].phase));
        self.unstarted_seconds = unstarted.sum();
        let own = self.graph.packages().map(|id| self.own_seconds(id)).collect();
        self.ranks.replace(&self.graph, own);
        for package in self.graph.packages() {
            self.queue.set_rank(package, self.ranks.seconds(package));
        }
    }

    /// Updates the ranks after changes of these packages.
    fn set_times(&mut self, packages: &[PackageId]) {
        let times: Vec<(PackageId, f64)> =
            packages.iter().map(|package| (*package, self.own_seconds(*package))).collect();
        for changed in self.ranks.set(&self.graph, &times) {
            self.queue.set_rank(changed, self.ranks.seconds(changed));
        }
    }

    /// Takes a build from its machine. Learns from its work, if that is known.
    fn take_off(&mut self, package: PackageId, machine: MachineId, core_seconds: Option<f64>) {
        let running = &mut self.running[machine.index()];
        let has_kept = running.iter().any(|build| build.package == package && build.has_kept);
        running.retain(|build| build.package != package);
        // How much work kept work saves differs from build to build, and says nothing about the machine.
        if let Some(core_seconds) = core_seconds.filter(|_| !has_kept) {
            self.measure(machine, package, core_seconds);
            self.learn(package, core_seconds * self.machines[machine.index()].speed);
        }
    }

    fn freed(&mut self, package: PackageId, core_seconds: f64) {
        let PackagePhase::Running(machine) = self.packages[package.index()].phase else { return };
        self.set_phase(package, PackagePhase::Freed);
        self.take_off(package, machine, Some(core_seconds));
    }

    fn ended(&mut self, package: PackageId, outcome: Outcome) {
        let machine = match self.packages[package.index()].phase {
            PackagePhase::Running(machine) => Some(machine),
            PackagePhase::Freed => None,
            _ => return,
        };
        let core_seconds = match outcome {
            Outcome::Built { core_seconds } => {
                self.mark_built(package);
                Some(core_seconds)
            }
            _ => None,
        };
        if let Some(machine) = machine {
            self.take_off(package, machine, core_seconds);
        }
        match outcome {
            Outcome::Built { .. } => {}
            Outcome::Lost => {
                self.set_phase(package, PackagePhase::Waiting);
                self.make_ready(package);
            }
            Outcome::OutOfMemory if !self.packages[package.index()].is_alone => {
                self.packages[package.index()].is_alone = true;
                self.set_phase(package, PackagePhase::Waiting);
                self.make_ready(package);
            }
            Outcome::Failed | Outcome::OutOfMemory => self.fail(package),
        }
    }
}

#[cfg(test)]
mod tests;
