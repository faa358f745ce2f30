//! Build roots: an ordered list of operations that prints, dry-runs and executes
