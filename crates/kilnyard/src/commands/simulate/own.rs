//! A simulation of the yard's own set, by what its store recorded.

use super::Set;
use crate::error::Result;
use crate::plan::current_plan;
use crate::yard::{Yard, store_error};
use kilnyard_model::graph::Graph;
use kilnyard_model::result::PackageState;
use kilnyard_schedule::work::{MEASURED_MAX, StageTime};
use kilnyard_schedule::{Basis, Measured, Work, estimate};
use kilnyard_store::{BuildRow, Store};
use std::collections::HashMap;
use std::sync::Arc;

/// Builds of a package that are looked at, failed ones and those of other reasons included.
const BUILDS_MAX: usize = 4 * MEASURED_MAX;

/// All packages of the yard that can be built, as if none were up to date. What was never built takes what the plan
/// expects of it.
pub fn set(yard: &Yard, unknown_seconds: f64) -> Result<Set> {
    let mut store = yard.store()?;
    let plan = current_plan(yard, &mut store)?;
    let runs = store.runs().map_err(store_error)?;
    let cores: HashMap<u64, u32> = runs.iter().map(|run| (run.number, run.cores)).collect();
    let mut graph = Graph::new();
    let mut works = Vec::new();
    let to_build: Vec<_> =
        plan.packages.iter().filter(|row| row.package.state != PackageState::LeftOut).collect();
    for row in &to_build {
        graph.add(&row.package.name);
        let builds = store.builds_of(&row.package.name, BUILDS_MAX).map_err(store_error)?;
        let good = builds.iter().rev().filter(|build| matches!(&*build.outcome, "built" | "unchanged"));
        let measured: Vec<Measured> =
            good.map(|build| measured(build, cores.get(&build.run).copied().unwrap_or(1))).collect();
        let estimate_seconds = match row.package.estimate_seconds {
            seconds if seconds > 0.0 => seconds,
            _ => unknown_seconds,
        };
        works.push(estimate(&measured).unwrap_or_else(|| Work::serial(estimate_seconds, Basis::Prior)));
    }
    for row in &to_build {
        let package = graph.add(&row.package.name);
        for dependency in &row.dependencies {
            if let Some(dependency) = graph.find(dependency) {
                graph.depend(package, dependency);
            }
        }
    }
    Ok(Set { graph: Arc::new(graph), works })
}

/// A build may use all cores of its machine, so that they are what it was measured with.
fn measured(build: &BuildRow, cores: u32) -> Measured {
    let stages = build
        .stages
        .iter()
        .map(|stage| StageTime { wall_seconds: stage.wall_seconds, cpu_seconds: stage.cpu_seconds });
    Measured {
        jobs: cores,
        stages: stages.collect(),
        memory_peak_bytes: build.stages.iter().map(|stage| stage.memory_peak_bytes).max().unwrap_or(0),
        files_bytes: 0,
    }
}
