//! Results of builds: which outputs are kept, what is tried again, and what is built again to compare.

use crate::pools::{Round, ToTest};
use crate::{Action, Coordinator, Ending, KeptOutputs, LeaseState, RetryMode};
use kilnyard_model::graph::PackageId;
use kilnyard_model::order::{Output, Stage};
use kilnyard_model::provenance::Signed;
use kilnyard_model::reason::{Reason, RetryPlan, StageFailed};
use kilnyard_model::result::{BuildOutcome, Failure, FailureKind, PackageState};
use kilnyard_protocol::BuildResult;
use kilnyard_schedule::{Event as ScheduleEvent, Outcome};
use kilnyard_store::{Current, Number, Provenance, Record};
use std::collections::BTreeMap;

/// The most outputs that a message about a difference names.
const DIFFERING_MAX: usize = 5;

impl Coordinator {
    pub(crate) fn ended(&mut self, now_seconds: f64, result: BuildResult, actions: &mut Vec<Action>) {
        let Some(lease) = self.leases.get(&result.build) else { return };
        let is_tested_elsewhere = lease.test.is_some() && result.outcome.is_ok() && !lease.is_cancelled;
        let ending = match is_tested_elsewhere {
            true => Ending::Pending,
            false => Ending::Acknowledged(lease.worker.clone()),
        };
        let Some(mut lease) = self.close(result.build, ending) else { return };
        let id = lease.package;
        let (build, is_test) = (lease.row, lease.row != result.build);
        let stages = std::mem::take(&mut lease.test_stages).into_iter();
        // Of a test that is repeated, they do not count.
        let stages: Vec<Action> = stages
            .map(|stage| {
                let stage = Box::new(stage);
                Action::Record(Record::StageEnded { build, at_seconds: now_seconds, stage })
            })
            .collect();
        let record = |outcome, failure| {
            Action::Record(Record::BuildEnded {
                build,
                at_seconds: now_seconds,
                outcome,
                failure,
                is_reproducible: result.is_reproducible,
            })
        };
        if lease.is_cancelled {
            match lease.row == result.build {
                true => actions.push(record(BuildOutcome::Lost, result.outcome.err())),
                false => self.drop_untested(id, actions),
            }
            let is_gone = self.packages[id.index()].state == PackageState::Skipped;
            let outcome = if is_gone { Outcome::Failed } else { Outcome::Lost };
            self.schedule(ScheduleEvent::Ended { package: id, outcome }, actions);
            return;
        }
        self.packages[id.index()].build = None;
        if matches!(self.packages[id.index()].round, Some(Round::Verify { .. })) {
            return self.compared(id, &lease, result, actions);
        }
        match result.outcome {
            Ok(outputs) => {
                if let Some(order) = lease.test {
                    let LeaseState { worker, attempt, core_seconds, .. } = lease;
                    let reason = self.packages[id.index()].reason.clone();
                    let provenance = result.provenance;
                    let to_test =
                        ToTest { build, outputs, order, worker, attempt, core_seconds, reason, provenance };
                    self.begin_round(id, Round::Test(to_test.into()), actions);
                    self.schedule(ScheduleEvent::Ended { package: id, outcome: Outcome::Lost }, actions);
                    return;
                }
                actions.extend(stages);
                let (worker, core_seconds, provenance) = match self.take_tested(id, actions) {
                    Some(to_test) => {
                        self.packages[id.index()].reason = to_test.reason.clone();
                        // The time of the build says nothing about the machine that tested it.
                        (to_test.worker.clone(), 0.0, to_test.provenance.clone())
                    }
                    None => (lease.worker, lease.core_seconds, result.provenance),
                };
                self.note_success(&worker, id, actions);
                let outcome = Outcome::Built { core_seconds };
                if self.is_same(id, &outputs) {
                    actions.push(record(BuildOutcome::Unchanged, None));
                    if let Some(key) = self.packages[id.index()].key.clone() {
                        let package = self.graph.name(id).to_owned();
                        actions.push(Action::Record(Record::KeyConfirmed { package, key }));
                    }
                    self.arrive(id, PackageState::Unchanged, Reason::SameContent, actions);
                } else {
                    actions.push(record(BuildOutcome::Built, None));
                    self.keep(id, build, &outputs, actions);
                    self.attest(id, build, &worker, provenance, actions);
                    let reason = self.packages[id.index()].reason.clone();
                    actions.push(Action::Adopt { package: id, outputs });
                    if self.is_chosen_for_verification(id, &worker) {
                        let pool = self.standing(&worker).pool;
                        self.begin_round(id, Round::Verify { worker, pool, reason }, actions);
                        self.schedule(ScheduleEvent::Ended { package: id, outcome: Outcome::Lost }, actions);
                        return;
                    }
                    self.arrive(id, PackageState::Built, reason, actions);
                }
                self.schedule(ScheduleEvent::Ended { package: id, outcome }, actions);
            }
            Err(failure) if failure.kind == FailureKind::Cancelled => {
                // A test is repeated, and its build has not ended.
                match is_test {
                    true => drop(self.ended.insert(lease.attempt, Ending::Superseded)),
                    false => actions.push(record(BuildOutcome::Lost, Some(failure))),
                }
                // A worker that ends cancels its builds; one that does nothing else loses them.
                let is_last = !self.is_stopping && self.count_failure(id, FailureKind::Lost).is_none();
                let outcome = if is_last { Outcome::Failed } else { Outcome::Lost };
                match (is_last, is_test) {
                    (true, _) => self.fail(id, Reason::WorkerLost, actions),
                    (false, true) => self.ready_again(id, Reason::BuildCancelled, actions),
                    (false, false) => {
                        self.move_to(id, PackageState::Waiting, Reason::BuildCancelled, None, actions);
                        self.reconsider(id, actions);
                    }
                }
                self.schedule(ScheduleEvent::Ended { package: id, outcome }, actions);
            }
            Err(failure) if !is_test && lease.requires().is_some() => {
                let failure = self.count_round(id, failure);
                let kind = failure.kind;
                actions.push(record(BuildOutcome::Failed, Some(failure.clone())));
                let outcome = match kind {
                    FailureKind::Requirements => {
                        self.build_with(id, &lease, actions);
                        Outcome::Lost
                    }
                    _ => {
                        self.fail(id, Reason::Failed(StageFailed::from(&failure)), actions);
                        Outcome::Failed
                    }
                };
                self.schedule(ScheduleEvent::Ended { package: id, outcome }, actions);
            }
            Err(failure) if is_test && is_of_machine(failure.kind) => {
                // The outputs are not to blame, and are tested again.
                self.ended.insert(lease.attempt, Ending::Superseded);
                let (kind, failed) = (failure.kind, StageFailed::from(&failure));
                self.note_failure(&lease.worker, id, &failure, actions);
                match self.count_failure(id, kind) {
                    Some((mode, pause_seconds)) => {
                        self.try_again(id, kind, mode, pause_seconds, failed, actions);
                    }
                    None => {
                        self.fail(id, Reason::Failed(failed), actions);
                        let outcome = Outcome::Failed;
                        self.schedule(ScheduleEvent::Ended { package: id, outcome }, actions);
                    }
                }
            }
            Err(failure) => {
                let kind = failure.kind;
                let failed = StageFailed::from(&failure);
                actions.extend(stages);
                // After a failed test, it is built again; its worker drops what it kept for that.
                if let Some(to_test) = self.take_tested(id, actions) {
                    self.ended.insert(to_test.attempt, Ending::Superseded);
                }
                // A tester is not to blame for what another built.
                if !is_test {
                    self.note_failure(&lease.worker, id, &failure, actions);
                }
                actions.push(record(BuildOutcome::Failed, Some(failure)));
                match self.count_failure(id, kind) {
                    Some((mode, pause_seconds)) => {
                        self.try_again(id, kind, mode, pause_seconds, failed, actions);
                    }
                    None if !is_test && self.doubts(&lease.worker, id, actions) => {
                        self.try_again(id, kind, RetryMode::AtOnce, 0.0, failed, actions);
                    }
                    None => {
                        self.fail(id, Reason::Failed(failed), actions);
                        self.schedule(
                            ScheduleEvent::Ended { package: id, outcome: Outcome::Failed },
                            actions,
                        );
                    }
                }
            }
        }
    }

    /// Compares the outputs of another pool with those that are kept.
    fn compared(
        &mut self,
        id: PackageId,
        lease: &LeaseState,
        result: BuildResult,
        actions: &mut Vec<Action>,
    ) {
        let standing = self.standing(&lease.worker);
        let by = format!("{} of pool {}", lease.worker, standing.pool);
        let (outcome, difference, failure) = match result.outcome {
            Ok(outputs) if self.is_same(id, &outputs) => (BuildOutcome::Unchanged, None, None),
            Ok(outputs) => {
                let kept = self.packages[id.index()].kept.as_ref().map(|kept| &kept.contents);
                let differing = differing(kept.unwrap_or(&BTreeMap::new()), &contents(&outputs));
                let message = format!("its contents differ from those that are kept: {differing}");
                let failure = Failure {
                    stage: Stage::Collect,
                    kind: FailureKind::Outputs,
                    message,
                    line_number: None,
                    lines: Vec::new(),
                };
                let difference = format!("{by} built other contents: {differing}");
                (BuildOutcome::Failed, Some(difference), Some(failure))
            }
            Err(failure) if failure.kind == FailureKind::Cancelled => {
                (BuildOutcome::Lost, None, Some(failure))
            }
            Err(failure) => {
                let difference = format!("{by} could not: {} failed: {}", failure.stage, failure.message);
                (BuildOutcome::Failed, Some(difference), Some(failure))
            }
        };
        actions.push(Action::Record(Record::BuildEnded {
            build: lease.row,
            at_seconds: self.now_seconds,
            outcome,
            failure,
            is_reproducible: None,
        }));
        self.verified(id, difference, actions);
        let outcome = Outcome::Built { core_seconds: lease.core_seconds };
        self.schedule(ScheduleEvent::Ended { package: id, outcome }, actions);
    }

    /// Schedules another try of a package whose build failed.
    fn try_again(
        &mut self,
        id: PackageId,
        kind: FailureKind,
        mode: RetryMode,
        pause_seconds: f64,
        failed: StageFailed,
        actions: &mut Vec<Action>,
    ) {
        let mut outcome = Outcome::Lost;
        match mode {
            RetryMode::AtOnce => {
                let reason = Reason::Retry { cause: kind, how: RetryPlan::AtOnce, failed: Some(failed) };
                self.ready_again(id, reason, actions);
            }
            RetryMode::Alone => {
                // Later tries stay alone too.
                if !std::mem::replace(&mut self.packages[id.index()].is_alone, true) {
                    outcome = Outcome::OutOfMemory;
                }
                let reason = Reason::Retry { cause: kind, how: RetryPlan::Alone, failed: Some(failed) };
                self.ready_again(id, reason, actions);
            }
            RetryMode::Later => self.wait_to_try(id, kind, pause_seconds, failed, actions),
        }
        self.schedule(ScheduleEvent::Ended { package: id, outcome }, actions);
    }

    /// Fails the package of a lease that cannot be sent.
    pub(crate) fn unsendable(&mut self, build: Number, explanation: String, actions: &mut Vec<Action>) {
        let failure = Failure {
            stage: Stage::Build,
            kind: FailureKind::Dependencies,
            message: explanation,
            line_number: None,
            lines: Vec::new(),
        };
        let result = BuildResult { build, outcome: Err(failure), is_reproducible: None, provenance: None };
        self.ended(self.now_seconds, result, actions);
    }

    fn is_same(&self, id: PackageId, outputs: &[Output]) -> bool {
        let package = &self.packages[id.index()];
        package.kept.as_ref().is_some_and(|kept| {
            kept.recipe_version == package.recipe_version && kept.contents == contents(outputs)
        })
    }

    fn keep(&mut self, id: PackageId, build: Number, outputs: &[Output], actions: &mut Vec<Action>) {
        let revision = self.next_revision(id);
        let package = &mut self.packages[id.index()];
        let recipe_version = package.recipe_version.clone();
        package.kept = Some(KeptOutputs {
            recipe_version: recipe_version.clone(),
            revision,
            contents: contents(outputs),
        });
        if let Some(key) = package.key.clone() {
            actions.push(Action::Record(Record::Outputs(Current {
                package: self.graph.name(id).to_owned(),
                build,
                recipe_version,
                revision,
                key,
                outputs: outputs.to_vec(),
            })));
        }
    }

    /// Records who built the outputs that were just kept.
    fn attest(
        &self,
        id: PackageId,
        build: Number,
        worker: &str,
        signed: Option<Signed>,
        actions: &mut Vec<Action>,
    ) {
        let Some(signed) = signed else { return };
        actions.push(Action::Record(Record::Provenance(Box::new(Provenance {
            package: self.graph.name(id).to_owned(),
            build,
            worker: worker.to_owned(),
            pool: self.standing(worker).pool,
            signed,
        }))));
    }
}

/// Whether a failure of this kind says something about the machine of a test, and nothing about what is tested.
fn is_of_machine(kind: FailureKind) -> bool {
    use FailureKind::{Disk, Machine, Memory, Network};
    matches!(kind, Machine | Disk | Memory | Network)
}

/// The names of outputs whose contents differ, as far as a sentence can have them.
fn differing(one: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> String {
    let names = one.keys().chain(other.keys()).collect::<std::collections::BTreeSet<_>>();
    let differing: Vec<&str> =
        names.into_iter().filter(|name| one.get(*name) != other.get(*name)).map(String::as_str).collect();
    match differing.len() {
        0 => "another version of the recipe".to_owned(),
        count @ 1..=DIFFERING_MAX => differing[..count].join(", "),
        count => format!("{} and {} more", differing[..DIFFERING_MAX].join(", "), count - DIFFERING_MAX),
    }
}

fn contents(outputs: &[Output]) -> BTreeMap<String, String> {
    outputs.iter().map(|output| (output.name.clone(), output.content.clone())).collect()
}
