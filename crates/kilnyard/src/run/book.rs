//! A run in the store: the initial state of its packages, and the recorder's reads and writes.

use super::logs::LogKeeper;
use super::taken::TakenOver;
use crate::plan::Planned;
use crate::words::now_seconds;
use kilnyard_coordinator::{KeptOutputs, Reloaded, Start};
use kilnyard_driver::{Ledger, Loaded};
use kilnyard_ecosystem::Ecosystem;
use kilnyard_model::graph::PackageId;
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{BuildOutcome, PackageState};
use kilnyard_store::{
    BuildRow, Current, Holder, Leadership, Number, PackageRow, Record, Request, RunState, Store, StoreError,
};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Packages whose outputs from before the run must not be used: the reason, and the build that made them.
#[derive(Clone, Debug)]
pub struct Unusable(HashMap<String, (Reason, Number)>);

impl Unusable {
    pub fn of(planned: &Planned) -> Unusable {
        let unusable = planned.unusable.iter().filter_map(|(name, reason)| {
            Some((name.clone(), (reason.clone(), planned.current.get(name)?.build)))
        });
        Unusable(unusable.collect())
    }

    /// Whether these outputs must not be used. Outputs made during the run may be.
    pub fn is(&self, kept: &Current) -> bool {
        self.0.get(&kept.package).is_some_and(|(_, build)| *build == kept.build)
    }

    /// Why the outputs of a package must not be used.
    pub fn reason(&self, package: &str) -> Option<&Reason> {
        self.0.get(package).map(|(reason, _)| reason)
    }
}

/// The packages of a run, as the coordinator starts with them.
#[derive(Clone)]
pub struct Beginnings {
    pub set: Arc<dyn Ecosystem>,
    /// The packages that are part of the run.
    pub included: HashSet<PackageId>,
    pub unusable: Unusable,
}

impl Beginnings {
    /// The initial state of each package, from its outputs and the earlier decisions of the run.
    pub fn starts(&self, current: &HashMap<String, Current>, decided: &[PackageRow]) -> Vec<Start> {
        let graph = self.set.graph();
        let left_out: HashMap<&str, &str> =
            self.set.left_out().iter().map(|l| (l.name.as_str(), l.explanation.as_str())).collect();
        let start = |id: PackageId| {
            let name = graph.name(id);
            let explanation = left_out.get(name);
            let kept = current.get(name).map(|current| KeptOutputs {
                recipe_version: current.recipe_version.clone(),
                revision: current.revision,
                contents: current
                    .outputs
                    .iter()
                    // Unusable outputs are replaced, even by ones of the same content.
                    .filter(|_| !self.unusable.is(current))
                    .map(|output| (output.name.clone(), output.content.clone()))
                    .collect(),
            });
            Start {
                state: if explanation.is_some() { PackageState::LeftOut } else { PackageState::Waiting },
                reason: explanation.map_or(Reason::Undecided, |text| Reason::impossible(*text)),
                blamed: None,
                is_in_run: self.included.contains(&id),
                recipe_version: self.set.version(id),
                kept,
                published_revision: self.set.published_revision(id),
            }
        };
        let mut starts: Vec<Start> = graph.packages().map(start).collect();
        for row in decided {
            let Some(id) = graph.find(&row.name) else { continue };
            let stays = matches!(
                row.state,
                PackageState::Built | PackageState::Unchanged | PackageState::Failed | PackageState::Skipped
            );
            if stays && starts[id.index()].state != PackageState::LeftOut {
                starts[id.index()].state = row.state;
                starts[id.index()].reason = row.reason.clone();
            }
        }
        starts
    }
}

/// A run in the store.
pub struct Book<'a> {
    pub store: &'a mut dyn Store,
    pub run: Number,
    pub beginnings: Beginnings,
    /// This process.
    pub holder: Holder,
    /// Stores the logs of what is recorded.
    pub logs: LogKeeper,
}

impl Book<'_> {
    /// Resumes the run: its open builds are lost, except those that are taken over.
    pub fn resume(&mut self, taken: &[TakenOver]) -> Result<(), StoreError> {
        let mut records =
            vec![Record::Run { run: self.run, state: RunState::Running, at_seconds: now_seconds() }];
        let mut builds = self.store.builds_in(self.run)?;
        builds.retain(|build| taken.iter().all(|taken| taken.open.build != build.number));
        records.extend(lost(&builds));
        self.store.record(&records)
    }
}

impl Ledger for Book<'_> {
    fn record(&mut self, records: &[Record]) -> Result<(), StoreError> {
        self.store.record(records)?;
        self.logs.note(records);
        Ok(())
    }

    fn requests(&mut self) -> Result<Vec<Request>, StoreError> {
        self.store.take_requests()
    }

    fn renew(&mut self) -> Result<(), StoreError> {
        self.store.renew()
    }

    fn load(&mut self) -> Result<Loaded, StoreError> {
        // Becoming the leader again fences a commit of unknown outcome; the next number is then above its numbers.
        let Leadership { epoch, next_build } = self.store.lead(&self.holder)?;
        let decided = self.store.packages(self.run)?;
        let reasons: HashMap<&str, &Reason> =
            decided.iter().map(|row| (row.name.as_str(), &row.reason)).collect();
        let open = self.store.builds_in(self.run)?.into_iter().filter(|row| row.ended_seconds.is_none());
        let open = open.filter_map(|row| {
            let reason = (*reasons.get(row.package.as_str())?).clone();
            Some((row, reason))
        });
        let open = open.collect();
        let current = self.store.all_current()?.into_iter().map(|row| (row.package.clone(), row)).collect();
        let starts = self.beginnings.starts(&current, &decided);
        let graph = self.beginnings.set.graph();
        let outputs = current.into_iter().filter_map(|(name, row)| Some((graph.find(&name)?, row.outputs)));
        Ok(Loaded { run: Reloaded { starts, open, next_build }, outputs: outputs.collect(), epoch })
    }
}

/// Records that open builds are lost.
pub fn lost(builds: &[BuildRow]) -> Vec<Record> {
    let open = builds.iter().filter(|build| build.ended_seconds.is_none());
    let lost = open.map(|build| Record::BuildEnded {
        build: build.number,
        at_seconds: now_seconds(),
        outcome: BuildOutcome::Lost,
        failure: None,
        is_reproducible: None,
    });
    lost.collect()
}
