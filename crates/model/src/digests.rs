//! Digests of an output other than that of its file's SHA-256. The worker signs them with the statement of its build, so that a signer
//! can check what a coordinator says of a file that it never receives.

/// The SHA-512 of the file, in hexadecimal.
pub const SHA512: &str = "sha512";
/// The SHA-256 of the paths of its files: sorted, each with a line feed.
pub const FILES: &str = "files";
/// The SHA-256 of the text that a signature of a pkgsrc package signs: `+PKG_HASH` (pkg_admin(1)).
pub const PKG_HASH: &str = "pkg-hash";

/// The text of a list of paths whose digest is [`FILES`].
pub fn text_of_files(paths: &[String]) -> String {
    paths.iter().map(|path| format!("{path}\n")).collect()
}
