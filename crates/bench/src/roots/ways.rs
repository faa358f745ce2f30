//! Dependencies as layers: of new packages, of known packages, and of a known set.

use super::super::subject::Subject;
use super::clock::{Clock, Spent};
use crate::error::{Context, Error, Kind, Result};
use crate::interrupt;
use crate::worker;
use crate::yard::Yard;
use kilnyard_mirror::FileStore;
use kilnyard_model::attempt::Attempt;
use kilnyard_model::result::{Failure, FailureKind};
use kilnyard_process::weight::Weights;
use kilnyard_protocol::Lease;
use kilnyard_root::{IdMap, Roots, remove_folder};
use kilnyard_schedule::Files;
use kilnyard_worker::{SETS, Settings, Share, Stacked, Worker};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Disk space for layers. Those of one package are never too large for a benchmark.
const LAYERS_BYTES_MAX: u64 = u64::MAX;

/// The cost of dependencies as layers.
#[derive(Default)]
pub struct Ways {
    /// Unpacked and configured for the first time. Absent if there are no layers.
    pub first: Option<Spent>,
    /// Configured from existing layers of packages.
    pub packages_seen: Vec<Spent>,
    /// The existing layer of the set used unchanged.
    pub set_seen: Vec<Spent>,
    /// Why there are no layers.
    pub refused: Option<String>,
}

/// Makes the layers.
pub struct Maker {
    settings: Settings,
    lease: Lease,
    ids: IdMap,
    distfiles: Arc<FileStore>,
}

impl Ways {
    /// Makes the layers for the first time. Returns the maker for further rounds, unless there are no layers.
    pub fn begin(
        yard: &Yard,
        ids: &IdMap,
        subject: &Subject,
        can_stack: bool,
    ) -> Result<(Ways, Option<Maker>)> {
        let refused = |why: &str| (Ways { refused: Some(why.to_owned()), ..Ways::default() }, None);
        if !can_stack {
            return Ok(refused("overlays do not work on this machine"));
        }
        let maker = Maker::new(yard, ids, subject)?;
        let (first, stacked) = maker.stack()?;
        if stacked.is_none() {
            return Ok(refused("the package needs nothing that could be a layer"));
        }
        Ok((Ways { first: Some(first), ..Ways::default() }, Some(maker)))
    }

    /// Measures layers of known packages and of a known set once. Returns the layers of a root with all
    /// dependencies, and the cost of having them when the set is known.
    pub fn round(&mut self, maker: &Maker) -> Result<Option<(Vec<String>, Spent)>> {
        maker.forget_sets()?;
        self.packages_seen.push(maker.stack()?.0);
        let (spent, stacked) = maker.stack()?;
        self.set_seen.push(spent);
        Ok(stacked.map(|stacked| (stacked.layers().to_vec(), spent)))
    }
}

impl Maker {
    fn new(yard: &Yard, ids: &IdMap, subject: &Subject) -> Result<Maker> {
        let own = worker::settings(yard);
        let settings = Settings {
            ids: ids.clone(),
            roots: Roots { flushes: own.roots.flushes, ..Roots::default() },
            works_in_memory: false,
            layers_bytes_max: LAYERS_BYTES_MAX,
            kept_bytes_max: 0,
            failed_roots_max: 0,
            nesting: BTreeSet::new(),
            ..own
        };
        let lease = Lease {
            build: 1,
            attempt: Attempt::from_bytes([1; 16]),
            rank_seconds: 0.0,
            run: 1,
            slot: 0,
            files: Files::Disk,
            written_bytes: 0,
            order: subject.order.clone(),
            seen: Vec::new(),
            checks_reproducible: false,
            to_test: None,
            is_captured: false,
            to_check: Vec::new(),
        };
        let distfiles = Arc::new(crate::mirror::open_files(yard)?);
        Ok(Maker { settings, lease, ids: ids.clone(), distfiles })
    }

    /// Provides the dependencies of a build as layers, by a newly started worker. The CPU time includes the
    /// removal of temporary files.
    fn stack(&self) -> Result<(Spent, Option<Stacked>)> {
        super::super::check_interrupt()?;
        let worker = Worker::new(self.settings.clone(), self.distfiles.clone());
        worker.sweep().context(Kind::Machine, "check the layers of the benchmark")?;
        let share = Share { membership: Weights::find_among("bench", &[]).begin(1), jobserver: None };
        let clock = Clock::start();
        let stacked = worker.stack(&self.lease, &share, interrupt::cancel()).map_err(failed)?;
        let wall_seconds = clock.spent().wall_seconds;
        drop(worker);
        Ok((Spent { wall_seconds, ..clock.spent() }, stacked))
    }

    fn forget_sets(&self) -> Result<()> {
        let failed = "remove the sets of the benchmark";
        remove_folder(&self.settings.yard, Path::new(SETS), &self.ids).context(Kind::Machine, failed)
    }
}

fn failed(failure: Failure) -> Error {
    if failure.kind == FailureKind::Cancelled {
        return Error::new(Kind::Interrupted, "interrupted; all temporary files are removed");
    }
    let mut error = Error::new(Kind::Machine, "failed to make layers of the dependencies");
    error.causes.push(failure.message);
    error.causes.extend(failure.lines);
    error
}
