//! Announced builds: while a machine has no free core, its worker fetches the inputs of the builds that it will probably get
//! next, and makes their roots.
//!
//! An announcement decides nothing. The scheduler decides where a package starts when a core is free, and counts inputs that
//! are on their way as present; if that is another machine, the announcement is withdrawn. It is not recorded, and a lost
//! one is not repeated.

use crate::{Action, Coordinator};
use kilnyard_model::attempt::Attempt;
use kilnyard_model::graph::PackageId;
use kilnyard_model::result::PackageState;
use kilnyard_protocol::ToWorker;
use kilnyard_schedule::{Event as ScheduleEvent, Files, MachineId};
use std::collections::BTreeMap;

/// How often builds are announced, in seconds.
const EVERY_SECONDS: f64 = 1.0;
/// A machine has one announced build for as many cores, and at least one.
const CORES_EACH: u32 = 8;

/// See the module documentation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Announced {
    builds: BTreeMap<PackageId, Announcement>,
    at_seconds: f64,
}

/// A build that may follow on a machine.
#[derive(Clone, Copy, Debug)]
struct Announcement {
    machine: MachineId,
    /// Its attempt if it starts there.
    attempt: Attempt,
}

impl Coordinator {
    /// Announces builds to machines that have none, and withdraws those that cannot follow now.
    pub(crate) fn announce(&mut self, actions: &mut Vec<Action>) {
        if self.now_seconds - self.announced.at_seconds < EVERY_SECONDS {
            return;
        }
        self.announced.at_seconds = self.now_seconds;
        let is_over =
            |(id, one): &(&PackageId, &Announcement)| !self.can_announce(**id) || !self.is_open(one.machine);
        let over = self.announced.builds.iter().filter(is_over);
        for id in over.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.withdraw(id, actions);
        }
        let known: BTreeMap<PackageId, MachineId> =
            self.announced.builds.iter().map(|(id, one)| (*id, one.machine)).collect();
        let places = self.places_for_announced(&known);
        if places.is_empty() {
            return;
        }
        for (id, machine) in self.scheduler.expected_next(&known, &places) {
            // An earlier announcement may have let others start.
            if self.can_announce(id) {
                self.announce_to(machine, id, actions);
            }
        }
    }

    fn can_announce(&self, id: PackageId) -> bool {
        let package = &self.packages[id.index()];
        // A further round of a package has other inputs.
        let is_first = package.round.is_none();
        package.state == PackageState::Ready && package.to_build.is_some() && package.is_fetched && is_first
    }

    /// How many more builds can be announced to each machine.
    fn places_for_announced(&self, known: &BTreeMap<PackageId, MachineId>) -> BTreeMap<MachineId, usize> {
        let left = |machine: MachineId| {
            let seat = self.seats.get(machine);
            let max = seat.cores.div_ceil(CORES_EACH) as usize;
            let has = known.values().filter(|other| **other == machine).count();
            let takes = seat.prepares_announced && self.is_open(machine);
            takes.then(|| (machine, max.saturating_sub(has))).filter(|(_, left)| *left > 0)
        };
        self.seats.in_session().into_iter().filter_map(left).collect()
    }

    fn announce_to(&mut self, machine: MachineId, id: PackageId, actions: &mut Vec<Action>) {
        let attempt = self.attempts.next();
        // These may be others when it begins: numbers are in the order of beginnings.
        let (build, slot, files) = (self.next_build, 0, Files::Disk);
        let Some(granted) = self.granted(id, machine, (build, attempt), slot, files) else { return };
        actions.push(Action::Announce(granted));
        self.announced.builds.insert(id, Announcement { machine, attempt });
        self.schedule(ScheduleEvent::Announced { package: id, machine }, actions);
    }

    /// The attempt of a package that starts on a machine where it was announced. An announcement to another machine is
    /// withdrawn.
    pub(crate) fn take_announced(
        &mut self,
        id: PackageId,
        machine: MachineId,
        actions: &mut Vec<Action>,
    ) -> Option<Attempt> {
        if self.announced.builds.get(&id)?.machine != machine {
            self.withdraw(id, actions);
        }
        self.announced.builds.remove(&id).map(|one| one.attempt)
    }

    /// Withdraws the announcement of a package, if there is one.
    pub(crate) fn withdraw(&mut self, id: PackageId, actions: &mut Vec<Action>) {
        let Some(Announcement { machine, attempt }) = self.announced.builds.remove(&id) else { return };
        let worker = self.seats.get(machine).worker.clone();
        actions.push(Action::Forget { worker, attempt });
        self.say(machine, |session| ToWorker::Revoke { session, attempt }, actions);
    }

    /// Withdraws all announcements to a machine.
    pub(crate) fn withdraw_all(&mut self, machine: MachineId, actions: &mut Vec<Action>) {
        let there = self.announced.builds.iter().filter(|(_, one)| one.machine == machine);
        for id in there.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.withdraw(id, actions);
        }
    }
}
