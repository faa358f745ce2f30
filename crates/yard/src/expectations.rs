//! Judges a run by what the yard's owner expects of it: a package whose table says `expected = "failure"` may fail.
//!
//! Such a failure, and the packages that it alone blocks, do not make a run bad. If the package is built after all, the
//! run reports that too: the table is then out of date.

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

/// Judges packages by name, state, and the package to blame for it. `is_expected` decides which of them are expected to
/// fail.
pub fn judge<'a>(
    is_expected: &dyn Fn(&str) -> bool,
    packages: impl IntoIterator<Item = (&'a str, PackageState, Option<&'a str>)>,
) -> Judgement {
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
    format!("{package} was expected to fail but was built: its table in kilnyard.toml is out of date")
}

#[cfg(test)]
mod tests {
    use super::*;
    use PackageState::{Blocked, Built, Failed, LeftOut, Skipped, Unchanged, UpToDate};

    #[test]
    fn only_unexpected_failures_make_a_run_bad() {
        let judged = |packages: &[(&'static str, PackageState, Option<&'static str>)]| {
            judge(&|name| name.starts_with("bad"), packages.iter().copied())
        };
        let good = judged(&[
            ("bad", Failed, None),
            ("bad-too", LeftOut, None),
            ("after", Blocked, Some("bad")),
            ("bad-after", Blocked, Some("bad")),
            ("bad-before", UpToDate, None),
            ("fine", Built, None),
            ("left", Skipped, None),
        ]);
        let expected = Judgement {
            is_bad: false,
            failures: vec!["bad".to_owned(), "bad-too".to_owned()],
            successes: Vec::new(),
        };
        assert_eq!(good, expected);
        for other in [
            ("other", Failed, None),
            ("other", LeftOut, None),
            ("after", Blocked, Some("other")),
            ("after", Blocked, None),
            // It is blocked by a failure that was not expected.
            ("bad", Blocked, Some("other")),
        ] {
            assert!(judged(&[("bad", Failed, None), other]).is_bad, "{other:?}");
        }
        let fixed = judged(&[("bad", Built, None), ("bad-too", Unchanged, None)]);
        assert_eq!((fixed.is_bad, fixed.successes), (false, vec!["bad".to_owned(), "bad-too".to_owned()]));
    }
}
