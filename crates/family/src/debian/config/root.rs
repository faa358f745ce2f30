//! Configuration of the base root: a bootstrapped Debian release.

use kilnyard_mirror::without_password;
use kilnyard_model::order::Processor;
use kilnyard_model::target::{Target, TargetError};
use kilnyard_yard::remedy::Remedy;
use serde::Deserialize;
use std::path::PathBuf;

/// One mirror URL or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Mirrors {
    /// A single URL, written as a string.
    One(String),
    /// Several URLs, tried in order.
    Several(Vec<String>),
}

impl Mirrors {
    /// All URLs, without trailing slashes.
    pub fn all(&self) -> Vec<String> {
        let all = match self {
            Mirrors::One(mirror) => std::slice::from_ref(mirror),
            Mirrors::Several(mirrors) => mirrors,
        };
        all.iter().map(|mirror| mirror.trim_end_matches('/').to_owned()).collect()
    }

    /// All URLs for display, with passwords removed.
    pub fn shown(&self) -> String {
        without_password(&self.all().join(" or "))
    }
}

/// A Debian base root, such as the table `[pkgsrc.root]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DebianRoot {
    /// Codename of the release, such as `bookworm`.
    pub release: String,
    /// Debian's name of the architecture; this machine's by default.
    #[serde(default = "own_architecture")]
    pub architecture: String,
    /// Base URL of the archive, or several URLs with the same content.
    pub mirror: Mirrors,
    /// More suites of the same archive.
    #[serde(default)]
    pub suites: Vec<String>,
    /// Components of each suite; `main` by default.
    #[serde(default = "main_component")]
    pub components: Vec<String>,
    /// The keys that may sign the archive.
    #[serde(default = "debian_keyring")]
    pub keyring: PathBuf,
    /// Whether to reject the archive after its `Valid-Until`.
    #[serde(default = "checks_valid_until")]
    pub check_valid_until: bool,
    /// Packages in addition to the essential and build-essential ones.
    #[serde(default)]
    pub packages: Vec<String>,
}

/// The operating system of all roots.
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

/// Architectures whose programs this machine's processor also runs.
const COMPATIBLE: [(&str, &str); 2] = [("amd64", "i386"), ("arm64", "armhf")];

/// How much longer builds take in user emulation: on one machine (amd64, qemu 7.2), libmd for arm64 took 17 times the
/// CPU time of libmd for amd64, and xxhash 10 times.
pub const EMULATION_COST: &str = "10 to 20 times";

/// Whether a machine of architecture `own` runs programs of another one by itself.
pub fn runs(own: &str, architecture: &str) -> bool {
    architecture == own || COMPATIBLE.contains(&(own, architecture))
}

/// The processor of a virtual machine that runs programs of an architecture, if this machine does not run them itself.
pub fn foreign_processor(architecture: &str) -> Option<Processor> {
    if runs(&own_architecture(), architecture) {
        return None;
    }
    match architecture {
        "amd64" | "i386" => Some(Processor::X86_64),
        "arm64" | "armhf" | "armel" => Some(Processor::Aarch64),
        _ => None,
    }
}

/// Where Linux shows the handlers of foreign programs (binfmt_misc).
const HANDLERS: &str = "/proc/sys/fs/binfmt_misc";

/// Why this machine cannot run programs of an architecture, with the remedy. Absent if it can, by itself or by
/// emulation.
pub fn foreign(architecture: &str) -> Option<(String, Remedy)> {
    let own = own_architecture();
    if runs(&own, architecture) {
        return None;
    }
    let emulator = match architecture {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        "armhf" | "armel" => "arm",
        "ppc64el" => "ppc64le",
        other => other,
    };
    let handler = fs_err::read_to_string(format!("{HANDLERS}/qemu-{emulator}")).unwrap_or_default();
    // Roots have files of their own: only a handler that was opened when it was registered (F) works in them.
    let flags = handler.lines().find_map(|line| line.strip_prefix("flags:")).unwrap_or_default();
    if handler.starts_with("enabled") && flags.contains('F') {
        return None;
    }
    let message = format!("this machine runs {own}, and no emulation of {architecture} is registered");
    let remedy = Remedy::packages(&["qemu-user-static", "binfmt-support"])
        .then(format!(", for user emulation: builds then take {EMULATION_COST} as long"));
    Some((message, remedy))
}

/// Default of `components`.
pub fn main_component() -> Vec<String> {
    vec!["main".to_owned()]
}

/// Default of `check-valid-until`.
pub fn checks_valid_until() -> bool {
    true
}

/// Default of `keyring`: Debian's own keyring.
pub fn debian_keyring() -> PathBuf {
    "/usr/share/keyrings/debian-archive-keyring.gpg".into()
}

impl DebianRoot {
    /// The target of a family's builds in this root.
    pub fn target(&self, family: &str) -> Result<Target, TargetError> {
        Target::new(family, SYSTEM, &self.release, &self.architecture)
    }

    /// Validates the table; the error says what to fix.
    pub fn check(&self) -> Result<(), String> {
        word("release", &self.release)?;
        self.target("any").map_err(|error| error.to_string())?;
        self.suites.iter().try_for_each(|suite| word("suite", suite))?;
        self.components.iter().try_for_each(|component| word("component", component))?;
        self.packages.iter().try_for_each(|package| word("package", package))?;
        if self.components.is_empty() {
            return Err("components is empty".to_owned());
        }
        check_mirrors(&self.mirror)
    }
}

/// Checks the addresses of an archive; the error says what to fix.
pub fn check_mirrors(mirrors: &Mirrors) -> Result<(), String> {
    if mirrors.all().is_empty() {
        return Err("mirror is empty".to_owned());
    }
    for mirror in mirrors.all() {
        if !["http://", "https://", "file:///"].iter().any(|scheme| mirror.starts_with(scheme)) {
            let shown = without_password(&mirror);
            return Err(format!("mirror `{shown}` does not begin with http://, https:// or file:///"));
        }
        // A slash in a password would end the host early, and every message about the mirror would show the rest.
        if without_password(&mirror).split('/').skip(3).any(|part| part.contains('@')) {
            return Err(
                "a mirror has an @ after the first slash of its path: write @ as %40, and a slash in a \
                        password as %2F"
                    .to_owned(),
            );
        }
    }
    Ok(())
}

/// Checks that a value is one word that can be part of an address; the error calls it `name`.
pub fn word(name: &str, value: &str) -> Result<(), String> {
    let is_word = !value.is_empty()
        && value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'/' | b'+'))
        && !value.contains("..")
        && !value.starts_with(['/', '-']);
    is_word.then_some(()).ok_or_else(|| format!("`{value}` is not a valid {name}"))
}
