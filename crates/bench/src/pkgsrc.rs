//! Benchmarks of pkgsrc trees.

pub mod tree;
