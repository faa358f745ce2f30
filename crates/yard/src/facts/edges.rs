//! The edges of the set, from the plan in the store.

use crate::error::Result;
use crate::estimates::Estimates;
use crate::shape::Shape;
use crate::yard::{Yard, store_error};
use kilnyard_model::result::PackageState;
use kilnyard_schedule::Work;
use kilnyard_store::Store;
use std::collections::{HashMap, HashSet};

/// Which way edges are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From a package to what it needs.
    Dependencies,
    /// From a package to what needs it.
    Dependents,
}

/// A package on the way from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The package.
    pub package: u32,
    /// The package that led to it, on a shortest way.
    pub via: u32,
    /// The number of edges on that way.
    pub depth: u32,
}

/// See the module documentation.
#[derive(Clone, Debug, Default)]
pub struct Edges {
    names: Vec<String>,
    left_out: HashSet<String>,
    numbers: HashMap<String, u32>,
    /// The estimated duration of each package's build, in seconds; 0 if it is not known.
    estimates: Vec<f64>,
    dependencies: Vec<Vec<u32>>,
    dependents: Vec<Vec<u32>>,
}

impl Edges {
    /// The edges of the stored plan. Packages that are left out have none.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn read(store: &dyn Store) -> Result<Edges> {
        let mut edges = Edges::default();
        let mut needs: Vec<String> = Vec::new();
        store
            .each_planned(&mut |row| {
                if row.state != PackageState::LeftOut {
                    edges.add(row.name, row.estimate_seconds);
                    needs.push(row.dependencies.to_owned());
                } else {
                    edges.left_out.insert(row.name.to_owned());
                }
                true
            })
            .map_err(store_error)?;
        for (package, needs) in needs.iter().enumerate() {
            edges.depend(package as u32, needs.split_ascii_whitespace());
        }
        Ok(edges)
    }

    /// Adds the estimates of these packages where the plan has none, since they are up to date: by their last builds.
    pub fn estimate_from_history(&mut self, yard: &Yard, packages: &[u32]) -> Result<()> {
        let lacks = |package: &&u32| self.estimates[**package as usize] == 0.0;
        let lacking: Vec<u32> = packages.iter().filter(lacks).copied().collect();
        if lacking.is_empty() {
            return Ok(());
        }
        let (shape, store) = (Shape::of(yard), yard.store()?);
        let history = Estimates::of(yard, &*store, shape.machine)?;
        for package in lacking {
            let traps = history.traps_per_second(self.name(package));
            let jobs_max = yard.config.settings_of(self.name(package)).confined(traps).terms.jobs_max;
            if let Some(work) = history.known(self.name(package)) {
                let work = Work { jobs_max, ..work };
                self.estimates[package as usize] = work.seconds_at(shape.jobs.min(shape.machine.cores), 1.0);
            }
        }
        Ok(())
    }

    fn add(&mut self, name: &str, estimate_seconds: f64) {
        self.numbers.insert(name.to_owned(), self.names.len() as u32);
        self.names.push(name.to_owned());
        self.estimates.push(estimate_seconds);
        self.dependencies.push(Vec::new());
        self.dependents.push(Vec::new());
    }

    fn depend<'a>(&mut self, package: u32, dependencies: impl Iterator<Item = &'a str>) {
        for name in dependencies {
            if let Some(&dependency) = self.numbers.get(name) {
                self.dependencies[package as usize].push(dependency);
                self.dependents[dependency as usize].push(package);
            }
        }
    }

    /// The number of a package. Absent if the plan does not have it, or leaves it out.
    pub fn find(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// Whether the plan leaves a package out.
    pub fn is_left_out(&self, name: &str) -> bool {
        self.left_out.contains(name)
    }

    /// The names of all packages.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The number of packages.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The name of a package.
    pub fn name(&self, package: u32) -> &str {
        &self.names[package as usize]
    }

    /// The estimated duration of a package's build, in seconds.
    pub fn estimate_seconds(&self, package: u32) -> f64 {
        self.estimates[package as usize]
    }

    /// The direct neighbours of a package.
    pub fn of(&self, package: u32, direction: Direction) -> &[u32] {
        match direction {
            Direction::Dependencies => &self.dependencies[package as usize],
            Direction::Dependents => &self.dependents[package as usize],
        }
    }

    /// All packages that are reached from these, the nearest first; without these.
    pub fn reach(&self, from: &[u32], direction: Direction) -> Vec<Step> {
        let mut is_seen = vec![false; self.len()];
        from.iter().for_each(|package| is_seen[*package as usize] = true);
        let mut steps: Vec<Step> =
            from.iter().map(|package| Step { package: *package, via: *package, depth: 0 }).collect();
        let mut position = 0;
        while let Some(&Step { package, depth, .. }) = steps.get(position) {
            position += 1;
            for &next in self.of(package, direction) {
                if !std::mem::replace(&mut is_seen[next as usize], true) {
                    steps.push(Step { package: next, via: package, depth: depth + 1 });
                }
            }
        }
        steps.drain(..from.len());
        steps
    }

    /// The longest path through these packages alone, in estimated seconds.
    pub fn longest_path_seconds(&self, packages: &[u32]) -> f64 {
        let mut waits: HashMap<u32, usize> = packages.iter().map(|package| (*package, 0)).collect();
        let counts: Vec<(u32, usize)> = packages
            .iter()
            .map(|package| {
                let inside = self.dependencies[*package as usize].iter();
                (*package, inside.filter(|other| waits.contains_key(other)).count())
            })
            .collect();
        waits.extend(counts);
        let mut ready: Vec<u32> = packages.iter().copied().filter(|package| waits[package] == 0).collect();
        let mut starts: HashMap<u32, f64> = HashMap::new();
        let mut longest = 0.0_f64;
        while let Some(package) = ready.pop() {
            let end = starts.get(&package).copied().unwrap_or(0.0) + self.estimate_seconds(package);
            longest = longest.max(end);
            for dependent in &self.dependents[package as usize] {
                let Some(left) = waits.get_mut(dependent) else { continue };
                let start = starts.entry(*dependent).or_insert(0.0);
                *start = start.max(end);
                *left -= 1;
                if *left == 0 {
                    ready.push(*dependent);
                }
            }
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a` is needed by `b` and `c`, both by `d`; `e` stands alone.
    fn edges() -> Edges {
        let mut edges = Edges::default();
        for (name, estimate) in [("a", 1.0), ("b", 10.0), ("c", 2.0), ("d", 4.0), ("e", 100.0)] {
            edges.add(name, estimate);
        }
        edges.depend(1, ["a", "elsewhere"].into_iter());
        edges.depend(2, ["a"].into_iter());
        edges.depend(3, ["b", "c"].into_iter());
        edges
    }

    #[test]
    fn packages_are_reached_in_both_directions() {
        let edges = edges();
        let names = |steps: Vec<Step>| {
            let one = |step: &Step| (edges.name(step.package), edges.name(step.via), step.depth);
            steps.iter().map(one).map(|(a, b, c)| format!("{a} via {b} {c}")).collect::<Vec<_>>()
        };
        assert_eq!(names(edges.reach(&[0], Direction::Dependents)), ["b via a 1", "c via a 1", "d via b 2"]);
        assert_eq!(
            names(edges.reach(&[3], Direction::Dependencies)),
            ["b via d 1", "c via d 1", "a via b 2"]
        );
        assert_eq!(names(edges.reach(&[0, 1], Direction::Dependents)), ["c via a 1", "d via b 1"]);
        assert_eq!(names(edges.reach(&[4], Direction::Dependents)), Vec::<String>::new());
    }

    #[test]
    fn the_longest_path_is_that_of_these_packages_alone() {
        let edges = edges();
        assert_eq!(edges.longest_path_seconds(&[0, 1, 2, 3]), 15.0);
        assert_eq!(edges.longest_path_seconds(&[1, 3]), 14.0);
        assert_eq!(edges.longest_path_seconds(&[2, 4]), 100.0);
        assert_eq!(edges.longest_path_seconds(&[]), 0.0);
    }
}
