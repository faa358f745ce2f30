//! One knot of cycles: a start time for each member, found by local search.
//!
//! An edge holds if its dependency ends before its dependent starts. Without a limit on the path, start times are an
//! order of the members, and the edges that do not hold are a feedback arc set. With a limit, each member has a window
//! of possible start times, from the longest path before it and the longest path after it. One member after another
//! moves to the time at which the fewest of its edges are cut, until no move helps.

use super::{MayCut, StandIn};
use crate::graph::{Graph, PackageId};

/// The price of an edge that may not be cut: more than all edges of a release together.
const FORBIDDEN: u64 = 1 << 32;

/// Bounds the search: the number of edges that it visits for one limit.
const VISITS_MAX: usize = 6_000_000;
/// Bounds the number of passes over all members, for small knots.
const SWEEPS_MAX: usize = 400;
/// Passes without a lower price after which the search ends.
const IDLE_SWEEPS_MAX: usize = 24;

/// In small knots, the search starts from this many different orders.
const STARTS: u64 = 6;

/// The minimum time of a package, so that start times are an order even among packages without an estimate.
const SECONDS_MIN: f64 = 1e-3;

#[derive(Clone, Copy, Debug)]
struct Edge {
    other: u32,
    price: u64,
    stand_in: Option<StandIn>,
}

/// The members of a knot with their edges inside it, and a start time for each.
#[derive(Clone, Debug)]
pub(super) struct Knot {
    members: Vec<PackageId>,
    seconds: Vec<f64>,
    dependencies: Vec<Vec<Edge>>,
    dependents: Vec<Vec<Edge>>,
    /// Seconds of the longest path before each member, from outside the knot.
    before: Vec<f64>,
    /// Seconds of the longest path after each member, outside the knot.
    after: Vec<f64>,
    starts: Vec<f64>,
    random: u64,
}

impl Knot {
    /// Collects the edges inside a knot. `members` are sorted.
    pub fn of(graph: &Graph, members: &[PackageId], seconds: &[f64], may_cut: MayCut<'_>) -> Knot {
        let len = members.len();
        let (mut dependencies, mut dependents) = (vec![Vec::new(); len], vec![Vec::new(); len]);
        for (place, package) in members.iter().enumerate() {
            for dependency in graph.dependencies(*package) {
                let Ok(other) = members.binary_search(dependency) else { continue };
                let stand_in = may_cut(*package, *dependency);
                let price = if stand_in.is_some() { 1 } else { FORBIDDEN };
                dependencies[place].push(Edge { other: other as u32, price, stand_in });
                dependents[other].push(Edge { other: place as u32, price, stand_in });
            }
        }
        let seconds: Vec<f64> = members.iter().map(|id| seconds[id.index()].max(SECONDS_MIN)).collect();
        let mut knot = Knot {
            members: members.to_vec(),
            seconds,
            dependencies,
            dependents,
            before: vec![0.0; len],
            after: vec![0.0; len],
            starts: vec![0.0; len],
            random: 0x9e37_79b9_7f4a_7c15,
        };
        knot.start_in(&knot.greedy_order());
        knot
    }

    /// Sets the longest paths of all packages of the graph before and after them, from outside the knot.
    pub fn bound(&mut self, before: &[f64], after: &[f64]) {
        for (place, id) in self.members.iter().enumerate() {
            self.before[place] = before[id.index()];
            self.after[place] = after[id.index()];
        }
    }

    /// The price of the edges that do not hold.
    pub fn cost(&self) -> u64 {
        let broken = |place: usize| {
            let edges = self.dependencies[place].iter();
            edges.filter(|edge| !self.holds(place, edge.other as usize)).map(|edge| edge.price).sum::<u64>()
        };
        (0..self.members.len()).map(broken).sum()
    }

    /// The edges to cut: package, dependency and replacement.
    pub fn cut(&self) -> Vec<(PackageId, PackageId, StandIn)> {
        let mut cut = Vec::new();
        for (place, edges) in self.dependencies.iter().enumerate() {
            for edge in edges.iter().filter(|edge| !self.holds(place, edge.other as usize)) {
                if let Some(stand_in) = edge.stand_in {
                    cut.push((self.members[place], self.members[edge.other as usize], stand_in));
                }
            }
        }
        cut
    }

    fn holds(&self, package: usize, dependency: usize) -> bool {
        self.starts[package] >= self.starts[dependency] + self.seconds[dependency] - SECONDS_MIN / 2.0
    }

    /// Settles a small knot: the fewest cuts, and the shortest path among those.
    pub fn settle_fewest(&mut self) {
        let mut best: Option<(u64, f64, Vec<f64>)> = None;
        for start in 0..STARTS {
            let order = if start == 0 { self.greedy_order() } else { self.shuffled() };
            self.start_in(&order);
            self.settle(f64::INFINITY);
            let (cost, path) = (self.cost(), self.pull_together());
            if best.as_ref().is_none_or(|(fewest, shortest, _)| (cost, path) < (*fewest, *shortest)) {
                best = Some((cost, path, self.starts.clone()));
            }
        }
        self.starts = best.map(|(_, _, starts)| starts).unwrap_or_default();
    }

    /// Moves members to where the fewest of their edges are cut, within the windows that a limit on the longest path
    /// leaves. Keeps the best of all passes.
    pub fn settle(&mut self, limit_seconds: f64) {
        let all: f64 = self.seconds.iter().sum();
        let windows: Vec<(f64, f64)> = (0..self.members.len())
            .map(|place| {
                let first = self.before[place];
                let last = limit_seconds.min(first + all) - self.after[place] - self.seconds[place];
                (first, if limit_seconds.is_finite() { last.max(first) } else { first + all })
            })
            .collect();
        for (start, (first, last)) in self.starts.iter_mut().zip(&windows) {
            *start = start.clamp(*first, *last);
        }
        let edges: usize = self.dependencies.iter().map(Vec::len).sum();
        let sweeps = (VISITS_MAX / (2 * edges).max(1)).clamp(IDLE_SWEEPS_MAX, SWEEPS_MAX);
        let mut order: Vec<usize> = (0..self.members.len()).collect();
        let mut cost = self.cost();
        let (mut least, mut best, mut idle) = (cost, self.starts.clone(), 0);
        for _ in 0..sweeps {
            self.shuffle(&mut order);
            for &place in &order {
                cost =
                    cost - self.price_at(place, self.starts[place]) + self.move_best(place, windows[place]);
            }
            if cost < least {
                (least, idle) = (cost, 0);
                best.copy_from_slice(&self.starts);
            } else {
                idle += 1;
                if idle == IDLE_SWEEPS_MAX || least == 0 {
                    break;
                }
            }
        }
        self.starts = best;
    }

    /// The price of a member's edges that do not hold if it starts then.
    fn price_at(&self, place: usize, start: f64) -> u64 {
        let slack = SECONDS_MIN / 2.0;
        let late = |edge: &&Edge| {
            let other = edge.other as usize;
            start < self.starts[other] + self.seconds[other] - slack
        };
        let end = start + self.seconds[place];
        let early = |edge: &&Edge| self.starts[edge.other as usize] < end - slack;
        let price = |edge: &Edge| edge.price;
        self.dependencies[place].iter().filter(late).map(price).sum::<u64>()
            + self.dependents[place].iter().filter(early).map(price).sum::<u64>()
    }

    /// Moves a member to the start time with the lowest price, and returns that price. Equally good times are chosen
    /// from at random, so that the search crosses plateaus.
    fn move_best(&mut self, place: usize, (first, last): (f64, f64)) -> u64 {
        // Steps of the price: at the end of each dependency it falls, after the start of each dependent (less the
        // member's own time) it rises.
        let own = self.seconds[place];
        let mut ends: Vec<(f64, u64)> = self.dependencies[place]
            .iter()
            .map(|edge| (self.starts[edge.other as usize] + self.seconds[edge.other as usize], edge.price))
            .collect();
        let mut begins: Vec<(f64, u64)> = self.dependents[place]
            .iter()
            .map(|edge| (self.starts[edge.other as usize] - own, edge.price))
            .collect();
        ends.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        begins.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let mut times: Vec<f64> = ends.iter().chain(&begins).map(|(time, _)| *time).collect();
        times.extend([first, last]);
        times.retain(|time| (first..=last).contains(time));
        times.sort_unstable_by(f64::total_cmp);
        times.dedup();
        let slack = SECONDS_MIN / 2.0;
        let mut price: u64 = ends.iter().map(|(_, price)| price).sum();
        let (mut ended, mut begun) = (0, 0);
        let (mut least, mut chosen, mut equals) = (u64::MAX, self.starts[place], 0u64);
        for time in times {
            while ended < ends.len() && ends[ended].0 - slack <= time {
                price -= ends[ended].1;
                ended += 1;
            }
            while begun < begins.len() && begins[begun].0 < time - slack {
                price += begins[begun].1;
                begun += 1;
            }
            if price < least {
                (least, chosen, equals) = (price, time, 1);
            } else if price == least {
                equals += 1;
                if self.draw(equals) == 0 {
                    chosen = time;
                }
            }
        }
        self.starts[place] = chosen;
        least
    }

    /// Moves all start times as early as the edges that hold allow, and returns the length of the longest path.
    fn pull_together(&mut self) -> f64 {
        let mut order: Vec<usize> = (0..self.members.len()).collect();
        order.sort_by(|a, b| self.starts[*a].total_cmp(&self.starts[*b]));
        let mut starts = self.starts.clone();
        for &place in &order {
            let holding = self.dependencies[place].iter().map(|edge| edge.other as usize);
            let ends = holding.filter(|other| self.holds(place, *other));
            starts[place] =
                ends.map(|other| starts[other] + self.seconds[other]).fold(self.before[place], f64::max);
        }
        self.starts = starts;
        self.starts.iter().zip(&self.seconds).map(|(start, own)| start + own).fold(0.0, f64::max)
    }

    /// Starts the members one after another.
    fn start_in(&mut self, order: &[usize]) {
        let mut now = 0.0;
        for &place in order {
            self.starts[place] = now;
            now += self.seconds[place];
        }
    }

    /// An order in which few members come before one of their dependencies (Eades, Lin and Smyth, "A fast and effective
    /// heuristic for the feedback arc set problem", 1993).
    fn greedy_order(&self) -> Vec<usize> {
        use std::collections::BTreeSet;
        let mut degrees: Vec<Option<(usize, usize)>> = (0..self.members.len())
            .map(|place| Some((self.dependencies[place].len(), self.dependents[place].len())))
            .collect();
        // First the members without open dependencies, then those without open dependents, then the one with the
        // largest surplus of open dependents over open dependencies.
        let rank = |place: usize, (needs, needed): (usize, usize)| match (needs, needed) {
            (0, _) => (0, 0, place),
            (_, 0) => (1, 0, place),
            _ => (2, needs as i64 - needed as i64, place),
        };
        let mut open: BTreeSet<(u8, i64, usize)> =
            degrees.iter().enumerate().filter_map(|(place, d)| Some(rank(place, (*d)?))).collect();
        let (mut first, mut last) = (Vec::new(), Vec::new());
        while let Some((class, _, place)) = open.pop_first() {
            degrees[place] = None;
            if class == 1 {
                last.push(place)
            } else {
                first.push(place)
            }
            let neighbours = self.dependencies[place].iter().map(|edge| (edge, false));
            for (edge, needs_less) in neighbours.chain(self.dependents[place].iter().map(|edge| (edge, true)))
            {
                let other = edge.other as usize;
                if let Some(degree) = &mut degrees[other] {
                    open.remove(&rank(other, *degree));
                    let side = if needs_less { &mut degree.0 } else { &mut degree.1 };
                    *side -= 1;
                    open.insert(rank(other, *degree));
                }
            }
        }
        last.reverse();
        first.extend(last);
        first
    }

    fn shuffled(&mut self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.members.len()).collect();
        self.shuffle(&mut order);
        order
    }

    fn shuffle(&mut self, places: &mut [usize]) {
        for place in (1..places.len()).rev() {
            let other = self.draw(place as u64 + 1) as usize;
            places.swap(place, other);
        }
    }

    /// A pseudo-random number below `bound` (xorshift64, Marsaglia 2003). It depends on nothing outside this knot.
    fn draw(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound
    }
}
