//! Settings of this machine's worker, in a yard or in a folder of its own, and the layers and folders that a
//! yard's orders name.

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

/// Share of the available memory that a single build leaves to others, as a divisor.
const MEMORY_LEFT_PART: u64 = 8;

/// The settings of a worker in this yard.
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

/// The settings of a worker with a folder but no yard: the defaults of a yard's configuration. `folders` are
/// the folders of this machine, by name, that orders may show and fetch into.
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
    // A single build does not take the memory of all others.
    let limits = LimitRules {
        memory_bytes_max: memory_bytes.map(|bytes| bytes - bytes / MEMORY_LEFT_PART),
        ..rules(build, limits_of_builds)
    };
    Settings {
        yard: folder.to_owned(),
        site: None,
        ids,
        folders: BTreeMap::new(),
        limits,
        output_bounds: limits_of_builds.output_bounds(),
        log_limits: LogLimits { head_bytes_max: build.log_mebibytes_max << 20, ..LogLimits::default() },
        roots: Roots::default(),
        works_in_memory: build.work_in_memory,
        layers_bytes_max: build.layers.0,
        kept_bytes_max: build.kept.0,
        failed_roots_max: build.failed_roots_max,
        nesting: build.namespaces.iter().cloned().collect(),
        jobserver: JobserverStyle::Off,
        jobs: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
        network: Default::default(),
    }
}

/// Finds the layers and folders that an order names on this machine. With `unpack`, unpacks the layers first.
pub fn local(yard: &Yard, order: &RootOrder, unpack: bool) -> Result<Local> {
    let failed = "find the layers of a root";
    let trees = yard.trees();
    if unpack {
        trees.ensure(&order.layers).context(Kind::Machine, failed)?;
    }
    Local::of(order, &trees, &yard.folder, &yard.config.family.folders()).context(Kind::Machine, failed)
}
