//! Benchmarks of pkgsrc's trees.

pub mod tree;
