//! The picture of a run for views, made from the events of the store, in the process of the run or in any other.

use super::view::{BuildEnd, BuildSeen, Snapshot, View, ViewEvent};
use kilnyard_model::result::PackageState;
use kilnyard_store::{Event, EventKind, RequestKind, RunState};
use std::collections::HashMap;
use std::time::{Duration, Instant};

pub use super::follow::Follower;

/// The work of a package that is done, and all of it, by its state and its estimate in seconds.
fn work(state: PackageState, seconds: f64) -> (f64, f64) {
    match state {
        PackageState::Blocked | PackageState::Skipped | PackageState::LeftOut => (0.0, 0.0),
        PackageState::Waiting | PackageState::Ready | PackageState::Building => (0.0, seconds),
        PackageState::Built | PackageState::Unchanged | PackageState::UpToDate | PackageState::Failed => {
            (seconds, seconds)
        }
    }
}

/// Asks the run for something; the answer is a sentence.
pub type Asking<'a> = Box<dyn FnMut(RequestKind, &str) -> String + 'a>;

/// Takes what a run does at a clock tick.
pub type AtTick<'a> = Box<dyn FnMut(&Snapshot) + 'a>;

/// The picture of a run.
pub struct Picture<'a> {
    follower: Follower,
    states: HashMap<String, PackageState>,
    /// The estimated duration of a package's build, in seconds.
    estimate: Box<dyn Fn(&str) -> f64 + 'a>,
    pub snapshot: Snapshot,
    /// How the run ended, once it has.
    pub ended: Option<RunState>,
    /// Called with each clock tick.
    pub at_tick: Option<AtTick<'a>>,
    /// Called with each request of the view's user.
    pub at_request: Option<Asking<'a>>,
}

impl<'a> Picture<'a> {
    /// A picture in which no package has a state yet.
    pub fn new(
        follower: Follower,
        estimate: Box<dyn Fn(&str) -> f64 + 'a>,
        snapshot: Snapshot,
    ) -> Picture<'a> {
        Picture {
            follower,
            states: HashMap::new(),
            estimate,
            snapshot,
            ended: None,
            at_tick: None,
            at_request: None,
        }
    }

    /// Sets the states of all packages.
    pub fn set_states(&mut self, states: Vec<(String, PackageState)>) {
        self.states = states.into_iter().collect();
        let count = |state| self.states.values().filter(|other| **other == state).count();
        self.snapshot.counts =
            PackageState::ALL.into_iter().map(|state| (state, count(state) as u64)).collect();
        let parts = self.states.iter().map(|(name, state)| work(*state, (self.estimate)(name)));
        self.snapshot.work_seconds = parts.fold((0.0, 0.0), |(done, all), (one, of)| (done + one, all + of));
        let named = |wanted: PackageState| {
            let mut names: Vec<String> = self
                .states
                .iter()
                .filter(|(_, state)| **state == wanted)
                .map(|(name, _)| name.clone())
                .collect();
            names.sort_unstable();
            names
        };
        let (ready, failed) = (named(PackageState::Ready), named(PackageState::Failed));
        (self.snapshot.ready, self.snapshot.failed) = (ready, failed);
    }

    /// A package has a new state. `before` is absent if it is new in the run.
    fn moved(&mut self, package: &str, before: Option<PackageState>, state: PackageState) {
        let seconds = (self.estimate)(package);
        let (done, all) = work(state, seconds);
        let (was_done, was_all) = before.map_or((0.0, 0.0), |before| work(before, seconds));
        let (sum, whole) = &mut self.snapshot.work_seconds;
        *sum += done - was_done;
        *whole += all - was_all;
        for (names, of) in [
            (&mut self.snapshot.ready, PackageState::Ready),
            (&mut self.snapshot.failed, PackageState::Failed),
        ] {
            if before == Some(of) {
                names.retain(|name| name != package);
            }
            if state == of {
                names.push(package.to_owned());
            }
        }
    }

    /// Shows all decisions until now.
    pub fn follow(&mut self, view: &mut dyn View) {
        loop {
            let events = self.follower.next(self.snapshot.run);
            if events.is_empty() {
                return;
            }
            for event in &events {
                view.see(&ViewEvent::Decided(event), &self.snapshot);
                self.decided(event, view);
            }
        }
    }

    /// Waits until there may be more decisions, but at most this long.
    pub fn wait(&self, at_most: Duration) {
        self.follower.wait(at_most);
    }

    fn decided(&mut self, event: &Event, view: &mut dyn View) {
        let package = event.ids.package.as_deref().unwrap_or_default();
        match &event.kind {
            EventKind::Package { state, reason, .. } => {
                // The run may have taken it in only now.
                let before = self.states.insert(package.to_owned(), *state);
                self.moved(package, before, *state);
                for (other, count) in &mut self.snapshot.counts {
                    *count -= u64::from(Some(*other) == before);
                    *count += u64::from(*other == *state);
                }
                view.see(&ViewEvent::State { package, state: *state, reason }, &self.snapshot);
            }
            // The picture may already contain this build from its start.
            EventKind::BuildBegan { .. }
                if self.snapshot.builds.iter().any(|seen| Some(seen.build) == event.ids.build) => {}
            EventKind::BuildBegan { version, slot, .. } => self.snapshot.builds.push(BuildSeen {
                build: event.ids.build.unwrap_or_default(),
                package: package.to_owned(),
                version: version.clone(),
                slot: *slot,
                stage: None,
                started: Instant::now(),
                stage_started: Instant::now(),
                cores: 1,
                memory_bytes: 0,
                processes: (0, 0),
                estimate_seconds: (self.estimate)(package),
            }),
            EventKind::BuildEnded { failure, is_reproducible, .. } => {
                let ended = |seen: &BuildSeen| Some(seen.build) == event.ids.build;
                if let Some(position) = self.snapshot.builds.iter().position(ended) {
                    let seen = self.snapshot.builds.remove(position);
                    let failure = failure.as_deref();
                    let end = BuildEnd { failure, is_reproducible: *is_reproducible };
                    view.see(&ViewEvent::BuildEnded(&seen, end), &self.snapshot);
                }
            }
            EventKind::RunEnded { state } => self.ended = Some(*state),
            EventKind::StageBegan { stage } => {
                let own = |seen: &&mut BuildSeen| Some(seen.build) == event.ids.build;
                if let Some(seen) = self.snapshot.builds.iter_mut().find(own) {
                    seen.stage = Some(*stage);
                }
            }
            EventKind::RunBegan { .. }
            | EventKind::StageEnded { .. }
            | EventKind::Requested { .. }
            | EventKind::Published { .. }
            | EventKind::Worker { .. }
            | EventKind::Unknown => {}
        }
    }
}
