//! `kilnyard build`: scan, plan, build, publish, report.

use super::print;
use crate::causes::by_cause;
use crate::cli::Build;
use crate::error::{Context, Kind, Result};
use crate::family::{Family, Published, Set};
use crate::plan::Forced;
use crate::run::view::{Drawn, Events, Live, Plain, View};
use crate::run::{Options, Run, RunOutcome};
use crate::yard::{Lock, Yard, store_error};
use crate::{mirror, plan, report, signals, words};
use kilnyard_ecosystem::Ecosystem;
use kilnyard_mirror::FileStore;
use kilnyard_model::reason::Reason;
use kilnyard_model::result::PackageState;
use kilnyard_store::{ForcedRun, RunState, Store};
use serde_json::json;
use std::process::ExitCode;
use std::sync::Arc;

/// The maximum number of failures, or packages left out, in the summary; `kilnyard status` and the report have all.
const SHOWN_MAX: usize = 10;
/// The maximum number of printed remarks on a set.
const REMARKS_MAX: usize = 10;

pub fn run(mut yard: Yard, options: &Build) -> Result<ExitCode> {
    signals::install();
    yard.config.build.slots = options.slots.or(yard.config.build.slots);
    yard.config.build.jobs = options.jobs.or(yard.config.build.jobs);
    yard.config.build.first.extend(options.first.iter().cloned());
    yard.config.build.memory = options.memory.or(yard.config.build.memory);
    let lock = yard.lock()?;
    build(&yard, &lock, options)
}

/// Builds a yard whose lock is held.
pub fn build(yard: &Yard, lock: &Lock, options: &Build) -> Result<ExitCode> {
    let say = |text: &str| tell!("{text}");
    if let Some(lack) = yard.config.lack(&yard.folder)? {
        tell!("note: {lack}");
    }
    if !options.dry_run {
        yard.check_roots()?;
        // Here, since a run without builds does not start a worker, which would do it.
        let swept = kilnyard_worker::sweep_roots(&yard.folder, &yard.ids());
        for left in swept.context(Kind::Machine, "remove leftovers of an earlier run")? {
            tell!("note: {left}");
        }
    }
    let needs_scan = if options.dry_run { yard.config.family.check_scanned(yard).is_err() } else { true };
    // If this cannot be written, status shows less.
    let note = |phase: &str| drop(lock.note(phase));
    if needs_scan && !options.no_scan {
        note("scanning");
        yard.config.family.scan(yard, signals::cancel(), &say)?;
    }
    if !options.dry_run {
        check_names(yard, &options.packages)?;
        note("checking or making the base root");
        yard.config.family.ensure_layers(yard, &yard.ids(), signals::cancel(), &say)?;
    }
    note("planning");
    let mut store = yard.store()?;
    store.check().map_err(store_error)?;
    let distfiles = Arc::new(mirror::open_files(yard)?);
    let mut packages = options.packages.clone();
    let mut checks_reproducible = options.check_reproducible;
    let mut is_forced = options.force || checks_reproducible;
    if let Some(run) = forced_before(yard, &store, options)? {
        is_forced = true;
        (packages, checks_reproducible) = (run.packages, run.checks_reproducible);
    }
    let forced = match (is_forced, packages.is_empty()) {
        (false, _) => Forced::Nothing,
        (true, true) => Forced::All,
        (true, false) => Forced::Named(packages.iter().cloned().collect()),
    };
    let mut planned = plan::make(yard, &distfiles, &mut store, &forced)?;
    if options.locked || !options.dry_run {
        yard.config.family.check_lock(yard, &planned.set, options.locked, &say)?;
    }
    if !packages.is_empty() {
        planned.narrow(&packages)?;
    }
    if options.dry_run {
        return super::plan::show(&planned.plan, false, &yard.config.family.provenances(yard)?);
    }
    for remark in planned.workshop.remarks().iter().take(REMARKS_MAX) {
        tell!("note: {remark}");
    }
    if let Some(more) = planned.workshop.remarks().len().checked_sub(REMARKS_MAX + 1) {
        tell!("and {} more notes", more + 1);
    }
    let run_options = Options { forced, checks_reproducible, transcript: options.messages.clone() };
    let mut view: Box<dyn View> = if options.json {
        Box::new(Events::new(Box::new(std::io::stdout())))
    } else if let Some(live) = Live::open() {
        Box::new(live)
    } else {
        Box::new(Plain::new(Box::new(std::io::stderr())))
    };
    if let Some(path) = &options.picture {
        view = Box::new(Drawn::open(view, path.clone())?);
    }
    let (set, digest) = (planned.set.clone(), planned.plan.digest.clone());
    let run = Run { yard, store: &mut store, planned, distfiles: distfiles.clone(), options: run_options };
    note("");
    let outcome = run.run(view.as_mut())?;
    drop(view);
    report_left_over(yard);
    note("publishing and reporting");
    let (set, digest) = match outcome.has_rescanned && signals::count() == 0 {
        true => resolved_again(yard, &store, &distfiles, &say)?,
        // After an interruption, the next run resolves the set.
        false => (set, digest),
    };
    let published = match options.no_publish {
        true => Ok(None),
        false => set.publish(yard, &store, &distfiles).map(Some),
    };
    // The report is written even if publishing failed.
    let repository = published.as_ref().ok().and_then(Option::as_ref);
    let mut page = report::WHOLE.to_owned();
    if outcome.run.is_some() {
        page = report::write(yard, &store, &*set.ecosystem(), repository)?;
        set.write_reports(yard, &store)?;
        plan::remake(yard, set.clone(), &digest, &distfiles, &mut store)?;
        // A failed backup, on a full disk for instance, does not fail the run.
        if let Err(error) = yard.back_up(&store) {
            tell!("warning: the store was not backed up\n{error}");
        }
    }
    if options.json {
        ended(yard, &outcome, &page, repository)?;
    } else {
        summary(yard, &store, &*set.ecosystem(), &outcome, &page, repository);
    }
    published?;
    exit_code(&outcome)
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
    tell!(
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
    plan::make(yard, &distfiles, &mut store, &Forced::Nothing)?.narrow(names)
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
    tell!(
        "note: run {} forced builds and was interrupted; it is not resumed, because the set has changed since",
        run.number
    );
    Ok(None)
}

/// The last event.
fn ended(yard: &Yard, outcome: &RunOutcome, page: &str, published: Option<&Published>) -> Result<ExitCode> {
    let counts: serde_json::Map<String, serde_json::Value> =
        outcome.counts.iter().map(|(state, count)| (state.to_string(), (*count).into())).collect();
    let left_out = outcome.left_out.iter().map(|(name, reason)| json!({ "package": name, "reason": reason }));
    let event = json!({
        "event": "ended",
        "run": outcome.run,
        "state": outcome.state.as_str(),
        "counts": counts,
        "left_out": left_out.collect::<Vec<_>>(),
        "report": yard.path(&format!("{page}/report.json")),
        "repository": published.map(|published| json!({
            "folder": yard.path("repository"),
            "changed": published.is_changed,
            "packages": published.packages,
            "line": published.line,
            "remarks": published.remarks,
        })),
        "at_seconds": words::now_seconds(),
    });
    print(&format!("{}\n", words::json_text(&event)))
}

fn exit_code(outcome: &RunOutcome) -> Result<ExitCode> {
    let bad = [PackageState::Failed, PackageState::Blocked, PackageState::LeftOut];
    let is_bad = outcome.counts.iter().any(|(state, count)| bad.contains(state) && *count > 0);
    Ok(match outcome.state {
        RunState::Interrupted => ExitCode::from(Kind::Interrupted as u8),
        _ if is_bad => ExitCode::from(Kind::Packages as u8),
        _ => ExitCode::SUCCESS,
    })
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
    tell!("");
    match outcome.run {
        None => tell!(
            "nothing to do: {}",
            if parts.is_empty() { "no packages".to_owned() } else { parts.join(", ") }
        ),
        Some(number) => {
            let verb = match outcome.state {
                RunState::Interrupted => "interrupted",
                _ => "finished",
            };
            let figures = report::figures(yard, store, workshop);
            tell!("run {number} {verb}: {}", parts.join(", "));
            if let Ok(Some(figures)) = figures {
                tell!(
                    "  {} of wall time, {} of CPU time; minimum: {}",
                    words::duration(figures.wall_seconds),
                    words::duration(figures.cpu_seconds),
                    words::minimums(figures.estimated_bound_seconds, figures.bound_seconds)
                );
                failed(&figures.failures, &*yard.config.family);
                for name in &figures.not_reproducible {
                    tell!("  NOT reproducible: {name}: two builds gave different bytes");
                }
            }
        }
    }
    few(&outcome.left_out, |name, reason| tell!("  left out: {name}: {reason}"));
    let report = yard.path(&format!("{page}/index.html"));
    if report.exists() {
        tell!("report: {}", report.display());
    }
    if let Some(published) = published {
        for remark in &published.remarks {
            tell!("note: {remark}");
        }
        let how = if published.is_changed { "published" } else { "unchanged" };
        tell!(
            "repository ({how}, {}): {}",
            words::count(published.packages, "package"),
            yard.path("repository").display()
        );
        tell!("for {}:\n  {}", published.line_for, published.line);
    }
}

/// Reports failures, grouped by cause.
fn failed(failures: &[(String, Reason)], family: &dyn Family) {
    let causes = by_cause(failures.iter().map(|(name, reason)| (name.as_str(), reason)));
    for cause in causes.iter().take(SHOWN_MAX) {
        tell!("  failed: {}", cause.line());
        if let Some(hint) = cause.remedy(family) {
            tell!("    try: {hint}");
        }
    }
    if causes.len() > SHOWN_MAX {
        tell!("  and {} more: kilnyard status; kilnyard why PACKAGE", causes.len() - SHOWN_MAX);
    }
}

/// Prints the first packages of a list, each with the first line of its reason.
fn few(packages: &[(String, String)], tell: impl Fn(&str, &str)) {
    for (package, reason) in packages.iter().take(SHOWN_MAX) {
        tell(package, reason.lines().next().unwrap_or(""));
    }
    if packages.len() > SHOWN_MAX {
        let (status, why) = (words::command("status"), words::command("why PACKAGE"));
        tell!("  and {} more: {status}; {why}", packages.len() - SHOWN_MAX);
    }
}
