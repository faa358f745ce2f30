//! Several yards on the same machines, as one policy for the simulation: each yard has a scheduler, as each has a coordinator,
//! and each machine divides its cores among them by [`Shares`], as each worker does.
//!
//! The graph of the simulation has the packages of all yards, those of the first before those of the second.
//!
//! Not modelled: the time that a message takes between a worker and each coordinator, and yards that come and go.

use crate::event::{Action, Event, Policy};
use crate::machine::{Machine, MachineId};
use crate::scheduler::{Backlog, Scheduler};
use crate::shares::{Shares, Usage};
use kilnyard_model::entitlement::Entitlement;
use kilnyard_model::graph::PackageId;

/// A yard that takes part.
#[derive(Clone, Debug)]
pub struct YardPolicy {
    /// Decides for its packages. It has all machines that there can be.
    pub scheduler: Scheduler,
    /// What it is entitled to.
    pub entitlement: Entitlement,
    /// When its run begins, in seconds.
    pub begin_seconds: f64,
}

/// What a yard had of the machines.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Received {
    /// Core-seconds that its builds used.
    pub core_seconds: f64,
    /// Those of the time in which all yards of unfinished runs had packages that could start.
    pub contended_core_seconds: f64,
    /// The longest time in which it had packages that could start, and no build, in seconds.
    pub waited_seconds_max: f64,
}

/// What the yards did together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Together {
    /// For each yard, in order.
    pub received: Vec<Received>,
    /// The time in which all yards of unfinished runs, two at least, had packages that could start, in seconds.
    pub contended_seconds: f64,
    /// Core-seconds of open machines that no build used although a package could start.
    pub idle_core_seconds: f64,
    /// For each machine, in order.
    pub machines: Vec<Provided>,
}

/// What a machine did for the yards.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Provided {
    /// Its core-seconds while it was there.
    pub there_core_seconds: f64,
    /// Those that builds used.
    pub used_core_seconds: f64,
}

#[derive(Clone, Debug)]
struct Yard {
    policy: YardPolicy,
    has_begun: bool,
    /// The number of its first package.
    first: u32,
    /// The cores that each of its builds can use, by package.
    wants: Vec<u32>,
    /// Its packages that have not been built.
    left: usize,
    /// The builds that it has begun on each machine.
    begun: Vec<u64>,
    /// The cores that it was given on each machine; 0 if it may start nothing.
    given: Vec<u32>,
    /// The cores that it uses now on each machine.
    used: Vec<f64>,
    builds: u32,
    waits_since_seconds: Option<f64>,
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct Yards {
    yards: Vec<Yard>,
    machines: Vec<Place>,
    now_seconds: f64,
    together: Together,
}

#[derive(Clone, Debug)]
struct Place {
    machine: Machine,
    shares: Shares,
    is_there: bool,
    is_open: bool,
}

impl Yards {
    /// These yards on these machines, all of which are there until [`Event::Left`].
    pub fn new(policies: Vec<YardPolicy>, machines: &[Machine]) -> Yards {
        let mut first = 0;
        let yards = policies.into_iter().map(|policy| {
            let count = policy.scheduler.graph().len();
            let yard = Yard {
                has_begun: false,
                first,
                wants: vec![1; count],
                left: count,
                begun: vec![0; machines.len()],
                given: machines.iter().map(|machine| machine.cores).collect(),
                used: vec![0.0; machines.len()],
                builds: 0,
                waits_since_seconds: None,
                policy,
            };
            first += count as u32;
            yard
        });
        let yards: Vec<Yard> = yards.collect();
        let place = |machine: &Machine| {
            let mut shares = Shares::new(machine.cores, machine.memory_bytes);
            yards.iter().enumerate().for_each(|(at, yard)| shares.set(at, yard.policy.entitlement));
            Place { machine: *machine, shares, is_there: true, is_open: true }
        };
        let machines: Vec<Place> = machines.iter().map(place).collect();
        let together = Together {
            received: vec![Received::default(); yards.len()],
            machines: vec![Provided::default(); machines.len()],
            ..Together::default()
        };
        Yards { yards, machines, now_seconds: 0.0, together }
    }

    /// What the yards had until the last event.
    pub fn together(&self) -> &Together {
        &self.together
    }

    /// Whether the run of a yard has not begun.
    pub fn has_later(&self) -> bool {
        self.yards.iter().any(|yard| !yard.has_begun)
    }

    /// The cores of the machines that take builds.
    pub fn open_cores(&self) -> u32 {
        self.machines.iter().filter(|place| place.is_open).map(|place| place.machine.cores).sum()
    }

    /// The builds of all yards on a machine.
    pub fn builds_on(&self, machine: MachineId) -> usize {
        self.yards.iter().map(|yard| yard.policy.scheduler.running(machine).count()).sum()
    }

    /// The work that is left in all yards whose runs have begun, with at most this many ready packages of each, and the longest
    /// path through it, in seconds.
    pub fn backlog(&self, ready_max: usize) -> (Backlog, f64) {
        let mut all = Backlog::default();
        let mut path_seconds = 0.0_f64;
        for yard in self.yards.iter().filter(|yard| yard.has_begun) {
            let own = yard.policy.scheduler.backlog(ready_max);
            let running = own.running.iter().map(|(_, needs)| needs);
            // All others wait for one of these.
            let ranks = own.ready.iter().chain(running).map(|needs| needs.package);
            let ranks = ranks.map(|package| yard.policy.scheduler.rank_seconds(package));
            path_seconds = ranks.fold(path_seconds, f64::max);
            let of_all = |needs: crate::Needs| crate::Needs { package: yard.of_all(needs.package), ..needs };
            all.ready.extend(own.ready.into_iter().map(of_all));
            all.running.extend(own.running.into_iter().map(|(machine, needs)| (machine, of_all(needs))));
            all.core_seconds += own.core_seconds;
        }
        (all, path_seconds)
    }

    /// The yard of a package, and its number there.
    fn of(&self, package: PackageId) -> (usize, PackageId) {
        let at = self.yards.partition_point(|yard| yard.first <= package.0).saturating_sub(1);
        (at, PackageId(package.0 - self.yards.get(at).map_or(0, |yard| yard.first)))
    }

    /// Counts what was used until now.
    fn pass(&mut self, now_seconds: f64) {
        let passed = (now_seconds - self.now_seconds).max(0.0);
        self.now_seconds = now_seconds;
        let could_start = |yard: &Yard| yard.has_begun && yard.policy.scheduler.ready() > 0;
        let unfinished = self.yards.iter().filter(|yard| yard.has_begun && yard.left > 0);
        let is_contended = unfinished.clone().count() > 1 && unfinished.clone().all(could_start);
        let open = self.open_cores();
        let used: f64 = self.yards.iter().flat_map(|yard| &yard.used).sum();
        let together = &mut self.together;
        for (index, (place, provided)) in self.machines.iter().zip(&mut together.machines).enumerate() {
            let there = if place.is_there { f64::from(place.machine.cores) } else { 0.0 };
            provided.there_core_seconds += there * passed;
            provided.used_core_seconds +=
                self.yards.iter().map(|yard| yard.used[index]).sum::<f64>() * passed;
        }
        if self.yards.iter().any(could_start) {
            together.idle_core_seconds += (f64::from(open) - used).max(0.0) * passed;
        }
        if is_contended {
            together.contended_seconds += passed;
        }
        for (yard, received) in self.yards.iter_mut().zip(&mut together.received) {
            let used = yard.used.iter().sum::<f64>() * passed;
            received.core_seconds += used;
            received.contended_core_seconds += if is_contended { used } else { 0.0 };
            match could_start(yard) && yard.builds == 0 {
                true => {
                    let since_seconds = *yard.waits_since_seconds.get_or_insert(now_seconds - passed);
                    let waited_seconds = now_seconds - since_seconds;
                    received.waited_seconds_max = received.waited_seconds_max.max(waited_seconds);
                }
                false => yard.waits_since_seconds = None,
            }
        }
    }

    /// Divides a machine anew, and informs the yards whose part has changed. A build that ends does not count any more.
    fn divide(&mut self, machine: MachineId, ends: Option<(usize, PackageId)>, actions: &mut Vec<Action>) {
        let index = machine.index();
        if !self.machines[index].is_there {
            return;
        }
        let now_seconds = self.now_seconds;
        for at in 0..self.yards.len() {
            let without = ends.filter(|(yard, _)| *yard == at).map(|(_, package)| package);
            let usage = self.yards[at].usage(machine, without);
            self.machines[index].shares.note(at, now_seconds, usage);
        }
        self.machines[index].shares.divide(now_seconds);
        for at in 0..self.yards.len() {
            let cores = self.machines[index].shares.cores_of(at);
            let before = std::mem::replace(&mut self.yards[at].given[index], cores);
            if cores == before {
                continue;
            }
            let yard = &mut self.yards[at];
            match (before, cores) {
                (_, 0) => yard.apply(now_seconds, Event::Closed(machine), actions),
                (0, _) if self.machines[index].is_open => {
                    yard.apply(now_seconds, Event::Cores { machine, cores }, actions);
                    yard.apply(now_seconds, Event::Opened(machine), actions);
                }
                _ => yard.apply(now_seconds, Event::Cores { machine, cores }, actions),
            }
        }
        self.count(machine);
    }

    /// Notes which cores of a machine the yards use now.
    fn count(&mut self, machine: MachineId) {
        let index = machine.index();
        // Together, they may have a core more than there are.
        let used: Vec<u32> = self.yards.iter().map(|yard| yard.usage(machine, None).used).collect();
        let all = f64::from(used.iter().sum::<u32>()).max(1.0);
        let share = (f64::from(self.machines[index].machine.cores) / all).min(1.0);
        for (yard, used) in self.yards.iter_mut().zip(used) {
            yard.used[index] = f64::from(used) * share;
        }
    }

    fn divide_all(&mut self, actions: &mut Vec<Action>) {
        for index in 0..self.machines.len() as u32 {
            self.divide(MachineId(index), None, actions);
        }
    }

    /// Runs whose time has come begin.
    fn begin(&mut self, actions: &mut Vec<Action>) {
        let now_seconds = self.now_seconds;
        for yard in &mut self.yards {
            if !yard.has_begun && yard.policy.begin_seconds <= now_seconds {
                yard.has_begun = true;
                yard.apply(now_seconds, Event::Begin, actions);
            }
        }
    }
}

impl Policy for Yards {
    /// The events of a simulation; others change nothing.
    fn apply(&mut self, now_seconds: f64, event: Event, actions: &mut Vec<Action>) {
        self.pass(now_seconds);
        match event {
            Event::Begin => {
                self.divide_all(actions);
                self.begin(actions);
                self.divide_all(actions);
            }
            Event::Tick => {
                self.begin(actions);
                self.yards.iter_mut().for_each(|yard| yard.apply(now_seconds, Event::Tick, actions));
                self.divide_all(actions);
            }
            Event::Wants { package, cores } => {
                let (at, package) = self.of(package);
                let yard = &mut self.yards[at];
                yard.wants[package.index()] = cores;
                yard.apply(now_seconds, Event::Wants { package, cores }, actions);
                if let Some(machine) = yard.machine_of(package) {
                    self.divide(machine, None, actions);
                }
            }
            Event::Ended { package, outcome } => {
                let (at, package) = self.of(package);
                // Its core is free for all before its yard's scheduler can use it for the next.
                let machine = self.yards[at].machine_of(package);
                machine.into_iter().for_each(|machine| self.divide(machine, Some((at, package)), actions));
                let yard = &mut self.yards[at];
                let had_ready = yard.policy.scheduler.ready() > 0;
                yard.builds = yard.builds.saturating_sub(1);
                if outcome != crate::Outcome::Lost {
                    yard.left -= 1;
                }
                yard.wants[package.index()] = 1;
                yard.apply(now_seconds, Event::Ended { package, outcome }, actions);
                match machine {
                    Some(machine) if had_ready == (yard.policy.scheduler.ready() > 0) => {
                        self.divide(machine, None, actions);
                        // What waited for it may have begun on another one.
                        (0..self.machines.len() as u32).for_each(|index| self.count(MachineId(index)));
                    }
                    _ => self.divide_all(actions),
                }
            }
            Event::Joined { machine, .. } | Event::Opened(machine) => {
                let place = &mut self.machines[machine.index()];
                (place.is_there, place.is_open) = (true, true);
                let cores = place.machine.cores;
                for yard in &mut self.yards {
                    yard.given[machine.index()] = cores;
                    yard.apply(now_seconds, event.clone(), actions);
                }
                self.divide(machine, None, actions);
            }
            Event::Closed(machine) | Event::Left(machine) => {
                let place = &mut self.machines[machine.index()];
                place.is_open = false;
                place.is_there &= !matches!(event, Event::Left(_));
                self.yards.iter_mut().for_each(|yard| yard.apply(now_seconds, event.clone(), actions));
            }
            _ => {}
        }
    }
}

impl Yard {
    /// The number of a package among those of all yards.
    fn of_all(&self, package: PackageId) -> PackageId {
        PackageId(package.0 + self.first)
    }

    fn machine_of(&self, package: PackageId) -> Option<MachineId> {
        let machines = (0..self.used.len() as u32).map(MachineId);
        let is_on = |machine: &MachineId| {
            self.policy.scheduler.running(*machine).any(|(running, _)| running == package)
        };
        machines.into_iter().find(is_on)
    }

    /// Has the scheduler apply an event about packages of its own.
    fn apply(&mut self, now_seconds: f64, event: Event, actions: &mut Vec<Action>) {
        let mut own = Vec::new();
        self.policy.scheduler.apply(now_seconds, event, &mut own);
        for action in own {
            actions.push(match action {
                Action::Start { package, machine, cores, files } => {
                    self.begun[machine.index()] += 1;
                    self.builds += 1;
                    Action::Start { package: self.of_all(package), machine, cores, files }
                }
                Action::Cores { package, cores } => Action::Cores { package: self.of_all(package), cores },
            });
        }
    }

    /// What it does on a machine, and could do, without one of its builds.
    fn usage(&self, machine: MachineId, without: Option<PackageId>) -> Usage {
        let scheduler = &self.policy.scheduler;
        let mut usage = Usage {
            begun: self.begun[machine.index()],
            has_ready: self.has_begun && scheduler.ready() > 0,
            ..Usage::default()
        };
        for (package, cores) in scheduler.running(machine).filter(|(package, _)| Some(*package) != without) {
            let wants = self.wants[package.index()];
            usage.building += 1;
            usage.wanted = usage.wanted.saturating_add(wants);
            usage.used += cores.min(wants);
            let (memory, per_core) = scheduler.memory_of(machine, package).unwrap_or_default();
            let further = per_core.saturating_mul(u64::from(cores.saturating_sub(1)));
            usage.memory_bytes = usage.memory_bytes.saturating_add(memory).saturating_add(further);
        }
        usage
    }
}

#[cfg(test)]
mod tests;
