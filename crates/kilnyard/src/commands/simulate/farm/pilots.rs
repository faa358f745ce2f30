//! A pool in a simulation: the reconciler of real pools, before a manager that does what it is asked after a time.

use super::settings::PoolTable;
use crate::error::{Context, Kind, Result};
use kilnyard_pool::{
    Action, Demand, Event, Listed, Listing, Machine, Memory, Names, Need, PilotName, PilotState, Reconciler,
    Terms, wanted,
};
use kilnyard_schedule::{Backlog, MachineId, Supply, Yards};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The time between two lists of the manager, in seconds.
const LIST_SECONDS: f64 = 5.0;

/// See the module documentation.
pub struct PoolPilots {
    pub name: String,
    pub table: PoolTable,
    /// The numbers of its machines, one for each worker that it can have at once.
    pub machines: Range<u32>,
    pub started: u32,
    pub most_there: u32,
    /// When its first worker joined, in seconds.
    pub first_there_seconds: Option<f64>,
    reconciler: Reconciler,
    pilots: BTreeMap<PilotName, Pilot>,
    /// The answers of the manager and what workers report, for the next step.
    events: Vec<Event>,
}

struct Pilot {
    asked_seconds: f64,
    /// Its machine, once it has joined.
    machine: Option<MachineId>,
    is_busy: bool,
    is_draining: bool,
}

impl PoolPilots {
    /// A pool without workers.
    pub fn new(name: &str, table: &PoolTable, machines: Range<u32>) -> Result<PoolPilots> {
        let failed = || format!("simulate the pool {name}");
        let names = Names::new("pilot", "0", "0").context(Kind::Internal, failed())?;
        let terms = Terms {
            idle_seconds: table.idle_seconds,
            start_seconds_max: 300.0_f64.max(2.0 * table.start_seconds),
            list_seconds: LIST_SECONDS,
            ..Terms::new(table.least, table.most, "0")
        };
        let memory = Memory::Names(Vec::new());
        let reconciler = Reconciler::new(terms, names, memory, 0.0).context(Kind::Internal, failed())?;
        Ok(PoolPilots {
            name: name.to_owned(),
            table: table.clone(),
            machines,
            started: 0,
            most_there: 0,
            first_there_seconds: None,
            reconciler,
            pilots: BTreeMap::new(),
            events: Vec::new(),
        })
    }

    /// What it does now. `there_cores` are those of all machines that take builds, in and outside of the pool.
    pub fn step(
        &mut self,
        now_seconds: f64,
        yards: &Yards,
        (backlog, path_seconds): &(Backlog, f64),
        there_cores: u32,
    ) -> Vec<Supply> {
        let mut supplies = Vec::new();
        let mut events = std::mem::take(&mut self.events);
        self.join(now_seconds, &mut events, &mut supplies);
        self.see(yards, &mut events);
        let own_cores =
            self.pilots.values().filter(|pilot| pilot.machine.is_some() && !pilot.is_draining).count();
        let own_cores = own_cores as u32 * self.table.cores;
        let running = backlog.running.iter().filter(|(machine, _)| self.machines.contains(&machine.0));
        let work = running.map(|(_, needs)| needs).chain(&backlog.ready);
        let need = |needs: &kilnyard_schedule::Needs| Need {
            cores: needs.cores,
            memory_bytes: needs.memory_bytes,
            ..Need::default()
        };
        let demand = Demand {
            work: work.map(need).collect(),
            work_core_seconds: backlog.core_seconds,
            path_seconds: *path_seconds,
            other_cores: there_cores.saturating_sub(own_cores),
            there_cores: own_cores,
            startup_seconds: self.table.start_seconds,
            cost: self.table.cost,
        };
        let machine = Machine {
            name: self.name.clone(),
            cores: self.table.cores,
            memory_bytes: self.table.memory.map_or(u64::MAX, |size| size.0),
            disk_bytes: u64::MAX,
            labels: BTreeSet::new(),
        };
        let found = wanted(&demand, &machine, self.table.least, self.table.most);
        events.push(Event::Wanted { count: found.count, reason: found.reason });
        events.push(Event::Tick);
        let mut actions = Vec::new();
        events.into_iter().for_each(|event| self.reconciler.apply(now_seconds, event, &mut actions));
        actions.into_iter().for_each(|action| self.perform(now_seconds, action, &mut supplies));
        supplies
    }

    /// Workers whose start-up time has passed join.
    fn join(&mut self, now_seconds: f64, events: &mut Vec<Event>, supplies: &mut Vec<Supply>) {
        let taken: BTreeSet<u32> =
            self.pilots.values().filter_map(|pilot| pilot.machine).map(|machine| machine.0).collect();
        let mut free = self.machines.clone().filter(|number| !taken.contains(number));
        for (name, pilot) in &mut self.pilots {
            let is_due = now_seconds - pilot.asked_seconds >= self.table.start_seconds;
            if pilot.machine.is_none() && is_due && !pilot.is_draining {
                let Some(number) = free.next() else { break };
                pilot.machine = Some(MachineId(number));
                supplies.push(Supply::Join(MachineId(number)));
                events.push(Event::Joined(name.clone()));
                self.first_there_seconds.get_or_insert(now_seconds);
            }
        }
        let there = self.pilots.values().filter(|pilot| pilot.machine.is_some()).count();
        self.most_there = self.most_there.max(there as u32);
    }

    /// What has changed with its workers.
    fn see(&mut self, yards: &Yards, events: &mut Vec<Event>) {
        for (name, pilot) in &mut self.pilots {
            let Some(machine) = pilot.machine else { continue };
            let is_busy = yards.builds_on(machine) > 0;
            if std::mem::replace(&mut pilot.is_busy, is_busy) != is_busy {
                let name = name.clone();
                events.push(if is_busy { Event::Busy(name) } else { Event::Idle(name) });
            }
            if pilot.is_draining && !is_busy {
                events.push(Event::Drained(name.clone()));
            }
        }
    }

    fn perform(&mut self, now_seconds: f64, action: Action, supplies: &mut Vec<Supply>) {
        match action {
            Action::Start(name) => {
                let pilot =
                    Pilot { asked_seconds: now_seconds, machine: None, is_busy: false, is_draining: false };
                self.pilots.insert(name.clone(), pilot);
                self.started += 1;
                self.events.push(Event::Started(name));
            }
            Action::Drain(name, _) => {
                let Some(pilot) = self.pilots.get_mut(&name) else { return };
                pilot.is_draining = true;
                match pilot.machine {
                    Some(machine) => supplies.push(Supply::Close(machine)),
                    None => self.events.push(Event::Drained(name)),
                }
            }
            Action::Stop(name) => {
                let machine = self.pilots.remove(&name).and_then(|pilot| pilot.machine);
                supplies.extend(machine.map(Supply::Leave));
                self.events.extend(machine.map(|_| Event::Left(name.clone())));
                self.events.push(Event::Stopped(name));
            }
            Action::List => {
                let listed = self.pilots.keys().map(|name| Listed {
                    name: name.clone(),
                    state: PilotState::Running,
                    reason: None,
                    copies: 1,
                });
                self.events.push(Event::Listed(Listing { pilots: listed.collect(), away: Vec::new() }));
            }
        }
    }
}
