//! Where the time went: the packages that took longest.

use super::Section;
use super::view::{self, NAME_CHARACTERS_MAX, View};
use crate::markup::Markup;
use crate::words::{self, sane_seconds};
use crate::{ReportPackage, clean};

/// So many fit on a screen; the rest rarely matters.
const SLOWEST_MAX: usize = 20;

/// A list of the slowest of one or two says nothing that the timeline does not.
const BUILDS_MIN: usize = 3;

pub(super) fn section(view: &View<'_>) -> Option<Section> {
    let timed =
        view.report.packages.iter().filter(|package| sane_seconds(package.wall_seconds) > 0.0).count();
    (timed >= BUILDS_MIN).then_some(Section {
        id: "slowest",
        heading: "Slowest packages",
        count: None,
        write,
    })
}

fn write(view: &View<'_>, out: &mut Markup) {
    let mut slowest: Vec<&ReportPackage> =
        view.report.packages.iter().filter(|package| sane_seconds(package.wall_seconds) > 0.0).collect();
    slowest.sort_by(|a, b| sane_seconds(b.wall_seconds).total_cmp(&sane_seconds(a.wall_seconds)));
    slowest.truncate(SLOWEST_MAX);
    let longest = slowest.first().map_or(0.0, |package| sane_seconds(package.wall_seconds));
    view::scrolling("Slowest packages", out, |out| {
        out.element("table", &[("class", "slowest")], |out| {
            view::table_head(
                &["Package", "#Wall", "~Drawn as a bar", "#CPU", "#Cores used", "#Peak memory", "Mostly in"],
                out,
            );
            out.element("tbody", &[], |out| {
                for package in slowest {
                    out.element("tr", &[], |out| write_row(view, package, longest, out));
                }
            });
        });
    });
}

fn write_row(view: &View<'_>, package: &ReportPackage, longest: f64, out: &mut Markup) {
    let wall = sane_seconds(package.wall_seconds);
    out.element("th", &[("scope", "row")], |out| {
        view.link(&package.name, out);
        out.text(" ");
        out.leaf("span", &[("class", "version")], &clean::name(&package.version, NAME_CHARACTERS_MAX));
    });
    out.leaf("td", &[("class", "number")], &words::duration(wall));
    out.element("td", &[("class", "drawn")], |out| {
        let style = view::bar_style(0.0, words::share(wall, longest).unwrap_or(0.0));
        out.leaf("span", &[("class", "strip"), ("style", &style), ("aria-hidden", "true")], "");
    });
    out.leaf("td", &[("class", "number")], &words::duration(package.cpu_seconds));
    let cores = words::share(sane_seconds(package.cpu_seconds), wall).map(|cores| format!("{cores:.1}"));
    out.leaf("td", &[("class", "number")], cores.as_deref().unwrap_or("–"));
    let memory = match package.memory_peak_bytes {
        0 => "–".to_owned(),
        bytes => words::size(bytes),
    };
    out.leaf("td", &[("class", "number")], &memory);
    out.leaf("td", &[], &main_stage(package));
}

/// The stage that took most of the time, with its share.
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
