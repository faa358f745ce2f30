//! The builds of a worker: their order, and their unacknowledged messages.

use crate::{
    Action, Attempt, BTreeMap, BuildResult, Built, Lease, Progress, REPEAT_SECONDS, Reports, Session,
};
use kilnyard_protocol::{BuildPhase, Held, Ranked, ToCoordinator};
use kilnyard_schedule::{Machine, Sharer, share_out};
use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};

/// How long a finished build is remembered, in seconds. No message takes longer to arrive.
const OVER_SECONDS: f64 = 3600.0;
/// The maximum number of finished builds to remember. If a build is forgotten too soon, a late grant may start it
/// again, which wastes time; its result does not count.
const OVER_MAX: usize = 16_384;
/// The maximum number of reports kept for a build while the coordinator is unreachable. Beyond it, reports that only
/// describe the moment are dropped.
const REPORTS_MAX: usize = 1024;

/// A build that a worker has.
#[derive(Clone, Debug)]
pub(crate) struct Build {
    pub phase: BuildPhase,
    /// Present until it starts.
    lease: Option<Box<Lease>>,
    number: u64,
    sharer: Sharer,
    /// Maximum number of cores that its order allows.
    jobs_max: u32,
    rank_seconds: f64,
    /// Its position in the coordinator's last list of ranks; last if it was not in the list.
    place: usize,
    is_cancelled: bool,
    /// Its result does not count.
    pub is_superseded: bool,
    /// The number of the first kept report.
    first: u64,
    reports: VecDeque<Progress>,
    /// How many of them were sent, and when.
    said: usize,
    said_seconds: Option<f64>,
    /// The outputs that wait for an answer, and the time at which they were sent.
    pub built: Option<Built>,
    pub built_seconds: Option<f64>,
    result: Option<Box<BuildResult>>,
    result_seconds: Option<f64>,
}

impl Build {
    fn new(lease: Box<Lease>) -> Build {
        Build {
            phase: BuildPhase::Waiting,
            number: lease.build,
            sharer: Sharer { wants: 1, memory_bytes: 0, memory_per_core_bytes: 0 },
            jobs_max: lease.order.terms.jobs_max.unwrap_or(u32::MAX).max(1),
            rank_seconds: lease.rank_seconds,
            lease: Some(lease),
            place: usize::MAX,
            is_cancelled: false,
            is_superseded: false,
            first: 0,
            reports: VecDeque::new(),
            said: 0,
            said_seconds: None,
            built: None,
            built_seconds: None,
            result: None,
            result_seconds: None,
        }
    }

    /// The order of two builds, by rank.
    fn order(&self, other: &Build) -> Ordering {
        self.place.cmp(&other.place).then(other.rank_seconds.total_cmp(&self.rank_seconds))
    }

    /// Keeps a report until it is acknowledged. A report that only describes the moment replaces an unsent one of its
    /// kind.
    pub fn report(&mut self, progress: Progress) {
        if let Progress::Wants(cores) = progress {
            self.sharer.wants = cores.clamp(1, self.jobs_max);
        }
        let is_momentary =
            |progress: &Progress| matches!(progress, Progress::Sample { .. } | Progress::Wants(_));
        let is_like = |kept: &Progress| std::mem::discriminant(kept) == std::mem::discriminant(&progress);
        if is_momentary(&progress) {
            let unsaid = self.reports.iter_mut().skip(self.said).find(|kept| is_like(kept));
            if let Some(kept) = unsaid {
                *kept = progress;
                return;
            }
            if self.reports.len() >= REPORTS_MAX {
                return;
            }
        }
        self.reports.push_back(progress);
    }

    /// Reports below this number are recorded.
    pub fn acknowledge(&mut self, next: u64) {
        while self.first < next && self.reports.pop_front().is_some() {
            self.first += 1;
            self.said = self.said.saturating_sub(1);
        }
    }

    /// Cancels the build if it is running.
    pub fn cancel(&mut self, attempt: Attempt, actions: &mut Vec<Action>) {
        if self.phase == BuildPhase::Building && !std::mem::replace(&mut self.is_cancelled, true) {
            actions.push(Action::Cancel(attempt));
        }
    }

    pub fn resend_all(&mut self) {
        (self.said_seconds, self.built_seconds, self.result_seconds) = (None, None, None);
    }

    /// Sends new messages, and repeats those without an answer.
    pub fn speak(&mut self, now_seconds: f64, session: Session, attempt: Attempt, actions: &mut Vec<Action>) {
        if self.is_superseded {
            return;
        }
        let is_due = |said: Option<f64>| said.is_none_or(|said| now_seconds - said >= REPEAT_SECONDS);
        // Later reports wait until these are acknowledged, so that repeats do not grow while the coordinator is
        // unreachable.
        if !self.reports.is_empty() && (self.said == 0 || is_due(self.said_seconds)) {
            self.said = self.reports.len();
            self.said_seconds = Some(now_seconds);
            let reports = self.reports.iter().cloned().collect();
            let said = Reports { session, attempt, first: self.first, reports };
            actions.push(Action::Send(ToCoordinator::Progress(said)));
        }
        if let Some(built) = &self.built
            && is_due(self.built_seconds)
        {
            self.built_seconds = Some(now_seconds);
            actions.push(Action::Send(ToCoordinator::Built { session, attempt, built: built.clone() }));
        }
        // The result ends the lease, so that it waits for the last stages.
        if let Some(result) = &self.result
            && self.reports.is_empty()
            && is_due(self.result_seconds)
        {
            self.result_seconds = Some(now_seconds);
            let result = result.clone();
            actions.push(Action::Send(ToCoordinator::Result { session, attempt, result }));
        }
    }
}

/// All builds of a worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Builds {
    builds: BTreeMap<Attempt, Build>,
    building: u32,
    /// Finished builds, and when they ended.
    over: HashMap<Attempt, f64>,
    over_in_order: VecDeque<Attempt>,
}

impl Builds {
    pub fn is_empty(&self) -> bool {
        self.builds.is_empty()
    }

    /// The number of running builds.
    pub fn building(&self) -> u32 {
        self.building
    }

    pub fn get_mut(&mut self, attempt: Attempt) -> Option<&mut Build> {
        self.builds.get_mut(&attempt)
    }

    pub fn held(&self) -> impl Iterator<Item = (Attempt, &Build)> {
        self.builds.iter().map(|(attempt, build)| (*attempt, build))
    }

    pub fn held_mut(&mut self) -> impl Iterator<Item = (Attempt, &mut Build)> {
        self.builds.iter_mut().map(|(attempt, build)| (*attempt, build))
    }

    /// The cores that running builds can use.
    pub fn wanted(&self) -> u32 {
        let building = self.builds.values().filter(|build| build.phase == BuildPhase::Building);
        building.map(|build| build.sharer.wants).fold(0, u32::saturating_add)
    }

    /// The memory that running builds are expected to need with these cores, by number.
    pub fn memory_bytes(&self, allotted: &[(u64, u32)]) -> u64 {
        let building = self.builds.values().filter(|build| build.phase == BuildPhase::Building);
        let of = |build: &Build| {
            let cores =
                allotted.iter().find(|(number, _)| *number == build.number).map_or(1, |(_, cores)| *cores);
            let further = build.sharer.memory_per_core_bytes.saturating_mul(u64::from(cores.max(1) - 1));
            build.sharer.memory_bytes.saturating_add(further)
        };
        building.map(of).fold(0, u64::saturating_add)
    }

    /// The builds in an offer. A build whose result does not count occupies its slot until it ends, but is not in the
    /// offer.
    pub fn offered(&self) -> Vec<Held> {
        let held = self.held().filter(|(_, build)| !build.is_superseded);
        held.map(|(attempt, build)| Held { attempt, phase: build.phase }).collect()
    }

    /// Whether this worker has a build, or had it.
    pub fn is_known(&self, attempt: Attempt) -> bool {
        self.builds.contains_key(&attempt) || self.over.contains_key(&attempt)
    }

    /// Adds a granted build. Returns whether it is new.
    pub fn grant(&mut self, lease: Box<Lease>) -> bool {
        let attempt = lease.attempt;
        let is_new = !self.is_known(attempt);
        if is_new {
            self.builds.insert(attempt, Build::new(lease));
        }
        is_new
    }

    /// Applies the coordinator's order of ranks, the highest first.
    pub fn rank(&mut self, builds: &[Ranked]) {
        for build in self.builds.values_mut() {
            build.place = usize::MAX;
        }
        for (place, ranked) in builds.iter().enumerate() {
            if let Some(build) = self.builds.get_mut(&ranked.attempt) {
                build.place = place;
                build.sharer.memory_bytes = ranked.memory_bytes;
                build.sharer.memory_per_core_bytes = ranked.memory_per_core_bytes;
            }
        }
    }

    /// The cores of each running build, by number, the highest rank first.
    pub fn share_out(&self, machine: &Machine, jobs_max: Option<u32>) -> Vec<(u64, u32)> {
        let building = self.builds.values().filter(|build| build.phase == BuildPhase::Building);
        let mut building: Vec<&Build> = building.collect();
        building.sort_by(|a, b| a.order(b));
        let sharers: Vec<Sharer> = building.iter().map(|build| build.sharer).collect();
        let cores = share_out(machine, jobs_max, &sharers);
        building.iter().map(|build| build.number).zip(cores).collect()
    }

    /// Marks the waiting build of the highest rank as running, and returns its lease.
    pub fn next(&mut self) -> Option<Box<Lease>> {
        let waiting = self.builds.values_mut().filter(|build| build.phase == BuildPhase::Waiting);
        let next = waiting.min_by(|a, b| a.order(b))?;
        next.phase = BuildPhase::Building;
        self.building += 1;
        next.lease.take()
    }

    /// Keeps the result of a build.
    pub fn ended(&mut self, attempt: Attempt, result: Box<BuildResult>, now_seconds: f64) {
        let Some(build) = self.builds.get_mut(&attempt) else { return };
        if build.phase != BuildPhase::Building {
            return;
        }
        self.building -= 1;
        build.phase = BuildPhase::Ended;
        build.built = None;
        // Reports that describe the moment are now obsolete; stages are not.
        let is_lasting = |progress: &Progress| matches!(progress, Progress::StageEnded(_));
        let said = build.said;
        let mut index = 0;
        build.reports.retain(|progress| {
            index += 1;
            index <= said || is_lasting(progress)
        });
        build.result = Some(result);
        if build.is_superseded {
            self.remove(attempt, now_seconds);
        }
    }

    /// Gives a build back if it has not started. Returns whether it did.
    pub fn revoke(&mut self, attempt: Attempt, now_seconds: f64) -> bool {
        let phase = self.builds.get(&attempt).map(|build| build.phase);
        if matches!(phase, None | Some(BuildPhase::Waiting)) {
            // A grant that arrives later is ignored.
            self.remove(attempt, now_seconds);
        }
        phase == Some(BuildPhase::Waiting)
    }

    /// Gives back all builds that have not started.
    pub fn drop_waiting(&mut self, now_seconds: f64) {
        let waiting = self.builds.iter().filter(|(_, build)| build.phase == BuildPhase::Waiting);
        for attempt in waiting.map(|(attempt, _)| *attempt).collect::<Vec<_>>() {
            self.remove(attempt, now_seconds);
        }
    }

    /// Removes a build, and remembers that it is over.
    pub fn remove(&mut self, attempt: Attempt, now_seconds: f64) {
        self.builds.remove(&attempt);
        if self.over.insert(attempt, now_seconds).is_none() {
            self.over_in_order.push_back(attempt);
        }
    }

    /// Forgets old finished builds.
    pub fn forget(&mut self, now_seconds: f64) {
        while let Some(first) = self.over_in_order.front() {
            let over_seconds = self.over.get(first).copied().unwrap_or(f64::NEG_INFINITY);
            if now_seconds - over_seconds <= OVER_SECONDS && self.over_in_order.len() <= OVER_MAX {
                break;
            }
            self.over.remove(first);
            self.over_in_order.pop_front();
        }
    }
}
