//! Trials of what a set is made of: several archives with their own keys, pins, git repositories, the lock that
//! repeats a choice, several targets, and what packages are built against. They plan and publish without a root and
//! without privileges; `packages` builds.

#[path = "../support/mod.rs"]
mod support;

mod against;
mod archives;
mod git;
mod killed;
mod lock;
mod neighbours;
mod targets;

use support::trials::{Case, case, run};

fn main() {
    let archives = archives::CASES
        .iter()
        .chain(against::CASES)
        .chain(targets::CASES)
        .chain(killed::CASES)
        .map(|(name, run)| case(name, run));
    let git = git::CASES.iter().chain(lock::CASES).map(|(name, run)| {
        ["git", "dpkg-source", "patch", "xz"].into_iter().fold(case(name, run), |case: Case, tool| {
            case.needs(support::has(tool), &format!("{tool} is not installed"))
        })
    });
    let neighbours = neighbours::CASES
        .iter()
        .map(|(name, run)| case(name, run).needs(support::has("dpkg-deb"), "dpkg-deb is not installed"));
    run(archives.chain(git).chain(neighbours).collect(), 4, || {});
}
