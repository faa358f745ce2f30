//! All rows of a run in memory. A reader that asks often, such as the server of the pages, follows the events of the store
//! in place of reading 30,000 rows for each answer.

use crate::error::{Error, Result};
use crate::yard::store_error;
use kilnyard_model::result::PackageState;
use kilnyard_store::{BuildRow, Number, PackageRow, RunRow, Store};
use std::collections::{BTreeMap, BTreeSet};

/// The number of events read at once.
const EVENTS_MAX: usize = 4096;
/// The number of packages from which all are read again: that is faster than one by one.
const TOUCHED_MAX: usize = 1000;

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct Picture {
    /// The run.
    pub run: RunRow,
    /// Its packages, ordered by name.
    pub rows: Vec<PackageRow>,
    /// The builds of each of them, in the same order; the latest last.
    pub builds: Vec<Vec<BuildRow>>,
    /// The last event that it includes.
    pub seq: Number,
}

impl Picture {
    /// Reads a run.
    ///
    /// # Errors
    /// The store cannot be read, or has no such run.
    pub fn read(store: &dyn Store, run: Number) -> Result<Picture> {
        let read = |store: &dyn Store| -> Result<Picture> {
            let seq = store.last_event().map_err(store_error)?;
            let found = run_of(store, run)?;
            let rows = store.packages(run).map_err(store_error)?;
            let mut builds: Vec<Vec<BuildRow>> = vec![Vec::new(); rows.len()];
            for build in store.builds_in(run).map_err(store_error)? {
                if let Some(place) = place_of(&rows, &build.package) {
                    builds[place].push(build);
                }
            }
            Ok(Picture { run: found, rows, builds, seq })
        };
        store.at_once(read).map_err(store_error)?
    }

    /// Brings it to the present. Returns whether anything has changed.
    ///
    /// # Errors
    /// The store cannot be read. It is as before then, and can be brought to the present later.
    pub fn follow(&mut self, store: &dyn Store) -> Result<bool> {
        let last = store.last_event().map_err(store_error)?;
        if last == self.seq {
            return Ok(false);
        }
        let mut touched: BTreeSet<String> = BTreeSet::new();
        let mut seq = self.seq;
        // An earlier number is that of a store that was restored.
        while last > seq && touched.len() <= TOUCHED_MAX {
            let events = store.events_since(seq, EVENTS_MAX).map_err(store_error)?;
            let Some(end) = events.last() else { break };
            seq = end.seq;
            let own = events.into_iter().filter(|event| event.ids.run == Some(self.run.number));
            touched.extend(own.filter_map(|event| event.ids.package));
        }
        if last < self.seq || touched.len() > TOUCHED_MAX {
            *self = Picture::read(store, self.run.number)?;
            return Ok(true);
        }
        let number = self.run.number;
        let read = |store: &dyn Store| -> Result<_> {
            let run = run_of(store, number)?;
            let mut changed = Vec::new();
            for name in &touched {
                let row = store.package(number, name).map_err(store_error)?;
                let mut builds = store.builds_of(name, BUILDS_MAX).map_err(store_error)?;
                builds.retain(|build| build.run == number);
                builds.reverse();
                changed.push((row, builds));
            }
            Ok((run, changed))
        };
        let (run, changed) = store.at_once(read).map_err(store_error)??;
        self.run = run;
        for (row, builds) in changed {
            let Some(row) = row else { continue };
            match self.rows.binary_search_by(|other| other.name.cmp(&row.name)) {
                Ok(place) => {
                    self.rows[place] = row;
                    self.builds[place] = builds;
                }
                // A run gets all of its packages when it begins.
                Err(_) => return Picture::read(store, number).map(|read| *self = read).map(|()| true),
            }
        }
        self.seq = seq;
        Ok(true)
    }

    /// The place of a package.
    pub fn place(&self, name: &str) -> Option<usize> {
        place_of(&self.rows, name)
    }

    /// The last build of a package in the run.
    pub fn last_build(&self, place: usize) -> Option<&BuildRow> {
        self.builds[place].last()
    }

    /// The number of packages in each state that has any.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for state in PackageState::ALL {
            let count = self.rows.iter().filter(|row| row.state == state).count() as u64;
            if count > 0 {
                counts.insert(state.to_string(), count);
            }
        }
        counts
    }

    /// The packages in one of these states.
    pub fn in_state(&self, states: &[PackageState]) -> impl Iterator<Item = (usize, &PackageRow)> {
        self.rows.iter().enumerate().filter(move |(_, row)| states.contains(&row.state))
    }
}

/// The most builds of a package in a run: retries have a bound that is far below.
const BUILDS_MAX: usize = 100;

fn place_of(rows: &[PackageRow], name: &str) -> Option<usize> {
    rows.binary_search_by(|row| row.name.as_str().cmp(name)).ok()
}

/// The run of this number.
///
/// # Errors
/// There is none, or the store cannot be read.
pub fn run_of(store: &dyn Store, run: Number) -> Result<RunRow> {
    let last = store.last_run().map_err(store_error)?.filter(|last| last.number == run);
    if let Some(last) = last {
        return Ok(last);
    }
    let runs = store.runs().map_err(store_error)?;
    runs.into_iter()
        .find(|row| row.number == run)
        .ok_or_else(|| Error::usage(format!("there is no run {run}")))
}
