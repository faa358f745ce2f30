//! Depths: the number of packages that a failure would break.

use kilnyard_model::graph::{Graph, PackageId};

/// Number of packages counted at a time: one such row of bits for every package fits into a processor's cache.
const BLOCK_PACKAGES: usize = 512;
const WORDS: usize = BLOCK_PACKAGES / u64::BITS as usize;

/// For each package of a graph, the number of packages that depend on it, directly or indirectly, itself included.
/// A package in a cycle counts the whole cycle.
///
/// The sets of dependents are rows of bits, processed one block of columns at a time. This takes edges times
/// packages over 64 steps: a fraction of a second for all of pkgsrc, whereas a walk from every package takes
/// minutes.
pub fn depths(graph: &Graph) -> Vec<u32> {
    // The members of a cycle count as one package: they have the same set.
    let mut leader: Vec<PackageId> = graph.packages().collect();
    for members in graph.cycles() {
        for member in &members {
            leader[member.index()] = members[0];
        }
    }
    let led = |id: &PackageId| leader[id.index()];
    let mut dependents: Vec<Vec<PackageId>> = vec![Vec::new(); graph.len()];
    for package in graph.packages() {
        let others = graph.dependents(package).iter().map(led).filter(|other| *other != led(&package));
        dependents[led(&package).index()].extend(others);
    }
    let order = dependents_first(&dependents);
    let mut depths = vec![0; graph.len()];
    let mut rows = vec![[0_u64; WORDS]; graph.len()];
    for block in (0..graph.len()).step_by(BLOCK_PACKAGES) {
        rows.fill([0; WORDS]);
        for number in block..graph.len().min(block + BLOCK_PACKAGES) {
            let bit = number - block;
            rows[leader[number].index()][bit / 64] |= 1 << (bit % 64);
        }
        for id in &order {
            let mut row = rows[id.index()];
            for dependent in &dependents[id.index()] {
                for (word, other) in row.iter_mut().zip(&rows[dependent.index()]) {
                    *word |= other;
                }
            }
            rows[id.index()] = row;
            depths[id.index()] += row.iter().map(|word| word.count_ones()).sum::<u32>();
        }
    }
    leader.iter().map(|leader| depths[leader.index()]).collect()
}

/// All packages, each one after its dependents.
fn dependents_first(dependents: &[Vec<PackageId>]) -> Vec<PackageId> {
    let mut dependencies: Vec<Vec<PackageId>> = vec![Vec::new(); dependents.len()];
    for (number, others) in dependents.iter().enumerate() {
        for other in others {
            dependencies[other.index()].push(PackageId(number as u32));
        }
    }
    let mut waits: Vec<usize> = dependents.iter().map(Vec::len).collect();
    let mut order: Vec<PackageId> =
        (0..dependents.len() as u32).map(PackageId).filter(|id| waits[id.index()] == 0).collect();
    let mut position = 0;
    while let Some(id) = order.get(position) {
        position += 1;
        for dependency in &dependencies[id.index()] {
            waits[dependency.index()] -= 1;
            if waits[dependency.index()] == 0 {
                order.push(*dependency);
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn graph(packages: u32, edges: &[(u32, u32)]) -> Graph {
        let mut graph = Graph::new();
        for number in 0..packages {
            graph.add(&number.to_string());
        }
        for (package, dependency) in edges {
            graph.depend(PackageId(*package), PackageId(*dependency));
        }
        graph
    }

    #[test]
    fn a_package_counts_itself_and_its_dependents() {
        // 1 and 2 need 0; 3 needs 1 and 2; 4 is alone.
        assert_eq!(depths(&graph(5, &[(1, 0), (2, 0), (3, 1), (3, 2)])), [4, 2, 2, 1, 1]);
        assert_eq!(depths(&graph(0, &[])), [] as [u32; 0]);
    }

    #[test]
    fn a_member_of_a_cycle_counts_all_of_it() {
        // 0 and 1 need each other, 2 needs 1, 0 needs 3.
        assert_eq!(depths(&graph(4, &[(0, 1), (1, 0), (2, 1), (0, 3)])), [3, 3, 1, 4]);
    }

    #[test]
    fn more_packages_than_a_block_has() {
        let count = 3 * BLOCK_PACKAGES as u32 + 7;
        let chain: Vec<(u32, u32)> = (1..count).map(|number| (number, number - 1)).collect();
        let expected: Vec<u32> = (1..=count).rev().collect();
        assert_eq!(depths(&graph(count, &chain)), expected);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn depths_are_those_of_a_walk(edges in proptest::collection::vec((0..600_u32, 0..600_u32), 0..900)) {
            let graph = graph(600, &edges);
            let depths = depths(&graph);
            for id in graph.packages() {
                let mut reached = graph.descendants(id);
                reached.insert(id);
                prop_assert_eq!(depths[id.index()] as usize, reached.len(), "{:?}", id);
            }
        }
    }
}
