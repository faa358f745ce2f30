//! A store in memory, which survives its coordinator. It accepts the same records as any store, and checks that they
//! follow the rules.

use kilnyard_coordinator::{Granted, Open};
use kilnyard_model::attempt::Attempt;
use kilnyard_model::graph::Graph;
use kilnyard_model::order::Key;
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{BuildOutcome, FailureKind, PackageState, StageResult};
use kilnyard_store::{Current, Number, Record, RunState};
use std::collections::{BTreeMap, BTreeSet, HashSet};

#[derive(Clone, Debug)]
pub struct Row {
    pub package: String,
    pub version: String,
    pub slot: u32,
    pub outcome: BuildOutcome,
    pub stages: Vec<StageResult>,
    /// Its attempt and worker; `None` if it was not granted.
    pub grant: Option<(Attempt, String)>,
}

#[derive(Clone, Debug, Default)]
pub struct Memory {
    pub builds: BTreeMap<Number, Row>,
    pub states: BTreeMap<String, PackageState>,
    reasons: BTreeMap<String, Reason>,
    pub current: BTreeMap<String, Current>,
    pub run: Option<RunState>,
}

/// Everything that was ever recorded, even if the store forgets it. A decision must never be reverted.
#[derive(Clone, Debug, Default)]
pub struct History {
    decided: BTreeMap<String, PackageState>,
    /// The package that each blocked one was last blocked by.
    blamed: BTreeMap<String, String>,
    adopted: BTreeSet<String>,
    attempts: HashSet<Attempt>,
    /// The builds that tests belong to.
    pub tests: BTreeMap<Attempt, Number>,
}

impl Memory {
    /// Writes a decision, with the names of the workers of its grants. The error describes a violation.
    pub fn write(
        &mut self,
        history: &mut History,
        records: &[Record],
        grants: &[(Granted, String)],
    ) -> Result<(), String> {
        let mut ended = BTreeSet::new();
        for record in records {
            match record {
                Record::Package { name, state, reason, blamed, .. } => {
                    self.reasons.insert(name.clone(), reason.clone());
                    // Blocked states follow from other packages, and a restarted coordinator derives them again.
                    let before = history.decided.get(name);
                    // What a worker alone had failed is tried again when it is quarantined.
                    let is_of_quarantined = before == Some(&PackageState::Failed)
                        && matches!(reason, Reason::Retry { cause: FailureKind::Machine, failed: None, .. });
                    // And so is what that blocked.
                    let culprit = history.blamed.get(name);
                    let is_free = before == Some(&PackageState::Blocked)
                        && culprit.is_some_and(|culprit| !history.decided.contains_key(culprit));
                    if is_of_quarantined || is_free {
                        history.decided.remove(name);
                    } else if before.is_some_and(|before| before != state || *before != PackageState::Blocked)
                    {
                        return Err(format!("{name} was decided, and is now {state}"));
                    }
                    if state.is_final() {
                        history.decided.insert(name.clone(), *state);
                        history.blamed.extend(blamed.clone().map(|culprit| (name.clone(), culprit)));
                    }
                    self.states.insert(name.clone(), *state);
                }
                Record::Note(note) => {
                    let is_of_no_build = |build: &u64| !self.builds.contains_key(build);
                    if note.build.as_ref().is_some_and(is_of_no_build) {
                        return Err(format!("an event of a build that has not begun: {note:?}"));
                    }
                }
                Record::BuildBegan(row) => {
                    let (package, version) = (row.package.clone(), row.version.clone());
                    let (outcome, stages) = (BuildOutcome::Building, Vec::new());
                    let (number, slot) = (row.number, row.slot);
                    let row = Row { package, version, slot, outcome, stages, grant: None };
                    // As the shipped store has it.
                    if self.builds.last_key_value().is_some_and(|(last, _)| *last >= number) {
                        return Err(format!("build {number} began after a later one"));
                    }
                    self.builds.insert(number, row);
                }
                Record::StageEnded { build, stage, .. } => {
                    let row = self
                        .builds
                        .get_mut(build)
                        .ok_or_else(|| format!("a stage of the unknown build {build}"))?;
                    if row.outcome != BuildOutcome::Building {
                        return Err(format!("a stage of build {build}, which has ended"));
                    }
                    if row.stages.iter().any(|other| other.stage == stage.stage) {
                        return Err(format!("{} of build {build} was recorded twice", stage.stage));
                    }
                    row.stages.push((**stage).clone());
                }
                Record::BuildEnded { build, outcome, .. } => {
                    let row = self
                        .builds
                        .get_mut(build)
                        .ok_or_else(|| format!("an end of the unknown build {build}"))?;
                    if row.outcome != BuildOutcome::Building {
                        return Err(format!("build {build} ended twice"));
                    }
                    row.outcome = outcome.clone();
                    ended.insert(*build);
                }
                Record::Outputs(current) => self.adopt(history, current, &ended)?,
                Record::Provenance(_) => {}
                Record::PackageAdded { row, .. } => return Err(format!("{} is new in the run", row.name)),
                Record::KeyConfirmed { package, .. } => return Err(format!("{package} was there before")),
                Record::Run { state, .. } => self.run = Some(*state),
            }
        }
        for (granted, worker) in grants {
            // A test belongs to the build that it tests.
            if let Some(to_test) = &granted.to_test {
                let tested = self.builds.get(&to_test.build);
                if tested.is_none_or(|row| row.outcome != BuildOutcome::Building) {
                    return Err(format!("a test of build {}, which is {tested:?}", to_test.build));
                }
                history.tests.insert(granted.attempt, to_test.build);
                continue;
            }
            let row = self.builds.get_mut(&granted.build);
            let row = row.ok_or_else(|| format!("a grant of the unknown build {}", granted.build))?;
            if row.grant.is_none() {
                if !history.attempts.insert(granted.attempt) {
                    return Err(format!("attempt {} is assigned a second time", granted.attempt));
                }
                row.grant = Some((granted.attempt, worker.clone()));
                let same_place = self.builds.iter().find(|(build, other)| {
                    let is_there = other.grant.as_ref().is_some_and(|(_, of)| of == worker);
                    // After its stage, it may wait for a test elsewhere.
                    let is_running = other.outcome == BuildOutcome::Building && other.stages.is_empty();
                    **build != granted.build && is_running && is_there && other.slot == granted.slot
                });
                if let Some((build, _)) = same_place {
                    let (slot, granted) = (granted.slot, granted.build);
                    return Err(format!("builds {build} and {granted} of {worker} have slot {slot}"));
                }
            }
        }
        Ok(())
    }

    /// Adopts outputs: only once, and only from the build that is recorded as their origin and that ended with them.
    fn adopt(
        &mut self,
        history: &mut History,
        current: &Current,
        ended: &BTreeSet<Number>,
    ) -> Result<(), String> {
        let (package, build) = (&current.package, current.build);
        if !history.adopted.insert(package.clone()) {
            return Err(format!("outputs of {package} were adopted twice"));
        }
        let row = self.builds.get(&build).ok_or_else(|| format!("outputs of the unknown build {build}"))?;
        if !ended.contains(&build) || row.outcome != BuildOutcome::Built || row.package != *package {
            return Err(format!("outputs of {package} by build {build}, which is {row:?}"));
        }
        let maker = row.grant.as_ref().map_or(String::new(), |(attempt, _)| attempt.to_string());
        for output in &current.outputs {
            if output.content != maker {
                return Err(format!(
                    "outputs of {package} belong to the dead lease {}, not to {maker}",
                    output.content
                ));
            }
        }
        self.current.insert(package.clone(), current.clone());
        Ok(())
    }

    /// The builds that have not ended.
    pub fn open(&self, graph: &Graph) -> Vec<Open> {
        let open = self.builds.iter().filter(|(_, row)| row.outcome == BuildOutcome::Building);
        let of = |(build, row): (&Number, &Row)| {
            let (attempt, worker) = row.grant.clone()?;
            Some(Open {
                reason: self.reasons.get(&row.package).cloned().unwrap_or_default(),
                build: *build,
                attempt,
                worker,
                slot: row.slot,
                package: graph.find(&row.package)?,
                version: row.version.clone(),
                key: Key { digest: "k".into(), lines: Vec::new() },
                stages: row.stages.clone(),
                began_seconds: 0.0,
            })
        };
        open.filter_map(of).collect()
    }

    /// The attempts whose results were accepted, with their workers; not those of lost builds.
    pub fn results(&self) -> Vec<(Attempt, String)> {
        let is_taken = |row: &&Row| matches!(row.outcome, BuildOutcome::Built | BuildOutcome::Failed);
        self.builds.values().filter(is_taken).filter_map(|row| row.grant.clone()).collect()
    }

    /// How the build of an attempt ended.
    pub fn outcome_of(&self, attempt: Attempt) -> Option<&BuildOutcome> {
        let is_its = |row: &&Row| row.grant.as_ref().is_some_and(|(other, _)| *other == attempt);
        self.builds.values().find(is_its).map(|row| &row.outcome)
    }

    /// The worker that an attempt was granted to.
    pub fn worker_of(&self, attempt: Attempt) -> Option<&String> {
        let grants = self.builds.values().filter_map(|row| row.grant.as_ref());
        grants.into_iter().find(|(other, _)| *other == attempt).map(|(_, worker)| worker)
    }

    /// The attempt of a package's open build, with its worker.
    pub fn live(&self, package: &str) -> Option<(Attempt, String)> {
        let is_live = |row: &&Row| row.package == package && row.outcome == BuildOutcome::Building;
        self.builds.values().find(is_live).and_then(|row| row.grant.clone())
    }

    pub fn next_build(&self) -> Number {
        self.builds.last_key_value().map_or(1, |(build, _)| build + 1)
    }
}
