//! The report of a run, made from the store.

pub mod folder;

use crate::causes::{Cause, KnownCause, by_cause};
use crate::commits::{self, Change};
use crate::config::report::ReportLogs;
use crate::error::{Context, Kind, Result};
use crate::estimates::taken;
use crate::expectations::{Judgement, judge, success_note};
use crate::facts::compare::difference_from;
use crate::facts::failures::{failures, run_before};
use crate::facts::packages;
use crate::facts::picture::Picture;
use crate::facts::why::Whys;
use crate::family::Published;
use crate::words::{self, now_seconds};
use crate::yard::{Yard, store_error};
use kilnyard_ecosystem::Ecosystem;
use kilnyard_model::cuts::{Cut, Cutting, StandIn};
use kilnyard_model::graph::{Graph, PackageId};
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{BuildOutcome, Measures, PackageState as State};
use kilnyard_schedule::{Bound, Machine, Work};
use kilnyard_schema::package::PackageHistory;
use kilnyard_store::{BuildRow, PackageRow, RunCommit, RunRow, RunState, Store};
use kilnyard_web::{
    Counts, CycleCut, LeftOut, PackageState, Pages, PathStep, Report, ReportCause, ReportChange,
    ReportCommit, ReportFailure, ReportOutput, ReportPackage, ReportStage, ReportStalls, RepositoryFacts,
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
pub fn figures(yard: &Yard, store: &dyn Store, set: ResolvedSet<'_>) -> Result<Option<Figures>> {
    let Some(run) = store.last_run().map_err(store_error)? else { return Ok(None) };
    let picture = Picture::read(store, run.number)?;
    let facts = Facts::of(yard, &picture, set);
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

/// The file in a report with what `kilnyard status` reads of it.
const SUMMARY: &str = "summary.json";

/// The content of [`SUMMARY`]: computing it would require a resolved set, and the whole report is large.
#[derive(serde::Serialize, serde::Deserialize)]
struct Summary {
    run: u64,
    bound_seconds: Option<f64>,
}

/// The minimum time according to a run's builds, from its report. Absent if that is not known.
pub fn bound_seconds(yard: &Yard, run: u64) -> Option<f64> {
    let text = fs_err::read(yard.path(&folder::of_run(run)).join(SUMMARY)).ok()?;
    let summary: Summary = serde_json::from_slice(&text).ok()?;
    summary.bound_seconds.filter(|_| summary.run == run)
}

fn wall_seconds(run: &RunRow) -> f64 {
    run.ended_seconds.unwrap_or_else(now_seconds) - run.started_seconds
}

/// The duration of a build; so far, if it is in progress.
fn wall_of(build: &BuildRow, state: State) -> f64 {
    match build.ended_seconds {
        Some(ended) => ended - build.started_seconds,
        None if state == State::Building => now_seconds() - build.started_seconds,
        None => 0.0,
    }
}

fn cpu_seconds(build: &BuildRow) -> f64 {
    build.stages.iter().map(|stage| stage.cpu_seconds).sum()
}

/// Writes the report of the last run and returns its folder, relative to the yard. Every run has a folder of its own.
pub fn write(
    yard: &Yard,
    store: &dyn Store,
    set: ResolvedSet<'_>,
    published: Option<&Published>,
) -> Result<String> {
    let Some(run) = store.last_run().map_err(store_error)? else { return Ok(folder::ALL.to_owned()) };
    let picture = Picture::read(store, run.number)?;
    let mut facts = Facts { outputs: outputs(store)?, ..Facts::of(yard, &picture, set) };
    if let Some(before) = commits::run_before(store, &run)? {
        facts.changes = commits::between(yard, &before.commits, &run.commits, None);
        facts.compared_run = Some(before.number);
    }
    let folder = folder::of_run(run.number);
    let logs = facts.write_logs(&folder)?;
    facts.logs = logs.values().cloned().collect();
    let pages = Pages { logs, ..pages(yard, store, set.graph, &picture)? };
    let report = facts.report(published);
    let failed = "write the report";
    let summary = Summary { run: run.number, bound_seconds: report.bound_seconds };
    let summary = serde_json::to_vec(&summary).or_internal(failed)?;
    let path = yard.path(&folder);
    fs_err::create_dir_all(&path)
        .and_then(|()| fs_err::write(path.join(SUMMARY), summary))
        .context(Kind::Machine, failed)?;
    kilnyard_web::write(&report, &pages, &path).context(Kind::Machine, failed)?;
    folder::finish(yard, store, run.number, is_whole(&picture, set.graph))?;
    Ok(folder)
}

/// The most packages with a page in a report. Those that failed come first.
const PACKAGE_PAGES_MAX: usize = 500;
/// The causes for which a failure is shown in full.
const EXAMPLES_MAX: usize = 50;
/// The builds on the page of a package.
const BUILDS_MAX: usize = 20;

/// What the pages of a report show in addition to it.
fn pages(yard: &Yard, store: &dyn Store, graph: &Graph, picture: &Picture) -> Result<Pages> {
    let failures = failures(yard, store, picture)?;
    let example = |cause: &kilnyard_schema::run::Cause| {
        let places = cause.packages.iter().filter_map(|name| picture.place(name));
        places.filter_map(|place| picture.last_build(place)).map(packages::build).next()
    };
    let examples = failures.causes.iter().take(EXAMPLES_MAX).filter_map(example).collect();
    let mut places: Vec<usize> =
        (0..picture.rows.len()).filter(|place| picture.last_build(*place).is_some()).collect();
    places.sort_by_key(|place| picture.rows[*place].state != State::Failed);
    let whys = Whys::read(yard, store)?;
    let names = |ids: &[PackageId]| ids.iter().map(|id| graph.name(*id).to_owned()).collect();
    let mut histories = Vec::new();
    for place in places.into_iter().take(PACKAGE_PAGES_MAX) {
        let name = &picture.rows[place].name;
        let Some(why) = whys.of(name, None)? else { continue };
        let id = graph.find(name);
        histories.push((
            why,
            PackageHistory {
                package: name.clone(),
                dependencies: id.map_or_else(Vec::new, |id| names(graph.dependencies(id))),
                dependents: id.map_or_else(Vec::new, |id| names(graph.dependents(id))),
                blocks: packages::blocked_by(picture, name),
                builds: packages::builds(store, name, BUILDS_MAX)?,
                ..PackageHistory::default()
            },
        ));
    }
    let run = picture.run.number;
    let difference = match run_before(store, run)? {
        Some(earlier) => Some(difference_from(yard, store, earlier, picture)?),
        None => None,
    };
    Ok(Pages {
        failures: Some(failures),
        examples,
        packages: (0..picture.rows.len()).map(|place| packages::of_run(picture, place)).collect(),
        counts: picture.counts(),
        difference,
        histories,
        logs: HashMap::new(),
        now_seconds: now_seconds(),
    })
}

/// Whether a run had all packages of the set.
fn is_whole(picture: &Picture, graph: &Graph) -> bool {
    graph.packages().all(|id| picture.place(graph.name(id)).is_some())
}

/// Number of failed builds whose logs are copied as plain text.
const PLAIN_LOGS_MAX: usize = 500;

/// The resolved set that a run built.
#[derive(Clone, Copy)]
pub struct ResolvedSet<'a> {
    /// Its packages and dependencies.
    pub graph: &'a Graph,
    /// The cycles that were cut.
    pub cutting: &'a Cutting,
}

impl<'a> From<&'a dyn Ecosystem> for ResolvedSet<'a> {
    fn from(set: &'a dyn Ecosystem) -> ResolvedSet<'a> {
        ResolvedSet { graph: set.graph(), cutting: set.cutting() }
    }
}

/// Everything that the report of a run is made from.
struct Facts<'a> {
    yard: &'a Yard,
    /// The resolved set, once a run has ended; absent for a page during the run.
    set: Option<ResolvedSet<'a>>,
    run: &'a RunRow,
    rows: Vec<&'a PackageRow>,
    builds: HashMap<&'a str, &'a [BuildRow]>,
    outputs: HashMap<String, Vec<ReportOutput>>,
    /// The packages that each culprit blocks.
    blocks: HashMap<String, Vec<String>>,
    /// The logs that the report has, relative to its folder.
    logs: HashSet<String>,
    /// The run that commits are compared with, and the commits since then.
    compared_run: Option<u64>,
    changes: Vec<Change>,
}

/// The outputs in the repository, by package.
fn outputs(store: &dyn Store) -> Result<HashMap<String, Vec<ReportOutput>>> {
    let mut outputs: HashMap<String, Vec<ReportOutput>> = HashMap::new();
    for row in store.outputs().map_err(store_error)? {
        outputs.entry(row.package).or_default().push(ReportOutput {
            name: row.output.name,
            version: row.output.version,
            architecture: row.output.architecture,
            size_bytes: row.output.size_bytes,
        });
    }
    Ok(outputs)
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

/// A text without the path of the yard's folder, so that a report can be sent elsewhere.
fn without_folder(yard: &Yard, text: &str) -> String {
    text.replace(&yard.home.display().to_string(), &name_of(yard))
}

/// The packages that each culprit blocks.
fn blocks(rows: &[PackageRow]) -> HashMap<String, Vec<String>> {
    let mut blocks: HashMap<String, Vec<String>> = HashMap::new();
    for row in rows {
        if let Some(culprit) = &row.blamed {
            blocks.entry(culprit.clone()).or_default().push(row.name.clone());
        }
    }
    blocks
}

/// What a yard is called outside of its machine: the name of its folder, and of its target.
pub fn name_of(yard: &Yard) -> String {
    let name = yard.home.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    match &yard.target_name {
        None => name,
        Some(target) => format!("{name}, {target}"),
    }
}

/// The packages of a run from which a page has only those that need attention, and the slowest.
const SELECTED_ALL_MAX: usize = 1500;
/// The number of slowest packages that such a page has.
const SLOWEST_MAX: usize = 60;
/// The most blocked packages, and those that were left out, on such a page.
const SELECTED_EACH_MAX: usize = 500;

/// The report of a run whose rows are in memory; of a large run, those packages alone that a page of bounded size shows.
pub fn of_picture(yard: &Yard, picture: &Picture) -> Report {
    let wall = |place: usize| {
        let build = picture.last_build(place);
        build.and_then(|build| Some(build.ended_seconds? - build.started_seconds)).unwrap_or(0.0)
    };
    let mut places: Vec<usize> = (0..picture.rows.len()).collect();
    if places.len() > SELECTED_ALL_MAX {
        let mut slowest = places.clone();
        if slowest.len() > SLOWEST_MAX {
            slowest.select_nth_unstable_by(SLOWEST_MAX, |one, other| wall(*other).total_cmp(&wall(*one)));
            slowest.truncate(SLOWEST_MAX);
        }
        let slowest: HashSet<usize> = slowest.into_iter().collect();
        let (mut blocked, mut left_out) = (0, 0);
        places.retain(|place| match picture.rows[*place].state {
            State::Failed | State::Building => true,
            State::Blocked => {
                blocked += 1;
                blocked <= SELECTED_EACH_MAX
            }
            State::LeftOut => {
                left_out += 1;
                left_out <= SELECTED_EACH_MAX
            }
            _ => slowest.contains(place),
        });
    }
    let facts = Facts::of_places(yard, picture, None, &places);
    let failed_as_expected = facts.failed_as_expected();
    let all = picture.builds.iter().flatten();
    let cpu_seconds = all.map(cpu_seconds).sum();
    Report {
        counts: Counts { failed_as_expected, ..counts(picture.rows.iter()) },
        cpu_seconds,
        bound_seconds: Some(picture.run.bound_seconds).filter(|bound| *bound > 0.0),
        ..facts.report(None)
    }
}

fn shown_commit(RunCommit { source, commit, .. }: &RunCommit) -> ReportCommit {
    ReportCommit { source: source.clone(), commit: commit.clone() }
}

fn shown_change(change: &Change) -> ReportChange {
    let Change { source, commit, author, date_seconds, lines } = change.clone();
    ReportChange { source, commit, author, date: words::date(date_seconds), lines }
}

impl<'a> Facts<'a> {
    /// Of all packages of a run.
    fn of(yard: &'a Yard, picture: &'a Picture, set: ResolvedSet<'a>) -> Facts<'a> {
        let places: Vec<usize> = (0..picture.rows.len()).collect();
        Facts::of_places(yard, picture, Some(set), &places)
    }

    fn of_places(
        yard: &'a Yard,
        picture: &'a Picture,
        set: Option<ResolvedSet<'a>>,
        places: &[usize],
    ) -> Facts<'a> {
        let built = places.iter().filter(|place| !picture.builds[**place].is_empty());
        let builds = built.map(|place| (picture.rows[*place].name.as_str(), &picture.builds[*place][..]));
        Facts {
            yard,
            set,
            run: &picture.run,
            rows: places.iter().map(|place| &picture.rows[*place]).collect(),
            builds: builds.collect(),
            outputs: HashMap::new(),
            blocks: blocks(&picture.rows),
            logs: HashSet::new(),
            compared_run: None,
            changes: Vec::new(),
        }
    }

    /// Writes the logs of failed builds as text into the report, and those of others compressed if that is configured. Returns
    /// the files by build and stage.
    fn write_logs(&self, report: &str) -> Result<HashMap<(u64, String), String>> {
        let failed = "write the logs of the report";
        let folder = self.yard.path(&format!("{report}/{LOGS}"));
        if folder.exists() {
            fs_err::remove_dir_all(&folder).context(Kind::Machine, failed)?;
        }
        fs_err::create_dir_all(&folder).context(Kind::Machine, failed)?;
        let has_all = self.yard.config.report.logs == ReportLogs::All;
        let mut files = HashMap::new();
        let mut plain = 0;
        for build in self.builds.values().filter_map(|builds| builds.last()) {
            let has_failed = build.failure.is_some();
            if !has_all && (!has_failed || plain >= PLAIN_LOGS_MAX) {
                continue;
            }
            plain += usize::from(has_failed);
            for stage in &build.stages {
                let Some(log) = &stage.log else { continue };
                // A log that was removed or cannot be read must not prevent the report.
                let Ok(text) = kilnyard_process::read_log_from(&self.yard.path(log), 0) else { continue };
                let name = report_log(log, has_failed);
                let path = self.yard.path(&format!("{report}/{name}"));
                match has_failed {
                    true => fs_err::write(path, text),
                    false => fs_err::File::create(path).and_then(|file| {
                        let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
                        std::io::Write::write_all(&mut packed, &text).and_then(|()| packed.finish().map(drop))
                    }),
                }
                .context(Kind::Machine, failed)?;
                files.insert((build.number, stage.stage.to_string()), name);
            }
        }
        Ok(files)
    }

    fn failed_as_expected(&self) -> u64 {
        let failed = self.rows.iter().filter(|row| row.state == State::Failed);
        failed.filter(|row| self.yard.config.expects_failure(&row.name)).count() as u64
    }

    /// The run, judged by the expectations of the yard's owner.
    fn judgement(&self) -> Judgement {
        let rows = self.rows.iter().map(|row| (row.name.as_str(), row.state, row.blamed.as_deref()));
        judge(&|name| self.yard.config.expects_failure(name), rows)
    }

    /// The cycles that were cut.
    fn cuts(&self) -> Vec<CycleCut> {
        let Some(ResolvedSet { graph, cutting }) = self.set else { return Vec::new() };
        let name = |id: PackageId| graph.name(id).to_owned();
        let cut = |cut: &Cut| CycleCut {
            package: name(cut.package),
            dependency: name(cut.dependency),
            members: cutting.members(cut).iter().map(|id| name(*id)).collect(),
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
        cutting.cuts.iter().map(cut).collect()
    }

    fn report(mut self, published: Option<&Published>) -> Report {
        let successes = self.judgement().successes;
        let remarks = published.into_iter().flat_map(|published| published.remarks.iter().cloned());
        let notes = successes.iter().map(|name| success_note(name)).chain(remarks).collect();
        let is_expected = |row: &&PackageRow| self.yard.config.expects_failure(&row.name);
        let failed_as_expected = self.failed_as_expected();
        let rows = std::mem::take(&mut self.rows);
        let path = self.path();
        let (release, architecture) = self.yard.config.family.tree_and_architecture();
        Report {
            kilnyard: env!("CARGO_PKG_VERSION").to_owned(),
            yard: name_of(self.yard),
            ecosystem: self
                .yard
                .config
                .family
                .target()
                .map_or_else(|_| String::new(), |target| target.family().to_owned()),
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
            counts: Counts { failed_as_expected, ..counts(rows.iter().copied()) },
            expected_wall_seconds: Some(self.run.expected_seconds),
            bound_seconds: self.bound_seconds(),
            path,
            packages: rows
                .iter()
                .filter(|row| row.state != State::LeftOut)
                .map(|row| self.package(row))
                .collect(),
            causes: causes(
                rows.iter().copied().filter(|row| row.state == State::Failed && !is_expected(row)),
                self.yard.config.family.causes(),
            ),
            cycles_cut: self.cuts(),
            left_out: rows
                .iter()
                .filter(|row| row.state == State::LeftOut)
                .map(|row| LeftOut { package: row.name.clone(), reason: row.reason.to_string() })
                .collect(),
            repository: published.map(|published| RepositoryFacts {
                path: without_folder(self.yard, &self.yard.repository().display().to_string()),
                sources_line: without_folder(self.yard, &published.line),
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
        let differs = |builds: &&&[BuildRow]| builds.last().is_some_and(|b| b.is_reproducible == Some(false));
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
        self.builds.values().copied().flatten().map(cpu_seconds).sum()
    }

    /// The minimum time and longest path according to the measured builds.
    fn bound(&self) -> Option<Bound> {
        Some(Bound::of(self.set?.graph, &self.works(), &[Machine::of_cores(self.run.cores)]))
    }

    /// The minimum time. Builds that share cores take longer than each would alone, so a finished run may turn
    /// out to be faster; then there is none.
    fn bound_seconds(&self) -> Option<f64> {
        let is_possible =
            |seconds: &f64| self.run.ended_seconds.is_none() || *seconds <= wall_seconds(self.run);
        self.bound().map(|bound| bound.seconds()).filter(is_possible)
    }

    /// The cost of each package's last build.
    fn works(&self) -> Vec<Work> {
        let Some(ResolvedSet { graph, .. }) = self.set else { return Vec::new() };
        let work = |id: PackageId| {
            let build = self.builds.get(graph.name(id)).and_then(|builds| builds.last());
            build.map_or_else(Work::default, |build| taken(build, self.run.cores))
        };
        graph.packages().map(work).collect()
    }

    /// The longest path according to the measured builds, each alone on all cores.
    fn path(&self) -> Vec<PathStep> {
        let (Some(ResolvedSet { graph, .. }), Some(bound)) = (self.set, self.bound()) else {
            return Vec::new();
        };
        let works = self.works();
        let seconds = |id: &PackageId| works[id.index()].seconds_at(self.run.cores, 1.0);
        let path = bound.path.into_iter().filter(|id| seconds(id) > 0.0);
        path.map(|id| PathStep { package: graph.name(id).to_owned(), seconds: seconds(&id) }).collect()
    }

    fn package(&self, row: &PackageRow) -> ReportPackage {
        let builds = self.builds.get(row.name.as_str()).copied().unwrap_or_default();
        let build = builds.last();
        let since_start = |seconds: f64| seconds - self.run.started_seconds;
        let depends = self.set.map_or_else(Vec::new, |ResolvedSet { graph, .. }| {
            let found = graph.find(&row.name).map_or(&[][..], |id| graph.dependencies(id));
            found.iter().map(|dependency| graph.name(*dependency).to_owned()).collect()
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
                outcome:
                    match (stage.is_ok, build.is_some_and(|build| build.outcome == BuildOutcome::Lost)) {
                        (true, _) => "ok",
                        // It was ended from outside, with its worker or its run.
                        (false, true) => "cancelled",
                        (false, false) => "failed",
                    }
                    .to_owned(),
                log: stage.log.as_ref().and_then(|log| self.log(log)),
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
            build: build.map(|build| build.number),
            started_seconds: build.map(|build| since_start(build.started_seconds)),
            wall_seconds: build.map_or(0.0, |build| wall_of(build, row.state)),
            cpu_seconds: build.map_or(0.0, cpu_seconds),
            memory_peak_bytes: stages.iter().map(|stage| stage.memory_peak_bytes).max().unwrap_or(0),
            stages,
            outputs: self.outputs.get(&row.name).cloned().unwrap_or_default(),
            depends,
            blocked_by: row.blamed.iter().cloned().collect(),
            blocks: self.blocks.get(&row.name).cloned().unwrap_or_default(),
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

    /// The path of a log, relative to the report. Absent if the report does not have it: links lead to files that are copied with
    /// the folder.
    fn log(&self, log: &str) -> Option<String> {
        let found = [true, false].map(|is_plain| report_log(log, is_plain));
        found.into_iter().find(|name| self.logs.contains(name))
    }
}

/// The file of a log in a report: `logs/RUN/PACKAGE/FILE.log` becomes `logs/PACKAGE-FILE.txt`, with commas for the slashes of a
/// package name.
fn report_log(log: &str, is_plain: bool) -> String {
    let name = log.splitn(3, '/').nth(2).unwrap_or("").trim_end_matches(".log");
    let (package, file) = name.rsplit_once('/').unwrap_or(("", name));
    let suffix = if is_plain { "txt" } else { "txt.gz" };
    format!("{LOGS}/{}-{file}.{suffix}", package.replace('/', ","))
}

/// The folder of logs in a report.
const LOGS: &str = "logs";

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

fn counts<'a>(rows: impl Iterator<Item = &'a PackageRow> + Clone) -> Counts {
    let count = |states: &[State]| rows.clone().filter(|row| states.contains(&row.state)).count() as u64;
    Counts {
        total: rows.clone().count() as u64 - count(&[State::LeftOut]),
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
