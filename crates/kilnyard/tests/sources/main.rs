//! Trials of where the sources of a set come from: several archives with their own keys, pins, git repositories, and
//! the lock that repeats a choice. They plan without a root and without privileges; `packages` builds.

#[path = "../support/mod.rs"]
mod support;

mod archives;

use support::trials::{case, run};

fn main() {
    let cases = archives::CASES.iter().map(|(name, run)| case(name, run)).collect();
    run(cases, 4, || {});
}
