//! `kilnyard status`: the state of the current or last run.

mod follow;

use super::history::in_order;
use super::workers::asked_of_site;
use super::{last_run, print, print_coloured, print_data};
use crate::causes::by_cause;
use crate::cli::Status;
use crate::error::Result;
use crate::words;
use crate::yard::{Yard, store_error};
use kilnyard_api::bodies::OWN_YARD;
use kilnyard_model::foreign::Foreign;
use kilnyard_model::result::PackageState;
use kilnyard_schema::run::{self as schema, Progress};
use kilnyard_store::{PackageRow, RunState};
use kilnyard_yard::facts::status;
use std::fmt::Write;
use std::process::ExitCode;

/// The maximum number of causes of failures, to fit one screen; the report has all.
const CAUSES_MAX: usize = 20;

/// Why workers may be missing: pools that cannot start any, packages that fit no worker, and quotas that are used up.
fn obstacles(yard: &Yard) -> Vec<String> {
    obstacles_of(yard, None)
}

/// Those that concern one yard of a site, by its name there, for people who may not see the others; all for the owner.
pub fn obstacles_of(yard: &Yard, only: Option<&str>) -> Vec<String> {
    let mut found = Vec::new();
    let Some(status) = asked_of_site(yard) else { return found };
    let is_own = only.is_none_or(|only| only == OWN_YARD);
    for pool in status.pools.iter().filter(|_| is_own) {
        found.extend(pool.troubles.iter().map(|trouble| format!("pool {}: {trouble}", pool.name)));
        let misses = pool.misses.iter().filter(|_| only.is_none() || status.yards.len() < 2);
        found.extend(misses.map(|(package, lack)| format!("{package} fits no worker: {lack}")));
    }
    for shared in &status.yards {
        let Some(quota) = shared.quota.filter(|quota| quota.is_spent()) else { continue };
        let own = if shared.name.is_empty() { OWN_YARD } else { shared.name.as_str() };
        if only.is_some_and(|only| only != own) {
            continue;
        }
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
    if let (Some(preparing), None) = (status::preparing(yard), store.last_run().map_err(store_error)?) {
        return match as_json {
            true => print_data(&status::status(yard, &*store, Vec::new())?),
            false => print(&format!("{preparing}; there is no run yet\n")),
        };
    }
    let run = last_run(yard, &*store)?;
    if options.follow && status::state_of(yard, &run) == RunState::Running.as_str() {
        return follow::run(yard, &*store, &run, as_json);
    }
    let status = status::status(yard, &*store, obstacles(yard))?;
    if as_json {
        return print_data(&status);
    }
    let failed = store.packages_in_state(run.number, PackageState::Failed).map_err(store_error)?;
    print_coloured(&text(yard, &status, &failed))
}

fn text(yard: &Yard, status: &schema::Status, failed: &[PackageRow]) -> String {
    let now = words::now_seconds();
    let preparing = status.preparing.as_ref();
    let mut text = preparing.map_or_else(String::new, |preparing| format!("{preparing}\n"));
    let so_far = if status.ended_seconds.is_none() { " so far" } else { "" };
    let (began, ended) = (status.started_seconds.unwrap_or(now), status.ended_seconds.unwrap_or(now));
    let _ = writeln!(
        text,
        "run {} {}: began {}, {}{so_far}, {} expected",
        status.run.unwrap_or_default(),
        status.state,
        words::time(began),
        words::duration(ended - began),
        words::duration(status.expected_seconds)
    );
    if let Some(Progress { ends: Some(ends), .. }) = &status.progress {
        let part = status.progress.map_or(0.0, |progress| progress.part());
        let _ = writeln!(
            text,
            "{:.0} % of the work is done; it ends at {}, between {} and {}",
            part * 100.0,
            words::time(ends.expected_seconds),
            words::time(ends.earliest_seconds),
            words::time(ends.latest_seconds)
        );
    }
    if status.bound_seconds > 0.0 || status.measured_bound_seconds.is_some() {
        let _ =
            write!(text, "minimum: {}", words::minimums(status.bound_seconds, status.measured_bound_seconds));
        let _ = match (status.ended_seconds, status.measured_bound_seconds) {
            (Some(ended), Some(bound)) if status.state == RunState::Finished.as_str() && bound > 0.0 => {
                writeln!(text, "; the run took {:.2} times the measured minimum", (ended - began) / bound)
            }
            _ => writeln!(text),
        };
    }
    if !status.path.is_empty() {
        let _ = writeln!(text, "path: {}", status.path.join(" -> "));
    }
    let _ = writeln!(text, "{}", in_order(&status.counts).join(", "));
    for obstacle in &status.obstacles {
        let _ = writeln!(text, "waits: {}", Foreign(obstacle));
    }
    for build in &status.building {
        let (stage, since) = (&build.stage, words::duration(build.since_seconds));
        let slot = u64::from(build.slot) + 1;
        let late = match build.is_late() {
            true => format!(", {} expected", words::duration(build.estimate_seconds)),
            false => String::new(),
        };
        let _ = writeln!(text, "slot {slot}: {} {} ({stage}, {since}{late})", build.package, build.version);
    }
    let (expected, failed): (Vec<&PackageRow>, Vec<&PackageRow>) =
        failed.iter().partition(|row| yard.config.expects_failure(&row.name));
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
    if status.state == "killed" || status.state == "interrupted" {
        let _ = writeln!(text, "{} continues from here", words::command("build"));
    }
    text
}
