//! The dependency graph of a set, and cutting its cycles.

use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

/// A package of a graph, numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PackageId(pub u32);

impl PackageId {
    /// The number, as an index of arrays.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What replaces a dependency that would close a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StandIn {
    /// A binary package of the archive replaces the set's own.
    Archive,
    /// A build profile drops the dependency.
    Profile,
}

/// In a knot of more packages than this, cut edges are not put back: each attempt walks the whole knot, and a few
/// edges more or less do not matter there.
const PUT_BACK_MEMBERS_MAX: usize = 300;

/// An edge that was removed to cut a cycle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// The dependent package.
    pub package: PackageId,
    /// The package that it no longer waits for.
    pub dependency: PackageId,
    /// All packages of the cycle, or of the knot of cycles.
    pub members: Vec<PackageId>,
    /// The replacement of the dependency.
    pub stand_in: StandIn,
}

/// A cycle that cannot be cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uncut {
    /// All packages of the cycle.
    pub members: Vec<PackageId>,
}

/// Packages and their direct dependencies.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    names: Vec<String>,
    by_name: HashMap<String, PackageId>,
    dependencies: Vec<BTreeSet<PackageId>>,
    dependents: Vec<BTreeSet<PackageId>>,
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Graph {
        Graph::default()
    }

    /// Adds a package, or finds the existing one with this name.
    pub fn add(&mut self, name: &str) -> PackageId {
        if let Some(id) = self.by_name.get(name) {
            return *id;
        }
        let id = PackageId(self.names.len() as u32);
        self.names.push(name.to_owned());
        self.by_name.insert(name.to_owned(), id);
        self.dependencies.push(BTreeSet::new());
        self.dependents.push(BTreeSet::new());
        id
    }

    /// Adds an edge: a package waits for another one. An edge to itself is ignored.
    pub fn depend(&mut self, package: PackageId, dependency: PackageId) {
        if package != dependency {
            self.dependencies[package.index()].insert(dependency);
            self.dependents[dependency.index()].insert(package);
        }
    }

    fn remove(&mut self, package: PackageId, dependency: PackageId) {
        self.dependencies[package.index()].remove(&dependency);
        self.dependents[dependency.index()].remove(&package);
    }

    /// The number of packages.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether the graph has no packages.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// All packages, in the order in which they were added.
    pub fn packages(&self) -> impl Iterator<Item = PackageId> + use<> {
        (0..self.names.len() as u32).map(PackageId)
    }

    /// The name that a package was added with.
    pub fn name(&self, package: PackageId) -> &str {
        &self.names[package.index()]
    }

    /// The package with this name, if there is one.
    pub fn find(&self, name: &str) -> Option<PackageId> {
        self.by_name.get(name).copied()
    }

    /// The packages that a package waits for directly.
    pub fn dependencies(&self, package: PackageId) -> &BTreeSet<PackageId> {
        &self.dependencies[package.index()]
    }

    /// The packages that wait for a package directly.
    pub fn dependents(&self, package: PackageId) -> &BTreeSet<PackageId> {
        &self.dependents[package.index()]
    }

    /// All packages that a package waits for, directly or indirectly.
    pub fn ancestors(&self, package: PackageId) -> BTreeSet<PackageId> {
        reach(package, |id| &self.dependencies[id.index()])
    }

    /// All packages that wait for a package, directly or indirectly.
    pub fn descendants(&self, package: PackageId) -> BTreeSet<PackageId> {
        reach(package, |id| &self.dependents[id.index()])
    }

    /// A topological order: each package comes after its dependencies. Packages in a cycle, and their dependents, are
    /// missing.
    pub fn order(&self) -> Vec<PackageId> {
        let mut waits: Vec<usize> = self.dependencies.iter().map(BTreeSet::len).collect();
        let mut order: Vec<PackageId> = self.packages().filter(|id| waits[id.index()] == 0).collect();
        let mut position = 0;
        while let Some(&id) = order.get(position) {
            position += 1;
            for dependent in &self.dependents[id.index()] {
                waits[dependent.index()] -= 1;
                if waits[dependent.index()] == 0 {
                    order.push(*dependent);
                }
            }
        }
        order
    }

    /// The strongly connected components of more than one package (Tarjan 1972), without recursion.
    pub fn cycles(&self) -> Vec<Vec<PackageId>> {
        const UNSEEN: u32 = u32::MAX;
        let len = self.len();
        let (mut index, mut low) = (vec![UNSEEN; len], vec![0; len]);
        let mut on_stack = vec![false; len];
        let (mut stack, mut found, mut next) = (Vec::new(), Vec::new(), 0);
        for start in self.packages() {
            if index[start.index()] != UNSEEN {
                continue;
            }
            let mut calls = vec![(start, self.dependencies[start.index()].iter())];
            index[start.index()] = next;
            low[start.index()] = next;
            next += 1;
            stack.push(start);
            on_stack[start.index()] = true;
            while let Some((id, edges)) = calls.last_mut() {
                let id = *id;
                match edges.next() {
                    Some(&to) if index[to.index()] == UNSEEN => {
                        index[to.index()] = next;
                        low[to.index()] = next;
                        next += 1;
                        stack.push(to);
                        on_stack[to.index()] = true;
                        calls.push((to, self.dependencies[to.index()].iter()));
                    }
                    Some(&to) => {
                        if on_stack[to.index()] {
                            low[id.index()] = low[id.index()].min(index[to.index()]);
                        }
                    }
                    None => {
                        calls.pop();
                        if let Some((caller, _)) = calls.last() {
                            low[caller.index()] = low[caller.index()].min(low[id.index()]);
                        }
                        if low[id.index()] == index[id.index()] {
                            let mut members = Vec::new();
                            while let Some(member) = stack.pop() {
                                on_stack[member.index()] = false;
                                members.push(member);
                                if member == id {
                                    break;
                                }
                            }
                            if members.len() > 1 {
                                members.sort_unstable();
                                found.push(members);
                            }
                        }
                    }
                }
            }
        }
        found
    }

    /// Removes edges until no cycle is left. `stand_in` returns the replacement for a dependency of a package, if the
    /// edge may be cut.
    ///
    /// The members of a cycle, or of a knot of cycles, are put into an order with few backward edges (Eades, Lin and
    /// Smyth, "A fast and effective heuristic for the feedback arc set problem", 1993), and backward edges are cut
    /// where possible. If cycles remain, because some edges may not be cut, single members are freed from their
    /// cycle. Cut edges that turn out not to close a cycle are put back. Cycles that cannot be cut are returned as
    /// uncut, and keep their edges.
    pub fn cut_cycles(
        &mut self,
        stand_in: &dyn Fn(PackageId, PackageId) -> Option<StandIn>,
    ) -> (Vec<Cut>, Vec<Uncut>) {
        let mut cuts: Vec<Cut> = Vec::new();
        for members in self.cycles() {
            let order = self.order_of_cycle(&members);
            let position: HashMap<PackageId, usize> =
                order.iter().enumerate().map(|(at, id)| (*id, at)).collect();
            for package in &members {
                for dependency in self.dependencies[package.index()].clone() {
                    let is_backward = position.get(&dependency).is_some_and(|at| *at > position[package]);
                    if let Some(stand_in) = is_backward.then(|| stand_in(*package, dependency)).flatten() {
                        self.remove(*package, dependency);
                        cuts.push(Cut { package: *package, dependency, members: members.clone(), stand_in });
                    }
                }
            }
        }
        let uncut = self.free_members(stand_in, &mut cuts);
        cuts.retain(|cut| {
            let closes = cut.members.len() > PUT_BACK_MEMBERS_MAX
                || self.ancestors(cut.dependency).contains(&cut.package);
            if !closes {
                self.depend(cut.package, cut.dependency);
            }
            closes
        });
        (cuts, uncut)
    }

    /// An order of a cycle's members in which few come before one of their dependencies.
    fn order_of_cycle(&self, members: &[PackageId]) -> Vec<PackageId> {
        let inside =
            |edges: &BTreeSet<PackageId>| edges.iter().filter(|id| members.binary_search(id).is_ok()).count();
        let mut degrees: HashMap<PackageId, (usize, usize)> = members
            .iter()
            .map(|id| (*id, (inside(&self.dependencies[id.index()]), inside(&self.dependents[id.index()]))))
            .collect();
        // First the members without open dependencies, then those without open dependents, then the one with the
        // largest surplus of open dependents over open dependencies.
        let rank = |id: PackageId, (needs, needed): (usize, usize)| match (needs, needed) {
            (0, _) => (0, 0, id),
            (_, 0) => (1, 0, id),
            _ => (2, needs as i64 - needed as i64, id),
        };
        let mut open: BTreeSet<(u8, i64, PackageId)> = degrees.iter().map(|(id, d)| rank(*id, *d)).collect();
        let (mut first, mut last) = (Vec::new(), Vec::new());
        while let Some((class, _, id)) = open.pop_first() {
            degrees.remove(&id);
            if class == 1 {
                last.push(id)
            } else {
                first.push(id)
            }
            let neighbours = self.dependencies[id.index()].iter().map(|n| (n, false));
            for (other, needs_less) in neighbours.chain(self.dependents[id.index()].iter().map(|n| (n, true)))
            {
                if let Some(degree) = degrees.get_mut(other) {
                    open.remove(&rank(*other, *degree));
                    let side = if needs_less { &mut degree.0 } else { &mut degree.1 };
                    *side -= 1;
                    open.insert(rank(*other, *degree));
                }
            }
        }
        last.reverse();
        first.extend(last);
        first
    }

    /// Frees single members from the remaining cycles.
    fn free_members(
        &mut self,
        stand_in: &dyn Fn(PackageId, PackageId) -> Option<StandIn>,
        cuts: &mut Vec<Cut>,
    ) -> Vec<Uncut> {
        let mut uncut = Vec::new();
        let mut given_up = BTreeSet::new();
        loop {
            let cycles: Vec<_> = self.cycles().into_iter().filter(|c| !given_up.contains(c)).collect();
            if cycles.is_empty() {
                return uncut;
            }
            for members in cycles {
                match self.freed(&members, stand_in) {
                    Some((package, edges)) => {
                        for (dependency, stand_in) in edges {
                            self.remove(package, dependency);
                            cuts.push(Cut { package, dependency, members: members.clone(), stand_in });
                        }
                    }
                    None => {
                        given_up.insert(members.clone());
                        uncut.push(Uncut { members });
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
        stand_in: &dyn Fn(PackageId, PackageId) -> Option<StandIn>,
    ) -> Option<(PackageId, Vec<(PackageId, StandIn)>)> {
        let inside = |package: &PackageId| -> Vec<PackageId> {
            let edges = self.dependencies[package.index()].iter();
            edges.filter(|to| members.binary_search(to).is_ok()).copied().collect()
        };
        let whole = members.iter().filter_map(|package| {
            let edges: Option<Vec<_>> =
                inside(package).into_iter().map(|to| Some((to, stand_in(*package, to)?))).collect();
            Some((*package, edges?))
        });
        // If no member can be freed completely, cutting any single edge is progress.
        let waiting = |package: &PackageId| {
            let dependents = self.dependents[package.index()].iter();
            dependents.filter(|from| members.binary_search(from).is_ok()).count()
        };
        // Among equals, prefer the member that most others wait for.
        let cost =
            |(package, edges): &(PackageId, Vec<_>)| (edges.len(), Reverse(waiting(package)), *package);
        whole.min_by_key(cost).or_else(|| {
            members.iter().find_map(|package| {
                let edge = inside(package).into_iter().find_map(|to| Some((to, stand_in(*package, to)?)))?;
                Some((*package, vec![edge]))
            })
        })
    }
}

fn reach<'a>(start: PackageId, next: impl Fn(PackageId) -> &'a BTreeSet<PackageId>) -> BTreeSet<PackageId> {
    let mut found = BTreeSet::new();
    let mut open = vec![start];
    while let Some(id) = open.pop() {
        for to in next(id) {
            if found.insert(*to) {
                open.push(*to);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn graph(edges: &[(&str, &str)]) -> Graph {
        let mut graph = Graph::new();
        for (package, dependency) in edges {
            let (package, dependency) = (graph.add(package), graph.add(dependency));
            graph.depend(package, dependency);
        }
        graph
    }

    #[test]
    fn order_comes_after_dependencies() {
        let graph = graph(&[("rsync", "acl"), ("acl", "attr"), ("rsync", "zlib")]);
        let names: Vec<&str> = graph.order().into_iter().map(|id| graph.name(id)).collect();
        let at = |name| names.iter().position(|n| *n == name).unwrap();
        assert!(at("attr") < at("acl") && at("acl") < at("rsync") && at("zlib") < at("rsync"));
        assert_eq!(graph.ancestors(graph.find("rsync").unwrap()).len(), 3);
        assert_eq!(graph.descendants(graph.find("attr").unwrap()).len(), 2);
    }

    #[test]
    fn a_cycle_is_cut_where_it_costs_least_and_names_its_members() {
        let mut graph = graph(&[("a", "b"), ("b", "c"), ("c", "a"), ("a", "c"), ("d", "a")]);
        let (cuts, uncut) = graph.cut_cycles(&|_, _| Some(StandIn::Archive));
        assert_eq!((cuts.len(), uncut.len()), (1, 0), "{cuts:?}");
        assert_eq!(cuts[0].members.len(), 3);
        assert_eq!(graph.order().len(), 4);
    }

    #[test]
    fn a_cycle_without_replacements_stays_uncut() {
        let mut graph = graph(&[("a", "b"), ("b", "a")]);
        let (cuts, uncut) = graph.cut_cycles(&|_, _| None);
        assert_eq!((cuts.len(), uncut.len()), (0, 1));
        assert_eq!(graph.order(), []);
    }

    proptest! {
        #[test]
        fn all_packages_have_an_order_after_cutting(edges in prop::collection::vec((0u32..12, 0u32..12), 0..60)) {
            let mut graph = Graph::new();
            for number in 0..12 {
                graph.add(&number.to_string());
            }
            for (package, dependency) in &edges {
                graph.depend(PackageId(*package), PackageId(*dependency));
            }
            let before = graph.clone();
            let (cuts, uncut) = graph.cut_cycles(&|_, _| Some(StandIn::Archive));
            prop_assert!(uncut.is_empty());
            prop_assert_eq!(graph.order().len(), 12);
            prop_assert!(before.cycles().is_empty() == cuts.is_empty());
            // No edge is missing except those in `cuts`.
            let edges_of = |g: &Graph| g.packages().map(|p| g.dependencies(p).len()).sum::<usize>();
            prop_assert_eq!(edges_of(&before), edges_of(&graph) + cuts.len());
        }
    }
}
