//! Binary packages of pkgsrc, made by real `tar` and real packers, and ones with something wrong.

mod content;
mod damaged;
mod summary;
mod support;
