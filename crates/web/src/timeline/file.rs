//! The timeline as a drawing in a separate file, for documents and other pages.
//!
//! It has the light colours of the report and its names of stages; a page's style sheet does not reach it.

use super::draw::{HATCH, SHADE_CLASSES, parts};
use super::layout::{Layout, WIDTH_WIDE, has_builds, layout};
use crate::drawing::{Anchor, Drawing, Length, label, rectangle};
use crate::{PackageState, Report};
use maud::{Markup, html};

/// The height of the row with the legend, in pixels, and the sample's size in it.
const LEGEND_HEIGHT: f64 = 34.0;
const SAMPLE: (f64, f64) = (22.0, 12.0);
/// The mean width of a character of the legend, in pixels, on the safe side.
const CHARACTER_WIDTH: f64 = 7.0;

const STYLE: &str = "\
text{fill:#615a50;font:11px system-ui,\"DejaVu Sans\",\"Liberation Sans\",sans-serif}\
.ground{fill:#fff}.name{fill:#1f1c18}.axis line{stroke:#ddd7cc}.gap{fill:#fff}.lane{fill:#ece8e0}.bar{fill:#d0c9bc}\
.s0{fill:#b9a98c}.s1{fill:#8fa9a6}.s2{fill:#5fa3b8}.s3{fill:#2f6f9f}\
.s4{fill:#8a6bb0}.s5{fill:#4f9a6a}.s6{fill:#2d6b4a}.s7{fill:#c08a3e}\
.many{fill:#4c7d9d}.many.middle{fill-opacity:.7}.many.low{fill-opacity:.4}\
.bad{fill:url(#hatch)}.now{fill:url(#dots)}\
.hatch-ground{fill:#b3231a}.hatch-line{stroke:#fff;stroke-width:1.3}.dots-ground{fill:#ece8e0}.dots-dot{fill:#2a62a8}";

/// The text of `timeline.svg`; absent when no build has a place on the timeline.
pub fn drawing(report: &Report) -> Option<String> {
    if !has_builds(report) {
        return None;
    }
    let layout = layout(report);
    let (timeline, height) = parts(&layout, report);
    let height = f64::from(height);
    let whole = [0.0, 0.0, WIDTH_WIDE, height + LEGEND_HEIGHT];
    let mut drawing = Drawing::new(whole[2], whole[3], "Builds over time, one lane for each slot", STYLE);
    drawing.rectangle("ground", whole, "");
    drawing.add(html! { (maud::PreEscaped(HATCH)) (timeline) });
    drawing.add(legend(&layout, report, height + LEGEND_HEIGHT / 2.0));
    Some(drawing.finish())
}

fn legend(layout: &Layout, report: &Report, middle: f64) -> Markup {
    let has = |state| report.packages.iter().any(|package| package.state == state);
    let shades = SHADE_CLASSES.iter().zip(&layout.legend);
    let mut entries: Vec<(&str, String)> = shades
        .filter(|(_, names)| !names.is_empty())
        .map(|(class, names)| (*class, crate::page::stage_names(names)))
        .collect();
    let others = [
        ("many", "several builds", layout.builds_in_cells > 0),
        ("bad", "failed", has(PackageState::Failed)),
        ("now", "in progress", has(PackageState::Building)),
    ];
    entries.extend(
        others.into_iter().filter(|(.., is_shown)| *is_shown).map(|(class, text, _)| (class, text.into())),
    );
    let lefts = entries.iter().scan(8.0, |next, (_, text)| {
        let left = *next;
        *next += SAMPLE.0 + 22.0 + text.chars().count() as f64 * CHARACTER_WIDTH;
        Some(left)
    });
    html! {
        @for ((class, text), left) in entries.iter().zip(lefts) {
            (rectangle(class, [left, middle - SAMPLE.1 / 2.0, SAMPLE.0, SAMPLE.1].map(Length::Pixels), ""))
            (label("", (left + SAMPLE.0 + 6.0).into(), (middle + 4.0).into(), Anchor::Start, text))
        }
    }
}
