//! Draws a timeline that was laid out.

use super::layout::{Bar, Cell, Label, Lane, Layout, PLOT_SHARE};
use crate::markup::{Markup, length};
use crate::page::NAME_CHARACTERS_MAX;
use crate::words;
use crate::{PackageState, Report, ReportPackage, clean};

/// The share of the drawing left of the lanes, for their labels. What remains on the right is room for the last
/// label of the axis.
const GUTTER_SHARE: f64 = 0.065;

/// Heights in pixels.
const AXIS_HEIGHT: u32 = 24;
const NAMED_LANE: LaneHeights = LaneHeights { lane: 42, bar_top: 19, bar: 18 };
const PLAIN_LANE: LaneHeights = LaneHeights { lane: 14, bar_top: 2, bar: 11 };

/// Narrower bars would not be visible.
const WIDTH_MIN: f64 = 0.0009;

/// Wider bars get a gap in front, so that neighbours look like two.
const GAP_WIDTH_MIN: f64 = 0.004;

/// From so many lanes on the axis is drawn at the bottom too.
const TWO_AXES_LANES_MIN: usize = 13;

/// Stages named in the tooltip of a bar.
const TOOLTIP_STAGES_MAX: usize = 12;

struct LaneHeights {
    lane: u32,
    bar_top: u32,
    bar: u32,
}

/// Draws the timeline of `report`. The drawing carries its own title and description.
pub(crate) fn draw(out: &mut Markup, layout: &Layout, report: &Report) {
    let heights = if layout.named { NAMED_LANE } else { PLAIN_LANE };
    let lanes_height = layout.lanes.len() as u32 * heights.lane;
    let axes = if layout.lanes.len() >= TWO_AXES_LANES_MIN { 2 } else { 1 };
    let height = (AXIS_HEIGHT * axes + lanes_height + 2).to_string();
    let attributes = [
        ("class", "timeline"),
        ("role", "img"),
        ("aria-labelledby", "timeline-title timeline-description"),
        ("width", "100%"),
        ("height", &height),
    ];
    out.element("svg", &attributes, |out| {
        out.leaf("title", &[("id", "timeline-title")], "Builds over time, one lane for each slot");
        out.leaf("desc", &[("id", "timeline-description")], &describe(layout));
        out.literal(HATCH);
        draw_axis(out, layout, lanes_height, axes == 2);
        let mut top = AXIS_HEIGHT;
        for lane in &layout.lanes {
            draw_lane(out, lane, report, top, &heights);
            top += heights.lane;
        }
    });
}

/// The hatches: what failed, and what is still being built. They say without colour what the colour says.
const HATCH: &str = concat!(
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
            " {} too short to be drawn alone are summed up in cells.",
            words::count(layout.builds_in_cells as u64)
        ));
    }
    text.push_str(" The table of packages says the same in words.");
    text
}

fn place(fraction: f64) -> f64 {
    GUTTER_SHARE + PLOT_SHARE * if fraction.is_nan() { 0.0 } else { fraction.clamp(0.0, 1.0) }
}

/// Start and width of a rectangle as lengths: wide enough to be seen, never past the end of the lane.
fn span(start: f64, width: f64) -> (String, String) {
    let from = place(start);
    let to = place(start + width).max(from + WIDTH_MIN);
    (length(from), length(to - from))
}

fn draw_axis(out: &mut Markup, layout: &Layout, lanes_height: u32, at_bottom_too: bool) {
    let bottom = AXIS_HEIGHT + lanes_height;
    let (top_text, bottom_text) = ((AXIS_HEIGHT - 9).to_string(), (bottom + 16).to_string());
    let (line_top, line_bottom) = ((AXIS_HEIGHT - 4).to_string(), bottom.to_string());
    out.element("g", &[("class", "axis")], |out| {
        for tick in &layout.ticks {
            let x = length(place(tick.at));
            out.void("line", &[("x1", &x), ("x2", &x), ("y1", &line_top), ("y2", &line_bottom)]);
            // The first and the last label would stick out.
            let anchor = match tick.at {
                at if at <= 0.0 => "start",
                at if at > 0.985 => "end",
                _ => "middle",
            };
            out.leaf("text", &[("x", &x), ("y", &top_text), ("text-anchor", anchor)], &tick.label);
            if at_bottom_too {
                out.leaf("text", &[("x", &x), ("y", &bottom_text), ("text-anchor", anchor)], &tick.label);
            }
        }
    });
}

fn draw_lane(out: &mut Markup, lane: &Lane, report: &Report, top: u32, heights: &LaneHeights) {
    let y = (top + heights.bar_top).to_string();
    let height = heights.bar.to_string();
    let text_y = (top + heights.bar_top + heights.bar / 2 + 4).to_string();
    let name_y = (top + heights.bar_top - 5).to_string();
    out.element("g", &[], |out| {
        let name =
            lane.slot.map_or_else(|| "no slot".to_owned(), |slot| format!("slot {}", u64::from(slot) + 1));
        out.leaf("text", &[("class", "slot"), ("x", "0"), ("y", &text_y)], &name);
        let ground = (length(GUTTER_SHARE), length(PLOT_SHARE));
        out.void(
            "rect",
            &[("class", "lane"), ("x", &ground.0), ("y", &y), ("width", &ground.1), ("height", &height)],
        );
        for cell in &lane.cells {
            draw_cell(out, cell, report, &y, &height);
        }
        for bar in &lane.bars {
            draw_bar(out, bar, report, &y, &height);
            if heights.bar_top < heights.bar {
                continue;
            }
            let class = match bar.label {
                Label::Never => continue,
                Label::Wide => "name wide",
                Label::Always => "name",
            };
            let x = length(place(bar.start));
            let name = clean::name(&report.packages[bar.package].name, NAME_CHARACTERS_MAX);
            out.leaf("text", &[("class", class), ("x", &x), ("y", &name_y)], &name);
        }
    });
}

fn draw_bar(out: &mut Markup, bar: &Bar, report: &Report, y: &str, height: &str) {
    let package = &report.packages[bar.package];
    let failed_segment = bar.segments.iter().any(|segment| package.stages[segment.stage].failed());
    let ground = match package.state {
        PackageState::Failed if !failed_segment => "bar bad",
        PackageState::Building => "bar now",
        _ => "bar",
    };
    out.element("g", &[], |out| {
        out.leaf("title", &[], &tooltip(package));
        let (x, width) = span(bar.start, bar.width);
        out.void("rect", &[("class", ground), ("x", &x), ("y", y), ("width", &width), ("height", height)]);
        for segment in &bar.segments {
            let class = match &package.stages[segment.stage] {
                stage if stage.failed() => "bad",
                stage if stage.outcome == "running" => "now",
                _ => SHADE_CLASSES[segment.shade],
            };
            let (x, width) = span(segment.start, segment.width);
            out.void("rect", &[("class", class), ("x", &x), ("y", y), ("width", &width), ("height", height)]);
        }
        if bar.width > GAP_WIDTH_MIN {
            out.void("rect", &[("class", "gap"), ("x", &x), ("y", y), ("width", "1"), ("height", height)]);
        }
    });
}

/// The classes of the shades in the style sheet.
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

fn draw_cell(out: &mut Markup, cell: &Cell, report: &Report, y: &str, height: &str) {
    let class = match cell.busy {
        _ if cell.failed > 0 => "bad",
        busy if busy < 0.4 => "many low",
        busy if busy < 0.8 => "many middle",
        _ => "many",
    };
    let (x, width) = span(cell.start, cell.width);
    let attributes = [("class", class), ("x", &*x), ("y", y), ("width", &*width), ("height", height)];
    out.element("rect", &attributes, |out| {
        if cell.builds == 0 {
            return;
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
        out.leaf("title", &[], &text);
    });
}
