//! The dependency graph of a set. [`crate::cuts`] cuts its cycles.

use serde::{Deserialize, Serialize};
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

/// What packages are built against: which dependencies wait for the set's own builds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Against {
    /// Every package that is installed for a build and that the set makes comes from the set, except the base root.
    #[default]
    Set,
    /// The set makes the direct build dependencies. Of the indirect ones it makes those of packages that are built
    /// earlier in any case.
    Ancestors,
    /// The archive makes all dependencies, so no package waits for another.
    Archive,
}

/// Packages and their direct dependencies.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    names: Vec<String>,
    by_name: HashMap<String, PackageId>,
    /// Each list is sorted. A whole release has millions of edges, which take four bytes each.
    dependencies: Vec<Vec<PackageId>>,
    dependents: Vec<Vec<PackageId>>,
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
        self.dependencies.push(Vec::new());
        self.dependents.push(Vec::new());
        id
    }

    /// Adds an edge: a package waits for another one. An edge to itself is ignored.
    pub fn depend(&mut self, package: PackageId, dependency: PackageId) {
        if package != dependency {
            insert(&mut self.dependencies[package.index()], dependency);
            insert(&mut self.dependents[dependency.index()], package);
        }
    }

    pub(crate) fn remove(&mut self, package: PackageId, dependency: PackageId) {
        remove(&mut self.dependencies[package.index()], dependency);
        remove(&mut self.dependents[dependency.index()], package);
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

    /// The packages that a package waits for directly, in ascending order.
    pub fn dependencies(&self, package: PackageId) -> &[PackageId] {
        &self.dependencies[package.index()]
    }

    /// The packages that wait for a package directly, in ascending order.
    pub fn dependents(&self, package: PackageId) -> &[PackageId] {
        &self.dependents[package.index()]
    }

    /// All packages that a package waits for, directly or indirectly.
    pub fn ancestors(&self, package: PackageId) -> BTreeSet<PackageId> {
        reach(package, |id| self.dependencies(id))
    }

    /// All packages that wait for a package, directly or indirectly.
    pub fn descendants(&self, package: PackageId) -> BTreeSet<PackageId> {
        reach(package, |id| self.dependents(id))
    }

    /// A topological order: each package comes after its dependencies. Packages in a cycle, and their dependents, are
    /// missing.
    pub fn order(&self) -> Vec<PackageId> {
        let mut waits: Vec<usize> = self.dependencies.iter().map(Vec::len).collect();
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
}

fn insert(ids: &mut Vec<PackageId>, id: PackageId) {
    if let Err(place) = ids.binary_search(&id) {
        ids.insert(place, id);
    }
}

fn remove(ids: &mut Vec<PackageId>, id: PackageId) {
    if let Ok(place) = ids.binary_search(&id) {
        ids.remove(place);
    }
}

fn reach<'a>(start: PackageId, next: impl Fn(PackageId) -> &'a [PackageId]) -> BTreeSet<PackageId> {
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
}
