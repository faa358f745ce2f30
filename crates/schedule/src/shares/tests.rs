//! Yards on a machine whose builds take random times.

use super::*;
use kilnyard_model::entitlement::WorkClass;
use proptest::prelude::*;

/// A yard of the simulation: its builds end at these times.
struct Yard {
    entitlement: Entitlement,
    seconds: f64,
    /// Packages that have not started.
    left: u32,
    begun: u64,
    ends: Vec<f64>,
    used: f64,
}

fn yard(weight: f64, class: WorkClass, seconds: f64, left: u32) -> Yard {
    Yard { entitlement: Entitlement { weight, class }, seconds, left, begun: 0, ends: Vec::new(), used: 0.0 }
}

/// Runs the yards on a machine for this long. Returns the core-seconds that were not used.
fn run(cores: u32, yards: &mut [Yard], seconds: u32) -> f64 {
    let mut shares = Shares::new(cores, None);
    let mut idle = 0.0;
    for (number, yard) in yards.iter().enumerate() {
        shares.set(number, yard.entitlement);
    }
    let mut random = 1_u64;
    let note = |shares: &mut Shares, number: usize, now: f64, yard: &Yard| {
        let (building, has_ready) = (yard.ends.len() as u32, yard.left > 0);
        let usage = Usage {
            building,
            begun: yard.begun,
            wanted: building,
            used: building,
            has_ready,
            ..Usage::default()
        };
        shares.note(number, now, usage);
    };
    for now in (0..seconds).map(f64::from) {
        for (number, yard) in yards.iter_mut().enumerate() {
            yard.ends.retain(|end| *end > now);
            note(&mut shares, number, now, yard);
        }
        shares.divide(now);
        for (number, yard) in yards.iter_mut().enumerate() {
            while yard.left > 0 && (yard.ends.len() as u32) < shares.cores_of(number) {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let factor = 0.5 + (random >> 40) as f64 / f64::from(1 << 24);
                (yard.left, yard.begun) = (yard.left - 1, yard.begun + 1);
                yard.ends.push(now + (yard.seconds * factor).max(1.0));
            }
            note(&mut shares, number, now, yard);
            yard.used += yard.ends.len() as f64;
        }
        let running: usize = yards.iter().map(|yard| yard.ends.len()).sum();
        idle += (f64::from(cores) - running as f64).max(0.0);
    }
    idle
}

#[test]
fn weights_are_shares_of_the_core_time_on_machines_of_any_size() {
    for cores in [1, 2, 3, 8, 64] {
        for (one, other) in [(10.0, 10.0), (40.0, 5.0), (3.0, 25.0)] {
            let mut yards = [
                yard(2.0, WorkClass::Rebuild, one, u32::MAX),
                yard(1.0, WorkClass::Rebuild, other, u32::MAX),
            ];
            let idle = run(cores, &mut yards, 1800);
            let share = yards[0].used / (yards[0].used + yards[1].used);
            assert!(
                (share - 2.0 / 3.0).abs() < 0.05,
                "{cores} cores, builds of {one} and {other} s: {share}"
            );
            assert!(idle < f64::from(cores) * 1800.0 * 0.01, "{cores} cores: {idle} core-seconds idle");
        }
    }
}

#[test]
fn a_small_yard_does_not_starve_and_a_large_one_gets_what_it_leaves() {
    let mut yards = [yard(1.0, WorkClass::Rebuild, 20.0, u32::MAX), yard(1.0, WorkClass::Rebuild, 20.0, 30)];
    let idle = run(8, &mut yards, 1200);
    assert_eq!(yards[1].left, 0);
    assert!(idle < 100.0, "{idle}");
}

#[test]
fn higher_classes_come_first_and_starve_nothing() {
    let mut yards = [
        yard(1.0, WorkClass::Security, 20.0, u32::MAX),
        yard(9.0, WorkClass::Rebuild, 20.0, u32::MAX),
        yard(9.0, WorkClass::Try, 20.0, u32::MAX),
    ];
    run(16, &mut yards, 1800);
    let all: f64 = yards.iter().map(|yard| yard.used).sum();
    let shares: Vec<f64> = yards.iter().map(|yard| yard.used / all).collect();
    assert!(shares[0] > 0.8, "{shares:?}");
    assert!(shares[1..].iter().all(|share| (0.03..0.09).contains(share)), "{shares:?}");
}

#[test]
fn one_that_has_had_nothing_starts_on_a_full_machine() {
    let mut shares = Shares::new(2, None);
    shares.set(0, Entitlement::default());
    shares.note(0, 0.0, Usage { building: 2, wanted: 2, used: 2, has_ready: true, ..Usage::default() });
    for now in 0..100 {
        shares.divide(f64::from(now));
    }
    shares.set(1, Entitlement { class: WorkClass::Try, ..Entitlement::default() });
    shares.note(1, 99.0, Usage { has_ready: true, ..Usage::default() });
    shares.divide(100.0);
    assert_eq!(shares.cores_of(1), 1, "it does not wait for the end of long builds");
}

#[test]
fn cores_that_a_yard_leaves_unused_go_to_others_and_come_back() {
    let mut shares = Shares::new(4, None);
    shares.set(0, Entitlement::default());
    shares.set(1, Entitlement::default());
    let busy = Usage { building: 2, wanted: 2, used: 2, has_ready: true, ..Usage::default() };
    // Its packages fit no core here.
    let idle = Usage { has_ready: true, ..Usage::default() };
    shares.note(1, 0.0, idle);
    let mut most = 0;
    for now in 0..60 {
        shares.note(0, 0.0, Usage { building: 2.max(most), wanted: 2.max(most), used: 2.max(most), ..busy });
        shares.divide(f64::from(now));
        most = most.max(shares.cores_of(0));
    }
    assert_eq!(most, 4, "the other yard uses all");
}

#[test]
fn nothing_further_starts_on_a_machine_whose_memory_is_taken() {
    let mut shares = Shares::new(8, Some(100));
    shares.set(0, Entitlement::default());
    shares.set(1, Entitlement::default());
    let large =
        Usage { building: 2, wanted: 4, used: 4, memory_bytes: 95, has_ready: true, ..Usage::default() };
    shares.note(0, 0.0, large);
    shares.note(1, 0.0, Usage { has_ready: true, ..Usage::default() });
    shares.divide(0.0);
    assert_eq!((shares.cores_of(0), shares.cores_of(1)), (4, 0), "its builds keep what they can use");
    shares.note(0, 1.0, Usage { memory_bytes: 50, ..large });
    shares.divide(1.0);
    assert!(shares.cores_of(1) > 0);
}

#[test]
fn idle_cores_are_for_all() {
    let mut shares = Shares::new(8, None);
    shares.set(0, Entitlement::default());
    shares.set(1, Entitlement::default());
    shares.divide(0.0);
    assert_eq!((shares.cores_of(0), shares.cores_of(1)), (4, 4));
    shares.note(0, 1.0, Usage { has_ready: true, ..Usage::default() });
    shares.divide(1.0);
    assert_eq!((shares.cores_of(0), shares.cores_of(1)), (8, 0));
}

proptest! {
    #[test]
    fn no_more_is_given_than_there_is_and_nothing_is_taken_away(
        cores in 1..20_u32,
        demands in proptest::collection::vec((0..9_u32, 0..30_u32, any::<bool>(), 1..5_u32), 1..6),
    ) {
        let mut shares = Shares::new(cores, None);
        for (yard, (building, wanted, has_ready, weight)) in demands.iter().enumerate() {
            shares.set(yard, Entitlement { weight: f64::from(*weight), ..Entitlement::default() });
            let wanted = (*wanted).max(*building);
            shares.note(yard, 0.0, Usage {
                building: *building,
                wanted,
                used: *building,
                has_ready: *has_ready,
                ..Usage::default()
            });
        }
        for now in 0..30 {
            shares.divide(f64::from(now));
            let given: u32 = (0..demands.len()).map(|yard| shares.cores_of(yard)).sum();
            let building: u32 = demands.iter().map(|demand| demand.0).sum();
            // One starved yard may have a core beyond the machine's.
            prop_assert!(given <= cores.max(building) + 1);
            for (yard, demand) in demands.iter().enumerate() {
                prop_assert!(shares.cores_of(yard) >= demand.0);
            }
        }
    }
}

#[test]
fn a_yard_whose_day_is_spent_keeps_what_runs_and_starts_nothing() {
    let mut shares = Shares::new(8, None);
    shares.set(0, Entitlement { class: WorkClass::Security, ..Entitlement::default() });
    shares.set(1, Entitlement::default());
    // Its builds could use more cores, which would let it begin further ones.
    let busy = Usage { building: 3, wanted: 8, used: 3, has_ready: true, ..Usage::default() };
    shares.note(0, 0.0, busy);
    shares.note(1, 0.0, Usage { has_ready: true, ..Usage::default() });
    shares.set_spent(0, true);
    for now in 0..100 {
        shares.divide(f64::from(now));
        assert_eq!((shares.cores_of(0), shares.cores_of(1)), (3, 5), "at {now} s");
        shares.note(1, f64::from(now), Usage { building: 5, wanted: 5, used: 5, has_ready: true, ..busy });
    }
    // Nor does it get what others leave, or what a starved one would.
    shares.note(0, 100.0, Usage { has_ready: true, ..Usage::default() });
    shares.note(1, 100.0, Usage::default());
    shares.divide(100.0);
    assert_eq!((shares.cores_of(0), shares.cores_of(1)), (0, 8));
    shares.set_spent(0, false);
    shares.divide(101.0);
    assert_eq!(shares.cores_of(0), 8);
}
