//! Runs the contract's tests with a PostgreSQL server of their own.

mod server;

use kilnyard_store::suite::TESTS;
use kilnyard_store_postgres::Postgres;
use libtest_mimic::{Arguments, Trial};
use server::Server;
use std::sync::{Arc, LazyLock};

/// Started for the first trial that runs, and ended with the process.
static SERVER: LazyLock<Result<Arc<Server>, String>> = LazyLock::new(|| Server::start().map(Arc::new));

fn main() {
    let trial = |(name, test): &(&'static str, fn(kilnyard_store::suite::Open))| {
        let (name, test) = (*name, *test);
        Trial::test(name, move || {
            let server = SERVER.clone()?;
            let address = server.database(name)?;
            test(&|target| Box::new(Postgres::open(&address, target).unwrap()));
            // Another store in the same database, which has nothing of the first.
            let other = address.with_schema("kilnyard/other \"store\"");
            test(&|target| Box::new(Postgres::open(&other, target).unwrap()));
            Ok(())
        })
    };
    let conclusion = libtest_mimic::run(&Arguments::from_args(), TESTS.iter().map(trial).collect());
    if let Ok(server) = &*SERVER {
        server.end();
    }
    conclusion.exit();
}
