//! Writes builds to a store, and prints the number of each one that the database has acknowledged; or prints the numbers that
//! the store has. For `soak/power`, which cuts the power of the database in between.

use kilnyard_model::result::BuildOutcome;
use kilnyard_model::target::Target;
use kilnyard_store::{BuildRow, Holder, Record, RunRow, RunState, Store, StoreError};
use kilnyard_store_postgres::{Address, Postgres};
use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, url] = &arguments[..] else { return Err("write|read URL".into()) };
    let target: Target = "any/linux/one/amd64".parse()?;
    let mut store = Postgres::open(&Address::parse(url, None, None)?, &target)?;
    let mut out = std::io::stdout().lock();
    match what.as_str() {
        "read" => {
            for run in store.runs()? {
                for build in store.builds_in(run.number)? {
                    writeln!(out, "{}", build.number)?;
                }
            }
            store.check()?;
            Ok(())
        }
        _ => {
            let mut number = store.lead(&Holder::named("writer"))?.next_build;
            let run = store.begin_run(&run(), &[])?;
            loop {
                match store.record(&[Record::BuildBegan(Box::new(build(run, number)))]) {
                    Ok(()) => writeln!(out, "{number}")?,
                    // The database is gone: the end of this trial.
                    Err(StoreError::Busy { .. }) => return Ok(()),
                    Err(error) => return Err(error.into()),
                }
                out.flush()?;
                number += 1;
            }
        }
    }
}

fn run() -> RunRow {
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
    }
}

fn build(run: u64, number: u64) -> BuildRow {
    BuildRow {
        number,
        attempt: None,
        run,
        package: format!("package-{number}"),
        version: "1".to_owned(),
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
    }
}
