//! Runs the contract's tests with SQLite.

use kilnyard_store::suite::TESTS;
use kilnyard_store_sqlite::Sqlite;
use libtest_mimic::{Arguments, Trial};

fn main() {
    let trial = |(name, test): &(&str, fn(kilnyard_store::suite::Open))| {
        let test = *test;
        Trial::test(*name, move || {
            let folder = tempfile::tempdir()?;
            let path = folder.path().join("kilnyard.db");
            test(&|target| Box::new(Sqlite::open(&path, target).unwrap()));
            Ok(())
        })
    };
    libtest_mimic::run(&Arguments::from_args(), TESTS.iter().map(trial).collect()).exit();
}
