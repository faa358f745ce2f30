//! Benchmarks: Kilnyard measured on this machine.
//!
//! What is compared is measured in pairs, in turn and in one run, so that what else the machine does falls
//! on both; the median, the smallest and the largest value are reported, and ratios pair by pair. CPU time is
//! user and system time of all processes that were waited for, which other load changes far less than wall
//! time. Every measurement happens in a folder of its own that is removed afterwards; of a yard, what is missing
//! for a build (the base, distfiles) is brought, and nothing else is changed.
//!
//! A benchmark prints nothing and reads no environment: the program gives it a [`Trial`] and gets a
//! [`figures::Report`]. Runs are the program's too, so that what is measured is what people use.
//!
//! Known downside: a benchmark of whole builds needs a yard with a mirror that answers.

pub mod check;
mod child;
mod convert;
pub mod fakeroot;
pub mod figures;
pub mod monitor;
pub mod overhead;
pub mod publish;
pub mod queries;
pub mod roots;
pub mod schedule;
mod scratch;
mod subject;
mod synthetic;
pub mod tree;

// What a benchmark measures is the yard's, by the yard's names.
use kilnyard_mirror::DistfileStore;
use kilnyard_store::{RunState, Store};
use kilnyard_yard::{
    config, environment, error, family, files, interrupt, key, mirror, plan, report, shape, unpack, words,
    yard,
};
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

/// What a benchmark is given by the program.
#[derive(Clone, Copy)]
pub struct Trial<'a> {
    /// How many pairs are measured.
    pub pairs: u32,
    /// Where this machine keeps temporary files.
    pub temporary: &'a Path,
    /// The variables of the environment that a yard may use.
    pub environment: &'a environment::Environment,
    /// Takes a line on what has been measured.
    pub progress: &'a dyn Fn(&str),
    /// What runs a plan.
    pub runner: &'a dyn Runner,
}

impl Trial<'_> {
    /// Reports what has been measured.
    fn say(&self, what: impl Display) {
        (self.progress)(&what.to_string());
    }
}

/// Runs plans as `kilnyard build` does.
pub trait Runner {
    /// Runs this plan, and ends as soon as a build has begun where `until` wants no more: it gets the name of each package
    /// whose build begins, and is true when that is enough.
    fn run(
        &self,
        yard: &yard::Yard,
        store: &mut dyn Store,
        planned: plan::Planned,
        distfiles: Arc<DistfileStore>,
        until: &mut dyn FnMut(&str) -> bool,
    ) -> error::Result<RunState>;
}

/// An error if a signal asked for the end.
fn go_on() -> error::Result<()> {
    match interrupt::count() {
        0 => Ok(()),
        _ => Err(error::Error::new(error::Kind::Interrupted, "interrupted; nothing is left")),
    }
}
