//! The stamp that names the root of a device.

use fs_err as fs;
use std::io::{self, Write};
use std::path::Path;

/// The stamp's file, outside the tree that the root sees.
const FILE: &str = "stamp";

/// Stamps the file system mounted at a folder with the name of its root. Fails if it has a stamp: it was used before.
pub(super) fn stamp(folder: &Path, name: &str) -> io::Result<()> {
    let path = folder.join(FILE);
    match std::fs::File::create_new(&path) {
        Ok(mut file) => file.write_all(name.as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let owner = fs::read_to_string(&path).unwrap_or_default();
            Err(io::Error::other(format!("the device was used before: it has the stamp of {owner}")))
        }
        Err(error) => Err(error),
    }
}
