//! The pages and the feed of a real yard during a real run, in a real browser.

use crate::driver::Browser;
use crate::fixtures::{Fixture, Shared, Trial, good, slow};
use crate::support::{Yard, until};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub const CASES: &[Trial] = &[
    ("pages_follow_a_run_in_a_browser", followed),
    ("readers_of_the_feed_survive_kills_of_the_server", killed),
];

/// A phone, a tablet, a laptop.
const WIDTHS: [u32; 3] = [400, 768, 1280];
/// How often the server is killed, unless KILNYARD_KILLS says otherwise.
const KILLS: usize = 20;

/// The rules of accessibility of axe-core, from its npm package; none if they are not on this machine.
pub fn axe() -> Option<PathBuf> {
    let given = std::env::var_os("KILNYARD_AXE").map(PathBuf::from);
    let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/axe.min.js");
    given.into_iter().chain([usual]).find(|path| path.is_file())
}

/// `kilnyard serve --only-pages` of a yard that everyone may read.
pub struct Pages {
    process: Child,
    pub url: String,
}

impl Pages {
    pub fn start(yard: &Yard, address: &str) -> Pages {
        let log = yard.folder.with_extension("pages-log");
        let mut command = yard.command(&["serve", "--only-pages", "--api", address]);
        command.stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap());
        let process = command.spawn().unwrap();
        let said = || fs::read_to_string(&log).unwrap();
        until("pages are served", || said().contains("Ctrl-C ends it"));
        let url = said().split("pages: ").nth(1).and_then(|rest| rest.lines().next()).unwrap().to_owned();
        Pages { process, url }
    }

    fn signal(&mut self, signal: i32) {
        // SAFETY: the child was not waited for, so the number is its own.
        unsafe { libc::kill(self.process.id() as i32, signal) };
        self.process.wait().unwrap();
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.process.try_wait().unwrap().is_none() {
            self.signal(libc::SIGINT);
        }
    }
}

/// Lets everyone read the pages of a yard.
pub fn open_to_all(yard: &Yard) {
    let config = yard.read("kilnyard.toml").replace("# anonymous = []", "anonymous = [\"read\"] #");
    yard.configure(&config);
}

fn json_of(url: &str) -> Value {
    let ended = Command::new("curl").args(["--silent", "--fail", "--noproxy", "*", url]).output().unwrap();
    serde_json::from_slice(&ended.stdout).unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// What extends beyond the right edge of the window without a scrolling container around it.
const TOO_WIDE: &str = "JSON.stringify([...document.querySelectorAll('body *')]
    .filter(e => !e.closest('.scroll, .heard, .skip, pre') || e.matches('.scroll, pre'))
    .filter(e => e.getBoundingClientRect().right > innerWidth + 0.5).slice(0, 5).map(e => e.outerHTML.slice(0, 120)))";

fn followed(shared: &Shared) {
    let broken = Fixture {
        build: "sleep 6; printf 'x.c:3: error: <script>window.owned = 1</script>\\n' >&2; exit 1",
        ..good("broken", "")
    };
    let yard = shared
        .yard("pages", &[slow("one", "sleep 14"), broken, good("blocked", "broken"), good("two", "one")]);
    open_to_all(&yard);
    let pages = Pages::start(&yard, "127.0.0.1:0");
    let Some(browser) = Browser::start("pages_follow_a_run_in_a_browser") else { return };
    browser.resize(1280, 900);
    browser.visit(&pages.url);
    assert_eq!(browser.ask("document.querySelector('h1').textContent"), "Runs");
    let mut build = yard.start(&["build"]);
    let api = |path: &str| json_of(&format!("{}api/v1/{path}", pages.url));
    until("the run has begun", || api("runs")["items"].as_array().is_some_and(|runs| !runs.is_empty()));
    until("both are being built", || api("runs/last")["building"].as_array().unwrap().len() == 2);

    // The page of the run changes by itself.
    browser.visit(&pages.url);
    browser.ask("window.same = true");
    let names =
        "[...document.querySelectorAll('.building tbody th a')].map(a => a.textContent).sort().join()";
    until("builds are listed", || browser.ask(names) == "broken,one");
    until("the failure appears", || browser.ask("document.querySelectorAll('.causes li').length") == 1);
    assert_eq!(
        (browser.ask("window.same"), browser.ask("typeof window.owned")),
        (json!(true), json!("undefined"))
    );
    assert!(
        browser.ask("document.querySelector('.causes').textContent").as_str().unwrap().contains("broken")
    );
    let sample = api("live");
    assert!(sample["builds"][0]["sample"]["processes"].as_u64() > Some(0), "{sample}");
    let queue = api("queue");
    assert_eq!(queue["items"][0]["package"], "two");
    assert_eq!(queue["items"][0]["waits_for"], json!(["one"]));
    assert!(queue["items"][0]["expected_start_seconds"].as_f64().is_some(), "{queue}");
    build.end().exits(1);
    until("the page is that of a run that has ended", || {
        browser.ask("document.querySelector('h1 .state')?.textContent") == "1 failed"
    });
    assert!(browser.ask("document.title").as_str().unwrap().starts_with("Run 1 of pages: 1 failed – "));

    // What commands print is what the API answers.
    for (path, arguments) in [
        ("runs/last", &["status"][..]),
        ("packages/broken/why", &["why", "broken"]),
        ("impact?packages=one", &["impact", "one"]),
    ] {
        let printed = yard.run(&[arguments, &["--json"]].concat()).json();
        assert_eq!(api(path), printed, "{path}");
    }
    assert_eq!(api("packages/broken/builds")["items"], yard.run(&["history", "broken", "--json"]).json());
    assert_eq!(api("runs")["items"], yard.run(&["history", "--json"]).json());
    let failures = api("runs/1/failures");
    assert_eq!(
        (&failures["newly_failing"], &failures["blocked"][0]["packages"]),
        (&json!(["broken"]), &json!(["blocked"]))
    );

    // Every page, at three sizes, light and dark, by the rules of accessibility.
    let axe = axe().map(|path| fs::read_to_string(path).unwrap());
    let build = failures["causes"][0]["packages"][0].as_str().unwrap();
    let number = api(&format!("packages/{build}"))["builds"][0]["build"].as_u64().unwrap();
    let log = format!("log/{number}/broken?stage=build");
    let all = [
        "",
        "runs",
        "runs/1",
        "runs/1/failures",
        "runs/1/packages",
        "packages/one",
        "packages/broken",
        "queue",
        "workers",
        "figures",
        "search?text=error",
        &log,
        "packages/absent",
    ];
    let mut violations = Vec::new();
    for page in all {
        for (width, scheme) in WIDTHS.into_iter().flat_map(|width| [(width, "light"), (width, "dark")]) {
            browser.resize(width, 900);
            browser.scheme("screen", scheme);
            browser.visit(&format!("{}{page}", pages.url));
            assert_eq!(browser.ask(TOO_WIDE), "[]", "{page} at {width}");
            if let (Some(axe), true) = (&axe, width != 768) {
                browser.ask(&format!("{axe}; 0"));
                let found = browser.ask_later(
                    "axe.run().then(r => JSON.stringify(r.violations.map(v => [v.id, v.nodes.slice(0, 3).map(n => n.html)])))",
                );
                if found != "[]" {
                    violations.push(format!("{page} at {width}, {scheme}: {found}"));
                }
            }
        }
        assert_eq!(browser.ask("typeof window.owned"), "undefined", "{page}");
    }
    assert!(violations.is_empty(), "{violations:#?}");
    let found = browser_text(&browser, &format!("{}search?text=X.C", pages.url));
    assert!(found.contains("x.c:3: error: <script>window.owned = 1</script>"), "{found}");
    // The telling line has an address.
    browser.visit(&format!("{}packages/broken", pages.url));
    let line = browser.ask("document.querySelector('.whole-log').getAttribute('href')");
    browser.visit(&format!("{}{}", pages.url.trim_end_matches('/'), line.as_str().unwrap()));
    let target = browser.ask("document.querySelector(':target').textContent");
    assert!(target.as_str().unwrap().contains("window.owned = 1"), "{target}");
    // By keyboard: the search, and the link over the navigation.
    browser.visit(&pages.url);
    browser.ask("document.dispatchEvent(new KeyboardEvent('keydown', { key: '/', bubbles: true }))");
    assert_eq!(browser.ask("document.activeElement.id"), "search");
    // Without scripts, forms and links do the same.
    browser.without_scripts();
    let failed = browser_text(&browser, &format!("{}runs/1/packages?state=failed", pages.url));
    assert!(failed.contains("broken") && !failed.contains("first build two"), "{failed}");

    // The report is the same pages as files, whole in itself, wherever it is.
    let copy = shared.path("pages-copy");
    assert!(
        Command::new("cp").args(["-r"]).arg(yard.path("report/1")).arg(&copy).status().unwrap().success()
    );
    assert_eq!(fs::read_link(yard.path("report/latest")).unwrap(), Path::new("1"));
    let mut seen = Vec::new();
    let mut open = vec![copy.join("index.html")];
    while let Some(page) = open.pop() {
        let text = fs::read_to_string(&page).unwrap();
        assert!(
            !text.contains(yard.folder.to_str().unwrap()),
            "{} has a path of this machine",
            page.display()
        );
        for link in text.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
            let (file, _) = link.split_once('#').unwrap_or((link, ""));
            let target = page.parent().unwrap().join(file.replace("%2C", ","));
            let target = target.canonicalize().unwrap_or_else(|_| panic!("{}: {link}", page.display()));
            if file.ends_with(".html") && !seen.contains(&target) {
                seen.push(target.clone());
                open.push(target);
            }
        }
    }
    assert!(seen.len() >= 5, "{seen:?}");
    browser.open(&copy.join("packages/broken.html"), "");
    assert_eq!(browser.ask("document.styleSheets.length"), 1);
    // In the formats of other programs.
    let junit = yard.run(&["report", "--junit", "-"]).exits(0).stdout;
    assert!(
        junit.contains("tests=\"4\" failures=\"1\" skipped=\"1\"") && junit.contains("&lt;script&gt;"),
        "{junit}"
    );
    let sarif: Value = serde_json::from_str(&yard.run(&["report", "--sarif", "-"]).exits(0).stdout).unwrap();
    assert_eq!(sarif["runs"][0]["results"].as_array().unwrap().len(), 1);
    let github = yard.run(&["report", "--github"]).exits(0).stdout;
    assert!(github.starts_with("::error title=broken failed::") && github.lines().count() == 1, "{github}");
    yard.run(&["report", "9"]).exits(2).says(&["there is no run 9"]);
}

fn browser_text(browser: &Browser, url: &str) -> String {
    browser.visit(url);
    browser.ask("document.body.innerText").as_str().unwrap().to_owned()
}

/// Reads the feed until its connection breaks, and returns the numbers of the events.
fn read_feed(url: &str, last: u64, seen: &mut Vec<u64>, until_seq: u64) {
    let mut command = Command::new("curl");
    command.args(["--silent", "--no-buffer", "--noproxy", "*", "-H", "Accept: text/event-stream"]);
    command.args(["-H", &format!("Last-Event-ID: {last}"), &format!("{url}api/v1/events")]);
    let mut reader = command.stdout(Stdio::piped()).spawn().unwrap();
    for line in BufReader::new(reader.stdout.take().unwrap()).lines().map_while(Result::ok) {
        seen.extend(line.strip_prefix("id: ").map(|id| id.parse::<u64>().unwrap()));
        if seen.last().is_some_and(|seq| *seq >= until_seq) {
            break;
        }
    }
    let _ = reader.kill();
    let _ = reader.wait();
}

fn killed(shared: &Shared) {
    let yard = shared.yard("pages-killed", &[good("one", ""), good("two", "one"), good("three", "two")]);
    open_to_all(&yard);
    let mut pages = Pages::start(&yard, "127.0.0.1:0");
    let url = pages.url.clone();
    let address = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
    // Readers connect again by themselves, as browsers do.
    let end = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(u64::MAX));
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let (url, end) = (url.clone(), end.clone());
            std::thread::spawn(move || {
                let mut seen: Vec<u64> = Vec::new();
                loop {
                    let last = end.load(std::sync::atomic::Ordering::Relaxed);
                    if seen.last().is_some_and(|seq| *seq >= last) {
                        return seen;
                    }
                    let from = seen.last().copied().unwrap_or(0);
                    read_feed(&url, from, &mut seen, last);
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
            })
        })
        .collect();
    let mut build = yard.start(&["build"]);
    let kills = std::env::var("KILNYARD_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(KILLS);
    for kill in 0..kills {
        std::thread::sleep(std::time::Duration::from_millis(150 + 40 * (kill as u64 % 7)));
        pages.signal(libc::SIGKILL);
        pages = Pages::start(&yard, &address);
    }
    build.end().exits(0);
    let all: Vec<u64> = {
        let ended = Command::new("curl")
            .args(["--silent", "--noproxy", "*", &format!("{url}api/v1/events?count=10000")])
            .output()
            .unwrap();
        let text = String::from_utf8(ended.stdout).unwrap();
        text.lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["seq"].as_u64().unwrap())
            .collect()
    };
    end.store(*all.last().unwrap(), std::sync::atomic::Ordering::Relaxed);
    // Those that wait for more are connected again.
    pages.signal(libc::SIGKILL);
    let pages = Pages::start(&yard, &address);
    for reader in readers {
        assert_eq!(reader.join().unwrap(), all, "missed or twice");
    }
    drop(pages);
}
