//! What simulated builds need on their machines: the base root, and what their dependencies make, direct and indirect.

use crate::cli::Simulate;
use kilnyard_model::graph::{Graph, PackageId};
use kilnyard_schedule::{Inputs, Needed};

/// The number of the base root, which all packages need. What a package makes has the next number after its own.
const BASE: u32 = 0;

/// The inputs that the options describe; absent if they take no time.
pub fn of(graph: &Graph, options: &Simulate) -> Option<Inputs> {
    let rate = options.rate?;
    let (base, output) = (options.base.0, options.output.0);
    let mut closure = Closure { graph, seen_for: vec![None; graph.len()] };
    let needs = graph.packages().map(|package| {
        let outputs = closure.of(package).into_iter();
        let outputs = outputs.map(|dependency| Needed { artifact: dependency.0 + 1, bytes: output });
        outputs.chain([Needed { artifact: BASE, bytes: base }]).collect()
    });
    Some(Inputs {
        needs: needs.collect(),
        bytes_per_second: rate.0 as f64,
        warm: Vec::new(),
        are_known: !options.blind,
    })
}

struct Closure<'a> {
    graph: &'a Graph,
    /// The last package whose search has reached each package.
    seen_for: Vec<Option<PackageId>>,
}

impl Closure<'_> {
    /// All dependencies of a package.
    fn of(&mut self, package: PackageId) -> Vec<PackageId> {
        let mut found: Vec<PackageId> = Vec::new();
        let mut next = Some(package);
        let mut at = 0;
        while let Some(one) = next {
            for dependency in self.graph.dependencies(one) {
                let seen = &mut self.seen_for[dependency.index()];
                if *seen != Some(package) {
                    *seen = Some(package);
                    found.push(*dependency);
                }
            }
            next = found.get(at).copied();
            at += 1;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dependency_is_found_once() {
        let mut graph = Graph::new();
        let [base, one, two, top] = ["base", "one", "two", "top"].map(|name| graph.add(name));
        for (package, dependency) in [(one, base), (two, base), (top, one), (top, two), (top, base)] {
            graph.depend(package, dependency);
        }
        let mut closure = Closure { graph: &graph, seen_for: vec![None; graph.len()] };
        let mut of_top = closure.of(top);
        of_top.sort_unstable();
        assert_eq!(of_top, [base, one, two]);
        assert_eq!((closure.of(two), closure.of(base)), (vec![base], vec![]));
    }
}
