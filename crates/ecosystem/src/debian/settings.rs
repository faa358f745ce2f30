//! What a yard's configuration says of Debian.

use super::ownership::Takeovers;
use super::relation::Context;
use super::source::Parts;
use kilnyard_model::artifact::Artifact;
use kilnyard_model::target::Target;

/// Settings of a set of Debian packages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The release's codename, such as `bookworm`.
    pub release: String,
    /// The architecture that is built on and for.
    pub architecture: String,
    /// What is built for.
    pub target: Target,
    /// Base addresses of the archive, tried in order; pool paths are below them.
    pub mirrors: Vec<String>,
    /// What is built.
    pub parts: Parts,
    /// Whether the sources' own tests run.
    pub runs_checks: bool,
    /// Further build profiles.
    pub profiles: Vec<String>,
    /// What is put behind a rebuilt package's version, before the number of the rebuild.
    pub version_suffix: String,
    /// Who stands in the changelog entry of a rebuild: `Name <address>`.
    pub maintainer: String,
    /// How a cycle inside the set is cut.
    pub cycles: Cycles,
    /// Binary packages that a source takes over from another one of the set.
    pub takeovers: Takeovers,
}

/// How cycles inside the set are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cycles {
    /// The archive's binary packages stand in.
    Archive,
    /// Only by a build profile (`nocheck`, `nodoc`, `stage1`) under which the dependency falls away.
    Profile,
}

impl Settings {
    /// The context in which build dependencies are read.
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
    /// Its files; none where they are still to be made, or were made by a version that did not pack them.
    pub tree: Option<Artifact>,
    /// A hash of what is installed in it.
    pub digest: String,
    /// Name and version of each installed package.
    pub packages: Vec<(String, String)>,
}
