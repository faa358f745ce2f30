//! The whole program on real packages that misbehave, each in its own way, in real roots.
//!
//! The base root comes from the mirror that this machine's apt uses, once for all trials. `builds` has what a
//! package may do to itself and to others, `block` roots on devices of their own, `disasters` what may happen to
//! Kilnyard meanwhile, `ordinary` who may build, `elsewhere` leases without their yard, `messages` what crosses the wire,
//! `traps` what is laid for later builds.

#[path = "../support/mod.rs"]
mod support;

mod archive;
mod block;
mod builds;
mod disasters;
mod earlier;
mod elsewhere;
mod fixtures;
mod messages;
mod ordinary;
mod traps;

use fixtures::Shared;
use support::trials::{self, case};

fn main() {
    let shared = Shared::prepare();
    let missing = shared.as_ref().err().cloned();
    let shared: &'static Option<Shared> = Box::leak(Box::new(shared.ok()));
    let groups = [
        archive::CASES,
        builds::CASES,
        block::CASES,
        disasters::CASES,
        earlier::CASES,
        elsewhere::CASES,
        messages::CASES,
        ordinary::CASES,
        traps::CASES,
    ];
    let cases = groups.iter().flat_map(|group| group.iter()).map(|(name, run)| {
        case(name, move || run(shared.as_ref().expect("the trial is skipped without it"))).unless(&missing)
    });
    let needs_faketime = support::has("faketime");
    let cases = cases.map(|case| match case.name() {
        "a_clock_that_moves_back_during_a_build_harms_nothing" => {
            case.needs(needs_faketime, "faketime is not installed")
        }
        "a_disk_that_fills_up_fails_one_build_and_room_helps"
        | "a_run_that_waits_for_room_says_so_in_one_line"
        | "what_the_disk_has_after_a_power_cut_is_consistent" => {
            case.needs(support::is_root(), "only root can mount a disk")
        }
        "a_lease_and_artifacts_are_enough_for_libmd" => {
            case.needs(support::is_root(), "only root can hide folders")
        }
        "what_cannot_be_removed_is_set_aside_and_reported" => {
            case.needs(support::is_root(), "only root can make files immutable")
        }
        "no_other_user_runs_what_a_package_brought" => {
            case.needs(support::is_root(), "only root can become another user")
        }
        "a_user_with_one_id_builds_what_real_root_would" => {
            case.needs(support::is_root(), "only root can become another user")
        }
        "roots_on_block_devices_build_packages" => case
            .needs(support::is_root(), "only root can mount a device")
            .needs(support::has("nbdkit"), "nbdkit is not installed")
            .needs(support::has("nbdfuse"), "nbdfuse is not installed"),
        _ => case,
    });
    // One after the other: builds share the cores anyway, and some trials look at processes.
    trials::run(cases.collect(), 1, || shared.as_ref().map_or((), Shared::remove));
}
