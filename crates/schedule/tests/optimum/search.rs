//! The best schedule of a few packages, by exhaustive search (branch and bound; Land and Doig 1960).
//!
//! Searched are all schedules that decide as the scheduler can: at the start of the run and each time a step of a build
//! ends. A package starts on one machine and stays there; a build always has at least one core, and cores may move at each
//! decision; a core is idle only if no running build of its machine can use it. A package may wait although a core
//! is free. The search has its own model of builds, so the simulation is checked against it too.
//!
//! A schedule that may also give fractions of cores, or move them at other times, could be faster. A lower bound must
//! not exceed the optimum found here, but if it equals it, that does not prove that no such schedule is faster.

use kilnyard_model::graph::{Graph, PackageId};
use kilnyard_schedule::{Action, Event, Files, Machine, MachineId, Policy, Step, Work};
use std::collections::HashMap;
use std::sync::Arc;

/// Times that differ by less are equal.
const SAME_SECONDS: f64 = 1e-7;

/// Bounds the time of a test: the search is exponential in the number of packages.
const STATES_MAX: u64 = 4_000_000;

/// Packages, each with at least one step and no step without work, and the machines.
#[derive(Clone, Debug)]
pub struct Instance {
    pub graph: Arc<Graph>,
    pub works: Vec<Work>,
    pub machines: Vec<Machine>,
}

/// The decisions at one time: packages to start, and then the cores of all builds.
#[derive(Clone, Debug, Default)]
struct Decision {
    at_seconds: f64,
    starts: Vec<(usize, usize)>,
    cores: Vec<(usize, u32)>,
}

/// A schedule as a policy.
#[derive(Clone, Debug, Default)]
pub struct Schedule(Vec<Decision>);

impl Policy for Schedule {
    fn apply(&mut self, now_seconds: f64, _event: Event, actions: &mut Vec<Action>) {
        let is_due = |decision: &Decision| decision.at_seconds <= now_seconds + SAME_SECONDS;
        while self.0.first().is_some_and(is_due) {
            let decision = self.0.remove(0);
            let package = |index: usize| PackageId(index as u32);
            actions.extend(decision.starts.iter().map(|(index, machine)| Action::Start {
                package: package(*index),
                machine: MachineId(*machine as u32),
                cores: 1,
                files: Files::Memory,
            }));
            let cores = decision.cores.iter();
            actions.extend(
                cores.map(|(index, cores)| Action::Cores { package: package(*index), cores: *cores }),
            );
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Waiting,
    Running { machine: usize, step: usize, left_seconds: f64 },
    Built,
}

struct Search<'a> {
    instance: &'a Instance,
    /// Packages, each before its dependencies.
    reversed: Vec<PackageId>,
    power: f64,
    best_seconds: f64,
    best: Option<Schedule>,
    decisions: Vec<Decision>,
    /// The earliest time at which each state was reached.
    seen: HashMap<Vec<(u8, u8, u64)>, f64>,
    states: u64,
}

/// The makespan and the decisions of the best schedule, if it is faster than `known_seconds`, which a schedule takes.
pub fn optimum(instance: &Instance, known_seconds: f64) -> (f64, Option<Schedule>) {
    let mut reversed = instance.graph.order();
    reversed.reverse();
    let mut search = Search {
        instance,
        reversed,
        power: instance.machines.iter().map(|machine| f64::from(machine.cores) * machine.speed).sum(),
        best_seconds: known_seconds,
        best: None,
        decisions: Vec::new(),
        seen: HashMap::new(),
        states: 0,
    };
    search.visit(&vec![Phase::Waiting; instance.works.len()], 0.0);
    (search.best_seconds, search.best)
}

impl Search<'_> {
    fn visit(&mut self, phases: &[Phase], now_seconds: f64) {
        self.states += 1;
        assert!(self.states < STATES_MAX, "too large to search: {:?}", self.instance);
        if phases.iter().all(|phase| *phase == Phase::Built) {
            if now_seconds < self.best_seconds - SAME_SECONDS {
                self.best_seconds = now_seconds;
                self.best = Some(Schedule(self.decisions.clone()));
            }
            return;
        }
        if now_seconds + self.least_seconds(phases) >= self.best_seconds - SAME_SECONDS {
            return;
        }
        let reached = self.seen.entry(key(phases)).or_insert(f64::INFINITY);
        if *reached <= now_seconds + SAME_SECONDS {
            return;
        }
        *reached = now_seconds;
        let ready: Vec<usize> = (0..phases.len())
            .filter(|index| {
                let mut dependencies = self.instance.graph.dependencies(PackageId(*index as u32)).iter();
                phases[*index] == Phase::Waiting && dependencies.all(|id| phases[id.index()] == Phase::Built)
            })
            .collect();
        let decision = Decision { at_seconds: now_seconds, ..Decision::default() };
        self.choose_starts(phases.to_vec(), &ready, decision);
    }

    /// Less than any schedule still takes: the longest path, and the work spread over all cores.
    fn least_seconds(&self, phases: &[Phase]) -> f64 {
        let machines = &self.instance.machines;
        let (mut work_seconds, mut longest_seconds) = (0.0, 0.0_f64);
        let mut ranks = vec![0.0; phases.len()];
        for package in &self.reversed {
            let index = package.index();
            let work = &self.instance.works[index];
            let steps_seconds = |machine: usize, first: usize, left_seconds: f64| {
                let rates = work.steps.iter().map(|step| self.rate_max(work, *step, machine));
                let core_seconds = work.steps.iter().map(|step| step.core_seconds());
                let mut seconds = 0.0;
                for (step, (rate, all)) in rates.zip(core_seconds).enumerate().skip(first) {
                    seconds += if step == first { left_seconds } else { all } / rate;
                }
                seconds
            };
            let own = match phases[index] {
                Phase::Built => 0.0,
                Phase::Running { machine, step, left_seconds } => {
                    let later = work.steps[step + 1..].iter().map(|step| step.core_seconds());
                    work_seconds += left_seconds + later.sum::<f64>();
                    steps_seconds(machine, step, left_seconds)
                }
                Phase::Waiting => {
                    work_seconds += work.core_seconds();
                    let first = work.steps[0].core_seconds();
                    let times = (0..machines.len()).map(|machine| steps_seconds(machine, 0, first));
                    times.fold(f64::INFINITY, f64::min)
                }
            };
            let after = self.instance.graph.dependents(*package).iter().map(|id| ranks[id.index()]);
            ranks[index] = own + after.fold(0.0, f64::max);
            longest_seconds = longest_seconds.max(ranks[index]);
        }
        longest_seconds.max(work_seconds / self.power)
    }

    /// Core-seconds per second of a step that has a machine to itself.
    fn rate_max(&self, work: &Work, step: Step, machine: usize) -> f64 {
        let machine = &self.instance.machines[machine];
        machine.speed * f64::from(cores_max(work, step, machine))
    }

    /// Tries each machine for the first of the ready packages, and to let it wait.
    fn choose_starts(&mut self, phases: Vec<Phase>, ready: &[usize], decision: Decision) {
        let Some((first, others)) = ready.split_first() else {
            if phases.iter().any(|phase| matches!(phase, Phase::Running { .. })) {
                self.choose_cores(&phases, 0, decision);
            }
            return;
        };
        let machines = &self.instance.machines;
        let builds = |machine: usize| {
            let is_there =
                |phase: &&Phase| matches!(phase, Phase::Running { machine: m, .. } if *m == machine);
            phases.iter().filter(is_there).count()
        };
        let idle: Vec<bool> = (0..machines.len()).map(|machine| builds(machine) == 0).collect();
        for machine in 0..machines.len() {
            // Equal idle machines are interchangeable.
            let is_alike =
                |other: usize| idle[other] && idle[machine] && machines[other] == machines[machine];
            if builds(machine) >= machines[machine].cores as usize || (0..machine).any(is_alike) {
                continue;
            }
            let left_seconds = self.instance.works[*first].steps[0].core_seconds();
            let mut phases = phases.clone();
            phases[*first] = Phase::Running { machine, step: 0, left_seconds };
            let mut decision = decision.clone();
            decision.starts.push((*first, machine));
            self.choose_starts(phases, others, decision);
        }
        self.choose_starts(phases, others, decision);
    }

    /// Tries each way to share the cores of this machine and of the later ones.
    fn choose_cores(&mut self, phases: &[Phase], machine: usize, decision: Decision) {
        if machine == self.instance.machines.len() {
            self.decisions.push(decision);
            self.advance(phases);
            self.decisions.pop();
            return;
        }
        let about = &self.instance.machines[machine];
        let limits: Vec<(usize, u32)> = (0..phases.len())
            .filter_map(|index| match phases[index] {
                Phase::Running { machine: at, step, .. } if at == machine => {
                    let work = &self.instance.works[index];
                    Some((index, cores_max(work, work.steps[step], about)))
                }
                _ => None,
            })
            .collect();
        let wanted: u32 = limits.iter().map(|(_, limit)| limit).sum();
        let mut all = Vec::new();
        shares(&limits, wanted.min(about.cores), &mut Vec::new(), &mut all);
        for cores in all {
            let mut decision = decision.clone();
            decision.cores.extend(cores);
            self.choose_cores(phases, machine + 1, decision);
        }
    }

    /// Advances to the end of the first step that ends.
    fn advance(&mut self, phases: &[Phase]) {
        let Some(decision) = self.decisions.last() else { return };
        let now_seconds = decision.at_seconds;
        let rates: Vec<(usize, f64)> = decision
            .cores
            .iter()
            .map(|(index, cores)| match phases[*index] {
                Phase::Running { machine, .. } => {
                    (*index, f64::from(*cores) * self.instance.machines[machine].speed)
                }
                _ => unreachable!("only builds have cores"),
            })
            .collect();
        let left = |index: usize| match phases[index] {
            Phase::Running { left_seconds, .. } => left_seconds,
            _ => f64::INFINITY,
        };
        let passed = rates.iter().map(|(index, rate)| left(*index) / rate).fold(f64::INFINITY, f64::min);
        let mut after = phases.to_vec();
        for (index, rate) in rates {
            let Phase::Running { step, left_seconds, .. } = &mut after[index] else { continue };
            *left_seconds -= passed * rate;
            if *left_seconds < SAME_SECONDS {
                *step += 1;
                let next = self.instance.works[index].steps.get(*step);
                match next {
                    Some(next) => *left_seconds = next.core_seconds(),
                    None => after[index] = Phase::Built,
                }
            }
        }
        self.visit(&after, now_seconds + passed);
    }
}

/// The most cores that a step can use on a machine.
fn cores_max(work: &Work, step: Step, machine: &Machine) -> u32 {
    match step {
        Step::Serial(_) => 1,
        Step::Parallel(_) => work.cores_of(machine.cores),
    }
}

/// All ways to give exactly this many cores to builds, from one to the limit of each.
fn shares(
    limits: &[(usize, u32)],
    cores: u32,
    given: &mut Vec<(usize, u32)>,
    all: &mut Vec<Vec<(usize, u32)>>,
) {
    let Some(((index, limit), others)) = limits.split_first() else {
        if cores == 0 {
            all.push(given.clone());
        }
        return;
    };
    // The most first: a build that ends early is more often good than one that ends late.
    for own in (1..=cores.min(*limit)).rev() {
        given.push((*index, own));
        shares(others, cores - own, given, all);
        given.pop();
    }
}

/// States with the same key have the same future.
fn key(phases: &[Phase]) -> Vec<(u8, u8, u64)> {
    let one = |phase: &Phase| match phase {
        Phase::Waiting => (u8::MAX, 0, 0),
        Phase::Built => (u8::MAX - 1, 0, 0),
        Phase::Running { machine, step, left_seconds } => {
            (*machine as u8, *step as u8, (left_seconds / SAME_SECONDS / 10.0).round() as u64)
        }
    };
    phases.iter().map(one).collect()
}
