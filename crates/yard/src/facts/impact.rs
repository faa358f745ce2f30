//! The packages that a change would rebuild.
//!
//! The result is an upper bound: a dependency that is rebuilt to the same content stops the rebuild there. The time is
//! estimated as in the plan.

use super::edges::{Direction, Edges};
use crate::error::Result;
use crate::yard::Yard;
use kilnyard_schema::compare::{Impact, Rebuilt};

/// What a change of these packages, which the edges have, would rebuild.
///
/// # Errors
/// The store cannot be read.
pub fn impact(yard: &Yard, edges: &mut Edges, changed: &[u32]) -> Result<Impact> {
    let steps = edges.reach(changed, Direction::Dependents);
    let all: Vec<u32> = changed.iter().copied().chain(steps.iter().map(|step| step.package)).collect();
    edges.estimate_from_history(yard, &all)?;
    let rebuilt = steps.iter().map(|step| Rebuilt {
        package: edges.name(step.package).to_owned(),
        via: edges.name(step.via).to_owned(),
        depth: step.depth,
        estimate_seconds: edges.estimate_seconds(step.package),
    });
    Ok(Impact {
        changed: changed.iter().map(|package| edges.name(*package).to_owned()).collect(),
        rebuilt: rebuilt.collect(),
        work_seconds: all.iter().map(|package| edges.estimate_seconds(*package)).sum(),
        path_seconds: edges.longest_path_seconds(&all),
        packages_of_the_set: edges.len() as u64,
    })
}
