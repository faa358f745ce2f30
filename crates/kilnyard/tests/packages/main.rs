//! The whole program on real packages in real roots; each package misbehaves in its own way.
//!
//! The base root comes from the mirror that this machine's apt uses, once for all trials. `builds` tests packages that
//! harm themselves or others, `archive` hostile archives, `autopkgtest` the tests that sources declare, `block` roots on their own block devices, `bound` the folders
//! of workers, `disasters` events that hit Kilnyard during a run, `earlier` yards of earlier versions, `ordinary`
//! builds without root, `elsewhere` leases without their yard, `farm` workers on other machines, `keeps` kept work,
//! `messages` the protocol, `own` sources from git with a second archive, `people` requests over the network, `sites` mirrors of workers on other machines, `sets` targets, choices of what packages are
//! built against, and cycles, `shells` roots of failed builds on other machines, `tables` settings of single packages,
//! and `traps` attacks on later builds.

#[path = "../../../web/tests/driver/mod.rs"]
mod driver;
#[path = "../support/mod.rs"]
mod support;

mod archive;
mod autopkgtest;
mod block;
mod bound;
mod builds;
mod database;
mod disasters;
mod earlier;
mod elsewhere;
mod farm;
mod fixtures;
mod keeps;
mod machines;
mod messages;
mod notified;
mod ordinary;
mod own;
mod pages;
mod people;
mod pilots;
mod sets;
mod shells;
mod signing;
mod sites;
mod standby;
mod tables;
mod traps;
mod tries;
mod yards;

use fixtures::Shared;
use support::trials::{self, case};

fn main() {
    let shared = Shared::prepare();
    let missing = shared.as_ref().err().cloned();
    let shared: &'static Option<Shared> = Box::leak(Box::new(shared.ok()));
    let groups = [
        archive::CASES,
        autopkgtest::CASES,
        builds::CASES,
        block::CASES,
        disasters::CASES,
        earlier::CASES,
        elsewhere::CASES,
        database::CASES,
        people::CASES,
        pilots::CASES,
        standby::CASES,
        farm::CASES,
        bound::CASES,
        keeps::CASES,
        machines::CASES,
        shells::CASES,
        signing::CASES,
        sites::CASES,
        messages::CASES,
        notified::CASES,
        ordinary::CASES,
        own::CASES,
        pages::CASES,
        sets::CASES,
        tables::CASES,
        traps::CASES,
        tries::CASES,
        yards::CASES,
    ];
    // They wait for leaders that are silent, managers that start machines, and shares that are right over a while.
    let waiting = [standby::CASES, pilots::CASES, yards::CASES];
    let waits = |name: &str| waiting.iter().any(|group| group.iter().any(|(other, _)| *other == name));
    let cases = groups.iter().flat_map(|group| group.iter()).map(|(name, run)| {
        let case = case(name, move || run(shared.as_ref().expect("the trial is skipped without it")));
        let case = if waits(name) { case.that_mostly_waits() } else { case };
        case.unless(&missing)
    });
    let needs_faketime = support::has("faketime");
    let cases = cases.map(|case| match case.name() {
        "a_clock_that_moves_back_during_a_build_harms_nothing" => {
            case.needs(needs_faketime, "faketime is not installed")
        }
        "a_token_signs_from_within_the_sandbox" => {
            case.needs(std::path::Path::new(signing::MODULE).is_file(), "softhsm2 is not installed")
        }
        "pages_follow_a_run_in_a_browser" => case
            .needs(support::has("chromedriver") && support::has("chromium"), "chromium is not installed")
            .needs(support::has("curl"), "curl is not installed")
            .needs(pages::axe().is_some(), "target/axe.min.js is missing: the npm package axe-core has it"),
        "readers_of_the_feed_survive_kills_of_the_server" => {
            case.needs(support::has("curl"), "curl is not installed")
        }
        "notifications_arrive_whatever_happens" => {
            case.needs(support::has("openssl"), "openssl is not installed")
        }
        "people_request_over_the_network" => case
            .needs(support::has("curl"), "curl is not installed")
            .needs(std::path::Path::new("/usr/sbin/nginx").is_file(), "nginx is not installed"),
        "a_full_disk_fails_one_build_and_more_space_helps"
        | "a_run_that_waits_for_disk_space_prints_one_line"
        | "the_disk_is_consistent_after_a_power_cut" => {
            case.needs(support::is_root(), "only root can mount a disk")
        }
        "a_locked_git_source_is_built_with_a_second_archive" | "a_change_is_tried_beside_the_yard" => {
            case.needs(support::has("git"), "git is not installed")
        }
        "a_lease_and_artifacts_are_enough_for_libmd" => {
            case.needs(support::is_root(), "only root can hide folders")
        }
        "workers_on_other_machines_build_too"
        | "workers_on_other_machines_keep_work_too"
        | "builds_of_killed_workers_and_doors_are_repeated"
        | "a_resumed_run_takes_over_builds_of_other_machines"
        | "pools_and_roles_decide_which_worker_builds_and_tests"
        | "a_standby_continues_the_run_of_a_killed_machine"
        | "a_machine_that_hangs_loses_its_run_and_says_so"
        | "yards_share_the_workers_of_a_site"
        | "a_try_gets_workers_beside_a_full_run"
        | "a_signer_on_another_machine_signs_and_may_be_away"
        | "workers_of_a_site_read_files_of_builds_at_its_mirror"
        | "shells_enter_roots_that_other_machines_keep" => {
            case.needs(support::is_root(), "only root can hide folders")
        }
        "a_machine_that_ends_hands_its_run_over" => {
            let objects = standby::missing();
            case.needs(support::is_root(), "only root can hide folders")
                .needs(objects.is_none(), objects.as_deref().unwrap_or_default())
        }
        "folders_that_cannot_be_removed_are_set_aside_and_reported" => {
            case.needs(support::is_root(), "only root can make files immutable")
        }
        "other_users_cannot_run_files_of_packages" => {
            case.needs(support::is_root(), "only root can become another user")
        }
        "a_user_with_one_id_builds_the_same_as_root" => {
            case.needs(support::is_root(), "only root can become another user")
        }
        "roots_on_block_devices_build_packages" => {
            case.needs(support::is_root(), "only root can mount a device")
        }
        "a_package_from_a_virtual_machine_has_the_same_bytes"
        | "dependencies_are_installed_in_a_virtual_machine" => case
            .needs(support::is_root(), "only root can share folders with a virtual machine")
            .needs(support::has("qemu-system-x86_64"), "qemu-system-x86_64 is not installed"),
        _ => case,
    });
    // Builds share the cores anyway, and some trials inspect processes.
    trials::run_in_lanes(cases.collect(), || shared.as_ref().map_or((), Shared::remove));
}
