//! Yards with random sets on random machines.

use super::*;
use crate::simulate::{Conditions, Farm, Simulated, Supply, simulate_farm};
use crate::work::{Basis, Work};
use crate::{Limits, Machine};
use kilnyard_model::entitlement::WorkClass;
use kilnyard_model::graph::Graph;
use proptest::prelude::*;
use std::sync::Arc;

/// Yards on machines that are always there.
struct Fixed(Yards);

impl Policy for Fixed {
    fn apply(&mut self, now_seconds: f64, event: Event, actions: &mut Vec<Action>) {
        self.0.apply(now_seconds, event, actions);
    }
}

impl Farm for Fixed {
    fn step_seconds(&self) -> Option<f64> {
        Some(1.0)
    }

    fn has_later(&self) -> bool {
        self.0.has_later()
    }

    fn supply(&mut self, _now_seconds: f64) -> Vec<Supply> {
        Vec::new()
    }
}

/// A set of packages, of which each depends on one of the few before it, or on none.
fn set(count: u32, seconds: f64, seed: u64) -> (Graph, Vec<Work>) {
    let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let (mut graph, mut works) = (Graph::new(), Vec::new());
    for index in 0..count {
        let package = graph.add(&format!("p{index}"));
        if index > 0 && next() % 4 > 0 {
            let dependency = graph.find(&format!("p{}", next() % u64::from(index))).unwrap();
            graph.depend(package, dependency);
        }
        works.push(Work::serial(seconds * (0.5 + (next() % 1000) as f64 / 1000.0), Basis::Recorded));
    }
    (graph, works)
}

/// Simulates these sets, each with what its yard is entitled to and its begin.
fn play(
    sets: &[(Graph, Vec<Work>)],
    terms: &[(Entitlement, f64)],
    machines: &[Machine],
) -> (Simulated, Together) {
    let (mut graph, mut works, mut policies) = (Graph::new(), Vec::new(), Vec::new());
    for (yard, (own, own_works)) in sets.iter().enumerate() {
        let name = |package| format!("{yard}/{}", own.name(package));
        for package in own.packages() {
            graph.add(&name(package));
        }
        for package in own.packages() {
            let to = graph.find(&name(package)).unwrap();
            for dependency in own.dependencies(package) {
                let from = graph.find(&name(*dependency)).unwrap();
                graph.depend(to, from);
            }
        }
        works.extend(own_works.iter().cloned());
        let scheduler =
            Scheduler::new(Arc::new(own.clone()), own_works.clone(), machines.to_vec(), Limits::default());
        let (entitlement, begin_seconds) = terms[yard];
        policies.push(YardPolicy { scheduler: scheduler.unwrap(), entitlement, begin_seconds });
    }
    let mut farm = Fixed(Yards::new(policies, machines));
    let simulated = simulate_farm(&Conditions::default(), &graph, &works, machines, &mut farm).unwrap();
    (simulated, farm.0.together().clone())
}

fn rebuild(weight: f64) -> Entitlement {
    Entitlement { weight, class: WorkClass::Rebuild }
}

#[test]
fn two_yards_of_different_size_neither_starve_nor_waste() {
    let machines = [Machine::of_cores(8), Machine::of_cores(16)];
    let sets = [set(4000, 30.0, 1), set(700, 70.0, 2)];
    let (simulated, together) = play(&sets, &[(rebuild(2.0), 0.0), (rebuild(1.0), 0.0)], &machines);
    assert_eq!(simulated.builds.len(), 4700);
    assert!(together.contended_seconds > 1000.0, "{together:?}");
    let [one, two] = [0, 1].map(|yard: usize| together.received[yard].contended_core_seconds);
    let share = one / (one + two);
    assert!((share - 2.0 / 3.0).abs() < 0.05, "{share}");
    assert!(together.received.iter().all(|received| received.waited_seconds_max < 60.0), "{together:?}");
    let there: f64 = together.machines.iter().map(|machine| machine.there_core_seconds).sum();
    assert!((there / (24.0 * simulated.makespan_seconds) - 1.0).abs() < 1e-6, "{there}");
    assert!(together.idle_core_seconds < 0.02 * there, "{together:?}");
    // What a yard alone cannot use, the other one gets: both end as if one had all the work.
    let work: f64 = sets.iter().flat_map(|(_, works)| works).map(Work::core_seconds).sum();
    assert!(simulated.makespan_seconds < 1.1 * work / 24.0, "{}", simulated.makespan_seconds);
}

#[test]
fn a_run_that_begins_days_after_the_others_is_simulated() {
    let sets = [set(5, 30.0, 5), set(5, 30.0, 6)];
    let begin_seconds = 10.0 * 86_400.0;
    let terms = [(rebuild(1.0), 0.0), (rebuild(1.0), begin_seconds)];
    let (simulated, _) = play(&sets, &terms, &[Machine::of_cores(2)]);
    assert!(simulated.builds.len() == 10 && simulated.makespan_seconds > begin_seconds);
}

#[test]
fn a_higher_class_comes_first_and_the_lower_one_does_not_starve() {
    let machines = [Machine::of_cores(16)];
    let sets = [set(1000, 40.0, 3), set(1000, 40.0, 4)];
    let security = Entitlement { weight: 1.0, class: WorkClass::Security };
    let (_, together) = play(&sets, &[(rebuild(1.0), 0.0), (security, 600.0)], &machines);
    let [lower, higher] = [0, 1].map(|yard: usize| together.received[yard].contended_core_seconds);
    let share = lower / (lower + higher);
    assert!((0.03..0.2).contains(&share), "{share}");
    assert!(together.received[1].waited_seconds_max < 80.0, "{together:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn all_packages_of_all_yards_are_built_once(
        sizes in proptest::collection::vec((1_u32..80, 1.0_f64..50.0, 0.1_f64..5.0, 0_u8..4, 0.0_f64..900.0), 1..5),
        cores in proptest::collection::vec(1_u32..9, 1..4),
        seed in any::<u64>(),
    ) {
        let sets: Vec<_> = sizes.iter().map(|(count, seconds, ..)| set(*count, *seconds, seed ^ u64::from(*count))).collect();
        let classes = [WorkClass::Security, WorkClass::Release, WorkClass::Rebuild, WorkClass::Try];
        let terms: Vec<_> = sizes
            .iter()
            .map(|(_, _, weight, class, begin)| {
                (Entitlement { weight: *weight, class: classes[usize::from(*class)] }, *begin)
            })
            .collect();
        let machines: Vec<Machine> = cores.iter().map(|cores| Machine::of_cores(*cores)).collect();
        let (simulated, together) = play(&sets, &terms, &machines);
        let count: u32 = sizes.iter().map(|(count, ..)| *count).sum();
        prop_assert_eq!(simulated.builds.len(), count as usize);
        // The cores that the schedulers counted are those that the simulated builds had.
        let work: f64 = sets.iter().flat_map(|(_, works)| works).map(Work::core_seconds).sum();
        let used: f64 = together.received.iter().map(|received| received.core_seconds).sum();
        prop_assert!((used - work).abs() < 0.02 * work + 1.0, "{} of {}", used, work);
        let mut first = 0;
        for ((count, ..), (_, begin_seconds)) in sizes.iter().zip(&terms) {
            let own = simulated.builds.iter().filter(|built| (first..first + count).contains(&built.package.0));
            let begun = own.map(|built| built.start_seconds).fold(f64::INFINITY, f64::min);
            prop_assert!(begun >= *begin_seconds);
            first += count;
        }
    }
}
