//! The tables `farm.share` and `farm.yards`: yards that share the workers of a site.

use kilnyard_model::entitlement::{Entitlement, WorkClass};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The most further yards of a site: workers have a folder and connections for each.
const YARDS_MAX: usize = 64;

/// A further yard that `kilnyard serve` serves with the workers of this one.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SiteYard {
    /// Its folder, relative to this yard's.
    pub path: PathBuf,
    /// See [`Entitlement::weight`].
    #[serde(default = "weight")]
    pub weight: f64,
    /// See [`Entitlement::class`].
    #[serde(default)]
    pub class: WorkClass,
    /// See [`Share::core_hours_per_day`].
    #[serde(default)]
    pub core_hours_per_day: Option<f64>,
}

/// What the site's own yard gets of the workers.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Share {
    /// See [`Entitlement::weight`].
    pub weight: f64,
    /// See [`Entitlement::class`].
    pub class: WorkClass,
    /// The CPU time that its builds may use within any 24 hours, in core-hours; absent if it is not bounded.
    pub core_hours_per_day: Option<f64>,
}

impl Default for Share {
    fn default() -> Share {
        let Entitlement { weight, class } = Entitlement::default();
        Share { weight, class, core_hours_per_day: None }
    }
}

impl Share {
    /// What it is entitled to.
    pub fn entitlement(&self) -> Entitlement {
        Entitlement { weight: self.weight, class: self.class }
    }
}

fn weight() -> f64 {
    Entitlement::default().weight
}

impl SiteYard {
    /// What it is entitled to.
    pub fn entitlement(&self) -> Entitlement {
        Entitlement { weight: self.weight, class: self.class }
    }
}

/// Checks a number of core-hours for a day in this table.
pub(super) fn check_quota(table: &str, core_hours: Option<f64>) -> Result<(), String> {
    match core_hours.is_none_or(|hours| hours.is_finite() && hours >= 0.0) {
        true => Ok(()),
        false => Err(format!("core-hours-per-day in [{table}] must be 0 or more")),
    }
}

/// Checks both tables.
pub(super) fn check(own: &Share, yards: &BTreeMap<String, SiteYard>) -> Result<(), String> {
    let refused = |table: &str, weight: f64| {
        Err(format!("farm: the weight {weight} in [{table}] must be from 0.001 to 1000"))
    };
    if !own.entitlement().is_valid() {
        return refused("farm.share", own.weight);
    }
    check_quota("farm.share", own.core_hours_per_day)?;
    if own.core_hours_per_day.is_some() && yards.is_empty() {
        return Err(
            "core-hours-per-day in [farm.share] is for a yard that shares the workers: [farm.yards.NAME]"
                .to_owned(),
        );
    }
    if yards.len() > YARDS_MAX {
        return Err(format!("farm: there are {} further yards; the maximum is {YARDS_MAX}", yards.len()));
    }
    for (name, yard) in yards {
        if !yard.entitlement().is_valid() {
            return refused(&format!("farm.yards.{name}"), yard.weight);
        }
        check_quota(&format!("farm.yards.{name}"), yard.core_hours_per_day)?;
        if yard.path.as_os_str().is_empty() {
            return Err(format!("farm: [farm.yards.{name}] needs the path of the yard's folder"));
        }
    }
    Ok(())
}
