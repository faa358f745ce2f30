//! What happened, for those who are notified: a pure function of events and of what the run before had.

use crate::config::Config;
use crate::config::notify::Occasion;
use crate::error::Result;
use crate::yard::store_error;
use kilnyard_model::result::PackageState;
use kilnyard_store::{Event, EventKind, Number, RunState, Store, WorkerChange};
use std::collections::HashMap;

/// The lines of a log that a notification quotes.
const LINES_MAX: usize = 20;

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Occurred {
    /// What for.
    pub occasion: Occasion,
    /// The number of the event.
    pub seq: u64,
    /// The run.
    pub run: Option<u64>,
    /// The package; absent if it is about no single one.
    pub package: Option<String>,
    /// When, in seconds since 1970.
    pub at_seconds: f64,
    /// One line.
    pub title: String,
    /// More lines.
    pub text: String,
    /// The event as JSON.
    pub event: serde_json::Value,
}

/// Decides what happened. See the module documentation.
pub struct Decider<'a> {
    config: &'a Config,
    /// The run of the last event, and the packages that have failed unexpectedly in it until then.
    failures: Option<(Number, u64)>,
    /// The states that packages had in the run before a run.
    before: HashMap<Number, HashMap<String, PackageState>>,
}

impl Decider<'_> {
    /// A decider that has seen no event.
    pub fn new(config: &Config) -> Decider<'_> {
        Decider { config, failures: None, before: HashMap::new() }
    }

    /// Continues after events that were handled before: the run of the last one, and its failures until then.
    pub fn resume(&mut self, failures: Option<(Number, u64)>) {
        self.failures = failures;
    }

    /// The run of the last event, and the packages that have failed unexpectedly in it until then.
    pub fn failures(&self) -> Option<(Number, u64)> {
        self.failures
    }

    fn is_failure(&self, event: &Event) -> bool {
        let package = event.ids.package.as_deref().unwrap_or_default();
        matches!(event.kind, EventKind::Package { state: PackageState::Failed, .. })
            && !self.config.expects_failure(package)
    }

    /// The state that a package had at the end of the run before.
    fn before(&mut self, store: &dyn Store, run: Number, package: &str) -> Result<Option<PackageState>> {
        if !self.before.contains_key(&run) {
            let earlier = crate::facts::failures::run_before(store, run)?;
            let rows = match earlier {
                Some(earlier) => store.packages(earlier).map_err(store_error)?,
                None => Vec::new(),
            };
            // One run at a time is followed.
            self.before.clear();
            self.before.insert(run, rows.into_iter().map(|row| (row.name, row.state)).collect());
        }
        Ok(self.before.get(&run).and_then(|rows| rows.get(package)).copied())
    }

    /// What an event means for those who are notified.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn decide(&mut self, store: &dyn Store, event: &Event) -> Result<Vec<Occurred>> {
        let run = event.ids.run;
        let package = event.ids.package.clone();
        let name = package.as_deref().unwrap_or_default();
        let of_run = run.map_or(String::new(), |run| format!(" in run {run}"));
        let occurred = |occasion: Occasion, title: String, text: String| Occurred {
            occasion,
            seq: event.seq,
            run,
            package: package.clone(),
            at_seconds: event.at,
            title,
            text,
            event: serde_json::to_value(event).unwrap_or_default(),
        };
        let mut all = Vec::new();
        match &event.kind {
            EventKind::RunBegan { is_resumed, .. } => {
                let how = if *is_resumed { "was resumed" } else { "began" };
                let run = run.unwrap_or_default();
                all.push(occurred(Occasion::RunBegan, format!("run {run} {how}"), String::new()));
            }
            EventKind::RunEnded { state } => {
                let run = run.unwrap_or_default();
                let counts = store.counts(run).map_err(store_error)?;
                let counts: Vec<String> =
                    counts.iter().map(|(state, count)| format!("{count} {state}")).collect();
                let counts = counts.join(", ");
                let title = format!("run {run} {}: {counts}", state.as_str());
                let text = match state {
                    RunState::Finished => self.summary(store, run)?,
                    RunState::Running | RunState::Interrupted => String::new(),
                };
                all.push(occurred(Occasion::RunEnded, title, text));
            }
            EventKind::Package { state: PackageState::Failed, reason, .. } if self.is_failure(event) => {
                let run = run.unwrap_or_default();
                let title = format!("{name} failed{of_run}: {}", reason.first_line());
                let text = telling_lines(store, name, run)?;
                let count = self.failures.filter(|(of, _)| *of == run).map_or(0, |(_, count)| count) + 1;
                self.failures = Some((run, count));
                if count == 1 {
                    all.push(occurred(Occasion::FirstFailure, title.clone(), text.clone()));
                }
                if self.before(store, run, name)?.is_some_and(PackageState::has_outputs) {
                    all.push(occurred(Occasion::NewlyFailing, title.clone(), text.clone()));
                }
                all.push(occurred(Occasion::Failure, title, text));
            }
            EventKind::Package { state, .. } if state.has_outputs() => {
                let before = self.before(store, run.unwrap_or_default(), name)?;
                if before == Some(PackageState::Failed) {
                    all.push(occurred(Occasion::Fixed, format!("{name} is fixed{of_run}"), String::new()));
                }
            }
            EventKind::Worker { name, change, why, .. } => {
                let what = match change {
                    WorkerChange::Lost => "is lost: it has been silent for too long",
                    WorkerChange::Quarantined => "is quarantined",
                    WorkerChange::Joined | WorkerChange::Drained | WorkerChange::Approved => return Ok(all),
                };
                let why = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
                all.push(occurred(
                    Occasion::WorkerLost,
                    format!("the worker {name} {what}{why}"),
                    String::new(),
                ));
            }
            EventKind::Published { packages, is_changed: true } => {
                let title = format!("the repository was published: {packages} packages");
                all.push(occurred(Occasion::Published, title, String::new()));
            }
            EventKind::Requested { request, author } => {
                let author = author.as_deref().unwrap_or("a user");
                let title = format!("{author} asks to {} {name}", request.as_str());
                all.push(occurred(Occasion::Request, title, String::new()));
            }
            EventKind::Package { .. }
            | EventKind::BuildBegan { .. }
            | EventKind::StageBegan { .. }
            | EventKind::StageEnded { .. }
            | EventKind::BuildEnded { .. }
            | EventKind::Published { .. }
            | EventKind::Unknown => {}
        }
        Ok(all)
    }

    /// The causes of a run's failures, one line each.
    fn summary(&self, store: &dyn Store, run: Number) -> Result<String> {
        let failed = store.packages_in_state(run, PackageState::Failed).map_err(store_error)?;
        let failed = failed.iter().filter(|row| !self.config.expects_failure(&row.name));
        let causes = crate::causes::by_cause(
            failed.map(|row| (row.name.as_str(), &row.reason)),
            self.config.family.causes(),
        );
        let lines = causes.iter().take(LINES_MAX).map(|cause| format!("failed: {}\n", cause.line()));
        Ok(lines.collect())
    }
}

/// The lines of the log that explain a failure.
fn telling_lines(store: &dyn Store, package: &str, run: Number) -> Result<String> {
    let build = store.builds_of(package, 1).map_err(store_error)?.pop();
    let failure = build.filter(|build| build.run == run).and_then(|build| build.failure);
    let lines = failure.map_or_else(Vec::new, |failure| failure.lines);
    let skipped = lines.len().saturating_sub(LINES_MAX);
    Ok(lines.iter().skip(skipped).map(|line| format!("{line}\n")).collect())
}
