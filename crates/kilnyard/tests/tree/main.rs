//! Yards of a miniature pkgsrc, built by the real make in real roots.
//!
//! The base root comes from the mirror that this machine's apt uses, once for all trials. `odd` checks one run of all
//! odd packages, and `misbehaves` one run of all misbehaving packages; `backends` tests the ways to make roots,
//! `changes` what is rebuilt and why, `git` trees from repositories, `signed` signatures of packages, `cores` how cores and memory are shared, `scans` scans of a tree in a root,
//! `tables` settings of single packages, `terminal` the output on a terminal, `refusals` invalid input, `ordinary`
//! builds without root, `elsewhere` a lease without its yard, `farm` workers on other
//! machines, and `disasters` events that hit Kilnyard during a run.

#[path = "../support/mod.rs"]
mod support;

mod backends;
mod changes;
mod cores;
mod disasters;
mod elsewhere;
mod farm;
mod fixtures;
mod git;
mod misbehaves;
mod odd;
mod ordinary;
mod refusals;
mod scans;
mod signed;
mod tables;
mod terminal;

use fixtures::Shared;
use support::trials::{self, case};

fn main() {
    let shared = Shared::prepare();
    let missing = shared.as_ref().err().cloned();
    let shared: &'static Option<Shared> = Box::leak(Box::new(shared.ok()));
    let groups = [
        odd::CASES,
        misbehaves::CASES,
        changes::CASES,
        git::CASES,
        signed::CASES,
        backends::CASES,
        cores::CASES,
        scans::CASES,
        tables::CASES,
        terminal::CASES,
        refusals::CASES,
        disasters::CASES,
        elsewhere::CASES,
        farm::CASES,
        ordinary::CASES,
    ];
    let cases = groups.iter().flat_map(|group| group.iter()).map(|(name, run)| {
        case(name, move || run(shared.as_ref().expect("the trial is skipped without it"))).unless(&missing)
    });
    let cases = cases.map(|case| match case.name() {
        "an_ordinary_user_builds_a_tree" | "a_user_with_one_id_builds_a_tree" => {
            case.needs(support::is_root(), "only root can become another user")
        }
        "a_lease_and_artifacts_are_enough_for_a_package_of_a_tree" => {
            case.needs(support::is_root(), "only root can hide folders")
        }
        "roots_on_block_devices_build_a_tree" => case
            .needs(support::is_root(), "only root can mount a device")
            .needs(support::has("nbdkit"), "nbdkit is not installed")
            .needs(support::has("nbdfuse"), "nbdfuse is not installed")
            .needs(support::has("mkfs.xfs"), "mkfs.xfs is not installed")
            .needs(support::has("mkfs.erofs"), "mkfs.erofs is not installed"),
        _ => case,
    });
    // The trials run one at a time: builds share the cores anyway, and some trials inspect processes.
    trials::run(cases.collect(), 1, || shared.as_ref().map_or((), Shared::remove));
}
