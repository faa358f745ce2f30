//! The `[debian]` table: source packages of a Debian release.

pub mod root;

pub use root::{DebianRoot, Mirrors};

use super::archives::{self, Archive};
use kilnyard_ecosystem::debian::suites::{Pin, Suites};
use kilnyard_ecosystem::debian::{Cycles, FAMILY, ROOT_PACKAGES, Settings, relation, source::Parts};
use kilnyard_ecosystem::{OptionRules, Options};
use kilnyard_model::graph::Against;
use kilnyard_model::order::Processor;
use kilnyard_model::target::{Target, TargetError};
use kilnyard_yard::config::{ALL, COMMON_TEMPLATE, list_of, quoted};
use kilnyard_yard::family::Neighbour;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The `[debian]` table of `kilnyard.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Debian {
    /// Codename of the release, such as `bookworm`.
    pub release: String,
    /// Debian's name of the architecture; this machine's by default.
    pub architecture: Option<String>,
    /// Base URL of the archive, or several URLs with the same content.
    pub mirror: Mirrors,
    /// More suites of the same archive whose packages are available, such as `bookworm-updates`.
    #[serde(default)]
    pub suites: Vec<String>,
    /// Components of each suite; `main` by default.
    #[serde(default = "root::main_component")]
    pub components: Vec<String>,
    /// The keys that may sign the archive.
    #[serde(default = "root::debian_keyring")]
    pub keyring: PathBuf,
    /// Whether to reject an index after its `Valid-Until`; false for a snapshot.
    #[serde(default = "root::checks_valid_until")]
    pub check_valid_until: bool,
    /// `dependent` (`dpkg-buildpackage -B`) or `all` (`-b`).
    #[serde(default = "dependent")]
    pub parts: Parts,
    /// Whether to run the sources' own tests.
    #[serde(default)]
    pub checks: bool,
    /// Whether to run the tests of installed packages that sources declare.
    #[serde(default)]
    pub autopkgtest: bool,
    /// Additional build profiles.
    #[serde(default)]
    pub profiles: Vec<String>,
    /// Suffix that rebuilds append to the version, before the number of the rebuild.
    #[serde(default = "suffix")]
    pub version_suffix: String,
    /// Maintainer of the added changelog entries.
    #[serde(default = "maintainer")]
    pub maintainer: String,
    /// How build cycles are broken: `archive` or `profile`.
    #[serde(default)]
    pub cycles: CyclesWord,
    /// Binary packages that a source publishes instead of another source of the yard, by source.
    #[serde(default)]
    pub takeover: BTreeMap<String, Vec<String>>,
    /// Versions of single packages, such as `linux/bookworm-backports`.
    #[serde(default)]
    pub pins: Vec<String>,
    /// Archives in addition to this one: the tables `[[archive]]`.
    #[serde(default, rename = "archive")]
    pub archives: Vec<Archive>,
    /// The architecture of this machine and of the roots, if packages are cross-built.
    #[serde(skip)]
    pub build_architecture: Option<String>,
    /// The processor of the virtual machines that run the root, if it is another one than this machine's.
    #[serde(skip)]
    pub processor: Option<Processor>,
    /// Architectures of other targets of the yard with the same release, which are in the same suite of the repository.
    #[serde(skip)]
    pub other_architectures: Vec<String>,
    /// Whether the yard has targets of other releases. Files of equal names may then differ between releases.
    #[serde(skip)]
    pub has_other_releases: bool,
}

/// The configured value of [`Cycles`].
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CyclesWord {
    /// Binary packages of the archive replace those not built yet.
    #[default]
    Archive,
    /// Only build profiles break cycles.
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

/// Variables that Kilnyard sets for the commands of a source, and the key that replaces each.
const VARIABLES: [(&str, &str); 7] = [
    ("APT_CONFIG", ""),
    ("DEBIAN_FRONTEND", ""),
    ("DEB_BUILD_OPTIONS", "; use options, checks and jobs"),
    ("DEB_BUILD_PROFILES", "; use profiles"),
    ("DPKG_ADMINDIR", ""),
    ("DPKG_FORCE", ""),
    ("DPKG_ROOT", ""),
];
/// The words of `DEB_BUILD_OPTIONS` that other keys set, and those keys.
const WORDS: [(&str, &str); 2] = [("nocheck", "checks = false"), ("parallel", "jobs")];

/// Checks the options of single sources.
pub fn check_options(options: &Options) -> Result<(), String> {
    if options.mk_conf.is_some() {
        return Err(
            "mk-conf is for packages of a tree; sources have profiles, options and environment".to_owned()
        );
    }
    let mut names = options.environment.keys();
    let reserved = names.find_map(|name| VARIABLES.iter().find(|(own, _)| own == name));
    if let Some((name, instead)) = reserved {
        return Err(format!("the environment variable {name} is set by Kilnyard{instead}"));
    }
    let mut folders = options.kept_folders().iter();
    if let Some(folder) = folders.find(|folder| kilnyard_ecosystem::debian::is_reserved_folder(folder)) {
        return Err(format!(
            "keep cannot contain {folder}: it has the packaging itself, and records of the build's steps"
        ));
    }
    let mut words = options.words.iter().flatten();
    let set_elsewhere = words.find_map(|word| {
        let key = word.split('=').next().unwrap_or(word);
        WORDS.iter().find(|(own, _)| *own == key)
    });
    if let Some((word, key)) = set_elsewhere {
        return Err(format!("options cannot contain {word}; use {key}"));
    }
    let has_contradiction =
        options.checks == Some(true) && options.profiles.iter().flatten().any(|profile| profile == "nocheck");
    if has_contradiction {
        return Err("checks = true and the profile nocheck exclude each other".to_owned());
    }
    let is_profile = |profile: &&String| {
        profile.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b))
    };
    match options.profiles.iter().flatten().find(|profile| !is_profile(profile)) {
        Some(bad) => Err(format!("`{bad}` is not a build profile: lower-case letters, digits, - and .")),
        None => Ok(()),
    }
}

impl Debian {
    /// Validates the table; the error says what to fix.
    pub fn check_table(&self) -> Result<(), String> {
        self.root().check()?;
        let suffix = &self.version_suffix;
        let is_suffix = suffix.starts_with(['+', '~'])
            && suffix.len() > 1
            && suffix[1..].bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.')
            && !suffix.ends_with(|c: char| c.is_ascii_digit());
        if !is_suffix {
            return Err(format!(
                "version-suffix `{suffix}` must begin with + or ~ and end with a letter, because a number follows it"
            ));
        }
        if self.maintainer.contains(['\n', '\r']) || !self.maintainer.contains('<') {
            return Err("maintainer must have the form `Name <address>`".to_owned());
        }
        let mut given = BTreeMap::new();
        for (source, name) in self.taken_over() {
            if let Some(bad) = [source, name].into_iter().find(|name| !relation::is_name(name)) {
                return Err(format!("takeover: `{bad}` is not a valid package name"));
            }
            if let Some(other) = given.insert(name, source) {
                return Err(format!(
                    "takeover: {name} is assigned to {other} and to {source}, but only one source can publish it"
                ));
            }
        }
        for text in &self.pins {
            if Pin::parse(text).is_none() {
                return Err(format!("pins: `{text}` is not a pin: write NAME=VERSION or NAME/SUITE"));
            }
        }
        archives::check(self)
    }

    /// The configured pins.
    pub fn pins(&self) -> Vec<Pin> {
        self.pins.iter().filter_map(|text| Pin::parse(text)).collect()
    }

    /// The suites of the main archive.
    pub fn own_suites(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.release).chain(&self.suites).map(String::as_str)
    }

    /// Pairs of source and binary package, one for each takeover.
    fn taken_over(&self) -> impl Iterator<Item = (&str, &str)> {
        self.takeover
            .iter()
            .flat_map(|(source, names)| names.iter().map(|name| (source.as_str(), name.as_str())))
    }

    /// The settings of the Debian module, without options of single sources.
    pub fn settings(&self) -> Settings {
        Settings {
            release: self.release.clone(),
            architecture: self.architecture(),
            build_architecture: self.build_architecture.clone(),
            // `check` rejects a configuration without a valid target.
            target: self.target().expect("a checked release and architecture"),
            mirrors: self.mirror.all(),
            // The index has them.
            suites: Suites::default(),
            // Packages for all architectures are made where they are not cross-built.
            parts: if self.build_architecture.is_some() { Parts::Dependent } else { self.parts },
            runs_checks: self.checks,
            profiles: self.profiles.clone(),
            version_suffix: self.version_suffix.clone(),
            maintainer: self.maintainer.clone(),
            cycles: match self.cycles {
                CyclesWord::Archive => Cycles::Archive,
                CyclesWord::Profile => Cycles::Profile,
            },
            against: Against::default(),
            passes: 1,
            takeovers: self.taken_over().map(|(source, name)| (name.to_owned(), source.to_owned())).collect(),
            packages: OptionRules::default(),
        }
    }

    /// This target in a yard that also has another one; see [`kilnyard_yard::family::Family::beside`].
    pub fn beside_target(&self, other: &Debian, order: Neighbour) -> Debian {
        let mut own = self.clone();
        if other.release == own.release {
            own.other_architectures.push(other.architecture());
            if order == Neighbour::Earlier && other.makes_independent() {
                // Architecture-independent packages are the same on every architecture.
                own.parts = Parts::Dependent;
            }
        } else {
            own.has_other_releases = true;
        }
        own
    }

    /// Whether this machine makes architecture-independent packages for the target.
    fn makes_independent(&self) -> bool {
        let is_made_here =
            || self.build_architecture.is_none() && kilnyard_yard::family::Family::foreign(self).is_none();
        self.parts == Parts::All && is_made_here()
    }

    /// The configured architecture, or this machine's, by Debian's name.
    pub fn architecture(&self) -> String {
        self.architecture.clone().unwrap_or_else(root::own_architecture)
    }

    /// The architectures whose packages builds use: that of the packages, and that of the roots.
    pub fn architectures(&self) -> Vec<String> {
        std::iter::once(self.architecture()).chain(self.build_architecture.clone()).collect()
    }

    /// What packages are compiled for.
    pub fn target(&self) -> Result<Target, TargetError> {
        DebianRoot { architecture: self.architecture(), ..self.root() }.target(FAMILY)
    }

    /// The base root of all builds.
    pub fn root(&self) -> DebianRoot {
        DebianRoot {
            release: self.release.clone(),
            architecture: self.build_architecture.clone().unwrap_or_else(|| self.architecture()),
            mirror: self.mirror.clone(),
            suites: self.suites.clone(),
            components: self.components.clone(),
            keyring: self.keyring.clone(),
            check_valid_until: self.check_valid_until,
            packages: ROOT_PACKAGES.map(str::to_owned).into(),
        }
    }
}

/// The configuration that `kilnyard init debian` writes.
pub fn template(release: &str, mirror: &str, packages: &[String]) -> String {
    let packages = match packages {
        [word] if word == ALL => quoted(word),
        names => format!("[\n{}]", list_of(names)),
    };
    format!(
        r#"# A yard of Kilnyard. `kilnyard build` builds it; `kilnyard doctor` checks this machine.

# Source packages by name, paths of .dsc files, or rules (docs/sets.md); "all" for every source of the release.
packages = {packages}
# packages-file = "packages.txt"   # more packages, one per line

[debian]
release = {release}
mirror = {mirror}
# suites = ["bookworm-updates"]    # more suites of the same mirror
# components = ["main"]
# keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
# check-valid-until = true         # false for a snapshot or a mirror frozen on purpose
# parts = "dependent"              # like dpkg-buildpackage -B; "all" is like -b
# checks = false                   # run the sources' own tests
# autopkgtest = false              # run the tests of installed packages that sources declare (docs/packages.md)
# profiles = []                    # build profiles
# version-suffix = "+bk"           # a rebuild of 1.2-3 is 1.2-3+bk1
# cycles = "archive"               # break cycles with "archive" binaries, or only with build profiles: "profile"
# pins = []                        # versions of single packages: ["linux/bookworm-backports", "hello=2.10-3"]
# takeover = {{}}                    # binaries that a source takes over from another: {{ newlib = ["libold1"] }}

# More archives, each with its own key (docs/sets.md). A higher pin precedes a higher version; the release has 500.
# [[archive]]
# name = "vendor"                  # default: the suite
# mirror = "https://deb.example.org"
# suite = "stable"                 # or suites = ["stable", "updates"]
# components = ["main"]
# key = "vendor.gpg"               # verifies this archive, and no other
# pin = 500                        # below 500: only what nothing else provides; negative: only what a pin names

{COMMON_TEMPLATE}
# [[target]]                       # several releases or architectures in one yard (docs/targets.md)
# release = "trixie"               # replaces the key above; so do packages and a table [target.build]
"#,
        release = quoted(release),
        mirror = quoted(mirror),
    )
}
