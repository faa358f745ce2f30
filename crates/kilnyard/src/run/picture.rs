//! The picture of a run for views, made from the events of the store, in the process of the run or in any other.

use super::view::{BuildEnd, BuildSeen, Snapshot, View, ViewEvent};
use kilnyard_model::result::PackageState;
use kilnyard_store::{Event, EventKind, RunState};
use std::collections::HashMap;
use std::time::{Duration, Instant};

pub use super::follow::Follower;

/// The picture of a run.
pub struct Picture<'a> {
    follower: Follower,
    states: HashMap<String, PackageState>,
    /// The estimated duration of a package's build, in seconds.
    estimate: Box<dyn Fn(&str) -> f64 + 'a>,
    pub snapshot: Snapshot,
    /// How the run ended, once it has.
    pub ended: Option<RunState>,
}

impl<'a> Picture<'a> {
    /// A picture in which no package has a state yet.
    pub fn new(
        follower: Follower,
        estimate: Box<dyn Fn(&str) -> f64 + 'a>,
        snapshot: Snapshot,
    ) -> Picture<'a> {
        Picture { follower, states: HashMap::new(), estimate, snapshot, ended: None }
    }

    /// Sets the states of all packages.
    pub fn set_states(&mut self, states: Vec<(String, PackageState)>) {
        self.states = states.into_iter().collect();
        let count = |state| self.states.values().filter(|other| **other == state).count();
        self.snapshot.counts =
            PackageState::ALL.into_iter().map(|state| (state, count(state) as u64)).collect();
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
                if let Some(at) = self.states.get_mut(package) {
                    let before = std::mem::replace(at, *state);
                    for (other, count) in &mut self.snapshot.counts {
                        *count -= u64::from(*other == before);
                        *count += u64::from(*other == *state);
                    }
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
            EventKind::RunBegan { .. }
            | EventKind::StageEnded { .. }
            | EventKind::Requested { .. }
            | EventKind::Unknown => {}
        }
    }
}
