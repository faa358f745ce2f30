//! The system that packages are built for.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Maximum length of each part.
const PART_BYTES_MAX: usize = 64;

/// The package family, operating system, release and architecture that packages are built for. As text, it is a safe
/// relative path of four names, such as `debian/linux/bookworm/amd64`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Target {
    family: String,
    system: String,
    release: String,
    architecture: String,
}

/// A text is not a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "read a target: {text:?} is not family/system/release/architecture, each of letters, digits and . _ + ~ -"
)]
pub struct TargetError {
    /// The beginning of the text, at most 64 characters.
    pub text: String,
}

impl Target {
    /// Makes a target from its parts.
    ///
    /// # Errors
    /// A part is empty, too long, `.` or `..`, or has characters other than letters, digits and `. _ + ~ -`.
    pub fn new(family: &str, system: &str, release: &str, architecture: &str) -> Result<Target, TargetError> {
        let parts = [family, system, release, architecture];
        match parts.iter().all(|part| is_name(part)) {
            true => {
                let [family, system, release, architecture] = parts.map(str::to_owned);
                Ok(Target { family, system, release, architecture })
            }
            false => Err(TargetError { text: parts.join("/").chars().take(PART_BYTES_MAX).collect() }),
        }
    }

    /// The name of the package family.
    pub fn family(&self) -> &str {
        &self.family
    }

    /// The operating system that the packages run on.
    pub fn system(&self) -> &str {
        &self.system
    }

    /// The release of that operating system.
    pub fn release(&self) -> &str {
        &self.release
    }

    /// The architecture, as the family names it.
    pub fn architecture(&self) -> &str {
        &self.architecture
    }
}

fn is_name(part: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._+~-".contains(&byte);
    !part.is_empty()
        && part.len() <= PART_BYTES_MAX
        && !matches!(part, "." | "..")
        && part.bytes().all(is_allowed)
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.family, self.system, self.release, self.architecture)
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Target, TargetError> {
        let parts: Vec<&str> = text.split('/').collect();
        match parts[..] {
            [family, system, release, architecture] => Target::new(family, system, release, architecture),
            _ => Err(TargetError { text: text.chars().take(PART_BYTES_MAX).collect() }),
        }
    }
}

impl TryFrom<String> for Target {
    type Error = TargetError;

    fn try_from(text: String) -> Result<Target, TargetError> {
        text.parse()
    }
}

impl From<Target> for String {
    fn from(target: Target) -> String {
        target.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_path_of_four_names() {
        let target = Target::new("debian", "linux", "bookworm", "amd64").unwrap();
        assert_eq!(target.to_string(), "debian/linux/bookworm/amd64");
        assert_eq!("debian/linux/bookworm/amd64".parse(), Ok(target.clone()));
        assert_eq!(serde_json::to_string(&target).unwrap(), "\"debian/linux/bookworm/amd64\"");
        let long = "x".repeat(PART_BYTES_MAX + 1);
        for text in ["", "a/b/c", "a/b/c/d/e", "a//c/d", "a/../c/d", "a/b/c d/e", "a/b/\u{e4}/d", &long] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
        assert!(Target::new("a", "b", &long, "d").is_err());
    }
}
