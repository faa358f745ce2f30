//! Decides which pilots of a pool are started, drained and stopped: `apply(now, event, actions)`, pure.
//!
//! Every name that was requested stays in the books until a list of the manager shows that it is gone. All in the books
//! count towards `most`, so there are never more pilots than that, whatever the manager forgets, repeats or answers late:
//!
//! - A start, acknowledged or refused, may have happened. The name is gone if it is not in a list that was requested
//!   `settle_seconds` after the answer. A new pilot then gets a new name, so nothing is started twice.
//! - A connected worker shows that its pilot exists, whatever the list says.
//! - If the manager does not answer, nothing is concluded and nothing is started. What runs, runs.
//!
//! No build is ended by this: before any stop, the worker is drained ([`Action::Drain`]), and only [`Event::Drained`] leads to
//! [`Action::Stop`]. This holds also for pilots whose workers have not joined, since they may join in the meantime.
//!
//! Drained are pilots beyond what is wanted once they are idle long enough; busy ones only if there were more than wanted for
//! that time. Also those that were queued too long, did not join or come back in time, are reclaimed, exist twice, or were
//! started with an older form: of the latter, a quarter at a time, and only while starts succeed.
//!
//! What must hold: each action is answered by an event, and a `Tick` comes at least once a second.
//!
//! Known downsides: a drain is not taken back, so a pilot that is drained just before work arrives is replaced by a new one.
//! A pilot on a host that stays down counts towards `most` until the host is removed from the driver's list. A manager that
//! lists more than `settle_seconds` late can have more than `most` pilots for a while.

mod figures;
mod pilot;
mod terms;

pub use figures::Figures;
use pilot::{End, Pilot, Sight, Worker};
pub use terms::{Action, Event, Memory, Terms, Verb, Why};

use crate::{Listed, Listing, Names, PilotName, PilotState, PoolError};
use std::collections::BTreeMap;

/// A list that was not answered after this time is requested again, in seconds.
const LIST_SECONDS_MAX: f64 = 600.0;
/// A pilot that is still there this long after it was stopped is stopped again, in seconds; doubled each time.
const STOP_AGAIN_SECONDS: f64 = 30.0;
/// At most one in this number of wanted pilots is drained at once because it has drifted.
const DRIFTED_SHARE: u32 = 4;
/// The most pilots in the books; what a manager lists beyond is left alone.
const PILOTS_MAX: usize = crate::LISTED_MAX;

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct Reconciler {
    terms: Terms,
    names: Names,
    pilots: BTreeMap<PilotName, Pilot>,
    /// The number of the next name.
    count: u32,
    wanted: (u32, String),
    /// When the list was requested that is not answered yet.
    list_asked_seconds: Option<f64>,
    list_next_seconds: f64,
    /// Why the manager cannot be used; none after it has answered.
    away: Option<String>,
    /// Parts of the manager that do not answer.
    parts_away: Vec<String>,
    /// Lists requested before this time may lack what an earlier process started; nothing is started before.
    settled_seconds: f64,
    is_settled: bool,
    /// Failed starts since a worker joined.
    failures: u32,
    /// A failure since the last start: all that fail together count once.
    has_failed_since_start: bool,
    start_next_seconds: f64,
    start_trouble: Option<String>,
    stop_trouble: Option<String>,
    surplus_since_seconds: Option<f64>,
    queue_reason: Option<String>,
    totals: Totals,
    now_seconds: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    started: u64,
    failed: u64,
    lost: u64,
    ended: u64,
}

impl Reconciler {
    /// The generation in `names` must be new, and its form that of the terms. Fails if the form is not valid.
    pub fn new(
        terms: Terms,
        names: Names,
        memory: Memory,
        now_seconds: f64,
    ) -> Result<Reconciler, PoolError> {
        let names = names.with_form(&terms.form)?;
        let (remembered, wait_seconds) = match memory {
            Memory::Nothing => (Vec::new(), terms.settle_seconds),
            Memory::Names(remembered) => (remembered, 0.0),
        };
        let remembered = remembered.into_iter().filter(|name| names.own(name)).take(PILOTS_MAX);
        let pilots = remembered.map(|name| (name, Pilot::found(now_seconds))).collect();
        Ok(Reconciler {
            names,
            pilots,
            count: 0,
            wanted: (0, String::new()),
            list_asked_seconds: None,
            list_next_seconds: now_seconds,
            away: Some("its manager has not answered yet".to_owned()),
            parts_away: Vec::new(),
            settled_seconds: now_seconds + wait_seconds,
            is_settled: false,
            failures: 0,
            has_failed_since_start: false,
            start_next_seconds: now_seconds,
            start_trouble: None,
            stop_trouble: None,
            surplus_since_seconds: None,
            queue_reason: None,
            totals: Totals::default(),
            now_seconds,
            terms,
        })
    }

    /// The names in the books, for [`Memory::Names`] of the next process.
    pub fn pilots(&self) -> impl Iterator<Item = &PilotName> {
        self.pilots.keys()
    }

    /// Applies an event at this time, in seconds of a clock that never goes back, and appends the actions that follow.
    pub fn apply(&mut self, now_seconds: f64, event: Event, actions: &mut Vec<Action>) {
        self.now_seconds = now_seconds.max(self.now_seconds);
        self.learn(event);
        self.drain(actions);
        self.stop_again(actions);
        self.start(actions);
        self.list(actions);
    }

    /// How many pilots the pool should have.
    fn target(&self) -> u32 {
        // Misconfigured terms are no reason for a panic: `most` is the stronger one.
        self.wanted.0.max(self.terms.least).min(self.terms.most)
    }

    fn learn(&mut self, event: Event) {
        let now_seconds = self.now_seconds;
        match event {
            Event::Wanted { count, reason } => self.wanted = (count, crate::text::reason(&reason)),
            Event::Terms(terms) => {
                // An invalid form changes nothing, which is better than replacing all pilots.
                if let Ok(names) = self.names.with_form(&terms.form) {
                    (self.names, self.terms) = (names, terms);
                }
            }
            Event::Listed(listing) => self.learn_list(listing),
            Event::Started(name) => {
                if let Some(pilot) = self.pilots.get_mut(&name) {
                    pilot.answered_seconds.get_or_insert(now_seconds);
                }
            }
            Event::Failed { verb: Verb::Start(name), reason } => {
                if let Some(pilot) = self.pilots.get_mut(&name) {
                    pilot.answered_seconds.get_or_insert(now_seconds);
                    pilot.start_failed = true;
                }
                self.totals.failed += 1;
                self.fail(&format!("cannot start: {reason}"));
            }
            Event::Stopped(name) => {
                self.stop_trouble = None;
                self.learn_stop(&name);
            }
            Event::Failed { verb: Verb::Stop(name), reason } => {
                self.stop_trouble = Some(crate::text::reason(&format!("cannot stop {name}: {reason}")));
                self.learn_stop(&name);
            }
            Event::Failed { verb: Verb::List, reason } => {
                self.away = Some(crate::text::reason(&reason));
                self.list_asked_seconds = None;
                self.list_next_seconds = now_seconds + self.terms.list_seconds;
            }
            Event::Joined(name) => self.hear(name, Worker::Idle { since_seconds: now_seconds }),
            Event::Idle(name) => self.hear(name, Worker::Idle { since_seconds: now_seconds }),
            Event::Busy(name) => self.hear(name, Worker::Busy),
            Event::Left(name) => {
                let pilot = self.pilots.get_mut(&name).filter(|pilot| pilot.is_connected());
                pilot
                    .into_iter()
                    .for_each(|pilot| pilot.worker = Worker::Away { since_seconds: now_seconds });
            }
            Event::Drained(name) => {
                // Also of one that is not being drained: an earlier process asked for that.
                if let Some(pilot) = self.pilots.get_mut(&name)
                    && !matches!(pilot.end, End::Stopping { .. })
                {
                    // `stop_again` makes the first request, too.
                    pilot.end = End::Stopping { asked_seconds: now_seconds, times: 0, is_answered: true };
                }
            }
            Event::Reclaimed(name) => {
                self.pilots.get_mut(&name).into_iter().for_each(|pilot| pilot.is_reclaimed = true);
            }
            Event::Tick => {}
        }
    }

    /// A request to stop a pilot was answered, in any way.
    fn learn_stop(&mut self, name: &PilotName) {
        if let Some(pilot) = self.pilots.get_mut(name)
            && let End::Stopping { is_answered, .. } = &mut pilot.end
        {
            *is_answered = true;
        }
    }

    /// A worker is connected. It may belong to a pilot of an earlier process that the manager does not list.
    fn hear(&mut self, name: PilotName, worker: Worker) {
        if !self.names.own(&name) || (self.pilots.len() >= PILOTS_MAX && !self.pilots.contains_key(&name)) {
            return;
        }
        let now_seconds = self.now_seconds;
        let pilot = self.pilots.entry(name).or_insert_with(|| Pilot::found(now_seconds));
        let was_idle = matches!(pilot.worker, Worker::Idle { .. }) && matches!(worker, Worker::Idle { .. });
        if !was_idle {
            pilot.worker = worker;
        }
        if !pilot.has_joined {
            pilot.has_joined = true;
            (self.failures, self.start_next_seconds, self.start_trouble) = (0, now_seconds, None);
        }
    }

    fn learn_list(&mut self, listing: Listing) {
        let now_seconds = self.now_seconds;
        // An answer without a request says nothing about what is gone: its age is not known.
        let asked_seconds = self.list_asked_seconds.take().unwrap_or(f64::NEG_INFINITY);
        self.list_next_seconds = now_seconds + self.terms.list_seconds;
        self.away = None;
        self.is_settled |= asked_seconds >= self.settled_seconds;
        self.parts_away = listing.away.iter().take(8).map(|away| crate::text::reason(away)).collect();
        self.queue_reason = None;
        let mut listed = BTreeMap::new();
        let mut ended = BTreeMap::new();
        for one in listing.pilots {
            match (self.names.own(&one.name), one.state) {
                (false, _) => {}
                (true, PilotState::Ended) => drop(ended.insert(one.name, one.reason)),
                (true, _) => drop(listed.insert(one.name.clone(), one)),
            }
        }
        let settle_seconds = self.terms.settle_seconds;
        let is_complete = listing.away.is_empty();
        let is_gone = |name: &PilotName, pilot: &Pilot| {
            let answered = pilot.answered_seconds.map(|answered| asked_seconds >= answered + settle_seconds);
            let is_absent = answered == Some(true) && (is_complete || pilot.is_known_to_driver);
            !listed.contains_key(name) && !pilot.is_connected() && (is_absent || ended.contains_key(name))
        };
        let gone = self.pilots.iter().filter(|(name, pilot)| is_gone(name, pilot));
        let gone: Vec<PilotName> = gone.map(|(name, _)| name.clone()).collect();
        for name in gone {
            let reason = ended.remove(&name).flatten();
            self.forget(&name, reason);
        }
        for (_, pilot) in self.pilots.iter_mut().filter(|(name, _)| !listed.contains_key(*name)) {
            // What is remembered from an earlier process may be where the manager does not answer.
            let is_hidden = !is_complete && !pilot.is_known_to_driver;
            pilot.sight = match pilot.sight {
                same @ Sight::Unknown { .. } if is_hidden => same,
                _ if is_hidden => Sight::Unknown { since_seconds: now_seconds },
                _ => Sight::Unlisted,
            };
        }
        for (name, one) in listed {
            self.see(name, one);
        }
    }

    /// A pilot is in a list, and has not ended.
    fn see(&mut self, name: PilotName, listed: Listed) {
        if self.pilots.len() >= PILOTS_MAX && !self.pilots.contains_key(&name) {
            return;
        }
        let since_seconds = self.now_seconds;
        let pilot = self.pilots.entry(name).or_insert_with(|| Pilot::found(since_seconds));
        pilot.is_known_to_driver = true;
        pilot.start_failed = false;
        pilot.sight = match (listed.state, pilot.sight) {
            (PilotState::Queued, same @ Sight::Queued { .. }) => same,
            (PilotState::Running, same @ Sight::Running { .. }) => same,
            (PilotState::Unknown, same @ Sight::Unknown { .. }) => same,
            (PilotState::Queued, _) => Sight::Queued { since_seconds },
            (PilotState::Running, _) => Sight::Running { since_seconds },
            (PilotState::Unknown, _) => Sight::Unknown { since_seconds },
            (PilotState::Ending | PilotState::Ended, _) => Sight::Ending,
        };
        pilot.copies = listed.copies.max(1);
        if matches!(pilot.sight, Sight::Queued { .. }) {
            self.queue_reason =
                listed.reason.map(|reason| crate::text::reason(&reason)).or(self.queue_reason.take());
        }
    }

    /// A pilot is gone.
    fn forget(&mut self, name: &PilotName, reason: Option<String>) {
        let Some(pilot) = self.pilots.remove(name) else { return };
        let was_wanted = pilot.end == End::Kept && !pilot.is_reclaimed;
        if pilot.has_joined {
            self.totals.ended += 1;
        } else if was_wanted && !pilot.start_failed && pilot.is_known_to_driver {
            self.totals.lost += 1;
            let reason = reason.unwrap_or_else(|| "its manager does not have it any more".to_owned());
            self.fail(&format!("{name} was gone before its worker joined: {reason}"));
        }
    }

    /// A start failed. What fails together counts once.
    fn fail(&mut self, reason: &str) {
        self.start_trouble = Some(crate::text::reason(reason));
        if !self.has_failed_since_start {
            self.has_failed_since_start = true;
            self.failures = self.failures.saturating_add(1);
            self.start_next_seconds = self.now_seconds + self.backoff_seconds();
        }
    }

    fn backoff_seconds(&self) -> f64 {
        let times = 2_f64.powi(self.failures.saturating_sub(1).min(30) as i32);
        (self.terms.backoff_seconds * times).min(self.terms.backoff_seconds_max)
    }

    fn drain(&mut self, actions: &mut Vec<Action>) {
        self.drain_unusable(actions);
        self.drain_surplus(actions);
        self.drain_drifted(actions);
    }

    fn drain_unusable(&mut self, actions: &mut Vec<Action>) {
        let (now_seconds, terms) = (self.now_seconds, &self.terms);
        let mut lost = 0;
        for (name, pilot) in &mut self.pilots {
            let late = |since_seconds: f64, seconds_max: f64| now_seconds - since_seconds >= seconds_max;
            let why = match (pilot.end, pilot.worker, pilot.sight) {
                (End::Draining(_) | End::Stopping { .. }, _, _) => continue,
                (End::Kept, _, Sight::Ending) => Why::Reclaimed,
                _ if pilot.is_reclaimed => Why::Reclaimed,
                // Which of them has the worker is not known, and a stop goes by name.
                _ if pilot.copies > 1 => Why::Duplicate,
                (_, Worker::Away { since_seconds }, _) if late(since_seconds, terms.away_seconds_max) => {
                    Why::Lost
                }
                (_, Worker::Never, Sight::Running { since_seconds } | Sight::Unknown { since_seconds })
                    if late(since_seconds, terms.start_seconds_max) =>
                {
                    Why::Lost
                }
                (_, Worker::Never, Sight::Queued { since_seconds })
                    if late(since_seconds, terms.queue_seconds_max) =>
                {
                    Why::Queued
                }
                _ => continue,
            };
            lost += u64::from(why == Why::Lost && pilot.worker == Worker::Never);
            pilot.end = End::Draining(why);
            actions.push(Action::Drain(name.clone(), why));
        }
        self.totals.lost += lost;
        if lost > 0 {
            let seconds = self.terms.start_seconds_max;
            self.fail(&format!("the worker of a running pilot did not join within {seconds} s"));
        }
    }

    fn drain_surplus(&mut self, actions: &mut Vec<Action>) {
        let (now_seconds, idle_seconds) = (self.now_seconds, self.terms.idle_seconds);
        let counted = self.pilots.values().filter(|pilot| pilot.counts()).count();
        let surplus = counted.saturating_sub(self.target() as usize);
        if surplus == 0 {
            self.surplus_since_seconds = None;
            return;
        }
        let since_seconds = *self.surplus_since_seconds.get_or_insert(now_seconds);
        let is_lasting = now_seconds - since_seconds >= idle_seconds;
        let may_go = |pilot: &Pilot| match pilot.worker {
            Worker::Idle { since_seconds } => is_lasting || now_seconds - since_seconds >= idle_seconds,
            Worker::Never | Worker::Away { .. } | Worker::Busy => is_lasting,
        };
        let mut candidates: Vec<(&PilotName, &mut Pilot)> =
            self.pilots.iter_mut().filter(|(_, pilot)| pilot.counts() && may_go(pilot)).collect();
        let worth = |pilot: &Pilot| pilot.worth();
        candidates.sort_by(|(_, left), (_, right)| {
            let (left, right) = (worth(left), worth(right));
            left.0.cmp(&right.0).then(left.1.total_cmp(&right.1))
        });
        for (name, pilot) in candidates.into_iter().take(surplus) {
            pilot.end = End::Draining(Why::Surplus);
            actions.push(Action::Drain(name.clone(), Why::Surplus));
        }
    }

    fn drain_drifted(&mut self, actions: &mut Vec<Action>) {
        if self.failures > 0 || self.away.is_some() || !self.is_settled {
            return;
        }
        let is_leaving =
            |(name, pilot): &(&PilotName, &Pilot)| self.names.is_drifted(name) && pilot.end != End::Kept;
        let leaving = self.pilots.iter().filter(is_leaving).count();
        let at_once = (self.target() / DRIFTED_SHARE).max(1) as usize;
        let names = &self.names;
        let mut candidates: Vec<(&PilotName, &mut Pilot)> = self
            .pilots
            .iter_mut()
            .filter(|(name, pilot)| pilot.end == End::Kept && names.is_drifted(name))
            .collect();
        candidates.sort_by_key(|(_, pilot)| pilot.worth().0);
        for (name, pilot) in candidates.into_iter().take(at_once.saturating_sub(leaving)) {
            pilot.end = End::Draining(Why::Drifted);
            actions.push(Action::Drain(name.clone(), Why::Drifted));
        }
    }

    fn stop_again(&mut self, actions: &mut Vec<Action>) {
        let now_seconds = self.now_seconds;
        for (name, pilot) in &mut self.pilots {
            let End::Stopping { asked_seconds, times, is_answered: true } = &mut pilot.end else { continue };
            let wait_seconds = match *times {
                0 => 0.0,
                times => STOP_AGAIN_SECONDS * 2_f64.powi((times - 1).min(5) as i32),
            };
            if now_seconds - *asked_seconds >= wait_seconds {
                let times = times.saturating_add(1);
                pilot.end = End::Stopping { asked_seconds: now_seconds, times, is_answered: false };
                actions.push(Action::Stop(name.clone()));
            }
        }
    }

    fn start(&mut self, actions: &mut Vec<Action>) {
        let is_open = self.away.is_none() && self.is_settled && self.now_seconds >= self.start_next_seconds;
        if !is_open {
            return;
        }
        let counted = self.pilots.values().filter(|pilot| pilot.counts()).count() as u32;
        let all: u32 = self.pilots.values().map(|pilot| pilot.copies).sum();
        let room = self.terms.most.saturating_sub(all);
        let unanswered = self.pilots.values().filter(|pilot| pilot.answered_seconds.is_none()).count() as u32;
        let at_once = (self.terms.starts_at_once_max >> self.failures.min(31)).max(1);
        let count = self.target().saturating_sub(counted).min(room).min(at_once.saturating_sub(unanswered));
        for _ in 0..count {
            let name = self.names.nth(self.count);
            self.count += 1;
            self.totals.started += 1;
            self.pilots.insert(name.clone(), Pilot::requested());
            actions.push(Action::Start(name));
        }
        if count > 0 {
            self.has_failed_since_start = false;
            if self.failures > 0 {
                // What becomes of these is seen first.
                self.start_next_seconds = self.now_seconds + self.backoff_seconds();
            }
        }
    }

    fn list(&mut self, actions: &mut Vec<Action>) {
        let now_seconds = self.now_seconds;
        let is_free = self.list_asked_seconds.is_none_or(|asked| now_seconds - asked >= LIST_SECONDS_MAX);
        if is_free && now_seconds >= self.list_next_seconds {
            self.list_asked_seconds = Some(now_seconds);
            actions.push(Action::List);
        }
    }

    /// The figures at the time of the last event.
    pub fn figures(&self) -> Figures {
        let mut figures = Figures {
            least: self.terms.least,
            most: self.terms.most,
            wanted: self.target(),
            wanted_why: self.wanted.1.clone(),
            started_total: self.totals.started,
            failed_total: self.totals.failed,
            lost_total: self.totals.lost,
            ended_total: self.totals.ended,
            troubles: self.troubles(),
            ..Figures::default()
        };
        for pilot in self.pilots.values() {
            let figure = match (pilot.end, pilot.worker, pilot.sight) {
                (End::Draining(_), _, _) => &mut figures.draining,
                (End::Stopping { .. }, _, _) | (End::Kept, Worker::Never, Sight::Ending) => {
                    &mut figures.ending
                }
                (End::Kept, Worker::Idle { .. }, _) => &mut figures.idle,
                (End::Kept, Worker::Busy, _) => &mut figures.busy,
                (End::Kept, Worker::Away { .. }, _) => &mut figures.away,
                (End::Kept, Worker::Never, Sight::Unlisted) => &mut figures.starting,
                (End::Kept, Worker::Never, Sight::Queued { .. }) => &mut figures.queued,
                (End::Kept, Worker::Never, Sight::Running { .. } | Sight::Unknown { .. }) => {
                    &mut figures.coming
                }
            };
            *figure += 1;
        }
        figures
    }

    fn troubles(&self) -> Vec<String> {
        let mut troubles: Vec<String> = self.away.iter().cloned().collect();
        troubles.extend(self.parts_away.iter().cloned());
        if let Some(trouble) = &self.start_trouble {
            let wait_seconds = (self.start_next_seconds - self.now_seconds).ceil();
            troubles.push(match wait_seconds > 0.0 {
                true => format!("{trouble}; next try in {wait_seconds} s"),
                false => trouble.clone(),
            });
        }
        troubles.extend(self.stop_trouble.clone());
        let is_queued = |pilot: &Pilot| {
            (pilot.end, pilot.worker) == (End::Kept, Worker::Never)
                && matches!(pilot.sight, Sight::Queued { .. })
        };
        if self.pilots.values().any(is_queued) {
            troubles.extend(self.queue_reason.iter().map(|reason| format!("queued: {reason}")));
        }
        troubles
    }
}

#[cfg(test)]
mod tests;
