//! A simulation of the yard's own set, with the build times of its store.

use super::SimulatedSet;
use crate::error::Result;
use crate::estimates::Estimates;
use crate::plan::current_plan;
use crate::shape::Shape;
use crate::yard::Yard;
use kilnyard_model::graph::Graph;
use kilnyard_model::result::PackageState;
use kilnyard_schedule::{Basis, Work};
use std::sync::Arc;

/// All packages of the yard that can be built, as if none were up to date. Packages that were never built take the time
/// that the plan expects.
pub fn set(yard: &Yard, unknown_seconds: f64) -> Result<SimulatedSet> {
    let mut store = yard.store()?;
    let plan = current_plan(yard, &mut *store)?;
    let estimates = Estimates::of(yard, &*store, Shape::of(yard).machine)?;
    let mut graph = Graph::new();
    let mut works = Vec::new();
    let to_build: Vec<_> =
        plan.packages.iter().filter(|row| row.package.state != PackageState::LeftOut).collect();
    for row in &to_build {
        graph.add(&row.package.name);
        let planned_seconds = match row.package.estimate_seconds {
            seconds if seconds > 0.0 => seconds,
            _ => unknown_seconds,
        };
        let known = estimates.known(&row.package.name);
        works.push(known.unwrap_or_else(|| Work::serial(planned_seconds, Basis::Prior)));
    }
    for row in &to_build {
        let package = graph.add(&row.package.name);
        for dependency in &row.dependencies {
            if let Some(dependency) = graph.find(dependency) {
                graph.depend(package, dependency);
            }
        }
    }
    Ok(SimulatedSet { graph: Arc::new(graph), works })
}
