//! The packages that took longest.

use super::Section;
use super::view::{self, NAME_CHARACTERS_MAX, View};
use crate::words::{self, sane_seconds};
use crate::{ReportPackage, clean};
use maud::{Markup, html};

/// Maximum number of rows: one screen.
const SLOWEST_MAX: usize = 20;

/// With fewer builds, the timeline shows the same.
const BUILDS_MIN: usize = 3;

pub(super) fn section(view: &View<'_>) -> Option<Section> {
    let timed =
        view.report.packages.iter().filter(|package| sane_seconds(package.wall_seconds) > 0.0).count();
    (timed >= BUILDS_MIN).then_some(Section {
        id: "slowest",
        heading: "Slowest packages",
        count: None,
        content,
    })
}

fn content(view: &View<'_>) -> Markup {
    let mut slowest: Vec<&ReportPackage> =
        view.report.packages.iter().filter(|package| sane_seconds(package.wall_seconds) > 0.0).collect();
    slowest.sort_by(|a, b| sane_seconds(b.wall_seconds).total_cmp(&sane_seconds(a.wall_seconds)));
    slowest.truncate(SLOWEST_MAX);
    let longest = slowest.first().map_or(0.0, |package| sane_seconds(package.wall_seconds));
    let table = html! {
        table.slowest {
            (view::table_head(&[
                "Package", "#Wall", "~Drawn as a bar", "#CPU", "#Cores used", "#Peak memory", "Mostly in",
            ]))
            tbody { @for package in slowest { (row(view, package, longest)) } }
        }
    };
    view::scrolling("Slowest packages", table)
}

fn row(view: &View<'_>, package: &ReportPackage, longest: f64) -> Markup {
    let wall = sane_seconds(package.wall_seconds);
    html! {
        tr {
            th scope="row" {
                (view.link(&package.name)) " "
                span.version { (clean::name(&package.version, NAME_CHARACTERS_MAX)) }
            }
            td.number { (words::duration(wall)) }
            (view::bar(0.0, words::share(wall, longest).unwrap_or(0.0)))
            td.number { (words::duration(package.cpu_seconds)) }
            td.number {
                @match words::share(sane_seconds(package.cpu_seconds), wall) {
                    Some(cores) => (format!("{cores:.1}")),
                    None => "–",
                }
            }
            td.number {
                @match package.memory_peak_bytes {
                    0 => "–",
                    bytes => (words::size(bytes)),
                }
            }
            td { (main_stage(package)) }
        }
    }
}

/// The stage that took the most time, with its share.
fn main_stage(package: &ReportPackage) -> String {
    let longest = package
        .stages
        .iter()
        .max_by(|a, b| sane_seconds(a.wall_seconds).total_cmp(&sane_seconds(b.wall_seconds)));
    match longest {
        Some(stage) => {
            let name = clean::name(&stage.name, NAME_CHARACTERS_MAX);
            let share = words::share(sane_seconds(stage.wall_seconds), sane_seconds(package.wall_seconds));
            match share.filter(|share| *share <= 1.0) {
                Some(share) => format!("{name}, {}", words::percent(share)),
                None => name,
            }
        }
        None => "–".to_owned(),
    }
}
