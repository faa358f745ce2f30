//! Tests the page in a real browser. Skipped, with a printed reason, if Chromium or its driver is missing.

mod driver;

use std::path::{Path, PathBuf};

use driver::Browser;
use kilnyard_web::{
    Counts, PackageState, Report, ReportFailure, ReportPackage, ReportStage, RunState, write,
};
use serde_json::Value;

#[path = "../examples/sample_report.rs"]
#[allow(dead_code)]
mod sample_report;

/// A phone, a tablet, a small window, a laptop, a wide screen.
const WIDTHS: [u32; 5] = [390, 768, 1000, 1280, 1600];

/// Width of an A4 sheet within the usual margins, in pixels.
const PAPER_WIDTH: u32 = 718;

/// Writes a report with its logs and returns the path of the page.
fn written(report: &Report, folder: &Path) -> PathBuf {
    write(report, &kilnyard_web::Pages::default(), folder).unwrap();
    sample_report::write_logs(report, folder).unwrap();
    folder.join(kilnyard_web::PAGE_FILE)
}

fn strings(value: Value) -> Vec<String> {
    serde_json::from_value(value).unwrap()
}

/// Finds elements that extend beyond the right edge of the window without a scrolling container around them.
const TOO_WIDE: &str = "JSON.stringify([document.documentElement.scrollWidth, innerWidth].concat(
    [...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, .heard, .skip, pre') || e.matches('.scroll, pre'))
        .filter(e => e.getBoundingClientRect().right > innerWidth + 0.5).slice(0, 5)
        .map(e => e.tagName + '.' + e.getAttribute('class') + '#' + e.id)))";

fn assert_fits(browser: &Browser, what: &str) {
    let found: Vec<Value> = serde_json::from_str(browser.ask(TOO_WIDE).as_str().unwrap()).unwrap();
    assert!(found[0].as_u64() <= found[1].as_u64() && found.len() == 2, "{what} is too wide: {found:?}");
}

#[test]
fn the_page_says_which_run_and_shows_failures_first() {
    let Some(browser) = Browser::start("the_page_says_which_run_and_shows_failures_first") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    browser.open(&written(&sample_report::small(), folder.path()), "");
    assert_eq!(browser.ask("document.title"), "Run 42 of internal: 2 failed – Kilnyard");
    assert_eq!(browser.ask("document.compatMode"), "CSS1Compat");
    let headings =
        strings(browser.ask("[...document.querySelectorAll('h2')].map(h => h.firstChild.data.trim())"));
    assert_eq!(
        headings,
        [
            "Failures",
            "Blocked packages",
            "Timeline",
            "Plan and result",
            "Slowest packages",
            "Cycles cut",
            "Left out",
            "All packages",
            "Repository"
        ]
    );
    let marked =
        strings(browser.ask("[...document.querySelectorAll('.failure mark')].map(m => m.textContent)"));
    assert_eq!(
        marked[0],
        "kdc/do_tgs_req.c:412:17: error: implicit declaration of function ‘krb5_db_get_context’"
    );
    let drawn =
        browser.ask("[...document.querySelectorAll('svg.timeline rect')].every(r => r.getBBox().width >= 0)");
    assert_eq!(drawn, true);
}

#[test]
fn every_link_leads_somewhere() {
    let Some(browser) = Browser::start("every_link_leads_somewhere") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut report = sample_report::small();
    // A name that needs encoding in a link, with a log that exists.
    report.packages[0].stages[0].log = Some("logs/g++ 100%#1?/ü \"x\".log".into());
    browser.open(&written(&report, folder.path()), "");
    let inside = strings(browser.ask(
        "[...document.querySelectorAll('a[href^=\"#\"]')].filter(a => !document.querySelector(a.hash)).map(a => a.hash)",
    ));
    assert_eq!(inside, [""; 0]);
    let files = strings(browser.ask(
        "[...document.querySelectorAll('a:not([href^=\"#\"])')].map(a => decodeURIComponent(new URL(a.href).pathname))",
    ));
    assert!(files.len() > 100, "{}", files.len());
    let logs =
        report.packages.iter().flat_map(|package| &package.stages).filter_map(|stage| stage.log.as_ref());
    for log in logs {
        assert!(files.contains(&folder.path().join(log).display().to_string()), "no link to {log}");
    }
    let missing: Vec<&String> = files.iter().filter(|file| !Path::new(file).is_file()).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let elsewhere = strings(browser.ask("performance.getEntriesByType('resource').map(r => r.name)"));
    assert_eq!(elsewhere, [""; 0], "the page loads nothing");
}

#[test]
fn the_page_fits_every_width_without_scripts() {
    let Some(browser) = Browser::start("the_page_fits_every_width_without_scripts") else {
        return;
    };
    browser.without_scripts();
    let folder = tempfile::tempdir().unwrap();
    let reports = [
        ("small", sample_report::small()),
        ("running", sample_report::running()),
        ("empty", sample_report::empty()),
        ("hostile", hostile()),
    ];
    for (name, report) in reports {
        let page = written(&report, &folder.path().join(name));
        for width in WIDTHS {
            browser.resize(width, 900);
            browser.open(&page, "");
            assert_fits(&browser, &format!("{name} at {width}"));
            // Folded content must fit as well.
            browser.ask("document.querySelectorAll('details').forEach(d => d.open = true)");
            assert_fits(&browser, &format!("{name} unfolded at {width}"));
        }
        assert_eq!(browser.ask("document.scripts.length"), 0);
    }
}

#[test]
fn both_schemes_apply_and_all_text_has_contrast() {
    let Some(browser) = Browser::start("both_schemes_apply_and_all_text_has_contrast") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let pages = [
        written(&sample_report::small(), &folder.path().join("small")),
        written(&sample_report::running(), &folder.path().join("running")),
    ];
    let ground = "getComputedStyle(document.body).backgroundColor";
    for page in &pages {
        let mut grounds = Vec::new();
        for scheme in ["light", "dark"] {
            browser.scheme("screen", scheme);
            browser.open(page, "");
            grounds.push(browser.ask(ground));
            let weak = strings(browser.ask(CONTRAST));
            assert!(weak.is_empty(), "{scheme}: {weak:#?}");
        }
        assert_eq!(grounds, ["rgb(247, 245, 241)", "rgb(22, 20, 18)"]);
    }
    browser.scheme("print", "dark");
    browser.open(&pages[0], "");
    assert_eq!(browser.ask(ground), "rgb(255, 255, 255)", "paper is white");
}

#[test]
fn nothing_is_cut_off_at_the_edge_of_the_paper() {
    let Some(browser) = Browser::start("nothing_is_cut_off_at_the_edge_of_the_paper") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    browser.scheme("print", "light");
    browser.resize(PAPER_WIDTH, 1000);
    for (name, report) in [("small", sample_report::small()), ("hostile", hostile())] {
        browser.open(&written(&report, &folder.path().join(name)), "");
        assert_eq!(browser.ask("matchMedia('print').matches"), true);
        let width = browser.ask("document.documentElement.scrollWidth");
        assert!(width.as_u64() <= Some(u64::from(PAPER_WIDTH)), "{name}: {width}");
    }
}

/// Finds text whose contrast with its background is below 4.5 to 1, the AA level for small text.
const CONTRAST: &str = r"(() => {
    const channel = c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const parse = text => text.match(/[\d.]+/g).map(Number);
    const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
    const under = element => {
        for (let e = element; e; e = e.parentElement) {
            const [r, g, b, a] = parse(getComputedStyle(e).backgroundColor);
            if (a === undefined || a === 1) return [r, g, b];
        }
        return [255, 255, 255];
    };
    const weak = new Set();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const element = walker.currentNode.parentElement;
        if (!walker.currentNode.data.trim() || element.matches('title, desc, .skip')) continue;
        const style = getComputedStyle(element);
        const ink = light(parse(element.closest('svg') ? style.fill : style.color)), ground = light(under(element));
        const contrast = (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
        if (contrast < 4.5) weak.add(`${element.tagName}.${element.getAttribute('class')} ${contrast.toFixed(2)}`);
    }
    return [...weak];
})()";

#[test]
fn a_hostile_build_is_only_text() {
    let Some(browser) = Browser::start("a_hostile_build_is_only_text") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    browser.open(&written(&hostile(), folder.path()), "");
    assert_eq!(browser.ask("document.scripts.length + document.images.length"), 0);
    assert_eq!(browser.ask("typeof window.owned"), "undefined");
    let line = browser.ask("document.querySelector('.failure mark').textContent");
    assert_eq!(line, "</pre><script>window.owned = 1</script>");
    let heading = browser.ask("document.querySelector('#f1 h3').textContent");
    assert!(heading.as_str().unwrap().starts_with("<img src=x onerror=\"window.owned=1\">"), "{heading}");
    let links = strings(browser.ask(
        "[...document.querySelectorAll('a')].map(a => a.protocol).filter(protocol => protocol != 'file:')",
    ));
    assert_eq!(links, [""; 0]);
    let policy = browser.ask("document.querySelector('meta[http-equiv]').content");
    assert!(policy.as_str().unwrap().starts_with("default-src 'none'; "), "{policy}");
}

#[test]
fn a_link_to_a_folded_failure_unfolds_it() {
    let Some(browser) = Browser::start("a_link_to_a_folded_failure_unfolds_it") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join(kilnyard_web::PAGE_FILE);
    write(&sample_report::large(12_000), &kilnyard_web::Pages::default(), folder.path()).unwrap();
    browser.open(&page, "");
    let last = "[...document.querySelectorAll('.folded .failure')].at(-1)";
    assert_eq!(browser.ask(&format!("{last}.checkVisibility({{contentVisibilityAuto: true}})")), false);
    let id = browser.ask(&format!("{last}.id"));
    browser.open(&page, &format!("#{}", id.as_str().unwrap()));
    assert_eq!(browser.ask(&format!("{last}.closest('details').open")), true);
    assert_fits(&browser, "a large run");
}

#[test]
fn the_page_is_accessible() {
    let Some(browser) = Browser::start("the_page_can_be_used_without_seeing_it") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    browser.open(&written(&sample_report::small(), folder.path()), "");
    for (what, found) in [
        (
            "landmarks",
            "['header', 'main', 'footer'].every(s => document.querySelectorAll(s).length == 1) && new Set([...document.querySelectorAll('nav')].map(n => n.getAttribute('aria-label'))).size == document.querySelectorAll('nav').length",
        ),
        ("a language", "document.documentElement.lang == 'en'"),
        (
            "no heading skips a level",
            "[...document.querySelectorAll('h1,h2,h3')].map(h => +h.tagName[1]).every((l, i, a) => i ? l <= a[i - 1] + 1 : l == 1)",
        ),
        (
            "sections have names",
            "[...document.querySelectorAll('section')].every(s => document.getElementById(s.getAttribute('aria-labelledby')).textContent)",
        ),
        (
            "headers have a scope",
            "[...document.querySelectorAll('th')].every(h => ['col', 'row'].includes(h.scope) && h.textContent.trim())",
        ),
        (
            "drawings are named or hidden",
            "[...document.querySelectorAll('svg')].every(s => s.getAttribute('aria-hidden') || (s.querySelector('title').textContent && s.querySelector('desc').textContent))",
        ),
        (
            "scrolling regions can be focused",
            "[...document.querySelectorAll('.scroll')].every(s => s.tabIndex == 0 && s.getAttribute('aria-label'))",
        ),
        ("links have text", "[...document.querySelectorAll('a')].every(a => a.textContent.trim())"),
    ] {
        assert_eq!(browser.ask(found), true, "{what}");
    }
}

/// A report with a hostile string in every text field and a nonsensical value in every number.
fn hostile() -> Report {
    let attack = "<img src=x onerror=\"window.owned=1\">'\u{1b}[31m\u{202e}&lt;";
    let script = "</pre><script>window.owned = 1</script>";
    let long = format!("{attack}{}", "W".repeat(5000));
    let stage = ReportStage {
        name: long.clone(),
        started_seconds: f64::NAN,
        wall_seconds: -3.0,
        outcome: "failed".into(),
        log: Some("javascript:window.owned=1".into()),
        ..ReportStage::default()
    };
    let failed = ReportPackage {
        name: long.clone(),
        version: long.clone(),
        state: PackageState::Failed,
        reason: long.clone(),
        slot: Some(u32::MAX),
        started_seconds: Some(f64::INFINITY),
        wall_seconds: 1e300,
        stages: vec![stage.clone(), ReportStage { log: Some("//host/x".into()), ..stage }],
        depends: vec![long.clone()],
        blocks: vec![long.clone(), script.into()],
        failure: Some(ReportFailure {
            stage: long.clone(),
            kind: script.into(),
            message: script.into(),
            line_number: Some(u64::MAX),
            lines: vec![long.clone(), script.into(), "\u{fffd}\0".into()],
        }),
        ..ReportPackage::default()
    };
    let second = ReportPackage {
        name: script.into(),
        started_seconds: Some(3.0),
        wall_seconds: 5.0,
        ..failed.clone()
    };
    Report {
        yard: long.clone(),
        ecosystem: script.into(),
        release: long.clone(),
        state: RunState::Finished,
        started_seconds: i64::MIN,
        wall_seconds: f64::NAN,
        counts: Counts { total: u64::MAX, built: u64::MAX, failed: u64::MAX, ..Counts::default() },
        bound_seconds: Some(f64::NEG_INFINITY),
        path: vec![kilnyard_web::PathStep { package: long.clone(), seconds: f64::NAN }],
        packages: vec![second, failed],
        cycles_cut: vec![kilnyard_web::CycleCut {
            package: long.clone(),
            dependency: script.into(),
            members: vec![long.clone(), script.into()],
            how: long.clone(),
        }],
        left_out: vec![kilnyard_web::LeftOut { package: long.clone(), reason: format!("{script}\n{long}") }],
        repository: Some(kilnyard_web::RepositoryFacts {
            path: long.clone(),
            sources_line: long.clone(),
            fingerprint: long.clone(),
            packages: u64::MAX,
        }),
        notes: vec![long, script.into()],
        ..Report::default()
    }
}
