//! Tests of the simulation: what it charges, and that it trusts no policy.

use kilnyard_model::graph::{Graph, PackageId};
use kilnyard_schedule::policies::{Jobs, Workers};
use kilnyard_schedule::{
    Action, Basis, Conditions, Event, Farm, Files, Inputs, Limits, Machine, MachineId, Needed, Policy,
    Scheduler, Simulated, SimulationError, Step, Supply, Work, simulate, simulate_farm, simulate_under,
};
use std::sync::Arc;

/// A policy that answers each event with scripted actions.
struct Scripted(Vec<Vec<Action>>);

impl Policy for Scripted {
    fn apply(&mut self, _now_seconds: f64, _event: Event, actions: &mut Vec<Action>) {
        if !self.0.is_empty() {
            actions.extend(self.0.remove(0));
        }
    }
}

fn start_on(package: u32, machine: u32, cores: u32) -> Action {
    Action::Start { package: PackageId(package), machine: MachineId(machine), cores, files: Files::Memory }
}

fn start(package: u32, cores: u32) -> Action {
    start_on(package, 0, cores)
}

fn cores(package: u32, cores: u32) -> Action {
    Action::Cores { package: PackageId(package), cores }
}

/// `b` depends on `a`; `c` has no dependencies.
fn graph() -> Graph {
    let mut graph = Graph::new();
    let (a, b, _) = (graph.add("a"), graph.add("b"), graph.add("c"));
    graph.depend(b, a);
    graph
}

fn play(works: &[Work], machines: &[Machine], script: &[&[Action]]) -> Result<Simulated, SimulationError> {
    let script = script.iter().map(|actions| actions.to_vec()).collect();
    simulate(&graph(), works, machines, &mut Scripted(script))
}

fn parallel(core_seconds: f64) -> Work {
    Work { steps: vec![Step::Parallel(core_seconds)], ..Work::default() }
}

fn serial(seconds: f64) -> Work {
    Work::serial(seconds, Basis::Recorded)
}

#[test]
fn impossible_actions_are_rejected() {
    let works = [serial(1.0), serial(1.0), serial(1.0)];
    let machines = [Machine::of_cores(4)];
    let message = |script: &[&[Action]]| play(&works, &machines, script).unwrap_err().to_string();
    assert_eq!(message(&[&[start(1, 1)]]), "b was started before a was built");
    assert_eq!(message(&[&[start(0, 1), start(0, 1)]]), "a was started twice");
    assert_eq!(message(&[&[start(0, 1)], &[start(0, 1)]]), "a was started twice");
    assert_eq!(message(&[&[start(0, 0)]]), "a was started without a core");
    assert_eq!(message(&[&[start(0, 1), cores(0, 0)]]), "a was left without a core");
    assert_eq!(message(&[&[cores(0, 1)]]), "a was given cores but is not being built");
    assert_eq!(message(&[&[start_on(0, 1, 1)]]), "a was started on an unknown machine");
    assert_eq!(message(&[&[start(0, 1)]]), "nothing is running, but 2 packages are left, such as b");
}

#[test]
fn more_jobs_than_cores_share_the_cores() {
    let works = [parallel(40.0), parallel(0.0), parallel(40.0)];
    // 8 jobs on 4 cores: 80 core-seconds take 20 seconds.
    let crowded = [start(0, 4), start(2, 4)];
    let played = play(&works, &[Machine::of_cores(4)], &[&crowded, &[], &[], &[start(1, 1)]]).unwrap();
    assert_eq!(played.makespan_seconds, 20.0);
    assert_eq!(played.jobs_per_core_max, 2.0);
    assert_eq!(played.busy[0].cores, 4.0);
    // 6 jobs on 4 cores: `a` gets two thirds of them.
    let uneven = [start(0, 4), start(2, 2)];
    let played = play(&works, &[Machine::of_cores(4)], &[&uneven, &[], &[], &[start(1, 1)]]).unwrap();
    let ended = |package: u32| {
        let mut builds = played.builds.iter();
        builds.find(|built| built.package == PackageId(package)).unwrap().end_seconds
    };
    assert!((ended(0) - 15.0).abs() < 1e-9, "{}", ended(0));
    // From then on, `c` has its two cores to itself, and half of its work is left.
    assert!((ended(2) - 25.0).abs() < 1e-9, "{}", ended(2));
}

#[test]
fn a_faster_machine_and_moved_cores_are_counted() {
    let works = [parallel(40.0), serial(10.0), serial(30.0)];
    let machines = [Machine { speed: 2.0, ..Machine::of_cores(4) }, Machine::of_cores(1)];
    // `a` reports that it can use all cores, and gets them.
    let script: [&[Action]; 3] = [&[start(0, 1), start_on(2, 1, 1)], &[cores(0, 4)], &[start(1, 1)]];
    let played = play(&works, &machines, &script).unwrap();
    let ends: Vec<(u32, f64)> = played.builds.iter().map(|b| (b.package.0, b.end_seconds)).collect();
    assert_eq!(ends, [(0, 5.0), (1, 10.0), (2, 30.0)]);
    assert_eq!((played.builds[0].start_cores, played.builds[0].end_cores), (1, 4));
}

#[test]
fn cores_for_a_build_that_ended_at_the_same_moment_have_no_effect() {
    let works = [serial(10.0), serial(1.0), serial(10.0)];
    // When the end of `a` is reported, that of `c` is not known yet.
    let script: [&[Action]; 2] = [&[start(0, 1), start(2, 1)], &[start(1, 1), cores(2, 3)]];
    let played = play(&works, &[Machine::of_cores(4)], &script).unwrap();
    assert_eq!(played.makespan_seconds, 11.0);
}

#[test]
fn expected_memory_is_added_up() {
    let work = Work { memory_bytes: 10, memory_per_core_bytes: 3, files_bytes: 100, ..parallel(8.0) };
    let works = [work.clone(), serial(0.0), work];
    let script: [&[Action]; 4] = [&[start(0, 3), start(2, 1)], &[], &[], &[start(1, 1)]];
    let played = play(&works, &[Machine::of_cores(4)], &script).unwrap();
    assert_eq!(played.memory_peak_bytes, 2 * 110 + 2 * 3);
}

/// The packages in the order in which they started.
fn order(played: &Simulated) -> Vec<u32> {
    let mut builds: Vec<_> = played.builds.clone();
    builds.sort_by(|a, b| a.start_seconds.total_cmp(&b.start_seconds));
    builds.iter().map(|built| built.package.0).collect()
}

#[test]
fn workers_take_the_package_with_the_most_dependents_and_keep_its_jobs() {
    // `hub` has two dependents: `middle`, and `leaf` behind it. `alone` is large and has none.
    let mut graph = Graph::new();
    let ids: Vec<PackageId> = ["alone", "leaf", "middle", "hub"].iter().map(|name| graph.add(name)).collect();
    graph.depend(ids[2], ids[3]);
    graph.depend(ids[1], ids[2]);
    let graph = Arc::new(graph);
    let works = vec![parallel(80.0), serial(1.0), serial(2.0), serial(3.0)];
    let machines = [Machine::of_cores(4)];
    let mut one = Workers::new(graph.clone(), &works, &machines, 1, Jobs::Each(2));
    let played = simulate(&graph, &works, &machines, &mut one).unwrap();
    assert_eq!(order(&played), [3, 2, 0, 1]);
    assert_eq!(played.makespan_seconds, 3.0 + 2.0 + 40.0 + 1.0);
    // bob gives all spare jobs to the only package that can use them.
    let mut bob = Workers::new(graph.clone(), &works, &machines, 1, Jobs::Bob);
    let played = simulate(&graph, &works, &machines, &mut bob).unwrap();
    let alone = played.builds.iter().find(|built| built.package == ids[0]).unwrap();
    assert!(alone.start_cores >= 2 && alone.start_cores == alone.end_cores, "{alone:?}");
}

/// A chain of two packages and four others, each with ten seconds of serial work.
fn six() -> (Graph, Vec<Work>) {
    let mut graph = Graph::new();
    let ids: Vec<PackageId> = ["a", "b", "c", "d", "e", "f"].iter().map(|name| graph.add(name)).collect();
    graph.depend(ids[1], ids[0]);
    (graph, vec![Work::serial(10.0, Basis::Recorded); 6])
}

fn under(conditions: &Conditions, machines: &[Machine]) -> Simulated {
    let (graph, works) = six();
    let limits = Limits::default();
    let mut scheduler =
        Scheduler::new(Arc::new(graph.clone()), works.clone(), machines.to_vec(), limits).unwrap();
    simulate_under(conditions, &graph, &works, machines, &mut scheduler).unwrap()
}

#[test]
fn messages_and_transfers_take_their_time() {
    let machines = [Machine::of_cores(6)];
    let seconds = |delay_seconds, transfer_seconds| {
        let conditions = Conditions { delay_seconds, transfer_seconds, ..Conditions::default() };
        under(&conditions, &machines).makespan_seconds
    };
    assert_eq!(seconds(0.0, 0.0), 20.0);
    // Each of the two builds of the chain waits for its lease, its inputs, and the news of its end.
    assert!((seconds(1.0, 0.0) - 24.0).abs() < 1e-6);
    assert!((seconds(1.0, 3.0) - 30.0).abs() < 1e-6);
}

#[test]
fn inputs_are_transferred_to_machines_that_lack_them() {
    let machines = [Machine::of_cores(1), Machine::of_cores(1)];
    // One package, of the six, whose inputs take longer than all else; and an input of all, which takes a second.
    let mut needs = vec![vec![Needed { artifact: 0, bytes: 10 }]; 6];
    needs[2].push(Needed { artifact: 1, bytes: 1000 });
    let cold = Inputs { needs, bytes_per_second: 10.0, warm: Vec::new(), are_known: true };
    let run = |inputs: &Inputs| {
        let conditions = Conditions { inputs: Some(inputs.clone()), ..Conditions::default() };
        under(&conditions, &machines)
    };
    let first = run(&cold);
    assert_eq!(first.transferred_bytes, 1020);
    assert!(first.makespan_seconds > 100.0, "{first:?}");
    let at = |run: &Simulated| run.builds.iter().find(|built| built.package.0 == 2).unwrap().machine;
    // What a run leaves is there for the next one, where the package goes.
    let warm = Inputs { warm: cold.after(&first.builds), ..cold.clone() };
    let second = run(&warm);
    assert_eq!((second.transferred_bytes, second.makespan_seconds), (0, 30.0));
    assert_eq!(at(&second), at(&first));
    // Whichever machine has it is preferred; unknown, it goes anywhere.
    let on = |machine, are_known| {
        let warm = vec![(MachineId(0), vec![0]), (MachineId(1), vec![0]), (MachineId(machine), vec![1])];
        run(&Inputs { warm, are_known, ..cold.clone() })
    };
    for machine in [0, 1] {
        assert_eq!((at(&on(machine, true)), on(machine, true).makespan_seconds), (MachineId(machine), 30.0));
    }
    assert_eq!(at(&on(0, false)), at(&on(1, false)));
    assert_eq!(on(0, false).transferred_bytes + on(1, false).transferred_bytes, 1000);
}

#[test]
fn machines_join_late_and_are_lost_with_their_builds() {
    let machines = [Machine::of_cores(1), Machine::of_cores(1)];
    let plain = under(&Conditions::default(), &machines);
    assert_eq!((plain.makespan_seconds, plain.lost), (30.0, 0));
    let late = Conditions { joins: vec![(MachineId(1), 25.0)], ..Conditions::default() };
    let late = under(&late, &machines);
    assert_eq!(late.builds.iter().filter(|built| built.machine == MachineId(1)).count(), 2, "{late:?}");
    assert!(late.builds.iter().all(|built| built.machine != MachineId(1) || built.start_seconds >= 25.0));
    let lost = Conditions { losses: vec![(MachineId(1), 15.0)], ..Conditions::default() };
    let lost = under(&lost, &machines);
    assert_eq!((lost.lost, lost.builds.len()), (1, 6), "{lost:?}");
    assert_eq!(lost.makespan_seconds, 50.0, "one build of two is repeated on the other machine");
}

#[test]
fn kept_work_is_used_where_it_is_and_only_if_that_is_sooner() {
    let machines = [Machine::of_cores(1), Machine::of_cores(1)];
    let (graph, mut works) = six();
    for work in &mut works {
        work.kept_share = Some(0.1);
    }
    let seconds = |kept: &[(u32, u32)], is_kept_secret| {
        let kept = kept.iter().map(|(package, machine)| (PackageId(*package), MachineId(*machine)));
        let conditions = Conditions { kept: kept.collect(), is_kept_secret, ..Conditions::default() };
        let limits = Limits::default();
        let mut scheduler =
            Scheduler::new(Arc::new(graph.clone()), works.clone(), machines.to_vec(), limits).unwrap();
        simulate_under(&conditions, &graph, &works, &machines, &mut scheduler).unwrap().makespan_seconds
    };
    assert_eq!(seconds(&[], false), 30.0);
    // Each machine has kept work of three packages.
    let halves: Vec<(u32, u32)> = (0..6).map(|package| (package, package % 2)).collect();
    assert!((seconds(&halves, false) - 3.0).abs() < 1e-6, "{}", seconds(&halves, false));
    assert!(seconds(&halves, true) > 3.0);
    // One machine has all of it: the other one has nothing to do that would end sooner there.
    let one: Vec<(u32, u32)> = (0..6).map(|package| (package, 1)).collect();
    assert!((seconds(&one, false) - 6.0).abs() < 1e-6, "{}", seconds(&one, false));
}

/// A scheduler on machines that change as scripted, every second.
struct Supplied(Scheduler, Vec<Vec<Supply>>);

impl Policy for Supplied {
    fn apply(&mut self, now_seconds: f64, event: Event, actions: &mut Vec<Action>) {
        self.0.apply(now_seconds, event, actions);
    }
}

impl Farm for Supplied {
    fn step_seconds(&self) -> Option<f64> {
        Some(1.0)
    }

    fn has_later(&self) -> bool {
        false
    }

    fn supply(&mut self, _now_seconds: f64) -> Vec<Supply> {
        if self.1.is_empty() { Vec::new() } else { self.1.remove(0) }
    }
}

#[test]
fn a_farm_decides_which_machines_there_are() {
    let mut graph = Graph::new();
    graph.add("one");
    graph.add("two");
    let (works, machine) = ([serial(10.0), serial(10.0)], MachineId(0));
    let run = |script: &[&[Supply]]| {
        let machines = [Machine::of_cores(1)];
        let scheduler =
            Scheduler::new(Arc::new(graph.clone()), works.to_vec(), machines.to_vec(), Limits::default());
        let mut farm = Supplied(scheduler.unwrap(), script.iter().map(|step| step.to_vec()).collect());
        let conditions = Conditions { absent: vec![machine], ..Conditions::default() };
        simulate_farm(&conditions, &graph, &works, &machines, &mut farm)
    };
    let join: &[Supply] = &[Supply::Join(machine)];
    assert_eq!(run(&[&[], &[], join]).unwrap().makespan_seconds, 22.0);
    // A closed machine takes no more builds, and may leave and come again once it has none.
    let (close, leave) = ([Supply::Close(machine)], [Supply::Leave(machine)]);
    let mut script: Vec<&[Supply]> = vec![join, &[], &close];
    script.extend(std::iter::repeat_n::<&[Supply]>(&[], 10));
    script.extend([&leave[..], &[], join]);
    assert_eq!(run(&script).unwrap().makespan_seconds, 25.0);
    // What a real farm must not do is an error.
    let message = |script: &[&[Supply]]| run(script).unwrap_err().to_string();
    assert_eq!(message(&[join, &[Supply::Leave(machine)]]), "machine 0 was taken away with what it builds");
    assert_eq!(message(&[join, join]), "machine 0 joined twice");
    assert_eq!(message(&[&[Supply::Join(MachineId(7))]]), "machine 7 does not exist");
    assert_eq!(message(&[]), "nothing is running, but 2 packages are left, such as one");
}
