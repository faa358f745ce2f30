//! Outputs of packages, and times of their builds.

use super::{Open, build_row, failure, leading, output, run_row, stage};
use crate::{BuildRow, Current, MEASURED_MAX, MeasuredStage, Provenance, Record};
use kilnyard_model::order::{Key, Stage};
use kilnyard_model::provenance::Signed;
use kilnyard_model::result::{BuildOutcome, FailureKind, StageResult};

pub(super) fn outputs_replace_only_those_of_the_same_package(open: Open) {
    let mut store = leading(open);
    let run = store.begin_run(&run_row(), &[]).unwrap();
    let current = |package: &str, outputs: &[&str]| Current {
        package: package.into(),
        build: 1,
        recipe_version: "1".into(),
        revision: 1,
        key: Key { digest: "k1".into(), lines: vec!["a b".into(), "c d".into()] },
        outputs: outputs.iter().map(|name| output(name)).collect(),
    };
    store
        .record(&[Record::Outputs(current("p", &["x", "y"])), Record::Outputs(current("q", &["z"]))])
        .unwrap();
    store.record(&[Record::Outputs(current("p", &["x"]))]).unwrap();
    assert_eq!(store.current("p").unwrap(), Some(current("p", &["x"])));
    assert_eq!(store.outputs().unwrap().len(), 2);
    assert_eq!(store.all_current().unwrap().len(), 2);
    let key = Key { digest: "k2".into(), lines: vec!["e f".into()] };
    store.record(&[Record::KeyConfirmed { package: "p".into(), key: key.clone() }]).unwrap();
    assert_eq!(store.current("p").unwrap().unwrap().key, key);
    store
        .record(&[
            Record::BuildBegan(Box::new(build_row(1, run, "p"))),
            Record::StageEnded { build: 1, at_seconds: 103.0, stage: Box::new(stage(Stage::Build, 2.5)) },
            Record::BuildEnded {
                build: 1,
                at_seconds: 111.0,
                outcome: BuildOutcome::Built,
                failure: None,
                is_reproducible: Some(true),
            },
        ])
        .unwrap();
    assert_eq!(store.durations().unwrap(), [("p".to_owned(), 10.0, 2.5)]);
}

pub(super) fn imported_times_are_used_until_a_package_is_built(open: Open) {
    let mut store = leading(open);
    let time = |name: &str, wall, cpu| (name.to_owned(), wall, cpu);
    store.import_durations(&[time("p", 30.0, 20.0), time("q", 3.0, 2.0)]).unwrap();
    store.import_durations(&[time("q", 5.0, 4.0)]).unwrap();
    assert_eq!(store.durations().unwrap(), [time("p", 30.0, 20.0), time("q", 5.0, 4.0)]);
    let run = store.begin_run(&run_row(), &[]).unwrap();
    let ended = |outcome| Record::BuildEnded {
        build: 1,
        at_seconds: 111.0,
        outcome,
        failure: None,
        is_reproducible: None,
    };
    store
        .record(&[Record::BuildBegan(Box::new(build_row(1, run, "p"))), ended(BuildOutcome::Failed)])
        .unwrap();
    assert_eq!(store.durations().unwrap()[0], time("p", 30.0, 20.0));
    store.record(&[ended(BuildOutcome::Built)]).unwrap();
    // A later import does not replace times measured here.
    store.import_durations(&[time("p", 99.0, 99.0)]).unwrap();
    assert_eq!(store.durations().unwrap(), [time("p", 10.0, 0.0), time("q", 5.0, 4.0)]);
}

pub(super) fn builds_that_ran_out_of_memory_are_measured_too(open: Open) {
    let mut store = leading(open);
    let run = store.begin_run(&run_row(), &[]).unwrap();
    let end = |build, outcome, failure| Record::BuildEnded {
        build,
        at_seconds: 111.0,
        outcome,
        failure,
        is_reproducible: None,
    };
    let ends = [
        (BuildOutcome::Failed, Some(failure(FailureKind::Memory))),
        (BuildOutcome::Failed, Some(failure(FailureKind::Command))),
        (BuildOutcome::Built, None),
        (BuildOutcome::Unchanged, None),
    ];
    for (number, (outcome, failure)) in (1..).zip(ends) {
        let made = StageResult {
            work_bytes: Some(number),
            disk_bytes: Some(10 * number),
            parallel_seconds: Some(1.5),
            ..stage(Stage::Build, number as f64)
        };
        store
            .record(&[
                Record::BuildBegan(Box::new(build_row(number, run, "p"))),
                Record::StageEnded {
                    build: number,
                    at_seconds: 103.0,
                    stage: Box::new(stage(Stage::Fetch, 9.0)),
                },
                // Built twice.
                Record::StageEnded {
                    build: number,
                    at_seconds: 103.0,
                    stage: Box::new(stage(Stage::Build, 99.0)),
                },
                Record::StageEnded { build: number, at_seconds: 103.0, stage: Box::new(made) },
                end(number, outcome, failure),
            ])
            .unwrap();
    }
    let measured = store.measured().unwrap();
    assert_eq!(measured.len(), 1);
    let (package, builds) = &measured[0];
    let facts: Vec<_> = builds.iter().map(|b| (b.is_out_of_memory, b.work_bytes, b.disk_bytes)).collect();
    assert_eq!((&package[..], &facts[..]), ("p", &[(true, 1, 10), (false, 3, 30), (false, 4, 40)][..]));
    let last = MeasuredStage { wall_seconds: 2.0, cpu_seconds: 4.0, parallel_seconds: Some(1.5) };
    assert_eq!((&builds[2].stages[..], builds[2].memory_peak_bytes), (&[last][..], 7), "without the fetch");
    for number in 5..20 {
        store
            .record(&[
                Record::BuildBegan(Box::new(build_row(number, run, "p"))),
                end(number, BuildOutcome::Built, None),
            ])
            .unwrap();
    }
    assert_eq!(store.measured().unwrap()[0].1.len(), MEASURED_MAX);
}

pub(super) fn outputs_are_ordered_by_name_and_package(open: Open) {
    let mut store = leading(open);
    let current = |package: &str, outputs: &[&str]| {
        Record::Outputs(Current {
            package: package.into(),
            build: 1,
            recipe_version: "1".into(),
            revision: 1,
            key: Key { digest: "k".into(), lines: Vec::new() },
            outputs: outputs.iter().map(|name| output(name)).collect(),
        })
    };
    store.record(&[current("q", &["y", "X", "a"]), current("p", &["y", "b"])]).unwrap();
    let rows = store.outputs().unwrap();
    let seen: Vec<_> = rows.iter().map(|row| (row.output.name.as_str(), row.package.as_str())).collect();
    assert_eq!(seen, [("X", "q"), ("a", "q"), ("b", "p"), ("y", "p"), ("y", "q")]);
    let mut all = store.all_current().unwrap();
    all.sort_unstable_by(|one, other| one.package.cmp(&other.package));
    let names: Vec<_> = all[1].outputs.iter().map(|output| output.name.as_str()).collect();
    assert_eq!((all.len(), names), (2, vec!["X", "a", "y"]));
    assert_eq!(store.current("unknown").unwrap(), None);
    // Confirming the key of a package without outputs does nothing.
    let key = Key { digest: "k2".into(), lines: Vec::new() };
    store.record(&[Record::KeyConfirmed { package: "unknown".into(), key }]).unwrap();
    assert_eq!(store.current("unknown").unwrap(), None);
}

/// Estimates depend on the cores of a build's machine, not on those of the run.
pub(super) fn a_build_has_its_own_worker_and_its_cores(open: Open) {
    let mut store = leading(open);
    let run = store.begin_run(&run_row(), &[]).unwrap();
    let mut builds = [build_row(1, run, "p"), build_row(2, run, "q")];
    (builds[0].worker, builds[0].cores) = (Some("a".into()), 64);
    (builds[1].worker, builds[1].cores, builds[1].host) = (Some("b".into()), 7, None);
    let begin = builds.clone().map(|build| Record::BuildBegan(Box::new(build)));
    store.record(&begin).unwrap();
    assert_eq!(store.builds_in(run).unwrap(), builds);
    for build in [1, 2] {
        let outcome = BuildOutcome::Built;
        let end =
            Record::BuildEnded { build, at_seconds: 111.0, outcome, failure: None, is_reproducible: None };
        store.record(&[end]).unwrap();
    }
    let measured = store.measured().unwrap();
    let cores: Vec<_> = measured.iter().map(|(name, builds)| (name.as_str(), builds[0].cores)).collect();
    assert_eq!((cores, run_row().cores), (vec![("p", 64), ("q", 7)], 2));
}

pub(super) fn the_builds_of_a_worker_are_found(open: Open) {
    let mut store = leading(open);
    let run = store.begin_run(&run_row(), &[]).unwrap();
    let mut records = Vec::new();
    let all = [
        (1, "a", "far", BuildOutcome::Failed),
        (2, "a", "far", BuildOutcome::Built),
        (3, "a", "far", BuildOutcome::Unchanged),
        (4, "b", "far", BuildOutcome::Lost),
        (5, "c", "near", BuildOutcome::Built),
        (6, "d", "far", BuildOutcome::Unchanged),
    ];
    for (number, package, worker, outcome) in all {
        let row = BuildRow { worker: Some(worker.to_owned()), ..build_row(number, run, package) };
        records.push(Record::BuildBegan(Box::new(row)));
        let (failure, is_reproducible) = (None, None);
        records.push(Record::BuildEnded {
            build: number,
            at_seconds: 111.0,
            outcome,
            failure,
            is_reproducible,
        });
    }
    store.record(&records).unwrap();
    let mut found = store.made_by("far").unwrap();
    found.sort();
    assert_eq!(found, [("a".to_owned(), 2), ("a".to_owned(), 3), ("d".to_owned(), 6)]);
    assert_eq!(store.made_by("absent").unwrap(), []);
}

pub(super) fn cpu_time_is_that_of_builds_since_then(open: Open) {
    let mut store = leading(open);
    assert_eq!(store.cpu_seconds_of(0.0, 0.0).unwrap(), 0.0);
    let run = store.begin_run(&run_row(), &[]).unwrap();
    for (build, ended) in [(1, Some(110.0)), (2, Some(120.0)), (3, None)] {
        let mut records = vec![Record::BuildBegan(Box::new(build_row(build, run, "p")))];
        for kind in [Stage::Unpack, Stage::Build] {
            let stage = Box::new(stage(kind, 10.0 * build as f64));
            records.push(Record::StageEnded { build, at_seconds: 105.0, stage });
        }
        let (outcome, failure, is_reproducible) = (BuildOutcome::Failed, None, None);
        records.extend(ended.map(|at_seconds| Record::BuildEnded {
            build,
            at_seconds,
            outcome,
            failure,
            is_reproducible,
        }));
        store.record(&records).unwrap();
    }
    let since = |at_seconds| store.cpu_seconds_of(0.0, at_seconds).unwrap();
    assert_eq!((since(0.0), since(110.0), since(110.5), since(121.0)), (120.0, 120.0, 100.0, 60.0));
    let began = build_row(1, run, "p").started_seconds;
    assert_eq!(store.cpu_seconds_of(began, 0.0).unwrap(), 120.0);
    assert_eq!(store.cpu_seconds_of(began + 0.5, 0.0).unwrap(), 0.0);
}

pub(super) fn provenance_is_that_of_the_current_outputs(open: Open) {
    let mut store = leading(open);
    let outputs = |build| {
        Record::Outputs(Current {
            package: "p".into(),
            build,
            recipe_version: "1".into(),
            revision: 1,
            key: Key { digest: "k1".into(), lines: Vec::new() },
            outputs: vec![output("x")],
        })
    };
    let provenance = |build| Provenance {
        package: "p".into(),
        build,
        worker: "far".into(),
        pool: "lab".into(),
        signed: Signed {
            statement: "{\"é\":1}".repeat(1000),
            key: "a".repeat(64),
            signature: "b".repeat(128),
        },
    };
    assert_eq!(store.provenance("p").unwrap(), None);
    store.record(&[outputs(1), Record::Provenance(Box::new(provenance(1)))]).unwrap();
    assert_eq!(store.provenance("p").unwrap(), Some(provenance(1)));
    assert_eq!(store.provenance("q").unwrap(), None);
    assert_eq!(store.pools().unwrap(), [("p".to_owned(), "far".to_owned(), "lab".to_owned())]);
    // Other outputs do not inherit it.
    store.record(&[outputs(2)]).unwrap();
    assert_eq!(store.provenance("p").unwrap(), None);
    store.record(&[Record::Provenance(Box::new(provenance(1)))]).unwrap();
    assert_eq!(store.provenance("p").unwrap(), None, "it is that of another build");
    assert_eq!(store.pools().unwrap(), []);
}
