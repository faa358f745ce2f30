//! Requirements that only a build finds out, such as those of RPM's `%generate_buildrequires`: the package is built again with
//! them, after the packages of the set that they add to its dependencies.

use crate::{Action, Coordinator, LeaseState};
use kilnyard_model::graph::PackageId;
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{Failure, FailureKind, PackageState};
use kilnyard_store::{PackageRow, Record};

/// How often a package is built again with further requirements in a run. mock's `dynamic_buildrequires_max_loops` is the same.
pub const REQUIREMENT_ROUNDS_MAX: u32 = 10;

impl Coordinator {
    /// The failure of a build that named further requirements: of another kind if that happened too often.
    pub(crate) fn count_round(&mut self, id: PackageId, failure: Failure) -> Failure {
        let package = &mut self.packages[id.index()];
        package.requirement_rounds += 1;
        if package.requirement_rounds > REQUIREMENT_ROUNDS_MAX {
            let message = format!(
                "its requirements were not complete after {REQUIREMENT_ROUNDS_MAX} builds: {}",
                failure.message
            );
            return Failure { kind: FailureKind::Dependencies, message, ..failure };
        }
        // Whatever a worker of an earlier version calls it.
        Failure { kind: FailureKind::Requirements, ..failure }
    }

    /// Prepares a package again whose build named further requirements.
    pub(crate) fn build_with(&mut self, id: PackageId, lease: &LeaseState, actions: &mut Vec<Action>) {
        self.packages[id.index()].to_build = None;
        let requires = lease.requires().cloned().unwrap_or_default();
        self.move_to(id, PackageState::Waiting, Reason::requires(requires), None, actions);
        self.reconsider(id, actions);
    }

    /// Adds edges to the graph, and prepares the package again after their packages.
    pub(crate) fn wait_for(&mut self, id: PackageId, others: &[PackageId], actions: &mut Vec<Action>) {
        let waiting = self.graph.descendants(id);
        if let Some(other) = others.iter().find(|other| **other == id || waiting.contains(other)) {
            let explanation = format!("it requires {}, which waits for it", self.graph.name(*other));
            return self.fail(id, Reason::Impossible { explanation }, actions);
        }
        // The scheduler changes the graph in place if no other has it.
        drop(std::mem::take(&mut self.graph));
        self.scheduler.depend(id, others);
        self.graph = self.scheduler.graph().clone();
        self.add_to_run(id, actions);
        let open = others.iter().find(|other| !self.state(**other).has_outputs());
        let reason = match open {
            Some(other) => Reason::Waits { package: self.graph.name(*other).to_owned() },
            None => Reason::Prepares,
        };
        self.move_to(id, PackageState::Waiting, reason, None, actions);
        self.reconsider(id, actions);
    }

    /// Adds what a package waits for to the run, which may be about some packages only.
    fn add_to_run(&mut self, id: PackageId, actions: &mut Vec<Action>) {
        let ancestors = self.graph.ancestors(id).into_iter();
        let added: Vec<PackageId> = ancestors.filter(|other| !self.is_in_run(*other)).collect();
        for other in &added {
            self.packages[other.index()].is_in_run = true;
            let state = self.state(*other);
            self.counts[state as usize] += 1;
            let reason = self.packages[other.index()].reason.clone();
            let row = PackageRow {
                name: self.graph.name(*other).to_owned(),
                version: self.packages[other.index()].recipe_version.clone(),
                state,
                reason: reason.clone(),
                blamed: None,
                // What is known of its time is in its rank.
                estimate_seconds: 0.0,
                rank_seconds: self.scheduler.rank_seconds(*other),
            };
            actions.push(Action::Record(Record::PackageAdded { run: self.run, row: Box::new(row) }));
            self.move_to(*other, state, reason, None, actions);
        }
        for other in added {
            self.reconsider(other, actions);
        }
    }
}

impl LeaseState {
    /// What the package requires in addition, by the answers to its build.
    pub(crate) fn requires(&self) -> Option<&Vec<String>> {
        self.answers.iter().flatten().find_map(|answer| answer.requires.as_ref())
    }
}
