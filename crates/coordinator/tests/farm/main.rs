//! A simulated farm: a coordinator, three workers, a store and a network. The coordinator, the workers' agents and
//! their messages are the shipped code, and messages pass as bytes.
//!
//! The network delays, drops, repeats and reorders; workers and the coordinator are killed, paused, restarted and cut
//! off; a worker drains. Everything follows from a seed.
//! `KILNYARD_SEED=7 cargo test -p kilnyard-coordinator --test farm` replays one seed and prints the events;
//! `KILNYARD_SEEDS=10000` runs more seeds.
//!
//! The checks of each run: every package is decided once, no output is lost or adopted twice, no result of a dead lease
//! is accepted, no build begins twice, and the run ends. To show that these checks can fail, each [`Flaw`] breaks
//! one thing around the shipped code.

mod memory;
mod random;
mod worker;
mod world;

use world::{Flaw, Setting, World};

/// The number of seeds of the default test.
const SEEDS: u64 = 1000;
/// The number of seeds tried with each flaw, one of which must find it.
const SEEDS_OF_A_FLAW: u64 = 400;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

#[test]
fn each_package_is_decided_once_whatever_the_network_does() {
    if let Some(seed) = variable("KILNYARD_SEED") {
        let mut world = World::new(seed, &Setting::rough());
        let outcome = world.run();
        for line in &world.trace {
            println!("{line}");
        }
        outcome.unwrap_or_else(|complaint| panic!("seed {seed}: {complaint}"));
        return;
    }
    for seed in 0..variable("KILNYARD_SEEDS").unwrap_or(SEEDS) {
        let mut world = World::new(seed, &Setting::rough().untraced());
        if let Err(complaint) = world.run() {
            panic!(
                "{complaint}\nreplay: KILNYARD_SEED={seed} cargo test -p kilnyard-coordinator --test farm -- --nocapture"
            );
        }
    }
}

#[test]
fn a_seed_gives_the_same_run_again() {
    let trace = |seed| {
        let mut world = World::new(seed, &Setting::rough());
        world.run().unwrap();
        world.trace
    };
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}

#[test]
fn workers_continue_while_the_coordinator_is_away_and_nothing_is_built_twice() {
    for seed in 0..100 {
        let mut world = World::new(seed, &Setting::only_the_coordinator_dies());
        world.run().unwrap_or_else(|complaint| panic!("seed {seed}: {complaint}"));
        assert!(world.coordinator_lives() > 3, "seed {seed}");
        let builds = world.builds_begun();
        assert_eq!(builds, world.packages(), "seed {seed}: {builds} builds");
    }
}

#[test]
fn machines_prepare_builds_that_they_get_later() {
    let (mut announced, mut begun) = (0, 0);
    for seed in 0..100 {
        let mut world = World::new(seed, &Setting::rough().untraced());
        world.run().unwrap_or_else(|complaint| panic!("seed {seed}: {complaint}"));
        let counts = world.announced();
        (announced, begun) = (announced + counts.0, begun + counts.1);
    }
    // Workers die, and get builds that were announced to others.
    assert!(begun > 0 && announced > begun, "{begun} of {announced} announced builds began");
}

/// Asserts that one of the seeds finds this flaw: a check fails with these words.
fn is_found(flaw: Flaw, words: &str) {
    let mut complaints = Vec::new();
    for seed in 0..SEEDS_OF_A_FLAW {
        let mut world = World::new(seed, &Setting::with(flaw).untraced());
        if let Err(complaint) = world.run() {
            if complaint.contains(words) {
                return;
            }
            complaints.push(complaint);
        }
    }
    panic!("no seed finds {flaw:?}; found: {complaints:#?}");
}

#[test]
fn a_result_that_is_not_fenced_is_found() {
    is_found(Flaw::Unfenced, "dead lease");
}

#[test]
fn an_action_before_its_record_is_found() {
    is_found(Flaw::ActsBeforeRecording, "acknowledged, but not recorded");
}

#[test]
fn a_store_that_forgets_is_found() {
    is_found(Flaw::StoreForgets, "was decided");
}

#[test]
fn a_result_that_is_not_repeated_is_found() {
    is_found(Flaw::ResultsAreSaidOnce, "does not end");
}

#[test]
fn repeated_attempts_are_found() {
    is_found(Flaw::SameSecret, "a second time");
}
