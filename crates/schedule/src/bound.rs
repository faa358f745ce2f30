//! The lower bound of the time of a run.
//!
//! It is the largest of three bounds:
//!
//! - the longest path, with each package alone on the best machine for it;
//! - the work, spread over all cores (Graham 1969);
//! - the work between the beginning and the end, spread over the cores that can do it (see [`Bound::window_seconds`]).
//!
//! The third needs heads and tails (Carlier 1982): the longest path before a step of a build and the longest path after it.
//! A step with head h and tail t, and work w that is done at a rate of at most r, can do at most r (a - h) in the first a
//! seconds of a run, and r (b - t) in the last b. What is left of w must be done in between. If the sum E(a, b) of
//! these remainders is positive, the run takes at least a + b + E(a, b) / P on machines that do P core-seconds per second
//! together (Fernandez and Bussell 1973, for machines with one core). E is positive only if a + b is less than the
//! time of some path, so that there is a time in between.
//!
//! With different machines, the same holds for the fast ones alone. If a run takes T, a package whose path through
//! a slow machine takes longer than T is built by a fast one. If these packages alone need more than T there, no run takes T
//! (Klein and Scholl 1999 call such a bound destructive). The more time, the fewer such packages, so T is found by
//! bisection.
//!
//! Known downside: fractions of packages may be on several machines, as long as each alone could be there. A linear
//! program that gives each package shares of machines, with the path's time and the work of each machine as
//! constraints, is not stronger than the path and the work on the recorded runs.

use crate::machine::Machine;
use crate::rank::{path, ranks};
use crate::work::{Step, Work};
use kilnyard_model::graph::{Graph, PackageId};

/// The number of beginnings and of ends that are tried. Ends are cheap: all are summed up in one pass over the steps.
const BEGINNINGS: usize = 64;
/// See [`BEGINNINGS`].
const ENDS: usize = 1024;

/// The number of halvings of a bisection between a bound and twice that bound.
const HALVINGS: usize = 20;

/// The most sets of each kind; it bounds the time for farms of many different machines.
const SETS_MAX: usize = 8;

/// The lower bound of the time for these builds on these machines, which no schedule can beat.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// The longest path, with every package alone on the best machine for it.
    pub path_seconds: f64,
    /// The total work, spread over the cores of all machines.
    pub work_seconds: f64,
    /// The work that can be done neither at the beginning nor at the end, spread over the cores that can do it, and the
    /// time before and after it.
    pub window_seconds: f64,
    /// The packages of the longest path, in build order.
    pub path: Vec<PackageId>,
}

impl Bound {
    /// The bound for a graph whose packages take these works. A build stays on one machine, so the path assumes the
    /// capacity of the best machine, not of all machines together.
    pub fn of(graph: &Graph, works: &[Work], machines: &[Machine]) -> Bound {
        let own: Vec<f64> = works.iter().map(|work| least_seconds(work, machines)).collect();
        let ranks = ranks(graph, &own);
        let path = path(graph, &ranks);
        let mut heads = vec![0.0; graph.len()];
        for package in graph.order() {
            let before = graph.dependencies(package).iter().map(|id| heads[id.index()] + own[id.index()]);
            heads[package.index()] = before.fold(0.0, f64::max);
        }
        let tails = ranks.iter().zip(&own).map(|(rank, own)| rank - own).collect();
        let around = Around { works, heads, tails };
        let mut bound = Bound {
            path_seconds: path.first().map_or(0.0, |id| ranks[id.index()]),
            work_seconds: works.iter().map(Work::core_seconds).sum::<f64>() / power(machines),
            window_seconds: window_seconds(&around.pieces(machines, |_| true), power(machines)),
            path,
        };
        for (some, others) in sets(machines) {
            bound.window_seconds = around.forced_seconds(&some, &others, bound.seconds());
        }
        bound
    }

    /// The largest of all bounds.
    pub fn seconds(&self) -> f64 {
        self.path_seconds.max(self.work_seconds).max(self.window_seconds)
    }
}

/// The time of a package alone on the best of these machines.
fn least_seconds(work: &Work, machines: &[Machine]) -> f64 {
    let seconds = machines.iter().map(|machine| work.seconds_at(machine.cores, machine.speed));
    seconds.fold(f64::INFINITY, f64::min)
}

/// Core-seconds per second.
fn power(machines: &[Machine]) -> f64 {
    machines.iter().map(|machine| f64::from(machine.cores) * machine.speed).sum()
}

/// Sets of machines on which others cannot replace them, each with the other machines: those with the most power, and
/// those with the highest speed.
fn sets(machines: &[Machine]) -> Vec<(Vec<Machine>, Vec<Machine>)> {
    let mut sets = Vec::new();
    for key in
        [|machine: &Machine| f64::from(machine.cores) * machine.speed, |machine: &Machine| machine.speed]
    {
        let mut sorted = machines.to_vec();
        sorted.sort_by(|a, b| key(b).total_cmp(&key(a)));
        let differs = |place: &usize| key(&sorted[place - 1]) > key(&sorted[*place]);
        let places = (1..sorted.len()).filter(differs).take(SETS_MAX);
        sets.extend(places.map(|place| (sorted[..place].to_vec(), sorted[place..].to_vec())));
    }
    sets
}

/// A step of a build.
#[derive(Clone, Copy)]
struct Piece {
    head_seconds: f64,
    tail_seconds: f64,
    /// In core-seconds.
    work_seconds: f64,
    /// The most core-seconds per second.
    rate: f64,
}

impl Piece {
    fn seconds(&self) -> f64 {
        self.work_seconds / self.rate
    }
}

/// The works of packages, with the longest paths before and after each.
struct Around<'a> {
    works: &'a [Work],
    heads: Vec<f64>,
    tails: Vec<f64>,
}

impl Around<'_> {
    /// The steps of these packages, on the best of these machines.
    fn pieces(&self, machines: &[Machine], is_in: impl Fn(usize) -> bool) -> Vec<Piece> {
        let rate = |cores: &dyn Fn(&Machine) -> u32| {
            let rates = machines.iter().map(|machine| f64::from(cores(machine)) * machine.speed);
            rates.fold(0.0, f64::max)
        };
        let serial_rate = rate(&|_| 1);
        // Most packages may have all cores.
        let all_rate = rate(&|machine| machine.cores);
        let mut pieces = Vec::new();
        for (index, work) in self.works.iter().enumerate().filter(|(index, _)| is_in(*index)) {
            let parallel_rate = match work.jobs_max {
                Some(_) => rate(&|machine| work.cores_of(machine.cores)),
                None => all_rate,
            };
            let first = pieces.len();
            let mut head_seconds = self.heads[index];
            for step in work.steps.iter().filter(|step| step.core_seconds() > 0.0) {
                let rate = match step {
                    Step::Serial(_) => serial_rate,
                    Step::Parallel(_) => parallel_rate,
                };
                let piece =
                    Piece { head_seconds, tail_seconds: 0.0, work_seconds: step.core_seconds(), rate };
                head_seconds += piece.seconds();
                pieces.push(piece);
            }
            let mut tail_seconds = self.tails[index];
            for piece in pieces[first..].iter_mut().rev() {
                piece.tail_seconds = tail_seconds;
                tail_seconds += piece.seconds();
            }
        }
        pieces
    }

    /// A bound from the packages that only these machines can build in time; `known_seconds` is another one.
    fn forced_seconds(&self, machines: &[Machine], others: &[Machine], known_seconds: f64) -> f64 {
        let path_seconds =
            |(index, work)| self.heads[index] + least_seconds(work, others) + self.tails[index];
        let elsewhere: Vec<f64> = self.works.iter().enumerate().map(path_seconds).collect();
        let power = power(machines);
        let is_refuted = |seconds: f64| {
            let pieces = self.pieces(machines, |index| elsewhere[index] > seconds * (1.0 + f64::EPSILON));
            window_seconds(&pieces, power) > seconds
        };
        let (mut low, mut high) = (known_seconds, 2.0 * known_seconds);
        if !is_refuted(low) {
            return known_seconds;
        }
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            if is_refuted(middle) { low = middle } else { high = middle }
        }
        low
    }
}

/// The largest a + b + E(a, b) / P; see the module documentation. 0 without pieces.
fn window_seconds(pieces: &[Piece], power: f64) -> f64 {
    let longest = |seconds: fn(&Piece) -> f64| pieces.iter().map(seconds).fold(0.0, f64::max);
    let beginning_max = longest(|piece| piece.head_seconds + piece.seconds());
    let end_max = longest(|piece| piece.tail_seconds + piece.seconds());
    let path_seconds = longest(|piece| piece.head_seconds + piece.seconds() + piece.tail_seconds);
    if end_max <= 0.0 {
        return 0.0;
    }
    let interval = end_max / ENDS as f64;
    let place = |seconds: f64| ((seconds / interval).ceil() as usize).min(ENDS + 1);
    let mut best = 0.0_f64;
    for number in 0..BEGINNINGS {
        let beginning = beginning_max * number as f64 / BEGINNINGS as f64;
        // Between two ends, what is left of all pieces is a linear function of the end: its changes at each end.
        let mut changes = vec![(0.0, 0.0); ENDS + 2];
        for piece in pieces {
            let left = piece.work_seconds - piece.rate * (beginning - piece.head_seconds).max(0.0);
            if left > 0.0 {
                let tail = piece.tail_seconds;
                let (from, to) = (place(tail), place(tail + left / piece.rate));
                changes[0].0 += left;
                changes[from].0 += piece.rate * tail;
                changes[from].1 -= piece.rate;
                changes[to].0 -= left + piece.rate * tail;
                changes[to].1 += piece.rate;
            }
        }
        let (mut constant, mut slope) = (0.0, 0.0);
        for (number, change) in changes[..=ENDS].iter().enumerate() {
            let end = interval * number as f64;
            constant += change.0;
            slope += change.1;
            let left: f64 = constant + slope * end;
            if left > 0.0 && beginning + end < path_seconds {
                best = best.max(beginning + end + left / power);
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::Basis;

    fn work(steps: &[Step]) -> Work {
        Work { steps: steps.to_vec(), ..Work::default() }
    }

    #[test]
    fn work_after_a_long_beginning_counts() {
        // All wait for 100 s of one core. Then there are 400 core-seconds for four cores, and 50 s of one core.
        let mut graph = Graph::new();
        let (first, middle, last) = (graph.add("first"), graph.add("middle"), graph.add("last"));
        let others: Vec<PackageId> = (0..9).map(|number| graph.add(&number.to_string())).collect();
        graph.depend(middle, first);
        graph.depend(last, middle);
        let mut works = vec![
            Work::serial(100.0, Basis::Recorded),
            work(&[Step::Parallel(40.0)]),
            Work::serial(50.0, Basis::Recorded),
        ];
        for other in others {
            graph.depend(other, first);
            graph.depend(last, other);
            works.push(work(&[Step::Parallel(40.0)]));
        }
        let bound = Bound::of(&graph, &works, &[Machine::of_cores(2), Machine::of_cores(2)]);
        assert_eq!((bound.path_seconds, bound.work_seconds), (170.0, 137.5));
        assert!(bound.window_seconds > 245.0 && bound.window_seconds <= 250.0, "{bound:?}");
        assert_eq!(bound.seconds(), bound.window_seconds);
    }

    #[test]
    fn work_that_only_the_fast_machine_can_do_in_time_counts() {
        // Each takes 10 s on the fast machine, but 80 s on the slow one.
        let mut graph = Graph::new();
        graph.add("one");
        graph.add("two");
        let works = vec![work(&[Step::Parallel(80.0)]), work(&[Step::Parallel(80.0)])];
        let bound = Bound::of(&graph, &works, &[Machine::of_cores(1), Machine::of_cores(8)]);
        assert_eq!((bound.path_seconds, bound.work_seconds), (10.0, 160.0 / 9.0));
        assert!((bound.seconds() - 20.0).abs() < 0.001, "{bound:?}");
        // If there is time for the slow machine, both share the work.
        let works = vec![work(&[Step::Parallel(80.0)]), work(&[Step::Parallel(640.0)])];
        let bound = Bound::of(&graph, &works, &[Machine::of_cores(1), Machine::of_cores(8)]);
        assert_eq!(bound.seconds(), 80.0);
    }
}
