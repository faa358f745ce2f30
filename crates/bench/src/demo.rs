//! A whole set of packages: built, tested and published by `kilnyard build`, in a yard in which only the base root is
//! ready and every file is fetched. If a [`SetPeer`] is given, it builds the same sources, several at once.
//!
//! The set is that of the yard on the command line; `kilnyard demo` makes one. A first run, which is not counted,
//! fetches what is missing. A peer builds each source against the archive alone: it tests and publishes nothing, and
//! its packages do not use each other. The peer does less work; the figures show how long a person waits.

use crate::Trial;
use crate::child::{self, Usage};
use crate::error::{Context, Error, Kind, Result};
use crate::figures::{Report, Series, Unit, ratios};
use crate::overhead::{Peer, PeerBuild};
use crate::plan::{self, Forced};
use crate::scratch::Scratch;
use crate::subject;
use crate::yard::{Yard, store_error};
use crate::{interrupt, mirror};
use kilnyard_root::remove_folder;
use serde_json::{Map, json};
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

/// One run of all packages.
#[derive(Clone, Copy, Debug)]
struct Whole {
    wall_seconds: f64,
    cpu_seconds: f64,
}

/// Measures builds of the yard's set by Kilnyard, and by `peer` if there is one.
pub fn measure(yard: &Yard, trial: &Trial<'_>, peer: Option<&dyn Peer>) -> Result<Report> {
    yard.config.family.check_scanned(yard)?;
    let _lock = yard.lock()?;
    let ids = yard.ids();
    yard.config.family.ensure_layers(yard, &ids, interrupt::cancel(), &|text| trial.say(text))?;
    let scratch = Scratch::within(&yard.folder, Some(ids))?;
    let own = scratch.beside(yard, yard.config.clone())?;
    link_files(&yard.path("distfiles"), &own.path("distfiles"))?;
    trial.say("a first run fetches what is missing; it is not counted");
    build(&own)?;
    let builds = match peer {
        Some(peer) => prepared(peer, &scratch, &own)?,
        None => Vec::new(),
    };
    let packages = own.store()?.outputs().map_err(store_error)?.len();
    let at_once = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for pair in 1..=trial.pairs {
        subject::forget(&own)?;
        forget_layers(&own)?;
        let Usage { wall_seconds, cpu_seconds, .. } = build(&own)?;
        ours.push(Whole { wall_seconds, cpu_seconds });
        if !builds.is_empty() {
            theirs.push(all_of(&builds, at_once)?);
        }
        trial.say(format_args!("pair {pair} of {} measured", trial.pairs));
    }
    Ok(report(&own, packages, (peer.map_or("", Peer::name), at_once), &ours, &theirs))
}

/// Runs `kilnyard build` in its own process, as a user would.
fn build(yard: &Yard) -> Result<Usage> {
    child::measure(child::this_program(&yard.folder, &["build", "--no-scan", "--json"]), None, &[0])
}

/// Builds of all packages by a peer. The set must have outputs, which the orders name.
fn prepared(peer: &dyn Peer, scratch: &Scratch, yard: &Yard) -> Result<Vec<Box<dyn PeerBuild>>> {
    let distfiles = mirror::open_files(yard)?;
    let mut planned = plan::make(yard, &distfiles, &mut *yard.store()?, &Forced::All)?;
    let set = planned.workshop.clone();
    let graph = set.graph();
    let mut order = |id| {
        planned.stock.order(id, 1).map_err(|impossible| {
            Error::new(Kind::Packages, format!("{}: {}", graph.name(id), impossible.explanation))
        })
    };
    graph.packages().map(|id| peer.prepare(scratch, yard, &order(id)?)).collect()
}

/// Runs all builds, `at_once` of them in parallel.
fn all_of(builds: &[Box<dyn PeerBuild>], at_once: usize) -> Result<Whole> {
    let left = Mutex::new(builds.iter());
    let started = Instant::now();
    let one = || {
        let mut cpu_seconds = 0.0;
        loop {
            let next = left.lock().ok().and_then(|mut left| left.next());
            match next {
                Some(build) => cpu_seconds += build.cpu_seconds()?,
                None => return Ok(cpu_seconds),
            }
        }
    };
    let sums: Vec<Result<f64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..at_once).map(|_| scope.spawn(one)).collect();
        let lost = || Err(Error::new(Kind::Internal, "a thread of the benchmark panicked"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| lost())).collect()
    });
    let cpu_seconds = sums.into_iter().sum::<Result<f64>>()?;
    Ok(Whole { wall_seconds: started.elapsed().as_secs_f64(), cpu_seconds })
}

/// Hard-links all files of a folder, recursively.
pub fn link_files(from: &Path, to: &Path) -> Result<()> {
    let failed = format!("provide the files in {}", from.display());
    fs_err::create_dir_all(to).context(Kind::Machine, &failed)?;
    for entry in fs_err::read_dir(from).context(Kind::Machine, &failed)? {
        let entry = entry.context(Kind::Machine, &failed)?;
        let target = to.join(entry.file_name());
        match entry.file_type().context(Kind::Machine, &failed)? {
            kind if kind.is_dir() => link_files(&entry.path(), &target)?,
            kind if kind.is_file() => {
                fs_err::hard_link(entry.path(), target).context(Kind::Machine, &failed)?
            }
            _ => {}
        }
    }
    Ok(())
}

/// Removes the layers of dependencies, so that the next run makes them as a first one does.
fn forget_layers(yard: &Yard) -> Result<()> {
    let layers = Path::new(kilnyard_worker::DEPENDENCIES);
    if !yard.folder.join(layers).exists() {
        return Ok(());
    }
    remove_folder(&yard.folder, layers, &yard.ids())
        .context(Kind::Machine, "remove the layers of dependencies")
}

fn report(
    yard: &Yard,
    outputs: usize,
    (name, at_once): (&str, usize),
    ours: &[Whole],
    theirs: &[Whole],
) -> Report {
    let walls = |all: &[Whole]| all.iter().map(|whole| whole.wall_seconds).collect::<Vec<f64>>();
    let cpus = |all: &[Whole]| all.iter().map(|whole| whole.cpu_seconds).collect::<Vec<f64>>();
    let seconds = |key: &str, label: &str, values| Series::new(key, label, Unit::Seconds, values);
    let mut series = vec![
        seconds("wall_seconds", "the set, tested and published, wall", walls(ours)),
        seconds("cpu_seconds", "the set, tested and published, CPU", cpus(ours)),
    ];
    let mut is_met = None;
    if !theirs.is_empty() {
        let wall = ratios(&walls(ours), &walls(theirs));
        let wall = Series::new("wall_ratio", format!("wall, kilnyard / {name}"), Unit::Ratio, wall);
        let cpu = ratios(&cpus(ours), &cpus(theirs));
        let cpu = Series::new("cpu_ratio", format!("CPU, kilnyard / {name}"), Unit::Ratio, cpu);
        is_met = Some(wall.median() < 1.0 && cpu.median() < 1.0);
        let label = format!("the same sources by {name}, {at_once} at once");
        series.push(seconds(&format!("{name}_wall_seconds"), &format!("{label}, wall"), walls(theirs)));
        series.push(seconds(&format!("{name}_cpu_seconds"), &format!("{label}, CPU"), cpus(theirs)));
        series.extend([wall, cpu]);
    }
    let mut facts = Map::new();
    facts.insert("outputs".to_owned(), json!(outputs));
    facts.insert("at_once".to_owned(), json!(at_once));
    let notes = vec![format!("the set of {}: {outputs} package files", yard.folder.display())];
    let target = "less wall and CPU time than the peer".to_owned();
    Report { name: "demo", series, facts, notes, target, is_met }
}
