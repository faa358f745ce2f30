//! Presents the measurements as reports, tables and a chart.

use super::super::figures::{Report, Series, Summary, Unit, ratios};
use super::advice::{self, Candidate};
use super::chart::{Bar, Chart, Group};
use super::clock::Spent;
use super::{Advice, Figures, Life, Measured, RootsReport};
use serde_json::{Map, Value, json};

/// The targets.
const EMPTY_SECONDS_MAX: f64 = 0.010;
const SET_SEEN_SECONDS_MAX: f64 = 0.100;
const PACKAGES_SEEN_CPU_RATIO_MAX: f64 = 0.25;

/// The name of a phase of a root's life, and how to get its cost.
type Part = (&'static str, fn(&Life) -> Spent);

const PARTS: [Part; 4] = [
    ("create", |life| life.create),
    ("dependencies", |life| life.depends),
    ("build", |life| life.build),
    ("teardown", |life| life.teardown),
];

/// The name of a kind of time, and how to get it.
type Time = (&'static str, fn(Spent) -> f64);

const TIMES: [Time; 2] = [("wall", |spent| spent.wall_seconds), ("cpu", |spent| spent.cpu_seconds)];

/// Makes the reports and the recommendation.
pub fn make_report(figures: &Figures) -> RootsReport {
    let advice = advice::advise(&candidates(figures), figures.others_share);
    let (targets, is_met) = targets(figures);
    let short = summary(figures);
    let mut full = short.clone();
    for (measured, way, lives) in figures.measured.iter().flat_map(lives) {
        for (part, of) in PARTS {
            for (time, value) in TIMES {
                let values = lives.iter().map(|life| value(of(life))).collect();
                let key = format!("{}_{way}_{part}_{time}_seconds", measured.variant.key());
                full.push(Series::new(key, "", Unit::Seconds, values));
            }
        }
    }
    let mut notes = tables(figures);
    notes.extend(figures.ways.refused.iter().map(|why| format!("no layers of dependencies: {why}")));
    for measured in &figures.measured {
        let why = measured.refused.iter();
        notes.extend(why.map(|why| format!("not available: {}: {why}", measured.variant.label())));
    }
    if let Err(why) = &advice {
        notes.push(format!("no recommendation: {why}"));
    }
    if let Ok(advice) = &advice {
        notes.push(format!("recommended: {}, because {}", advice.roots, advice.reason));
        notes.push("for kilnyard.toml (kilnyard tune writes it):".to_owned());
        notes.push("  [root]".to_owned());
        notes.extend(advice::lines(advice.roots).iter().map(|(key, value)| format!("  {key} = {value:?}")));
    }
    let report = Report {
        name: "roots",
        series: full,
        facts: facts(figures, &advice),
        notes,
        target: targets,
        is_met,
    };
    RootsReport {
        short: Report { series: short, ..report.clone() },
        full: report,
        advice,
        package: figures.package.clone(),
    }
}

/// The lives of a variant's roots, grouped by how they got their dependencies.
fn lives(measured: &Measured) -> Vec<(&Measured, &'static str, Vec<Life>)> {
    let by_manager = measured.rounds.iter().map(|round| round.by_manager).collect();
    let on_layers = measured.rounds.iter().filter_map(|round| round.on_layers).collect();
    [("by_manager", by_manager), ("on_layers", on_layers)]
        .into_iter()
        .filter(|(_, lives): &(_, Vec<Life>)| !lives.is_empty())
        .map(|(way, lives)| (measured, way, lives))
        .collect()
}

/// The cost of a build with each variant, with layers of a known set where possible.
fn candidates(figures: &Figures) -> Vec<Candidate> {
    let works = figures.measured.iter().filter(|one| one.refused.is_none() && !one.variant.is_for_comparison);
    let rounds = |one: &Measured| {
        one.rounds.iter().map(|round| round.on_layers.unwrap_or(round.by_manager).all()).collect()
    };
    works.map(|one| Candidate { roots: one.variant.roots, rounds: rounds(one) }).collect()
}

/// The figures that are shown separately.
fn summary(figures: &Figures) -> Vec<Series> {
    let empty = &figures.empty;
    let mut series = vec![
        Series::new(
            "empty_ready_seconds",
            "an empty overlay root, until a command runs",
            Unit::Seconds,
            empty.ready_seconds.clone(),
        ),
        Series::new("empty_gone_seconds", "its removal", Unit::Seconds, empty.gone_seconds.clone()),
        Series::new("empty_cpu_seconds", "both, CPU", Unit::Seconds, empty.cpu_seconds.clone()),
    ];
    for (key, label, spent) in dependencies(figures) {
        for ((time, value), shown) in TIMES.into_iter().zip(["wall", "CPU"]) {
            let values: Vec<f64> = spent.iter().map(|spent| value(*spent)).collect();
            if !values.is_empty() {
                let label = format!("dependencies, {label}, {shown}");
                series.push(Series::new(format!("{key}_{time}_seconds"), label, Unit::Seconds, values));
            }
        }
    }
    series
}

/// The ways to provide dependencies. The package manager's figures are those of the plainest root.
fn dependencies(figures: &Figures) -> [(&'static str, &'static str, Vec<Spent>); 4] {
    let ways = &figures.ways;
    let plainest = figures.measured.iter().find(|one| one.refused.is_none());
    let manager = plainest.into_iter().flat_map(|one| &one.rounds).map(|round| round.by_manager.depends);
    [
        ("set_seen", "a known set", ways.set_seen.clone()),
        ("packages_seen", "known packages", ways.packages_seen.clone()),
        ("nothing_seen", "new packages", ways.first.into_iter().collect()),
        ("manager", "by the package manager", manager.collect()),
    ]
}

fn targets(figures: &Figures) -> (String, Option<bool>) {
    let median = |values: &[f64]| Summary::of(values).map(|summary| summary.median);
    let cpu = |spent: &[Spent]| spent.iter().map(|spent| spent.cpu_seconds).collect::<Vec<_>>();
    let [set_seen, packages_seen, _, manager] = dependencies(figures).map(|(_, _, spent)| spent);
    let walls: Vec<f64> = set_seen.iter().map(|spent| spent.wall_seconds).collect();
    let checks = [
        median(&figures.empty.ready_seconds).map(|value| value <= EMPTY_SECONDS_MAX),
        median(&figures.empty.gone_seconds).map(|value| value <= EMPTY_SECONDS_MAX),
        median(&walls).map(|value| value <= SET_SEEN_SECONDS_MAX),
        median(&ratios(&cpu(&packages_seen), &cpu(&manager)))
            .map(|value| value <= PACKAGES_SEEN_CPU_RATIO_MAX),
    ];
    let is_missed = checks.contains(&Some(false));
    let is_met = (is_missed || checks.iter().all(Option::is_some)).then_some(!is_missed);
    let text = format!(
        "at most {:.0} ms for an empty overlay root and {:.0} ms for its removal, {:.0} ms for a known set of dependencies, \
         and {PACKAGES_SEEN_CPU_RATIO_MAX} of the package manager's CPU time for known packages",
        EMPTY_SECONDS_MAX * 1e3,
        EMPTY_SECONDS_MAX * 1e3,
        SET_SEEN_SECONDS_MAX * 1e3,
    );
    (text, is_met)
}

fn facts(figures: &Figures, advice: &Result<Advice, String>) -> Map<String, Value> {
    let refused: Map<String, Value> = figures
        .measured
        .iter()
        .filter_map(|one| Some((one.variant.key(), json!(one.refused.as_ref()?))))
        .collect();
    let mut facts = Map::new();
    facts.insert("package".to_owned(), json!(figures.package));
    facts.insert("version".to_owned(), json!(figures.version));
    facts.insert("dependencies".to_owned(), json!(figures.dependencies));
    facts.insert("refused".to_owned(), json!(refused));
    facts.insert("no_layers".to_owned(), json!(figures.ways.refused));
    facts.insert(
        "recommended".to_owned(),
        json!(advice.as_ref().ok().map(|advice| json!({ "roots": advice.roots, "reason": advice.reason }))),
    );
    facts.insert("not_recommended".to_owned(), json!(advice.as_ref().err()));
    facts.insert("others_share".to_owned(), json!(figures.others_share));
    facts
}

/// Both tables as lines: medians of wall and CPU time.
fn tables(figures: &Figures) -> Vec<String> {
    let mut lines = Vec::new();
    for (way, title) in [
        ("by_manager", "installed by the package manager, in a root of the base"),
        ("on_layers", "as layers of a known set"),
    ] {
        let rows = figures.measured.iter().flat_map(lives).filter(|(_, its, _)| *its == way);
        let rows: Vec<Vec<String>> =
            rows.map(|(measured, _, lives)| row(&measured.variant.label(), &lives)).collect();
        if !rows.is_empty() {
            let (package, version) = (&figures.package, &figures.version);
            lines.push(format!(
                "building {package} {version}, {} dependencies {title}; medians, wall (CPU):",
                figures.dependencies
            ));
            lines.extend(aligned(&rows));
        }
    }
    lines
}

fn row(label: &str, lives: &[Life]) -> Vec<String> {
    let median = |of: &dyn Fn(&Life) -> f64| {
        let values: Vec<f64> = lives.iter().map(of).collect();
        Unit::Seconds.show(Summary::of(&values).map_or(0.0, |summary| summary.median))
    };
    let cell = |of: &dyn Fn(&Life) -> Spent| {
        format!("{} ({})", median(&|life| of(life).wall_seconds), median(&|life| of(life).cpu_seconds))
    };
    let parts = PARTS.iter().map(|(_, of)| cell(of));
    std::iter::once(label.to_owned()).chain(parts).chain([cell(&Life::all)]).collect()
}

/// Formats rows below their headings. Each column is as wide as its widest cell.
fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let head = [""].into_iter().chain(PARTS.iter().map(|(name, _)| *name)).chain(["all"]);
    let head: Vec<String> = head.map(str::to_owned).collect();
    let all: Vec<&Vec<String>> = std::iter::once(&head).chain(rows).collect();
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let line = |row: &&Vec<String>| {
        let cells = row.iter().enumerate().map(|(column, cell)| match column {
            0 => format!("  {cell:<0$}", width(column)),
            _ => format!("  {cell:>0$}", width(column)),
        });
        cells.collect::<String>().trim_end().to_owned()
    };
    all.iter().map(line).collect()
}

/// The chart: medians of wall time.
pub fn chart(figures: &Figures, machine: &str, pairs: u32) -> Chart {
    let median = |lives: &[Life], of: fn(&Life) -> Spent| {
        let values: Vec<f64> = lives.iter().map(|life| of(life).wall_seconds).collect();
        Summary::of(&values).map_or(0.0, |summary| summary.median)
    };
    let group = |way: &str, heading: &str| Group {
        heading: heading.to_owned(),
        bars: figures
            .measured
            .iter()
            .flat_map(lives)
            .filter(|(_, its, _)| *its == way)
            .map(|(measured, _, lives)| Bar {
                label: measured.variant.label(),
                parts: PARTS.iter().map(|(_, of)| median(&lives, *of)).collect(),
            })
            .collect(),
    };
    let ways = dependencies(figures).into_iter().filter(|(_, _, spent)| !spent.is_empty());
    let alone = Group {
        heading: "dependencies alone".to_owned(),
        bars: ways
            .map(|(_, label, spent)| {
                let lives: Vec<Life> =
                    spent.into_iter().map(|depends| Life { depends, ..Life::default() }).collect();
                let parts = PARTS.iter().map(|(_, of)| median(&lives, *of)).collect();
                Bar { label: label.to_owned(), parts }
            })
            .collect(),
    };
    let groups = [
        group("by_manager", "dependencies installed by the package manager"),
        group("on_layers", "dependencies as layers of a known set"),
        alone,
    ];
    Chart {
        title: format!(
            "Roots: building {} {}, {} dependencies",
            figures.package, figures.version, figures.dependencies
        ),
        remark: format!("{machine}; median of {pairs}"),
        axis: "seconds of wall time".to_owned(),
        parts: PARTS.iter().map(|(name, _)| (*name).to_owned()).collect(),
        groups: groups.into_iter().filter(|group| !group.bars.is_empty()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::empty::Empty;
    use super::super::ways::Ways;
    use super::super::{Round, variant};
    use super::*;
    use kilnyard_root::{Device, Flushes};

    fn spent(wall_seconds: f64) -> Spent {
        Spent { wall_seconds, cpu_seconds: wall_seconds / 2.0 }
    }

    fn life(depends: f64, build: f64) -> Life {
        Life { create: spent(0.02), depends: spent(depends), build: spent(build), teardown: spent(0.5) }
    }

    /// The overlay builds in 10 s on disk, and in 8 s in memory on layers. There is no tmpfs.
    fn figures() -> Figures {
        let mut measured: Vec<Measured> = variant::all(Flushes::Discard, Device::default())
            .into_iter()
            .map(|variant| {
                let on_layers =
                    (variant.is_layered() && !variant.is_for_comparison).then(|| life(0.01, 10.0));
                let round = Round { by_manager: life(4.0, 10.0), on_layers };
                Measured { variant, rounds: vec![round; 3], refused: None }
            })
            .collect();
        measured[1].rounds.iter_mut().for_each(|round| round.on_layers = Some(life(0.01, 8.0)));
        measured[2].refused = Some("failed to mount".to_owned());
        measured[2].rounds.clear();
        let ways = Ways {
            first: Some(spent(6.0)),
            packages_seen: vec![spent(0.9), spent(0.7)],
            set_seen: vec![spent(0.01), spent(0.2)],
            ..Ways::default()
        };
        let empty = Empty { ready_seconds: vec![0.006], gone_seconds: vec![0.001], cpu_seconds: vec![0.005] };
        let (package, version) = ("libx".to_owned(), "1-1".to_owned());
        Figures { package, version, dependencies: 39, empty, ways, measured, others_share: Some(0.02) }
    }

    #[test]
    fn tables_are_for_people_and_all_values_for_programs() {
        let found = make_report(&figures());
        let notes = found.short.notes.join("\n");
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = notes.lines().map(words).collect();
        assert_eq!(lines[1], "create dependencies build teardown all");
        let overlay =
            "20.0 ms (10.0 ms) 4.00 s (2.00 s) 10.00 s (5.00 s) 500.0 ms (250.0 ms) 14.52 s (7.26 s)";
        assert_eq!(lines[2], format!("overlay {overlay}"));
        assert!(notes.contains("not available: tmpfs: failed to mount"), "{notes}");
        assert!(notes.contains("recommended: overlay, scratch in memory, because"), "{notes}");
        assert!(notes.ends_with("  [root]\n  backend = \"overlay\"\n  scratch = \"memory\""), "{notes}");
        assert_eq!(found.kept().unwrap().package, "libx");
        let keys: Vec<&str> = found.full.series.iter().map(|series| &*series.key).collect();
        for key in [
            "set_seen_wall_seconds",
            "copy_by_manager_build_cpu_seconds",
            "overlay_on_layers_create_wall_seconds",
        ] {
            assert_eq!(keys.iter().filter(|known| **known == key).count(), 1, "{key} of {keys:?}");
        }
        assert!(!keys.iter().any(|key| key.starts_with("tmpfs") || key.starts_with("copy_on_layers")));
        assert!(found.short.series.len() < found.full.series.len());
        assert_eq!(found.full.facts["refused"]["tmpfs"], "failed to mount");
    }

    #[test]
    fn a_loaded_machine_gets_no_recommendation() {
        let found = make_report(&Figures { others_share: Some(0.6), ..figures() });
        let notes = found.short.notes.join("\n");
        assert!(notes.contains("no recommendation: other work used 60 %"), "{notes}");
        assert!(found.kept().is_err());
        assert_eq!(found.full.facts["recommended"], Value::Null);
    }

    #[test]
    fn targets_are_met_missed_or_unknown() {
        // The median for a known set is 105 ms.
        assert_eq!(make_report(&figures()).full.is_met, Some(false));
        let mut quick = figures();
        quick.ways.set_seen = vec![spent(0.01)];
        assert_eq!(make_report(&quick).full.is_met, Some(true));
        quick.ways = Ways::default();
        assert_eq!(make_report(&quick).full.is_met, None);
        quick.empty.gone_seconds = vec![0.02];
        assert_eq!(make_report(&quick).full.is_met, Some(false));
    }

    #[test]
    fn the_chart_has_a_bar_for_each_measured_way() {
        let chart = chart(&figures(), "2 cores", 2);
        let bars: Vec<usize> = chart.groups.iter().map(|group| group.bars.len()).collect();
        assert_eq!(bars, [5, 3, 4]);
        assert_eq!(chart.groups[0].bars[0].parts, [0.02, 4.0, 10.0, 0.5]);
    }
}
