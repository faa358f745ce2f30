//! `kilnyard simulate` on recorded runs. The traces are checked against the input files only, without code of the
//! scheduler or the simulation.

use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The folder of real data, which is not part of the repository.
fn data(test: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/pkgsrc");
    if folder.is_dir() {
        return Some(folder);
    }
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {} does not exist", folder.display());
    None
}

fn text(path: &Path) -> String {
    let mut text = String::new();
    zstd::Decoder::new(std::fs::File::open(path).unwrap()).unwrap().read_to_string(&mut text).unwrap();
    text
}

fn simulate(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kilnyard"));
    command.arg("simulate").args(arguments).env_remove("KILNYARD_YARD").output().unwrap()
}

/// A simulation of one of the recorded runs.
fn recorded(folder: &Path, run: &str, arguments: &[&str]) -> Value {
    let graph = folder.join(format!("depgraph-{run}.zst"));
    let history = folder.join(format!("history-{run}.zst"));
    let files = ["--json", "--graph", graph.to_str().unwrap(), "--history", history.to_str().unwrap()];
    let output = simulate(&[&files, arguments].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} in {value}"))
}

/// The dependencies of each package, from an edge list.
fn dependencies(graph: &str) -> HashMap<&str, BTreeSet<&str>> {
    let mut dependencies: HashMap<&str, BTreeSet<&str>> = HashMap::new();
    for line in graph.lines() {
        let (dependency, package) = line.split_once(" -> ").unwrap();
        dependencies.entry(dependency).or_default();
        dependencies.entry(package).or_default().insert(dependency);
    }
    dependencies
}

/// Checks a trace, and returns the start and end time of each package.
fn check<'a>(
    trace: &'a str,
    dependencies: &HashMap<&str, BTreeSet<&str>>,
    builds_max: usize,
    cores_max: u32,
) -> HashMap<&'a str, (f64, f64)> {
    let mut began: HashMap<&str, f64> = HashMap::new();
    let mut times: HashMap<&str, (f64, f64)> = HashMap::new();
    let mut last = 0.0;
    for line in trace.lines() {
        let [time, what, package, cores] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let (time, cores): (f64, u32) = (time.parse().unwrap(), cores.parse().unwrap());
        assert!(time >= last, "{line}: earlier than the line before it");
        last = time;
        assert!((1..=cores_max).contains(&cores), "{line}");
        match what {
            "start" => {
                for dependency in &dependencies[package] {
                    assert!(times.contains_key(dependency), "{line}: {dependency} is not built");
                }
                assert!(began.insert(package, time).is_none(), "{line}: a second start");
                let running = began.len() - times.len();
                assert!(running <= builds_max, "{line}: {running} builds at once");
            }
            "end" => assert!(times.insert(package, (began[package], time)).is_none(), "{line}: a second end"),
            _ => panic!("{line}"),
        }
    }
    assert_eq!(times.len(), dependencies.len(), "not everything was built");
    times
}

/// Wall seconds and jobs of each recorded build.
fn walls(history: &str) -> HashMap<&str, (f64, f64)> {
    let mut lines = history.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let place = |name: &str| names.iter().position(|other| *other == name).unwrap();
    let (package, jobs) = (place("pkgname"), place("make_jobs"));
    let stages = place("pre-clean")..=place("clean");
    let rows = lines.map(|line| {
        let fields: Vec<&str> = line.split(',').collect();
        let milliseconds: f64 = fields[stages.clone()].iter().map(|f| f.parse().unwrap_or(0.0)).sum();
        (fields[package], (milliseconds / 1000.0, fields[jobs].parse().unwrap_or(1.0)))
    });
    rows.collect()
}

#[test]
fn the_recorded_run_ends_near_its_bound() {
    let Some(folder) = data("the_recorded_run_ends_near_its_bound") else { return };
    let (graph, history) =
        (text(&folder.join("depgraph-bulk-large.zst")), text(&folder.join("history-bulk-large.zst")));
    let (dependencies, walls) = (dependencies(&graph), walls(&history));
    let scratch = tempfile::tempdir().unwrap();
    let trace_path = scratch.path().join("trace");
    for (cores, ratio_max) in [(8, 1.05), (16, 1.05), (32, 1.05), (64, 1.12)] {
        let words = ["--cores", &cores.to_string(), "--trace", trace_path.to_str().unwrap()];
        let answer = recorded(&folder, "bulk-large", &words);
        let (makespan, bound) = (number(&answer, "makespan_seconds"), number(&answer, "bound_seconds"));
        assert!(makespan <= ratio_max * bound, "{cores} cores: {makespan} of {bound}");
        assert!((number(&answer, "ratio") - makespan / bound).abs() < 1e-9);
        let parts = ["path", "work", "window"].map(|part| number(&answer, &format!("bound_{part}_seconds")));
        assert_eq!(bound, parts.into_iter().fold(0.0, f64::max));
        assert!(number(&answer, "jobs_per_core_max") <= 1.0);
        let trace = std::fs::read_to_string(&trace_path).unwrap();
        let times = check(&trace, &dependencies, cores as usize, cores);
        let last = times.values().map(|(_, end)| *end).fold(0.0, f64::max);
        assert!((last - makespan).abs() < 1e-3);
        // No build is faster than if all its work were spread over all cores, and no time is negative.
        for (package, (begin, end)) in &times {
            let (wall, jobs) = walls.get(package).copied().unwrap_or((1.0, 1.0));
            let least = wall * (jobs / f64::from(cores)).min(1.0);
            assert!(end - begin >= least * (1.0 - 1e-6) - 1e-3, "{package}: {} of {least}", end - begin);
        }
        // The reported path is a chain of dependencies.
        let path: Vec<&str> =
            answer["path"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect();
        assert!(
            path.len() > 5 && path.windows(2).all(|two| dependencies[two[1]].contains(two[0])),
            "{path:?}"
        );
    }
}

#[test]
fn other_builders_take_the_recorded_time() {
    let Some(folder) = data("other_builders_take_the_recorded_time") else { return };
    let hours = |words: &[&str]| number(&recorded(&folder, "bulk-large", words), "makespan_seconds") / 3600.0;
    // The run was recorded with four workers of four jobs: 17.9 hours.
    let four = hours(&["--cores", "16", "--policy", "dependents", "--workers", "4"]);
    assert!((17.5..=18.1).contains(&four), "{four}");
    for (policy, cores, expected) in
        [("dependents", "16", 17.7), ("dependents", "32", 11.7), ("one-job", "16", 37.8)]
    {
        let found = hours(&["--cores", cores, "--policy", policy]);
        assert!((found / expected - 1.0).abs() <= 0.05, "{policy} on {cores} cores: {found}");
    }
    let ours = hours(&["--cores", "32"]);
    for policy in ["bob", "equal-jobserver"] {
        let found = hours(&["--cores", "32", "--policy", policy]);
        assert!(
            ours < found && found < hours(&["--cores", "32", "--policy", "one-job"]),
            "{policy}: {found}"
        );
    }
}

#[test]
fn noise_and_memory_limits_are_respected() {
    let Some(folder) = data("noise_and_memory_limits_are_respected") else { return };
    let noise = ["--cores", "32", "--noise", "0.5", "--seeds", "10"];
    let answer = recorded(&folder, "bulk-large", &noise);
    assert!(number(&answer, "ratio") <= 1.06, "{answer}");
    let ratios = answer["ratios"].as_array().unwrap();
    assert!(ratios.len() == 10 && ratios.iter().any(|ratio| ratio != &ratios[0]));
    let again = recorded(&folder, "bulk-large", &noise);
    assert_eq!(again["ratios"], answer["ratios"]);
    let free = number(&recorded(&folder, "bulk-large", &["--cores", "64"]), "makespan_seconds");
    for gigabytes in [64, 16] {
        let words = ["--cores", "64", "--memory", &format!("{gigabytes}G")];
        let answer = recorded(&folder, "bulk-large", &words);
        let peak = answer["memory_peak_bytes"].as_u64().unwrap();
        assert!(peak <= gigabytes << 30 && peak > (gigabytes << 30) / 2, "{peak}");
        assert!(number(&answer, "makespan_seconds") >= free);
    }
}

#[test]
fn a_run_on_several_machines_respects_each_machine() {
    let Some(folder) = data("a_run_on_several_machines_respects_each_machine") else { return };
    let graph = text(&folder.join("depgraph-mutt.zst"));
    let scratch = tempfile::tempdir().unwrap();
    let (trace, svg) = (scratch.path().join("trace"), scratch.path().join("run.svg"));
    let files = ["--trace", trace.to_str().unwrap(), "--svg", svg.to_str().unwrap()];
    let answer = recorded(&folder, "mutt", &[&["--machines", "2x4,1x8@1.5"][..], &files].concat());
    assert_eq!((&answer["cores"], &answer["machines"]), (&16.into(), &3.into()));
    let trace = std::fs::read_to_string(&trace).unwrap();
    check(&trace, &dependencies(&graph), 16, 8);
    let svg = std::fs::read_to_string(&svg).unwrap();
    assert_eq!(svg.matches("<title>").count(), 1 + dependencies(&graph).len());
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.contains("class=\"path\""));
}

#[test]
fn several_machines_end_near_the_bound() {
    let Some(folder) = data("several_machines_end_near_the_bound") else { return };
    let machines = [
        ("4x8", 1.06),
        ("2x16", 1.03),
        ("2x16,1x32@1.5", 1.10),
        ("2x16,1x64@1.5", 1.10),
        ("3x16,1x64", 1.08),
        ("2x8,2x32", 1.06),
        ("4x8@2,1x64", 1.06),
    ];
    for (machines, ratio_max) in machines {
        let answer = recorded(&folder, "bulk-large", &["--machines", machines]);
        assert!(number(&answer, "ratio") <= ratio_max, "{machines}: {answer}");
    }
}

#[test]
fn a_scan_of_all_of_pkgsrc_is_simulated() {
    let Some(folder) = data("a_scan_of_all_of_pkgsrc_is_simulated") else { return };
    let scratch = tempfile::tempdir().unwrap();
    let trace_path = scratch.path().join("trace");
    let (graph, history) = (folder.join("pscan.zst"), folder.join("history-bulk-large.zst"));
    let output = simulate(&[
        "--json",
        "--graph",
        graph.to_str().unwrap(),
        "--history",
        history.to_str().unwrap(),
        "--cores",
        "64",
        "--unknown",
        "60",
        "--trace",
        trace_path.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    // The dependencies come from another command, which other tests compare with other resolvers.
    let mut resolve = Command::new(env!("CARGO_BIN_EXE_kilnyard"));
    let resolved =
        resolve.args(["resolve", "--ecosystem", "pkgsrc", "--import"]).arg(&graph).output().unwrap();
    let scan = String::from_utf8(resolved.stdout).unwrap();
    let trace = std::fs::read_to_string(&trace_path).unwrap();
    let built: BTreeSet<&str> = trace.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    let mut dependencies: HashMap<&str, BTreeSet<&str>> = HashMap::new();
    let mut last = "";
    for line in scan.lines() {
        match line.split_once('=') {
            Some(("PKGNAME", name)) => last = name,
            Some(("DEPENDS", on)) if built.contains(last) => {
                dependencies.insert(last, on.split(' ').collect());
            }
            _ => {}
        }
    }
    for name in &built {
        dependencies.entry(name).or_default();
    }
    assert_eq!((built.len(), &answer["packages"]), (27_370, &27_370.into()));
    assert!(dependencies.values().map(BTreeSet::len).sum::<usize>() > 100_000);
    check(&trace, &dependencies, 64, 64);
}

#[test]
fn kept_work_saves_time_where_the_scheduler_knows_it() {
    let scratch = tempfile::tempdir().unwrap();
    let file = |name: &str, text: String| {
        let path = scratch.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let graph = file("graph", (0..20).map(|number| format!("common -> p{number}\n")).collect());
    let row = |number| format!("1,p{number},success,1,0,{},9000\n", 9000 + 100 * number);
    let header =
        "timestamp,pkgname,outcome,make_jobs,disk_usage,build,cpu:build\n1,common,success,1,0,9000,9000\n";
    let history = file("history", (0..20).fold(header.to_owned(), |text, number| text + &row(number)));
    let run = |more: &[&str]| -> Value {
        let arguments = ["--graph", &graph, "--history", &history, "--machines", "2x2,1x2@2", "--json"];
        let output = simulate(&[&arguments, more].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let seconds = |answer: &Value| answer["makespan_seconds"].as_f64().unwrap();
    let (without, with) = (run(&[]), run(&["--kept", "0.1"]));
    let unknown = run(&["--kept", "0.1", "--blind"]);
    assert!(seconds(&with) < seconds(&unknown) && seconds(&unknown) <= seconds(&without), "{with} {unknown}");
    let begun = |answer: &Value| answer["builds_with_kept_work"].as_u64().unwrap();
    assert!(begun(&with) > begun(&unknown) && begun(&without) == 0, "{with} {unknown}");
}

#[test]
fn a_package_that_stalls_its_machine_gets_a_lane() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    let names: Vec<String> = (0..100).map(|number| format!("p{number}")).collect();
    let mut history = "timestamp,pkgname,outcome,make_jobs,disk_usage,build,cpu:build\n".to_owned();
    for name in names.iter().map(String::as_str).chain(["base", "stalls"]) {
        history.push_str(&format!("1,{name},success,1,0,3600000,3600000\n"));
    }
    let graph: String =
        names.iter().chain([&"stalls".to_owned()]).map(|name| format!("base -> {name}\n")).collect();
    std::fs::write(path("graph"), graph).unwrap();
    std::fs::write(path("history"), history).unwrap();
    let (graph, history) = (path("graph"), path("history"));
    let run = |more: &[&str]| -> Value {
        let known = ["--graph", &graph, "--history", &history, "--cores", "64", "--json"];
        let output = simulate(&[&known, more].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let (plain, stalled) = (run(&[]), run(&["--hazard", "stall*=1e6"]));
    // In its lane, it takes what it takes alone; without it, all wait for it as the observed build made them wait.
    assert_eq!(plain["makespan_seconds"], stalled["makespan_seconds"]);
    assert_eq!(plain["hazards"], Value::Null);
    let hazards = &stalled["hazards"];
    let seconds = |value: &Value| value.as_f64().unwrap();
    let factor = (seconds(&hazards["makespan_seconds_without_lanes"]) - 3600.0) / 3600.0;
    assert!(factor > 3.6, "{stalled}");
    let ends = ["mean_end_of_others_seconds_without_lanes", "mean_end_of_others_seconds"];
    let [without, with] = ends.map(|key| seconds(&hazards[key]));
    assert!(without > 1.3 * with, "{stalled}");
}

#[test]
fn bad_input_is_reported() {
    let scratch = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = scratch.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    const HEADER: &str = "timestamp,pkgname,outcome,make_jobs,disk_usage,build,cpu:build\n";
    let good = file("good", "a -> b\n");
    let history = file("history", &format!("{HEADER}1,a,success,4,0,8000,9000\n1,b,success,4,0,1000,900\n"));
    let message = |graph: &str, history: &str, more: &[&str]| {
        let output = simulate(&[&["--graph", graph, "--history", history], more].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stdout.is_empty());
        String::from_utf8(output.stderr).unwrap()
    };
    let cycle = message(&file("cycle", "a -> b\nb -> a\n"), &history, &[]);
    assert!(cycle.contains("a cycle: a -> b -> a"), "{cycle}");
    let nowhere = message(&file("nowhere", "a -> b\nb ->\n"), &history, &[]);
    assert!(nowhere.contains("line 2") && nowhere.contains("lacks an end"), "{nowhere}");
    let negative = message(&good, &file("negative", &format!("{HEADER}1,a,success,4,0,-8,9\n")), &[]);
    assert!(negative.contains("line 2: a: \"-8\" is not a number from 0 up"), "{negative}");
    let absurd = message(&good, &file("absurd", &format!("{HEADER}1,a,success,4,0,9e18,9\n")), &[]);
    assert!(absurd.contains("line 2: a: a stage of"), "{absurd}");
    assert!(message(&good, &history, &["--cores", "0"]).contains("--cores 0"));
    assert!(message(&good, &history, &["--warm"]).contains("--rate"));
    assert!(message(&good, &history, &["--rate", "0"]).contains("not a size"));
    assert!(
        message(&good, &history, &["--rate", "1M", "--blind", "--policy", "bob"]).contains("--policy rank")
    );
    assert!(message(&good, &history, &["--machines", "0x4"]).contains("--machines 0x4"));
    for (hazard, expected) in [
        ("a", "is not PATTERN=TRAPS"),
        ("a=much", "no number"),
        ("a=-1", "no number"),
        ("c*=1", "matches no package"),
    ] {
        let said = message(&good, &history, &["--hazard", hazard]);
        assert!(said.contains(expected), "{said}");
    }
    for (machines, more, expected) in [
        ("2x4,1x4+x", [].as_slice(), "--machines 1x4+x"),
        ("1x4-9", &[], "no machine is there"),
        ("2x4,1x4+5", &["--policy", "dependents"], "other builders' rules"),
        ("2x4", &["--delay=-1"], "--delay -1"),
        ("2x4", &["--kept", "1.5"], "--kept 1.5"),
        ("2x4", &["--kept", "0"], "--kept 0 "),
        ("2x4", &["--blind"], "--rate or --kept"),
    ] {
        let message = message(&good, &history, &[&["--machines", machines], more].concat());
        assert!(message.contains(expected), "{machines}: {message}");
    }
    assert!(message(&good, &history, &["--workers", "0"]).contains("--workers 0"));
    let small = message(&good, &history, &["--memory", "1M"]);
    assert!(small.contains("a needs 536870912 bytes of memory"), "{small}");
    assert!(message(&file("empty", ""), &history, &[]).contains("nothing to simulate"));
}

/// A set of packages that take a time each, on one core, as files in a folder. Each one of `chain` depends on the one before.
fn set(folder: &Path, name: &str, count: usize, seconds: u32, chain: usize) {
    let mut graph = String::new();
    let mut history = "timestamp,pkgname,outcome,make_jobs,disk_usage,build,cpu:build\n".to_owned();
    for index in 0..count {
        // Without an edge, a package is not in the graph.
        let before = if index % chain == 0 { "root".to_owned() } else { format!("p{}-1", index - 1) };
        graph.push_str(&format!("{before} -> p{index}-1\n"));
        let milliseconds = seconds * 1000;
        history.push_str(&format!("1,p{index}-1,success,1,0,{milliseconds},{milliseconds}\n"));
    }
    std::fs::write(folder.join(format!("{name}.graph")), graph).unwrap();
    std::fs::write(folder.join(format!("{name}.csv")), history).unwrap();
}

#[test]
fn a_farm_has_yards_and_pools() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    set(folder, "one", 2000, 30, 4);
    set(folder, "two", 300, 60, 2);
    let farm = folder.join("farm.toml");
    let simulate_farm = |text: &str| {
        std::fs::write(&farm, text).unwrap();
        let trace = folder.join("trace");
        simulate(&["--json", "--farm", farm.to_str().unwrap(), "--trace", trace.to_str().unwrap()])
    };
    let parsed = |output: Output| -> Value {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let yards = |two: &str| {
        format!(
            "[yards.one]\ngraph = 'one.graph'\nhistory = 'one.csv'\nweight = 2.0\n\
             [yards.two]\ngraph = 'two.graph'\nhistory = 'two.csv'\n{two}\n"
        )
    };
    // By weight, and none waits long.
    let answer = parsed(simulate_farm(&format!("machines = ['2x8']\n{}", yards(""))));
    let share = number(&answer["yards"][0], "share");
    assert!((share - 2.0 / 3.0).abs() < 0.05, "{answer}");
    assert!(number(&answer, "idle_share") < 0.02, "{answer}");
    let work = 2000.0 * 30.0 + 300.0 * 60.0;
    assert!(number(&answer, "makespan_seconds") < 1.1 * work / 16.0, "{answer}");
    // The trace has all packages of both, and no more builds at once than cores.
    let trace = std::fs::read_to_string(folder.join("trace")).unwrap();
    let mut dependencies_of: HashMap<String, BTreeSet<String>> = HashMap::new();
    for yard in ["one", "two"] {
        let graph = std::fs::read_to_string(folder.join(format!("{yard}.graph"))).unwrap();
        for (package, all) in dependencies(&graph) {
            let name = |package: &str| format!("{yard}/{package}");
            dependencies_of.insert(name(package), all.into_iter().map(name).collect());
        }
    }
    let borrowed = dependencies_of
        .iter()
        .map(|(package, all)| (package.as_str(), all.iter().map(String::as_str).collect()))
        .collect();
    check(&trace, &borrowed, 18, 8);
    // A class comes first.
    let answer = parsed(simulate_farm(&format!("machines = ['2x8']\n{}", yards("class = 'security'"))));
    assert!(number(&answer["yards"][1], "share") > 0.8, "{answer}");
    assert!(
        number(&answer["yards"][1], "end_seconds") < 1.3 * number(&answer["yards"][1], "alone_seconds"),
        "{answer}"
    );
    // Workers on demand: none at first, at most as many as the pool may have, and given back.
    let pool = "[pools.cluster]\nmost = 3\ncores = 8\nstart-seconds = 120\nidle-seconds = 60\n";
    let answer = parsed(simulate_farm(&format!("{}{pool}", yards("begin-seconds = 60000"))));
    let cluster = &answer["pools"][0];
    assert!(number(cluster, "first_there_seconds") >= 120.0, "{answer}");
    assert_eq!(number(cluster, "most_there"), 3.0, "{answer}");
    // For the second run, they are started anew.
    assert!(number(cluster, "started") >= 6.0, "{answer}");
    let used = number(cluster, "used_core_seconds");
    assert!((used / work - 1.0).abs() < 0.05, "{answer}");
    assert!(number(cluster, "there_core_seconds") < 1.3 * used, "{answer}");
    // Mistakes are named.
    for (text, expected) in [
        ("machines = ['2x8']\n[yards]\n", "there are no yards"),
        ("[yards.one]\ngraph = 'one.graph'\nhistory = 'one.csv'\n", "neither machines nor pools"),
        ("machines = ['2x8']\n[yards.one]\ngraph = 'one.graph'\n", "needs path, or graph and history"),
        ("machines = ['2x8']\n[yards.one]\npath = '.'\nwieght = 2\n", "wieght"),
        ("machines = ['2']\n[yards.one]\ngraph = 'one.graph'\nhistory = 'one.csv'\n", "--machines 2"),
        (
            "[yards.one]\ngraph = 'one.graph'\nhistory = 'one.csv'\n[pools.p]\nmost = 0\ncores = 1\n",
            "needs a least and a most",
        ),
    ] {
        let output = simulate_farm(text);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && error.contains(expected), "{text}: {error}");
    }
}
