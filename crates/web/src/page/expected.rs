//! Compares the minimum time, the planned time and the run.

use super::Section;
use super::view::{self, View};
use crate::words::{self, duration, sane_seconds};
use crate::{Report, RunState};
use maud::{Markup, html};

/// Maximum number of steps of the longest path listed. Real paths have ten to sixty.
const STEPS_MAX: usize = 100;

pub(super) fn section(view: &View<'_>) -> Option<Section> {
    let report = view.report;
    let known =
        report.bound_seconds.is_some() || report.expected_wall_seconds.is_some() || !report.path.is_empty();
    known.then_some(Section { id: "expected", heading: "Plan and result", count: None, content })
}

fn content(view: &View<'_>) -> Markup {
    let text = verdict(view.report);
    html! {
        @if !text.is_empty() { p { (text) } }
        (comparison(view.report))
        (path(view))
    }
}

/// Compares the run with the minimum and the plan, in words.
fn verdict(report: &Report) -> String {
    let mut text = String::new();
    let wall = sane_seconds(report.wall_seconds);
    if let Some(bound) = report.bound_seconds.map(sane_seconds).filter(|bound| *bound > 0.0) {
        text.push_str(&format!("The minimum is {}: ", duration(bound)));
        text.push_str(
            "the longest path cannot be shortened, and the work cannot be spread over more cores. ",
        );
        if let (RunState::Finished, Some(ratio)) = (report.state, words::share(wall, bound)) {
            text.push_str(&format!("This run took {ratio:.2} times as long"));
            // The minimum holds for the build times that it was computed from. A faster run had shorter ones.
            text.push_str(if ratio < 0.995 { ": the minimum assumes longer builds. " } else { ". " });
        }
    }
    if let (RunState::Finished, Some(expected)) =
        (report.state, report.expected_wall_seconds.map(sane_seconds))
    {
        let difference = wall - expected;
        text.push_str(&match words::share(difference.abs(), expected) {
            None => String::new(),
            Some(share) if share < 0.02 => "It took as long as planned.".to_owned(),
            Some(_) if difference > 0.0 => {
                format!("It took {} longer than planned.", duration(difference))
            }
            Some(_) => format!("It took {} less than planned.", duration(-difference)),
        });
    }
    text.trim_end().to_owned()
}

fn comparison(report: &Report) -> Markup {
    let happened = if report.state == RunState::Finished { "This run" } else { "This run so far" };
    let work = sane_seconds(report.cpu_seconds) / f64::from(report.cores.max(1));
    let path: f64 = report.path.iter().map(|step| sane_seconds(step.seconds)).sum();
    let rows: Vec<(&str, f64, &str)> = [
        ("Longest path", (path > 0.0).then_some(path), "thin"),
        ("CPU time over all cores", (work > 0.0).then_some(work), "thin"),
        ("Minimum", report.bound_seconds.map(sane_seconds), "bound"),
        ("Planned", report.expected_wall_seconds.map(sane_seconds), "plan"),
        (happened, Some(sane_seconds(report.wall_seconds)), "happened"),
    ]
    .into_iter()
    .filter_map(|(name, seconds, class)| seconds.map(|seconds| (name, seconds, class)))
    .collect();
    let longest = rows.iter().map(|(_, seconds, _)| *seconds).fold(0.0, f64::max);
    let bound = report.bound_seconds.map(sane_seconds).unwrap_or(0.0);
    let table = html! {
        table.comparison {
            (view::table_head(&["What", "#Time", "#Ratio to minimum", "~Drawn as a bar"]))
            tbody {
                @for (name, seconds, class) in rows {
                    tr class=(class) {
                        th scope="row" { (name) }
                        td.number { (duration(seconds)) }
                        td.number {
                            @match words::share(seconds, bound) {
                                Some(ratio) => (format!("{ratio:.2}")),
                                None => "–",
                            }
                        }
                        (view::bar(0.0, words::share(seconds, longest).unwrap_or(0.0)))
                    }
                }
            }
        }
    };
    view::scrolling("Minimum, plan and run", table)
}

fn path(view: &View<'_>) -> Markup {
    let report = view.report;
    let total: f64 = report.path.iter().map(|step| sane_seconds(step.seconds)).sum();
    if report.path.is_empty() {
        return Markup::default();
    }
    let share = words::share(total, sane_seconds(report.wall_seconds)).filter(|share| *share <= 1.0);
    let mut before = 0.0;
    let steps = report.path.iter().take(STEPS_MAX).enumerate().map(|(index, step)| {
        let (seconds, start) = (sane_seconds(step.seconds), before);
        before += seconds;
        (index as u64 + 1, &step.package, start, seconds)
    });
    let part = |seconds| words::share(seconds, total).unwrap_or(0.0);
    let table = html! {
        table.path {
            (view::table_head(&["#Step", "Package", "#Time", "#Elapsed", "~Drawn as a bar"]))
            tbody {
                @for (number, package, start, seconds) in steps {
                    tr {
                        td.number { (words::count(number)) }
                        th scope="row" { (view.link(package)) }
                        td.number { (duration(seconds)) }
                        td.number { (duration(start + seconds)) }
                        (view::bar(part(start), part(seconds)))
                    }
                }
            }
        }
    };
    html! {
        h3 { "The longest path" }
        p {
            (words::counted(report.path.len() as u64, "build", "builds that had to follow one another"))
            ", " (duration(total)) " in all"
            @if let Some(share) = share { ", " (words::percent(share)) " of the run" }
            "."
        }
        (view::scrolling("The longest path", table))
        (view::cut_note(view, report.path.len().min(STEPS_MAX), report.path.len(), "steps"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_compares_a_finished_run_only() {
        let report = Report {
            state: RunState::Finished,
            wall_seconds: 108.0,
            bound_seconds: Some(100.0),
            expected_wall_seconds: Some(90.0),
            ..Report::default()
        };
        let text = verdict(&report);
        assert!(text.contains("1.08 times as long") && text.ends_with("18 s longer than planned."), "{text}");
        let text = verdict(&Report { state: RunState::Running, ..report });
        assert!(text.starts_with("The minimum") && !text.contains("times"), "{text}");
    }

    #[test]
    fn odd_numbers_give_no_verdict() {
        for odd in [f64::NAN, -1.0, 0.0] {
            let report = Report {
                state: RunState::Finished,
                bound_seconds: Some(odd),
                expected_wall_seconds: Some(odd),
                ..Report::default()
            };
            assert_eq!(verdict(&report), "");
        }
    }
}
