//! The recorder's thread around a ledger that is slow, full or broken.

use super::*;
use kilnyard_store::StoreError;
use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

/// How long to wait for an answer that must come.
const PATIENCE: Duration = Duration::from_secs(30);

/// A ledger with scripted answers.
#[derive(Default)]
struct Scripted {
    /// The results of the next commits.
    commits: VecDeque<Result<(), StoreError>>,
    /// A signal that a commit waits for.
    gate: Option<Receiver<()>>,
    requests: VecDeque<Result<Vec<Request>, StoreError>>,
    loads: VecDeque<Result<Loaded, StoreError>>,
    renewals: VecDeque<Result<(), StoreError>>,
    records: usize,
}

impl Ledger for Scripted {
    fn record(&mut self, records: &[Record]) -> Result<(), StoreError> {
        if let Some(gate) = &self.gate {
            let _ = gate.recv();
        }
        self.records += records.len();
        self.commits.pop_front().unwrap_or(Ok(()))
    }

    fn requests(&mut self) -> Result<Vec<Request>, StoreError> {
        self.requests.pop_front().unwrap_or(Ok(Vec::new()))
    }

    fn renew(&mut self) -> Result<(), StoreError> {
        self.renewals.pop_front().unwrap_or(Ok(()))
    }

    fn load(&mut self) -> Result<Loaded, StoreError> {
        self.loads.pop_front().unwrap()
    }
}

fn full() -> StoreError {
    StoreError::Full { store: "s".into(), source: "no room".into() }
}

fn busy() -> StoreError {
    StoreError::Busy { store: "s".into(), source: "another process writes".into() }
}

fn damaged() -> StoreError {
    StoreError::Damaged { store: "s".into(), reason: "torn".into() }
}

fn a_record() -> Arc<[Record]> {
    Arc::new([Record::Run { run: 1, state: RunState::Running, at_seconds: 0.0 }])
}

/// Runs a recorder with a ledger, while a closure uses the other ends of its channels. Returns the last error of the
/// store.
fn with(
    mut ledger: Scripted,
    other_side: impl FnOnce(Sender<Job>, Receiver<Input>),
) -> (Scripted, Option<StoreError>) {
    let (jobs, receiver) = mpsc::channel();
    let (sender, heard) = mpsc::channel();
    let last = std::thread::scope(|scope| {
        let ledger = &mut ledger;
        let recorder = scope.spawn(move || record(ledger, &receiver, &|input| sender.send(input).is_ok()));
        other_side(jobs, heard);
        recorder.join().unwrap()
    });
    (ledger, last)
}

#[test]
fn handing_over_records_does_not_wait_for_the_store() {
    let (open, gate) = mpsc::channel();
    let (ledger, last) = with(Scripted { gate: Some(gate), ..Scripted::default() }, |jobs, heard| {
        let began = Instant::now();
        jobs.send(Job::Commit(a_record())).unwrap();
        assert!(heard.try_recv().is_err(), "the store is still writing");
        assert!(began.elapsed() < PATIENCE);
        open.send(()).unwrap();
        assert!(matches!(heard.recv_timeout(PATIENCE), Ok(Input::Committed)));
    });
    assert!(last.is_none());
    assert_eq!(ledger.records, 1);
}

#[test]
fn each_failure_maps_to_a_reaction_and_the_last_is_kept() {
    let commits = [Err(full()), Err(busy()), Err(damaged())].into();
    let (_, last) = with(Scripted { commits, ..Scripted::default() }, |jobs, heard| {
        for expected in [Refusal::NoRoom, Refusal::ForNow, Refusal::ForGood] {
            jobs.send(Job::Commit(a_record())).unwrap();
            let found = heard.recv_timeout(PATIENCE).unwrap();
            assert!(matches!(found, Input::NotCommitted(refusal) if refusal == expected), "{found:?}");
        }
    });
    assert!(matches!(last, Some(StoreError::Damaged { .. })));
}

#[test]
fn requests_arrive_in_order_and_stay_in_the_store_on_failure() {
    let request = |package: &str| Request { kind: RequestKind::Bump, package: package.to_owned() };
    let requests = [Err(full()), Err(busy()), Ok(vec![request("a"), request("b")])].into();
    let (_, last) = with(Scripted { requests, ..Scripted::default() }, |_jobs, heard| {
        for package in ["a", "b"] {
            let found = heard.recv_timeout(PATIENCE).unwrap();
            assert!(matches!(&found, Input::Event(Event::Requested(r)) if r.package == package), "{found:?}");
        }
    });
    assert!(last.is_none());
}

#[test]
fn a_leader_that_lost_its_place_ends_without_a_decision() {
    let fenced = || StoreError::Fenced { store: "s".into(), own: 1, latest: 2 };
    let renewals = [Err(busy()), Err(fenced())].into();
    let (_, last) = with(Scripted { renewals, ..Scripted::default() }, |_jobs, heard| {
        let found = heard.recv_timeout(PATIENCE).unwrap();
        assert!(matches!(found, Input::NotCommitted(Refusal::ForGood)), "{found:?}");
    });
    assert!(matches!(last, Some(StoreError::Fenced { .. })));
}

#[test]
fn a_store_that_cannot_be_read_ends_the_run() {
    let loads = [Err(busy())].into();
    let (_, last) = with(Scripted { loads, ..Scripted::default() }, |jobs, heard| {
        jobs.send(Job::Reload).unwrap();
        let found = heard.recv_timeout(PATIENCE).unwrap();
        assert!(matches!(found, Input::NotCommitted(Refusal::ForGood)), "{found:?}");
    });
    assert!(matches!(last, Some(StoreError::Busy { .. })));
}
