//! Kilnyard: rebuilds whole trees of packages.

fn main() {}
