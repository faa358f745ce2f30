//! Trials of where the sources of a set come from: several archives with their own keys, pins, git repositories, and
//! the lock that repeats a choice. They plan without a root and without privileges; `packages` builds.

#[path = "../support/mod.rs"]
mod support;

mod against;
mod archives;
mod git;
mod lock;
mod targets;

use support::trials::{Case, case, run};

fn main() {
    let archives =
        archives::CASES.iter().chain(against::CASES).chain(targets::CASES).map(|(name, run)| case(name, run));
    let git = git::CASES.iter().chain(lock::CASES).map(|(name, run)| {
        ["git", "dpkg-source", "patch", "xz"].into_iter().fold(case(name, run), |case: Case, tool| {
            case.needs(support::has(tool), &format!("{tool} is not installed"))
        })
    });
    run(archives.chain(git).collect(), 4, || {});
}
