//! Shared by the sections: which packages have a row to link to, and how names and states are written.

use maud::{Markup, Render, html};
use std::collections::HashMap;

use crate::drawing::Length;
use crate::site::{Place, Shell};
use crate::{PackageState, Report, ReportPackage, ReportStage, address, clean, words};

/// Maximum length of a name, version or short phrase as shown. No sane one is longer.
pub(crate) const NAME_CHARACTERS_MAX: usize = 120;

/// Maximum number of rows in the table of packages: there is a page of packages, too.
const ROWS_MAX: usize = 60;

/// Maximum number of failures shown: there is a page of failures by cause, too.
const FAILURES_MAX: usize = 150;

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
    shell: &'a Shell,
}

impl<'a> View<'a> {
    pub(crate) fn new(report: &'a Report, shell: &'a Shell) -> View<'a> {
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
            shell,
        }
    }

    /// Whether the page is a file in a folder.
    pub(crate) fn is_folder(&self) -> bool {
        matches!(self.shell.place, Place::Folder(_))
    }

    /// Whether the report has all packages of the run: a drawing of some would mislead.
    pub(crate) fn is_whole(&self) -> bool {
        self.report.packages.len() as u64 >= self.report.counts.total
    }

    /// The number of packages of the run.
    pub(crate) fn packages(&self) -> usize {
        let total = usize::try_from(self.report.counts.total).unwrap_or(usize::MAX);
        if self.is_folder() { self.report.packages.len() } else { total.max(self.report.packages.len()) }
    }

    /// Whether the table of packages is part of the page.
    pub(crate) fn has_rows(&self) -> bool {
        !self.rows.is_empty()
    }

    /// A link to the log of a stage, or plain text if there is none.
    pub(crate) fn log_link(
        &self,
        package: &ReportPackage,
        stage: &ReportStage,
        (text, class): (&str, &str),
        line: Option<u64>,
    ) -> Markup {
        let label = format!("{text}, log of {}", clean::name(&package.name, NAME_CHARACTERS_MAX));
        let target = match (&self.shell.place, package.build) {
            (Place::Server { .. }, Some(build)) => self.shell.log(&package.name, build, &stage.name, line),
            _ => stage.log.as_deref().and_then(address::relative),
        };
        html! {
            @match target.filter(|_| stage.log.is_some()) {
                Some(target) => a href=(target) class=(class) aria-label=(label) { (text) },
                None => span class=(class) { (text) },
            }
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
                _ => (self.shell.package_link(name)),
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
                @let more = format!("{} more", words::count((names.len() - names_max) as u64));
                " and "
                @match self.shell.of_run(self.report.run, "failures") {
                    Some(failures) => a href=(failures) { (more) },
                    None => (more),
                }
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

/// A container for a table that may be wider than the screen. It scrolls by itself, also with the keyboard.
pub(crate) fn scrolling(label: &str, inside: Markup) -> Markup {
    html! { div.scroll role="region" aria-label={ (label) ", scrollable" } tabindex="0" { (inside) } }
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
pub(crate) fn cut_note(view: &View<'_>, shown: usize, all: usize, what: &str) -> Markup {
    let (address, name) = view.shell.data(view.report.run);
    html! {
        @if all > shown {
            p.cut {
                (words::count(shown as u64)) " of " (words::count(all as u64)) " " (what) " are shown; all are in "
                a href=(address) { (name) }
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
