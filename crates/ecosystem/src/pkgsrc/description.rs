//! The description that a yard keeps of a binary package: its `pkg_summary` stanza, followed by the yard's own
//! fields in the same format.

use super::package_file::PackageFile;

/// The SHA-512 of the file, which repository indexes list.
const SHA512: &str = "KILNYARD_SHA512=";
/// The reason why the package must not be redistributed.
const RESTRICTED: &str = "KILNYARD_NO_BIN_ON_FTP=";

/// Writes the description of a package.
pub(super) fn write(package: &PackageFile) -> String {
    let mut text = package.summary.trim_end().to_owned();
    text.push('\n');
    text.push_str(&format!("{SHA512}{}\n", package.sha512));
    if let Some(reason) = &package.restricted {
        text.push_str(&format!("{RESTRICTED}{reason}\n"));
    }
    text
}

/// Adds the reason why the package must not be redistributed, unless its own file states one.
pub(super) fn restrict(description: &mut String, reason: &str) {
    if !is_restricted(description) {
        description.push_str(&format!("{RESTRICTED}{reason}\n"));
    }
}

/// The `pkg_summary` stanza, without the yard's own fields.
pub fn summary(description: &str) -> String {
    let is_own = |line: &&str| line.starts_with(SHA512) || line.starts_with(RESTRICTED);
    description.lines().filter(|line| !is_own(line)).map(|line| format!("{line}\n")).collect()
}

/// The SHA-512 of the file, in hexadecimal; `None` if the description lacks it.
pub fn sha512(description: &str) -> Option<&str> {
    description.lines().find_map(|line| line.strip_prefix(SHA512))
}

/// Whether the package must not be redistributed.
pub fn is_restricted(description: &str) -> bool {
    description.lines().any(|line| line.starts_with(RESTRICTED))
}

/// The patterns of the package's run-time dependencies.
pub(super) fn depends(description: &str) -> impl Iterator<Item = &str> {
    description.lines().filter_map(|line| line.strip_prefix("DEPENDS="))
}
