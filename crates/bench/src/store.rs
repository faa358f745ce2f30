//! The store of a large run: its start, the start of a new leader, and decisions, in a file or in a database.
//!
//! One run of 29,000 packages is recorded in full; each pair begins another one and decides about some packages in four
//! ways. Then a new leader reads the first run, as the coordinator does when it resumes it. Only the store is measured:
//! nothing is resolved, scheduled or built.
//!
//! A database gets a schema of its own, which is removed afterwards. Known downside: it stays if this process is killed; its
//! name begins with `kilnyard-bench`.

mod decisions;

use crate::config::Config;
use crate::config::store::StoreTable;
use crate::error::{Context, Error, Kind, Result};
use crate::figures::{Report, Series, Summary, Unit};
use crate::queries::{EPOCH_SECONDS, package_row, run_row};
use crate::scratch::Scratch;
use crate::yard::{Yard, store_error};
use crate::{BenchOptions, Trial, empty_yard};
use decisions::{Decider, one_by_one, together, whole_run};
use kilnyard_model::result::PackageState;
use kilnyard_store::{Holder, Number, PackageRow, Record, RunState, Store};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::time::Instant;

/// Packages of a run, as many as Debian has sources.
const PACKAGES: usize = 29_000;
/// Packages that are decided about in each way.
const DECIDED: usize = 300;
/// The events that are read at once, as by what follows a run.
const EVENTS_AT_ONCE: usize = 256;
/// The targets.
const BEGIN_SECONDS_MAX: f64 = 3.0;
const START_SECONDS_MAX: f64 = 2.0;
const DECISIONS_PER_SECOND_MIN: f64 = 2000.0;

/// How much is recorded.
#[derive(Clone, Copy)]
struct Amount {
    packages: usize,
    decided: usize,
}

/// What one pair measured.
struct Taken {
    begin_seconds: f64,
    start_seconds: f64,
    /// One by one, in batches of 8 and of 64, and as they come.
    decisions_per_second: [f64; 4],
    /// The decisions of a batch, as they come.
    come_together: f64,
    events_per_second: f64,
}

/// Runs the benchmark.
pub fn measure(options: &BenchOptions, trial: &Trial<'_>) -> Result<Report> {
    let scratch = Scratch::within(trial.temporary, None)?;
    let yard = empty_yard(&scratch, trial)?;
    let place = Place::of(yard, options)?;
    let amount = Amount { packages: PACKAGES, decided: DECIDED };
    trial.say(format_args!("recording a run of {PACKAGES} packages in {}", place.name()?));
    let open = || place.yard.store();
    let fill_seconds = fill(&open, amount)?;
    let mut taken = Vec::new();
    for pair in 1..=trial.pairs {
        taken.push(take(&open, amount)?);
        trial.say(format_args!("pair {pair} of {} measured", trial.pairs));
    }
    let (name, is_database) = (place.name()?, place.is_database);
    place.remove()?;
    Ok(report(&taken, fill_seconds, &name, is_database))
}

/// Where the store is.
struct Place {
    yard: Yard,
    /// Whether it is in a database, until it is removed.
    is_database: bool,
}

impl Place {
    fn of(yard: Yard, options: &BenchOptions) -> Result<Place> {
        let Some(url) = options.url.clone() else { return Ok(Place { yard, is_database: false }) };
        let absolute = |path: &Option<std::path::PathBuf>| {
            let found = path.as_deref().map(|path: &Path| fs_err::canonicalize(path)).transpose();
            found.context(Kind::Usage, "read the options of the database")
        };
        let schema = format!("kilnyard-bench-{}-{}", std::process::id(), crate::words::now_seconds() as u64);
        let store = StoreTable {
            url: Some(url),
            password_file: absolute(&options.password_file)?,
            certificates: absolute(&options.certificates)?,
            schema: Some(schema),
        };
        let config = Config { store, ..yard.config.clone() };
        let yard = Yard::of_parts(yard.folder.clone(), config, &yard.environment);
        Ok(Place { yard, is_database: true })
    }

    fn name(&self) -> Result<String> {
        match self.is_database {
            true => self.yard.store_name(),
            false => Ok("a file".to_owned()),
        }
    }

    fn remove(mut self) -> Result<()> {
        match std::mem::take(&mut self.is_database) {
            true => self.yard.remove_database(),
            false => Ok(()),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_database {
            // The benchmark has failed: its error matters.
            let _ = self.yard.remove_database();
        }
    }
}

type Open<'a> = &'a dyn Fn() -> Result<Box<dyn Store>>;

fn holder() -> Holder {
    Holder::named("benchmark")
}

fn rows(amount: Amount) -> Vec<PackageRow> {
    (0..amount.packages).map(|number| package_row(number, PackageState::Waiting)).collect()
}

/// Records the first run, with all builds and outputs.
fn fill(open: Open, amount: Amount) -> Result<f64> {
    let mut store = open()?;
    let began = Instant::now();
    let lead = store.lead(&holder()).map_err(store_error)?;
    let run = store.begin_run(&run_row(EPOCH_SECONDS), &rows(amount)).map_err(store_error)?;
    let mut decider = Decider::new(run, lead.next_build);
    whole_run(&mut *store, &mut decider, amount.packages)?;
    store.leave().map_err(store_error)?;
    Ok(began.elapsed().as_secs_f64())
}

fn take(open: Open, amount: Amount) -> Result<Taken> {
    let mut store = open()?;
    let lead = store.lead(&holder()).map_err(store_error)?;
    let rows = rows(amount);
    let began = Instant::now();
    let run = store.begin_run(&run_row(EPOCH_SECONDS), &rows).map_err(store_error)?;
    let begin_seconds = began.elapsed().as_secs_f64();
    let first = store.last_event().map_err(store_error)?;
    let mut decider = Decider::new(run, lead.next_build);
    let mut decisions_per_second = [0.0; 4];
    let decided = amount.decided;
    for (way, size) in [1, 8, 64].into_iter().enumerate() {
        let packages = way * decided..(way + 1) * decided;
        decisions_per_second[way] = one_by_one(&mut *store, &mut decider, packages, size)?;
    }
    let came = together(&mut *store, &mut decider, 3 * decided..4 * decided)?;
    decisions_per_second[3] = came.per_second;
    let events_per_second = read_events(&*store, first)?;
    let ended = Record::Run { run, state: RunState::Finished, at_seconds: EPOCH_SECONDS + 3600.0 };
    store.record(&[ended]).map_err(store_error)?;
    store.leave().map_err(store_error)?;
    drop(store);
    let start_seconds = start(open, amount)?;
    let come_together = came.batch_mean;
    Ok(Taken { begin_seconds, start_seconds, decisions_per_second, come_together, events_per_second })
}

/// Reads the events after this one. Returns how many a second.
fn read_events(store: &dyn Store, first: Number) -> Result<f64> {
    let (began, mut seq, mut count) = (Instant::now(), first, 0);
    loop {
        let events = store.events_since(seq, EVENTS_AT_ONCE).map_err(store_error)?;
        let Some(last) = events.last() else { break };
        seq = last.seq;
        count += events.len();
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

/// Becomes the leader over a new connection, and reads what a process reads that resumes the first run: for its plan, and for
/// its coordinator.
fn start(open: Open, amount: Amount) -> Result<f64> {
    let began = Instant::now();
    let mut store = open()?;
    let current = store.all_current().map_err(store_error)?.len();
    let last = store.last_builds().map_err(store_error)?.len();
    let measured =
        store.measured().map_err(store_error)?.len() + store.durations().map_err(store_error)?.len();
    store.lead(&holder()).map_err(store_error)?;
    store.last_run().map_err(store_error)?;
    let run = store.runs().map_err(store_error)?.last().map_or(0, |run| run.number);
    let mut read = [0; 2];
    // Once to compare the run with the plan, and once to resume it.
    for _ in 0..2 {
        let packages = store.packages(run).map_err(store_error)?.len();
        let builds = store.builds_in(run).map_err(store_error)?.len();
        read = [packages, builds];
    }
    let resumed = Record::Run { run, state: RunState::Running, at_seconds: EPOCH_SECONDS };
    store.record(&[resumed]).map_err(store_error)?;
    let seconds = began.elapsed().as_secs_f64();
    store.leave().map_err(store_error)?;
    let expected = amount.packages;
    if read != [expected; 2] || current != expected || last != expected || measured != 2 * expected {
        return Err(Error::new(Kind::Internal, format!("the store has lost something: {read:?}, {current}")));
    }
    Ok(seconds)
}

fn report(taken: &[Taken], fill_seconds: f64, name: &str, is_database: bool) -> Report {
    let values = |of: &dyn Fn(&Taken) -> f64| taken.iter().map(of).collect::<Vec<f64>>();
    let rate = |key: &str, label: &str, way: usize| {
        let values = values(&|taken| taken.decisions_per_second[way]);
        Series::new(format!("{key}_decisions_per_second"), label, Unit::PerSecond, values)
    };
    let series = vec![
        Series::new("begin_seconds", "begin of a run", Unit::Seconds, values(&|taken| taken.begin_seconds)),
        Series::new(
            "start_seconds",
            "a new leader's start",
            Unit::Seconds,
            values(&|taken| taken.start_seconds),
        ),
        rate("single", "decisions one by one", 0),
        rate("batch_8", "decisions in batches of 8", 1),
        rate("batch_64", "decisions in batches of 64", 2),
        rate("coming", "decisions as they come", 3),
        Series::new(
            "events_per_second",
            "events read",
            Unit::PerSecond,
            values(&|taken| taken.events_per_second),
        ),
    ];
    let together = Summary::of(&values(&|taken| taken.come_together)).map(|summary| summary.median);
    let mut facts = Map::new();
    facts.insert("packages".to_owned(), json!(PACKAGES));
    facts.insert("decisions".to_owned(), json!(DECIDED * decisions::OF_A_PACKAGE));
    facts.insert("is_database".to_owned(), Value::Bool(is_database));
    facts.insert("recorded_seconds".to_owned(), json!(fill_seconds));
    facts.insert("coming_batch_mean".to_owned(), json!(together));
    let is_met = series[0].median() <= BEGIN_SECONDS_MAX
        && series[1].median() <= START_SECONDS_MAX
        && taken.iter().all(|taken| taken.decisions_per_second[3] > 0.0)
        && Summary::of(&series[5].values).is_some_and(|rate| rate.median >= DECISIONS_PER_SECOND_MIN);
    let notes = vec![format!(
        "{PACKAGES} packages in {name}; recording all builds of a run took {fill_seconds:.1} s; as they come, \
         {:.0} decisions were together",
        together.unwrap_or_default()
    )];
    Report {
        name: "store",
        series,
        facts,
        notes,
        target: format!(
            "a run begins within {BEGIN_SECONDS_MAX} s and a leader starts within {START_SECONDS_MAX} s; \
             {DECISIONS_PER_SECOND_MIN} decisions a second as they come"
        ),
        is_met: Some(is_met),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debian::empty_configuration;
    use kilnyard_family::FAMILIES;

    #[test]
    fn a_small_run_is_recorded_and_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kilnyard.toml");
        let config = Config::parse(&empty_configuration(), &path, FAMILIES).unwrap();
        let yard = Yard::of_parts(folder.path().to_owned(), config, &Default::default());
        let open = || yard.store();
        let amount = Amount { packages: 40, decided: 10 };
        let fill_seconds = fill(&open, amount).unwrap();
        let taken = [take(&open, amount).unwrap(), take(&open, amount).unwrap()];
        let report = report(&taken, fill_seconds, "a file", false);
        assert!(report.series.iter().all(|series| series.values.len() == 2), "{report:?}");
        assert!(
            report.series.iter().flat_map(|series| &series.values).all(|value| *value > 0.0),
            "{report:?}"
        );
        let runs = open().unwrap().runs().unwrap();
        assert_eq!(runs.len(), 3);
        let store = open().unwrap();
        let counts = store.counts(runs[0].number).unwrap();
        assert_eq!(counts, [(PackageState::Built, 40)]);
    }
}
