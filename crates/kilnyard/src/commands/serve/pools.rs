//! Machines on demand: starts and ends the workers of pools that have a driver, as the work that is left asks for.
//!
//! Each such pool has a thread, which passes on what it sees to the pool's [`Reconciler`] and performs what that decides. Calls
//! of a driver have threads of their own: a manager that hangs delays nothing else.
//!
//! The name of a pilot is the name of its worker, so that one is found by the other. Another server of the farm that takes
//! over derives the same names, and so takes over the pilots too.

mod drivers;

pub use drivers::driver;

use super::SILENT_SECONDS_MAX;
use crate::error::{Context, Kind, Result};
use crate::yard::Yard;
use crate::{signals, words};
use kilnyard_farm::door::Control;
use kilnyard_farm::identity::Fingerprint;
use kilnyard_farm::relay::{PoolStatus, WorkerStatus};
use kilnyard_farm::roster::{Held, Terms as Admits, Token};
use kilnyard_model::backlog::{Backlog, Pending};
use kilnyard_model::role::Role;
use kilnyard_model::sha256::Sha256Hex;
use kilnyard_pool::{
    Action, Demand, Driver, Event, Figures, Launch, Machine, Memory, Names, Need, PilotName, Reconciler,
    Terms, Verb, nearest_miss, perform, wanted,
};
use kilnyard_yard::config::demand::OnDemand;
use kilnyard_yard::config::farm::Approval;
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a pool is checked.
const STEP: Duration = Duration::from_secs(1);
/// When the list of a manager has what an earlier server started: nothing is started before.
const ADOPTED_AFTER: Duration = Duration::from_secs(15);
/// A run reads the list of workers every second; until it has, it may give a worker another build.
const HELD_AFTER: Duration = Duration::from_secs(4);
/// The most characters of a pool's name in the names of its pilots.
const SLUG_MAX: usize = 14;
/// The word of machines that may have what other packages are built with.
const TRUSTED: &str = "trusted";
/// The time from a start until a worker takes builds, for decisions, before one was measured: its manager and its connection.
const STARTUP_SECONDS: f64 = 30.0;
/// The part of the measured time that a further start replaces.
const STARTUP_NEW_SHARE: f64 = 0.3;
/// The most pieces of work that fit no worker and are named.
const MISSES_MAX: usize = 20;

/// What pools share: where workers connect, and what is said of the pools.
#[derive(Clone)]
struct Shared {
    control: Control,
    fingerprint: Fingerprint,
    proxy: Option<Fingerprint>,
    url: String,
    statuses: Arc<Mutex<BTreeMap<String, PoolStatus>>>,
    /// Pools and their workers, for work that fits none.
    machines: Arc<Vec<Machine>>,
}

/// Starts a thread for each pool with a driver. They end with the process.
///
/// # Errors
/// The settings of a driver are not valid.
pub fn start(
    yard: &Yard,
    control: Control,
    (fingerprint, proxy): (Fingerprint, Option<Fingerprint>),
    url: &str,
) -> Result<()> {
    let demands = yard.config.farm.pool.iter();
    let demands: Vec<(&String, &OnDemand)> =
        demands.filter_map(|(name, pool)| Some((name, pool.demand.as_ref()?))).collect();
    let machines = demands.iter().map(|(name, demand)| {
        let pool = yard.config.farm.pool(name).unwrap_or_default();
        machine(name, demand, pool.trusted, &pool.roles)
    });
    let shared = Shared {
        control,
        fingerprint,
        proxy,
        url: url.to_owned(),
        statuses: Arc::default(),
        machines: Arc::new(machines.collect()),
    };
    for (name, demand) in demands {
        let pool = Pool::new(yard, name, demand, shared.clone())?;
        say!(
            "pool {name}: up to {} by {}",
            words::count(u64::from(demand.most), "worker"),
            demand.driver.as_str()
        );
        std::thread::spawn(move || pool.run());
    }
    Ok(())
}

/// A worker of a pool, as it will be.
fn machine(name: &str, demand: &OnDemand, is_trusted: bool, roles: &BTreeSet<Role>) -> Machine {
    let trusted = is_trusted.then(|| TRUSTED.to_owned());
    Machine {
        name: name.to_owned(),
        cores: demand.cores,
        memory_bytes: demand.memory.0,
        disk_bytes: u64::MAX,
        labels: roles.iter().map(Role::to_string).chain(trusted).collect(),
    }
}

/// What work needs of a machine.
fn need(pending: &Pending) -> Need {
    let trusted = pending.needs_trust.then(|| TRUSTED.to_owned());
    Need {
        cores: pending.cores,
        memory_bytes: pending.memory_bytes,
        disk_bytes: 0,
        labels: std::iter::once(pending.role.to_string()).chain(trusted).collect(),
    }
}

/// A worker of the pool, as it was seen last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Busy,
    Idle,
    Away,
}

/// A pool and its thread.
struct Pool {
    name: String,
    demand: OnDemand,
    admits: Admits,
    names: Names,
    reconciler: Reconciler,
    driver: Arc<dyn Driver>,
    machine: Machine,
    shared: Shared,
    events: (Sender<Event>, Receiver<Event>),
    seen: BTreeMap<PilotName, Seen>,
    /// The pilots that get no more builds, and since when; absent while their workers have not joined.
    draining: BTreeMap<PilotName, Option<Instant>>,
    /// Those whose workers have said that they end soon.
    reclaimed: BTreeSet<PilotName>,
    /// When those were requested whose workers have not joined yet.
    asked: BTreeMap<PilotName, Instant>,
    /// The time from a start until a worker takes builds, as measured.
    startup_seconds: f64,
    /// Those whose workers may be forgotten once they are gone.
    known: BTreeSet<PilotName>,
    /// Whether what an earlier server left is among them.
    has_adopted: bool,
    wanted: Option<(u32, String)>,
    began: Instant,
}

impl Pool {
    fn new(yard: &Yard, name: &str, demand: &OnDemand, shared: Shared) -> Result<Pool> {
        let failed = || format!("use the pool {name}");
        let farm = &yard.config.farm;
        let pool = farm.pool(name).unwrap_or_default();
        // The same on all servers of the farm, and another one in every other yard.
        let yard_id = Sha256Hex::of(format!("{}\0{name}", shared.fingerprint).as_bytes());
        let prefix = format!("kiln-{}-{}", &yard_id.as_str()[..6], slug(name));
        let form = form(demand);
        let generation: String = rand::rngs::OsRng.r#gen::<u32>().to_string();
        let generation = &generation[..generation.len().min(kilnyard_pool::PART_BYTES_MAX)];
        let names = Names::new(&prefix, &form, generation).context(Kind::Usage, failed())?;
        let driver = driver(yard, &prefix, demand)?;
        let terms = Terms {
            idle_seconds: f64::from(demand.idle_seconds),
            start_seconds_max: f64::from(demand.start_seconds_max),
            list_seconds: 5.0,
            ..Terms::new(demand.least, demand.most, &form)
        };
        // A server that ended may have started some: the manager's list shows them.
        let reconciler =
            Reconciler::new(terms, names.clone(), Memory::Nothing, 0.0).context(Kind::Usage, failed())?;
        let approval = farm.approval(name);
        let admits = Admits {
            pool: name.to_owned(),
            roles: pool.roles.clone(),
            needs_approval: approval == Approval::ByHand,
            name: None,
        };
        Ok(Pool {
            name: name.to_owned(),
            demand: demand.clone(),
            admits,
            names,
            reconciler,
            driver,
            machine: machine(name, demand, pool.trusted, &pool.roles),
            shared,
            events: mpsc::channel(),
            seen: BTreeMap::new(),
            draining: BTreeMap::new(),
            reclaimed: BTreeSet::new(),
            asked: BTreeMap::new(),
            startup_seconds: STARTUP_SECONDS,
            known: BTreeSet::new(),
            has_adopted: false,
            wanted: None,
            began: Instant::now(),
        })
    }

    fn run(mut self) {
        while signals::count() == 0 {
            // Another server of the farm has the run, and the pools with it.
            if self.shared.control.is_here() {
                self.step();
            }
            std::thread::sleep(STEP);
        }
    }

    fn step(&mut self) {
        let mut actions = Vec::new();
        while let Ok(event) = self.events.1.try_recv() {
            let is_list = matches!(event, Event::Listed(_));
            self.apply(event, &mut actions);
            if is_list && self.began.elapsed() > ADOPTED_AFTER {
                self.adopt();
            }
        }
        let backlog = self.shared.control.backlog().unwrap_or_default();
        let workers = match self.shared.control.status() {
            Ok(status) => status.workers,
            // One that cannot be read now may be in a second.
            Err(_) => return,
        };
        for event in self.see(&workers) {
            self.apply(event, &mut actions);
        }
        self.want(&backlog, &workers, &mut actions);
        self.apply(Event::Tick, &mut actions);
        for action in actions {
            self.perform(action);
        }
        self.forget(&workers);
        self.show(&backlog, &workers);
    }

    /// Knows the workers and tokens that an earlier server left: once, when the manager has said which pilots there are.
    fn adopt(&mut self) {
        if self.has_adopted {
            return;
        }
        let roster = self.shared.control.roster();
        // What cannot be read now is read after the next list.
        let (Ok(members), Ok(awaited)) = (roster.members(), roster.awaited()) else { return };
        self.has_adopted = true;
        let members = members.into_iter().filter(|member| member.pool == self.name).map(|member| member.name);
        let all = members.chain(awaited);
        let own = all.filter_map(|name| PilotName::parse(&name).ok()).filter(|name| self.names.own(name));
        self.known.extend(own);
    }

    fn apply(&mut self, event: Event, actions: &mut Vec<Action>) {
        self.reconciler.apply(self.began.elapsed().as_secs_f64(), event, actions);
    }

    /// What has changed with the workers of the pool.
    fn see(&mut self, workers: &[WorkerStatus]) -> Vec<Event> {
        let mut events = Vec::new();
        for worker in workers.iter().filter(|worker| worker.pool == self.name) {
            let Some(name) = PilotName::parse(&worker.name).ok().filter(|name| self.names.own(name)) else {
                continue;
            };
            let is_away = worker.silent_seconds.is_none_or(|silent| silent > SILENT_SECONDS_MAX);
            let now = match (is_away, worker.builds) {
                (true, _) => Seen::Away,
                (false, 0) => Seen::Idle,
                (false, _) => Seen::Busy,
            };
            if now != Seen::Away
                && let Some(asked) = self.asked.remove(&name)
            {
                let taken_seconds = asked.elapsed().as_secs_f64();
                self.startup_seconds += STARTUP_NEW_SHARE * (taken_seconds - self.startup_seconds);
            }
            if worker.is_ending && now != Seen::Away && self.reclaimed.insert(name.clone()) {
                events.push(Event::Reclaimed(name.clone()));
            }
            let before = self.seen.insert(name.clone(), now);
            if before != Some(now) {
                events.push(match (before, now) {
                    (_, Seen::Busy) => Event::Busy(name.clone()),
                    (None | Some(Seen::Away), Seen::Idle) => Event::Joined(name.clone()),
                    (_, Seen::Idle) => Event::Idle(name.clone()),
                    (_, Seen::Away) => Event::Left(name.clone()),
                });
            }
            let is_held = worker.held == Some(Held::Drained);
            if !is_held && !self.draining.contains_key(&name) {
                continue;
            }
            if !is_held {
                // It joined after that was decided.
                let _ = self.shared.control.roster().hold(&worker.name, Some(Held::Drained));
            }
            let since = *self.draining.entry(name.clone()).or_default().get_or_insert_with(Instant::now);
            if now == Seen::Away || (worker.builds == 0 && since.elapsed() > HELD_AFTER) {
                events.push(Event::Drained(name));
            }
        }
        events
    }

    /// Says how many pilots are wanted.
    fn want(&mut self, backlog: &Backlog, workers: &[WorkerStatus], actions: &mut Vec<Action>) {
        let is_own =
            |worker: &str| workers.iter().any(|known| known.name == worker && known.pool == self.name);
        let of_pool = backlog.running.iter().filter(|(worker, _)| is_own(worker)).map(|(_, pending)| pending);
        let is_there = |worker: &&WorkerStatus| {
            worker.held.is_none() && worker.silent_seconds.is_some_and(|silent| silent < SILENT_SECONDS_MAX)
        };
        let cores = |of_pool: bool| -> u32 {
            let there =
                workers.iter().filter(is_there).filter(|worker| (worker.pool == self.name) == of_pool);
            there.map(|worker| worker.about.cores).sum()
        };
        let demand = Demand {
            work: of_pool.chain(&backlog.ready).map(need).collect(),
            work_core_seconds: backlog.core_seconds,
            path_seconds: backlog.path_seconds,
            other_cores: cores(false) + backlog.own_cores,
            there_cores: cores(true),
            startup_seconds: self.startup_seconds,
            cost: self.demand.cost,
        };
        let found = wanted(&demand, &self.machine, self.demand.least, self.demand.most);
        if self.wanted.as_ref() != Some(&(found.count, found.reason.clone())) {
            self.wanted = Some((found.count, found.reason.clone()));
            self.apply(Event::Wanted { count: found.count, reason: found.reason }, actions);
        }
    }

    fn perform(&mut self, action: Action) {
        if let Action::Drain(name, _) = &action {
            let held = self.shared.control.roster().hold(name.as_str(), Some(Held::Drained));
            let has_joined = matches!(held, Ok(true));
            self.draining.insert(name.clone(), has_joined.then(Instant::now));
            if !has_joined {
                // There is nothing to wait for; if it joins after all, it gets nothing.
                let _ = self.events.0.send(Event::Drained(name.clone()));
            }
            return;
        }
        let launch = match &action {
            Action::Start(name) => match self.launch(name) {
                Ok(launch) => launch,
                Err(error) => {
                    let reason = format!("a token cannot be made: {error}");
                    let _ = self.events.0.send(Event::Failed { verb: Verb::Start(name.clone()), reason });
                    return;
                }
            },
            _ => Launch::default(),
        };
        let (driver, events) = (self.driver.clone(), self.events.0.clone());
        std::thread::spawn(move || {
            // Without a pool, the process ends.
            let event = perform(&*driver, &action, |_| Ok(launch));
            event.into_iter().for_each(|event| drop(events.send(event)));
        });
    }

    /// What a pilot runs. Its token is in a file, which only it can read.
    fn launch(&mut self, name: &PilotName) -> io::Result<Launch> {
        self.known.insert(name.clone());
        self.asked.insert(name.clone(), Instant::now());
        let Shared { control, fingerprint, proxy, url, .. } = &self.shared;
        // One of an earlier try to start it counts no more, and a reader of this one can be no other worker.
        control.roster().withdraw(name.as_str())?;
        let admits = Admits { name: Some(name.to_string()), ..self.admits.clone() };
        let token = control.roster().issue(*fingerprint, admits, words::now_seconds() as u64)?;
        let token = Token { proxy: *proxy, ..token };
        let (cores, grace) =
            (self.demand.cores.to_string(), drivers::grace_seconds(&self.demand).to_string());
        let own = [
            ("--join", url.as_str()),
            ("--token-file", "files/token"),
            ("--name", name.as_str()),
            ("--folder", "work"),
            ("--cores", cores.as_str()),
            ("--grace", grace.as_str()),
        ];
        let own = own.iter().flat_map(|(option, value)| [(*option).to_owned(), (*value).to_owned()]);
        let command = self.demand.program.iter().cloned().chain(["worker".to_owned()]);
        let command = command.chain(own).chain(self.demand.options.iter().cloned());
        Ok(Launch {
            command: command.collect(),
            environment: BTreeMap::new(),
            files: BTreeMap::from([("token".to_owned(), format!("{token}\n").into_bytes())]),
        })
    }

    /// Forgets the workers of pilots that are gone.
    fn forget(&mut self, workers: &[WorkerStatus]) {
        let there: BTreeSet<PilotName> = self.reconciler.pilots().cloned().collect();
        self.known.extend(there.iter().cloned());
        let gone: Vec<PilotName> = self.known.difference(&there).cloned().collect();
        for name in gone {
            let is_away = self.seen.get(&name).is_none_or(|seen| *seen == Seen::Away);
            let is_known = workers.iter().any(|worker| worker.name == name.as_str());
            // It counts as connected until it has been silent for a while.
            if is_known && !is_away {
                continue;
            }
            let roster = self.shared.control.roster();
            // The token of one that never joined admits nothing more.
            let withdrawn = roster.withdraw(name.as_str());
            if withdrawn.is_err() || (is_known && roster.remove(name.as_str()).is_err()) {
                continue;
            }
            self.known.remove(&name);
            self.seen.remove(&name);
            self.asked.remove(&name);
            self.reclaimed.remove(&name);
            self.draining.remove(&name);
        }
    }

    /// Shows the figures of the pool in the status of the door.
    fn show(&self, backlog: &Backlog, workers: &[WorkerStatus]) {
        let Figures {
            least,
            most,
            wanted,
            wanted_why,
            starting,
            queued,
            coming,
            idle,
            busy,
            away,
            draining,
            ending,
            started_total,
            failed_total,
            lost_total,
            ended_total,
            troubles,
        } = self.reconciler.figures();
        let status = PoolStatus {
            name: self.name.clone(),
            driver: self.demand.driver.as_str().to_owned(),
            least,
            most,
            wanted,
            why: wanted_why,
            started: starting + queued + coming,
            there: idle + busy,
            busy,
            away,
            ending: draining + ending,
            started_total,
            failed_total,
            lost_total,
            ended_total,
            troubles,
            misses: self.misses(backlog, workers),
        };
        let mut statuses = self.shared.statuses.lock().unwrap_or_else(PoisonError::into_inner);
        statuses.insert(self.name.clone(), status);
        self.shared.control.set_pools(statuses.values().cloned().collect());
    }

    /// Work that fits no worker and no pool.
    fn misses(&self, backlog: &Backlog, workers: &[WorkerStatus]) -> Vec<(String, String)> {
        // The yard's own machine takes part, and its size is the run's to know.
        if backlog.own_cores > 0 {
            return Vec::new();
        }
        let there = workers.iter().filter(|worker| worker.silent_seconds.is_some()).map(|worker| {
            Machine {
                name: worker.name.clone(),
                cores: worker.about.cores,
                memory_bytes: worker.about.memory_bytes.unwrap_or(u64::MAX),
                disk_bytes: u64::MAX,
                // Whether its pool is trusted is the run's to know.
                labels: worker.roles.iter().map(Role::to_string).chain([TRUSTED.to_owned()]).collect(),
            }
        });
        let all: Vec<Machine> = self.shared.machines.iter().cloned().chain(there).collect();
        let misses = backlog
            .ready
            .iter()
            .filter_map(|pending| Some((pending.package.clone(), nearest_miss(&need(pending), &all)?)));
        misses.take(MISSES_MAX).collect()
    }
}

/// A name of lower-case letters, digits and dashes for another one.
fn slug(name: &str) -> String {
    let plain = |character: char| match character.to_ascii_lowercase() {
        plain @ ('a'..='z' | '0'..='9') => plain,
        _ => '-',
    };
    let slug: String = name.chars().map(plain).take(SLUG_MAX).collect();
    let slug = slug.trim_matches('-');
    if slug.is_empty() { "pool".to_owned() } else { slug.to_owned() }
}

/// Identifies what pilots are started with.
fn form(demand: &OnDemand) -> String {
    let OnDemand { cores, memory, program, options, .. } = demand;
    let started = format!("{cores} {} {program:?} {options:?}", memory.0);
    Sha256Hex::of(started.as_bytes()).as_str()[..kilnyard_pool::PART_BYTES_MAX].to_owned()
}
