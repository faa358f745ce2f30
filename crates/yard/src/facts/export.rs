//! The results of a run in the formats of others: JUnit's XML, SARIF, annotations of GitHub's workflows.
//!
//! Names, reasons and lines are from untrusted builds: whatever they contain, the result is well-formed, and no line of them becomes
//! anything but text.

pub mod github;
pub mod junit;
pub mod sarif;

use super::picture::Picture;
use crate::config::Config;
use kilnyard_model::result::PackageState;
use kilnyard_store::{BuildRow, PackageRow};

/// A package that failed unexpectedly.
struct Failed<'a> {
    row: &'a PackageRow,
    build: Option<&'a BuildRow>,
}

impl Failed<'_> {
    /// The kind of the failure.
    fn kind(&self) -> &'static str {
        self.build.and_then(|build| build.failure.as_ref()).map_or("unknown", |failure| failure.kind.as_str())
    }

    /// The cause, on one line.
    fn message(&self) -> String {
        self.row.reason.first_line()
    }

    /// The telling lines of the log.
    fn lines(&self) -> &[String] {
        self.build.and_then(|build| build.failure.as_ref()).map_or(&[], |failure| &failure.lines)
    }

    /// The log of the failed stage, relative to the yard, and the telling line.
    fn log(&self) -> Option<(String, Option<u64>)> {
        let build = self.build?;
        let failure = build.failure.as_ref()?;
        let stage = build.stages.iter().rev().find(|stage| stage.stage == failure.stage)?;
        Some((stage.log.clone()?, failure.line_number))
    }
}

/// The packages that failed unexpectedly.
fn failed<'a>(config: &'a Config, picture: &'a Picture) -> impl Iterator<Item = Failed<'a>> {
    let failed = picture.in_state(&[PackageState::Failed]);
    let failed = failed.filter(|(_, row)| !config.expects_failure(&row.name));
    failed.map(|(place, row)| Failed { row, build: picture.last_build(place) })
}
