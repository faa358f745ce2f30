//! What the sections share: which packages have a row to link to, and how names and states are written.

use std::collections::{HashMap, HashSet};

use crate::markup::Markup;
use crate::{PackageState, Report, ReportPackage, address, clean, words};

/// Names, versions and words of a few characters are shown up to this length; no sane one is longer.
pub(crate) const NAME_CHARACTERS_MAX: usize = 120;

/// Rows of the table of packages: about 1 KiB each. Browsers take some thousand rows easily; beyond, nobody reads a
/// table, and those that need a person come first anyway.
const ROWS_MAX: usize = 3000;

/// Failures shown. Beyond this many the cause is one and the same.
const FAILURES_MAX: usize = 400;

/// A report with what can be looked up in it.
pub(crate) struct View<'a> {
    pub(crate) report: &'a Report,
    /// The packages that have a row, in the order of the table.
    pub(crate) rows: Vec<usize>,
    /// The packages whose failure is shown in full, in the order of the page.
    pub(crate) failures: Vec<usize>,
    /// How many packages failed.
    pub(crate) failed: usize,
    by_name: HashMap<&'a str, usize>,
    with_row: HashSet<usize>,
    with_failure: HashSet<usize>,
}

impl<'a> View<'a> {
    pub(crate) fn new(report: &'a Report) -> View<'a> {
        let mut order: Vec<usize> = (0..report.packages.len()).collect();
        order.sort_by_key(|index| {
            let package = &report.packages[*index];
            (state_rank(package.state), &package.name, *index)
        });
        let mut failures: Vec<usize> =
            order.iter().copied().filter(|i| report.packages[*i].state == PackageState::Failed).collect();
        let failed = failures.len();
        // Whoever stands in the way of most comes first; the sort is stable, so the rest stays in order of name.
        failures.sort_by_key(|index| std::cmp::Reverse(report.packages[*index].blocks.len()));
        failures.truncate(FAILURES_MAX);
        order.truncate(ROWS_MAX);
        let mut by_name = HashMap::new();
        for (index, package) in report.packages.iter().enumerate() {
            by_name.entry(package.name.as_str()).or_insert(index);
        }
        View {
            report,
            with_row: order.iter().copied().collect(),
            with_failure: failures.iter().copied().collect(),
            rows: order,
            failures,
            failed,
            by_name,
        }
    }

    pub(crate) fn package(&self, index: usize) -> &'a ReportPackage {
        &self.report.packages[index]
    }

    /// Writes the name of a package as a link to its failure, its row, or as plain text, whichever there is.
    pub(crate) fn link(&self, name: &str, out: &mut Markup) {
        let shown = clean::name(name, NAME_CHARACTERS_MAX);
        match self.by_name.get(name) {
            Some(index) if self.with_failure.contains(index) => {
                out.leaf("a", &[("href", &format!("#f{index}"))], &shown);
            }
            Some(index) if self.with_row.contains(index) => {
                out.leaf("a", &[("href", &format!("#p{index}"))], &shown);
            }
            _ => out.text(&shown),
        }
    }

    /// Writes names one after the other, and how many more there are beyond `names_max`.
    pub(crate) fn links<S: AsRef<str>>(&self, names: &[S], names_max: usize, out: &mut Markup) {
        for (position, name) in names.iter().take(names_max).enumerate() {
            if position > 0 {
                out.text(", ");
            }
            self.link(name.as_ref(), out);
        }
        if names.len() > names_max {
            out.text(&format!(" and {} more", words::count((names.len() - names_max) as u64)));
        }
    }

    /// The failure of a package, if it is shown in full.
    pub(crate) fn has_failure(&self, index: usize) -> bool {
        self.with_failure.contains(&index)
    }
}

/// What needs a person first.
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

/// The state in words.
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

/// The state as a class of the style sheet.
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

/// Writes a link to a log, or only the text where the path cannot be linked to.
pub(crate) fn log_link(path: Option<&str>, text: &str, class: &str, out: &mut Markup) {
    match path.and_then(address::relative) {
        Some(target) => out.leaf("a", &[("href", &target), ("class", class)], text),
        None => out.leaf("span", &[("class", class)], text),
    }
}

/// Writes a table that may be wider than the screen: it scrolls by itself, with the keyboard too.
pub(crate) fn scrolling(label: &str, out: &mut Markup, inside: impl FnOnce(&mut Markup)) {
    out.element(
        "div",
        &[("class", "scroll"), ("role", "region"), ("aria-label", label), ("tabindex", "0")],
        inside,
    );
}

/// Writes the head of a table. A heading that starts with `#` stands over numbers; one that starts with `~` is there
/// for those who hear the page, because the column explains itself to those who see it.
pub(crate) fn table_head(headings: &[&'static str], out: &mut Markup) {
    out.element("thead", &[], |out| {
        out.element("tr", &[], |out| {
            for heading in headings {
                if let Some(heading) = heading.strip_prefix('#') {
                    out.leaf("th", &[("scope", "col"), ("class", "number")], heading);
                } else if let Some(heading) = heading.strip_prefix('~') {
                    out.element("th", &[("scope", "col")], |out| {
                        out.leaf("span", &[("class", "heard")], heading)
                    });
                } else {
                    out.leaf("th", &[("scope", "col")], heading);
                }
            }
        });
    });
}

/// Says that a list was cut, where it was.
pub(crate) fn cut_note(shown: usize, all: usize, what: &str, out: &mut Markup) {
    if all > shown {
        out.element("p", &[("class", "cut")], |out| {
            out.text(&format!(
                "{} of {} {what} are shown; all are in ",
                words::count(shown as u64),
                words::count(all as u64)
            ));
            out.leaf("a", &[("href", crate::REPORT_FILE)], crate::REPORT_FILE);
            out.text(".");
        });
    }
}

/// A custom property for the style sheet: the share of a bar.
pub(crate) fn bar_style(start: f64, width: f64) -> String {
    format!("--start:{};--width:{}", crate::markup::length(start), crate::markup::length(width))
}
