//! A pool, its manager, its workers and a coordinator that gives them builds.

use crate::manager::Manager;
use crate::random::Random;
use kilnyard_pool::{Action, Event, Memory, Names, PilotName, Reconciler, Terms};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The length of a step, in seconds.
const STEP_SECONDS: f64 = 0.5;

/// Something that is broken on purpose, to show that a check finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    None,
    /// What a list lacks is gone, however soon it was requested.
    BelievesLists,
    /// A drain is answered at once, whatever the worker does.
    StopsBusyPilots,
    /// Acknowledged starts count as listed.
    BelievesAnswers,
    /// The generation is the same for each process.
    SameGeneration,
}

/// A connected or disconnected worker.
#[derive(Clone, Debug, Default)]
struct Worker {
    is_connected: bool,
    /// When its build ends.
    builds_until_seconds: Option<f64>,
    /// When it comes back.
    back_seconds: Option<f64>,
    was_drained_with_build: bool,
}

pub struct World {
    pub trace: Vec<String>,
    pub is_traced: bool,
    flaw: Flaw,
    random: Random,
    now_seconds: f64,
    terms: Terms,
    reconciler: Reconciler,
    generation: u32,
    pub manager: Manager,
    /// Of the driver's thread: one action at a time.
    queue: VecDeque<Action>,
    free_seconds: f64,
    /// Events on their way.
    events: VecDeque<Event>,
    workers: BTreeMap<PilotName, Worker>,
    /// Workers that get no builds any more; it survives the process.
    held: BTreeSet<PilotName>,
    recorded: BTreeSet<PilotName>,
    pub wanted: u32,
    /// The share of workers that get builds, if any are wanted.
    pub load: f64,
    pub builds_done: u32,
    pub restarts: u32,
    acknowledged: BTreeSet<PilotName>,
}

impl World {
    pub fn new(seed: u64, flaw: Flaw, is_traced: bool) -> World {
        let mut random = Random::new(seed);
        let least = random.below(3);
        let mut terms = Terms::new(least, least + 1 + random.below(12), "f0");
        (terms.idle_seconds, terms.start_seconds_max) = (20.0, 90.0);
        (terms.away_seconds_max, terms.queue_seconds_max) = (60.0, 300.0);
        (terms.backoff_seconds, terms.backoff_seconds_max, terms.list_seconds) = (5.0, 60.0, 5.0);
        if flaw == Flaw::BelievesLists {
            terms.settle_seconds = 0.0;
        }
        World::of(flaw, is_traced, terms, random)
    }

    pub fn of(flaw: Flaw, is_traced: bool, terms: Terms, random: Random) -> World {
        let names = Names::new("kilnyard-lab", &terms.form, "g0").unwrap();
        let reconciler = Reconciler::new(terms.clone(), names, Memory::Names(Vec::new()), 0.0).unwrap();
        World {
            trace: Vec::new(),
            is_traced,
            flaw,
            random,
            now_seconds: 0.0,
            terms,
            reconciler,
            generation: 0,
            manager: Manager { trouble: 1.0, ..Manager::default() },
            queue: VecDeque::new(),
            free_seconds: 0.0,
            events: VecDeque::new(),
            workers: BTreeMap::new(),
            held: BTreeSet::new(),
            recorded: BTreeSet::new(),
            wanted: 0,
            load: 0.9,
            builds_done: 0,
            restarts: 0,
            acknowledged: BTreeSet::new(),
        }
    }

    fn say(&mut self, text: impl FnOnce() -> String) {
        if self.is_traced {
            self.trace.push(format!("{:8.1} {}", self.now_seconds, text()));
        }
    }

    pub fn want(&mut self, count: u32) {
        self.wanted = count;
        self.events.push_back(Event::Wanted { count, reason: "of the test".to_owned() });
    }

    pub fn target(&self) -> u32 {
        self.wanted.clamp(self.terms.least, self.terms.most)
    }

    /// Rough times, then calm ones in which the pool must become what is wanted.
    pub fn run(&mut self) -> Result<(), String> {
        let rough_seconds = self.random.between(100.0, 900.0);
        self.pass(rough_seconds, true)?;
        self.manager.trouble = 0.0;
        self.manager.down_until_seconds = 0.0;
        for count in [self.terms.most, 0, 1 + self.random.below(self.terms.most), 0] {
            self.want(count);
            // Twice the longest way: a lost pilot, a long queue, a stop that is repeated, a drifted quarter at a time.
            for _ in 0..15 {
                self.pass(100.0, false)?;
                if self.is_settled() {
                    break;
                }
            }
            if !self.is_settled() {
                let usable = self.usable();
                let (real, figures) = (self.manager.real.len(), self.reconciler.figures());
                let target = self.target();
                return Err(format!(
                    "the pool does not settle: {target} wanted, {usable} usable, {real} there: {figures:?}"
                ));
            }
        }
        Ok(())
    }

    fn is_settled(&self) -> bool {
        let usable = self.usable();
        let names = Names::new("kilnyard-lab", &self.terms.form, "g").unwrap();
        let is_new = self.manager.real.keys().all(|name| !names.is_drifted(name));
        usable == self.target() && self.manager.real.len() == usable as usize && is_new
    }

    fn usable(&self) -> u32 {
        let is_usable =
            |(name, worker): &(&PilotName, &Worker)| worker.is_connected && !self.held.contains(*name);
        self.workers.iter().filter(is_usable).count() as u32
    }

    pub fn pass(&mut self, seconds: f64, is_rough: bool) -> Result<(), String> {
        let end_seconds = self.now_seconds + seconds;
        while self.now_seconds < end_seconds {
            self.now_seconds += STEP_SECONDS;
            if is_rough {
                self.trouble();
            }
            let gone = self.manager.pass(self.now_seconds, &mut self.random);
            for name in gone {
                self.say(|| format!("gone {name}"));
                self.workers.remove(&name);
                self.events.push_back(Event::Left(name));
            }
            self.work();
            self.drive()?;
            self.deliver();
            let there = self.manager.real.len() + self.manager.late.len();
            if there > self.terms.most as usize {
                return Err(format!("{there} pilots, more than {}", self.terms.most));
            }
        }
        Ok(())
    }

    fn trouble(&mut self) {
        if self.random.chance(0.01) {
            let most = self.terms.most + 2;
            let count = self.random.below(most);
            self.say(|| format!("want {count}"));
            self.want(count);
        }
        if self.random.chance(0.003) {
            self.say(|| "the manager is killed".to_owned());
            self.manager.crash(self.now_seconds, &mut self.random);
        }
        if self.random.chance(0.003) {
            self.restart();
        }
        let count = self.manager.real.len() as u32;
        if count == 0 {
            return;
        }
        let at = self.random.below(count) as usize;
        let Some(name) = self.manager.real.keys().nth(at).cloned() else { return };
        if self.random.chance(0.01) {
            self.say(|| format!("killed {name}"));
            self.manager.real.remove(&name);
            self.workers.remove(&name);
            self.events.push_back(Event::Left(name));
        } else if self.random.chance(0.005) {
            self.say(|| format!("reclaimed {name}"));
            let ends_seconds = self.now_seconds + self.random.between(20.0, 120.0);
            self.manager
                .real
                .get_mut(&name)
                .into_iter()
                .for_each(|real| real.ends_seconds = Some(ends_seconds));
            self.events.push_back(Event::Reclaimed(name));
        } else if let Some(worker) = self.workers.get_mut(&name).filter(|worker| worker.is_connected)
            && self.random.chance(0.01)
        {
            worker.is_connected = false;
            worker.back_seconds = Some(self.now_seconds + self.random.between(1.0, 90.0));
            self.events.push_back(Event::Left(name));
        }
    }

    /// The process ends with what it knows, and what it was about to do.
    fn restart(&mut self) {
        self.restarts += 1;
        self.generation += u32::from(self.flaw != Flaw::SameGeneration);
        self.queue.clear();
        self.events.clear();
        if self.random.chance(0.3) {
            self.terms.form = format!("f{}", self.restarts);
        }
        let names = Names::new("kilnyard-lab", &self.terms.form, &format!("g{}", self.generation)).unwrap();
        let memory = match self.random.chance(0.5) {
            true => Memory::Nothing,
            false => Memory::Names(self.recorded.iter().cloned().collect()),
        };
        self.say(|| format!("restarted with {memory:?}, form {}", names.nth(0)));
        self.reconciler = Reconciler::new(self.terms.clone(), names, memory, self.now_seconds).unwrap();
        self.want(self.wanted);
        let connected: Vec<PilotName> = self
            .workers
            .iter()
            .filter(|(_, worker)| worker.is_connected)
            .map(|(name, _)| name.clone())
            .collect();
        connected.into_iter().for_each(|name| self.join(name));
    }

    fn join(&mut self, name: PilotName) {
        let Some(worker) = self.workers.get(&name) else { return };
        let is_busy = worker.builds_until_seconds.is_some();
        self.events.push_back(Event::Joined(name.clone()));
        if is_busy {
            self.events.push_back(Event::Busy(name.clone()));
        }
        if self.held.contains(&name) && !is_busy {
            self.events.push_back(Event::Drained(name));
        }
    }

    /// Workers join, come back, and build.
    fn work(&mut self) {
        let now_seconds = self.now_seconds;
        let is_due = |at: Option<f64>| at.is_some_and(|at| at <= now_seconds);
        let joining: Vec<PilotName> = self
            .manager
            .real
            .iter()
            .filter(|(name, real)| is_due(real.joins_seconds) && !self.workers.contains_key(*name))
            .map(|(name, _)| name.clone())
            .collect();
        for name in joining {
            self.say(|| format!("joined {name}"));
            self.workers.insert(name.clone(), Worker { is_connected: true, ..Worker::default() });
            self.join(name);
        }
        let names: Vec<PilotName> = self.workers.keys().cloned().collect();
        for name in names {
            let is_held = self.held.contains(&name);
            let Some(worker) = self.workers.get_mut(&name) else { continue };
            let is_back = is_due(worker.back_seconds);
            if is_back {
                (worker.is_connected, worker.back_seconds) = (true, None);
            }
            if is_due(worker.builds_until_seconds) {
                worker.builds_until_seconds = None;
                self.builds_done += 1;
                if worker.is_connected && !is_back {
                    self.events.push_back(Event::Idle(name.clone()));
                }
                if worker.was_drained_with_build {
                    self.events.push_back(Event::Drained(name.clone()));
                }
            }
            let takes =
                worker.is_connected && worker.builds_until_seconds.is_none() && !is_held && self.wanted > 0;
            if takes && self.random.chance(self.load * 0.5) {
                worker.builds_until_seconds = Some(now_seconds + self.random.between(1.0, 60.0));
                if !is_back {
                    self.events.push_back(Event::Busy(name.clone()));
                }
            }
            if is_back {
                self.join(name);
            }
        }
    }

    /// The driver's thread performs one action after the other, each with a delay.
    fn drive(&mut self) -> Result<(), String> {
        while self.now_seconds >= self.free_seconds {
            let Some(action) = self.queue.pop_front() else { break };
            self.free_seconds = self.now_seconds + self.random.between(0.0, 1.5) * self.manager.trouble;
            let event = match &action {
                Action::Drain(..) => continue,
                Action::Start(name) => self.manager.start(self.now_seconds, name, &mut self.random)?,
                Action::Stop(name) => {
                    let worker = self.workers.get(name);
                    if worker.is_some_and(|worker| worker.builds_until_seconds.is_some()) {
                        return Err(format!("{name} was stopped during a build"));
                    }
                    self.manager.stop(self.now_seconds, name, &mut self.random)
                }
                Action::List => self.manager.list(self.now_seconds, &mut self.random),
            };
            let mut event = event;
            if self.flaw == Flaw::BelievesAnswers {
                match &mut event {
                    Event::Started(name) => drop(self.acknowledged.insert(name.clone())),
                    Event::Listed(listing) => {
                        let running = kilnyard_pool::PilotState::Queued;
                        let known = |name: &PilotName| listing.pilots.iter().any(|one| one.name == *name);
                        let more: Vec<_> =
                            self.acknowledged.iter().filter(|name| !known(name)).cloned().collect();
                        listing.pilots.extend(more.into_iter().map(|name| kilnyard_pool::Listed {
                            name,
                            state: running,
                            reason: None,
                            copies: 1,
                        }));
                    }
                    _ => {}
                }
            }
            self.say(|| match &event {
                Event::Listed(listing) => format!("List -> {} pilots", listing.pilots.len()),
                event => format!("{action:?} -> {event:?}"),
            });
            self.events.push_back(event);
        }
        Ok(())
    }

    /// The owner of the reconciler: events in their order, drains at once.
    fn deliver(&mut self) {
        let mut actions = Vec::new();
        self.events.push_back(Event::Tick);
        while let Some(event) = self.events.pop_front() {
            self.reconciler.apply(self.now_seconds, event, &mut actions);
            for action in std::mem::take(&mut actions) {
                match &action {
                    Action::Drain(name, why) => {
                        self.say(|| format!("drain {name}: {why:?}"));
                        self.held.insert(name.clone());
                        let busy =
                            self.workers.get_mut(name).filter(|worker| worker.builds_until_seconds.is_some());
                        match busy {
                            Some(worker) if self.flaw != Flaw::StopsBusyPilots => {
                                worker.was_drained_with_build = true;
                            }
                            _ => self.events.push_back(Event::Drained(name.clone())),
                        }
                    }
                    Action::Start(name) => drop(self.recorded.insert(name.clone())),
                    Action::Stop(_) | Action::List => {}
                }
                self.queue.push_back(action);
            }
        }
    }
}
