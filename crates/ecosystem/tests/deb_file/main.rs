//! Reads packages built by the package tool itself, and corrupted variants of them.

mod content;
mod damaged;
mod mutated;
mod support;
