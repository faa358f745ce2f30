//! The top of the page: which run, and its result, in one sentence and a row of figures.

use super::view::{NAME_CHARACTERS_MAX, View};
use crate::drawing::{Length, rectangle};
use crate::words::{self, count};
use crate::{Counts, PackageState, Report, RunState, clean};
use maud::{Markup, html};

/// Maximum number of notes shown. A run has a handful.
const NOTES_MAX: usize = 20;

/// Maximum length of a note.
const NOTE_CHARACTERS_MAX: usize = 1000;

/// The result in a few words.
pub(crate) fn short(report: &Report) -> String {
    match report.counts.failed_unexpectedly() {
        0 => state_word(report.state).to_owned(),
        failed => format!("{} failed", count(failed)),
    }
}

pub(crate) fn result(view: &View<'_>) -> Markup {
    let report = view.report;
    let name = |text: &str| clean::name(text, NAME_CHARACTERS_MAX);
    let kinds = [&report.ecosystem, &report.release, &report.architecture];
    let kinds: Vec<String> =
        kinds.into_iter().filter(|text| !text.is_empty()).map(|text| name(text)).collect();
    let failed = report.counts.failed_unexpectedly();
    let class = match report.state {
        RunState::Running => "state building",
        RunState::Finished if failed > 0 => "state failed",
        RunState::Finished => "state built",
        RunState::Interrupted => "state blocked",
    };
    let word = match report.state {
        RunState::Finished if failed > 0 => short(report),
        state => state_word(state).to_owned(),
    };
    html! {
        p.kind { (kinds.join(" · ")) }
        h1 {
            "Run " (report.run) " of " (name(&report.yard)) " "
            span class=(class) { (word) }
        }
        p.result { (sentence(report)) }
        (facts(report))
        (shares(&report.counts))
        (figure_list(report))
        @if !report.notes.is_empty() {
            ul.notes aria-label="Notes" {
                @for note in report.notes.iter().take(NOTES_MAX) {
                    li { (clean::line(note, NOTE_CHARACTERS_MAX)) }
                }
                @if report.notes.len() > NOTES_MAX {
                    li {
                        (words::counted((report.notes.len() - NOTES_MAX) as u64, "note", "notes"))
                        " more in " (crate::REPORT_FILE)
                    }
                }
            }
        }
    }
}

fn state_word(state: RunState) -> &'static str {
    match state {
        RunState::Running => "running",
        RunState::Finished => "finished",
        RunState::Interrupted => "interrupted",
    }
}

/// The result in one sentence.
fn sentence(report: &Report) -> String {
    let Counts { total, built, unchanged, up_to_date, failed, blocked, skipped, left_out, waiting, .. } =
        report.counts;
    let mut parts = Vec::new();
    let mut part = |number: u64, text: &str| {
        if number > 0 {
            parts.push(format!("{} {text}", count(number)));
        }
    };
    part(built, "built");
    part(unchanged, if built > 0 { "rebuilt to the same content" } else { "built to the same content" });
    part(report.counts.failed_unexpectedly(), "failed");
    part(report.counts.failed_as_expected, "failed as expected");
    part(
        blocked,
        match (failed, blocked) {
            (0, _) => "blocked",
            (1, 1) => "waits for it",
            (1, _) => "wait for it",
            (_, 1) => "waits for them",
            _ => "wait for them",
        },
    );
    part(skipped, "skipped");
    part(
        waiting,
        match report.state {
            RunState::Running => "left to build",
            RunState::Finished | RunState::Interrupted => "not built yet",
        },
    );
    if parts.is_empty() {
        return match (up_to_date, total.max(left_out)) {
            (0, 0) => "There was nothing to build: the run has no packages.".to_owned(),
            (0, _) => "Nothing was built.".to_owned(),
            (1, _) => "Nothing had to be built: the one package is up to date.".to_owned(),
            (all, _) => format!("Nothing had to be built: all {} packages are up to date.", count(all)),
        };
    }
    let time = words::duration(report.wall_seconds);
    let time = match report.state {
        RunState::Running => format!("{time} so far"),
        RunState::Finished => format!("in {time}"),
        RunState::Interrupted => format!("interrupted after {time}"),
    };
    let mut text = format!("{} — {time}", parts.join(", "));
    // More CPU time than the cores provide comes from a wrong clock or core count; a sentence would only
    // mislead.
    const SHARE_MAX: f64 = 1.05;
    let capacity = words::sane_seconds(report.wall_seconds) * f64::from(report.cores);
    let share = words::share(words::sane_seconds(report.cpu_seconds), capacity);
    if let Some(share) = share.filter(|share| *share <= SHARE_MAX) {
        let share = words::percent(share.min(1.0));
        text.push_str(&match report.cores {
            1 => format!("; the core was {share} busy"),
            cores => format!("; the {} cores were {share} busy", words::number_word(u64::from(cores))),
        });
    }
    text.push('.');
    text
}

fn facts(report: &Report) -> Markup {
    let started = words::moment(report.started_seconds)
        .unwrap_or_else(|| format!("unknown (the clock showed {})", report.started_seconds));
    let slots = words::counted(u64::from(report.slots), "slot", "slots");
    let cores = words::counted(u64::from(report.cores), "core", "cores");
    let facts = [
        ("Started", started),
        ("Wall time", words::duration(report.wall_seconds)),
        ("CPU time", words::duration(report.cpu_seconds)),
        ("Machine", format!("{cores}, {slots}")),
    ];
    let checked = report.packages.iter().filter_map(|package| package.reproducible);
    let (same, all) = checked.fold((0, 0), |(same, all), one| (same + u64::from(one), all + 1));
    html! {
        dl.facts {
            @for (name, value) in &facts {
                div { dt { (name) } dd { (value) } }
            }
            @if all > 0 {
                div { dt { "Reproducible" } dd { (count(same)) " of " (count(all)) " built twice" } }
            }
        }
    }
}

/// The counts that add up to the whole run: number, name and class in the style sheet.
fn figures(counts: &Counts) -> [(u64, &'static str, &'static str); 7] {
    [
        (counts.built, "built", "built"),
        (counts.unchanged, "unchanged", "same"),
        (counts.up_to_date, "up to date", "fresh"),
        (counts.failed, "failed", "failed"),
        (counts.blocked, "blocked", "blocked"),
        (counts.skipped, "skipped", "skipped"),
        (counts.waiting, "waiting", "waiting"),
    ]
}

/// A bar with the counts as shares. It is hidden from screen readers, since the figures below show the same.
fn shares(counts: &Counts) -> Markup {
    let figures = figures(counts);
    let all: f64 = figures.iter().map(|(number, _, _)| *number as f64).sum();
    if all <= 0.0 {
        return Markup::default();
    }
    let mut start = 0.0;
    let bars = figures.into_iter().filter(|(number, _, _)| *number > 0).map(|(number, name, class)| {
        let width = number as f64 / all;
        let area = [Length::Share(start), Length::Pixels(0.0), Length::Share(width), Length::Pixels(10.0)];
        start += width;
        rectangle(class, area, &format!("{} {name}", count(number)))
    });
    html! { svg.shares width="100%" height="10" aria-hidden="true" { @for bar in bars { (bar) } } }
}

fn figure_list(report: &Report) -> Markup {
    let building =
        report.packages.iter().filter(|package| package.state == PackageState::Building).count() as u64;
    let counts = &report.counts;
    html! {
        dl.figures {
            (figure(counts.total, if counts.total == 1 { "package" } else { "packages" }, "total", ""))
            // A tile without a number would say nothing.
            @for (number, name, class) in figures(counts).into_iter().filter(|(number, _, _)| *number > 0) {
                @if class == "waiting" && building > 0 {
                    (figure(number, name, class, &format!("{} being built", count(building))))
                } @else if class == "failed" && counts.failed_as_expected > 0 {
                    (figure(number, name, class, &format!("{} as expected", count(counts.failed_as_expected))))
                } @else {
                    (figure(number, name, class, ""))
                }
            }
            @if counts.left_out > 0 { (figure(counts.left_out, "left out", "left", "")) }
        }
    }
}

fn figure(number: u64, name: &str, class: &str, remark: &str) -> Markup {
    html! {
        div class=(class) {
            dt {
                (name)
                @if !remark.is_empty() { ", " span.remark { (remark) } }
            }
            dd { (count(number)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(counts: Counts) -> Report {
        Report {
            state: RunState::Finished,
            wall_seconds: 372.0,
            cpu_seconds: 714.0,
            cores: 2,
            counts,
            ..Report::default()
        }
    }

    #[test]
    fn the_sentence_says_what_happened() {
        let counts = Counts { total: 14, built: 11, failed: 1, blocked: 2, ..Counts::default() };
        assert_eq!(
            sentence(&report(counts)),
            "11 built, 1 failed, 2 wait for it — in 6 min 12 s; the two cores were 96 % busy."
        );
        let counts = Counts { total: 9, built: 3, failed: 4, blocked: 1, skipped: 1, ..Counts::default() };
        assert!(
            sentence(&report(counts)).starts_with("3 built, 4 failed, 1 waits for them, 1 skipped — in ")
        );
        let counts = Counts { total: 5, built: 3, failed: 2, failed_as_expected: 2, ..Counts::default() };
        assert!(sentence(&report(counts)).starts_with("3 built, 2 failed as expected — in "));
    }

    #[test]
    fn running_and_interrupted_runs_are_described() {
        let counts = Counts { total: 5, built: 2, waiting: 3, ..Counts::default() };
        let running = Report { state: RunState::Running, ..report(counts) };
        assert!(sentence(&running).starts_with("2 built, 3 left to build — 6 min 12 s so far; "));
        let stopped = Report { state: RunState::Interrupted, cores: 0, ..report(counts) };
        assert_eq!(sentence(&stopped), "2 built, 3 not built yet — interrupted after 6 min 12 s.");
    }

    #[test]
    fn a_run_without_builds_gives_the_reason() {
        assert_eq!(
            sentence(&report(Counts::default())),
            "There was nothing to build: the run has no packages."
        );
        let counts = Counts { total: 30, up_to_date: 30, ..Counts::default() };
        assert_eq!(sentence(&report(counts)), "Nothing had to be built: all 30 packages are up to date.");
    }

    #[test]
    fn a_broken_clock_says_nothing_about_cores() {
        let counts = Counts { total: 1, built: 1, ..Counts::default() };
        for wall_seconds in [0.0, -3.0, f64::NAN] {
            assert_eq!(sentence(&Report { wall_seconds, ..report(counts) }), "1 built — in 0 s.");
        }
    }
}
