//! What this machine's worker needs to know of a yard, and what orders of the yard are here.

use crate::error::{Context, Kind, Result};
use crate::shape::{Shape, jobserver_style};
use crate::yard::Yard;
use kilnyard_model::order::RootOrder;
use kilnyard_process::LimitRules;
use kilnyard_worker::{Local, Settings};

/// What one build leaves of the memory that all may have together, as a divisor.
const MEMORY_LEFT_PART: u64 = 8;

/// The settings of a worker that works in the yard.
pub fn settings(yard: &Yard) -> Settings {
    let shape = Shape::of(yard);
    // One build does not take what all others have.
    let limits = LimitRules {
        memory_bytes_max: shape.machine.memory_bytes.map(|bytes| bytes - bytes / MEMORY_LEFT_PART),
        ..yard.config.limits()
    };
    let build = &yard.config.build;
    Settings {
        yard: yard.folder.clone(),
        ids: yard.ids(),
        folders: yard.config.family.folders(),
        limits,
        package_limits: yard.config.limits_of_builds.of_packages(limits),
        output_bounds: yard.config.limits_of_builds.output_bounds(),
        log_limits: yard.config.log_limits(),
        roots: yard.config.roots,
        works_in_memory: build.work_in_memory,
        layers_bytes_max: build.layers.0,
        failed_roots_max: build.failed_roots_max,
        nesting: build.namespaces.iter().cloned().collect(),
        jobserver: jobserver_style(yard),
        jobs: shape.jobs,
        network: yard.network(),
    }
}

/// What an order names, as this machine has it. With `unpack` its trees are there then.
pub fn local(yard: &Yard, order: &RootOrder, unpack: bool) -> Result<Local> {
    let failed = "find what a root begins with";
    let trees = yard.trees();
    if unpack {
        trees.ensure(&order.layers).context(Kind::Machine, failed)?;
    }
    Local::of(order, &trees, &yard.folder, &yard.config.family.folders()).context(Kind::Machine, failed)
}
