//! `kilnyard build`: scan, plan, build, publish, report.

use crate::cli::Build;
use crate::error::{Kind, Result};
use crate::run::view::{Events, Live, Plain, View};
use crate::run::{Options, Outcome, Run};
use crate::scan::Index;
use crate::yard::{Lock, Yard};
use crate::{base, plan, publish, report, scan, signals, words};
use kilnyard_ecosystem::debian::Workshop;
use kilnyard_model::result::PackageState;
use kilnyard_store::{RunState, Sqlite};
use std::collections::HashSet;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

/// Writes a line to standard error. Where the terminal is gone, nobody reads it, and the rest is done all
/// the same.
macro_rules! tell {
    ($($what:tt)*) => {{
        let _ = writeln!(std::io::stderr(), $($what)*);
    }};
}

pub fn run(mut yard: Yard, options: &Build) -> Result<ExitCode> {
    signals::install();
    yard.config.build.slots = options.slots.or(yard.config.build.slots);
    yard.config.build.jobs = options.jobs.or(yard.config.build.jobs);
    let lock = yard.lock()?;
    build(&yard, &lock, options)
}

/// Builds a yard whose lock is held.
pub fn build(yard: &Yard, _lock: &Lock, options: &Build) -> Result<ExitCode> {
    let say = |text: &str| tell!("{text}");
    if !options.no_scan {
        scan::scan(yard, signals::cancel(), &say)?;
    }
    let ids = yard.ids()?;
    let base = base::ensure(yard, &ids, signals::cancel(), &say)?;
    let index = Index::open(yard)?;
    let mut store = yard.store()?;
    let distfiles = Arc::new(plan::open_distfiles(yard)?);
    let forced: HashSet<String> =
        if options.force { options.packages.iter().cloned().collect() } else { HashSet::new() };
    let planned = plan::make(yard, &index, base, &distfiles, &mut store, &forced)?;
    if options.dry_run {
        return super::plan::show(&planned.plan, false);
    }
    let run_options =
        Options { only: options.packages.clone(), forced, checks_reproducible: options.check_reproducible };
    let shape = plan::shape(yard);
    let mut view: Box<dyn View> = if options.json {
        Box::new(Events)
    } else if let Some(live) = Live::open() {
        Box::new(live)
    } else {
        Box::new(Plain::default())
    };
    let workshop = planned.workshop.clone();
    let run =
        Run { yard, store: &mut store, planned, distfiles: distfiles.clone(), shape, options: run_options };
    let outcome = run.run(view.as_mut())?;
    drop(view);
    let published =
        if options.no_publish { None } else { Some(publish::publish(yard, &store, &workshop, &distfiles)?) };
    if outcome.run.is_some() {
        report::write(yard, &store, &workshop, published.as_ref())?;
    }
    if !options.json {
        summary(yard, &store, &workshop, &outcome, published.as_ref());
    }
    exit_code(&outcome)
}

fn exit_code(outcome: &Outcome) -> Result<ExitCode> {
    let bad = [PackageState::Failed, PackageState::Blocked, PackageState::LeftOut];
    let is_bad = outcome.counts.iter().any(|(state, count)| bad.contains(state) && *count > 0);
    Ok(match outcome.state {
        RunState::Interrupted => ExitCode::from(Kind::Interrupted as u8),
        _ if is_bad => ExitCode::from(Kind::Packages as u8),
        _ => ExitCode::SUCCESS,
    })
}

/// What fits one screen at the end.
fn summary(
    yard: &Yard,
    store: &Sqlite,
    workshop: &Workshop,
    outcome: &Outcome,
    published: Option<&publish::Published>,
) {
    let count = |state| outcome.counts.iter().find(|(other, _)| *other == state).map_or(0, |(_, c)| *c);
    let mut parts = Vec::new();
    for state in PackageState::ALL {
        if count(state) > 0 {
            parts.push(format!("{} {state}", count(state)));
        }
    }
    tell!();
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
                    "  {} of wall time, {} of CPU; no schedule could take less than {}",
                    words::duration(figures.wall_seconds),
                    words::duration(figures.cpu_seconds),
                    words::duration(figures.bound_seconds)
                );
                for (package, reason) in figures.failures.iter().take(10) {
                    tell!("  failed: {package}: {}", reason.lines().next().unwrap_or(""));
                }
                if figures.failures.len() > 10 {
                    tell!("  and {} more", figures.failures.len() - 10);
                }
            }
        }
    }
    let report = yard.path("report/index.html");
    if report.exists() {
        tell!("report: {}", report.display());
    }
    if let Some(published) = published {
        let how = if published.is_changed { "published" } else { "unchanged" };
        tell!(
            "repository ({how}, {}): {}",
            words::count(published.packages, "package"),
            yard.path("repository").display()
        );
        tell!("for sources.list:\n  {}", published.sources_line);
    }
}
