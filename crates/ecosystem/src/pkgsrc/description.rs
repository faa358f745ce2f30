//! What a yard keeps of a binary package: its stanza of `pkg_summary`, and behind it in the same form what only the
//! yard asks for.

use super::package_file::PackageFile;

/// The hash that indexes of packages have.
const SHA512: &str = "KILNYARD_SHA512=";
/// Why the package may not be given away.
const RESTRICTED: &str = "KILNYARD_NO_BIN_ON_FTP=";

/// The description of a package.
pub(super) fn write(package: &PackageFile) -> String {
    let mut text = package.summary.trim_end().to_owned();
    text.push('\n');
    text.push_str(&format!("{SHA512}{}\n", package.sha512));
    if let Some(reason) = &package.restricted {
        text.push_str(&format!("{RESTRICTED}{reason}\n"));
    }
    text
}

/// Says why the package may not be given away, where its own file does not.
pub(super) fn restrict(description: &mut String, reason: &str) {
    if !is_restricted(description) {
        description.push_str(&format!("{RESTRICTED}{reason}\n"));
    }
}

/// The stanza alone.
pub fn summary(description: &str) -> String {
    let is_own = |line: &&str| line.starts_with(SHA512) || line.starts_with(RESTRICTED);
    description.lines().filter(|line| !is_own(line)).map(|line| format!("{line}\n")).collect()
}

/// The SHA-512 of the file, in hexadecimal digits.
pub fn sha512(description: &str) -> Option<&str> {
    description.lines().find_map(|line| line.strip_prefix(SHA512))
}

/// Whether the package's own word is that it may not be given away.
pub fn is_restricted(description: &str) -> bool {
    description.lines().any(|line| line.starts_with(RESTRICTED))
}

/// The patterns of what the package needs to run.
pub(super) fn depends(description: &str) -> impl Iterator<Item = &str> {
    description.lines().filter_map(|line| line.strip_prefix("DEPENDS="))
}
