//! The `[rpm]` table: repositories of RPM packages.

use kilnyard_ecosystem::rpm::FAMILY;
use kilnyard_model::target::{Target, TargetError};
use kilnyard_yard::config::{list_of, quoted};
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
        for address in &self.repositories {
            let is_secure = address.starts_with("https://") || address.starts_with("file:/");
            if !is_secure && !address.starts_with("http://") {
                return Err(format!("repositories: `{address}` is no address with https, http or file"));
            }
            if !is_secure && self.keys.is_empty() {
                return Err(format!(
                    "repositories: nothing protects {address} on its way: use https, or keys that sign its repomd.xml"
                ));
            }
        }
        Ok(())
    }

    /// What packages are built for.
    pub fn target(&self) -> Result<Target, TargetError> {
        Target::new(FAMILY, SYSTEM, &self.release, &self.architecture)
    }

    /// The addresses of the repositories, without trailing slashes.
    pub fn addresses(&self) -> Vec<String> {
        self.repositories.iter().map(|address| address.trim_end_matches('/').to_owned()).collect()
    }

    /// Whether packages of an architecture can be installed on the target.
    pub fn installs(&self, architecture: &str) -> bool {
        architecture == self.architecture || architecture == INDEPENDENT
    }
}

/// The configuration that `kilnyard init rpm` writes.
pub fn template(
    release: &str,
    architecture: Option<&str>,
    repositories: &[String],
    keys: &[String],
) -> String {
    let architecture = match architecture {
        None => "# architecture = \"x86_64\"          # default: this machine's".to_owned(),
        Some(architecture) => format!("architecture = {}", quoted(architecture)),
    };
    let keys = match keys {
        [] => {
            "# keys = [\"RPM-GPG-KEY\"]         # files with the keys that sign the repositories".to_owned()
        }
        keys => format!("keys = [\n{}]", list_of(keys)),
    };
    format!(
        r#"# A yard of Kilnyard. `kilnyard check` lists what cannot be installed or built, and why (docs/rpm.md).

packages = "all"

[rpm]
release = {release}                # the release of the distribution: a name of the target
repositories = [
{repositories}]
{keys}
{architecture}
"#,
        release = quoted(release),
        repositories = list_of(repositories),
    )
}
