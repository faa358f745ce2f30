//! Decides the tasks that follow from an input.

use crate::{
    Commit, Decision, Driver, Input, Loaded, Phase, Preparing, RECORDS_MAX, RELOADS_MAX,
    ROOM_LASTING_SECONDS_MIN, ROOM_PATIENCE_SECONDS, ROOM_PAUSE_SECONDS, Refusal, Task, ToPrepare,
};
use kilnyard_coordinator::{Action, Event, Granted, Prepared, Reading};
use kilnyard_model::graph::PackageId;
use kilnyard_model::result::PackageState;
use kilnyard_protocol::ToWorker;
use kilnyard_store::Record;

impl Driver {
    /// Applies an input at this time (seconds since 1970) and appends the tasks that follow.
    pub fn apply(&mut self, now_seconds: f64, input: Input, tasks: &mut Vec<Task>) {
        match input {
            Input::Event(event) => self.apply_event(now_seconds, event, tasks),
            Input::Prepared { package, prepared } => self.prepared(now_seconds, package, prepared, tasks),
            Input::Committed => self.committed(now_seconds, tasks),
            Input::NotCommitted(refusal) => self.not_committed(now_seconds, refusal, tasks),
            Input::Loaded(loaded) => self.loaded(now_seconds, *loaded, tasks),
        }
        self.prepare_next(tasks);
    }

    fn apply_event(&mut self, now_seconds: f64, event: Event, tasks: &mut Vec<Task>) {
        self.is_stopping |= event == Event::Stop;
        match self.phase {
            Phase::Going => {
                if event == Event::Tick {
                    self.try_commit_again(now_seconds, tasks);
                    self.renew_waiting(now_seconds);
                }
                self.decide(now_seconds, event, tasks);
            }
            // Workers repeat unanswered messages.
            Phase::Loading => match event {
                Event::Requested(request) => self.requests.push(request),
                // What is known of workers is only said when it changes.
                Event::Workers(standings) => self.standings = Some(standings),
                _ => {}
            },
            Phase::Over => {}
        }
    }

    /// Applies an event. Its actions wait until its records are committed.
    fn decide(&mut self, now_seconds: f64, event: Event, tasks: &mut Vec<Task>) {
        let request = match &event {
            Event::Requested(asked) => Some(asked.clone()),
            _ => None,
        };
        let mut actions = Vec::new();
        self.coordinator.apply(now_seconds, event, &mut actions);
        self.forget_ended(&actions);
        actions.retain(|action| match action {
            _ if self.is_cancel_of_handed_out(action) => {
                tasks.push(Task::Perform(action.clone()));
                false
            }
            Action::Prepare { package, .. } => {
                // A pending answer is obsolete.
                self.to_prepare.remove(package);
                if let Some(preparing) = self.preparing.as_mut().filter(|one| one.package == *package) {
                    preparing.is_stale = true;
                }
                true
            }
            _ => true,
        });
        if !actions.is_empty() {
            self.decisions.push_back(Decision { actions, request });
            self.advance(now_seconds, tasks);
        }
    }

    fn forget_ended(&mut self, actions: &[Action]) {
        for action in actions {
            if let Action::Record(Record::BuildEnded { build, .. }) = action {
                self.granted.remove(build);
            }
        }
    }

    fn is_cancel_of_handed_out(&self, action: &Action) -> bool {
        match action {
            Action::Send { message: ToWorker::Cancel { attempt, .. }, .. } => {
                self.granted.values().any(|handed_out| handed_out == attempt)
            }
            _ => false,
        }
    }

    /// Performs decisions without records, and starts a commit of those that wait.
    fn advance(&mut self, now_seconds: f64, tasks: &mut Vec<Task>) {
        if self.commit.is_some() {
            return;
        }
        while self.decisions.front().is_some_and(|decision| !decision.has_records()) {
            self.perform_first(now_seconds, tasks);
        }
        let (mut records, mut decisions) = (Vec::new(), 0);
        for decision in &mut self.decisions {
            let count = decision.actions.iter().filter(|action| is_record(action)).count();
            if decisions > 0 && records.len() + count > RECORDS_MAX {
                break;
            }
            records.extend(decision.take_records());
            decisions += 1;
        }
        if decisions > 0 {
            let records = records.into();
            tasks.push(Task::Commit(std::sync::Arc::clone(&records)));
            self.commit = Some(Commit { records, decisions, refused_seconds: None, again_seconds: None });
        }
    }

    fn perform_first(&mut self, now_seconds: f64, tasks: &mut Vec<Task>) {
        let Some(decision) = self.decisions.pop_front() else { return };
        for action in decision.actions {
            match action {
                Action::Prepare { package, reading } => {
                    self.to_prepare.insert(package, reading);
                    continue;
                }
                Action::Grant(Granted { build, attempt, .. }) => {
                    self.granted.insert(build, attempt);
                    self.coordinator.renew(now_seconds, build);
                }
                Action::Finish(_) => self.phase = Phase::Over,
                _ => {}
            }
            tasks.push(Task::Perform(action));
        }
    }

    fn committed(&mut self, now_seconds: f64, tasks: &mut Vec<Task>) {
        let Some(commit) = self.commit.take() else { return };
        self.reloads = 0;
        for _ in 0..commit.decisions {
            self.perform_first(now_seconds, tasks);
        }
        self.advance(now_seconds, tasks);
    }

    fn not_committed(&mut self, now_seconds: f64, refusal: Refusal, tasks: &mut Vec<Task>) {
        match (refusal, &mut self.commit) {
            (Refusal::NoRoom, Some(commit)) => {
                let since_seconds = *commit.refused_seconds.get_or_insert(now_seconds);
                if self.is_stopping || now_seconds - since_seconds >= ROOM_PATIENCE_SECONDS {
                    return self.give_up(tasks);
                }
                commit.again_seconds = Some(now_seconds + ROOM_PAUSE_SECONDS);
                let last_seconds = self.no_room_seconds.replace(now_seconds);
                if last_seconds.is_none_or(|last| now_seconds - last >= ROOM_LASTING_SECONDS_MIN) {
                    tasks.push(Task::NoRoom);
                }
            }
            (Refusal::ForNow, Some(_)) if self.reloads < RELOADS_MAX => {
                self.reloads += 1;
                self.forget(tasks);
            }
            _ => self.give_up(tasks),
        }
    }

    fn give_up(&mut self, tasks: &mut Vec<Task>) {
        self.phase = Phase::Over;
        tasks.push(Task::GiveUp);
    }

    fn try_commit_again(&mut self, now_seconds: f64, tasks: &mut Vec<Task>) {
        if let Some(commit) = &mut self.commit
            && commit.again_seconds.is_some_and(|again| again <= now_seconds)
        {
            commit.again_seconds = None;
            tasks.push(Task::Commit(commit.records.clone()));
        }
    }

    /// Renews leases whose grants wait for the store.
    fn renew_waiting(&mut self, now_seconds: f64) {
        for action in self.decisions.iter().flat_map(|decision| &decision.actions) {
            if let Action::Grant(granted) = action {
                self.coordinator.renew(now_seconds, granted.build);
            }
        }
    }

    /// Drops unwritten decisions, and requests the state from the store again.
    fn forget(&mut self, tasks: &mut Vec<Task>) {
        tasks.push(Task::Reloading);
        self.commit = None;
        // The store does not have the requests of dropped decisions, so they are applied again after the reload.
        self.requests.extend(std::mem::take(&mut self.decisions).into_iter().filter_map(|one| one.request));
        self.to_prepare.clear();
        if let Some(preparing) = &mut self.preparing {
            preparing.is_stale = true;
        }
        self.granted.clear();
        self.phase = Phase::Loading;
        tasks.push(Task::Reload);
    }

    fn loaded(&mut self, now_seconds: f64, loaded: Loaded, tasks: &mut Vec<Task>) {
        if self.phase != Phase::Loading {
            return;
        }
        self.phase = Phase::Going;
        let mut actions = Vec::new();
        self.coordinator.reload(now_seconds, loaded.run, self.scheduler.clone(), &mut actions);
        for (package, outputs) in loaded.outputs {
            tasks.push(Task::Perform(Action::Adopt { package, outputs }));
        }
        self.decisions.push_back(Decision { actions, request: None });
        self.advance(now_seconds, tasks);
        let requests = std::mem::take(&mut self.requests).into_iter().map(Event::Requested);
        let standings = self.standings.take().map(Event::Workers);
        let mut events: Vec<Event> = standings.into_iter().chain([Event::Begin]).collect();
        events.extend(requests);
        if self.is_stopping {
            events.push(Event::Stop);
        }
        for event in events {
            self.decide(now_seconds, event, tasks);
        }
    }

    fn prepared(&mut self, now_seconds: f64, package: PackageId, prepared: Prepared, tasks: &mut Vec<Task>) {
        let asked = self.preparing.take_if(|preparing| preparing.package == package);
        if asked.is_some_and(|preparing| !preparing.is_stale) && self.phase == Phase::Going {
            self.decide(now_seconds, Event::Prepared { package, prepared }, tasks);
        }
    }

    /// Requests the preparation of the ready package that will be built first.
    fn prepare_next(&mut self, tasks: &mut Vec<Task>) {
        if self.preparing.is_some() || self.phase != Phase::Going {
            return;
        }
        // A package that was skipped is requested again once it is ready.
        let coordinator = &self.coordinator;
        self.to_prepare.retain(|package, _| coordinator.state(*package) == PackageState::Ready);
        let first = self.to_prepare.keys().copied().reduce(|a, b| match coordinator.comes_before(b, a) {
            true => b,
            false => a,
        });
        let Some((package, reading)) = first.and_then(|first| self.to_prepare.remove_entry(&first)) else {
            return;
        };
        self.ask(package, reading, tasks);
    }

    fn ask(&mut self, package: PackageId, reading: Reading, tasks: &mut Vec<Task>) {
        let kept = self.coordinator.kept(package).cloned();
        let waited_for = self.coordinator.dependencies(package).to_vec();
        self.preparing = Some(Preparing { package, is_stale: false });
        tasks.push(Task::Prepare(ToPrepare { package, reading, waited_for, kept }));
    }
}

impl Decision {
    fn has_records(&self) -> bool {
        self.actions.iter().any(is_record)
    }

    /// Removes the records and returns them. The other actions keep their order.
    fn take_records(&mut self) -> Vec<Record> {
        let (records, others): (Vec<Action>, Vec<Action>) =
            std::mem::take(&mut self.actions).into_iter().partition(is_record);
        self.actions = others;
        let record = |action| match action {
            Action::Record(record) => Some(record),
            _ => None,
        };
        records.into_iter().filter_map(record).collect()
    }
}

fn is_record(action: &Action) -> bool {
    matches!(action, Action::Record(_))
}
