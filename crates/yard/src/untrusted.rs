//! Pools of workers that are not trusted: other packages are not built with what they made.
//!
//! In a run, such a pool gets only packages that no other package needs. If one is needed later, a trusted pool builds it
//! again first.

use crate::error::{Context, Kind, Result};
use crate::yard::{Yard, store_error};
use kilnyard_ecosystem::Ecosystem;
use kilnyard_farm::roster::Roster;
use kilnyard_model::reason::Reason;
use kilnyard_store::{Current, Store};
use std::collections::HashMap;
use std::path::PathBuf;

/// The folder of the workers of a yard.
pub fn folder(yard: &Yard) -> PathBuf {
    yard.home.join("state/farm")
}

/// The workers whose pool is not trusted, with those that were removed.
///
/// # Errors
/// The workers cannot be read: then nothing may be built on what they made.
pub fn workers(yard: &Yard) -> Result<Vec<String>> {
    let folder = folder(yard);
    // Without it, no worker has ever joined.
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let failed = "read the workers of the yard";
    let roster = Roster::open(&folder).context(Kind::Machine, failed)?;
    let mut all = roster.members().context(Kind::Machine, failed)?;
    all.extend(roster.former_members().context(Kind::Machine, failed)?);
    all.retain(|member| !yard.config.farm.trusts(&member.pool));
    Ok(all.into_iter().map(|member| member.name).collect())
}

/// The packages of a set that a worker of a pool without trust made, and that other packages need, with the reason.
///
/// # Errors
/// The workers or the store cannot be read: then nothing may be built on what they made.
pub fn find(
    yard: &Yard,
    store: &dyn Store,
    set: &dyn Ecosystem,
    current: &HashMap<String, Current>,
) -> Result<HashMap<String, Reason>> {
    let graph = set.graph();
    let mut found = HashMap::new();
    for worker in workers(yard)? {
        for (package, build) in store.made_by(&worker).map_err(store_error)? {
            let is_kept = current.get(&package).is_some_and(|kept| kept.build == build);
            let is_needed = graph.find(&package).is_some_and(|id| !graph.dependents(id).is_empty());
            if is_kept && is_needed {
                found.insert(package, Reason::Untrusted { worker: worker.clone() });
            }
        }
    }
    Ok(found)
}
