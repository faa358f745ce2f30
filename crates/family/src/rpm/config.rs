//! The `[rpm]` table: repositories of RPM packages, the base root, and how sources are built.

use super::sources;
use crate::git::place::{FORMS, address};
use crate::git::shown;
use kilnyard_ecosystem::OptionRules;
use kilnyard_ecosystem::git::GitAddress;
use kilnyard_ecosystem::rpm::recipe::is_version;
use kilnyard_ecosystem::rpm::{FAMILY, Settings};
use kilnyard_model::target::{Target, TargetError};
use kilnyard_yard::config::{COMMON_TEMPLATE, list_of, quoted};
use serde::Deserialize;
use std::path::PathBuf;

/// The operating system of all roots.
const SYSTEM: &str = "linux";
/// Packages of this architecture are for any.
pub const INDEPENDENT: &str = "noarch";
/// Packages of these architectures are sources.
pub const SOURCES: [&str; 2] = ["src", "nosrc"];

/// The `[rpm]` table of `kilnyard.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Rpm {
    /// The name of the distribution's release, such as `fc42`: part of the target's name.
    pub release: String,
    /// RPM's name of the architecture; this machine's by default.
    #[serde(default = "own_architecture")]
    pub architecture: String,
    /// The addresses of the repositories, each of the folder that has `repodata`.
    pub repositories: Vec<String>,
    /// Files with the public keys that may sign the repositories. Without any, only `https` and `file` are accepted.
    #[serde(default)]
    pub keys: Vec<PathBuf>,
    /// What the keys have signed.
    #[serde(default = "metadata")]
    pub signed: Vec<Signed>,
    /// The packages of the base root: names, or groups with `@`.
    #[serde(default = "root_packages")]
    pub root_packages: Vec<String>,
    /// A folder with spec files: its own, and those in each folder of it, next to the files that they list. Or `git:` and the address of
    /// its repository; once located, the folder.
    pub specs: Option<PathBuf>,
    /// The repository of `specs`, once located.
    #[serde(skip)]
    pub git: Option<GitAddress>,
    /// The address of a file in the distribution's lookaside cache, with `{name}` for the source's name, `{file}`, `{type}` for
    /// the kind of the digest, and `{digest}`.
    pub lookaside: Option<String>,
    /// The value of `%dist`.
    #[serde(default)]
    pub dist: String,
    /// What follows `%dist`, before the number of a rebuild.
    #[serde(default = "version_suffix")]
    pub version_suffix: String,
    /// Whether `%check` runs.
    #[serde(default = "yes")]
    pub checks: bool,
    /// Whether published packages have signatures of their own.
    #[serde(default = "yes")]
    pub sign_packages: bool,
    /// Further macros: a name, a space, and the value.
    #[serde(default)]
    pub macros: Vec<String>,
}

/// What has signatures by the keys of repositories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Signed {
    /// Each `repomd.xml` (dnf's `repo_gpgcheck`).
    Metadata,
    /// Each package (dnf's `gpgcheck`).
    Packages,
}

fn metadata() -> Vec<Signed> {
    vec![Signed::Metadata]
}

/// What mock installs before a build, in Fedora and its relatives.
fn root_packages() -> Vec<String> {
    vec!["@buildsys-build".to_owned()]
}

fn version_suffix() -> String {
    ".bk".to_owned()
}

fn yes() -> bool {
    true
}

/// This machine's architecture, by RPM's name.
pub fn own_architecture() -> String {
    let name = match std::env::consts::ARCH {
        "x86" => "i686",
        "arm" => "armv7hl",
        "powerpc64" => "ppc64le",
        other => other,
    };
    name.to_owned()
}

impl Rpm {
    /// Validates the table; the error says what to fix.
    pub fn check_table(&self) -> Result<(), String> {
        self.target().map_err(|error| error.to_string())?;
        if self.repositories.is_empty() {
            return Err("repositories is empty: add the address of a folder that has repodata".to_owned());
        }
        if self.root_packages.is_empty() {
            return Err(
                "root-packages is empty: name the packages of the base root, such as gcc, make and rpm-build"
                    .to_owned(),
            );
        }
        if !is_version(&self.version_suffix) || self.version_suffix.ends_with(|c: char| c.is_ascii_digit()) {
            return Err(format!(
                "version-suffix: `{}` cannot stand before a number in a release",
                self.version_suffix
            ));
        }
        if !self.dist.is_empty() && !is_version(&self.dist) {
            return Err(format!("dist: `{}` cannot be a part of a release", self.dist));
        }
        if let Some(Err(reason)) = self.specs.as_deref().and_then(address) {
            return Err(format!("specs is not a repository of git: {reason}; {FORMS}"));
        }
        self.lookaside.as_deref().map_or(Ok(()), sources::check_lookaside)?;
        for line in &self.macros {
            let name = line.split([' ', '(']).next().unwrap_or("");
            let is_macro = name.len() > 2
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
                && line.contains(' ')
                && !line.contains('\n');
            if !is_macro {
                return Err(format!(
                    "macros: `{line}` is no name of at least three characters, a space, and a value"
                ));
            }
        }
        if self.signed.is_empty() && !self.keys.is_empty() {
            return Err("signed is empty: what keys sign is metadata, packages, or both".to_owned());
        }
        for address in &self.repositories {
            let is_secure = address.starts_with("https://") || address.starts_with("file:/");
            if !is_secure && !address.starts_with("http://") {
                return Err(format!("repositories: `{address}` is no address with https, http or file"));
            }
            if !is_secure && (self.keys.is_empty() || !self.signed.contains(&Signed::Metadata)) {
                return Err(format!(
                    "repositories: nothing protects {address} on its way: use https, or keys that sign its repomd.xml"
                ));
            }
        }
        Ok(())
    }

    /// The folder of spec files, as messages name it.
    pub fn shown_specs(&self) -> Option<String> {
        let folder = self.specs.as_ref()?;
        Some(self.git.as_ref().map_or_else(|| folder.display().to_string(), shown))
    }

    /// What packages are built for.
    pub fn target(&self) -> Result<Target, TargetError> {
        Target::new(FAMILY, SYSTEM, &self.release, &self.architecture)
    }

    /// The addresses of the repositories, without trailing slashes.
    pub fn addresses(&self) -> Vec<String> {
        self.repositories.iter().map(|address| address.trim_end_matches('/').to_owned()).collect()
    }

    /// The settings of a set.
    pub fn settings(&self, packages: OptionRules) -> Result<Settings, TargetError> {
        Ok(Settings {
            architecture: self.architecture.clone(),
            target: self.target()?,
            repositories: self.addresses(),
            keys: None,
            dist: self.dist.clone(),
            suffix: self.version_suffix.clone(),
            runs_checks: self.checks,
            macros: self.macros.clone(),
            passes: 1,
            packages,
        })
    }

    /// Whether packages of an architecture can be installed on the target.
    pub fn installs(&self, architecture: &str) -> bool {
        architecture == self.architecture || architecture == INDEPENDENT
    }
}

/// What `kilnyard init rpm` writes into a configuration.
#[derive(Clone, Debug, Default)]
pub struct Template {
    /// The name of the release.
    pub release: String,
    /// The architecture, if it is named.
    pub architecture: Option<String>,
    /// The addresses of the repositories.
    pub repositories: Vec<String>,
    /// Files with keys.
    pub keys: Vec<String>,
    /// What they sign, if it is not the metadata alone.
    pub signed: Vec<Signed>,
    /// The folder with spec files.
    pub specs: Option<String>,
    /// The sources of the set; none for all.
    pub packages: Vec<String>,
    /// The packages of the base root, if they are named.
    pub root_packages: Vec<String>,
    /// The form of addresses of a lookaside cache.
    pub lookaside: Option<String>,
    /// The value of `%dist`.
    pub dist: Option<String>,
}

impl Template {
    /// The text of `kilnyard.toml`.
    pub fn text(&self) -> String {
        let line = |value: &Option<String>, key: &str, usual: &str| match value {
            Some(value) => format!("{key} = {}", quoted(value)),
            None => format!("# {key} = {usual}"),
        };
        let list = |values: &[String], key: &str, usual: &str| match values {
            [] => format!("# {key} = {usual}"),
            values => format!("{key} = [\n{}]", list_of(values)),
        };
        let packages = match &self.packages[..] {
            [] => "packages = \"all\"".to_owned(),
            packages => format!("packages = [\n{}]", list_of(packages)),
        };
        format!(
            r#"# A yard of Kilnyard, for RPM packages (docs/rpm.md). `kilnyard build` builds them; `kilnyard check` lists what cannot be
# installed or built, and why.

{packages}

[rpm]
release = {release}                # the release of the distribution: a name of the target
repositories = [
{repositories}]
{keys}
{signed}
{architecture}
{specs}
{lookaside}
{root}
{dist}
# version-suffix = ".bk"           # before the number of a rebuild, which follows %dist
# checks = false                   # leave %check out
# sign-packages = false            # publish packages without signatures of their own, for gpgcheck=0
# macros = ["_lto_cflags %{{nil}}"]  # further macros, for all

{COMMON_TEMPLATE}"#,
            release = quoted(&self.release),
            repositories = list_of(&self.repositories),
            keys = list(
                &self.keys,
                "keys",
                "[\"RPM-GPG-KEY\"]         # files with the keys that sign the repositories"
            ),
            signed = match &self.signed[..] {
                [] => "# signed = [\"metadata\"]           # what they sign: metadata (repo_gpgcheck), packages (gpgcheck)".to_owned(),
                signed => {
                    let name = |one: &Signed| quoted(&format!("{one:?}").to_lowercase());
                    format!("signed = [{}]", signed.iter().map(name).collect::<Vec<_>>().join(", "))
                }
            },
            architecture =
                line(&self.architecture, "architecture", "\"x86_64\"          # default: this machine's"),
            specs = line(
                &self.specs,
                "specs",
                "\"specs\"                  # a folder with spec files and what they list, or git:PATH-OR-URL#BRANCH"
            ),
            lookaside = line(
                &self.lookaside,
                "lookaside",
                "\"https://sources.example.org/{name}/{file}/{type}/{digest}/{file}\"  # files that `sources` lists"
            ),
            root = list(
                &self.root_packages,
                "root-packages",
                "[\"@buildsys-build\"]   # the base root: packages, or groups with @"
            ),
            dist = line(&self.dist, "dist", "\".fc42\"                   # the value of %dist"),
        )
    }
}
