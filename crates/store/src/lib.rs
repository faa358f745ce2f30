//! The persistent state of a yard: runs, packages, builds, outputs, requests, plans, events.
//!
//! The coordinator writes all [`Record`]s of a decision in one transaction, before acting on them. After a crash the
//! store therefore contains whole decisions only. Readers in other processes see the last whole decision. A run has one
//! writer, the coordinator, which becomes the leader ([`Store::lead`]). Every leader gets a new number, the epoch, and
//! transactions of earlier leaders are refused, however late they come. Other commands only leave [`Request`]s, which
//! the coordinator takes.
//!
//! [`Event`]s in the same transaction report the records of a decision, so that readers can follow them. A store
//! reads and writes the rows of one [`Scope`]: a farm, a yard in it, and the target that the yard builds for.
//!
//! This crate contains only the contract: [`Store`], its rows and records, and [`StoreError`]. It does not depend on a
//! database, so that the coordinator compiles without one; each store is a separate crate above this one. The feature
//! `suite` adds the tests that every store must pass; only the tests of stores enable it.

pub mod copy;
mod error;
mod event;
mod lead;
mod rows;
#[cfg(feature = "suite")]
pub mod suite;

pub use error::{Cause, StoreError};
pub use event::{EVENT_RUNS_MAX, EVENT_VERSION, Event, EventKind, Ids, Note, WorkerChange};
pub use lead::{Holder, Leader, Leadership, RENEW_SECONDS, SILENT_SECONDS_MAX};
pub use rows::{
    BuildRow, Current, ForcedRun, LastBuild, MEASURED_MAX, MeasuredStage, Measurement, OutputRow, PackageRow,
    Plan, PlanRow, PlanRowSeen, Provenance, Record, Request, RequestKind, RunCommit, RunRow, RunState,
};

use kilnyard_model::identity::Scope;
use std::time::Duration;

/// The number of a run, build, epoch or event. Numbers only increase.
pub type Number = u64;

/// The contract of every store. A store can be moved to another thread. It reads and writes the rows of one [`Scope`].
pub trait Store: Send {
    /// The farm, yard and target whose rows are read and written.
    fn scope(&self) -> &Scope;
    /// Makes this connection the leader: until another one becomes the leader, only this one may begin runs and write
    /// records.
    ///
    /// # Errors
    /// [`StoreError::Led`] if several machines can open the store, and a leader with another id is alive.
    fn lead(&mut self, holder: &Holder) -> Result<Leadership, StoreError>;
    /// Shows that this leader is alive, as each write of it does. A leader does this every [`RENEW_SECONDS`].
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if this connection is not the leader.
    fn renew(&mut self) -> Result<(), StoreError>;
    /// Gives up the leadership: another process can take it at once, and this one writes no more.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if this connection is not the leader.
    fn leave(&mut self) -> Result<(), StoreError>;
    /// The latest leader. Absent before the first one, and in a store that only one machine can open, where the lock of its
    /// folder decides who leads.
    fn leader(&self) -> Result<Option<Leader>, StoreError>;
    /// Begins a run of these packages, and returns its number.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if this connection is not the leader.
    fn begin_run(&mut self, run: &RunRow, packages: &[PackageRow]) -> Result<Number, StoreError>;
    /// Writes the records of one decision and their events, all or none.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if this connection is not the leader; [`StoreError::Used`] if a build's attempt was used
    /// before, or its number is not above all numbers used before.
    fn record(&mut self, records: &[Record]) -> Result<(), StoreError>;
    /// All runs, the latest first.
    fn runs(&self) -> Result<Vec<RunRow>, StoreError>;
    /// The latest run; absent before the first.
    fn last_run(&self) -> Result<Option<RunRow>, StoreError>;
    /// The packages of a run, ordered by name.
    fn packages(&self, run: Number) -> Result<Vec<PackageRow>, StoreError>;
    /// One package of a run; absent if the run does not have it.
    fn package(&self, run: Number, name: &str) -> Result<Option<PackageRow>, StoreError>;
    /// The packages of a run in one state, ordered by name.
    fn packages_in_state(
        &self,
        run: Number,
        state: kilnyard_model::result::PackageState,
    ) -> Result<Vec<PackageRow>, StoreError>;
    /// The number of packages of a run in each state, without states that have none.
    fn counts(&self, run: Number) -> Result<Vec<(kilnyard_model::result::PackageState, u64)>, StoreError>;
    /// The builds of a package, the latest first, at most this many.
    fn builds_of(&self, name: &str, count_max: usize) -> Result<Vec<BuildRow>, StoreError>;
    /// The builds of a run, ordered by number.
    fn builds_in(&self, run: Number) -> Result<Vec<BuildRow>, StoreError>;
    /// The builds of a run that have not ended, ordered by slot.
    fn builds_open(&self, run: Number) -> Result<Vec<BuildRow>, StoreError>;
    /// The last build of every package that has one.
    fn last_builds(&self) -> Result<Vec<LastBuild>, StoreError>;
    /// The current outputs of a package; absent if it has never been built successfully.
    fn current(&self, name: &str) -> Result<Option<Current>, StoreError>;
    /// The current outputs of all packages, without the lines of their keys.
    fn all_current(&self) -> Result<Vec<Current>, StoreError>;
    /// Wall and CPU seconds of every package's last successful build, or the imported ones if it was never built here.
    fn durations(&self) -> Result<Vec<(String, f64, f64)>, StoreError>;
    /// Resource usage of the last builds of every package that was built here: at most [`MEASURED_MAX`] of each that
    /// began with kept work, and as many others, the latest last.
    fn measured(&self) -> Result<Vec<(String, Vec<Measurement>)>, StoreError>;
    /// Stores wall and CPU seconds from elsewhere, replacing those imported for the same packages before.
    fn import_durations(&mut self, durations: &[(String, f64, f64)]) -> Result<(), StoreError>;
    /// The builds with outputs of a worker of this name: package and number.
    fn made_by(&self, worker: &str) -> Result<Vec<(String, Number)>, StoreError>;
    /// The CPU time, in seconds, of builds that began at the first of these times or later, and are in progress or ended at the
    /// second or later: of their stages that have ended. Both are in seconds since 1970.
    fn cpu_seconds_of(&self, began_from: f64, ended_from: f64) -> Result<f64, StoreError>;
    /// Who built the current outputs of a package; absent if that is not known.
    fn provenance(&self, package: &str) -> Result<Option<Provenance>, StoreError>;
    /// The pools of the workers that built the current outputs: package, worker and pool, as far as they are known.
    fn pools(&self) -> Result<Vec<(String, String, String)>, StoreError>;
    /// The number that the next build would get. It shows readers whether there were builds in the meantime; to begin
    /// builds, use the number from [`lead`](Store::lead).
    fn next_build(&self) -> Result<Number, StoreError>;
    /// Leaves a request for the process that runs the yard. The event names the author, a user.
    fn request(
        &mut self,
        kind: RequestKind,
        package: &str,
        author: &str,
        at_seconds: f64,
    ) -> Result<(), StoreError>;
    /// Writes an event that changes nothing else. A process that is not the leader may do so, too; the event then has the
    /// epoch of the leader.
    fn note(&mut self, note: &Note) -> Result<(), StoreError>;
    /// Takes and removes all requests, the oldest first.
    fn take_requests(&mut self) -> Result<Vec<Request>, StoreError>;
    /// Stores a plan, replacing the previous one.
    fn save_plan(&mut self, plan: &Plan) -> Result<(), StoreError>;
    /// The stored plan with its packages; absent if none was saved.
    fn plan(&self) -> Result<Option<Plan>, StoreError>;
    /// The stored plan without its packages.
    fn plan_head(&self) -> Result<Option<Plan>, StoreError>;
    /// Calls `each` with the packages of the stored plan, ordered by name, until it returns `false`. A release has
    /// 30,000 packages, so callers should not collect them without need.
    fn each_planned(&self, each: &mut dyn FnMut(PlanRowSeen) -> bool) -> Result<(), StoreError>;
    /// One package of the stored plan.
    fn planned(&self, name: &str) -> Result<Option<PlanRow>, StoreError>;
    /// The events with numbers above `seq`, in order, at most `count_max`.
    fn events_since(&self, seq: Number, count_max: usize) -> Result<Vec<Event>, StoreError>;
    /// The latest events of requests, at most `count_max`, the latest first: who asked for what.
    fn requests_made(&self, count_max: usize) -> Result<Vec<Event>, StoreError>;
    /// Waits until there may be events with numbers above `after`, but at most this long. Also returns without events:
    /// the caller reads them, and waits again.
    fn wait_for_events(&self, after: Number, at_most: Duration) -> Result<(), StoreError>;
    /// The number of the latest event; 0 if there has been none.
    fn last_event(&self) -> Result<Number, StoreError>;
    /// The current outputs of all packages, ordered by name and then by package.
    fn outputs(&self) -> Result<Vec<OutputRow>, StoreError>;
    /// Checks the whole store, as far as it can be checked without its history: this may take as long as reading it.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if something is wrong.
    fn check(&self) -> Result<(), StoreError>;
    /// Calls `read` once, with a snapshot of the store that does not change, even while other processes write. See
    /// [`at_once`](#method.at_once), which returns the result of `read`.
    fn read_at_once(&self, read: &mut dyn FnMut(&dyn Store)) -> Result<(), StoreError>;
}

impl dyn Store + '_ {
    /// Reads from one consistent snapshot, even while other processes write.
    pub fn at_once<T>(&self, read: impl FnOnce(&dyn Store) -> T) -> Result<T, StoreError> {
        let (mut read, mut seen) = (Some(read), None);
        self.read_at_once(&mut |store| seen = read.take().map(|read| read(store)))?;
        seen.ok_or_else(|| StoreError::Other {
            store: String::from("of this yard"),
            source: "it provided no snapshot".into(),
        })
    }
}
