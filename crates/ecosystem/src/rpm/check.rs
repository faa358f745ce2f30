//! Finds the packages of repositories that cannot be installed, and the sources that cannot be built.

use super::universe::{Package, Universe};
use crate::explain;
use kilnyard_model::solver::{Candidate, Solver};

/// A package or a source whose requirements cannot be met.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Broken {
    /// The name.
    pub package: String,
    /// The version.
    pub version: String,
    /// The architecture; `src` for a source.
    pub architecture: String,
    /// The chain of requirements, down to the one that cannot be met; one line per step.
    pub explanation: String,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Verdicts {
    /// Number of packages and sources.
    pub checked: usize,
    /// Those that cannot be installed or built, in the order of the repositories.
    pub broken: Vec<Broken>,
}

/// Checks whether each package of a finished universe can be installed, and whether what each source requires can.
pub fn check(universe: &mut Universe, sources: &[Package]) -> Verdicts {
    let mut verdicts = Verdicts::default();
    let requests: Vec<Result<Candidate, String>> = sources
        .iter()
        .map(|source| {
            universe.request(&source.requires, &source.conflicts).map_err(|error| error.to_string())
        })
        .collect();
    let mut solver = Solver::new(universe);
    let mut judge = |package: &Package, request: Result<Candidate, String>| {
        verdicts.checked += 1;
        let explanation = match request {
            Ok(root) if solver.is_satisfiable(root) => return,
            Ok(root) => explain::text(universe, root, &package.name, &solver.explain(root)),
            Err(error) => error,
        };
        verdicts.broken.push(Broken {
            package: package.name.to_string(),
            version: package.evr.to_string(),
            architecture: package.architecture.to_string(),
            explanation,
        });
    };
    for (candidate, package) in universe.packages() {
        judge(package, Ok(candidate));
    }
    for (source, request) in sources.iter().zip(requests) {
        judge(source, request);
    }
    verdicts
}
