//! The Debian part of a yard's configuration.

use super::ownership::Takeovers;
use super::relation::Context;
use super::source::{Parts, Source};
use super::suites::Suites;
use super::universe::Request;
use crate::{OptionRules, Options};
use kilnyard_model::artifact::Artifact;
use kilnyard_model::graph::Against;
use kilnyard_model::target::Target;

/// Settings of a set of Debian packages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The release's codename, such as `bookworm`.
    pub release: String,
    /// The architecture of the packages.
    pub architecture: String,
    /// The architecture of the machine that cross-builds them, and of its roots; absent if it is the same.
    pub build_architecture: Option<String>,
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
    /// Which dependencies come from the set.
    pub against: Against,
    /// Number of builds of a package on a cut cycle: 1 or 2.
    pub passes: u32,
    /// Binary packages that a source takes over from another source of the set.
    pub takeovers: Takeovers,
    /// Options of single sources.
    pub packages: OptionRules,
}

/// The profile of builds without tests.
pub(super) const NO_CHECKS: &str = "nocheck";

/// The profile of cross builds.
const CROSS: &str = "cross";

/// How cycles inside the set are broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cycles {
    /// The archive's binary packages satisfy the dependency.
    Archive,
    /// Only with a build profile (`nocheck`, `nodoc`, `stage1`) that drops the dependency.
    Profile,
}

/// Packages in every base root in addition to the required and build-essential ones. fakeroot lets sources without
/// `Rules-Requires-Root: no` see files owned by root.
pub const ROOT_PACKAGES: [&str; 1] = ["fakeroot"];

impl Settings {
    /// The architecture and the profiles that decide which build dependencies apply to a source without options of its
    /// own.
    pub fn context(&self) -> Context {
        self.context_with(&Options::default())
    }

    /// The architecture and the profiles for this source.
    pub fn context_of(&self, source: &str) -> Context {
        self.context_with(&self.packages.of(source))
    }

    /// Whether the tests of this source run, unless a profile disables them.
    pub(super) fn runs_checks_of(&self, own: &Options) -> bool {
        // Tests of another architecture cannot run.
        self.build_architecture.is_none() && own.checks.unwrap_or(self.runs_checks)
    }

    /// What the build of a source needs, with its own profiles.
    pub fn request_of(&self, source: &Source) -> Request {
        let profiles = Some(self.context_of(source.name()).profiles);
        let mut request = Request { profiles, ..source.request(self.parts) };
        if self.build_architecture.is_some() {
            // By Debian Policy, sources need not name the C and C++ libraries.
            request
                .needs
                .push(format!("crossbuild-essential-{}:native, libc-dev, libstdc++-dev", self.architecture));
        }
        request
    }

    fn context_with(&self, own: &Options) -> Context {
        let mut profiles = self.profiles.clone();
        if self.runs_checks_of(own) && own.checks == Some(true) {
            profiles.retain(|profile| profile != NO_CHECKS);
        }
        let off = (!self.runs_checks_of(own)).then(|| NO_CHECKS.to_owned());
        let cross = self.build_architecture.as_ref().map(|_| CROSS.to_owned());
        for profile in own.profiles.iter().flatten().cloned().chain(cross).chain(off) {
            if !profiles.contains(&profile) {
                profiles.push(profile);
            }
        }
        Context { architecture: self.architecture.clone(), build: self.build_architecture.clone(), profiles }
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
