//! Draws a computed layout.

use super::layout::{Bar, Cell, Label, Lane, Layout, PLOT_SHARE};
use crate::drawing::{Anchor, Area, Length, label, rectangle, vertical};
use crate::page::NAME_CHARACTERS_MAX;
use crate::words;
use crate::{PackageState, Report, ReportPackage, clean};
use maud::{Markup, PreEscaped, html};

/// The share of the width to the left of the lanes, for their labels. The remainder on the right leaves room
/// for the last label of the axis.
const GUTTER_SHARE: f64 = 0.065;

/// Heights in pixels.
const AXIS_HEIGHT: u32 = 24;
const NAMED_LANE: LaneHeights = LaneHeights { lane: 42, bar_top: 19, bar: 18 };
const PLAIN_LANE: LaneHeights = LaneHeights { lane: 14, bar_top: 2, bar: 11 };

/// Minimum width of a bar. Narrower ones would be invisible.
const WIDTH_MIN: f64 = 0.0009;

/// Wider bars have a gap in front, so that adjacent builds are distinguishable.
const GAP_WIDTH_MIN: f64 = 0.004;

/// With this many lanes or more, the axis is repeated at the bottom.
const TWO_AXES_LANES_MIN: usize = 13;

/// Maximum number of stages in the tooltip of a bar.
const TOOLTIP_STAGES_MAX: usize = 12;

struct LaneHeights {
    lane: u32,
    bar_top: u32,
    bar: u32,
}

/// Draws the timeline of `report`, including a title and a description for screen readers.
pub(crate) fn draw(layout: &Layout, report: &Report) -> Markup {
    let (parts, height) = parts(layout, report);
    html! {
        svg.timeline role="img" aria-labelledby="timeline-title timeline-description" width="100%" height=(height) {
            title #timeline-title { "Builds over time, one lane for each slot" }
            desc #timeline-description { (describe(layout)) }
            (PreEscaped(HATCH))
            (parts)
        }
    }
}

/// The axis and the lanes, and their height in pixels.
pub(super) fn parts(layout: &Layout, report: &Report) -> (Markup, u32) {
    let heights = if layout.named { NAMED_LANE } else { PLAIN_LANE };
    let lanes_height = layout.lanes.len() as u32 * heights.lane;
    let axes = if layout.lanes.len() >= TWO_AXES_LANES_MIN { 2 } else { 1 };
    let parts = html! {
        (axis(layout, lanes_height, axes == 2))
        @for (number, lane) in layout.lanes.iter().enumerate() {
            (draw_lane(lane, report, AXIS_HEIGHT + number as u32 * heights.lane, &heights))
            "\n"
        }
    };
    (parts, AXIS_HEIGHT * axes + lanes_height + 2)
}

/// Hatching for failed and for running builds, so that these do not depend on colour.
pub(super) const HATCH: &str = concat!(
    r#"<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse">"#,
    r#"<rect class="hatch-ground" width="6" height="6"/><path class="hatch-line" d="M-1 7L7 -1M-1 1L1 -1M5 7L7 5"/>"#,
    r#"</pattern><pattern id="dots" width="5" height="5" patternUnits="userSpaceOnUse">"#,
    r#"<rect class="dots-ground" width="5" height="5"/><circle class="dots-dot" cx="2.5" cy="2.5" r="1.1"/></pattern></defs>"#,
    "\n"
);

fn describe(layout: &Layout) -> String {
    let mut text = format!(
        "{} in {} over {}.",
        words::counted(layout.builds as u64, "build", "builds"),
        words::counted(layout.lanes.len() as u64, "lane", "lanes"),
        words::duration(layout.range_seconds)
    );
    if layout.builds_in_cells > 0 {
        text.push_str(&format!(
            " {} too short to be drawn separately are merged into cells.",
            words::count(layout.builds_in_cells as u64)
        ));
    }
    text.push_str(" The table of packages has the same information as text.");
    text
}

fn place(fraction: f64) -> f64 {
    GUTTER_SHARE + PLOT_SHARE * if fraction.is_nan() { 0.0 } else { fraction.clamp(0.0, 1.0) }
}

/// The area of a rectangle in its lane: at least the minimum width.
fn area(start: f64, width: f64, top: u32, height: u32) -> Area {
    let from = place(start);
    let to = place(start + width).max(from + WIDTH_MIN);
    [Length::Share(from), top.into(), Length::Share(to - from), height.into()]
}

fn axis(layout: &Layout, lanes_height: u32, at_bottom_too: bool) -> Markup {
    let bottom = AXIS_HEIGHT + lanes_height;
    html! {
        g.axis {
            @for tick in &layout.ticks {
                @let x = Length::Share(place(tick.at));
                // Centred labels would stick out at both ends.
                @let anchor = match tick.at {
                    at if at <= 0.0 => Anchor::Start,
                    at if at > 0.985 => Anchor::End,
                    _ => Anchor::Middle,
                };
                (vertical(None, x, (AXIS_HEIGHT - 4).into(), bottom.into()))
                (label("", x, (AXIS_HEIGHT - 9).into(), anchor, &tick.label))
                @if at_bottom_too { (label("", x, (bottom + 16).into(), anchor, &tick.label)) }
            }
        }
    }
}

fn draw_lane(lane: &Lane, report: &Report, top: u32, heights: &LaneHeights) -> Markup {
    let (y, height) = (top + heights.bar_top, heights.bar);
    let name = lane.slot.map_or_else(|| "no slot".to_owned(), |slot| format!("slot {}", u64::from(slot) + 1));
    let ground = [Length::Share(GUTTER_SHARE), y.into(), Length::Share(PLOT_SHARE), height.into()];
    html! {
        g {
            (label("slot", 0u32.into(), (y + height / 2 + 4).into(), Anchor::Start, &name))
            (rectangle("lane", ground, ""))
            @for cell in &lane.cells { (draw_cell(cell, report, y, height)) }
            @for bar in &lane.bars {
                (draw_bar(bar, report, y, height))
                @if heights.bar_top >= heights.bar { (bar_name(bar, report, y - 5)) }
            }
        }
    }
}

fn bar_name(bar: &Bar, report: &Report, y: u32) -> Markup {
    let class = match bar.label {
        Label::Never => return Markup::default(),
        Label::Wide => "name wide",
        Label::Always => "name",
    };
    let name = clean::name(&report.packages[bar.package].name, NAME_CHARACTERS_MAX);
    label(class, Length::Share(place(bar.start)), y.into(), Anchor::Start, &name)
}

fn draw_bar(bar: &Bar, report: &Report, y: u32, height: u32) -> Markup {
    let package = &report.packages[bar.package];
    let failed_segment = bar.segments.iter().any(|segment| package.stages[segment.stage].failed());
    let ground = match package.state {
        PackageState::Failed if !failed_segment => "bar bad",
        PackageState::Building => "bar now",
        _ => "bar",
    };
    let class = |stage: usize, shade: usize| match &package.stages[stage] {
        stage if stage.failed() => "bad",
        stage if stage.outcome == "running" => "now",
        _ => SHADE_CLASSES[shade],
    };
    let [x, top, _, down] = area(bar.start, bar.width, y, height);
    html! {
        g {
            title { (tooltip(package)) }
            (rectangle(ground, area(bar.start, bar.width, y, height), ""))
            @for segment in &bar.segments {
                (rectangle(
                    class(segment.stage, segment.shade),
                    area(segment.start, segment.width, y, height),
                    "",
                ))
            }
            @if bar.width > GAP_WIDTH_MIN { (rectangle("gap", [x, top, 1u32.into(), down], "")) }
        }
    }
}

/// The style sheet's classes for the shades.
pub(crate) const SHADE_CLASSES: [&str; super::layout::SHADES] =
    ["s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"];

fn tooltip(package: &ReportPackage) -> String {
    let mut text = format!(
        "{} {}: {}, {}",
        clean::name(&package.name, NAME_CHARACTERS_MAX),
        clean::name(&package.version, NAME_CHARACTERS_MAX),
        crate::page::state_word(package.state),
        words::duration(package.wall_seconds)
    );
    let stages: Vec<String> = package
        .stages
        .iter()
        .take(TOOLTIP_STAGES_MAX)
        .map(|stage| {
            let name = clean::name(&stage.name, NAME_CHARACTERS_MAX);
            let bad = if stage.failed() { " (failed)" } else { "" };
            format!("{name}{bad} {}", words::duration(stage.wall_seconds))
        })
        .collect();
    if !stages.is_empty() {
        text.push('\n');
        text.push_str(&stages.join(", "));
    }
    text
}

fn draw_cell(cell: &Cell, report: &Report, y: u32, height: u32) -> Markup {
    let class = match cell.busy {
        _ if cell.failed > 0 => "bad",
        busy if busy < 0.4 => "many low",
        busy if busy < 0.8 => "many middle",
        _ => "many",
    };
    rectangle(class, area(cell.start, cell.width, y, height), &cell_tooltip(cell, report))
}

fn cell_tooltip(cell: &Cell, report: &Report) -> String {
    if cell.builds == 0 {
        return String::new();
    }
    let mut text = words::counted(cell.builds as u64, "build", "builds");
    if cell.failed > 0 {
        text.push_str(&format!(" ({} failed)", words::count(cell.failed as u64)));
    }
    let names: Vec<String> = cell
        .packages
        .iter()
        .map(|package| clean::name(&report.packages[*package].name, NAME_CHARACTERS_MAX))
        .collect();
    text.push_str(": ");
    text.push_str(&names.join(", "));
    if cell.builds > names.len() {
        text.push_str(&format!(" and {} more", words::count((cell.builds - names.len()) as u64)));
    }
    text
}
