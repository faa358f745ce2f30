//! What this machine's worker needs to know, in a yard or in a folder of its own, and what orders of a yard are here.

use crate::config::{Build, limits::Limits, rules};
use crate::environment::Environment;
use crate::error::{Context, Kind, Result};
use crate::shape::{Shape, jobserver_style};
use crate::yard::{Yard, network};
use kilnyard_model::order::RootOrder;
use kilnyard_process::{LimitRules, LogLimits, pressure};
use kilnyard_root::{IdMap, Roots};
use kilnyard_worker::{JobserverStyle, Local, Settings};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What one build leaves of the memory that all may have together, as a divisor.
const MEMORY_LEFT_PART: u64 = 8;

/// The settings of a worker that works in the yard.
pub fn settings(yard: &Yard) -> Settings {
    let shape = Shape::of(yard);
    let config = &yard.config;
    Settings {
        folders: config.family.folders(),
        roots: config.roots,
        jobserver: jobserver_style(yard),
        jobs: shape.jobs,
        network: yard.network(),
        ..common(
            &yard.folder,
            yard.ids(),
            &config.build,
            &config.limits_of_builds,
            shape.machine.memory_bytes,
        )
    }
}

/// The settings of a worker that has a folder and no yard: those that a yard has where its configuration says nothing. `folders` are
/// those of this machine that orders may show and fetch into, by their names.
pub fn settings_without_yard(
    folder: &Path,
    folders: BTreeMap<String, PathBuf>,
    environment: &Environment,
) -> Settings {
    let ids = Yard::ids_of(folder);
    let memory_bytes = pressure::available_bytes();
    Settings {
        folders,
        network: network(environment),
        ..common(folder, ids, &Build::default(), &Limits::default(), memory_bytes)
    }
}

fn common(
    folder: &Path,
    ids: IdMap,
    build: &Build,
    limits_of_builds: &Limits,
    memory_bytes: Option<u64>,
) -> Settings {
    // One build does not take what all others have.
    let limits = LimitRules {
        memory_bytes_max: memory_bytes.map(|bytes| bytes - bytes / MEMORY_LEFT_PART),
        ..rules(build, limits_of_builds)
    };
    Settings {
        yard: folder.to_owned(),
        ids,
        folders: BTreeMap::new(),
        limits,
        package_limits: limits_of_builds.of_packages(limits),
        output_bounds: limits_of_builds.output_bounds(),
        log_limits: LogLimits { head_bytes_max: build.log_mebibytes_max << 20, ..LogLimits::default() },
        roots: Roots::default(),
        works_in_memory: build.work_in_memory,
        layers_bytes_max: build.layers.0,
        failed_roots_max: build.failed_roots_max,
        nesting: build.namespaces.iter().cloned().collect(),
        jobserver: JobserverStyle::Off,
        jobs: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
        network: Default::default(),
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
