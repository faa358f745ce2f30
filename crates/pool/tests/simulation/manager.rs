//! A manager of machines that forgets what it acknowledged, lists late, starts twice, is down, and kills pilots.

use crate::random::Random;
use kilnyard_pool::{Event, Listed, Listing, PilotName, PilotState, Verb};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// The oldest picture that a list shows, in seconds.
pub const LATE_SECONDS_MAX: f64 = 5.0;
/// How much later a start may happen that was answered with an error, in seconds.
const DELAY_SECONDS_MAX: f64 = 2.0;
/// What a killed manager forgets, in seconds.
const FORGOTTEN_SECONDS: f64 = 5.0;

/// A pilot that really exists.
#[derive(Clone, Debug)]
pub struct Real {
    pub accepted_seconds: f64,
    pub runs_from_seconds: f64,
    /// When its worker joins, if it ever does.
    pub joins_seconds: Option<f64>,
    /// When it is gone, after a stop or a reclaim.
    pub ends_seconds: Option<f64>,
    pub copies: u32,
}

#[derive(Default)]
pub struct Manager {
    pub real: BTreeMap<PilotName, Real>,
    /// Accepted, and not there yet.
    pub late: BTreeMap<PilotName, f64>,
    pub ever: BTreeSet<PilotName>,
    pub pictures: VecDeque<(f64, Rc<Listing>)>,
    pub down_until_seconds: f64,
    /// How rough it is: 0 is a manager that does what it says.
    pub trouble: f64,
    pub most_seen: usize,
}

impl Manager {
    pub fn is_down(&self, now_seconds: f64) -> bool {
        now_seconds < self.down_until_seconds
    }

    fn accept(&mut self, now_seconds: f64, name: &PilotName, random: &mut Random) {
        let runs_from_seconds = now_seconds + random.between(0.0, 20.0) * (1.0 + self.trouble);
        let never = random.chance(0.1 * self.trouble);
        let joins_seconds = (!never).then(|| runs_from_seconds + random.between(1.0, 20.0));
        let copies = if random.chance(0.05 * self.trouble) { 2 } else { 1 };
        let real = Real {
            accepted_seconds: now_seconds,
            runs_from_seconds,
            joins_seconds,
            ends_seconds: None,
            copies,
        };
        self.real.insert(name.clone(), real);
    }

    /// Answers a start; a complaint if the name was used before.
    pub fn start(
        &mut self,
        now_seconds: f64,
        name: &PilotName,
        random: &mut Random,
    ) -> Result<Event, String> {
        if !self.ever.insert(name.clone()) {
            return Err(format!("{name} was used before"));
        }
        let failed =
            |reason: &str| Event::Failed { verb: Verb::Start(name.clone()), reason: reason.to_owned() };
        let trouble = self.trouble;
        if self.is_down(now_seconds) || random.chance(0.05 * trouble) {
            // The answer is lost; what was asked happens, or not.
            if random.chance(0.3 * trouble) {
                self.late.insert(name.clone(), now_seconds + random.between(0.0, DELAY_SECONDS_MAX));
            }
            return Ok(failed("no answer"));
        }
        if random.chance(0.1 * trouble) {
            return Ok(failed("refused"));
        }
        if !random.chance(0.1 * trouble) {
            self.accept(now_seconds, name, random);
        }
        Ok(Event::Started(name.clone()))
    }

    pub fn stop(&mut self, now_seconds: f64, name: &PilotName, random: &mut Random) -> Event {
        let is_lost = self.is_down(now_seconds) || random.chance(0.1 * self.trouble);
        let is_done = !is_lost || random.chance(0.3);
        if let Some(real) = self.real.get_mut(name).filter(|_| is_done) {
            real.ends_seconds.get_or_insert(now_seconds + random.between(0.0, 5.0));
        }
        match is_lost {
            true => Event::Failed { verb: Verb::Stop(name.clone()), reason: "no answer".to_owned() },
            false => Event::Stopped(name.clone()),
        }
    }

    pub fn list(&mut self, now_seconds: f64, random: &mut Random) -> Event {
        if self.is_down(now_seconds) || random.chance(0.1 * self.trouble) {
            return Event::Failed { verb: Verb::List, reason: "the manager is down".to_owned() };
        }
        let age_seconds = random.between(0.0, LATE_SECONDS_MAX) * self.trouble.min(1.0);
        let picture = self.pictures.iter().rev().find(|(at, _)| *at <= now_seconds - age_seconds);
        Event::Listed(
            picture.map(|(_, listing)| (**listing).clone()).unwrap_or_else(|| self.picture(now_seconds)),
        )
    }

    fn picture(&self, now_seconds: f64) -> Listing {
        Listing::of(self.real.iter().map(|(name, real)| {
            let state = match (real.ends_seconds, real.runs_from_seconds <= now_seconds) {
                (Some(_), _) => PilotState::Ending,
                (None, true) => PilotState::Running,
                (None, false) => PilotState::Queued,
            };
            Listed { name: name.clone(), state, reason: None, copies: real.copies }
        }))
    }

    /// Killed and started again: what it accepted last, and does not run, is forgotten.
    pub fn crash(&mut self, now_seconds: f64, random: &mut Random) {
        self.down_until_seconds = now_seconds + random.between(1.0, 60.0);
        self.real.retain(|_, real| {
            real.accepted_seconds < now_seconds - FORGOTTEN_SECONDS || real.runs_from_seconds <= now_seconds
        });
    }

    /// Lets time pass; returns the names of pilots that are gone now.
    pub fn pass(&mut self, now_seconds: f64, random: &mut Random) -> Vec<PilotName> {
        let due: Vec<PilotName> =
            self.late.iter().filter(|(_, at)| **at <= now_seconds).map(|(name, _)| name.clone()).collect();
        for name in due {
            self.late.remove(&name);
            self.accept(now_seconds, &name, random);
        }
        let is_over = |real: &Real| real.ends_seconds.is_some_and(|ends| ends <= now_seconds);
        let gone: Vec<PilotName> =
            self.real.iter().filter(|(_, real)| is_over(real)).map(|(name, _)| name.clone()).collect();
        self.real.retain(|_, real| !is_over(real));
        let picture = self.picture(now_seconds);
        let picture = match self.pictures.back() {
            Some((_, last)) if **last == picture => last.clone(),
            _ => Rc::new(picture),
        };
        self.pictures.push_back((now_seconds, picture));
        while self.pictures.front().is_some_and(|(at, _)| *at < now_seconds - LATE_SECONDS_MAX - 2.0) {
            self.pictures.pop_front();
        }
        self.most_seen = self.most_seen.max(self.real.len() + self.late.len());
        gone
    }
}
