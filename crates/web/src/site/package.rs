//! The page of a package: why it is in its state, its history, and its place in the set.

use super::{Shell, Tab, state, time_of_day};
use crate::page::NAME_CHARACTERS_MAX;
use crate::{clean, words};
use kilnyard_model::result::Failure;
use kilnyard_schema::package::{Build, PackageHistory, Stalls, Why};
use maud::{Markup, html};

/// The longest lines and reasons that are shown.
const LINE_CHARACTERS_MAX: usize = 400;
/// The most lines of a log around the telling one.
const LINES_MAX: usize = 24;
/// The most names in a list.
const NAMES_MAX: usize = 60;
/// The most outputs and commits that are listed.
const LISTED_MAX: usize = 30;

/// What a person may have a run do with the package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Button {
    /// The request, as the form sends it: `retry`, `skip` or `bump`.
    pub request: &'static str,
    /// What it says.
    pub text: &'static str,
}

/// The page of a package. `buttons` are what can be asked for; `of` names the yard and its target in the form.
pub fn package(
    shell: &Shell,
    why: &Why,
    history: &PackageHistory,
    (of, buttons): ((&str, &str), &[Button]),
    now_seconds: f64,
) -> String {
    let name = clean::name(&why.package, NAME_CHARACTERS_MAX);
    let header = html! {
        h1 { (name) " " span.version { (clean::name(&why.version, NAME_CHARACTERS_MAX)) } " " (state(&why.state)) }
        @for line in why.reason.lines().take(LISTED_MAX) { p.result { (clean::line(line, LINE_CHARACTERS_MAX)) } }
        @if let Some(note) = &why.note { p.note { (clean::line(note, LINE_CHARACTERS_MAX)) } }
        @for blame in &why.chain {
            p { (shell.package_link(&blame.package)) " is " (state(&blame.state)) ": " (clean::line(&blame.reason, LINE_CHARACTERS_MAX)) }
        }
        @if !buttons.is_empty() { (forms(shell, &why.package, of, buttons)) }
    };
    let failure = history.builds.first().and_then(|build| Some((build, build.failure.as_ref()?)));
    let content = html! {
        @if let Some((build, failure)) = failure.filter(|_| why.state == "failed") {
            section { h2 { "Failure" } (self::failure(shell, build, failure)) }
        }
        (facts(why, history))
        @if !why.changes.is_empty() { (commits(why)) }
        (builds(shell, &history.builds, now_seconds))
        (neighbours(shell, "Blocks", &history.blocks))
        (neighbours(shell, "Needed by", &history.dependents))
        (neighbours(shell, "Needs", &history.dependencies))
        @if !history.outputs.is_empty() {
            section {
                h2 { "Outputs" " " span.count { (words::count(history.outputs.len() as u64)) } }
                ul.outputs {
                    @for output in history.outputs.iter().take(LISTED_MAX) {
                        li {
                            (clean::name(&output.file, NAME_CHARACTERS_MAX)) " "
                            span.remark { (words::size(output.size_bytes)) }
                        }
                    }
                    @if history.outputs.len() > LISTED_MAX {
                        li.cut { "and " (words::count((history.outputs.len() - LISTED_MAX) as u64)) " more" }
                    }
                }
            }
        }
    };
    shell.page(&format!("{name} in {}", shell.title), Tab::None, header, content)
}

fn forms(shell: &Shell, package: &str, (yard, target): (&str, &str), buttons: &[Button]) -> Markup {
    html! {
        div.buttons {
            @for button in buttons {
                form method="post" action="/do" {
                    input type="hidden" name="yard" value=(yard);
                    input type="hidden" name="target" value=(target);
                    input type="hidden" name="package" value=(clean::strip(package));
                    input type="hidden" name="request" value=(button.request);
                    @if let Some(next) = shell.package(package) { input type="hidden" name="next" value=(next); }
                    button type="submit" { (button.text) }
                }
            }
        }
    }
}

/// The telling lines of a failure, with a link to the line in the log.
pub(super) fn failure(shell: &Shell, build: &Build, failure: &Failure) -> Markup {
    let stage = failure.stage.to_string();
    let address = shell.log(&build.package, build.build, &stage, failure.line_number);
    let telling = failure.lines.iter().position(|line| line.trim() == failure.message.trim());
    let start = telling.unwrap_or(failure.lines.len()).saturating_sub(LINES_MAX / 2);
    html! {
        article.failure {
            p.circumstances { "Stage " (stage) " (" (failure.kind.as_str()) "), build " (build.build) " in run " (build.run) }
            p.message { (clean::line(&failure.message, LINE_CHARACTERS_MAX)) }
            @if !failure.lines.is_empty() {
                pre.log tabindex="0" role="group" aria-label={ "Log lines of " (clean::name(&build.package, NAME_CHARACTERS_MAX)) } {
                    @for (number, line) in failure.lines.iter().enumerate().skip(start).take(LINES_MAX) {
                        @let text = clean::line(line, LINE_CHARACTERS_MAX);
                        @if Some(number) == telling { mark { (text) } } @else { (text) }
                        "\n"
                    }
                }
            }
            p.after {
                @if let Some(address) = address {
                    a.whole-log href=(address) {
                        "Log of " (stage)
                        @if let Some(line) = failure.line_number { ", line " (words::count(line)) }
                    }
                }
            }
        }
    }
}

fn facts(why: &Why, history: &PackageHistory) -> Markup {
    let all = [
        ("Source", why.source.clone()),
        ("Last good run", history.last_green_run.map(|run| run.to_string())),
        (
            "Expected",
            why.expected.as_ref().map(|_| {
                format!(
                    "to fail{}",
                    why.because.as_ref().map_or(String::new(), |because| format!(": {because}"))
                )
            }),
        ),
        ("Network", why.network.then(|| "its build has network access".to_owned())),
        ("Cores", why.stalls.as_ref().map(Stalls::words)),
        ("Priority", (why.priority != 0).then(|| why.priority.to_string())),
    ];
    html! {
        dl.facts {
            @for (name, value) in all {
                @if let Some(value) = value { div { dt { (name) } dd { (clean::line(&value, LINE_CHARACTERS_MAX)) } } }
            }
        }
    }
}

fn commits(why: &Why) -> Markup {
    html! {
        section {
            h2 { "Commits since the build before" }
            (super::compare::changes(&why.changes, LISTED_MAX))
        }
    }
}

fn builds(shell: &Shell, builds: &[Build], now_seconds: f64) -> Markup {
    let longest = builds.iter().filter_map(wall).fold(0.0, f64::max);
    html! {
        section {
            h2 { "Builds" " " span.count { (words::count(builds.len() as u64)) } }
            @if builds.is_empty() { p.empty { "It has not been built yet." } }
            @else {
                div.scroll role="region" aria-label="Builds, scrollable" tabindex="0" {
                    table.dense {
                        thead {
                            tr {
                                th scope="col" { "Build" }
                                th scope="col" { "Result" }
                                th scope="col" { "Version" }
                                th scope="col" { "Began" }
                                th.number scope="col" { "Wall" }
                                th scope="col" { span.heard { "Share of the longest" } }
                                th.number scope="col" { "CPU" }
                                th.number scope="col" { "Memory" }
                                th scope="col" { "Worker" }
                                th scope="col" { "Logs" }
                            }
                        }
                        tbody { @for build in builds { (row(shell, build, longest, now_seconds)) } }
                    }
                }
            }
        }
    }
}

fn wall(build: &Build) -> Option<f64> {
    Some(build.ended_seconds? - build.started_seconds)
}

fn row(shell: &Shell, build: &Build, longest: f64, now_seconds: f64) -> Markup {
    html! {
        tr {
            th.whole scope="row" {
                (build.build) " " span.remark { (shell.run_link(build.run, "", html! { "run " (build.run) })) }
            }
            td {
                (state(&build.outcome))
                @match build.reproducible {
                    Some(true) => { " " span.remark { "reproducible" } },
                    Some(false) => { " " span.remark { "not reproducible" } },
                    None => {},
                }
            }
            td.whole { (clean::name(&build.version, NAME_CHARACTERS_MAX)) }
            td { (time_of_day(build.started_seconds, now_seconds)) }
            td.number { @if let Some(wall) = wall(build) { (words::duration(wall)) } }
            (crate::page::bar(0.0, words::share(wall(build).unwrap_or(0.0), longest).unwrap_or(0.0)))
            td.number { (words::duration(build.cpu_seconds())) }
            td.number { (words::size(build.memory_peak_bytes())) }
            td { (clean::name(build.worker.as_deref().unwrap_or(""), NAME_CHARACTERS_MAX)) }
            td.logs {
                // A stage that ran again has one page, that of its last log.
                @for (name, is_ok) in &logged(build) {
                    @if let Some(address) = shell.log(&build.package, build.build, name, None) {
                        a.bad-log[!is_ok] href=(address) aria-label={ (name) ", log of build " (build.build) } { (name) } " "
                    }
                }
            }
        }
        "\n"
    }
}

/// The stages of a build with logs, each once.
fn logged(build: &Build) -> Vec<(String, bool)> {
    let mut stages: Vec<(String, bool)> = Vec::new();
    for stage in build.stages.iter().filter(|stage| stage.log.is_some()) {
        let name = stage.stage.to_string();
        match stages.iter_mut().find(|(known, _)| *known == name) {
            Some((_, is_ok)) => *is_ok = stage.is_ok,
            None => stages.push((name, stage.is_ok)),
        }
    }
    stages
}

fn neighbours(shell: &Shell, heading: &str, names: &[String]) -> Markup {
    html! {
        @if !names.is_empty() {
            section {
                h2 { (heading) " " span.count { (words::count(names.len() as u64)) } }
                div.names { (shell.unfolding_package_links(names, NAMES_MAX)) }
            }
        }
    }
}
