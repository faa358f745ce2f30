//! Cuts the cycles of a graph.
//!
//! A cut costs something: the dependent is built with a stand-in, such as the archive's binary package. But a cut also
//! shortens the longest path, which bounds the time of a run on many cores. In a small knot of cycles the fewest cuts
//! win. In a large one, up to twice the fewest are made if that brings the longest path down to
//! [`PATH_FACTOR_AIM`] times the one that no cuts could shorten, the path without any edge inside a knot.
//!
//! A knot is cut by giving each member a start time (`knot`): an edge whose dependency ends after its dependent
//! starts is cut. The times are integers of a fixed pseudo-random search over the recipe's own estimates, never over
//! recorded times, so that the same index gives the same cuts on every machine and in every run: which edges are cut
//! decides what packages are built with.
//!
//! Known downside: the search is a heuristic. The minimum feedback arc set is NP-hard; tests compare the result with an
//! exhaustive search on small knots, and `bound` says for any knot how many cuts it needs at least.

mod bound;
mod knot;

use crate::graph::{Graph, PackageId};
use knot::Knot;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// What replaces a dependency that would close a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StandIn {
    /// A binary package of the archive replaces the set's own.
    Archive,
    /// A build profile, or a condition of that kind (RPM's `bootstrap`), drops the dependency.
    Profile,
}

/// What a search for cuts tries to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// In a large knot, more cuts than cycles require, for a shorter path.
    ShortPath,
    /// Only cuts of edges that would close a cycle.
    FewestCuts,
}

/// The answer to whether a package's dependency may be cut, and what replaces it.
pub type MayCut<'a> = &'a dyn Fn(PackageId, PackageId) -> Option<StandIn>;

/// In smaller knots, no more edges are cut than cycles require: their paths are short on any machine.
const LARGE_KNOT_MEMBERS_MIN: usize = 100;

/// The longest path that extra cuts aim at, as a multiple of the path without any edge inside a knot.
pub const PATH_FACTOR_AIM: f64 = 1.5;

/// Paths to try in a large knot, as multiples of the path without any edge inside a knot, longest first.
const PATH_FACTORS: [f64; 6] = [4.0, 3.0, 2.5, 2.0, 1.75, PATH_FACTOR_AIM];

/// The number of cuts may reach this multiple of the fewest that were found.
const CUTS_FACTOR_MAX: usize = 2;

/// An edge that was removed to cut a cycle.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut {
    /// The dependent package.
    pub package: PackageId,
    /// The package that it no longer waits for.
    pub dependency: PackageId,
    /// The index in [`Cutting::knots`] of the cycle, or of the knot of cycles.
    pub knot: usize,
    /// The replacement of the dependency.
    pub stand_in: StandIn,
    /// By how much the longest path would grow with this edge in place. Absent if the edge would close a cycle.
    pub saved_seconds: Option<f64>,
}

/// The result of cutting the cycles of a graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cutting {
    /// The removed edges.
    pub cuts: Vec<Cut>,
    /// The packages of each cycle, or knot of cycles, in ascending order.
    pub knots: Vec<Vec<PackageId>>,
    /// A lower bound on the number of cuts that open all cycles, however they are chosen.
    pub cuts_min: usize,
    /// The packages of each cycle that is left, since none of its edges may be cut.
    pub uncut: Vec<Vec<PackageId>>,
    /// Estimated seconds of the longest path, with these cuts.
    pub path_seconds: f64,
    /// The same if every edge inside a knot were cut: no choice of cuts is shorter.
    pub path_seconds_min: f64,
}

impl Cutting {
    /// The result for a graph whose cycles are not cut.
    pub const NONE: Cutting = Cutting {
        cuts: Vec::new(),
        knots: Vec::new(),
        cuts_min: 0,
        uncut: Vec::new(),
        path_seconds: 0.0,
        path_seconds_min: 0.0,
    };

    /// All packages of the cycle, or knot of cycles, that this cut opens.
    pub fn members(&self, cut: &Cut) -> &[PackageId] {
        &self.knots[cut.knot]
    }

    /// The packages of the same knot that wait for a package in the graph whose cycles were cut. A second pass may build the package
    /// with what an earlier one made of them.
    pub fn later(&self, graph: &Graph, package: PackageId) -> BTreeSet<PackageId> {
        let mut later = BTreeSet::new();
        let is_of_knot = |members: &&Vec<PackageId>| members.binary_search(&package).is_ok();
        let Some(knot) = self.knots.iter().find(is_of_knot) else { return later };
        let mut open = vec![package];
        while let Some(id) = open.pop() {
            let dependents = graph.dependents(id).iter().copied();
            open.extend(dependents.filter(|id| knot.binary_search(id).is_ok() && later.insert(*id)));
        }
        later
    }
}

impl Graph {
    /// Removes edges until no cycle is left. `seconds` has the estimated time of each package; `may_cut` returns the
    /// replacement for a dependency of a package, if the edge may be cut. Cycles that cannot be cut are returned, and
    /// keep their edges.
    pub fn cut_cycles(&mut self, seconds: &[f64], effort: Effort, may_cut: MayCut<'_>) -> Cutting {
        let knots = self.cycles();
        if knots.is_empty() {
            let path_seconds = Paths::of(self, seconds, &[]).longest_seconds(seconds);
            return Cutting { path_seconds, path_seconds_min: path_seconds, ..Cutting::default() };
        }
        let path_seconds_min = Paths::of(self, seconds, &knots).longest_seconds(seconds);
        let cuts_min = knots.iter().map(|members| bound::fewest_cuts(self, members)).sum();
        let mut cuts = Vec::new();
        let mut limits = Vec::new();
        for (number, members) in knots.iter().enumerate() {
            let mut knot = Knot::of(self, members, seconds, may_cut);
            let limit = if members.len() < LARGE_KNOT_MEMBERS_MIN {
                knot.settle_fewest();
                f64::INFINITY
            } else if effort == Effort::FewestCuts {
                knot.settle(f64::INFINITY);
                f64::INFINITY
            } else {
                // Dependencies come first in `knots`: earlier knots are cut already, later ones are not.
                let paths = Paths::of(self, seconds, &knots[number..]);
                knot.bound(&paths.before, &paths.after);
                settle_large(&mut knot, path_seconds_min)
            };
            limits.push(limit);
            for (package, dependency, stand_in) in knot.cut() {
                self.remove(package, dependency);
                cuts.push(Cut { package, dependency, knot: number, stand_in, saved_seconds: None });
            }
        }
        let uncut = self.free_members(may_cut, &knots, &mut cuts);
        self.put_back(seconds, &knots, &limits, &mut cuts);
        let path_seconds = Paths::of(self, seconds, &uncut).longest_seconds(seconds);
        Cutting { cuts, knots, cuts_min, uncut, path_seconds, path_seconds_min }
    }

    /// Puts back cut edges that neither close a cycle nor lengthen the longest path beyond the limit of their knot, and
    /// notes what each of the others saves.
    fn put_back(&mut self, seconds: &[f64], knots: &[Vec<PackageId>], limits: &[f64], cuts: &mut Vec<Cut>) {
        let mut kept = Vec::new();
        for (number, members) in knots.iter().enumerate() {
            let (of_knot, others): (Vec<Cut>, Vec<Cut>) =
                std::mem::take(cuts).into_iter().partition(|cut| cut.knot == number);
            *cuts = others;
            let mut paths = Paths::of(self, seconds, &[]);
            let longest = paths.longest_seconds(seconds);
            for mut cut in of_knot {
                if !paths.is_complete || self.waits_for(cut.dependency, cut.package, members) {
                    kept.push(cut);
                    continue;
                }
                let through = paths.before[cut.dependency.index()]
                    + seconds[cut.dependency.index()]
                    + seconds[cut.package.index()]
                    + paths.after[cut.package.index()];
                if through <= limits[number] {
                    self.depend(cut.package, cut.dependency);
                    if through > longest || limits[number].is_finite() {
                        paths = Paths::of(self, seconds, &[]);
                    }
                } else {
                    cut.saved_seconds = Some((through - longest).max(0.0));
                    kept.push(cut);
                }
            }
        }
        *cuts = kept;
    }

    /// Whether a member of a knot waits for another one, directly or through others. Every path between two members
    /// stays in their knot.
    fn waits_for(&self, package: PackageId, dependency: PackageId, members: &[PackageId]) -> bool {
        let mut seen = vec![false; members.len()];
        let mut open = vec![package];
        while let Some(id) = open.pop() {
            for next in self.dependencies(id) {
                if *next == dependency {
                    return true;
                }
                if let Ok(place) = members.binary_search(next)
                    && !std::mem::replace(&mut seen[place], true)
                {
                    open.push(*next);
                }
            }
        }
        false
    }

    /// Frees single members from the cycles that remain because some edges may not be cut. Returns the cycles that
    /// stay.
    fn free_members(
        &mut self,
        may_cut: MayCut<'_>,
        knots: &[Vec<PackageId>],
        cuts: &mut Vec<Cut>,
    ) -> Vec<Vec<PackageId>> {
        let mut uncut = Vec::new();
        let mut given_up = BTreeSet::new();
        loop {
            let cycles: Vec<_> = self.cycles().into_iter().filter(|c| !given_up.contains(c)).collect();
            if cycles.is_empty() {
                return uncut;
            }
            for members in cycles {
                let is_of = |knot: &Vec<PackageId>| knot.binary_search(&members[0]).is_ok();
                // A cycle of the remaining graph is part of one of the whole graph.
                let knot = knots.iter().position(is_of).unwrap_or_default();
                match self.freed(&members, may_cut) {
                    Some((package, edges)) => {
                        for (dependency, stand_in) in edges {
                            self.remove(package, dependency);
                            cuts.push(Cut { package, dependency, knot, stand_in, saved_seconds: None });
                        }
                    }
                    None => {
                        given_up.insert(members.clone());
                        uncut.push(members);
                    }
                }
            }
        }
    }

    /// The member that loses the fewest edges when it is freed from the cycle, and those edges.
    #[allow(clippy::type_complexity)]
    fn freed(
        &self,
        members: &[PackageId],
        may_cut: MayCut<'_>,
    ) -> Option<(PackageId, Vec<(PackageId, StandIn)>)> {
        let inside = |package: &PackageId| -> Vec<PackageId> {
            let edges = self.dependencies(*package).iter();
            edges.filter(|to| members.binary_search(to).is_ok()).copied().collect()
        };
        let whole = members.iter().filter_map(|package| {
            let edges: Option<Vec<_>> =
                inside(package).into_iter().map(|to| Some((to, may_cut(*package, to)?))).collect();
            Some((*package, edges?))
        });
        // If no member can be freed completely, cutting any single edge is progress.
        let waiting = |package: &PackageId| {
            let dependents = self.dependents(*package).iter();
            dependents.filter(|from| members.binary_search(from).is_ok()).count()
        };
        // Among equals, prefer the member that most others wait for.
        let cost =
            |(package, edges): &(PackageId, Vec<_>)| (edges.len(), Reverse(waiting(package)), *package);
        whole.min_by_key(cost).or_else(|| {
            members.iter().find_map(|package| {
                let edge = inside(package).into_iter().find_map(|to| Some((to, may_cut(*package, to)?)))?;
                Some((*package, vec![edge]))
            })
        })
    }
}

/// Settles a large knot: the shortest path within the budget of cuts. Returns the limit of the path.
fn settle_large(knot: &mut Knot, path_seconds_min: f64) -> f64 {
    knot.settle(f64::INFINITY);
    let fewest = knot.cost();
    let mut settled = (knot.clone(), f64::INFINITY);
    for factor in PATH_FACTORS {
        let limit = path_seconds_min * factor;
        knot.settle(limit);
        if knot.cost() > fewest.saturating_mul(CUTS_FACTOR_MAX as u64) {
            break;
        }
        settled = (knot.clone(), limit);
    }
    *knot = settled.0;
    settled.1
}

/// The longest paths to and from each package.
struct Paths {
    /// Seconds of the longest path to the start of each package.
    before: Vec<f64>,
    /// Seconds of the longest path from the end of each package.
    after: Vec<f64>,
    /// Whether all packages have an order; in a cycle they have none.
    is_complete: bool,
}

impl Paths {
    /// The paths of a graph, without the edges inside these knots.
    fn of(graph: &Graph, seconds: &[f64], without: &[Vec<PackageId>]) -> Paths {
        let mut knot_of = vec![usize::MAX; graph.len()];
        for (number, members) in without.iter().enumerate() {
            members.iter().for_each(|id| knot_of[id.index()] = number);
        }
        let counts = |from: &PackageId, to: &PackageId| {
            knot_of[from.index()] == usize::MAX || knot_of[from.index()] != knot_of[to.index()]
        };
        let waits = |id: PackageId| graph.dependencies(id).iter().filter(|to| counts(&id, to)).count();
        let mut open: Vec<usize> = graph.packages().map(waits).collect();
        let mut order: Vec<PackageId> = graph.packages().filter(|id| open[id.index()] == 0).collect();
        let (mut before, mut after) = (vec![0f64; graph.len()], vec![0f64; graph.len()]);
        let mut position = 0;
        while let Some(&id) = order.get(position) {
            position += 1;
            let end = before[id.index()] + seconds[id.index()];
            for dependent in graph.dependents(id).iter().filter(|from| counts(from, &id)) {
                before[dependent.index()] = before[dependent.index()].max(end);
                open[dependent.index()] -= 1;
                if open[dependent.index()] == 0 {
                    order.push(*dependent);
                }
            }
        }
        for id in order.iter().rev() {
            let whole = after[id.index()] + seconds[id.index()];
            for dependency in graph.dependencies(*id).iter().filter(|to| counts(id, to)) {
                after[dependency.index()] = after[dependency.index()].max(whole);
            }
        }
        Paths { before, after, is_complete: order.len() == graph.len() }
    }

    fn longest_seconds(&self, seconds: &[f64]) -> f64 {
        self.before.iter().zip(seconds).map(|(before, own)| before + own).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests;
