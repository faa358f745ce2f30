//! Ranks: the longest remaining path in seconds.

use kilnyard_model::graph::{Graph, PackageId};
use std::collections::BinaryHeap;

/// The longest remaining path in seconds for each package of the graph. A package in a cycle counts only its own
/// time.
pub fn ranks(graph: &Graph, estimates_seconds: &[f64]) -> Vec<f64> {
    let mut ranks = estimates_seconds.to_vec();
    for package in graph.order().into_iter().rev() {
        ranks[package.index()] = estimates_seconds[package.index()] + longest_after(graph, package, &ranks);
    }
    ranks
}

/// The longest path that starts at a dependent of this package.
fn longest_after(graph: &Graph, package: PackageId, ranks: &[f64]) -> f64 {
    graph.dependents(package).iter().map(|dependent| ranks[dependent.index()]).fold(0.0, f64::max)
}

/// The packages of the longest path, in build order.
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

/// Differences in rank below this are rounding errors, and are not propagated.
const CHANGE_SECONDS_MIN: f64 = 1e-9;

/// Ranks that follow their estimates: a changed estimate propagates to the dependencies only as far as it changes a
/// rank.
#[derive(Clone, Debug)]
pub struct Ranks {
    own: Vec<f64>,
    ranks: Vec<f64>,
    /// The position of each package in `order`.
    positions: Vec<u32>,
    order: Vec<PackageId>,
}

impl Ranks {
    /// The ranks of packages that take this many seconds each. The graph must not have cycles.
    pub fn new(graph: &Graph, own_seconds: Vec<f64>) -> Ranks {
        let order = graph.order();
        let mut positions = vec![0; graph.len()];
        for (position, package) in order.iter().enumerate() {
            positions[package.index()] = position as u32;
        }
        let mut ranks = Ranks { ranks: own_seconds.clone(), own: own_seconds, positions, order };
        ranks.renew(graph);
        ranks
    }

    /// The longest path from the start of this package to the end of the run, in seconds.
    pub fn seconds(&self, package: PackageId) -> f64 {
        self.ranks[package.index()]
    }

    /// The longest path after the end of this package, in seconds.
    pub fn after_seconds(&self, package: PackageId) -> f64 {
        self.ranks[package.index()] - self.own[package.index()]
    }

    /// All ranks, by package.
    pub fn as_slice(&self) -> &[f64] {
        &self.ranks
    }

    /// All packages, each after its dependencies.
    pub fn order(&self) -> &[PackageId] {
        &self.order
    }

    /// Sets the times of all packages and computes all ranks from scratch.
    pub fn replace(&mut self, graph: &Graph, own_seconds: Vec<f64>) {
        self.own = own_seconds;
        self.renew(graph);
    }

    fn renew(&mut self, graph: &Graph) {
        for package in self.order.iter().rev() {
            let after = longest_after(graph, *package, &self.ranks);
            self.ranks[package.index()] = self.own[package.index()] + after;
        }
    }

    /// Sets the times of these packages and returns each package whose rank changed, once.
    pub fn set(&mut self, graph: &Graph, times: &[(PackageId, f64)]) -> Vec<PackageId> {
        // The last package in the order comes first, so that its rank is final before others depend on it.
        let mut open = BinaryHeap::new();
        for (package, own_seconds) in times {
            self.own[package.index()] = *own_seconds;
            open.push(self.positions[package.index()]);
        }
        let mut changed = Vec::new();
        while let Some(position) = open.pop() {
            while open.peek() == Some(&position) {
                open.pop();
            }
            let package = self.order[position as usize];
            let rank = self.own[package.index()] + longest_after(graph, package, &self.ranks);
            if (rank - self.ranks[package.index()]).abs() > CHANGE_SECONDS_MIN {
                self.ranks[package.index()] = rank;
                changed.push(package);
                open.extend(graph.dependencies(package).iter().map(|id| self.positions[id.index()]));
            }
        }
        changed
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Five packages with their times.
    pub(crate) fn sample() -> (Graph, Vec<f64>) {
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
    }

    #[test]
    fn a_dropped_package_shortens_its_path() {
        let (graph, estimates) = sample();
        let mut ranks = Ranks::new(&graph, estimates);
        let rsync = graph.find("rsync").unwrap();
        let mut changed = ranks.set(&graph, &[(rsync, 0.0)]);
        changed.sort_unstable();
        assert_eq!(ranks.as_slice(), [30.0, 20.0, 0.0, 5.0, 60.0]);
        assert_eq!(changed.len(), 4);
        assert!(ranks.set(&graph, &[(rsync, 0.0)]).is_empty());
    }

    proptest! {
        /// Following changes one by one gives the same result as computing all ranks from scratch.
        #[test]
        fn followed_ranks_equal_computed_ranks(
            edges in proptest::collection::vec((0u32..20, 0u32..20), 0..60),
            times in proptest::collection::vec((0u32..20, 0.0f64..100.0), 1..20),
        ) {
            let mut graph = Graph::new();
            for number in 0..20 {
                graph.add(&number.to_string());
            }
            for (a, b) in edges.into_iter().filter(|(a, b)| a != b) {
                graph.depend(PackageId(a.max(b)), PackageId(a.min(b)));
            }
            let mut own = vec![1.0; 20];
            let mut following = Ranks::new(&graph, own.clone());
            for (package, seconds) in times {
                own[package as usize] = seconds;
                following.set(&graph, &[(PackageId(package), seconds)]);
                let anew = ranks(&graph, &own);
                for (a, b) in following.as_slice().iter().zip(&anew) {
                    prop_assert!((a - b).abs() < 1e-6, "{:?} {:?}", following.as_slice(), anew);
                }
            }
        }
    }
}
