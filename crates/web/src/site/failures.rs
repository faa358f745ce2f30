//! The failures of a run: by cause, and what is new.

use super::package::failure;
use super::{Shell, Tab};
use crate::{clean, words};
use kilnyard_schema::package::Build;
use kilnyard_schema::run::{Blocked, Failures};
use maud::{Markup, html};

/// The most causes that are shown.
const CAUSES_MAX: usize = 100;
/// The most packages of a list.
const NAMES_MAX: usize = 40;
/// The longest line that is shown.
const TEXT_CHARACTERS_MAX: usize = 300;

/// The failures of a run; `shown` has the last build of some of the packages that failed, whose telling lines are shown.
pub fn failures(shell: &Shell, failures: &Failures, shown: &[Build]) -> String {
    let failed: usize = failures.causes.iter().map(|cause| cause.packages.len()).sum();
    let run = failures.run;
    let header = html! {
        h1 { "Failures of run " (run) " " span.count { (words::count(failed as u64)) } }
        dl.facts {
            @if let Some(earlier) = failures.earlier {
                div { dt { "Compared with" } dd { (shell.run_link(earlier, "failures", html! { "run " (earlier) })) } }
            }
            (fact("Newly failing", failures.newly_failing.len()))
            (fact("Still failing", failures.still_failing.len()))
            (fact("Fixed", failures.fixed.len()))
            (fact("Blocked", failures.blocked.iter().map(|blocked| blocked.packages.len()).sum()))
            (fact("As expected", failures.as_expected.len()))
        }
    };
    let content = html! {
        @if failed == 0 { p.empty { "Nothing failed." } }
        @for cause in failures.causes.iter().take(CAUSES_MAX) {
            section.cause {
                h2 {
                    (clean::line(&cause.title, TEXT_CHARACTERS_MAX)) " "
                    span.count { (words::counted(cause.packages.len() as u64, "package", "packages")) }
                }
                div.names {
                    (shell.unfolding_package_links(&cause.packages, NAMES_MAX))
                    @if cause.blocks > 0 { " " span.remark { "blocks " (words::counted(cause.blocks, "package", "packages")) } }
                }
                @if let Some(step) = &cause.next_step { p.step { strong { "Next: " } (clean::line(step, TEXT_CHARACTERS_MAX)) } }
                // One telling example is enough: the others are alike.
                @if let Some(build) = shown.iter().find(|build| cause.packages.contains(&build.package)) {
                    @if let Some(one) = &build.failure { (failure(shell, build, one)) }
                }
            }
        }
        @if failures.causes.len() > CAUSES_MAX {
            p.cut { "and " (words::count((failures.causes.len() - CAUSES_MAX) as u64)) " more causes; the API has all." }
        }
        (list(shell, "Newly failing", &failures.newly_failing))
        (list(shell, "Still failing", &failures.still_failing))
        (list(shell, "Fixed", &failures.fixed))
        (list(shell, "Failed as expected", &failures.as_expected))
        @if !failures.blocked.is_empty() {
            section { h2 { "Blocked" } (blocked(shell, &failures.blocked)) }
        }
    };
    shell.page(&format!("Failures of run {run} of {}", shell.title), Tab::Failures, header, content)
}

fn fact(name: &str, count: usize) -> Markup {
    html! { @if count > 0 { div { dt { (name) } dd { (words::count(count as u64)) } } } }
}

fn list(shell: &Shell, heading: &str, names: &[String]) -> Markup {
    html! {
        @if !names.is_empty() {
            section {
                h2 { (heading) " " span.count { (words::count(names.len() as u64)) } }
                div.names { (shell.unfolding_package_links(names, NAMES_MAX)) }
            }
        }
    }
}

fn blocked(shell: &Shell, all: &[Blocked]) -> Markup {
    html! {
        dl.culprits {
            @for one in all.iter().take(CAUSES_MAX) {
                div {
                    dt {
                        @match &one.culprit { Some(culprit) => (shell.package_link(culprit)), None => "cause not recorded" }
                        " " span.remark { (words::counted(one.packages.len() as u64, "package waits", "packages wait")) }
                    }
                    dd { (shell.unfolding_package_links(&one.packages, NAMES_MAX)) }
                }
            }
        }
    }
}
