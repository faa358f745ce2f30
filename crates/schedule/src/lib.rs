//! What to build next: the package with the longest remaining path first. Pure.
//!
//! A package's [`rank`](ranks) is the longest path of estimated seconds from its start to the end of the
//! run, over all that waits for it (the critical path rule of list scheduling: Graham 1969, Adam, Chandy
//! and Dickson 1974). The [`Queue`] hands out the ready package of the highest rank; what a person bumped
//! comes before all else. Estimates come from recorded builds; [`prior_seconds`] stands in where there is
//! none. [`bound_seconds`] is what no schedule can beat.
//!
//! What it does not do yet: give cores to builds. Every build may use all cores, and the kernel shares
//! them out.

use kilnyard_model::graph::{Graph, PackageId};
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeSet;

/// The longest remaining path in seconds for each package of the graph. A package of a cycle has only its
/// own time.
pub fn ranks(graph: &Graph, estimates_seconds: &[f64]) -> Vec<f64> {
    let mut ranks = estimates_seconds.to_vec();
    for package in graph.order().into_iter().rev() {
        let after = graph.dependents(package).iter().map(|dependent| ranks[dependent.index()]);
        ranks[package.index()] = estimates_seconds[package.index()] + after.fold(0.0, f64::max);
    }
    ranks
}

/// The packages of the longest path, in the order in which they are built.
pub fn path(graph: &Graph, ranks: &[f64]) -> Vec<PackageId> {
    let longest = |packages: &mut dyn Iterator<Item = PackageId>| {
        packages.max_by(|a, b| ranks[a.index()].total_cmp(&ranks[b.index()]).then_with(|| b.cmp(a)))
    };
    let mut path = Vec::new();
    let mut next = longest(&mut graph.packages());
    while let Some(package) = next {
        path.push(package);
        next = longest(&mut graph.dependents(package).iter().copied());
    }
    path
}

/// No schedule ends sooner: the longest path, or all the work spread over all cores.
pub fn bound_seconds(path_seconds: f64, work_cpu_seconds: f64, cores: u32) -> f64 {
    path_seconds.max(work_cpu_seconds / f64::from(cores.max(1)))
}

/// How long a run takes if the estimates hold: the queue played through with this many slots.
pub fn expected_seconds(graph: &Graph, estimates_seconds: &[f64], ranks: &[f64], slots: u32) -> f64 {
    let mut queue = Queue::new(ranks.to_vec());
    let mut waits: Vec<usize> = graph.packages().map(|id| graph.dependencies(id).len()).collect();
    for package in graph.packages().filter(|id| waits[id.index()] == 0) {
        queue.push(package);
    }
    // What is being built, by its end; packages break ties, so that the outcome is one.
    let mut building: Vec<(f64, PackageId)> = Vec::new();
    let mut now = 0.0;
    loop {
        while building.len() < slots.max(1) as usize {
            let Some(package) = queue.pop() else { break };
            building.push((now + estimates_seconds[package.index()], package));
        }
        building.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| b.1.cmp(&a.1)));
        let Some((end, package)) = building.pop() else { return now };
        now = end;
        for dependent in graph.dependents(package) {
            waits[dependent.index()] -= 1;
            if waits[dependent.index()] == 0 {
                queue.push(*dependent);
            }
        }
    }
}

/// The time of a package that was never built, from the size of its sources: over 369 packages with known
/// times the logarithms go together with a slope of 0.36 (correlation 0.63); 500 kB take some 20 seconds.
pub fn prior_seconds(source_bytes: u64) -> f64 {
    const SECONDS_AT_REFERENCE: f64 = 20.0;
    const REFERENCE_BYTES: f64 = 500_000.0;
    const SLOPE: f64 = 0.36;
    SECONDS_AT_REFERENCE * (source_bytes.max(1000) as f64 / REFERENCE_BYTES).powf(SLOPE)
}

/// A place in the queue: bumped ones first, the last bumped first of all, then by rank.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    bumped: u64,
    rank: f64,
    package: PackageId,
}

impl Eq for Place {}

impl Ord for Place {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |place: &Place| (Reverse(place.bumped), place.package);
        let by_bump = Reverse(self.bumped).cmp(&Reverse(other.bumped));
        by_bump.then_with(|| other.rank.total_cmp(&self.rank)).then_with(|| key(self).cmp(&key(other)))
    }
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The packages that can be built now, in the order in which they should be.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    ranks: Vec<f64>,
    bumped: Vec<u64>,
    bumps: u64,
    places: BTreeSet<Place>,
}

impl Queue {
    /// An empty queue for packages with these ranks.
    pub fn new(ranks: Vec<f64>) -> Queue {
        Queue { bumped: vec![0; ranks.len()], ranks, bumps: 0, places: BTreeSet::new() }
    }

    fn place(&self, package: PackageId) -> Place {
        Place { bumped: self.bumped[package.index()], rank: self.ranks[package.index()], package }
    }

    /// Puts a package in.
    pub fn push(&mut self, package: PackageId) {
        self.places.insert(self.place(package));
    }

    /// Takes the first package out.
    pub fn pop(&mut self) -> Option<PackageId> {
        self.places.pop_first().map(|place| place.package)
    }

    /// The first package, which stays.
    pub fn first(&self) -> Option<PackageId> {
        self.places.first().map(|place| place.package)
    }

    /// Whether a package, queued or not, comes before another one.
    pub fn comes_before(&self, package: PackageId, other: PackageId) -> bool {
        self.place(package) < self.place(other)
    }

    /// Takes this package out; whether it was there.
    pub fn remove(&mut self, package: PackageId) -> bool {
        self.places.remove(&self.place(package))
    }

    /// Puts these packages before all others, now or when they come.
    pub fn bump(&mut self, packages: impl IntoIterator<Item = PackageId>) {
        self.bumps += 1;
        for package in packages {
            let was_there = self.remove(package);
            self.bumped[package.index()] = self.bumps;
            if was_there {
                self.push(package);
            }
        }
    }

    /// How many are ready.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The rank of a package in seconds.
    pub fn rank_seconds(&self, package: PackageId) -> f64 {
        self.ranks[package.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Graph, Vec<f64>) {
        let mut graph = Graph::new();
        let ids: Vec<_> = ["attr", "acl", "rsync", "zlib", "long"].iter().map(|n| graph.add(n)).collect();
        graph.depend(ids[1], ids[0]);
        graph.depend(ids[2], ids[1]);
        graph.depend(ids[2], ids[3]);
        (graph, vec![10.0, 20.0, 40.0, 5.0, 60.0])
    }

    #[test]
    fn rank_is_the_longest_path_to_the_end() {
        let (graph, estimates) = sample();
        let ranks = ranks(&graph, &estimates);
        assert_eq!(ranks, [70.0, 60.0, 40.0, 45.0, 60.0]);
        let names: Vec<_> = path(&graph, &ranks).into_iter().map(|id| graph.name(id).to_owned()).collect();
        assert_eq!(names, ["attr", "acl", "rsync"]);
        assert_eq!(expected_seconds(&graph, &estimates, &ranks, 2), 75.0);
        assert_eq!(expected_seconds(&graph, &estimates, &ranks, 1), 135.0);
        assert_eq!(bound_seconds(70.0, 135.0, 2), 70.0);
        assert_eq!(bound_seconds(70.0, 300.0, 2), 150.0);
    }

    #[test]
    fn the_queue_follows_rank_and_bumps() {
        let (graph, estimates) = sample();
        let mut queue = Queue::new(ranks(&graph, &estimates));
        for name in ["zlib", "attr", "long"] {
            queue.push(graph.find(name).unwrap());
        }
        queue.bump([graph.find("zlib").unwrap()]);
        let mut order = Vec::new();
        while let Some(id) = queue.pop() {
            order.push(graph.name(id).to_owned());
        }
        assert_eq!(order, ["zlib", "attr", "long"]);
        assert!(queue.is_empty());
    }

    #[test]
    fn the_prior_grows_with_size_and_is_never_zero() {
        assert!(prior_seconds(0) > 0.0);
        assert!(prior_seconds(100_000_000) > prior_seconds(500_000));
        assert!((prior_seconds(500_000) - 20.0).abs() < 1e-9);
    }
}
