//! Shared by the sections: which packages have a row to link to, and how names and states are written.

use maud::{Markup, Render, html};
use std::collections::HashMap;

use crate::drawing::Length;
use crate::{PackageState, Report, ReportPackage, address, clean, words};

/// Maximum length of a name, version or short phrase as shown. No sane one is longer.
pub(crate) const NAME_CHARACTERS_MAX: usize = 120;

/// Maximum number of rows in the table of packages, at about 1 KiB each. Browsers handle several thousand rows
/// easily. More would be of no use in a table, and rows that need attention come first anyway.
const ROWS_MAX: usize = 3000;

/// Maximum number of failures shown. Beyond this many, they all have the same cause.
const FAILURES_MAX: usize = 400;

/// A report with indexes for lookups.
pub(crate) struct View<'a> {
    pub(crate) report: &'a Report,
    /// The packages that have a row, in table order.
    pub(crate) rows: Vec<usize>,
    /// The packages whose failure is shown in full, in page order.
    pub(crate) failures: Vec<usize>,
    /// Number of packages that failed unexpectedly.
    pub(crate) failed: usize,
    /// The packages that failed as expected, by name.
    pub(crate) expected_failures: Vec<usize>,
    by_name: HashMap<&'a str, usize>,
    with_row: Vec<bool>,
    with_failure: Vec<bool>,
}

impl<'a> View<'a> {
    pub(crate) fn new(report: &'a Report) -> View<'a> {
        let mut order: Vec<usize> = (0..report.packages.len()).collect();
        order.sort_by_key(|index| {
            let package = &report.packages[*index];
            (state_rank(package.state), &package.name, *index)
        });
        let failed = order.iter().copied().filter(|i| report.packages[*i].state == PackageState::Failed);
        let (expected_failures, mut failures): (Vec<usize>, Vec<usize>) =
            failed.partition(|index| report.packages[*index].is_expected_to_fail);
        let failed = failures.len();
        // The package that blocks the most comes first. The sort is stable, so ties stay ordered by name.
        failures.sort_by_key(|index| std::cmp::Reverse(report.packages[*index].blocks.len()));
        failures.truncate(FAILURES_MAX);
        order.truncate(ROWS_MAX);
        let marked = |some: &[usize]| {
            let mut marks = vec![false; report.packages.len()];
            some.iter().for_each(|index| marks[*index] = true);
            marks
        };
        let mut by_name = HashMap::with_capacity(report.packages.len());
        for (index, package) in report.packages.iter().enumerate() {
            by_name.entry(package.name.as_str()).or_insert(index);
        }
        View {
            report,
            with_row: marked(&order),
            with_failure: marked(&failures),
            rows: order,
            failures,
            failed,
            expected_failures,
            by_name,
        }
    }

    pub(crate) fn package(&self, index: usize) -> &'a ReportPackage {
        &self.report.packages[index]
    }

    /// A package name: linked to its failure or else its row, or plain text if it has neither.
    pub(crate) fn link(&self, name: &str) -> Markup {
        let shown = clean::name(name, NAME_CHARACTERS_MAX);
        html! {
            @match self.by_name.get(name) {
                Some(index) if self.with_failure[*index] => a href={ "#f" (index) } { (shown) },
                Some(index) if self.with_row[*index] => a href={ "#p" (index) } { (shown) },
                _ => (shown),
            }
        }
    }

    /// A list of names, with the number of further ones beyond `names_max`.
    pub(crate) fn links<S: AsRef<str>>(&self, names: &[S], names_max: usize) -> Markup {
        html! {
            @for (position, name) in names.iter().take(names_max).enumerate() {
                @if position > 0 { ", " }
                (self.link(name.as_ref()))
            }
            @if names.len() > names_max {
                " and " (words::count((names.len() - names_max) as u64)) " more"
            }
        }
    }

    /// Whether the package's failure is shown in full.
    pub(crate) fn has_failure(&self, index: usize) -> bool {
        self.with_failure[index]
    }
}

/// Sort order: states that need attention come first.
fn state_rank(state: PackageState) -> u8 {
    match state {
        PackageState::Failed => 0,
        PackageState::Building => 1,
        PackageState::Blocked => 2,
        PackageState::Built => 3,
        PackageState::Unchanged => 4,
        PackageState::Waiting => 5,
        PackageState::Skipped => 6,
        PackageState::UpToDate => 7,
    }
}

/// The state, for readers.
pub(crate) fn state_word(state: PackageState) -> &'static str {
    match state {
        PackageState::Built => "built",
        PackageState::Unchanged => "unchanged",
        PackageState::UpToDate => "up to date",
        PackageState::Failed => "failed",
        PackageState::Blocked => "blocked",
        PackageState::Skipped => "skipped",
        PackageState::Waiting => "waiting",
        PackageState::Building => "being built",
    }
}

/// The state's classes in the style sheet.
pub(crate) fn state_class(state: PackageState) -> &'static str {
    match state {
        PackageState::Built => "state built",
        PackageState::Unchanged | PackageState::UpToDate => "state same",
        PackageState::Failed => "state failed",
        PackageState::Blocked => "state blocked",
        PackageState::Skipped | PackageState::Waiting => "state waiting",
        PackageState::Building => "state building",
    }
}

/// A link to a log, or plain text if the path cannot be linked to.
pub(crate) fn log_link(path: Option<&str>, text: &str, class: &str) -> Markup {
    html! {
        @match path.and_then(address::relative) {
            Some(target) => a href=(target) class=(class) { (text) },
            None => span class=(class) { (text) },
        }
    }
}

/// A container for a table that may be wider than the screen. It scrolls by itself, also with the keyboard.
pub(crate) fn scrolling(label: &str, inside: Markup) -> Markup {
    html! { div.scroll role="region" aria-label=(label) tabindex="0" { (inside) } }
}

/// The head of a table. A heading that starts with `#` belongs to a column of numbers. One that starts with `~`
/// is only for screen readers, because the column is clear to readers who see it.
pub(crate) fn table_head(headings: &[&'static str]) -> Markup {
    html! {
        thead {
            tr {
                @for heading in headings {
                    @if let Some(heading) = heading.strip_prefix('#') {
                        th.number scope="col" { (heading) }
                    } @else if let Some(heading) = heading.strip_prefix('~') {
                        th scope="col" { span.heard { (heading) } }
                    } @else {
                        th scope="col" { (heading) }
                    }
                }
            }
        }
        "\n"
    }
}

/// A note that a list was cut; empty if it was not.
pub(crate) fn cut_note(shown: usize, all: usize, what: &str) -> Markup {
    html! {
        @if all > shown {
            p.cut {
                (words::count(shown as u64)) " of " (words::count(all as u64)) " " (what) " are shown; all are in "
                a href=(crate::REPORT_FILE) { (crate::REPORT_FILE) }
                "."
            }
        }
    }
}

/// A cell with a bar, hidden from screen readers: the number next to it has the same value.
pub(crate) fn bar(start: f64, width: f64) -> Markup {
    let [start, width] = [start, width].map(|share| Length::Share(share).render().0);
    html! { td.drawn { span.strip style={ "--start:" (start) ";--width:" (width) } aria-hidden="true" {} } }
}
