//! Scheduling policies of other builders, for comparison in the simulation: a fixed number of workers on each
//! machine, and a number of jobs that a build keeps until it ends.

use crate::event::{Action, Event, Files, Policy};
use crate::machine::{Machine, MachineId};
use crate::work::Work;
use kilnyard_model::graph::{Graph, PackageId};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How many jobs a build gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jobs {
    /// The same number for each build that can use them.
    Each(u32),
    /// The rule of bob 1.0: by the CPU time of earlier builds, the number of dependents, and a share of the jobs left
    /// over by the builds that could run at the same time.
    Bob,
}

/// Workers that take the ready package with the most direct and indirect dependents: the rule of pbulk and bob. Among
/// equals, the name decides; with bob's jobs, the direct dependents and the CPU time decide before the name, as in
/// bob.
pub struct Workers {
    graph: Arc<Graph>,
    jobs: Jobs,
    bob: Bob,
    /// The position of each package in the order of the rule.
    positions: Vec<u32>,
    ready: BTreeSet<(u32, PackageId)>,
    waits: Vec<u32>,
    at: Vec<Option<MachineId>>,
    given: Vec<u32>,
    running: Vec<BTreeSet<PackageId>>,
    workers: u32,
}

impl Workers {
    /// Creates this many workers on each of these machines.
    pub fn new(graph: Arc<Graph>, works: &[Work], machines: &[Machine], workers: u32, jobs: Jobs) -> Workers {
        let dependents = dependents(&graph);
        let mut order: Vec<PackageId> = graph.packages().collect();
        let cpu_seconds: Vec<f64> = works.iter().map(Work::core_seconds).collect();
        order.sort_by(|a, b| {
            let by_name = || graph.name(*a).cmp(graph.name(*b));
            let key = |id: &PackageId| Reverse(dependents[id.index()]);
            let by_dependents = key(a).cmp(&key(b));
            match jobs {
                Jobs::Each(_) => by_dependents.then_with(by_name),
                Jobs::Bob => {
                    let direct = |id: &PackageId| Reverse(graph.dependents(*id).len());
                    let by_direct = by_dependents.then_with(|| direct(a).cmp(&direct(b)));
                    let by_cpu = || cpu_seconds[b.index()].total_cmp(&cpu_seconds[a.index()]);
                    by_direct.then_with(by_cpu).then_with(by_name)
                }
            }
        });
        let mut positions = vec![0; graph.len()];
        for (position, package) in order.iter().enumerate() {
            positions[package.index()] = position as u32;
        }
        let cores = machines.iter().map(|machine| machine.cores).max().unwrap_or(1);
        Workers {
            bob: Bob::new(works, dependents, workers, cores),
            jobs,
            positions,
            ready: BTreeSet::new(),
            waits: graph.packages().map(|id| graph.dependencies(id).len() as u32).collect(),
            at: vec![None; graph.len()],
            given: vec![0; graph.len()],
            running: vec![BTreeSet::new(); machines.len()],
            workers,
            graph,
        }
    }

    fn push(&mut self, package: PackageId) {
        self.ready.insert((self.positions[package.index()], package));
    }

    fn start(&mut self, actions: &mut Vec<Action>) {
        loop {
            let least = (0..self.running.len()).min_by_key(|machine| self.running[*machine].len());
            let Some(machine) = least.filter(|machine| self.running[*machine].len() < self.workers as usize)
            else {
                return;
            };
            let Some((_, package)) = self.ready.pop_first() else { return };
            let cores = match self.jobs {
                Jobs::Each(jobs) => jobs,
                Jobs::Bob => {
                    let ready: Vec<PackageId> = self.ready.iter().map(|(_, id)| *id).collect();
                    self.bob.jobs(&self.graph, package, &ready, &self.running[machine], self)
                }
            };
            self.given[package.index()] = cores;
            self.running[machine].insert(package);
            let machine = MachineId(machine as u32);
            self.at[package.index()] = Some(machine);
            actions.push(Action::Start { package, machine, cores, files: Files::Disk });
        }
    }
}

impl Policy for Workers {
    fn apply(&mut self, _now_seconds: f64, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Begin => {
                for package in self.graph.packages() {
                    if self.waits[package.index()] == 0 {
                        self.push(package);
                    }
                }
            }
            Event::Ended { package, .. } => {
                if let Some(machine) = self.at[package.index()] {
                    self.running[machine.index()].remove(&package);
                }
                let graph = self.graph.clone();
                for dependent in graph.dependents(package) {
                    self.waits[dependent.index()] -= 1;
                    if self.waits[dependent.index()] == 0 {
                        self.push(*dependent);
                    }
                }
            }
            // Builds keep their cores, and these builders accept no requests.
            _ => return,
        }
        self.start(actions);
    }
}

/// The number of direct and indirect dependents of each package. Bit sets avoid a walk over the graph for each package;
/// those of 30,000 packages take 110 MB for a moment.
fn dependents(graph: &Graph) -> Vec<u32> {
    const WORD_BITS: usize = u64::BITS as usize;
    let words = graph.len().div_ceil(WORD_BITS);
    let mut sets = vec![0_u64; words * graph.len()];
    let mut counts = vec![0; graph.len()];
    for package in graph.order().into_iter().rev() {
        let mut set = vec![0_u64; words];
        for dependent in graph.dependents(package) {
            set[dependent.index() / WORD_BITS] |= 1 << (dependent.index() % WORD_BITS);
            let below = &sets[dependent.index() * words..][..words];
            set.iter_mut().zip(below).for_each(|(word, more)| *word |= more);
        }
        counts[package.index()] = set.iter().map(|word| word.count_ones()).sum();
        sets[package.index() * words..][..words].copy_from_slice(&set);
    }
    counts
}

/// The number of jobs that bob 1.0 gives to a build at its start. The logarithm of its build stage's CPU time places a
/// package between the smallest and the largest one. The number of jobs is at the same point between 2 and a ceiling,
/// which is one job per doubling of the dependents, and at least two more than an equal share. The jobs not needed by
/// running builds and by those that could run at the same time are then split between this build and the ready ones, in
/// proportion to their jobs times their waiting direct dependents.
struct Bob {
    /// CPU seconds of each package that can use more than one job.
    cpu_seconds: Vec<Option<f64>>,
    dependents: Vec<u32>,
    workers: u32,
    cores: u32,
    log_least: f64,
    log_range: f64,
}

impl Bob {
    fn new(works: &[Work], dependents: Vec<u32>, workers: u32, cores: u32) -> Bob {
        let cpu_seconds: Vec<Option<f64>> =
            works.iter().map(|work| (work.parts_seconds().1 > 0.0).then(|| work.parts_seconds().1)).collect();
        let logs = || cpu_seconds.iter().flatten().map(|seconds| seconds.ln());
        let log_least = logs().fold(f64::INFINITY, f64::min);
        let log_range = (logs().fold(f64::NEG_INFINITY, f64::max) - log_least).max(1.0);
        Bob { cpu_seconds, dependents, workers, cores, log_least, log_range }
    }

    /// The jobs of a package before spare jobs are split.
    fn expected(&self, package: PackageId) -> u32 {
        let Some(cpu_seconds) = self.cpu_seconds[package.index()] else { return 1 };
        let least = 2.min(self.cores);
        let fair = self.cores.div_ceil(self.workers.max(1));
        let doublings = f64::from(self.dependents[package.index()] + 1).log2() as u32;
        let most = doublings.clamp((fair + 2).min(self.cores), self.cores);
        let share = ((cpu_seconds.ln() - self.log_least) / self.log_range).clamp(0.0, 1.0);
        let jobs = f64::from(least) + share * f64::from(most - least);
        (jobs.round() as u32).clamp(least, most)
    }

    fn jobs(
        &self,
        graph: &Graph,
        package: PackageId,
        ready: &[PackageId],
        running: &BTreeSet<PackageId>,
        state: &Workers,
    ) -> u32 {
        let base = self.expected(package);
        if self.cpu_seconds[package.index()].is_none() {
            return base;
        }
        let committed: u32 = running.iter().map(|id| state.given[id.index()]).sum();
        let reserved: u32 =
            self.at_the_same_time(graph, ready, running, &state.at).iter().map(|id| self.expected(*id)).sum();
        let spare = self.cores.saturating_sub(committed + reserved + base);
        let waiting = |id: PackageId| {
            graph.dependents(id).iter().filter(|id| state.at[id.index()].is_none()).count() as u32
        };
        let claim_of = |id: PackageId| self.expected(id) * (1 + waiting(id));
        let able = ready.iter().filter(|id| self.cpu_seconds[id.index()].is_some());
        let claims: u32 = able.map(|id| claim_of(*id)).sum();
        let claim = claim_of(package);
        base + (spare * claim).div_ceil(claim + claims)
    }

    /// Packages that are not running but could run at the same time as those that are: the ready ones, and those that
    /// wait only for ready or running ones, up to the number of workers.
    fn at_the_same_time(
        &self,
        graph: &Graph,
        ready: &[PackageId],
        running: &BTreeSet<PackageId>,
        at: &[Option<MachineId>],
    ) -> BTreeSet<PackageId> {
        let mut set: BTreeSet<PackageId> = running.iter().chain(ready).copied().collect();
        let mut open: Vec<PackageId> = set.iter().copied().collect();
        let mut next = 0;
        while next < open.len() && set.len() < self.workers as usize {
            for dependent in graph.dependents(open[next]) {
                let is_free =
                    |id: &PackageId| set.contains(id) || at[id.index()].is_some() && !running.contains(id);
                if !set.contains(dependent) && graph.dependencies(*dependent).iter().all(is_free) {
                    set.insert(*dependent);
                    open.push(*dependent);
                }
            }
            next += 1;
        }
        set.retain(|id| !running.contains(id));
        set
    }
}
