//! The part of a run's page that changes while it runs: progress by work, builds, failures as they come, what is next.

use super::{Shell, time_of_day};
use crate::drawing::Length;
use crate::page::NAME_CHARACTERS_MAX;
use crate::{clean, words};
use kilnyard_schema::run::{Building, Cause, Progress, Queued, Status};
use maud::{Markup, Render, html};

/// The most builds that are listed. A farm of more has a page of workers.
const BUILDS_MAX: usize = 100;
/// The most packages of the queue that are listed.
const QUEUED_MAX: usize = 8;
/// The most causes of failures that are listed.
const CAUSES_MAX: usize = 8;
/// The packages that are named for a cause.
const NAMES_MAX: usize = 6;
/// The longest reason that is shown.
const TEXT_CHARACTERS_MAX: usize = 200;

/// What is shown of a run that is in progress.
#[derive(Clone, Copy, Debug)]
pub struct Now<'a> {
    /// Its state.
    pub status: &'a Status,
    /// What waits, in the order of the expected starts.
    pub queue: &'a [Queued],
    /// The causes of failures until now.
    pub causes: &'a [Cause],
    /// The present, in seconds since 1970.
    pub now_seconds: f64,
    /// The number of the last event that this includes.
    pub seq: u64,
}

/// Renders the part as a fragment of a page.
pub fn now(shell: &Shell, now: &Now<'_>) -> String {
    clean::only_shown(part(shell, now).into_string())
}

pub(crate) fn part(shell: &Shell, now: &Now<'_>) -> Markup {
    let Now { status, queue, causes, now_seconds, .. } = *now;
    let run = status.run.unwrap_or_default();
    html! {
        @if let Some(progress) = &status.progress { (bar(progress, now_seconds)) }
        @for obstacle in &status.obstacles { p.obstacle { "Waits: " (clean::line(obstacle, TEXT_CHARACTERS_MAX)) } }
        @if !status.building.is_empty() {
            h2 { "Being built" " " span.count { (words::count(status.building.len() as u64)) } }
            (builds(shell, &status.building))
        }
        @if !causes.is_empty() {
            h2 { (shell.run_link(run, "failures", html! { "Failed until now" })) " " span.count { (words::count(failed(causes))) } }
            ul.causes {
                @for cause in causes.iter().take(CAUSES_MAX) {
                    li {
                        span.message { (clean::line(&cause.title, TEXT_CHARACTERS_MAX)) } " "
                        (shell.package_links(&cause.packages, NAMES_MAX))
                        @if cause.blocks > 0 { " " span.remark { "blocks " (words::count(cause.blocks)) } }
                    }
                }
                @if causes.len() > CAUSES_MAX {
                    li.cut { "and " (words::count((causes.len() - CAUSES_MAX) as u64)) " more causes" }
                }
            }
        }
        @if !queue.is_empty() {
            h2 { a href=[shell.of_yard("queue")] { "Next" } " " span.count { (words::count(queue.len() as u64)) " wait" } }
            ol.next {
                @for queued in queue.iter().take(QUEUED_MAX) {
                    li {
                        (shell.package_link(&queued.package)) " "
                        span.remark { (starts(queued, now_seconds)) }
                    }
                }
            }
        }
    }
}

fn failed(causes: &[Cause]) -> u64 {
    causes.iter().map(|cause| cause.packages.len() as u64).sum()
}

/// When a package is expected to start, and what it waits for.
pub(super) fn starts(queued: &Queued, now_seconds: f64) -> String {
    let when = match queued.expected_start_seconds {
        Some(start) if start - now_seconds < 5.0 => "starts now".to_owned(),
        Some(start) => format!("starts at {}", time_of_day(start, now_seconds)),
        None => "waits".to_owned(),
    };
    let estimate = match queued.estimate_seconds > 0.0 {
        true => format!(", takes {}", words::duration(queued.estimate_seconds)),
        false => String::new(),
    };
    when + &estimate
}

/// The bar of work, with the expected end as a range.
fn bar(progress: &Progress, now_seconds: f64) -> Markup {
    let part = progress.part();
    let width = Length::Share(part).render().0;
    html! {
        p.progress {
            strong { (words::percent(part)) " of the work" }
            @if let Some(ends) = progress.ends {
                " – ends at " strong { (time_of_day(ends.expected_seconds, now_seconds)) }
                span.remark {
                    " (" (time_of_day(ends.earliest_seconds, now_seconds)) " to "
                    (time_of_day(ends.latest_seconds, now_seconds)) ")"
                }
                ", in " (words::duration(ends.expected_seconds - now_seconds))
            }
        }
        // Its value is in the sentence above it.
        span.strip.work style={ "--width:" (width) } aria-hidden="true" {}
    }
}

fn builds(shell: &Shell, building: &[Building]) -> Markup {
    let has_workers = building.iter().any(|build| build.worker != building[0].worker);
    let has_samples = building.iter().any(|build| build.sample.is_some());
    html! {
        div.scroll role="region" aria-label="Builds in progress, scrollable" tabindex="0" {
            table.building {
                thead {
                    tr {
                        th scope="col" { "Package" }
                        th scope="col" { "Stage" }
                        @if has_workers { th scope="col" { "Worker" } }
                        th.number scope="col" { "Since" }
                        th.number scope="col" { "Estimate" }
                        th scope="col" { span.heard { "Share of the estimate" } }
                        @if has_samples { th.number scope="col" { "Cores" } th.number scope="col" { "Memory" } }
                    }
                }
                tbody {
                    @for build in building.iter().take(BUILDS_MAX) {
                        tr.late[build.is_late()] {
                            th scope="row" {
                                (shell.package_link(&build.package)) " "
                                span.version { (clean::name(&build.version, NAME_CHARACTERS_MAX)) }
                            }
                            td { (stage(shell, build)) }
                            @if has_workers { td { (clean::name(build.worker.as_deref().unwrap_or("this machine"), NAME_CHARACTERS_MAX)) } }
                            td.number { time data-since=(build.started_seconds) { (words::duration(build.since_seconds)) } }
                            td.number {
                                @if build.estimate_seconds > 0.0 { (words::duration(build.estimate_seconds)) } @else { "unknown" }
                                @if build.is_late() { " " span.remark { "late" } }
                            }
                            (share(build))
                            @if has_samples {
                                td.number { @if let Some(sample) = build.sample { (sample.cores) } }
                                td.number { @if let Some(sample) = build.sample { (words::size(sample.memory_bytes)) } }
                            }
                        }
                    }
                }
            }
        }
        @if building.len() > BUILDS_MAX {
            p.cut { "and " (words::count((building.len() - BUILDS_MAX) as u64)) " more" }
        }
    }
}

fn stage(shell: &Shell, build: &Building) -> Markup {
    let name = clean::name(&build.stage, NAME_CHARACTERS_MAX);
    let address = shell.log(&build.package, build.build, &build.stage, None);
    html! {
        @match address.filter(|_| !build.stage.contains(' ')) {
            Some(address) => a href=(address) aria-label={ "Log of " (name) " of " (clean::name(&build.package, NAME_CHARACTERS_MAX)) } { (name) },
            None => (name),
        }
    }
}

fn share(build: &Building) -> Markup {
    let share = words::share(build.since_seconds, build.estimate_seconds).unwrap_or(0.0).min(1.0);
    let width = Length::Share(share).render().0;
    html! { td.drawn { span.strip style={ "--width:" (width) } aria-hidden="true" {} } }
}
