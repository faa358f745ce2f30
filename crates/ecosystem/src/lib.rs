//! One module per package family: scan, version rules, stages, outputs

pub mod debian;
