//! Whose a device is.

use fs_err as fs;
use std::io::{self, Write};
use std::path::Path;

/// The file of a device that says so. It lies beside what a root sees.
const FILE: &str = "stamp";

/// Says that the file system mounted at a folder is that of a root. One that was another root's is not fresh, and an error.
pub(super) fn stamp(folder: &Path, name: &str) -> io::Result<()> {
    let path = folder.join(FILE);
    match std::fs::File::create_new(&path) {
        Ok(mut file) => file.write_all(name.as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let owner = fs::read_to_string(&path).unwrap_or_default();
            Err(io::Error::other(format!("the device is not fresh: it has the stamp of {owner}")))
        }
        Err(error) => Err(error),
    }
}
