//! The positions of builds in the drawing, as numbers only.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::ticks::{Tick, ticks};
use crate::words::sane_seconds;
use crate::{PackageState, Report, ReportPackage};

/// More lanes would make the drawing too tall to scroll through.
const LANES_MAX: usize = 64;

/// Maximum number of lanes for which there is room for build names.
const NAMED_LANES_MAX: usize = 16;

/// Maximum number of separate bars in the drawing, at about 200 bytes each with tooltips.
const BARS_MAX: usize = 3000;

/// Maximum number of stage segments in the drawing. Builds beyond it are drawn in one piece.
const SEGMENTS_MAX: usize = 9000;

/// Maximum number of cells in all lanes.
const CELLS_MAX: usize = 6000;

/// Maximum number of cells in a lane. At the usual width, a cell is about three pixels wide.
const LANE_CELLS_MAX: usize = 360;

/// A build at least this many cells wide gets a separate bar. In small runs, every build does.
const BAR_CELLS_MIN: f64 = 2.0;

/// Up to this many builds, every build gets a separate bar.
const SINGLE_BUILDS_MAX: usize = 600;

/// Number of names in the tooltip of a cell.
const CELL_NAMES_MAX: usize = 3;

/// Number of shades for stages in the style sheet.
pub(crate) const SHADES: usize = 8;

/// The minimum width of the drawing, and the width at which longer labels appear, in pixels. The style sheet
/// has the same numbers.
const WIDTH_NARROW: f64 = 820.0;
pub(super) const WIDTH_WIDE: f64 = 1120.0;

/// The lanes' share of the drawing's width. The rest is for labels.
pub(crate) const PLOT_SHARE: f64 = 0.92;

/// Width of a label's character in pixels, generously estimated.
const CHARACTER_WIDTH: f64 = 7.0;

/// Everything to draw. Positions and widths are fractions of the lanes' width.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Layout {
    pub(crate) range_seconds: f64,
    pub(crate) ticks: Vec<Tick>,
    pub(crate) lanes: Vec<Lane>,
    /// Number of lanes that did not fit.
    pub(crate) lanes_hidden: usize,
    /// Number of builds in the drawing, separate or in a cell.
    pub(crate) builds: usize,
    /// Number of builds that are only part of a cell.
    pub(crate) builds_in_cells: usize,
    /// Whether there is room for build names.
    pub(crate) named: bool,
    /// Names of the drawn stages, by shade.
    pub(crate) legend: Vec<Vec<String>>,
}

/// The builds of one slot.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Lane {
    /// Absent for the lane of builds without a recorded slot.
    pub(crate) slot: Option<u32>,
    pub(crate) bars: Vec<Bar>,
    pub(crate) cells: Vec<Cell>,
}

/// A build with a separate bar.
#[derive(Debug, PartialEq)]
pub(crate) struct Bar {
    /// Index into the report's packages.
    pub(crate) package: usize,
    pub(crate) start: f64,
    pub(crate) width: f64,
    pub(crate) segments: Vec<Segment>,
    pub(crate) label: Label,
}

/// The part of a bar that a stage takes.
#[derive(Debug, PartialEq)]
pub(crate) struct Segment {
    pub(crate) stage: usize,
    pub(crate) shade: usize,
    pub(crate) start: f64,
    pub(crate) width: f64,
}

/// At which widths of the drawing a build's name fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Label {
    Never,
    Wide,
    Always,
}

/// A section of a lane whose builds are too short to be drawn separately.
#[derive(Debug, PartialEq)]
pub(crate) struct Cell {
    pub(crate) start: f64,
    pub(crate) width: f64,
    /// The share of the section during which these builds ran.
    pub(crate) busy: f64,
    pub(crate) builds: usize,
    pub(crate) failed: usize,
    /// The first few of these builds.
    pub(crate) packages: Vec<usize>,
}

/// A build's place in time.
struct Build {
    package: usize,
    start: f64,
    end: f64,
}

/// Computes the positions of everything.
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
    // Slots without builds are drawn too: an empty lane shows that a smaller machine would have been enough.
    for slot in 0..report.slots.min(LANES_MAX as u32) {
        slots.entry(Some(slot)).or_default();
    }
    // The lane without a slot sorts first but belongs last.
    let unknown = slots.remove(&None).map(|builds| (None, builds));
    let lanes_all = slots.len() + usize::from(unknown.is_some());
    let shown: Vec<(Option<u32>, Vec<Build>)> = slots.into_iter().chain(unknown).take(LANES_MAX).collect();
    // A range of zero (from a broken clock) would make all fractions meaningless.
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

/// Whether any build has a place in time.
pub(crate) fn has_builds(report: &Report) -> bool {
    report.packages.iter().enumerate().any(|(package, facts)| build_of(package, facts).is_some())
}

/// The place of a build in time, if it has one.
fn build_of(package: usize, facts: &ReportPackage) -> Option<Build> {
    let start = facts.started_seconds.filter(|seconds| !seconds.is_nan())?;
    // A build that starts before the run (after a clock jump) is drawn from the start of the run.
    let start = sane_seconds(start);
    let end = sane_seconds(start + sane_seconds(facts.wall_seconds));
    Some(Build { package, start, end })
}

/// The builds that get a separate bar: all in a small run, otherwise the longest, up to a limit.
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

/// The stages of a build, clipped to its time.
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

/// At which widths the name of a build fits before the next one begins.
fn label(facts: &ReportPackage, room: f64) -> Label {
    let needed = (facts.name.chars().count() as f64 + 1.0) * CHARACTER_WIDTH;
    match room * PLOT_SHARE {
        share if share * WIDTH_NARROW >= needed => Label::Always,
        share if share * WIDTH_WIDE >= needed => Label::Wide,
        _ => Label::Never,
    }
}

/// Adds short builds to the cells that they overlap.
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
            // A build counts in the cell in which it ends, so that the numbers of all cells add up.
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

/// Assigns shades to stages.
#[derive(Default)]
struct Shades {
    of: HashMap<String, usize>,
    names: Vec<Vec<String>>,
}

impl Shades {
    /// The usual stages always have the same shade. Others share the last one. Memory is bounded.
    fn shade(&mut self, stage: &str) -> usize {
        /// Hostile builds could invent stage names without end. Names beyond this many are not in the legend.
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
    fn hostile_slots_and_overlaps_stay_within_bounds() {
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
