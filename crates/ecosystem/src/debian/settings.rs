//! The Debian part of a yard's configuration.

use super::ownership::Takeovers;
use super::relation::Context;
use super::source::Parts;
use super::suites::Suites;
use kilnyard_model::artifact::Artifact;
use kilnyard_model::target::Target;

/// Settings of a set of Debian packages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The release's codename, such as `bookworm`.
    pub release: String,
    /// The architecture of both the build machine and the packages.
    pub architecture: String,
    /// The target that packages are compiled for.
    pub target: Target,
    /// Base addresses of the archive, tried in order; pool paths are below them.
    pub mirrors: Vec<String>,
    /// The suites of the index, each with the addresses of its archive. Files of a suite that is not among them come
    /// from `mirrors`.
    pub suites: Suites,
    /// Which binary packages of a source are built.
    pub parts: Parts,
    /// Whether the sources' own tests run; if not, the profile `nocheck` is added.
    pub runs_checks: bool,
    /// Additional build profiles.
    pub profiles: Vec<String>,
    /// Suffix appended to the version of a rebuilt package, before the rebuild number.
    pub version_suffix: String,
    /// The author of a rebuild's changelog entry: `Name <address>`.
    pub maintainer: String,
    /// How a cycle inside the set is broken.
    pub cycles: Cycles,
    /// Binary packages that a source takes over from another source of the set.
    pub takeovers: Takeovers,
}

/// How cycles inside the set are broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cycles {
    /// The archive's binary packages satisfy the dependency.
    Archive,
    /// Only with a build profile (`nocheck`, `nodoc`, `stage1`) that drops the dependency.
    Profile,
}

impl Settings {
    /// The architecture and the profiles that decide which build dependencies apply.
    pub fn context(&self) -> Context {
        let mut profiles = self.profiles.clone();
        if !self.runs_checks && !profiles.iter().any(|p| p == "nocheck") {
            profiles.push("nocheck".to_owned());
        }
        Context { architecture: self.architecture.clone(), profiles }
    }
}

/// The base root that builds start from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Base {
    /// The packed files; `None` if they are still to be made, or were made by a version that did not pack them.
    pub tree: Option<Artifact>,
    /// A hash of its installed packages.
    pub digest: String,
    /// Name and version of each installed package.
    pub packages: Vec<(String, String)>,
}
