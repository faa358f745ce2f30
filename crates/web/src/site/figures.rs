//! Times of the latest runs.

use super::{Shell, Tab};
use crate::words;
use kilnyard_schema::measure::{Figures, Percentiles};
use maud::{Markup, html};

/// Times of the latest runs as percentiles.
pub fn figures(shell: &Shell, figures: &Figures) -> String {
    let header = html! {
        h1 { "Figures" }
        p.result { "Of the latest " (words::counted(figures.runs.len() as u64, "run", "runs")) "." }
        @if let Some(run) = figures.last_all_green_run {
            dl.facts { div { dt { "Last all-green" } dd { (shell.run_link(run, "", html! { "run " (run) })) } } }
        }
    };
    let content = html! {
        div.scroll role="region" aria-label="Percentiles, scrollable" tabindex="0" {
            table.dense {
                thead {
                    tr {
                        th scope="col" { "Time" }
                        th.number scope="col" { "Median" }
                        th.number scope="col" { "90 %" }
                        th.number scope="col" { "99 %" }
                        th.number scope="col" { "Longest" }
                        th.number scope="col" { "Number" }
                    }
                }
                tbody {
                    (row("Commit or new source to publication", &figures.end_to_end))
                    (row("Wait: could start to started", &figures.wait))
                    (row("Build", &figures.build))
                    (row("Publication: last build to published", &figures.publication))
                }
            }
        }
        @if !figures.slowest_tests.is_empty() {
            section {
                h2 { "Slowest tests" }
                div.scroll role="region" aria-label="Slowest tests, scrollable" tabindex="0" {
                    table.dense {
                        thead { tr { th scope="col" { "Package" } th.number scope="col" { "Tests" } th.number scope="col" { "Share of the build" } } }
                        tbody {
                            @for slow in &figures.slowest_tests {
                                tr {
                                    th scope="row" { (shell.package_link(&slow.package)) }
                                    td.number { (words::duration(slow.wall_seconds)) }
                                    td.number { (words::percent(slow.part)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    };
    shell.page(&format!("Figures of {}", shell.title), Tab::Figures, header, content)
}

fn row(name: &str, of: &Percentiles) -> Markup {
    html! {
        tr {
            th scope="row" { (name) }
            @if of.count == 0 { td.number colspan="4" { "not measured yet" } }
            @else {
                @for seconds in [of.p50_seconds, of.p90_seconds, of.p99_seconds, of.max_seconds] {
                    td.number { (words::duration(seconds)) }
                }
            }
            td.number { (words::count(of.count)) }
        }
    }
}
