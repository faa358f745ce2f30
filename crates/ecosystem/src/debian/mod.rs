//! The Debian family.

pub mod deb_file;
