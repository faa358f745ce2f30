//! Where each build is drawn: numbers only.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::ticks::{Tick, ticks};
use crate::words::sane_seconds;
use crate::{PackageState, Report, ReportPackage};

/// More lanes than this make a drawing taller than anyone scrolls.
const LANES_MAX: usize = 64;

/// The most lanes with room for the names of builds.
const NAMED_LANES_MAX: usize = 16;

/// Bars of single builds in the whole drawing. With their tooltips they are about 200 bytes each.
const BARS_MAX: usize = 3000;

/// Segments of stages in the whole drawing; builds beyond it are drawn in one piece.
const SEGMENTS_MAX: usize = 9000;

/// Cells of all lanes together.
const CELLS_MAX: usize = 6000;

/// Cells of one lane: at the usual width one is about three pixels wide.
const LANE_CELLS_MAX: usize = 360;

/// A build gets a bar of its own if it is at least as wide as this many cells, or if there are few builds anyway.
const BAR_CELLS_MIN: f64 = 2.0;

/// Runs with fewer builds are drawn build by build.
const SINGLE_BUILDS_MAX: usize = 600;

/// Names remembered for the tooltip of a cell.
const CELL_NAMES_MAX: usize = 3;

/// The shades that the style sheet has for stages.
pub(crate) const SHADES: usize = 8;

/// The narrowest that the drawing gets, and the width at which longer labels appear, both in pixels. The style
/// sheet knows the same numbers.
const WIDTH_NARROW: f64 = 820.0;
pub(super) const WIDTH_WIDE: f64 = 1120.0;

/// The share of the drawing that the lanes have, beside their labels.
pub(crate) const PLOT_SHARE: f64 = 0.92;

/// The width of a character of a label in pixels, on the safe side.
const CHARACTER_WIDTH: f64 = 7.0;

/// The whole drawing.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Layout {
    pub(crate) range_seconds: f64,
    pub(crate) ticks: Vec<Tick>,
    pub(crate) lanes: Vec<Lane>,
    /// Lanes that did not fit.
    pub(crate) lanes_hidden: usize,
    /// Builds that have a place on the drawing, shown alone or in a cell.
    pub(crate) builds: usize,
    /// How many of them are shown only in a cell.
    pub(crate) builds_in_cells: usize,
    /// Whether there is room for names.
    pub(crate) named: bool,
    /// The names of the stages by shade, as far as they are drawn.
    pub(crate) legend: Vec<Vec<String>>,
}

/// What one slot did.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Lane {
    /// Builds without a recorded slot share one lane.
    pub(crate) slot: Option<u32>,
    pub(crate) bars: Vec<Bar>,
    pub(crate) cells: Vec<Cell>,
}

/// One build.
#[derive(Debug, PartialEq)]
pub(crate) struct Bar {
    /// Its place in the packages of the report.
    pub(crate) package: usize,
    pub(crate) start: f64,
    pub(crate) width: f64,
    pub(crate) segments: Vec<Segment>,
    pub(crate) label: Label,
}

/// One stage of a build.
#[derive(Debug, PartialEq)]
pub(crate) struct Segment {
    pub(crate) stage: usize,
    pub(crate) shade: usize,
    pub(crate) start: f64,
    pub(crate) width: f64,
}

/// Where the name of a build fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Label {
    Never,
    Wide,
    Always,
}

/// A stretch of a lane in which builds are too short to be drawn alone.
#[derive(Debug, PartialEq)]
pub(crate) struct Cell {
    pub(crate) start: f64,
    pub(crate) width: f64,
    /// The share of the stretch in which these builds ran.
    pub(crate) busy: f64,
    pub(crate) builds: usize,
    pub(crate) failed: usize,
    /// A few of them.
    pub(crate) packages: Vec<usize>,
}

/// A build as far as the drawing is concerned.
struct Build {
    package: usize,
    start: f64,
    end: f64,
}

/// Decides where everything goes.
pub(crate) fn layout(report: &Report) -> Layout {
    let mut slots: BTreeMap<Option<u32>, Vec<Build>> = BTreeMap::new();
    let mut range: f64 = sane_seconds(report.wall_seconds);
    for (package, facts) in report.packages.iter().enumerate() {
        if let Some(build) = build_of(package, facts) {
            range = range.max(build.end);
            slots.entry(facts.slot).or_default().push(build);
        }
    }
    let builds: usize = slots.values().map(Vec::len).sum();
    if builds == 0 {
        return Layout::default();
    }
    // Slots that did nothing are drawn too: an empty lane tells that a smaller machine would have done.
    for slot in 0..report.slots.min(LANES_MAX as u32) {
        slots.entry(Some(slot)).or_default();
    }
    // The lane without a slot sorts first and belongs last.
    let unknown = slots.remove(&None).map(|builds| (None, builds));
    let lanes_all = slots.len() + usize::from(unknown.is_some());
    let shown: Vec<(Option<u32>, Vec<Build>)> = slots.into_iter().chain(unknown).take(LANES_MAX).collect();
    // A range of zero (a broken clock) would make every fraction meaningless.
    let range = if range > 0.0 { range } else { 1.0 };
    let mut layout = Layout {
        range_seconds: range,
        ticks: ticks(range),
        lanes_hidden: lanes_all - shown.len(),
        builds: shown.iter().map(|(_, builds)| builds.len()).sum(),
        named: shown.len() <= NAMED_LANES_MAX,
        ..Layout::default()
    };
    let cells = (CELLS_MAX / shown.len()).clamp(1, LANE_CELLS_MAX);
    let alone = builds_alone(&shown, range, cells);
    let mut shades = Shades::default();
    let mut segments_left = SEGMENTS_MAX;
    for (slot, mut builds) in shown {
        builds.sort_by(|a, b| a.start.total_cmp(&b.start).then(a.package.cmp(&b.package)));
        let mut lane = Lane { slot, ..Lane::default() };
        let (bars, rest): (Vec<Build>, Vec<Build>) =
            builds.into_iter().partition(|b| alone.contains(&b.package));
        for (index, build) in bars.iter().enumerate() {
            let facts = &report.packages[build.package];
            let until = bars.get(index + 1).map_or(range, |next| next.start);
            let room = (until - build.start).max(0.0) / range;
            let mut segments = segments_of(facts, build, range, &mut shades);
            if segments.len() > segments_left {
                segments.clear();
            }
            segments_left -= segments.len();
            lane.bars.push(Bar {
                package: build.package,
                start: build.start / range,
                width: (build.end - build.start) / range,
                segments,
                label: label(facts, room),
            });
        }
        layout.builds_in_cells += rest.len();
        lane.cells = cells_of(&rest, report, range, cells);
        layout.lanes.push(lane);
    }
    layout.legend = shades.legend();
    layout
}

/// Whether there is anything to draw.
pub(crate) fn has_builds(report: &Report) -> bool {
    report.packages.iter().enumerate().any(|(package, facts)| build_of(package, facts).is_some())
}

/// The place of a build in time, if it has one.
fn build_of(package: usize, facts: &ReportPackage) -> Option<Build> {
    let start = facts.started_seconds.filter(|seconds| !seconds.is_nan())?;
    // A build that began before the run (a clock that jumped) is drawn from the start of the run on.
    let start = sane_seconds(start);
    let end = sane_seconds(start + sane_seconds(facts.wall_seconds));
    Some(Build { package, start, end })
}

/// The builds that get a bar of their own: all where there are few, else the longest and the failed, within bounds.
fn builds_alone(lanes: &[(Option<u32>, Vec<Build>)], range: f64, cells: usize) -> BTreeSet<usize> {
    let all = lanes.iter().flat_map(|(_, builds)| builds);
    let few = lanes.iter().map(|(_, builds)| builds.len()).sum::<usize>() <= SINGLE_BUILDS_MAX;
    let width_min = range / cells as f64 * BAR_CELLS_MIN;
    let mut candidates: Vec<&Build> =
        all.filter(|build| few || build.end - build.start >= width_min).collect();
    candidates
        .sort_by(|a, b| (b.end - b.start).total_cmp(&(a.end - a.start)).then(a.package.cmp(&b.package)));
    candidates.into_iter().take(BARS_MAX).map(|build| build.package).collect()
}

/// The stages of a build, cut to the time of the build.
fn segments_of(facts: &ReportPackage, build: &Build, range: f64, shades: &mut Shades) -> Vec<Segment> {
    facts
        .stages
        .iter()
        .enumerate()
        .filter_map(|(stage, of)| {
            let start = sane_seconds(of.started_seconds).clamp(build.start, build.end);
            let end =
                (sane_seconds(of.started_seconds) + sane_seconds(of.wall_seconds)).clamp(start, build.end);
            (end > start).then(|| Segment {
                stage,
                shade: shades.shade(&of.name),
                start: start / range,
                width: (end - start) / range,
            })
        })
        .collect()
}

/// Whether the name of a build fits before the next one begins.
fn label(facts: &ReportPackage, room: f64) -> Label {
    let needed = (facts.name.chars().count() as f64 + 1.0) * CHARACTER_WIDTH;
    match room * PLOT_SHARE {
        share if share * WIDTH_NARROW >= needed => Label::Always,
        share if share * WIDTH_WIDE >= needed => Label::Wide,
        _ => Label::Never,
    }
}

/// Adds short builds to the cells that they touch.
fn cells_of(builds: &[Build], report: &Report, range: f64, cells: usize) -> Vec<Cell> {
    let width = 1.0 / cells as f64;
    let mut lane: BTreeMap<usize, Cell> = BTreeMap::new();
    for build in builds {
        let (start, end) = (build.start / range, build.end / range);
        let first = ((start / width) as usize).min(cells - 1);
        let last = ((end / width) as usize).clamp(first, cells - 1);
        for index in first..=last {
            let cell_start = index as f64 * width;
            let cell = lane.entry(index).or_insert_with(|| Cell {
                start: cell_start,
                width,
                busy: 0.0,
                builds: 0,
                failed: 0,
                packages: Vec::new(),
            });
            let overlap = end.min(cell_start + width) - start.max(cell_start);
            cell.busy = (cell.busy + overlap.max(0.0) / width).min(1.0);
            // A build is counted where it ends, so that the numbers of the cells add up.
            if index == last {
                cell.builds += 1;
                cell.failed += usize::from(report.packages[build.package].state == PackageState::Failed);
                if cell.packages.len() < CELL_NAMES_MAX {
                    cell.packages.push(build.package);
                }
            }
        }
    }
    lane.into_values().collect()
}

/// Which stage has which shade.
#[derive(Default)]
struct Shades {
    of: HashMap<String, usize>,
    names: Vec<Vec<String>>,
}

impl Shades {
    /// The usual stages always look the same; others take the shades in turn, bounded in memory.
    fn shade(&mut self, stage: &str) -> usize {
        /// Hostile builds could name a stage anew each time; names beyond this many are not in the legend.
        const NAMES_MAX: usize = 24;
        if let Some(shade) = self.of.get(stage) {
            return *shade;
        }
        let usual = match stage {
            "fetch" | "unpack" => Some(0),
            "depends" | "patch" => Some(1),
            "configure" => Some(2),
            "build" => Some(3),
            "test" | "check" => Some(4),
            "install" => Some(5),
            "package" => Some(6),
            _ => None,
        };
        if self.of.len() >= NAMES_MAX {
            return usual.unwrap_or(SHADES - 1);
        }
        let shade = usual.unwrap_or(SHADES - 1);
        self.of.insert(stage.to_owned(), shade);
        self.names.resize(SHADES, Vec::new());
        self.names[shade].push(stage.to_owned());
        shade
    }

    fn legend(self) -> Vec<Vec<String>> {
        self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReportStage;

    fn build(name: &str, slot: u32, start: f64, wall: f64) -> ReportPackage {
        ReportPackage {
            name: name.into(),
            state: PackageState::Built,
            slot: Some(slot),
            started_seconds: Some(start),
            wall_seconds: wall,
            ..ReportPackage::default()
        }
    }

    fn stage(name: &str, start: f64, wall: f64) -> ReportStage {
        ReportStage {
            name: name.into(),
            started_seconds: start,
            wall_seconds: wall,
            ..ReportStage::default()
        }
    }

    #[test]
    fn each_slot_has_a_lane_even_an_idle_one() {
        let report = Report {
            slots: 3,
            wall_seconds: 100.0,
            packages: vec![build("b", 1, 50.0, 50.0), build("a", 0, 0.0, 25.0)],
            ..Report::default()
        };
        let layout = layout(&report);
        assert_eq!(
            layout.lanes.iter().map(|lane| lane.slot).collect::<Vec<_>>(),
            [Some(0), Some(1), Some(2)]
        );
        assert_eq!((layout.lanes[0].bars[0].start, layout.lanes[0].bars[0].width), (0.0, 0.25));
        assert_eq!((layout.lanes[1].bars[0].start, layout.lanes[1].bars[0].width), (0.5, 0.5));
        assert!(layout.lanes[2].bars.is_empty());
        assert_eq!((layout.builds, layout.builds_in_cells, layout.lanes_hidden), (2, 0, 0));
    }

    #[test]
    fn stages_are_cut_to_their_build() {
        let mut package = build("a", 0, 10.0, 80.0);
        package.stages =
            vec![stage("fetch", 5.0, 15.0), stage("build", 20.0, 500.0), stage("late", 300.0, 1.0)];
        let report = Report { slots: 1, wall_seconds: 100.0, packages: vec![package], ..Report::default() };
        let layout = layout(&report);
        let segments = &layout.lanes[0].bars[0].segments;
        assert_eq!(segments.len(), 2);
        assert_eq!((segments[0].stage, segments[0].start), (0, 0.1));
        assert!((segments[0].width - 0.1).abs() < 1e-9 && (segments[1].width - 0.7).abs() < 1e-9);
        assert_ne!(segments[0].shade, segments[1].shade);
    }

    #[test]
    fn a_name_is_written_only_where_it_fits() {
        let report = Report {
            slots: 1,
            wall_seconds: 100.0,
            packages: vec![
                build("a-name-of-21-letters-", 0, 0.0, 20.0),
                build("short", 0, 20.0, 1.0),
                build("end", 0, 21.0, 1.0),
            ],
            ..Report::default()
        };
        let layout = layout(&report);
        let labels: Vec<Label> = layout.lanes[0].bars.iter().map(|bar| bar.label).collect();
        assert_eq!(labels, [Label::Wide, Label::Never, Label::Always]);
    }

    #[test]
    fn a_large_run_is_bounded_and_loses_no_build() {
        let mut packages: Vec<ReportPackage> =
            (0..30_000).map(|n| build("p", n % 32, f64::from(n / 32) * 4.0, 4.0)).collect();
        packages[5].wall_seconds = 200.0;
        packages[7].state = PackageState::Failed;
        let report = Report { slots: 32, wall_seconds: 4000.0, packages, ..Report::default() };
        let layout = layout(&report);
        assert_eq!(layout.builds, 30_000);
        assert!(layout.lanes.iter().flat_map(|lane| &lane.bars).any(|bar| bar.package == 5));
        let cells: Vec<&Cell> = layout.lanes.iter().flat_map(|lane| &lane.cells).collect();
        assert!(cells.len() <= CELLS_MAX, "{}", cells.len());
        assert_eq!(cells.iter().map(|cell| cell.builds).sum::<usize>(), layout.builds_in_cells);
        assert_eq!(cells.iter().map(|cell| cell.failed).sum::<usize>(), 1);
        assert!(!layout.named);
    }

    #[test]
    fn hostile_slots_and_overlaps_stay_within_the_bounds() {
        let packages: Vec<ReportPackage> = (0..20_000)
            .map(|n| {
                let mut package = build("p", u32::MAX - n, 0.0, 1e300);
                package.stages = vec![stage("x", 0.0, 1e300), stage("y", f64::NAN, f64::INFINITY)];
                package
            })
            .chain((0..10_000).map(|_| build("q", 1, 0.0, 1e300)))
            .collect();
        let report = Report { slots: u32::MAX, packages, ..Report::default() };
        let layout = layout(&report);
        assert_eq!(layout.lanes.len(), LANES_MAX);
        assert!(layout.lanes_hidden > 0);
        let bars: usize = layout.lanes.iter().map(|lane| lane.bars.len()).sum();
        let cells: usize = layout.lanes.iter().map(|lane| lane.cells.len()).sum();
        assert!(bars <= BARS_MAX && cells <= CELLS_MAX, "{bars} {cells}");
    }

    #[test]
    fn odd_clocks_give_plain_numbers() {
        let odd = [f64::NAN, -1e300, -1.0, 0.0, 1e300, f64::INFINITY, f64::NEG_INFINITY];
        let mut packages = Vec::new();
        for start in odd {
            for wall in odd {
                let mut package = build("p", 0, start, wall);
                package.stages = vec![stage("build", wall, start)];
                packages.push(package);
            }
        }
        for wall_seconds in odd {
            let report = Report { slots: 1, wall_seconds, packages: packages.clone(), ..Report::default() };
            for bar in layout(&report).lanes.iter().flat_map(|lane| &lane.bars) {
                let ends = [bar.start, bar.start + bar.width];
                assert!(ends.iter().all(|end| (-1e-9..=1.0 + 1e-9).contains(end)), "{bar:?}");
            }
        }
    }

    #[test]
    fn nothing_built_is_nothing_drawn() {
        assert_eq!(layout(&Report { slots: 4, wall_seconds: 9.0, ..Report::default() }), Layout::default());
    }
}
