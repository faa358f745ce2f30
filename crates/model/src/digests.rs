//! Digests of an output other than that of its file's SHA-256. The worker signs them with the statement of its build, so that a signer
//! can check what a coordinator says of a file that it never receives.

/// The SHA-512 of the file, in hexadecimal.
pub const SHA512: &str = "sha512";
/// The SHA-256 of the paths of its files, sorted: see [`text_of_files`].
pub const FILES: &str = "files";
/// The SHA-256 of the text that a signature of a pkgsrc package signs: `+PKG_HASH` (pkg_admin(1)).
pub const PKG_HASH: &str = "pkg-hash";

/// The SHA-256 of the main header of an RPM package, which its signature signs.
pub const HEADER: &str = "header";

/// The SHA-512 of each block of 64 KiB, one after another in hexadecimal: what [`PKG_HASH`] is made of. Absent for large files. Not
/// signed by the worker, who signs what follows from it.
pub const BLOCKS: &str = "blocks";

/// The SHA-256 of its entry for an index, without what the index adds about its file.
pub const ENTRY: &str = "entry";
/// The name of the binary package. Not a digest: the statement has it from the output.
pub const NAME: &str = "name";
/// The whole version of the binary package, as [`NAME`].
pub const VERSION: &str = "version";

/// The text of a list of paths whose digest is [`FILES`]. A path may have any character, so each has its length.
pub fn text_of_files(paths: &[String]) -> String {
    paths.iter().map(|path| format!("{} {path}\n", path.len())).collect()
}
