//! Compares the lower bound and the scheduler with the best schedules of small instances.

#[path = "optimum/search.rs"]
mod search;
#[path = "optimum/small.rs"]
mod small;

use kilnyard_schedule::{Bound, Limits, Scheduler, simulate};
use search::{Instance, optimum};
use small::{Shape, instance};

/// The instances of each shape.
const INSTANCES: u64 = 200;

/// The makespan of the scheduler.
fn scheduled_seconds(instance: &Instance) -> f64 {
    let Instance { graph, works, machines } = instance;
    let mut scheduler =
        Scheduler::new(graph.clone(), works.clone(), machines.clone(), Limits::default()).unwrap();
    simulate(graph, works, machines, &mut scheduler).unwrap().makespan_seconds
}

/// The makespan of the best schedule, which the simulation confirms.
fn optimum_seconds(instance: &Instance, known_seconds: f64) -> f64 {
    let Instance { graph, works, machines } = instance;
    let (seconds, schedule) = optimum(instance, known_seconds);
    if let Some(mut schedule) = schedule {
        let played = simulate(graph, works, machines, &mut schedule).unwrap();
        assert!((played.makespan_seconds - seconds).abs() < 1e-5, "{instance:?}");
        assert!(played.jobs_per_core_max <= 1.0, "{instance:?}");
    }
    seconds
}

/// The mean and the largest of some ratios, and the seed of that.
#[derive(Clone, Copy, Debug, Default)]
struct Ratios {
    sum: f64,
    count: f64,
    worst: f64,
    worst_seed: u64,
}

impl Ratios {
    fn add(&mut self, ratio: f64, seed: u64) {
        self.sum += ratio;
        self.count += 1.0;
        if ratio > self.worst {
            (self.worst, self.worst_seed) = (ratio, seed);
        }
    }

    /// Prints them, and checks that they are not worse than when the limits were set.
    fn check(&self, what: &str, mean_max: f64, worst_max: f64) {
        let Ratios { worst, worst_seed, .. } = *self;
        let mean = self.sum / self.count;
        println!("{what}: {mean:.3} in the mean, at most {worst:.3} (seed {worst_seed})");
        assert!(mean <= mean_max && worst <= worst_max, "{what}: {mean} and {worst}");
    }
}

/// The ratios of the optimum to the bound, and of the scheduler to the optimum.
fn compare(shape: Shape) -> (Ratios, Ratios) {
    let (mut to_bound, mut to_optimum) = (Ratios::default(), Ratios::default());
    for seed in 0..INSTANCES {
        let instance = instance(shape, seed);
        let bound_seconds = Bound::of(&instance.graph, &instance.works, &instance.machines).seconds();
        let scheduled = scheduled_seconds(&instance);
        let best = optimum_seconds(&instance, scheduled);
        assert!(bound_seconds <= best * (1.0 + 1e-9), "seed {seed}: {bound_seconds} of {best}: {instance:?}");
        to_bound.add(best / bound_seconds, seed);
        to_optimum.add(scheduled / best, seed);
    }
    (to_bound, to_optimum)
}

#[test]
fn on_one_machine() {
    let (to_bound, to_optimum) = compare(Shape::One);
    to_bound.check("one machine: optimum / bound", 1.02, 1.2);
    to_optimum.check("one machine: scheduler / optimum", 1.02, 1.3);
}

#[test]
fn on_equal_machines() {
    let (to_bound, to_optimum) = compare(Shape::Equal);
    to_bound.check("equal machines: optimum / bound", 1.02, 1.2);
    to_optimum.check("equal machines: scheduler / optimum", 1.02, 1.3);
}

#[test]
fn on_uneven_machines() {
    let (to_bound, to_optimum) = compare(Shape::Uneven);
    to_bound.check("uneven machines: optimum / bound", 1.02, 1.2);
    to_optimum.check("uneven machines: scheduler / optimum", 1.05, 1.5);
}
