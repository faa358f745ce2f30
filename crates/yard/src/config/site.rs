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

/// Checks both tables; `is_name` says what can name a yard.
pub(super) fn check(own: &Entitlement, yards: &BTreeMap<String, SiteYard>) -> Result<(), String> {
    let refused = |table: &str, weight: f64| {
        Err(format!("farm: the weight {weight} in [{table}] must be from 0.001 to 1000"))
    };
    if !own.is_valid() {
        return refused("farm.share", own.weight);
    }
    if yards.len() > YARDS_MAX {
        return Err(format!("farm: there are {} further yards; the maximum is {YARDS_MAX}", yards.len()));
    }
    for (name, yard) in yards {
        if !yard.entitlement().is_valid() {
            return refused(&format!("farm.yards.{name}"), yard.weight);
        }
        if yard.path.as_os_str().is_empty() {
            return Err(format!("farm: [farm.yards.{name}] needs the path of the yard's folder"));
        }
    }
    Ok(())
}
