//! Finds the sources of a release that cannot be built because their build dependencies cannot be installed.

use super::source::{Parts, Source, Sources};
use super::universe::{Universe, View};
use crate::explain;
use kilnyard_model::solver::{Candidate, Solver};

/// A source whose build dependencies cannot be installed.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Unbuildable {
    /// Name of the source package.
    pub package: String,
    /// Version of the source package.
    pub version: String,
    /// The chain of requirements, down to the one that cannot be met; one line per step.
    pub explanation: String,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Verdicts {
    /// Number of sources that produce something on this architecture.
    pub checked: usize,
    /// The sources that cannot be built, ordered by name.
    pub unbuildable: Vec<Unbuildable>,
}

/// Checks every source that produces something on the universe's architecture. The requests that this adds to the
/// universe are removed again.
pub fn check(universe: &mut Universe, sources: &Sources, parts: Parts) -> Verdicts {
    let len_before = universe.len();
    let architecture = universe.context().architecture.clone();
    let mut requests: Vec<(Source, Result<Candidate, String>)> = Vec::with_capacity(sources.len());
    for source in sources.all() {
        if source.builds_on(&architecture, parts) {
            let request = universe.request(&source.request(parts)).map_err(|error| error.to_string());
            requests.push((source, request));
        }
    }
    let mut verdicts = Verdicts { checked: requests.len(), unbuildable: Vec::new() };
    let view = View::whole(universe);
    let mut solver = Solver::new(&view);
    for (source, request) in requests {
        let explanation = match request {
            Ok(root) if solver.is_satisfiable(root) => continue,
            Ok(root) => explain::text(universe, root, source.name(), &solver.explain(root)),
            Err(message) => message,
        };
        verdicts.unbuildable.push(Unbuildable {
            package: source.name().to_owned(),
            version: source.version().to_owned(),
            explanation,
        });
    }
    universe.truncate(len_before);
    verdicts
}
