//! The RPM part of a yard's configuration.

use crate::OptionRules;
use kilnyard_model::artifact::Artifact;
use kilnyard_model::target::Target;

/// Settings of a set of RPM packages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// RPM's name of the architecture.
    pub architecture: String,
    /// The target that packages are compiled for.
    pub target: Target,
    /// The addresses of the repositories, by their number.
    pub repositories: Vec<String>,
    /// The keys that have to have signed each package of the repositories, as OpenPGP in ASCII; `None` if they need no signatures.
    pub keys: Option<String>,
    /// The value of `%dist`, such as `.kt1`.
    pub dist: String,
    /// What follows it, before the number of a rebuild, such as `.bk`.
    pub suffix: String,
    /// Whether `%check` runs.
    pub runs_checks: bool,
    /// Further macros, a line each: a name, a space, and the value.
    pub macros: Vec<String>,
    /// The number of times that packages whose cycle was cut are built; with more than 1, again with the set's packages.
    pub passes: u32,
    /// Options of single packages.
    pub packages: OptionRules,
}

/// The base root that builds start from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Base {
    /// The packed files; `None` if they are still to be made.
    pub tree: Option<Artifact>,
    /// A hash of the list of packages, with the digests of their files.
    pub digest: String,
    /// Name and version of each package.
    pub packages: Vec<(String, String)>,
    /// Their triggers ([`super::triggers_of`]).
    pub triggers: String,
}

impl Settings {
    /// `%dist` while a spec file is read: what is replaced by that of a rebuild.
    pub fn mark(&self) -> String {
        format!("{}{}0", self.dist, self.suffix)
    }

    /// The release of a rebuild, from one with [`Settings::mark`] or without `%dist`.
    pub fn release(&self, of_recipe: &str, revision: u32) -> String {
        let mark = self.mark();
        match of_recipe.contains(&mark) {
            true => of_recipe.replace(&mark, &format!("{}{}{revision}", self.dist, self.suffix)),
            false => format!("{of_recipe}{}{revision}", self.suffix),
        }
    }

    /// The version of a recipe, and the number of its rebuild, from the version of the rebuild.
    pub fn split(&self, rebuilt: &str) -> Option<(String, u32)> {
        let (before, rest) = rebuilt.rsplit_once(&self.suffix)?;
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        Some((format!("{before}{}", &rest[digits..]), rest[..digits].parse().ok()?))
    }

    /// The release of a package that was built elsewhere, with [`Settings::mark`] in the place of its `%dist`, which may have
    /// the number of a rebuild already.
    pub fn marked(&self, release: &str) -> String {
        let Some((before, after)) = release.split_once(&self.dist).filter(|_| !self.dist.is_empty()) else {
            return release.to_owned();
        };
        let rest = match after.strip_prefix(&self.suffix) {
            Some(number) => number.trim_start_matches(|c: char| c.is_ascii_digit()),
            None => after,
        };
        format!("{before}{}{rest}", self.mark())
    }

    #[cfg(test)]
    pub(super) fn trial() -> Settings {
        Settings {
            architecture: "x86_64".to_owned(),
            target: Target::new(super::FAMILY, "linux", "kt1", "x86_64").unwrap(),
            repositories: vec!["https://example.org/kt1".to_owned()],
            keys: None,
            dist: ".kt1".to_owned(),
            suffix: ".bk".to_owned(),
            runs_checks: true,
            macros: Vec::new(),
            passes: 1,
            packages: OptionRules::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_has_one_number_of_a_rebuild() {
        let settings = Settings::trial();
        for (elsewhere, rebuilt) in [
            ("3.kt1", "3.kt1.bk2"),
            ("3.kt1.bk17", "3.kt1.bk2"),
            ("0.1.rc1.kt1_4", "0.1.rc1.kt1.bk2_4"),
            ("3.fc42", "3.fc42.bk2"),
            ("3", "3.bk2"),
        ] {
            assert_eq!(settings.release(&settings.marked(elsewhere), 2), rebuilt, "{elsewhere}");
            assert_eq!(settings.split(&format!("1:1-{rebuilt}")).map(|(_, number)| number), Some(2));
        }
        let plain = Settings { dist: String::new(), ..settings };
        assert_eq!(plain.release(&plain.marked("3"), 2), "3.bk2");
    }
}
