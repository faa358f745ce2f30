//! Decisions about packages, and the ways to record them.

use crate::error::{Error, Kind, Result};
use crate::queries::{EPOCH_SECONDS, build_records};
use crate::synthetic;
use crate::yard::store_error;
use kilnyard_model::reason::Reason;
use kilnyard_model::result::PackageState;
use kilnyard_store::{Number, Record, Store};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

/// The decisions about a package: its build begins, five stages end, its build ends.
pub const OF_A_PACKAGE: usize = 7;
/// The processes that decisions come from.
const PRODUCERS: usize = 8;
/// The decisions of each that may wait for their commit, such as those of a machine with this many builds.
const OPEN_MAX: usize = 16;
/// The records after which no further decision joins a transaction, as in a run.
const RECORDS_MAX: usize = 500;

/// Makes the records of decisions of one run.
pub struct Decider {
    run: Number,
    next_build: Number,
    /// The records of each package's later decisions, in reverse.
    later: HashMap<usize, Vec<Vec<Record>>>,
}

impl Decider {
    pub fn new(run: Number, next_build: Number) -> Decider {
        Decider { run, next_build, later: HashMap::new() }
    }

    /// The records of the next decision about a package.
    fn next(&mut self, package: usize) -> Result<Vec<Record>> {
        if let Some(later) = self.later.get_mut(&package) {
            return later.pop().ok_or_else(|| Error::new(Kind::Internal, "a package has no more decisions"));
        }
        let build = self.next_build;
        self.next_build += 1;
        let all = build_records(self.run, build, package, EPOCH_SECONDS, PackageState::Built);
        let mut decisions: Vec<Vec<Record>> = all.into_iter().map(|record| vec![record]).collect();
        if let Some(last) = decisions.last_mut() {
            last.push(Record::Outputs(synthetic::current(package, 1)));
            last.push(self.moved(package, PackageState::Built));
        }
        decisions[0].push(self.moved(package, PackageState::Building));
        decisions.reverse();
        let first = decisions.pop().unwrap_or_default();
        self.later.insert(package, decisions);
        Ok(first)
    }

    fn moved(&self, package: usize, state: PackageState) -> Record {
        Record::Package {
            run: self.run,
            name: synthetic::name(package),
            state,
            reason: Reason::FirstBuild,
            blamed: None,
            at_seconds: EPOCH_SECONDS,
        }
    }
}

/// The packages of decisions, as eight builds at a time make them.
fn in_turn(packages: Range<usize>) -> Vec<usize> {
    let all: Vec<usize> = packages.collect();
    all.chunks(PRODUCERS).flat_map(|some| (0..OF_A_PACKAGE).flat_map(|_| some.to_vec())).collect()
}

/// Records all decisions about these packages, this many in a transaction. Returns how many a second.
pub fn one_by_one(
    store: &mut dyn Store,
    decider: &mut Decider,
    packages: Range<usize>,
    size: usize,
) -> Result<f64> {
    let decided = in_turn(packages);
    let mut batches = Vec::new();
    for some in decided.chunks(size) {
        let records = some.iter().map(|package| decider.next(*package)).collect::<Result<Vec<_>>>()?;
        batches.push(records.concat());
    }
    let began = Instant::now();
    for batch in &batches {
        store.record(batch).map_err(store_error)?;
    }
    Ok(decided.len() as f64 / began.elapsed().as_secs_f64())
}

/// Records all decisions of a run, with as many records in a transaction as a run has at most.
pub fn whole_run(store: &mut dyn Store, decider: &mut Decider, packages: usize) -> Result<()> {
    let mut records = Vec::new();
    for package in in_turn(0..packages) {
        records.extend(decider.next(package)?);
        if records.len() >= RECORDS_MAX {
            crate::check_interrupt()?;
            store.record(&std::mem::take(&mut records)).map_err(store_error)?;
        }
    }
    store.record(&records).map_err(store_error)
}

/// The decisions that came while others were recorded.
pub struct Came {
    pub per_second: f64,
    /// The mean number of decisions of a transaction.
    pub batch_mean: f64,
}

/// A decision about a package, and where its commit is reported.
type Decision = (usize, SyncSender<()>);

/// Records the decisions of several producers: each transaction has those that came during the one before it.
pub fn together(store: &mut dyn Store, decider: &mut Decider, packages: Range<usize>) -> Result<Came> {
    let all: Vec<usize> = packages.collect();
    let count = all.len() * OF_A_PACKAGE;
    let began = Instant::now();
    let batches = std::thread::scope(|scope| {
        // Producers wait for commits before this is full.
        let (sender, decisions) = sync_channel(PRODUCERS * OPEN_MAX);
        for producer in 0..PRODUCERS {
            let (sender, all) = (sender.clone(), &all);
            let own = all.iter().copied().skip(producer).step_by(PRODUCERS).collect::<Vec<usize>>();
            scope.spawn(move || produce(&own, &sender));
        }
        drop(sender);
        record(store, decider, &decisions)
    })?;
    let per_second = count as f64 / began.elapsed().as_secs_f64();
    Ok(Came { per_second, batch_mean: count as f64 / f64::from(batches.max(1)) })
}

/// Decides about these packages, with at most [`OPEN_MAX`] decisions that are not committed.
fn produce(packages: &[usize], sender: &SyncSender<Decision>) {
    let (commit, commits) = sync_channel(OPEN_MAX);
    let mut open = 0;
    for some in packages.chunks(OPEN_MAX) {
        for package in (0..OF_A_PACKAGE).flat_map(|_| some) {
            if open == OPEN_MAX {
                if commits.recv().is_err() {
                    return;
                }
                open -= 1;
            }
            // The recorder has failed.
            if sender.send((*package, commit.clone())).is_err() {
                return;
            }
            open += 1;
        }
    }
}

/// Returns the number of transactions. After an error nothing more is recorded, but all producers are answered, so that they
/// end.
fn record(store: &mut dyn Store, decider: &mut Decider, decisions: &Receiver<Decision>) -> Result<u32> {
    let mut outcome = Ok(0);
    while let Ok(first) = decisions.recv() {
        let (mut records, mut waiting) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some((package, commit)) = next {
            waiting.push(commit);
            match decider.next(package) {
                Ok(own) => records.extend(own),
                Err(error) => outcome = outcome.and(Err(error)),
            }
            next = if records.len() < RECORDS_MAX { decisions.try_recv().ok() } else { None };
        }
        if let Ok(batches) = outcome {
            outcome = store.record(&records).map_err(store_error).map(|()| batches + 1);
        }
        for commit in waiting {
            // A producer that has finished is gone.
            let _ = commit.send(());
        }
    }
    outcome
}
