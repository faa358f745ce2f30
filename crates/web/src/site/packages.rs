//! The packages of a run, and what waits.

use super::now::starts;
use super::{Place, Shell, Tab, state};
use crate::page::NAME_CHARACTERS_MAX;
use crate::{address, clean, words};
use kilnyard_schema::Page;
use kilnyard_schema::package::PackageOfRun;
use kilnyard_schema::run::Queued;
use maud::{Markup, html};
use std::collections::BTreeMap;

/// The most rows of the queue.
const QUEUED_MAX: usize = 300;
/// The longest reason that is shown.
const REASON_CHARACTERS_MAX: usize = 160;
/// The packages that are named as what a package waits for.
const NAMES_MAX: usize = 3;

/// What is chosen from the packages of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// The states, separated by commas; empty for all.
    pub states: String,
    /// A part of the name.
    pub text: String,
    /// The order: `name`, `wall`, `cpu`, `memory` or `state`.
    pub order: String,
}

impl Chosen {
    fn address(&self, shell: &Shell, run: u64, cursor: Option<&str>) -> String {
        let mut address = shell.of_run(run, "packages").unwrap_or_default();
        let given = [
            ("state", self.states.as_str()),
            ("name", &self.text),
            ("order", &self.order),
            ("cursor", cursor.unwrap_or("")),
        ];
        for (position, (name, value)) in given.into_iter().filter(|(_, value)| !value.is_empty()).enumerate()
        {
            address.push(if position == 0 { '?' } else { '&' });
            address.push_str(name);
            address.push('=');
            address.push_str(&address::encoded(value));
        }
        address
    }
}

/// A part of the packages of a run, with the number in each state.
pub fn packages(
    shell: &Shell,
    run: u64,
    chosen: &Chosen,
    counts: &BTreeMap<String, u64>,
    page: &Page<PackageOfRun>,
) -> String {
    let total: u64 = counts.values().sum();
    let header = html! { h1 { "Packages of run " (run) } };
    let content = html! {
        @if let Place::Server { .. } = shell.place { form.filter method="get" action=[shell.of_run(run, "packages")] {
            div.field {
                label for="name" { "Name" }
                input #name type="search" name="name" value=(clean::line(&chosen.text, NAME_CHARACTERS_MAX)) maxlength="200";
            }
            div.field {
                label for="state" { "State" }
                select #state name="state" {
                    option value="" selected[chosen.states.is_empty()] { "all, " (words::count(total)) }
                    @for (name, count) in counts {
                        option value=(name) selected[*name == chosen.states] { (name) ", " (words::count(*count)) }
                    }
                }
            }
            div.field {
                label for="order" { "Order" }
                select #order name="order" {
                    @for (value, text) in [("name", "name"), ("state", "state"), ("wall", "wall time"), ("cpu", "CPU time"), ("memory", "peak memory")] {
                        option value=(value) selected[value == chosen.order] { (text) }
                    }
                }
            }
            button type="submit" { "Show" }
        } }
        @if page.items.is_empty() { p.empty { "There is no such package in this run." } }
        @else { (table(shell, &page.items)) }
        @if let Some(next) = &page.next {
            p.after { a rel="next" href=(chosen.address(shell, run, Some(next))) { "Next page" } }
        }
    };
    shell.page(&format!("Packages of run {run} of {}", shell.title), Tab::Packages, header, content)
}

fn table(shell: &Shell, items: &[PackageOfRun]) -> Markup {
    // A column without a single value says nothing.
    let has_builds = items.iter().any(|package| package.build.is_some());
    html! {
        div.scroll role="region" aria-label="Packages, scrollable" tabindex="0" {
            table.packages.dense {
                thead {
                    tr {
                        th scope="col" { "Package" }
                        th scope="col" { "State" }
                        th scope="col" { "Why" }
                        @if has_builds {
                            th.number scope="col" { "Wall" }
                            th.number scope="col" { "CPU" }
                            th.number scope="col" { "Memory" }
                        }
                    }
                }
                tbody {
                    @for package in items {
                        tr {
                            th scope="row" {
                                (shell.package_link(&package.package)) " "
                                span.version { (clean::name(&package.version, NAME_CHARACTERS_MAX)) }
                            }
                            td { (state(&package.state)) }
                            td.prose { (clean::line(package.reason.lines().next().unwrap_or(""), REASON_CHARACTERS_MAX)) }
                            @if has_builds {
                                @let build = package.build.as_ref();
                                td.number { @if let Some(wall) = build.and_then(|build| build.wall_seconds) { (words::duration(wall)) } }
                                td.number { @if let Some(build) = build { (words::duration(build.cpu_seconds)) } }
                                td.number { @if let Some(build) = build.filter(|build| build.memory_peak_bytes > 0) { (words::size(build.memory_peak_bytes)) } }
                            }
                        }
                        "\n"
                    }
                }
            }
        }
    }
}

/// What waits in the current run.
pub fn queue(shell: &Shell, queue: &[Queued], now_seconds: f64) -> String {
    let header = html! { h1 { "Queue" } };
    let content = html! {
        @if queue.is_empty() { p.empty { "Nothing waits." } }
        @else {
            div.scroll role="region" aria-label="Queue, scrollable" tabindex="0" {
                table.packages.dense {
                    thead {
                        tr {
                            th scope="col" { "Package" }
                            th scope="col" { "Expected" }
                            th scope="col" { "Waits for" }
                            th scope="col" { "Why it is built" }
                            th.number scope="col" { "Path to the end" }
                        }
                    }
                    tbody {
                        @for queued in queue.iter().take(QUEUED_MAX) {
                            tr {
                                th scope="row" { (shell.package_link(&queued.package)) }
                                td.whole { (starts(queued, now_seconds)) }
                                td.prose {
                                    @if queued.waits_for.is_empty() { "a free core" }
                                    @else {
                                        (shell.package_links(&queued.waits_for[..queued.waits_for.len().min(NAMES_MAX)], NAMES_MAX))
                                        @let more = queued.waits_for_count.saturating_sub(NAMES_MAX as u64);
                                        @if more > 0 { " and " (words::count(more)) " more" }
                                    }
                                }
                                td.prose { (clean::line(queued.reason.lines().next().unwrap_or(""), REASON_CHARACTERS_MAX)) }
                                td.number { (words::duration(queued.rank_seconds)) }
                            }
                            "\n"
                        }
                    }
                }
            }
            @if queue.len() > QUEUED_MAX {
                p.cut { (words::count((queue.len() - QUEUED_MAX) as u64)) " more wait; the API has all." }
            }
        }
    };
    shell.page(&format!("Queue of {}", shell.title), Tab::Queue, header, content)
}
