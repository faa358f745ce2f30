#![allow(dead_code, reason = "each test uses a part of it")]
//! Rows that tests and trials write.

use kilnyard_model::result::BuildOutcome;
use kilnyard_model::target::Target;
use kilnyard_store::{BuildRow, Record, RunRow, RunState};
use kilnyard_store_postgres::{Address, Postgres};

/// The target of all rows.
pub fn target() -> Target {
    "any/linux/one/amd64".parse().expect("a target")
}

/// Opens the store of an address.
pub fn open(address: &Address) -> Postgres {
    Postgres::open(address, &target()).expect("a store")
}

/// A run in progress.
pub fn run_row() -> RunRow {
    RunRow {
        number: 0,
        started_seconds: 1.0,
        ended_seconds: None,
        state: RunState::Running,
        plan_digest: String::new(),
        cores: 1,
        slots: 1,
        expected_seconds: 1.0,
        bound_seconds: 1.0,
        forced: None,
        commits: Vec::new(),
    }
}

/// The beginning of a build: it cannot be written twice.
pub fn began(run: u64, number: u64) -> Record {
    Record::BuildBegan(Box::new(BuildRow {
        number,
        attempt: None,
        run,
        package: "a".to_owned(),
        version: String::new(),
        worker: None,
        cores: 1,
        host: None,
        slot: 0,
        key: String::new(),
        started_seconds: 1.0,
        ended_seconds: None,
        outcome: BuildOutcome::Building,
        failure: None,
        is_reproducible: None,
        stages: Vec::new(),
    }))
}
