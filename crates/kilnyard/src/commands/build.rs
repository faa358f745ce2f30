//! `kilnyard build`: scan, plan, build, publish, report.

use super::{artifacts, print};
use crate::causes::by_cause;
use crate::cli::Build;
use crate::error::{Context, Error, Kind, Result};
use crate::expectations::{Judgement, judge, success_note};
use crate::family::{Family, Published, Publishing, Set};
use crate::plan::Forced;
use crate::run::door::Door;
use crate::run::kernel_log;
use crate::run::kernel_time::{KernelTime, Readings};
use crate::run::view::{Drawn, Events, Live, Plain, View};
use crate::run::{Options, OtherMachines, Run, RunOutcome, host_name};
use crate::servers::note_build;
use crate::yard::{Lock, Verified, Yard, bring, store_error};
use crate::{mirror, plan, report, signals, words};
use kilnyard_ecosystem::Ecosystem;
use kilnyard_mirror::FileStore;
use kilnyard_model::graph::Against;
use kilnyard_model::reason::Reason;
use kilnyard_model::result::PackageState;
use kilnyard_store::{EventKind, ForcedRun, Note, Number, PackageRow, Plan, RunState, Store};
use kilnyard_yard::notify::Notifier;
use kilnyard_yard::remedy::Remedy;
use kilnyard_yard::revoked::{self, Revoked};
use kilnyard_yard::shape::Shape;
use serde_json::json;
use std::collections::HashSet;
use std::io::Read;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The maximum number of failures, or packages left out, in the summary; `kilnyard status` and the report have all.
const SHOWN_MAX: usize = 10;
/// The maximum number of printed remarks on a set.
const REMARKS_MAX: usize = 10;

/// Builds a target. `word` is the one with which the user chose the targets.
pub fn run(mut yard: Yard, options: &Build, word: Option<&str>) -> Result<ExitCode> {
    signals::install();
    yard.config.build.slots = options.slots.or(yard.config.build.slots);
    yard.config.build.jobs = options.jobs.or(yard.config.build.jobs);
    yard.config.build.first.extend(options.first.iter().cloned());
    yard.config.build.memory = options.memory.or(yard.config.build.memory);
    options.choices.apply(&mut yard)?;
    let lock = yard.lock()?;
    build(&yard, &lock, options, word)
}

/// The most passes over a set whose sources require what only builds of others show.
const PASSES_MAX: usize = 16;

/// Builds a yard whose lock is held. Packages on cut cycles are built again, if the yard or the set asks for a second pass, and
/// sources whose requirements are met by what was built are built in further ones.
pub fn build(yard: &Yard, lock: &Lock, options: &Build, word: Option<&str>) -> Result<ExitCode> {
    let mut pass = build_once(yard, lock, options, word)?;
    let mut code = pass.code;
    // What failed in an earlier pass, and was not tried again.
    let mut outstanding: HashSet<String> = HashSet::new();
    for number in 1..PASSES_MAX {
        if options.dry_run || pass.is_last || signals::count() > 0 {
            break;
        }
        let packages = match (number, &pass.waiting) {
            (1, Some(waiting)) => second_pass(yard, waiting)?,
            _ => Vec::new(),
        };
        let packages = match packages.is_empty() {
            false => {
                say!(
                    "second pass: {} use packages of the set that the first one made",
                    words::count(packages.len() as u64, "package")
                );
                packages
            }
            true => {
                let packages = provided_now(yard, &pass, &options.packages)?;
                if packages.is_empty() {
                    break;
                }
                say!(
                    "another pass: packages of the last one have what {} require",
                    words::count(packages.len() as u64, "more package")
                );
                packages
            }
        };
        let again = Build {
            packages: packages.clone(),
            no_scan: true,
            force: false,
            check_reproducible: false,
            check_outputs: false,
            ..options.clone()
        };
        outstanding.extend(pass.failed.drain(..));
        let is_refused = pass.is_refused;
        outstanding.retain(|name| !packages.contains(name));
        pass = build_once(yard, lock, &again, word)?;
        if pass.code != ExitCode::SUCCESS || outstanding.is_empty() && !is_refused {
            code = pass.code;
        }
        pass.is_refused |= is_refused;
    }
    Ok(code)
}

/// The packages that a pass left out, or that waited for these, and that can be built with what it made; if packages were asked
/// for, only of these.
fn provided_now(yard: &Yard, pass: &Pass, asked: &[String]) -> Result<Vec<String>> {
    let mut store = yard.store()?;
    // Learned in any case: also for the next command.
    if !yard.config.family.learn(yard, &*store)? || pass.open.is_empty() {
        return Ok(Vec::new());
    }
    let plan = plan::current_plan(yard, &mut *store)?;
    let is_due = |state| matches!(state, PackageState::Ready | PackageState::Waiting);
    let is_asked = |name: &String| asked.is_empty() || asked.contains(name);
    let is_now = |row: &PackageRow| is_due(row.state) && pass.open.contains(&row.name) && is_asked(&row.name);
    let rows = plan.packages.into_iter().map(|row| row.package);
    Ok(rows.filter(is_now).map(|row| row.name).collect())
}

/// How a pass ended.
struct Pass {
    code: ExitCode,
    /// The packages that failed, were blocked or left out.
    failed: Vec<String>,
    /// Whether the signer refused a package.
    is_refused: bool,
    /// The packages that were left out, and those that were blocked by them.
    open: HashSet<String>,
    /// Whether no other may follow: another machine continues it, or nothing was built.
    is_last: bool,
    /// If a second pass follows: the packages that may need what only it makes of others.
    waiting: Option<HashSet<String>>,
}

impl Pass {
    /// Nothing follows.
    fn last(code: ExitCode) -> Pass {
        Pass {
            code,
            failed: Vec::new(),
            open: HashSet::new(),
            is_last: true,
            is_refused: false,
            waiting: None,
        }
    }
}

/// Whether the last run was neither finished nor interrupted: its plan is that of the index that there is.
fn has_unended_run(yard: &Yard) -> Result<bool> {
    let run = yard.store()?.last_run().map_err(store_error)?;
    Ok(run.is_some_and(|run| run.state == RunState::Running))
}

/// Reads all outputs, and removes those that are damaged, so that they are built again.
fn check_outputs(yard: &Yard) -> Result<()> {
    let found = artifacts::read_all(yard, &OtherMachines::new(yard))?;
    let Verified { intact, elsewhere, missing, damaged } = found;
    let all = intact + missing.len() as u64 + damaged.len() as u64;
    say!(
        "{} checked ({elsewhere} on other machines), {} missing, {} damaged",
        words::count(all, "output"),
        missing.len(),
        damaged.len()
    );
    for file in missing.iter().chain(&damaged).take(REMARKS_MAX) {
        say!("note: {file} is built again");
    }
    Ok(())
}

/// Fails if no worker on another machine could ever take part.
fn check_farm(yard: &Yard) -> Result<()> {
    if let Some(reason) = yard.config.family.confined() {
        return Err(Error::usage(format!("this yard is built on one machine: {reason}")));
    }
    if !Door::is_open(yard) {
        say!("note: builds wait for workers on other machines: {}", words::command("serve"));
    }
    Ok(())
}

/// Names packages of a plan that are to be built in virtual machines of this machine, which has none, and what helps.
fn warn_of_machines(yard: &Yard, plan: &Plan) {
    let tables = &yard.config.tables;
    if !tables.has_machines() {
        return;
    }
    let Some((reason, package)) =
        kilnyard_worker::missing_machine(yard.config.family.processor(), Some(&yard.ids()))
    else {
        return;
    };
    let is_meant = |name: &str| tables.settings_of(name).terms.machine.is_some_and(|one| !one.is_optional);
    let open = plan.packages.iter().map(|row| &row.package);
    let open = open.filter(|row| matches!(row.state, PackageState::Waiting | PackageState::Ready));
    let names: Vec<&str> = open.map(|row| row.name.as_str()).filter(|name| is_meant(name)).collect();
    if !names.is_empty() {
        let shown = names.iter().take(SHOWN_MAX).copied().collect::<Vec<_>>().join(", ");
        let more = names.len().checked_sub(SHOWN_MAX + 1).map(|more| format!(" and {} more", more + 1));
        say!(
            "warning: not to be built in a virtual machine here: {shown}{}: {reason}",
            more.unwrap_or_default()
        );
        if let Some(package) = package {
            say!("try: {}", Remedy::packages(&[package]));
        }
    }
}

/// Packages that are out of date after a first pass, and have outputs or waited for this one.
fn second_pass(yard: &Yard, waiting: &HashSet<String>) -> Result<Vec<String>> {
    let mut store = yard.store()?;
    let plan = plan::current_plan(yard, &mut *store)?;
    let kept: HashSet<String> =
        store.all_current().map_err(store_error)?.into_iter().map(|current| current.package).collect();
    let is_due = |state| matches!(state, PackageState::Ready | PackageState::Waiting);
    let rows = plan.packages.into_iter().map(|row| row.package);
    let is_again = |name: &String| kept.contains(name) || waiting.contains(name);
    Ok(rows.filter(|row| is_due(row.state) && is_again(&row.name)).map(|row| row.name).collect())
}

fn build_once(yard: &Yard, lock: &Lock, options: &Build, word: Option<&str>) -> Result<Pass> {
    // The machine that began the run has said all this.
    let say = |text: &str| {
        if !options.continued {
            say!("{text}");
        }
    };
    if let Some(lack) = yard.config.no_packages_note(&yard.home)? {
        say!("note: {lack}");
    }
    if !options.dry_run {
        yard.check_roots()?;
        // Here, since a run without builds does not start a worker, which would do it.
        let swept = kilnyard_worker::sweep_roots(&yard.folder, &yard.ids());
        for left in swept.context(Kind::Machine, "remove leftovers of an earlier run")? {
            say!("note: {left}");
        }
    }
    let needs_scan = if options.dry_run { yard.config.family.check_scanned(yard).is_err() } else { true };
    // If this cannot be written, status shows less.
    let note = |phase: &str| drop(lock.note(phase));
    let no_scan = options.no_scan || (options.continued && has_unended_run(yard)?);
    if needs_scan && !no_scan {
        note("scanning");
        super::scan::scan(yard, &say)?;
    }
    if let (false, Some((reason, remedy))) = (options.dry_run, yard.config.family.foreign()) {
        let target = yard.target()?;
        let waits = format!("{target} is planned, but not built: {reason}");
        // Among several targets, the others are built.
        if yard.target_name.is_none() {
            return Err(Error::new(Kind::Machine, waits).hint(remedy));
        }
        say!("{waits}");
        say!("try: {remedy}");
        plan::current_plan(yard, &mut *yard.store()?)?;
        return Ok(Pass::last(ExitCode::from(Kind::Machine as u8)));
    }
    let machine = yard.config.tables.usual_machine().filter(|machine| !machine.is_optional);
    let missing =
        machine.and_then(|machine| kilnyard_worker::missing_machine(machine.processor, Some(&yard.ids())));
    if let (false, Some((reason, package))) = (options.dry_run, missing) {
        let remedy =
            package.map_or_else(|| "docs/machines.md".into(), |package| Remedy::packages(&[package]));
        return Err(Error::new(Kind::Machine, reason).hint(remedy));
    }
    if !options.dry_run {
        check_names(yard, &options.packages)?;
        note("checking or making the base root");
        yard.config.family.ensure_layers(yard, &yard.ids(), signals::cancel(), &say)?;
    }
    if options.check_outputs {
        note("checking the outputs");
        check_outputs(yard)?;
    }
    note("planning");
    let mut store = yard.store()?;
    store.check().map_err(store_error)?;
    let standing = options.continued.then(|| Standing::of(yard, &*store)).transpose()?;
    let distfiles = Arc::new(mirror::open_files(yard)?);
    let mut packages = options.packages.clone();
    let mut checks_reproducible = options.check_reproducible;
    let mut is_forced = options.force || checks_reproducible;
    if let Some(run) = forced_before(yard, &*store, options)? {
        is_forced = true;
        (packages, checks_reproducible) = (run.packages, run.checks_reproducible);
    }
    let forced = match (is_forced, packages.is_empty()) {
        (false, _) => Forced::Nothing,
        (true, true) => Forced::All,
        (true, false) => Forced::Named(packages.iter().cloned().collect()),
    };
    let mut planned = match options.continued {
        true => plan::prepare(yard, &distfiles, &*store, &forced)?,
        false => plan::make(yard, &distfiles, &mut *store, &forced)?,
    };
    if options.locked || !options.dry_run {
        yard.config.family.check_lock(yard, &planned.set, options.locked, &say)?;
    }
    if !packages.is_empty() {
        planned.narrow(&packages)?;
    }
    if options.dry_run {
        let provenances = yard.config.family.provenances(yard)?;
        return super::plan::show(yard, &planned.plan, false, &provenances).map(Pass::last);
    }
    for remark in planned.plan.remarks.iter().take(REMARKS_MAX) {
        say(&format!("note: {remark}"));
    }
    if let Some(more) = planned.plan.remarks.len().checked_sub(REMARKS_MAX + 1) {
        say(&format!("and {} more notes", more + 1));
    }
    match options.elsewhere {
        true => check_farm(yard)?,
        false => warn_of_machines(yard, &planned.plan),
    }
    let run_options = Options {
        forced,
        checks_reproducible,
        is_elsewhere: options.elsewhere,
        transcript: options.messages.clone(),
        is_continued: options.continued,
        again: options.again(word),
    };
    if let Some(standing) = standing {
        if !is_called(lock)? {
            return Ok(Pass::last(ExitCode::SUCCESS));
        }
        // The plan does not hold any more.
        if Standing::of(yard, &*store)? != standing {
            return build_once(yard, lock, options, word);
        }
    }
    let mut view: Box<dyn View> = if options.json {
        Box::new(Events::new(Box::new(std::io::stdout())))
    } else if let Some(live) = Live::open(&yard.folder) {
        Box::new(live)
    } else {
        Box::new(Plain::new(Box::new(std::io::stderr())))
    };
    if let Some(path) = &options.picture {
        view = Box::new(Drawn::open(view, path.clone())?);
    }
    let (set, digest) = (planned.set.clone(), planned.plan.digest.clone());
    let run = Run { yard, store: &mut *store, planned, distfiles: distfiles.clone(), options: run_options };
    note("");
    let notifier = Notifier::start(yard, |text| say!("warning: {text}"));
    let kernel_time = KernelTime::watch();
    let outcome = run.run(view.as_mut())?;
    drop(view);
    let readings = kernel_time.end();
    if outcome.state == RunState::Running {
        say!("another machine continues the run");
        return Ok(Pass::last(ExitCode::SUCCESS));
    }
    report_left_over(yard);
    if let Some(run) = outcome.run {
        report_stalls(yard, &*store, run, &readings)?;
    }
    note("publishing and reporting");
    let (set, digest) = match outcome.has_rescanned && signals::count() == 0 {
        true => resolved_again(yard, &*store, &distfiles, &say)?,
        // After an interruption, the next run resolves the set.
        false => (set, digest),
    };
    let published = match options.no_publish || !(options.publish || yard.config.publishes()) {
        true => Ok(None),
        false => bring(&*store, &distfiles, signals::cancel())
            .and_then(|()| set.publish(yard, &*store, &distfiles))
            .map(Some),
    };
    let delay =
        published.as_ref().ok().and_then(|publishing| publishing.as_ref()?.delay().map(str::to_owned));
    let published = published.map(|publishing| publishing.and_then(Publishing::done));
    if outcome.run.is_some() && !leads_elsewhere(yard, &*store)? {
        // No other machine needs to publish it. If it cannot be noted, one may do so again.
        let _ = note_build(yard, None);
    }
    if let Ok(Some(published)) = &published {
        note_published(&mut *store, outcome.run, published);
    }
    // The report is written even if publishing failed.
    let repository = published.as_ref().ok().and_then(Option::as_ref);
    let mut page = report::folder::ALL.to_owned();
    if outcome.run.is_some() {
        page = report::write(yard, &*store, (&*set.ecosystem()).into(), repository)?;
        set.write_reports(yard, &*store)?;
        plan::remake(yard, set.clone(), &digest, &distfiles, &mut *store)?;
        // A failed backup, on a full disk for instance, does not fail the run.
        if let Err(error) = yard.back_up() {
            say!("warning: the store was not backed up\n{error}");
        }
    }
    // What is not delivered by then, the next process delivers.
    notifier.settle(yard, NOTIFY_MAX);
    drop(notifier);
    let judgement = judgement(yard, &*store, &outcome)?;
    if options.json {
        ended(yard, &outcome, &judgement, &page, repository)?;
    } else {
        summary(yard, &*store, &*set.ecosystem(), &outcome, &page, repository);
        if let Some(reason) = &delay {
            say!("not published yet: the signer is away: {reason}");
        }
        let is_withheld =
            delay.is_none() && yard.config.build.against == Against::Archive && matches!(published, Ok(None));
        if is_withheld && !options.no_publish {
            say!(
                "not published: built against the archive (kilnyard publish, or publish = true in [repository])"
            );
        }
    }
    let refused = published?.map(|published| published.refused).unwrap_or_default();
    for refused in &refused {
        say!("the signer refuses {}", refused.line(yard));
    }
    let code = match outcome.state {
        RunState::Interrupted => ExitCode::from(Kind::Interrupted as u8),
        _ if judgement.is_bad || !refused.is_empty() => ExitCode::from(Kind::Packages as u8),
        _ => ExitCode::SUCCESS,
    };
    let ecosystem = set.ecosystem();
    let graph = ecosystem.graph();
    let waiting = graph.packages().filter(|id| ecosystem.waits_for_second_pass(*id));
    let waiting = waiting.map(|id| graph.name(id).to_owned()).collect();
    let has_second = !ecosystem.built_again(yard.config.build.passes).is_empty();
    let mut open: HashSet<String> = outcome.left_out.iter().map(|(name, _)| name.clone()).collect();
    let mut failed = Vec::new();
    if let Some(run) = outcome.run {
        let not_built = not_built(&*store, run)?;
        let is_open = |row: &&PackageRow| row.blamed.as_ref().is_some_and(|blamed| open.contains(blamed));
        let waiting: Vec<String> = not_built.iter().filter(is_open).map(|row| row.name.clone()).collect();
        open.extend(waiting);
        failed.extend(not_built.into_iter().map(|row| row.name));
    }
    let is_refused = !refused.is_empty();
    let waiting = has_second.then_some(waiting);
    Ok(Pass { code, failed, open, is_last: false, is_refused, waiting })
}

/// The packages of a run that failed, were blocked or left out.
fn not_built(store: &dyn Store, run: Number) -> Result<Vec<PackageRow>> {
    let is_bad =
        |state| matches!(state, PackageState::Failed | PackageState::Blocked | PackageState::LeftOut);
    let rows = store.packages(run).map_err(store_error)?.into_iter();
    Ok(rows.filter(|row| is_bad(row.state)).collect())
}

/// How long the end of a run waits for notifications.
const NOTIFY_MAX: std::time::Duration = std::time::Duration::from_secs(10);

/// Reports a publication among the events. Without it, only figures are lacking.
pub fn note_published(store: &mut dyn Store, run: Option<Number>, published: &Published) {
    let kind = EventKind::Published { packages: published.packages, is_changed: published.is_changed };
    let note = Note { run, build: None, at_seconds: words::now_seconds(), kind };
    if let Err(error) = store.note(&note) {
        say!("warning: the publication is not among the events: {error}");
    }
}

/// What a plan assumes, and what may change while a process waits to continue a run, other than builds that end.
#[derive(PartialEq)]
struct Standing {
    run: Option<(Number, RunState)>,
    revoked: Vec<Revoked>,
}

impl Standing {
    fn of(yard: &Yard, store: &dyn Store) -> Result<Standing> {
        let run = store.last_run().map_err(store_error)?.map(|run| (run.number, run.state));
        Ok(Standing { run, revoked: revoked::list(yard)? })
    }
}

/// Waits, without the lock, until the server that started this process lets it begin. False if it does not, or has ended.
fn is_called(lock: &Lock) -> Result<bool> {
    // Of several targets and passes, the first one waits.
    static CALLED: AtomicBool = AtomicBool::new(false);
    if CALLED.load(Ordering::Relaxed) {
        return Ok(true);
    }
    lock.release().context(Kind::Machine, "release the lock of the yard")?;
    let mut line = String::new();
    let read = std::io::stdin().lock().take(1).read_to_string(&mut line);
    let is_called = read.context(Kind::Machine, "wait for the server")? > 0;
    if is_called {
        CALLED.store(true, Ordering::Relaxed);
        lock.take_again().context(Kind::Machine, "take the lock of the yard")?;
    }
    Ok(is_called)
}

/// Whether another machine has led since: what is noted is its run then.
fn leads_elsewhere(yard: &Yard, store: &dyn Store) -> Result<bool> {
    let own = yard.as_holder()?.id;
    let leader = store.leader().map_err(store_error)?;
    Ok(leader.is_some_and(|leader| leader.holder.id != own))
}

/// Judges the outcome by what was expected of each package. Without a run, packages can only be left out.
fn judgement(yard: &Yard, store: &dyn Store, outcome: &RunOutcome) -> Result<Judgement> {
    let is_expected = |name: &str| yard.config.expects_failure(name);
    let Some(run) = outcome.run else {
        let left_out = outcome.left_out.iter();
        return Ok(judge(
            &is_expected,
            left_out.map(|(name, _)| (name.as_str(), PackageState::LeftOut, None)),
        ));
    };
    let rows = store.packages(run).map_err(store_error)?;
    Ok(judge(&is_expected, rows.iter().map(|row| (row.name.as_str(), row.state, row.blamed.as_deref()))))
}

/// The set with the recipes that were read again during the run, and the digest of its inputs.
fn resolved_again(
    yard: &Yard,
    store: &dyn Store,
    distfiles: &FileStore,
    say: &(dyn Fn(&str) + Sync),
) -> Result<(Set, String)> {
    yard.config.family.keep_rescanned(yard, signals::cancel(), say)?;
    Ok((yard.config.family.resolve(yard, distfiles)?, plan::digest(yard, store)?))
}

/// Reports files of builds that could not be removed.
fn report_left_over(yard: &Yard) {
    const NAMED_MAX: usize = 3;
    let names = kilnyard_worker::set_aside_before(&yard.folder);
    if names.is_empty() {
        return;
    }
    let named = names[..names.len().min(NAMED_MAX)].join(", ");
    let more = if names.len() > NAMED_MAX { ", ..." } else { "" };
    say!(
        "note: {} has {} that could not be removed ({named}{more}); try: kilnyard clean",
        kilnyard_worker::LEFT_OVER,
        words::count(names.len() as u64, "folder")
    );
}

/// Rejects unknown names before layers are made, which takes minutes. If the layers exist, the plan rejects the names
/// as soon.
fn check_names(yard: &Yard, names: &[String]) -> Result<()> {
    if names.is_empty()
        || yard.config.family.trees(yard).is_some()
        || yard.config.family.check_scanned(yard).is_err()
    {
        return Ok(());
    }
    let (mut store, distfiles) = (yard.store()?, mirror::open_files(yard)?);
    plan::make(yard, &distfiles, &mut *store, &Forced::Nothing)?.narrow(names)
}

/// The packages forced by the last run, if it was interrupted and this command, without names or --force, resumes it. A
/// run with other inputs is not resumed; its remaining packages are compared as usual.
fn forced_before(yard: &Yard, store: &dyn Store, options: &Build) -> Result<Option<ForcedRun>> {
    if options.force || options.check_reproducible || !options.packages.is_empty() {
        return Ok(None);
    }
    let last = store.last_run().map_err(store_error)?.filter(|run| run.state != RunState::Finished);
    let Some((run, forced)) = last.and_then(|mut run| run.forced.take().map(|forced| (run, forced))) else {
        return Ok(None);
    };
    if plan::inputs_of(&run.plan_digest) == plan::inputs_of(&plan::digest(yard, store)?) {
        return Ok(Some(forced));
    }
    say!(
        "note: run {} forced builds and was interrupted; it is not resumed, because the set has changed since",
        run.number
    );
    Ok(None)
}

/// The last event.
fn ended(
    yard: &Yard,
    outcome: &RunOutcome,
    judgement: &Judgement,
    page: &str,
    published: Option<&Published>,
) -> Result<ExitCode> {
    let counts: serde_json::Map<String, serde_json::Value> =
        outcome.counts.iter().map(|(state, count)| (state.to_string(), (*count).into())).collect();
    let left_out = outcome.left_out.iter().map(|(name, reason)| json!({ "package": name, "reason": reason }));
    let event = json!({
        "event": "ended",
        "run": outcome.run,
        "state": outcome.state.as_str(),
        "counts": counts,
        "left_out": left_out.collect::<Vec<_>>(),
        "expected_failures": judgement.failures,
        "unexpected_successes": judgement.successes,
        "report": yard.path(&format!("{page}/report.json")),
        "repository": published.map(|published| json!({
            "folder": yard.repository(),
            "changed": published.is_changed,
            "packages": published.packages,
            "line": published.line,
            "remarks": published.remarks,
        })),
        "at_seconds": words::now_seconds(),
    });
    print(&format!("{}\n", words::json_text(&event)))
}

/// Prints a summary that fits on one screen.
fn summary(
    yard: &Yard,
    store: &dyn Store,
    workshop: &dyn Ecosystem,
    outcome: &RunOutcome,
    page: &str,
    published: Option<&Published>,
) {
    let count = |state| outcome.counts.iter().find(|(other, _)| *other == state).map_or(0, |(_, c)| *c);
    let mut parts = Vec::new();
    for state in PackageState::ALL {
        if count(state) > 0 {
            parts.push(format!("{} {state}", count(state)));
        }
    }
    say!("");
    match outcome.run {
        None => say!(
            "nothing to do: {}",
            if parts.is_empty() { "no packages".to_owned() } else { parts.join(", ") }
        ),
        Some(number) => {
            let verb = match outcome.state {
                RunState::Interrupted => "interrupted",
                _ => "finished",
            };
            let figures = report::figures(yard, store, workshop.into());
            say!("run {number} {verb}: {}", parts.join(", "));
            if let Ok(Some(figures)) = figures {
                say!(
                    "  {} of wall time, {} of CPU time; minimum: {}",
                    words::duration(figures.wall_seconds),
                    words::duration(figures.cpu_seconds),
                    words::minimums(figures.estimated_bound_seconds, figures.bound_seconds)
                );
                failed(&figures.failures, &*yard.config.family);
                failed_as_expected(&figures.expected_failures);
                for name in &figures.unexpected_successes {
                    say!("  NOT expected: {}", success_note(name));
                }
                for name in &figures.not_reproducible {
                    say!("  NOT reproducible: {name}: two builds gave different bytes");
                }
            }
        }
    }
    let is_expected = |name: &str| yard.config.expects_failure(name);
    few(&outcome.left_out, |name, reason| {
        let how = if is_expected(name) { "left out, as expected" } else { "left out" };
        say!("  {how}: {name}: {reason}");
    });
    let report = yard.path(&format!("{page}/index.html"));
    if report.exists() {
        say!("report: {}", report.display());
    }
    if let Some(published) = published {
        for remark in &published.remarks {
            say!("note: {remark}");
        }
        let how = if published.is_changed { "published" } else { "unchanged" };
        say!(
            "repository ({how}, {}): {}",
            words::count(published.packages, "package"),
            yard.repository().display()
        );
        say!("for {}:\n  {}", published.line_for, published.line);
    }
}

/// Reports packages whose builds seem to have stalled this machine's other cores, where no counter shows it.
fn report_stalls(yard: &Yard, store: &dyn Store, run: u64, readings: &Readings) -> Result<()> {
    let Some(since_seconds) = readings.since_seconds() else { return Ok(()) };
    let locks = kernel_log::read();
    if locks.is_empty() && !readings.are_enough() {
        return Ok(());
    }
    let builds = store.builds_in(run).map_err(store_error)?;
    let cores = Shape::of(yard).machine.cores;
    for (program, count, packages) in kernel_log::split_locks(locks, &builds, &host_name(), since_seconds) {
        say!(
            "note: the kernel slowed {program} down {}, which locked the bus of all cores (split locks), while these were built: {} (docs/machines.md)",
            words::count(count as u64, "time"),
            packages.iter().take(SHOWN_MAX).map(String::as_str).collect::<Vec<_>>().join(", ")
        );
    }
    for suspect in readings.suspects(&builds, &host_name(), cores).iter().take(SHOWN_MAX) {
        say!(
            "note: while {} was built, {:.1} cores more than otherwise were in the kernel, which no build accounts for ({:.1} % sure): \
             it may stall all cores (docs/machines.md)",
            suspect.package,
            suspect.cores,
            // Rounding must not make it certain.
            (suspect.confidence * 100.0).min(99.9)
        );
    }
    Ok(())
}

/// Reports failures, grouped by cause.
fn failed(failures: &[(String, Reason)], family: &dyn Family) {
    let causes = by_cause(failures.iter().map(|(name, reason)| (name.as_str(), reason)), family.causes());
    for cause in causes.iter().take(SHOWN_MAX) {
        say!("  failed: {}", cause.line());
        if let Some(hint) = cause.remedy(family) {
            say!("    try: {hint}");
        }
    }
    if causes.len() > SHOWN_MAX {
        say!("  and {} more: kilnyard status; kilnyard why PACKAGE", causes.len() - SHOWN_MAX);
    }
}

/// Reports failures that were expected, with the owner's reasons.
fn failed_as_expected(failures: &[(String, Reason, Option<String>)]) {
    for (name, reason, because) in failures.iter().take(SHOWN_MAX) {
        let because = because.as_ref().map_or(String::new(), |because| format!(" ({because})"));
        say!("  failed as expected{because}: {name}: {}", reason.first_line());
    }
    if failures.len() > SHOWN_MAX {
        say!("  and {} more failed as expected", failures.len() - SHOWN_MAX);
    }
}

/// Prints the first packages of a list, each with the first line of its reason.
fn few(packages: &[(String, String)], tell: impl Fn(&str, &str)) {
    for (package, reason) in packages.iter().take(SHOWN_MAX) {
        tell(package, reason.lines().next().unwrap_or(""));
    }
    if packages.len() > SHOWN_MAX {
        let (status, why) = (words::command("status"), words::command("why PACKAGE"));
        say!("  and {} more: {status}; {why}", packages.len() - SHOWN_MAX);
    }
}
