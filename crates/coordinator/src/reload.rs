//! Starting over from what the store has, within a process.

use crate::{Action, Coordinator, Open, Start};
use kilnyard_model::reason::Reason;
use kilnyard_model::result::BuildOutcome;
use kilnyard_protocol::ToWorker;
use kilnyard_schedule::Scheduler;
use kilnyard_store::{BuildRow, Number, Record};

/// The state of a run in the store, for [`Coordinator::reload`].
#[derive(Clone, Debug)]
pub struct Reloaded {
    /// The state of each package, in the order of the graph.
    pub starts: Vec<Start>,
    /// The builds that have not ended, and the reasons of their packages.
    pub open: Vec<(BuildRow, Reason)>,
    /// The first free build number.
    pub next_build: Number,
}

impl Coordinator {
    /// Starts over from the store's state of the same run, after decisions could not be written, or another server has
    /// taken the place of the one that had them. All sessions end: workers are asked to say hello again. The builds that
    /// the store knows as open continue; workers learn which of their builds no longer count. `scheduler` is a fresh one.
    pub fn reload(
        &mut self,
        now_seconds: f64,
        Reloaded { starts, open, next_build }: Reloaded,
        scheduler: Scheduler,
        actions: &mut Vec<Action>,
    ) {
        let continued: Vec<Open> =
            open.iter().filter_map(|(row, reason)| self.continued(row, reason)).collect();
        for machine in self.seats.in_session() {
            self.say(machine, |session| ToWorker::Rejoin { session }, actions);
        }
        let (attempts, retries) = (self.attempts.clone(), self.retries.clone());
        let required = std::mem::take(&mut self.required);
        let own_retries = std::mem::take(&mut self.own_retries);
        let own_machine = self.own_machine.clone();
        let health = std::mem::take(&mut self.health);
        let pools = std::mem::take(&mut self.pools);
        let inputs = std::mem::take(&mut self.inputs);
        let anew = Coordinator::new(self.run, starts, scheduler, next_build, attempts);
        *self = Coordinator {
            own_machine,
            own_retries,
            health,
            pools,
            inputs,
            ..anew.with_retries(retries).with_required(required)
        }
        .with_open(now_seconds, continued);
        self.confine_all(actions);
        for (row, _) in open {
            if self.leases.contains_key(&row.number) {
                continue;
            }
            actions.push(Action::Record(Record::BuildEnded {
                build: row.number,
                at_seconds: now_seconds,
                outcome: BuildOutcome::Lost,
                failure: None,
                is_reproducible: None,
            }));
            if let (Some(worker), Some(attempt)) = (row.worker, row.attempt) {
                actions.push(Action::Forget { worker, attempt });
            }
        }
    }

    /// A build that can continue, since its package would be built in the same way now.
    fn continued(&self, row: &BuildRow, reason: &Reason) -> Option<Open> {
        let package = self.graph.find(&row.package)?;
        let known = &self.packages[package.index()];
        let key = known.key.clone().filter(|key| key.digest == row.key && known.version == row.version)?;
        Some(Open {
            build: row.number,
            attempt: row.attempt?,
            worker: row.worker.clone()?,
            slot: row.slot,
            package,
            reason: reason.clone(),
            version: row.version.clone(),
            key,
            stages: row.stages.clone(),
            began_seconds: row.started_seconds,
        })
    }
}
