//! Draws a simulated run: the number of busy cores over time, and below it each build in a lane.
//!
//! The report's timeline has a lane for each slot of a real run. A simulation has no slots: a build goes to the first
//! free lane. The drawing shows whether cores were idle and what the packages of the path waited for.

use super::play::Played;
use super::show::utilisation;
use crate::words;
use kilnyard_model::graph::Graph;
use kilnyard_schedule::{Built, Machine};
use kilnyard_web::{Anchor, Drawing};
use std::fmt::Write;

const WIDTH: f64 = 1200.0;
/// Room on the left for labels, and on the right for the last label of the axis.
const LEFT: f64 = 60.0;
const RIGHT: f64 = 50.0;
const TOP: f64 = 48.0;
const BUSY_HEIGHT: f64 = 80.0;
const LANE_HEIGHT: f64 = 9.0;
const BAR_HEIGHT: f64 = 8.0;
/// The maximum number of lanes; further builds are only counted.
const LANES_MAX: usize = 256;
/// Labels on the axis.
const TICKS: usize = 6;
/// Steps of the curve of busy cores.
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
    let mut out = Drawing::new(WIDTH, height, "A simulated run", STYLE);
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
    out.label("", LEFT, 18.0, Anchor::Start, &head);
    for tick in 0..=TICKS {
        let seconds = range * tick as f64 / TICKS as f64;
        out.vertical("grid", x(seconds), TOP, height - 8.0);
        out.label("", x(seconds), 40.0, Anchor::Middle, &words::duration(seconds));
    }
    let bottom = TOP + BUSY_HEIGHT;
    let mut curve = format!("M{LEFT} {bottom}");
    for (step, share) in utilisation(simulated, machines, CURVE_STEPS).iter().enumerate() {
        let y = bottom - BUSY_HEIGHT * share.clamp(0.0, 1.0);
        let _ = write!(curve, "V{y:.1}H{:.1}", LEFT + plot * (step + 1) as f64 / CURVE_STEPS as f64);
    }
    out.path("busy", &format!("{curve}V{bottom}Z"));
    out.rectangle("frame", [LEFT, TOP, plot, BUSY_HEIGHT], "");
    out.label("", 4.0, TOP + 12.0, Anchor::Start, "cores");
    out.label("", 4.0, lanes_top + 8.0, Anchor::Start, "builds");
    let mut is_on_path = vec![false; graph.len()];
    for package in &played.bound.path {
        is_on_path[package.index()] = true;
    }
    for (lane, builds) in lanes.iter().enumerate() {
        let y = lanes_top + LANE_HEIGHT * lane as f64;
        for built in builds {
            let (from, to) = (x(built.start_seconds), x(built.end_seconds));
            let class = if is_on_path[built.package.index()] { "path" } else { "build" };
            let took = words::duration(built.end_seconds - built.start_seconds);
            let tooltip = format!("{}: {took}", graph.name(built.package));
            out.rectangle(class, [from, y, (to - from).max(0.2), BAR_HEIGHT], &tooltip);
        }
    }
    out.finish()
}

/// Each build in the first lane that is free at its start, and the number of builds without a lane.
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
