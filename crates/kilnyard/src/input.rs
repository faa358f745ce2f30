//! Files that commands are given.

use kilnyard_yard::unpack;
use std::io;
use std::path::Path;

/// Reads a file that may be packed, or standard input where it is called `-`.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    match path.as_os_str() == "-" {
        true => unpack::unpack(io::stdin().lock()),
        false => unpack::read(path),
    }
}
