//! `[[archive]]` of `kilnyard.toml`: archives in addition to the yard's own release, each with its own key.
//!
//! Invariants: an archive is verified with its own key alone, so that the key of one archive never vouches for
//! another; base roots are made from the main archive alone.

use super::config::Debian;
use super::config::root::{self, Mirrors};
use kilnyard_ecosystem::debian::suites::{PIN, PIN_MAX, Suite, is_suite_name};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The maximum number of suites of all archives together: each has an index in memory.
const SUITES_MAX: usize = 64;

/// A table `[[archive]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Archive {
    /// A short name for pins and messages; by default that of its first suite.
    name: Option<String>,
    /// Base URL of the archive, or several URLs with the same content.
    pub mirror: Mirrors,
    /// The suite.
    suite: Option<String>,
    /// Several suites.
    #[serde(default)]
    suites: Vec<String>,
    /// Components of each suite; `main` by default.
    #[serde(default = "root::main_component")]
    pub components: Vec<String>,
    /// The keys that may sign this archive, and no other, relative to the yard.
    pub key: PathBuf,
    /// Whether to reject an index after its `Valid-Until`.
    #[serde(default = "root::checks_valid_until")]
    pub check_valid_until: bool,
    /// The priority of its packages, as in apt_preferences(5). By default 500, or what the archive's `Release` asks
    /// for: 1 with `NotAutomatic`, 100 with `ButAutomaticUpgrades` too.
    pub pin: Option<i32>,
}

impl Archive {
    /// The suites, in the order of the table.
    pub fn suites(&self) -> Vec<&str> {
        self.suite.iter().chain(&self.suites).map(String::as_str).collect()
    }

    /// The name in pins and messages.
    pub fn name(&self) -> &str {
        self.name.as_deref().or(self.suites().first().copied()).unwrap_or("")
    }

    /// This table with the absolute path of its key.
    pub fn located(&self, yard: &Path) -> Archive {
        Archive { key: yard.join(&self.key), ..self.clone() }
    }

    fn check(&self) -> Result<(), String> {
        let suites = self.suites();
        let given = self.name();
        if suites.is_empty() {
            return Err("suite is missing".to_owned());
        }
        let is_name = |name: &str| is_suite_name(name) && !name.contains('/');
        if let Some(name) = self.name.as_ref().filter(|name| !is_name(name)) {
            return Err(format!("`{name}` is not a valid name"));
        }
        for suite in &suites {
            root::word("suite", suite)?;
        }
        if suites.iter().collect::<BTreeSet<_>>().len() != suites.len() {
            return Err(format!("{given} has a suite twice"));
        }
        self.components.iter().try_for_each(|component| root::word("component", component))?;
        if self.components.is_empty() {
            return Err("components is empty".to_owned());
        }
        root::check_mirrors(&self.mirror)?;
        match self.pin {
            Some(0) => {
                Err("pin is 0, which means nothing in apt: use 1 for a last resort, -1 for never".to_owned())
            }
            Some(pin) if pin.abs() > PIN_MAX => {
                Err(format!("pin is {pin}, but must be from -{PIN_MAX} to {PIN_MAX}"))
            }
            _ => Ok(()),
        }
    }
}

/// Checks all tables together.
pub fn check(debian: &Debian) -> Result<(), String> {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for (number, archive) in debian.archives.iter().enumerate() {
        archive.check().map_err(|reason| format!("[[archive]] {}: {reason}", number + 1))?;
        let name = archive.name();
        if !names.insert(name) {
            return Err(format!(
                "[[archive]] {}: another archive is also named {name}; give one of them a `name`",
                number + 1
            ));
        }
        if let Some(suite) = debian.own_suites().find(|suite| *suite == name) {
            return Err(format!(
                "[[archive]] {}: {suite} is also a suite of [debian]; give this archive a `name`",
                number + 1
            ));
        }
    }
    let count: usize = debian.archives.iter().map(|archive| archive.suites().len()).sum();
    if count > SUITES_MAX {
        return Err(format!("the archives have {count} suites; the maximum is {SUITES_MAX}"));
    }
    Ok(())
}

/// A suite to scan, with the archive that it belongs to.
#[derive(Clone, Debug)]
pub struct WantedSuite<'a> {
    /// The archive's name; empty for the main archive.
    pub archive: &'a str,
    /// The suite.
    pub suite: &'a str,
    /// Addresses of the archive.
    pub mirror: &'a Mirrors,
    /// Components to fetch.
    pub components: &'a [String],
    /// The keys that may sign it.
    pub key: &'a Path,
    /// Whether it expires.
    pub check_valid_until: bool,
    /// The configured pin.
    pub pin: Option<i32>,
}

impl WantedSuite<'_> {
    /// The suite as messages name it.
    pub fn shown(&self) -> String {
        match self.archive {
            "" => self.suite.to_owned(),
            archive if archive == self.suite => self.suite.to_owned(),
            archive => format!("{} (archive {archive})", self.suite),
        }
    }

    /// The paths of its index files, without the endings of compressions: for each component `Packages` of each
    /// architecture, then `Sources`.
    pub fn paths(&self, architectures: &[String]) -> Vec<String> {
        let of = |component: &String| {
            let packages = |architecture| format!("{component}/binary-{architecture}/Packages");
            let mut paths: Vec<String> = architectures.iter().map(packages).collect();
            paths.push(format!("{component}/source/Sources"));
            paths
        };
        self.components.iter().flat_map(of).collect()
    }

    /// The suite as a resolved set knows it. `offered` is the pin that its `Release` file asks for.
    pub fn resolved(&self, offered: Option<i32>) -> Suite {
        // Builds use the main archive, whatever pin its Release file asks for.
        let offered = offered.filter(|_| !self.archive.is_empty());
        Suite {
            archive: self.archive.to_owned(),
            suite: self.suite.to_owned(),
            pin: self.pin.or(offered).unwrap_or(PIN),
            mirrors: self.mirror.all(),
        }
    }
}

/// Every suite of a configuration, the main archive's first.
pub fn wanted(debian: &Debian) -> Vec<WantedSuite<'_>> {
    let main = debian.own_suites().map(|suite| WantedSuite {
        archive: "",
        suite,
        mirror: &debian.mirror,
        components: &debian.components,
        key: &debian.keyring,
        check_valid_until: debian.check_valid_until,
        pin: None,
    });
    let others = debian.archives.iter().flat_map(|archive| {
        archive.suites().into_iter().map(|suite| WantedSuite {
            archive: archive.name(),
            suite,
            mirror: &archive.mirror,
            components: &archive.components,
            key: &archive.key,
            check_valid_until: archive.check_valid_until,
            pin: archive.pin,
        })
    });
    main.chain(others).collect()
}
