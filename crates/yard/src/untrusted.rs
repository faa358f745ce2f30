//! Pools of workers that are not trusted: other packages are not built with what they made.
//!
//! In a run, such a pool gets only packages that no other package needs. If one is needed later, or its pool loses its
//! trust, a trusted pool builds it again first. The pool is the one of the worker at the time of its build.

use crate::error::Result;
use crate::yard::{Yard, store_error};
use kilnyard_coordinator::OWN_POOL;
use kilnyard_ecosystem::Ecosystem;
use kilnyard_model::graph::PackageId;
use kilnyard_model::reason::Reason;
use kilnyard_store::Store;
use std::collections::{HashMap, HashSet};

/// The packages of a set that a pool without trust made, and that other packages need, with the reason.
///
/// # Errors
/// The store cannot be read.
pub fn find(yard: &Yard, store: &dyn Store, set: &dyn Ecosystem) -> Result<HashMap<String, Reason>> {
    let graph = set.graph();
    // A second pass builds the packages of a knot of cycles with each other.
    let knotted: HashSet<PackageId> =
        set.built_again(yard.config.build.passes).into_iter().flatten().collect();
    let is_needed = |id: PackageId| !graph.dependents(id).is_empty() || knotted.contains(&id);
    let made = store.pools().map_err(store_error)?;
    let found = made.into_iter().filter(|(package, _, pool)| {
        let is_trusted = pool == OWN_POOL || yard.config.farm.trusts(pool);
        !is_trusted && graph.find(package).is_some_and(is_needed)
    });
    Ok(found.map(|(package, worker, _)| (package, Reason::Untrusted { worker })).collect())
}
