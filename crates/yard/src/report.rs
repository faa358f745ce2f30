//! The report of a run, made from the store.

use crate::causes::{Cause, KnownCause, by_cause};
use crate::commits::{self, Change};
use crate::error::{Context, Kind, Result};
use crate::estimates::taken;
use crate::expectations::{Judgement, judge, success_note};
use crate::family::Published;
use crate::words::{self, now_seconds};
use crate::yard::{Yard, store_error};
use kilnyard_ecosystem::Ecosystem;
use kilnyard_model::cuts::{Cut, StandIn};
use kilnyard_model::graph::PackageId;
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{Measures, PackageState as State};
use kilnyard_schedule::{Bound, Machine, Work};
use kilnyard_store::{BuildRow, PackageRow, RunCommit, RunRow, RunState, Store};
use kilnyard_web::{
    Counts, CycleCut, LeftOut, PackageState, PathStep, Report, ReportCause, ReportChange, ReportCommit,
    ReportFailure, ReportOutput, ReportPackage, ReportStage, ReportStalls, RepositoryFacts,
};
use std::collections::{HashMap, HashSet};

/// Figures for the summary after a run.
pub struct Figures {
    /// Time from start to end.
    pub wall_seconds: f64,
    /// CPU time of all stages.
    pub cpu_seconds: f64,
    /// Minimum time of the run, estimated before it.
    pub estimated_bound_seconds: f64,
    /// Minimum time according to the measured builds. Absent if the run itself was faster.
    pub bound_seconds: Option<f64>,
    /// Failed packages with their reasons.
    pub failures: Vec<(String, Reason)>,
    /// Packages that failed as the yard's owner expected, with their reasons, and the owner's.
    pub expected_failures: Vec<(String, Reason, Option<String>)>,
    /// Packages that were built although they were expected to fail.
    pub unexpected_successes: Vec<String>,
    /// Packages of which two builds differ.
    pub not_reproducible: Vec<String>,
}

/// The figures of the last run. Absent if there was none.
pub fn figures(yard: &Yard, store: &dyn Store, workshop: &dyn Ecosystem) -> Result<Option<Figures>> {
    let Some(run) = store.last_run().map_err(store_error)? else { return Ok(None) };
    let facts = Facts::read(yard, store, workshop, &run)?;
    let failed = facts.rows.iter().filter(|row| row.state == State::Failed);
    let (mut failures, mut expected_failures) = (Vec::new(), Vec::new());
    for row in failed {
        match yard.config.settings_of(&row.name).expected_failure {
            Some(expected) => {
                expected_failures.push((row.name.clone(), row.reason.clone(), expected.because));
            }
            None => failures.push((row.name.clone(), row.reason.clone())),
        }
    }
    Ok(Some(Figures {
        wall_seconds: wall_seconds(&run),
        cpu_seconds: facts.work_cpu_seconds(),
        estimated_bound_seconds: run.bound_seconds,
        bound_seconds: facts.bound_seconds(),
        failures,
        expected_failures,
        unexpected_successes: facts.judgement().successes,
        not_reproducible: facts.not_reproducible(),
    }))
}

/// Reads the minimum time according to a run's builds from its report: computing it would require a resolved
/// set.
pub fn bound_seconds(yard: &Yard, run: u64) -> Option<f64> {
    #[derive(serde::Deserialize)]
    struct Bounded {
        run: u64,
        bound_seconds: Option<f64>,
    }
    [WHOLE.to_owned(), format!("{WHOLE}/{PART_PREFIX}{run}")].iter().find_map(|folder| {
        let text = fs_err::read(yard.path(&format!("{folder}/report.json"))).ok()?;
        let bounded: Bounded = serde_json::from_slice(&text).ok()?;
        bounded.bound_seconds.filter(|_| bounded.run == run)
    })
}

fn wall_seconds(run: &RunRow) -> f64 {
    run.ended_seconds.unwrap_or_else(now_seconds) - run.started_seconds
}

fn cpu_seconds(build: &BuildRow) -> f64 {
    build.stages.iter().map(|stage| stage.cpu_seconds).sum()
}

/// Writes the report of the last run and returns its folder, relative to the yard. A run of a part of the set has a
/// folder of its own: the report of the whole set stays as it is.
pub fn write(
    yard: &Yard,
    store: &dyn Store,
    workshop: &dyn Ecosystem,
    published: Option<&Published>,
) -> Result<String> {
    let Some(run) = store.last_run().map_err(store_error)? else { return Ok(WHOLE.to_owned()) };
    let mut facts = Facts::read(yard, store, workshop, &run)?;
    if let Some(before) = commits::run_before(store, &run)? {
        facts.changes = commits::between(yard, &before.commits, &run.commits, None);
        facts.compared_run = Some(before.number);
    }
    let folder = facts.folder.clone();
    facts.write_plain_logs()?;
    let report = facts.report(published);
    kilnyard_web::write(&report, &yard.path(&folder)).context(Kind::Machine, "write the report")?;
    remove_old_parts(yard)?;
    Ok(folder)
}

/// The folder with the report of the last run of the whole set.
pub const WHOLE: &str = "report";
/// In that folder, prefix of the reports of partial runs; the run's number follows.
const PART_PREFIX: &str = "run-";
/// Number of partial reports kept. One of a few packages takes about 100 KiB, with plain logs a few MiB at
/// most.
const PARTS_MAX: usize = 20;

/// The report folder for a run of these packages.
fn folder_of(run: u64, rows: &[PackageRow], workshop: &dyn Ecosystem) -> String {
    let names: HashSet<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    let graph = workshop.graph();
    match graph.packages().all(|id| names.contains(graph.name(id))) {
        true => WHOLE.to_owned(),
        false => format!("{WHOLE}/{PART_PREFIX}{run}"),
    }
}

/// Removes the oldest partial reports, so that they do not accumulate.
fn remove_old_parts(yard: &Yard) -> Result<()> {
    let entries = fs_err::read_dir(yard.path(WHOLE)).into_iter().flatten().flatten();
    let number =
        |entry: &fs_err::DirEntry| entry.file_name().to_str()?.strip_prefix(PART_PREFIX)?.parse::<u64>().ok();
    let mut parts: Vec<u64> = entries.filter_map(|entry| number(&entry)).collect();
    parts.sort_unstable();
    for run in &parts[..parts.len().saturating_sub(PARTS_MAX)] {
        let folder = yard.path(&format!("{WHOLE}/{PART_PREFIX}{run}"));
        fs_err::remove_dir_all(folder).context(Kind::Machine, "remove an old report")?;
    }
    Ok(())
}

/// Number of failed builds whose logs are copied as plain text.
const PLAIN_LOGS_MAX: usize = 500;

/// Everything that the report of a run is made from.
struct Facts<'a> {
    yard: &'a Yard,
    workshop: &'a dyn Ecosystem,
    run: &'a RunRow,
    /// The report's folder, relative to the yard.
    folder: String,
    rows: Vec<PackageRow>,
    builds: HashMap<String, Vec<BuildRow>>,
    outputs: HashMap<String, Vec<ReportOutput>>,
    /// The run that commits are compared with, and the commits since then.
    compared_run: Option<u64>,
    changes: Vec<Change>,
}

/// The failures of packages by cause.
fn causes<'a>(failed: impl Iterator<Item = &'a PackageRow>, known: &[KnownCause]) -> Vec<ReportCause> {
    let causes = by_cause(failed.map(|row| (row.name.as_str(), &row.reason)), known);
    let shown = |cause: Cause| ReportCause {
        packages: cause.names.iter().map(|name| (*name).to_owned()).collect(),
        title: cause.title,
    };
    causes.into_iter().map(shown).collect()
}

fn shown_commit(RunCommit { source, commit }: &RunCommit) -> ReportCommit {
    ReportCommit { source: source.clone(), commit: commit.clone() }
}

fn shown_change(change: &Change) -> ReportChange {
    let Change { source, commit, author, date_seconds, lines } = change.clone();
    ReportChange { source, commit, author, date: words::date(date_seconds), lines }
}

impl Facts<'_> {
    fn read<'a>(
        yard: &'a Yard,
        store: &dyn Store,
        workshop: &'a dyn Ecosystem,
        run: &'a RunRow,
    ) -> Result<Facts<'a>> {
        let mut builds: HashMap<String, Vec<BuildRow>> = HashMap::new();
        for build in store.builds_in(run.number).map_err(store_error)? {
            builds.entry(build.package.clone()).or_default().push(build);
        }
        let mut outputs: HashMap<String, Vec<ReportOutput>> = HashMap::new();
        for row in store.outputs().map_err(store_error)? {
            outputs.entry(row.package).or_default().push(ReportOutput {
                name: row.output.name,
                version: row.output.version,
                architecture: row.output.architecture,
                size_bytes: row.output.size_bytes,
            });
        }
        let rows = store.packages(run.number).map_err(store_error)?;
        let folder = folder_of(run.number, &rows, workshop);
        Ok(Facts {
            yard,
            workshop,
            run,
            folder,
            rows,
            builds,
            outputs,
            compared_run: None,
            changes: Vec::new(),
        })
    }

    /// Writes the logs of failed builds as plain text into the report, and removes those of an earlier report.
    fn write_plain_logs(&self) -> Result<()> {
        let failed = "write the logs of the report";
        // A browser can show these directly; the originals are compressed.
        let folder = self.yard.path(&format!("{}/logs", self.folder));
        if folder.exists() {
            fs_err::remove_dir_all(&folder).context(Kind::Machine, failed)?;
        }
        fs_err::create_dir_all(&folder).context(Kind::Machine, failed)?;
        let builds = self.builds.values().filter_map(|builds| builds.last());
        for build in builds.filter(|build| build.failure.is_some()).take(PLAIN_LOGS_MAX) {
            for log in build.stages.iter().filter_map(|stage| stage.log.as_ref()) {
                // A log that was removed or cannot be read must not prevent the report.
                if let Ok(text) = kilnyard_process::read_log(&self.yard.path(log)) {
                    fs_err::write(self.yard.path(&self.plain_log(log)), text)
                        .context(Kind::Machine, failed)?;
                }
            }
        }
        Ok(())
    }

    /// The run, judged by the expectations of the yard's owner.
    fn judgement(&self) -> Judgement {
        let rows = self.rows.iter().map(|row| (row.name.as_str(), row.state, row.blamed.as_deref()));
        judge(&|name| self.yard.config.expects_failure(name), rows)
    }

    fn report(mut self, published: Option<&Published>) -> Report {
        let successes = self.judgement().successes;
        let remarks = published.into_iter().flat_map(|published| published.remarks.iter().cloned());
        let notes = successes.iter().map(|name| success_note(name)).chain(remarks).collect();
        let failed = self.rows.iter().filter(|row| row.state == State::Failed);
        let is_expected = |row: &&PackageRow| self.yard.config.expects_failure(&row.name);
        let failed_as_expected = failed.filter(is_expected).count() as u64;
        let rows = std::mem::take(&mut self.rows);
        let path = self.path();
        let (release, architecture) = self.yard.config.family.tree_and_architecture();
        let graph = self.workshop.graph();
        let name = |id: PackageId| graph.name(id).to_owned();
        let cut = |cut: &Cut| CycleCut {
            package: name(cut.package),
            dependency: name(cut.dependency),
            members: self.workshop.cutting().members(cut).iter().map(|id| name(*id)).collect(),
            how: {
                let stand_in = match cut.stand_in {
                    StandIn::Archive => "the archive's binary packages stand in",
                    StandIn::Profile => "a build profile drops it",
                };
                match cut.saved_seconds {
                    None => stand_in.to_owned(),
                    Some(seconds) => {
                        format!("{stand_in}; this shortens the longest path by {}", words::duration(seconds))
                    }
                }
            },
        };
        Report {
            kilnyard: env!("CARGO_PKG_VERSION").to_owned(),
            yard: self.yard.folder.display().to_string(),
            ecosystem: self.workshop.name().to_owned(),
            release,
            architecture,
            run: self.run.number,
            state: match self.run.state {
                RunState::Running => kilnyard_web::RunState::Running,
                RunState::Finished => kilnyard_web::RunState::Finished,
                RunState::Interrupted => kilnyard_web::RunState::Interrupted,
            },
            started_seconds: self.run.started_seconds as i64,
            wall_seconds: wall_seconds(self.run),
            cpu_seconds: self.work_cpu_seconds(),
            cores: self.run.cores,
            slots: self.run.slots,
            counts: Counts { failed_as_expected, ..counts(&rows) },
            expected_wall_seconds: Some(self.run.expected_seconds),
            bound_seconds: self.bound_seconds(),
            path,
            packages: rows
                .iter()
                .filter(|row| row.state != State::LeftOut)
                .map(|row| self.package(row, &rows))
                .collect(),
            causes: causes(
                rows.iter().filter(|row| row.state == State::Failed && !is_expected(row)),
                self.yard.config.family.causes(),
            ),
            cycles_cut: self.workshop.cutting().cuts.iter().map(cut).collect(),
            left_out: rows
                .iter()
                .filter(|row| row.state == State::LeftOut)
                .map(|row| LeftOut { package: row.name.clone(), reason: row.reason.to_string() })
                .collect(),
            repository: published.map(|published| RepositoryFacts {
                path: self.yard.repository().display().to_string(),
                sources_line: published.line.clone(),
                fingerprint: published.fingerprint.clone(),
                packages: published.packages,
            }),
            notes,
            commits: self.run.commits.iter().map(shown_commit).collect(),
            compared_run: self.compared_run,
            changes: self.changes.iter().map(shown_change).collect(),
            ..Report::default()
        }
    }

    fn not_reproducible(&self) -> Vec<String> {
        let differs =
            |builds: &&Vec<BuildRow>| builds.last().is_some_and(|b| b.is_reproducible == Some(false));
        let mut names: Vec<String> = self
            .builds
            .values()
            .filter(differs)
            .flat_map(|builds| builds.last())
            .map(|b| b.package.clone())
            .collect();
        names.sort();
        names
    }

    fn work_cpu_seconds(&self) -> f64 {
        self.builds.values().flatten().map(cpu_seconds).sum()
    }

    /// The minimum time and longest path according to the measured builds.
    fn bound(&self) -> Bound {
        Bound::of(self.workshop.graph(), &self.works(), &[Machine::of_cores(self.run.cores)])
    }

    /// The minimum time. Builds that share cores take longer than each would alone, so a finished run may turn
    /// out to be faster; then there is none.
    fn bound_seconds(&self) -> Option<f64> {
        let is_possible =
            |seconds: &f64| self.run.ended_seconds.is_none() || *seconds <= wall_seconds(self.run);
        Some(self.bound().seconds()).filter(is_possible)
    }

    /// The cost of each package's last build.
    fn works(&self) -> Vec<Work> {
        let graph = self.workshop.graph();
        let work = |id: PackageId| {
            let build = self.builds.get(graph.name(id)).and_then(|builds| builds.last());
            build.map_or_else(Work::default, |build| taken(build, self.run.cores))
        };
        graph.packages().map(work).collect()
    }

    /// The longest path according to the measured builds, each alone on all cores.
    fn path(&self) -> Vec<PathStep> {
        let (graph, works) = (self.workshop.graph(), self.works());
        let seconds = |id: &PackageId| works[id.index()].seconds_at(self.run.cores, 1.0);
        let path = self.bound().path.into_iter().filter(|id| seconds(id) > 0.0);
        path.map(|id| PathStep { package: graph.name(id).to_owned(), seconds: seconds(&id) }).collect()
    }

    fn package(&self, row: &PackageRow, rows: &[PackageRow]) -> ReportPackage {
        let builds = self.builds.get(&row.name).map_or(&[][..], Vec::as_slice);
        let build = builds.last();
        let since_start = |seconds: f64| seconds - self.run.started_seconds;
        let graph = self.workshop.graph();
        let depends = graph.find(&row.name).map_or(Vec::new(), |id| {
            graph.dependencies(id).iter().map(|d| graph.name(*d).to_owned()).collect()
        });
        let stages: Vec<ReportStage> = build
            .iter()
            .flat_map(|build| &build.stages)
            .map(|stage| ReportStage {
                name: stage.stage.to_string(),
                started_seconds: since_start(stage.started_seconds),
                wall_seconds: stage.wall_seconds,
                cpu_seconds: stage.cpu_seconds,
                memory_peak_bytes: stage.memory_peak_bytes,
                user_seconds: stage.measures.user_seconds,
                system_seconds: stage.measures.system_seconds,
                read_bytes: stage.measures.read_bytes,
                written_bytes: stage.measures.written_bytes,
                processes: stage.measures.processes,
                stalled: stalls(&stage.measures),
                left_behind: stage.left_behind.clone(),
                outcome: if stage.is_ok { "ok" } else { "failed" }.to_owned(),
                log: stage.log.as_ref().map(|log| self.log(log)),
            })
            .collect();
        let failure = build.filter(|_| row.state == State::Failed).and_then(|build| build.failure.as_ref());
        let settings = self.yard.config.settings_of(&row.name);
        let expected = settings.expected_failure;
        ReportPackage {
            name: row.name.clone(),
            version: build.map_or(row.version.clone(), |build| build.version.clone()),
            state: state(row.state),
            reason: row.reason.to_string(),
            slot: build.map(|build| build.slot),
            attempts: builds.len() as u32,
            started_seconds: build.map(|build| since_start(build.started_seconds)),
            wall_seconds: build.and_then(|b| Some(b.ended_seconds? - b.started_seconds)).unwrap_or(0.0),
            cpu_seconds: build.map_or(0.0, cpu_seconds),
            memory_peak_bytes: stages.iter().map(|stage| stage.memory_peak_bytes).max().unwrap_or(0),
            stages,
            outputs: self.outputs.get(&row.name).cloned().unwrap_or_default(),
            depends,
            blocked_by: row.blamed.iter().cloned().collect(),
            blocks: rows
                .iter()
                .filter(|other| other.blamed.as_deref() == Some(&row.name))
                .map(|other| other.name.clone())
                .collect(),
            failure: failure.map(|failure| ReportFailure {
                stage: failure.stage.to_string(),
                kind: failure.kind.as_str().to_owned(),
                message: failure.message.clone(),
                line_number: failure.line_number,
                lines: failure.lines.clone(),
            }),
            reproducible: build.and_then(|build| build.is_reproducible),
            is_expected_to_fail: expected.is_some(),
            because: expected.and_then(|expected| expected.because),
            note: settings.note,
            has_network: settings.has_network,
        }
    }

    /// The path of a log, relative to the report.
    fn log(&self, log: &str) -> String {
        let plain = self.plain_log(log);
        if self.yard.path(&plain).exists()
            && let Some(beside) = plain.strip_prefix(&format!("{}/", self.folder))
        {
            return beside.to_owned();
        }
        let suffix = if self.yard.path(&format!("{log}.zst")).exists() { ".zst" } else { "" };
        let up = "../".repeat(self.folder.split('/').count());
        format!("{up}{log}{suffix}")
    }

    /// The path of a log's plain copy: `logs/RUN/PACKAGE/FILE.log` becomes `PACKAGE-FILE.txt`, with commas for
    /// the slashes of a package name.
    fn plain_log(&self, log: &str) -> String {
        let name = log.splitn(3, '/').nth(2).unwrap_or("").trim_end_matches(".log");
        let (package, file) = name.rsplit_once('/').unwrap_or(("", name));
        format!("{}/logs/{}-{file}.txt", self.folder, package.replace('/', ","))
    }
}

fn stalls(measures: &Measures) -> Option<ReportStalls> {
    let all = [measures.cpu_stalled_seconds, measures.memory_stalled_seconds, measures.io_stalled_seconds];
    all.iter().any(Option::is_some).then(|| ReportStalls {
        cpu_seconds: all[0].unwrap_or(0.0),
        memory_seconds: all[1].unwrap_or(0.0),
        io_seconds: all[2].unwrap_or(0.0),
        is_of_machine: measures.is_stalled_of_machine,
    })
}

fn state(state: State) -> PackageState {
    match state {
        State::Built => PackageState::Built,
        State::Unchanged => PackageState::Unchanged,
        State::UpToDate => PackageState::UpToDate,
        State::Failed => PackageState::Failed,
        State::Blocked => PackageState::Blocked,
        State::Skipped => PackageState::Skipped,
        State::Building => PackageState::Building,
        State::Waiting | State::Ready | State::LeftOut => PackageState::Waiting,
    }
}

fn counts(rows: &[PackageRow]) -> Counts {
    let count = |states: &[State]| rows.iter().filter(|row| states.contains(&row.state)).count() as u64;
    Counts {
        total: rows.len() as u64 - count(&[State::LeftOut]),
        built: count(&[State::Built]),
        unchanged: count(&[State::Unchanged]),
        up_to_date: count(&[State::UpToDate]),
        failed: count(&[State::Failed]),
        blocked: count(&[State::Blocked]),
        skipped: count(&[State::Skipped]),
        failed_as_expected: 0,
        left_out: count(&[State::LeftOut]),
        waiting: count(&[State::Waiting, State::Ready, State::Building]),
    }
}
