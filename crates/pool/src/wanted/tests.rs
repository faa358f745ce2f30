//! Numbers that can be checked by hand.

use super::*;

const GIB: u64 = 1 << 30;

fn pilot() -> Machine {
    let labels = BTreeSet::from(["amd64".to_owned()]);
    Machine { name: "lab".to_owned(), cores: 16, memory_bytes: 32 * GIB, disk_bytes: 100 * GIB, labels }
}

fn need(cores: u32, gib: u64) -> Need {
    Need { cores, memory_bytes: gib * GIB, ..Need::default() }
}

fn of(work: Vec<Need>) -> Demand {
    Demand { work, ..Demand::default() }
}

#[test]
fn work_fills_pilots_by_cores_and_memory() {
    let count = |work: Vec<Need>| wanted(&of(work), &pilot(), 0, 100).count;
    assert_eq!(count(vec![]), 0);
    assert_eq!(count(vec![need(1, 1)]), 1);
    assert_eq!(count(vec![need(4, 1); 8]), 2);
    assert_eq!(count(vec![need(1, 20); 3]), 3);
    // More cores than a pilot has: it can do with fewer.
    assert_eq!(count(vec![need(64, 1); 2]), 2);
    // Large and small ones share pilots.
    assert_eq!(count([vec![need(8, 20); 3], vec![need(8, 12); 3]].concat()), 3);
    // Much more than is packed.
    assert_eq!(count(vec![need(1, 1); 80_000]), 100);
    let many = wanted(&of(vec![need(1, 1); 80_000]), &pilot(), 0, 100_000).count;
    assert!((4_950..5_050).contains(&many), "{many}");
}

#[test]
fn least_and_most_limit_it() {
    let reason = |least, most| wanted(&of(vec![need(16, 1); 5]), &pilot(), least, most);
    assert_eq!(reason(0, 100), Wanted { count: 5, reason: "5 builds could run, and fill 5".to_owned() });
    assert_eq!(reason(0, 3).reason, "5 builds could run, and fill 5; most is 3");
    assert_eq!((reason(0, 3).count, reason(7, 9).count, reason(7, 2).count), (3, 7, 2));
    let none = wanted(&of(vec![need(1, 64)]), &pilot(), 0, 9);
    assert_eq!(none, Wanted { count: 0, reason: "nothing that could start fits".to_owned() });
}

#[test]
fn the_longest_path_limits_it() {
    let mut demand = of(vec![need(16, 1); 50]);
    // 10 hours of 16 cores, along a path of 2 hours: five pilots end with the path.
    (demand.work_core_seconds, demand.path_seconds) = (16.0 * 36_000.0, 7_200.0);
    let wanted_now = |demand: &Demand| wanted(demand, &pilot(), 0, 100);
    assert_eq!(wanted_now(&demand).count, 5);
    assert!(
        wanted_now(&demand).reason.starts_with("the longest path takes 7200 s"),
        "{}",
        wanted_now(&demand).reason
    );
    // Other machines do their share.
    demand.other_cores = 32;
    assert_eq!(wanted_now(&demand).count, 3);
}

#[test]
fn a_start_must_be_worth_it() {
    let mut demand = of(vec![need(16, 1); 50]);
    // 50 builds of a minute each on 16 cores, no path beyond a build.
    (demand.work_core_seconds, demand.path_seconds) = (16.0 * 60.0 * 50.0, 60.0);
    demand.startup_seconds = 30.0;
    let count = |demand: &Demand| wanted(demand, &pilot(), 0, 1000).count;
    assert_eq!(count(&demand), 50);
    // Paid machines must work for ten times their start-up: 50 minutes of work are ten of them.
    demand.cost = 10.0;
    assert_eq!(count(&demand), 10);
    // What is there is kept, even if it would not be started again.
    demand.cost = 1000.0;
    assert_eq!(count(&demand), 1);
    demand.there_cores = 16 * 6;
    assert_eq!(count(&demand), 6);
    // Nonsense of estimates gives a number.
    for nonsense in [f64::NAN, f64::INFINITY, -1.0] {
        (demand.work_core_seconds, demand.path_seconds, demand.cost) = (nonsense, nonsense, nonsense);
        assert!(count(&demand) >= 1);
    }
}

#[test]
fn the_nearest_miss_is_named() {
    let mut large = pilot();
    (large.name, large.memory_bytes) = ("big".to_owned(), 48 * GIB);
    let machines = [pilot(), large];
    assert_eq!(nearest_miss(&need(99, 32), &machines), None);
    let miss = |need: &Need| nearest_miss(need, &machines).unwrap();
    assert_eq!(miss(&need(1, 64)), "needs 64 GiB of memory; big has 48 GiB");
    let mut arm = need(1, 1);
    arm.labels.insert("arm64".to_owned());
    assert_eq!(miss(&arm), "needs arm64; lab has amd64");
    arm.memory_bytes = 40 * GIB + GIB / 2;
    assert_eq!(miss(&arm), "needs arm64; big has amd64");
    assert_eq!(nearest_miss(&arm, &[]).unwrap(), "there are no workers and no pools");
}
