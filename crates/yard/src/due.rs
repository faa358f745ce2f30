//! Decides whether a package is up to date. Plans predict this decision, and runs make it when everything that
//! a package needs exists.

use kilnyard_model::order::Key;
use kilnyard_model::reason::Reason;
use kilnyard_store::{Current, LastBuild};

/// The facts that decide whether a package is built.
pub struct Known<'a> {
    /// Whether a command forces its build.
    pub is_forced: bool,
    /// The build whose outputs are kept.
    pub kept: Option<&'a Current>,
    /// Why the kept outputs must not be used: a file is missing or damaged, or their worker was revoked.
    pub unusable: Option<&'a Reason>,
    /// Its last build, whatever the outcome.
    pub last: Option<&'a LastBuild>,
}

/// What to do with a package.
#[derive(Clone, Debug, PartialEq)]
pub enum Due {
    /// Nothing: the key of its outputs has not changed.
    UpToDate,
    /// Build it, for this reason.
    Build(Reason),
}

impl Known<'_> {
    /// Why the package is built regardless of its key. Absent if the key decides.
    pub fn without_key(&self) -> Option<Reason> {
        match (self.kept, self.unusable) {
            _ if self.is_forced => Some(Reason::Forced),
            (None, _) => Some(self.last.map_or(Reason::FirstBuild, |last| Reason::NoOutputs {
                build: last.number,
                run: last.run,
                outcome: last.outcome.clone(),
            })),
            (Some(_), Some(reason)) => Some(reason.clone()),
            (Some(_), None) => None,
        }
    }

    /// Decides by comparing the key of a build now with that of the kept outputs, line by line. `former_root`
    /// is the text for the root in version 1 keys.
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
        let broken = Reason::Broken { file: "a.deb".to_owned() };
        let broken = Some(&broken);
        let of = |is_forced, kept, unusable, last, digest| match (Known { is_forced, kept, unusable, last })
            .with_key(&key(digest), "")
        {
            Due::UpToDate => "up to date".to_owned(),
            Due::Build(reason) => reason.to_string(),
        };
        assert_eq!(of(false, Some(&kept), None, Some(&last), "k1"), "up to date");
        assert_eq!(of(false, Some(&kept), None, None, "k2"), "option checks changed from k1 to k2");
        assert_eq!(of(false, Some(&kept), broken, None, "k1"), "a.deb is missing or damaged");
        assert_eq!(of(false, None, None, None, "k1"), "first build");
        assert_eq!(of(false, None, None, Some(&last), "k1"), "no outputs yet: build 7 in run 3 failed");
        assert_eq!(of(true, Some(&kept), broken, Some(&last), "k1"), "a rebuild was requested");
        assert_eq!(of(true, None, None, None, "k1"), "a rebuild was requested");
    }
}
