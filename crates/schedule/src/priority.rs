//! Priorities: packages that the yard's owner wants early or late, whatever their ranks.
//!
//! A priority above zero also applies to everything that the package waits for; otherwise the package could not be
//! early. A priority below zero applies to the package alone: its dependencies may be needed elsewhere.

use kilnyard_model::graph::Graph;

/// The effective priority of each package, from the priorities set for the packages.
pub fn effective_priorities(graph: &Graph, own: &[i32]) -> Vec<i32> {
    let mut all = own.to_vec();
    if all.iter().all(|priority| *priority <= 0) {
        return all;
    }
    for package in graph.order().into_iter().rev() {
        let of_dependents = graph.dependents(package).iter().map(|dependent| all[dependent.index()]);
        if let Some(raised) = of_dependents.max().filter(|priority| *priority > 0) {
            all[package.index()] = all[package.index()].max(raised);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_raised_with_a_package_and_never_lowered() {
        let mut graph = Graph::new();
        let ids: Vec<_> = ["a", "b", "c", "d"].iter().map(|name| graph.add(name)).collect();
        // `c` needs `b`, which needs `a`; `d` needs `a`.
        for (package, dependency) in [(2, 1), (1, 0), (3, 0)] {
            graph.depend(ids[package], ids[dependency]);
        }
        for (own, expected) in [
            ([0, 0, 0, 0], [0, 0, 0, 0]),
            ([0, 0, 5, 0], [5, 5, 5, 0]),
            ([0, 7, 5, 0], [7, 7, 5, 0]),
            ([-3, 0, 5, -9], [5, 5, 5, -9]),
            ([0, -1, -2, -9], [0, -1, -2, -9]),
            ([-1, 0, 0, 0], [-1, 0, 0, 0]),
        ] {
            assert_eq!(effective_priorities(&graph, &own), expected, "{own:?}");
        }
    }
}
