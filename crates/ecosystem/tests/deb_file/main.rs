//! Reads packages that the package tool itself built, and what happens to them when bytes change.

mod content;
mod damaged;
mod mutated;
mod support;
