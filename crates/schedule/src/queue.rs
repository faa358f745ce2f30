//! The ready packages, in the order in which they should be built.

use kilnyard_model::graph::PackageId;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};

/// A position in the queue. Bumped packages come first, the last bumped before the others; then the priority decides,
/// and then the rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct QueuePlace {
    pub(crate) bumped: u64,
    pub(crate) priority: i32,
    pub(crate) rank: f64,
    pub(crate) package: PackageId,
}

impl Eq for QueuePlace {}

impl Ord for QueuePlace {
    fn cmp(&self, other: &Self) -> Ordering {
        let chosen = |place: &Self| Reverse((place.bumped, place.priority));
        let by_choice = chosen(self).cmp(&chosen(other));
        by_choice
            .then_with(|| other.rank.total_cmp(&self.rank))
            .then_with(|| self.package.cmp(&other.package))
    }
}

impl PartialOrd for QueuePlace {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The packages that can be built now, in the order in which they should be built: bumped ones, then by priority, then
/// by rank.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    ranks: Vec<f64>,
    priorities: Vec<i32>,
    bumped: Vec<u64>,
    bumps: u64,
    places: BTreeSet<QueuePlace>,
    /// Packages that will be ready soon, with the time until which the queue waits for them.
    expected: BTreeMap<QueuePlace, f64>,
}

impl Queue {
    /// An empty queue for packages with these ranks and the same priority.
    pub fn new(ranks: Vec<f64>) -> Queue {
        let (bumped, priorities) = (vec![0; ranks.len()], vec![0; ranks.len()]);
        Queue { ranks, priorities, bumped, bumps: 0, ..Queue::default() }
    }

    pub(crate) fn place(&self, package: PackageId) -> QueuePlace {
        let index = package.index();
        let (bumped, priority) = (self.bumped[index], self.priorities[index]);
        QueuePlace { bumped, priority, rank: self.ranks[index], package }
    }

    /// Adds a package, and stops waiting for it.
    pub fn push(&mut self, package: PackageId) {
        self.expected.remove(&self.place(package));
        self.places.insert(self.place(package));
    }

    /// Removes and returns the first package.
    pub fn pop(&mut self) -> Option<PackageId> {
        self.places.pop_first().map(|place| place.package)
    }

    /// The first package, which stays in the queue.
    pub fn first(&self) -> Option<PackageId> {
        self.places.first().map(|place| place.package)
    }

    /// All packages in order.
    pub fn iter(&self) -> impl Iterator<Item = PackageId> {
        self.places.iter().map(|place| place.package)
    }

    /// Whether a package, queued or not, comes before another one.
    pub fn comes_before(&self, package: PackageId, other: PackageId) -> bool {
        self.place(package) < self.place(other)
    }

    /// Removes this package; returns whether it was in the queue.
    pub fn remove(&mut self, package: PackageId) -> bool {
        self.places.remove(&self.place(package))
    }

    /// Changes the rank of a package, queued or not.
    pub fn set_rank(&mut self, package: PackageId, rank_seconds: f64) {
        self.moved(package, |queue| queue.ranks[package.index()] = rank_seconds);
    }

    /// Changes the priority of a package, queued or not.
    pub fn set_priority(&mut self, package: PackageId, priority: i32) {
        self.moved(package, |queue| queue.priorities[package.index()] = priority);
    }

    /// Applies a change to the position of a package, and sorts it in again.
    fn moved(&mut self, package: PackageId, change: impl FnOnce(&mut Queue)) {
        let was_there = self.remove(package);
        let awaited = self.expected.remove(&self.place(package));
        change(self);
        if was_there {
            self.push(package);
        }
        if let Some(until_seconds) = awaited {
            self.expected.insert(self.place(package), until_seconds);
        }
    }

    /// Waits for a package that will be ready soon, until a time.
    pub fn wait_for(&mut self, package: PackageId, until_seconds: f64) {
        self.expected.insert(self.place(package), until_seconds);
    }

    /// Stops waiting for a package.
    pub fn stop_waiting_for(&mut self, package: PackageId) {
        self.expected.remove(&self.place(package));
    }

    /// Whether the queue waits for a package that comes before this one.
    pub fn is_overtaking(&mut self, package: PackageId, now_seconds: f64) -> bool {
        let place = self.place(package);
        while let Some(first) = self.expected.first_entry() {
            if *first.get() >= now_seconds {
                return *first.key() < place;
            }
            first.remove();
        }
        false
    }

    /// Moves these packages before all others, whether they are queued now or later.
    pub fn bump(&mut self, packages: impl IntoIterator<Item = PackageId>) {
        self.bumps += 1;
        for package in packages {
            self.moved(package, |queue| queue.bumped[package.index()] = queue.bumps);
        }
    }

    /// The number of ready packages.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether no package is ready.
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
    use crate::rank::ranks;
    use crate::rank::tests::sample;

    #[test]
    fn the_queue_follows_rank_and_bumps() {
        let (graph, estimates) = sample();
        let mut queue = Queue::new(ranks(&graph, &estimates));
        for name in ["zlib", "attr", "long"] {
            queue.push(graph.find(name).unwrap());
        }
        queue.bump([graph.find("zlib").unwrap()]);
        queue.set_rank(graph.find("long").unwrap(), 80.0);
        let mut order = Vec::new();
        while let Some(id) = queue.pop() {
            order.push(graph.name(id).to_owned());
        }
        assert_eq!(order, ["zlib", "long", "attr"]);
        // The queue waits for a package that is expected soon, even if its rank changes in the meantime.
        let [attr, long, acl] = ["attr", "long", "acl"].map(|name| graph.find(name).unwrap());
        queue.wait_for(acl, 5.0);
        assert!(!queue.is_overtaking(attr, 1.0) && !queue.is_overtaking(long, 1.0));
        queue.set_rank(acl, 75.0);
        assert!(queue.is_overtaking(attr, 1.0) && !queue.is_overtaking(long, 1.0));
        assert!(!queue.is_overtaking(attr, 6.0), "but not forever");
        assert!(queue.is_empty());
    }

    #[test]
    fn a_priority_comes_before_rank_and_after_a_bump() {
        let (graph, estimates) = sample();
        let mut queue = Queue::new(ranks(&graph, &estimates));
        let [attr, zlib, long] = ["attr", "zlib", "long"].map(|name| graph.find(name).unwrap());
        queue.push(attr);
        queue.push(zlib);
        queue.set_priority(zlib, 1);
        queue.set_priority(attr, -1);
        queue.push(long);
        assert_eq!(queue.iter().collect::<Vec<_>>(), [zlib, long, attr]);
        queue.bump([attr]);
        assert_eq!(queue.iter().collect::<Vec<_>>(), [attr, zlib, long]);
    }
}
