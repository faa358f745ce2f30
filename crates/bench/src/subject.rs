//! The package that a benchmark builds, in a yard of its own.

use super::scratch::Scratch;
use crate::config::{OutputTests, Packages};
use crate::error::{Context, Error, Kind, Result};
use crate::plan::{self, Forced};
use crate::yard::{Yard, store_error};
use crate::{interrupt, mirror, worker};
use kilnyard_mirror::{Sha256Hex, Wanted};
use kilnyard_model::order::{BuildOrder, CommandOrder, Input};
use kilnyard_process::{End, Log, read_log};
use kilnyard_worker::RootFolder;
use std::path::Path;

/// Number of log lines shown for a failed command.
const LINES_SHOWN: usize = 6;

/// The build of the package.
pub struct Subject {
    pub order: BuildOrder,
    /// The layers of its root, relative to the scratch yard, uppermost first.
    pub layers: Vec<String>,
}

/// Makes a scratch yard inside another yard, for one package whose outputs are not tested.
pub fn scratch_yard(scratch: &Scratch, outer: &Yard, package: &str) -> Result<Yard> {
    let mut config = outer.config.clone();
    config.packages = Packages::Some(vec![package.to_owned()]);
    config.packages_file = None;
    config.build.test = OutputTests::Never;
    scratch.beside(outer, config)
}

impl Subject {
    /// Makes the order of the build and puts its inputs into the scratch yard. Fetches missing ones.
    pub fn prepare(yard: &Yard, outer: &Yard, package: &str) -> Result<Subject> {
        let (kept, own) = (mirror::open_files(outer)?, mirror::open_files(yard)?);
        let mut planned = plan::make(yard, &own, &mut *yard.store()?, &Forced::Nothing)?;
        let workshop = planned.workshop;
        let left_out = || {
            let known = workshop.left_out().iter().find(|left| left.name == package);
            let why = known.map_or_else(
                || format!("the release has no source package {package}"),
                |left| left.explanation.clone(),
            );
            Error::usage(why).hint("another package: --package NAME")
        };
        let id = workshop.graph().find(package).ok_or_else(left_out)?;
        let order = planned.stock.order(id, 1).map_err(|impossible| Error::usage(impossible.explanation))?;
        for input in &order.root.inputs {
            let failed = format!("provide {}", input.name);
            let hash = hash_of(input)?;
            // Files of sources are put there by the plan.
            if own.size_bytes(&hash) == Some(input.size_bytes) {
                continue;
            }
            let wanted = Wanted {
                urls: input.urls.clone(),
                sha256: hash.clone(),
                size_bytes: input.size_bytes,
                name: input.name.clone(),
            };
            let from = kept.ensure(&wanted, &|_| {}, interrupt::cancel()).context(Kind::Machine, &failed)?;
            let to = own.path(&hash);
            fs_err::create_dir_all(to.parent().unwrap_or(Path::new("."))).context(Kind::Machine, &failed)?;
            fs_err::hard_link(from, to).context(Kind::Machine, &failed)?;
        }
        let layers = worker::local(yard, &order.root, true)?.layers;
        Ok(Subject { order, layers })
    }
}

/// Puts the inputs of an order into its root.
pub fn provide(yard: &Yard, root: &RootFolder, order: &BuildOrder) -> Result<()> {
    let distfiles = mirror::open_files(yard)?;
    let file_of =
        |input: &Input| hash_of(input).map_or_else(|_| Default::default(), |hash| distfiles.path(&hash));
    root.provide(&order.root.inputs, &order.root.texts, &file_of)
        .context(Kind::Machine, "put the inputs into a root")
}

/// Removes the results of the last build, so that the next one starts from nothing.
pub fn forget(yard: &Yard) -> Result<()> {
    let failed = "clean the benchmark's yard";
    {
        let store = yard.store()?;
        let distfiles = mirror::open_files(yard)?;
        for row in store.outputs().map_err(store_error)? {
            let hash = Sha256Hex::parse(&row.output.sha256).or_internal(failed)?;
            fs_err::remove_file(distfiles.path(&hash)).or_internal(failed)?;
        }
    }
    for name in ["state/kilnyard.db", "state/kilnyard.db-wal", "state/kilnyard.db-shm"] {
        let path = yard.path(name);
        if path.exists() {
            fs_err::remove_file(path).or_internal(failed)?;
        }
    }
    fs_err::remove_dir_all(yard.repository()).or_internal(failed)?;
    Yard::make_folders(&yard.folder)
}

/// The commands with which the package manager installs the dependencies of an order.
pub fn installing(order: &BuildOrder) -> Result<Vec<CommandOrder>> {
    let rules = kilnyard_ecosystem::rules(&order.family).or_internal("install the dependencies")?;
    Ok(match &order.root.depends[..] {
        [] => Vec::new(),
        depends => rules.install(&depends.iter().collect::<Vec<_>>()),
    })
}

/// Runs a command in a root. Returns its log.
pub fn perform(yard: &Yard, root: &RootFolder, command: &CommandOrder) -> Result<String> {
    let path = yard.path("logs/bare.log");
    let failed = "write the log of a command";
    let config = &yard.config;
    let mut log = Log::create(&path, config.log_limits()).context(Kind::Machine, failed)?;
    // Nothing else runs at the time.
    let cores = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let sandbox = root.sandbox(&command.with_jobs(cores));
    let limits = config.limits().limits(None);
    let cancel = interrupt::cancel();
    let outcome = kilnyard_process::run(&sandbox, &mut log, limits, cancel, None, &mut |_| {});
    log.finish().context(Kind::Machine, failed)?;
    let text = read_log(&path).or_internal(failed)?;
    match outcome.end {
        End::Exit(0) => Ok(text),
        End::Cancelled => Err(Error::new(Kind::Interrupted, "interrupted; all temporary files are removed")),
        end => {
            let message = format!("a command in a root of the benchmark failed: {end:?}");
            let mut error = Error::new(Kind::Machine, message);
            error.causes.extend(last_lines(&text));
            Err(error)
        }
    }
}

/// The last lines of a failed command's log, for its error.
pub fn last_lines(log: &str) -> Vec<String> {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LINES_SHOWN)..].iter().map(|line| (*line).to_owned()).collect()
}

fn hash_of(input: &Input) -> Result<Sha256Hex> {
    Sha256Hex::parse(&input.sha256).or_internal(format!("provide {}", input.name))
}
