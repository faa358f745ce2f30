//! The one decision whether a package is up to date: plans foresee it, and runs take it when all that a package needs is there.

use kilnyard_model::order::Key;
use kilnyard_model::reason::Reason;
use kilnyard_store::{Current, LastBuild};

/// What is known of a package.
pub struct Known<'a> {
    /// Whether a command forces it.
    pub is_forced: bool,
    /// What is kept of it.
    pub kept: Option<&'a Current>,
    /// The file of what is kept that is gone or not whole, if there is one.
    pub broken: Option<&'a str>,
    /// Its last build.
    pub last: Option<&'a LastBuild>,
}

/// What is to be done with a package.
#[derive(Clone, Debug, PartialEq)]
pub enum Due {
    /// Nothing: its outputs are those of its key.
    UpToDate,
    /// It is built.
    Build(Reason),
}

impl Known<'_> {
    /// Why the package is built whatever its key is; absent where the key decides.
    pub fn without_key(&self) -> Option<Reason> {
        match (self.kept, self.broken) {
            _ if self.is_forced => Some(Reason::Forced),
            (None, _) => Some(self.last.map_or(Reason::FirstBuild, |last| Reason::NoOutputs {
                build: last.number,
                run: last.run,
                outcome: last.outcome.clone(),
            })),
            (Some(_), Some(file)) => Some(Reason::Broken { file: file.to_owned() }),
            (Some(_), None) => None,
        }
    }

    /// What is to be done, by the key of a build now and the key of what is kept, with its lines. `former_root` is what keys of
    /// version 1 say of the root.
    pub fn with_key(&self, key: &Key, former_root: &str) -> Due {
        match (self.without_key(), self.kept) {
            (Some(reason), _) => Due::Build(reason),
            (None, Some(kept)) if key.is_met_by(&kept.key, former_root) => Due::UpToDate,
            (None, Some(kept)) => Due::Build(Reason::changed(key.differences(&kept.key))),
            (None, None) => Due::Build(Reason::FirstBuild),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilnyard_model::result::BuildOutcome;

    fn key(digest: &str) -> Key {
        Key { digest: digest.to_owned(), lines: vec![format!("option checks {digest}")] }
    }

    #[test]
    fn a_package_is_built_for_the_first_reason_that_holds() {
        let kept = Current {
            package: "a".to_owned(),
            build: 1,
            recipe_version: "1".to_owned(),
            revision: 1,
            key: key("k1"),
            outputs: Vec::new(),
        };
        let last = LastBuild { package: "a".to_owned(), number: 7, run: 3, outcome: BuildOutcome::Failed };
        let of = |is_forced, kept, broken, last, digest| match (Known { is_forced, kept, broken, last })
            .with_key(&key(digest), "")
        {
            Due::UpToDate => "up to date".to_owned(),
            Due::Build(reason) => reason.to_string(),
        };
        assert_eq!(of(false, Some(&kept), None, Some(&last), "k1"), "up to date");
        assert_eq!(of(false, Some(&kept), None, None, "k2"), "option checks is k2 and was k1");
        assert_eq!(of(false, Some(&kept), Some("a.deb"), None, "k1"), "a.deb is missing or damaged");
        assert_eq!(of(false, None, None, None, "k1"), "first build");
        assert_eq!(of(false, None, None, Some(&last), "k1"), "no outputs yet: build 7 in run 3 failed");
        assert_eq!(of(true, Some(&kept), Some("a.deb"), Some(&last), "k1"), "a rebuild was requested");
        assert_eq!(of(true, None, None, None, "k1"), "a rebuild was requested");
    }
}
