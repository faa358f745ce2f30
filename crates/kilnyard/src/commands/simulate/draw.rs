//! Draws a simulated run: how busy the cores were, and below it each build in a lane.
//!
//! The report's timeline has a lane for each slot of a real run. Here are no slots: a build goes to the first lane
//! that is free, and what matters is whether cores were idle and what the packages of the path waited for.

use super::play::Played;
use super::show::utilisation;
use crate::words;
use kilnyard_model::graph::Graph;
use kilnyard_schedule::{Built, Machine};
use std::fmt::Write;

const WIDTH: f64 = 1200.0;
/// Room on the left for labels, and on the right for the last label of the axis.
const LEFT: f64 = 60.0;
const RIGHT: f64 = 50.0;
const TOP: f64 = 48.0;
const BUSY_HEIGHT: f64 = 80.0;
const LANE_HEIGHT: f64 = 9.0;
const BAR_HEIGHT: f64 = 8.0;
/// More lanes make a drawing that nobody looks at; builds beyond are counted.
const LANES_MAX: usize = 256;
/// Labels on the axis.
const TICKS: usize = 6;
/// Steps of the curve that shows how busy the cores were.
const CURVE_STEPS: usize = 400;

const STYLE: &str = "text{font:12px sans-serif;fill:#333}.busy{fill:#9ec5a4}.frame{fill:none;stroke:#999}\
    .build{fill:#a8bdd6}.path{fill:#d2622a}.grid{stroke:#ddd}";

pub fn draw(graph: &Graph, played: &Played, machines: &[Machine]) -> String {
    let simulated = &played.first;
    let (lanes, hidden) = lanes(&simulated.builds);
    let range = simulated.makespan_seconds.max(f64::MIN_POSITIVE);
    let plot = WIDTH - LEFT - RIGHT;
    let x = |seconds: f64| LEFT + plot * seconds / range;
    let lanes_top = TOP + BUSY_HEIGHT + 28.0;
    let height = lanes_top + LANE_HEIGHT * lanes.len() as f64 + 12.0;
    let cores: u32 = machines.iter().map(|machine| machine.cores).sum();
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n\
         <title>A simulated run</title>\n<style>{STYLE}</style>\n"
    );
    let mut head = format!(
        "{} on {}: {}, {:.3} times the bound; packages of the longest path are orange",
        words::count(graph.len() as u64, "package"),
        words::count(cores.into(), "core"),
        words::duration(simulated.makespan_seconds),
        simulated.makespan_seconds / played.bound.seconds().max(f64::MIN_POSITIVE),
    );
    if hidden > 0 {
        let _ = write!(head, "; {} not drawn", words::count(hidden as u64, "build"));
    }
    let _ = writeln!(out, "<text x=\"{LEFT}\" y=\"18\">{}</text>", escaped(&head));
    for tick in 0..=TICKS {
        let seconds = range * tick as f64 / TICKS as f64;
        let (at, label) = (x(seconds), words::duration(seconds));
        let (from, to) = (TOP, height - 8.0);
        let _ = writeln!(out, "<path class=\"grid\" d=\"M{at:.1} {from}V{to:.1}\"/>");
        let _ = writeln!(out, "<text x=\"{at:.1}\" y=\"40\" text-anchor=\"middle\">{label}</text>");
    }
    let bottom = TOP + BUSY_HEIGHT;
    let mut curve = format!("M{LEFT} {bottom}");
    for (step, share) in utilisation(simulated, machines, CURVE_STEPS).iter().enumerate() {
        let y = bottom - BUSY_HEIGHT * share.clamp(0.0, 1.0);
        let _ = write!(curve, "V{y:.1}H{:.1}", LEFT + plot * (step + 1) as f64 / CURVE_STEPS as f64);
    }
    let _ = writeln!(out, "<path class=\"busy\" d=\"{curve}V{bottom}Z\"/>");
    let _ = writeln!(
        out,
        "<rect class=\"frame\" x=\"{LEFT}\" y=\"{TOP}\" width=\"{plot}\" height=\"{BUSY_HEIGHT}\"/>\n\
         <text x=\"4\" y=\"{:.0}\">cores</text>\n<text x=\"4\" y=\"{:.0}\">builds</text>",
        TOP + 12.0,
        lanes_top + 8.0
    );
    let mut is_on_path = vec![false; graph.len()];
    for package in &played.bound.path {
        is_on_path[package.index()] = true;
    }
    for (lane, builds) in lanes.iter().enumerate() {
        let y = lanes_top + LANE_HEIGHT * lane as f64;
        for built in builds {
            let (from, to) = (x(built.start_seconds), x(built.end_seconds));
            let class = if is_on_path[built.package.index()] { "path" } else { "build" };
            let name = escaped(graph.name(built.package));
            let took = words::duration(built.end_seconds - built.start_seconds);
            let _ = writeln!(
                out,
                "<rect class=\"{class}\" x=\"{from:.2}\" y=\"{y:.1}\" width=\"{:.2}\" height=\"{BAR_HEIGHT}\">\
                 <title>{name}: {took}</title></rect>",
                (to - from).max(0.2),
            );
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Each build in the first lane that is free at its start, and how many had none.
fn lanes(builds: &[Built]) -> (Vec<Vec<Built>>, usize) {
    let mut builds = builds.to_vec();
    builds.sort_by(|a, b| {
        let by_start = a.start_seconds.total_cmp(&b.start_seconds);
        by_start.then_with(|| a.end_seconds.total_cmp(&b.end_seconds))
    });
    let mut lanes: Vec<Vec<Built>> = Vec::new();
    let mut hidden = 0;
    for built in builds {
        let is_free =
            |lane: &Vec<Built>| lane.last().is_none_or(|last| last.end_seconds <= built.start_seconds);
        match lanes.iter().position(is_free) {
            Some(lane) => lanes[lane].push(built),
            None if lanes.len() < LANES_MAX => lanes.push(vec![built]),
            None => hidden += 1,
        }
    }
    (lanes, hidden)
}

/// Text as XML takes it.
fn escaped(text: &str) -> String {
    let text: String = text.chars().filter(|letter| !letter.is_control()).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
