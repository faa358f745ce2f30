//! A run in simulated time: builds that take what their work says, on machines that contend for cores.
//!
//! A build is in one step at a time. In a serial step it has one runnable job, in a parallel one as many as it was
//! given cores. Where a machine has more runnable jobs than cores, each job gets the same share of a core. Time
//! jumps from the end of one step to the next; builds tell the policy when they can use more or fewer cores, and
//! when they end, as real ones do. Nothing else of what they are is told.
//!
//! What must hold: the simulation believes no policy. A start before the dependencies are built, a second start, a
//! build without a core, and a run in which nothing is running are errors.
//!
//! What it does not model: memory that runs out (it measures what expectations add up to), caches, disks, failures,
//! and the moment that it takes to move a core from one build to another.

use crate::event::{Action, Event, Files, Outcome, Policy};
use crate::machine::{Machine, MachineId};
use crate::work::{Step, Work};
use kilnyard_model::graph::{Graph, PackageId};
use std::collections::VecDeque;

/// A policy did what cannot be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimulationError {
    /// Something was started before something that it depends on was built.
    #[error("{package} was started before {dependency} was built")]
    Dependency {
        /// The package.
        package: String,
        /// What it depends on.
        dependency: String,
    },
    /// An action makes no sense now.
    #[error("{package} {what}")]
    Action {
        /// The package.
        package: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Nothing is being built any more, and something is left.
    #[error("nothing is running and {left} packages are left, among them {package}")]
    Stuck {
        /// How many.
        left: usize,
        /// One of them.
        package: String,
    },
}

/// A build that was simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Built {
    /// The package.
    pub package: PackageId,
    /// Where.
    pub machine: MachineId,
    /// When it began.
    pub start_seconds: f64,
    /// When it ended.
    pub end_seconds: f64,
    /// The cores that it was started with.
    pub start_cores: u32,
    /// The cores that it had at its end.
    pub end_cores: u32,
    /// How many builds had ended when it began.
    pub ended_before: u32,
}

/// How busy the machines were from a moment on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Busy {
    /// The moment.
    pub at_seconds: f64,
    /// Cores that did something, of all machines.
    pub cores: f64,
    /// Builds that went on.
    pub builds: u32,
}

/// What a simulated run came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Simulated {
    /// When the last build ended.
    pub makespan_seconds: f64,
    /// All builds, in the order of their ends.
    pub builds: Vec<Built>,
    /// How busy the machines were, over time.
    pub busy: Vec<Busy>,
    /// How many events the policy was told.
    pub events: u64,
    /// The largest memory that builds of one machine were expected to have at once.
    pub memory_peak_bytes: u64,
    /// The largest number of runnable jobs that one machine had for each of its cores.
    pub jobs_per_core_max: f64,
}

/// A running build.
struct Job {
    package: PackageId,
    built: Built,
    /// The step that it is in, and what is left of it in core-seconds.
    step: usize,
    left_seconds: f64,
    cores: u32,
    files: Files,
}

struct Simulation<'a> {
    graph: &'a Graph,
    works: &'a [Work],
    machines: &'a [Machine],
    now_seconds: f64,
    jobs: Vec<Vec<Job>>,
    /// Where each package that was started is.
    at: Vec<Option<MachineId>>,
    is_built: Vec<bool>,
    pending: VecDeque<Event>,
    result: Simulated,
}

/// What is left of a step below this is rounding.
const LEFT_SECONDS_MIN: f64 = 1e-9;

/// Plays a run through: builds that take `works`, on these machines, decided by the policy.
pub fn simulate(
    graph: &Graph,
    works: &[Work],
    machines: &[Machine],
    policy: &mut dyn Policy,
) -> Result<Simulated, SimulationError> {
    let mut simulation = Simulation {
        graph,
        works,
        machines,
        now_seconds: 0.0,
        jobs: machines.iter().map(|_| Vec::new()).collect(),
        at: vec![None; graph.len()],
        is_built: vec![false; graph.len()],
        pending: VecDeque::from([Event::Begin]),
        result: Simulated::default(),
    };
    let mut actions = Vec::new();
    loop {
        while let Some(event) = simulation.pending.pop_front() {
            simulation.result.events += 1;
            policy.apply(simulation.now_seconds, event, &mut actions);
            for action in actions.drain(..) {
                simulation.perform(action)?;
            }
        }
        simulation.measure();
        if !simulation.advance() {
            break;
        }
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
                let at = self.at[package.index()];
                let jobs = at.and_then(|machine| self.jobs.get_mut(machine.index()));
                let job = jobs.and_then(|jobs| jobs.iter_mut().find(|job| job.package == package));
                match job {
                    Some(job) if cores > 0 => job.cores = cores,
                    Some(_) => return Err(self.wrong(package, "was left without a core")),
                    None => return Err(self.wrong(package, "was given cores and is not being built")),
                }
                Ok(())
            }
        }
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
        let mut job = Job { package, built, step: 0, left_seconds: 0.0, cores, files };
        if self.enter(&mut job, 0) {
            self.jobs[machine.index()].push(job);
        } else {
            self.end(&job);
        }
        Ok(())
    }

    /// Enters the first step from this one on that takes any time, and tells what it can use; whether there is
    /// one.
    fn enter(&mut self, job: &mut Job, first: usize) -> bool {
        let steps = &self.works[job.package.index()].steps;
        let is_parallel = |step: Option<&Step>| matches!(step, Some(Step::Parallel(_)));
        let was_parallel = first > 0 && is_parallel(steps.get(job.step));
        let next = (first..steps.len()).find(|step| steps[*step].core_seconds() > LEFT_SECONDS_MIN);
        let Some(step) = next else { return false };
        job.step = step;
        job.left_seconds = steps[step].core_seconds();
        if was_parallel != is_parallel(steps.get(step)) {
            let cores = if was_parallel { 1 } else { self.machines[job.built.machine.index()].cores };
            self.pending.push_back(Event::Wants { package: job.package, cores });
        }
        true
    }

    fn end(&mut self, job: &Job) {
        self.is_built[job.package.index()] = true;
        self.result.makespan_seconds = self.now_seconds;
        self.result.builds.push(Built { end_seconds: self.now_seconds, end_cores: job.cores, ..job.built });
        let core_seconds = self.works[job.package.index()].core_seconds();
        self.pending
            .push_back(Event::Ended { package: job.package, outcome: Outcome::Built { core_seconds } });
    }

    fn runnable(&self, job: &Job) -> u32 {
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

    /// Notes how busy the machines are from now on.
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
    fn advance(&mut self) -> bool {
        let rates: Vec<f64> = self
            .machines
            .iter()
            .enumerate()
            .map(|(index, machine)| machine.speed * self.share(index))
            .collect();
        let mut passed = f64::INFINITY;
        for (jobs, rate) in self.jobs.iter().zip(&rates) {
            for job in jobs {
                passed = passed.min(job.left_seconds / (rate * f64::from(self.runnable(job))));
            }
        }
        if !passed.is_finite() {
            return false;
        }
        self.now_seconds += passed;
        let mut all = std::mem::take(&mut self.jobs);
        for (jobs, rate) in all.iter_mut().zip(&rates) {
            for job in jobs.iter_mut() {
                job.left_seconds -= passed * rate * f64::from(self.runnable(job));
            }
            jobs.retain_mut(|job| {
                let continues = job.left_seconds > LEFT_SECONDS_MIN || self.enter(job, job.step + 1);
                if !continues {
                    self.end(job);
                }
                continues
            });
        }
        self.jobs = all;
        true
    }
}
