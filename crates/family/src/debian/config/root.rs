//! The root that builds begin with: a release of Debian, bootstrapped.

use kilnyard_mirror::without_password;
use kilnyard_model::target::{Target, TargetError};
use serde::Deserialize;
use std::path::PathBuf;

/// One address or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Mirrors {
    /// One.
    One(String),
    /// Several, tried in order.
    Several(Vec<String>),
}

impl Mirrors {
    /// All addresses, without a slash at the end.
    pub fn all(&self) -> Vec<String> {
        let all = match self {
            Mirrors::One(mirror) => std::slice::from_ref(mirror),
            Mirrors::Several(mirrors) => mirrors,
        };
        all.iter().map(|mirror| mirror.trim_end_matches('/').to_owned()).collect()
    }

    /// All addresses for people, without a password.
    pub fn shown(&self) -> String {
        without_password(&self.all().join(" or "))
    }
}

/// A root of Debian.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DebianRoot {
    /// The release's codename.
    pub release: String,
    /// The architecture, by Debian's name; this machine's by default.
    #[serde(default = "own_architecture")]
    pub architecture: String,
    /// The base address of the archive, or several with the same content.
    pub mirror: Mirrors,
    /// Further suites of the same archive.
    #[serde(default)]
    pub suites: Vec<String>,
    /// Components.
    #[serde(default = "main_component")]
    pub components: Vec<String>,
    /// Who may sign the archive.
    #[serde(default = "debian_keyring")]
    pub keyring: PathBuf,
    /// Whether the archive is refused after its `Valid-Until`.
    #[serde(default = "checks_valid_until")]
    pub check_valid_until: bool,
    /// Packages besides the essential and build-essential ones.
    #[serde(default)]
    pub packages: Vec<String>,
}

/// The system that all roots are of.
const SYSTEM: &str = "linux";

/// This machine's architecture, by Debian's name.
pub fn own_architecture() -> String {
    let name = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "x86" => "i386",
        "aarch64" => "arm64",
        "arm" => "armhf",
        "powerpc64" => "ppc64el",
        other => other,
    };
    name.to_owned()
}

/// The default component of an archive.
pub fn main_component() -> Vec<String> {
    vec!["main".to_owned()]
}

/// Whether an archive is refused after its `Valid-Until` by default.
pub fn checks_valid_until() -> bool {
    true
}

/// Where Debian's own keyring is.
pub fn debian_keyring() -> PathBuf {
    "/usr/share/keyrings/debian-archive-keyring.gpg".into()
}

impl DebianRoot {
    /// What a family builds in such a root.
    pub fn target(&self, family: &str) -> Result<Target, TargetError> {
        Target::new(family, SYSTEM, &self.release, &self.architecture)
    }

    /// What is wrong with it, if anything.
    pub fn check(&self) -> Result<(), String> {
        word("release", &self.release)?;
        self.target("any").map_err(|error| error.to_string())?;
        self.suites.iter().try_for_each(|suite| word("suite", suite))?;
        self.components.iter().try_for_each(|component| word("component", component))?;
        self.packages.iter().try_for_each(|package| word("package", package))?;
        if self.components.is_empty() {
            return Err("components is empty".to_owned());
        }
        if self.mirror.all().is_empty() {
            return Err("mirror is empty".to_owned());
        }
        for mirror in self.mirror.all() {
            if !["http://", "https://", "file:///"].iter().any(|scheme| mirror.starts_with(scheme)) {
                let shown = without_password(&mirror);
                return Err(format!(
                    "the mirror `{shown}` does not begin with http://, https:// or file:///"
                ));
            }
            // A password with a slash would end the host early, and stand in every message about it.
            if without_password(&mirror).split('/').skip(3).any(|part| part.contains('@')) {
                return Err(
                    "a mirror has an @ behind the first slash of its path: write %40 for it, and in a \
                            password %2F for a slash"
                        .to_owned(),
                );
            }
        }
        Ok(())
    }
}

fn word(name: &str, value: &str) -> Result<(), String> {
    let is_word = !value.is_empty()
        && value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'/' | b'+'))
        && !value.contains("..")
        && !value.starts_with(['/', '-']);
    is_word.then_some(()).ok_or_else(|| format!("`{value}` cannot be a {name}"))
}
