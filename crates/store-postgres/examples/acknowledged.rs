//! Writes builds to a store, and prints the number of each one that the database has acknowledged; or prints the numbers that
//! the store has. For `soak/power`, which cuts the power of the database in between.

#[path = "../tests/rows/mod.rs"]
mod rows;

use kilnyard_store::{Holder, Store, StoreError};
use kilnyard_store_postgres::Address;
use rows::{began, open, run_row};
use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, url] = &arguments[..] else { return Err("write|read URL".into()) };
    let mut store = open(&Address::parse(url, None, None)?);
    let mut out = std::io::stdout().lock();
    if what == "read" {
        for run in store.runs()? {
            for build in store.builds_in(run.number)? {
                writeln!(out, "{}", build.number)?;
            }
        }
        return Ok(store.check()?);
    }
    let mut number = store.lead(&Holder::named("writer"))?.next_build;
    let run = store.begin_run(&run_row(), &[])?;
    loop {
        match store.record(&[began(run, number)]) {
            Ok(()) => writeln!(out, "{number}")?,
            // The database is gone: the end of this trial.
            Err(StoreError::Busy { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        out.flush()?;
        number += 1;
    }
}
