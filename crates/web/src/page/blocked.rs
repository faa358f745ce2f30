//! Blocked packages, grouped by culprit.

use std::collections::{BTreeMap, BTreeSet};

use super::Section;
use super::view::{self, View};
use crate::{PackageState, Report, words};
use maud::{Markup, html};

/// Maximum number of culprits listed.
const CULPRITS_MAX: usize = 200;

/// Number of culprits that are not folded: those that block the most.
const OPEN_MAX: usize = 12;

/// Maximum number of names listed for one culprit.
const NAMES_MAX: usize = 60;

/// A culprit, if recorded, and the packages that it blocks.
type Group<'a> = (Option<&'a str>, Vec<&'a str>);

pub(super) fn section(view: &View<'_>) -> Option<Section> {
    let blocked =
        view.report.packages.iter().filter(|package| package.state == PackageState::Blocked).count() as u64;
    (!by_culprit(view.report).is_empty()).then_some(Section {
        id: "blocked",
        heading: "Blocked packages",
        count: (blocked > 0).then_some(blocked),
        content,
    })
}

/// Groups blocked packages by culprit, the one that blocks the most first. Reports record both ends of the
/// relation; either is enough. Packages without a known culprit come last, in a group without a name.
fn by_culprit(report: &Report) -> Vec<Group<'_>> {
    let mut groups: BTreeMap<Option<&str>, BTreeSet<&str>> = BTreeMap::new();
    let mut claimed: BTreeSet<&str> = BTreeSet::new();
    for package in &report.packages {
        for blocked in &package.blocks {
            groups.entry(Some(&package.name)).or_default().insert(blocked);
            claimed.insert(blocked);
        }
        for culprit in &package.blocked_by {
            groups.entry(Some(culprit)).or_default().insert(&package.name);
            claimed.insert(&package.name);
        }
    }
    for package in report.packages.iter().filter(|package| package.state == PackageState::Blocked) {
        if !claimed.contains(package.name.as_str()) {
            groups.entry(None).or_default().insert(&package.name);
        }
    }
    let mut groups: Vec<Group<'_>> =
        groups.into_iter().map(|(culprit, names)| (culprit, names.into_iter().collect())).collect();
    groups.sort_by_key(|(culprit, names)| (culprit.is_none(), std::cmp::Reverse(names.len())));
    groups
}

fn content(view: &View<'_>) -> Markup {
    let groups = by_culprit(view.report);
    let shown = groups.len().min(CULPRITS_MAX);
    let (open, folded) = groups[..shown].split_at(shown.min(OPEN_MAX));
    html! {
        (list(view, open))
        @if !folded.is_empty() {
            details.folded {
                summary { (words::counted(folded.len() as u64, "more culprit", "more culprits")) }
                (list(view, folded))
            }
        }
        (view::cut_note(view, shown, groups.len(), "culprits"))
    }
}

fn list(view: &View<'_>, groups: &[Group<'_>]) -> Markup {
    html! {
        dl.culprits {
            @for (culprit, names) in groups {
                div {
                    dt {
                        @match culprit {
                            Some(culprit) => (view.link(culprit)),
                            None => "cause not recorded",
                        }
                        " "
                        span.remark { (words::counted(names.len() as u64, "package waits", "packages wait")) }
                    }
                    dd { (view.links(names, NAMES_MAX)) }
                }
                "\n"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReportPackage;

    fn package(name: &str, state: PackageState, blocked_by: &[&str], blocks: &[&str]) -> ReportPackage {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        ReportPackage {
            name: name.into(),
            state,
            blocked_by: owned(blocked_by),
            blocks: owned(blocks),
            ..ReportPackage::default()
        }
    }

    #[test]
    fn either_end_of_the_relation_is_enough_and_the_worst_comes_first() {
        use PackageState::{Blocked, Failed};
        let report = Report {
            packages: vec![
                package("a", Failed, &[], &["x"]),
                package("b", Failed, &[], &["x", "y"]),
                package("x", Blocked, &["a", "b"], &[]),
                package("y", Blocked, &[], &[]),
                package("z", Blocked, &["b"], &[]),
                package("lost", Blocked, &[], &[]),
            ],
            ..Report::default()
        };
        assert_eq!(
            by_culprit(&report),
            [(Some("b"), vec!["x", "y", "z"]), (Some("a"), vec!["x"]), (None, vec!["lost"])]
        );
    }
}
