//! Why a package is in its state, down to the package to blame.

use crate::commits;
use crate::error::Result;
use crate::yard::{Yard, store_error};
use kilnyard_model::result::{PackageState, StageResult};
use kilnyard_schema::compare::Change;
use kilnyard_schema::package::{Attempted, Blame, Stalls, Why};
use kilnyard_store::{BuildRow, PackageRow, PlanRow, RunRow, Store};
use std::collections::BTreeMap;

/// The maximum number of builds read.
const ATTEMPTS_MAX: usize = 20;
/// The longest chain of blame that is followed.
const CHAIN_MAX: usize = 50;

/// What is known of the state of a package. `planned` is its row of the current plan, if there is one. Absent if neither
/// the plan nor the last run has it.
///
/// # Errors
/// The store or the tree cannot be read.
pub fn why(yard: &Yard, store: &dyn Store, name: &str, planned: Option<PlanRow>) -> Result<Option<Why>> {
    Whys::read(yard, store)?.of(name, planned)
}

/// What is read once to answer for several packages.
pub struct Whys<'a> {
    yard: &'a Yard,
    store: &'a dyn Store,
    /// The runs, the latest first.
    runs: Vec<RunRow>,
    provenances: BTreeMap<String, String>,
}

impl<'a> Whys<'a> {
    /// Reads what concerns all packages.
    ///
    /// # Errors
    /// The store or the tree cannot be read.
    pub fn read(yard: &'a Yard, store: &'a dyn Store) -> Result<Whys<'a>> {
        let runs = store.runs().map_err(store_error)?;
        Ok(Whys { yard, store, runs, provenances: yard.config.family.provenances(yard)? })
    }

    /// See [`why`].
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn of(&self, name: &str, planned: Option<PlanRow>) -> Result<Option<Why>> {
        let Whys { yard, store, .. } = *self;
        let run = self.runs.first().map(|run| run.number);
        let in_run = match run {
            Some(run) => store.package(run, name).map_err(store_error)?,
            None => None,
        };
        // A package that is now left out may have been in an earlier run, whose state is obsolete.
        let now = planned.clone().map(|planned| planned.package);
        let left_out = now.clone().filter(|row| row.state == PackageState::LeftOut);
        let Some(row) = left_out.or(in_run).or(now) else { return Ok(None) };
        let mut builds = store.builds_of(name, ATTEMPTS_MAX).map_err(store_error)?;
        // The tries of one run belong together.
        let last_run = builds.first().map(|build| build.run);
        let changes = self.changes(name, &builds);
        let chain = chain(store, run, &row)?;
        let settings = yard.config.settings_of(name);
        let stalls =
            stalls(&builds).filter(|stalls| settings.clone().confined(stalls.traps_per_second).is_confined());
        builds.retain(|build| Some(build.run) == last_run);
        Ok(Some(Why {
            package: name.to_owned(),
            source: self.provenances.get(name).cloned(),
            changes,
            state: row.state.to_string(),
            reason: row.reason.to_string(),
            blamed: row.blamed,
            chain: chain.into_iter().map(blame).collect(),
            dependencies: planned.map(|planned| planned.dependencies),
            note: settings.note,
            expected: settings.expected_failure.as_ref().map(|_| "failure".to_owned()),
            because: settings.expected_failure.and_then(|expected| expected.because),
            network: settings.has_network,
            priority: settings.priority,
            stalls,
            build: builds.first().map(attempted),
            attempts: builds.iter().rev().map(attempted).collect(),
            version: row.version,
            why: row.reason,
        }))
    }

    /// The commits that concern a package, between the run of its last build and that of the build before.
    fn changes(&self, name: &str, builds: &[BuildRow]) -> Vec<Change> {
        let Some(last) = builds.first().map(|build| build.run) else { return Vec::new() };
        let before = builds.iter().map(|build| build.run).find(|run| *run != last);
        let commits =
            |number: u64| self.runs.iter().find(|run| run.number == number).map(|run| &run.commits[..]);
        match (before.and_then(commits), commits(last)) {
            (Some(before), Some(last)) => commits::between(self.yard, before, last, Some(name)),
            _ => Vec::new(),
        }
    }
}

/// The last build outside of a virtual machine, if the kernel trapped anything there.
fn stalls(builds: &[BuildRow]) -> Option<Stalls> {
    let is_outside = |build: &&BuildRow| {
        !build.stages.is_empty() && !build.stages.iter().any(|stage| stage.measures.is_in_machine)
    };
    let build = builds.iter().find(is_outside)?;
    let traps_per_second = build.stages.iter().map(StageResult::traps_per_second).fold(0.0, f64::max);
    (traps_per_second > 0.0).then_some(Stalls { build: build.number, traps_per_second })
}

fn blame(row: PackageRow) -> Blame {
    let (state, reason) = (row.state.to_string(), row.reason.to_string());
    Blame { package: row.name, state, reason, why: row.reason }
}

fn attempted(build: &BuildRow) -> Attempted {
    Attempted {
        build: build.number,
        run: build.run,
        outcome: build.outcome.to_string(),
        failure: build.failure.clone(),
        kept: build.kept(),
    }
}

/// The chain from a package to the one to blame.
fn chain(store: &dyn Store, run: Option<u64>, row: &PackageRow) -> Result<Vec<PackageRow>> {
    let mut chain = Vec::new();
    let mut next = row.blamed.clone();
    while let (Some(name), Some(run)) = (next, run) {
        let Some(row) = store.package(run, &name).map_err(store_error)? else { break };
        next = row.blamed.clone().filter(|_| chain.len() < CHAIN_MAX);
        chain.push(row);
    }
    Ok(chain)
}
