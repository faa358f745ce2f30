//! Tests of the scheduler's decisions, event by event, and of its invariants.

mod ends;

use super::*;
use crate::event::Files;
use crate::machine::Machine;
use crate::simulate::simulate;
use crate::transfer::Needed;
use crate::work::Step;
use proptest::prelude::*;

fn parallel(serial: f64, parallel: f64) -> Work {
    Work { steps: vec![Step::Serial(serial), Step::Parallel(parallel)], ..Work::default() }
}

/// `next` depends on `long`; `small` and `other` stand alone.
fn sample() -> (Arc<Graph>, Vec<Work>) {
    let mut graph = Graph::new();
    let ids: Vec<PackageId> = ["long", "next", "small", "other"].iter().map(|name| graph.add(name)).collect();
    graph.depend(ids[1], ids[0]);
    (
        Arc::new(graph),
        vec![parallel(10.0, 400.0), parallel(1.0, 1.0), parallel(20.0, 8.0), parallel(5.0, 0.0)],
    )
}

const LONG: PackageId = PackageId(0);
const NEXT: PackageId = PackageId(1);
const SMALL: PackageId = PackageId(2);
const OTHER: PackageId = PackageId(3);
const HERE: MachineId = MachineId(0);

fn scheduler(cores: u32) -> Scheduler {
    let (graph, works) = sample();
    Scheduler::new(graph, works, vec![Machine::of_cores(cores)], Limits::default()).unwrap()
}

fn apply(scheduler: &mut Scheduler, now_seconds: f64, event: Event) -> Vec<Action> {
    let mut actions = Vec::new();
    scheduler.apply(now_seconds, event, &mut actions);
    actions
}

fn start(package: PackageId) -> Action {
    Action::Start { package, machine: HERE, cores: 1, files: Files::Memory }
}

fn cores(package: PackageId, cores: u32) -> Action {
    Action::Cores { package, cores }
}

fn built(package: PackageId) -> Event {
    Event::Ended { package, outcome: Outcome::Built { core_seconds: 1.0 } }
}

fn ended(package: PackageId, outcome: Outcome) -> Event {
    Event::Ended { package, outcome }
}

#[test]
fn cores_follow_the_path_and_come_back() {
    let mut scheduler = scheduler(8);
    assert_eq!(apply(&mut scheduler, 0.0, Event::Begin), [start(LONG), start(SMALL), start(OTHER)]);
    // `long` can use all cores; the others keep one each.
    let wants = Event::Wants { package: LONG, cores: 8 };
    assert_eq!(apply(&mut scheduler, 10.0, wants), [cores(LONG, 6)]);
    assert_eq!(apply(&mut scheduler, 11.0, built(OTHER)), [cores(LONG, 7)]);
    // A package of lower rank gets no further cores, whatever it wants.
    assert_eq!(apply(&mut scheduler, 12.0, Event::Wants { package: SMALL, cores: 8 }), []);
    // In a serial stage, the path gives its cores away, and takes them back afterwards.
    let serial = Event::Wants { package: LONG, cores: 1 };
    assert_eq!(apply(&mut scheduler, 13.0, serial), [cores(LONG, 1), cores(SMALL, 7)]);
    let wants = Event::Wants { package: LONG, cores: 4 };
    assert_eq!(apply(&mut scheduler, 14.0, wants), [cores(SMALL, 4), cores(LONG, 4)]);
    // Now `small` has the longest remaining path, and `next` waits for a core.
    assert_eq!(apply(&mut scheduler, 15.0, built(LONG)), [cores(SMALL, 8)]);
}

#[test]
fn nothing_starts_while_higher_ranks_want_all_cores() {
    let mut scheduler = scheduler(2);
    apply(&mut scheduler, 0.0, Event::Hold(SMALL));
    apply(&mut scheduler, 0.0, Event::Hold(OTHER));
    assert_eq!(apply(&mut scheduler, 0.0, Event::Begin), [start(LONG)]);
    assert_eq!(apply(&mut scheduler, 9.0, Event::Wants { package: LONG, cores: 2 }), [cores(LONG, 2)]);
    assert_eq!(apply(&mut scheduler, 9.0, Event::Release(OTHER)), []);
    assert_eq!(
        apply(&mut scheduler, 9.0, Event::Wants { package: LONG, cores: 1 }),
        [start(OTHER), cores(LONG, 1)]
    );
    // A bumped package takes a core from the path.
    apply(&mut scheduler, 9.5, built(OTHER));
    apply(&mut scheduler, 9.6, Event::Wants { package: LONG, cores: 2 });
    apply(&mut scheduler, 9.7, Event::Bump(SMALL));
    assert_eq!(apply(&mut scheduler, 9.8, Event::Release(SMALL)), [start(SMALL), cores(LONG, 1)]);
}

#[test]
fn a_failure_takes_its_dependents_out_of_the_ranks_until_it_is_retried() {
    let mut scheduler = scheduler(4);
    let whole = scheduler.rank_seconds(LONG);
    apply(&mut scheduler, 0.0, Event::Begin);
    assert_eq!(apply(&mut scheduler, 1.0, ended(LONG, Outcome::Failed)), []);
    assert_eq!(scheduler.rank_seconds(LONG), 0.0);
    assert_eq!(scheduler.rank_seconds(NEXT), 0.0);
    // It takes the free core, and `next` waits for it again.
    assert_eq!(apply(&mut scheduler, 2.0, Event::Retry(LONG)), [start(LONG)]);
    assert_eq!(scheduler.rank_seconds(LONG), whole);
    assert_eq!(apply(&mut scheduler, 3.0, built(LONG)), [start(NEXT)]);
}

#[test]
fn a_build_that_ran_out_of_memory_is_tried_alone_and_on_disk() {
    let mut scheduler = scheduler(4);
    apply(&mut scheduler, 0.0, Event::Begin);
    assert_eq!(apply(&mut scheduler, 1.0, ended(LONG, Outcome::OutOfMemory)), []);
    assert_eq!(apply(&mut scheduler, 2.0, built(OTHER)), []);
    let alone = Action::Start { package: LONG, machine: HERE, cores: 1, files: Files::Disk };
    assert_eq!(apply(&mut scheduler, 3.0, built(SMALL)), [alone]);
    // The second time, it counts as failed.
    assert_eq!(apply(&mut scheduler, 4.0, ended(LONG, Outcome::OutOfMemory)), []);
    assert_eq!(scheduler.ready(), 0);
    assert_eq!(scheduler.rank_seconds(NEXT), 0.0);
}

#[test]
fn a_built_package_frees_its_dependents_and_a_gone_one_blocks_them() {
    let mut scheduler = scheduler(4);
    for package in [LONG, NEXT, SMALL, OTHER] {
        apply(&mut scheduler, 0.0, Event::Hold(package));
    }
    assert_eq!(apply(&mut scheduler, 0.0, Event::Begin), []);
    assert_eq!(apply(&mut scheduler, 0.0, Event::Release(NEXT)), [], "it waits for `long`");
    assert_eq!(apply(&mut scheduler, 1.0, Event::Available(LONG)), [start(NEXT)]);
    apply(&mut scheduler, 1.0, Event::Available(LONG));
    assert_eq!(
        apply(&mut scheduler, 2.0, ended(NEXT, Outcome::Lost)),
        [start(NEXT)],
        "as if it had never started"
    );
    apply(&mut scheduler, 2.5, Event::Hold(NEXT));
    assert_eq!(apply(&mut scheduler, 3.0, ended(NEXT, Outcome::Lost)), []);
    assert_eq!(apply(&mut scheduler, 3.0, Event::Release(NEXT)), [start(NEXT)]);
    apply(&mut scheduler, 4.0, Event::Unavailable(SMALL));
    assert_eq!(apply(&mut scheduler, 4.0, Event::Release(SMALL)), []);
    assert_eq!(apply(&mut scheduler, 4.0, Event::Retry(SMALL)), [start(SMALL)]);
    apply(&mut scheduler, 5.0, Event::Stop);
    assert_eq!(apply(&mut scheduler, 5.0, Event::Release(OTHER)), []);
}

#[test]
fn dependents_of_a_failed_package_cannot_be_retried() {
    let mut scheduler = scheduler(4);
    apply(&mut scheduler, 0.0, Event::Begin);
    apply(&mut scheduler, 1.0, ended(LONG, Outcome::Failed));
    apply(&mut scheduler, 1.0, Event::Unavailable(NEXT));
    assert_eq!(apply(&mut scheduler, 2.0, Event::Retry(NEXT)), []);
    assert_eq!(apply(&mut scheduler, 2.0, Event::Retry(LONG)), [start(LONG)]);
    assert_eq!(apply(&mut scheduler, 3.0, built(LONG)), [start(NEXT)]);
}

#[test]
fn a_core_waits_a_moment_for_a_package_that_comes_before_all_ready_ones() {
    let mut scheduler = scheduler(1);
    for package in [LONG, SMALL, OTHER] {
        apply(&mut scheduler, 0.0, Event::Hold(package));
    }
    apply(&mut scheduler, 0.0, Event::Begin);
    apply(&mut scheduler, 0.0, Event::Expected(LONG));
    assert_eq!(apply(&mut scheduler, 0.0, Event::Release(SMALL)), []);
    assert_eq!(apply(&mut scheduler, 1.0, Event::Tick), []);
    assert_eq!(apply(&mut scheduler, 2.0, Event::Release(LONG)), [start(LONG)]);
    assert_eq!(apply(&mut scheduler, 4.0, built(LONG)), [start(SMALL)]);
    // The core waits for `other`, which precedes the ready `next`, but not forever.
    apply(&mut scheduler, 6.0, Event::Expected(OTHER));
    assert_eq!(apply(&mut scheduler, 7.0, built(SMALL)), []);
    assert_eq!(apply(&mut scheduler, 6.0 + EXPECTED_SECONDS_MAX, Event::Tick), []);
    assert_eq!(apply(&mut scheduler, 6.1 + EXPECTED_SECONDS_MAX, Event::Tick), [start(NEXT)]);
}

#[test]
fn disk_is_a_bound_but_an_idle_machine_tries_what_it_has() {
    let (graph, mut works) = sample();
    for work in &mut works {
        work.disk_bytes = 40;
    }
    works[LONG.index()].disk_bytes = 400;
    let machine = Machine { disk_bytes: Some(100), ..Machine::of_cores(8) };
    let mut scheduler = Scheduler::new(graph, works, vec![machine], Limits::default()).unwrap();
    assert_eq!(apply(&mut scheduler, 0.0, Event::Begin), [start(LONG)], "larger than the disk, and alone");
    assert_eq!(apply(&mut scheduler, 1.0, built(LONG)), [start(SMALL), start(OTHER)]);
    assert_eq!(apply(&mut scheduler, 2.0, built(OTHER)), [start(NEXT)]);
}

#[test]
fn pressure_holds_back_starts_unless_the_machine_is_idle() {
    let mut scheduler = scheduler(4);
    let high = Event::Pressure { machine: HERE, pressure: Pressure::High };
    apply(&mut scheduler, 0.0, high);
    assert_eq!(apply(&mut scheduler, 0.0, Event::Begin), [start(LONG)]);
    let low = Event::Pressure { machine: HERE, pressure: Pressure::Low };
    assert_eq!(apply(&mut scheduler, 1.0, low), [start(SMALL), start(OTHER)]);
}

#[test]
fn memory_bounds_starts_and_cores_and_nothing_is_overtaken_forever() {
    let mut graph = Graph::new();
    let names = ["large", "a", "b", "c", "d", "e"];
    let ids: Vec<PackageId> = names.iter().map(|name| graph.add(name)).collect();
    let mut works = vec![Work { memory_bytes: 8, ..parallel(1.0, 0.0) }; 6];
    for (work, seconds) in works.iter_mut().zip([900.0, 1000.0, 800.0, 700.0, 600.0, 500.0]) {
        work.steps = vec![Step::Serial(seconds)];
    }
    works[0].memory_bytes = 16;
    works[1].memory_per_core_bytes = 4;
    let machine = Machine { memory_bytes: Some(20), ..Machine::of_cores(8) };
    let mut scheduler = Scheduler::new(Arc::new(graph), works, vec![machine], Limits::default()).unwrap();
    let started = |actions: &[Action]| -> Vec<PackageId> {
        let starts = actions.iter().filter_map(|action| match action {
            Action::Start { package, .. } => Some(*package),
            Action::Cores { .. } => None,
        });
        starts.collect()
    };
    // 8 + 8 of 20 are taken; `large` has the second rank and does not fit.
    assert_eq!(started(&apply(&mut scheduler, 0.0, Event::Begin)), [ids[1], ids[2]]);
    // The 4 left are enough for one more core.
    assert_eq!(
        apply(&mut scheduler, 1.0, Event::Wants { package: ids[1], cores: 8 }),
        [Action::Cores { package: ids[1], cores: 2 }]
    );
    // Demand of the path takes precedence over packages smaller than `large`.
    assert_eq!(apply(&mut scheduler, 2.0, built(ids[2])), [Action::Cores { package: ids[1], cores: 4 }]);
    let serial = Event::Wants { package: ids[1], cores: 1 };
    assert_eq!(started(&apply(&mut scheduler, 3.0, serial)), [ids[3]]);
    // From now on, only `large` may start.
    let late = OVERTAKEN_SECONDS_MAX + 1.0;
    assert_eq!(started(&apply(&mut scheduler, late, built(ids[3]))), []);
    assert_eq!(started(&apply(&mut scheduler, late + 1.0, built(ids[1]))), [ids[0]]);
}

#[test]
fn the_fastest_machine_with_room_is_chosen() {
    let (graph, works) = sample();
    let machines = vec![Machine::of_cores(2), Machine { speed: 2.0, ..Machine::of_cores(4) }];
    let mut scheduler = Scheduler::new(graph, works, machines, Limits::default()).unwrap();
    let actions = apply(&mut scheduler, 0.0, Event::Begin);
    let fast = Action::Start { package: LONG, machine: MachineId(1), cores: 1, files: Files::Memory };
    assert_eq!(actions[0], fast);
}

#[test]
fn machines_come_and_go() {
    let (graph, works) = sample();
    let mut scheduler = Scheduler::without_machines(graph, works, Limits::default()).unwrap();
    assert_eq!(apply(&mut scheduler, 0.0, Event::Begin), [], "there is no machine, and nothing fails");
    let there = MachineId(1);
    let joined = |machine, cores| Event::Joined { machine, about: Machine::of_cores(cores), is_open: true };
    assert_eq!(apply(&mut scheduler, 1.0, joined(HERE, 1)), [start(LONG)]);
    let start_there = |package| Action::Start { package, machine: there, cores: 1, files: Files::Memory };
    assert_eq!(apply(&mut scheduler, 2.0, joined(there, 1)), [start_there(SMALL)]);
    assert_eq!(apply(&mut scheduler, 3.0, Event::Closed(there)), []);
    assert_eq!(apply(&mut scheduler, 4.0, built(SMALL)), [], "a closed machine takes no builds");
    assert_eq!(apply(&mut scheduler, 5.0, Event::Opened(there)), [start_there(OTHER)]);
    assert_eq!(apply(&mut scheduler, 6.0, ended(LONG, Outcome::Lost)), [start(LONG)]);
    apply(&mut scheduler, 7.0, Event::Stop);
    apply(&mut scheduler, 8.0, ended(OTHER, Outcome::Lost));
    apply(&mut scheduler, 8.0, Event::Left(there));
    assert_eq!((scheduler.running(there).count(), scheduler.running(HERE).count()), (0, 1));
}

#[test]
fn ranks_follow_the_present_machines() {
    let mut scheduler = scheduler(4);
    let before = scheduler.rank_seconds(LONG);
    let about = Machine { speed: 2.0, ..Machine::of_cores(40) };
    apply(&mut scheduler, 0.0, Event::Joined { machine: MachineId(1), about, is_open: true });
    assert!(scheduler.rank_seconds(LONG) < before / 2.0);
    apply(&mut scheduler, 0.0, Event::Left(MachineId(1)));
    assert_eq!(scheduler.rank_seconds(LONG), before);
}

#[test]
fn a_build_uses_the_cores_of_its_own_machine() {
    let mut graph = Graph::new();
    let [large, small] = ["large", "small"].map(|name| graph.add(name));
    let work =
        |seconds| Work { steps: vec![Step::Parallel(seconds)], basis: Basis::Recorded, ..Work::default() };
    let machines = vec![Machine::of_cores(2).oversubscribed(), Machine::of_cores(8).oversubscribed()];
    let works = vec![work(800.0), work(10.0)];
    let mut scheduler = Scheduler::new(Arc::new(graph), works, machines, Limits::default()).unwrap();
    for (package, machine) in [(large, MachineId(1)), (small, HERE)] {
        apply(&mut scheduler, 0.0, Event::Hold(package));
        apply(&mut scheduler, 0.0, Event::Running { package, machine });
    }
    for (package, cores) in [(large, 8), (small, 2)] {
        let wants = apply(&mut scheduler, 1.0, Event::Wants { package, cores: 99 });
        assert_eq!(
            wants,
            [Action::Cores { package, cores }],
            "as many as exist, and none of the further ones"
        );
    }
}

#[test]
fn the_speed_of_a_machine_is_measured_by_its_builds() {
    let mut graph = Graph::new();
    let ids: Vec<PackageId> = (0..9).map(|n| graph.add(&n.to_string())).collect();
    let works = vec![Work::serial(100.0, Basis::Recorded); 9];
    let machines = vec![Machine::of_cores(1)];
    let mut scheduler = Scheduler::new(Arc::new(graph), works, machines, Limits::default()).unwrap();
    apply(&mut scheduler, 0.0, Event::Begin);
    let before = scheduler.rank_seconds(ids[8]);
    for (built, id) in (1..).zip(&ids[..4]) {
        let outcome = Outcome::Built { core_seconds: 50.0 };
        apply(&mut scheduler, 50.0 * f64::from(built), Event::Ended { package: *id, outcome });
    }
    assert!(
        (scheduler.rank_seconds(ids[8]) - before / 2.0).abs() < 1e-9,
        "each took half of the expected time"
    );
    // It keeps its speed when it returns.
    apply(&mut scheduler, 201.0, Event::Closed(HERE));
    apply(&mut scheduler, 201.0, Event::Ended { package: ids[4], outcome: Outcome::Lost });
    apply(&mut scheduler, 201.0, Event::Left(HERE));
    let about = Machine::of_cores(1);
    let joined = Event::Joined { machine: HERE, about, is_open: false };
    assert_eq!(apply(&mut scheduler, 202.0, joined), [], "it is closed");
    assert!((scheduler.rank_seconds(ids[8]) - before / 2.0).abs() < 1e-9);
    assert_eq!(apply(&mut scheduler, 203.0, Event::Opened(HERE)).len(), 1);
}

#[test]
fn a_build_of_an_earlier_scheduler_keeps_its_core() {
    let mut scheduler = scheduler(1);
    apply(&mut scheduler, 0.0, Event::Hold(OTHER));
    assert_eq!(apply(&mut scheduler, 0.0, Event::Running { package: OTHER, machine: HERE }), []);
    assert_eq!(apply(&mut scheduler, 0.0, Event::Begin), [], "the core is taken");
    assert_eq!(apply(&mut scheduler, 1.0, built(OTHER)), [start(LONG)]);
}

#[test]
fn a_package_too_large_for_the_present_machines_does_not_hold_up_others() {
    let (graph, mut works) = sample();
    works[LONG.index()].memory_bytes = 4 << 30;
    let small = Machine { memory_bytes: Some(2 << 30), ..Machine::of_cores(1) };
    let large = Machine { memory_bytes: Some(8 << 30), ..Machine::of_cores(1) };
    let mut scheduler = Scheduler::new(graph, works, vec![small, large], Limits::default()).unwrap();
    apply(&mut scheduler, 0.0, Event::Left(MachineId(1)));
    assert_eq!(apply(&mut scheduler, 0.0, Event::Begin), [start(SMALL)]);
    assert_eq!(apply(&mut scheduler, OVERTAKEN_SECONDS_MAX + 1.0, built(SMALL)), [start(OTHER)]);
    let joined = Event::Joined { machine: MachineId(1), about: large, is_open: true };
    let machine = MachineId(1);
    let files = Files::Memory;
    let expected = [Action::Start { package: LONG, machine, cores: 1, files }];
    assert_eq!(apply(&mut scheduler, OVERTAKEN_SECONDS_MAX + 2.0, joined), expected);
}

#[test]
fn priors_are_corrected_by_results() {
    let mut graph = Graph::new();
    let ids: Vec<PackageId> = (0..10).map(|n| graph.add(&n.to_string())).collect();
    let mut works = vec![Work::serial(10.0, Basis::Prior); 9];
    works.push(Work::serial(20.0, Basis::Recorded));
    let mut scheduler =
        Scheduler::new(Arc::new(graph), works, vec![Machine::of_cores(8)], Limits::default()).unwrap();
    apply(&mut scheduler, 0.0, Event::Begin);
    let last = ids[8];
    assert_eq!(scheduler.rank_seconds(last), 10.0);
    for id in &ids[..8] {
        apply(&mut scheduler, 30.0, ended(*id, Outcome::Built { core_seconds: 30.0 }));
    }
    assert!((scheduler.rank_seconds(last) - 30.0).abs() < 1e-9);
    assert_eq!(scheduler.rank_seconds(ids[9]), 20.0);
}

#[test]
fn impossible_schedules_are_reported() {
    let (graph, works) = sample();
    let new = |graph: &Arc<Graph>, works: &[Work], machines: Vec<Machine>| {
        Scheduler::new(graph.clone(), works.to_vec(), machines, Limits::default()).unwrap_err().to_string()
    };
    let one = || vec![Machine::of_cores(1)];
    assert_eq!(new(&graph, &works, vec![]), "no machine to build on, or one without cores");
    assert_eq!(
        new(&graph, &works, vec![Machine::of_cores(0)]),
        "no machine to build on, or one without cores"
    );
    let mut bad = works.clone();
    bad[2].steps = vec![Step::Serial(-1.0)];
    assert_eq!(new(&graph, &bad, one()), "small has an invalid time of -1 seconds");
    bad[2].steps = vec![Step::Parallel(f64::NAN)];
    assert_eq!(new(&graph, &bad, one()), "small has an invalid time of NaN seconds");
    bad[2] = Work { memory_bytes: 9, ..works[2].clone() };
    let small = vec![Machine { memory_bytes: Some(8), ..Machine::of_cores(1) }];
    assert_eq!(new(&graph, &bad, small), "small needs 9 bytes of memory, but the largest machine has only 8");
    let mut cyclic = Graph::clone(&graph);
    cyclic.depend(LONG, NEXT);
    assert_eq!(new(&Arc::new(cyclic), &works, one()), "these packages wait for each other: long, next");
}

#[derive(Clone, Debug)]
struct Made {
    graph: Arc<Graph>,
    works: Vec<Work>,
    priorities: Vec<i32>,
    machines: Vec<Machine>,
    limits: Limits,
}

fn made() -> impl Strategy<Value = Made> {
    const PACKAGES: u32 = 24;
    let own = (proptest::option::of(1u32..6), prop_oneof![Just(0), -3i32..4]);
    let work = (0.0f64..50.0, 0.0f64..300.0, 0u64..40, 0u64..6, 0u64..50, 0u64..60, own);
    let room = || proptest::option::of(40u64..90);
    let machine = (1u32..9, 0.5f64..3.0, room(), room());
    let limit = || proptest::option::of(1u32..6);
    (
        proptest::collection::vec((0..PACKAGES, 0..PACKAGES), 0..60),
        proptest::collection::vec(work, PACKAGES as usize),
        proptest::collection::vec(machine, 1..4),
        (limit(), limit(), any::<bool>()),
    )
        .prop_map(|(edges, works, machines, (slots_max, jobs_max, by_rank))| {
            let mut graph = Graph::new();
            for number in 0..PACKAGES {
                graph.add(&number.to_string());
            }
            for (a, b) in edges.into_iter().filter(|(a, b)| a != b) {
                graph.depend(PackageId(a.max(b)), PackageId(a.min(b)));
            }
            let priorities = works.iter().map(|(.., (_, priority))| *priority).collect();
            let works =
                works.into_iter().map(|(serial, rest, memory, per_core, files, disk_bytes, own)| Work {
                    steps: vec![Step::Serial(serial), Step::Parallel(rest), Step::Serial(serial / 2.0)],
                    memory_bytes: memory,
                    memory_per_core_bytes: per_core,
                    files_bytes: files,
                    disk_bytes,
                    jobs_max: own.0,
                    basis: Basis::Prior,
                    kept_share: None,
                });
            let machines = machines.into_iter();
            Made {
                graph: Arc::new(graph),
                works: works.collect(),
                priorities,
                machines: machines
                    .map(|(cores, speed, memory_bytes, disk_bytes)| Machine {
                        speed,
                        memory_bytes,
                        disk_bytes,
                        ..Machine::of_cores(cores)
                    })
                    .collect(),
                limits: Limits {
                    slots_max,
                    jobs_max,
                    sharing: if by_rank { Sharing::ByRank } else { Sharing::Equally },
                },
            }
        })
}

/// Watches a scheduler and independently checks that every decision is allowed. It knows the graph, the machines and
/// the actions, but nothing about the scheduler's state.
struct Watched {
    scheduler: Scheduler,
    made: Made,
    built: Vec<bool>,
    /// The machine, the cores, the memory with one core, and the disk space of each running build.
    running: BTreeMap<PackageId, (MachineId, u32, u64, u64)>,
    heard: Vec<(f64, Event, Vec<Action>)>,
}

impl Watched {
    fn new(made: Made) -> Watched {
        let scheduler =
            Scheduler::new(made.graph.clone(), made.works.clone(), made.machines.clone(), made.limits)
                .unwrap()
                .with_priorities(&made.priorities);
        let built = vec![false; made.graph.len()];
        Watched { scheduler, made, built, running: BTreeMap::new(), heard: Vec::new() }
    }

    fn check_bounds(&self) {
        for (index, machine) in self.made.machines.iter().enumerate() {
            let on = || self.running.iter().filter(|(_, (at, ..))| at.index() == index);
            let cores: u32 = on().map(|(_, (_, cores, ..))| cores).sum();
            assert!(cores <= machine.cores, "{cores} cores of {}", machine.cores);
            let slots = self.made.limits.slots_max.unwrap_or(u32::MAX);
            assert!(on().count() <= slots as usize);
            let most = self.made.limits.jobs_max.unwrap_or(u32::MAX);
            let most = |id: &PackageId| self.made.works[id.index()].cores_of(most);
            assert!(on().all(|(id, (_, cores, ..))| (1..=most(id)).contains(cores)));
            let memory: u64 = on()
                .map(|(id, (_, cores, memory, _))| {
                    memory + self.made.works[id.index()].memory_per_core_bytes * u64::from(cores - 1)
                })
                .sum();
            assert!(memory <= machine.memory_bytes.unwrap_or(u64::MAX), "{memory} of {machine:?}");
            let disk: u64 = on().map(|(_, (.., disk))| disk).sum();
            let most = on().map(|(_, (.., disk))| *disk).max().unwrap_or(0);
            // A package too large for the whole disk is tried, and leaves nothing for others.
            assert!(disk <= machine.disk_bytes.unwrap_or(u64::MAX).max(most), "{disk} of {machine:?}");
        }
    }
}

impl Policy for Watched {
    fn apply(&mut self, now_seconds: f64, event: Event, actions: &mut Vec<Action>) {
        if let Event::Ended { package, .. } = event {
            self.built[package.index()] = true;
            self.running.remove(&package);
        }
        self.scheduler.apply(now_seconds, event.clone(), actions);
        for action in &*actions {
            match *action {
                Action::Start { package, machine, cores, files } => {
                    let mut dependencies = self.made.graph.dependencies(package).iter();
                    assert!(dependencies.all(|dependency| self.built[dependency.index()]));
                    assert!(!self.built[package.index()] && !self.running.contains_key(&package));
                    let work = &self.made.works[package.index()];
                    let (in_memory, on_disk) =
                        if files == Files::Memory { (work.files_bytes, 0) } else { (0, work.files_bytes) };
                    let build = (machine, cores, work.memory_bytes + in_memory, work.disk_bytes + on_disk);
                    self.running.insert(package, build);
                }
                Action::Cores { package, cores } => self.running.get_mut(&package).unwrap().1 = cores,
            }
        }
        self.check_bounds();
        self.heard.push((now_seconds, event, actions.clone()));
    }
}

proptest! {
    /// For any graph, works and machines: everything is built, nothing before its dependencies, never with more
    /// cores, builds or memory than available, not faster than the bound; and the same events give the same actions.
    #[test]
    fn every_run_keeps_to_its_bounds_and_ends(made in made(), seed in any::<u64>()) {
        let mut watched = Watched::new(made.clone());
        let actual = crate::noise::noisy(&made.works, 0.5, seed);
        let simulated = simulate(&made.graph, &actual, &made.machines, &mut watched).unwrap();
        prop_assert_eq!(simulated.builds.len(), made.graph.len());
        prop_assert!(watched.running.is_empty());
        prop_assert!(simulated.jobs_per_core_max <= 1.0);
        let bound = crate::Bound::of(&made.graph, &actual, &made.machines);
        prop_assert!(simulated.makespan_seconds >= bound.seconds() * (1.0 - 1e-9));
        let mut again = Watched::new(made);
        for (now_seconds, event, actions) in watched.heard {
            prop_assert_eq!(apply(&mut again.scheduler, now_seconds, event), actions);
        }
    }

    /// With failures, holds, bumps and retries in any order: in the end, only dependents of failed packages are left,
    /// and after retries everything is built.
    #[test]
    fn nothing_is_forgotten(made in made(), choices in proptest::collection::vec(any::<u32>(), 1..300)) {
        let len = made.graph.len() as u32;
        let mut watched = Watched::new(made);
        let mut actions = Vec::new();
        watched.apply(0.0, Event::Begin, &mut actions);
        let mut failed: Vec<PackageId> = Vec::new();
        let mut choices = choices.into_iter();
        let mut now_seconds = 0.0;
        loop {
            actions.clear();
            now_seconds += 7.0;
            let choice = choices.next();
            let package = PackageId(choice.unwrap_or(0) / 16 % len);
            let event = match choice.map(|choice| choice % 16) {
                Some(0) => Event::Hold(package),
                Some(1) => Event::Release(package),
                Some(2) => Event::Bump(package),
                Some(3) => Event::Wants { package, cores: 1 + package.0 % 9 },
                Some(6) => Event::Expected(package),
                Some(4) => match failed.pop() {
                    Some(package) => Event::Retry(package),
                    None => Event::Release(package),
                },
                _ => {
                    let any = watched.running.len().max(1);
                    match watched.running.keys().nth(package.index() % any).copied() {
                        Some(package) if choice.is_some_and(|choice| choice % 16 == 5) => {
                            failed.push(package);
                            watched.scheduler.apply(now_seconds, ended(package, Outcome::Failed), &mut actions);
                            watched.running.remove(&package);
                            for action in &actions {
                                match *action {
                                    Action::Start { package, machine, cores, .. } => {
                                        watched.running.insert(package, (machine, cores, 0, 0));
                                    }
                                    // The bounds are checked with the next event.
                                    Action::Cores { package, cores } => {
                                        if let Some(running) = watched.running.get_mut(&package) {
                                            running.1 = cores;
                                        }
                                    }
                                }
                            }
                            continue;
                        }
                        Some(package) => built(package),
                        None if choice.is_none() => match failed.pop() {
                            Some(package) => Event::Retry(package),
                            None => break,
                        },
                        None => continue,
                    }
                }
            };
            watched.made.limits.slots_max = None;
            watched.made.machines.iter_mut().for_each(|machine| machine.memory_bytes = None);
            watched.apply(now_seconds, event, &mut actions);
        }
        for package in (0..len).map(PackageId) {
            actions.clear();
            watched.apply(now_seconds, Event::Release(package), &mut actions);
        }
        while let Some(package) = watched.running.keys().next().copied() {
            actions.clear();
            now_seconds += 7.0;
            watched.apply(now_seconds, built(package), &mut actions);
        }
        prop_assert!(watched.built.iter().all(|built| *built), "{:?}", watched.built);
    }
}

#[test]
fn a_priority_comes_before_rank_and_takes_its_dependencies_along() {
    let (graph, works) = sample();
    let new = |own: [i32; 4]| {
        let machine = vec![Machine::of_cores(1)];
        let made = Scheduler::new(graph.clone(), works.clone(), machine, Limits::default()).unwrap();
        made.with_priorities(&own)
    };
    let first = |own| apply(&mut new(own), 0.0, Event::Begin);
    assert_eq!(first([0, 0, 0, 0]), [start(LONG)]);
    assert_eq!(first([0, 0, 0, 1]), [start(OTHER)]);
    assert_eq!(first([0, 2, 0, 1]), [start(LONG)], "`next` waits for it");
    assert_eq!(first([-1, 0, 0, 0]), [start(SMALL)]);
    // A bump comes before any priority.
    let mut bumped = new([0, 0, 0, 100]);
    apply(&mut bumped, 0.0, Event::Bump(SMALL));
    assert_eq!(apply(&mut bumped, 0.0, Event::Begin), [start(SMALL)]);
}

#[test]
fn a_build_gets_no_more_cores_than_its_package_may_have() {
    let (graph, mut works) = sample();
    works[LONG.index()].jobs_max = Some(3);
    works[SMALL.index()].jobs_max = Some(1);
    let machine = vec![Machine::of_cores(8)];
    let mut scheduler = Scheduler::new(graph, works, machine, Limits::default()).unwrap();
    assert_eq!(scheduler.rank_seconds(LONG), 10.0 + 400.0 / 3.0 + 1.0 + 1.0 / 8.0);
    assert_eq!(scheduler.rank_seconds(SMALL), 28.0);
    apply(&mut scheduler, 0.0, Event::Begin);
    assert_eq!(apply(&mut scheduler, 10.0, Event::Wants { package: LONG, cores: 8 }), [cores(LONG, 3)]);
    assert_eq!(apply(&mut scheduler, 11.0, Event::Wants { package: SMALL, cores: 8 }), []);
    assert_eq!(apply(&mut scheduler, 12.0, Event::Wants { package: OTHER, cores: 8 }), [cores(OTHER, 4)]);
}

/// Two builds of these lengths, on a slow and a fast machine with one core each. The first takes the fast one; what the
/// release of the second starts is returned, and what the end of the first starts, at this time.
fn on_uneven_machines(first: f64, second: f64, ends: f64) -> [Vec<Action>; 2] {
    let mut graph = Graph::new();
    let (one, two) = (graph.add("one"), graph.add("two"));
    let works = vec![parallel(first, 0.0), parallel(second, 0.0)];
    let machines = vec![Machine::of_cores(1), Machine { speed: 4.0, ..Machine::of_cores(1) }];
    let mut scheduler = Scheduler::new(Arc::new(graph), works, machines, Limits::default()).unwrap();
    apply(&mut scheduler, 0.0, Event::Hold(two));
    let action = |package, machine| Action::Start { package, machine, cores: 1, files: Files::Memory };
    assert_eq!(apply(&mut scheduler, 0.0, Event::Begin), [action(one, MachineId(1))]);
    let released = apply(&mut scheduler, 0.0, Event::Release(two));
    [released, apply(&mut scheduler, ends, built(one))]
}

#[test]
fn a_package_waits_for_a_fast_machine_if_it_ends_there_first() {
    let start = |machine| Action::Start {
        package: PackageId(1),
        machine: MachineId(machine),
        cores: 1,
        files: Files::Memory,
    };
    // 2 s until the fast machine is free, and 25 s there; 100 s on the slow one.
    assert_eq!(on_uneven_machines(8.0, 100.0, 2.0), [vec![], vec![start(1)]]);
    // 100 s until it is free, and 25 s there.
    assert_eq!(on_uneven_machines(400.0, 100.0, 100.0), [vec![start(0)], vec![]]);
}

#[test]
fn a_package_starts_where_it_ends_first_with_the_time_for_its_inputs() {
    let mut graph = Graph::new();
    for name in ["a", "b", "c"] {
        graph.add(name);
    }
    let works = vec![Work::serial(100.0, Basis::Recorded); 3];
    let machines = vec![Machine::of_cores(1), Machine::of_cores(1)];
    let mut scheduler = Scheduler::new(Arc::new(graph), works, machines, Limits::default()).unwrap();
    let mut actions = Vec::new();
    for package in 0..3 {
        scheduler.apply(0.0, Event::Hold(PackageId(package)), &mut actions);
        let inputs = vec![Needed { artifact: package / 2, bytes: 1000 }];
        scheduler.apply(0.0, Event::Needs { package: PackageId(package), inputs }, &mut actions);
    }
    for machine in 0..2 {
        let machine = MachineId(machine);
        scheduler.apply(0.0, Event::Rate { machine, bytes_per_second: 100.0 }, &mut actions);
    }
    let starts = |scheduler: &mut Scheduler, now_seconds: f64, event: Event| -> Vec<(u32, u32)> {
        let mut actions = Vec::new();
        scheduler.apply(now_seconds, event, &mut actions);
        let start = |action: &Action| match action {
            Action::Start { package, machine, .. } => Some((package.0, machine.0)),
            _ => None,
        };
        actions.iter().filter_map(start).collect()
    };
    starts(&mut scheduler, 0.0, Event::Begin);
    assert_eq!(starts(&mut scheduler, 0.0, Event::Release(PackageId(0))), [(0, 0)]);
    assert_eq!(scheduler.missing_bytes_of(MachineId(0), PackageId(0)), 1000);
    let ended = Event::Ended { package: PackageId(0), outcome: Outcome::Built { core_seconds: 100.0 } };
    starts(&mut scheduler, 100.0, ended);
    // The second needs what the first machine has; the third does not, and takes the other.
    assert_eq!(starts(&mut scheduler, 100.0, Event::Release(PackageId(1))), [(1, 0)]);
    assert_eq!(scheduler.missing_bytes_of(MachineId(0), PackageId(1)), 0);
    assert_eq!(starts(&mut scheduler, 100.0, Event::Release(PackageId(2))), [(2, 1)]);
}

/// Two machines, of which the second has kept work of `long`; it is idle, or builds something of this time.
fn beside_kept_work(share: f64, busy_seconds: Option<f64>) -> Scheduler {
    let mut graph = Graph::new();
    graph.add("long");
    graph.add("other");
    let long = Work { kept_share: Some(share), ..parallel(100.0, 0.0) };
    let other = parallel(busy_seconds.unwrap_or(0.0), 0.0);
    let machines = vec![Machine::of_cores(1), Machine::of_cores(1)];
    let mut scheduler =
        Scheduler::new(Arc::new(graph), vec![long, other], machines, Limits::default()).unwrap();
    let kept = Event::Kept { package: LONG, machines: vec![THERE] };
    assert_eq!(apply(&mut scheduler, 0.0, kept), []);
    if busy_seconds.is_some() {
        apply(&mut scheduler, 0.0, Event::Running { package: NEXT, machine: THERE });
    }
    scheduler
}

const THERE: MachineId = MachineId(1);

fn start_there(package: PackageId) -> Action {
    Action::Start { package, machine: THERE, cores: 1, files: Files::Memory }
}

#[test]
fn a_package_starts_where_its_kept_work_is_if_it_ends_first_there() {
    let mut idle = beside_kept_work(0.2, None);
    assert!(apply(&mut idle, 0.0, Event::Begin).contains(&start_there(LONG)));
    // It waits for the machine, but not longer than without kept work.
    let mut short = beside_kept_work(0.2, Some(30.0));
    assert_eq!(apply(&mut short, 0.0, Event::Begin), []);
    assert_eq!(apply(&mut short, 30.0, built(NEXT)), [start_there(LONG)]);
    let mut long = beside_kept_work(0.2, Some(90.0));
    assert_eq!(apply(&mut long, 0.0, Event::Begin), [start(LONG)]);
    // Kept work that saved nothing attracts no build.
    let mut useless = beside_kept_work(1.0, Some(1.0));
    assert_eq!(apply(&mut useless, 0.0, Event::Begin), [start(LONG)]);
}

#[test]
fn kept_work_counts_in_ranks_while_its_machine_is_present_and_says_nothing_of_its_speed() {
    let mut scheduler = beside_kept_work(0.2, None);
    assert!((scheduler.rank_seconds(LONG) - 20.0).abs() < 1e-9);
    apply(&mut scheduler, 0.0, Event::Left(THERE));
    assert!((scheduler.rank_seconds(LONG) - 100.0).abs() < 1e-9);
    let about = Machine::of_cores(1);
    apply(&mut scheduler, 0.0, Event::Joined { machine: THERE, about, is_open: true });
    assert!((scheduler.rank_seconds(LONG) - 20.0).abs() < 1e-9);
    apply(&mut scheduler, 0.0, Event::Kept { package: LONG, machines: Vec::new() });
    assert!((scheduler.rank_seconds(LONG) - 100.0).abs() < 1e-9);

    let mut graph = Graph::new();
    let ids: Vec<PackageId> = (0..4).map(|number| graph.add(&number.to_string())).collect();
    let work = Work { kept_share: Some(0.1), ..parallel(100.0, 0.0) };
    let machines = vec![Machine::of_cores(4)];
    let mut scheduler = Scheduler::new(Arc::new(graph), vec![work; 4], machines, Limits::default()).unwrap();
    for package in &ids {
        apply(&mut scheduler, 0.0, Event::Kept { package: *package, machines: vec![HERE] });
    }
    apply(&mut scheduler, 0.0, Event::Begin);
    for package in ids {
        let outcome = Outcome::Built { core_seconds: 10.0 };
        apply(&mut scheduler, 10.0, Event::Ended { package, outcome });
    }
    assert_eq!(scheduler.measured_speed(HERE), None);
}
