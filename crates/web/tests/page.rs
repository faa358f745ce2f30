//! Tests the page with reports that a person would not write: whatever the strings and numbers, the page is
//! well-formed and bounded, and contains strings only as text.

mod markup;

use kilnyard_web::{
    Counts, CycleCut, LeftOut, PackageState, PathStep, Report, ReportCause, ReportChange, ReportCommit,
    ReportFailure, ReportOutput, ReportPackage, ReportStage, ReportStalls, RepositoryFacts, RunState, page,
    timeline,
};
use markup::check;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

#[path = "../examples/sample_report.rs"]
#[allow(dead_code)]
mod sample_report;

/// Strings from builds: anything, with fragments that break pages more often than random text does.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        vec(
            prop_oneof![
                Just("<script>alert(1)</script>".to_owned()),
                Just("</pre></style></title>".to_owned()),
                Just("\" onload='x' ".to_owned()),
                Just("&amp;&#0;&".to_owned()),
                Just("]]>--><!--".to_owned()),
                Just("\u{1b}[31m\u{1b}]0;".to_owned()),
                Just("javascript:alert(1)".to_owned()),
                Just("\u{202e}\u{feff}\u{fffd}\0\r\n\t".to_owned()),
                Just("ß".repeat(700)),
                "[a-z]{0,9}",
            ],
            0..4
        )
        .prop_map(|pieces| pieces.concat()),
    ]
}

fn seconds() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY),
        Just(-1.0),
        Just(0.0),
        0.0..10_000.0
    ]
}

fn state() -> impl Strategy<Value = PackageState> {
    use PackageState::*;
    proptest::sample::select(vec![Built, Unchanged, UpToDate, Failed, Blocked, Skipped, Waiting, Building])
}

fn stage() -> impl Strategy<Value = ReportStage> {
    (text(), seconds(), seconds(), seconds(), any::<u64>(), text(), option::of(text()), text()).prop_map(
        |(name, started_seconds, wall_seconds, cpu_seconds, memory_peak_bytes, outcome, log, leftover)| {
            ReportStage {
                name,
                started_seconds,
                wall_seconds,
                cpu_seconds,
                memory_peak_bytes,
                outcome,
                log,
                left_behind: vec![leftover],
                stalled: Some(ReportStalls::default()),
                ..ReportStage::default()
            }
        },
    )
}

fn failure() -> impl Strategy<Value = ReportFailure> {
    (text(), text(), text(), option::of(any::<u64>()), vec(text(), 0..60)).prop_map(
        |(stage, kind, message, line_number, lines)| ReportFailure {
            stage,
            kind,
            message,
            line_number,
            lines,
        },
    )
}

fn output() -> impl Strategy<Value = ReportOutput> {
    (text(), text(), text(), any::<u64>()).prop_map(|(name, version, architecture, size_bytes)| {
        ReportOutput { name, version, architecture, size_bytes }
    })
}

fn package() -> impl Strategy<Value = ReportPackage> {
    let words = (text(), text(), state(), text(), option::of(any::<u32>()), any::<u32>());
    let numbers = (option::of(seconds()), seconds(), seconds(), any::<u64>(), option::of(any::<bool>()));
    let lists =
        (vec(stage(), 0..5), vec(output(), 0..3), vec(text(), 0..4), vec(text(), 0..4), vec(text(), 0..4));
    let own = (any::<bool>(), option::of(text()), option::of(text()), any::<bool>());
    (words, numbers, lists, option::of(failure()), own).prop_map(|(words, numbers, lists, failure, own)| {
        ReportPackage {
            name: words.0,
            version: words.1,
            state: words.2,
            reason: words.3,
            slot: words.4,
            build: words.4.map(u64::from),
            attempts: words.5,
            started_seconds: numbers.0,
            wall_seconds: numbers.1,
            cpu_seconds: numbers.2,
            memory_peak_bytes: numbers.3,
            reproducible: numbers.4,
            stages: lists.0,
            outputs: lists.1,
            depends: lists.2,
            blocked_by: lists.3,
            blocks: lists.4,
            failure,
            is_expected_to_fail: own.0,
            because: own.1,
            note: own.2,
            has_network: own.3,
        }
    })
}

fn change() -> impl Strategy<Value = ReportChange> {
    (text(), text(), text(), text(), vec(text(), 0..50)).prop_map(|(source, commit, author, date, lines)| {
        ReportChange { source, commit, author, date, lines }
    })
}

fn report() -> impl Strategy<Value = Report> {
    let words = (text(), text(), text(), text(), text(), vec(text(), 0..3));
    let run = proptest::sample::select(vec![RunState::Running, RunState::Finished, RunState::Interrupted]);
    let numbers = (any::<u64>(), run, any::<i64>(), seconds(), seconds(), any::<u32>(), any::<u32>());
    let expected = (option::of(seconds()), option::of(seconds()), vec((text(), seconds()), 0..4));
    let counts = vec(prop_oneof![Just(0), 0..100u64, any::<u64>()], 10);
    let lists = (
        vec(package(), 0..8),
        vec((text(), text(), vec(text(), 0..3), text()), 0..3),
        vec((text(), text()), 0..3),
        option::of((text(), text(), text(), any::<u64>())),
        vec((text(), vec(text(), 0..40)), 0..3),
        (vec((text(), text()), 0..2), option::of(any::<u64>()), vec(change(), 0..4)),
    );
    (words, numbers, expected, counts, lists).prop_map(|(words, numbers, expected, counts, lists)| Report {
        schema: 1,
        kilnyard: words.0,
        yard: words.1,
        ecosystem: words.2,
        release: words.3,
        architecture: words.4,
        notes: words.5,
        run: numbers.0,
        state: numbers.1,
        started_seconds: numbers.2,
        wall_seconds: numbers.3,
        cpu_seconds: numbers.4,
        cores: numbers.5,
        slots: numbers.6,
        expected_wall_seconds: expected.0,
        bound_seconds: expected.1,
        path: expected.2.into_iter().map(|(package, seconds)| PathStep { package, seconds }).collect(),
        counts: Counts {
            total: counts[0],
            built: counts[1],
            unchanged: counts[2],
            up_to_date: counts[3],
            failed: counts[4],
            blocked: counts[5],
            skipped: counts[6],
            left_out: counts[7],
            waiting: counts[8],
            failed_as_expected: counts[9],
        },
        packages: lists.0,
        commits: lists.5.0.into_iter().map(|(source, commit)| ReportCommit { source, commit }).collect(),
        compared_run: lists.5.1,
        changes: lists.5.2,
        causes: lists.4.into_iter().map(|(title, packages)| ReportCause { title, packages }).collect(),
        cycles_cut: lists
            .1
            .into_iter()
            .map(|(package, dependency, members, how)| CycleCut { package, dependency, members, how })
            .collect(),
        left_out: lists.2.into_iter().map(|(package, reason)| LeftOut { package, reason }).collect(),
        repository: lists.3.map(|(path, sources_line, fingerprint, packages)| RepositoryFacts {
            path,
            sources_line,
            fingerprint,
            packages,
        }),
    })
}

/// Equal except for the last digit of a fraction, which a JSON reader may round differently.
fn alike(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| alike(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, value)| other.get(key).is_some_and(|other| alike(value, other)))
        }
        (Value::Number(one), Value::Number(other)) if one.is_f64() && other.is_f64() => {
            let (one, other) = (one.as_f64().unwrap(), other.as_f64().unwrap());
            (one - other).abs() <= one.abs() * 1e-15
        }
        _ => one == other,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_report_gives_a_well_formed_page(report in report()) {
        if let Err(error) = check(&page(&report)) {
            return Err(TestCaseError::fail(error));
        }
    }

    #[test]
    fn any_report_gives_a_well_formed_drawing_of_its_timeline(report in report()) {
        if let Some(drawing) = timeline(&report)
            && let Err(error) = check(&format!("<!DOCTYPE html>\n{drawing}"))
        {
            return Err(TestCaseError::fail(error));
        }
    }

    #[test]
    fn any_report_can_be_read_back(report in report()) {
        let text = serde_json::to_string(&report).unwrap();
        let read: Report = serde_json::from_str(&text).unwrap();
        let (written, read) = (serde_json::to_value(&report).unwrap(), serde_json::to_value(&read).unwrap());
        prop_assert!(alike(&written, &read), "{written} became {read}");
    }
}

#[test]
fn the_samples_are_well_formed_and_small_enough_to_load() {
    /// Browsers load a page of this size in about a second.
    const PAGE_BYTES_MAX: usize = 8 << 20;
    for report in [
        sample_report::small(),
        sample_report::running(),
        sample_report::empty(),
        sample_report::large(1),
        sample_report::large(30_000),
    ] {
        let page = page(&report);
        check(&page).unwrap();
        assert!(page.len() < PAGE_BYTES_MAX, "{} packages: {} bytes", report.packages.len(), page.len());
    }
}

#[test]
fn the_timeline_is_a_drawing_of_its_own() {
    let drawing = timeline(&sample_report::small()).unwrap();
    assert!(
        drawing.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1120 "),
        "{drawing}"
    );
    for expected in [">slot 1</text>", "url(#hatch)", ">failed</text>", ">build</text>"] {
        assert!(drawing.contains(expected), "{expected}: {drawing}");
    }
    assert_eq!(timeline(&sample_report::empty()), None);
}

#[test]
fn a_large_run_says_how_much_is_only_in_the_data() {
    let report = sample_report::large(30_000);
    let page = page(&report);
    assert!(page.contains("60 of 30,000 packages are shown; all are in <a href=\"report.json.gz\">"));
    assert!(page.contains("are too short to be drawn separately"));
}

#[test]
fn an_empty_run_has_a_page_with_a_note() {
    let page = page(&sample_report::empty());
    assert!(page.contains("the run has no packages"));
    assert!(!page.contains("<section") && !page.contains("On this page"), "no sections, no links to them");
}

#[test]
fn sections_come_in_order_of_importance() {
    let page = page(&sample_report::small());
    let order = [
        "failures",
        "blocked",
        "timeline",
        "expected",
        "slowest",
        "cycles",
        "left-out",
        "packages",
        "repository",
    ];
    let places: Vec<usize> = order
        .iter()
        .map(|id| page.find(&format!("<section id=\"{id}\"")).unwrap_or_else(|| panic!("no {id}")))
        .collect();
    assert!(places.is_sorted(), "{places:?}");
}

#[test]
fn expected_failures_are_apart_and_notes_are_text() {
    let mut report = sample_report::small();
    let is_failed = |package: &&mut ReportPackage| package.state == PackageState::Failed;
    let failed = report.packages.iter_mut().find(is_failed).unwrap();
    failed.is_expected_to_fail = true;
    failed.because = Some("<b>gcc</b> 14 \u{1b}[2J".into());
    failed.note = Some("<script>alert(1)</script> & \u{202e}".into());
    failed.has_network = true;
    let name = failed.name.clone();
    report.counts.failed_as_expected = 1;
    let others = report.packages.iter().filter(|package| package.state == PackageState::Failed).count() - 1;
    let page = page(&report);
    check(&page).unwrap();
    let part = |id: &str| {
        let start = page.find(&format!("<section id=\"{id}\"")).unwrap_or_else(|| panic!("no {id}"));
        &page[start..start + page[start..].find("</section>").unwrap()]
    };
    let expected = part("expected-failures");
    assert!(expected.contains(&name) && expected.contains("&lt;b&gt;gcc&lt;/b&gt; 14"), "{expected}");
    assert_eq!(page.contains("<section id=\"failures\""), others > 0);
    assert!(others == 0 || !part("failures").contains(&format!("<h3>{name}")));
    let row = part("packages");
    assert!(row.contains("&lt;script&gt;alert(1)&lt;/script&gt; &amp;"), "{row}");
    assert!(row.contains("as expected") && row.contains("built with network access"));
    assert!(!page.contains("<script") && !page.contains('\u{1b}') && !page.contains('\u{202e}'));
}

#[test]
fn a_cause_that_several_packages_share_is_listed_before_the_failures() {
    let mut report = sample_report::small();
    let cause = |title: &str, packages: &[&str]| ReportCause {
        title: title.to_owned(),
        packages: packages.iter().map(|name| (*name).to_owned()).collect(),
    };
    report.causes =
        vec![cause("build: a header is missing: <x.h>", &["one", "other"]), cause("test: last", &["c"])];
    let text = page(&report);
    check(&text).unwrap();
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} is missing"));
    assert!(at("a header is missing: &lt;x.h&gt;") < at("id=\"failures\""));
    assert!(at("a header is missing") < at("2 packages"));
    report.causes.remove(0);
    assert!(!page(&report).contains("id=\"causes\""), "one cause each is no news");
}

#[test]
fn endless_lines_are_cut_on_the_page() {
    let mut report = sample_report::small();
    let failed = report.packages.iter_mut().find_map(|package| package.failure.as_mut()).unwrap();
    failed.lines = vec!["x".repeat(5_000_000)];
    failed.message = "y".repeat(5_000_000);
    report.packages[0].reason = "z".repeat(5_000_000);
    report.left_out[0].reason = "line\n".repeat(1_000_000);
    let page = page(&report);
    assert!(page.len() < 200_000, "{}", page.len());
    assert!(page.contains("(4,999,600 more characters)") && page.contains("(999,960 more lines)"));
}
