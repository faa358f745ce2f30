//! Judges a run by what the yard's owner expects of it: a package whose table says `expected = "failure"` may fail.
//!
//! Such a failure, and the packages that it alone blocks, do not make a run bad. If the package is built after all, the
//! run reports that too: the table is then out of date.

use crate::config::packages::PackageTables;
use kilnyard_model::result::PackageState;

/// A judged run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Whether anything failed, or was blocked or left out, that was not expected to.
    pub is_bad: bool,
    /// Packages that failed, or were left out, as expected.
    pub failures: Vec<String>,
    /// Packages that were built although they were expected to fail.
    pub successes: Vec<String>,
}

/// Judges packages by name, state, and the package to blame for it.
pub fn judge<'a>(
    tables: &PackageTables,
    packages: impl IntoIterator<Item = (&'a str, PackageState, Option<&'a str>)>,
) -> Judgement {
    let is_expected = |package: &str| tables.settings_of(package).expected_failure.is_some();
    let mut judgement = Judgement::default();
    for (name, state, blamed) in packages {
        match state {
            PackageState::Failed | PackageState::LeftOut if is_expected(name) => {
                judgement.failures.push(name.to_owned());
            }
            PackageState::Blocked if blamed.is_some_and(is_expected) => {}
            PackageState::Failed | PackageState::LeftOut | PackageState::Blocked => judgement.is_bad = true,
            PackageState::Built | PackageState::Unchanged if is_expected(name) => {
                judgement.successes.push(name.to_owned());
            }
            PackageState::Built
            | PackageState::Unchanged
            | PackageState::UpToDate
            | PackageState::Skipped
            | PackageState::Waiting
            | PackageState::Ready
            | PackageState::Building => {}
        }
    }
    judgement
}

/// Describes a package that was built although it was expected to fail, in a sentence.
pub fn success_note(package: &str) -> String {
    format!("{package} was expected to fail, and was built: its table in kilnyard.toml is out of date")
}
