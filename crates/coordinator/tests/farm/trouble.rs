//! Disasters, lies, and what a worker must not get.

use super::*;

impl World {
    pub(super) fn strike(&mut self) {
        let disaster =
            self.setting.disasters[self.random.below(self.setting.disasters.len() as u64) as usize];
        let worker = self.random.below(WORKERS as u64) as usize;
        let seconds = self.random.seconds(250.0);
        self.note(|| format!("{disaster:?} {} {seconds:.0} s", name(worker)));
        match disaster {
            Disaster::KillWorker if self.places[worker].process.take().is_some() => {
                self.after(seconds / 3.0, SimEvent::WorkerStarts { worker });
            }
            Disaster::KillBoss if self.boss.take().is_some() => {
                self.boss_paused_until = 0.0;
                if self.setting.flaw == Some(Flaw::StoreForgets) {
                    self.memory = self.before.clone();
                }
                self.after(seconds / 3.0, SimEvent::BossStarts);
            }
            Disaster::PauseWorker => self.places[worker].paused_until = self.now + seconds,
            Disaster::PauseBoss => self.boss_paused_until = self.now + seconds / 2.0,
            Disaster::Cut => self.places[worker].cut_until = self.now + seconds,
            Disaster::Drain => self.work(worker, AgentEvent::Drain),
            Disaster::Press => {
                let event = Process::pressure(&mut self.random);
                self.work(worker, event);
            }
            Disaster::FillDisk => {
                self.work(worker, AgentEvent::Room(false));
                let life = self.places[worker].life;
                self.after(seconds, SimEvent::DiskHasRoom { worker, life });
            }
            Disaster::KillWorker | Disaster::KillBoss => {}
        }
    }

    /// Changes a message to a lie: it names a build of another worker, other outputs, or another build number.
    pub(super) fn lie(&mut self, message: &mut ToCoordinator) {
        // What it says of its own builds is its own affair.
        let is_of_another = |attempt: &&Attempt| {
            self.memory.worker_of(**attempt).is_some_and(|worker| *worker != name(UNTRUSTED))
        };
        let others = self.begun.iter().filter(is_of_another);
        let other = others.min_by_key(|attempt| attempt.to_string()).copied();
        match (message, self.random.below(3)) {
            (ToCoordinator::Result { attempt, .. } | ToCoordinator::Built { attempt, .. }, 0) => {
                *attempt = other.unwrap_or(*attempt);
            }
            (ToCoordinator::Progress(reports), 0) => reports.attempt = other.unwrap_or(reports.attempt),
            (ToCoordinator::Result { result, .. }, 1) => result.build = 1,
            (ToCoordinator::Result { result, .. }, _) => {
                if let Ok(outputs) = &mut result.outcome {
                    outputs.iter_mut().for_each(|output| output.content = LIE.to_owned());
                }
            }
            (ToCoordinator::Built { built, .. }, _) => built.build = 1,
            (ToCoordinator::Offer(offer), _) => offer.held.clear(),
            _ => {}
        }
    }

    /// Changes a result as if the coordinator had no fencing.
    pub(super) fn take_for_the_live_one(&self, message: &mut ToCoordinator) {
        let ToCoordinator::Result { session, attempt, result } = message else { return };
        let Ok(outputs) = &result.outcome else { return };
        if self.memory.outcome_of(*attempt) != Some(&BuildOutcome::Lost) {
            return;
        }
        if let Some((live, worker)) = outputs.first().and_then(|output| self.memory.live(&output.name))
            && let Some(its_session) = self.sessions.get(&worker)
        {
            (*attempt, *session) = (live, *its_session);
        }
    }

    /// How the build of an attempt ended, or the build that it tested.
    pub(super) fn outcome_of(&self, attempt: Attempt) -> Option<&BuildOutcome> {
        match self.history.tests.get(&attempt) {
            Some(build) => self.memory.builds.get(build).map(|row| &row.outcome),
            None => self.memory.outcome_of(attempt),
        }
    }

    /// The workers, of which one may be held.
    pub(super) fn standings(&self, held: Option<&str>) -> BTreeMap<String, Standing> {
        let standing = |worker: usize| Standing {
            is_held: held == Some(&name(worker)),
            pool: ["default", "builders", "lab"][worker].to_owned(),
            is_trusted: worker != UNTRUSTED,
            roles: if worker == BUILDS_ONLY { [Role::Build].into() } else { Role::all() },
        };
        (0..WORKERS).map(|worker| (name(worker), standing(worker))).collect()
    }

    /// Complains if a worker gets what its pool must not build.
    pub(super) fn check_grant(&mut self, granted: &Granted) {
        let is_needed = !self.graph.dependents(granted.package).is_empty();
        let is_verified = self.memory.current.contains_key(self.graph.name(granted.package));
        let is_used = is_needed && !is_verified && granted.to_test.is_none();
        if self.setting.has_pools && granted.channel == Channel(UNTRUSTED as u64) && is_used {
            let package = self.graph.name(granted.package);
            self.complaint =
                Some(format!("{package}, which others need, is built in a pool that is not trusted"));
        }
    }
}
