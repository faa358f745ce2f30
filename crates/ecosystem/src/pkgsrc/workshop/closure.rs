//! The packages that are installed for a build, or for the test of its output.

use super::{ByName, Stocked, Workshop};
use crate::Impossible;
use crate::pkgsrc::description;
use crate::pkgsrc::pattern::{PackageName, Pattern};
use kilnyard_model::graph::PackageId;
use kilnyard_model::order::Output;
use std::collections::BTreeSet;

/// A step of a depth-first walk.
enum Step {
    Enter(PackageId),
    Leave(PackageId),
}

impl Workshop {
    /// The direct dependencies of a package and all their run-time dependencies, each listed once and after its own
    /// dependencies.
    pub(super) fn installed_for(
        &self,
        package: PackageId,
        stock: &[Option<Stocked>],
    ) -> Result<Vec<PackageId>, Impossible> {
        self.all_needed(self.graph.dependencies(package).to_vec(), stock)
    }

    /// All run-time dependencies of an output.
    pub(super) fn runtime_of(
        &self,
        package: PackageId,
        output: &Output,
        stock: &[Option<Stocked>],
    ) -> Result<Vec<PackageId>, Impossible> {
        self.all_needed(self.needed_by(package, output)?, stock)
    }

    fn all_needed(
        &self,
        first: Vec<PackageId>,
        stock: &[Option<Stocked>],
    ) -> Result<Vec<PackageId>, Impossible> {
        let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
        let mut open: Vec<Step> = first.into_iter().map(Step::Enter).collect();
        while let Some(step) = open.pop() {
            let id = match step {
                Step::Enter(id) => id,
                Step::Leave(id) => {
                    found.push(id);
                    continue;
                }
            };
            if !seen.insert(id) {
                continue;
            }
            open.push(Step::Leave(id));
            let Stocked { output, needed } = stock[id.index()].as_ref().ok_or_else(|| Impossible {
                explanation: format!("{} has no output", self.graph.name(id)),
            })?;
            let needed = needed.get_or_init(|| self.needed_by(id, output)).as_ref();
            open.extend(needed.map_err(Impossible::clone)?.iter().copied().map(Step::Enter));
        }
        Ok(found)
    }

    /// Resolves an output's patterns among the resolved dependencies of its package. `pkg_add` finds the same ones,
    /// by the exact names at the time of the build.
    fn needed_by(&self, package: PackageId, output: &Output) -> Result<Vec<PackageId>, Impossible> {
        let candidates: ByName = self
            .graph
            .dependencies(package)
            .iter()
            .map(|id| (self.packages[id.index()].name.as_str(), *id))
            .collect();
        let mut needed = Vec::new();
        for text in description::depends(&output.description) {
            let impossible = |why: String| Impossible {
                explanation: format!("{} needs {text}, but {why}", self.package_name(package)),
            };
            let pattern = Pattern::parse(text).map_err(|error| impossible(error.to_string()))?;
            let matching = candidates.iter().filter(|(name, _)| pattern.matches(&PackageName::new(name)));
            let chosen = matching.max_by(|(a, _), (b, _)| PackageName::new(a).compare(&PackageName::new(b)));
            match chosen {
                Some((_, id)) => needed.push(*id),
                None => return Err(impossible("none of its resolved dependencies matches".to_owned())),
            }
        }
        Ok(needed)
    }
}
