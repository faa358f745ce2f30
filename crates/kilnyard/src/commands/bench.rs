//! `kilnyard bench`: measures Kilnyard on this machine. The crate `bench` has the benchmarks.

use super::{print, print_json};
use crate::error::Result;
use crate::plan::Planned;
use crate::run::view::{Snapshot, View, ViewEvent};
use crate::run::{Options, Run};
use crate::signals;
use crate::yard::Yard;
use kilnyard_bench::figures::Machine;
use kilnyard_bench::{BenchOptions, Runner, Trial};
use kilnyard_mirror::FileStore;
use kilnyard_model::result::PackageState;
use kilnyard_store::{RunState, Store};
use std::process::ExitCode;
use std::sync::Arc;

pub fn run(yard: impl FnOnce() -> Result<Yard>, options: &BenchOptions) -> Result<ExitCode> {
    signals::install();
    if let Some(workers) = &options.workers_of {
        return kilnyard_bench::work(workers).map(|()| ExitCode::SUCCESS);
    }
    let machine = Machine::now();
    let report =
        with_trial(options.pairs(), |trial| kilnyard_bench::measure(options, yard, trial, &machine))?;
    if options.json {
        return print_json(&report.as_json(&machine, options.pairs()));
    }
    print(&report.as_text(&machine, options.pairs()))
}

/// Runs a benchmark with the resources of this process that it needs.
pub fn with_trial<T>(pairs: u32, measure: impl FnOnce(&Trial<'_>) -> T) -> T {
    measure(&Trial {
        pairs,
        temporary: &std::env::temp_dir(),
        environment: &crate::environment_of_process(),
        progress: &|text| say!("{text}"),
        runner: &Driver,
    })
}

/// Runs plans like `kilnyard build`, without a view.
struct Driver;

impl Runner for Driver {
    fn run(
        &self,
        yard: &Yard,
        store: &mut dyn Store,
        planned: Planned,
        distfiles: Arc<FileStore>,
        until: &mut dyn FnMut(&str) -> bool,
    ) -> Result<RunState> {
        let run = Run { yard, store, planned, distfiles, options: Options::default() };
        Ok(run.run(&mut Watch { until, has_enough: false })?.state)
    }
}

/// Reports the start of each build, until the benchmark has seen enough.
struct Watch<'a> {
    until: &'a mut dyn FnMut(&str) -> bool,
    has_enough: bool,
}

impl View for Watch<'_> {
    fn see(&mut self, seen: &ViewEvent, _snapshot: &Snapshot) {
        if let ViewEvent::State { package, state: PackageState::Building, .. } = seen
            && !self.has_enough
        {
            self.has_enough = (self.until)(package);
        }
    }

    fn tick(&mut self, _snapshot: &Snapshot) {}

    fn wants_end(&self) -> bool {
        self.has_enough
    }
}
