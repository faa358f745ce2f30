//! A grouped bar chart with stacked parts, for a web page or a paper.

use super::super::figures::Unit;
use kilnyard_web::{Anchor, Drawing};

const WIDTH: f64 = 840.0;
/// Space on the left for labels, and on the right for totals.
const LEFT: f64 = 200.0;
const RIGHT: f64 = 70.0;
const BAR_HEIGHT: f64 = 18.0;
const BAR_STEP: f64 = 26.0;
/// Space for the title, the remark and the legend.
const TOP: f64 = 92.0;
/// Space above the bars of a group for its heading, and below them for its axis.
const HEADING: f64 = 26.0;
const AXIS: f64 = 48.0;
/// Maximum number of steps on an axis.
const STEPS_MAX: f64 = 8.0;
/// CSS classes of the parts' colours. Further parts reuse them.
const COLOURS: [&str; 4] = ["p0", "p1", "p2", "p3"];

/// Colours that people with any colour vision can distinguish, on white and on black.
const STYLE: &str = "text{font:13px sans-serif;fill:#222}.title{font-size:16px;font-weight:bold}\
    .small{font-size:11px;fill:#555}.page{fill:#fff}.grid{stroke:#ddd}.base{stroke:#777}\
    .p0{fill:#0072b2}.p1{fill:#e69f00}.p2{fill:#8a8a8a}.p3{fill:#c44e86}\
    @media(prefers-color-scheme:dark){text{fill:#eee}.small{fill:#aaa}.page{fill:#15181c}.grid{stroke:#3a3f46}\
    .base{stroke:#999}.p0{fill:#56b4e9}.p1{fill:#f0b83a}.p2{fill:#9aa0a6}.p3{fill:#e08ab4}}";

/// The content of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    pub title: String,
    /// The machine and how it was measured.
    pub remark: String,
    /// Label of the axes, with the unit.
    pub axis: String,
    /// Names of the parts.
    pub parts: Vec<String>,
    pub groups: Vec<Group>,
}

/// Bars that share an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    pub heading: String,
    pub bars: Vec<Bar>,
}

/// A bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    pub label: String,
    /// Values in the order of the chart's parts.
    pub parts: Vec<f64>,
}

/// Renders the chart as SVG.
pub fn draw(chart: &Chart) -> String {
    let height = TOP + chart.groups.iter().map(height_of).sum::<f64>() + 12.0;
    let mut out = Drawing::new(WIDTH, height, &chart.title, STYLE);
    out.rectangle("page", [0.0, 0.0, WIDTH, height], "");
    out.label("title", 16.0, 26.0, Anchor::Start, &chart.title);
    out.label("small", 16.0, 46.0, Anchor::Start, &chart.remark);
    for (number, part) in chart.parts.iter().enumerate() {
        let x = LEFT + 130.0 * number as f64;
        out.rectangle(COLOURS[number % COLOURS.len()], [x, 62.0, 12.0, 12.0], "");
        out.label("", x + 18.0, 73.0, Anchor::Start, part);
    }
    let mut top = TOP;
    for group in &chart.groups {
        draw_group(&mut out, chart, group, top);
        top += height_of(group);
    }
    out.finish()
}

fn height_of(group: &Group) -> f64 {
    HEADING + BAR_STEP * group.bars.len() as f64 + AXIS
}

fn draw_group(out: &mut Drawing, chart: &Chart, group: &Group, top: f64) {
    let total = |bar: &Bar| bar.parts.iter().sum::<f64>();
    let largest = group.bars.iter().map(total).fold(0.0, f64::max);
    let step = step(largest);
    let end = (largest / step).ceil().max(1.0) * step;
    let x = |value: f64| LEFT + (WIDTH - LEFT - RIGHT) * value / end;
    let (bars_top, bars_end) = (top + HEADING, top + HEADING + BAR_STEP * group.bars.len() as f64);
    out.label("", LEFT, top + 14.0, Anchor::Start, &group.heading);
    for tick in 0..=(end / step).round() as u32 {
        let value = step * f64::from(tick);
        out.vertical("grid", x(value), bars_top, bars_end);
        out.label("small", x(value), bars_end + 14.0, Anchor::Middle, &number(value));
    }
    for (place, bar) in group.bars.iter().enumerate() {
        let y = bars_top + BAR_STEP * place as f64 + (BAR_STEP - BAR_HEIGHT) / 2.0;
        let line = y + 14.0;
        out.label("", LEFT - 8.0, line, Anchor::End, &bar.label);
        let mut from = 0.0;
        for (part, value) in bar.parts.iter().enumerate().filter(|(_, value)| **value > 0.0) {
            let name = chart.parts.get(part).map_or("", String::as_str);
            let area = [x(from), y, x(from + value) - x(from), BAR_HEIGHT];
            let tooltip = format!("{}, {name}: {value:.3} s", bar.label);
            out.rectangle(COLOURS[part % COLOURS.len()], area, &tooltip);
            from += value;
        }
        out.label("", x(from) + 6.0, line, Anchor::Start, &Unit::Seconds.show(from));
    }
    out.vertical("base", LEFT, bars_top, bars_end);
    out.label("small", (LEFT + WIDTH - RIGHT) / 2.0, bars_end + 30.0, Anchor::Middle, &chart.axis);
}

/// The distance between two marks of an axis: 1, 2 or 5 times a power of ten.
fn step(largest: f64) -> f64 {
    let least = if largest > 0.0 && largest.is_finite() { largest / STEPS_MAX } else { 1.0 };
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| *step >= least)
        .unwrap_or(10.0 * power)
}

/// Formats a number of an axis, without trailing zeros.
fn number(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        let bar = |label: &str, parts: &[f64]| Bar { label: label.to_owned(), parts: parts.to_vec() };
        Chart {
            title: "Roots of <libx> & \"more\"\u{1b}".to_owned(),
            remark: "2 cores & a <disk>".to_owned(),
            axis: "seconds of wall time".to_owned(),
            parts: ["create", "dependencies", "build", "teardown"].map(str::to_owned).to_vec(),
            groups: vec![
                Group {
                    heading: "by <manager>".to_owned(),
                    bars: vec![bar("overlay", &[0.02, 4.0, 10.0, 0.5]), bar("a<b", &[5.0, 4.0, 10.0, 2.0])],
                },
                Group { heading: "nothing".to_owned(), bars: vec![bar("none", &[0.0, 0.0])] },
            ],
        }
    }

    /// The text between the tags, and the names of the tags. Panics unless tags balance.
    fn read(svg: &str) -> (String, Vec<String>) {
        let (mut open, mut text, mut tags) = (Vec::new(), String::new(), Vec::new());
        let mut rest = svg;
        while let Some((before, after)) = rest.split_once('<') {
            assert!(!before.contains('>'), "a bare > in {before}");
            text.push_str(before);
            let (tag, after) = after.split_once('>').expect("unterminated tag");
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop().as_deref(), Some(name)),
                None => {
                    let name = tag.split([' ', '/']).next().unwrap().to_owned();
                    tags.push(name.clone());
                    if !tag.ends_with('/') {
                        open.push(name);
                    }
                }
            }
            rest = after;
        }
        assert!(open.is_empty(), "{open:?}");
        for entity in text.split('&').skip(1) {
            assert!(
                ["amp;", "lt;", "gt;", "quot;"].iter().any(|known| entity.starts_with(known)),
                "{entity}"
            );
        }
        (text + rest, tags)
    }

    #[test]
    fn a_drawing_is_well_formed_and_text_is_escaped() {
        let svg = draw(&chart());
        let (text, tags) = read(&svg);
        assert!(
            text.contains("Roots of &lt;libx&gt; &amp; &quot;more&quot;") && !svg.contains('\u{1b}'),
            "{text}"
        );
        assert!(text.contains("by &lt;manager&gt;") && text.contains("a&lt;b") && text.contains("21.00 s"));
        // The background, four in the legend, and the parts of bars that are not zero.
        assert_eq!(tags.iter().filter(|tag| *tag == "rect").count(), 1 + 4 + 8);
        assert!(svg.contains("prefers-color-scheme:dark"));
    }

    #[test]
    fn no_bar_is_longer_than_its_axis() {
        for part in draw(&chart()).split("<rect class=\"p").skip(1 + 4) {
            let value = |name: &str| -> f64 {
                let (_, rest) = part.split_once(&format!(" {name}=\"")).unwrap();
                rest.split_once('"').unwrap().0.parse().unwrap()
            };
            assert!(value("x") >= LEFT && value("x") + value("width") <= WIDTH - RIGHT + 0.02, "{part}");
        }
    }

    #[test]
    fn axis_marks_are_round_and_few() {
        for (largest, expected) in [(21.0, 5.0), (8.0, 1.0), (0.03, 0.005), (0.0, 1.0), (f64::INFINITY, 1.0)]
        {
            assert!((step(largest) - expected).abs() < 1e-9, "{largest}: {}", step(largest));
        }
        assert_eq!((number(0.005), number(10.0), number(2.5)), ("0.005".into(), "10".into(), "2.5".into()));
    }
}
