//! Two thousand source packages that depend on each other, with the times of their builds.

use super::worker::Granted;
use crate::sham;
use kilnyard_model::graph::Graph;
use kilnyard_schedule::{Basis, Work};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A package depends on up to this many of those shortly before it.
const DEPENDENCIES_MAX: u64 = 3;
/// How far before it these are.
const REACH: u64 = 250;
/// The median time of a build: a tenth of a minute.
const SECONDS: f64 = 6.0;

/// The packages of the benchmark.
#[derive(Debug)]
pub struct Sources {
    /// The dependencies of each package, and its time in seconds.
    packages: Vec<(Vec<usize>, f64)>,
}

/// The name of a package.
fn name(number: usize) -> String {
    format!("sham-{number:04}")
}

impl Sources {
    /// This many packages; the same ones each time.
    pub fn new(count: usize) -> Sources {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        // xorshift64 (Marsaglia 2003).
        let mut draw = move |bound: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % bound
        };
        let package = |number: usize| {
            let reach = (number as u64).min(REACH);
            let count = if reach == 0 { 0 } else { draw(DEPENDENCIES_MAX + 1) };
            let mut dependencies: Vec<usize> =
                (0..count).map(|_| number - 1 - draw(reach.max(1)) as usize).collect();
            dependencies.sort_unstable();
            dependencies.dedup();
            // From a fourth to four times the median, evenly on a logarithmic scale.
            let exponent = draw(1001) as f64 / 500.0 - 1.0;
            (dependencies, SECONDS * 4f64.powf(exponent))
        };
        Sources { packages: (0..count).map(package).collect() }
    }

    /// This many packages that need none of each other, and take this long.
    pub fn independent(count: usize, seconds: f64) -> Sources {
        Sources { packages: vec![(Vec::new(), seconds); count] }
    }

    /// The name of each package.
    pub fn names(&self) -> Vec<String> {
        (0..self.packages.len()).map(name).collect()
    }

    /// Writes a source package for each.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        fs_err::create_dir_all(folder)?;
        for (number, (dependencies, _)) in self.packages.iter().enumerate() {
            let needs: Vec<String> = dependencies.iter().map(|number| name(*number)).collect();
            sham::write_source(folder, &name(number), &needs)?;
        }
        Ok(())
    }

    pub fn seconds_by_name(&self) -> BTreeMap<String, f64> {
        self.packages.iter().enumerate().map(|(number, (_, seconds))| (name(number), *seconds)).collect()
    }

    pub fn graph(&self) -> Arc<Graph> {
        let mut graph = Graph::new();
        let ids: Vec<_> = (0..self.packages.len()).map(|number| graph.add(&name(number))).collect();
        for (number, (dependencies, _)) in self.packages.iter().enumerate() {
            dependencies.iter().for_each(|dependency| graph.depend(ids[number], ids[*dependency]));
        }
        Arc::new(graph)
    }

    pub fn works(&self) -> Vec<Work> {
        self.packages.iter().map(|(_, seconds)| Work::serial(*seconds, Basis::Recorded)).collect()
    }

    /// The time from the last result that a package waited for to the arrival of its lease, for each package that waited
    /// for one.
    pub fn delays(&self, granted: &BTreeMap<String, Granted>) -> Vec<f64> {
        let delay = |(number, (dependencies, _)): (usize, &(Vec<usize>, f64))| {
            let last =
                dependencies.iter().map(|dependency| Some(granted.get(&name(*dependency))?.ended_seconds));
            let last = last.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::max)?;
            Some(granted.get(&name(number))?.granted_seconds - last)
        };
        self.packages.iter().enumerate().filter_map(delay).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packages_can_be_built_in_their_order() {
        let sources = Sources::new(500);
        assert_eq!(sources.graph().order().len(), 500);
        assert!(sources.packages.iter().all(|(_, seconds)| (1.5..=24.0).contains(seconds)));
        assert_eq!(format!("{:?}", Sources::new(500)), format!("{sources:?}"));
    }
}
