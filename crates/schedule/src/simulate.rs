//! Simulates a run: builds that take what their work says, on machines where they compete for cores.
//!
//! A build is in one step at a time. In a serial step it has one runnable job; in a parallel step it has one per core
//! that it was given. If a machine has more runnable jobs than cores, each job gets an equal share. Time jumps from
//! the end of one step to the next. Builds report to the policy when they can use more or fewer cores, and when they
//! end, as real builds do. The policy learns nothing else about them.
//!
//! Invariant: the simulation trusts no policy. A start before the dependencies are built, a second start, a build
//! without a core, and a run in which nothing is running are errors.
//!
//! [`Conditions`] add what a farm has and one machine has not: messages that take time, inputs that have to be transferred,
//! machines that join late, and machines that are lost with what they build. A [`Farm`] decides on its own when machines join
//! and leave.
//!
//! Not modelled: running out of memory (expected memory is only added up), caches, disks, failures of builds, and the delay
//! of moving a core from one build to another.

mod conditions;
mod supply;

pub use conditions::{Conditions, Inputs};
pub use supply::{Farm, Supply};

use crate::event::{Action, Event, Files, Outcome, Policy};
use crate::machine::{Machine, MachineId};
use crate::stalls::Stalling;
use crate::transfer::Transfers;
use crate::work::{Step, Work};
use kilnyard_model::graph::{Graph, PackageId};
use std::collections::VecDeque;
use supply::WithoutSupply;

/// An invalid decision of a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimulationError {
    /// A package was started before one of its dependencies was built.
    #[error("{package} was started before {dependency} was built")]
    Dependency {
        /// The package.
        package: String,
        /// The dependency.
        dependency: String,
    },
    /// An action is not possible now.
    #[error("{package} {what}")]
    Action {
        /// The package.
        package: String,
        /// The reason, as a predicate.
        what: &'static str,
    },
    /// A machine was taken away with what it builds, or joined twice.
    #[error("machine {} {what}", machine.0)]
    Machine {
        /// The machine.
        machine: MachineId,
        /// The reason, as a predicate.
        what: &'static str,
    },
    /// Nothing is running, but packages are left.
    #[error("nothing is running, but {left} packages are left, such as {package}")]
    Stuck {
        /// Their number.
        left: usize,
        /// One of them.
        package: String,
    },
}

/// A simulated build.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Built {
    /// The package.
    pub package: PackageId,
    /// The machine that built it, without interruption.
    pub machine: MachineId,
    /// Its start, in seconds since the start of the run.
    pub start_seconds: f64,
    /// Its end, in seconds since the start of the run.
    pub end_seconds: f64,
    /// The cores that it was started with, at least 1.
    pub start_cores: u32,
    /// The cores that it had at its end, at least 1.
    pub end_cores: u32,
    /// The number of builds that had ended when it started.
    pub ended_before: u32,
}

/// The load of the machines from a time on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Busy {
    /// In seconds since the start of the run.
    pub at_seconds: f64,
    /// Busy cores of all machines.
    pub cores: f64,
    /// The number of running builds.
    pub builds: u32,
}

/// The results of a simulated run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Simulated {
    /// When the last build ended.
    pub makespan_seconds: f64,
    /// All builds, in order of their ends.
    pub builds: Vec<Built>,
    /// The load of the machines over time.
    pub busy: Vec<Busy>,
    /// The number of events that the policy received.
    pub events: u64,
    /// The highest expected memory of concurrent builds on one machine.
    pub memory_peak_bytes: u64,
    /// The highest number of runnable jobs per core on one machine.
    pub jobs_per_core_max: f64,
    /// The builds that were lost with their machines.
    pub lost: u32,
    /// The inputs that reached machines that lacked them.
    pub transferred_bytes: u64,
}

struct Job {
    package: PackageId,
    built: Built,
    /// Its current step, and what is left of the step in core-seconds.
    step: usize,
    left_seconds: f64,
    /// Until its inputs are there.
    wait_seconds: f64,
    cores: u32,
    files: Files,
}

/// Something that happens at a time, whatever builds do.
enum Due {
    Joins(MachineId),
    IsLost(MachineId),
    /// The farm decides about its machines.
    Supply,
    /// The news of the end of a build arrives.
    Ends(Box<Job>),
}

struct Simulation<'a> {
    graph: &'a Graph,
    works: &'a [Work],
    machines: &'a [Machine],
    conditions: &'a Conditions,
    transfers: Transfers,
    now_seconds: f64,
    jobs: Vec<Vec<Job>>,
    due: Vec<(f64, Due)>,
    /// The machine of each package that was started.
    at: Vec<Option<MachineId>>,
    is_built: Vec<bool>,
    pending: VecDeque<Event>,
    /// The machines that are there.
    is_there: Vec<bool>,
    /// Since when nothing has been running.
    idle_since_seconds: f64,
    result: Simulated,
}

/// If nothing has been running for this long, in seconds, and nothing is to begin later, nothing ever will: machines are started
/// within a day.
const IDLE_SECONDS_MAX: f64 = 3.0 * 86_400.0;
/// A remainder of a step below this is a rounding error.
const LEFT_SECONDS_MIN: f64 = 1e-9;

/// Simulates a run of builds that take `works`, on these machines, as decided by the policy.
pub fn simulate(
    graph: &Graph,
    works: &[Work],
    machines: &[Machine],
    policy: &mut dyn Policy,
) -> Result<Simulated, SimulationError> {
    simulate_under(&Conditions::default(), graph, works, machines, policy)
}

/// Simulates a run under the conditions of a farm. A policy must know [`Event::Left`] and [`Event::Joined`] if machines
/// come and go.
pub fn simulate_under(
    conditions: &Conditions,
    graph: &Graph,
    works: &[Work],
    machines: &[Machine],
    policy: &mut dyn Policy,
) -> Result<Simulated, SimulationError> {
    simulate_farm(conditions, graph, works, machines, &mut WithoutSupply(policy))
}

/// Simulates runs on a farm whose machines join and leave as it decides: `machines` are all that can ever be there.
pub fn simulate_farm(
    conditions: &Conditions,
    graph: &Graph,
    works: &[Work],
    machines: &[Machine],
    farm: &mut dyn Farm,
) -> Result<Simulated, SimulationError> {
    let supplies = farm.step_seconds().map(|_| (0.0, Due::Supply));
    let joins = conditions.joins.iter().map(|(machine, seconds)| (*seconds, Due::Joins(*machine)));
    let losses = conditions.losses.iter().map(|(machine, seconds)| (*seconds, Due::IsLost(*machine)));
    // Those that join later are not there yet.
    let absent = conditions.joins.iter().map(|(machine, _)| machine).chain(&conditions.absent);
    let absent: Vec<MachineId> = absent.copied().collect();
    let kept = graph.packages().filter(|_| !conditions.is_kept_secret).filter_map(|package| {
        let machines = vec![*conditions.kept.get(&package)?];
        Some(Event::Kept { package, machines })
    });
    let inputs = conditions.inputs.iter();
    let mut simulation = Simulation {
        graph,
        works,
        machines,
        conditions,
        transfers: inputs.clone().map(|inputs| inputs.transfers(machines)).next().unwrap_or_default(),
        due: joins.chain(losses).chain(supplies).collect(),
        now_seconds: 0.0,
        jobs: machines.iter().map(|_| Vec::new()).collect(),
        at: vec![None; graph.len()],
        is_built: vec![false; graph.len()],
        pending: inputs
            .flat_map(|inputs| inputs.events(machines))
            .chain(absent.iter().copied().map(Event::Left))
            .chain(kept)
            .chain([Event::Begin])
            .collect(),
        is_there: (0..machines.len() as u32).map(|index| !absent.contains(&MachineId(index))).collect(),
        idle_since_seconds: 0.0,
        result: Simulated::default(),
    };
    let mut actions = Vec::new();
    loop {
        while let Some(event) = simulation.pending.pop_front() {
            simulation.result.events += 1;
            farm.apply(simulation.now_seconds, event, &mut actions);
            for action in actions.drain(..) {
                simulation.perform(action)?;
            }
        }
        simulation.measure();
        if !simulation.advance(farm.has_later()) {
            break;
        }
        simulation.happen(farm)?;
    }
    let left: Vec<PackageId> = graph.packages().filter(|id| !simulation.is_built[id.index()]).collect();
    match left.first() {
        Some(package) => {
            Err(SimulationError::Stuck { left: left.len(), package: graph.name(*package).to_owned() })
        }
        None => Ok(simulation.result),
    }
}

impl Simulation<'_> {
    fn wrong(&self, package: PackageId, what: &'static str) -> SimulationError {
        SimulationError::Action { package: self.graph.name(package).to_owned(), what }
    }

    fn perform(&mut self, action: Action) -> Result<(), SimulationError> {
        match action {
            Action::Start { package, machine, cores, files } => self.begin(package, machine, cores, files),
            Action::Cores { package, cores } => {
                if self.has_unknown_end(package) {
                    return Ok(());
                }
                let at = self.at[package.index()];
                let jobs = at.and_then(|machine| self.jobs.get_mut(machine.index()));
                let job = jobs.and_then(|jobs| jobs.iter_mut().find(|job| job.package == package));
                match job {
                    Some(job) if cores > 0 => job.cores = cores,
                    Some(_) => return Err(self.wrong(package, "was left without a core")),
                    None => return Err(self.wrong(package, "was given cores but is not being built")),
                }
                Ok(())
            }
        }
    }

    /// Whether a build has ended at this moment, and the policy does not know it yet.
    fn has_unknown_end(&self, package: PackageId) -> bool {
        let is_its_end =
            |event: &Event| matches!(event, Event::Ended { package: ended, .. } if *ended == package);
        self.pending.iter().any(is_its_end)
    }

    fn begin(
        &mut self,
        package: PackageId,
        machine: MachineId,
        cores: u32,
        files: Files,
    ) -> Result<(), SimulationError> {
        let mut dependencies = self.graph.dependencies(package).iter();
        if let Some(missing) = dependencies.find(|dependency| !self.is_built[dependency.index()]) {
            return Err(SimulationError::Dependency {
                package: self.graph.name(package).to_owned(),
                dependency: self.graph.name(*missing).to_owned(),
            });
        }
        if self.at[package.index()].is_some() {
            return Err(self.wrong(package, "was started twice"));
        }
        if cores == 0 {
            return Err(self.wrong(package, "was started without a core"));
        }
        if machine.index() >= self.machines.len() {
            return Err(self.wrong(package, "was started on an unknown machine"));
        }
        if !self.is_there[machine.index()] {
            return Err(self.wrong(package, "was started on a machine that is not there"));
        }
        self.at[package.index()] = Some(machine);
        let built = Built {
            package,
            machine,
            start_seconds: self.now_seconds,
            end_seconds: self.now_seconds,
            start_cores: cores,
            end_cores: cores,
            ended_before: self.result.builds.len() as u32,
        };
        let transfer_seconds = self.conditions.transfer_seconds + self.transfers.seconds(package, machine);
        self.result.transferred_bytes += self.transfers.missing_bytes(package, machine);
        // Builds that begin before the inputs are there do not ask for them again.
        self.transfers.begin(package, machine);
        let wait_seconds = self.conditions.delay_seconds + transfer_seconds;
        let mut job = Job { package, built, step: 0, left_seconds: 0.0, wait_seconds, cores, files };
        if self.enter(&mut job, 0) || wait_seconds > 0.0 {
            self.jobs[machine.index()].push(job);
        } else {
            self.end(job);
        }
        Ok(())
    }

    /// Enters the first step from `first` on that takes any time, and reports the cores it can use. Returns whether
    /// there is such a step.
    fn enter(&mut self, job: &mut Job, first: usize) -> bool {
        let steps = &self.works[job.package.index()].steps;
        let is_parallel = |step: Option<&Step>| matches!(step, Some(Step::Parallel(_)));
        let was_parallel = first > 0 && is_parallel(steps.get(job.step));
        let share = self.share_of_work(job);
        let next = (first..steps.len()).find(|step| steps[*step].core_seconds() * share > LEFT_SECONDS_MIN);
        let Some(step) = next else { return false };
        job.step = step;
        job.left_seconds = steps[step].core_seconds() * share;
        if was_parallel != is_parallel(steps.get(step)) {
            let cores = if was_parallel { 1 } else { self.machines[job.built.machine.index()].cores };
            self.pending.push_back(Event::Wants { package: job.package, cores });
        }
        true
    }

    fn end(&mut self, job: Job) {
        match self.conditions.delay_seconds > 0.0 {
            true => {
                self.due.push((self.now_seconds + self.conditions.delay_seconds, Due::Ends(Box::new(job))))
            }
            false => self.report_end(&job),
        }
    }

    /// The policy learns that a build has ended.
    fn report_end(&mut self, job: &Job) {
        self.is_built[job.package.index()] = true;
        self.result.makespan_seconds = self.now_seconds;
        self.result.builds.push(Built { end_seconds: self.now_seconds, end_cores: job.cores, ..job.built });
        let speed = self.machines[job.built.machine.index()].speed;
        let core_seconds = self.works[job.package.index()].core_seconds() * self.share_of_work(job) / speed;
        self.pending
            .push_back(Event::Ended { package: job.package, outcome: Outcome::Built { core_seconds } });
    }

    /// The share of its work that a build has to do on its machine.
    fn share_of_work(&self, job: &Job) -> f64 {
        match self.conditions.kept.get(&job.package) == Some(&job.built.machine) {
            true => self.works[job.package.index()].share_with_kept(),
            false => 1.0,
        }
    }

    fn runnable(&self, job: &Job) -> u32 {
        if job.wait_seconds > 0.0 {
            return 0;
        }
        match self.works[job.package.index()].steps[job.step] {
            Step::Serial(_) => 1,
            Step::Parallel(_) => job.cores,
        }
    }

    /// The share of a core that each runnable job of a machine gets.
    fn share(&self, machine: usize) -> f64 {
        let jobs: u32 = self.jobs[machine].iter().map(|job| self.runnable(job)).sum();
        (f64::from(self.machines[machine].cores) / f64::from(jobs.max(1))).min(1.0)
    }

    /// By how much everything on a machine takes longer, as its builds stall it.
    fn stalled(&self, machine: usize, cores: u32) -> f64 {
        let stalling = self.jobs[machine].iter().filter(|job| job.wait_seconds <= 0.0);
        let traps = stalling.filter_map(|job| self.conditions.traps.get(&job.package));
        Stalling::default().factor(traps.sum(), cores)
    }

    /// Records the load of the machines from now on.
    fn measure(&mut self) {
        let (mut busy, mut builds) = (0.0, 0);
        for (machine, jobs) in self.machines.iter().zip(&self.jobs) {
            let runnable: u32 = jobs.iter().map(|job| self.runnable(job)).sum();
            busy += f64::from(runnable.min(machine.cores));
            builds += jobs.len() as u32;
            let per_core = f64::from(runnable) / f64::from(machine.cores);
            self.result.jobs_per_core_max = self.result.jobs_per_core_max.max(per_core);
            let memory = jobs.iter().map(|job| {
                let work = &self.works[job.package.index()];
                let files = if job.files == Files::Memory { work.files_bytes } else { 0 };
                let extra = work.memory_per_core_bytes.saturating_mul(u64::from(job.cores - 1));
                work.memory_bytes.saturating_add(files).saturating_add(extra)
            });
            let memory = memory.fold(0, u64::saturating_add);
            self.result.memory_peak_bytes = self.result.memory_peak_bytes.max(memory);
        }
        let now = Busy { at_seconds: self.now_seconds, cores: busy, builds };
        match self.result.busy.last_mut() {
            Some(last) if last.at_seconds == now.at_seconds => *last = now,
            Some(last) if last.cores == now.cores && last.builds == now.builds => {}
            _ => self.result.busy.push(now),
        }
    }

    /// Advances time until a step ends. Returns whether anything is running.
    fn advance(&mut self, has_later: bool) -> bool {
        let rates: Vec<f64> = self
            .machines
            .iter()
            .enumerate()
            .map(|(index, machine)| machine.speed * self.share(index) / self.stalled(index, machine.cores))
            .collect();
        let mut passed = f64::INFINITY;
        for (jobs, rate) in self.jobs.iter().zip(&rates) {
            for job in jobs {
                passed = passed.min(match job.wait_seconds > 0.0 {
                    true => job.wait_seconds,
                    false => job.left_seconds / (rate * f64::from(self.runnable(job))),
                });
            }
        }
        for (at_seconds, _) in &self.due {
            passed = passed.min((at_seconds - self.now_seconds).max(0.0));
        }
        // Machines may still join or be lost, but no build is left that this concerns.
        let is_over = self.is_built.iter().all(|is_built| *is_built);
        let is_expected = has_later || self.due.iter().any(|(_, due)| !matches!(due, Due::Supply));
        if is_expected || self.jobs.iter().any(|jobs| !jobs.is_empty()) {
            self.idle_since_seconds = self.now_seconds;
        }
        let is_stuck = self.now_seconds - self.idle_since_seconds > IDLE_SECONDS_MAX;
        if !passed.is_finite() || is_over || is_stuck {
            return false;
        }
        self.now_seconds += passed;
        let mut all = std::mem::take(&mut self.jobs);
        for (jobs, rate) in all.iter_mut().zip(&rates) {
            for job in jobs.iter_mut() {
                match job.wait_seconds > 0.0 {
                    true => {
                        let left = job.wait_seconds - passed;
                        job.wait_seconds = if left > LEFT_SECONDS_MIN { left } else { 0.0 };
                    }
                    false => job.left_seconds -= passed * rate * f64::from(self.runnable(job)),
                }
            }
            let mut ended = Vec::new();
            for mut job in std::mem::take(jobs) {
                let (is_ready, next) = (job.wait_seconds <= 0.0, job.step + 1);
                let continues =
                    !is_ready || job.left_seconds > LEFT_SECONDS_MIN || self.enter(&mut job, next);
                if continues { jobs.push(job) } else { ended.push(job) }
            }
            ended.into_iter().for_each(|job| self.end(job));
        }
        self.jobs = all;
        true
    }

    /// Lets happen what is due now.
    fn happen(&mut self, farm: &mut dyn Farm) -> Result<(), SimulationError> {
        let now_seconds = self.now_seconds;
        let (now, later) = std::mem::take(&mut self.due)
            .into_iter()
            .partition::<Vec<_>, _>(|(at_seconds, _)| *at_seconds <= now_seconds + LEFT_SECONDS_MIN);
        self.due = later;
        for (_, due) in now {
            match due {
                Due::Ends(job) => self.report_end(&job),
                Due::Joins(machine) => self.join(machine)?,
                Due::Supply => {
                    for supply in farm.supply(now_seconds) {
                        self.supply(supply)?;
                    }
                    self.pending.push_back(Event::Tick);
                    let step_seconds = farm.step_seconds().unwrap_or(f64::INFINITY);
                    self.due.push((now_seconds + step_seconds, Due::Supply));
                }
                Due::IsLost(machine) => {
                    self.pending.push_back(Event::Closed(machine));
                    for job in std::mem::take(&mut self.jobs[machine.index()]) {
                        self.at[job.package.index()] = None;
                        self.result.lost += 1;
                        let outcome = Outcome::Lost;
                        self.pending.push_back(Event::Ended { package: job.package, outcome });
                    }
                    self.is_there[machine.index()] = false;
                    self.pending.push_back(Event::Left(machine));
                }
            }
        }
        Ok(())
    }

    fn join(&mut self, machine: MachineId) -> Result<(), SimulationError> {
        let about = *self.machines.get(machine.index()).ok_or_else(|| wrong(machine, "does not exist"))?;
        if std::mem::replace(&mut self.is_there[machine.index()], true) {
            return Err(wrong(machine, "joined twice"));
        }
        self.pending.push_back(Event::Joined { machine, about, is_open: true });
        Ok(())
    }

    fn supply(&mut self, supply: Supply) -> Result<(), SimulationError> {
        match supply {
            Supply::Join(machine) => return self.join(machine),
            Supply::Close(machine) => self.pending.push_back(Event::Closed(machine)),
            Supply::Leave(machine) => {
                let jobs = self.jobs.get(machine.index()).ok_or_else(|| wrong(machine, "does not exist"))?;
                if !jobs.is_empty() {
                    return Err(wrong(machine, "was taken away with what it builds"));
                }
                self.is_there[machine.index()] = false;
                self.pending.push_back(Event::Left(machine));
            }
        }
        Ok(())
    }
}

fn wrong(machine: MachineId, what: &'static str) -> SimulationError {
    SimulationError::Machine { machine, what }
}
