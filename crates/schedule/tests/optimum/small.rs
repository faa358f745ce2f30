//! Small random instances; the same seed gives the same ones.

use super::search::Instance;
use kilnyard_model::graph::Graph;
use kilnyard_schedule::{Basis, Machine, Step, Work};
use std::sync::Arc;

/// The most packages of an instance.
const PACKAGES_MAX: u64 = 6;

/// The shapes of the machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    One,
    /// Two or three equal machines.
    Equal,
    /// Two or three machines that differ in cores and in speed.
    Uneven,
}

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
struct Random {
    state: u64,
}

impl Random {
    /// A number from `least` to `most`.
    fn within(&mut self, least: u64, most: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        least + (bits ^ (bits >> 31)) % (most - least + 1)
    }
}

/// An instance of four to [`PACKAGES_MAX`] packages on machines of one to four cores.
pub fn instance(shape: Shape, seed: u64) -> Instance {
    let mut random = Random { state: seed };
    let count = random.within(4, PACKAGES_MAX);
    let mut graph = Graph::new();
    let ids: Vec<_> = (0..count).map(|number| graph.add(&number.to_string())).collect();
    // From independent packages to almost a chain.
    let edges_percent = random.within(0, 60);
    for (place, package) in ids.iter().enumerate() {
        for dependency in &ids[..place] {
            if random.within(1, 100) <= edges_percent {
                graph.depend(*package, *dependency);
            }
        }
    }
    let works = ids.iter().map(|_| work(&mut random)).collect();
    let count = if shape == Shape::One { 1 } else { random.within(2, 3) };
    let first = machine(&mut random);
    let machines = (0..count).map(|_| match shape {
        Shape::One | Shape::Equal => first,
        Shape::Uneven => machine(&mut random),
    });
    let machines = machines.collect();
    Instance { graph: Arc::new(graph), works, machines }
}

fn machine(random: &mut Random) -> Machine {
    let cores = random.within(1, 4) as u32;
    Machine { speed: [1.0, 1.5, 2.0][random.within(0, 2) as usize], ..Machine::of_cores(cores) }
}

/// A build as most are: a serial step, in two of three cases a parallel step, and in some a serial end.
fn work(random: &mut Random) -> Work {
    let mut steps = vec![Step::Serial(random.within(1, 12) as f64)];
    if random.within(1, 3) > 1 {
        steps.push(Step::Parallel(random.within(4, 60) as f64));
        if random.within(1, 3) == 1 {
            steps.push(Step::Serial(random.within(1, 8) as f64));
        }
    }
    let jobs_max = (random.within(1, 6) == 1).then(|| random.within(1, 3) as u32);
    Work { steps, jobs_max, basis: Basis::Recorded, ..Work::default() }
}
