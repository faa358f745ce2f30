//! Updates a set with a new scan of one directory.
//!
//! The whole set is resolved again, so that a build matches the result of the next scan. A run keeps the graph that
//! it was planned with: if more changes than the package itself, the change is left to the next run.

use super::{Scan, Workshop};
use crate::pkgsrc::scan_file::ScanFile;
use crate::{Ecosystem, Impossible};
use kilnyard_model::graph::PackageId;

impl Workshop {
    /// The set after a new scan of a package's directory.
    pub(super) fn rescanned(&self, package: PackageId, said: &[u8]) -> Result<Workshop, Impossible> {
        let location = &self.packages[package.index()].recipe.location;
        let impossible = |explanation: String| Impossible { explanation };
        let unreadable = |error| impossible(format!("the scan of {location} cannot be read: {error}"));
        let before = ScanFile::parse(&self.scan.text).map_err(unreadable)?;
        let mut text = Vec::with_capacity(self.scan.text.len() + said.len());
        let mut is_said = false;
        for stanza in &before.stanzas {
            match stanza.location == location {
                false => text.extend(stanza.text()),
                true if std::mem::replace(&mut is_said, true) => continue,
                true => text.extend(said),
            }
            if text.last().is_some_and(|byte| *byte != b'\n') {
                text.push(b'\n');
            }
        }
        let failed = self.scan.failed.iter().filter(|(other, _)| other != location).cloned().collect();
        let scan = Scan { text, failed, awaited: self.scan.awaited.clone() };
        let now = Workshop::new(self.settings.clone(), scan, self.wanted.as_deref()).map_err(unreadable)?;
        self.compare(package, &now).map_err(impossible)?;
        Ok(now)
    }

    /// Fails with an explanation if anything but the package itself has changed.
    fn compare(&self, package: PackageId, now: &Workshop) -> Result<(), String> {
        let (name, graph) = (self.graph.name(package), &self.graph);
        let left_out = |name: &str| now.left_out.iter().find(|left_out| left_out.name == name);
        if let Some(left_out) = left_out(name) {
            return Err(left_out.explanation.clone());
        }
        if let Some(gone) = graph.packages().find(|id| now.graph.find(graph.name(*id)).is_none()) {
            let gone = graph.name(gone);
            let why = left_out(gone).map_or("it no longer exists", |left_out| left_out.explanation.as_str());
            return Err(format!("with the current recipe, {gone} could not be built: {why}"));
        }
        if let Some(new) = now.graph.packages().find(|id| graph.find(now.graph.name(*id)).is_none()) {
            return Err(format!("it now needs {}, which is not in this run", now.graph.name(new)));
        }
        let is_other = |id: &PackageId| {
            graph.name(*id) != now.graph.name(*id)
                || *id != package && graph.dependencies(*id) != now.graph.dependencies(*id)
        };
        match graph.packages().find(is_other) {
            Some(other) => {
                Err(format!("with the current recipe, {} needs other packages", graph.name(other)))
            }
            None => Ok(()),
        }
    }

    /// Fails with the first dependency of this package that has no output.
    pub(super) fn first_missing(
        &self,
        package: PackageId,
        is_there: impl Fn(PackageId) -> bool,
    ) -> Result<(), Impossible> {
        let missing = self.graph.dependencies(package).iter().find(|id| !is_there(**id));
        missing.map_or(Ok(()), |id| {
            let explanation = format!("it now needs {}, which is not built yet", self.graph().name(*id));
            Err(Impossible { explanation })
        })
    }
}
