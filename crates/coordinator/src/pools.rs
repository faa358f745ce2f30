//! Pools and roles: which workers may build, test or verify a package.
//!
//! - A package that other packages need is built in trusted pools alone, so that nothing flows from a pool that is not
//!   trusted into one that is.
//! - A worker without the role `test` does not test what it built; another worker does, before anything uses it.
//! - A share of packages is built again in another pool, and compared, before anything uses them. The worker cannot know
//!   which: the choice is made when its result is recorded.
//!
//! The scheduler knows classes: one for each combination of pool and roles.

use crate::{Action, Coordinator, Ending, Notice};
use kilnyard_model::attempt::Attempt;
use kilnyard_model::graph::PackageId;
use kilnyard_model::order::{Output, TestOrder};
use kilnyard_model::provenance::Signed;
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{BuildOutcome, PackageState};
use kilnyard_model::role::Role;
use kilnyard_protocol::ToWorker;
use kilnyard_schedule::{Class, Classes, Event as ScheduleEvent};
use kilnyard_store::{Number, Record};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The pool of the worker on the coordinator's own machine.
pub const OWN_POOL: &str = "yard";
/// The number of classes that the scheduler has bits for.
const CLASSES_MAX: usize = 64;

/// What the coordinator knows of a worker, apart from what the worker says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Whether it takes no builds.
    pub is_held: bool,
    /// Its pool.
    pub pool: String,
    /// Whether other packages may be built with what it makes.
    pub is_trusted: bool,
    /// What it takes part in.
    pub roles: BTreeSet<Role>,
}

impl Standing {
    /// The standing of the coordinator's own machine.
    fn own() -> Standing {
        Standing { is_held: false, pool: OWN_POOL.to_owned(), is_trusted: true, roles: Role::all() }
    }

    /// The standing of a worker that the caller has not named yet.
    fn unknown() -> Standing {
        Standing { is_held: true, pool: String::new(), is_trusted: false, roles: BTreeSet::new() }
    }
}

/// The workers and their classes.
#[derive(Clone, Debug)]
pub(crate) struct Pools {
    /// By name, as the caller last said; none if it never did.
    standings: Option<BTreeMap<String, Standing>>,
    /// The standings of each class.
    classes: Vec<Standing>,
    /// The share of packages that are verified.
    pub verified_share: f64,
    /// Packages that others are built with in a second pass.
    knotted: BTreeSet<PackageId>,
    /// Packages that are tests of others.
    tests: BTreeSet<PackageId>,
    /// Whether a worker that tests is there, as far as tests are confined by that.
    has_tester: bool,
    /// Whether the outputs of a build are tested as a job of its own.
    tests_apart: bool,
    /// Whether any package has had a further round: most runs have none.
    pub has_rounds: bool,
}

impl Default for Pools {
    fn default() -> Pools {
        Pools {
            standings: None,
            classes: vec![Standing::own()],
            verified_share: 0.0,
            knotted: BTreeSet::new(),
            tests: BTreeSet::new(),
            has_tester: false,
            tests_apart: false,
            has_rounds: false,
        }
    }
}

/// What is left to do for a package whose first build succeeded.
#[derive(Clone, Debug)]
pub(crate) enum Round {
    /// Another worker tests it.
    Test(Arc<ToTest>),
    /// Another pool builds it again.
    Verify {
        /// Who built it: a worker and its pool.
        worker: String,
        pool: String,
        /// Why it was built.
        reason: Reason,
    },
}

/// Outputs that another worker than their builder tests.
#[derive(Clone, Debug, PartialEq)]
pub struct ToTest {
    /// The build that made them.
    pub build: Number,
    /// The outputs.
    pub outputs: Vec<Output>,
    /// How they are tested.
    pub order: TestOrder,
    /// The builder, and its lease.
    pub worker: String,
    /// See [`ToTest::worker`].
    pub attempt: Attempt,
    /// The core time of its stages.
    pub core_seconds: f64,
    /// Why it was built.
    pub reason: Reason,
    /// The builder's signature.
    pub provenance: Option<Signed>,
}

impl Round {
    /// The round and the reason of a build that began with this reason in an earlier coordinator.
    pub fn taken_over(reason: Reason) -> (Option<Round>, Reason) {
        match reason {
            Reason::Verify { worker, pool, reason } => {
                let verify =
                    Reason::Verify { worker: worker.clone(), pool: pool.clone(), reason: reason.clone() };
                (Some(Round::Verify { worker, pool, reason: *reason }), verify)
            }
            // Its worker still has the result.
            Reason::TestElsewhere { reason, .. } => (None, *reason),
            reason => (None, reason),
        }
    }
}

impl Pools {
    /// The class of a standing, if there is one.
    fn find(&self, standing: &Standing) -> Option<Class> {
        let same = |known: &Standing| {
            (&known.pool, known.is_trusted, &known.roles)
                == (&standing.pool, standing.is_trusted, &standing.roles)
        };
        self.classes.iter().position(same).map(|at| Class(at as u8))
    }
}

impl Coordinator {
    /// The standing of a worker.
    pub(crate) fn standing(&self, worker: &str) -> Standing {
        match &self.pools.standings {
            Some(standings) if !self.is_own(worker) => {
                standings.get(worker).cloned().unwrap_or_else(Standing::unknown)
            }
            _ => Standing::own(),
        }
    }

    /// Sets the share of packages, from 0 to 1, that another pool builds again.
    pub fn with_verified_share(mut self, share: f64) -> Coordinator {
        self.pools.verified_share = share;
        self
    }

    /// Replaces what is known of workers, by name. Those that take no builds keep their running ones.
    pub(crate) fn rank_workers(
        &mut self,
        mut standings: BTreeMap<String, Standing>,
        actions: &mut Vec<Action>,
    ) {
        // A worker may have the name that the coordinator's machine got later.
        standings.retain(|worker, _| !self.is_own(worker));
        let held = standings.iter().filter(|(_, standing)| standing.is_held);
        let held = held.map(|(worker, _)| worker.clone()).collect();
        self.pools.standings = Some(standings);
        for machine in self.seats.in_session() {
            let seat = self.seats.get(machine);
            let (worker, class) = (seat.worker.clone(), seat.class);
            // It joins again, as what it is now: at once, and not with its next offer.
            if self.pools.find(&self.standing(&worker)) != Some(class) {
                self.say(machine, |session| ToWorker::Rejoin { session }, actions);
                self.leave(machine, actions);
            }
        }
        self.lose_unwelcome_deposits(actions);
        self.hold(held, actions);
    }

    /// The class of a worker's machine; none if there are too many classes.
    pub(crate) fn class_of(&mut self, worker: &str, actions: &mut Vec<Action>) -> Option<Class> {
        let standing = self.standing(worker);
        if let Some(class) = self.pools.find(&standing) {
            return Some(class);
        }
        if self.pools.classes.len() == CLASSES_MAX {
            return None;
        }
        self.pools.classes.push(standing);
        // Before the first machine of the class joins.
        self.confine_all(actions);
        Some(Class(self.pools.classes.len() as u8 - 1))
    }

    /// Whether a further class would be too many.
    pub(crate) fn has_class_for(&self, worker: &str) -> bool {
        self.pools.find(&self.standing(worker)).is_some() || self.pools.classes.len() < CLASSES_MAX
    }

    /// Confines all packages that are not decided to the machines that may build them.
    pub(crate) fn confine_all(&mut self, actions: &mut Vec<Action>) {
        let graph = self.graph.clone();
        for id in graph.packages() {
            if self.is_in_run(id) && !self.state(id).is_final() {
                self.confine(id, actions);
            }
        }
    }

    /// Confines a package to the machines that may take it now.
    pub(crate) fn confine(&mut self, id: PackageId, actions: &mut Vec<Action>) {
        let mut to = Classes::ALL;
        for (at, standing) in self.pools.classes.iter().enumerate() {
            if !self.may_take(standing, id) {
                to = to.without(Class(at as u8));
            }
        }
        if self.packages[id.index()].classes != to {
            self.packages[id.index()].classes = to;
            self.schedule(ScheduleEvent::Confine { package: id, to }, actions);
        }
    }

    pub(crate) fn may_take(&self, standing: &Standing, id: PackageId) -> bool {
        let may_build = standing.roles.contains(&self.role_of(id));
        let may_decide = standing.is_trusted || !self.is_needed(id);
        match &self.packages[id.index()].round {
            None => may_build && may_decide,
            Some(Round::Test(_)) => standing.roles.contains(&Role::Test) && may_decide,
            // What it makes is compared, and not used.
            Some(Round::Verify { pool, .. }) => may_build && standing.pool != *pool,
        }
    }

    /// Whether a present machine may take a package now.
    fn has_taker(&self, id: PackageId) -> bool {
        let takers = self.seats.in_session();
        takers.into_iter().any(|machine| {
            let seat = self.seats.get(machine);
            self.is_open(machine)
                && self.packages[id.index()].classes.contains(seat.class)
                && self.scheduler.fits_idle(machine, id)
        })
    }

    /// Whether a present machine of another worker may take a package now.
    pub(crate) fn has_other_taker(&self, id: PackageId, worker: &str) -> bool {
        let takers = self.seats.in_session();
        takers.into_iter().any(|machine| {
            let seat = self.seats.get(machine);
            seat.worker != worker
                && self.is_open(machine)
                && self.packages[id.index()].classes.contains(seat.class)
                && self.scheduler.fits_idle(machine, id)
        })
    }

    /// Whether a worker tests what it builds, in the same lease: it has the role, or no other worker is there that has it.
    pub(crate) fn tests(&self, worker: &str, id: PackageId) -> bool {
        let others = self.seats.in_session();
        let has_tester = others.into_iter().any(|machine| {
            let standing = self.standing(&self.seats.get(machine).worker);
            self.is_open(machine)
                && standing.roles.contains(&Role::Test)
                && (standing.is_trusted || !self.is_needed(id))
        });
        let tests_own = self.standing(worker).roles.contains(&Role::Test) && !self.pools.tests_apart;
        tests_own || !has_tester
    }

    /// Whether other packages are built with a package: those that depend on it, and in a second pass those of its knot.
    pub(crate) fn is_needed(&self, id: PackageId) -> bool {
        // Tests of it use it, and are no packages that others get.
        let is_package = |id: &PackageId| !self.pools.tests.contains(id);
        self.graph.dependents(id).iter().any(is_package) || self.pools.knotted.contains(&id)
    }

    /// Adds packages that others are built with in a second pass, although the graph has no edge for that.
    pub fn with_knotted(mut self, knotted: impl IntoIterator<Item = PackageId>) -> Coordinator {
        self.pools.knotted.extend(knotted);
        self
    }

    /// Says which packages are tests of others: workers with the role `test` run them, if there are any.
    pub fn with_tests(mut self, tests: impl IntoIterator<Item = PackageId>) -> Coordinator {
        self.pools.tests.extend(tests);
        self
    }

    /// Has the outputs of each build tested as a job of its own, by any worker with the role `test`.
    pub fn with_output_tests_apart(mut self, are_apart: bool) -> Coordinator {
        self.pools.tests_apart = are_apart;
        self
    }

    /// The role of a worker that builds a package. Without a worker that tests, builders do.
    pub(crate) fn role_of(&self, id: PackageId) -> Role {
        match self.pools.tests.contains(&id) && self.pools.has_tester {
            true => Role::Test,
            false => Role::Build,
        }
    }

    /// Whether a worker that tests is there.
    fn has_tester(&self) -> bool {
        self.seats.in_session().into_iter().any(|machine| {
            let standing = self.standing(&self.seats.get(machine).worker);
            standing.roles.contains(&Role::Test) && !standing.is_held
        })
    }

    /// Confines tests to those that may run them, after a worker that tests came or left.
    pub(crate) fn follow_testers(&mut self, actions: &mut Vec<Action>) {
        if self.pools.tests.is_empty() {
            return;
        }
        let has_tester = self.has_tester();
        if std::mem::replace(&mut self.pools.has_tester, has_tester) != has_tester {
            self.confine_all(actions);
        }
    }

    /// Starts the next round of a package whose first one succeeded.
    pub(crate) fn begin_round(&mut self, id: PackageId, round: Round, actions: &mut Vec<Action>) {
        self.packages[id.index()].round = Some(round);
        self.pools.has_rounds = true;
        self.confine(id, actions);
        self.say_kept(id, actions);
        self.ready_again(id, Reason::Undecided, actions);
    }

    /// The reason of a package in its current round, which a coordinator that is started again reads.
    pub(crate) fn round_reason(&self, id: PackageId) -> Option<Reason> {
        Some(match self.packages[id.index()].round.as_ref()? {
            Round::Test(to_test) => Reason::TestElsewhere {
                worker: to_test.worker.clone(),
                reason: Box::new(to_test.reason.clone()),
            },
            Round::Verify { worker, pool, reason } => Reason::Verify {
                worker: worker.clone(),
                pool: pool.clone(),
                reason: Box::new(reason.clone()),
            },
        })
    }

    /// Ends the test of a package that another worker built, whose result counts from now on.
    pub(crate) fn take_tested(&mut self, id: PackageId, actions: &mut Vec<Action>) -> Option<Arc<ToTest>> {
        let round = self.packages[id.index()].round.take()?;
        self.confine(id, actions);
        let Round::Test(to_test) = round else { return None };
        self.ended.insert(to_test.attempt, Ending::Acknowledged(to_test.worker.clone()));
        Some(to_test)
    }

    /// Drops outputs that were not tested: the package is skipped, failed, or built again.
    pub(crate) fn drop_untested(&mut self, id: PackageId, actions: &mut Vec<Action>) {
        if !matches!(self.packages[id.index()].round, Some(Round::Test(_))) {
            return;
        }
        let Some(to_test) = self.take_tested(id, actions) else { return };
        self.ended.insert(to_test.attempt, Ending::Superseded);
        actions.push(Action::Record(Record::BuildEnded {
            build: to_test.build,
            at_seconds: self.now_seconds,
            outcome: BuildOutcome::Lost,
            failure: None,
            is_reproducible: None,
        }));
    }

    /// Drops everything that was not tested, apart from what is being tested: the run ends.
    pub(crate) fn drop_waiting_tests(&mut self, actions: &mut Vec<Action>) {
        for id in self.graph.clone().packages() {
            if self.packages[id.index()].build.is_none() {
                self.drop_untested(id, actions);
            }
        }
    }

    /// Decides whether a package that a worker built is built again in another pool.
    pub(crate) fn is_chosen_for_verification(&mut self, id: PackageId, worker: &str) -> bool {
        // A test has no outputs to compare.
        if self.pools.verified_share <= 0.0 || self.is_stopping || self.pools.tests.contains(&id) {
            return false;
        }
        // Drawn now, so that no worker could know it before.
        let is_chosen = self.attempts.draw() < self.pools.verified_share;
        // A build that was taken over cannot be repeated: its order is gone.
        let has_order = self.packages[id.index()].to_build.is_some();
        let pool = self.standing(worker).pool;
        let others = self.seats.in_session().into_iter().any(|machine| {
            let standing = self.standing(&self.seats.get(machine).worker);
            standing.pool != pool
                && standing.roles.contains(&Role::Build)
                && self.is_open(machine)
                && self.scheduler.fits_idle(machine, id)
        });
        is_chosen && has_order && others
    }

    /// Ends the verifications for which no machine is left, or time.
    pub(crate) fn settle_verifications(&mut self, actions: &mut Vec<Action>) {
        if !self.pools.has_rounds {
            return;
        }
        let graph = self.graph.clone();
        for id in graph.packages() {
            let package = &self.packages[id.index()];
            let is_open = matches!(package.state, PackageState::Ready | PackageState::Waiting);
            let waits =
                is_open && matches!(package.round, Some(Round::Verify { .. })) && package.build.is_none();
            if waits && (self.is_stopping || !self.has_taker(id)) {
                self.schedule(ScheduleEvent::Hold(id), actions);
                self.verified(id, None, actions);
                self.schedule(ScheduleEvent::Available(id), actions);
            }
        }
    }

    /// Ends the verification of a package: its outputs are kept, and its dependents may use them. `difference` says what
    /// another pool built, if that was something else.
    pub(crate) fn verified(&mut self, id: PackageId, difference: Option<String>, actions: &mut Vec<Action>) {
        let Some(Round::Verify { worker, pool, reason }) = self.packages[id.index()].round.take() else {
            return;
        };
        if let Some(difference) = difference {
            let package = self.graph.name(id).to_owned();
            let message = format!("{worker} of pool {pool} built {package}, and {difference}");
            actions.push(Action::Notify(Notice::Differs { package, message }));
        }
        self.arrive(id, PackageState::Built, reason, actions);
    }
}
