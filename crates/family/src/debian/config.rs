//! The table `debian`: sources of a Debian release.

pub mod root;

pub use root::{DebianRoot, Mirrors};

use kilnyard_ecosystem::debian::{Cycles, FAMILY, Settings, relation, source::Parts};
use kilnyard_yard::config::{ALL, COMMON_TEMPLATE, list_of, quoted};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What roots have besides the essential and build-essential packages. apt installs dependencies, and fakeroot lets
/// sources without `Rules-Requires-Root: no` see files owned by root.
const ROOT_PACKAGES: [&str; 1] = ["fakeroot"];

/// The table `debian`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Debian {
    /// The release's codename.
    pub release: String,
    /// The architecture; this machine's by default.
    pub architecture: Option<String>,
    /// The base address of the archive, or several with the same content.
    pub mirror: Mirrors,
    /// Further suites of the same archive whose packages count, such as `bookworm-updates`.
    #[serde(default)]
    pub suites: Vec<String>,
    /// Components.
    #[serde(default = "root::main_component")]
    pub components: Vec<String>,
    /// Who may sign the archive.
    #[serde(default = "root::debian_keyring")]
    pub keyring: PathBuf,
    /// Whether an index is refused after its `Valid-Until`; false for a snapshot.
    #[serde(default = "root::checks_valid_until")]
    pub check_valid_until: bool,
    /// `dependent` (`dpkg-buildpackage -B`) or `all` (`-b`).
    #[serde(default = "dependent")]
    pub parts: Parts,
    /// Whether the sources' own tests run.
    #[serde(default)]
    pub checks: bool,
    /// Further build profiles.
    #[serde(default)]
    pub profiles: Vec<String>,
    /// What is put behind versions.
    #[serde(default = "suffix")]
    pub version_suffix: String,
    /// Who stands in changelog entries.
    #[serde(default = "maintainer")]
    pub maintainer: String,
    /// How cycles are cut: `archive` or `profile`.
    #[serde(default)]
    pub cycles: CyclesWord,
    /// Binary packages that a source publishes in place of another source of the yard, by the source.
    #[serde(default)]
    pub takeover: BTreeMap<String, Vec<String>>,
}

/// See [`Cycles`].
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CyclesWord {
    /// The archive's binary packages stand in.
    #[default]
    Archive,
    /// Only build profiles cut.
    Profile,
}

fn dependent() -> Parts {
    Parts::Dependent
}
fn suffix() -> String {
    "+bk".to_owned()
}
fn maintainer() -> String {
    "Kilnyard <kilnyard@localhost>".to_owned()
}

impl Debian {
    /// What is wrong with it, if anything.
    pub fn check_table(&self) -> Result<(), String> {
        self.root().check()?;
        let suffix = &self.version_suffix;
        let is_suffix = suffix.starts_with(['+', '~'])
            && suffix.len() > 1
            && suffix[1..].bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.')
            && !suffix.ends_with(|c: char| c.is_ascii_digit());
        if !is_suffix {
            return Err(format!(
                "version-suffix `{suffix}` must begin with + or ~ and end with a letter: a number follows it"
            ));
        }
        if self.maintainer.contains(['\n', '\r']) || !self.maintainer.contains('<') {
            return Err("maintainer must be of the form `Name <address>`".to_owned());
        }
        let mut given = BTreeMap::new();
        for (source, name) in self.taken_over() {
            if let Some(bad) = [source, name].into_iter().find(|name| !relation::is_name(name)) {
                return Err(format!("takeover: `{bad}` cannot be the name of a package"));
            }
            if let Some(other) = given.insert(name, source) {
                return Err(format!(
                    "takeover: {name} is given to {other} and to {source}: only one can publish it"
                ));
            }
        }
        Ok(())
    }

    /// Source and binary package of each takeover.
    fn taken_over(&self) -> impl Iterator<Item = (&str, &str)> {
        self.takeover
            .iter()
            .flat_map(|(source, names)| names.iter().map(|name| (source.as_str(), name.as_str())))
    }

    /// The settings of the Debian module.
    pub fn settings(&self) -> Settings {
        Settings {
            release: self.release.clone(),
            architecture: self.architecture(),
            // `check` refuses a configuration where it is none.
            target: self.root().target(FAMILY).expect("a checked release and architecture"),
            mirrors: self.mirror.all(),
            parts: self.parts,
            runs_checks: self.checks,
            profiles: self.profiles.clone(),
            version_suffix: self.version_suffix.clone(),
            maintainer: self.maintainer.clone(),
            cycles: match self.cycles {
                CyclesWord::Archive => Cycles::Archive,
                CyclesWord::Profile => Cycles::Profile,
            },
            takeovers: self.taken_over().map(|(source, name)| (name.to_owned(), source.to_owned())).collect(),
        }
    }

    /// The architecture, by Debian's name.
    pub fn architecture(&self) -> String {
        self.architecture.clone().unwrap_or_else(root::own_architecture)
    }

    /// The root that builds begin with.
    pub fn root(&self) -> DebianRoot {
        DebianRoot {
            release: self.release.clone(),
            architecture: self.architecture(),
            mirror: self.mirror.clone(),
            suites: self.suites.clone(),
            components: self.components.clone(),
            keyring: self.keyring.clone(),
            check_valid_until: self.check_valid_until,
            packages: ROOT_PACKAGES.map(str::to_owned).into(),
        }
    }
}

/// What `kilnyard init debian` writes.
pub fn template(release: &str, mirror: &str, packages: &[String]) -> String {
    let packages = match packages {
        [word] if word == ALL => quoted(word),
        names => format!("[\n{}]", list_of(names)),
    };
    format!(
        r#"# A yard of Kilnyard. `kilnyard build` builds it; `kilnyard doctor` checks this machine.

# Source packages by name, or paths of .dsc files; "all" for every source of the release.
packages = {packages}
# packages-file = "packages.txt"   # more of them, one a line

[debian]
release = {release}
mirror = {mirror}
# suites = ["bookworm-updates"]    # more suites of the same mirror
# components = ["main"]
# keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
# check-valid-until = true         # false for a snapshot, or a mirror frozen on purpose
# parts = "dependent"              # as dpkg-buildpackage -B; "all" as -b
# checks = false                   # run the sources' own tests
# profiles = []                    # build profiles
# version-suffix = "+bk"           # a rebuilt 1.2-3 is 1.2-3+bk1
# cycles = "archive"               # who stands in: "archive" binaries, or a build "profile"
# takeover = {{}}                    # binaries that a source takes from another one: {{ newlib = ["libold1"] }}

{COMMON_TEMPLATE}"#,
        release = quoted(release),
        mirror = quoted(mirror),
    )
}
