//! The file that describes a farm to simulate.

use super::super::{CORES_MAX, MACHINES_MAX, SimulatedSet, own, read, recorded};
use crate::config::Size;
use crate::error::{Error, Result};
use kilnyard_model::entitlement::{Entitlement, WorkClass};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The longest start of a worker, in seconds.
const START_SECONDS_MAX: f64 = 86_400.0;

/// The farm, as the user describes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FarmFile {
    /// Machines that are always there, as `--machines` has them.
    #[serde(default)]
    pub machines: Vec<String>,
    /// Its yards.
    pub yards: BTreeMap<String, YardTable>,
    /// Its pools of workers on demand.
    #[serde(default)]
    pub pools: BTreeMap<String, PoolTable>,
}

/// A yard: a folder, or a recorded set.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct YardTable {
    path: Option<PathBuf>,
    graph: Option<PathBuf>,
    history: Option<PathBuf>,
    #[serde(default = "one")]
    weight: f64,
    #[serde(default)]
    class: WorkClass,
    /// When its run begins, in seconds.
    #[serde(default)]
    pub begin_seconds: f64,
}

/// A pool of workers on demand.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PoolTable {
    /// Workers that are kept even if there is nothing to do.
    #[serde(default)]
    pub least: u32,
    /// The most workers at once.
    pub most: u32,
    /// The cores of a worker.
    pub cores: u32,
    /// The memory of a worker; unlimited by default.
    pub memory: Option<Size>,
    /// The speed of its cores, relative to the recorded one.
    #[serde(default = "one")]
    pub speed: f64,
    /// The time from a start until the worker takes builds, in seconds.
    #[serde(default = "start_seconds")]
    pub start_seconds: f64,
    /// How long a worker is idle before it is given back, in seconds.
    #[serde(default = "idle_seconds")]
    pub idle_seconds: f64,
    /// How many times its start-up time a worker must work to be worth it.
    #[serde(default)]
    pub cost: f64,
}

fn one() -> f64 {
    1.0
}

fn start_seconds() -> f64 {
    60.0
}

fn idle_seconds() -> f64 {
    300.0
}

/// Reads and checks the file.
pub fn parse(path: &Path) -> Result<FarmFile> {
    let farm: FarmFile = toml::from_str(&read(path)?).map_err(|error| {
        let mut failed = Error::usage(format!("{} does not describe a farm", path.display()));
        failed.causes.push(error.to_string().trim_end().to_owned());
        failed.hint("docs/scheduling.md, \"Farms\"")
    })?;
    let wrong = |what: String| Err(Error::usage(format!("{}: {what}", path.display())));
    let is_time = |seconds: f64| seconds.is_finite() && seconds >= 0.0;
    if farm.yards.is_empty() {
        return wrong("there are no yards".to_owned());
    }
    if farm.machines.is_empty() && farm.pools.is_empty() {
        return wrong("there are neither machines nor pools".to_owned());
    }
    for (name, yard) in &farm.yards {
        if !yard.entitlement().is_valid() {
            return wrong(format!(
                "weight {} of the yard {name} is not one, from 0.001 to 1000",
                yard.weight
            ));
        }
        if !is_time(yard.begin_seconds) {
            return wrong(format!("begin-seconds {} of the yard {name} is not a time", yard.begin_seconds));
        }
        match (&yard.path, &yard.graph, &yard.history) {
            (Some(_), None, None) | (None, Some(_), Some(_)) => {}
            _ => return wrong(format!("the yard {name} needs path, or graph and history")),
        }
    }
    for (name, pool) in &farm.pools {
        if !(1..=MACHINES_MAX).contains(&pool.most) || pool.least > pool.most {
            return wrong(format!("the pool {name} needs a least and a most, up to {MACHINES_MAX}"));
        }
        if !((1..=CORES_MAX).contains(&pool.cores) && pool.speed.is_finite() && pool.speed > 0.0) {
            return wrong(format!("the pool {name} needs cores, up to {CORES_MAX}, and a speed above 0"));
        }
        if ![pool.start_seconds, pool.idle_seconds, pool.cost].into_iter().all(is_time) {
            return wrong(format!("a time of the pool {name}, or its cost, is negative or not a number"));
        }
        if pool.start_seconds > START_SECONDS_MAX {
            return wrong(format!("a worker of the pool {name} takes more than a day to start"));
        }
    }
    Ok(farm)
}

impl YardTable {
    /// What it is entitled to.
    pub fn entitlement(&self) -> Entitlement {
        Entitlement { weight: self.weight, class: self.class }
    }

    /// Its packages and their times. Paths are relative to this folder.
    pub fn set(&self, folder: &Path, unknown_seconds: f64) -> Result<SimulatedSet> {
        match (&self.path, &self.graph, &self.history) {
            (_, Some(graph), Some(history)) => {
                recorded(&folder.join(graph), &folder.join(history), unknown_seconds)
            }
            (path, ..) => {
                let path = path.as_deref().unwrap_or(Path::new("."));
                own::set(&super::super::super::open(&folder.join(path))?, unknown_seconds)
            }
        }
    }
}
