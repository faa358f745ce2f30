//! The yard's memory: runs, packages, builds, outputs, requests, plans, events.
//!
//! The coordinator writes [`Record`]s, all of one decision in one transaction, before acting on them; so
//! after a crash the store says what was decided, and nothing half. Readers in other processes see the
//! last whole decision. There is one writer of a run, the coordinator, which takes the lead ([`Store::lead`]): every lead has a
//! number, and earlier leaders are refused, however late their transactions come. Other
//! commands only leave [`Request`]s, which it takes.
//!
//! The records of a decision are reported by [`Event`]s of the same transaction, which a reader can follow. All that a store gives is of
//! one [`Scope`]: a farm, a yard in it, and what the yard builds for.
//!
//! This crate is the contract alone: [`Store`], the rows and records that it takes and gives, and [`StoreError`]. It knows no
//! database, so that the coordinator compiles without one; each store is a crate of its own that stands above this one.
//! The feature `suite` adds the tests that every store has to pass, for its tests alone.

mod error;
mod event;
mod rows;
#[cfg(feature = "suite")]
pub mod suite;

pub use error::{Cause, StoreError};
pub use event::{EVENT_RUNS_MAX, EVENT_VERSION, Event, Happening, Ids};
pub use rows::{
    BuildRow, Current, ForcedRun, LastBuild, MEASURED_MAX, MeasuredStage, Measurement, OutputRow, PackageRow,
    Plan, PlanRow, PlanRowSeen, Record, Request, RequestKind, RunRow, RunState,
};

use kilnyard_model::identity::Scope;

/// A number that counts up: of runs, of builds, of leads and of events.
pub type Number = u64;

/// What who leads a yard gets from its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lead {
    /// The number of this lead, which fences those before it.
    pub epoch: Number,
    /// The first number of a build that is free. Nothing else takes numbers while this lead lasts.
    pub next_build: Number,
}

/// What every store promises. It can be moved to a thread of its own. What it reads and writes is of one [`Scope`].
pub trait Store: Send {
    /// Whose the rows are.
    fn scope(&self) -> &Scope;
    /// Takes the lead: from now on only this connection begins runs and writes records, until another one takes the lead.
    fn lead(&mut self) -> Result<Lead, StoreError>;
    /// Begins a run of these packages; its number.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] where this connection does not lead.
    fn begin_run(&mut self, run: &RunRow, packages: &[PackageRow]) -> Result<Number, StoreError>;
    /// Writes the records of one decision and their events, all or none.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] where this connection does not lead; [`StoreError::Used`] where a build has a number or an attempt that
    /// a build of before had, or a number below one.
    fn record(&mut self, records: &[Record]) -> Result<(), StoreError>;
    /// All runs, the latest first.
    fn runs(&self) -> Result<Vec<RunRow>, StoreError>;
    /// The latest run.
    fn last_run(&self) -> Result<Option<RunRow>, StoreError>;
    /// The packages of a run, ordered by name.
    fn packages(&self, run: Number) -> Result<Vec<PackageRow>, StoreError>;
    /// One package of a run.
    fn package(&self, run: Number, name: &str) -> Result<Option<PackageRow>, StoreError>;
    /// The packages of a run in one state, ordered by name.
    fn packages_in_state(
        &self,
        run: Number,
        state: kilnyard_model::result::PackageState,
    ) -> Result<Vec<PackageRow>, StoreError>;
    /// How many packages of a run are in each state.
    fn counts(&self, run: Number) -> Result<Vec<(kilnyard_model::result::PackageState, u64)>, StoreError>;
    /// The builds of a package, the latest first, at most this many.
    fn builds_of(&self, name: &str, count_max: usize) -> Result<Vec<BuildRow>, StoreError>;
    /// The builds of a run, in the order of their numbers.
    fn builds_in(&self, run: Number) -> Result<Vec<BuildRow>, StoreError>;
    /// The builds of a run that have not ended, in the order of their slots.
    fn builds_open(&self, run: Number) -> Result<Vec<BuildRow>, StoreError>;
    /// The last build of every package that has one.
    fn last_builds(&self) -> Result<Vec<LastBuild>, StoreError>;
    /// What a package's last good build left.
    fn current(&self, name: &str) -> Result<Option<Current>, StoreError>;
    /// The same for every package that has any; without the lines of keys.
    fn all_current(&self) -> Result<Vec<Current>, StoreError>;
    /// Wall and CPU seconds of the last successful build of every package; of one that was never built here those that
    /// were imported.
    fn durations(&self) -> Result<Vec<(String, f64, f64)>, StoreError>;
    /// What the last builds of every package took, at most [`MEASURED_MAX`] of each and the latest last; of one that was
    /// never built here nothing.
    fn measured(&self) -> Result<Vec<(String, Vec<Measurement>)>, StoreError>;
    /// Keeps wall and CPU seconds that are known from elsewhere, in place of such as were imported for the same
    /// packages before.
    fn import_durations(&mut self, durations: &[(String, f64, f64)]) -> Result<(), StoreError>;
    /// The number that a next build would have, by which is seen whether there were builds meanwhile. Who begins builds takes the
    /// number from [`lead`](Store::lead).
    fn next_build(&self) -> Result<Number, StoreError>;
    /// Leaves a request for the yard's process.
    fn request(&mut self, kind: RequestKind, package: &str, at_seconds: f64) -> Result<(), StoreError>;
    /// Takes all requests, in the order in which they came.
    fn take_requests(&mut self) -> Result<Vec<Request>, StoreError>;
    /// Keeps a plan, in place of the one before.
    fn save_plan(&mut self, plan: &Plan) -> Result<(), StoreError>;
    /// The plan that was kept, with its packages.
    fn plan(&self) -> Result<Option<Plan>, StoreError>;
    /// The same without its packages.
    fn plan_head(&self) -> Result<Option<Plan>, StoreError>;
    /// Gives the packages of the plan that was kept, one by one and ordered by name, until `each` is false.
    /// A release has 30,000 of them: who only passes them on need not hold them.
    fn each_planned(&self, each: &mut dyn FnMut(PlanRowSeen) -> bool) -> Result<(), StoreError>;
    /// One package of the plan that was kept.
    fn planned(&self, name: &str) -> Result<Option<PlanRow>, StoreError>;
    /// The events after that of this number, in their order, at most this many; empty if there are none.
    fn events_since(&self, seq: Number, count_max: usize) -> Result<Vec<Event>, StoreError>;
    /// The number of the latest event; 0 where there was none.
    fn last_event(&self) -> Result<Number, StoreError>;
    /// Outputs that are there now, of all packages, ordered by name and then by package.
    fn outputs(&self) -> Result<Vec<OutputRow>, StoreError>;
    /// Calls `read` once, with a store in which everything is as it was at one moment, whatever other processes write
    /// meanwhile. See [`at_once`](#method.at_once), which returns what was read.
    fn read_at_once(&self, read: &mut dyn FnMut(&dyn Store)) -> Result<(), StoreError>;
}

impl dyn Store + '_ {
    /// Reads several things as they are together, whatever other processes write meanwhile.
    pub fn at_once<T>(&self, read: impl FnOnce(&dyn Store) -> T) -> Result<T, StoreError> {
        let (mut read, mut seen) = (Some(read), None);
        self.read_at_once(&mut |store| seen = read.take().map(|read| read(store)))?;
        seen.ok_or_else(|| StoreError::Other {
            store: String::from("of this yard"),
            source: "it gave nothing to read".into(),
        })
    }
}
