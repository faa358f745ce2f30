//! Benchmarks of pkgsrc trees.

pub mod signing;
pub mod tree;
