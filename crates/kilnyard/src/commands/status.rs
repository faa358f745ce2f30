//! `kilnyard status`: the state of the current or last run.

mod follow;

use super::workers::asked_of_site;
use super::{last_run, print, print_json, state_of};
use crate::causes::by_cause;
use crate::cli::Status;
use crate::error::Result;
use crate::words;
use crate::yard::{Yard, store_error};
use kilnyard_model::foreign::Foreign;
use kilnyard_model::order::Stage;
use kilnyard_model::result::PackageState;
use kilnyard_model::text;
use kilnyard_store::{BuildRow, PackageRow, RunRow, RunState, Store};
use kilnyard_yard::signing::delayed::{Delayed, delayed};
use serde_json::json;
use std::fmt::Write;
use std::process::ExitCode;

/// The maximum number of causes of failures, to fit one screen; the report has all.
const CAUSES_MAX: usize = 20;

/// Why workers may be missing: pools that cannot start any, packages that fit no worker, and quotas that are used up.
fn obstacles(yard: &Yard) -> Vec<String> {
    let Some(status) = asked_of_site(yard) else { return Vec::new() };
    let mut found = Vec::new();
    for pool in &status.pools {
        found.extend(pool.troubles.iter().map(|trouble| format!("pool {}: {trouble}", pool.name)));
        found.extend(pool.misses.iter().map(|(package, lack)| format!("{package} fits no worker: {lack}")));
    }
    for shared in &status.yards {
        let Some(quota) = shared.quota.filter(|quota| quota.is_spent()) else { continue };
        let name = if shared.name.is_empty() { "the site's own yard" } else { shared.name.as_str() };
        found.push(format!(
            "{name} has used {:.3} of {} core-hours within a day, and starts nothing further on the workers",
            quota.used_core_hours, quota.core_hours
        ));
    }
    found
}

pub fn run(yard: &Yard, options: &Status) -> Result<ExitCode> {
    let as_json = options.json;
    let store = yard.store()?;
    let preparing = preparing(yard);
    if let (Some(preparing), None) = (&preparing, store.last_run().map_err(store_error)?) {
        return match as_json {
            true => print_json(&json!({
                "target": yard.target_name,
                "run": null,
                "state": "preparing",
                "preparing": preparing,
            })),
            false => print(&format!("{preparing}; there is no run yet\n")),
        };
    }
    let run = last_run(yard, &*store)?;
    let counts = store.counts(run.number).map_err(store_error)?;
    let is_locked = yard.is_locked();
    let state = state_of(yard, &run);
    if options.follow && state == RunState::Running.as_str() {
        return follow::run(yard, &*store, &run, as_json);
    }
    let now = words::now_seconds();
    let builds: Vec<BuildRow> = match (run.state, is_locked) {
        (RunState::Running, true) => store.builds_open(run.number).map_err(store_error)?,
        _ => Vec::new(),
    };
    let failed = store.packages_in_state(run.number, PackageState::Failed).map_err(store_error)?;
    let measured_bound_seconds = match run.ended_seconds {
        Some(_) => crate::report::bound_seconds(yard, run.number),
        None => None,
    };
    let path = if state == "running" { path(&*store, &run, &counts)? } else { Vec::new() };
    let mut obstacles = if state == "running" { obstacles(yard) } else { Vec::new() };
    if let Some(Delayed { since_seconds, reason }) = delayed(yard) {
        let since = words::time(since_seconds);
        obstacles.push(format!("the publication, since {since}, for the signer, which is away: {reason}"));
    }
    if as_json {
        let counts: serde_json::Map<String, serde_json::Value> =
            counts.iter().map(|(state, count)| (state.to_string(), (*count).into())).collect();
        let building = |build: &BuildRow| {
            json!({
                "package": build.package,
                "build": build.number,
                "slot": build.slot,
                "since_seconds": now - build.started_seconds,
                "stage": stage_of(yard, build),
            })
        };
        let failed = failed.iter().map(|row| {
            json!({
                "package": row.name,
                "reason": row.reason.to_string(),
                "expected": yard.config.expects_failure(&row.name),
            })
        });
        return print_json(&json!({
            "target": yard.target_name,
            "run": run.number,
            "state": state,
            "preparing": preparing,
            "started_seconds": run.started_seconds,
            "ended_seconds": run.ended_seconds,
            "expected_seconds": run.expected_seconds,
            "bound_seconds": run.bound_seconds,
            "measured_bound_seconds": measured_bound_seconds,
            "path": path,
            "obstacles": obstacles,
            "slots": run.slots,
            "counts": counts,
            "building": builds.iter().map(building).collect::<Vec<_>>(),
            "failed": failed.collect::<Vec<_>>(),
        }));
    }
    let mut text = preparing.map_or_else(String::new, |preparing| format!("{preparing}\n"));
    let so_far = if run.ended_seconds.is_none() { " so far" } else { "" };
    let ended = run.ended_seconds.unwrap_or(now);
    let _ = writeln!(
        text,
        "run {} {state}: began {}, {}{so_far}, {} expected",
        run.number,
        words::time(run.started_seconds),
        words::duration(ended - run.started_seconds),
        words::duration(run.expected_seconds)
    );
    if run.bound_seconds > 0.0 || measured_bound_seconds.is_some() {
        let _ = write!(text, "minimum: {}", words::minimums(run.bound_seconds, measured_bound_seconds));
        let _ = match (run.ended_seconds, measured_bound_seconds) {
            (Some(ended), Some(bound)) if run.state == RunState::Finished && bound > 0.0 => {
                writeln!(
                    text,
                    "; the run took {:.2} times the measured minimum",
                    (ended - run.started_seconds) / bound
                )
            }
            _ => writeln!(text),
        };
    }
    if !path.is_empty() {
        let _ = writeln!(text, "path: {}", path.join(" -> "));
    }
    let parts: Vec<String> = counts.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let _ = writeln!(text, "{}", parts.join(", "));
    for obstacle in &obstacles {
        let _ = writeln!(text, "waits: {}", Foreign(obstacle));
    }
    for build in &builds {
        let stage = stage_of(yard, build);
        let since = words::duration(now - build.started_seconds);
        let _ = writeln!(
            text,
            "slot {}: {} {} ({stage}, {since})",
            u64::from(build.slot) + 1,
            build.package,
            build.version
        );
    }
    let (expected, failed): (Vec<PackageRow>, Vec<PackageRow>) =
        failed.into_iter().partition(|row| yard.config.expects_failure(&row.name));
    let family = &yard.config.family;
    let causes = by_cause(failed.iter().map(|row| (row.name.as_str(), &row.reason)), family.causes());
    for cause in causes.iter().take(CAUSES_MAX) {
        let _ = writeln!(text, "failed: {}", cause.line());
        if let Some(hint) = cause.remedy(&**family) {
            let _ = writeln!(text, "  try: {hint}");
        }
    }
    if causes.len() > CAUSES_MAX {
        let _ = writeln!(text, "and {} more failed", causes.len() - CAUSES_MAX);
    }
    for row in expected.iter().take(CAUSES_MAX) {
        let _ = writeln!(text, "failed as expected: {}: {}", row.name, row.reason.first_line());
    }
    if expected.len() > CAUSES_MAX {
        let _ = writeln!(text, "and {} more failed as expected", expected.len() - CAUSES_MAX);
    }
    if state == "killed" || state == "interrupted" {
        let _ = writeln!(text, "{} continues from here", words::command("build"));
    }
    print(&text)
}

/// The activity of another process in the yard outside runs, as a clause; none during a run.
fn preparing(yard: &Yard) -> Option<String> {
    let holder = yard.holder().filter(|holder| !holder.phase.is_empty())?;
    Some(format!("process {} is {}", text::line(&holder.process), text::line(&holder.phase)))
}

/// The path of the current run, if the stored plan belongs to it. After a run, the stored plan is that of the next one.
fn path(store: &dyn Store, run: &RunRow, counts: &[(PackageState, u64)]) -> Result<Vec<String>> {
    let plan = store.plan_head().map_err(store_error)?.filter(|plan| plan.digest == run.plan_digest);
    let mut planned = 0;
    store
        .each_planned(&mut |_| {
            planned += 1;
            true
        })
        .map_err(store_error)?;
    let is_whole = planned == counts.iter().map(|(_, count)| count).sum::<u64>();
    Ok(plan.filter(|_| is_whole).map_or_else(Vec::new, |plan| plan.path))
}

/// The current stage of a build: the one with a log that no result names. The time between stages is negligible.
fn stage_of(yard: &Yard, build: &BuildRow) -> &'static str {
    open_stage(yard, build).map_or("between stages", Stage::as_str)
}

fn open_stage(yard: &Yard, build: &BuildRow) -> Option<Stage> {
    Stage::ALL.into_iter().find(|stage| yard.open_log(build, *stage).is_some())
}
