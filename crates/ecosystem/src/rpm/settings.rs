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
    /// The value of `%dist`, such as `.kt1`.
    pub dist: String,
    /// What follows it, before the number of a rebuild, such as `.bk`.
    pub suffix: String,
    /// Whether `%check` runs.
    pub runs_checks: bool,
    /// Further macros, a line each: a name, a space, and the value.
    pub macros: Vec<String>,
    /// Options of single packages.
    pub packages: OptionRules,
}

/// The base root that builds start from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Base {
    /// The packed files; `None` if they are still to be made.
    pub tree: Option<Artifact>,
    /// A hash of the list of packages.
    pub digest: String,
    /// Name and version of each package.
    pub packages: Vec<(String, String)>,
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

    #[cfg(test)]
    pub(super) fn trial() -> Settings {
        Settings {
            architecture: "x86_64".to_owned(),
            target: Target::new(super::FAMILY, "linux", "kt1", "x86_64").unwrap(),
            repositories: vec!["https://example.org/kt1".to_owned()],
            dist: ".kt1".to_owned(),
            suffix: ".bk".to_owned(),
            runs_checks: true,
            macros: Vec::new(),
            packages: OptionRules::default(),
        }
    }
}
