//! All runs of a yard.

use super::{Shell, Tab, state, time_of_day};
use crate::words;
use kilnyard_schema::run::Run;
use maud::html;

/// The most runs that are listed.
const RUNS_MAX: usize = 300;

/// All runs, the latest first.
pub fn runs(shell: &Shell, runs: &[Run], now_seconds: f64) -> String {
    let header = html! {
        h1 { "Runs" }
        dl.facts {
            @if let Some(green) = runs.iter().find(|run| run.is_all_green) {
                div { dt { "Last all-green" } dd { (shell.run_link(green.run, "", html! { "run " (green.run) })) } }
            }
        }
    };
    let content = html! {
        @if runs.is_empty() { p.empty { "There is no run yet." } }
        @else {
            div.scroll role="region" aria-label="Runs, scrollable" tabindex="0" {
                table.dense {
                    thead {
                        tr {
                            th scope="col" { "Run" }
                            th scope="col" { "State" }
                            th scope="col" { "Began" }
                            th.number scope="col" { "Wall" }
                            th.number scope="col" { "Built" }
                            th.number scope="col" { "Failed" }
                            th.number scope="col" { "Blocked" }
                            th.number scope="col" { "Up to date" }
                            th scope="col" { "Compare" }
                        }
                    }
                    tbody {
                        @for run in runs.iter().take(RUNS_MAX) {
                            @let count = |state: &str| run.counts.get(state).copied().unwrap_or(0);
                            @let built = count("built") + count("unchanged");
                            tr {
                                th scope="row" { (shell.run_link(run.run, "", html! { "run " (run.run) })) }
                                td { (state(&run.state)) @if run.is_all_green { " " span.remark { "all green" } } }
                                td { (time_of_day(run.started_seconds, now_seconds)) }
                                td.number { @if let Some(ended) = run.ended_seconds { (words::duration(ended - run.started_seconds)) } }
                                td.number { (words::count(built)) }
                                td.number.bad[count("failed") > 0] { (words::count(count("failed"))) }
                                td.number { (words::count(count("blocked"))) }
                                td.number { (words::count(count("up-to-date"))) }
                                td { @if let Some(address) = shell.comparison(run.run) { a href=(address) aria-label={ "Compare run " (run.run) " with the one before" } { "with the one before" } } }
                            }
                        }
                    }
                }
            }
        }
    };
    shell.page(&format!("Runs of {}", shell.title), Tab::Runs, header, content)
}
