//! The page of a run.

use super::now::part;
use super::{Now, Shell, Tab};
use crate::Report;
use crate::page::{NAME_CHARACTERS_MAX, parts};
use crate::{clean, words};
use maud::html;

/// The page of a run; `now` while it is in progress. `report` may have only some of the run's packages: those that were
/// built or need attention.
pub fn run(shell: &Shell, report: &Report, now: Option<&Now<'_>>) -> String {
    let parts = parts(report, shell);
    let run = report.run;
    let title = format!("Run {run} of {}: {}", clean::name(&report.yard, NAME_CHARACTERS_MAX), parts.result);
    let content = html! {
        @if let Some(now) = now {
            p #news .heard role="status" {}
            section #now data-part=[shell.of_run(run, "now")] data-feed=[shell.api("events", &format!("run={run}&after={}", now.seq))] data-now=(now.now_seconds) {
                (part(shell, now))
            }
        }
        (parts.sections)
        p.after {
            (shell.run_link(run, "packages", html! { "All " (words::counted(report.counts.total, "package", "packages")) }))
            @if let Some(address) = shell.comparison(run) { a href=(address) { "Compare with the run before" } }
        }
    };
    shell.page(&title, Tab::Run, parts.header, content)
}
