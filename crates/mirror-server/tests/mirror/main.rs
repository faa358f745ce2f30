//! A mirror between real clients and an origin that does what a test wants.

mod origin;
mod registries;
mod serving;
mod sites;
