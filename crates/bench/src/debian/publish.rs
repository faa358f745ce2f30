//! Publishes a repository of 2,000 packages, completely and after one package has changed.

use super::{empty_yard, synthetic};
use crate::Trial;
use crate::child::all_cpu_seconds;
use crate::error::{Context, Error, Kind, Result};
use crate::figures::{Report, Series, Unit, ratios};
use crate::mirror;
use crate::scratch::Scratch;
use crate::yard::{Yard, store_error};
use kilnyard_ecosystem::debian::source::Sources;
use kilnyard_ecosystem::debian::universe::Universe;
use kilnyard_ecosystem::debian::{Base, Published, Workshop};
use kilnyard_family::debian::{self, Debian};
use kilnyard_mirror::FileStore;
use kilnyard_store::{Current, Holder, Record, Store};
use kilnyard_yard::family::PublicationTerms;
use kilnyard_yard::signing::Signing;
use serde_json::{Map, json};
use std::time::Instant;

/// Number of packages.
const PACKAGES: usize = 2000;
/// Maximum CPU time of publishing after one package has changed.
const CPU_SECONDS_MAX: f64 = 1.0;

/// Runs the benchmark in a yard of its own.
pub fn measure(trial: &Trial<'_>) -> Result<Report> {
    let pairs = trial.pairs;
    let scratch = Scratch::within(trial.temporary, None)?;
    let yard = empty_yard(&scratch, trial)?;
    kilnyard_yard::init::make_key(&yard.home)?;
    let debian: &Debian = yard.config.family.require(debian::TITLE)?;
    let settings = debian.settings();
    let universe = Universe::new(settings.context());
    // The packages are in the set although no index has them: packages that could not be built stay published.
    let names: Vec<String> = (0..PACKAGES).map(|number| synthetic::current(number, 1).package).collect();
    let workshop =
        Workshop::new(settings, universe, Sources::default(), &names, Base::default(), Published::default());
    let mut store = yard.store()?;
    store.lead(&Holder::named("benchmark")).map_err(store_error)?;
    let mut bench = Bench { store, distfiles: mirror::open_files(&yard)?, yard, workshop };
    bench.put((0..PACKAGES).map(|number| synthetic::current(number, 1)).collect())?;
    let (mut whole, mut changed, mut changed_wall) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 1..=pairs {
        crate::check_interrupt()?;
        fs_err::remove_dir_all(bench.yard.repository()).or_internal("clean the repository")?;
        Yard::make_folders(&bench.yard.folder)?;
        whole.push(bench.publish()?.0);
        bench.put(vec![synthetic::current(PACKAGES / 2, pair + 1)])?;
        let (cpu, wall) = bench.publish()?;
        changed.push(cpu);
        changed_wall.push(wall);
    }
    let ratio = ratios(&changed, &whole);
    let changed = Series::new("changed_cpu_seconds", "after one change, CPU", Unit::Seconds, changed);
    let is_met = changed.median() < CPU_SECONDS_MAX;
    let mut facts = Map::new();
    facts.insert("packages".to_owned(), json!(PACKAGES));
    Ok(Report {
        name: "publish",
        series: vec![
            Series::new("whole_cpu_seconds", "everything, CPU", Unit::Seconds, whole),
            changed,
            Series::new("changed_wall_seconds", "after one change, wall", Unit::Seconds, changed_wall),
            Series::new("ratio", "CPU, after one change / everything", Unit::Ratio, ratio),
        ],
        facts,
        notes: vec![format!("a repository of {PACKAGES} packages")],
        target: format!("less than {CPU_SECONDS_MAX} s of CPU time after one package has changed"),
        is_met: Some(is_met),
    })
}

struct Bench {
    yard: Yard,
    store: Box<dyn Store>,
    distfiles: FileStore,
    workshop: Workshop,
}

impl Bench {
    /// Records packages as current, as if they had been built.
    fn put(&mut self, packages: Vec<Current>) -> Result<()> {
        for package in &packages {
            synthetic::write(&self.distfiles, package.build as usize - 1, package.revision)?;
        }
        let records: Vec<Record> = packages.into_iter().map(Record::Outputs).collect();
        self.store.record(&records).map_err(store_error)
    }

    /// Publishes. Returns CPU and wall time in seconds.
    fn publish(&self) -> Result<(f64, f64)> {
        let (cpu, started) = (all_cpu_seconds(), Instant::now());
        let signing = Signing::open(&self.yard)?;
        let public_key = signing.public_armored().to_owned();
        let terms = PublicationTerms { public_key, ..Default::default() };
        let debian = self.yard.config.family.require(debian::TITLE)?;
        let planned =
            debian::publish::make(&self.yard, debian, &*self.store, &self.workshop, &self.distfiles, &terms)?;
        let published = planned.publish(&signing).context(Kind::Machine, "publish")?;
        let used = (all_cpu_seconds() - cpu, started.elapsed().as_secs_f64());
        if !published.is_changed || published.packages != PACKAGES as u64 {
            return Err(Error::new(Kind::Internal, "publishing had no effect"));
        }
        Ok(used)
    }
}
