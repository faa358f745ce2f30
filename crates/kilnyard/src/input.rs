//! Files on the command line.

use kilnyard_yard::unpack;
use std::io;
use std::path::Path;

/// Reads a file, which may be compressed; `-` is standard input.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    match path.as_os_str() == "-" {
        true => unpack::unpack(io::stdin().lock()),
        false => unpack::read(path),
    }
}
