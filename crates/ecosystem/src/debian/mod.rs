//! Debian: source packages of a release, built with `dpkg-buildpackage`, published for apt.

pub mod architecture;
pub mod check;
pub mod deb822;
pub mod explain;
pub mod relation;
pub mod source;
pub mod universe;
pub mod version;
