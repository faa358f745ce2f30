//! Decides on which machine a package starts, or for which one it waits.
//!
//! A package starts on the machine where it is expected to end first, with the time in which its inputs get there. The builds before it in rank get their cores
//! first, so its end is estimated as in a queue: each of them is serial for what is left of its serial part, and
//! then takes the whole machine for its parallel part; the package does its parallel part in the time that they leave.
//! A build after it keeps one core, if it is still running by then.
//!
//! If a package would end sooner on a machine without a free core, it waits for it, and those of lower rank start on the
//! others. Only cores that none of these takes go to a package that waits, if it has time: if it would take at most as
//! much longer than its best time as the whole run is expected to take longer than the path through the package.
//!
//! Known downsides: packages that are not ready yet do not count, and all serial work of a build is assumed to come
//! before its parallel work.

use super::allot::Room;
use super::{PackagePhase, Scheduler};
use crate::machine::{Door, MachineId};
use kilnyard_model::graph::PackageId;
use std::collections::BTreeMap;

/// Maximum number of ready packages that [`Scheduler::expected_next`] goes through; it bounds its time.
const NEXT_MAX: usize = 64;

/// The work that comes before a package on a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ahead {
    serial_seconds: f64,
    /// In core-seconds.
    parallel_seconds: f64,
}

/// Packages of higher rank that wait for a machine.
pub(super) type Waiting = BTreeMap<MachineId, Vec<Ahead>>;

/// What is expected if a package starts on a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Outlook {
    pub(super) machine: MachineId,
    /// From now until it ends.
    seconds: f64,
    /// Core-seconds before it. Of two machines on which it ends at the same time, the one with less is better: estimates
    /// are uncertain.
    ahead_seconds: f64,
}

/// Whether a machine has a core for a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Core {
    /// Now.
    Free,
    /// After a build ends.
    Awaited,
}

impl Outlook {
    fn is_better_than(&self, other: &Outlook) -> bool {
        (self.seconds, self.ahead_seconds) < (other.seconds, other.ahead_seconds)
    }
}

impl Scheduler {
    /// The machine with a free core on which a package would end first, or why there is none.
    pub(super) fn soonest_here(&self, package: PackageId, waiting: &Waiting) -> Result<Outlook, Room> {
        let least_seconds = self.least_seconds(package);
        let mut best: Option<Outlook> = None;
        let mut refusal = Room::NoCores;
        for machine in (0..self.machines.len() as u32).map(MachineId) {
            match self.room(machine, package) {
                Room::Free => {
                    let outlook = self.outlook(machine, package, waiting, Core::Free);
                    // In a farm of equal machines with free cores, this decides at once.
                    if outlook.seconds <= least_seconds && outlook.ahead_seconds == 0.0 {
                        return Ok(outlook);
                    }
                    if best.is_none_or(|best| outlook.is_better_than(&best)) {
                        best = Some(outlook);
                    }
                }
                Room::NoSpace => refusal = Room::NoSpace,
                Room::NoCores => {}
            }
        }
        best.ok_or(refusal)
    }

    /// The machine without a free core on which a package would end first, if that is sooner than what it could have now.
    pub(super) fn sooner_elsewhere(
        &self,
        package: PackageId,
        here: Outlook,
        waiting: &Waiting,
    ) -> Option<MachineId> {
        self.soonest_awaited(package, Some(here), waiting)
    }

    /// The machine without a free core on which a package would end first, if that is sooner than this.
    fn soonest_awaited(
        &self,
        package: PackageId,
        mut best: Option<Outlook>,
        waiting: &Waiting,
    ) -> Option<MachineId> {
        let (work, mut found) = (&self.works[package.index()], None);
        for machine in (0..self.machines.len() as u32).map(MachineId) {
            let about = &self.machines[machine.index()];
            let is_faster = best.is_none_or(|best| self.alone_seconds(package, machine) < best.seconds);
            let fits = about.memory_bytes.is_none_or(|bytes| bytes >= work.memory_bytes);
            let is_open = self.doors[machine.index()] == Door::Open;
            let is_possible = is_faster && fits && is_open && self.admits(machine, package);
            if !is_possible || !matches!(self.room(machine, package), Room::NoCores) {
                continue;
            }
            let outlook = self.outlook(machine, package, waiting, Core::Awaited);
            if best.is_none_or(|best| outlook.seconds < best.seconds) {
                (best, found) = (Some(outlook), Some(machine));
            }
        }
        found
    }

    /// The ready packages for which cores will be free next, with the machine on which each would end first. `places` is
    /// the number of packages that each machine is looked for; those in `known` are on their way to one already.
    pub fn expected_next(
        &self,
        known: &BTreeMap<PackageId, MachineId>,
        places: &BTreeMap<MachineId, usize>,
    ) -> Vec<(PackageId, MachineId)> {
        let (mut waiting, mut places, mut found) = (Waiting::new(), places.clone(), Vec::new());
        let may_start = |package: &PackageId| !self.is_stopping && !self.packages[package.index()].is_alone;
        for package in self.queue.iter().take(NEXT_MAX).filter(may_start) {
            if places.is_empty() {
                break;
            }
            let is_known = known.get(&package).copied();
            let machine = is_known.or_else(|| self.soonest_awaited(package, None, &waiting));
            let Some(machine) = machine else { continue };
            waiting.entry(machine).or_default().push(self.ahead(package, machine));
            if is_known.is_none()
                && let Some(left) = places.get_mut(&machine)
            {
                *left -= 1;
                if *left == 0 {
                    places.remove(&machine);
                }
                found.push((package, machine));
            }
        }
        found
    }

    /// Whether a package may take as long as on this machine. Bumped packages should end as soon as possible.
    pub(super) fn has_time(&self, package: PackageId, here: Outlook, end_seconds: f64) -> bool {
        let is_bumped = self.queue.place(package).bumped > 0;
        !is_bumped && here.seconds * self.ranks.seconds(package) <= self.least_seconds(package) * end_seconds
    }

    /// The time until the end of the run by the longest path and by the work left, spread over all cores.
    /// `longest_seconds` is the highest rank of the packages that wait.
    pub(super) fn end_seconds(&self, longest_seconds: f64) -> f64 {
        let running = || self.running.iter().flatten();
        let left = running().map(|build| build.serial_left_seconds + build.parallel_left_seconds);
        let power = |(id, door): (MachineId, &Door)| match door {
            Door::Gone => 0.0,
            _ => f64::from(self.cores_now(id)) * self.machines[id.index()].speed,
        };
        let power: f64 = (0..).map(MachineId).zip(&self.doors).map(power).sum();
        let longest_seconds = running().map(|build| build.rank_seconds).fold(longest_seconds, f64::max);
        longest_seconds.max((self.unstarted_seconds + left.sum::<f64>()) / power)
    }

    /// The work of a package on a machine, for packages that come after it.
    pub(super) fn ahead(&self, package: PackageId, machine: MachineId) -> Ahead {
        let work = &self.works[package.index()];
        let (serial, parallel) = work.parts_seconds();
        let factor = self.factor(work) * self.share(package, machine);
        Ahead { serial_seconds: serial * factor, parallel_seconds: parallel * factor }
    }

    /// The time of a package alone on a machine.
    fn alone_seconds(&self, package: PackageId, machine: MachineId) -> f64 {
        let (work, about) = (&self.works[package.index()], &self.machines[machine.index()]);
        let seconds = work.seconds_at(self.build_cores_max(about), about.speed);
        seconds * self.factor(work) * self.share(package, machine)
    }

    /// The time of a package alone on the best machine there could be.
    pub(super) fn least_seconds(&self, package: PackageId) -> f64 {
        let work = &self.works[package.index()];
        let seconds = work.seconds_at(self.cores_max, self.speed_max);
        seconds * self.factor(work) * self.least_share(package)
    }

    /// What is expected on a machine that has a core for a package now, or will have one.
    fn outlook(&self, machine: MachineId, package: PackageId, waiting: &Waiting, core: Core) -> Outlook {
        let about = &self.machines[machine.index()];
        let own = self.ahead(package, machine);
        let place = self.queue.place(package);
        let running = &self.running[machine.index()];
        let (before, after) = running.split_at(running.partition_point(|build| build.place() < place));
        let ahead = before.iter().map(|build| Ahead {
            serial_seconds: build.serial_left_seconds,
            parallel_seconds: build.parallel_left_seconds,
        });
        let ahead = ahead.chain(waiting.get(&machine).into_iter().flatten().copied());
        let ahead_seconds = ahead.clone().map(|one| one.serial_seconds + one.parallel_seconds).sum();
        let transfer_seconds = self.transfers.seconds(package, machine);
        if core == Core::Free && own.parallel_seconds <= 0.0 {
            let seconds = transfer_seconds + own.serial_seconds / about.speed;
            return Outlook { machine, seconds, ahead_seconds };
        }
        let mut parallel: Vec<Ahead> = ahead.filter(|one| one.parallel_seconds > 0.0).collect();
        parallel.sort_by(|a, b| a.serial_seconds.total_cmp(&b.serial_seconds));
        let now = self.cores_now(machine);
        let all = f64::from(now);
        let start_seconds = match core {
            Core::Free => 0.0,
            Core::Awaited => free_after(&parallel, all, self.core_wait_seconds(machine, waiting)),
        };
        let cores = self.works[package.index()].cores_of(self.build_cores_max(about));
        let alone_seconds = own.serial_seconds + own.parallel_seconds / f64::from(cores);
        let lasts = |left_seconds: f64| left_seconds > start_seconds + alone_seconds;
        let kept =
            after.iter().filter(|build| lasts(build.serial_left_seconds + build.parallel_left_seconds));
        let cores = cores.min(now.saturating_sub(kept.count() as u32).max(1));
        let serial_seconds = start_seconds + own.serial_seconds;
        let end = end_behind(&parallel, all, serial_seconds, own.parallel_seconds / f64::from(cores));
        Outlook { machine, seconds: transfer_seconds + end / about.speed, ahead_seconds }
    }

    /// The time until a build ends whose core is not for a package that waits already, at speed 1.
    fn core_wait_seconds(&self, machine: MachineId, waiting: &Waiting) -> f64 {
        let running = &self.running[machine.index()];
        let mut left: Vec<f64> = running.iter().map(|build| build.left_seconds(1.0)).collect();
        left.sort_by(f64::total_cmp);
        let before = waiting.get(&machine).map_or(0, Vec::len);
        left.get(before).or(left.last()).copied().unwrap_or(0.0)
    }

    /// Changes the phase of a package, and returns the one before.
    pub(super) fn set_phase(&mut self, package: PackageId, phase: PackagePhase) -> PackagePhase {
        let before = std::mem::replace(&mut self.packages[package.index()].phase, phase);
        self.unstarted_seconds += self.unstarted_in(package, phase) - self.unstarted_in(package, before);
        before
    }

    /// What a package adds to the work that has not started, in this phase.
    pub(super) fn unstarted_in(&self, package: PackageId, phase: PackagePhase) -> f64 {
        let work = &self.works[package.index()];
        match phase {
            PackagePhase::Waiting | PackagePhase::Ready => {
                work.core_seconds() * self.factor(work) * self.least_share(package)
            }
            _ => 0.0,
        }
    }
}

/// The first time from a time on at which none of these builds is parallel. Each takes all cores as soon as its serial part
/// is over, and they are in order of that.
fn free_after(ahead: &[Ahead], cores: f64, at_seconds: f64) -> f64 {
    let mut free_at = 0.0_f64;
    for one in ahead {
        if one.serial_seconds > free_at.max(at_seconds) {
            break;
        }
        free_at = free_at.max(one.serial_seconds) + one.parallel_seconds / cores;
    }
    free_at.max(at_seconds)
}

/// When a package ends whose serial part is over after a time, and which then does its parallel part in the time that
/// these builds leave; see [`free_after`].
fn end_behind(ahead: &[Ahead], cores: f64, serial_seconds: f64, parallel_seconds: f64) -> f64 {
    let (mut free_at, mut left) = (0.0_f64, parallel_seconds);
    for one in ahead {
        let from = free_at.max(serial_seconds);
        let gap = one.serial_seconds - from;
        if gap >= left || left <= 0.0 {
            break;
        }
        left -= gap.max(0.0);
        free_at = free_at.max(one.serial_seconds) + one.parallel_seconds / cores;
    }
    if left > 0.0 { free_at.max(serial_seconds) + left } else { serial_seconds }
}
#[cfg(test)]
mod tests {
    use super::*;

    /// Builds that are parallel after these times, for these times on four cores.
    fn ahead(parts: &[(f64, f64)]) -> Vec<Ahead> {
        let one = |part: &(f64, f64)| Ahead { serial_seconds: part.0, parallel_seconds: part.1 * 4.0 };
        parts.iter().map(one).collect()
    }

    #[test]
    fn a_package_does_its_parallel_part_in_the_time_that_others_leave() {
        let end = |parts: &[(f64, f64)]| end_behind(&ahead(parts), 4.0, 10.0, 5.0);
        assert_eq!(end(&[]), 15.0);
        assert_eq!(end(&[(20.0, 10.0)]), 15.0, "it is done before the other is parallel");
        assert_eq!(end(&[(2.0, 4.0)]), 15.0, "the other is done before");
        assert_eq!(end(&[(2.0, 10.0)]), 17.0, "the other is done later");
        assert_eq!(end(&[(13.0, 10.0)]), 25.0, "it is interrupted");
        assert_eq!(end(&[(2.0, 9.0), (12.0, 1.0)]), 17.0, "it has one second between them");
        assert_eq!(
            end_behind(&ahead(&[(2.0, 90.0)]), 4.0, 10.0, 0.0),
            10.0,
            "it has a core for its serial part"
        );
    }

    #[test]
    fn a_core_is_free_when_no_build_ahead_is_parallel() {
        let free = |parts: &[(f64, f64)], at| free_after(&ahead(parts), 4.0, at);
        assert_eq!(free(&[], 3.0), 3.0);
        assert_eq!(free(&[(5.0, 10.0)], 3.0), 3.0);
        assert_eq!(free(&[(1.0, 10.0), (2.0, 1.0)], 3.0), 12.0);
        assert_eq!(free(&[(1.0, 1.0), (3.0, 1.0)], 3.0), 4.0);
    }
}
